"""ShareGroupDescribe (key 77): state and members of share groups (KIP-932).

| version | change                          |
|---------|---------------------------------|
| 0       | of Kafka 4.0, never served here |
| 1       | the same fields                 |
"""

from protocol.declare import primitives as wire
from protocol.structs import NamedAssignment


class ShareGroupDescribeRequest(wire.Message, max_version=1, flexible_since=0):
    """The groups of interest."""

    group_ids: list[str] = wire.array(wire.STRING)
    include_authorized_operations: bool = wire.boolean()


class Member(wire.Struct):
    """One member."""

    member_id: str = wire.string()
    rack_id: str | None = wire.string(nullable_since=0, default=None)
    member_epoch: int = wire.int32()
    client_id: str = wire.string()
    client_host: str = wire.string()
    subscribed_topic_names: list[str] = wire.array(wire.STRING)
    assignment: NamedAssignment = wire.struct()


class DescribedGroup(wire.Struct):
    """One group."""

    error_code: int = wire.int16()
    error_message: str | None = wire.string(nullable_since=0, default=None)
    group_id: str = wire.string()
    group_state: str = wire.string()
    group_epoch: int = wire.int32()
    assignment_epoch: int = wire.int32()
    assignor_name: str = wire.string()
    members: list[Member] = wire.array()
    authorized_operations: int = wire.operations()


class ShareGroupDescribeResponse(wire.Message, max_version=1, flexible_since=0):
    """The requested groups."""

    throttle_time_ms: int = wire.int32()
    groups: list[DescribedGroup] = wire.array()
