"""AlterConfigs (key 33): replace all settings of a resource; superseded by IncrementalAlterConfigs.

=======  ========================================
version  change
=======  ========================================
0        full set of settings per resource
1        client, not broker, waits out a throttle
2        flexible
=======  ========================================
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.api_keys import ApiKey
from protocol.declare.primitives import (
    Direction,
    array,
    boolean,
    int8,
    int16,
    int32,
    message,
    string,
)


@dataclass(slots=True, kw_only=True)
class AlterableConfig:
    """A setting and its new value; null clears it."""

    name: str = string()
    value: str | None = string(nullable_since=0)


@dataclass(slots=True, kw_only=True)
class AlterConfigsResource:
    """A resource and all its settings: those left out return to their default."""

    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


@message(ApiKey.ALTER_CONFIGS, Direction.REQUEST, max_version=2, flexible_since=2)
@dataclass(slots=True, kw_only=True)
class AlterConfigsRequest:
    """Resources to change, each on its own merits."""

    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


@dataclass(slots=True, kw_only=True)
class AlterConfigsResourceResponse:
    """The outcome for one resource."""

    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
    resource_type: int = int8()
    resource_name: str = string()


@message(ApiKey.ALTER_CONFIGS, Direction.RESPONSE, max_version=2, flexible_since=2)
@dataclass(slots=True, kw_only=True)
class AlterConfigsResponse:
    """The outcome for every resource."""

    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
