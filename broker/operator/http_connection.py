"""One HTTP/1.1 connection to the metrics port: h11 parses requests and frames answers.

Owns the bounds of a connection. Requests are answered one after the other, and the connection stays
open between them. It closes when the next request is not complete, or an answer not taken, within
`PATIENCE_S`. The head of a request has at most `REQUEST_BYTES_MAX` bytes. A body is not read: the
request is answered, and the connection closed.

Imported after the start, or with the first connection: a broker should be listening first.
Source: RFC 9112; docs/adr/0022. Read next: `broker.operator.http`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final, NamedTuple

import h11

from broker.operator.port_access import Question

logger = logging.getLogger("tidelog.broker.operator.http_connection")

REQUEST_BYTES_MAX: Final = 8192
PATIENCE_S: Final = 5.0

_READ_BYTES: Final = 4096
_COMMANDS: Final = frozenset({b"x-tidelog-command", b"x-tidelog-clock"})
"""The headers of commands; the second is that of older clients."""
_TEXT: Final = "text/plain; charset=utf-8"


class Answer(NamedTuple):
    """A status, the type of the body, the body, and further headers."""

    status: int
    content_type: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


class HttpConnection:
    """The server's end of a connection."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        answer: Callable[[Question], Awaitable[Answer]],
    ) -> None:
        """Serve GET, HEAD and POST, whose answers come from `answer`."""
        self._reader = reader
        self._writer = writer
        self._respond = answer
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=REQUEST_BYTES_MAX)
        # Then `drain` returns when the peer has taken everything, and closing has nothing to flush.
        writer.transport.set_write_buffer_limits(0)

    async def serve(self) -> None:
        """Answer requests until either side closes the connection."""
        try:
            while await self._exchange():
                pass
        except (TimeoutError, OSError) as error:
            logger.debug("a connection to the metrics port broke off: %r", error)
        finally:
            if self._writer.transport.get_write_buffer_size():
                self._writer.transport.abort()
            else:
                self._writer.close()

    async def _exchange(self) -> bool:
        """One request and its answer; whether another request may follow."""
        request = None
        try:
            async with asyncio.timeout(PATIENCE_S):
                request = await self._next_request()
            if request is None:
                return False
            if request.method in (b"GET", b"HEAD", b"POST"):
                answer = await self._respond(self._question(request))
            else:
                answer = Answer(405, _TEXT, b"GET or HEAD\n")
        except h11.RemoteProtocolError as error:
            # Not its text, which has the line of a header: maybe that with a password.
            status = error.error_status_hint
            logger.debug("a request to the metrics port cannot be read (%d)", status)
            answer = Answer(status, _TEXT, b"the request is malformed, or too long\n")
        async with asyncio.timeout(PATIENCE_S):
            await self._send(answer, is_head=request is not None and request.method == b"HEAD")
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        return True

    async def _next_request(self) -> h11.Request | None:
        """The head of the next request; None when the peer closed the connection.

        Raises:
            h11.RemoteProtocolError: it is not HTTP, or longer than `REQUEST_BYTES_MAX`.
        """
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(await self._reader.read(_READ_BYTES))
        if not isinstance(event, h11.Request):
            return None
        self._http.next_event()  # the end of a request without a body, after which one may follow
        return event

    def _question(self, request: h11.Request) -> Question:
        peer = self._writer.get_extra_info("peername")
        ssl_object = self._writer.get_extra_info("ssl_object")
        headers = dict(request.headers)
        host = headers.get(b"host")
        return Question(
            method=request.method.decode("ascii"),
            is_command=not headers.keys().isdisjoint(_COMMANDS),
            target=request.target.decode("ascii"),
            host=None if host is None else host.decode("latin-1"),
            authorization=headers.get(b"authorization", b""),
            peer_host=str(peer[0]) if peer else "unknown",
            certificate=ssl_object.getpeercert(binary_form=True) if ssl_object else None,
        )

    async def _send(self, answer: Answer, *, is_head: bool) -> None:
        status, content_type, body, more = answer
        headers = [
            ("Content-Type", content_type),
            ("Content-Length", str(len(body))),
            ("X-Content-Type-Options", "nosniff"),
            *more,
        ]
        if self._http.their_state is not h11.DONE:
            headers.append(("Connection", "close"))
        reason = HTTPStatus(status).phrase
        pieces = [
            self._http.send(h11.Response(status_code=status, reason=reason, headers=headers)),
            b"" if is_head else self._http.send(h11.Data(data=body)),
            self._http.send(h11.EndOfMessage()),
        ]
        self._writer.write(b"".join(piece for piece in pieces if piece))
        await self._writer.drain()
