"""DeleteGroups (key 42): delete groups that have no members.

=======  ========================================
version  change
=======  ========================================
0        group ids
1        client, not broker, waits out a throttle
2        flexible
=======  ========================================
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.api_keys import ApiKey
from protocol.declare.primitives import STRING, Direction, array, int16, int32, message, string


@message(ApiKey.DELETE_GROUPS, Direction.REQUEST, max_version=2, flexible_since=2)
@dataclass(slots=True, kw_only=True)
class DeleteGroupsRequest:
    """Groups to delete, with their offsets."""

    groups_names: list[str] = array(STRING)


@dataclass(slots=True, kw_only=True)
class DeletableGroupResult:
    """The outcome for one group."""

    group_id: str = string()
    error_code: int = int16()


@message(ApiKey.DELETE_GROUPS, Direction.RESPONSE, max_version=2, flexible_since=2)
@dataclass(slots=True, kw_only=True)
class DeleteGroupsResponse:
    """The outcome for every group."""

    throttle_time_ms: int = int32()
    results: list[DeletableGroupResult] = array(DeletableGroupResult)
