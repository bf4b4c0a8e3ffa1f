"""OffsetFetch (key 9): return how far a group has read.

Up to v7 a request names one group at its top level; from v8 it names any number in ``groups``, and
the answer has the same form.

| version | change                                                                 |
|---------|------------------------------------------------------------------------|
| 0       | offsets that Kafka kept in ZooKeeper                                   |
| 1       | offsets kept in the log                                                |
| 2       | null topics mean all; error for the whole answer                       |
| 3       | answer carries throttle_time_ms                                        |
| 4       | client, not broker, waits out a throttle                               |
| 5       | leader epoch of the committed offset (KIP-320)                         |
| 6       | flexible                                                               |
| 7       | require_stable waits out open transactions (KIP-447)                   |
| 8       | several groups at once (KIP-709)                                       |
| 9       | member id and epoch are checked for consumer-protocol groups (KIP-848) |
| 10      | topics by id instead of name                                           |
"""

from protocol.declare import primitives as wire
from protocol.structs import PartitionIndexes


class OffsetFetchRequestTopics(wire.Struct):
    """The partitions of one topic, from v8."""

    name: str = wire.string(since=8, until=9)
    topic_id: bytes = wire.uuid(since=10)
    partition_indexes: list[int] = wire.array(wire.INT32, since=8)


class OffsetFetchRequestGroup(wire.Struct):
    """One group and the topics of interest."""

    group_id: str = wire.string(since=8)
    member_id: str | None = wire.string(since=9, nullable_since=9, default=None)
    member_epoch: int = wire.int32(since=9, default=-1)
    topics: list[OffsetFetchRequestTopics] | None = wire.array(since=8, nullable_since=8)
    """Null for everything the group has committed."""


class OffsetFetchRequest(wire.Message, max_version=10, flexible_since=6):
    """The positions wanted."""

    group_id: str = wire.string(until=7)
    topics: list[PartitionIndexes] | None = wire.array(until=7, nullable_since=2)
    """Null for everything the group has committed, from v2 on."""

    groups: list[OffsetFetchRequestGroup] = wire.array(since=8)
    require_stable: bool = wire.boolean(since=7)
    """Answer UNSTABLE_OFFSET_COMMIT while a transaction may still change the position."""


class OffsetFetchResponsePartition(wire.Struct):
    """One position, up to v7."""

    partition_index: int = wire.int32(until=7)
    committed_offset: int = wire.int64(until=7)
    """-1 when none is known."""

    committed_leader_epoch: int = wire.int32(since=5, until=7, default=-1)
    metadata: str | None = wire.string(until=7, nullable_since=0)
    error_code: int = wire.int16(until=7)


class OffsetFetchResponseTopic(wire.Struct):
    """The partitions of one topic, up to v7."""

    name: str = wire.string(until=7)
    partitions: list[OffsetFetchResponsePartition] = wire.array(until=7)


class OffsetFetchResponsePartitions(wire.Struct):
    """One position, from v8."""

    partition_index: int = wire.int32(since=8)
    committed_offset: int = wire.int64(since=8)
    """-1 when none is known."""

    committed_leader_epoch: int = wire.int32(since=8, default=-1)
    metadata: str | None = wire.string(since=8, nullable_since=8)
    error_code: int = wire.int16(since=8)


class OffsetFetchResponseTopics(wire.Struct):
    """The partitions of one topic, from v8."""

    name: str = wire.string(since=8, until=9)
    topic_id: bytes = wire.uuid(since=10)
    partitions: list[OffsetFetchResponsePartitions] = wire.array(since=8)


class OffsetFetchResponseGroup(wire.Struct):
    """The positions of one group."""

    group_id: str = wire.string(since=8)
    topics: list[OffsetFetchResponseTopics] = wire.array(since=8)
    error_code: int = wire.int16(since=8)


class OffsetFetchResponse(wire.Message, max_version=10, flexible_since=6):
    """The requested positions."""

    throttle_time_ms: int = wire.int32(since=3)
    topics: list[OffsetFetchResponseTopic] = wire.array(until=7)
    error_code: int = wire.int16(since=2, until=7)
    groups: list[OffsetFetchResponseGroup] = wire.array(since=8)
