"""ApiVersions (key 18): the versions this broker serves; a client's first request.

The answer's header has no tag section in any version. A version the broker does not know is
answered in v0 with error 35, see ``broker.net.dispatch``.

| version | change                                                               |
|---------|----------------------------------------------------------------------|
| 0       | ranges of versions per API                                           |
| 1       | answer carries throttle_time_ms                                      |
| 2       | client, not broker, waits out a throttle                             |
| 3       | flexible body; client software is named; features (KIP-511, KIP-584) |
| 4       | a feature's minimum may be 0 (KAFKA-17011)                           |
"""

from protocol.declare import primitives as wire


class ApiVersionsRequest(wire.Message, max_version=4, flexible_since=3):
    """The client's software, from v3."""

    client_software_name: str = wire.string(since=3)
    client_software_version: str = wire.string(since=3)


class ApiVersion(wire.Struct):
    """The inclusive range of one API."""

    api_key: int = wire.int16()
    min_version: int = wire.int16()
    max_version: int = wire.int16()


class SupportedFeatureKey(wire.Struct):
    """A feature level this broker could run at."""

    name: str = wire.string(since=3)
    min_version: int = wire.int16(since=3)
    max_version: int = wire.int16(since=3)


class FinalizedFeatureKey(wire.Struct):
    """A feature level the cluster has settled on."""

    name: str = wire.string(since=3)
    max_version_level: int = wire.int16(since=3)
    min_version_level: int = wire.int16(since=3)


class ApiVersionsResponse(wire.Message, max_version=4, flexible_since=3):
    """All that a client needs to choose its versions."""

    error_code: int = wire.int16()
    api_keys: list[ApiVersion] = wire.array()
    throttle_time_ms: int = wire.int32(since=1)
    supported_features: list[SupportedFeatureKey] = wire.array(since=3, tag=0)
    finalized_features_epoch: int = wire.int64(since=3, tag=1, default=-1)
    """Grows with every change of the finalized features; -1 is unknown."""

    finalized_features: list[FinalizedFeatureKey] = wire.array(since=3, tag=2)
    zk_migration_ready: bool = wire.boolean(since=3, tag=3)
