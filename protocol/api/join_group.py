"""JoinGroup (key 11): enter a classic consumer group, or re-enter it for a rebalance.

The broker holds the answer until all members have joined or the rebalance times out. The leader
alone gets the list of members and computes the assignment.

    =======  ===================================================================
    version  change
    =======  ===================================================================
    0        session timeout serves as rebalance timeout
    1        separate rebalance timeout
    2        answer carries throttle_time_ms
    3        client, not broker, waits out a throttle
    4        first join without a member id is refused with one to use (KIP-394)
    5        static membership (KIP-345)
    6        flexible
    7        answer names the protocol type (KIP-559)
    8        reason for joining (KIP-800)
    9        answer may let the leader skip the assignment (KIP-814)
    =======  ===================================================================
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.api_keys import ApiKey
from protocol.declare.primitives import (
    Direction,
    array,
    binary,
    boolean,
    int16,
    int32,
    message,
    string,
)


@dataclass(slots=True, kw_only=True)
class JoinGroupRequestProtocol:
    """An assignment strategy the member can follow."""

    name: str = string()
    metadata: bytes = binary()
    """Subscription in the protocol's own encoding; opaque to the broker."""


@message(ApiKey.JOIN_GROUP, Direction.REQUEST, max_version=9, flexible_since=6)
@dataclass(slots=True, kw_only=True)
class JoinGroupRequest:
    """One member's wish to join."""

    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32(since=1, default=-1)
    """The default means: use the session timeout."""

    member_id: str = string()
    """Empty on the first attempt."""

    group_instance_id: str | None = string(since=5, nullable_since=5, default=None)
    protocol_type: str = string()
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    """In order of preference."""

    reason: str | None = string(since=8, nullable_since=8, default=None)


@dataclass(slots=True, kw_only=True)
class JoinGroupResponseMember:
    """One member, as reported to the leader."""

    member_id: str = string()
    group_instance_id: str | None = string(since=5, nullable_since=5, default=None)
    metadata: bytes = binary()


@message(ApiKey.JOIN_GROUP, Direction.RESPONSE, max_version=9, flexible_since=6)
@dataclass(slots=True, kw_only=True)
class JoinGroupResponse:
    """Membership in a new generation of the group."""

    throttle_time_ms: int = int32(since=2)
    error_code: int = int16()
    generation_id: int = int32(default=-1)
    protocol_type: str | None = string(since=7, nullable_since=7, default=None)
    protocol_name: str | None = string(nullable_since=7)
    """The strategy every member supports; null only from v7 on."""

    leader: str = string()
    skip_assignment: bool = boolean(since=9)
    member_id: str = string()
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)
    """Filled for the leader, empty for everyone else."""
