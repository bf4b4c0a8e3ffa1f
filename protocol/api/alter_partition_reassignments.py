"""AlterPartitionReassignments (key 45): start or cancel moves of partitions (KIP-455).

=======  ====================================
version  change
=======  ====================================
0        flexible from the start
1        replication factor may be held fixed
=======  ====================================
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.api_keys import ApiKey
from protocol.declare.primitives import (
    INT32,
    Direction,
    array,
    boolean,
    int16,
    int32,
    message,
    string,
)


@dataclass(slots=True, kw_only=True)
class ReassignablePartition:
    """Where one partition shall live."""

    partition_index: int = int32()
    replicas: list[int] | None = array(INT32, nullable_since=0, default=None)
    """Null cancels a move in progress."""


@dataclass(slots=True, kw_only=True)
class ReassignableTopic:
    """The partitions of one topic."""

    name: str = string()
    partitions: list[ReassignablePartition] = array(ReassignablePartition)


@message(ApiKey.ALTER_PARTITION_REASSIGNMENTS, Direction.REQUEST, max_version=1, flexible_since=0)
@dataclass(slots=True, kw_only=True)
class AlterPartitionReassignmentsRequest:
    """The moves."""

    timeout_ms: int = int32(default=60000)
    allow_replication_factor_change: bool = boolean(since=1, default=True)
    topics: list[ReassignableTopic] = array(ReassignableTopic)


@dataclass(slots=True, kw_only=True)
class ReassignablePartitionResponse:
    """Whether one move was accepted."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)


@dataclass(slots=True, kw_only=True)
class ReassignableTopicResponse:
    """The partitions of one topic."""

    name: str = string()
    partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse)


@message(ApiKey.ALTER_PARTITION_REASSIGNMENTS, Direction.RESPONSE, max_version=1, flexible_since=0)
@dataclass(slots=True, kw_only=True)
class AlterPartitionReassignmentsResponse:
    """The outcome for every partition."""

    throttle_time_ms: int = int32()
    allow_replication_factor_change: bool = boolean(since=1, default=True)
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse)
