"""Accepting the clients of a listener: rates and limits first, then the TLS handshake.

The event loop's own servers accept everything and shake hands before anything of ours is asked. A
handshake costs a millisecond of CPU, so a stranger could keep the loop busy. Here a socket is
accepted, measured against the rates (`broker.quotas.accepting`), counted against the limits of
connections (`broker.net.handshakes`), and connected in a task of its own:

* over the rate of the broker or the listener nothing more is accepted for the delay;
* over the rate of its address a client is held for the delay and closed, without a handshake;
* a client that sends nothing for `SILENCE_TIMEOUT_S` is closed; it never had a handshake;
* a handshake waits for its place, of which each address has a share, and has
  `HANDSHAKE_TIMEOUT_S`;
* the context is the listener's of that moment, so a reloaded certificate is used at once.

Source: docs/security.md; Kafka's `Acceptor` and `SslTransportLayer`.
"""

import asyncio
import logging
import math
import socket
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from broker.allocator import map_tls_buffers
from broker.metrics import Metrics
from broker.net.handshakes import Handshakes
from broker.net.limits import host_of
from broker.quotas.accepting import AcceptRates
from broker.quotas.rates import MS_PER_S

if TYPE_CHECKING:
    from broker.security.audit import Audit
    from broker.security.tls.contexts import TlsContexts

logger = logging.getLogger("tidelog.broker.net.acceptor")

SILENCE_TIMEOUT_S: Final = 3.0
"""The time that a TLS client has for its first byte."""

HANDSHAKE_TIMEOUT_S: Final = 10.0
SHUTDOWN_TIMEOUT_S: Final = 1.0
HELD_MAX: Final = 256
"""Clients over the rate of their address that are held at once; further ones are closed at once."""

_ACCEPTED_PER_TURN: Final = 64
_RATE_OF_ADDRESS: Final = "connection_creation_rate of its address"

_PAUSE_AFTER_ERROR_MS: Final = 100
"""The pause after a failed accept: without file descriptors the socket stays ready."""

_ERRORS_SAID_EVERY_S: Final = 1.0
"""Failed accepts are a line in the log once in this time."""


class Acceptor:
    """Accepts the clients of one bound socket until `close`."""

    def __init__(
        self,
        bound: socket.socket,
        contexts: "TlsContexts | None",
        handshakes: Handshakes,
        make: Callable[[], asyncio.BaseProtocol],
        rates: AcceptRates | None,
        metrics: Metrics,
        audit: "Audit",
        name: str,
    ) -> None:
        """Accept from `bound`, which listens already, and serve with `make()`.

        Without `contexts` there is no TLS, without `rates` no limit of new connections. Handshakes
        take places of `handshakes` and are counted in `metrics` for the listener `name`. Failed
        handshakes and refused clients go to `audit`.
        """
        self._socket = bound
        self._contexts = contexts
        self._handshakes = handshakes
        self._make = make
        self._rates = rates
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._held = 0
        self._waiting: socket.socket | None = None
        self._pause: asyncio.TimerHandle | None = None
        self._error_said_s = -math.inf
        self._metrics = metrics
        self._audit = audit
        self._name = name
        bound.setblocking(False)
        self._loop.add_reader(bound.fileno(), self._accept)

    def close(self) -> None:
        """Accept no more; handshakes that have begun are given up."""
        self._loop.remove_reader(self._socket.fileno())
        if self._pause is not None:
            self._pause.cancel()
        if self._waiting is not None:
            self._waiting.close()
        for task in self._tasks:
            task.cancel()

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_PER_TURN):
            try:
                client, address = self._socket.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self._say(error)
                self._pause_accepting(_PAUSE_AFTER_ERROR_MS)
                return
            client.setblocking(False)
            host = host_of(address)
            if self._rates and (delay_ms := self._rates.delay_ms(self._name)):
                self._waiting = client
                self._pause_accepting(delay_ms, partial(self._serve, client, host))
                return
            self._serve(client, host)

    def _say(self, error: OSError) -> None:
        """Log a failed accept, unless one was logged a moment ago."""
        now_s = self._loop.time()
        if now_s - self._error_said_s >= _ERRORS_SAID_EVERY_S:
            self._error_said_s = now_s
            logger.warning("a connection could not be accepted: %s", error)

    def _pause_accepting(self, delay_ms: int, then: Callable[[], None] = lambda: None) -> None:
        """Accept nothing for this time; then call `then` and continue."""
        self._loop.remove_reader(self._socket.fileno())

        def resume() -> None:
            self._pause = self._waiting = None
            self._loop.add_reader(self._socket.fileno(), self._accept)
            then()

        self._pause = self._loop.call_later(delay_ms / MS_PER_S, resume)

    def _serve(self, client: socket.socket, host: str) -> None:
        if self._rates and (hold_ms := self._rates.address_delay_ms(self._name, host)):
            self._audit.connection_refused(host, self._name, _RATE_OF_ADDRESS)
            if self._held >= HELD_MAX:
                client.close()
                return
            self._held += 1
            self._start(self._hold(client, hold_ms), self._released)
        elif self._contexts is None:
            self._start(self._connect(client))
        elif self._handshakes.begin(host, self._name):
            ended = partial(self._handshakes.end, host)
            self._start(self._shake_hands(client, host, self._contexts), ended)
        else:
            client.close()

    def _start(
        self, work: Coroutine[Any, Any, None], ended: Callable[[], None] = lambda: None
    ) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)

        def done(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            ended()

        task.add_done_callback(done)

    def _released(self) -> None:
        self._held -= 1

    async def _hold(self, client: socket.socket, hold_ms: int) -> None:
        try:
            await asyncio.sleep(hold_ms / MS_PER_S)
        finally:
            client.close()

    async def _connect(self, client: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._make, client)
        except OSError:  # it has gone already
            client.close()

    async def _shake_hands(self, client: socket.socket, host: str, contexts: "TlsContexts") -> None:
        try:
            await self._first_byte(client)
            began_ns = time.perf_counter_ns()
            async with self._handshakes.turn(host):
                transport, _ = await self._loop.connect_accepted_socket(
                    self._make_over_tls,
                    client,
                    ssl=contexts.current,
                    ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S,
                    ssl_shutdown_timeout=SHUTDOWN_TIMEOUT_S,
                )
        except (OSError, EOFError) as error:
            self._metrics.handshakes[self._name, "failed"] += 1
            client.close()
            self._audit.handshake_failed(host, self._name, error)
        except asyncio.CancelledError:
            client.close()
            raise
        else:
            self._metrics.observe_handshake(self._name, time.perf_counter_ns() - began_ns)
            tls = transport.get_extra_info("ssl_object")
            if tls is not None and (cipher := tls.cipher()) is not None:
                self._metrics.tls[self._name, tls.version(), cipher[0]] += 1

    def _make_over_tls(self) -> asyncio.BaseProtocol:
        """What serves a connection; the loop allocates its TLS buffer right after this call."""
        map_tls_buffers(begin=True)
        self._loop.call_soon(partial(map_tls_buffers, begin=False))
        return self._make()

    async def _first_byte(self, client: socket.socket) -> None:
        """Wait until the client has sent something, or has closed its end.

        Raises:
            TimeoutError: it has not.
        """
        arrived = self._loop.create_future()

        def readable() -> None:
            if not arrived.done():
                arrived.set_result(None)

        self._loop.add_reader(client.fileno(), readable)
        try:
            async with asyncio.timeout(SILENCE_TIMEOUT_S):
                await arrived
        except TimeoutError:
            raise TimeoutError(f"it sent nothing for {SILENCE_TIMEOUT_S:g} s") from None
        finally:
            self._loop.remove_reader(client.fileno())
