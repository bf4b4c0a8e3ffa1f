"""CreatePartitions (key 37): give a topic more partitions.

| version | change                                              |
|---------|-----------------------------------------------------|
| 0       | new total per topic                                 |
| 1       | client, not broker, waits out a throttle            |
| 2       | flexible                                            |
| 3       | THROTTLING_QUOTA_EXCEEDED may be answered (KIP-599) |
"""

from protocol.declare import primitives as wire


class CreatePartitionsAssignment(wire.Struct):
    """Brokers for one new partition."""

    broker_ids: list[int] = wire.array(wire.INT32)


class CreatePartitionsTopic(wire.Struct):
    """A topic and its new total."""

    name: str = wire.string()
    count: int = wire.int32()
    """The total afterwards, not the difference."""

    assignments: list[CreatePartitionsAssignment] | None = wire.array(nullable_since=0)
    """One per new partition, or null to let the broker choose."""


class CreatePartitionsRequest(wire.Message, max_version=3, flexible_since=2):
    """Topics to grow, each on its own merits."""

    topics: list[CreatePartitionsTopic] = wire.array()
    timeout_ms: int = wire.int32()
    validate_only: bool = wire.boolean()


class CreatePartitionsTopicResult(wire.Struct):
    """The outcome for one topic."""

    name: str = wire.string()
    error_code: int = wire.int16()
    error_message: str | None = wire.string(nullable_since=0, default=None)


class CreatePartitionsResponse(wire.Message, max_version=3, flexible_since=2):
    """The outcome for every topic."""

    throttle_time_ms: int = wire.int32()
    results: list[CreatePartitionsTopicResult] = wire.array()
