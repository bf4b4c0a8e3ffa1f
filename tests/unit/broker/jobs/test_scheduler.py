"""Background jobs run again and again, and alone."""

import asyncio
import random
from itertools import pairwise

import pytest

from broker.jobs.scheduler import JobScheduler
from broker.metrics import Metrics
from tests.support.clock import FrozenClock


def schedule(clock: FrozenClock) -> tuple[JobScheduler, Metrics]:
    metrics = Metrics()
    return JobScheduler(clock, random.Random(1), metrics), metrics


def test_job_runs_at_its_interval_with_jitter() -> None:
    clock = FrozenClock()
    jobs, _ = schedule(clock)
    runs: list[int] = []
    jobs.add("count", 1000, lambda: runs.append(clock.monotonic_ms()))
    jobs.start(first_delay_ms=1000)
    clock.advance(10_000)
    assert len(runs) == 9
    gaps = [later - earlier for earlier, later in pairwise(runs)]
    assert all(1000 <= gap <= 1100 for gap in gaps)
    assert len(set(gaps)) > 1


def test_failing_job_is_counted_and_runs_again(caplog: pytest.LogCaptureFixture) -> None:
    clock = FrozenClock()
    jobs, metrics = schedule(clock)

    def fail() -> None:
        raise ValueError("broken job")

    jobs.add("broken", 100, fail)
    jobs.start(first_delay_ms=100)
    clock.advance(1000)
    assert metrics.job_failures["broken"] >= 8
    assert "broken job" in caplog.text


async def test_failing_long_job_is_counted_and_runs_again() -> None:
    clock = FrozenClock()
    jobs, metrics = schedule(clock)

    async def fail() -> None:
        await asyncio.sleep(0)
        raise ValueError("broken job")

    jobs.add("broken", 100, fail)
    jobs.start(first_delay_ms=100)
    for runs in (1, 2):
        clock.advance(150)
        await asyncio.wait([running(jobs, "broken")])
        await asyncio.sleep(0)
        assert metrics.job_failures["broken"] == runs


async def test_long_job_runs_once_at_a_time_and_its_interval_begins_at_its_end() -> None:
    clock = FrozenClock()
    jobs, _ = schedule(clock)
    gate = asyncio.Event()
    events: list[str] = []

    async def job() -> None:
        events.append("begin")
        await gate.wait()
        events.append("end")

    jobs.add("long", 100, job)
    jobs.start(first_delay_ms=100)
    clock.advance(150)
    await asyncio.sleep(0)
    clock.advance(100_000)
    await asyncio.sleep(0)
    again = asyncio.create_task(jobs.run_now("long"))
    await asyncio.sleep(0)
    assert events == ["begin"]
    gate.set()
    await again
    assert events == ["begin", "end", "begin", "end"]
    clock.advance(150)
    await asyncio.wait([running(jobs, "long")])
    assert events == ["begin", "end"] * 3
    await jobs.stop()


async def test_stop_ends_a_long_job_at_its_next_wait_and_begins_none() -> None:
    clock = FrozenClock()
    jobs, _ = schedule(clock)
    steps: list[int] = []

    async def job() -> None:
        for step in range(1000):
            steps.append(step)
            await asyncio.sleep(0)

    jobs.add("steps", 1000, job)
    jobs.add("next", 2000, lambda: steps.append(-1))
    jobs.start(first_delay_ms=1000)
    clock.advance(1100)
    await asyncio.sleep(0)
    await jobs.stop()
    clock.advance(100_000)
    await asyncio.sleep(0)
    assert steps[-1] < 5
    assert -1 not in steps[1:]


def running(jobs: JobScheduler, name: str) -> "asyncio.Task[None]":
    task = jobs[name].task
    assert task is not None, f"{name} is not running"
    return task
