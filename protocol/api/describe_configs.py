"""DescribeConfigs (key 32): the settings of topics and brokers, and where each comes from.

Resource types: 2 topic, 4 broker, 8 broker logger, 16 client metrics, 32 group. Sources: 1 topic,
2 this broker at run time, 3 all brokers at run time, 4 start-up file, 5 default.

    =======  ================================================
    version  change
    =======  ================================================
    0        value, read-only, default, sensitive
    1        source and synonyms replace is_default (KIP-226)
    2        client, not broker, waits out a throttle
    3        type and documentation (KIP-569)
    4        flexible
    =======  ================================================
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.api_keys import ApiKey
from protocol.declare.primitives import (
    STRING,
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
class DescribeConfigsResource:
    """A resource whose settings are wanted."""

    resource_type: int = int8()
    resource_name: str = string()
    configuration_keys: list[str] | None = array(STRING, nullable_since=0)
    """Null for all settings."""


@message(ApiKey.DESCRIBE_CONFIGS, Direction.REQUEST, max_version=4, flexible_since=4)
@dataclass(slots=True, kw_only=True)
class DescribeConfigsRequest:
    """Resources, and how much to report about each setting."""

    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource)
    include_synonyms: bool = boolean(since=1)
    include_documentation: bool = boolean(since=3)


@dataclass(slots=True, kw_only=True)
class DescribeConfigsSynonym:
    """Another place that could have set the value, in order of precedence."""

    name: str = string(since=1)
    value: str | None = string(since=1, nullable_since=1)
    source: int = int8(since=1)


@dataclass(slots=True, kw_only=True)
class DescribeConfigsResourceResult:
    """One setting."""

    name: str = string()
    value: str | None = string(nullable_since=0)
    """Null when sensitive or unset."""

    read_only: bool = boolean()
    config_source: int = int8(since=1, default=-1)
    is_default: bool = boolean(until=0)
    is_sensitive: bool = boolean()
    synonyms: list[DescribeConfigsSynonym] = array(DescribeConfigsSynonym, since=1)
    config_type: int = int8(since=3)
    """1 boolean, 2 string, 3 int, 4 short, 5 long, 6 double, 7 list, 8 class, 9 password."""

    documentation: str | None = string(since=3, nullable_since=3)


@dataclass(slots=True, kw_only=True)
class DescribeConfigsResult:
    """The settings of one resource."""

    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult)


@message(ApiKey.DESCRIBE_CONFIGS, Direction.RESPONSE, max_version=4, flexible_since=4)
@dataclass(slots=True, kw_only=True)
class DescribeConfigsResponse:
    """The requested resources."""

    throttle_time_ms: int = int32()
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult)
