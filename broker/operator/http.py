"""The metrics port: the listener and its paths.

Runs in the broker's loop, with at most `CONNECTIONS_MAX` connections open; one more is closed at
once. TLS handshakes have places of their own, so clients of the other listeners cannot take them.
`broker.operator.http_connection` reads the requests.

| path       | 200 when                                                  | 503 when               |
|------------|-----------------------------------------------------------|------------------------|
| /metrics   | always                                                    |                        |
| /healthz   | the event loop runs (there is an answer)                  | a partition is offline |
| /readyz    | clients are being accepted                                | starting, or stopping  |
| /explain   | a lookup was explained: `broker.operator.explain`         | a partition is offline |
| /segments  | a topic's segments are listed: `broker.operator.segments` |                        |
| /retention | retention is forecast: `broker.operator.retention`        |                        |
| /skew      | a topic's times are audited: `broker.operator.skew`       | records are damaged    |
| /histogram | records are counted by time: `broker.operator.histogram`  | a partition is offline |
| /clock     | the clock is settable, also POST: `broker.operator.clock` |                        |
| /faults    | the clock is settable, also POST: `broker.faults.control` |                        |
| /standby   | this is a standby, also POST: `broker.operator.standby`   | the store fails (POST) |

Names of topics and groups and times of records are data: `broker.operator.port_access` says who may
see them. A client that has to prove its identity gets 401, one without the right 403; /healthz and
/readyz are for everyone, but name partitions only to clients who may see everything.

A POST is a command. It needs ALTER on the cluster where rules are set, the header X-Tidelog-Command
(or X-Tidelog-Clock), which no page in a browser can send, and a Host on this machine, but for
/standby: an operator promotes one from elsewhere.

A port on loopback answers only requests whose Host is this machine: a page in a browser here could
otherwise read the port under a name of its own that resolves to 127.0.0.1 (DNS rebinding).
"""

import asyncio
import ipaddress
import json
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from broker.net.acceptor import Acceptor
from broker.net.handshakes import SHARE, Handshakes

if TYPE_CHECKING:
    from broker.operator.http_connection import Answer
    from broker.operator.port_access import PortAccess, Question, Viewer

CONNECTIONS_MAX: Final = 64
HANDSHAKES_AT_ONCE: Final = 16

_TEXT: Final = "text/plain; charset=utf-8"
_EXPOSITION: Final = "text/plain; version=0.0.4; charset=utf-8"
_JSON: Final = "application/json"

Probe = Callable[[bool], str | None]
"""A check: None when all is well, else the reason; only with True it may have names."""

Answered = tuple[int, bytes] | Awaitable[tuple[int, bytes]]
"""HTTP status and JSON, awaitable when it takes turns."""

Query = Callable[[str, "Viewer"], Answered]
"""From the query string of a GET and its sender to the answer."""

Command = Callable[[str], Awaitable[tuple[int, bytes]]]
"""From the query string of a POST to HTTP status and JSON."""

_FROM_ELSEWHERE: Final = frozenset({"/standby"})
"""The commands that other machines may send, too, with the right to: what replaces a broker."""

Secure = Callable[..., Acceptor]
"""Accepts the clients of a bound socket over TLS, each with a protocol that `make` makes."""


class MetricsServer:
    """The HTTP listener for operators; `start` opens it, `stop` closes it."""

    def __init__(
        self,
        render: Callable[[bool], Iterable[bytes]],
        access: "PortAccess",
        *,
        healthy: Probe,
        ready: Probe,
        queries: Mapping[str, Query],
        commands: Mapping[str, Command],
        load: Callable[[], Awaitable[object]],
    ) -> None:
        """Serve `render(shows_names)`, the probes, `queries` (GET) and `commands` (POST).

        `load` gets the code of all of these, off the loop; it is called by the first connections.
        """
        self._access = access
        self._load = load
        self._is_loaded = False
        self._queries = queries
        self._commands = commands
        self._render = render
        self._probes = {"/healthz": healthy, "/readyz": ready}
        self._server: asyncio.Server | Acceptor | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self, bound: socket.socket, secure: Secure | None) -> None:
        """Listen on a bound socket, with TLS if there is `secure`.

        Raises:
            OSError: another process listens there.
        """
        if secure is None:
            self._server = await asyncio.start_server(self._accept, sock=bound)
            return
        bound.listen(CONNECTIONS_MAX)
        self._server = secure(
            bound,
            handshakes=Handshakes(
                lambda _, __, shaking, of_host: (
                    shaking < CONNECTIONS_MAX and of_host < CONNECTIONS_MAX // SHARE
                ),
                at_once=HANDSHAKES_AT_ONCE,
                waiting_max=CONNECTIONS_MAX,
            ),
            make=lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader(), self._accept),
        )

    async def stop(self) -> None:
        """Close the listener and its connections."""
        if self._server is not None:
            self._server.close()
            for connection in self._connections:
                connection.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)
            if not isinstance(self._server, Acceptor):
                await self._server.wait_closed()
            self._server = None

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= CONNECTIONS_MAX:
            writer.transport.abort()
            return
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if not self._is_loaded:
                await self._load()
                self._is_loaded = True
        except BaseException:
            writer.transport.abort()
            raise
        from broker.operator.http_connection import HttpConnection

        await HttpConnection(reader, writer, self._answer).serve()

    async def _answer(self, question: "Question") -> "Answer":
        from broker.operator.http_connection import Answer

        if self._access.is_loopback and not names_this_machine(question.host):
            wrong_host = b"this port answers on localhost only; write 127.0.0.1 for the host name\n"
            return Answer(403, _TEXT, wrong_host)
        path, _, query = question.target.partition("?")
        if path in self._probes and question.method != "POST":
            problem = self._probes[path](self._access.shows_names)
            if problem is None:
                return Answer(200, _TEXT, b"ok\n")
            return Answer(503, _TEXT, f"{problem}\n".encode())
        if question.method == "POST" and path not in self._commands:
            return Answer(405, _TEXT, b"GET or HEAD\n")
        viewer = await self._access.viewer(question)
        if viewer is None:
            challenge = (("WWW-Authenticate", self._access.challenge),)
            return Answer(401, _TEXT, b"prove who you are; see metrics.auth\n", challenge)
        if question.method == "POST":
            return await self._command(path, query, question, viewer)
        if path == "/metrics":
            refusal = viewer.refusal_of_cluster()
            if refusal is not None and not viewer.is_unknown:
                return _refused(refusal)
            return Answer(200, _EXPOSITION, await self._exposition(shows_names=refusal is None))
        if path in self._queries:
            found = self._queries[path](query, viewer)
            status, document = found if isinstance(found, tuple) else await found
            return Answer(status, _JSON, document)
        known = ", ".join(("/metrics", *self._probes, *self._queries))
        return Answer(404, _TEXT, f"there are {known}\n".encode())

    async def _command(
        self, path: str, query: str, question: "Question", viewer: "Viewer"
    ) -> "Answer":
        from broker.operator.http_connection import Answer

        refusal = viewer.refusal_of_command() or _refusal_of_sender(path, question)
        if refusal is not None:
            return _refused(refusal)
        status, document = await self._commands[path](query)
        if status == 200:
            viewer.note_change(f"sent the command {path}?{query}")
        return Answer(status, _JSON, document)

    async def _exposition(self, *, shows_names: bool) -> bytes:
        """The whole exposition, with a turn for other tasks after each piece."""
        pieces = []
        for piece in self._render(shows_names):
            pieces.append(piece)
            await asyncio.sleep(0)
        return b"".join(pieces)


def _refusal_of_sender(path: str, question: "Question") -> str | None:
    """Why a command of this sender is refused, or None: it may be a page in a browser."""
    if not question.is_command:
        return "a command needs the header X-Tidelog-Command, with any value"
    if path not in _FROM_ELSEWHERE and not names_this_machine(question.host):
        return f"{path} takes commands from this machine only: use 127.0.0.1"
    return None


def _refused(refusal: str) -> "Answer":
    from broker.operator.http_connection import Answer

    return Answer(403, _JSON, json.dumps({"error": refusal}).encode() + b"\n")


def names_this_machine(host: str | None) -> bool:
    """Whether a Host header is of loopback; HTTP/1.0, which no browser speaks, may have none."""
    if host is None:
        return True
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
