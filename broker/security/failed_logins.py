"""How long the answer to a failed login waits: longer for an address that fails again and again.

The first `FREE` failures of an address within `WINDOW_MS` are answered after
`connection.failed.authentication.delay.ms`; each further one after twice the time of the one
before, up to `DELAY_MAX_MS`. Without a delay nothing is doubled. The delay is that of the failed
connection alone: a login with the right password, also from the same address, never waits.

At most `ADDRESSES_MAX` addresses are remembered. IPv6 addresses of one /64 count as one: that is
what a single client may have.

Source: docs/security.md. Differs from Kafka, whose delay is always the same.
"""

import ipaddress
from collections.abc import Callable
from typing import Final

FREE: Final = 20
WINDOW_MS: Final = 60_000
DELAY_MAX_MS: Final = 5_000
ADDRESSES_MAX: Final = 10_000
_DOUBLINGS_MAX: Final = 16


class FailedLogins:
    """The failures of one broker, by address. Loop thread only."""

    def __init__(self, monotonic_ms: Callable[[], int], delay_ms: int) -> None:
        """Count by the clock `monotonic_ms`; `delay_ms` is the delay of a first failure."""
        self._monotonic_ms = monotonic_ms
        self._delay_ms = delay_ms
        self._failed: dict[str, tuple[int, int]] = {}

    def count(self, host: str) -> int:
        """Count a failure of the address `host`; how long its answer waits."""
        now_ms = self._monotonic_ms()
        host = _network(host)
        # The oldest window stands first, so that it is dropped first.
        since_ms, count = self._failed.pop(host, (now_ms, 0))
        if now_ms - since_ms >= WINDOW_MS:
            since_ms, count = now_ms, 0
        if len(self._failed) >= ADDRESSES_MAX:
            del self._failed[next(iter(self._failed))]
        self._failed[host] = (since_ms, count + 1)
        doublings = count + 1 - FREE
        if doublings <= 0:
            return self._delay_ms
        longer_ms = self._delay_ms << min(doublings, _DOUBLINGS_MAX)
        return max(self._delay_ms, min(longer_ms, DELAY_MAX_MS))


def _network(host: str) -> str:
    """What counts as one address."""
    if ":" not in host:
        return host
    try:
        address = ipaddress.IPv6Address(host.partition("%")[0])
    except ValueError:
        return host
    return str(ipaddress.IPv6Network((int(address) >> 64 << 64, 64)))
