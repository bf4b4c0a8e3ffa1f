"""The time for decisions that delete data: a model of two clocks, without any I/O.

The wall clock gives the time and may be wrong; the monotonic clock never steps, and stops while a
machine sleeps. Their difference, the *offset*, is constant as long as nothing happens. This model
receives every sample of both, and decides from the offsets alone how far to believe the wall clock:

    believed offset = the lowest offset of the last `hold_ms` of monotonic time

So a step ahead counts only after it has lasted for `hold_ms`. A step back counts at once, because
it only keeps data longer. Several steps ahead in a row (a laptop that is opened for five minutes
now and then) are believed one after the other. Each counts `hold_ms` after it happened, so no step
waits for ever. A wall clock that is ahead of the believed time by at most `STEP_MS` is used as it
is. That covers drift and the small steps of time synchronisation.

A start has no earlier sample. It has only the newest append of the data directory:

| the wall clock at start is              | believed is, for `hold_ms`     | reason           |
|-----------------------------------------|--------------------------------|------------------|
| more than `STEP_MS` before that append  | the wall clock                 | `STARTED_BEHIND` |
| more than `START_GAP_MS` after it       | that append, and time since    | `STARTED_AHEAD`  |
| between                                 | the wall clock                 |                  |

A step towards that append counts as the missing correction, and is judged like a start. While the
wall clock is behind, `stamp_slack_ms` keeps LogAppendTime stamps from following it down.

Producers' timestamps are no evidence here: a producer on the same machine has the same wrong clock.

docs/time.md lists the situations and their consequences.

Differs from Kafka: it deletes by the wall clock alone, even after that has stepped.
"""

from collections import deque
from enum import Enum
from typing import Final, NamedTuple

from values.dataclasses import dataclass

STEP_MS: Final = 60_000
"""A change of the offset above it is a step of the wall clock; at most that is drift."""

START_GAP_MS: Final = 86_400_000
"""A start doubts the clock when the newest append of the data directory is older than this."""

GRAIN_MS: Final = 1_000
"""Offsets that differ by less count as one, so that a clock that gains fills no memory."""

_NEVER_FALL_MS: Final = 2**63 - 1


class Doubt(Enum):
    """Why the wall clock is not believed."""

    STEPPED_AHEAD = "it stepped ahead"
    STARTED_AHEAD = "it reads much later than the newest append"
    STARTED_BEHIND = "it reads earlier than the newest append"


@dataclass(frozen=True, slots=True)
class Distrust:
    """The wall clock is doubted for `doubt` since `since_ms` (monotonic); it was off by `by_ms`."""

    doubt: Doubt
    since_ms: int
    by_ms: int


class Change(Enum):
    """The change that a sample has made, for reporting."""

    DISTRUSTED = "distrusted"
    TRUSTED = "trusted"
    STEPPED_BACK = "stepped back"


class _Held(NamedTuple):
    """An offset, and the monotonic time until which it was the wall clock's."""

    offset_ms: int
    until_ms: int


class TrustedTime:
    """The model; one for each process. All arguments and answers are ms.

    Attributes:
        distrust: why the wall clock is not believed, or None while it is.
        steps: how many steps of the wall clock were seen.
        last_step_ms: the newest of them, negative for a step back.
    """

    def __init__(
        self, *, wall_ms: int, monotonic_ms: int, hold_ms: int, newest_known_ms: int = -1
    ) -> None:
        """Begin with a first sample; `newest_known_ms` (wall) is -1 when nothing is known."""
        self.distrust: Distrust | None = None
        self.steps = 0
        self.last_step_ms = 0
        self._hold_ms = hold_ms
        self._newest_known_ms = newest_known_ms
        self._held: deque[_Held] = deque()
        self._begin(wall_ms, monotonic_ms)

    def _begin(self, wall_ms: int, monotonic_ms: int) -> None:
        self._began_ms = monotonic_ms
        self._offset_ms = wall_ms - monotonic_ms
        self._held.clear()
        self.distrust = None
        ahead_ms = wall_ms - self._newest_known_ms
        if self._newest_known_ms < 0 or self._hold_ms == 0:
            pass
        elif ahead_ms > START_GAP_MS:
            self._held.append(_Held(self._newest_known_ms - monotonic_ms, monotonic_ms))
            self.distrust = Distrust(Doubt.STARTED_AHEAD, monotonic_ms, ahead_ms)
        elif ahead_ms < -STEP_MS:
            self.distrust = Distrust(Doubt.STARTED_BEHIND, monotonic_ms, ahead_ms)
        self._held.append(_Held(self._offset_ms, monotonic_ms))

    @property
    def stamp_slack_ms(self) -> int:
        """How far the wall clock may be behind the last stamp of a log while the stamp is kept.

        Beyond that the wall clock counts, and LogAppendTime goes back.
        """
        return _NEVER_FALL_MS if self._is_behind() else STEP_MS

    def now_ms(self, wall_ms: int, monotonic_ms: int) -> int:
        """The time to delete by, as of the last sample: never ahead of the wall clock."""
        if wall_ms - monotonic_ms - self._held[0].offset_ms <= STEP_MS:
            return wall_ms
        return monotonic_ms + self._held[0].offset_ms

    def observe(self, wall_ms: int, monotonic_ms: int) -> Change | None:
        """Take a sample; return what it changes, or None. `monotonic_ms` never falls."""
        offset_ms = wall_ms - monotonic_ms
        step_ms = offset_ms - self._offset_ms
        self._offset_ms = offset_ms
        was_trusted = self.distrust is None
        if abs(step_ms) > STEP_MS:
            self.steps += 1
            self.last_step_ms = step_ms
            doubt = None if self.distrust is None else self.distrust.doubt
            if doubt is (Doubt.STARTED_BEHIND if step_ms > 0 else Doubt.STARTED_AHEAD):
                return self._begin_later(wall_ms, monotonic_ms)
        self._hold(offset_ms, monotonic_ms)
        self._judge(step_ms, monotonic_ms)
        if was_trusted == (self.distrust is None):
            return Change.STEPPED_BACK if was_trusted and step_ms < -STEP_MS else None
        return Change.TRUSTED if self.distrust is None else Change.DISTRUSTED

    def _begin_later(self, wall_ms: int, monotonic_ms: int) -> Change | None:
        began_ms, doubt = self._began_ms, self.distrust and self.distrust.doubt
        self._begin(wall_ms, monotonic_ms)
        if self.distrust is None:
            return Change.TRUSTED
        if self._is_behind():
            self._began_ms = began_ms
        return Change.DISTRUSTED if self.distrust.doubt is not doubt else None

    def _hold(self, offset_ms: int, monotonic_ms: int) -> None:
        """Update the ascending list of recent offsets with this sample."""
        held = self._held
        # As far as is known, the last offset lasted until now.
        held[-1] = _Held(held[-1].offset_ms, monotonic_ms)
        while held and held[-1].offset_ms > offset_ms:
            held.pop()
        if not held or offset_ms - held[-1].offset_ms >= GRAIN_MS:
            held.append(_Held(offset_ms, monotonic_ms))
        while len(held) > 1 and monotonic_ms - held[0].until_ms >= self._hold_ms:
            held.popleft()

    def _judge(self, step_ms: int, monotonic_ms: int) -> None:
        ahead_ms = self._offset_ms - self._held[0].offset_ms
        if ahead_ms > STEP_MS:
            if self.distrust is None or self._is_behind():
                self.distrust = Distrust(Doubt.STEPPED_AHEAD, monotonic_ms, step_ms)
        elif not self._is_behind() or self._is_settled(monotonic_ms):
            self.distrust = None

    def _is_behind(self) -> bool:
        return self.distrust is not None and self.distrust.doubt is Doubt.STARTED_BEHIND

    def _is_settled(self, monotonic_ms: int) -> bool:
        """Whether a clock that started behind has caught up, or has run for long enough."""
        return (
            monotonic_ms - self._began_ms >= self._hold_ms
            or self._offset_ms + monotonic_ms >= self._newest_known_ms - STEP_MS
        )
