"""All connections together: the limits that only make sense over the sum of them.

Owns the set of open connections, the per-address count, the request-memory budget, the memory of
unread answers (`broker.answers`), the turns (`broker.turns`) and the once-a-second sweep that finds
idle, trickling and stalled peers.  One sweep over all connections costs less than a timer per
connection, and a connection notes its activity by copying `tick`.

Invariant: `memory_bytes` is the sum of `held_bytes` over all connections.

Source: Kafka's `ConnectionQuotas`, `queued.max.request.bytes` and `connections.max.idle.ms`.
"""

import asyncio
import itertools
import logging
import resource
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from broker.answers import AnswerMemory
from broker.connection import Connection
from broker.receive import FIRST_STEP_BYTES
from broker.turns import Turns
from protocol.errors import MalformedFrame, ProtocolError

if TYPE_CHECKING:
    from config import BrokerConfig

logger = logging.getLogger("tidelog.broker.connections")

SWEEP_INTERVAL_MS = 1000
_REFUSALS_LOGGED_PER_SWEEP = 1
_STRANGERS_MAX = 1000
_CONNECTIONS_MIN = 16
_RESERVED_DESCRIPTORS = 64


class Connections:
    """The open connections of one broker and their limits.  Loop thread only."""

    def __init__(self, config: "BrokerConfig") -> None:
        """Take the limits from `config`."""
        self.max_frame_bytes = config.socket_request_max_bytes
        self._max_connections = min(config.max_connections, _descriptors_for_connections())
        self._max_per_host = config.max_connections_per_ip
        self._memory_limit_bytes = config.queued_max_request_bytes
        self._idle_ticks = max(1, config.connections_max_idle_ms // SWEEP_INTERVAL_MS)
        self._open: dict[Connection, None] = {}
        self._per_host: Counter[str] = Counter()
        self._starved: dict[Connection, None] = {}
        self._is_feeding = False
        self._ids = itertools.count(1)
        self._refusals_since_sweep = 0
        self._strangers: set[tuple[str, str]] = set()
        self._empty = asyncio.Event()
        self.turns = Turns()
        self.answers = AnswerMemory(config.queued_max_response_bytes, lambda: self._open)
        self.tick = 0
        self.memory_bytes = 0
        self.bytes_received = 0
        self.bytes_sent = 0
        self.accepted = 0
        self.refused = 0

    def __len__(self) -> int:
        """How many connections are open."""
        return len(self._open)

    def __iter__(self) -> Iterator[Connection]:
        """A snapshot of the open connections."""
        return iter(list(self._open))

    def admit(self, connection: Connection) -> str | None:
        """Count `connection` in, or say why it is refused."""
        if len(self._open) >= self._max_connections:
            refusal = f"{self._max_connections} are open, the most there may be (max.connections)"
        elif self._per_host[connection.peer_host] >= self._max_per_host:
            refusal = f"max.connections.per.ip = {self._max_per_host} are open"
        else:
            self._open[connection] = None
            self._per_host[connection.peer_host] += 1
            self.accepted += 1
            connection.id = next(self._ids)
            connection.active_tick = self.tick
            return None
        self.refused += 1
        self._refusals_since_sweep += 1
        if self._refusals_since_sweep <= _REFUSALS_LOGGED_PER_SWEEP:
            logger.info("refusing %s: %s", connection.peer, refusal)
        return refusal

    def note_foreign(self, connection: Connection, error: ProtocolError) -> None:
        """Warn of a peer that speaks another protocol, once for each address and protocol."""
        if (
            isinstance(error, MalformedFrame)
            and error.foreign
            and (stranger := (connection.peer_host, error.foreign)) not in self._strangers
            and len(self._strangers) < _STRANGERS_MAX
        ):
            self._strangers.add(stranger)
            logger.warning("%s speaks %s: %s", connection.peer, error.foreign, error)

    def leave(self, connection: Connection) -> None:
        """Count `connection` out; harmless for one that was refused."""
        if connection not in self._open:
            return
        del self._open[connection]
        self._per_host[connection.peer_host] -= 1
        if not self._per_host[connection.peer_host]:
            del self._per_host[connection.peer_host]
        self._starved.pop(connection, None)
        self.hold_memory(connection, 0)
        if not self._open:
            self._empty.set()

    async def wait_empty(self, timeout_s: float) -> bool:
        """Whether the last connection is gone within `timeout_s`."""
        self._empty.clear()
        if not self._open:
            return True
        try:
            async with asyncio.timeout(timeout_s):
                await self._empty.wait()
        except TimeoutError:
            return False
        return True

    def hold_memory(self, connection: Connection, held_bytes: int) -> None:
        """`connection` holds `held_bytes` for frames; starve it if a large one grows too much.

        A frame's first step is always granted, so small requests never wait for large ones. Frames
        that wait to be started count, but whoever holds only those reads nothing that could stop.
        """
        self.memory_bytes += held_bytes - connection.held_bytes
        connection.held_bytes = held_bytes
        assert self.memory_bytes >= 0, "request memory was returned twice"
        growing_bytes = min(held_bytes, connection.unfinished_bytes)
        if self.memory_bytes > self._memory_limit_bytes and growing_bytes > FIRST_STEP_BYTES:
            self._starved[connection] = None
            connection.starve()
        elif (
            self._starved and self.memory_bytes <= self._memory_limit_bytes and not self._is_feeding
        ):
            next_connection = next(iter(self._starved))
            del self._starved[next_connection]
            # It may start requests that have waited, and so come back here.
            self._is_feeding = True
            try:
                next_connection.feed()
            finally:
                self._is_feeding = False

    def sweep(self) -> None:
        """One second has passed."""
        self.tick += 1
        self._refusals_since_sweep = 0
        for connection in list(self._open):
            connection.sweep(self.tick, self._idle_ticks)


def _descriptors_for_connections() -> int:
    """Half of the process's file descriptors, less a reserve; the files have the other half.

    Running out of descriptors inside `accept` would make the loop spin, so the limit comes first.
    """
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(_CONNECTIONS_MIN, soft // 2 - _RESERVED_DESCRIPTORS)
