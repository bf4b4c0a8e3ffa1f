"""Natural group commit: which requests wait for the disk, and when a log is synced.

An append makes its log *dirty*. Dirty logs queue in the order they became dirty, and a free sync
thread takes the first. Everything appended to that log until then goes to disk in one `fdatasync`;
later appends make the log dirty again and join the next sync. There is no linger timer: under light
load a batch waits for its own sync only, under heavy load the batches per sync grow by themselves.

Fairness and bounds: at most `THREADS` syncs run at once, one per log; the queue is first come,
first served, so a busy partition cannot starve a quiet one.

Order on completion, all in the loop thread: durable offset and high watermark move, the waiting
acks of that log are completed in offset order, then parked fetches are woken.

Appends acknowledged without waiting (acks=0 and 1) are recorded per log until they are durable, so
that later requests can wait for them: see `broker.requests.commit_wait`.

A failed sync is never retried (the kernel may have dropped the dirty pages and report success next
time): the log goes offline, every waiting request fails, and one ERROR line gives the cure. This
module owns the threads and knows nothing about requests.

Source: our own; the nearest in Kafka is `log.flush.interval.messages=1`, which syncs under the
lock of one partition for each append.
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING, TypeAlias

from storage.errors import LogOffline, StorageError

if TYPE_CHECKING:
    from broker.fetch.waiters import FetchWaiters
    from broker.metrics import CommitMetrics
    from storage.log.flush import FlushTicket
    from storage.log.log import Log

THREADS = 8
"""Syncs that may run at once.

Measured on a virtual disk: 64 partitions take 20 ms one after the other, 7 ms with 8 threads and 6
ms with 32, while each thread costs memory and switches.
"""

logger = logging.getLogger("tidelog.broker.group_commit")

DurableCallback: TypeAlias = "Callable[[StorageError | None], object]"


class _Sync:
    """One sync on its way through a thread; the ticket keeps its outcome."""

    __slots__ = ("is_wanted", "log", "size_bytes", "started_ns", "ticket")

    def __init__(self, log: "Log", ticket: "FlushTicket", size_bytes: int) -> None:
        self.is_wanted = True
        self.log = log
        self.ticket = ticket
        self.size_bytes = size_bytes
        self.started_ns = time.perf_counter_ns()


class GroupCommit:
    """The queue of dirty logs, the sync threads and the acks that wait for them.

    Built in the loop thread, which is also the only caller of every public method. `start` opens
    the threads, `stop` drains the queue and closes them.
    """

    def __init__(
        self, fetch_waiters: "FetchWaiters", metrics: "CommitMetrics", threads: int = THREADS
    ) -> None:
        """Prepare; no thread runs before `start`."""
        self._fetch_waiters = fetch_waiters
        self._metrics = metrics
        self._threads_max = threads
        self._threads: list[threading.Thread] = []
        self._tasks: SimpleQueue[_Sync | None] = SimpleQueue()
        self._done: deque[_Sync] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._dirty_bytes: dict[Log, int] = {}
        self._queue: deque[Log] = deque()
        self._syncing: dict[Log, _Sync] = {}
        self._waiting: dict[Log, deque[tuple[int, DurableCallback]]] = {}
        self._acknowledged: dict[Log, int] = {}
        self._failing: set[Log] = set()
        self._pump_scheduled = False
        self._idle: asyncio.Event | None = None

    def start(self) -> None:
        """Bind to the running loop; threads start when there is work for them."""
        self._loop = asyncio.get_running_loop()

    async def stop(self) -> None:
        """Sync the dirty logs, complete the waiting acks, end the threads."""
        await self.drain()
        for _ in self._threads:
            self._tasks.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    async def drain(self) -> None:
        """Return when no log is dirty and no sync is running."""
        while self._dirty_bytes or self._syncing:
            self._idle = asyncio.Event()
            self._schedule_pump()
            await self._idle.wait()

    def appended(self, log: "Log", size_bytes: int) -> None:
        """`size_bytes` were appended to `log`: make them durable or visible as its policy says.

        Under `flush.policy=batch` the log joins the queue. Under `os` the high watermark has
        already moved with the append, so parked fetches wake at once. Then a sync is due only by
        `flush.messages`, or when a segment was closed.
        """
        if self._failing:
            self._resumed(log)
        if log.waits_for_disk:
            self.mark_dirty(log, size_bytes)
            return
        self._fetch_waiters.data_visible(log, size_bytes)
        unsynced = log.log_end_offset - log.durable_offset
        if unsynced >= log.config.flush_messages or log.has_unsynced_files:
            self.mark_dirty(log)

    def append_failed(self, log: "Log", error: StorageError) -> None:
        """The disk refused an append to `log`: log it once, not once per request."""
        if log not in self._failing:
            self._failing.add(log)
            logger.error(
                "%s-%d: appends are refused (%s). Clients are told to retry; appends go on by "
                "themselves when the disk lets them, for instance when there is space again.",
                log.topic,
                log.partition,
                error,
            )

    def mark_dirty(self, log: "Log", size_bytes: int = 0) -> None:
        """Put `log` into the queue unless it is already there."""
        dirty_bytes = self._dirty_bytes.get(log)
        if dirty_bytes is None:
            self._dirty_bytes[log] = size_bytes
            if log not in self._syncing:
                self._queue.append(log)
                self._schedule_pump()
        else:
            self._dirty_bytes[log] = dirty_bytes + size_bytes

    def acknowledge(self, log: "Log", next_offset: int) -> None:
        """Everything of `log` below `next_offset` is being acknowledged, durable or not."""
        if next_offset > max(log.high_watermark, self._acknowledged.get(log, 0)):
            self._acknowledged[log] = next_offset

    def acknowledged_end(self, log: "Log") -> int:
        """The acknowledged end that is not visible yet; 0 if there is none."""
        if not self._acknowledged:
            return 0
        end = self._acknowledged.get(log, 0)
        return end if end > log.high_watermark else 0

    def when_durable(self, log: "Log", next_offset: int, callback: DurableCallback) -> None:
        """Call `callback(None)` once everything below `next_offset` is on disk.

        `callback(error)` instead when the log went offline. The call is immediate when the outcome
        is known. Callers append in offset order, so the acks of a log complete in offset order.
        """
        if log.durable_offset >= next_offset:
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

    async def durable(self, log: "Log", next_offset: int) -> None:
        """Return once everything below `next_offset` of `log` is on disk, forcing a sync if needed.

        Raises:
            StorageError: the log went offline first.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def settle(error: StorageError | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

        self.when_durable(log, next_offset, settle)
        if not future.done():
            self.mark_dirty(log)
        await future

    def log_closed(self, log: "Log") -> None:
        """`log` was deleted: fail every ack that waits for it, and ignore how its sync ends."""
        if (sync := self._syncing.get(log)) is not None:
            sync.is_wanted = False
        self._failing.discard(log)
        self._dirty_bytes.pop(log, None)
        self._acknowledged.pop(log, None)
        self._fail_waiting(log, LogOffline(log.path, "the topic was deleted"))

    def _resumed(self, log: "Log") -> None:
        if log in self._failing:
            self._failing.discard(log)
            logger.warning("%s-%d: appends succeed again", log.topic, log.partition)

    def _schedule_pump(self) -> None:
        if not self._pump_scheduled and self._loop is not None:
            self._pump_scheduled = True
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        """Hand dirty logs to free threads. Runs after the requests of this loop turn."""
        self._pump_scheduled = False
        while self._queue and len(self._syncing) < self._threads_max:
            log = self._queue.popleft()
            size_bytes = self._dirty_bytes.pop(log, None)
            if size_bytes is None:
                continue
            try:
                ticket = log.begin_flush()
            except StorageError as error:
                self._give_up(log, error)
                continue
            if ticket is None:
                self._complete_waiting(log)
                self._fetch_waiters.data_visible(log, size_bytes)
                continue
            sync = self._syncing[log] = _Sync(log, ticket, size_bytes)
            if len(self._threads) < len(self._syncing):
                self._start_thread()
            self._tasks.put(sync)
        self._signal_if_idle()

    def _start_thread(self) -> None:
        name = f"sync-{len(self._threads)}"
        thread = threading.Thread(target=self._run_thread, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _run_thread(self) -> None:
        """Body of a sync thread: run tickets until `stop`."""
        loop = self._loop
        assert loop is not None, "start() comes before the first sync"
        while (sync := self._tasks.get()) is not None:
            sync.ticket.run()
            self._done.append(sync)
            loop.call_soon_threadsafe(self._finish_one)

    def _finish_one(self) -> None:
        """Loop thread: publish the outcome of the oldest finished sync."""
        sync = self._done.popleft()
        log = sync.log
        del self._syncing[log]
        self._metrics.observe_sync(time.perf_counter_ns() - sync.started_ns, sync.size_bytes)
        try:
            log.complete_flush(sync.ticket)
        except StorageError as error:
            if sync.is_wanted:
                self._give_up(log, error)
        else:
            self._complete_waiting(log)
            self._fetch_waiters.data_visible(log, sync.size_bytes)
        if log in self._dirty_bytes:
            self._queue.append(log)
        self._pump()

    def _give_up(self, log: "Log", error: StorageError) -> None:
        """A sync of `log` failed: fail every ack that waits for it, and log the cure."""
        logger.error(
            "%s-%d: syncing to disk failed (%s). Nothing acknowledged is lost; check the disk "
            "behind %s, then restart the broker, which recovers the log.",
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

    def _complete_waiting(self, log: "Log") -> None:
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

    def _fail_waiting(self, log: "Log", error: StorageError) -> None:
        for _, callback in self._waiting.pop(log, ()):
            callback(error)

    def _signal_if_idle(self) -> None:
        if self._idle is not None and not self._syncing and not self._dirty_bytes:
            self._idle.set()
            self._idle = None
