"""WriteTxnMarkers (key 27): write the end of a transaction into its partitions; between brokers.

| version | change                         |
|---------|--------------------------------|
| 0       | markers per producer           |
| 1       | flexible                       |
| 2       | transaction version (KIP-1228) |
"""

from protocol.declare import primitives as wire
from protocol.structs import PartitionIndexes, TopicErrors


class WritableTxnMarker(wire.Struct):
    """One transaction's end."""

    producer_id: int = wire.int64()
    producer_epoch: int = wire.int16()
    transaction_result: bool = wire.boolean()
    """True commits, false aborts."""

    topics: list[PartitionIndexes] = wire.array()
    coordinator_epoch: int = wire.int32()
    transaction_version: int = wire.int8(since=2)


class WriteTxnMarkersRequest(wire.Message, max_version=2, flexible_since=1):
    """Markers to write."""

    markers: list[WritableTxnMarker] = wire.array()


class WritableTxnMarkerResult(wire.Struct):
    """The outcome for one producer."""

    producer_id: int = wire.int64()
    topics: list[TopicErrors] = wire.array()


class WriteTxnMarkersResponse(wire.Message, max_version=2, flexible_since=1):
    """The outcome for every marker."""

    markers: list[WritableTxnMarkerResult] = wire.array()
