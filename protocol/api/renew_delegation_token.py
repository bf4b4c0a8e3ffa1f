"""RenewDelegationToken (key 39): a token expires later.

| version | change                                   |
|---------|------------------------------------------|
| 0       | (KIP-48)                                 |
| 1       | client, not broker, waits out a throttle |
| 2       | flexible                                 |
"""

from protocol.declare import primitives as wire


class RenewDelegationTokenRequest(wire.Message, max_version=2, flexible_since=2):
    """Which token, and for how long."""

    hmac: bytes = wire.binary()
    renew_period_ms: int = wire.int64()
    """Zero and negative numbers are the broker's default period."""


class RenewDelegationTokenResponse(wire.Message, max_version=2, flexible_since=2):
    """When the token expires now."""

    error_code: int = wire.int16()
    expiry_timestamp_ms: int = wire.int64()
    throttle_time_ms: int = wire.int32()
