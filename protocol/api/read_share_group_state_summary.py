"""ReadShareGroupStateSummary (key 87): where a share group stands, without its batches.

| version | change                                  |
|---------|-----------------------------------------|
| 0       | first version (KIP-932)                 |
| 1       | the number of records done (KIP-1226)   |
"""

from protocol.declare import primitives as wire
from protocol.structs import StatesToRead


class ReadShareGroupStateSummaryRequest(wire.Message, max_version=1, flexible_since=0):
    """The states to sum up."""

    group_id: str = wire.string()
    topics: list[StatesToRead] = wire.array()


class PartitionResult(wire.Struct):
    """The outcome for one partition."""

    partition: int = wire.int32()
    error_code: int = wire.int16()
    error_message: str | None = wire.string(nullable_since=0, default=None)
    state_epoch: int = wire.int32()
    leader_epoch: int = wire.int32()
    start_offset: int = wire.int64()
    """-1 before the first fetch has decided, and of a state that does not exist."""

    delivery_complete_count: int = wire.int32(since=1, default=-1)
    """How many records from the start on are done; -1 is unknown."""


class ReadStateSummaryResult(wire.Struct):
    """The partitions of one topic."""

    topic_id: bytes = wire.uuid()
    partitions: list[PartitionResult] = wire.array()


class ReadShareGroupStateSummaryResponse(wire.Message, max_version=1, flexible_since=0):
    """Where the group stands in every partition; there is no time of throttling."""

    results: list[ReadStateSummaryResult] = wire.array()
