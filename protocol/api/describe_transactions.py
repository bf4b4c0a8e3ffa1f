"""DescribeTransactions (key 65, version 0): state of transactions by transactional id (KIP-664)."""

from protocol.declare import primitives as wire
from protocol.structs import TopicIndexes


class DescribeTransactionsRequest(wire.Message, max_version=0, flexible_since=0):
    """The ids of interest."""

    transactional_ids: list[str] = wire.array(wire.STRING)


class TransactionState(wire.Struct):
    """One transaction."""

    error_code: int = wire.int16()
    transactional_id: str = wire.string()
    transaction_state: str = wire.string()
    transaction_timeout_ms: int = wire.int32()
    transaction_start_time_ms: int = wire.int64()
    """-1 when none is open."""

    producer_id: int = wire.int64()
    producer_epoch: int = wire.int16()
    topics: list[TopicIndexes] = wire.array()


class DescribeTransactionsResponse(wire.Message, max_version=0, flexible_since=0):
    """The requested transactions."""

    throttle_time_ms: int = wire.int32()
    transaction_states: list[TransactionState] = wire.array()
