"""ReadShareGroupState (key 84, version 0): read stored states of a share group."""

from protocol.declare import primitives as wire


class PartitionData(wire.Struct):
    """One partition as the group has it."""

    partition: int = wire.int32()
    leader_epoch: int = wire.int32()
    """Of the broker that reads; -1 is not checked, and not stored."""


class ReadStateData(wire.Struct):
    """The partitions of one topic."""

    topic_id: bytes = wire.uuid()
    partitions: list[PartitionData] = wire.array(PartitionData)


class ReadShareGroupStateRequest(wire.Message, max_version=0, flexible_since=0):
    """The states to read."""

    group_id: str = wire.string()
    topics: list[ReadStateData] = wire.array(ReadStateData)


class StateBatch(wire.Struct):
    """A range of offsets in one state, both ends included."""

    first_offset: int = wire.int64()
    last_offset: int = wire.int64()
    delivery_state: int = wire.int8()
    """0 available, 2 acknowledged, 4 archived."""

    delivery_count: int = wire.int16()


class PartitionResult(wire.Struct):
    """The outcome for one partition."""

    partition: int = wire.int32()
    error_code: int = wire.int16()
    error_message: str | None = wire.string(nullable_since=0, default=None)
    state_epoch: int = wire.int32()
    start_offset: int = wire.int64()
    """-1 before the first fetch has decided."""

    state_batches: list[StateBatch] = wire.array(StateBatch)


class ReadStateResult(wire.Struct):
    """The partitions of one topic."""

    topic_id: bytes = wire.uuid()
    partitions: list[PartitionResult] = wire.array(PartitionResult)


class ReadShareGroupStateResponse(wire.Message, max_version=0, flexible_since=0):
    """The state of every partition; there is no time of throttling."""

    results: list[ReadStateResult] = wire.array(ReadStateResult)
