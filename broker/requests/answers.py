"""Unread answers: the memory they hold, and the limit on it.

Owns the limit over all connections (`queued.max.response.bytes`). The broker can make answers
faster than a peer reads them, and unread answers stay in the memory of this process. As they grow,

* below the limit, an answer to Fetch gets at most a quarter of what is left (`fetch_bytes`), and
  always one whole batch: a consumer that reads continues, in smaller steps;
* at the limit, the connection with the most unread bytes is cut, until there is room again; a
  client that reads its answers has no unread ones. The last answer may pass the limit.

The memory of an answer to Fetch that is made in steps is reserved from its first byte on, until the
connection has the answer.

Cost: making an answer looks at no connection. Answers made since the last look count as unread, and
only when they could pass the limit does this module look at all connections.

Source: our own; the nearest in Kafka is `queued.max.request.bytes`, KIP-72, and the one answer that
a muted channel may have.
"""

from collections.abc import Callable, Iterable
from typing import Final, Protocol

FETCH_SHARE: Final = 4
"""An answer to Fetch gets at most this part of the remaining memory: 1/4."""

LOOK_EVERY_BYTES_MIN: Final = 1024 * 1024


class Unread(Protocol):
    """A connection, as this module sees it."""

    @property
    def unread_bytes(self) -> int:
        """Bytes of unread answers that it holds."""

    def cut(self, reason: str) -> None:
        """Drop the answers and close."""


class AnswerMemory:
    """The memory of all unread answers. Loop thread only.

    Attributes:
        limit_bytes: the limit on unread bytes.
        made_bytes: answers made since the start; connections add to it.
        look_at: the value of `made_bytes` from which `check` has something to do.
        cut: the number of connections closed for their unread answers.
        leases: the reserved bytes of answers made in steps, by the answer's identity.
    """

    __slots__ = ("_connections", "_looked_bytes", "_made_then", "_reserved_bytes",
                 "cut", "leases", "limit_bytes", "look_at", "made_bytes")  # fmt: skip

    def __init__(self, limit_bytes: int, connections: Callable[[], Iterable[Unread]]) -> None:
        """Keep the unread answers of `connections()` below `limit_bytes`."""
        self.limit_bytes = limit_bytes
        self.made_bytes = 0
        self.cut = 0
        self._connections = connections
        self.leases: dict[int, int] = {}
        self._reserved_bytes = 0
        self._looked_bytes = 0
        self._made_then = 0
        self.look_at = 0

    @property
    def unread_bytes(self) -> int:
        """The bytes that all connections hold now, and the reserved ones."""
        self._look()
        return self._looked_bytes + self._reserved_bytes

    def fetch_bytes(self, wanted_bytes: int) -> int:
        """How much of `wanted_bytes` an answer to Fetch may have; one batch more is allowed."""
        room = self.limit_bytes - self._looked_bytes - self._reserved_bytes
        if wanted_bytes * FETCH_SHARE <= room - (self.made_bytes - self._made_then):
            return wanted_bytes
        self._look()
        room = self.limit_bytes - self._looked_bytes - self._reserved_bytes
        return max(0, min(wanted_bytes, room // FETCH_SHARE))

    def reserve(self, size_bytes: int) -> None:
        """Add `size_bytes` (may be negative) to the memory of answers that are being made."""
        self._reserved_bytes += size_bytes
        assert self._reserved_bytes >= 0, "an answer's memory was given back twice"

    def lease(self, answer: object, size_bytes: int) -> None:
        """Keep the reservation for `answer` until `release`."""
        self.leases[id(answer)] = size_bytes

    def release(self, answer: object) -> None:
        """End the reservation: `answer` now belongs to the connection, or is dropped."""
        self.reserve(-self.leases.pop(id(answer), 0))

    def check(self, spared: Unread) -> None:
        """Cut the connections with the most unread bytes while all are over the limit.

        Call this after making answers. `spared` has just got one and could not have read it.
        """
        if self.made_bytes < self.look_at:
            return
        self._look()
        if self._looked_bytes <= self.limit_bytes:
            return
        for connection in sorted(self._connections(), key=_unread, reverse=True):
            unread = connection.unread_bytes
            if connection is spared:
                continue
            if self._looked_bytes <= self.limit_bytes or not unread:
                break
            connection.cut(
                f"{unread} bytes of answers were left unread when {self._looked_bytes} bytes were "
                f"waiting in all (queued.max.response.bytes = {self.limit_bytes})"
            )
            self.cut += 1
            self._looked_bytes -= unread

    def _look(self) -> None:
        self._looked_bytes = sum(map(_unread, self._connections()))
        self._made_then = self.made_bytes
        self.look_at = self.made_bytes + max(
            LOOK_EVERY_BYTES_MIN, self.limit_bytes - self._looked_bytes
        )


def _unread(connection: Unread) -> int:
    return connection.unread_bytes
