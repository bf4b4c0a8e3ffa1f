"""IncrementalAlterConfigs (key 44): change single settings of a resource (KIP-339).

| version | change                        |
|---------|-------------------------------|
| 0       | set, delete, append, subtract |
| 1       | flexible                      |
"""

from protocol.api.alter_configs import AlterConfigsResourceResponse
from protocol.declare import primitives as wire


class AlterableConfig(wire.Struct):
    """A setting and the operation on it."""

    name: str = wire.string()
    config_operation: int = wire.int8()
    """0 set, 1 delete, 2 append to a list, 3 subtract from a list."""

    value: str | None = wire.string(nullable_since=0)


class AlterConfigsResource(wire.Struct):
    """A resource and the settings to change; all others stay."""

    resource_type: int = wire.int8()
    resource_name: str = wire.string()
    configs: list[AlterableConfig] = wire.array()


class IncrementalAlterConfigsRequest(wire.Message, max_version=1, flexible_since=1):
    """Resources to change, each on its own merits."""

    resources: list[AlterConfigsResource] = wire.array()
    validate_only: bool = wire.boolean()


class IncrementalAlterConfigsResponse(wire.Message, max_version=1, flexible_since=1):
    """The outcome for every resource."""

    throttle_time_ms: int = wire.int32()
    responses: list[AlterConfigsResourceResponse] = wire.array()
