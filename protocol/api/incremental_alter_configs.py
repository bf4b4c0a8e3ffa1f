"""IncrementalAlterConfigs (key 44): change single settings of a resource (KIP-339).

=======  =============================
version  change
=======  =============================
0        set, delete, append, subtract
1        flexible
=======  =============================
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.api.alter_configs import AlterConfigsResourceResponse
from protocol.api_keys import ApiKey
from protocol.declare.primitives import (
    Direction,
    array,
    boolean,
    int8,
    int32,
    message,
    string,
)


@dataclass(slots=True, kw_only=True)
class AlterableConfig:
    """A setting and the operation on it."""

    name: str = string()
    config_operation: int = int8()
    """0 set, 1 delete, 2 append to a list, 3 subtract from a list."""

    value: str | None = string(nullable_since=0)


@dataclass(slots=True, kw_only=True)
class AlterConfigsResource:
    """A resource and the settings to change; all others stay."""

    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


@message(ApiKey.INCREMENTAL_ALTER_CONFIGS, Direction.REQUEST, max_version=1, flexible_since=1)
@dataclass(slots=True, kw_only=True)
class IncrementalAlterConfigsRequest:
    """Resources to change, each on its own merits."""

    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


@message(ApiKey.INCREMENTAL_ALTER_CONFIGS, Direction.RESPONSE, max_version=1, flexible_since=1)
@dataclass(slots=True, kw_only=True)
class IncrementalAlterConfigsResponse:
    """The outcome for every resource."""

    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
