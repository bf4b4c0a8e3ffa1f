"""CreateDelegationToken (key 38): a secret by which its bearer acts as the token's owner.

| version | change                                               |
|---------|------------------------------------------------------|
| 0       | tokens for the client itself (KIP-48)                |
| 1       | client, not broker, waits out a throttle             |
| 2       | flexible                                             |
| 3       | tokens for another owner, who asked for it (KIP-373) |
"""

from protocol.declare import primitives as wire
from protocol.structs import TokenPrincipal


class CreateDelegationTokenRequest(wire.Message, max_version=3, flexible_since=2):
    """Whose token, and for how long at most."""

    owner_principal_type: str | None = wire.string(since=3, nullable_since=3, default=None)
    owner_principal_name: str | None = wire.string(since=3, nullable_since=3, default=None)
    """Null or empty is the client itself."""
    renewers: list[TokenPrincipal] = wire.array()
    max_lifetime_ms: int = wire.int64(default=-1)
    """Zero and negative numbers are the broker's longest lifetime."""


class CreateDelegationTokenResponse(wire.Message, max_version=3, flexible_since=2):
    """The token."""

    error_code: int = wire.int16()
    principal_type: str = wire.string()
    principal_name: str = wire.string()
    token_requester_principal_type: str = wire.string(since=3)
    token_requester_principal_name: str = wire.string(since=3)
    issue_timestamp_ms: int = wire.int64()
    expiry_timestamp_ms: int = wire.int64()
    max_timestamp_ms: int = wire.int64()
    token_id: str = wire.string()
    hmac: bytes = wire.binary()
    throttle_time_ms: int = wire.int32()
