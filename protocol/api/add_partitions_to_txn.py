"""AddPartitionsToTxn (key 24): make partitions part of a transaction before writing to them.

Clients use up to v3; from v4 on brokers send it to the coordinator, for several transactions.

    =======  =================================================
    version  change
    =======  =================================================
    0        one transaction
    1        client, not broker, waits out a throttle
    2        PRODUCER_FENCED may be answered
    3        flexible
    4        several transactions, verification only (KIP-890)
    5        TRANSACTION_ABORTABLE may be answered
    =======  =================================================
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.api_keys import ApiKey
from protocol.declare.primitives import (
    INT32,
    Direction,
    array,
    boolean,
    int16,
    int32,
    int64,
    message,
    string,
)


@dataclass(slots=True, kw_only=True)
class AddPartitionsToTxnTopic:
    """The partitions of one topic."""

    name: str = string()
    partitions: list[int] = array(INT32)


@dataclass(slots=True, kw_only=True)
class AddPartitionsToTxnTransaction:
    """One transaction and the partitions to add to it."""

    transactional_id: str = string(since=4)
    producer_id: int = int64(since=4)
    producer_epoch: int = int16(since=4)
    verify_only: bool = boolean(since=4)
    """Only check whether they are part of it already."""

    topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, since=4)


@message(ApiKey.ADD_PARTITIONS_TO_TXN, Direction.REQUEST, max_version=5, flexible_since=3)
@dataclass(slots=True, kw_only=True)
class AddPartitionsToTxnRequest:
    """One transaction at the top level up to v3, a list from v4."""

    transactions: list[AddPartitionsToTxnTransaction] = array(
        AddPartitionsToTxnTransaction, since=4
    )
    v3_and_below_transactional_id: str = string(until=3)
    v3_and_below_producer_id: int = int64(until=3)
    v3_and_below_producer_epoch: int = int16(until=3)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, until=3)


@dataclass(slots=True, kw_only=True)
class AddPartitionsToTxnPartitionResult:
    """The outcome for one partition."""

    partition_index: int = int32()
    partition_error_code: int = int16()


@dataclass(slots=True, kw_only=True)
class AddPartitionsToTxnTopicResult:
    """The partitions of one topic."""

    name: str = string()
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = array(
        AddPartitionsToTxnPartitionResult
    )


@dataclass(slots=True, kw_only=True)
class AddPartitionsToTxnResult:
    """The outcome for one transaction."""

    transactional_id: str = string(since=4)
    topic_results: list[AddPartitionsToTxnTopicResult] = array(
        AddPartitionsToTxnTopicResult, since=4
    )


@message(ApiKey.ADD_PARTITIONS_TO_TXN, Direction.RESPONSE, max_version=5, flexible_since=3)
@dataclass(slots=True, kw_only=True)
class AddPartitionsToTxnResponse:
    """By topic up to v3, by transaction from v4."""

    throttle_time_ms: int = int32()
    error_code: int = int16(since=4)
    results_by_transaction: list[AddPartitionsToTxnResult] = array(
        AddPartitionsToTxnResult, since=4
    )
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = array(
        AddPartitionsToTxnTopicResult, until=3
    )
