"""DescribeDelegationToken (key 41): tokens, their secrets included.

| version | change                                   |
|---------|------------------------------------------|
| 0       | (KIP-48)                                 |
| 1       | client, not broker, waits out a throttle |
| 2       | flexible                                 |
| 3       | who asked for a token (KIP-373)          |
"""

from protocol.declare import primitives as wire
from protocol.structs import TokenPrincipal


class DescribeDelegationTokenRequest(wire.Message, max_version=3, flexible_since=2):
    """Whose tokens; null is everyone's, an empty list none."""

    owners: list[TokenPrincipal] | None = wire.array(nullable_since=0)


class DescribedDelegationToken(wire.Struct):
    """One token."""

    principal_type: str = wire.string()
    principal_name: str = wire.string()
    token_requester_principal_type: str = wire.string(since=3)
    token_requester_principal_name: str = wire.string(since=3)
    issue_timestamp: int = wire.int64()
    expiry_timestamp: int = wire.int64()
    max_timestamp: int = wire.int64()
    token_id: str = wire.string()
    hmac: bytes = wire.binary()
    renewers: list[TokenPrincipal] = wire.array()


class DescribeDelegationTokenResponse(wire.Message, max_version=3, flexible_since=2):
    """The tokens that the client may see."""

    error_code: int = wire.int16()
    tokens: list[DescribedDelegationToken] = wire.array()
    throttle_time_ms: int = wire.int32()
