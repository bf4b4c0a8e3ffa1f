"""WriteTxnMarkers (key 27): write the end of a transaction into its partitions; between brokers.

=======  ==============================
version  change
=======  ==============================
0        markers per producer
1        flexible
2        transaction version (KIP-1228)
=======  ==============================
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.api_keys import ApiKey
from protocol.declare.primitives import (
    INT32,
    Direction,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    message,
    string,
)


@dataclass(slots=True, kw_only=True)
class WritableTxnMarkerTopic:
    """The partitions of one topic."""

    name: str = string()
    partition_indexes: list[int] = array(INT32)


@dataclass(slots=True, kw_only=True)
class WritableTxnMarker:
    """One transaction's end."""

    producer_id: int = int64()
    producer_epoch: int = int16()
    transaction_result: bool = boolean()
    """True commits, false aborts."""

    topics: list[WritableTxnMarkerTopic] = array(WritableTxnMarkerTopic)
    coordinator_epoch: int = int32()
    transaction_version: int = int8(since=2)


@message(ApiKey.WRITE_TXN_MARKERS, Direction.REQUEST, max_version=2, flexible_since=1)
@dataclass(slots=True, kw_only=True)
class WriteTxnMarkersRequest:
    """Markers to write."""

    markers: list[WritableTxnMarker] = array(WritableTxnMarker)


@dataclass(slots=True, kw_only=True)
class WritableTxnMarkerPartitionResult:
    """The outcome for one partition."""

    partition_index: int = int32()
    error_code: int = int16()


@dataclass(slots=True, kw_only=True)
class WritableTxnMarkerTopicResult:
    """The partitions of one topic."""

    name: str = string()
    partitions: list[WritableTxnMarkerPartitionResult] = array(WritableTxnMarkerPartitionResult)


@dataclass(slots=True, kw_only=True)
class WritableTxnMarkerResult:
    """The outcome for one producer."""

    producer_id: int = int64()
    topics: list[WritableTxnMarkerTopicResult] = array(WritableTxnMarkerTopicResult)


@message(ApiKey.WRITE_TXN_MARKERS, Direction.RESPONSE, max_version=2, flexible_since=1)
@dataclass(slots=True, kw_only=True)
class WriteTxnMarkersResponse:
    """The outcome for every marker."""

    markers: list[WritableTxnMarkerResult] = array(WritableTxnMarkerResult)
