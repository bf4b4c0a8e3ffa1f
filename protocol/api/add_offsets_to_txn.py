"""AddOffsetsToTxn (key 25): make a group's offsets part of a transaction.

=======  ===============================================
version  change
=======  ===============================================
0        group and transaction
1        client, not broker, waits out a throttle
2        PRODUCER_FENCED may be answered
3        flexible
4        TRANSACTION_ABORTABLE may be answered (KIP-890)
=======  ===============================================
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.api_keys import ApiKey
from protocol.declare.primitives import Direction, int16, int32, int64, message, string


@message(ApiKey.ADD_OFFSETS_TO_TXN, Direction.REQUEST, max_version=4, flexible_since=3)
@dataclass(slots=True, kw_only=True)
class AddOffsetsToTxnRequest:
    """The group whose offsets will be committed."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


@message(ApiKey.ADD_OFFSETS_TO_TXN, Direction.RESPONSE, max_version=4, flexible_since=3)
@dataclass(slots=True, kw_only=True)
class AddOffsetsToTxnResponse:
    """Whether the transaction now covers them."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
