"""OffsetForLeaderEpoch (key 23): where an epoch ended, to find out whether a log was truncated.

| version | change                                                                 |
|---------|------------------------------------------------------------------------|
| 0       | end offset of an epoch                                                 |
| 1       | answer names the epoch it found                                        |
| 2       | current leader epoch fences; answer carries throttle_time_ms (KIP-320) |
| 3       | replica id; -2 is a debugging reader                                   |
| 4       | flexible                                                               |
"""

from protocol.declare import primitives as wire


class OffsetForLeaderPartition(wire.Struct):
    """The epoch in question, in one partition."""

    partition: int = wire.int32()
    current_leader_epoch: int = wire.int32(since=2, default=-1)
    leader_epoch: int = wire.int32()


class OffsetForLeaderTopic(wire.Struct):
    """The partitions of one topic."""

    topic: str = wire.string()
    partitions: list[OffsetForLeaderPartition] = wire.array()


class OffsetForLeaderEpochRequest(wire.Message, max_version=4, flexible_since=4):
    """Epochs whose ends are wanted."""

    replica_id: int = wire.int32(since=3, default=-2)
    topics: list[OffsetForLeaderTopic] = wire.array()


class EpochEndOffset(wire.Struct):
    """The greatest known epoch not above the requested one, and its exclusive end."""

    error_code: int = wire.int16()
    partition: int = wire.int32()
    leader_epoch: int = wire.int32(since=1, default=-1)
    end_offset: int = wire.int64(default=-1)
    """-1 when unknown."""


class OffsetForLeaderTopicResult(wire.Struct):
    """The partitions of one topic."""

    topic: str = wire.string()
    partitions: list[EpochEndOffset] = wire.array()


class OffsetForLeaderEpochResponse(wire.Message, max_version=4, flexible_since=4):
    """The requested ends."""

    throttle_time_ms: int = wire.int32(since=2)
    topics: list[OffsetForLeaderTopicResult] = wire.array()
