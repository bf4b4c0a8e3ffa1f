"""DeleteRecords (key 21): move the start of a log forward.

=======  ========================================
version  change
=======  ========================================
0        offset per partition
1        client, not broker, waits out a throttle
2        flexible
=======  ========================================
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.api_keys import ApiKey
from protocol.declare.primitives import Direction, array, int16, int32, int64, message, string


@dataclass(slots=True, kw_only=True)
class DeleteRecordsPartition:
    """All records below ``offset`` are deleted."""

    partition_index: int = int32()
    offset: int = int64()
    """-1 means the high watermark."""


@dataclass(slots=True, kw_only=True)
class DeleteRecordsTopic:
    """The partitions of one topic."""

    name: str = string()
    partitions: list[DeleteRecordsPartition] = array(DeleteRecordsPartition)


@message(ApiKey.DELETE_RECORDS, Direction.REQUEST, max_version=2, flexible_since=2)
@dataclass(slots=True, kw_only=True)
class DeleteRecordsRequest:
    """New starts of logs."""

    topics: list[DeleteRecordsTopic] = array(DeleteRecordsTopic)
    timeout_ms: int = int32()


@dataclass(slots=True, kw_only=True)
class DeleteRecordsPartitionResult:
    """The start of one log afterwards."""

    partition_index: int = int32()
    low_watermark: int = int64()
    """-1 on error."""

    error_code: int = int16()


@dataclass(slots=True, kw_only=True)
class DeleteRecordsTopicResult:
    """The partitions of one topic."""

    name: str = string()
    partitions: list[DeleteRecordsPartitionResult] = array(DeleteRecordsPartitionResult)


@message(ApiKey.DELETE_RECORDS, Direction.RESPONSE, max_version=2, flexible_since=2)
@dataclass(slots=True, kw_only=True)
class DeleteRecordsResponse:
    """The outcome for every partition."""

    throttle_time_ms: int = int32()
    topics: list[DeleteRecordsTopicResult] = array(DeleteRecordsTopicResult)
