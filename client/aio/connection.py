"""The asyncio side of `client.core`: one connection's socket, and the connections of one client.

Owns transports, timers and tasks; what is said over a connection is `core.connection`. A request
without an answer in time ends its connection, since an answer may still come and be taken for
another one's.
"""

import asyncio
import logging
import socket
from collections import deque
from typing import Any, cast

from client.core.cluster import Cluster, Role
from client.core.connection import MAX_FRAME_BYTES, Connection, Question
from client.core.options import ClusterOptions
from client.core.tls import tls_context
from client.errors import BrokerUnreachable, ClientError
from protocol.api_keys import ApiKey
from protocol.errors import ProtocolError
from protocol.frames import FrameDecoder, encode_frame

logger = logging.getLogger("tidelog.client.aio.connection")

_Waiting = tuple[Question, "asyncio.Future[Any]", asyncio.TimerHandle]
"""A request on its way: how to read the answer, who waits, when to give up."""


class LoopConnection(Connection, asyncio.Protocol):
    """A negotiated connection. Made by `connect`, ended by `close` or by the first failure.

    All methods belong to the loop that made it; any number of calls may be under way.
    """

    def __init__(self, host: str, port: int, options: ClusterOptions) -> None:
        """Prepare; `connect` is the way to get a usable one."""
        super().__init__(host, port, options)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._decoder = FrameDecoder(MAX_FRAME_BYTES)
        self._waiting: deque[_Waiting] = deque()
        self._writable = asyncio.Event()
        self._writable.set()
        self._lost = asyncio.Event()

    @classmethod
    async def connect(
        cls, host: str, port: int, options: ClusterOptions, tls: Any
    ) -> "LoopConnection":
        """A connection whose `versions` are known; `tls` is its `ssl` context or None.

        Raises:
            BrokerUnreachable: no broker listens there, the name is unknown, TLS failed, or no
                answer came.
            BrokerRefused: the user is not accepted.
        """
        connection = cls(host, port, options)
        try:
            async with asyncio.timeout(options.connect_timeout_ms / 1000):
                await connection._loop.create_connection(
                    lambda: connection, host, port, ssl=tls, server_hostname=host if tls else None
                )
                await connection.greet()
        except TimeoutError:
            connection.close()
            reason = f"no answer within {options.connect_timeout_ms} ms"
            raise connection._not_connected(reason) from None
        except ClientError:
            connection.close()
            raise
        except socket.gaierror as error:
            is_unknown = error.errno == socket.EAI_NONAME
            raise connection._not_resolved(error, is_unknown=is_unknown) from None
        except OSError as error:
            raise connection._not_opened(error) from None
        except ValueError as error:
            raise connection._not_connected(f"this is no host name ({error})") from None
        except BaseException:
            connection.close()
            raise
        return connection

    def send(
        self, request: Any, key: ApiKey, version: int, *, timeout_ms: int | None = None
    ) -> "asyncio.Future[Any]":
        """Write the request now; the future is the answer. Callers mind `drained` themselves."""
        timeout_ms = self._options.request_timeout_ms if timeout_ms is None else timeout_ms
        future: asyncio.Future[Any] = self._loop.create_future()
        question = self._write(request, key, version)
        if question is None:
            assert self._failure is not None
            future.set_exception(self._failure)
            return future
        timer = self._loop.call_later(timeout_ms / 1000, self._time_out, key, timeout_ms)
        self._waiting.append((question, future, timer))
        return future

    def send_unanswered(self, request: Any, key: ApiKey, version: int) -> None:
        """Write a request that has no answer; raises BrokerUnreachable."""
        if self._write(request, key, version) is None:
            assert self._failure is not None
            raise self._failure

    async def drained(self) -> None:
        """Return once the socket takes more."""
        await self._writable.wait()

    def close(self) -> None:
        """End the connection; all waiting requests fail. May be called twice."""
        self._fail("the connection was closed by this client")

    async def closed(self) -> None:
        """Return once the socket is closed."""
        if self._transport is not None:
            await self._lost.wait()

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport; small requests leave at once."""
        # Not checked with isinstance: the transports of uvloop are not subclasses.
        self._transport = cast(asyncio.Transport, transport)
        raw = transport.get_extra_info("socket")
        if raw is not None:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        """Hand every complete frame to the request that waits for it."""
        try:
            self._decoder.feed(data)
            while (frame := self._decoder.next_frame()) is not None:
                self._answer(memoryview(frame))
        except ProtocolError as error:
            self._fail(self._unreadable(error))

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail every waiting request; the reason is the socket's error or the broker's close."""
        self._fail(f"the connection broke: {exc}" if exc else self._closed_by_broker())
        self._writable.set()
        self._lost.set()

    def pause_writing(self) -> None:
        """The socket is full: `call` and `drained` wait."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """The socket takes more."""
        self._writable.set()

    # Inside.

    def _write(self, request: Any, key: ApiKey, version: int) -> Question | None:
        if self._failure is not None or self._transport is None:
            return None
        question, parts = self._encode(request, key, version)
        self._transport.writelines(encode_frame(parts))
        return question

    def _answer(self, frame: memoryview) -> None:
        if not self._waiting:
            raise ProtocolError("no request waits for it")
        question, future, timer = self._waiting.popleft()
        timer.cancel()
        try:
            position = question.match(frame)
            if not future.done():
                future.set_result(self._decoded(question, frame, position))
        except ProtocolError as error:
            if not future.done():
                future.set_exception(question.unreadable(self.address, error))
            raise

    def _time_out(self, key: ApiKey, timeout_ms: int) -> None:
        self._fail(f"no answer to {key.name} within {timeout_ms} ms")

    def _fail(self, reason: str) -> None:
        if self._failure is None:
            logger.debug("connection to %s ends: %s", self.address, reason)
            self._failure = BrokerUnreachable(f"{self.address}: {reason}", broker=self.address)
        if self._transport is not None:
            self._transport.abort()
        while self._waiting:
            _, future, timer = self._waiting.popleft()
            timer.cancel()
            if not future.done():
                future.set_exception(self._failure)


class LoopPool:
    """The connections of one client in one event loop, one per broker and role."""

    def __init__(self, options: ClusterOptions) -> None:
        """Prepare without connecting; raises BadFile for files of TLS that cannot be used."""
        self._options = options
        self._tls = tls_context(options.security)
        self._tasks: dict[tuple[str, int, Role], asyncio.Task[LoopConnection]] = {}
        self._is_closed = False

    def now(self) -> float:
        """The loop's time in seconds."""
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        """Let the loop work for so long."""
        await asyncio.sleep(seconds)

    def find_open(self) -> LoopConnection | None:
        """A connection for requests that any broker answers, if one is open."""
        for (_, _, role), task in self._tasks.items():
            if role is Role.MAIN and task.done() and _is_usable(task):
                return task.result()
        return None

    async def open(self, host: str, port: int, role: Role) -> LoopConnection:
        """The connection to an address for a role, opened if need be; raises as `connect`."""
        if self._is_closed:
            raise BrokerUnreachable("this client is closed")
        key = (host, port, role)
        task = self._tasks.get(key)
        if task is None or (task.done() and not _is_usable(task)):
            # A task of its own, so that a caller who gives up does not take the others along.
            connecting = LoopConnection.connect(host, port, self._options, self._tls)
            task = self._tasks[key] = asyncio.create_task(connecting)
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Close every connection; calls under way fail."""
        self._is_closed = True
        tasks, self._tasks = list(self._tasks.values()), {}
        for task in tasks:
            if task.done() and not task.cancelled() and task.exception() is None:
                task.result().close()
                await task.result().closed()
            else:
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def open_cluster(options: ClusterOptions) -> Cluster:
    """A cluster whose connections belong to the running event loop."""
    return Cluster(options, LoopPool(options))


def _is_usable(task: "asyncio.Task[LoopConnection]") -> bool:
    if task.cancelled() or task.exception() is not None:
        return False
    return task.result().is_open
