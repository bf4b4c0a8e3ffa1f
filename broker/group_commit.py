"""Natural group commit: which requests wait for the disk, and when a log is synced.

An append makes its log *dirty*. Dirty logs queue in the order they became dirty, and a free sync
thread takes the first. Everything appended to that log until then goes to disk in one `fdatasync`;
later appends make the log dirty again and join the next sync. There is no linger timer: under light
load a batch waits for its own sync only, under heavy load the batches per sync grow by themselves.

Fairness and bounds: as many syncs run at once as the pool has threads, one per log; the queue is
first come, first served, so a busy partition cannot starve a quiet one. Where more logs wait than
threads are free, a thread gets up to `SYNCS_AT_ONCE` of them at a time, the later ones after those
that came first: it saves the waking of a thread and of the loop. Where hundreds wait, as after one
request to hundreds of new partitions, it gets up to `SYNCS_AT_ONCE_MAX`.

Order on completion, all in the loop thread: durable offset and high watermark move, the waiting
acks of that log are completed in offset order, then parked fetches are woken.

Under `flush.policy=os` no answer waits. New files and closed segments are synced a moment later, so
that one request to hundreds of new partitions is answered before their syncs begin.

Appends acknowledged without waiting (acks=0 and 1) are recorded per log until they are durable, so
that later requests can wait for them: see `broker.requests.commit_wait`.

With `remote.acks.enable` a sync that has run is *held*: it is completed when the object store has
its records, too (`broker.jobs.bucket`). The thread is free meanwhile, the log's next sync waits.
What a start has recovered is held as well, for a producer that resends it.

A failed sync is never retried (the kernel may have dropped the dirty pages and report success next
time): the log goes offline, every waiting request fails, and one ERROR line gives the cure. This
module knows nothing about requests; `broker.threads` owns the threads.

Source: our own; the nearest in Kafka is `log.flush.interval.messages=1`, which syncs under the
lock of one partition for each append.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, TypeAlias

from broker.fetch.waiters import FetchWaiters
from broker.metrics import CommitMetrics
from broker.threads import Pool
from storage.errors import LogOffline, StorageError
from storage.log.flush import FlushTicket
from storage.log.log import Log

logger = logging.getLogger("tidelog.broker.group_commit")

SYNCS_AT_ONCE: Final = 2
"""Logs that a thread syncs before it reports: more would let the first of them wait too long."""

SYNCS_AT_ONCE_MAX: Final = 8
"""As many where the queue is long. A share is at most a quarter of what each thread has to sync
then, so the first log of it waits little longer than its place in the queue makes it wait."""

_LONG_QUEUE_SHARES: Final = 4

SOON_S: Final = 0.2
"""How long a sync may wait that no answer waits for."""

DurableCallback: TypeAlias = "Callable[[StorageError | None], object]"


class _Sync:
    """One sync on its way through a thread; the ticket keeps its outcome."""

    __slots__ = ("ended_ns", "is_wanted", "log", "size_bytes", "started_ns", "ticket")

    def __init__(self, log: Log, ticket: FlushTicket, size_bytes: int) -> None:
        self.is_wanted = True
        self.log = log
        self.ticket = ticket
        self.size_bytes = size_bytes
        self.started_ns = self.ended_ns = time.perf_counter_ns()


def _run(syncs: list[_Sync]) -> None:
    """Run the tickets, one after the other; in a thread."""
    for sync in syncs:
        sync.ticket.run()
        sync.ended_ns = time.perf_counter_ns()


class GroupCommit:
    """The queue of dirty logs, the syncs that run and the acks that wait for them.

    The loop thread is the only caller. `drain` before the pool is closed.

    Attributes:
        waits_for_store: whether the syncs of a log are held; set by the writer of the bucket.
        when_held: called whenever one is held.
        parked: the fetches that wait for records, by log.
        failing: the logs whose last append the disk has refused.
    """

    def __init__(self, fetch_waiters: FetchWaiters, metrics: CommitMetrics, pool: Pool) -> None:
        """Sync in the threads of `pool`, which makes no other calls meanwhile."""
        self._fetch_waiters = fetch_waiters
        self.parked = fetch_waiters.by_log
        self._metrics = metrics
        self._pool = pool
        self._dirty_bytes: dict[Log, int] = {}
        self._soon: dict[Log, None] = {}
        self._queue: deque[Log] = deque()
        self._syncing: dict[Log, _Sync] = {}
        self._busy_threads = 0
        self._held: dict[Log, _Sync] = {}
        self._recovered: dict[Log, int] = {}
        self.when_held: Callable[[], object] = lambda: None
        # Without an object store no sync is held: nothing would ever complete it.
        self.waits_for_store: Callable[[Log], bool] = lambda log: False
        self._waiting: dict[Log, deque[tuple[int, DurableCallback]]] = {}
        self._acknowledged: dict[Log, int] = {}
        self.failing: set[Log] = set()
        self._pump_scheduled = False
        self._idle: asyncio.Event | None = None

    async def drain(self) -> None:
        """Sync the dirty logs and complete the waiting acks; return when no sync is running."""
        self._mark_waiting()
        while self._dirty_bytes or self._syncing or self._held:
            self._idle = asyncio.Event()
            self._schedule_pump()
            await self._idle.wait()

    def appended(self, log: Log, size_bytes: int) -> None:
        """`size_bytes` were appended to `log`: make them durable or visible as its policy says.

        Under `flush.policy=batch` the log joins the queue. Under `os` the high watermark has
        already moved with the append, so parked fetches wake at once. Then a sync is due by
        `flush.messages`, or soon, when a segment was closed or files were made.
        """
        if self.failing:
            self._resumed(log)
        if log.waits_for_disk:
            self.mark_dirty(log, size_bytes)
            return
        if self._fetch_waiters.by_log:
            self._fetch_waiters.data_visible(log, size_bytes)
        if log.wants_commit():
            if log.has_flush_messages():
                self.mark_dirty(log)
            else:
                self._mark_soon(log)

    def _mark_soon(self, log: Log) -> None:
        """Put `log` into the queue after `SOON_S`: nothing waits, and many sync more cheaply."""
        if not self._soon:
            asyncio.get_running_loop().call_later(SOON_S, self._mark_waiting)
        self._soon[log] = None

    def _mark_waiting(self) -> None:
        soon, self._soon = self._soon, {}
        for log in soon:
            self.mark_dirty(log)

    def append_failed(self, log: Log, error: StorageError) -> None:
        """The disk refused an append to `log`: log it once, not once per request."""
        if log not in self.failing:
            self.failing.add(log)
            logger.error(
                "%s-%d: appends are refused (%s). Clients get an error that they retry; %s",
                log.topic,
                log.partition,
                error,
                "this log accepts none any more."
                if isinstance(error, LogOffline)
                else "appends succeed again as soon as the disk accepts them, for instance when it "
                "has space.",
            )

    def mark_dirty(self, log: Log, size_bytes: int = 0) -> None:
        """Put `log` into the queue unless it is already there."""
        dirty_bytes = self._dirty_bytes.get(log)
        if dirty_bytes is None:
            self._dirty_bytes[log] = size_bytes
            if log not in self._syncing and log not in self._held:
                self._queue.append(log)
                self._schedule_pump()
        else:
            self._dirty_bytes[log] = dirty_bytes + size_bytes

    def acknowledge(self, log: Log, next_offset: int) -> None:
        """Everything of `log` below `next_offset` is being acknowledged, durable or not."""
        if next_offset > max(log.high_watermark, self._acknowledged.get(log, 0)):
            self._acknowledged[log] = next_offset

    def acknowledged_end(self, log: Log) -> int:
        """The acknowledged end that is not visible yet; 0 if there is none."""
        if not self._acknowledged:
            return 0
        end = self._acknowledged.get(log, 0)
        return end if end > log.high_watermark else 0

    def when_durable(self, log: Log, next_offset: int, callback: DurableCallback) -> None:
        """Call `callback(None)` once everything below `next_offset` is on disk.

        `callback(error)` instead when the log went offline. The call is immediate when the outcome
        is known. Callers append in offset order, so the acks of a log complete in offset order.
        """
        assert next_offset <= log.log_end_offset, f"{log.path}: a wait for {next_offset}"
        if self.has(log, next_offset):
            callback(None)
            return
        waiting = self._waiting.get(log)
        if waiting is None:
            waiting = self._waiting[log] = deque()
        if waiting and waiting[-1][0] > next_offset:
            # A resent batch: older than the batches that others wait for, but its ack keeps its
            # place.
            next_offset = waiting[-1][0]
        waiting.append((next_offset, callback))

    def has(self, log: Log, next_offset: int) -> bool:
        """Whether an ack for everything below `next_offset` needs no wait."""
        if self._recovered and log in self._recovered:
            return False
        return log.durable_offset >= next_offset

    def log_closed(self, log: Log) -> None:
        """`log` was deleted: fail every ack that waits for it, and ignore how its sync ends."""
        if (sync := self._syncing.get(log)) is not None:
            sync.is_wanted = False
        self._held.pop(log, None)
        self._recovered.pop(log, None)
        self.failing.discard(log)
        self._dirty_bytes.pop(log, None)
        self._soon.pop(log, None)
        self._acknowledged.pop(log, None)
        self._fail_waiting(log, LogOffline(log.path, "the topic was deleted"))

    def _resumed(self, log: Log) -> None:
        if log in self.failing:
            self.failing.discard(log)
            logger.warning("%s-%d: appends succeed again", log.topic, log.partition)

    def _schedule_pump(self) -> None:
        if not self._pump_scheduled:
            self._pump_scheduled = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        """Hand dirty logs to free threads. Runs after the requests of this loop turn."""
        self._pump_scheduled = False
        free = self._pool.size - self._busy_threads
        assert free >= 0, "more threads sync than there are"
        syncs: list[_Sync] = []
        try:
            self._begin_syncs(syncs, free * self._share())
        except BaseException:
            self._schedule_pump()
            raise
        finally:
            used = min(free, len(syncs))
            for start in range(used):
                share = syncs[start::used]
                self._busy_threads += 1
                self._pool.submit(partial(_run, share), partial(self._finish, share))
        self._signal_if_idle()

    def _share(self) -> int:
        """How many logs a thread gets at a time."""
        share = len(self._queue) // (self._pool.size * _LONG_QUEUE_SHARES)
        return min(max(share, SYNCS_AT_ONCE), SYNCS_AT_ONCE_MAX)

    def _begin_syncs(self, syncs: list[_Sync], count: int) -> None:
        """Add the next ones to `syncs`, until there are `count`.

        A log that has stopped or is synced needs none. One is queued twice when an ack has appended
        to it; while its sync is under way it is passed over, since the end of that queues it again.
        """
        while self._queue and len(syncs) < count:
            log = self._queue.popleft()
            if log in self._syncing or log in self._held or log not in self._dirty_bytes:
                continue
            size_bytes = self._dirty_bytes.pop(log)
            was_offline = log.offline is not None
            try:
                ticket = log.begin_flush()
            except StorageError as error:
                self._give_up(log, error, was_offline=was_offline)
                continue
            if ticket is None:
                self._complete_waiting(log)
                self._fetch_waiters.data_visible(log, size_bytes)
                continue
            sync = self._syncing[log] = _Sync(log, ticket, size_bytes)
            syncs.append(sync)

    def _finish(self, syncs: list[_Sync], _: None, error: BaseException | None) -> None:
        """Publish the outcome of the syncs of one thread."""
        assert error is None, f"a flush ticket keeps its error: {error!r}"
        assert self._busy_threads > 0, "a thread has ended twice"
        self._busy_threads -= 1
        try:
            self._end_syncs(iter(syncs))
        finally:
            self._pump()

    def _end_syncs(self, syncs: Iterator[_Sync]) -> None:
        """Publish or hold each outcome; an ack that raises costs the logs after it nothing."""
        try:
            for sync in syncs:
                log = sync.log
                assert self._syncing[log] is sync, f"{log.path}: another sync was under way"
                assert log not in self._held, f"{log.path}: one sync at a time"
                del self._syncing[log]
                self._metrics.observe_sync(sync.ended_ns - sync.started_ns, sync.size_bytes)
                is_held = self.waits_for_store(log)
                if is_held and sync.is_wanted and sync.ticket.error is None:
                    self._held[log] = sync
                    self.when_held()
                else:
                    self._complete(sync)
        except BaseException:
            self._end_syncs(syncs)
            raise

    @property
    def held(self) -> dict[Log, int]:
        """The logs of which something waits for the object store, each with the end of it."""
        return {
            **self._recovered,
            **{log: sync.ticket.end.offset for log, sync in self._held.items()},
        }

    def recovered(self, log: Log) -> None:
        """A start has found records of `log`: no ack for one of them before the store has them."""
        if log.log_end_offset > log.log_start_offset:
            self._recovered[log] = log.log_end_offset

    def stored(self, log: Log, error: StorageError | None = None) -> None:
        """The object store has what was synced last, or will not have it: then its acks fail."""
        sync = self._held.pop(log, None)
        if error is not None:
            self._fail_waiting(log, error)
        if error is None or log.offline is not None:
            self._recovered.pop(log, None)
        if sync is None:
            self._complete_waiting(log)
        elif log.offline is None:
            self._complete(sync)
        else:
            # What only this broker has stays invisible.
            log.unsynced.end(sync.ticket)
            self._dirty_bytes.pop(log, None)
            self._acknowledged.pop(log, None)
        self._schedule_pump()

    def _complete(self, sync: _Sync) -> None:
        """Publish what a sync has made durable."""
        log = sync.log
        durable_before = log.durable_offset
        was_offline = log.offline is not None
        try:
            log.complete_flush(sync.ticket)
        except StorageError as failure:
            if sync.is_wanted:
                self._give_up(log, failure, was_offline=was_offline)
        else:
            assert durable_before <= log.durable_offset, f"{log.path}: durable data is lost"
            self._complete_waiting(log)
            self._fetch_waiters.data_visible(log, sync.size_bytes)
        finally:
            if log in self._dirty_bytes:
                self._queue.append(log)

    def _give_up(self, log: Log, error: StorageError, *, was_offline: bool) -> None:
        """A sync of `log` failed: fail every ack that waits for it, and log the cure.

        A log that was offline before, such as those of a fenced broker, says nothing of the disk.
        """
        if not was_offline:
            logger.error(
                "%s-%d: syncing to disk failed (%s). Nothing acknowledged is lost; check the disk "
                "of %s, then restart the broker, which recovers the log.",
                log.topic,
                log.partition,
                error,
                log.path,
            )
            self._metrics.sync_failures += 1
        self._dirty_bytes.pop(log, None)
        self._acknowledged.pop(log, None)
        self._fail_waiting(log, error)
        self._fetch_waiters.log_changed(log)

    def _complete_waiting(self, log: Log) -> None:
        if log in self._recovered:
            return
        acknowledged = self._acknowledged.get(log)
        if acknowledged is not None and acknowledged <= log.durable_offset:
            del self._acknowledged[log]
        waiting = self._waiting.get(log)
        if waiting is None:
            return
        durable_offset = log.durable_offset
        completed = 0
        while waiting and waiting[0][0] <= durable_offset:
            callback = waiting.popleft()[1]
            completed += 1
            callback(None)
        self._metrics.acks_completed += completed
        if not waiting and self._waiting.get(log) is waiting:
            del self._waiting[log]

    def _fail_waiting(self, log: Log, error: StorageError) -> None:
        for _, callback in self._waiting.pop(log, ()):
            callback(error)

    def _signal_if_idle(self) -> None:
        if self._idle is not None and not (self._syncing or self._held or self._dirty_bytes):
            self._idle.set()
            self._idle = None
