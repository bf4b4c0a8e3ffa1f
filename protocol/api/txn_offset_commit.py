"""TxnOffsetCommit (key 28): commit a group's offsets as part of a transaction.

| version | change                                                |
|---------|-------------------------------------------------------|
| 0       | offsets under a producer's identity                   |
| 1       | client, not broker, waits out a throttle              |
| 2       | leader epoch of the committed offset                  |
| 3       | flexible; membership is checked (KIP-447)             |
| 4       | TRANSACTION_ABORTABLE may be answered (KIP-890)       |
| 5       | adds the group to the transaction by itself (KIP-890) |
"""

from protocol.declare import primitives as wire
from protocol.structs import TopicErrors


class TxnOffsetCommitRequestPartition(wire.Struct):
    """The position to remember for one partition."""

    partition_index: int = wire.int32()
    committed_offset: int = wire.int64()
    committed_leader_epoch: int = wire.int32(since=2, default=-1)
    committed_metadata: str | None = wire.string(nullable_since=0)


class TxnOffsetCommitRequestTopic(wire.Struct):
    """The partitions of one topic."""

    name: str = wire.string()
    partitions: list[TxnOffsetCommitRequestPartition] = wire.array()


class TxnOffsetCommitRequest(wire.Message, max_version=5, flexible_since=3):
    """Positions that count when the transaction commits."""

    transactional_id: str = wire.string()
    group_id: str = wire.string()
    producer_id: int = wire.int64()
    producer_epoch: int = wire.int16()
    generation_id: int = wire.int32(since=3, default=-1)
    member_id: str = wire.string(since=3)
    group_instance_id: str | None = wire.string(since=3, nullable_since=3, default=None)
    topics: list[TxnOffsetCommitRequestTopic] = wire.array()


class TxnOffsetCommitResponse(wire.Message, max_version=5, flexible_since=3):
    """The outcome for every partition."""

    throttle_time_ms: int = wire.int32()
    topics: list[TopicErrors] = wire.array()
