"""DescribeProducers (key 61, version 0): who has been writing to a partition (KIP-664)."""

from protocol.declare import primitives as wire
from protocol.structs import PartitionIndexes


class DescribeProducersRequest(wire.Message, max_version=0, flexible_since=0):
    """The partitions of interest."""

    topics: list[PartitionIndexes] = wire.array()


class ProducerState(wire.Struct):
    """One producer, as the log remembers it."""

    producer_id: int = wire.int64()
    producer_epoch: int = wire.int32()
    last_sequence: int = wire.int32(default=-1)
    last_timestamp: int = wire.int64(default=-1)
    """Milliseconds since the epoch of its last record."""

    coordinator_epoch: int = wire.int32()
    current_txn_start_offset: int = wire.int64(default=-1)
    """First offset of its open transaction, or -1."""


class PartitionResponse(wire.Struct):
    """The producers of one partition."""

    partition_index: int = wire.int32()
    error_code: int = wire.int16()
    error_message: str | None = wire.string(nullable_since=0, default=None)
    active_producers: list[ProducerState] = wire.array()


class TopicResponse(wire.Struct):
    """The partitions of one topic."""

    name: str = wire.string()
    partitions: list[PartitionResponse] = wire.array()


class DescribeProducersResponse(wire.Message, max_version=0, flexible_since=0):
    """The requested partitions."""

    throttle_time_ms: int = wire.int32()
    topics: list[TopicResponse] = wire.array()
