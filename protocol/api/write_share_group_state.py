"""WriteShareGroupState (key 85): add to stored states of a share group.

| version | change                                  |
|---------|-----------------------------------------|
| 0       | first version (KIP-932)                 |
| 1       | the number of records done (KIP-1226)   |
"""

from protocol.declare import primitives as wire
from protocol.structs import StateErrors, StoredBatch


class PartitionData(wire.Struct):
    """One partition as the group has it."""

    partition: int = wire.int32()
    state_epoch: int = wire.int32()
    """Of the state that the writer has read; -1 is not checked."""

    leader_epoch: int = wire.int32()
    """Of the broker that writes; -1 is not checked."""

    start_offset: int = wire.int64()
    """-1 is unchanged."""

    delivery_complete_count: int = wire.int32(since=1, default=-1)
    """How many records from the start on are done; -1 is unknown."""

    state_batches: list[StoredBatch] = wire.array()


class WriteStateData(wire.Struct):
    """The partitions of one topic."""

    topic_id: bytes = wire.uuid()
    partitions: list[PartitionData] = wire.array()


class WriteShareGroupStateRequest(wire.Message, max_version=1, flexible_since=0):
    """What is new."""

    group_id: str = wire.string()
    topics: list[WriteStateData] = wire.array()


class WriteShareGroupStateResponse(wire.Message, max_version=1, flexible_since=0):
    """The outcome for every partition; there is no time of throttling."""

    results: list[StateErrors] = wire.array()
