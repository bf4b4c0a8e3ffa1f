"""Wall time that cannot jump: for what is stored as a date but decides like a duration.

Timeouts of transactions compare stored dates with the present. If the present were the wall clock,
setting it ahead would abort everything at once. So the present here is the wall clock as it was at
start, moved on by the monotonic clock.
"""

from __future__ import annotations

from broker.clocks.clock import Clock


class SteadyTime:
    """The present in ms since the epoch, monotonic within one run of the broker."""

    __slots__ = ("_clock", "_offset_ms")

    def __init__(self, clock: Clock) -> None:
        """Take the wall clock's word for what time it is now."""
        self._clock = clock
        self._offset_ms = clock.wall_ms() - clock.monotonic_ms()

    def now_ms(self) -> int:
        """The present, in ms since the epoch."""
        return self._clock.monotonic_ms() + self._offset_ms
