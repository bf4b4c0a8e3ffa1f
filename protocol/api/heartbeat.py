"""Heartbeat (key 12): stay in a classic group, and learn of a rebalance.

=======  ========================================
version  change
=======  ========================================
0        group, generation, member
1        answer carries throttle_time_ms
2        client, not broker, waits out a throttle
3        static membership (KIP-345)
4        flexible
=======  ========================================
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.api_keys import ApiKey
from protocol.declare.primitives import Direction, int16, int32, message, string


@message(ApiKey.HEARTBEAT, Direction.REQUEST, max_version=4, flexible_since=4)
@dataclass(slots=True, kw_only=True)
class HeartbeatRequest:
    """A sign of life from one member."""

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string(since=3, nullable_since=3, default=None)


@message(ApiKey.HEARTBEAT, Direction.RESPONSE, max_version=4, flexible_since=4)
@dataclass(slots=True, kw_only=True)
class HeartbeatResponse:
    """Whether it is still a member; after REBALANCE_IN_PROGRESS it must join again."""

    throttle_time_ms: int = int32(since=1)
    error_code: int = int16()
