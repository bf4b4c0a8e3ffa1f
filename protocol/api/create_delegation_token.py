"""CreateDelegationToken (key 38): a secret by which its bearer acts as the token's owner.

=======  ====================================================
version  change
=======  ====================================================
0        tokens for the client itself (KIP-48)
1        client, not broker, waits out a throttle
2        flexible
3        tokens for another owner, who asked for it (KIP-373)
=======  ====================================================
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
class CreatableRenewers:
    """A principal that may renew and expire the token."""

    principal_type: str = string()
    principal_name: str = string()


@message(ApiKey.CREATE_DELEGATION_TOKEN, Direction.REQUEST, max_version=3, flexible_since=2)
@dataclass(slots=True, kw_only=True)
class CreateDelegationTokenRequest:
    """Whose token, and for how long at most."""

    owner_principal_type: str | None = string(since=3, nullable_since=3, default=None)
    owner_principal_name: str | None = string(since=3, nullable_since=3, default=None)
    """Null or empty is the client itself."""
    renewers: list[CreatableRenewers] = array(CreatableRenewers)
    max_lifetime_ms: int = int64(default=-1)
    """Zero and negative numbers are the broker's longest lifetime."""


@message(ApiKey.CREATE_DELEGATION_TOKEN, Direction.RESPONSE, max_version=3, flexible_since=2)
@dataclass(slots=True, kw_only=True)
class CreateDelegationTokenResponse:
    """The token."""

    error_code: int = int16()
    principal_type: str = string()
    principal_name: str = string()
    token_requester_principal_type: str = string(since=3)
    token_requester_principal_name: str = string(since=3)
    issue_timestamp_ms: int = int64()
    expiry_timestamp_ms: int = int64()
    max_timestamp_ms: int = int64()
    token_id: str = string()
    hmac: bytes = binary()
    throttle_time_ms: int = int32()
