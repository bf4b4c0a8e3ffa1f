"""The metrics port: /metrics, /healthz, /readyz, /explain and /segments by a minimal HTTP/1.1.

Runs in the broker's loop, one small answer per connection. It reads one request of at most 8 KiB,
accepts GET and HEAD, and closes. A full HTTP server would be more code than the broker's dispatch.

| path      | 200 when                                                  | 503 when                 |
|-----------|-----------------------------------------------------------|--------------------------|
| /metrics  | always                                                    |                          |
| /healthz  | the event loop runs (there is an answer)                  | a partition is offline   |
| /readyz   | clients are being accepted                                | starting, or stopping    |
| /explain  | a lookup was explained: `broker.operator.explain`         | its partition is offline |
| /segments | a topic's segments are listed: `broker.operator.segments` |                          |
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Iterable, Mapping

logger = logging.getLogger("tidelog.broker.operator.http")

REQUEST_BYTES_MAX = 8192
REQUEST_TIMEOUT_S = 5.0

_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    503: "Service Unavailable",
}
_TEXT = "text/plain; charset=utf-8"
_EXPOSITION = "text/plain; version=0.0.4; charset=utf-8"

_JSON = "application/json"

Probe = Callable[[], str | None]
"""A check: None when all is well, else the reason."""

Answer = Callable[[str], tuple[int, bytes]]
"""From a query string to HTTP status and JSON."""


class MetricsServer:
    """The HTTP listener for operators; `start` opens it, `stop` closes it."""

    def __init__(
        self,
        render: Callable[[], Iterable[bytes]],
        *,
        healthy: Probe,
        ready: Probe,
        queries: Mapping[str, Answer],
    ) -> None:
        """Serve the pieces of `render`, the two probes, and `queries` by path."""
        self._queries = queries
        self._render = render
        self._healthy = healthy
        self._ready = ready
        self._server: asyncio.Server | None = None

    async def start(self, bound: socket.socket) -> None:
        """Listen on a bound socket.

        Raises:
            OSError: another process listens there.
        """
        self._server = await asyncio.start_server(self._serve, sock=bound, limit=REQUEST_BYTES_MAX)

    async def stop(self) -> None:
        """Close the listener."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), REQUEST_TIMEOUT_S)
            status, content_type, body = self._answer(head)
            if content_type is _EXPOSITION:
                body = await self._exposition()
            is_head = head.startswith(b"HEAD ")
            writer.write(
                f"HTTP/1.1 {status} {_REASONS[status]}\r\n"
                f"Content-Type: {content_type}\r\n"
                f"Content-Length: {len(body)}\r\n"
                "Connection: close\r\n\r\n".encode("ascii")
                + (b"" if is_head else body)
            )
            await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError, OSError):
            logger.debug("a metrics request broke off")
        finally:
            writer.close()

    async def _exposition(self) -> bytes:
        """The whole exposition, with a turn for other tasks after each piece."""
        pieces = []
        for piece in self._render():
            pieces.append(piece)
            await asyncio.sleep(0)
        return b"".join(pieces)

    def _answer(self, head: bytes) -> tuple[int, str, bytes]:
        words = head.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            return 400, _TEXT, b"not an HTTP request\n"
        if words[0] not in (b"GET", b"HEAD"):
            return 405, _TEXT, b"GET or HEAD\n"
        path, _, query = words[1].partition(b"?")
        answer = self._queries.get(path.decode("latin-1"))
        if answer is not None:
            status, body = answer(query.decode("latin-1"))
            return status, _JSON, body
        if path == b"/metrics":
            return 200, _EXPOSITION, b""
        if path == b"/healthz":
            return _probe_answer(self._healthy())
        if path == b"/readyz":
            return _probe_answer(self._ready())
        return 404, _TEXT, b"there are /metrics, /healthz, /readyz, /explain and /segments\n"


def _probe_answer(problem: str | None) -> tuple[int, str, bytes]:
    if problem is None:
        return 200, _TEXT, b"ok\n"
    return 503, _TEXT, problem.encode() + b"\n"
