"""Brokers of a script, without sockets and without a loop: what the core alone does is seen."""

from collections.abc import Awaitable, Callable
from typing import Any

from client.core.cluster import Cluster, Role
from client.core.connection import Connection
from client.core.options import ClusterOptions
from client.errors import BrokerUnreachable, NameUnknown
from protocol.api.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from protocol.api_keys import ApiKey, VersionRange

Answer = Callable[[int, Any], Any]
"""From a broker's port and a request to a response, or to an exception."""


class ScriptedConnection(Connection):
    """Answers each request at once by the script."""

    def __init__(self, port: int, options: ClusterOptions, pool: "ScriptedPool") -> None:
        super().__init__("h", port, options)
        self.versions = dict.fromkeys(ApiKey, VersionRange(0, 20))
        self._port, self._pool = port, pool
        self._open = True

    @property
    def is_open(self) -> bool:
        return self._open

    def send(
        self, request: Any, key: ApiKey, version: int, *, timeout_ms: int | None = None
    ) -> Awaitable[Any]:
        async def answer() -> Any:
            self._pool.seen.append((self._port, key.name))
            outcome = self._pool.answer(self._port, request)
            if isinstance(outcome, Exception):
                self._open = not isinstance(outcome, BrokerUnreachable)
                raise outcome
            return outcome

        return answer()

    def send_unanswered(self, request: Any, key: ApiKey, version: int) -> None:
        self._pool.seen.append((self._port, key.name))

    async def drained(self) -> None:
        return

    def close(self) -> None:
        self._open = False


class ScriptedPool:
    """Connections to scripted brokers, and time that passes only in pauses."""

    def __init__(self, options: ClusterOptions, answer: Answer) -> None:
        self.answer = answer
        self.seen: list[tuple[int, str]] = []
        self.opened: list[tuple[int, Role]] = []
        self.closed_ports: set[int] = set()
        self.unnamed_ports: set[int] = set()  # Their host name is not known.
        self.seconds = 0.0
        self._options = options
        self._connections: dict[tuple[int, Role], ScriptedConnection] = {}

    def now(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds

    def find_open(self) -> Connection | None:
        for (_, role), connection in self._connections.items():
            if role is Role.MAIN and connection.is_open:
                return connection
        return None

    async def open(self, host: str, port: int, role: Role) -> Connection:
        if port in self.closed_ports:
            raise BrokerUnreachable(f"cannot connect to {host}:{port}", broker=f"{host}:{port}")
        if port in self.unnamed_ports:
            raise NameUnknown(f"cannot connect to {host}:{port}: its name is unknown")
        known = self._connections.get((port, role))
        if known is None or not known.is_open:
            known = ScriptedConnection(port, self._options, self)
            self._connections[port, role] = known
            self.opened.append((port, role))
        return known

    async def close(self) -> None:
        self._connections.clear()


def scripted(answer: Answer, **fields: Any) -> tuple[Cluster, ScriptedPool]:
    """A cluster whose bootstrap broker is h:1."""
    options = ClusterOptions(bootstrap=(("h", 1),), **fields)
    pool = ScriptedPool(options, answer)
    return Cluster(options, pool), pool


def metadata(leaders: dict[int, int], topic: str = "t", error_code: int = 0) -> MetadataResponse:
    """Brokers 1 to 3 at the ports of their numbers, and one topic with these leaders."""
    return MetadataResponse(
        cluster_id="c",
        controller_id=3,
        brokers=[MetadataResponseBroker(node_id=n, host="h", port=n) for n in (1, 2, 3)],
        topics=[
            MetadataResponseTopic(
                name=topic,
                error_code=error_code,
                partitions=[
                    MetadataResponsePartition(partition_index=index, leader_id=leader)
                    for index, leader in leaders.items()
                ],
            )
        ],
    )
