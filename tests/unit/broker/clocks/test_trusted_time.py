"""The situations of docs/time.md, row by row, against the model of the two clocks."""

import pytest

from broker.clocks.trusted_time import GRAIN_MS, STEP_MS, Change, Doubt, TrustedTime
from tests.support.clock import DAY_MS

HOLD_MS = 600_000
HOUR_MS = 3_600_000
YEAR_MS = 365 * DAY_MS
NOW_MS = 1_800_000_000_000
"""What a right clock reads at the start of each test."""


class Machine:
    """A wall clock that can be wrong by `wrong_ms`, a monotonic one, and the model."""

    def __init__(self, *, wrong_ms: int = 0, newest_ms: int = -1, hold_ms: int = HOLD_MS) -> None:
        self.right_ms = NOW_MS
        self.monotonic_ms = 5_000
        self.wrong_ms = wrong_ms
        self.changes: list[Change] = []
        self.model = TrustedTime(
            wall_ms=self.wall_ms,
            monotonic_ms=self.monotonic_ms,
            hold_ms=hold_ms,
            newest_known_ms=newest_ms,
        )

    @property
    def wall_ms(self) -> int:
        return self.right_ms + self.wrong_ms

    def doubt(self) -> Doubt | None:
        return None if self.model.distrust is None else self.model.distrust.doubt

    def look(self) -> int:
        """A sample: how far the trusted time is from the right one."""
        change = self.model.observe(self.wall_ms, self.monotonic_ms)
        if change is not None:
            self.changes.append(change)
        return self.model.now_ms(self.wall_ms, self.monotonic_ms) - self.right_ms

    def run(self, passed_ms: int, every_ms: int = 1_000) -> int:
        """Let time pass and look at it regularly, also at the end."""
        end_ms = self.monotonic_ms + passed_ms
        while self.monotonic_ms < end_ms:
            step_ms = min(every_ms, end_ms - self.monotonic_ms)
            self.monotonic_ms += step_ms
            self.right_ms += step_ms
            trusted = self.look()
        return trusted

    def set_clock(self, wrong_ms: int) -> int:
        """From now on the wall clock is wrong by so much."""
        self.wrong_ms = wrong_ms
        return self.look()

    def sleep(self, passed_ms: int) -> int:
        """Suspend: time passes, the monotonic clock stands still."""
        self.right_ms += passed_ms
        return self.look()


@pytest.mark.parametrize("every_ms", [1, 1_000, 300_000])
def test_a_steady_clock_is_used_as_it_is(every_ms: int) -> None:
    machine = Machine(newest_ms=NOW_MS - HOUR_MS)
    assert machine.run(every_ms * 20, every_ms) == 0
    assert (machine.changes, machine.model.steps, machine.doubt()) == ([], 0, None)


@pytest.mark.parametrize("step_ms", [STEP_MS, 1, -1, -STEP_MS])
def test_a_small_step_is_used_as_it_is(step_ms: int) -> None:
    machine = Machine()
    assert machine.set_clock(step_ms) == step_ms
    assert machine.run(HOLD_MS) == step_ms
    assert machine.changes == []
    assert machine.model.stamp_slack_ms == STEP_MS


def test_drift_is_followed_and_fills_no_memory() -> None:
    machine = Machine()
    for minute in range(5_000):
        machine.wrong_ms = 30 * minute
        assert machine.run(60_000, 60_000) == machine.wrong_ms
        assert len(machine.model._held) <= 2 + HOLD_MS // 60_000
    assert machine.wrong_ms > 2 * STEP_MS
    assert machine.changes == []


def test_small_steps_do_not_add_up_to_a_large_one_faster_than_the_delay() -> None:
    machine = Machine()
    for second in range(600):
        machine.wrong_ms = second * STEP_MS // 2
        assert machine.run(1_000) <= STEP_MS
    assert machine.changes == [Change.DISTRUSTED]


@pytest.mark.parametrize("ahead_ms", [STEP_MS + 1, 10 * YEAR_MS])
@pytest.mark.parametrize("lasts_ms", [0, 1_000, HOLD_MS - 1])
def test_a_glitch_ahead_is_never_believed(ahead_ms: int, lasts_ms: int) -> None:
    machine = Machine()
    machine.run(HOUR_MS)
    assert machine.set_clock(ahead_ms) == 0
    assert machine.doubt() is Doubt.STEPPED_AHEAD
    if lasts_ms:
        assert machine.run(lasts_ms) == 0
    assert machine.set_clock(0) == 0
    assert machine.run(2 * HOLD_MS) == 0
    assert machine.changes == [Change.DISTRUSTED, Change.TRUSTED]
    assert machine.model.steps == 2


@pytest.mark.parametrize("every_ms", [1_000, 300_000])
def test_a_step_ahead_that_stands_is_believed_after_the_delay(every_ms: int) -> None:
    machine = Machine(wrong_ms=-400 * DAY_MS)
    machine.run(HOUR_MS, every_ms)
    assert machine.set_clock(0) == -400 * DAY_MS
    assert machine.run(HOLD_MS - 1, every_ms) == -400 * DAY_MS
    assert machine.changes == [Change.DISTRUSTED]
    assert machine.run(1) == 0
    assert machine.changes == [Change.DISTRUSTED, Change.TRUSTED]


def test_a_step_that_is_seen_late_has_not_stood_before() -> None:
    """Nothing is known between two samples: the new time counts from the second one on."""
    machine = Machine()
    machine.wrong_ms = YEAR_MS
    assert machine.run(10 * HOLD_MS, 10 * HOLD_MS) == 0
    assert machine.run(HOLD_MS - 1) == 0
    assert machine.run(1) == YEAR_MS


def test_after_a_suspend_the_time_is_right_again_after_the_delay() -> None:
    machine = Machine()
    machine.run(HOUR_MS)
    assert machine.sleep(8 * HOUR_MS) == -8 * HOUR_MS
    assert machine.run(HOLD_MS - 1) == -8 * HOUR_MS
    assert machine.run(1) == 0
    assert machine.doubt() is None


def test_a_laptop_that_is_never_awake_for_the_delay_is_not_behind_for_ever() -> None:
    machine = Machine()
    for _ in range(50):
        machine.run(HOLD_MS // 2)
        behind_ms = -machine.sleep(8 * HOUR_MS)
        assert 0 <= behind_ms <= 3 * 8 * HOUR_MS
    assert machine.run(HOLD_MS) == 0
    assert machine.changes == [Change.DISTRUSTED, Change.TRUSTED]


def test_a_clock_that_jumps_ahead_all_the_time_is_followed_late() -> None:
    machine = Machine()
    for minute in range(1, 600):
        machine.wrong_ms = minute * 2 * STEP_MS
        lag_ms = machine.wrong_ms - machine.run(60_000, 60_000)
        assert 0 <= lag_ms <= 2 * STEP_MS * (HOLD_MS // 60_000 + 1)
    assert machine.changes == [Change.DISTRUSTED]


@pytest.mark.parametrize("back_ms", [STEP_MS + 1, DAY_MS, 10 * YEAR_MS])
def test_a_large_step_back_is_followed_at_once(back_ms: int) -> None:
    machine = Machine()
    machine.run(HOUR_MS)
    assert machine.set_clock(-back_ms) == -back_ms
    assert machine.changes == [Change.STEPPED_BACK]
    assert machine.doubt() is None
    assert machine.model.stamp_slack_ms == STEP_MS


def test_a_glitch_back_delays_and_deletes_nothing() -> None:
    machine = Machine()
    machine.set_clock(-NOW_MS)
    assert machine.set_clock(0) == -NOW_MS
    assert machine.run(HOLD_MS - 1) == -NOW_MS
    assert machine.run(1) == 0
    assert machine.changes == [Change.STEPPED_BACK, Change.DISTRUSTED, Change.TRUSTED]


@pytest.mark.parametrize("behind_ms", [NOW_MS, 400 * DAY_MS, 2 * HOUR_MS])
def test_a_start_behind_that_is_corrected_is_right_at_once(behind_ms: int) -> None:
    machine = Machine(wrong_ms=-behind_ms, newest_ms=NOW_MS - HOUR_MS)
    assert machine.doubt() is Doubt.STARTED_BEHIND
    assert machine.run(HOLD_MS - 1) == -behind_ms
    assert machine.model.stamp_slack_ms > behind_ms
    assert machine.set_clock(0) == 0
    assert machine.changes == [Change.TRUSTED]
    assert machine.model.stamp_slack_ms == STEP_MS


def test_a_start_behind_that_is_corrected_to_too_much_waits() -> None:
    machine = Machine(wrong_ms=-NOW_MS, newest_ms=NOW_MS - HOUR_MS)
    assert machine.set_clock(10 * YEAR_MS) == -HOUR_MS
    assert machine.doubt() is Doubt.STARTED_AHEAD
    assert machine.run(HOLD_MS - 1) == -HOUR_MS
    assert machine.set_clock(0) == 0
    assert machine.changes == [Change.DISTRUSTED, Change.TRUSTED]


def test_a_start_behind_that_stays_is_believed_after_the_delay() -> None:
    machine = Machine(wrong_ms=-400 * DAY_MS, newest_ms=NOW_MS)
    for _ in range(9):
        machine.wrong_ms += 2 * STEP_MS
        machine.run(HOLD_MS // 10)
    assert machine.doubt() is Doubt.STARTED_BEHIND
    machine.run(HOLD_MS // 10)
    assert machine.doubt() is None
    assert machine.model.stamp_slack_ms == STEP_MS
    assert machine.changes == [Change.TRUSTED]


def test_a_start_behind_catches_up_by_waiting() -> None:
    machine = Machine(newest_ms=NOW_MS + STEP_MS + 1)
    assert machine.doubt() is Doubt.STARTED_BEHIND
    machine.run(1_000)
    assert machine.doubt() is None


@pytest.mark.parametrize("newest_ms", [-1, NOW_MS, NOW_MS - DAY_MS, NOW_MS + STEP_MS])
def test_a_start_that_fits_the_newest_append_is_believed(newest_ms: int) -> None:
    machine = Machine(newest_ms=newest_ms)
    assert machine.look() == 0
    assert (machine.doubt(), machine.changes) == (None, [])


def test_a_start_far_ahead_deletes_nothing_and_may_be_corrected() -> None:
    machine = Machine(wrong_ms=10 * YEAR_MS, newest_ms=NOW_MS - HOUR_MS)
    assert machine.doubt() is Doubt.STARTED_AHEAD
    assert machine.run(HOLD_MS - 1) == -HOUR_MS
    assert machine.set_clock(0) == 0
    assert machine.run(HOLD_MS) == 0
    assert machine.changes == [Change.TRUSTED]


def test_a_start_after_a_long_time_off_is_believed_after_the_delay() -> None:
    machine = Machine(newest_ms=NOW_MS - 30 * DAY_MS)
    assert machine.run(HOLD_MS - 1) == -30 * DAY_MS
    assert machine.run(1) == 0
    assert machine.changes == [Change.TRUSTED]


def test_the_delay_may_be_nothing() -> None:
    """As Apache Kafka: what the wall clock says is the time."""
    machine = Machine(wrong_ms=YEAR_MS, newest_ms=NOW_MS, hold_ms=0)
    assert machine.look() == YEAR_MS
    assert machine.set_clock(2 * YEAR_MS) == 2 * YEAR_MS
    assert machine.set_clock(-YEAR_MS) == -YEAR_MS
    assert machine.doubt() is None


def test_trusted_time_is_never_ahead_of_the_wall_clock() -> None:
    machine = Machine()
    for wrong_ms in (0, GRAIN_MS - 1, -5, 7 * DAY_MS, 3, -DAY_MS, STEP_MS, 0):
        trusted = machine.set_clock(wrong_ms)
        assert trusted <= wrong_ms
        machine.run(10_000)
