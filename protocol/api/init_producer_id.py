"""InitProducerId (key 22): get the id and epoch for idempotence and transactions.

=======  ==============================================================
version  change
=======  ==============================================================
0        id and epoch, by transactional id or without
1        client, not broker, waits out a throttle
2        flexible
3        resume with a known id and epoch (KIP-360)
4        PRODUCER_FENCED may be answered
5        TRANSACTION_ABORTABLE may be answered (KIP-890)
6        two-phase commit (KIP-939); declared, in no release advertised
=======  ==============================================================
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.api_keys import ApiKey
from protocol.declare.primitives import Direction, boolean, int16, int32, int64, message, string


@message(ApiKey.INIT_PRODUCER_ID, Direction.REQUEST, max_version=6, flexible_since=2)
@dataclass(slots=True, kw_only=True)
class InitProducerIdRequest:
    """A producer that starts or recovers."""

    transactional_id: str | None = string(nullable_since=0)
    """Null for a producer that is idempotent only."""

    transaction_timeout_ms: int = int32()
    producer_id: int = int64(since=3, default=-1)
    """Known id to resume with, or -1."""

    producer_epoch: int = int16(since=3, default=-1)
    enable2_pc: bool = boolean(since=6)
    keep_prepared_txn: bool = boolean(since=6)


@message(ApiKey.INIT_PRODUCER_ID, Direction.RESPONSE, max_version=6, flexible_since=2)
@dataclass(slots=True, kw_only=True)
class InitProducerIdResponse:
    """The identity to put into batches."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()
    ongoing_txn_producer_id: int = int64(since=6, default=-1)
    ongoing_txn_producer_epoch: int = int16(since=6, default=-1)
