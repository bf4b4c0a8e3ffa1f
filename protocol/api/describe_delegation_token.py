"""DescribeDelegationToken (key 41): tokens, their secrets included.

=======  ========================================
version  change
=======  ========================================
0        (KIP-48)
1        client, not broker, waits out a throttle
2        flexible
3        who asked for a token (KIP-373)
=======  ========================================
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.api_keys import ApiKey
from protocol.declare.primitives import (
    Direction,
    array,
    binary,
    int16,
    int32,
    int64,
    message,
    string,
)


@dataclass(slots=True, kw_only=True)
class DescribeDelegationTokenOwner:
    """A principal whose tokens are asked for."""

    principal_type: str = string()
    principal_name: str = string()


@message(ApiKey.DESCRIBE_DELEGATION_TOKEN, Direction.REQUEST, max_version=3, flexible_since=2)
@dataclass(slots=True, kw_only=True)
class DescribeDelegationTokenRequest:
    """Whose tokens; null is everyone's, an empty list none."""

    owners: list[DescribeDelegationTokenOwner] | None = array(
        DescribeDelegationTokenOwner, nullable_since=0
    )


@dataclass(slots=True, kw_only=True)
class DescribedDelegationTokenRenewer:
    """A principal that may renew and expire the token."""

    principal_type: str = string()
    principal_name: str = string()


@dataclass(slots=True, kw_only=True)
class DescribedDelegationToken:
    """One token."""

    principal_type: str = string()
    principal_name: str = string()
    token_requester_principal_type: str = string(since=3)
    token_requester_principal_name: str = string(since=3)
    issue_timestamp: int = int64()
    expiry_timestamp: int = int64()
    max_timestamp: int = int64()
    token_id: str = string()
    hmac: bytes = binary()
    renewers: list[DescribedDelegationTokenRenewer] = array(DescribedDelegationTokenRenewer)


@message(ApiKey.DESCRIBE_DELEGATION_TOKEN, Direction.RESPONSE, max_version=3, flexible_since=2)
@dataclass(slots=True, kw_only=True)
class DescribeDelegationTokenResponse:
    """The tokens that the client may see."""

    error_code: int = int16()
    tokens: list[DescribedDelegationToken] = array(DescribedDelegationToken)
    throttle_time_ms: int = int32()
