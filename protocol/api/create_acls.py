"""CreateAcls (key 30): add access rules.

| version | change                                                           |
|---------|------------------------------------------------------------------|
| 0       | rules for literal resource names                                 |
| 1       | pattern type (KIP-290); client, not broker, waits out a throttle |
| 2       | flexible                                                         |
| 3       | resource type "user"                                             |
"""

from protocol.declare import primitives as wire


class AclCreation(wire.Struct):
    """A rule to add."""

    resource_type: int = wire.int8()
    resource_name: str = wire.string()
    resource_pattern_type: int = wire.int8(since=1, default=3)
    principal: str = wire.string()
    host: str = wire.string()
    operation: int = wire.int8()
    permission_type: int = wire.int8()


class CreateAclsRequest(wire.Message, max_version=3, flexible_since=2):
    """Rules to add, each on its own merits."""

    creations: list[AclCreation] = wire.array()


class AclCreationResult(wire.Struct):
    """The outcome for one rule."""

    error_code: int = wire.int16()
    error_message: str | None = wire.string(nullable_since=0)


class CreateAclsResponse(wire.Message, max_version=3, flexible_since=2):
    """The outcome for every rule, in order."""

    throttle_time_ms: int = wire.int32()
    results: list[AclCreationResult] = wire.array()
