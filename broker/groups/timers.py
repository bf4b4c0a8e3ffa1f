"""One timer for many groups: which to wake, and when.

Owns a heap of (wake time, name) and the one timer that serves it. Only the earliest request of a
name counts; an entry that an earlier one replaced is stale and skipped. A request may be too early,
never too late, so that moving a deadline later costs nothing here.

Source: our own; Kafka has a timing wheel with an entry per member.
"""

import heapq
import logging
from collections.abc import Callable, Container, Hashable, Iterable
from typing import Any, Generic, TypeVar

from broker.clocks.clock import Clock, TimerHandle

logger = logging.getLogger("tidelog.broker.groups.timers")

Name = TypeVar("Name", bound=Hashable)
"""What is woken; names of one heap can be compared."""


def log_silent(group_id: str, member_id: str, client_id: str, client_host: str) -> None:
    """Say that a member is removed because its time is over."""
    logger.info(
        "group %s: member %r of client %r at %s was silent too long and is removed",
        *(group_id, member_id, client_id, client_host),
    )


def log_silent_of(group_id: str, before: Iterable[Any], after: Container[str]) -> None:
    """Say it of the members with a subscription that were in a group `before`, and not `after`."""
    for member in before:
        if member.member_id not in after:
            client = member.subscription
            log_silent(group_id, member.member_id, client.client_id, client.client_host)


class GroupTimers(Generic[Name]):
    """Wakes names at or after their time. Loop thread only."""

    def __init__(self, clock: Clock, wake: Callable[[Name, int], object]) -> None:
        """Call `wake(name, now_ms)` for each name whose time has come."""
        self._clock = clock
        self._wake = wake
        self._heap: list[tuple[int, Any]] = []
        self._due_of: dict[Name, int] = {}
        self._timer: TimerHandle | None = None
        self._timer_due_ms = 0

    def set(self, name: Name, due_ms: int | None) -> None:
        """Wake `name` at `due_ms` (monotonic) or earlier; None sets nothing."""
        if due_ms is None:
            return
        known_ms = self._due_of.get(name)
        if known_ms is not None and known_ms <= due_ms:
            return
        self._due_of[name] = due_ms
        heapq.heappush(self._heap, (due_ms, name))
        self._set_timer()

    def cancel_all(self) -> None:
        """Cancel all entries and the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._heap.clear()
        self._due_of.clear()

    def _set_timer(self) -> None:
        due_ms = self._heap[0][0]
        if self._timer is not None:
            if self._timer_due_ms <= due_ms:
                return
            self._timer.cancel()
        self._timer_due_ms = due_ms
        delay_ms = max(due_ms - self._clock.monotonic_ms(), 0)
        self._timer = self._clock.call_later(delay_ms, self._fire)

    def _fire(self) -> None:
        self._timer = None
        now_ms = self._clock.monotonic_ms()
        while self._heap and self._heap[0][0] <= now_ms:
            due_ms, name = heapq.heappop(self._heap)
            if self._due_of.get(name) != due_ms:
                continue
            del self._due_of[name]
            self._wake(name, now_ms)
        if self._heap:
            self._set_timer()
