"""ConsumerGroupDescribe (key 69): state and members of KIP-848 groups.

| version | change                    |
|---------|---------------------------|
| 0       | flexible from the start   |
| 1       | kind of member (KIP-1099) |
"""

from protocol.declare import primitives as wire
from protocol.structs import NamedAssignment


class ConsumerGroupDescribeRequest(wire.Message, max_version=1, flexible_since=0):
    """The groups of interest."""

    group_ids: list[str] = wire.array(wire.STRING)
    include_authorized_operations: bool = wire.boolean()


class Member(wire.Struct):
    """One member."""

    member_id: str = wire.string()
    instance_id: str | None = wire.string(nullable_since=0, default=None)
    rack_id: str | None = wire.string(nullable_since=0, default=None)
    member_epoch: int = wire.int32()
    client_id: str = wire.string()
    client_host: str = wire.string()
    subscribed_topic_names: list[str] = wire.array(wire.STRING)
    subscribed_topic_regex: str | None = wire.string(nullable_since=0, default=None)
    assignment: NamedAssignment = wire.struct()
    target_assignment: NamedAssignment = wire.struct()
    member_type: int = wire.int8(since=1, default=-1)
    """0 classic protocol, 1 consumer protocol, -1 unknown."""


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


class ConsumerGroupDescribeResponse(wire.Message, max_version=1, flexible_since=0):
    """The requested groups."""

    throttle_time_ms: int = wire.int32()
    groups: list[DescribedGroup] = wire.array()
