"""The topics this broker knows: lookup by name and id, the leadership check, every change.

`TopicRegistry` connects the handlers and `storage.directory.data_dir`. It finds a log in one
dictionary lookup, and holds the rules for names and counts of topics. It alone decides whether this
broker leads a partition. Files, ids and durability of the changes belong to the data directory.

Readers also find time windows by `find` and `find_by_id` (`broker.topics.windows`); `led_log` and
the changes refuse them.

Invariant: a name and the id of the same topic always resolve to the same `Topic` object, and no
handler keeps a `Log` across a wait without a new lookup.

Source: Kafka's `Topic.validate`, `KafkaApis`, `ReplicaManager.getPartitionOrError`.
"""

from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from broker.clocks.clock import Clock
from broker.errors import (
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidRequest,
    InvalidTopicName,
    LeaderEpochFenced,
    LeaderEpochUnknown,
    NotLeader,
    PolicyViolation,
    ReadOnlyWindow,
    TopicAlreadyExists,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from broker.threads import Pool
from broker.topics.changes import Changes, Result
from broker.topics.peers import Peers
from broker.topics.windows import Windows, WindowTopic
from config import BrokerConfig, ConfigErrors, check_group_overrides, with_dynamic
from config.describe import DescribedSetting, TopicDescriptions
from protocol.topic_names import CHARACTERS, LENGTH_MAX, wrong_characters
from storage.directory.claim import KRAFT_METADATA_TOPIC
from storage.directory.data_dir import DataDir, Topic
from storage.directory.metadata import FIRST_WORKER
from storage.disk.steps import Steps
from storage.errors import StorageFailed
from storage.log.log import Log

if TYPE_CHECKING:  # one process alone follows none, and few topics are read by windows
    from storage.directory.following import FollowingDataDir
    from storage.window.log_window import LogWindow

CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
SHARE_GROUP_STATE = "__share_group_state"
OWN_TOPICS = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE})
"""The topics without which this broker cannot work."""

INTERNAL_TOPICS = OWN_TOPICS | {SHARE_GROUP_STATE}
"""The topics that Kafka calls internal: marked for clients, which may not write to them."""

RESERVED_TOPICS = frozenset({KRAFT_METADATA_TOPIC})
"""Names that no topic may have.

Kafka keeps its metadata log under this one, also in a directory that moves between Kafka and
Tidelog.
"""

NO_TOPIC_ID = bytes(16)
"""The id that means "none" on the wire."""

NO_LEADER_EPOCH = -1
"""The requester does not know the leader epoch and wants no check."""


def check_topic_name(name: str) -> None:
    """Accept `name` as the name of a topic.

    Raises:
        InvalidTopicName: with the name, the allowed form and a cure.
    """
    if not name:
        raise InvalidTopicName(f"Topic name is empty; give it 1 to {LENGTH_MAX} of {CHARACTERS}")
    if name in (".", ".."):
        raise InvalidTopicName(
            f"Topic name {name!r} would be a directory of its own; add at least one other character"
        )
    if len(name) > LENGTH_MAX:
        raise InvalidTopicName(
            f"Topic name {name[:40]!r}... has {len(name)} characters; "
            f"at most {LENGTH_MAX} are allowed, shorten it"
        )
    if wrong := wrong_characters(name):
        raise InvalidTopicName(
            f"Topic name {name[:80]!r} contains {wrong}; allowed are {CHARACTERS}, "
            "replace the others"
        )


def _metric_name(name: str) -> str:
    """The topic's name in systems where . and _ are the same."""
    return name.replace(".", "_")


def is_internal(name: str) -> bool:
    """Whether `name` is one of Kafka's internal topics, no matter what created it."""
    return name in INTERNAL_TOPICS


class TopicRegistry:
    """Lookup and change of topics. Loop thread only; the data directory outlives it.

    Attributes:
        windows: time windows of the topics, found where there is no topic of the name.
        revision: grows with every topic created, deleted or extended; older derived data is stale.
    """

    def __init__(
        self,
        data_dir: DataDir,
        *,
        config: BrokerConfig,
        clock: Clock,
        threads: Pool,
        peers: Peers | None = None,
    ) -> None:
        """Serve the topics of `data_dir`; long changes sync in `threads`.

        With `peers` new partitions are shared with other workers.
        """
        self.peers = peers
        self._next_worker = FIRST_WORKER
        self._threads = threads
        self._data_dir = data_dir
        self._config = config
        self._descriptions: TopicDescriptions | None = None
        self._clock = clock
        self._node_id = data_dir.node_id
        self._by_id: dict[bytes, Topic] = {
            topic.topic_id: topic for topic in data_dir.topics.values()
        }
        self.windows = Windows(data_dir.topics, is_enabled=config.time_windows_enable)
        self._on_deleted: list[Callable[[Topic], Steps[None] | None]] = [
            self.windows.forget_deleted
        ]
        self._changes = Changes()
        self._metric_names = Counter(_metric_name(name) for name in data_dir.topics)
        self.revision = 0
        self._group_overrides = data_dir.metadata.group_overrides()

    async def finish(self) -> None:
        """Return when no change is running."""
        await self._changes.finish()

    @property
    def path(self) -> str:
        """The data directory."""
        return self._data_dir.path

    @property
    def broker_config(self) -> BrokerConfig:
        """The broker's configuration with the settings changed at run time applied."""
        return self._data_dir.broker_config

    def describe(self, overrides: Mapping[str, str]) -> list[DescribedSetting]:
        """Every setting of a topic whose own settings are `overrides`, in the table's order."""
        if self._descriptions is None or self._descriptions.broker is not self.broker_config:
            self._descriptions = TopicDescriptions(self.broker_config)
        return self._descriptions.of(overrides)

    def when_deleted(self, callback: Callable[[Topic], Steps[None] | None]) -> None:
        """Call `callback(topic)` after each deletion of a topic, and run the steps it returns.

        Other changes of topics wait for the steps, so none of that name is created meanwhile.
        """
        self._on_deleted.append(callback)

    def find(self, name: str) -> Topic | None:
        """The topic or window of that name, or None."""
        topic = self._data_dir.topics.get(name)
        return self.windows.find(name) if topic is None else topic

    def has_partition(self, name: str, partition: int) -> bool:
        """Whether the topic exists, and not as a window, and has this partition."""
        topic = self._data_dir.topics.get(name)
        return topic is not None and 0 <= partition < len(topic.partitions)

    def find_by_id(self, topic_id: bytes) -> Topic | None:
        """The topic or window with that id, or None."""
        topic = self._by_id.get(topic_id)
        return self.windows.find_by_id(topic_id) if topic is None else topic

    def get_by_id(self, topic_id: bytes) -> Topic:
        """The topic or window with that id.

        Raises:
            UnknownTopicId: there is none.
        """
        topic = self.find_by_id(topic_id)
        if topic is None:
            raise UnknownTopicId(topic_id)
        return topic

    def __iter__(self) -> Iterator[Topic]:
        """All topics, internal ones included, in no particular order."""
        return iter(list(self._data_dir.topics.values()))

    def logs(self) -> Iterator[Log]:
        """Every partition that is kept here."""
        for topic in self:
            yield from topic.logs

    def node_id_of(self, worker: int) -> int:
        """The node id of a worker; the ids follow each other."""
        return self._node_id + worker - self._data_dir.worker

    def check_asked(self, name: str) -> None:
        """Whether there can be a topic or window of that name.

        Raises:
            InvalidTopicName: there cannot.
        """
        check_topic_name(name)
        self.windows.check_form(name)

    def leader_id(self, topic: Topic, partition: int) -> int:
        """The node that leads the partition."""
        return self.node_id_of(topic.workers[partition] if topic.workers else FIRST_WORKER)

    def leader_epoch(self, topic: Topic, partition: int) -> int:
        """The leader epoch of the partition, as far as it is known here."""
        log = topic.partitions[partition]
        if log is not None:
            return log.leader_epoch
        assert self.peers is not None, "only worker 1 answers for others"
        kept = topic.source if isinstance(topic, WindowTopic) else topic
        return self.peers.leader_epoch(kept.topic_id, partition)

    def worker_of_node(self, node_id: int) -> int | None:
        """The worker with this node id, or None."""
        worker = node_id - self.node_id_of(FIRST_WORKER) + FIRST_WORKER
        count = FIRST_WORKER if self.peers is None else self.peers.count
        return worker if FIRST_WORKER <= worker <= count else None

    def assigned_workers(self, assignments: Sequence[Sequence[int]]) -> tuple[int, ...]:
        """The worker of each partition, given the broker ids that it is assigned to.

        Raises:
            InvalidReplicaAssignment: a partition is not assigned to exactly one of our workers.
        """
        workers = []
        for number, broker_ids in enumerate(assignments):
            worker = self.worker_of_node(broker_ids[0]) if len(broker_ids) == 1 else None
            if worker is None:
                count = FIRST_WORKER if self.peers is None else self.peers.count
                known = ", ".join(str(self.node_id_of(one)) for one in range(1, count + 1))
                raise InvalidReplicaAssignment(
                    f"Assignment {number} names the brokers {list(broker_ids)}; one replica each "
                    f"is possible, on one of the brokers here: {known}."
                )
            workers.append(worker)
        return tuple(workers)

    def led_log(self, name: str, partition: int, leader_epoch: int = NO_LEADER_EPOCH) -> Log:
        """The log of a partition that this broker leads.

        Every read and write of a partition's data passes here. `leader_epoch` is the epoch that the
        requester expects, `NO_LEADER_EPOCH` when it has none.

        Raises:
            ReadOnlyWindow: it is a window's.
            UnknownTopicOrPartition: it does not exist.
            NotLeader: another broker leads it.
            LeaderEpochFenced: the requester's epoch is older than ours.
            LeaderEpochUnknown: the requester's epoch is newer than ours.
        """
        topic = self._data_dir.topics.get(name)
        if topic is None or not 0 <= partition < len(topic.partitions):
            if topic is None:
                self._refuse_window(name)
            raise UnknownTopicOrPartition(name, partition)
        log = topic.partitions[partition]
        if log is None:
            raise NotLeader(name, partition, self.leader_id(topic, partition))
        if leader_epoch != NO_LEADER_EPOCH and leader_epoch != log.leader_epoch:
            _check_epoch(log, leader_epoch)
        return log

    def kept_logs(self, name: str, partition: int | None) -> list[Log]:
        """The logs of a topic that are kept here, in order, or only that of one partition.

        Other workers may keep all of them. Raises as `led_log`, except NotLeader.
        """
        with suppress(NotLeader):
            self.led_log(name, partition or 0)
        logs = self._data_dir.topics[name].logs
        return logs if partition is None else [log for log in logs if log.partition == partition]

    def workers_of(self, name: str, partition: int | None) -> set[int]:
        """The workers that keep a topic's partitions, or one partition. Raises as `kept_logs`."""
        self.kept_logs(name, partition)
        topic = self._data_dir.topics[name]
        workers = topic.workers or (FIRST_WORKER,) * len(topic.partitions)
        return set(workers) if partition is None else {workers[partition]}

    def led_window(
        self, name: str, partition: int, leader_epoch: int = NO_LEADER_EPOCH
    ) -> "LogWindow | None":
        """The part of a led partition that the window `name` shows; None if it is no window's.

        Raises as `led_log` of the topic.
        """
        topic = self.windows.find(name)
        if topic is None or name in self._data_dir.topics:
            return None
        log = self.led_log(topic.source.name, partition, leader_epoch)
        return topic.view(log.partition)

    def read_log(self, name: str, partition: int, leader_epoch: int = NO_LEADER_EPOCH) -> Log:
        """`led_log`, and for a window that of its topic, to read what is common to both."""
        return self.led_log(self.windows.source_name(name), partition, leader_epoch)

    def _refuse_window(self, name: str) -> None:
        """Refuse a window where only a topic will do.

        Raises:
            ReadOnlyWindow: `name` is a window.
        """
        window = self.windows.find(name)
        if window is not None:
            raise ReadOnlyWindow(name, window.source.name)

    async def create(
        self,
        name: str,
        partitions: int,
        overrides: Mapping[str, str] | None = None,
        *,
        workers: tuple[int, ...] = (),
    ) -> Topic:
        """A new, empty topic, durable when this returns, and known to all workers.

        `workers` assigns each partition to one; empty leaves that to this method.

        Raises:
            InvalidTopicName: the name breaks the rules.
            ReadOnlyWindow: it is a window's.
            InvalidRequest: it is one of `RESERVED_TOPICS`.
            TopicAlreadyExists: there is one.
            InvalidPartitions: the count is below 1, or the broker would pass `max.partitions`.
            ConfigErrors: the overrides are not acceptable.
            StorageFailed: it could not be written here, or by another worker.
        """
        return await self._changes.make(
            self._create(name, partitions, dict(overrides or {}), workers)
        )

    async def _create(
        self, name: str, partitions: int, overrides: dict[str, str], workers: tuple[int, ...]
    ) -> Topic:
        self.check_new(name, partitions)
        topic = await self._threads.drive(
            self._data_dir.create_topic(
                name,
                partitions,
                overrides,
                self._clock.wall_ms(),
                workers=self._assign(name, (), workers or partitions),
                is_served=self.peers is None,
            )
        )
        if self.peers is not None:
            problem = await self.peers.topic_settled(name)
            self._data_dir.topics[name] = topic
            if problem is not None:
                self._data_dir.delete_topic(name, self._clock.wall_ms())
                raise StorageFailed("create", name, problem)
        self._by_id[topic.topic_id] = topic
        self._metric_names[_metric_name(name)] += 1
        self.revision += 1
        return topic

    def check_new(self, name: str, partitions: int) -> None:
        """Whether `create` would accept the name and the count; raises what it would raise."""
        check_topic_name(name)
        if name in RESERVED_TOPICS:
            raise InvalidRequest(
                f"Creation of internal topic {name} is prohibited; choose another name."
            )
        if name in self._data_dir.topics:
            raise TopicAlreadyExists(f"Topic {name!r} exists already.")
        self.windows.check_free(name)
        if self._data_dir.metadata.is_topic_deleted(name):
            raise TopicAlreadyExists(
                f"Topic {name!r} is being deleted: a worker that is starting has not done its part."
            )
        if self._metric_names[_metric_name(name)]:
            raise InvalidTopicName(
                f"Topic {name!r} collides with an existing one whose name differs in . and _ only; "
                "their metrics would have one name, choose another"
            )
        self._check_partition_count(partitions, partitions)

    async def delete(self, name: str) -> None:
        """Delete a topic; its files are deleted later.

        Raises:
            UnknownTopicOrPartition: there is no such topic.
            PolicyViolation: it is an internal topic.
        """
        await self._changes.make(self._delete(name))

    async def _delete(self, name: str) -> None:
        topic = self._data_dir.topics.get(name)
        if topic is None:
            self._refuse_window(name)
            raise UnknownTopicOrPartition(name)
        if name in OWN_TOPICS:
            raise PolicyViolation(f"Topic {name!r} belongs to the broker and cannot be deleted.")
        try:
            self._data_dir.delete_topic(name, self._clock.wall_ms())
        finally:
            # After a failure the topic may be gone all the same, with files that are left.
            if name not in self._data_dir.topics:
                await self._forget(topic)
        if self.peers is not None:
            problem = await self.peers.topic_settled(name)
            if problem is not None:
                raise StorageFailed("delete", name, problem)

    async def _forget(self, topic: Topic) -> None:
        self._by_id.pop(topic.topic_id, None)
        self._metric_names[_metric_name(topic.name)] -= 1
        self.revision += 1
        await self._announce_deleted(topic)

    async def _announce_deleted(self, topic: Topic) -> None:
        for callback in self._on_deleted:
            steps = callback(topic)
            if steps is not None:
                await self._threads.drive(steps)

    async def add_partitions(self, name: str, total: int, *, workers: tuple[int, ...] = ()) -> None:
        """Extend a topic to `total` partitions; `workers` assigns the new ones, as in `create`.

        Raises:
            UnknownTopicOrPartition: there is no such topic.
            InvalidPartitions: `total` is not above the current count, or is too large.
        """
        await self._changes.make(self._grow(name, total, workers))

    async def _grow(self, name: str, total: int, given: tuple[int, ...]) -> None:
        self.check_growth(name, total)
        topic = self._data_dir.topics[name]
        before = topic.workers or (FIRST_WORKER,) * len(topic.partitions)
        workers = self._assign(name, before, given or total - len(topic.partitions))
        added = await self._threads.drive(
            self._data_dir.add_partitions(
                name,
                total,
                self._clock.wall_ms(),
                workers=workers,
                is_served=self.peers is None,
            )
        )
        if self.peers is not None:
            problem = await self.peers.topic_settled(name)
            if problem is not None:
                self._data_dir.drop_partitions(topic, added, self._clock.wall_ms())
                raise StorageFailed("create", name, problem)
            self._data_dir.show_partitions(topic, added, workers)
        self.revision += 1

    def _assign(
        self, name: str, before: tuple[int, ...], wanted: tuple[int, ...] | int
    ) -> tuple[int, ...]:
        """The workers of all partitions of a topic, empty if the first one keeps them all.

        `wanted` are those of the new partitions, or how many there are: these take turns. Topics
        of the coordinators stay with the first worker.
        """
        if isinstance(wanted, int):
            wanted = tuple(self._take_turns(wanted, is_shared=not is_internal(name)))
        workers = (*before, *wanted)
        return workers if any(worker != FIRST_WORKER for worker in workers) else ()

    def _take_turns(self, count: int, *, is_shared: bool) -> Iterator[int]:
        for _ in range(count):
            if self.peers is None or not is_shared:
                yield FIRST_WORKER
                continue
            yield self._next_worker
            self._next_worker = self._next_worker % self.peers.count + 1

    def check_growth(self, name: str, total: int) -> None:
        """Whether `add_partitions` would accept the count; raises what it would raise."""
        topic = self._data_dir.topics.get(name)
        if topic is None:
            self._refuse_window(name)
            raise UnknownTopicOrPartition(name)
        count = len(topic.partitions)
        if total <= count:
            verb = "already has" if total == count else "cannot shrink from"
            raise InvalidPartitions(f"Topic {name!r} {verb} {count} partitions (asked: {total}).")
        self._check_partition_count(total, total - count)

    async def follow(self, kind: str, keys: list[str]) -> None:
        """Apply a change of the first worker's metadata to the topics kept here.

        Raises:
            StorageFailed: the directories could not be made or renamed.
        """
        data_dir = cast("FollowingDataDir", self._data_dir)

        async def made() -> None:
            before = list(data_dir.topics.values())
            try:
                await self._threads.drive(data_dir.follow_change(kind, keys, self._clock.wall_ms()))
            finally:
                # After a failure topics may be gone all the same, with files that are left.
                self._by_id = {topic.topic_id: topic for topic in data_dir.topics.values()}
                self._group_overrides = data_dir.metadata.group_overrides()
                self.revision += 1
                for topic in before:
                    if data_dir.topics.get(topic.name) is not topic:
                        await self._announce_deleted(topic)

        await self._changes.make(made())

    async def alone(self, change: Callable[[], Result]) -> Result:
        """The result of `change`, which runs while no other change does.

        A change of settings must read them inside `change`, or it could lose a concurrent change.
        """

        async def made() -> Result:
            return change()

        return await self.make(made())

    async def make(self, change: Coroutine[Any, Any, Result]) -> Result:
        """As `alone`, for a change that has to wait in its middle."""
        return await self._changes.make(change)

    def set_overrides(self, name: str, overrides: Mapping[str, str]) -> None:
        """Replace the topic's own settings; open logs use them from their next operation on.

        Call it in `alone`, like the next two: between the steps of a creation, new partitions would
        miss the change.

        Raises:
            UnknownTopicOrPartition: there is no such topic.
            ConfigErrors: a setting is not acceptable; nothing was changed.
        """
        if name not in self._data_dir.topics:
            self._refuse_window(name)
            raise UnknownTopicOrPartition(name)
        self._data_dir.set_topic_overrides(name, dict(overrides))

    @property
    def broker_overrides(self) -> dict[str, str]:
        """The broker's settings made at run time, with their secrets."""
        return self._data_dir.metadata.broker_overrides

    def set_broker_overrides(self, overrides: Mapping[str, str]) -> None:
        """Replace the broker's settings made at run time; topics use them at once.

        Raises:
            ConfigErrors: a setting is unknown, not changeable, or bad; nothing was changed.
        """
        with_dynamic(self._config, overrides)
        self._data_dir.set_broker_overrides(dict(overrides))

    def reload(self, config: BrokerConfig) -> None:
        """Apply a configuration that was read again; topics use it at once.

        Raises:
            ConfigErrors: it conflicts with the settings made at run time; nothing changes.
        """
        self._data_dir.reload(config)
        self._config = config

    @property
    def group_overrides(self) -> Mapping[str, Mapping[str, str]]:
        """The settings of groups that have their own, by group id."""
        return self._group_overrides

    def set_group_overrides(self, group_id: str, overrides: Mapping[str, str]) -> None:
        """Replace a group's own settings; its members use them from their next heartbeats on.

        Raises:
            ConfigErrors: a setting is unknown, bad or out of the broker's bounds.
        """
        problems = check_group_overrides(overrides, self.broker_config)
        if problems:
            raise ConfigErrors(problems)
        self._data_dir.metadata.set_group_overrides(group_id, overrides)
        self._group_overrides = self._data_dir.metadata.group_overrides()

    def allocate_producer_ids(self, count: int) -> range:
        """`count` producer ids that were never used before, reserved durably."""
        return self._data_dir.metadata.allocate_producer_ids(count)

    def _check_partition_count(self, total: int, added: int) -> None:
        if total < 1:
            raise InvalidPartitions(f"A topic has at least 1 partition (asked: {total}).")
        existing = sum(len(topic.partitions) for topic in self._data_dir.topics.values())
        limit = self._config.max_partitions
        if existing + added > limit:
            raise InvalidPartitions(
                f"{added} more partitions would make {existing + added} on this broker; "
                f"max.partitions allows {limit}, raise it or delete topics first."
            )


def _check_epoch(log: Log, leader_epoch: int) -> None:
    if leader_epoch < log.leader_epoch:
        raise LeaderEpochFenced(
            f"{log.topic}-{log.partition} is at leader epoch {log.leader_epoch}, "
            f"the request believes {leader_epoch}."
        )
    raise LeaderEpochUnknown(
        f"{log.topic}-{log.partition} is at leader epoch {log.leader_epoch}, "
        f"the request is ahead with {leader_epoch}."
    )
