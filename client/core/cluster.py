"""The cluster as one client sees it: brokers, leaders, coordinators, and connections to them.

Owns the metadata cache and decides which connection serves a request: at most one per broker and
role, so that a fetch that waits for data never delays a produce or a heartbeat. It finds the broker
that serves a partition or a key, and drops cache entries that proved wrong. Its callers decide what
to request.

Invariant: no cache entry is trusted for ever. Metadata is requested again when it is older than
`metadata_max_age_ms` and whenever a caller reports that a leader or coordinator was wrong.

Source: Kafka ``Metadata``, ``NetworkClient``.
"""

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any, Protocol, TypeVar

from client.checks import check_text
from client.core.connection import Connection
from client.core.options import ClusterOptions
from client.core.parts import check
from client.core.retry import Clock, retrying
from client.errors import (
    AddressUnusable,
    BrokerRefused,
    BrokerUnreachable,
    ClientError,
    Denied,
    InvalidUse,
    NameUnknown,
)
from client.types import Broker, PartitionInfo, TopicInfo, TopicPartition, format_address
from protocol.api.find_coordinator import FindCoordinatorRequest
from protocol.api.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from protocol.error_codes import ErrorCode
from values.words import format_count

logger = logging.getLogger("tidelog.client.core.cluster")

_T = TypeVar("_T")

NO_LEADER = -1

_CREATION_TIMEOUT_MS = 5000

# Version 12 is the last in which a request can name a topic without its id.
_METADATA_VERSION = 12

_NO_TOPIC = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)

UNKNOWN_NAME_S = 10.0
"""How long an advertised name may be unknown: a broker that has just started can be known to its
service's name some seconds before the servers of names tell its own."""

ASK_AGAIN_S = 0.1
"""The least time between two questions about a topic, or a partition of it, that is not there; as
Kafka's ``retry.backoff.ms``."""

_ANSWER_WAIT_S = 0.01
_VAIN_MAX = 1000


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


class Pool(Clock, Protocol):
    """What a cluster waits for: connections, and time. One for event loops, one for threads."""

    async def open(self, host: str, port: int, role: Role) -> Connection:
        """The connection to an address for a role, opened if need be; raises ClientError."""

    def find_open(self) -> Connection | None:
        """A connection for requests that any broker answers, if one is open."""

    async def close(self) -> None:
        """Close every connection; calls under way fail."""


@dataclass(slots=True)
class _Metadata:
    """The cache, with the time of each topic's last answer (the pool's, seconds)."""

    brokers: dict[int, Broker] = field(default_factory=dict)
    topics: dict[str, TopicInfo] = field(default_factory=dict)
    heard_at: dict[str, float] = field(default_factory=dict)
    controller_id: int = -1
    cluster_id: str | None = None


@dataclass(slots=True)
class _VainQuestion:
    """The latest question about a topic whose answer lacked what was looked for."""

    asked_at: float
    is_answered: bool = False


class Cluster:
    """Shared by the parts of one client; `close` ends it."""

    def __init__(self, options: ClusterOptions, pool: Pool) -> None:
        """Keep the options; no connection is opened before the first call."""
        self.options = options
        self._pool = pool
        self._metadata = _Metadata()
        self._coordinators: dict[tuple[CoordinatorType, str], int] = {}
        self._vain: dict[str, _VainQuestion] = {}
        self._is_closed = False
        self._is_met = False  # Whether a broker was reached by the address that it advertises.
        self._warned: set[str | None] = set()
        self._unnamed: dict[str, float] = {}  # Advertised hosts not known here, and since when.

    @property
    def clock(self) -> Clock:
        """The time that this client waits by."""
        return self._pool

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

    def check_unused(self, owner: str, *, is_started: bool) -> None:
        """Check that `owner`, a client that starts once, may start.

        Raises:
            InvalidUse: it is started, or closed, as it also is after a start that failed.
        """
        if self._is_closed:
            raise InvalidUse(f"this {owner} is closed: make another one")
        if is_started:
            raise InvalidUse(f"this {owner} is started already: a {owner} starts once")

    async def close(self) -> None:
        """Close every connection; calls under way fail."""
        self._is_closed = True
        await self._pool.close()

    # Connections.

    async def connection(self, node_id: int, role: Role = Role.MAIN) -> Connection:
        """The connection to a broker for a role, opened if need be.

        Raises:
            BrokerUnreachable: no connection, or no such broker is known.
            AddressUnusable: this machine knows none of the names that the brokers advertise.
        """
        broker = self._metadata.brokers.get(node_id)
        if broker is None:
            await self.refresh(())
            broker = self._metadata.brokers.get(node_id)
        if broker is None:
            raise BrokerUnreachable(f"broker {node_id} is not part of the cluster at present")
        try:
            connection = await self._pool.open(broker.host, broker.port, role)
        except NameUnknown as error:
            self._warn(broker, error)
            raise await self._judge_name(broker) from None
        except BrokerUnreachable as error:
            self._warn(broker, error)
            self._unnamed.pop(broker.host, None)
            raise
        self._is_met = True
        return connection

    def _warn(self, broker: Broker, error: BrokerUnreachable) -> None:
        """Note, once for each address, that a broker is not reached by it; until one was."""
        if self._is_met or error.broker is None or error.broker in self._warned:
            return
        self._warned.add(error.broker)
        logger.warning(
            "broker %d is not reached by the address that it advertises (advertised.listeners); "
            "trying again: %s",
            broker.node_id,
            error,
        )

    async def _judge_name(self, broker: Broker) -> ClientError:
        """The error for an advertised name that is not known here: whether another try may help.

        It may once a broker was reached by its address, while the name is new, and while the
        cluster advertises another that is known.
        """
        since = self._unnamed.setdefault(broker.host, self._pool.now())
        is_new = self._pool.now() < since + UNKNOWN_NAME_S
        may_help = self._is_met or is_new or await self._knows_others(broker)
        # Asked for again before the next try: it may be another by then.
        self._metadata.brokers.pop(broker.node_id, None)
        address = format_address(broker.host, broker.port)
        return (NameUnknown if may_help else AddressUnusable)(
            f"the cluster gives broker {broker.node_id} the address {address}, and this machine "
            f"does not know the name {broker.host}: let the broker advertise an address that its "
            "clients reach (advertised.listeners), or make the name known here",
            broker=address,
        )

    async def _knows_others(self, broker: Broker) -> bool:
        """Whether this machine knows the host name of another broker of the cluster."""
        others = [each for each in self._metadata.brokers.values() if each != broker]
        for other in others:
            try:
                await self._pool.open(other.host, other.port, Role.MAIN)
            except NameUnknown:
                continue
            except ClientError:
                return True
            self._is_met = True
            return True
        return False

    async def any_connection(self) -> Connection:
        """A connection to some broker: one that is open, else a known one, else bootstrap.

        Raises:
            BrokerUnreachable: none of them can be reached; the message lists every attempt.
        """
        if (connection := self._pool.find_open()) is not None:
            return connection
        known = [(broker.host, broker.port) for broker in self._metadata.brokers.values()]
        failures: list[str] = []
        for host, port in dict.fromkeys([*known, *self.options.bootstrap]):
            try:
                return await self._pool.open(host, port, Role.MAIN)
            except BrokerUnreachable as error:
                failures.append(str(error))
        first = format_address(*self.options.bootstrap[0])
        raise BrokerUnreachable("; ".join(failures), broker=first)

    # Metadata.

    async def refresh(self, topics: Iterable[str] | None) -> None:
        """Request brokers and the given topics now; None requests all topics.

        Topics that do not exist leave the cache; they raise no error here.

        Raises:
            BrokerUnreachable: no broker could be reached.
        """
        await self._request_metadata(topics)

    def denied(self, operation: str, topic: str) -> Denied:
        """The right of this client's user to `operation` on a topic, for messages."""
        security = self.options.security
        return Denied(
            user=security.username, proof=security.proof, operation=operation, topic=topic
        )

    async def find_topics(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        """Those of the topics that exist now, from one request.

        Raises:
            BrokerRefused: a topic cannot be described: it is denied, or its name is not allowed.
            BrokerUnreachable: no broker could be reached.
        """
        response, address = await self._request_metadata(names)
        for topic in response.topics:
            if topic.error_code not in (ErrorCode.NONE, *_NO_TOPIC):
                raise BrokerRefused(
                    f"topic {topic.name}",
                    topic.error_code,
                    broker=address,
                    denied=self.denied("DESCRIBE", topic.name),
                )
        found = [topic.name for topic in response.topics if topic.error_code == ErrorCode.NONE]
        return {name: self._metadata.topics[name] for name in found}

    async def topic_names(self, topic_ids: Collection[bytes]) -> dict[bytes, str]:
        """The names of topics, by id; those that are not in the cache from one request.

        Topics that do not exist, or are denied, are left out.

        Raises:
            BrokerUnreachable: no broker could be reached.
            UnsupportedByBroker: the broker knows no ids.
        """
        names = {info.topic_id: name for name, info in self._metadata.topics.items()}
        unknown = [topic_id for topic_id in topic_ids if topic_id not in names]
        if unknown:
            wanted = [MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in unknown]
            response, _ = await self._request_metadata(wanted, min_version=_METADATA_VERSION)
            for topic in response.topics:
                if topic.error_code == ErrorCode.NONE:
                    names[bytes(topic.topic_id)] = topic.name
        return {topic_id: names[topic_id] for topic_id in topic_ids if topic_id in names}

    async def _request_metadata(
        self, wanted: Iterable[str | MetadataRequestTopic] | None, *, min_version: int = 0
    ) -> tuple[Any, str]:
        """The answer, after the cache has taken it, and the broker's address."""
        connection = await self.any_connection()
        request = MetadataRequest(
            topics=None if wanted is None else [_requested(topic) for topic in wanted],
            allow_auto_topic_creation=self.options.create_topics,
        )
        # Version 0 cannot request "no topics"; it gets all of them, which does no harm.
        response = await connection.call(
            request, max_version=_METADATA_VERSION, min_version=min_version
        )
        self._take(response, replace=wanted is None)
        return response, connection.address

    async def topic(self, name: str, *, is_patient: bool = True) -> TopicInfo:
        """The topic from the cache, requested again if unknown or too old.

        The request is repeated until the client's timeout, or made once if not `is_patient`.

        Raises:
            BrokerRefused: the topic does not exist and was not created, or has a bad name.
            InvalidUse: the name is not text that can be sent.
        """
        if type(name) is not str or not name:
            check_text("topic", name)
        known = self._metadata.topics.get(name)
        max_age_s = self.options.metadata_max_age_ms / 1000
        if known is not None and self._pool.now() - self._metadata.heard_at[name] < max_age_s:
            return known
        return await self._ask(name, is_patient=is_patient)

    async def topic_with(self, name: str, partition: int, *, is_patient: bool = True) -> TopicInfo:
        """The topic; requested again if it lacks this partition, which may have been added.

        Raises:
            BrokerRefused, InvalidUse: as `topic`.
        """
        topic = await self.topic(name, is_patient=is_patient)
        if partition in topic.partitions:
            return topic
        return await self._ask(name, partition, is_patient=is_patient)

    async def _ask(self, name: str, partition: int | None = None, *, is_patient: bool) -> TopicInfo:
        # Kafka creates it after its first answer, which says that there is no such topic.
        timeout_ms = self.options.timeout_ms if is_patient else 0
        if self.options.create_topics:
            timeout_ms = min(timeout_ms, _CREATION_TIMEOUT_MS)
        ask = partial(self._ask_topic, name, partition)
        return await retrying(self._pool, ask, timeout_ms=timeout_ms)

    async def _ask_topic(self, name: str, partition: int | None) -> TopicInfo:
        """The topic from an answer to a question put from now on.

        If the latest answer lacked what was looked for, the next question waits for a pause, and
        all callers that come meanwhile share it.
        """
        came_at = self._pool.now()
        while (vain := self._vain.get(name)) is not None:
            if vain.asked_at > came_at:
                if vain.is_answered:
                    return self._known(name)
                await self._pool.sleep(_ANSWER_WAIT_S)
            elif (pause_s := vain.asked_at + ASK_AGAIN_S - self._pool.now()) > 0:
                await self._pool.sleep(pause_s)
            else:
                break
        if self._metadata.heard_at.get(name, came_at) > came_at:
            return self._metadata.topics[name]
        asked_at = self._pool.now()
        if vain is not None:
            self._vain[name] = _VainQuestion(asked_at)
        try:
            topic = (await self.find_topics((name,))).get(name)
        finally:
            self._vain.pop(name, None)
        if topic is None or (partition is not None and partition not in topic.partitions):
            self._note_vain(name, asked_at)
        return self._known(name)

    def _note_vain(self, name: str, asked_at: float) -> None:
        """The answer to the question of this time lacked what was looked for."""
        if len(self._vain) >= _VAIN_MAX:
            self._vain.clear()
        self._vain[name] = _VainQuestion(asked_at, is_answered=True)

    def _known(self, name: str) -> TopicInfo:
        """The topic from the cache, where the latest answer has put it if it exists."""
        topic = self._metadata.topics.get(name)
        if topic is None:
            raise self._missing(f"topic {name}")
        return topic

    def _missing(self, what: str) -> BrokerRefused:
        """The error for what current metadata does not name."""
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return BrokerRefused(what, code, is_final=not self.options.create_topics)

    async def topics(self) -> Mapping[str, TopicInfo]:
        """All topics, from a fresh request."""
        await self.retrying(lambda: self.refresh(None))
        return dict(self._metadata.topics)

    def find_topic(self, name: str, partition: int | None = None) -> TopicInfo | None:
        """The topic if it is in the cache, with this partition if one is named; of any age."""
        known = self._metadata.topics.get(name)
        if known is None or type(partition) is not int or partition in known.partitions:
            return known
        return None

    async def leader(self, partition: TopicPartition, *, is_patient: bool = True) -> int:
        """The node id that leads a partition, from the cache or as `topic`.

        Raises:
            BrokerRefused: the partition does not exist, or has no leader at present.
        """
        topic = await self.topic_with(*partition, is_patient=is_patient)
        info = topic.partitions.get(partition.partition)
        if info is None:
            count = format_count(len(topic.partitions), "partition")
            raise self._missing(f"{partition} does not exist ({partition.topic} has {count})")
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
        now = self._pool.now()
        for topic in response.topics:
            name = topic.name or ""
            if topic.error_code == ErrorCode.NONE:
                metadata.topics[name] = _topic_info(name, topic)
                metadata.heard_at[name] = now
            elif topic.error_code in _NO_TOPIC:
                metadata.topics.pop(name, None)
                metadata.heard_at.pop(name, None)

    # Coordinators.

    async def coordinator(self, kind: CoordinatorType, key: str) -> int:
        """The node id that coordinates a group or a transactional id; cached.

        Raises:
            BrokerRefused: the broker does not know yet; retriable.
            InvalidUse: `key` is no text that a request can hold.
        """
        known = self._coordinators.get((kind, key))
        if known is not None:
            return known
        if key != "":  # Kafka has a group of that name, for offsets alone.
            check_text(
                "transactional_id" if kind is CoordinatorType.TRANSACTION else "group_id", key
            )
        connection = await self.any_connection()
        request = FindCoordinatorRequest(key=key, key_type=kind.value, coordinator_keys=[key])
        response = await connection.call(
            request, min_version=1 if kind is CoordinatorType.TRANSACTION else 0, max_version=5
        )
        answer = response.coordinators[0] if response.coordinators else response
        what = f"looking for the coordinator of {kind.name.lower()} {key}"
        check(what, answer, connection.address)
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

    async def ask_group(
        self,
        group_id: str,
        request: Any,
        judge: Callable[[Any, str], _T],
        versions: tuple[int, int | None] = (0, None),
    ) -> _T:
        """What `judge` makes of the coordinator's answer and its address; retried until it can.

        `versions` are the lowest and the highest one. Raises what `judge` raises.
        """
        kind, (lowest, highest) = CoordinatorType.GROUP, versions

        async def attempt() -> _T:
            answer, address = await self.call_coordinator(
                kind, group_id, request, min_version=lowest, max_version=highest
            )
            return judge(answer, address)

        return await self.retrying_at_coordinator(kind, group_id, attempt)

    async def call_controller(self, request: Any, *, min_version: int = 0) -> tuple[Any, str]:
        """One request to the controller: its answer, and its address for messages."""
        if self._metadata.controller_id not in self._metadata.brokers:
            await self.refresh(())
        connection = (
            await self.connection(self._metadata.controller_id)
            if self._metadata.controller_id in self._metadata.brokers
            else await self.any_connection()
        )
        response = await connection.call(request, min_version=min_version)
        return response, connection.address

    # Retries.

    async def retrying(
        self,
        attempt: Callable[[], Awaitable[_T]],
        on_failure: Callable[[ClientError], None] | None = None,
    ) -> _T:
        """The result of the first attempt that succeeds within the client's timeout."""
        timeout_ms = self.options.timeout_ms
        return await retrying(self._pool, attempt, timeout_ms=timeout_ms, on_failure=on_failure)

    async def retrying_at_leaders(
        self, partitions: Iterable[TopicPartition], attempt: Callable[[], Awaitable[_T]]
    ) -> _T:
        """As `retrying`; each failure drops the cached leaders of `partitions`."""

        def drop_leaders(_: ClientError) -> None:
            for partition in partitions:
                self.forget_topic(partition.topic)

        return await self.retrying(attempt, drop_leaders)

    async def retrying_at_coordinator(
        self, kind: CoordinatorType, key: str, attempt: Callable[[], Awaitable[_T]]
    ) -> _T:
        """As `retrying`; each failure drops the cached coordinator of `key`."""
        return await self.retrying(attempt, lambda _: self.forget_coordinator(kind, key))


def _requested(topic: str | MetadataRequestTopic) -> MetadataRequestTopic:
    return MetadataRequestTopic(name=topic) if isinstance(topic, str) else topic


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
