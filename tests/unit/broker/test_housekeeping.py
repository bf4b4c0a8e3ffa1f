"""Background jobs run again and again, alone, and never by a wall clock that has jumped."""

import random
from collections.abc import Iterator
from itertools import pairwise

import pytest

from broker.clock import FrozenClock
from broker.housekeeping import Housekeeping, RetentionClock
from broker.metrics import Metrics

YEAR_MS = 365 * 86_400_000


def schedule(clock: FrozenClock) -> tuple[Housekeeping, Metrics]:
    metrics = Metrics()
    return Housekeeping(clock, random.Random(1), metrics), metrics


def test_job_runs_at_its_interval_with_jitter() -> None:
    clock = FrozenClock()
    housekeeping, _ = schedule(clock)
    runs: list[int] = []
    housekeeping.add("count", 1000, lambda: runs.append(clock.monotonic_ms()))
    housekeeping.start(first_delay_ms=1000)
    clock.advance(10_000)
    assert len(runs) == 9
    gaps = [later - earlier for earlier, later in pairwise(runs)]
    assert all(1000 <= gap <= 1100 for gap in gaps)
    assert len(set(gaps)) > 1


def test_failing_job_is_counted_and_runs_again(caplog: pytest.LogCaptureFixture) -> None:
    clock = FrozenClock()
    housekeeping, metrics = schedule(clock)

    def fail() -> None:
        raise ValueError("broken job")

    housekeeping.add("broken", 100, fail)
    housekeeping.start(first_delay_ms=100)
    clock.advance(1000)
    assert metrics.job_failures["broken"] >= 8
    assert "broken job" in caplog.text


def test_steps_of_a_job_take_turns_with_the_loop() -> None:
    clock = FrozenClock()
    housekeeping, _ = schedule(clock)
    steps: list[int] = []

    def job() -> Iterator[None]:
        for step in range(3):
            steps.append(step)
            yield

    housekeeping.add("steps", 1000, job)
    housekeeping.start(first_delay_ms=0)
    clock.advance(1)
    assert steps == [0, 1, 2]


def test_stop_ends_a_job_between_two_steps() -> None:
    clock = FrozenClock()
    housekeeping, _ = schedule(clock)
    steps: list[int] = []

    def job() -> Iterator[None]:
        steps.append(1)
        yield
        housekeeping.stop()
        yield
        steps.append(2)

    housekeeping.add("steps", 1000, job)
    housekeeping.start(first_delay_ms=0)
    clock.advance(100_000)
    assert steps == [1]


def test_retention_clock_follows_a_steady_wall_clock() -> None:
    clock = FrozenClock()
    retention = RetentionClock(clock)
    for _ in range(10):
        clock.advance(300_000)
        assert retention.now_ms() == clock.wall_ms()
    assert retention.jumps == 0


@pytest.mark.parametrize("jump_ms", [10 * YEAR_MS, 61_000])
def test_jump_ahead_is_not_followed(jump_ms: int, caplog: pytest.LogCaptureFixture) -> None:
    """Reliability case T5: ten years ahead delete nothing."""
    clock = FrozenClock()
    retention = RetentionClock(clock)
    before_ms = clock.wall_ms()
    clock.jump_wall(jump_ms)
    assert retention.now_ms() == before_ms
    clock.advance(3_600_000)
    assert retention.now_ms() == before_ms + 3_600_000
    assert retention.jumps == 1
    assert f"+{jump_ms}" in caplog.text


def test_jump_back_is_followed_at_once() -> None:
    clock = FrozenClock()
    retention = RetentionClock(clock)
    clock.jump_wall(-10 * YEAR_MS)
    assert retention.now_ms() == clock.wall_ms()
    assert retention.jumps == 1


@pytest.mark.parametrize("jump_ms", [10 * YEAR_MS, -10 * YEAR_MS])
def test_corrected_clock_is_trusted_again(jump_ms: int) -> None:
    clock = FrozenClock()
    retention = RetentionClock(clock)
    clock.jump_wall(jump_ms)
    retention.now_ms()
    clock.advance(1000)
    clock.jump_wall(-jump_ms)
    assert retention.now_ms() == clock.wall_ms()
    assert retention.jumps == 2


def test_drift_is_followed() -> None:
    """A clock that is slewed gains hours over weeks; no single look at it sees a jump."""
    clock = FrozenClock()
    retention = RetentionClock(clock)
    for _ in range(1000):
        clock.advance(300_000)
        clock.jump_wall(30_000)
        assert retention.now_ms() == clock.wall_ms()
    assert retention.jumps == 0
