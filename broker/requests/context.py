"""The arguments of a handler: the bundle of collaborators and the facts about one request.

`Context` is built once by `broker.server` and never changes; it owns nothing (the server opens and
closes every member). `RequestContext` is made by the dispatcher for each request. Handlers get
everything through these two, so a unit test can call a handler with a few fakes.

A handler is a plain function in `broker/handlers/<api>.py`:

    def handle(context: Context, request: RequestContext, message: XRequest) -> XResponse

and may return the response, `None` (there is no response: Produce with acks=0), or a
`broker.replies.pending.Pending` that is resolved later. A handler with long work is a generator of
steps (`storage.disk.steps`). It yields wherever other requests may have a turn, for instance after
each element of a list. `async def` handlers are allowed where a request needs several waits; they
cost a task. A handler that raises loses only its own request.
"""

import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from broker.clocks.clock import Clock
from broker.clocks.trusted_clock import TrustedClock
from broker.replies.pending import Pending
from broker.security.session import Session
from storage.directory.metadata import FIRST_WORKER
from values.dataclasses import dataclass

if TYPE_CHECKING:
    from broker.fetch.sessions import FetchSessions
    from broker.fetch.waiters import FetchWaiters
    from broker.group_commit import GroupCommit
    from broker.groups.coordinator import GroupCoordinator
    from broker.metrics import Metrics
    from broker.remote.reads import RemoteReads
    from broker.replies.turns import Turns
    from broker.requests.answers import AnswerMemory
    from broker.security.service import Security
    from broker.space import SpaceGuard
    from broker.telemetry.service import Telemetry
    from broker.topics.registry import TopicRegistry
    from broker.transactions.coordinator import TransactionCoordinator
    from config import BrokerConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """The address that clients connect to."""

    node_id: int
    host: str
    port: int
    rack: str | None = None
    listener: str = "PLAINTEXT"


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The collaborators of every handler."""

    config: "BrokerConfig"
    cluster_id: str
    endpoint: Endpoint
    clock: Clock
    time: TrustedClock
    random: random.Random
    topics: "TopicRegistry"
    group_commit: "GroupCommit"
    space: "SpaceGuard"
    fetch_waiters: "FetchWaiters"
    fetch_sessions: "FetchSessions"
    turns: "Turns"
    answers: "AnswerMemory"
    metrics: "Metrics"
    groups: "GroupCoordinator"
    transactions: "TransactionCoordinator"
    security: "Security"
    telemetry: "Telemetry"
    remote: "RemoteReads | None" = None
    """Reads of the object store; None when the broker has none."""

    @property
    def endpoints(self) -> list[Endpoint]:
        """The addresses of this broker and of its other workers on this listener."""
        found = [self.endpoint]
        peers = self.topics.peers
        if peers is not None:
            for worker in range(FIRST_WORKER + 1, peers.count + 1):
                address = peers.address(worker, self.endpoint.listener)
                if address is not None:
                    node_id, (host, port) = self.topics.node_id_of(worker), address
                    found.append(replace(self.endpoint, node_id=node_id, host=host, port=port))
        return found


_UNKNOWN = Session()
"""The session of requests that no connection sent: tests and the broker's own."""


@dataclass(slots=True)
class RequestContext:
    """The facts about one request that are not in its body.

    Never changed. It is not frozen, as one is made for each request and a frozen one costs more.
    """

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    peer_host: str
    connection_id: int
    session: "Session" = _UNKNOWN


Reply: TypeAlias = "Any | Pending[Any] | Awaitable[Any] | None"
Handler: TypeAlias = Callable[[Context, RequestContext, Any], Reply]
