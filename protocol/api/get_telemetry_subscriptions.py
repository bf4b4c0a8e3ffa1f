"""GetTelemetrySubscriptions (key 71, version 0): which metrics a client should push (KIP-714)."""

from protocol.declare import primitives as wire


class GetTelemetrySubscriptionsRequest(wire.Message, max_version=0, flexible_since=0):
    """The question of one client."""

    client_instance_id: bytes = wire.uuid()
    """Zero when the client has none yet."""


class GetTelemetrySubscriptionsResponse(wire.Message, max_version=0, flexible_since=0):
    """What to push, how often, and in which form."""

    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16()
    client_instance_id: bytes = wire.uuid()
    subscription_id: int = wire.int32()
    """Names the subscription; the client repeats it in every push."""

    accepted_compression_types: list[int] = wire.array(wire.INT8)
    """In order of preference."""

    push_interval_ms: int = wire.int32()
    telemetry_max_bytes: int = wire.int32()
    delta_temporality: bool = wire.boolean()
    """Whether sums are pushed as differences to the last push."""

    requested_metrics: list[str] = wire.array(wire.STRING)
    """Prefixes of names; ``*`` for all, empty for none."""
