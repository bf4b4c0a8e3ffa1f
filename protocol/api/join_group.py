"""JoinGroup (key 11): enter a classic consumer group, or re-enter it for a rebalance.

The broker holds the answer until all members have joined or the rebalance times out. The leader
alone gets the list of members and computes the assignment.

| version | change                                                              |
|---------|---------------------------------------------------------------------|
| 0       | session timeout serves as rebalance timeout                         |
| 1       | separate rebalance timeout                                          |
| 2       | answer carries throttle_time_ms                                     |
| 3       | client, not broker, waits out a throttle                            |
| 4       | first join without a member id is refused with one to use (KIP-394) |
| 5       | static membership (KIP-345)                                         |
| 6       | flexible                                                            |
| 7       | answer names the protocol type (KIP-559)                            |
| 8       | reason for joining (KIP-800)                                        |
| 9       | answer may let the leader skip the assignment (KIP-814)             |
"""

from protocol.declare import primitives as wire
from protocol.structs import ProtocolMetadata


class JoinGroupRequest(wire.Message, max_version=9, flexible_since=6):
    """One member's wish to join."""

    group_id: str = wire.string()
    session_timeout_ms: int = wire.int32()
    rebalance_timeout_ms: int = wire.int32(since=1, default=-1)
    """The default means: use the session timeout."""

    member_id: str = wire.string()
    """Empty on the first attempt."""

    group_instance_id: str | None = wire.string(since=5, nullable_since=5, default=None)
    protocol_type: str = wire.string()
    protocols: list[ProtocolMetadata] = wire.array()
    """In order of preference."""

    reason: str | None = wire.string(since=8, nullable_since=8, default=None)


class JoinGroupResponseMember(wire.Struct):
    """One member, as reported to the leader."""

    member_id: str = wire.string()
    group_instance_id: str | None = wire.string(since=5, nullable_since=5, default=None)
    metadata: bytes = wire.binary()


class JoinGroupResponse(wire.Message, max_version=9, flexible_since=6):
    """Membership in a new generation of the group."""

    throttle_time_ms: int = wire.int32(since=2)
    error_code: int = wire.int16()
    generation_id: int = wire.int32(default=-1)
    protocol_type: str | None = wire.string(since=7, nullable_since=7, default=None)
    protocol_name: str | None = wire.string(nullable_since=7)
    """The strategy every member supports; null only from v7 on."""

    leader: str = wire.string()
    skip_assignment: bool = wire.boolean(since=9)
    member_id: str = wire.string()
    members: list[JoinGroupResponseMember] = wire.array()
    """Filled for the leader, empty for everyone else."""
