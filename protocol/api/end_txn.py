"""EndTxn (key 26): commit or abort a transaction.

=======  =======================================================================
version  change
=======  =======================================================================
0        outcome of a transaction
1        client, not broker, waits out a throttle
2        PRODUCER_FENCED may be answered
3        flexible
4        TRANSACTION_ABORTABLE may be answered (KIP-890)
5        the epoch grows with every transaction; answer carries the new identity
=======  =======================================================================
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.api_keys import ApiKey
from protocol.declare.primitives import Direction, boolean, int16, int32, int64, message, string


@message(ApiKey.END_TXN, Direction.REQUEST, max_version=5, flexible_since=3)
@dataclass(slots=True, kw_only=True)
class EndTxnRequest:
    """How the transaction ends."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()
    """True commits, false aborts."""


@message(ApiKey.END_TXN, Direction.RESPONSE, max_version=5, flexible_since=3)
@dataclass(slots=True, kw_only=True)
class EndTxnResponse:
    """Whether it ended, and from v5 the identity to continue with."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64(since=5, default=-1)
    producer_epoch: int = int16(since=5, default=-1)
