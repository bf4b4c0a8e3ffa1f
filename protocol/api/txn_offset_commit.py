"""TxnOffsetCommit (key 28): commit a group's offsets as part of a transaction.

=======  =====================================================
version  change
=======  =====================================================
0        offsets under a producer's identity
1        client, not broker, waits out a throttle
2        leader epoch of the committed offset
3        flexible; membership is checked (KIP-447)
4        TRANSACTION_ABORTABLE may be answered (KIP-890)
5        adds the group to the transaction by itself (KIP-890)
=======  =====================================================
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.api_keys import ApiKey
from protocol.declare.primitives import Direction, array, int16, int32, int64, message, string


@dataclass(slots=True, kw_only=True)
class TxnOffsetCommitRequestPartition:
    """The position to remember for one partition."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(since=2, default=-1)
    committed_metadata: str | None = string(nullable_since=0)


@dataclass(slots=True, kw_only=True)
class TxnOffsetCommitRequestTopic:
    """The partitions of one topic."""

    name: str = string()
    partitions: list[TxnOffsetCommitRequestPartition] = array(TxnOffsetCommitRequestPartition)


@message(ApiKey.TXN_OFFSET_COMMIT, Direction.REQUEST, max_version=5, flexible_since=3)
@dataclass(slots=True, kw_only=True)
class TxnOffsetCommitRequest:
    """Positions that count when the transaction commits."""

    transactional_id: str = string()
    group_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    generation_id: int = int32(since=3, default=-1)
    member_id: str = string(since=3)
    group_instance_id: str | None = string(since=3, nullable_since=3, default=None)
    topics: list[TxnOffsetCommitRequestTopic] = array(TxnOffsetCommitRequestTopic)


@dataclass(slots=True, kw_only=True)
class TxnOffsetCommitResponsePartition:
    """Whether one position was taken."""

    partition_index: int = int32()
    error_code: int = int16()


@dataclass(slots=True, kw_only=True)
class TxnOffsetCommitResponseTopic:
    """The partitions of one topic."""

    name: str = string()
    partitions: list[TxnOffsetCommitResponsePartition] = array(TxnOffsetCommitResponsePartition)


@message(ApiKey.TXN_OFFSET_COMMIT, Direction.RESPONSE, max_version=5, flexible_since=3)
@dataclass(slots=True, kw_only=True)
class TxnOffsetCommitResponse:
    """The outcome for every partition."""

    throttle_time_ms: int = int32()
    topics: list[TxnOffsetCommitResponseTopic] = array(TxnOffsetCommitResponseTopic)
