"""DescribeProducers (key 61): who has been writing to a partition (KIP-664).

=======  =======================
version  change
=======  =======================
0        flexible from the start
=======  =======================
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.api_keys import ApiKey
from protocol.declare.primitives import (
    INT32,
    Direction,
    array,
    int16,
    int32,
    int64,
    message,
    string,
)


@dataclass(slots=True, kw_only=True)
class TopicRequest:
    """The partitions of one topic."""

    name: str = string()
    partition_indexes: list[int] = array(INT32)


@message(ApiKey.DESCRIBE_PRODUCERS, Direction.REQUEST, max_version=0, flexible_since=0)
@dataclass(slots=True, kw_only=True)
class DescribeProducersRequest:
    """The partitions of interest."""

    topics: list[TopicRequest] = array(TopicRequest)


@dataclass(slots=True, kw_only=True)
class ProducerState:
    """One producer, as the log remembers it."""

    producer_id: int = int64()
    producer_epoch: int = int32()
    last_sequence: int = int32(default=-1)
    last_timestamp: int = int64(default=-1)
    """Milliseconds since the epoch of its last record."""

    coordinator_epoch: int = int32()
    current_txn_start_offset: int = int64(default=-1)
    """First offset of its open transaction, or -1."""


@dataclass(slots=True, kw_only=True)
class PartitionResponse:
    """The producers of one partition."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)
    active_producers: list[ProducerState] = array(ProducerState)


@dataclass(slots=True, kw_only=True)
class TopicResponse:
    """The partitions of one topic."""

    name: str = string()
    partitions: list[PartitionResponse] = array(PartitionResponse)


@message(ApiKey.DESCRIBE_PRODUCERS, Direction.RESPONSE, max_version=0, flexible_since=0)
@dataclass(slots=True, kw_only=True)
class DescribeProducersResponse:
    """The requested partitions."""

    throttle_time_ms: int = int32()
    topics: list[TopicResponse] = array(TopicResponse)
