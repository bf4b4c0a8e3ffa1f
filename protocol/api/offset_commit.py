"""OffsetCommit (key 8): store how far a group has read.

| version | change                                                                                |
|---------|---------------------------------------------------------------------------------------|
| 0       | offset and metadata, kept in ZooKeeper by Kafka                                       |
| 1       | kept in the log; group membership; a timestamp per partition                          |
| 2       | one retention time replaces the timestamps                                            |
| 3       | answer carries throttle_time_ms                                                       |
| 4       | client, not broker, waits out a throttle                                              |
| 5       | retention time dropped, the broker decides (KIP-211)                                  |
| 6       | leader epoch of the committed offset (KIP-320)                                        |
| 7       | static membership (KIP-345)                                                           |
| 8       | flexible                                                                              |
| 9       | usable by consumer-protocol members: STALE_MEMBER_EPOCH, GROUP_ID_NOT_FOUND (KIP-848) |
| 10      | topics by id instead of name                                                          |
"""

from protocol.declare import primitives as wire
from protocol.structs import PartitionError


class OffsetCommitRequestPartition(wire.Struct):
    """The position to remember for one partition."""

    partition_index: int = wire.int32()
    committed_offset: int = wire.int64()
    """The next offset to read, not the last one read."""

    committed_leader_epoch: int = wire.int32(since=6, default=-1)
    commit_timestamp: int = wire.int64(since=1, until=1, default=-1)
    committed_metadata: str | None = wire.string(nullable_since=0)
    """Free text of the client; null is stored as empty."""


class OffsetCommitRequestTopic(wire.Struct):
    """The partitions of one topic."""

    name: str = wire.string(until=9)
    topic_id: bytes = wire.uuid(since=10)
    partitions: list[OffsetCommitRequestPartition] = wire.array()


class OffsetCommitRequest(wire.Message, max_version=10, flexible_since=8):
    """Positions of one group, with proof of membership."""

    group_id: str = wire.string()
    generation_id_or_member_epoch: int = wire.int32(since=1, default=-1)
    """-1 commits from outside of the group's membership."""

    member_id: str = wire.string(since=1)
    group_instance_id: str | None = wire.string(since=7, nullable_since=7, default=None)
    retention_time_ms: int = wire.int64(since=2, until=4, default=-1)
    """-1 leaves it to the broker."""

    topics: list[OffsetCommitRequestTopic] = wire.array()


class OffsetCommitResponseTopic(wire.Struct):
    """The partitions of one topic."""

    name: str = wire.string(until=9)
    topic_id: bytes = wire.uuid(since=10)
    partitions: list[PartitionError] = wire.array()


class OffsetCommitResponse(wire.Message, max_version=10, flexible_since=8):
    """The outcome for every partition."""

    throttle_time_ms: int = wire.int32(since=3)
    topics: list[OffsetCommitResponseTopic] = wire.array()
