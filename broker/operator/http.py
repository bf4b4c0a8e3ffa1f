"""The metrics port: the listener and its paths.

Runs in the broker's loop, with at most `CONNECTIONS_MAX` connections open; one more is closed at
once. `broker.operator.http_connection` reads the requests.

| path       | 200 when                                                  | 503 when               |
|------------|-----------------------------------------------------------|------------------------|
| /metrics   | always                                                    |                        |
| /healthz   | the event loop runs (there is an answer)                  | a partition is offline |
| /readyz    | clients are being accepted                                | starting, or stopping  |
| /explain   | a lookup was explained: `broker.operator.explain`         | a partition is offline |
| /segments  | a topic's segments are listed: `broker.operator.segments` |                        |
| /retention | retention is forecast: `broker.operator.retention`        |                        |
| /skew      | a topic's times are audited: `broker.operator.skew`       | records are damaged    |
| /clock     | the clock is settable, also POST: `broker.operator.clock` |                        |

Names of topics and groups and times of records are data, and this port knows no users. With an
authorizer, a port that is not on loopback shows none: the paths with names are 403, /metrics
leaves out the figures of partitions and groups, /healthz names no partition.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from broker.operator.http_connection import Answer

CONNECTIONS_MAX: Final = 100

_TEXT: Final = "text/plain; charset=utf-8"
_EXPOSITION: Final = "text/plain; version=0.0.4; charset=utf-8"
_JSON: Final = "application/json"

Probe = Callable[[], str | None]
"""A check: None when all is well, else the reason."""

Query = Callable[[str], tuple[int, bytes] | Awaitable[tuple[int, bytes]]]
"""From a query string to HTTP status and JSON; awaitable when it takes turns."""

Command = Callable[[str, Mapping[bytes, bytes]], Awaitable[tuple[int, bytes]]]
"""From a query string and the headers of a POST to HTTP status and JSON."""


def refused(_: str) -> tuple[int, bytes]:
    """The answer to a query whose answer has names, on a port that may not show them."""
    return 403, (
        b'{"error": "with an authorizer this path is served on loopback only; '
        b'set metrics.listener to 127.0.0.1:9464"}\n'
    )


class MetricsServer:
    """The HTTP listener for operators; `start` opens it, `stop` closes it."""

    def __init__(
        self,
        render: Callable[[], Iterable[bytes]],
        *,
        healthy: Probe,
        ready: Probe,
        queries: Mapping[str, Query],
        commands: Mapping[str, Command],
    ) -> None:
        """Serve the pieces of `render`, the probes, `queries` (GET) and `commands` (POST)."""
        self._queries = queries
        self._commands = commands
        self._render = render
        self._probes = {"/healthz": healthy, "/readyz": ready}
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self, bound: socket.socket) -> None:
        """Listen on a bound socket.

        Raises:
            OSError: another process listens there.
        """
        self._server = await asyncio.start_server(self._accept, sock=bound)

    async def stop(self) -> None:
        """Close the listener and its connections."""
        if self._server is not None:
            self._server.close()
            for connection in self._connections:
                connection.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)
            await self._server.wait_closed()
            self._server = None

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= CONNECTIONS_MAX:
            writer.transport.abort()
            return
        from broker.operator.http_connection import HttpConnection

        connection = HttpConnection(reader, writer, self._answer, self._command)
        task = asyncio.get_running_loop().create_task(connection.serve())
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _answer(self, target: str) -> "Answer":
        from broker.operator.http_connection import Answer

        path, _, query = target.partition("?")
        if path == "/metrics":
            return Answer(200, _EXPOSITION, await self._exposition())
        if path in self._queries:
            found = self._queries[path](query)
            status, document = found if isinstance(found, tuple) else await found
            return Answer(status, _JSON, document)
        if path in self._probes:
            problem = self._probes[path]()
            if problem is None:
                return Answer(200, _TEXT, b"ok\n")
            return Answer(503, _TEXT, f"{problem}\n".encode())
        known = b"there are /metrics, /healthz, /readyz, /explain, /segments, /retention, /skew\n"
        return Answer(404, _TEXT, known)

    async def _command(self, target: str, headers: Mapping[bytes, bytes]) -> "Answer":
        from broker.operator.http_connection import Answer

        path, _, query = target.partition("?")
        if path not in self._commands:
            return Answer(405, _TEXT, b"GET or HEAD\n")
        status, document = await self._commands[path](query, headers)
        return Answer(status, _JSON, document)

    async def _exposition(self) -> bytes:
        """The whole exposition, with a turn for other tasks after each piece."""
        pieces = []
        for piece in self._render():
            pieces.append(piece)
            await asyncio.sleep(0)
        return b"".join(pieces)
