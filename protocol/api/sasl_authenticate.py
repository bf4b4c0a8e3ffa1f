"""SaslAuthenticate (key 36): carry the tokens of a SASL exchange.

=======  =================================
version  change
=======  =================================
0        tokens in Kafka frames (KIP-152)
1        lifetime of the session (KIP-368)
2        flexible
=======  =================================
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.api_keys import ApiKey
from protocol.declare.primitives import Direction, binary, int16, int64, message, string


@message(ApiKey.SASL_AUTHENTICATE, Direction.REQUEST, max_version=2, flexible_since=2)
@dataclass(slots=True, kw_only=True)
class SaslAuthenticateRequest:
    """The client's next token."""

    auth_bytes: bytes = binary()


@message(ApiKey.SASL_AUTHENTICATE, Direction.RESPONSE, max_version=2, flexible_since=2)
@dataclass(slots=True, kw_only=True)
class SaslAuthenticateResponse:
    """The server's next token, or why it refused."""

    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
    auth_bytes: bytes = binary()
    session_lifetime_ms: int = int64(since=1)
    """When to authenticate again; 0 is never."""
