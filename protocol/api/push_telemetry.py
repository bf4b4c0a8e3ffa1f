"""PushTelemetry (key 72, version 0): metrics of a client, in OpenTelemetry's form (KIP-714)."""

from protocol.declare import primitives as wire


class PushTelemetryRequest(wire.Message, max_version=0, flexible_since=0):
    """One push."""

    client_instance_id: bytes = wire.uuid()
    subscription_id: int = wire.int32()
    terminating: bool = wire.boolean()
    """Whether this is the last push of the client."""

    compression_type: int = wire.int8()
    metrics: bytes = wire.binary()
    """`MetricsData` of OTLP v1 (protobuf), compressed."""


class PushTelemetryResponse(wire.Message, max_version=0, flexible_since=0):
    """The outcome."""

    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16()
