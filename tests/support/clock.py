"""Time for tests: spans, and a clock that moves only on request.

Storage takes its time as a parameter, so there a test's clock is a number.
"""

import heapq
import itertools
from collections.abc import Callable

DAY_MS = 86_400_000


class FrozenTimer:
    """A timer of a `FrozenClock`: fires inside `FrozenClock.advance`."""

    __slots__ = ("callback", "cancelled", "due_ms")

    def __init__(self, due_ms: int, callback: Callable[[], object]) -> None:
        """Keep `callback` for monotonic time `due_ms`."""
        self.due_ms = due_ms
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        """Never fire."""
        self.cancelled = True


class FrozenClock:
    """A clock that moves only on request, for tests and simulation.

    `advance` moves both clocks together and fires the timers that fall due, in order of their due
    time (ties in order of creation). `jump_wall` moves wall time alone, as an operator or a broken
    NTP server can do to a running broker.
    """

    __slots__ = ("_monotonic_ms", "_order", "_timers", "_wall_ms")

    def __init__(self, wall_ms: int = 1_700_000_000_000, monotonic_ms: int = 1_000_000) -> None:
        """Start at the given times."""
        self._wall_ms = wall_ms
        self._monotonic_ms = monotonic_ms
        self._order = itertools.count()
        self._timers: list[tuple[int, int, FrozenTimer]] = []

    def wall_ms(self) -> int:
        """The frozen wall time."""
        return self._wall_ms

    def monotonic_ms(self) -> int:
        """The frozen monotonic time."""
        return self._monotonic_ms

    def call_later(self, delay_ms: int, callback: Callable[[], object]) -> FrozenTimer:
        """Set a timer that fires in the `advance` that reaches it."""
        timer = FrozenTimer(self._monotonic_ms + max(0, delay_ms), callback)
        heapq.heappush(self._timers, (timer.due_ms, next(self._order), timer))
        return timer

    def advance(self, delta_ms: int) -> None:
        """Let `delta_ms` (>= 0) pass on both clocks, firing due timers at their own due time."""
        assert delta_ms >= 0, f"time does not run backwards on a monotonic clock: {delta_ms}"
        target_ms = self._monotonic_ms + delta_ms
        while self._timers and self._timers[0][0] <= target_ms:
            due_ms, _, timer = heapq.heappop(self._timers)
            if timer.cancelled:
                continue
            self._move_to(due_ms)
            timer.callback()
        self._move_to(target_ms)

    def jump_wall(self, delta_ms: int) -> None:
        """Move wall time alone by `delta_ms`, which may be negative; no timer fires."""
        self._wall_ms += delta_ms

    def _move_to(self, monotonic_ms: int) -> None:
        step_ms = max(0, monotonic_ms - self._monotonic_ms)
        self._monotonic_ms += step_ms
        self._wall_ms += step_ms
