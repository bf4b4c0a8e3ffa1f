"""SaslAuthenticate (key 36): carry the tokens of a SASL exchange.

| version | change                            |
|---------|-----------------------------------|
| 0       | tokens in Kafka frames (KIP-152)  |
| 1       | lifetime of the session (KIP-368) |
| 2       | flexible                          |
"""

from protocol.declare import primitives as wire


class SaslAuthenticateRequest(wire.Message, max_version=2, flexible_since=2):
    """The client's next token."""

    auth_bytes: bytes = wire.binary()


class SaslAuthenticateResponse(wire.Message, max_version=2, flexible_since=2):
    """The server's next token, or why it refused."""

    error_code: int = wire.int16()
    error_message: str | None = wire.string(nullable_since=0)
    auth_bytes: bytes = wire.binary()
    session_lifetime_ms: int = wire.int64(since=1)
    """When to authenticate again; 0 is never."""
