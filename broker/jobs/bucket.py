"""The job that writes the journal of the bucket, and stops this broker when another owns it.

    begin    read the journal, see that this directory is not older, take the bucket over
    ship     what the bucket lacks: `remote.flush.ms` after it was on disk, `remote.flush.bytes`
             of it, at once where `remote.acks.enable` has requests waiting
    check    every few seconds: has another broker taken over, is the journal still there?
    renew    with `remote.lease.ms`: an entry in each third of the lease (`storage.bucket.lease`)

    collect  the map as a checkpoint, and deletions of the entries that it replaces; beside the
             others, so that no answer waits for them

While one round of shipping is under way, the ends of all logs are noted twice a second, so the next
rounds are short also when more is appended than the store takes; they follow at once.

With `remote.acks.enable` a sync of the group commit ends here: its records are visible and
acknowledged when an entry of the journal has them (`GroupCommit.held`). All records of internal
topics are shipped, so there the setting needs no `remote.storage.enable`: commits of offsets and
ends of transactions wait like a Produce.

With a lease the bucket is taken over before the first request is served: a former owner does not
start. When the lease is over, a timer *suspends* the broker: appends and changes are refused, until
another entry counts. A process that was stopped may come back in the middle of a sync, before its
timers run: a sync that ends after the lease is held, too, and its requests are answered when the
lease was renewed, or refused when another broker has the bucket.

A broker that was fenced serves what it has, appends nothing, uploads and deletes nothing. A store
that fails costs only what has to wait for it: the job pauses, longer after each failure in a row.

`storage.bucket.shipping` compares and writes, in slices; requests are made in a thread.
"""

import asyncio
import logging
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Final

from broker.clocks.clock import Clock, TimerHandle
from broker.errors import StartError
from broker.jobs.pause import Pause
from broker.metrics import RemoteMetrics
from broker.threads import Pool
from storage.bucket.journal import BucketJournal
from storage.bucket.lease import OwnerLease
from storage.bucket.shipping import Shipper
from storage.directory.data_dir import DataDir
from storage.errors import (
    BucketEmptied,
    DirectoryOlder,
    Fenced,
    LeaseOver,
    StorageError,
    StoreFailed,
)
from storage.remote.object_store import ObjectStore

if TYPE_CHECKING:
    from broker.fetch.waiters import FetchWaiters
    from broker.group_commit import GroupCommit
    from storage.log.log import Log
    from storage.segment.facts import RemoteObject

logger = logging.getLogger("tidelog.broker.jobs.bucket")

INTERVAL_MS: Final = 200
CHECK_MS: Final = 5_000
METADATA_MS: Final = 1_000
"""How often metadata and the facts of all logs are compared with the bucket."""

NOTE_MS: Final = 500
"""How often the ends of logs are noted while a round is under way."""

COLLECT_MS: Final = 1_000
"""The least time between checkpoints, also when one has failed."""

_TRIES_OF_LEASE: Final = 6
"""How often a store that fails is tried within a lease."""

_DRAIN_S: Final = 0.01
_PAUSE_MS: Final = 500
_PAUSE_MAX_MS: Final = 30_000


class BucketWriter:
    """The bucket as this broker writes it. Loop thread only.

    Attributes:
        stopped: why this broker may not write to the bucket, for good, or None.
    """

    def __init__(
        self,
        data_dir: DataDir,
        store: ObjectStore,
        *,
        group_commit: "GroupCommit",
        live: Clock,
        metrics: RemoteMetrics,
        threads: Pool,
        random: Random,
        fetch_waiters: "FetchWaiters",
        is_internal: Callable[[str], bool],
        lease_ms: int = 0,
    ) -> None:
        """Write to `store`; `is_internal` says which topics are the broker's own."""
        self.stopped: StorageError | None = None
        self._data_dir = data_dir
        self._lease_timer: TimerHandle | None = None
        self._note_timer: TimerHandle | None = None
        self._noted_ms = 0
        self._suspension: LeaseOver | None = None
        self._journal = BucketJournal(
            store, data_dir.directory_id, random, lease_ms=lease_ms, now_ms=live.monotonic_ms
        )
        self._lease = OwnerLease(self._journal)
        self._shipper = Shipper(data_dir, self._journal, is_internal)
        self._group_commit = group_commit
        self._live = live
        self._metrics = metrics
        self._threads = threads
        self._fetch_waiters = fetch_waiters
        longest_ms = lease_ms // _TRIES_OF_LEASE if lease_ms else _PAUSE_MAX_MS
        self._pause = Pause(live, first_ms=_PAUSE_MS, max_ms=min(_PAUSE_MAX_MS, longest_ms))
        self._checked_ms = 0
        self.is_emptied = False
        """Whether the bucket lacks what was put there: local copies may be the only ones."""

        self._waiting_since: dict[Log, int] = {}
        self._compared_ms = 0
        self._lock = asyncio.Lock()
        self._collecting: asyncio.Task[None] | None = None
        self._collected_ms = 0
        self._is_ending = False
        self._is_internal = is_internal
        group_commit.waits_for_store = self._waits_for_store
        for topic in data_dir.topics.values():
            for log in topic.logs:
                if self._wants_store(log):
                    group_commit.recovered(log)

    def _wants_store(self, log: "Log") -> bool:
        """Whether acknowledgements of the log always wait for the bucket."""
        config = log.config
        return config.remote_acks_enable and (
            config.remote_storage_enable or self._is_internal(log.topic)
        )

    def _waits_for_store(self, log: "Log") -> bool:
        """Whether a sync of the log that ends now is held."""
        return self._wants_store(log) or self._lease.is_over(self._live.monotonic_ms())

    @property
    def is_owner(self) -> bool:
        """Whether objects may be written and deleted."""
        return self._journal.is_owner and self._suspension is None

    def names(self, where: "RemoteObject") -> bool:
        """Whether a restore would look for the object."""
        return self._shipper.names(where)

    def keeps(self, where: "RemoteObject") -> bool:
        """Whether a restore would find the object: then a local copy is not the only one."""
        return not self.is_emptied and self._shipper.names(where)

    def shipped_end(self, log: "Log") -> int:
        """The bucket has all records of the log below this offset; 0 if that is not known."""
        return self._shipper.shipped_end(log) if self.is_owner else 0

    async def open_lease(self) -> None:
        """Take the bucket over before anything is served, if it has a lease.

        Raises StartError: another broker owns it, or the store does not answer.
        """
        if not self._lease.span_ms:
            return
        try:
            async with self._lock:
                await self._begin()
        except StorageError as error:
            raise StartError(
                f"with remote.lease.ms={self._lease.span_ms} a broker needs its bucket at the "
                f"start, and: {error}",
                "another owner is followed with tidelog serve --standby URL, on a new directory"
                if isinstance(error, Fenced)
                else "look at the store, and start again",
            ) from error
        self._lease_ended()

    async def _begin(self) -> None:
        if self._collecting is not None:
            # A checkpoint that came into a journal after its begin would hide that from readers.
            await asyncio.wait([self._collecting])
        epoch = await self._threads.drive(self._shipper.begin())
        self.is_emptied = False
        logger.info("this broker owns the bucket, epoch %d", epoch)

    def _lease_ended(self) -> None:
        """Suspend the broker if its lease is over, else look again when it will be."""
        left_ms = self._lease.left_ms(self._live.monotonic_ms())
        self._lease_timer = None
        if self.stopped is not None or self._suspension is not None:
            return
        if left_ms:
            self._lease_timer = self._live.call_later(left_ms, self._lease_ended)
            return
        self._suspension = LeaseOver(self._lease.span_ms)
        self._metrics.is_suspended = True
        self._data_dir.refusal.suspend(self._suspension)
        logger.error("appends are refused: %s", self._suspension)

    def _lease_renewed(self) -> None:
        """An entry counts that was sent a moment ago: a broker that was suspended continues."""
        if self._suspension is None or self._lease.is_over(self._live.monotonic_ms()):
            return
        self._suspension = None
        self._metrics.is_suspended = False
        self._data_dir.refusal.suspend(None)
        logger.warning("this broker has renewed its lease of the bucket: appends continue")
        self._lease_ended()

    async def run(self) -> None:
        """Ship what is due, unless the store has just failed."""
        if self._suspension is not None and self.stopped is None:
            # A topic may have been made meanwhile.
            self._data_dir.refusal.suspend(self._suspension)
        if self.stopped is not None:
            # A sync, or the creation of a topic, may have been under way when it was fenced.
            self._data_dir.refusal.stop(str(self.stopped))
            self._fail_held(self.stopped)
        elif self._pause.is_over:
            # Between two rounds others get the lock that wait for it.
            while await self._guarded(is_forced=False):
                if not self._shipper.has_noted:
                    break

    async def ship(self) -> bool:
        """Ship all that is on disk at this moment; whether the bucket has it."""
        wanted = self._shipper.note_ends()
        while self.stopped is None and await self._guarded(is_forced=True):
            if self._shipper.is_shipped(wanted):
                return True
        return False

    async def finish(self) -> None:
        """Complete the last syncs, ship the last records, release the bucket for the next broker.

        What the store does not get fails: its requests are answered, and the stop continues.
        """
        drain = asyncio.ensure_future(self._group_commit.drain())
        while not drain.done():
            if self._group_commit.held and not await self.ship():
                self._fail_held(
                    StoreFailed("the broker stops, and the object store does not answer")
                )
            await asyncio.wait([drain], timeout=_DRAIN_S)
        await drain
        self._is_ending = True
        if self._collecting is not None:
            # The next checkpoint deletes what this one has left.
            self._collecting.cancel()
            await asyncio.wait([self._collecting])
        if await self.ship() and self._journal.is_owner:
            try:
                await self._threads.drive(self._journal.release())
            except StoreFailed as error:
                logger.warning("the end of this broker is not noted in the bucket: %s", error)
        if self._lease_timer is not None:
            self._lease_timer.cancel()

    async def _guarded(self, *, is_forced: bool) -> bool:
        try:
            async with self._lock:
                if self.stopped is not None:
                    return False
                await self._advance(is_forced)
            self._pause.succeeded()
        except (Fenced, DirectoryOlder) as error:
            self._stop(error)
            return False
        except StorageError as error:
            self.is_emptied = isinstance(error, BucketEmptied) or self.is_emptied
            pause_ms = self._pause.failed()
            self._metrics.errors["ship"] += 1
            # A look at the bucket comes first, and fails each time while the store is down. Where
            # none has succeeded yet, all that no object has counts as waiting.
            self._measure()
            logger.warning(
                "the bucket's journal was not written, the next try is in %d ms: %s",
                pause_ms,
                error,
            )
            return False
        return True

    async def _advance(self, is_forced: bool) -> None:
        if not self._journal.is_owner:
            await self._begin()
        now_ms = self._live.monotonic_ms()
        renews = self._lease.is_due(now_ms)
        if not renews:
            await self._check_when_due(now_ms)
        if is_forced or renews or self._is_due(now_ms):
            await self._ship_round(now_ms, renews=renews)
        if renews:
            # A slow answer to the looks must not cost the lease.
            await self._check_when_due(now_ms)

    async def _ship_round(self, now_ms: int, *, renews: bool) -> None:
        """Ship up to ends that were noted: those of now, if there are no others."""
        if not self._shipper.has_noted or now_ms - self._noted_ms >= NOTE_MS:
            self._note()
        self._note_later()
        try:
            entries = await self._threads.drive(self._shipper.ship(renews=renews))
        finally:
            if self._note_timer is not None:
                self._note_timer.cancel()
                self._note_timer = None
        self._lease_renewed()
        self._metrics.entries += entries
        self._release_held()
        self._waiting_since = dict.fromkeys(self._measure(), now_ms)
        self._collect_when_due(now_ms)

    def _note(self) -> None:
        self._shipper.note_ends()
        self._noted_ms = self._live.monotonic_ms()

    def _note_later(self) -> None:
        def note() -> None:
            self._note()
            self._note_later()

        self._note_timer = self._live.call_later(NOTE_MS, note)

    async def _check_when_due(self, now_ms: int) -> None:
        if now_ms - self._checked_ms >= CHECK_MS:
            await self._threads.drive(self._shipper.check())
            self._checked_ms = now_ms

    def _collect_when_due(self, now_ms: int) -> None:
        task = self._collecting
        if task is not None and task.done() and not task.cancelled():
            self._collecting = None
            task.result()
        if self._is_ending or self._collecting is not None:
            return
        if self._journal.wants_checkpoint and now_ms - self._collected_ms >= COLLECT_MS:
            self._collected_ms = now_ms
            self._collecting = asyncio.ensure_future(self._collect())

    async def _collect(self) -> None:
        try:
            await self._threads.drive(self._journal.checkpoint())
        except StoreFailed as error:
            self._metrics.errors["ship"] += 1
            logger.warning("old entries of the bucket's journal stay for now: %s", error)

    def _is_due(self, now_ms: int) -> bool:
        is_due = bool(self._group_commit.held) or self._shipper.has_noted
        waiting = self._measure()
        for log, size in waiting.items():
            since_ms = self._waiting_since.setdefault(log, now_ms)
            config = log.config
            if now_ms - since_ms >= config.remote_flush_ms or size >= config.remote_flush_bytes:
                is_due = True
            if not log.waits_for_disk and log.durable_offset < log.log_end_offset:
                self._group_commit.mark_dirty(log)
        if not is_due and now_ms - self._compared_ms >= METADATA_MS:
            self._compared_ms = now_ms
            is_due = self._shipper.has_changes()
        return is_due

    def _measure(self) -> "dict[Log, int]":
        waiting = dict(self._shipper.waiting())
        self._metrics.tail_bytes = sum(waiting.values())
        return waiting

    def _release_held(self) -> None:
        is_over = self._lease.is_over(self._live.monotonic_ms())
        for log, end in list(self._group_commit.held.items()):
            if log.offline is not None:
                # Its records are not read any more, so the bucket will not get them.
                self._group_commit.stored(log, log.offline)
            elif self._shipper.shipped_end(log) >= end or not (is_over or self._wants_store(log)):
                self._group_commit.stored(log)

    def _fail_held(self, error: StorageError) -> None:
        for log in list(self._group_commit.held):
            self._group_commit.stored(log, error)

    def _stop(self, error: StorageError) -> None:
        """Refuse appends, and changes of topics and settings, from now on."""
        self.stopped = error
        self._metrics.is_fenced = True
        logger.error("this broker writes nothing any more: %s", error)
        self._data_dir.refusal.stop(str(error))
        self._fail_held(error)
        for topic in self._data_dir.topics.values():
            for log in topic.logs:
                self._fetch_waiters.log_changed(log)
