"""ListTransactions (key 66): transactions this broker coordinates (KIP-664).

| version | change                                  |
|---------|-----------------------------------------|
| 0       | flexible from the start                 |
| 1       | filter by age (KIP-994)                 |
| 2       | filter by regular expression (KIP-1152) |
"""

from protocol.declare import primitives as wire


class ListTransactionsRequest(wire.Message, max_version=2, flexible_since=0):
    """Filters; an empty or default one matches everything."""

    state_filters: list[str] = wire.array(wire.STRING)
    producer_id_filters: list[int] = wire.array(wire.INT64)
    duration_filter: int = wire.int64(since=1, default=-1)
    """Only transactions open for longer than this, in milliseconds; below 0 matches all."""

    transactional_id_pattern: str | None = wire.string(since=2, nullable_since=2, default=None)


class TransactionState(wire.Struct):
    """One transaction in brief."""

    transactional_id: str = wire.string()
    producer_id: int = wire.int64()
    transaction_state: str = wire.string()


class ListTransactionsResponse(wire.Message, max_version=2, flexible_since=0):
    """The transactions that passed."""

    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16()
    unknown_state_filters: list[str] = wire.array(wire.STRING)
    """Filters that name no state."""

    transaction_states: list[TransactionState] = wire.array()
