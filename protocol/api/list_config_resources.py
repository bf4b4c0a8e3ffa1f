"""ListConfigResources (key 74): everything that can have a configuration (KIP-1142).

| version | change                                                         |
|---------|----------------------------------------------------------------|
| 0       | client metrics only, under the name ListClientMetricsResources |
| 1       | any type of resource                                           |
"""

from protocol.declare import primitives as wire


class ListConfigResourcesRequest(wire.Message, max_version=1, flexible_since=0):
    """Types of interest."""

    resource_types: list[int] = wire.array(wire.INT8, since=1)
    """Codes of DescribeConfigs; empty for all."""


class ConfigResource(wire.Struct):
    """One resource; in v0 always of the default type, client metrics."""

    resource_name: str = wire.string()
    resource_type: int = wire.int8(since=1, default=16)


class ListConfigResourcesResponse(wire.Message, max_version=1, flexible_since=0):
    """The resources found."""

    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16()
    config_resources: list[ConfigResource] = wire.array()
