"""AlterPartitionReassignments (key 45): start or cancel moves of partitions (KIP-455).

| version | change                               |
|---------|--------------------------------------|
| 0       | flexible from the start              |
| 1       | replication factor may be held fixed |
"""

from protocol.declare import primitives as wire


class ReassignablePartition(wire.Struct):
    """Where one partition shall live."""

    partition_index: int = wire.int32()
    replicas: list[int] | None = wire.array(wire.INT32, nullable_since=0, default=None)
    """Null cancels a move in progress."""


class ReassignableTopic(wire.Struct):
    """The partitions of one topic."""

    name: str = wire.string()
    partitions: list[ReassignablePartition] = wire.array()


class AlterPartitionReassignmentsRequest(wire.Message, max_version=1, flexible_since=0):
    """The moves."""

    timeout_ms: int = wire.int32(default=60000)
    allow_replication_factor_change: bool = wire.boolean(since=1, default=True)
    topics: list[ReassignableTopic] = wire.array()


class ReassignablePartitionResponse(wire.Struct):
    """Whether one move was accepted."""

    partition_index: int = wire.int32()
    error_code: int = wire.int16()
    error_message: str | None = wire.string(nullable_since=0)


class ReassignableTopicResponse(wire.Struct):
    """The partitions of one topic."""

    name: str = wire.string()
    partitions: list[ReassignablePartitionResponse] = wire.array()


class AlterPartitionReassignmentsResponse(wire.Message, max_version=1, flexible_since=0):
    """The outcome for every partition."""

    throttle_time_ms: int = wire.int32()
    allow_replication_factor_change: bool = wire.boolean(since=1, default=True)
    error_code: int = wire.int16()
    error_message: str | None = wire.string(nullable_since=0)
    responses: list[ReassignableTopicResponse] = wire.array()
