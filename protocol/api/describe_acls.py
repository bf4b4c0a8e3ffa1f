"""DescribeAcls (key 29): the access rules that match a filter.

Codes of resources, patterns, operations and permissions are Kafka's; 1 means "any" in filters.

| version | change                                                           |
|---------|------------------------------------------------------------------|
| 0       | resource, principal, host, operation, permission                 |
| 1       | pattern type (KIP-290); client, not broker, waits out a throttle |
| 2       | flexible                                                         |
| 3       | resource type "user"                                             |
"""

from protocol.declare import primitives as wire


class DescribeAclsRequest(wire.Message, max_version=3, flexible_since=2):
    """The filter; null matches any name."""

    resource_type_filter: int = wire.int8()
    resource_name_filter: str | None = wire.string(nullable_since=0)
    pattern_type_filter: int = wire.int8(since=1, default=3)
    principal_filter: str | None = wire.string(nullable_since=0)
    host_filter: str | None = wire.string(nullable_since=0)
    operation: int = wire.int8()
    permission_type: int = wire.int8()


class AclDescription(wire.Struct):
    """One rule."""

    principal: str = wire.string()
    host: str = wire.string()
    operation: int = wire.int8()
    permission_type: int = wire.int8()


class DescribeAclsResource(wire.Struct):
    """A resource and its rules."""

    resource_type: int = wire.int8()
    resource_name: str = wire.string()
    pattern_type: int = wire.int8(since=1, default=3)
    acls: list[AclDescription] = wire.array()


class DescribeAclsResponse(wire.Message, max_version=3, flexible_since=2):
    """The rules that matched; SECURITY_DISABLED without an authorizer."""

    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16()
    error_message: str | None = wire.string(nullable_since=0)
    resources: list[DescribeAclsResource] = wire.array()
