"""`__transaction_state`: the state of each transactional id.

Version 1 of the value is flexible and has three tagged fields; Kafka writes it for producers of
transaction version 2 and version 0 for the others. `transaction_partitions` is null when there is
no transaction.

Source: Kafka ``TransactionLogKey/Value.json``, KIP-890.
"""

from protocol.declare import primitives as wire


class TransactionLogKey(wire.Stored, max_version=0):
    """The transactional id of the state."""

    transactional_id: str = wire.string()


class PartitionsSchema(wire.Struct):
    """Partitions of one topic that take part."""

    topic: str = wire.string()
    partition_ids: list[int] = wire.array(wire.INT32)


class TransactionLogValue(wire.Stored, max_version=1, flexible_since=1):
    """A producer and its transaction; times in ms, -1 for none."""

    producer_id: int = wire.int64()
    producer_epoch: int = wire.int16()
    transaction_timeout_ms: int = wire.int32()
    transaction_status: int = wire.int8()
    transaction_partitions: list[PartitionsSchema] | None = wire.array(nullable_since=0)
    transaction_last_update_timestamp_ms: int = wire.int64()
    transaction_start_timestamp_ms: int = wire.int64()
    previous_producer_id: int = wire.int64(since=1, tag=0, default=-1)
    next_producer_id: int = wire.int64(since=1, tag=1, default=-1)
    client_transaction_version: int = wire.int16(since=1, tag=2, default=0)
