"""DescribeAcls (key 29): the access rules that match a filter.

Codes of resources, patterns, operations and permissions are Kafka's; 1 means "any" in filters.

    =======  ================================================================
    version  change
    =======  ================================================================
    0        resource, principal, host, operation, permission
    1        pattern type (KIP-290); client, not broker, waits out a throttle
    2        flexible
    3        resource type "user"
    =======  ================================================================
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.api_keys import ApiKey
from protocol.declare.primitives import Direction, array, int8, int16, int32, message, string


@message(ApiKey.DESCRIBE_ACLS, Direction.REQUEST, max_version=3, flexible_since=2)
@dataclass(slots=True, kw_only=True)
class DescribeAclsRequest:
    """The filter; null matches any name."""

    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(nullable_since=0)
    pattern_type_filter: int = int8(since=1, default=3)
    principal_filter: str | None = string(nullable_since=0)
    host_filter: str | None = string(nullable_since=0)
    operation: int = int8()
    permission_type: int = int8()


@dataclass(slots=True, kw_only=True)
class AclDescription:
    """One rule."""

    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@dataclass(slots=True, kw_only=True)
class DescribeAclsResource:
    """A resource and its rules."""

    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8(since=1, default=3)
    acls: list[AclDescription] = array(AclDescription)


@message(ApiKey.DESCRIBE_ACLS, Direction.RESPONSE, max_version=3, flexible_since=2)
@dataclass(slots=True, kw_only=True)
class DescribeAclsResponse:
    """The rules that matched; SECURITY_DISABLED without an authorizer."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
    resources: list[DescribeAclsResource] = array(DescribeAclsResource)
