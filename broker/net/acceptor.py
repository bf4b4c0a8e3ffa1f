"""Accepting the clients of a TLS listener: limits first, then the handshake.

The event loop's own TLS servers shake hands before anything of ours is asked. A handshake costs a
millisecond of CPU, so a stranger could keep the loop busy. Here a socket is accepted, counted
against the limits of connections, and shaken hands with in a task of its own:

* at most `HANDSHAKES_AT_ONCE` shake hands, others wait, and `Connections` bounds them all;
* a handshake has `HANDSHAKE_TIMEOUT_S`;
* the context is the listener's of that moment, so a reloaded certificate is used at once.

Source: docs/security.md; Kafka's `Acceptor` and `SslTransportLayer`.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from functools import partial
from typing import Final

from broker.metrics import Metrics
from broker.net.connection import Connections
from broker.security.tls import TlsContexts

logger = logging.getLogger("tidelog.broker.net.acceptor")

HANDSHAKES_AT_ONCE: Final = 64
HANDSHAKE_TIMEOUT_S: Final = 10.0
SHUTDOWN_TIMEOUT_S: Final = 1.0
_ACCEPTED_PER_TURN: Final = 64
_FAILURES_LOGGED_PER_SWEEP: Final = 1


class TlsAcceptor:
    """Accepts the clients of one bound socket until `close`."""

    def __init__(
        self,
        bound: socket.socket,
        contexts: TlsContexts,
        connections: Connections,
        make: Callable[[], asyncio.BaseProtocol],
        metrics: Metrics,
        name: str,
    ) -> None:
        """Accept from `bound`, which listens already, and serve with `make()`.

        Handshakes are counted in `metrics` for the listener `name`.
        """
        self._socket = bound
        self._contexts = contexts
        self._connections = connections
        self._make = make
        self._loop = asyncio.get_running_loop()
        self._free = asyncio.Semaphore(HANDSHAKES_AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()
        self._last_logged_tick = -1
        self._metrics = metrics
        self._name = name
        bound.setblocking(False)
        self._loop.add_reader(bound.fileno(), self._accept)

    def close(self) -> None:
        """Accept no more; handshakes that have begun are given up."""
        self._loop.remove_reader(self._socket.fileno())
        for task in self._tasks:
            task.cancel()

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_PER_TURN):
            try:
                client, address = self._socket.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                logger.warning("a connection could not be accepted: %s", error)
                return
            host = str(address[0])
            if not self._connections.begin_handshake(host):
                client.close()
                continue
            task = self._loop.create_task(self._shake_hands(client, host))
            self._tasks.add(task)
            task.add_done_callback(partial(self._ended, host))

    def _ended(self, host: str, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._connections.end_handshake(host)

    async def _shake_hands(self, client: socket.socket, host: str) -> None:
        client.setblocking(False)
        try:
            async with self._free:
                await self._loop.connect_accepted_socket(
                    self._make,
                    client,
                    ssl=self._contexts.current,
                    ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S,
                    ssl_shutdown_timeout=SHUTDOWN_TIMEOUT_S,
                )
        except (OSError, EOFError) as error:
            self._metrics.handshakes[self._name, "failed"] += 1
            client.close()
            if self._last_logged_tick != self._connections.tick:
                self._last_logged_tick = self._connections.tick
                logger.info("TLS handshake with %s failed: %s", host, error or "end of stream")
        except asyncio.CancelledError:
            client.close()
            raise
        else:
            self._metrics.handshakes[self._name, "ok"] += 1
