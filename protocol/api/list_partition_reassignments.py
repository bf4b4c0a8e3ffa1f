"""ListPartitionReassignments (key 46): moves of partitions in progress (KIP-455).

=======  =======================
version  change
=======  =======================
0        flexible from the start
=======  =======================
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.api_keys import ApiKey
from protocol.declare.primitives import INT32, Direction, array, int16, int32, message, string


@dataclass(slots=True, kw_only=True)
class ListPartitionReassignmentsTopics:
    """The partitions of one topic."""

    name: str = string()
    partition_indexes: list[int] = array(INT32)


@message(ApiKey.LIST_PARTITION_REASSIGNMENTS, Direction.REQUEST, max_version=0, flexible_since=0)
@dataclass(slots=True, kw_only=True)
class ListPartitionReassignmentsRequest:
    """The partitions of interest."""

    timeout_ms: int = int32(default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = array(
        ListPartitionReassignmentsTopics, nullable_since=0, default=None
    )
    """Null for all."""


@dataclass(slots=True, kw_only=True)
class OngoingPartitionReassignment:
    """One move."""

    partition_index: int = int32()
    replicas: list[int] = array(INT32)
    adding_replicas: list[int] = array(INT32)
    removing_replicas: list[int] = array(INT32)


@dataclass(slots=True, kw_only=True)
class OngoingTopicReassignment:
    """The partitions of one topic."""

    name: str = string()
    partitions: list[OngoingPartitionReassignment] = array(OngoingPartitionReassignment)


@message(ApiKey.LIST_PARTITION_REASSIGNMENTS, Direction.RESPONSE, max_version=0, flexible_since=0)
@dataclass(slots=True, kw_only=True)
class ListPartitionReassignmentsResponse:
    """The moves in progress."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment)
