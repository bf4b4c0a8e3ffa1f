"""Heartbeat (key 12): stay in a classic group, and learn of a rebalance.

| version | change                                   |
|---------|------------------------------------------|
| 0       | group, generation, member                |
| 1       | answer carries throttle_time_ms          |
| 2       | client, not broker, waits out a throttle |
| 3       | static membership (KIP-345)              |
| 4       | flexible                                 |
"""

from protocol.declare import primitives as wire


class HeartbeatRequest(wire.Message, max_version=4, flexible_since=4):
    """A sign of life from one member."""

    group_id: str = wire.string()
    generation_id: int = wire.int32()
    member_id: str = wire.string()
    group_instance_id: str | None = wire.string(since=3, nullable_since=3, default=None)


class HeartbeatResponse(wire.Message, max_version=4, flexible_since=4):
    """Whether it is still a member; after REBALANCE_IN_PROGRESS it must join again."""

    throttle_time_ms: int = wire.int32(since=1)
    error_code: int = wire.int16()
