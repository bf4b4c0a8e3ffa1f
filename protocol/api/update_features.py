"""UpdateFeatures (key 57): set the cluster's feature levels (KIP-584).

| version | change                                          |
|---------|-------------------------------------------------|
| 0       | flexible from the start; downgrades need a flag |
| 1       | dry run; kind of upgrade replaces the flag      |
| 2       | one outcome for all, none per feature           |
"""

from protocol.declare import primitives as wire


class FeatureUpdateKey(wire.Struct):
    """A feature and its requested level."""

    feature: str = wire.string()
    max_version_level: int = wire.int16()
    """Below 1 removes the feature."""

    allow_downgrade: bool = wire.boolean(until=0)
    upgrade_type: int = wire.int8(since=1, default=1)
    """1 upgrade, 2 safe downgrade, 3 unsafe downgrade."""


class UpdateFeaturesRequest(wire.Message, max_version=2, flexible_since=0):
    """The requested levels."""

    timeout_ms: int = wire.int32(default=60000)
    feature_updates: list[FeatureUpdateKey] = wire.array()
    validate_only: bool = wire.boolean(since=1)


class UpdatableFeatureResult(wire.Struct):
    """The outcome for one feature."""

    feature: str = wire.string()
    error_code: int = wire.int16()
    error_message: str | None = wire.string(nullable_since=0)


class UpdateFeaturesResponse(wire.Message, max_version=2, flexible_since=0):
    """The outcome."""

    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16()
    error_message: str | None = wire.string(nullable_since=0)
    results: list[UpdatableFeatureResult] = wire.array(until=1)
