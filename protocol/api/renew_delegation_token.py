"""RenewDelegationToken (key 39): a token expires later.

=======  ========================================
version  change
=======  ========================================
0        (KIP-48)
1        client, not broker, waits out a throttle
2        flexible
=======  ========================================
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.api_keys import ApiKey
from protocol.declare.primitives import Direction, binary, int16, int32, int64, message


@message(ApiKey.RENEW_DELEGATION_TOKEN, Direction.REQUEST, max_version=2, flexible_since=2)
@dataclass(slots=True, kw_only=True)
class RenewDelegationTokenRequest:
    """Which token, and for how long."""

    hmac: bytes = binary()
    renew_period_ms: int = int64()
    """Zero and negative numbers are the broker's default period."""


@message(ApiKey.RENEW_DELEGATION_TOKEN, Direction.RESPONSE, max_version=2, flexible_since=2)
@dataclass(slots=True, kw_only=True)
class RenewDelegationTokenResponse:
    """When the token expires now."""

    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32()
