# cython: language_level=3
# mypy: disable-error-code="untyped-decorator,valid-type,no-any-return"
"""Client connections: frames in, ordered answers out, and every reason to close one.

Owns the transport of one client, the requests in progress on it and the back-pressure between the
two. It does not interpret requests: bytes of a frame go to `broker.net.dispatch` and bytes of an
answer come back, now or later.

Order. Answers leave in the order of their requests; most clients drop a connection that breaks
this. An immediate answer is written at once. A request that waits takes a *slot*, and each later
answer waits in its own slot until the head is ready.

Pipelining. A Produce that waits for its group commit lets the next request start, so that one
connection can fill a commit. Any other waiting request (a long poll, a join) blocks the connection,
as in Kafka. Frames that arrive meanwhile stay in the backlog, at most one read's worth.

Back-pressure. Reading stops while the backlog holds frames, `PIPELINE_MAX` requests wait, the peer
does not read its answers, or the process holds too much request memory. The frames of the backlog
and those served in steps count as request memory. No request starts while the waiting answers
together are large. `broker.requests.answers` bounds the unread answers of all connections. A
connection that a quota has muted starts no request (`broker.quotas.throttle`).

Turns. The first request of a read starts at once, more of them for a slice. Then the connection
waits for its turn (`broker.replies.turns`).

Invariants: the answer to request n is handed to the transport before any byte of that to n+1;
nothing is written after `close`.

`Connections` holds what they share: the per-address count, the request-memory budget, the memory of
unread answers, the turns and the once-a-second sweep that finds idle, trickling and stalled peers.
One sweep costs less than a timer per connection, and a connection notes its activity by copying
`tick`. Invariant: its `memory_bytes` is the sum of `held_bytes` over all connections.
Like `protocol.records.record_loops` it runs compiled and plain.

Source: Kafka's `SocketServer.Processor`, which mutes a channel with a request in flight.
Read next: `broker.replies.turns`, `broker.net.dispatch`.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from broker.errors import ConnectionMustClose
from broker.net import limits
from broker.net.dispatch import Answered
from broker.net.handshakes import Handshakes
from broker.net.limits import PIPELINE_MAX, WRITE_AT_ONCE_BYTES, WRITE_BUFFER_HIGH_BYTES
from broker.net.receive import FIRST_STEP_BYTES, FrameReceiver, recycle
from broker.replies.turns import Turns
from broker.requests.answers import AnswerMemory
from broker.security.session import Session
from broker.security.tls.distinguished_name import MalformedName
from broker.security.tls.principal_mapping import NoRuleMatches
from protocol.errors import MalformedFrame, ProtocolError

try:
    import cython
except ImportError:  # A wheel built without a compiler, on a machine without Cython.
    from protocol.records import cython_shim as cython

if TYPE_CHECKING:
    from broker.net.dispatch import Dispatcher, Exchange
    from broker.net.durable_answer import DurableAnswer
    from broker.net.waiting_fetch import WaitingFetch
    from broker.security.service import ListenerGuard
    from broker.threads import Pool
    from config import BrokerConfig
    from protocol.declare.primitives import Buffer

COMPILED: bool = bool(cython.compiled)
"""Whether this module was compiled to machine code."""

logger = logging.getLogger("tidelog.broker.net.connection")


def _nothing() -> None:
    """The loss of a connection concerns nothing else."""


class Connection:
    """The protocol object of one accepted socket; lives until `connection_lost`."""

    is_from_worker = False
    """Whether another worker forwards this client, and has counted it against the limits."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        connections: Connections,
        guard: ListenerGuard | None = None,
    ) -> None:
        """Join `connections` once connected; serve requests with `dispatcher`.

        A `guard` makes the session of the client; without one it is anonymous.
        """
        self._dispatcher = dispatcher
        self._dispatch = dispatcher.dispatch
        self._guard = guard
        self.session = Session(listener=dispatcher.context.endpoint.listener)
        self.on_lost: Callable[[], object] = _nothing
        self._connections = connections
        self._receiver = FrameReceiver(connections.max_frame_bytes)
        self._transport: asyncio.Transport | None = None
        self._slots: deque[Exchange | Answered | DurableAnswer | WaitingFetch] = deque()
        self._waiting_bytes = 0
        self._backlog: deque[bytearray | memoryview] = deque()
        self._backlog_bytes = 0
        self._blocked_by: Exchange | WaitingFetch | None = None
        self._starting = False
        self._waits_for_turn = False
        self._serving_bytes = 0
        self.muted_until_ms = 0
        self._write_paused = False
        self._read_paused = False
        self._out: list[Any] = []
        self._close_reason: str | None = None
        self._finish_reason: str | None = None
        self._linger_ms = 0
        self._answers = connections.answers
        self.held_bytes = 0
        self.id = 0
        self.peer_host = ""
        self.peer = ""
        # State of the once-a-second sweep; ticks are seconds of its own count.
        self.active_tick = 0
        self._bytes_received = 0
        self._window_tick = -1
        self._window_bytes = 0
        self._stalled_tick = -1
        self._stalled_bytes = 0
        self._starved_tick = -1
        self._authenticate_by_tick = -1

    # --- called by the transport ----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Join the connections, or refuse the peer when a limit is reached."""
        self._transport = transport = cast(asyncio.Transport, transport)  # uvloop has its own
        peer = transport.get_extra_info("peername")
        self.peer_host = self.session.peer_host = limits.host_of(peer)
        self.peer = f"{peer[0]}:{peer[1]}" if peer else "unknown"
        transport.set_write_buffer_limits(high=WRITE_BUFFER_HIGH_BYTES)
        refusal = self._connections.admit(self)
        if refusal is None and self._guard is not None:
            refusal = self._open_session(self._guard, transport)
        if refusal is not None:
            self._close_reason = refusal
            transport.abort()
            return
        self.session.channel = self
        self.session.peer_port = peer[1] if peer else 0

    def _open_session(self, guard: ListenerGuard, transport: asyncio.Transport) -> str | None:
        """Begin the session, with SASL behind a gate; or return why a certificate is refused."""
        ssl_object = transport.get_extra_info("ssl_object")
        try:
            self.session = session = guard.session_over(ssl_object, self.peer_host, self.id)
        except (MalformedName, NoRuleMatches) as error:
            return str(error)
        if session.sasl is None:
            return None
        from broker.net.sasl_gate import SaslGate  # only for listeners that ask for it

        self._dispatch = SaslGate(self._dispatcher, session).dispatch
        self._receiver.max_frame_bytes = self._connections.max_unauthenticated_frame_bytes
        self._authenticate_by_tick = self._connections.tick + limits.AUTHENTICATION_TICKS
        session.on_authenticated = self._authenticated
        session.on_failed = partial(self.finish, linger_ms=limits.LINGER_MS)
        return None

    def _authenticated(self) -> None:
        """SASL has ended well: serve every request, and later ones without the gate if possible."""
        self._authenticate_by_tick = -1
        self._receiver.max_frame_bytes = self._connections.max_frame_bytes
        assert self.session.sasl is not None
        if not self.session.sasl.has_lifetime:
            self._dispatch = self._dispatcher.dispatch

    def get_buffer(self, sizehint: int) -> memoryview:
        """The buffer for the next bytes of the transport."""
        return self._receiver.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Serve the frames that the `nbytes` new bytes complete."""
        connections = self._connections
        self.active_tick = connections.tick
        self._bytes_received += nbytes
        connections.bytes_received += nbytes
        if self._close_reason is not None:
            return
        try:
            frames = self._cut(nbytes)
        except ProtocolError as error:
            self._refuse(error)
            return
        if frames:
            self._add_to_backlog(frames)
            self._start_requests()
        elif self._receiver.held_bytes or self.held_bytes:
            self._count_memory()

    def _cut(self, nbytes: cython.Py_ssize_t) -> list[bytearray | memoryview]:
        return self._receiver.received(nbytes)

    def _refill(self) -> bool:
        """Cut the next frames of a read that held many; whether there are some."""
        try:
            frames = self._receiver.cut_rest()
        except ProtocolError as error:
            self._refuse(error)
            return False
        self._add_to_backlog(frames)
        return bool(frames)

    def _add_to_backlog(self, frames: list[bytearray | memoryview]) -> None:
        for frame in frames:
            self._backlog.append(frame)
            self._backlog_bytes += len(frame)

    def _refuse(self, error: ProtocolError) -> None:
        if isinstance(error, MalformedFrame):
            self._connections.strangers.note(self.peer_host, self.peer, error)
        self.finish(str(error))

    def eof_received(self) -> None:
        """The peer has sent its last byte: close, as no answer is of use to it."""

    def pause_writing(self) -> None:
        """The peer reads more slowly than it sends requests: stop reading."""
        self._write_paused = True
        self._stalled_tick = self._connections.tick
        self._pause_reading()

    def resume_writing(self) -> None:
        """The peer has caught up: start requests again."""
        self._write_paused = False
        self._stalled_tick = -1
        self._start_requests()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Abandon the waiting requests and leave the connections."""
        if self._close_reason is None:
            logger.debug("%s disconnected (%s)", self.peer, exc or "end of stream")
            self._close_reason = "disconnected"
        self._transport = None
        self.session.channel = None
        self.on_lost()
        self.session.on_closed()
        self._drop_backlog()
        slots, self._slots = self._slots, deque()
        for exchange in slots:
            exchange.abandon()
        self._connections.leave(self)

    # --- requests -------------------------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        """Whether a request is being answered."""
        return bool(self._slots or self.muted_until_ms) or self._has_more()

    def _has_more(self) -> bool:
        """Whether there are requests to start."""
        return bool(self._backlog) or bool(self._receiver.rest)

    def _may_start(self) -> bool:
        if self._write_paused or self.muted_until_ms or self._close_reason is not None:
            return False
        # Without slots nothing blocks and nothing waits.
        return not self._slots or (
            self._blocked_by is None
            and len(self._slots) < PIPELINE_MAX
            and self._waiting_bytes <= WRITE_BUFFER_HIGH_BYTES
        )

    def take_turn(self) -> None:
        """Continue with the requests that had to wait for others."""
        self._waits_for_turn = False
        self._start_requests()

    def unmute(self) -> None:
        """Start requests again: the delay that a quota imposed is over."""
        self.muted_until_ms = 0
        self.active_tick = self._connections.tick
        self._start_requests()

    def _start_requests(self) -> None:
        """Start the next requests, write the ready answers, then decide whether to read more."""
        if self._starting:
            return
        self._starting = True
        backlog, receiver = self._backlog, self._receiver
        try:
            if (
                (backlog or (receiver.rest and self._refill()))
                and not self._waits_for_turn
                and self._may_start()
            ):
                self._start_next()
                if backlog or receiver.rest:
                    self._start_more()
        finally:
            self._starting = False
        self._write_out()
        if self._answers.made_bytes >= self._answers.look_at:
            self._answers.check(self)
        # While a request blocks, reading continues until the next frame is here, so that a peer
        # that has gone is noticed and its waiting request dropped.
        if backlog or receiver.rest or self._write_paused or len(self._slots) >= PIPELINE_MAX:
            self._pause_reading()
        elif self._read_paused:
            self._resume_reading()
        elif not (receiver.held_bytes or self._serving_bytes or self.held_bytes):
            return  # nearly always
        self._count_memory()

    def _start_next(self) -> None:
        frame = self._backlog.popleft()
        self._backlog_bytes -= len(frame)
        try:
            outcome = self._dispatch(frame, self)
        except (ProtocolError, ConnectionMustClose) as error:
            self.finish(str(error))
        else:
            if not isinstance(outcome, list):
                if outcome is not None:
                    self._wait_for(outcome, frame)
            else:
                self._answered(outcome)
        if type(frame) is memoryview:
            recycle(frame)

    def _answered(self, parts: list[Buffer]) -> None:
        """Send an answer, or let it wait for those before it."""
        if self._slots:
            self._slots.append(Answered(parts))
            size_bytes = sum(map(len, parts))
            self._waiting_bytes += size_bytes
        else:
            size_bytes = self._queue(parts)
        self._answers.made_bytes += size_bytes

    def _start_more(self) -> None:
        """Start requests for a slice; if some are left after it, wait for a turn."""
        backlog = self._backlog
        end_ns = self._connections.turns.slice_end_ns()
        while (backlog or self._refill()) and self._may_start():
            if time.perf_counter_ns() >= end_ns:
                self._wait_for_turn()
                return
            self._start_next()

    def _wait_for_turn(self) -> None:
        self._waits_for_turn = True
        self._connections.turns.wait(self)

    def _wait_for(self, exchange: Exchange, frame: bytearray | memoryview) -> None:
        self._slots.append(exchange)
        exchange.when_done(self._exchange_done)
        if not exchange.may_be_overtaken and exchange.parts is None:
            self._blocked_by = exchange
            self._serving_bytes = len(frame) if exchange.needs_frame else 0

    def _exchange_done(self, exchange: Exchange | DurableAnswer | WaitingFetch) -> None:
        """An answer has arrived, or may be overtaken from now on.

        Write every answer at the head, then start the blocked requests.
        """
        slots = self._slots
        if exchange.close_reason is not None:
            while (last := slots.pop()) is not exchange:
                last.abandon()
            self.finish(exchange.close_reason)
            return
        if exchange.parts is not None:
            size_bytes = sum(map(len, exchange.parts))
            self._waiting_bytes += size_bytes
            self._answers.made_bytes += size_bytes
        while slots and (parts := slots[0].parts) is not None:
            slots.popleft()
            self._waiting_bytes -= self._queue(parts)
        if exchange is self._blocked_by:
            self._blocked_by = None
            self._serving_bytes = 0
            if exchange.parts is None:
                self._go_on_later()
                return
        if self._finish_reason is not None and not slots:
            self.close(self._finish_reason)
            return
        self.active_tick = self._connections.tick
        if not self._starting:
            self._go_on()

    def _go_on(self) -> None:
        if self._backlog or self._read_paused or self.held_bytes:
            self._start_requests()
            return
        self._write_out()
        if self._answers.made_bytes >= self._answers.look_at:
            self._answers.check(self)

    def _go_on_later(self) -> None:
        """Unblock, but wait for a turn: the caller is serving other connections."""
        self._count_memory()
        if self._has_more() and not self._waits_for_turn:
            self._wait_for_turn()

    def _queue(self, parts: list[Buffer]) -> int:
        """Add an answer to the next write, return its size; a large one is written at once.

        So a peer that does not read is noticed before the next request starts.
        """
        size_bytes = sum(map(len, parts))
        self._connections.bytes_sent += size_bytes
        self._out += parts
        if size_bytes >= WRITE_AT_ONCE_BYTES:
            self._write_out()
        return size_bytes

    def _write_out(self) -> None:
        out = self._out
        if out and self._transport is not None and self._close_reason is None:
            self._out = []
            self._transport.writelines(out)

    # --- back-pressure and closing --------------------------------------------------------------

    @property
    def unread_bytes(self) -> int:
        """The memory of the answers that the peer has not read."""
        if self._transport is None:
            return 0
        return self._waiting_bytes + self._transport.get_write_buffer_size()

    @property
    def unfinished_bytes(self) -> int:
        """The memory of the frame being received, which may still grow."""
        return self._receiver.held_bytes

    def _count_memory(self) -> None:
        """Count the memory of frames that are being received, waiting or being served."""
        receiver = self._receiver
        held_bytes = receiver.held_bytes + self._backlog_bytes + self._serving_bytes
        if receiver.rest:
            held_bytes += len(receiver.rest)
        # A connection that has left holds nothing.
        if held_bytes != self.held_bytes and self._transport is not None:
            self._connections.hold_memory(self, held_bytes)

    def _drop_backlog(self) -> None:
        self._backlog.clear()
        self._receiver.rest = b""
        self._backlog_bytes = 0
        self._serving_bytes = 0
        self._count_memory()

    def _pause_reading(self) -> None:
        if not self._read_paused and self._transport is not None:
            self._read_paused = True
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._starved_tick >= 0 or self._finish_reason is not None:
            return
        self._read_paused = False
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def starve(self) -> None:
        """Stop reading: the process holds too much request memory."""
        if self._starved_tick < 0:
            self._starved_tick = self._connections.tick
            self._pause_reading()

    def feed(self) -> None:
        """Resume reading: there is request memory again."""
        self._starved_tick = -1
        self._start_requests()

    def close(self, reason: str) -> None:
        """Answer no further request, send the written bytes, and log the reason."""
        if self._close_reason is not None:
            return
        self._write_out()
        self._close_reason = reason
        self.active_tick = self._connections.tick
        logger.info("closing %s: %s", self.peer, reason)
        transport = self._transport
        if transport is not None and self._linger_ms:
            self._dispatcher.context.clock.call_later(self._linger_ms, transport.close)
        elif transport is not None:
            transport.close()
        self._drop_backlog()

    def finish(self, reason: str, linger_ms: int = 0) -> None:
        """Start no further request; close `linger_ms` after the current ones are answered."""
        self._linger_ms = max(self._linger_ms, linger_ms)
        self._finish_reason = reason
        self._drop_backlog()
        self._pause_reading()
        if not self._slots:
            self.close(reason)

    def cut(self, reason: str) -> None:
        """Like `close`, but drop the bytes that the peer has not read."""
        self.close(reason)
        if self._transport is not None:
            self._transport.abort()

    def sweep(self, tick: int, idle_ticks: int) -> None:
        """Once a second: close the connection if it idles, trickles, stalls or starves."""
        if self._close_reason is not None:
            if tick - self.active_tick >= limits.CLOSING_TICKS and self._transport is not None:
                self._transport.abort()
            return
        if 0 <= self._authenticate_by_tick <= tick and not self._slots:
            self.cut(f"it did not authenticate in {limits.AUTHENTICATION_TICKS} s")
        elif self._starved_tick >= 0:
            if tick - self._starved_tick >= limits.PROGRESS_WINDOW_TICKS:
                self.cut("request memory is exhausted (queued.max.request.bytes)")
        elif self._write_paused:
            self._sweep_stalled(tick)
        elif self._receiver.is_mid_frame and not (self._read_paused or self.muted_until_ms):
            self._sweep_trickle(tick)
        else:
            self._window_tick = -1
            if not self.is_busy and tick - self.active_tick >= idle_ticks:
                self.close("idle for connections.max.idle.ms")

    def _sweep_trickle(self, tick: int) -> None:
        if self._window_tick < 0:
            self._window_tick, self._window_bytes = tick, self._bytes_received
        elif tick - self._window_tick >= limits.PROGRESS_WINDOW_TICKS:
            if self._bytes_received - self._window_bytes < limits.PROGRESS_MIN_BYTES:
                self.cut(
                    f"a started request grew by less than {limits.PROGRESS_MIN_BYTES} bytes "
                    f"in {limits.PROGRESS_WINDOW_TICKS} s"
                )
            self._window_tick, self._window_bytes = tick, self._bytes_received

    def _sweep_stalled(self, tick: int) -> None:
        assert self._transport is not None
        unsent_bytes = self._transport.get_write_buffer_size()
        if unsent_bytes < self._stalled_bytes or self._stalled_bytes == 0:
            self._stalled_tick = tick
        self._stalled_bytes = unsent_bytes
        if tick - self._stalled_tick >= limits.STALL_TICKS:
            self.cut(f"answers were left unread for {limits.STALL_TICKS} s")


class Connections:
    """The open connections of one broker and their limits. Loop thread only."""

    def __init__(self, config: BrokerConfig, side: Pool) -> None:
        """Take the limits from `config`; `side` has the side thread."""
        self.max_frame_bytes = config.socket_request_max_bytes
        self.max_unauthenticated_frame_bytes = min(
            config.sasl_server_max_receive_size, self.max_frame_bytes
        )
        self.room = limits.Room(lambda: config)
        self._memory_limit_bytes = limits.bound_of(config.queued_max_request_bytes)
        self._idle_ticks = max(1, config.connections_max_idle_ms // limits.SWEEP_INTERVAL_MS)
        self._open: dict[Connection, None] = {}
        self._per_host: Counter[str] = Counter()
        self.per_listener: Counter[str] = Counter()
        self._starved: dict[Connection, None] = {}
        self._is_feeding = False
        self._ids = itertools.count(1)
        self.on_refused: Callable[[str, str, str], object] = lambda host, listener, limit: None
        self.strangers = limits.Strangers()
        self._empty = asyncio.Event()
        self.handshakes = Handshakes(
            self._has_room,
            at_once=limits.HANDSHAKES_AT_ONCE,
            waiting_max=limits.HANDSHAKES_WAITING_MAX,
        )
        """The clients of all listeners with TLS that are not connections yet."""
        self.turns = Turns(side)
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

    def _has_room(self, host: str, listener: str, shaking: int, shaking_of_host: int) -> bool:
        """Whether a client of `host` may begin a handshake; those that stall take places too."""
        reason = self._why_full(host, listener, shaking, shaking_of_host)
        if reason is not None:
            self._refuse(host, listener, reason)
        return reason is None

    def _why_full(
        self, host: str, listener: str, shaking: int = 0, shaking_of_host: int = 0
    ) -> str | None:
        return self.room.why_none(
            host,
            listener,
            total=len(self._open) + shaking,
            of_listener=self.per_listener[listener],
            of_host=self._per_host[host] + shaking_of_host,
        )

    def admit(self, connection: Connection) -> str | None:
        """Count `connection` in, or return why it is refused."""
        refusal = None
        if not connection.is_from_worker:
            refusal = self._why_full(connection.peer_host, connection.session.listener)
        if refusal is None:
            self._open[connection] = None
            if not connection.is_from_worker:
                self._per_host[connection.peer_host] += 1
                self.per_listener[connection.session.listener] += 1
            self.accepted += 1
            connection.id = next(self._ids)
            connection.active_tick = self.tick
        else:
            self._refuse(connection.peer_host, connection.session.listener, refusal)
        return refusal

    def _refuse(self, host: str, listener: str, limit: str) -> None:
        self.refused += 1
        self.on_refused(host, listener, limit)

    def leave(self, connection: Connection) -> None:
        """Count `connection` out; harmless for one that was refused."""
        if connection not in self._open:
            return
        del self._open[connection]
        if not connection.is_from_worker:
            self.per_listener[connection.session.listener] -= 1
            self._per_host[connection.peer_host] -= 1
            if not self._per_host[connection.peer_host]:
                del self._per_host[connection.peer_host]
        self._starved.pop(connection, None)
        self.hold_memory(connection, 0)
        if not self._open:
            self._empty.set()

    async def wait_empty(self, timeout_s: float) -> bool:
        """Wait for the last connection to close; False if some are left after `timeout_s`."""
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
        that wait to be started count. A connection that holds only those has no reading to stop.
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
            # It may start waiting requests, and so call this again.
            self._is_feeding = True
            try:
                next_connection.feed()
            finally:
                self._is_feeding = False

    def sweep(self) -> None:
        """Run once a second."""
        self.tick += 1
        for connection in list(self._open):
            connection.sweep(self.tick, self._idle_ticks)
