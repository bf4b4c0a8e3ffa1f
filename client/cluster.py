"""The cluster as one client sees it: brokers, leaders, coordinators, and connections to them.

Owns the metadata cache and at most one connection per broker and role, so that a fetch that waits
for data never delays a produce or a heartbeat. It finds the broker that serves a partition or a
key, and drops cache entries that proved wrong. Its callers decide what to request.

Invariant: no cache entry is trusted for ever. Metadata is requested again when it is older than
`metadata_max_age_ms` and whenever a caller reports that a leader or coordinator was wrong.

Source: Kafka ``Metadata``, ``NetworkClient``. Read next: `client.producer`, `client.consumer`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeVar

from client.checks import check_numbers, check_text
from client.connection import Connection, ConnectionOptions
from client.errors import (
    BrokerRefused,
    BrokerUnreachable,
    ClientError,
    InvalidType,
    InvalidUse,
)
from client.retry import retrying
from client.types import Broker, PartitionInfo, TopicInfo, TopicPartition, format_address
from protocol.api.find_coordinator import FindCoordinatorRequest
from protocol.api.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from protocol.error_codes import ErrorCode

logger = logging.getLogger("tidelog.client.cluster")
_T = TypeVar("_T")

DEFAULT_PORT = 9092
NO_LEADER = -1

_CREATION_TIMEOUT_MS = 5000

# Version 12 is the last in which a request can name a topic without its id.
_METADATA_VERSION = 12
_BATCHED_COORDINATORS_SINCE = 4


class Role(Enum):
    """The purpose of a connection; each role has its own socket to a broker."""

    MAIN = "main"
    FETCH = "fetch"
    GROUP = "group"
    JOIN = "join"


class CoordinatorType(Enum):
    """Whose coordinator is looked for, with its number on the wire."""

    GROUP = 0
    TRANSACTION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """How to reach and follow a cluster; all times in milliseconds.

    `timeout_ms` is how long a call may retry in all. `create_topics` lets the broker create a
    missing topic on request, if it is configured to do so.
    """

    client_id: str = "tidelog"
    connect_timeout_ms: int = 10_000
    request_timeout_ms: int = 30_000
    timeout_ms: int = 60_000
    metadata_max_age_ms: int = 300_000
    create_topics: bool = False


@dataclass(slots=True)
class _Metadata:
    """The cache, with the time of each topic's last answer (loop time, seconds)."""

    brokers: dict[int, Broker] = field(default_factory=dict)
    topics: dict[str, TopicInfo] = field(default_factory=dict)
    heard_at: dict[str, float] = field(default_factory=dict)
    controller_id: int = -1
    cluster_id: str | None = None


class Cluster:
    """Shared by the parts of one client. Belongs to one event loop; `close` ends it."""

    def __init__(self, bootstrap: str | Iterable[str], options: ClusterOptions) -> None:
        """Keep the bootstrap addresses; no connection is opened before the first call.

        Raises:
            InvalidUse: an address or an option that cannot be meant.
        """
        check_text("client_id", options.client_id)
        check_numbers(1, request_timeout_ms=options.request_timeout_ms)
        check_numbers(0, timeout_ms=options.timeout_ms)
        self.options = options
        self._bootstrap = parse_bootstrap(bootstrap)
        self._connection_options = ConnectionOptions(
            client_id=options.client_id,
            connect_timeout_ms=options.connect_timeout_ms,
            request_timeout_ms=options.request_timeout_ms,
        )
        self._metadata = _Metadata()
        self._connections: dict[tuple[str, int, Role], asyncio.Task[Connection]] = {}
        self._coordinators: dict[tuple[CoordinatorType, str], int] = {}
        self._closed = False

    @property
    def brokers(self) -> Mapping[int, Broker]:
        """The brokers of the last metadata, by node id."""
        return self._metadata.brokers

    @property
    def cluster_id(self) -> str | None:
        """The id in the last metadata, None before the first."""
        return self._metadata.cluster_id

    @property
    def controller_id(self) -> int:
        """The node that takes administrative changes, -1 while unknown."""
        return self._metadata.controller_id

    async def close(self) -> None:
        """Close every connection; calls under way fail."""
        self._closed = True
        tasks, self._connections = list(self._connections.values()), {}
        for task in tasks:
            if task.done() and not task.cancelled() and task.exception() is None:
                task.result().close()
                await task.result().closed()
            else:
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # Connections.

    async def connection(self, node_id: int, role: Role = Role.MAIN) -> Connection:
        """The connection to a broker for a role, opened if need be.

        Raises:
            BrokerUnreachable: no connection, or no such broker is known.
        """
        broker = self._metadata.brokers.get(node_id)
        if broker is None:
            await self.refresh(())
            broker = self._metadata.brokers.get(node_id)
        if broker is None:
            raise BrokerUnreachable(f"broker {node_id} is not part of the cluster at present")
        return await self._open(broker.host, broker.port, role)

    async def any_connection(self) -> Connection:
        """A connection to some broker: one that is open, else a known one, else bootstrap.

        Raises:
            BrokerUnreachable: none of them can be reached; the message lists every attempt.
        """
        for task in self._connections.values():
            if task.done() and not task.cancelled() and task.exception() is None:
                connection = task.result()
                if connection.is_open:
                    return connection
        known = [(broker.host, broker.port) for broker in self._metadata.brokers.values()]
        failures: list[str] = []
        for host, port in dict.fromkeys([*known, *self._bootstrap]):
            try:
                return await self._open(host, port, Role.MAIN)
            except BrokerUnreachable as error:
                failures.append(str(error))
        raise BrokerUnreachable("; ".join(failures), broker=format_address(*self._bootstrap[0]))

    async def _open(self, host: str, port: int, role: Role) -> Connection:
        if self._closed:
            raise BrokerUnreachable("this client is closed")
        key = (host, port, role)
        task = self._connections.get(key)
        if task is not None and task.done() and not _is_usable(task):
            task = None
        if task is None:
            # A task of its own, so that a caller who gives up does not take the others along.
            task = asyncio.create_task(Connection.connect(host, port, self._connection_options))
            self._connections[key] = task
        return await asyncio.shield(task)

    # Metadata.

    async def refresh(self, topics: Iterable[str] | None) -> None:
        """Request brokers and the given topics now; None requests all topics.

        Topics that do not exist leave the cache; they raise no error here.

        Raises:
            BrokerUnreachable: no broker could be reached.
        """
        connection = await self.any_connection()
        names = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(
            topics=names, allow_auto_topic_creation=self.options.create_topics
        )
        # Version 0 cannot request "no topics"; it gets all of them, which does no harm.
        response = await connection.call(request, max_version=_METADATA_VERSION)
        self._take(response, replace=topics is None)

    async def topic(self, name: str) -> TopicInfo:
        """The topic from the cache, requested again if unknown or too old.

        Raises:
            BrokerRefused: the topic does not exist and was not created, or has a bad name.
            InvalidUse: the name is not text that can be sent.
        """
        if type(name) is not str or not name:
            check_text("topic", name)
        known = self._metadata.topics.get(name)
        now = asyncio.get_running_loop().time()
        max_age_s = self.options.metadata_max_age_ms / 1000
        if known is not None and now - self._metadata.heard_at[name] < max_age_s:
            return known
        return await self._topic_asked_for(name)

    async def _topic_asked_for(self, name: str) -> TopicInfo:
        timeout_ms = self.options.timeout_ms
        if not self.options.create_topics:
            return await retrying(
                lambda: self._ask_topic(name),
                timeout_ms=timeout_ms,
                except_for=frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}),
            )
        # Kafka creates it after its first answer, which says that there is no such topic.
        return await retrying(
            lambda: self._ask_topic(name), timeout_ms=min(timeout_ms, _CREATION_TIMEOUT_MS)
        )

    async def topics(self) -> Mapping[str, TopicInfo]:
        """All topics, from a fresh request."""
        await self.retrying(lambda: self.refresh(None))
        return dict(self._metadata.topics)

    def find_topic(self, name: str) -> TopicInfo | None:
        """The topic if it is in the cache, whatever its age."""
        return self._metadata.topics.get(name)

    async def leader(self, partition: TopicPartition) -> int:
        """The node id that leads a partition, from the cache or one request.

        Raises:
            BrokerRefused: the partition does not exist, or has no leader at present.
        """
        topic = await self.topic(partition.topic)
        info = topic.partitions.get(partition.partition)
        if info is None:
            raise BrokerRefused(
                f"{partition} does not exist ({partition.topic} has {len(topic.partitions)} "
                "partitions)",
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            )
        if info.leader == NO_LEADER:
            self.forget_topic(partition.topic)
            raise BrokerRefused(f"{partition} has no leader", ErrorCode.LEADER_NOT_AVAILABLE)
        return info.leader

    async def by_leader(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[int, list[TopicPartition]]:
        """The partitions grouped by the node that leads them.

        Raises:
            BrokerRefused: as `leader`.
        """
        groups: dict[int, list[TopicPartition]] = {}
        for partition in partitions:
            groups.setdefault(await self.leader(partition), []).append(partition)
        return groups

    def forget_topic(self, name: str) -> None:
        """The cached leaders of a topic proved wrong; they are requested before the next use."""
        self._metadata.heard_at[name] = float("-inf")

    async def _ask_topic(self, name: str) -> TopicInfo:
        connection = await self.any_connection()
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name)],
            allow_auto_topic_creation=self.options.create_topics,
        )
        response = await connection.call(request, max_version=_METADATA_VERSION)
        self._take(response, replace=False)
        for topic in response.topics:
            if topic.name == name and topic.error_code != ErrorCode.NONE:
                raise BrokerRefused(f"topic {name}", topic.error_code, broker=connection.address)
        return self._metadata.topics[name]

    def _take(self, response: MetadataResponse, *, replace: bool) -> None:
        metadata = self._metadata
        if response.brokers:
            metadata.brokers = {
                broker.node_id: Broker(
                    node_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack
                )
                for broker in response.brokers
            }
        metadata.cluster_id = response.cluster_id
        metadata.controller_id = response.controller_id
        if replace:
            metadata.topics.clear()
            metadata.heard_at.clear()
        now = asyncio.get_running_loop().time()
        for topic in response.topics:
            name = topic.name or ""
            if topic.error_code == ErrorCode.NONE:
                metadata.topics[name] = _topic_info(name, topic)
                metadata.heard_at[name] = now
            elif topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                metadata.topics.pop(name, None)
                metadata.heard_at.pop(name, None)

    # Coordinators.

    async def coordinator(self, kind: CoordinatorType, key: str) -> int:
        """The node id that coordinates a group or a transactional id; cached.

        Raises:
            BrokerRefused: the broker does not know yet; retriable.
        """
        known = self._coordinators.get((kind, key))
        if known is not None:
            return known
        connection = await self.any_connection()
        request = FindCoordinatorRequest(key=key, key_type=kind.value, coordinator_keys=[key])
        response = await connection.call(
            request, min_version=1 if kind is CoordinatorType.TRANSACTION else 0, max_version=5
        )
        answer = response.coordinators[0] if response.coordinators else response
        if answer.error_code != ErrorCode.NONE:
            raise BrokerRefused(
                f"looking for the coordinator of {kind.name.lower()} {key}",
                answer.error_code,
                broker=connection.address,
                detail=answer.error_message,
            )
        self._metadata.brokers.setdefault(
            answer.node_id, Broker(node_id=answer.node_id, host=answer.host, port=answer.port)
        )
        self._coordinators[kind, key] = answer.node_id
        return int(answer.node_id)

    def forget_coordinator(self, kind: CoordinatorType, key: str) -> None:
        """The cached coordinator proved wrong; it is looked for before the next use."""
        self._coordinators.pop((kind, key), None)

    async def call_coordinator(
        self,
        kind: CoordinatorType,
        key: str,
        request: Any,
        *,
        role: Role = Role.GROUP,
        max_version: int | None = None,
        min_version: int = 0,
        timeout_ms: int | None = None,
    ) -> tuple[Any, str]:
        """One request to the coordinator of `key`: its answer, and its address for messages.

        Versions and timeout are those of `Connection.call`. A lost connection drops the cached
        coordinator. A request that waits for others (joining a group) takes a `role` of its own,
        because answers come in order.
        """
        node_id = await self.coordinator(kind, key)
        try:
            connection = await self.connection(node_id, role)
            response = await connection.call(
                request, max_version=max_version, min_version=min_version, timeout_ms=timeout_ms
            )
        except BrokerUnreachable:
            self.forget_coordinator(kind, key)
            raise
        return response, connection.address

    async def call_controller(
        self, request: Any, *, max_version: int | None = None, min_version: int = 0
    ) -> tuple[Any, str]:
        """One request to the controller: its answer, and its address for messages."""
        if self._metadata.controller_id not in self._metadata.brokers:
            await self.refresh(())
        connection = (
            await self.connection(self._metadata.controller_id)
            if self._metadata.controller_id in self._metadata.brokers
            else await self.any_connection()
        )
        response = await connection.call(request, max_version=max_version, min_version=min_version)
        return response, connection.address

    # Retries.

    async def retrying(
        self,
        attempt: Callable[[], Awaitable[_T]],
        on_failure: Callable[[ClientError], None] | None = None,
    ) -> _T:
        """The result of the first attempt that succeeds within the client's timeout."""
        return await retrying(attempt, timeout_ms=self.options.timeout_ms, on_failure=on_failure)


def parse_bootstrap(bootstrap: str | Iterable[str]) -> list[tuple[str, int]]:
    """(host, port) pairs of ``host[:port]`` texts, which may also be one text with commas.

    Raises:
        InvalidType: neither a text nor texts.
        InvalidUse: no address given, or an invalid port.
    """
    given: object = bootstrap
    if isinstance(given, str):
        texts: list[object] = [*given.split(",")]
    else:
        texts = list(given) if isinstance(given, Iterable) else [given]
    names = [text for text in texts if isinstance(text, str)]
    if len(names) < len(texts):
        raise InvalidType(f"bootstrap={bootstrap!r} is no broker address: write 'host:port'")
    addresses = [_parse_address(text.strip()) for text in names if text.strip()]
    if not addresses:
        raise InvalidUse("no broker address given: write host:port")
    return addresses


def _parse_address(text: str) -> tuple[str, int]:
    _, _, text = text.rpartition("://")
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        port = rest.removeprefix(":")
    elif text.count(":") > 1:
        host, port = text, ""
    else:
        host, _, port = text.partition(":")
    if not port:
        return host or "127.0.0.1", DEFAULT_PORT
    if not port.isdigit() or not 0 < int(port) < 65_536:
        raise InvalidUse(f"'{text}' is no broker address: write host:port with a port below 65536")
    return host or "127.0.0.1", int(port)


def _is_usable(task: "asyncio.Task[Connection]") -> bool:
    if task.cancelled() or task.exception() is not None:
        return False
    return task.result().is_open


def _topic_info(name: str, topic: MetadataResponseTopic) -> TopicInfo:
    return TopicInfo(
        name=name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions={
            partition.partition_index: PartitionInfo(
                partition=partition.partition_index,
                leader=partition.leader_id,
                leader_epoch=partition.leader_epoch,
                replicas=tuple(partition.replica_nodes),
                in_sync=tuple(partition.isr_nodes),
            )
            for partition in sorted(topic.partitions, key=lambda p: p.partition_index)
        },
    )
