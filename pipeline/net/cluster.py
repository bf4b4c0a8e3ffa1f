"""The cluster as the planner and the tasks see it: leaders, offsets, coordinators, fetches.

Owns the connections of one thread, the metadata, and the retries: while an error is transient, a
request is sent again, to the leader that newer metadata names. It does not decide which offsets to
read; `offsets` does.

Invariant: an answer comes from a broker that considered itself the leader. A partition without an
answer after all retries is an error that names it, never a silent gap.

Source: Kafka `Metadata`, `NetworkClient`, `Fetcher`. Read next: `offsets`, `source`.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self, TypeVar

from pipeline.errors import BadOptions, BrokerRefused, BrokerUnreachable
from pipeline.net.wire import Connection
from pipeline.options.options import ConnectionOptions, TopicChoice, TopicPartition
from protocol.api.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from protocol.api.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.api.find_coordinator import FindCoordinatorRequest
from protocol.api.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.api.metadata import MetadataRequest, MetadataRequestTopic
from protocol.error_codes import ErrorCode

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3

_T = TypeVar("_T")
_ATTEMPTS: Final = 8
_BACKOFF_S: Final = (0.05, 0.1, 0.2, 0.4, 0.8, 1.5, 3.0)
_RETRIED: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)


_UNKNOWN_TOPIC: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicInfo:
    """A topic as metadata describes it: its id (16 bytes, zero if unknown) and leaders."""

    name: str
    topic_id: bytes
    is_internal: bool
    leaders: Mapping[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundOffset:
    """The answer of ListOffsets; both are -1 where no record matched."""

    offset: int
    timestamp: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """One partition's share of a fetch answer. `records` is borrowed from the frame."""

    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[tuple[int, int], ...]
    records: memoryview


class Cluster:
    """Connections to the brokers of one cluster. Belongs to one thread; close it after use."""

    def __init__(self, options: ConnectionOptions) -> None:
        """Prepare without connecting."""
        self.options = options
        self.cluster_id = ""
        self._addresses: dict[int, tuple[str, int]] = {}
        self._connections: dict[tuple[str, int], Connection] = {}
        self._topics: dict[str, TopicInfo] = {}

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close all connections."""
        self.close()

    def close(self) -> None:
        """Close all connections; may be called again."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # --- leaders -----------------------------------------------------------------------------

    def topics(self, names: Iterable[str] | None) -> dict[str, TopicInfo]:
        """The current metadata of `names`, or of all topics for None; without unknown topics.

        Raises:
            BrokerUnreachable: no bootstrap address answered.
            BrokerRefused: a topic in `names` is denied.
        """
        wanted = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)

        def ask() -> Any:
            answer = self._any_connection().call(request, 12, 1)
            for topic in answer.topics if wanted is not None else ():
                if topic.error_code not in _UNKNOWN_TOPIC:
                    check(topic.error_code, f"topic {topic.name}")
            return answer

        answer = self._retrying(ask)
        self.cluster_id = answer.cluster_id or ""
        self._addresses = {node.node_id: (node.host, node.port) for node in answer.brokers}
        found = {}
        for topic in answer.topics:
            if topic.error_code or topic.name is None:
                continue
            found[topic.name] = TopicInfo(
                name=topic.name,
                topic_id=bytes(topic.topic_id),
                is_internal=topic.is_internal,
                leaders={part.partition_index: part.leader_id for part in topic.partitions},
            )
        self._topics.update(found)
        return found

    def partitions(self, choice: TopicChoice) -> list[TopicPartition]:
        """The partitions that `choice` names and that exist, sorted.

        Raises:
            BrokerRefused: a topic or partition named outright does not exist.
        """
        if choice.pattern:
            known = self.topics(None)
            pattern = re.compile(choice.pattern)
            chosen = [
                info for info in known.values()
                if pattern.search(info.name) and not info.is_internal
            ]  # fmt: skip
            return sorted((info.name, index) for info in chosen for index in info.leaders)
        names = choice.names or sorted({topic for topic, _ in choice.assigned})
        known = self.topics(names)
        if missing := [name for name in names if name not in known]:
            raise BrokerRefused(
                f"topic {', '.join(missing)} does not exist at {self._where()}: create it, or "
                "correct the option subscribe or assign",
                int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            )
        everything = sorted((name, index) for name in names for index in known[name].leaders)
        if not choice.assigned:
            return everything
        if absent := sorted(choice.assigned - set(everything)):
            raise BrokerRefused(
                f"{', '.join(f'{topic}-{index}' for topic, index in absent)} does not exist at "
                f"{self._where()}: correct the option assign",
                int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            )
        return sorted(choice.assigned)

    def count_partitions(self, topic: str) -> int:
        """How many partitions a topic has, by the metadata last seen.

        Raises:
            BrokerRefused: the topic does not exist.
        """
        info = self._topics.get(topic) or self.topics([topic]).get(topic)
        if info is None:
            raise BrokerRefused(
                f"topic {topic} does not exist at {self._where()}: create it before writing to it",
                int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            )
        return len(info.leaders)

    def check_partition(self, topic: str, partition: int) -> None:
        """Whether a row's partition is one of its topic's.

        Raises:
            BadOptions: it is not.
            BrokerRefused: the topic does not exist.
        """
        if not 0 <= partition < self.count_partitions(topic):
            # It may have been made since.
            self._topics.pop(topic, None)
            count = self.count_partitions(topic)
            if not 0 <= partition < count:
                raise BadOptions(
                    [
                        f"column partition={partition}: topic {topic} has {count} partitions, so 0 "
                        f"to {count - 1} are allowed: add partitions to the topic, or change the "
                        "column; where it is null or left out the key decides"
                    ]
                )

    def topic_id(self, topic: str) -> str:
        """The id of a topic already looked up, as hexadecimal text."""
        info = self._topics.get(topic) or self.topics([topic]).get(topic)
        return info.topic_id.hex() if info else ""

    def leader(self, partition: TopicPartition) -> Connection:
        """A connection to the leader of `partition`, by the metadata last seen.

        Raises:
            BrokerUnreachable: the partition has no leader, or it does not answer.
        """
        topic, index = partition
        info = self._topics.get(topic) or self.topics([topic]).get(topic)
        node = info.leaders.get(index, -1) if info else -1
        if node not in self._addresses:
            self._topics.pop(topic, None)
            raise BrokerUnreachable(f"{topic}-{index} has no leader at {self._where()}")
        return self._connection(self._addresses[node])

    def coordinator(self, key: str, kind: int) -> Connection:
        """The coordinator of a group (`kind` 0) or of a transactional id (1)."""

        def ask() -> tuple[str, int]:
            answer = self._any_connection().call(
                FindCoordinatorRequest(key=key, key_type=kind), 3, 1
            )
            check(answer.error_code, f"the coordinator of {key}")
            return answer.host, answer.port

        return self._connection(self._retrying(ask))

    # --- offsets -----------------------------------------------------------------------------

    def list_offsets(
        self, questions: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> dict[TopicPartition, FoundOffset]:
        """For each partition the offset at a time (ms) or place (LATEST, EARLIEST, ...).

        Raises:
            BrokerRefused: a partition answers with an error that does not pass.
            BrokerUnreachable: no answer after all retries.
        """
        answers: dict[TopicPartition, FoundOffset] = {}

        def ask() -> dict[TopicPartition, FoundOffset]:
            left = {tp: when for tp, when in questions.items() if tp not in answers}
            for connection, asked in self._by_leader(left).items():
                request = ListOffsetsRequest(
                    replica_id=-1,
                    isolation_level=int(read_committed),
                    topics=[
                        ListOffsetsTopic(
                            name=topic,
                            partitions=[
                                ListOffsetsPartition(partition_index=index, timestamp=left[topic, index])  # noqa: E501
                                for index in indexes
                            ],
                        )
                        for topic, indexes in asked.items()
                    ],
                )  # fmt: skip
                lowest = 7 if MAX_TIMESTAMP in left.values() else 1
                for topic in connection.call(request, 8, lowest).topics:
                    for part in topic.partitions:
                        where = f"{topic.name}-{part.partition_index}"
                        check(part.error_code, where)
                        answers[topic.name, part.partition_index] = FoundOffset(
                            offset=part.offset, timestamp=part.timestamp
                        )
            return answers

        return self._retrying(ask) if questions else {}

    def sizes(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Bytes of `partitions` as far as brokers report them; empty where they refuse."""
        by_topic: dict[str, list[int]] = defaultdict(list)
        for topic, index in sorted(set(partitions)):
            by_topic[topic].append(index)
        request = DescribeLogDirsRequest(
            topics=[
                DescribableLogDirTopic(topic=topic, partitions=indexes)
                for topic, indexes in by_topic.items()
            ]
        )
        found: dict[TopicPartition, int] = {}
        for address in list(self._addresses.values()):
            try:
                answer = self._connection(address).call(request, 4)
            except (BrokerUnreachable, BrokerRefused):
                continue
            for directory in answer.results:
                for described in directory.topics:
                    for part in described.partitions:
                        key = (described.name, part.partition_index)
                        found[key] = max(found.get(key, 0), part.partition_size)
        return found

    # --- records -----------------------------------------------------------------------------

    def send_fetch(
        self,
        partition: TopicPartition,
        offset: int,
        *,
        max_bytes: int,
        max_wait_ms: int,
        read_committed: bool,
    ) -> Connection:
        """Send the leader a fetch from `offset` on; `receive_fetch` reads the answer."""
        connection = self.leader(partition)
        topic, index = partition
        connection.send(
            FetchRequest(
                replica_id=-1,
                max_wait_ms=max_wait_ms,
                min_bytes=1,
                max_bytes=max_bytes,
                isolation_level=int(read_committed),
                topics=[
                    FetchTopic(
                        topic=topic,
                        partitions=[
                            FetchPartition(
                                partition=index, fetch_offset=offset, partition_max_bytes=max_bytes
                            )
                        ],
                    )
                ],
            ),
            12,
            4,
        )
        return connection

    @staticmethod
    def receive_fetch(connection: Connection) -> Fetched | None:
        """The answer to the oldest fetch sent over `connection`; None if it must be sent again.

        A broker with quotas answers without any partition and gives a throttle time; this method
        waits that long.
        """
        answer = connection.receive()
        check(answer.error_code, "the fetch")
        if not answer.responses or not answer.responses[0].partitions:
            time.sleep(max(answer.throttle_time_ms, 1) / 1000)
            return None
        part = answer.responses[0].partitions[0]
        aborted = tuple(
            (entry.producer_id, entry.first_offset) for entry in part.aborted_transactions or ()
        )
        return Fetched(
            error_code=part.error_code,
            high_watermark=part.high_watermark,
            last_stable_offset=part.last_stable_offset,
            log_start_offset=part.log_start_offset,
            aborted=aborted,
            records=memoryview(part.records or b""),
        )

    # --- connections and retries -------------------------------------------------------------

    def forget(self, topic: str) -> None:
        """Look up the leaders of `topic` again, over new connections."""
        self._topics.pop(topic, None)
        self.close()

    def any_connection(self) -> Connection:
        """A connection to whichever broker answers, for questions that any of them can answer."""
        return self._any_connection()

    def retrying(self, ask: Callable[[], _T]) -> _T:
        """The result of `ask`, tried again while its error is transient."""
        return self._retrying(ask)

    def _where(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self.options.bootstrap)

    def _by_leader(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[Connection, dict[str, list[int]]]:
        grouped: dict[Connection, dict[str, list[int]]] = {}
        for topic, index in sorted(partitions):
            connection = self.leader((topic, index))
            by_topic = grouped.setdefault(connection, defaultdict(list))
            by_topic[topic].append(index)
        return grouped

    def _any_connection(self) -> Connection:
        failure: BrokerUnreachable | None = None
        for address in dict.fromkeys((*self._addresses.values(), *self.options.bootstrap)):
            try:
                return self._connection(address)
            except BrokerUnreachable as error:
                failure = error
        assert failure is not None, "options hold at least one address"
        raise failure

    def _connection(self, address: tuple[str, int]) -> Connection:
        known = self._connections.get(address)
        if known is None:
            known = self._connections[address] = Connection(*address, self.options)
        return known

    def _retrying(self, ask: Callable[[], _T]) -> _T:
        for attempt in range(_ATTEMPTS):
            try:
                return ask()
            except (BrokerUnreachable, BrokerRefused) as error:
                passes = isinstance(error, BrokerUnreachable) or error.code in _RETRIED
                if not passes or attempt == _ATTEMPTS - 1:
                    raise
                self.close()
                self._topics.clear()
                time.sleep(_BACKOFF_S[min(attempt, len(_BACKOFF_S) - 1)])
        raise AssertionError("the loop returns or raises")


def check(error_code: int, what: str, message: str | None = None) -> None:
    """Accept code 0, refuse any other.

    Raises:
        BrokerRefused: the code is another.
    """
    if error_code:
        name = _name_of(error_code)
        raise BrokerRefused(
            f"{what}: the broker answered {name}{': ' + message if message else ''}", error_code
        )


def _name_of(error_code: int) -> str:
    try:
        return ErrorCode(error_code).name
    except ValueError:
        return f"error {error_code}"


def describe_partitions(partitions: Iterable[Any]) -> str:
    """`a-0, a-1` for the first ten of `partitions`, and how many more there are."""
    names = [f"{topic}-{index}" for topic, index in sorted(partitions)]
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return ", ".join(names[:10]) + more
