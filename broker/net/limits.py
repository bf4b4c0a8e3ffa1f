"""The limits of connections: those of the settings, those that are none, and that of the system.

Ticks are seconds, counted by the once-a-second sweep of `broker.net.connection`.
"""

import logging
import resource
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

from config.listeners import parse_limits
from config.security.keys import CONNECTIONS, scoped_name

if TYPE_CHECKING:
    from config import BrokerConfig
    from protocol.errors import MalformedFrame

logger = logging.getLogger("tidelog.broker.net.limits")

PIPELINE_MAX = 1024
"""Requests of one connection that may wait for their group commit; librdkafka queues a million."""

HANDSHAKES_AT_ONCE = 64
HANDSHAKES_WAITING_MAX = 640
"""TLS handshakes that have begun or wait for their turn; a further client is refused."""

WRITE_BUFFER_HIGH_BYTES = 1024 * 1024
"""Unsent answers above which no further request starts; one large fetch may pass it.

Answers in the transport and answers that wait for earlier ones are counted separately.
"""

WRITE_AT_ONCE_BYTES = 64 * 1024
"""Answers of at least this size are written without waiting for others."""

PROGRESS_WINDOW_TICKS = 10
PROGRESS_MIN_BYTES = 1024
"""A started frame must grow by this much in each window, or the peer is a slow loris."""

AUTHENTICATION_TICKS = 10
"""Seconds a client has to authenticate."""

LINGER_MS = 100
"""From the answer to a failed authentication to the end of the connection.

kafka-python 3 drops an answer that it reads together with the end.
"""

STALL_TICKS = 60
"""Seconds a peer may leave its answers unread before the connection is cut."""

CLOSING_TICKS = 10
"""Seconds a peer may take to read the last answers of a connection that is being closed."""

SWEEP_INTERVAL_MS = 1000
STRANGERS_MAX = 1000
CONNECTIONS_MIN = 16
RESERVED_DESCRIPTORS = 64


def bound_of(setting: int) -> int:
    """A bound in bytes, from a setting in which -1 is none."""
    return sys.maxsize if setting < 0 else setting


def descriptors_for_connections() -> int:
    """Half of the process's file descriptors, less a reserve; files get the other half.

    Running out of descriptors inside `accept` would make the loop spin, so the limit comes first.
    """
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(CONNECTIONS_MIN, soft // 2 - RESERVED_DESCRIPTORS)


class Room:
    """How many connections there may be, by the settings in force; some change at run time."""

    def __init__(self, config: "Callable[[], BrokerConfig]") -> None:
        """Ask `config` for the settings each time."""
        self.config = config
        self._descriptors = descriptors_for_connections()

    def why_none(
        self, host: str, listener: str, *, total: int, of_listener: int, of_host: int
    ) -> str | None:
        """Why there is no room for a client of `host` besides so many others, None if there is."""
        config = self.config()
        most = min(config.max_connections, self._descriptors)
        if total >= most:
            return f"{most} are open, the most there may be (max.connections)"
        name = scoped_name(listener, CONNECTIONS)
        text = config.text_of(name)
        if text is not None and of_listener >= int(text):
            return f"{name} = {int(text)} are open"
        of_one = config.max_connections_per_ip
        if config.max_connections_per_ip_overrides:
            of_one = _limits(config.max_connections_per_ip_overrides).get(host, of_one)
        if of_host >= of_one:
            return f"max.connections.per.ip = {of_one} are open"
        return None


@lru_cache(maxsize=4)
def _limits(items: tuple[str, ...]) -> dict[str, int]:
    return parse_limits(items)


def host_of(peer: tuple[object, ...] | None) -> str:
    """The address of a peer, without its port; IPv4 as such, also on a socket of IPv6."""
    return str(peer[0]).removeprefix("::ffff:") if peer else "unknown"


class Strangers:
    """The peers that speak another protocol; the first `STRANGERS_MAX` are remembered."""

    def __init__(self) -> None:
        self._seen: set[tuple[str, str]] = set()

    def note(self, host: str, peer: str, error: "MalformedFrame") -> None:
        """Warn of one, once for each address and protocol."""
        stranger = host, error.foreign
        if error.foreign and stranger not in self._seen and len(self._seen) < STRANGERS_MAX:
            self._seen.add(stranger)
            logger.warning("%s speaks %s: %s", peer, error.foreign, error)
