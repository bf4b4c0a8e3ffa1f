"""InitProducerId (key 22): get the id and epoch for idempotence and transactions.

| version | change                                                         |
|---------|----------------------------------------------------------------|
| 0       | id and epoch, by transactional id or without                   |
| 1       | client, not broker, waits out a throttle                       |
| 2       | flexible                                                       |
| 3       | resume with a known id and epoch (KIP-360)                     |
| 4       | PRODUCER_FENCED may be answered                                |
| 5       | TRANSACTION_ABORTABLE may be answered (KIP-890)                |
| 6       | two-phase commit (KIP-939); declared, in no release advertised |
"""

from protocol.declare import primitives as wire


class InitProducerIdRequest(wire.Message, max_version=6, flexible_since=2):
    """A producer that starts or recovers."""

    transactional_id: str | None = wire.string(nullable_since=0)
    """Null for a producer that is idempotent only."""

    transaction_timeout_ms: int = wire.int32()
    producer_id: int = wire.int64(since=3, default=-1)
    """Known id to resume with, or -1."""

    producer_epoch: int = wire.int16(since=3, default=-1)
    enable2_pc: bool = wire.boolean(since=6)
    keep_prepared_txn: bool = wire.boolean(since=6)


class InitProducerIdResponse(wire.Message, max_version=6, flexible_since=2):
    """The identity to put into batches."""

    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16()
    producer_id: int = wire.int64(default=-1)
    producer_epoch: int = wire.int16()
    ongoing_txn_producer_id: int = wire.int64(since=6, default=-1)
    ongoing_txn_producer_epoch: int = wire.int16(since=6, default=-1)
