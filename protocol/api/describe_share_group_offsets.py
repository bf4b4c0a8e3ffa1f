"""DescribeShareGroupOffsets (key 90): where share groups stand in their partitions (KIP-932).

| version | change                  |
|---------|-------------------------|
| 0       | flexible from the start |
| 1       | lag (KIP-1226)          |
"""

from protocol.declare import primitives as wire


class DescribeShareGroupOffsetsRequestTopic(wire.Struct):
    """The partitions of one topic."""

    topic_name: str = wire.string()
    partitions: list[int] = wire.array(wire.INT32)


class DescribeShareGroupOffsetsRequestGroup(wire.Struct):
    """One group; null topics mean all that it has."""

    group_id: str = wire.string()
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = wire.array(nullable_since=0)


class DescribeShareGroupOffsetsRequest(wire.Message, max_version=1, flexible_since=0):
    """The groups of interest."""

    groups: list[DescribeShareGroupOffsetsRequestGroup] = wire.array()


class DescribeShareGroupOffsetsResponsePartition(wire.Struct):
    """One partition."""

    partition_index: int = wire.int32()
    start_offset: int = wire.int64()
    """The first offset that is not done; -1 while unknown."""

    leader_epoch: int = wire.int32()
    lag: int = wire.int64(since=1, default=-1)
    """Records from there to the high watermark that are not done; -1 while unknown."""

    error_code: int = wire.int16()
    error_message: str | None = wire.string(nullable_since=0, default=None)


class DescribeShareGroupOffsetsResponseTopic(wire.Struct):
    """The partitions of one topic."""

    topic_name: str = wire.string()
    topic_id: bytes = wire.uuid()
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = wire.array()


class DescribeShareGroupOffsetsResponseGroup(wire.Struct):
    """One group."""

    group_id: str = wire.string()
    topics: list[DescribeShareGroupOffsetsResponseTopic] = wire.array()
    error_code: int = wire.int16()
    error_message: str | None = wire.string(nullable_since=0, default=None)


class DescribeShareGroupOffsetsResponse(wire.Message, max_version=1, flexible_since=0):
    """The requested groups."""

    throttle_time_ms: int = wire.int32()
    groups: list[DescribeShareGroupOffsetsResponseGroup] = wire.array()
