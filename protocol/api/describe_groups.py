"""DescribeGroups (key 15): state and members of classic groups.

=======  ===================================================
version  change
=======  ===================================================
0        state, protocol, members
1        answer carries throttle_time_ms
2        client, not broker, waits out a throttle
3        authorized operations on request (KIP-430)
4        static membership (KIP-345)
5        flexible
6        GROUP_ID_NOT_FOUND instead of state Dead (KIP-1043)
=======  ===================================================
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.api_keys import ApiKey
from protocol.declare.primitives import (
    STRING,
    Direction,
    array,
    binary,
    boolean,
    int16,
    int32,
    message,
    string,
)


@message(ApiKey.DESCRIBE_GROUPS, Direction.REQUEST, max_version=6, flexible_since=5)
@dataclass(slots=True, kw_only=True)
class DescribeGroupsRequest:
    """The groups of interest."""

    groups: list[str] = array(STRING)
    include_authorized_operations: bool = boolean(since=3)


@dataclass(slots=True, kw_only=True)
class DescribedGroupMember:
    """One member, with its subscription and assignment as opaque bytes."""

    member_id: str = string()
    group_instance_id: str | None = string(since=4, nullable_since=4, default=None)
    client_id: str = string()
    client_host: str = string()
    member_metadata: bytes = binary()
    member_assignment: bytes = binary()


@dataclass(slots=True, kw_only=True)
class DescribedGroup:
    """One group."""

    error_code: int = int16()
    error_message: str | None = string(since=6, nullable_since=6, default=None)
    group_id: str = string()
    group_state: str = string()
    """Kafka's name of the state, for example ``Stable``."""

    protocol_type: str = string()
    protocol_data: str = string()
    """Name of the assignment strategy in use, empty unless stable."""

    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = int32(since=3, default=-(2**31))
    """Bit field of operation codes; the default means "not requested"."""


@message(ApiKey.DESCRIBE_GROUPS, Direction.RESPONSE, max_version=6, flexible_since=5)
@dataclass(slots=True, kw_only=True)
class DescribeGroupsResponse:
    """The requested groups, in order."""

    throttle_time_ms: int = int32(since=1)
    groups: list[DescribedGroup] = array(DescribedGroup)
