"""DescribeConfigs (key 32): the settings of topics and brokers, and where each comes from.

Resource types: 2 topic, 4 broker, 8 broker logger, 16 client metrics, 32 group. Sources: 1 topic,
2 this broker at run time, 3 all brokers at run time, 4 start-up file, 5 default.

| version | change                                           |
|---------|--------------------------------------------------|
| 0       | value, read-only, default, sensitive             |
| 1       | source and synonyms replace is_default (KIP-226) |
| 2       | client, not broker, waits out a throttle         |
| 3       | type and documentation (KIP-569)                 |
| 4       | flexible                                         |
"""

from protocol.declare import primitives as wire


class DescribeConfigsResource(wire.Struct):
    """A resource whose settings are wanted."""

    resource_type: int = wire.int8()
    resource_name: str = wire.string()
    configuration_keys: list[str] | None = wire.array(wire.STRING, nullable_since=0)
    """Null for all settings."""


class DescribeConfigsRequest(wire.Message, max_version=4, flexible_since=4):
    """Resources, and how much to report about each setting."""

    resources: list[DescribeConfigsResource] = wire.array()
    include_synonyms: bool = wire.boolean(since=1)
    include_documentation: bool = wire.boolean(since=3)


class DescribeConfigsSynonym(wire.Struct):
    """Another place that could have set the value, in order of precedence."""

    name: str = wire.string(since=1)
    value: str | None = wire.string(since=1, nullable_since=1)
    source: int = wire.int8(since=1)


class DescribeConfigsResourceResult(wire.Struct):
    """One setting."""

    name: str = wire.string()
    value: str | None = wire.string(nullable_since=0)
    """Null when sensitive or unset."""

    read_only: bool = wire.boolean()
    config_source: int = wire.int8(since=1, default=-1)
    is_default: bool = wire.boolean(until=0)
    is_sensitive: bool = wire.boolean()
    synonyms: list[DescribeConfigsSynonym] = wire.array(since=1)
    config_type: int = wire.int8(since=3)
    """1 boolean, 2 string, 3 int, 4 short, 5 long, 6 double, 7 list, 8 class, 9 password."""

    documentation: str | None = wire.string(since=3, nullable_since=3)


class DescribeConfigsResult(wire.Struct):
    """The settings of one resource."""

    error_code: int = wire.int16()
    error_message: str | None = wire.string(nullable_since=0)
    resource_type: int = wire.int8()
    resource_name: str = wire.string()
    configs: list[DescribeConfigsResourceResult] = wire.array(pre_encoded=True)


class DescribeConfigsResponse(wire.Message, max_version=4, flexible_since=4):
    """The requested resources."""

    throttle_time_ms: int = wire.int32()
    results: list[DescribeConfigsResult] = wire.array(pre_encoded=True)
