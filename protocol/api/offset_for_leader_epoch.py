"""OffsetForLeaderEpoch (key 23): where an epoch ended, to find out whether a log was truncated.

=======  ======================================================================
version  change
=======  ======================================================================
0        end offset of an epoch
1        answer names the epoch it found
2        current leader epoch fences; answer carries throttle_time_ms (KIP-320)
3        replica id; -2 is a debugging reader
4        flexible
=======  ======================================================================
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.api_keys import ApiKey
from protocol.declare.primitives import Direction, array, int16, int32, int64, message, string


@dataclass(slots=True, kw_only=True)
class OffsetForLeaderPartition:
    """The epoch in question, in one partition."""

    partition: int = int32()
    current_leader_epoch: int = int32(since=2, default=-1)
    leader_epoch: int = int32()


@dataclass(slots=True, kw_only=True)
class OffsetForLeaderTopic:
    """The partitions of one topic."""

    topic: str = string()
    partitions: list[OffsetForLeaderPartition] = array(OffsetForLeaderPartition)


@message(ApiKey.OFFSET_FOR_LEADER_EPOCH, Direction.REQUEST, max_version=4, flexible_since=4)
@dataclass(slots=True, kw_only=True)
class OffsetForLeaderEpochRequest:
    """Epochs whose ends are wanted."""

    replica_id: int = int32(since=3, default=-2)
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic)


@dataclass(slots=True, kw_only=True)
class EpochEndOffset:
    """The greatest known epoch not above the requested one, and its exclusive end."""

    error_code: int = int16()
    partition: int = int32()
    leader_epoch: int = int32(since=1, default=-1)
    end_offset: int = int64(default=-1)
    """-1 when unknown."""


@dataclass(slots=True, kw_only=True)
class OffsetForLeaderTopicResult:
    """The partitions of one topic."""

    topic: str = string()
    partitions: list[EpochEndOffset] = array(EpochEndOffset)


@message(ApiKey.OFFSET_FOR_LEADER_EPOCH, Direction.RESPONSE, max_version=4, flexible_since=4)
@dataclass(slots=True, kw_only=True)
class OffsetForLeaderEpochResponse:
    """The requested ends."""

    throttle_time_ms: int = int32(since=2)
    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult)
