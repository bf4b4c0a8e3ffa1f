"""UnregisterBroker (key 64, version 0): take a broker that is gone out of the cluster."""

from protocol.declare import primitives as wire


class UnregisterBrokerRequest(wire.Message, max_version=0, flexible_since=0):
    """The broker to forget."""

    broker_id: int = wire.int32()


class UnregisterBrokerResponse(wire.Message, max_version=0, flexible_since=0):
    """The outcome."""

    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16()
    error_message: str | None = wire.string(nullable_since=0, default=None)
