"""The blocking side of `client.core`: sockets of one thread, and `run` for the core's coroutines.

Owns plain sockets, for programs that are threads without an event loop, such as Spark's tasks. A
coroutine of the core waits for connections and time only; here both block, so it never suspends,
and `run` gets its result in one step. Refuses to know asyncio: importing it costs executors time.
May be imported by `pipeline`, which has its own words for requests, and by `tidelog` for the
blocking share consumer.
"""

from __future__ import annotations

import socket
import struct
import time
from collections import deque
from collections.abc import Coroutine, Generator
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from client.core.cluster import Cluster, Role
from client.core.connection import MAX_FRAME_BYTES, Connection, Question
from client.core.options import ClusterOptions
from client.core.tls import tls_context
from client.errors import BrokerUnreachable
from protocol.api_keys import ApiKey
from protocol.errors import MalformedFrame, ProtocolError
from protocol.frames import encode_frame

_T = TypeVar("_T")

_SIZE: Final = struct.Struct(">i")
_RECEIVE_BUFFER_BYTES: Final = 4 << 20


def run(work: Coroutine[Any, Any, _T]) -> _T:
    """The result of a coroutine of `client.core` whose connections and clock block."""
    try:
        work.send(None)
    except StopIteration as done:
        result: _T = done.value
        return result
    work.close()
    raise AssertionError(f"{work} waits for an event loop: it is no coroutine of client.core")


@dataclass(slots=True, eq=False)
class Answer:
    """The answer to a request that was sent; read when it is wanted, by `result` or `await`."""

    _connection: BlockingConnection
    question: Question
    _timeout_ms: int
    outcome: Any = None

    def result(self) -> Any:
        """Read until the answer is here; raises as `Connection.call`."""
        if self.outcome is None:
            self._connection.read_until(self, self._timeout_ms)
        if isinstance(self.outcome, BrokerUnreachable):
            raise self.outcome
        return self.outcome

    def __await__(self) -> Generator[Any, None, Any]:
        """As `result`; it blocks and never suspends."""
        yield from ()
        return self.result()


class BlockingConnection(Connection):
    """A negotiated connection over a plain socket. Belongs to one thread.

    A request may be sent before the answer to the last one is read, which is how a reader overlaps
    the network with decoding. An answer that no caller wants any more is skipped.
    """

    def __init__(self, host: str, port: int, options: ClusterOptions, tls: Any) -> None:
        """Connect; `tls` is an `ssl` context or None. `greet` makes it usable.

        Raises:
            BrokerUnreachable: no broker listens there, or TLS failed.
        """
        super().__init__(host, port, options)
        self._waiting: deque[Answer] = deque()
        try:
            raw = socket.create_connection((host, port), timeout=options.connect_timeout_ms / 1000)
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
            self._socket = raw if tls is None else tls.wrap_socket(raw, server_hostname=host)
        except socket.gaierror as error:
            is_unknown = error.errno == socket.EAI_NONAME
            raise self._not_resolved(error, is_unknown=is_unknown) from error
        except OSError as error:
            raise self._not_opened(error) from error
        except ValueError as error:
            raise self._not_connected(f"this is no host name ({error})") from error

    def send(
        self, request: Any, key: ApiKey, version: int, *, timeout_ms: int | None = None
    ) -> Answer:
        """Write the request; raises BrokerUnreachable."""
        timeout_ms = self._options.request_timeout_ms if timeout_ms is None else timeout_ms
        answer = Answer(self, self._write(request, key, version), timeout_ms)
        self._waiting.append(answer)
        return answer

    def send_unanswered(self, request: Any, key: ApiKey, version: int) -> None:
        """Write a request that has no answer; raises BrokerUnreachable."""
        self._write(request, key, version)

    async def drained(self) -> None:
        """At once: `send` blocks until the socket has taken the request."""

    def close(self) -> None:
        """End it; may be called again."""
        self._fail("the connection was closed by this client")

    def read_until(self, wanted: Answer, timeout_ms: int) -> None:
        """Read answers in order up to `wanted`; each gets its outcome."""
        while wanted.outcome is None:
            answer = self._waiting.popleft()
            try:
                self._socket.settimeout(timeout_ms / 1000)
                frame = memoryview(self._read_frame())
                position = answer.question.match(frame)
                answer.outcome = self._decoded(answer.question, frame, position)
            except ProtocolError as error:
                failure = self._fail(self._unreadable(error))
                unreadable = answer.question.unreadable(self.address, error)
                answer.outcome = failure if self._foreign else unreadable
            except OSError as error:
                key = answer.question.key.name
                answer.outcome = self._fail(f"no usable answer to {key}: {error}")

    def _write(self, request: Any, key: ApiKey, version: int) -> Question:
        if self._failure is not None:
            raise self._failure
        question, parts = self._encode(request, key, version)
        try:
            self._socket.sendall(b"".join(encode_frame(parts)))
        except OSError as error:
            raise self._fail(f"sending failed: {error}") from error
        return question

    def _read_frame(self) -> bytearray:
        (size,) = _SIZE.unpack(self._read_exactly(_SIZE.size))
        if not 0 < size <= MAX_FRAME_BYTES:
            raise MalformedFrame(size, MAX_FRAME_BYTES)
        return self._read_exactly(size)

    def _read_exactly(self, size: int) -> bytearray:
        frame = bytearray(size)
        view = memoryview(frame)
        while view:
            count = self._socket.recv_into(view)
            if not count:
                raise ConnectionResetError(self._closed_by_broker())
            view = view[count:]
        return frame

    def _fail(self, reason: str) -> BrokerUnreachable:
        """Close the socket; every request that waits, and every later one, fails."""
        if self._failure is None:
            self._failure = BrokerUnreachable(f"{self.address}: {reason}", broker=self.address)
            self._socket.close()
        while self._waiting:
            self._waiting.popleft().outcome = self._failure
        return self._failure


class BlockingPool:
    """The connections of one thread, one per broker and role."""

    def __init__(self, options: ClusterOptions) -> None:
        """Prepare without connecting; raises BadFile for files of TLS that cannot be used."""
        self._options = options
        self._connections: dict[tuple[str, int, Role], BlockingConnection] = {}
        self._tls = tls_context(options.security)

    def now(self) -> float:
        """Seconds of the monotonic clock."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Block for so long."""
        time.sleep(seconds)  # noqa: ASYNC251 - blocking is its purpose

    def find_open(self) -> BlockingConnection | None:
        """A connection for requests that any broker answers, if one is open."""
        for (_, _, role), connection in self._connections.items():
            if role is Role.MAIN and connection.is_open:
                return connection
        return None

    async def open(self, host: str, port: int, role: Role) -> BlockingConnection:
        """The connection to an address for a role, opened if need be.

        Raises:
            BrokerUnreachable: no broker listens there, TLS failed, or no answer came in time.
            BrokerRefused: the user is not accepted.
        """
        key = (host, port, role)
        known = self._connections.get(key)
        if known is None or not known.is_open:
            known = BlockingConnection(host, port, self._options, self._tls)
            try:
                await known.greet()
            except BaseException:
                known.close()
                raise
            self._connections[key] = known
        return known

    async def close(self) -> None:
        """Close every connection; the pool may be used again."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()


def open_cluster(options: ClusterOptions) -> Cluster:
    """A cluster whose coroutines `run` carries out in the calling thread."""
    return Cluster(options, BlockingPool(options))
