"""ConsumerGroupHeartbeat (key 68): join, stay, rebalance and leave in one request (KIP-848).

Fields that did not change since the last heartbeat are null or -1.

| version | change                                                                 |
|---------|------------------------------------------------------------------------|
| 0       | flexible from the start                                                |
| 1       | subscription by regular expression; the client makes its own member id |
"""

from protocol.declare import primitives as wire
from protocol.structs import Assignment, TopicPartitions


class ConsumerGroupHeartbeatRequest(wire.Message, max_version=1, flexible_since=0):
    """A member's state, as far as it changed."""

    group_id: str = wire.string()
    member_id: str = wire.string()
    member_epoch: int = wire.int32()
    """0 joins, -1 leaves, -2 leaves for a while as a static member."""

    instance_id: str | None = wire.string(nullable_since=0, default=None)
    rack_id: str | None = wire.string(nullable_since=0, default=None)
    rebalance_timeout_ms: int = wire.int32(default=-1)
    subscribed_topic_names: list[str] | None = wire.array(
        wire.STRING, nullable_since=0, default=None
    )
    subscribed_topic_regex: str | None = wire.string(since=1, nullable_since=1, default=None)
    server_assignor: str | None = wire.string(nullable_since=0, default=None)
    topic_partitions: list[TopicPartitions] | None = wire.array(nullable_since=0, default=None)
    """The partitions that the member owns now."""


class ConsumerGroupHeartbeatResponse(wire.Message, max_version=1, flexible_since=0):
    """The group's state, as far as the member has to know."""

    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16()
    error_message: str | None = wire.string(nullable_since=0, default=None)
    member_id: str | None = wire.string(nullable_since=0, default=None)
    member_epoch: int = wire.int32()
    heartbeat_interval_ms: int = wire.int32()
    assignment: Assignment | None = wire.struct(nullable_since=0)
    """Null when nothing changed."""
