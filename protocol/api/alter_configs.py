"""AlterConfigs (key 33): replace all settings of a resource; superseded by IncrementalAlterConfigs.

| version | change                                   |
|---------|------------------------------------------|
| 0       | full set of settings per resource        |
| 1       | client, not broker, waits out a throttle |
| 2       | flexible                                 |
"""

from protocol.declare import primitives as wire
from protocol.structs import ConfigText


class AlterConfigsResource(wire.Struct):
    """A resource and all its settings: those left out return to their default."""

    resource_type: int = wire.int8()
    resource_name: str = wire.string()
    configs: list[ConfigText] = wire.array()


class AlterConfigsRequest(wire.Message, max_version=2, flexible_since=2):
    """Resources to change, each on its own merits."""

    resources: list[AlterConfigsResource] = wire.array()
    validate_only: bool = wire.boolean()


class AlterConfigsResourceResponse(wire.Struct):
    """The outcome for one resource."""

    error_code: int = wire.int16()
    error_message: str | None = wire.string(nullable_since=0)
    resource_type: int = wire.int8()
    resource_name: str = wire.string()


class AlterConfigsResponse(wire.Message, max_version=2, flexible_since=2):
    """The outcome for every resource."""

    throttle_time_ms: int = wire.int32()
    responses: list[AlterConfigsResourceResponse] = wire.array()
