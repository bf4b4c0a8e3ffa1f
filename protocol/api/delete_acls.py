"""DeleteAcls (key 31): remove the access rules that match filters.

| version | change                                                           |
|---------|------------------------------------------------------------------|
| 0       | filters as in DescribeAcls                                       |
| 1       | pattern type (KIP-290); client, not broker, waits out a throttle |
| 2       | flexible                                                         |
| 3       | resource type "user"                                             |
"""

from protocol.declare import primitives as wire


class DeleteAclsFilter(wire.Struct):
    """Matching rules are deleted; null matches any name."""

    resource_type_filter: int = wire.int8()
    resource_name_filter: str | None = wire.string(nullable_since=0)
    pattern_type_filter: int = wire.int8(since=1, default=3)
    principal_filter: str | None = wire.string(nullable_since=0)
    host_filter: str | None = wire.string(nullable_since=0)
    operation: int = wire.int8()
    permission_type: int = wire.int8()


class DeleteAclsRequest(wire.Message, max_version=3, flexible_since=2):
    """The filters, applied one by one."""

    filters: list[DeleteAclsFilter] = wire.array()


class DeleteAclsMatchingAcl(wire.Struct):
    """A rule that matched, and whether it was deleted."""

    error_code: int = wire.int16()
    error_message: str | None = wire.string(nullable_since=0)
    resource_type: int = wire.int8()
    resource_name: str = wire.string()
    pattern_type: int = wire.int8(since=1, default=3)
    principal: str = wire.string()
    host: str = wire.string()
    operation: int = wire.int8()
    permission_type: int = wire.int8()


class DeleteAclsFilterResult(wire.Struct):
    """The rules that one filter removed."""

    error_code: int = wire.int16()
    error_message: str | None = wire.string(nullable_since=0)
    matching_acls: list[DeleteAclsMatchingAcl] = wire.array()


class DeleteAclsResponse(wire.Message, max_version=3, flexible_since=2):
    """The outcome for every filter, in order."""

    throttle_time_ms: int = wire.int32()
    filter_results: list[DeleteAclsFilterResult] = wire.array()
