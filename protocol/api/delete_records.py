"""DeleteRecords (key 21): move the start of a log forward.

| version | change                                   |
|---------|------------------------------------------|
| 0       | offset per partition                     |
| 1       | client, not broker, waits out a throttle |
| 2       | flexible                                 |
"""

from protocol.declare import primitives as wire


class DeleteRecordsPartition(wire.Struct):
    """All records below ``offset`` are deleted."""

    partition_index: int = wire.int32()
    offset: int = wire.int64()
    """-1 means the high watermark."""


class DeleteRecordsTopic(wire.Struct):
    """The partitions of one topic."""

    name: str = wire.string()
    partitions: list[DeleteRecordsPartition] = wire.array()


class DeleteRecordsRequest(wire.Message, max_version=2, flexible_since=2):
    """New starts of logs."""

    topics: list[DeleteRecordsTopic] = wire.array()
    timeout_ms: int = wire.int32()


class DeleteRecordsPartitionResult(wire.Struct):
    """The start of one log afterwards."""

    partition_index: int = wire.int32()
    low_watermark: int = wire.int64()
    """-1 on error."""

    error_code: int = wire.int16()


class DeleteRecordsTopicResult(wire.Struct):
    """The partitions of one topic."""

    name: str = wire.string()
    partitions: list[DeleteRecordsPartitionResult] = wire.array()


class DeleteRecordsResponse(wire.Message, max_version=2, flexible_since=2):
    """The outcome for every partition."""

    throttle_time_ms: int = wire.int32()
    topics: list[DeleteRecordsTopicResult] = wire.array()
