"""DescribeGroups (key 15): state and members of classic groups.

| version | change                                              |
|---------|-----------------------------------------------------|
| 0       | state, protocol, members                            |
| 1       | answer carries throttle_time_ms                     |
| 2       | client, not broker, waits out a throttle            |
| 3       | authorized operations on request (KIP-430)          |
| 4       | static membership (KIP-345)                         |
| 5       | flexible                                            |
| 6       | GROUP_ID_NOT_FOUND instead of state Dead (KIP-1043) |
"""

from protocol.declare import primitives as wire


class DescribeGroupsRequest(wire.Message, max_version=6, flexible_since=5):
    """The groups of interest."""

    groups: list[str] = wire.array(wire.STRING)
    include_authorized_operations: bool = wire.boolean(since=3)


class DescribedGroupMember(wire.Struct):
    """One member, with its subscription and assignment as opaque bytes."""

    member_id: str = wire.string()
    group_instance_id: str | None = wire.string(since=4, nullable_since=4, default=None)
    client_id: str = wire.string()
    client_host: str = wire.string()
    member_metadata: bytes = wire.binary()
    member_assignment: bytes = wire.binary()


class DescribedGroup(wire.Struct):
    """One group."""

    error_code: int = wire.int16()
    error_message: str | None = wire.string(since=6, nullable_since=6, default=None)
    group_id: str = wire.string()
    group_state: str = wire.string()
    """Kafka's name of the state, for example ``Stable``."""

    protocol_type: str = wire.string()
    protocol_data: str = wire.string()
    """Name of the assignment strategy in use, empty unless stable."""

    members: list[DescribedGroupMember] = wire.array()
    authorized_operations: int = wire.operations(since=3)


class DescribeGroupsResponse(wire.Message, max_version=6, flexible_since=5):
    """The requested groups, in order."""

    throttle_time_ms: int = wire.int32(since=1)
    groups: list[DescribedGroup] = wire.array()
