"""ExpireDelegationToken (key 40): a token expires earlier, or is removed at once.

| version | change                                   |
|---------|------------------------------------------|
| 0       | (KIP-48)                                 |
| 1       | client, not broker, waits out a throttle |
| 2       | flexible                                 |
"""

from protocol.declare import primitives as wire


class ExpireDelegationTokenRequest(wire.Message, max_version=2, flexible_since=2):
    """Which token, and after how long."""

    hmac: bytes = wire.binary()
    expiry_time_period_ms: int = wire.int64()
    """A negative number removes the token."""


class ExpireDelegationTokenResponse(wire.Message, max_version=2, flexible_since=2):
    """When the token expires now."""

    error_code: int = wire.int16()
    expiry_timestamp_ms: int = wire.int64()
    throttle_time_ms: int = wire.int32()
