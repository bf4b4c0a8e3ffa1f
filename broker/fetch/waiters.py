"""Fetches parked until enough bytes are visible or their time has expired.

A fetch that finds too little data is parked here under every log it reads. Nothing polls: the group
commit calls `data_visible` when a log's high watermark has moved, and a parked fetch counts the
bytes down. When the count reaches zero, or the deadline fires, its `retry` runs and decides again.
It may park again: visible bytes are not necessarily stable or fetchable.

Invariant: a waiter is in the table of all its logs or of none. Loop thread only.

Source: KIP-74's min_bytes/max_wait; Kafka's `DelayedFetch`, without its re-reads.
"""

from collections.abc import Callable, Sequence
from typing import Final

from broker.clocks.clock import Clock, TimerHandle
from storage.log.log import Log

MAX_WAIT_MS: Final = 300_000
"""The longest time that a fetch is parked, whatever the client requests."""


class FetchWaiter:
    """One parked fetch. `retry(True)` is called at the deadline, `retry(False)` on new data."""

    __slots__ = ("bytes_missing", "logs", "parked", "retry", "timer")

    def __init__(
        self, logs: Sequence[Log], bytes_missing: int, retry: Callable[[bool], object]
    ) -> None:
        """Wait for `bytes_missing` (> 0) more bytes in any of `logs`."""
        self.logs = logs
        self.bytes_missing = bytes_missing
        self.retry = retry
        self.timer: TimerHandle | None = None
        self.parked = False


class FetchWaiters:
    """All parked fetches; `by_log` has them by log, and no log without any."""

    __slots__ = ("_clock", "_parked", "by_log")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.by_log: dict[Log, dict[FetchWaiter, None]] = {}
        self._parked: dict[FetchWaiter, None] = {}

    def __len__(self) -> int:
        """How many fetches are parked."""
        return len(self._parked)

    def park(self, waiter: FetchWaiter, max_wait_ms: int) -> None:
        """Park `waiter` for at most `max_wait_ms` (> 0)."""
        assert not waiter.parked, "a fetch is parked once at a time"
        assert max_wait_ms > 0, "a fetch whose time is up is answered"
        waiter.parked = True
        self._parked[waiter] = None
        for log in waiter.logs:
            self.by_log.setdefault(log, {})[waiter] = None
        waiter.timer = self._clock.call_later(max_wait_ms, lambda: self._release(waiter, True))

    def remove(self, waiter: FetchWaiter) -> None:
        """Drop `waiter` without running it; its client has gone, or the fetch was answered."""
        if not waiter.parked:
            return
        waiter.parked = False
        if waiter.timer is not None:
            waiter.timer.cancel()
            waiter.timer = None
        del self._parked[waiter]
        for log in waiter.logs:
            waiters = self.by_log.get(log)
            if waiters is not None:
                waiters.pop(waiter, None)
                if not waiters:
                    del self.by_log[log]

    def data_visible(self, log: Log, size_bytes: int) -> None:
        """`size_bytes` more of `log` lie below its high watermark."""
        waiters = self.by_log.get(log)
        if not waiters:
            return
        assert size_bytes >= 0, f"{log.path}: {size_bytes} bytes became visible"
        due = []
        for waiter in waiters:
            waiter.bytes_missing -= size_bytes
            if waiter.bytes_missing <= 0:
                due.append(waiter)
        for waiter in due:
            self._release(waiter, False)

    def log_changed(self, log: Log) -> None:
        """`log` was deleted, went offline or lost its start: run every fetch that waits for it."""
        for waiter in list(self.by_log.get(log, ())):
            self._release(waiter, False)

    def release_all(self) -> None:
        """Answer every parked fetch with the data there is; used by an orderly stop."""
        for waiter in list(self._parked):
            self._release(waiter, True)

    def _release(self, waiter: FetchWaiter, is_deadline: bool) -> None:
        if not waiter.parked:
            return
        self.remove(waiter)
        waiter.retry(is_deadline)
