"""LeaveGroup (key 13): give up membership of a classic group.

| version | change                                                |
|---------|-------------------------------------------------------|
| 0       | one member                                            |
| 1       | answer carries throttle_time_ms                       |
| 2       | client, not broker, waits out a throttle              |
| 3       | several members, static ones by instance id (KIP-345) |
| 4       | flexible                                              |
| 5       | reason for leaving (KIP-800)                          |
"""

from protocol.declare import primitives as wire


class MemberIdentity(wire.Struct):
    """A member that leaves."""

    member_id: str = wire.string(since=3)
    group_instance_id: str | None = wire.string(since=3, nullable_since=3, default=None)
    reason: str | None = wire.string(since=5, nullable_since=5, default=None)


class LeaveGroupRequest(wire.Message, max_version=5, flexible_since=4):
    """Who leaves: ``member_id`` up to v2, ``members`` from v3."""

    group_id: str = wire.string()
    member_id: str = wire.string(until=2)
    members: list[MemberIdentity] = wire.array(since=3)


class MemberResponse(wire.Struct):
    """Whether one member was removed."""

    member_id: str = wire.string(since=3)
    group_instance_id: str | None = wire.string(since=3, nullable_since=3)
    error_code: int = wire.int16(since=3)


class LeaveGroupResponse(wire.Message, max_version=5, flexible_since=4):
    """The outcome, per member from v3."""

    throttle_time_ms: int = wire.int32(since=1)
    error_code: int = wire.int16()
    members: list[MemberResponse] = wire.array(since=3)
