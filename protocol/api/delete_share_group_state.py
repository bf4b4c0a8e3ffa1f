"""DeleteShareGroupState (key 86, version 0): delete stored states of a share group."""

from protocol.declare import primitives as wire
from protocol.structs import StateErrors


class PartitionData(wire.Struct):
    """One partition as the group has it."""

    partition: int = wire.int32()


class DeleteStateData(wire.Struct):
    """The partitions of one topic."""

    topic_id: bytes = wire.uuid()
    partitions: list[PartitionData] = wire.array()


class DeleteShareGroupStateRequest(wire.Message, max_version=0, flexible_since=0):
    """The states to delete."""

    group_id: str = wire.string()
    topics: list[DeleteStateData] = wire.array()


class DeleteShareGroupStateResponse(wire.Message, max_version=0, flexible_since=0):
    """The outcome for every partition; there is no time of throttling."""

    results: list[StateErrors] = wire.array()
