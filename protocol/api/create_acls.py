"""CreateAcls (key 30): add access rules.

=======  ================================================================
version  change
=======  ================================================================
0        rules for literal resource names
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
class AclCreation:
    """A rule to add."""

    resource_type: int = int8()
    resource_name: str = string()
    resource_pattern_type: int = int8(since=1, default=3)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@message(ApiKey.CREATE_ACLS, Direction.REQUEST, max_version=3, flexible_since=2)
@dataclass(slots=True, kw_only=True)
class CreateAclsRequest:
    """Rules to add, each on its own merits."""

    creations: list[AclCreation] = array(AclCreation)


@dataclass(slots=True, kw_only=True)
class AclCreationResult:
    """The outcome for one rule."""

    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)


@message(ApiKey.CREATE_ACLS, Direction.RESPONSE, max_version=3, flexible_since=2)
@dataclass(slots=True, kw_only=True)
class CreateAclsResponse:
    """The outcome for every rule, in order."""

    throttle_time_ms: int = int32()
    results: list[AclCreationResult] = array(AclCreationResult)
