"""The data directory: every topic, partition and setting that this broker keeps.

Owns the directory from its lock to its clean-stop marker: the identity, the metadata journal, one
directory per partition with its log, the checkpoints. Refuses to know requests, clocks and threads:
the time is a parameter, and a caller that syncs logs in other threads must have stopped them before
`close`.

Each change takes effect at one moment: when its line of the journal is durable. The next `open`
repairs the state that a crash leaves around that moment:

| change         | before it | the moment            | after it, or by the next open    |
|----------------|-----------|-----------------------|----------------------------------|
| create topic   |           | line *topic*          | directories made, names synced   |
| add partitions |           | line *topic* with more| directories made, names synced   |
| delete topic   |           | line *topic, deleted* | directories renamed, topic gone  |
| set overrides  | checked   | line *topic*          | logs reconfigured                |

So a directory that is not in the journal was never part of a finished change, or does not belong
here: it is renamed `-stray`, never served and never deleted. A missing directory that is in the
journal is created again, unless offsets are known to have been in it: a crash right after the
moment looks the same. A fault in one directory quarantines one partition. A data directory of
Apache Kafka has no journal yet; its topics are adopted by their directories.

Order of a start: lock, identity, marker removed, journal, checkpoints, logs. Order of a clean stop:
logs closed (synced, with producer snapshot and indexes), checkpoints, marker, lock released.

Source: Kafka `LogManager`; the journal is ours (docs/adr/0007). See docs/crash-safety.md.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Final

from config import (
    BrokerConfig,
    ConfigErrors,
    Problem,
    TopicConfig,
    is_secret,
    topic_config,
    with_dynamic,
)
from storage.directory.claim import (
    Claim,
    Survey,
    claim_directory,
    notices_of_others,
    plan_adoption,
    released_on_failure,
    survey,
)
from storage.directory.metadata import FIRST_WORKER, Json, Metadata, TopicMetadata
from storage.directory.metadata_journal import MetadataJournal, OnChange
from storage.directory.offset_checkpoints import Hints, OffsetCheckpoints
from storage.directory.partition_directories import PartitionDirectories
from storage.directory.refusal import Refusal
from storage.directory.worker_directories import gather_partitions
from storage.disk.checkpoints import (
    ZERO_UUID,
    RandomBytes,
    format_uuid,
    random_uuid,
    write_clean_shutdown,
)
from storage.disk.file_names import partition_directory_name
from storage.disk.files import Files
from storage.disk.steps import Slice, Steps, off_loop, run_steps
from storage.errors import StorageError, StorageFailed
from storage.log.flush import FlushTicket
from storage.log.log import Log
from storage.recovery.recovery import open_log
from storage.recovery.unusable_log import missing_log, open_or_stand_in
from storage.remote.erase import MayGo
from storage.remote.object_store import ObjectStore
from values.dataclasses import dataclass

Progress = Callable[[int, int], None]
"""Called with the number of partitions loaded so far and the total."""

RunAll = Callable[[Sequence[FlushTicket]], None]
"""Runs every ticket, in any order and in any threads, and returns when all are done."""

_CHECKED_IN_ONE_SLICE: Final = 256
"""Logs checked for due files, of which most have none, before the thread serves requests."""

_NOT_TAKEN_BACK: Final = Problem(
    key="remote.storage.enable",
    value="false",
    reason="segments of the topic may be in the object store only",
    cure="pause uploads by remote.log.copy.disable=true, or copy the records to another topic",
)

_CLOSED_TOGETHER: Final = 64
"""Logs whose last syncs are waited for together: each holds several descriptors meanwhile."""


@dataclass(slots=True, kw_only=True)
class Topic:
    """One topic as it is served. Only its `DataDir` changes it.

    A partition that another worker keeps is None in `partitions`. `workers` is the worker of each
    partition; empty when the first one has them all.
    """

    name: str
    topic_id: bytes
    partitions: list[Log | None]
    overrides: dict[str, str]
    config: TopicConfig
    workers: tuple[int, ...] = ()

    @property
    def logs(self) -> list[Log]:
        """The partitions that are kept here."""
        return [log for log in self.partitions if log is not None]


class DataDir:
    """An open data directory. Opened once, used by one thread, closed once.

    Every change whose method returned survives a crash. Any caller on that thread may read
    `topics`; only the methods change it. `notices` are sentences for the operator about the
    findings and repairs of the start. `metadata` has what is stored besides logs; topics and the
    broker's settings in it are changed by the methods here.
    """

    def __init__(
        self,
        claim: Claim,
        journal: Metadata,
        *,
        files: Files,
        broker_config: BrokerConfig,
        random_bytes: RandomBytes,
        worker: int = FIRST_WORKER,
    ) -> None:
        """Use `DataDir.open`."""
        self.worker = worker
        self.path = claim.path
        self.cluster_id = claim.meta.cluster_id
        self.node_id = claim.meta.node_id
        self.directory_id = format_uuid(claim.meta.directory_id or ZERO_UUID)
        self.stopped_cleanly = claim.stopped_cleanly
        self._unclean = claim.unclean
        self.broker_config = broker_config
        self.topics: dict[str, Topic] = {}
        self.notices: list[str] = []
        self.overrides_refused: ConfigErrors | None = None
        self._files = files
        self._lock = claim.lock
        self.metadata = journal
        self._random_bytes = random_bytes
        self._random = Random(random_bytes(16))
        self._directories = PartitionDirectories(claim.path, files, random_bytes)
        self._checkpoints = OffsetCheckpoints(claim.path, files)
        self._is_closed = False
        self.refusal = Refusal(journal, self._logs)

    @classmethod
    def open(
        cls,
        path: str,
        *,
        files: Files,
        broker_config: BrokerConfig,
        now_ms: int,
        progress: Progress | None = None,
        random_bytes: RandomBytes = os.urandom,
        before_logs: Callable[["DataDir"], OnChange] | None = None,
    ) -> "DataDir":
        """Open the directory with all its logs, recovered where the last stop was not clean.

        `before_logs` is called when the metadata is known and no log is open yet; it returns the
        function that is called with every change from then on.

        Raises:
            DataDirError: this process must not or cannot use the directory. The lock is released.
        """
        path = os.path.abspath(path)
        claim = claim_directory(path, files=files, config=broker_config, random_bytes=random_bytes)
        with released_on_failure(claim, "the data directory"):
            adopted, notices = plan_adoption(path, files, random_bytes)
            journal = MetadataJournal(path, files, adopted=adopted)
            self = cls(
                claim,
                journal,
                files=files,
                broker_config=broker_config,
                random_bytes=random_bytes,
            )
            self.notices += notices
            self.notices += gather_partitions(path, journal, files, workers=broker_config.workers)
            if before_logs is not None:
                journal.on_change = before_logs(self)
            self._load(now_ms, progress or _no_progress)
        return self

    # --- topics ---------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int,
        overrides: Mapping[str, str],
        now_ms: int,
        *,
        workers: tuple[int, ...] = (),
        is_served: bool = True,
    ) -> Steps[Topic]:
        """Create a topic with empty partitions, durable at the end; the caller checks the name.

        A step creates one partition. Between the steps the topic is in the journal but not in
        `topics`, and the caller must make no other change of topics. `workers` are those of the
        partitions. Without `is_served` the caller puts the topic into `topics`.

        Raises:
            ConfigErrors: the overrides are not acceptable; nothing was changed.
            StorageFailed: it could not be written; the topic does not exist.
        """
        assert name not in self.topics
        assert partitions > 0
        config = topic_config(overrides, self.broker_config)
        metadata = TopicMetadata(
            name=name,
            topic_id=random_uuid(self._random_bytes),
            partitions=partitions,
            overrides=dict(overrides),
            workers=workers,
        )
        self._checkpoints.remove_entries(name, range(partitions), self._logs())
        self.metadata.put_topic(metadata)
        topic = Topic(
            name=name,
            topic_id=metadata.topic_id,
            partitions=[],
            overrides=dict(overrides),
            config=config,
            workers=workers,
        )
        try:
            topic.partitions = yield from self._make_partitions(topic, metadata, now_ms)
        except StorageFailed:
            self.metadata.mark_deleted(metadata)
            self._delete_directories(metadata, now_ms)
            raise
        assert len(topic.partitions) == partitions, f"{name}: {len(topic.partitions)} partitions"
        if is_served:
            self.topics[name] = topic
        return topic

    def add_partitions(
        self,
        name: str,
        total: int,
        now_ms: int,
        *,
        workers: tuple[int, ...] = (),
        is_served: bool = True,
    ) -> Steps[list[Log | None]]:
        """Extend the topic to `total` partitions, more than it has; durable at the end.

        The new ones appear together, after the last step; see `create_topic`. `workers` are those
        of all partitions. Without `is_served` the caller calls `show_partitions`.

        Raises:
            StorageFailed: it could not be written; the topic is as it was.
        """
        topic = self.topics[name]
        before = len(topic.partitions)
        assert total > before
        self._checkpoints.remove_entries(name, range(before, total), self._logs())
        metadata = replace(self._metadata(topic), partitions=total, workers=workers)
        self.metadata.put_topic(metadata)
        try:
            added = yield from self._make_partitions(topic, metadata, now_ms)
        except StorageFailed:
            self._undo_growth(topic, total, now_ms)
            raise
        if is_served:
            self.show_partitions(topic, added, workers)
        return added

    def show_partitions(
        self, topic: Topic, added: list[Log | None], workers: tuple[int, ...]
    ) -> None:
        """Serve the partitions that `add_partitions` has made."""
        topic.partitions += added
        topic.workers = workers

    def drop_partitions(self, topic: Topic, added: list[Log | None], now_ms: int) -> None:
        """Take back what `add_partitions` has made: another worker could not make its part.

        Raises:
            StorageFailed: it could not be written.
        """
        for log in added:
            if log is not None:
                log.abandon()
        self._undo_growth(topic, len(topic.partitions) + len(added), now_ms)

    def _undo_growth(self, topic: Topic, total: int, now_ms: int) -> None:
        self.metadata.put_topic(self._metadata(topic))
        with suppress(OSError):
            self._directories.delete(topic.name, range(len(topic.partitions), total), now_ms)

    def delete_topic(self, name: str, now_ms: int) -> None:
        """Delete the topic, durably; its files are removed `file.delete.delay.ms` later.

        Raises:
            StorageFailed: it could not be written. The topic is unchanged if it is still in
                `topics`; else the next start removes its files.
        """
        topic = self.topics[name]
        metadata = self._metadata(topic)
        self.metadata.mark_deleted(metadata)
        del self.topics[name]
        for log in topic.logs:
            log.abandon()
        try:
            delay_ms = topic.config.file_delete_delay_ms
            self._delete_directories(metadata, now_ms, delay_ms=delay_ms)
        except OSError as error:
            raise StorageFailed("delete", f"{self.path}/{name}", str(error)) from error

    def set_topic_overrides(self, name: str, overrides: Mapping[str, str]) -> None:
        """Replace the topic's own settings; durable on return, used from the next operation on.

        Raises:
            ConfigErrors: they are not acceptable; nothing was changed.
            StorageFailed: they could not be written; nothing was changed.
        """
        topic = self.topics[name]
        config = topic_config(overrides, self.broker_config)
        if topic.config.remote_storage_enable and not config.remote_storage_enable:
            raise ConfigErrors([_NOT_TAKEN_BACK])
        self.metadata.put_topic(replace(self._metadata(topic), overrides=dict(overrides)))
        topic.overrides = dict(overrides)
        self._reconfigure(topic, config)

    # --- the broker's own state -----------------------------------------------------------------

    def set_broker_overrides(self, overrides: Mapping[str, str]) -> None:
        """Replace the broker's run-time settings, durably; applies to topics that inherit them.

        Raises:
            ConfigErrors, StorageFailed: bad, or could not be written; nothing was changed.
        """
        with_dynamic(self.broker_config, overrides)
        has_secret = any(map(is_secret, (*overrides, *self.metadata.broker_overrides)))
        self.metadata.set_broker_overrides(overrides, erase_former=has_secret)
        self.reload(self.broker_config)

    def reload(self, config: BrokerConfig) -> None:
        """Apply `config` beneath the run-time settings; raises ConfigErrors before any change."""
        self.broker_config = config = with_dynamic(config, self.metadata.broker_overrides)
        for topic in self.topics.values():
            stored = topic_config(topic.overrides, config, is_stored=True)
            self._reconfigure(topic, stored)

    @property
    def may_change(self) -> bool:
        """Whether the metadata is changed here, and not by the first worker."""
        return self.worker == FIRST_WORKER

    def documents(self, kind: str) -> dict[str, Json]:
        """The documents of a kind that this package keeps and does not interpret, by key."""
        return self.metadata.documents(kind)

    def put_documents(
        self, kind: str, documents: Mapping[str, Json], *, erase_former: bool = False
    ) -> None:
        """Set such documents, all of them or none; None removes one. Durable on return.

        Raises:
            StorageFailed: they could not be written.
            DiskFull: nothing has changed.
        """
        self.metadata.put_all(kind, documents, erase_former=erase_former)

    # --- upkeep ---------------------------------------------------------------------------------

    def checkpoint(self) -> Steps[None]:
        """Store recovery points, log starts and high watermarks, so that a start has less to do.

        Raises StorageFailed: the old ones still exist and are still correct.
        """
        return self._checkpoints.write(self._logs())

    def delete_pending_files(self, now_ms: int) -> Steps[int]:
        """Remove directories and files of topics and segments that were deleted long ago; how many.

        Topics may come and go between the steps. Raises StorageFailed, the first one, after all
        were tried.
        """
        removals = [self._directories.remove_due, *(it.delete_pending_files for it in self._logs())]
        removed, failures = 0, []
        checked = Slice(_CHECKED_IN_ONE_SLICE)
        for remove in removals:
            if checked.add(1):
                yield None
            try:
                removed += yield from remove(now_ms)
            except StorageFailed as error:
                failures.append(error)
        if failures:
            raise failures[0]
        return removed

    def erase_remote(self, now_ms: int, store: ObjectStore, may_go: MayGo) -> Steps[int]:
        """Delete the objects of deleted topics that `may_go` from `store`; returns their number.

        Raises StoreFailed, StorageFailed: the next call tries the rest.
        """
        return self._directories.erase_remote(now_ms, store, may_go)

    def close(self, now_ms: int, *, run_all: RunAll | None = None) -> None:
        """Stop cleanly: make everything durable, then write the marker, then release the lock.

        `run_all` waits for the last syncs of some dozens of logs at a time; without it, they run
        one after the other. If any log cannot be closed, the marker is not written, so the next
        start recovers. Logs in quarantine are left as they are, and the marker names them: to the
        next start they have not stopped cleanly, and all others have.

        Raises:
            StorageFailed: a file could not be written. The lock is released all the same.
        """
        if self._is_closed:
            return
        self._is_closed = True
        try:
            quarantined = [log for log in self._logs() if log.quarantine is not None]
            for log in quarantined:
                log.abandon()
            others = [log for log in self._logs() if log.quarantine is None]
            failures = _close_logs(others, now_ms, run_all or _run_in_order)
            run_steps(self.checkpoint())
            self.metadata.close()
            if not failures:
                unclean = (
                    partition_directory_name(log.topic, log.partition) for log in quarantined
                )
                write_clean_shutdown(self.path, self._files, unclean)
        except OSError as error:
            raise StorageFailed("close", self.path, str(error)) from error
        finally:
            self._lock.release()
        if failures:
            raise failures[0]

    # --- start ----------------------------------------------------------------------------------

    def _load(self, now_ms: int, progress: Progress) -> None:
        self._load_broker_overrides()
        self._finish_deletions(now_ms)  # before the directories are listed: it moves some
        known = self.metadata.topics()
        found = survey(self.path, self._files, known)
        for name in found.deleted:
            self._directories.remove_later(name, now_ms)
        self.notices += self._directories.set_aside_strays(found.partitions, known, self.worker)
        self.notices += notices_of_others(found, self.metadata)
        hints, notices = self._checkpoints.read(stopped_cleanly=self.stopped_cleanly)
        self.notices += notices
        total = sum(len(metadata.of_worker(self.worker)) for metadata in known.values())
        loaded = 0
        for metadata in known.values():
            topic = self._topic(metadata)
            self.topics[topic.name] = topic
            topic.partitions = [None] * metadata.partitions
            for partition in metadata.of_worker(self.worker):
                self._load_partition(topic, partition, found, hints, now_ms)
                loaded += 1
                progress(loaded, total)
        self._directories.sync()
        self._checkpoints.keep_proven_ends(list(self._logs()))

    def _load_broker_overrides(self) -> None:
        overrides = self.metadata.broker_overrides
        if not overrides:
            return
        try:
            self.broker_config = with_dynamic(self.broker_config, overrides)
        except ConfigErrors as errors:
            self.overrides_refused = errors
            self.notices.append(f"run-time settings of the broker are left out: {errors}")

    def _finish_deletions(self, now_ms: int) -> None:
        for metadata in self.metadata.deleted_topics():
            try:
                self._delete_directories(metadata, now_ms)
            except OSError as error:
                self.notices.append(f"the deleted topic {metadata.name} is still there: {error}")

    def _topic(self, metadata: TopicMetadata) -> Topic:
        overrides = dict(metadata.overrides)
        try:
            config = topic_config(overrides, self.broker_config, is_stored=True)
        except ConfigErrors as errors:
            self.notices.append(f"settings of topic {metadata.name} are left out: {errors}")
            overrides = {}
            config = topic_config({}, self.broker_config)
        return Topic(
            name=metadata.name,
            topic_id=metadata.topic_id,
            partitions=[],
            overrides=overrides,
            config=config,
            workers=metadata.workers,
        )

    def _load_partition(
        self, topic: Topic, partition: int, found: Survey, hints: Hints, now_ms: int
    ) -> None:
        key = (topic.name, partition)
        log = open_or_stand_in(
            lambda: self._open_partition(topic, partition, found, hints, now_ms),
            path=self._directories.path(*key),
            topic=topic.name,
            partition=partition,
            config=topic.config,
            log_start_offset=hints.log_starts.get(key, 0),
        )
        self.notices += [f"{topic.name}-{partition}: {note}" for note in log.recovery_report.notes]
        topic.partitions[partition] = log

    def _open_partition(
        self, topic: Topic, partition: int, found: Survey, hints: Hints, now_ms: int
    ) -> Log:
        key = (topic.name, partition)
        name = partition_directory_name(topic.name, partition)
        is_clean = self.stopped_cleanly and name not in self._unclean
        if key not in found.partitions:
            path, end = self._directories.path(*key), hints.recovery_point(key, is_clean=is_clean)
            if end and not self._files.exists(path):
                return missing_log(path, *key, topic.config, end)
            self._directories.make(*key, topic.topic_id)
        elif found.partitions[key] is None:
            self._directories.write_metadata(self._directories.path(*key), topic.topic_id)
        log = self._open_log(topic, partition, hints, now_ms, is_clean)
        was_crash = not is_clean and log.refusal is None
        if was_crash and not log.waits_for_disk:
            # Records that consumers saw may be gone: a higher epoch shows them the cut. It is
            # stored at once, because clients that have seen it refuse a lower one.
            log.leader_epoch += 1
            log.leader_epochs.assign(log.leader_epoch, log.log_end_offset)
        return log

    # --- partitions -----------------------------------------------------------------------------

    def _make_partitions(
        self, topic: Topic, metadata: TopicMetadata, now_ms: int
    ) -> Steps[list[Log | None]]:
        """Create the directories and empty logs that are missing and are ours; None for others.

        Their names are durable at the end.
        """
        made: list[Log | None] = []
        try:
            for partition in range(len(topic.partitions), metadata.partitions):
                if metadata.worker_of(partition) != self.worker:
                    made.append(None)
                    continue
                self._directories.make(topic.name, partition, topic.topic_id)
                made.append(self._open_log(topic, partition, Hints(), now_ms, True))
                yield None
            yield from off_loop(self._directories.sync)
        except (OSError, StorageError) as error:
            for log in made:
                if log is not None:
                    log.abandon()
            raise StorageFailed("create", f"{self.path}/{topic.name}", str(error)) from error
        return made

    def _open_log(
        self, topic: Topic, partition: int, hints: Hints, now_ms: int, is_clean: bool
    ) -> Log:
        key = (topic.name, partition)
        return open_log(
            self._directories.path(topic.name, partition),
            topic=topic.name,
            partition=partition,
            config=topic.config,
            files=self._files,
            now_ms=now_ms,
            is_clean=is_clean,
            recovery_point=hints.recovery_point(key, is_clean=is_clean),
            log_start_offset=hints.log_starts.get(key, 0),
            cleaned_offset=hints.cleaned.get(key, 0),
            producer_id_expiration_ms=self.broker_config.producer_id_expiration_ms,
            random=self._random,
        )

    def _delete_directories(
        self, metadata: TopicMetadata, now_ms: int, *, delay_ms: int = 0
    ) -> None:
        """Rename the directories of a topic that is marked as deleted, then drop it.

        A topic with partitions of other workers stays marked until they have renamed theirs.
        """
        partitions = range(metadata.partitions)
        self._directories.delete(metadata.name, partitions, now_ms, delay_ms=delay_ms)
        self._directories.sync()
        if self.may_change and not metadata.workers:
            self.metadata.remove_topic(metadata.name)

    def forget_deleted(self, metadata: TopicMetadata) -> None:
        """Drop a deleted topic, unless directories of it could not be renamed."""
        partitions = metadata.of_worker(self.worker)
        paths = [self._directories.path(metadata.name, number) for number in partitions]
        if not any(map(self._files.exists, paths)):
            self.metadata.remove_topic(metadata.name)

    # --- small things ---------------------------------------------------------------------------

    def _metadata(self, topic: Topic) -> TopicMetadata:
        return TopicMetadata(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=len(topic.partitions),
            overrides=topic.overrides,
            workers=topic.workers,
        )

    def _reconfigure(self, topic: Topic, config: TopicConfig) -> None:
        topic.config = config
        for log in topic.logs:
            log.reconfigure(config)

    def _logs(self) -> Iterator[Log]:
        return (log for topic in self.topics.values() for log in topic.logs)


def _no_progress(loaded: int, total: int) -> None:
    """Report no progress."""


def _run_in_order(tickets: Sequence[FlushTicket]) -> None:
    for ticket in tickets:
        ticket.run()


def _close_logs(logs: Sequence[Log], now_ms: int, run_all: RunAll) -> list[StorageError]:
    """Close every log; the failures, in which case the stop is not clean."""
    failures: list[StorageError] = []
    for start in range(0, len(logs), _CLOSED_TOGETHER):
        together = logs[start : start + _CLOSED_TOGETHER]
        tickets: list[tuple[Log, FlushTicket]] = []
        for log in together:
            try:
                ticket = log.begin_close(now_ms)
            except StorageError as error:
                failures.append(error)
                continue
            if ticket is not None:
                tickets.append((log, ticket))
        run_all([ticket for _, ticket in tickets])
        for log, ticket in tickets:
            try:
                log.complete_flush(ticket)
            except StorageError as error:
                failures.append(error)
        for log in together:
            log.abandon()
    return failures
