"""DescribeTransactions (key 65): state of transactions by transactional id (KIP-664).

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
    STRING,
    Direction,
    array,
    int16,
    int32,
    int64,
    message,
    string,
)


@message(ApiKey.DESCRIBE_TRANSACTIONS, Direction.REQUEST, max_version=0, flexible_since=0)
@dataclass(slots=True, kw_only=True)
class DescribeTransactionsRequest:
    """The ids of interest."""

    transactional_ids: list[str] = array(STRING)


@dataclass(slots=True, kw_only=True)
class TopicData:
    """Partitions of one topic that take part."""

    topic: str = string()
    partitions: list[int] = array(INT32)


@dataclass(slots=True, kw_only=True)
class TransactionState:
    """One transaction."""

    error_code: int = int16()
    transactional_id: str = string()
    transaction_state: str = string()
    transaction_timeout_ms: int = int32()
    transaction_start_time_ms: int = int64()
    """-1 when none is open."""

    producer_id: int = int64()
    producer_epoch: int = int16()
    topics: list[TopicData] = array(TopicData)


@message(ApiKey.DESCRIBE_TRANSACTIONS, Direction.RESPONSE, max_version=0, flexible_since=0)
@dataclass(slots=True, kw_only=True)
class DescribeTransactionsResponse:
    """The requested transactions."""

    throttle_time_ms: int = int32()
    transaction_states: list[TransactionState] = array(TransactionState)
