"""The jobs that keep the object store in step with the logs: uploads and deletions.

    run      round by round, as long as anything is uploaded: deletions, then a turn for each log
    watch    measure what waits; where the disk is nearly full, remove what the store has

One segment is uploaded at a time, so the memory of an upload is that of one part, and the rate is
bounded (`remote.log.manager.copy.max.bytes.per.second`). A log with many segments has a turn of
`TURN_MS`: one that grows faster than the store takes must not hold up the others, nor deletions.
Appends never wait for it: requests to the store are made in a thread of their own. A log whose
upload fails waits, longer after each failure in a row. A round in which `FAILURES_AT_ONCE` logs
fail, or some for `FAILING_MS`, or all that are due, and none succeeds, has all uploads wait: so a
store that is down is asked seldom, and logs that it refuses at once cost the others little.
Deletions wait by themselves, as a bucket may refuse them for good. Appends continue; the backlog
shows in the metrics. An upload may take hours, so `watch` is a job of its own.

`storage.remote` decides what is due and in which order it becomes durable.
"""

import asyncio
import logging
import time
from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from broker.clocks.clock import Clock
from broker.jobs.bucket import BucketWriter
from broker.jobs.pause import Pause
from broker.metrics import RemoteMetrics
from broker.space import SpaceGuard
from broker.threads import Pool
from storage.directory.data_dir import DataDir, Topic
from storage.disk.files import Bytes
from storage.errors import StorageError, StoreFailed
from storage.remote.cleaning import StoredLogs
from storage.remote.erase import erase_unused, objects_to_erase
from storage.remote.local import drop_expired_locally
from storage.remote.object_store import ObjectStore, ObjectUpload, StoredObject
from storage.remote.upload import UploadStopped, backlog_of, next_to_upload, upload_segment

if TYPE_CHECKING:
    from broker.group_commit import GroupCommit
    from storage.log.log import Log
    from storage.segment.facts import RemoteObject
    from storage.segment.segment import Segment

logger = logging.getLogger("tidelog.broker.jobs.tiering")

INTERVAL_MS: Final = 1_000
PRESSED_BYTES: Final = 128 * 1024 * 1024
"""When clients may append less than this before `log.reserved.bytes`, local copies go early."""

TURN_MS: Final = 1_000
"""A log begins no further segment after so much of a round, if others may wait."""

_LOGS_AT_ONCE: Final = 64
"""Logs that are looked at before other work has a turn."""

UPLOAD_S: Final = 12 * 3600
"""The longest upload: `tidelog tier gc` takes an older object that nothing names for garbage."""

FAILURES_AT_ONCE: Final = 32
"""Logs that may fail in a round before it ends."""

FAILING_MS: Final = 5_000
"""How long they may take to fail, in all: a store that is down answers none of them in time."""

_PAUSE_MS: Final = 1_000
_PAUSE_OF_ALL_MAX_MS: Final = 15_000
_PAUSE_MAX_MS: Final = 60_000


class Tiering:
    """The background jobs of one broker; in the loop thread.

    Attributes:
        stored_logs: the store, for compaction; its calls belong to `threads`.
        threads: in which requests to the store are made.
    """

    def __init__(
        self,
        data_dir: DataDir,
        store: ObjectStore,
        bucket: BucketWriter,
        *,
        group_commit: "GroupCommit",
        space: SpaceGuard,
        clock: Clock,
        live: Clock,
        metrics: RemoteMetrics,
        threads: Pool,
        disk_threads: Pool,
        random: Random,
    ) -> None:
        """Upload to `store`; `live` counts the pauses, `clock` is the broker's.

        Local copies are removed in `disk_threads`, which wait for no store.
        """
        self._data_dir = data_dir
        self._bucket = bucket
        self._store = store
        self._group_commit = group_commit
        self._space = space
        self._clock = clock
        self._live = live
        self._metrics = metrics
        self.threads = threads
        self._disk_threads = disk_threads
        self.stored_logs = StoredLogs(store, bucket.shipped_end)
        self._random = random
        self._erased_up_to: WeakKeyDictionary[Log, tuple[int, ...]] = WeakKeyDictionary()
        self._turn = 0
        self._is_named = False
        self._pause = self._new_pause(_PAUSE_OF_ALL_MAX_MS)
        self._pause_of_deletions = self._new_pause()
        self._pauses: WeakKeyDictionary[Log, Pause] = WeakKeyDictionary()

    def _new_pause(self, max_ms: int = _PAUSE_MAX_MS) -> Pause:
        return Pause(self._live, first_ms=_PAUSE_MS, max_ms=max_ms)

    async def watch(self) -> None:
        """Measure what waits for its upload, and make room where the disk is nearly full."""
        await self._measure()
        if self._space.left_bytes() < PRESSED_BYTES and not self._bucket.is_emptied:
            await self._make_room()

    async def run(self) -> None:
        """Upload and delete until nothing is due, or the store fails."""
        await self.watch()
        if not self._pause.is_over:
            return
        if not self._bucket.is_owner:
            await self._bucket.run()
            if not self._bucket.is_owner:
                return
        has_uploaded = True
        while has_uploaded:
            await self._delete()
            has_uploaded = await self._upload_all()
        await self._measure()

    async def _delete(self) -> None:
        """Delete the objects that nothing needs, unless that has just failed."""
        if not self._pause_of_deletions.is_over:
            return
        try:
            await self._erase()
            if self._is_named:
                # The bucket's journal first, then the objects: a restore reads what it names.
                await self._bucket.ship()
                await self._erase()
            self._pause_of_deletions.succeeded()
        except StorageError as error:
            pause_ms = self._pause_of_deletions.failed()
            self._metrics.errors["delete"] += 1
            logger.warning(
                "objects were not deleted, the next try is in %d s: %s", pause_ms // 1000, error
            )

    async def _make_room(self) -> None:
        """Remove the local copies of all that the store has: the disk is nearly full."""
        now_ms, dropped, is_named = self._clock.wall_ms(), 0, self._bucket.names
        for _, log in list(self._tiered()):
            try:
                gone = drop_expired_locally(log, now_ms, is_named=is_named, is_pressed=True)
                dropped += len(gone)
                await self._disk_threads.drive(log.delete_pending_files(now_ms))
            except StorageError as error:
                logger.error("%s-%d: no room was made: %s", log.topic, log.partition, error)
        if dropped:
            logger.warning("the disk is nearly full: %d local copies removed", dropped)

    async def _erase(self) -> None:
        may_go = self._may_go
        self._is_named = False
        steps = self._data_dir.erase_remote(self._clock.wall_ms(), self._store, may_go)
        erased = await self.threads.drive(steps)
        for number, (_, log) in enumerate(list(self._tiered())):
            if number % _LOGS_AT_ONCE == 0:
                await asyncio.sleep(0)
            # Looking through all objects of a log takes time; its segments seldom change.
            segments = log.segments
            start = (log.log_start_offset, segments.first.base_offset, segments.replacements)
            if self._erased_up_to.get(log) != start:
                erased += await self.threads.drive(erase_unused(log, self._store, may_go))
                if not objects_to_erase(log):
                    self._erased_up_to[log] = start
        if erased:
            logger.info("%d objects deleted from the object store", erased)

    def _may_go(self, where: "RemoteObject") -> bool:
        """Whether no restore would look for the object."""
        is_named = self._bucket.names(where)
        self._is_named |= is_named
        return self._bucket.is_owner and not is_named

    async def _upload_all(self) -> bool:
        """A turn for each log, beginning after the one that failed last; whether any had an upload.

        Without one, a failure has all of them wait.
        """
        uploaded, failures, failing_ms = self._metrics.uploaded, 0, 0
        logs = list(self._tiered())
        first = self._turn % max(1, len(logs))
        for number, (topic, log) in enumerate((*logs[first:], *logs[:first])):
            if number % _LOGS_AT_ONCE == 0:
                await asyncio.sleep(0)
            self._turn = first + number + 1
            pause = self._pauses.get(log)
            if pause is not None and not pause.is_over:
                continue
            begun_ms = self._live.monotonic_ms()
            try:
                await self._upload(topic, log)
            except StoreFailed as error:
                self._upload_failed(log, error)
                failures += 1
                failing_ms += self._live.monotonic_ms() - begun_ms
                if failures == FAILURES_AT_ONCE or failing_ms >= FAILING_MS:
                    break
            except StorageError as error:
                logger.error("%s-%d: upload failed: %s", log.topic, log.partition, error)
        else:
            self._turn = 0
        has_uploaded = self._metrics.uploaded > uploaded
        if failures and not has_uploaded:
            self._pause.failed()
        return has_uploaded

    def _upload_failed(self, log: "Log", error: StoreFailed) -> None:
        pause_ms = self._pauses.setdefault(log, self._new_pause()).failed()
        self._metrics.errors["upload"] += 1
        logger.warning(
            "%s-%d: upload to the object store failed, the next try is in %d s: %s",
            log.topic,
            log.partition,
            pause_ms // 1000,
            error,
        )

    async def _upload(self, topic: Topic, log: "Log") -> None:
        if log.has_unsynced_files and log.offline_reason is None:
            # Nothing else syncs what local retention renames in a log that gets no appends.
            self._group_commit.mark_dirty(log)
        end_ms = self._live.monotonic_ms() + TURN_MS
        while self._bucket.is_owner and (segment := next_to_upload(log)) is not None:
            try:
                await self._upload_segment(topic, log, segment)
            except UploadStopped:
                return
            if self._live.monotonic_ms() >= end_ms:
                return

    async def _upload_segment(self, topic: Topic, log: "Log", segment: "Segment") -> None:
        rate = self._data_dir.broker_config.remote_log_manager_copy_max_bytes_per_second
        steps = upload_segment(
            log, segment, topic.topic_id, _Paced(self._store, rate), self._random
        )
        where = await self.threads.drive(steps)
        self._pause.succeeded()
        self._pauses.pop(log, None)
        self._metrics.uploaded += 1
        self._metrics.uploaded_bytes += where.object_bytes
        logger.info(
            "%s-%d: segment %d is in the object store (%d bytes)",
            log.topic,
            log.partition,
            where.base_offset,
            where.object_bytes,
        )

    def _tiered(self) -> Iterator[tuple[Topic, "Log"]]:
        for topic in self._data_dir.topics.values():
            for log in topic.logs:
                if log.config.remote_storage_enable or log.manifest.remote:
                    yield topic, log

    async def _measure(self) -> None:
        size_bytes, oldest_ms = 0, None
        for number, (_, log) in enumerate(list(self._tiered())):
            waiting, appended_ms = backlog_of(log)
            size_bytes += waiting
            if waiting and (oldest_ms is None or appended_ms < oldest_ms):
                oldest_ms = appended_ms
            if number % _LOGS_AT_ONCE == 0:
                await asyncio.sleep(0)
        self._metrics.backlog_bytes = size_bytes
        now_ms = self._clock.wall_ms()
        self._metrics.backlog_ms = 0 if oldest_ms is None else max(0, now_ms - oldest_ms)


class _Paced:
    """A store whose uploads take as long as the bound of their rate demands."""

    def __init__(self, store: ObjectStore, bytes_per_second: int) -> None:
        self._store = store
        self._rate = bytes_per_second
        self.put_new = store.put_new
        self.get = store.get
        self.get_all = store.get_all
        self.crc32c_of = store.crc32c_of
        self.has = store.has
        self.size_of = store.size_of
        self.delete = store.delete

    def begin_put(self, key: str, size: int) -> ObjectUpload:
        """See `ObjectStore.begin_put`."""
        return _PacedUpload(self._store.begin_put(key, size), self._rate)

    def list_objects(self, prefix: str = "") -> Iterator[StoredObject]:
        """See `ObjectStore.list_objects`."""
        return self._store.list_objects(prefix)

    def list_unfinished(self) -> Iterator[StoredObject]:
        """See `ObjectStore.list_unfinished`."""
        return self._store.list_unfinished()


class _PacedUpload:
    """An upload that sleeps, in its thread, when it is ahead of its rate."""

    def __init__(self, upload: ObjectUpload, bytes_per_second: int) -> None:
        self._upload = upload
        self._rate = bytes_per_second
        self._begun_s = time.monotonic()
        self._sent = 0
        self.finish = upload.finish
        self.abort = upload.abort

    def write(self, data: Bytes) -> None:
        """See `ObjectUpload.write`."""
        if time.monotonic() - self._begun_s > UPLOAD_S:
            raise StoreFailed(f"the upload was given up after {UPLOAD_S // 3600} hours")
        self._upload.write(data)
        self._sent += len(data)
        ahead_s = self._sent / self._rate - (time.monotonic() - self._begun_s)
        if ahead_s > 0:
            time.sleep(ahead_s)
