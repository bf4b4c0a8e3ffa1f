"""ListGroups (key 16): every group this broker coordinates.

=======  ========================================
version  change
=======  ========================================
0        group id and protocol type
1        answer carries throttle_time_ms
2        client, not broker, waits out a throttle
3        flexible
4        filter by state (KIP-518)
5        filter by type (KIP-848)
=======  ========================================
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.api_keys import ApiKey
from protocol.declare.primitives import STRING, Direction, array, int16, int32, message, string


@message(ApiKey.LIST_GROUPS, Direction.REQUEST, max_version=5, flexible_since=3)
@dataclass(slots=True, kw_only=True)
class ListGroupsRequest:
    """Filters; an empty one matches everything."""

    states_filter: list[str] = array(STRING, since=4)
    types_filter: list[str] = array(STRING, since=5)


@dataclass(slots=True, kw_only=True)
class ListedGroup:
    """One group in brief."""

    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string(since=4)
    group_type: str = string(since=5)


@message(ApiKey.LIST_GROUPS, Direction.RESPONSE, max_version=5, flexible_since=3)
@dataclass(slots=True, kw_only=True)
class ListGroupsResponse:
    """The groups that passed the filters."""

    throttle_time_ms: int = int32(since=1)
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)
