"""InitializeShareGroupState (key 83, version 0): begin stored states of a share group."""

from protocol.declare import primitives as wire
from protocol.structs import StateErrors


class PartitionData(wire.Struct):
    """One partition as the group has it."""

    partition: int = wire.int32()
    state_epoch: int = wire.int32()
    """Grows with each beginning; -1 is not checked."""

    start_offset: int = wire.int64()
    """-1 lets the first fetch decide."""


class InitializeStateData(wire.Struct):
    """The partitions of one topic."""

    topic_id: bytes = wire.uuid()
    partitions: list[PartitionData] = wire.array()


class InitializeShareGroupStateRequest(wire.Message, max_version=0, flexible_since=0):
    """The states that begin."""

    group_id: str = wire.string()
    topics: list[InitializeStateData] = wire.array()


class InitializeShareGroupStateResponse(wire.Message, max_version=0, flexible_since=0):
    """The outcome for every partition; there is no time of throttling."""

    results: list[StateErrors] = wire.array()
