"""ConsumerGroupHeartbeat (key 68): join, stay, rebalance and leave in one request (KIP-848).

Fields that did not change since the last heartbeat are null or -1.

    =======  ======================================================================
    version  change
    =======  ======================================================================
    0        flexible from the start
    1        subscription by regular expression; the client makes its own member id
    =======  ======================================================================
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.api_keys import ApiKey
from protocol.declare.primitives import (
    INT32,
    STRING,
    Direction,
    array,
    int16,
    int32,
    message,
    string,
    struct,
    uuid,
)


@dataclass(slots=True, kw_only=True)
class TopicPartitions:
    """The partitions of one topic."""

    topic_id: bytes = uuid()
    partitions: list[int] = array(INT32)


@message(ApiKey.CONSUMER_GROUP_HEARTBEAT, Direction.REQUEST, max_version=1, flexible_since=0)
@dataclass(slots=True, kw_only=True)
class ConsumerGroupHeartbeatRequest:
    """A member's state, as far as it changed."""

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    """0 joins, -1 leaves, -2 leaves for a while as a static member."""

    instance_id: str | None = string(nullable_since=0, default=None)
    rack_id: str | None = string(nullable_since=0, default=None)
    rebalance_timeout_ms: int = int32(default=-1)
    subscribed_topic_names: list[str] | None = array(STRING, nullable_since=0, default=None)
    subscribed_topic_regex: str | None = string(since=1, nullable_since=1, default=None)
    server_assignor: str | None = string(nullable_since=0, default=None)
    topic_partitions: list[TopicPartitions] | None = array(
        TopicPartitions, nullable_since=0, default=None
    )
    """The partitions that the member owns now."""


@dataclass(slots=True, kw_only=True)
class Assignment:
    """The partitions that the member should own."""

    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


@message(ApiKey.CONSUMER_GROUP_HEARTBEAT, Direction.RESPONSE, max_version=1, flexible_since=0)
@dataclass(slots=True, kw_only=True)
class ConsumerGroupHeartbeatResponse:
    """The group's state, as far as the member has to know."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)
    member_id: str | None = string(nullable_since=0, default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = struct(Assignment, nullable_since=0)
    """Null when nothing changed."""
