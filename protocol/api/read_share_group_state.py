"""ReadShareGroupState (key 84, version 0): read stored states of a share group."""

from protocol.declare import primitives as wire
from protocol.structs import StatesToRead, StoredBatch


class ReadShareGroupStateRequest(wire.Message, max_version=0, flexible_since=0):
    """The states to read."""

    group_id: str = wire.string()
    topics: list[StatesToRead] = wire.array()


class PartitionResult(wire.Struct):
    """The outcome for one partition."""

    partition: int = wire.int32()
    error_code: int = wire.int16()
    error_message: str | None = wire.string(nullable_since=0, default=None)
    state_epoch: int = wire.int32()
    start_offset: int = wire.int64()
    """-1 before the first fetch has decided."""

    state_batches: list[StoredBatch] = wire.array()


class ReadStateResult(wire.Struct):
    """The partitions of one topic."""

    topic_id: bytes = wire.uuid()
    partitions: list[PartitionResult] = wire.array()


class ReadShareGroupStateResponse(wire.Message, max_version=0, flexible_since=0):
    """The state of every partition; there is no time of throttling."""

    results: list[ReadStateResult] = wire.array()
