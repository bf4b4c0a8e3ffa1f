"""ElectLeaders (key 43): move leadership to the preferred or to any living replica.

=======  =============================================================
version  change
=======  =============================================================
0        preferred leaders only
1        choice of election type; error for the whole answer (KIP-460)
2        flexible
=======  =============================================================
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.api_keys import ApiKey
from protocol.declare.primitives import INT32, Direction, array, int8, int16, int32, message, string


@dataclass(slots=True, kw_only=True)
class TopicPartitions:
    """The partitions of one topic."""

    topic: str = string()
    partitions: list[int] = array(INT32)


@message(ApiKey.ELECT_LEADERS, Direction.REQUEST, max_version=2, flexible_since=2)
@dataclass(slots=True, kw_only=True)
class ElectLeadersRequest:
    """Elections to hold."""

    election_type: int = int8(since=1)
    """0 the preferred replica, 1 any, even one that lags."""

    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, nullable_since=0)
    """Null for all partitions."""

    timeout_ms: int = int32(default=60000)


@dataclass(slots=True, kw_only=True)
class PartitionResult:
    """The outcome of one election."""

    partition_id: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)


@dataclass(slots=True, kw_only=True)
class ReplicaElectionResult:
    """The partitions of one topic."""

    topic: str = string()
    partition_result: list[PartitionResult] = array(PartitionResult)


@message(ApiKey.ELECT_LEADERS, Direction.RESPONSE, max_version=2, flexible_since=2)
@dataclass(slots=True, kw_only=True)
class ElectLeadersResponse:
    """The outcome for every partition."""

    throttle_time_ms: int = int32()
    error_code: int = int16(since=1)
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult)
