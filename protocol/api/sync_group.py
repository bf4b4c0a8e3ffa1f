"""SyncGroup (key 14): hand the leader's assignment to every member of a classic group.

The leader's request carries the assignments; those of the other members are empty. The broker holds
all answers until the leader's request has come.

    =======  =========================================================
    version  change
    =======  =========================================================
    0        assignments in, own assignment out
    1        answer carries throttle_time_ms
    2        client, not broker, waits out a throttle
    3        static membership (KIP-345)
    4        flexible
    5        protocol type and name are checked and answered (KIP-559)
    =======  =========================================================
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.api_keys import ApiKey
from protocol.declare.primitives import Direction, array, binary, int16, int32, message, string


@dataclass(slots=True, kw_only=True)
class SyncGroupRequestAssignment:
    """One member's assignment, in the protocol's own encoding."""

    member_id: str = string()
    assignment: bytes = binary()


@message(ApiKey.SYNC_GROUP, Direction.REQUEST, max_version=5, flexible_since=4)
@dataclass(slots=True, kw_only=True)
class SyncGroupRequest:
    """The leader's plan, or a member's question for it."""

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string(since=3, nullable_since=3, default=None)
    protocol_type: str | None = string(since=5, nullable_since=5, default=None)
    protocol_name: str | None = string(since=5, nullable_since=5, default=None)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


@message(ApiKey.SYNC_GROUP, Direction.RESPONSE, max_version=5, flexible_since=4)
@dataclass(slots=True, kw_only=True)
class SyncGroupResponse:
    """The caller's own part of the plan."""

    throttle_time_ms: int = int32(since=1)
    error_code: int = int16()
    protocol_type: str | None = string(since=5, nullable_since=5, default=None)
    protocol_name: str | None = string(since=5, nullable_since=5, default=None)
    assignment: bytes = binary()
