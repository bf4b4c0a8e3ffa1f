"""A clock that is set on purpose, for tests of what depends on time: ``serve --clock settable``.

Two clocks in one. What the broker stores and deletes follows the settable one. What waits on a
socket follows the real one, so that a long poll ends, and a client stays connected, while the
clock is frozen. docs/time.md lists what follows which.

Both settable readings, wall and elapsed, run at `rate` times the speed of the real monotonic
clock; 0 freezes them. `advance` moves both, so everything sees time that has passed: `TrustedTime`
has no step to distrust. `jump` moves the wall clock alone, as a wrong clock does.

An advance fires each timer that falls due once, at the new time and in the order of their due
times. A job that would have run a hundred times meanwhile runs once, as after a sleep of the
machine.

Read next: `broker.operator.clock` (the commands), `storage.directory.clock_file` (restarts).
"""

import heapq
import itertools
import logging
import math
from collections.abc import Callable
from typing import Final

from broker.clocks.clock import Clock, SystemClock, TimerHandle
from storage.directory.clock_file import ClockState, read_clock
from storage.disk.files import Files

logger = logging.getLogger("tidelog.broker.clocks.settable_clock")

RATE_MAX: Final = 1_000_000
"""The fastest that the clock runs, as a multiple of real time."""


class _Timer:
    """A timer on the elapsed time of a `SettableClock`."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        """Never fire."""
        self.callback = None


class SettableClock:
    """The settable clock; timers need a running event loop unless the rate is 0.

    Attributes:
        rate: how fast it runs, as a multiple of real time.
        live: settable wall time with real elapsed time and timers, for what waits on a socket.
        sessions: the clock for the sessions of groups, `live` or this one.
    """

    def __init__(self, real: Clock | None = None, *, moves_sessions: bool = False) -> None:
        """Begin at the time of `real` (the system's clock), at its speed."""
        self._real = real or SystemClock()
        self._wall_ms = self._real.wall_ms()
        self._elapsed_ms = self._since_ms = self._real.monotonic_ms()
        self.rate: float = 1
        self._order = itertools.count()
        self._timers: list[tuple[int, int, _Timer]] = []
        self._wakeup: TimerHandle | None = None
        self.live: Clock = _LiveClock(self, self._real)
        self.sessions: Clock = self if moves_sessions else self.live

    def wall_ms(self) -> int:
        """Milliseconds since the epoch, as set."""
        return self._wall_ms + self._passed_ms()

    def monotonic_ms(self) -> int:
        """Elapsed milliseconds, advances included; never goes back."""
        return self._elapsed_ms + self._passed_ms()

    def call_later(self, delay_ms: int, callback: Callable[[], object]) -> TimerHandle:
        """Call `callback` once, `delay_ms` (>= 0) of elapsed time from now."""
        timer = _Timer(callback)
        due_ms = self.monotonic_ms() + max(0, delay_ms)
        heapq.heappush(self._timers, (due_ms, next(self._order), timer))
        if self._timers[0][2] is timer:
            self._set_wakeup()
        return timer

    def advance(self, delta_ms: int) -> int:
        """Let `delta_ms` (>= 0) pass; returns how many timers fell due and were fired."""
        assert delta_ms >= 0, f"elapsed time does not run backwards: {delta_ms}"
        self._settle()
        self._wall_ms += delta_ms
        self._elapsed_ms += delta_ms
        return self._fire()

    def jump(self, delta_ms: int) -> None:
        """Move the wall clock alone; no timer fires, and a large step ahead is distrusted."""
        self._wall_ms += delta_ms

    def set_wall(self, wall_ms: int) -> int:
        """Advance to `wall_ms`, or jump back to it; returns how many timers were fired."""
        delta_ms = wall_ms - self.wall_ms()
        if delta_ms >= 0:
            return self.advance(delta_ms)
        self.jump(delta_ms)
        return 0

    def set_rate(self, rate: float) -> None:
        """Run at `rate` (0 to `RATE_MAX`) times real time from now on."""
        assert 0 <= rate <= RATE_MAX, rate
        self._settle()
        self.rate = rate
        self._set_wakeup()

    def state(self) -> ClockState:
        """The reading to store, from which a restarted broker continues."""
        return ClockState(wall_ms=self.wall_ms(), saved_ms=self._real.wall_ms(), rate=self.rate)

    def restore(self, state: ClockState) -> None:
        """Continue from a stored reading, as if the clock had run since."""
        self.set_rate(state.rate)
        away_ms = max(0, self._real.wall_ms() - state.saved_ms)
        self._wall_ms = state.wall_ms + int(away_ms * state.rate)

    def restore_from(self, directory: str, files: Files) -> None:
        """Continue from the reading in a data directory, if it has one; the log says where.

        Raises:
            DataDirError: the directory was made with the system's clock, or its file is damaged.
        """
        state = read_clock(directory, files)
        if state is not None:
            self.restore(state)
        logger.warning(
            "the clock is settable, for tests: records are stamped and deleted by it; it reads "
            "%d ms and runs at %g times real time",
            self.wall_ms(),
            self.rate,
        )

    def _passed_ms(self) -> int:
        return int((self._real.monotonic_ms() - self._since_ms) * self.rate)

    def _settle(self) -> None:
        """Add what has passed to both readings, so that the rate may change."""
        now_ms = self._real.monotonic_ms()
        passed_ms = int((now_ms - self._since_ms) * self.rate)
        self._since_ms = now_ms
        self._wall_ms += passed_ms
        self._elapsed_ms += passed_ms

    def _fire(self) -> int:
        """Fire the timers that are due now, not those that they set."""
        now_ms = self.monotonic_ms()
        due: list[_Timer] = []
        while self._timers and self._timers[0][0] <= now_ms:
            due.append(heapq.heappop(self._timers)[2])
        fired = 0
        for timer in due:
            callback = timer.callback
            if callback is not None:
                timer.cancel()
                fired += 1
                callback()
        self._set_wakeup()
        return fired

    def _set_wakeup(self) -> None:
        """Wake at the earliest timer, by the real clock."""
        if self._wakeup is not None:
            self._wakeup.cancel()
            self._wakeup = None
        while self._timers and self._timers[0][2].callback is None:
            heapq.heappop(self._timers)
        if self._timers and self.rate:
            left_ms = max(0, self._timers[0][0] - self.monotonic_ms())
            self._wakeup = self._real.call_later(math.ceil(left_ms / self.rate), self._fire)


class _LiveClock:
    """The wall time of a settable clock with the elapsed time and the timers of the real one."""

    __slots__ = ("_real", "_settable")

    def __init__(self, settable: SettableClock, real: Clock) -> None:
        self._settable = settable
        self._real = real

    def wall_ms(self) -> int:
        return self._settable.wall_ms()

    def monotonic_ms(self) -> int:
        return self._real.monotonic_ms()

    def call_later(self, delay_ms: int, callback: Callable[[], object]) -> TimerHandle:
        return self._real.call_later(delay_ms, callback)
