"""One connection to one broker: requests out, answers in, in step.

Owns the socket, the correlation ids, the timeouts and the choice of versions. It knows no topics,
leaders or retries. A failed connection fails every request that waits on it, once, and is never
reused; `client.cluster` opens another.

Invariant: Kafka answers the requests of a connection in their order, so the oldest waiting
request owns the next frame. An answer with another correlation id, or a request without an
answer in time, therefore ends the connection: from there on the two sides may disagree.

Versions: ApiVersions is the first request. A broker that does not know our version of *that*
answers in the layout of version 0 with error 35 and the range it knows (KIP-511).

Source: Kafka ``NetworkClient``, ``RequestContext``. Read next: `client.cluster`.
"""

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from client.errors import (
    BrokerRefused,
    BrokerUnreachable,
    ClientError,
    InvalidUse,
    UnsupportedByBroker,
)
from client.types import format_address
from protocol import registry
from protocol.api.api_versions import ApiVersionsRequest
from protocol.api_keys import ApiKey, VersionRange
from protocol.declare.primitives import message_spec
from protocol.error_codes import ErrorCode
from protocol.errors import MalformedRequest, ProtocolError
from protocol.frames import FrameDecoder, encode_frame
from protocol.headers import RequestHeader, decode_response_header, encode_request_header

logger = logging.getLogger("tidelog.client.connection")

MAX_FRAME_BYTES = 512 * 1024 * 1024
"""The largest answer that is accepted; fetches request far less."""

SOFTWARE_NAME = "tidelog-client"
SOFTWARE_VERSION = "0.1.0"

_CORRELATION_ID_MASK = 0x7FFFFFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """How to connect; all times in milliseconds."""

    client_id: str = "tidelog"
    connect_timeout_ms: int = 10_000
    request_timeout_ms: int = 30_000


@dataclass(slots=True)
class _Waiting:
    """A request on its way: who waits, how to read the answer, when to give up."""

    correlation_id: int
    key: ApiKey
    version: int
    future: asyncio.Future[Any]
    deadline: asyncio.TimerHandle


class Connection(asyncio.Protocol):
    """A negotiated connection. Made by `connect`, ended by `close` or by the first failure.

    All methods belong to the loop that made it; any number of calls may be under way.
    """

    def __init__(self, host: str, port: int, options: ConnectionOptions) -> None:
        """Prepare; `connect` is the way to get a usable one."""
        self.address = format_address(host, port)
        self.versions: Mapping[int, VersionRange] = {}
        self._options = options
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._decoder = FrameDecoder(MAX_FRAME_BYTES)
        self._waiting: deque[_Waiting] = deque()
        self._correlation_id = 0
        self._failure: BrokerUnreachable | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._lost = asyncio.Event()

    @classmethod
    async def connect(cls, host: str, port: int, options: ConnectionOptions) -> "Connection":
        """A connection whose `versions` are known.

        Raises:
            BrokerUnreachable: no broker listens there, the name is unknown, or no answer came.
        """
        connection = cls(host, port, options)
        try:
            async with asyncio.timeout(options.connect_timeout_ms / 1000):
                await connection._loop.create_connection(lambda: connection, host, port)
                await connection._negotiate()
        except TimeoutError:
            connection.close()
            raise BrokerUnreachable(
                f"{connection.address} did not answer within {options.connect_timeout_ms} ms: "
                "is it a Kafka listener without TLS?",
                broker=connection.address,
            ) from None
        except OSError as error:
            raise BrokerUnreachable(
                f"cannot connect to {connection.address}: {_os_reason(error)}; "
                "is the broker running, and is the address right?",
                broker=connection.address,
            ) from None
        except ClientError:
            connection.close()
            raise
        except ValueError as error:
            raise BrokerUnreachable(
                f"cannot connect to {connection.address}: this is no host name ({error})",
                broker=connection.address,
            ) from None
        except BaseException:
            connection.close()
            raise
        return connection

    @property
    def is_open(self) -> bool:
        """Whether calls can still be made."""
        return self._failure is None

    def version_of(self, key: ApiKey, *, max_version: int, min_version: int = 0) -> int:
        """The highest version of `key` from `min_version` to `max_version` that the broker offers.

        Raises:
            UnsupportedByBroker: there is none.
        """
        theirs = self.versions.get(key)
        if theirs is None:
            raise UnsupportedByBroker(
                f"{self.address} does not offer {key.name}; use a newer broker for it",
                broker=self.address,
            )
        highest = min(theirs.max, max_version)
        if highest < max(theirs.min, min_version):
            raise UnsupportedByBroker(
                f"{self.address} offers {key.name} {theirs}, and this call needs "
                f"{VersionRange(min_version, max_version)}; use a newer broker for it",
                broker=self.address,
            )
        return highest

    async def call(
        self,
        request: Any,
        *,
        max_version: int | None = None,
        min_version: int = 0,
        timeout_ms: int | None = None,
    ) -> Any:
        """The broker's answer to `request`, in the highest version both sides share.

        Raises:
            BrokerUnreachable: the connection ended, or no answer came within `timeout_ms`
                (None: the connection's own request timeout).
            UnsupportedByBroker: no common version.
            InvalidUse: a value does not fit into its field of the request.
        """
        spec = message_spec(type(request))
        version = self.version_of(
            spec.api_key,
            max_version=spec.max_version if max_version is None else max_version,
            min_version=min_version,
        )
        await self._writable.wait()
        return await self.send(request, spec.api_key, version, timeout_ms=timeout_ms)

    def send(
        self, request: Any, key: ApiKey, version: int, *, timeout_ms: int | None = None
    ) -> "asyncio.Future[Any]":
        """Write the request now; the future is the answer. Callers mind `drained` themselves."""
        timeout_ms = self._options.request_timeout_ms if timeout_ms is None else timeout_ms
        future: asyncio.Future[Any] = self._loop.create_future()
        if not self._write(request, key, version):
            assert self._failure is not None
            future.set_exception(self._failure)
            return future
        waiting = _Waiting(
            self._correlation_id,
            key,
            version,
            future,
            self._loop.call_later(timeout_ms / 1000, self._time_out, key, timeout_ms),
        )
        self._waiting.append(waiting)
        return future

    def send_unanswered(self, request: Any, key: ApiKey, version: int) -> None:
        """Write a request that has no answer, which is Produce with acks=0 alone.

        Raises:
            BrokerUnreachable: the connection has ended.
        """
        if not self._write(request, key, version):
            assert self._failure is not None
            raise self._failure

    async def drained(self) -> None:
        """Return once the socket takes more; this bounds the bytes that wait to be written."""
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
                self._answer(frame)
        except ProtocolError as error:
            self._fail(f"the answer cannot be read: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail every waiting request; the reason is the socket's error or the broker's close."""
        self._fail(f"the connection broke: {exc}" if exc else "the broker closed the connection")
        self._writable.set()
        self._lost.set()

    def pause_writing(self) -> None:
        """The socket is full: `call` and `drained` wait."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """The socket takes more."""
        self._writable.set()

    # Inside.

    def _write(self, request: Any, key: ApiKey, version: int) -> bool:
        if self._failure is not None or self._transport is None:
            return False
        self._correlation_id = (self._correlation_id + 1) & _CORRELATION_ID_MASK
        header = RequestHeader(
            api_key=key,
            api_version=version,
            correlation_id=self._correlation_id,
            client_id=self._options.client_id,
        )
        try:
            body = registry.encode_request(request, version)
        except MalformedRequest as error:
            raise InvalidUse(
                f"{key.name} cannot be asked: its field {error.field} cannot hold what was given "
                f"({error.problem})",
                broker=self.address,
            ) from error
        self._transport.writelines(encode_frame([encode_request_header(header), body]))
        return True

    def _answer(self, frame: bytearray) -> None:
        if not self._waiting:
            self._fail("the broker answered what nobody asked")
            return
        waiting = self._waiting.popleft()
        waiting.deadline.cancel()
        view = memoryview(frame)
        correlation_id, position = decode_response_header(view, waiting.key, waiting.version)
        if correlation_id != waiting.correlation_id:
            self._waiting.appendleft(waiting)
            self._fail(f"answer {correlation_id} came where {waiting.correlation_id} was due")
            return
        if waiting.future.done():
            return
        try:
            version = _version_of_answer(waiting, view, position)
            response = registry.decode_response(waiting.key, version, view, position)
        except ProtocolError as error:
            waiting.future.set_exception(
                BrokerUnreachable(
                    f"{self.address} sent an answer to {waiting.key.name} "
                    f"v{waiting.version} that cannot be read: {error}",
                    broker=self.address,
                )
            )
            raise
        waiting.future.set_result(response)

    def _time_out(self, key: ApiKey, timeout_ms: int) -> None:
        self._fail(f"no answer to {key.name} within {timeout_ms} ms")

    def _fail(self, reason: str) -> None:
        if self._failure is None:
            logger.debug("connection to %s ends: %s", self.address, reason)
            self._failure = BrokerUnreachable(f"{self.address}: {reason}", broker=self.address)
        if self._transport is not None:
            self._transport.abort()
        while self._waiting:
            waiting = self._waiting.popleft()
            waiting.deadline.cancel()
            if not waiting.future.done():
                waiting.future.set_exception(self._failure)

    async def _negotiate(self) -> None:
        key = ApiKey.API_VERSIONS
        version = message_spec(ApiVersionsRequest).max_version
        for _ in range(3):
            request = ApiVersionsRequest(
                client_software_name=SOFTWARE_NAME, client_software_version=SOFTWARE_VERSION
            )
            response = await self.send(request, key, version)
            offered = {
                api.api_key: VersionRange(api.min_version, api.max_version)
                for api in response.api_keys
            }
            if response.error_code == ErrorCode.NONE:
                self.versions = offered
                return
            if response.error_code != ErrorCode.UNSUPPORTED_VERSION or version == 0:
                break
            version = min(offered[key].max, version - 1) if key in offered else 0
        raise BrokerRefused("asking for versions", response.error_code, broker=self.address)


def _version_of_answer(waiting: _Waiting, view: memoryview, position: int) -> int:
    """The version of the answer's body: that of the request, except for the refusal of KIP-511."""
    if waiting.key != ApiKey.API_VERSIONS:
        return waiting.version
    error_code = int.from_bytes(view[position : position + 2], "big", signed=True)
    return 0 if error_code == ErrorCode.UNSUPPORTED_VERSION else waiting.version


def _os_reason(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return "its name is unknown"
    if isinstance(error, ConnectionRefusedError):
        return "nobody listens there"
    return error.strerror or str(error)
