"""DescribeLogDirs (key 35): which directories hold which partitions, and how big they are.

| version | change                                     |
|---------|--------------------------------------------|
| 0       | directories, partitions, sizes             |
| 1       | client, not broker, waits out a throttle   |
| 2       | flexible                                   |
| 3       | error for the whole answer                 |
| 4       | capacity of the volume (KIP-827)           |
| 5       | whether the directory takes new partitions |
"""

from protocol.declare import primitives as wire
from protocol.structs import TopicIndexes


class DescribeLogDirsRequest(wire.Message, max_version=5, flexible_since=2):
    """The partitions to look for."""

    topics: list[TopicIndexes] | None = wire.array(nullable_since=0)
    """Null for everything."""


class DescribeLogDirsPartition(wire.Struct):
    """One partition in one directory."""

    partition_index: int = wire.int32()
    partition_size: int = wire.int64()
    """Bytes of its segments."""

    offset_lag: int = wire.int64()
    """Its lag relative to the log it copies, or to the high watermark."""

    is_future_key: bool = wire.boolean()
    """Whether it is a copy on its way to replace the current one."""


class DescribeLogDirsTopic(wire.Struct):
    """The partitions of one topic."""

    name: str = wire.string()
    partitions: list[DescribeLogDirsPartition] = wire.array()


class DescribeLogDirsResult(wire.Struct):
    """One directory."""

    error_code: int = wire.int16()
    log_dir: str = wire.string()
    topics: list[DescribeLogDirsTopic] = wire.array()
    total_bytes: int = wire.int64(since=4, default=-1)
    """Of the volume; -1 is unknown."""

    usable_bytes: int = wire.int64(since=4, default=-1)
    is_cordoned: bool = wire.boolean(since=5)


class DescribeLogDirsResponse(wire.Message, max_version=5, flexible_since=2):
    """The directories of this broker."""

    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16(since=3)
    results: list[DescribeLogDirsResult] = wire.array()
