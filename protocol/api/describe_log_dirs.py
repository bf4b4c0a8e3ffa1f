"""DescribeLogDirs (key 35): which directories hold which partitions, and how big they are.

=======  ==========================================
version  change
=======  ==========================================
0        directories, partitions, sizes
1        client, not broker, waits out a throttle
2        flexible
3        error for the whole answer
4        capacity of the volume (KIP-827)
5        whether the directory takes new partitions
=======  ==========================================
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.api_keys import ApiKey
from protocol.declare.primitives import (
    INT32,
    Direction,
    array,
    boolean,
    int16,
    int32,
    int64,
    message,
    string,
)


@dataclass(slots=True, kw_only=True)
class DescribableLogDirTopic:
    """The partitions of one topic."""

    topic: str = string()
    partitions: list[int] = array(INT32)


@message(ApiKey.DESCRIBE_LOG_DIRS, Direction.REQUEST, max_version=5, flexible_since=2)
@dataclass(slots=True, kw_only=True)
class DescribeLogDirsRequest:
    """The partitions to look for."""

    topics: list[DescribableLogDirTopic] | None = array(DescribableLogDirTopic, nullable_since=0)
    """Null for everything."""


@dataclass(slots=True, kw_only=True)
class DescribeLogDirsPartition:
    """One partition in one directory."""

    partition_index: int = int32()
    partition_size: int = int64()
    """Bytes of its segments."""

    offset_lag: int = int64()
    """Its lag relative to the log it copies, or to the high watermark."""

    is_future_key: bool = boolean()
    """Whether it is a copy on its way to replace the current one."""


@dataclass(slots=True, kw_only=True)
class DescribeLogDirsTopic:
    """The partitions of one topic."""

    name: str = string()
    partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition)


@dataclass(slots=True, kw_only=True)
class DescribeLogDirsResult:
    """One directory."""

    error_code: int = int16()
    log_dir: str = string()
    topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic)
    total_bytes: int = int64(since=4, default=-1)
    """Of the volume; -1 is unknown."""

    usable_bytes: int = int64(since=4, default=-1)
    is_cordoned: bool = boolean(since=5)


@message(ApiKey.DESCRIBE_LOG_DIRS, Direction.RESPONSE, max_version=5, flexible_since=2)
@dataclass(slots=True, kw_only=True)
class DescribeLogDirsResponse:
    """The directories of this broker."""

    throttle_time_ms: int = int32()
    error_code: int = int16(since=3)
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult)
