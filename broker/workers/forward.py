"""Requests that another worker forwards to worker 1, as bytes, and the way of the answers back.

A worker serves the requests for its own partitions. It sends every other one on, unread: for each
client that sends such a request it opens a pair of connected sockets and hands one end to worker 1,
with the listener, the address and the name of the client. For worker 1 that is a client like any
other; rights, quotas and the order of answers are as for its own.

If worker 1 goes away, a request that waits for its answer costs the client its connection, as it
would there. A request that comes while worker 1 restarts waits for it.
"""

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from broker.errors import ConnectionMustClose
from broker.net.connection import Connection, Connections
from broker.net.dispatch import Dispatcher, Requester
from broker.principal import Principal
from broker.replies.pending import Pending
from broker.requests.context import Context
from broker.security.session import Session
from protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from broker.net.dispatch import Exchange
    from broker.workers.link import Message
    from protocol.declare.primitives import Buffer

logger = logging.getLogger("tidelog.broker.workers.forward")

SERVED_HERE: Final = frozenset(
    {
        ApiKey.PRODUCE,
        ApiKey.FETCH,
        ApiKey.LIST_OFFSETS,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        ApiKey.SHARE_FETCH,
        ApiKey.SHARE_ACKNOWLEDGE,
        ApiKey.DELETE_RECORDS,
        ApiKey.DESCRIBE_PRODUCERS,
        ApiKey.WRITE_TXN_MARKERS,
        ApiKey.API_VERSIONS,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
        # Clients ask every broker for these and join the answers.
        ApiKey.DESCRIBE_LOG_DIRS,
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        ApiKey.LIST_GROUPS,
        ApiKey.LIST_TRANSACTIONS,
    }
)
"""The requests that every worker answers for itself."""

PATIENCE_S: Final = 30.0
"""How long a request waits for a worker 1 that restarts."""

_SIZE_BYTES: Final = 4
_KEY_BYTES: Final = 2

OpenUpstream = Callable[["Message"], Awaitable[socket.socket]]
"""Opens a connection to worker 1 for a client with these facts; waits while it restarts."""


class ForwardingDispatcher(Dispatcher):
    """Serves the requests of `SERVED_HERE`, forwards the others."""

    def __init__(self, context: Context, open_upstream: OpenUpstream) -> None:
        """Forward over connections that `open_upstream` makes."""
        super().__init__(context)
        self._open_upstream = open_upstream
        self._upstreams: dict[int, Upstream] = {}

    def dispatch(
        self, frame: bytearray | memoryview, requester: Requester
    ) -> "list[Buffer] | Exchange | None":
        """As `Dispatcher.dispatch`."""
        key = int.from_bytes(frame[:_KEY_BYTES], "big", signed=True)
        if key in SERVED_HERE or key not in self._routes:
            return super().dispatch(frame, requester)
        upstream = self._upstreams.get(requester.id)
        if upstream is None or upstream.is_closed:
            connection = cast(Connection, requester)
            connection.on_lost = partial(self._client_lost, connection.id)
            upstream = self._upstreams[connection.id] = Upstream(
                self._open_upstream, facts_of(connection, self.context.endpoint.listener)
            )
        return self.answer_bare(ApiKey(key), upstream.send(bytes(frame)))

    def _client_lost(self, connection_id: int) -> None:
        self._upstreams.pop(connection_id).close()


class Upstream(asyncio.Protocol):
    """The connection to worker 1 for one client; opened with its first forwarded request."""

    def __init__(self, open_upstream: OpenUpstream, facts: "Message") -> None:
        """Open it in the background; requests wait meanwhile."""
        self._transport: asyncio.WriteTransport | None = None
        self._unsent: list[bytes] = []
        self._waiting: deque[Pending[bytes]] = deque()
        self._received = bytearray()
        self.is_closed = False
        self._opening = asyncio.get_running_loop().create_task(self._open(open_upstream, facts))

    async def _open(self, open_upstream: OpenUpstream, facts: "Message") -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                connected = await open_upstream(facts)
            await asyncio.get_running_loop().create_unix_connection(lambda: self, sock=connected)
        except OSError as error:  # a time-out is one
            logger.warning("a request could not be forwarded to worker 1: %s", error or "time-out")
            self._fail("worker 1 does not answer")

    def send(self, frame: bytes) -> Pending[bytes]:
        """Forward a request; the answer's bytes come without their size."""
        pending: Pending[bytes] = Pending()
        self._waiting.append(pending)
        sized = len(frame).to_bytes(_SIZE_BYTES, "big") + frame
        if self._transport is None:
            self._unsent.append(sized)
        else:
            self._transport.write(sized)
        return pending

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send what has waited."""
        self._transport = cast(asyncio.WriteTransport, transport)
        if self.is_closed:
            self._transport.abort()
            return
        self._transport.writelines(self._unsent)
        self._unsent.clear()

    def data_received(self, data: bytes) -> None:
        """Pass whole answers on, in order."""
        received = self._received
        received += data
        while len(received) >= _SIZE_BYTES:
            end = _SIZE_BYTES + int.from_bytes(received[:_SIZE_BYTES], "big")
            if len(received) < end:
                return
            answer = bytes(received[_SIZE_BYTES:end])
            del received[:end]
            self._waiting.popleft().resolve(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        """Worker 1 has closed the connection, or has gone."""
        self._fail("worker 1 has closed the connection")

    def close(self) -> None:
        """The client has gone."""
        self.is_closed = True
        self._opening.cancel()
        if self._transport is not None:
            self._transport.abort()

    def _fail(self, reason: str) -> None:
        self.is_closed = True
        waiting, self._waiting = self._waiting, deque()
        for pending in waiting:
            pending.fail(ConnectionMustClose(reason))


class _ForwardedSession(Session):
    """The session of a client that another worker has authenticated."""

    __slots__ = ("_may_handle_tokens",)

    def __init__(self, facts: "Message") -> None:
        super().__init__(
            listener=facts["session_listener"],
            peer_host=facts["host"],
            principal=Principal(*facts["principal"]),
            connection_id=facts["connection"],
            tls=facts["tls"],
        )
        self.peer_port = facts["port"]
        name, version = facts["software"]
        self.software = name, version
        self.client_id = facts["client_id"]
        self._may_handle_tokens = bool(facts["may_handle_tokens"])

    @property
    def may_handle_tokens(self) -> bool:
        return self._may_handle_tokens


class ForwardedConnection(Connection, asyncio.BufferedProtocol):
    """A client of another worker, at worker 1."""

    is_from_worker = True

    def __init__(self, dispatcher: Dispatcher, connections: Connections, facts: "Message") -> None:
        super().__init__(dispatcher, connections)
        self._facts = facts

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the place of the client."""
        super().connection_made(transport)
        facts = self._facts
        self.session = _ForwardedSession(facts)
        self.session.channel = self
        self.peer_host = facts["host"]
        self.peer = f"{facts['peer']} (through worker {facts['worker']})"


def facts_of(connection: Connection, listener: str) -> "Message":
    """The facts that worker 1 needs about a client of the listener with this name."""
    session = connection.session
    return {
        "listener": listener,
        "session_listener": session.listener,
        "host": connection.peer_host,
        "peer": connection.peer,
        "port": session.peer_port,
        "connection": session.connection_id,
        "tls": session.tls,
        "software": list(session.software),
        "client_id": session.client_id,
        "principal": list(session.principal),
        "may_handle_tokens": session.may_handle_tokens,
    }


async def accept_forwarded(
    connected: socket.socket, make: Callable[[], asyncio.BaseProtocol]
) -> Any:
    """Serve the other end of a client's pair."""
    connected.setblocking(False)
    return await asyncio.get_running_loop().connect_accepted_socket(make, connected)
