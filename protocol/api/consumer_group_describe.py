"""ConsumerGroupDescribe (key 69): state and members of KIP-848 groups.

=======  =========================
version  change
=======  =========================
0        flexible from the start
1        kind of member (KIP-1099)
=======  =========================
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.api_keys import ApiKey
from protocol.declare.primitives import (
    INT32,
    STRING,
    Direction,
    array,
    boolean,
    int8,
    int16,
    int32,
    message,
    string,
    struct,
    uuid,
)


@message(ApiKey.CONSUMER_GROUP_DESCRIBE, Direction.REQUEST, max_version=1, flexible_since=0)
@dataclass(slots=True, kw_only=True)
class ConsumerGroupDescribeRequest:
    """The groups of interest."""

    group_ids: list[str] = array(STRING)
    include_authorized_operations: bool = boolean()


@dataclass(slots=True, kw_only=True)
class TopicPartitions:
    """The partitions of one topic."""

    topic_id: bytes = uuid()
    topic_name: str = string()
    partitions: list[int] = array(INT32)


@dataclass(slots=True, kw_only=True)
class Assignment:
    """The partitions that a member owns or should own."""

    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


@dataclass(slots=True, kw_only=True)
class Member:
    """One member."""

    member_id: str = string()
    instance_id: str | None = string(nullable_since=0, default=None)
    rack_id: str | None = string(nullable_since=0, default=None)
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(STRING)
    subscribed_topic_regex: str | None = string(nullable_since=0, default=None)
    assignment: Assignment = struct(Assignment)
    target_assignment: Assignment = struct(Assignment)
    member_type: int = int8(since=1, default=-1)
    """0 classic protocol, 1 consumer protocol, -1 unknown."""


@dataclass(slots=True, kw_only=True)
class DescribedGroup:
    """One group."""

    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    assignor_name: str = string()
    members: list[Member] = array(Member)
    authorized_operations: int = int32(default=-(2**31))
    """Bit field of operation codes; the default means "not requested"."""


@message(ApiKey.CONSUMER_GROUP_DESCRIBE, Direction.RESPONSE, max_version=1, flexible_since=0)
@dataclass(slots=True, kw_only=True)
class ConsumerGroupDescribeResponse:
    """The requested groups."""

    throttle_time_ms: int = int32()
    groups: list[DescribedGroup] = array(DescribedGroup)
