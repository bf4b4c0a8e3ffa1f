"""ShareGroupHeartbeat (key 76): join, stay in and leave a share group (KIP-932).

| version | change                                                          |
|---------|-----------------------------------------------------------------|
| 0       | of Kafka 4.0, never served here                                 |
| 1       | the same fields; flexible, as version 0 was                     |
"""

from protocol.declare import primitives as wire
from protocol.structs import Assignment


class ShareGroupHeartbeatRequest(wire.Message, max_version=1, flexible_since=0):
    """A member's state, as far as it changed."""

    group_id: str = wire.string()
    member_id: str = wire.string()
    """Made by the client; 36 characters at most."""

    member_epoch: int = wire.int32()
    """0 joins, -1 leaves."""

    rack_id: str | None = wire.string(nullable_since=0, default=None)
    subscribed_topic_names: list[str] | None = wire.array(
        wire.STRING, nullable_since=0, default=None
    )
    """Null when it did not change since the last heartbeat."""


class ShareGroupHeartbeatResponse(wire.Message, max_version=1, flexible_since=0):
    """The group's state, as far as the member has to know."""

    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16()
    error_message: str | None = wire.string(nullable_since=0, default=None)
    member_id: str | None = wire.string(nullable_since=0, default=None)
    member_epoch: int = wire.int32()
    heartbeat_interval_ms: int = wire.int32()
    assignment: Assignment | None = wire.struct(nullable_since=0)
    """Null when nothing changed."""
