"""The broker's `TrustedTime`: samples the clock and reports its verdicts.

Retention, the cleaner, and the expiry of producer ids and of committed offsets call `now_ms`. A job
takes a sample each second, so that a step is noticed soon; each call takes one, too.
"""

import logging

from broker.clocks.clock import Clock
from broker.clocks.trusted_time import Change, Doubt, TrustedTime
from broker.metrics import Metrics

logger = logging.getLogger("tidelog.broker.clocks.trusted_clock")

_CONSEQUENCES = {
    Doubt.STEPPED_AHEAD: "Until then nothing is deleted for an age that only the new time gives it",
    Doubt.STARTED_AHEAD: "Until then nothing is deleted for an age that only this time gives it",
    Doubt.STARTED_BEHIND: "Until then LogAppendTime does not fall below what was stored before",
}


class TrustedClock:
    """The time for decisions that delete data; see `broker.clocks.trusted_time`.

    Attributes:
        stamp_slack_ms: how far the wall clock may be behind a log's last stamp while the stamp is
            kept, as of the last sample.
    """

    __slots__ = ("_clock", "_hold_ms", "_metrics", "_time", "stamp_slack_ms")

    def __init__(
        self, clock: Clock, metrics: Metrics, *, hold_ms: int, newest_append_ms: int = -1
    ) -> None:
        """Take the first sample; `newest_append_ms` is that of the data directory, -1 for none."""
        self._clock = clock
        self._metrics = metrics
        self._hold_ms = hold_ms
        self._time = TrustedTime(
            wall_ms=clock.wall_ms(),
            monotonic_ms=clock.monotonic_ms(),
            hold_ms=hold_ms,
            newest_known_ms=newest_append_ms,
        )
        # Kept here, because every append reads it.
        self.stamp_slack_ms = self._time.stamp_slack_ms
        if self._time.distrust is not None:
            self._report(Change.DISTRUSTED)

    def now_ms(self) -> int:
        """Milliseconds since the epoch: the wall clock's, or less while it is not trusted."""
        wall_ms, monotonic_ms = self._clock.wall_ms(), self._clock.monotonic_ms()
        change = self._time.observe(wall_ms, monotonic_ms)
        self.stamp_slack_ms = self._time.stamp_slack_ms
        if change is not None:
            self._report(change)
        self._metrics.wall_clock_jumps = self._time.steps
        return self._time.now_ms(wall_ms, monotonic_ms)

    def _report(self, change: Change) -> None:
        distrust = self._time.distrust
        self._metrics.wall_clock_distrusted = distrust is not None
        if change is Change.STEPPED_BACK:
            logger.warning(
                "the wall clock jumped by %+d ms and is followed: retention waits that much "
                "longer, and LogAppendTime falls",
                self._time.last_step_ms,
            )
        elif distrust is None:
            logger.warning("the wall clock is trusted again; everything follows it")
        else:
            logger.warning(
                "the wall clock is not trusted: %s (by %+d ms). %s. It is trusted again when it "
                "is corrected, or has stood for log.clock.trust.delay.ms = %d",
                distrust.doubt.value,
                distrust.by_ms,
                _CONSEQUENCES[distrust.doubt],
                self._hold_ms,
            )
