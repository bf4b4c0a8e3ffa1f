"""DeleteAcls (key 31): remove the access rules that match filters.

=======  ================================================================
version  change
=======  ================================================================
0        filters as in DescribeAcls
1        pattern type (KIP-290); client, not broker, waits out a throttle
2        flexible
3        resource type "user"
=======  ================================================================
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.api_keys import ApiKey
from protocol.declare.primitives import Direction, array, int8, int16, int32, message, string


@dataclass(slots=True, kw_only=True)
class DeleteAclsFilter:
    """Matching rules are deleted; null matches any name."""

    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(nullable_since=0)
    pattern_type_filter: int = int8(since=1, default=3)
    principal_filter: str | None = string(nullable_since=0)
    host_filter: str | None = string(nullable_since=0)
    operation: int = int8()
    permission_type: int = int8()


@message(ApiKey.DELETE_ACLS, Direction.REQUEST, max_version=3, flexible_since=2)
@dataclass(slots=True, kw_only=True)
class DeleteAclsRequest:
    """The filters, applied one by one."""

    filters: list[DeleteAclsFilter] = array(DeleteAclsFilter)


@dataclass(slots=True, kw_only=True)
class DeleteAclsMatchingAcl:
    """A rule that matched, and whether it was deleted."""

    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8(since=1, default=3)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@dataclass(slots=True, kw_only=True)
class DeleteAclsFilterResult:
    """The rules that one filter removed."""

    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
    matching_acls: list[DeleteAclsMatchingAcl] = array(DeleteAclsMatchingAcl)


@message(ApiKey.DELETE_ACLS, Direction.RESPONSE, max_version=3, flexible_since=2)
@dataclass(slots=True, kw_only=True)
class DeleteAclsResponse:
    """The outcome for every filter, in order."""

    throttle_time_ms: int = int32()
    filter_results: list[DeleteAclsFilterResult] = array(DeleteAclsFilterResult)
