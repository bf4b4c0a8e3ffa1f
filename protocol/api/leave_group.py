"""LeaveGroup (key 13): give up membership of a classic group.

=======  =====================================================
version  change
=======  =====================================================
0        one member
1        answer carries throttle_time_ms
2        client, not broker, waits out a throttle
3        several members, static ones by instance id (KIP-345)
4        flexible
5        reason for leaving (KIP-800)
=======  =====================================================
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.api_keys import ApiKey
from protocol.declare.primitives import Direction, array, int16, int32, message, string


@dataclass(slots=True, kw_only=True)
class MemberIdentity:
    """A member that leaves."""

    member_id: str = string(since=3)
    group_instance_id: str | None = string(since=3, nullable_since=3, default=None)
    reason: str | None = string(since=5, nullable_since=5, default=None)


@message(ApiKey.LEAVE_GROUP, Direction.REQUEST, max_version=5, flexible_since=4)
@dataclass(slots=True, kw_only=True)
class LeaveGroupRequest:
    """Who leaves: ``member_id`` up to v2, ``members`` from v3."""

    group_id: str = string()
    member_id: str = string(until=2)
    members: list[MemberIdentity] = array(MemberIdentity, since=3)


@dataclass(slots=True, kw_only=True)
class MemberResponse:
    """Whether one member was removed."""

    member_id: str = string(since=3)
    group_instance_id: str | None = string(since=3, nullable_since=3)
    error_code: int = int16(since=3)


@message(ApiKey.LEAVE_GROUP, Direction.RESPONSE, max_version=5, flexible_since=4)
@dataclass(slots=True, kw_only=True)
class LeaveGroupResponse:
    """The outcome, per member from v3."""

    throttle_time_ms: int = int32(since=1)
    error_code: int = int16()
    members: list[MemberResponse] = array(MemberResponse, since=3)
