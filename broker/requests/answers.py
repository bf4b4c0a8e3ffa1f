"""Answers that wait to be read: how much memory they hold, and what is done when it is too much.

Owns the limit over all connections (`queued.max.response.bytes`). Answers are made faster than a
peer has to read them, and what it leaves unread lies in this process. As it becomes more,

* below the limit, an answer to Fetch gets at most a quarter of what is left (`fetch_bytes`), and
  always one whole batch, so a consumer that reads goes on, in smaller steps;
* at the limit, the connection with the most unread bytes is cut, until there is room again; a
  client that reads its answers has none there. The last answer may pass the limit.

An answer to Fetch that is being made in steps is reserved from its first byte on, until the
connection has it.

Cost: nobody is asked how much is unread when an answer is made. What was made since the last look
is counted as unread, and only when that could pass the limit are all connections looked at.

Source: our own; the nearest in Kafka is `queued.max.request.bytes`, KIP-72, and the one answer that
a muted channel may have. Read next: `broker.net.connection`.
"""

from collections.abc import Callable, Iterable
from typing import Final, Protocol

FETCH_SHARE: Final = 4
"""A Fetch is answered with at most so large a part of what is left: 1/4."""

LOOK_EVERY_BYTES_MIN: Final = 1024 * 1024


class Unread(Protocol):
    """A connection, as far as this module looks at it."""

    @property
    def unread_bytes(self) -> int:
        """Bytes of answers that it holds."""

    def cut(self, reason: str) -> None:
        """Drop them and close."""


class AnswerMemory:
    """The memory of all answers that were made and not read. Loop thread only.

    Attributes:
        limit_bytes: the most there may be.
        made_bytes: answers made since the start; connections add to it.
        look_at: the value of `made_bytes` from which `check` has something to do.
        cut: connections that were closed for what they left unread.
    """

    __slots__ = ("_connections", "_leases", "_looked_bytes", "_made_then", "_reserved_bytes",
                 "cut", "limit_bytes", "look_at", "made_bytes")  # fmt: skip

    def __init__(self, limit_bytes: int, connections: Callable[[], Iterable[Unread]]) -> None:
        """Keep what `connections()` hold below `limit_bytes`."""
        self.limit_bytes = limit_bytes
        self.made_bytes = 0
        self.cut = 0
        self._connections = connections
        self._leases: dict[int, int] = {}
        self._reserved_bytes = 0
        self._looked_bytes = 0
        self._made_then = 0
        self.look_at = 0

    @property
    def unread_bytes(self) -> int:
        """What all connections hold, as it is now, and what is reserved."""
        self._look()
        return self._looked_bytes + self._reserved_bytes

    def fetch_bytes(self, wanted_bytes: int) -> int:
        """How much of `wanted_bytes` a Fetch may be answered with; one batch more may be."""
        if wanted_bytes <= self._room() // FETCH_SHARE:
            return wanted_bytes
        self._look()
        return max(0, min(wanted_bytes, self._room() // FETCH_SHARE))

    def reserve(self, size_bytes: int) -> None:
        """Count `size_bytes` more (or fewer, if negative) for answers that are being made."""
        self._reserved_bytes += size_bytes
        assert self._reserved_bytes >= 0, "an answer's memory was given back twice"

    def lease(self, answer: object, size_bytes: int) -> None:
        """What is reserved for `answer` stays so until `release`."""
        self._leases[id(answer)] = size_bytes

    def release(self, answer: object) -> None:
        """`answer` is the connection's from here on, or nobody's."""
        if self._leases:
            self.reserve(-self._leases.pop(id(answer), 0))

    def check(self, spared: Unread) -> None:
        """To be called when answers were made: cut those who read least if they are too much.

        `spared` has just been answered and could not have read it.
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

    def _room(self) -> int:
        made_since = self.made_bytes - self._made_then
        return self.limit_bytes - self._looked_bytes - made_since - self._reserved_bytes

    def _look(self) -> None:
        self._looked_bytes = sum(map(_unread, self._connections()))
        self._made_then = self.made_bytes
        self.look_at = self.made_bytes + max(
            LOOK_EVERY_BYTES_MIN, self.limit_bytes - self._looked_bytes
        )


def _unread(connection: Unread) -> int:
    return connection.unread_bytes
