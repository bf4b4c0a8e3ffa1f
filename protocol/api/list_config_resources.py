"""ListConfigResources (key 74): everything that can have a configuration (KIP-1142).

=======  ==============================================================
version  change
=======  ==============================================================
0        client metrics only, under the name ListClientMetricsResources
1        any type of resource
=======  ==============================================================
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.api_keys import ApiKey
from protocol.declare.primitives import INT8, Direction, array, int8, int16, int32, message, string


@message(ApiKey.LIST_CONFIG_RESOURCES, Direction.REQUEST, max_version=1, flexible_since=0)
@dataclass(slots=True, kw_only=True)
class ListConfigResourcesRequest:
    """Types of interest."""

    resource_types: list[int] = array(INT8, since=1)
    """Codes of DescribeConfigs; empty for all."""


@dataclass(slots=True, kw_only=True)
class ConfigResource:
    """One resource; in v0 always of the default type, client metrics."""

    resource_name: str = string()
    resource_type: int = int8(since=1, default=16)


@message(ApiKey.LIST_CONFIG_RESOURCES, Direction.RESPONSE, max_version=1, flexible_since=0)
@dataclass(slots=True, kw_only=True)
class ListConfigResourcesResponse:
    """The resources found."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    config_resources: list[ConfigResource] = array(ConfigResource)
