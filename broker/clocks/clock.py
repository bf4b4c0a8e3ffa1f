"""Time as a collaborator: wall clock, monotonic clock and timers behind one seam.

Everything in the broker reads the time and sets timers through a `Clock`. So a test can freeze
time, jump it by ten years, or fire a session timeout without sleeping. Wall time stamps records and
decides nothing about liveness; every deadline, timeout and interval runs on the monotonic clock. So
a wall-clock jump can neither expire a session nor delete a segment.

Both clocks are integers in milliseconds. Nothing else in the broker imports `time` for
milliseconds; latency measurements in `broker.metrics` use a nanosecond counter of their own.
"""

import asyncio
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
        self._clock = clock
        self._offset_ms = clock.wall_ms() - clock.monotonic_ms()

    def now_ms(self) -> int:
        """The present, in ms since the epoch."""
        return self._clock.monotonic_ms() + self._offset_ms
