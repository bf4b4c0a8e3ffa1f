"""ListTransactions (key 66): transactions this broker coordinates (KIP-664).

=======  =======================================
version  change
=======  =======================================
0        flexible from the start
1        filter by age (KIP-994)
2        filter by regular expression (KIP-1152)
=======  =======================================
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.api_keys import ApiKey
from protocol.declare.primitives import (
    INT64,
    STRING,
    Direction,
    array,
    int16,
    int32,
    int64,
    message,
    string,
)


@message(ApiKey.LIST_TRANSACTIONS, Direction.REQUEST, max_version=2, flexible_since=0)
@dataclass(slots=True, kw_only=True)
class ListTransactionsRequest:
    """Filters; an empty or default one matches everything."""

    state_filters: list[str] = array(STRING)
    producer_id_filters: list[int] = array(INT64)
    duration_filter: int = int64(since=1, default=-1)
    """Only transactions open for longer than this, in milliseconds; below 0 matches all."""

    transactional_id_pattern: str | None = string(since=2, nullable_since=2, default=None)


@dataclass(slots=True, kw_only=True)
class TransactionState:
    """One transaction in brief."""

    transactional_id: str = string()
    producer_id: int = int64()
    transaction_state: str = string()


@message(ApiKey.LIST_TRANSACTIONS, Direction.RESPONSE, max_version=2, flexible_since=0)
@dataclass(slots=True, kw_only=True)
class ListTransactionsResponse:
    """The transactions that passed."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    unknown_state_filters: list[str] = array(STRING)
    """Filters that name no state."""

    transaction_states: list[TransactionState] = array(TransactionState)
