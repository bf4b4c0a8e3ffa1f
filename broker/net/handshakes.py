"""Places for TLS handshakes: how many run at once, how many wait, and how many of one address.

A client that connects has its socket from the first moment on, so it counts as a connection. It
takes a place among the handshakes only once it has sent something, and no address gets more than a
quarter of them: many clients of one address cannot keep out those of others.

| a client that              | is bounded by           | of one address | for                   |
|----------------------------|-------------------------|----------------|-----------------------|
| has sent nothing yet       | `has_room`              | `has_room`     | `SILENCE_TIMEOUT_S`   |
| waits for its turn         | `waiting_max`           | a quarter      |                       |
| shakes hands               | `at_once`               | a quarter      | `HANDSHAKE_TIMEOUT_S` |

The clients' listeners share the places of one `Handshakes`; the metrics port has its own.

Source: docs/security.md. Read next: `broker.net.acceptor`.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Final

SHARE: Final = 4
"""One address gets one of so many parts of the places."""

HasRoom = Callable[[str, str, int, int], bool]
"""Whether there is room for a client of an address on a listener, beside so many clients that have
no connection yet, and so many of its own address."""


class Handshakes:
    """The clients of some listeners that are not connections yet. Loop thread only."""

    def __init__(self, has_room: HasRoom, *, at_once: int, waiting_max: int) -> None:
        """Let `at_once` clients shake hands and `waiting_max` clients wait for that or do it."""
        self._has_room = has_room
        self._waiting_max = waiting_max
        self._at_once_of_host = at_once // SHARE
        self._free = asyncio.Semaphore(at_once)
        self._free_of_host: dict[str, asyncio.Semaphore] = {}
        self._accepted: Counter[str] = Counter()
        self._started: Counter[str] = Counter()

    def begin(self, host: str, listener: str) -> bool:
        """Count a client in that `listener` has accepted; False if there is no room for it."""
        if not self._has_room(host, listener, self._accepted.total(), self._accepted[host]):
            return False
        self._accepted[host] += 1
        return True

    def end(self, host: str) -> None:
        """Count the client out; its connection, if there is one, counts by itself."""
        _count_out(self._accepted, host)

    @contextlib.asynccontextmanager
    async def turn(self, host: str) -> AsyncIterator[None]:
        """Wait for a place, and hold it.

        Raises:
            ConnectionRefusedError: too many wait already.
        """
        waiting_max = self._waiting_max
        if self._started.total() >= waiting_max:
            raise ConnectionRefusedError(f"{waiting_max} clients wait for a handshake")
        if self._started[host] >= waiting_max // SHARE:
            raise ConnectionRefusedError(
                f"{waiting_max // SHARE} clients of this address wait for a handshake"
            )
        self._started[host] += 1
        free_of_host = self._free_of_host.setdefault(host, asyncio.Semaphore(self._at_once_of_host))
        try:
            async with free_of_host, self._free:
                yield
        finally:
            _count_out(self._started, host)
            if host not in self._started:
                del self._free_of_host[host]


def _count_out(counter: Counter[str], host: str) -> None:
    counter[host] -= 1
    if not counter[host]:
        del counter[host]
