"""Wall time that cannot jump, for values stored as dates but used as durations.

Timeouts of transactions compare stored dates with the present. If the present were the wall clock,
setting it ahead would abort every transaction at once. So the present here is the wall clock at
start plus the time of the monotonic clock since then.
"""

from __future__ import annotations

from broker.clocks.clock import Clock


class SteadyTime:
    """The present in ms since the epoch, monotonic within one run of the broker."""

    __slots__ = ("_clock", "_offset_ms")

    def __init__(self, clock: Clock) -> None:
        """Start at the current time of the wall clock."""
        self._clock = clock
        self._offset_ms = clock.wall_ms() - clock.monotonic_ms()

    def now_ms(self) -> int:
        """The present, in ms since the epoch."""
        return self._clock.monotonic_ms() + self._offset_ms
