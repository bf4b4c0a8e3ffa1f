"""ApiVersions (key 18): the versions this broker serves; a client's first request.

The answer's header has no tag section in any version. A version the broker does not know is
answered in v0 with error 35, see ``broker.net.dispatch``.

    =======  ====================================================================
    version  change
    =======  ====================================================================
    0        ranges of versions per API
    1        answer carries throttle_time_ms
    2        client, not broker, waits out a throttle
    3        flexible body; client software is named; features (KIP-511, KIP-584)
    4        a feature's minimum may be 0 (KAFKA-17011)
    =======  ====================================================================
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.api_keys import ApiKey
from protocol.declare.primitives import (
    Direction,
    array,
    boolean,
    int16,
    int32,
    int64,
    message,
    string,
)


@message(ApiKey.API_VERSIONS, Direction.REQUEST, max_version=4, flexible_since=3)
@dataclass(slots=True, kw_only=True)
class ApiVersionsRequest:
    """The client's software, from v3."""

    client_software_name: str = string(since=3)
    client_software_version: str = string(since=3)


@dataclass(slots=True, kw_only=True)
class ApiVersion:
    """The inclusive range of one API."""

    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


@dataclass(slots=True, kw_only=True)
class SupportedFeatureKey:
    """A feature level this broker could run at."""

    name: str = string(since=3)
    min_version: int = int16(since=3)
    max_version: int = int16(since=3)


@dataclass(slots=True, kw_only=True)
class FinalizedFeatureKey:
    """A feature level the cluster has settled on."""

    name: str = string(since=3)
    max_version_level: int = int16(since=3)
    min_version_level: int = int16(since=3)


@message(ApiKey.API_VERSIONS, Direction.RESPONSE, max_version=4, flexible_since=3)
@dataclass(slots=True, kw_only=True)
class ApiVersionsResponse:
    """All that a client needs to choose its versions."""

    error_code: int = int16()
    api_keys: list[ApiVersion] = array(ApiVersion)
    throttle_time_ms: int = int32(since=1)
    supported_features: list[SupportedFeatureKey] = array(SupportedFeatureKey, since=3, tag=0)
    finalized_features_epoch: int = int64(since=3, tag=1, default=-1)
    """Grows with every change of the finalized features; -1 is unknown."""

    finalized_features: list[FinalizedFeatureKey] = array(FinalizedFeatureKey, since=3, tag=2)
    zk_migration_ready: bool = boolean(since=3, tag=3)
