"""EndTxn (key 26): commit or abort a transaction.

| version | change                                                                  |
|---------|-------------------------------------------------------------------------|
| 0       | outcome of a transaction                                                |
| 1       | client, not broker, waits out a throttle                                |
| 2       | PRODUCER_FENCED may be answered                                         |
| 3       | flexible                                                                |
| 4       | TRANSACTION_ABORTABLE may be answered (KIP-890)                         |
| 5       | the epoch grows with every transaction; answer carries the new identity |
"""

from protocol.declare import primitives as wire


class EndTxnRequest(wire.Message, max_version=5, flexible_since=3):
    """How the transaction ends."""

    transactional_id: str = wire.string()
    producer_id: int = wire.int64()
    producer_epoch: int = wire.int16()
    committed: bool = wire.boolean()
    """True commits, false aborts."""


class EndTxnResponse(wire.Message, max_version=5, flexible_since=3):
    """Whether it ended, and from v5 the identity to continue with."""

    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16()
    producer_id: int = wire.int64(since=5, default=-1)
    producer_epoch: int = wire.int16(since=5, default=-1)
