"""UpdateFeatures (key 57): set the cluster's feature levels (KIP-584).

=======  ===============================================
version  change
=======  ===============================================
0        flexible from the start; downgrades need a flag
1        dry run; kind of upgrade replaces the flag
2        one outcome for all, none per feature
=======  ===============================================
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
class FeatureUpdateKey:
    """A feature and its requested level."""

    feature: str = string()
    max_version_level: int = int16()
    """Below 1 removes the feature."""

    allow_downgrade: bool = boolean(until=0)
    upgrade_type: int = int8(since=1, default=1)
    """1 upgrade, 2 safe downgrade, 3 unsafe downgrade."""


@message(ApiKey.UPDATE_FEATURES, Direction.REQUEST, max_version=2, flexible_since=0)
@dataclass(slots=True, kw_only=True)
class UpdateFeaturesRequest:
    """The requested levels."""

    timeout_ms: int = int32(default=60000)
    feature_updates: list[FeatureUpdateKey] = array(FeatureUpdateKey)
    validate_only: bool = boolean(since=1)


@dataclass(slots=True, kw_only=True)
class UpdatableFeatureResult:
    """The outcome for one feature."""

    feature: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)


@message(ApiKey.UPDATE_FEATURES, Direction.RESPONSE, max_version=2, flexible_since=0)
@dataclass(slots=True, kw_only=True)
class UpdateFeaturesResponse:
    """The outcome."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
    results: list[UpdatableFeatureResult] = array(UpdatableFeatureResult, until=1)
