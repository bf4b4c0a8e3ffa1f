"""CreateTopics (key 19): create topics.

| version | change                                                                            |
|---------|-----------------------------------------------------------------------------------|
| 0       | partitions or assignments, replication factor, configuration                      |
| 1       | dry run; error message                                                            |
| 2       | answer carries throttle_time_ms                                                   |
| 3       | client, not broker, waits out a throttle                                          |
| 4       | -1 asks for the broker's default partition count and replication factor (KIP-464) |
| 5       | flexible; answer carries the effective configuration (KIP-525)                    |
| 6       | THROTTLING_QUOTA_EXCEEDED may be answered (KIP-599)                               |
| 7       | answer carries the topic id (KIP-516)                                             |
"""

from protocol.declare import primitives as wire
from protocol.structs import ConfigText


class CreatableReplicaAssignment(wire.Struct):
    """Brokers for one partition, the preferred leader first."""

    partition_index: int = wire.int32()
    broker_ids: list[int] = wire.array(wire.INT32)


class CreatableTopic(wire.Struct):
    """A topic to create."""

    name: str = wire.string()
    num_partitions: int = wire.int32()
    """-1 when assignments are given, or for the default."""

    replication_factor: int = wire.int16()
    """-1 when assignments are given, or for the default."""

    assignments: list[CreatableReplicaAssignment] = wire.array()
    configs: list[ConfigText] = wire.array()


class CreateTopicsRequest(wire.Message, max_version=7, flexible_since=5):
    """Topics to create, each on its own merits."""

    topics: list[CreatableTopic] = wire.array()
    timeout_ms: int = wire.int32(default=60000)
    validate_only: bool = wire.boolean(since=1)


class CreatableTopicConfigs(wire.Struct):
    """One effective setting of a new topic."""

    name: str = wire.string(since=5)
    value: str | None = wire.string(since=5, nullable_since=5)
    read_only: bool = wire.boolean(since=5)
    config_source: int = wire.int8(since=5, default=-1)
    """Same codes as in DescribeConfigs."""

    is_sensitive: bool = wire.boolean(since=5)


class CreatableTopicResult(wire.Struct):
    """The outcome for one topic."""

    name: str = wire.string()
    topic_id: bytes = wire.uuid(since=7)
    error_code: int = wire.int16()
    error_message: str | None = wire.string(since=1, nullable_since=1)
    topic_config_error_code: int = wire.int16(since=5, tag=0)
    """Set when the caller may not see the configuration."""

    num_partitions: int = wire.int32(since=5, default=-1)
    replication_factor: int = wire.int16(since=5, default=-1)
    configs: list[CreatableTopicConfigs] | None = wire.array(
        since=5, nullable_since=5, pre_encoded=True
    )
    """Null when the caller may not see it, or the topic was not created."""


class CreateTopicsResponse(wire.Message, max_version=7, flexible_since=5):
    """The outcome for every topic."""

    throttle_time_ms: int = wire.int32(since=2)
    topics: list[CreatableTopicResult] = wire.array()
