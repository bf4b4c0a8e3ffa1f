"""SyncGroup (key 14): hand the leader's assignment to every member of a classic group.

The leader's request carries the assignments; those of the other members are empty. The broker holds
all answers until the leader's request has come.

| version | change                                                    |
|---------|-----------------------------------------------------------|
| 0       | assignments in, own assignment out                        |
| 1       | answer carries throttle_time_ms                           |
| 2       | client, not broker, waits out a throttle                  |
| 3       | static membership (KIP-345)                               |
| 4       | flexible                                                  |
| 5       | protocol type and name are checked and answered (KIP-559) |
"""

from protocol.declare import primitives as wire


class SyncGroupRequestAssignment(wire.Struct):
    """One member's assignment, in the protocol's own encoding."""

    member_id: str = wire.string()
    assignment: bytes = wire.binary()


class SyncGroupRequest(wire.Message, max_version=5, flexible_since=4):
    """The leader's plan, or a member's question for it."""

    group_id: str = wire.string()
    generation_id: int = wire.int32()
    member_id: str = wire.string()
    group_instance_id: str | None = wire.string(since=3, nullable_since=3, default=None)
    protocol_type: str | None = wire.string(since=5, nullable_since=5, default=None)
    protocol_name: str | None = wire.string(since=5, nullable_since=5, default=None)
    assignments: list[SyncGroupRequestAssignment] = wire.array()


class SyncGroupResponse(wire.Message, max_version=5, flexible_since=4):
    """The caller's own part of the plan."""

    throttle_time_ms: int = wire.int32(since=1)
    error_code: int = wire.int16()
    protocol_type: str | None = wire.string(since=5, nullable_since=5, default=None)
    protocol_name: str | None = wire.string(since=5, nullable_since=5, default=None)
    assignment: bytes = wire.binary()
