"""AddOffsetsToTxn (key 25): make a group's offsets part of a transaction.

| version | change                                          |
|---------|-------------------------------------------------|
| 0       | group and transaction                           |
| 1       | client, not broker, waits out a throttle        |
| 2       | PRODUCER_FENCED may be answered                 |
| 3       | flexible                                        |
| 4       | TRANSACTION_ABORTABLE may be answered (KIP-890) |
"""

from protocol.declare import primitives as wire


class AddOffsetsToTxnRequest(wire.Message, max_version=4, flexible_since=3):
    """The group whose offsets will be committed."""

    transactional_id: str = wire.string()
    producer_id: int = wire.int64()
    producer_epoch: int = wire.int16()
    group_id: str = wire.string()


class AddOffsetsToTxnResponse(wire.Message, max_version=4, flexible_since=3):
    """Whether the transaction now covers them."""

    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16()
