"""Encoding and decoding of the keys and values of `__transaction_state`.

Owns the translation between `protocol.stored.transaction_log`, which has the bytes, and the state
of a transactional id. It writes version 1 for producers of transaction version 2 and version 0 for
the others, like Kafka, and reads both. The previous epoch of a retry is the one before the stored
one, or the last but one of the previous producer id.
"""

from typing import Final

from broker.transactions.state import (
    BUMPING_VERSION,
    EPOCH_MAX,
    TxnSnapshot,
    TxnState,
)
from protocol.records.layout import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from protocol.stored.codec import UnknownRecord, decode, encode
from protocol.stored.transaction_log import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)

_KEY_VERSION: Final = 0
_VALUE_VERSION: Final = 0
_FLEXIBLE_VERSION: Final = 1


def encode_key(transactional_id: str) -> bytes:
    """The key under which a transactional id is kept."""
    return encode(TransactionLogKey(transactional_id=transactional_id), _KEY_VERSION)


def encode_value(snapshot: TxnSnapshot) -> bytes:
    """The value: version 1 for a producer of transaction version 2, else version 0."""
    value = TransactionLogValue(
        producer_id=snapshot.producer_id,
        producer_epoch=snapshot.producer_epoch,
        transaction_timeout_ms=snapshot.timeout_ms,
        transaction_status=snapshot.state,
        transaction_partitions=(
            None if snapshot.state is TxnState.EMPTY else _partitions(snapshot)
        ),
        transaction_last_update_timestamp_ms=snapshot.updated_ms,
        transaction_start_timestamp_ms=snapshot.started_ms,
        previous_producer_id=snapshot.last_producer_id,
        next_producer_id=snapshot.next_producer_id,
        client_transaction_version=snapshot.client_version,
    )
    is_flexible = snapshot.client_version >= BUMPING_VERSION
    return encode(value, _FLEXIBLE_VERSION if is_flexible else _VALUE_VERSION)


def _partitions(snapshot: TxnSnapshot) -> list[PartitionsSchema]:
    topics: dict[str, PartitionsSchema] = {}
    for topic, partition in sorted(snapshot.partitions):
        topics.setdefault(topic, PartitionsSchema(topic=topic)).partition_ids.append(partition)
    return list(topics.values())


def decode_key(key: bytes) -> str:
    """The transactional id. Raises: UnknownRecord for another version."""
    return decode(TransactionLogKey, key).transactional_id


def decode_value(transactional_id: str, value: bytes) -> TxnSnapshot:
    """The stored state of a transactional id. Raises: UnknownRecord for a newer version."""
    found = decode(TransactionLogValue, value)
    try:
        state = TxnState(found.transaction_status)
    except ValueError as error:
        raise UnknownRecord(f"transaction status {found.transaction_status}") from error
    previous_id, producer_id = found.previous_producer_id, found.producer_id
    return TxnSnapshot(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=found.producer_epoch,
        last_producer_id=previous_id,
        last_producer_epoch=_previous_epoch(previous_id, producer_id, found.producer_epoch),
        timeout_ms=found.transaction_timeout_ms,
        state=state,
        partitions=frozenset(
            (topic.topic, partition)
            for topic in found.transaction_partitions or ()
            for partition in topic.partition_ids
        ),
        started_ms=found.transaction_start_timestamp_ms,
        updated_ms=found.transaction_last_update_timestamp_ms,
        next_producer_id=found.next_producer_id,
        client_version=found.client_transaction_version,
    )


def _previous_epoch(previous_id: int, producer_id: int, epoch: int) -> int:
    """The epoch of the previous transaction, which is derived, not stored."""
    if previous_id == NO_PRODUCER_ID:
        return NO_PRODUCER_EPOCH
    return epoch - 1 if previous_id == producer_id else EPOCH_MAX - 1
