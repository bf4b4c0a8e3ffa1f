"""DescribeTransactions (key 65): state of transactions by transactional id (KIP-664).

| version | change                  |
|---------|-------------------------|
| 0       | flexible from the start |
"""

from protocol.declare import primitives as wire


class DescribeTransactionsRequest(wire.Message, max_version=0, flexible_since=0):
    """The ids of interest."""

    transactional_ids: list[str] = wire.array(wire.STRING)


class TopicData(wire.Struct):
    """Partitions of one topic that take part."""

    topic: str = wire.string()
    partitions: list[int] = wire.array(wire.INT32)


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
    topics: list[TopicData] = wire.array(TopicData)


class DescribeTransactionsResponse(wire.Message, max_version=0, flexible_since=0):
    """The requested transactions."""

    throttle_time_ms: int = wire.int32()
    transaction_states: list[TransactionState] = wire.array(TransactionState)
