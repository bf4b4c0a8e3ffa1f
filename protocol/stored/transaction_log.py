"""`__transaction_state`: the state of each transactional id.

Version 1 of the value is flexible and has three tagged fields; Kafka writes it for producers of
transaction version 2 and version 0 for the others. `transaction_partitions` is null when there is
no transaction.

Source: Kafka ``TransactionLogKey/Value.json``, KIP-890.
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.declare.primitives import INT32, array, int8, int16, int32, int64, stored, string


@stored(max_version=0)
@dataclass(slots=True, kw_only=True)
class TransactionLogKey:
    """The transactional id of the state."""

    transactional_id: str = string()


@dataclass(slots=True, kw_only=True)
class PartitionsSchema:
    """Partitions of one topic that take part."""

    topic: str = string()
    partition_ids: list[int] = array(INT32)


@stored(max_version=1, flexible_since=1)
@dataclass(slots=True, kw_only=True)
class TransactionLogValue:
    """A producer and its transaction; times in ms, -1 for none."""

    producer_id: int = int64()
    producer_epoch: int = int16()
    transaction_timeout_ms: int = int32()
    transaction_status: int = int8()
    transaction_partitions: list[PartitionsSchema] | None = array(
        PartitionsSchema, nullable_since=0
    )
    transaction_last_update_timestamp_ms: int = int64()
    transaction_start_timestamp_ms: int = int64()
    previous_producer_id: int = int64(since=1, tag=0, default=-1)
    next_producer_id: int = int64(since=1, tag=1, default=-1)
    client_transaction_version: int = int16(since=1, tag=2, default=0)
