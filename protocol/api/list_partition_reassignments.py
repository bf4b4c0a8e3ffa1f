"""ListPartitionReassignments (key 46, version 0): moves of partitions in progress (KIP-455)."""

from protocol.declare import primitives as wire
from protocol.structs import PartitionIndexes


class ListPartitionReassignmentsRequest(wire.Message, max_version=0, flexible_since=0):
    """The partitions of interest."""

    timeout_ms: int = wire.int32(default=60000)
    topics: list[PartitionIndexes] | None = wire.array(nullable_since=0, default=None)
    """Null for all."""


class OngoingPartitionReassignment(wire.Struct):
    """One move."""

    partition_index: int = wire.int32()
    replicas: list[int] = wire.array(wire.INT32)
    adding_replicas: list[int] = wire.array(wire.INT32)
    removing_replicas: list[int] = wire.array(wire.INT32)


class OngoingTopicReassignment(wire.Struct):
    """The partitions of one topic."""

    name: str = wire.string()
    partitions: list[OngoingPartitionReassignment] = wire.array()


class ListPartitionReassignmentsResponse(wire.Message, max_version=0, flexible_since=0):
    """The moves in progress."""

    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16()
    error_message: str | None = wire.string(nullable_since=0)
    topics: list[OngoingTopicReassignment] = wire.array()
