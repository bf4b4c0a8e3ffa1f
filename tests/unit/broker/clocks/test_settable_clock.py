"""The settable clock moves when it is set, at its rate in between, and fires what falls due."""

from pathlib import Path

import pytest

from broker.clocks.settable_clock import SettableClock
from storage.directory.clock_file import CLOCK_FILE, ClockState, read_clock, write_clock
from storage.disk.files import RealFiles
from storage.errors import ForeignDataDir, HalfWrittenDataDir
from tests.support.clock import DAY_MS, FrozenClock


@pytest.fixture
def real() -> FrozenClock:
    return FrozenClock(wall_ms=1_000_000, monotonic_ms=500)


@pytest.fixture
def clock(real: FrozenClock) -> SettableClock:
    return SettableClock(real)


def reading(clock: SettableClock) -> tuple[int, int]:
    return clock.wall_ms(), clock.monotonic_ms()


def test_it_runs_like_the_real_clock_until_it_is_set(
    real: FrozenClock, clock: SettableClock
) -> None:
    real.advance(10)
    assert reading(clock) == (1_000_010, 510)


def test_a_step_of_the_real_wall_clock_does_not_move_it(
    real: FrozenClock, clock: SettableClock
) -> None:
    real.jump_wall(DAY_MS)
    assert clock.wall_ms() == 1_000_000


def test_advance_moves_both_readings_and_a_jump_only_the_wall(clock: SettableClock) -> None:
    clock.advance(DAY_MS)
    assert reading(clock) == (1_000_000 + DAY_MS, 500 + DAY_MS)
    clock.jump(-DAY_MS)
    assert reading(clock) == (1_000_000, 500 + DAY_MS)


def test_setting_it_ahead_lets_time_pass_and_setting_it_back_does_not(
    clock: SettableClock,
) -> None:
    clock.set_wall(2_000_000)
    assert reading(clock) == (2_000_000, 1_000_500)
    clock.set_wall(1_000_000)
    assert reading(clock) == (1_000_000, 1_000_500)


def test_the_rate_counts_from_when_it_is_set(real: FrozenClock, clock: SettableClock) -> None:
    real.advance(100)
    clock.set_rate(60)
    real.advance(10)
    assert reading(clock) == (1_000_700, 1_200)
    clock.set_rate(0)
    real.advance(DAY_MS)
    assert reading(clock) == (1_000_700, 1_200)


def test_a_timer_fires_when_its_time_has_passed_at_the_rate(
    real: FrozenClock, clock: SettableClock
) -> None:
    fired: list[int] = []
    clock.set_rate(10)
    clock.call_later(1_000, lambda: fired.append(clock.monotonic_ms()))
    real.advance(99)
    assert fired == []
    real.advance(1)
    assert fired == [1_500]


def test_a_frozen_clock_fires_nothing_by_itself(real: FrozenClock, clock: SettableClock) -> None:
    fired: list[str] = []
    clock.call_later(10, lambda: fired.append("x"))
    clock.set_rate(0)
    real.advance(DAY_MS)
    assert fired == []
    clock.set_rate(1)
    real.advance(10)
    assert fired == ["x"]


def test_an_advance_fires_what_is_due_once_and_in_order(clock: SettableClock) -> None:
    fired: list[str] = []

    def again() -> None:
        fired.append("job")
        clock.call_later(1_000, again)

    clock.call_later(2_000, lambda: fired.append("late"))
    clock.call_later(1_000, again)
    clock.call_later(3_000, lambda: fired.append("cancelled")).cancel()
    assert clock.advance(DAY_MS) == 2
    assert fired == ["job", "late"]
    assert clock.advance(999) == 0
    assert clock.advance(1) == 1


def test_a_timer_may_cancel_another_that_is_due_with_it(clock: SettableClock) -> None:
    fired: list[str] = []
    clock.call_later(1, lambda: second.cancel())
    second = clock.call_later(2, lambda: fired.append("second"))
    assert clock.advance(5) == 1
    assert fired == []


def test_what_waits_on_sockets_has_the_set_wall_time_and_real_elapsed_time(
    real: FrozenClock, clock: SettableClock
) -> None:
    fired: list[str] = []
    clock.set_rate(0)
    clock.advance(DAY_MS)
    clock.live.call_later(10, lambda: fired.append("x"))
    real.advance(10)
    assert (clock.live.wall_ms(), clock.live.monotonic_ms()) == (1_000_000 + DAY_MS, 510)
    assert fired == ["x"]


def test_sessions_follow_the_real_clock_unless_asked(real: FrozenClock) -> None:
    assert SettableClock(real).sessions.monotonic_ms() == 500
    moved = SettableClock(real, moves_sessions=True)
    moved.advance(10)
    assert moved.sessions.monotonic_ms() == 510


@pytest.mark.parametrize(("rate", "wall_ms"), [(0, 9_000), (1, 9_050), (60, 12_000)])
def test_a_restored_clock_has_run_while_the_broker_was_down(
    real: FrozenClock, clock: SettableClock, rate: float, wall_ms: int
) -> None:
    clock.restore(ClockState(wall_ms=9_000, saved_ms=999_950, rate=rate))
    assert (clock.wall_ms(), clock.rate) == (wall_ms, rate)
    real.advance(1)
    assert clock.wall_ms() == wall_ms + rate


def test_a_stored_state_comes_back(real: FrozenClock, tmp_path: Path, clock: SettableClock) -> None:
    directory, files = str(tmp_path), RealFiles()
    assert read_clock(directory, files) is None
    clock.set_wall(123_456_789)
    clock.set_rate(0.5)
    write_clock(directory, files, clock.state())
    again = SettableClock(real)
    state = read_clock(directory, files)
    assert state is not None
    again.restore(state)
    assert (again.wall_ms(), again.rate) == (123_456_789, 0.5)


def test_a_directory_of_the_systems_clock_is_refused(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").touch()
    (tmp_path / "metadata.journal").touch()
    assert read_clock(str(tmp_path), RealFiles()) is None, "no partition has anything to lose"
    (tmp_path / "t-0").mkdir()
    with pytest.raises(ForeignDataDir, match="empty directory"):
        read_clock(str(tmp_path), RealFiles())


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"wall_ms": 1, "saved_ms": 1, "rate": "x"}'])
def test_a_damaged_state_stops_the_start(tmp_path: Path, content: str) -> None:
    (tmp_path / CLOCK_FILE).write_text(content)
    with pytest.raises(HalfWrittenDataDir, match="cannot be read"):
        read_clock(str(tmp_path), RealFiles())
