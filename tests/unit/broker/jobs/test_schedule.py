"""Background jobs run again and again, and alone."""

import random
from collections.abc import Iterator
from itertools import pairwise

import pytest

from broker.jobs.schedule import Housekeeping
from broker.metrics import Metrics
from tests.support.clock import FrozenClock


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
