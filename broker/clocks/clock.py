"""Time as a collaborator: wall clock, monotonic clock and timers behind one seam.

Everything in the broker reads the time and sets timers through a `Clock`. So a test can freeze
time, jump it by ten years, or fire a session timeout without sleeping. Wall time stamps records and
decides nothing about liveness; every deadline, timeout and interval runs on the monotonic clock. So
a wall-clock jump can neither expire a session nor delete a segment.

Both clocks are integers in milliseconds. Nothing else in the broker imports `time` for
milliseconds; latency measurements in `broker.metrics` use a nanosecond counter of their own.
"""

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable
from typing import Protocol


class TimerHandle(Protocol):
    """A timer that has not fired yet."""

    def cancel(self) -> None:
        """Drop the callback; harmless after it has fired."""


class Clock(Protocol):
    """The time source handed to every part of the broker."""

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch; may jump in both directions."""

    def monotonic_ms(self) -> int:
        """Milliseconds since an arbitrary point; never goes back."""

    def call_later(self, delay_ms: int, callback: Callable[[], object]) -> TimerHandle:
        """Call `callback` once on the event loop, `delay_ms` (>= 0) from now, monotonic time."""


class SystemClock:
    """The real clock; timers belong to the event loop that is running when they are set."""

    __slots__ = ()

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Milliseconds of the system's monotonic clock."""
        return time.monotonic_ns() // 1_000_000

    def call_later(self, delay_ms: int, callback: Callable[[], object]) -> TimerHandle:
        """Call `callback` once on the running loop, `delay_ms` from now."""
        return asyncio.get_running_loop().call_later(delay_ms / 1000, callback)


class SteadyTime:
    """The present in ms since the epoch, monotonic within one run of the broker.

    For values stored as dates but used as durations, such as the timeouts of transactions: setting
    the wall clock ahead must not abort every transaction at once. So the present here is the wall
    clock at start plus the time of the monotonic clock since then.
    """

    __slots__ = ("_clock", "_offset_ms")

    def __init__(self, clock: Clock) -> None:
        """Start at the current time of the wall clock."""
        self._clock = clock
        self._offset_ms = clock.wall_ms() - clock.monotonic_ms()

    def now_ms(self) -> int:
        """The present, in ms since the epoch."""
        return self._clock.monotonic_ms() + self._offset_ms


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
