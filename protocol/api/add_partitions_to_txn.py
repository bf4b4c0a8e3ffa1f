"""AddPartitionsToTxn (key 24): make partitions part of a transaction before writing to them.

Clients use up to v3; from v4 on brokers send it to the coordinator, for several transactions.

| version | change                                            |
|---------|---------------------------------------------------|
| 0       | one transaction                                   |
| 1       | client, not broker, waits out a throttle          |
| 2       | PRODUCER_FENCED may be answered                   |
| 3       | flexible                                          |
| 4       | several transactions, verification only (KIP-890) |
| 5       | TRANSACTION_ABORTABLE may be answered             |
"""

from typing import Final

from protocol.declare import primitives as wire
from protocol.structs import NamedIndexes

OF_BROKERS_SINCE: Final = 4
"""The version from which on only brokers send it."""


class AddPartitionsToTxnTransaction(wire.Struct):
    """One transaction and the partitions to add to it."""

    transactional_id: str = wire.string(since=4)
    producer_id: int = wire.int64(since=4)
    producer_epoch: int = wire.int16(since=4)
    verify_only: bool = wire.boolean(since=4)
    """Only check whether they are part of it already."""

    topics: list[NamedIndexes] = wire.array(since=4)


class AddPartitionsToTxnRequest(wire.Message, max_version=5, flexible_since=3):
    """One transaction at the top level up to v3, a list from v4."""

    transactions: list[AddPartitionsToTxnTransaction] = wire.array(since=4)
    v3_and_below_transactional_id: str = wire.string(until=3)
    v3_and_below_producer_id: int = wire.int64(until=3)
    v3_and_below_producer_epoch: int = wire.int16(until=3)
    v3_and_below_topics: list[NamedIndexes] = wire.array(until=3)


class AddPartitionsToTxnPartitionResult(wire.Struct):
    """The outcome for one partition."""

    partition_index: int = wire.int32()
    partition_error_code: int = wire.int16()


class AddPartitionsToTxnTopicResult(wire.Struct):
    """The partitions of one topic."""

    name: str = wire.string()
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = wire.array()


class AddPartitionsToTxnResult(wire.Struct):
    """The outcome for one transaction."""

    transactional_id: str = wire.string(since=4)
    topic_results: list[AddPartitionsToTxnTopicResult] = wire.array(since=4)


class AddPartitionsToTxnResponse(wire.Message, max_version=5, flexible_since=3):
    """By topic up to v3, by transaction from v4."""

    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16(since=4)
    results_by_transaction: list[AddPartitionsToTxnResult] = wire.array(since=4)
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = wire.array(until=3)
