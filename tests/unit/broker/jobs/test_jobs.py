"""The job that collects statistics: all logs, in steps, and past what fails."""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.jobs.jobs import BackgroundJobs
from broker.threads import Pool
from config import load
from storage.log.log import Log
from tests.support.clock import FrozenClock
from tests.support.logs import LogHarness
from tests.support.simulated_disk import Fault, Operation


@pytest.fixture
async def threads() -> AsyncIterator[Pool]:
    pool = Pool("jobs", 4)
    yield pool
    pool.close()


def jobs_of(logs: Callable[[], Iterable[Log]], threads: Pool) -> BackgroundJobs:
    """The jobs of a broker of which only the logs matter."""
    others: Any = SimpleNamespace(now_ms=lambda: 0)
    return BackgroundJobs(
        config=load(),
        clock=FrozenClock(),
        live=FrozenClock(),
        time=others,
        data_dir=others,
        topics=cast(Any, SimpleNamespace(logs=logs)),
        group_commit=others,
        fetch_waiters=others,
        connections=others,
        groups=others,
        group_lag=others,
        transactions=others,
        metrics=others,
        threads=threads,
        certificates=others,
        security=others,
        identity_keys=others,
    )


def crashed(*timestamps: int) -> LogHarness:
    log = LogHarness()
    for timestamp in timestamps:
        log.append(timestamp)
        log.log.roll(log.now_ms)
    log.crash()
    return log


async def test_every_closed_segment_of_every_log_is_measured(threads: Pool) -> None:
    logs = [crashed(50, 20), crashed(7)]
    await jobs_of(lambda: [one.log for one in logs], threads).collect_segment_stats()
    found = [[s.min_timestamp for s in list(one.log.segments)[:-1]] for one in logs]
    assert found == [[50, 20], [7]]


async def test_failing_log_does_not_hold_up_the_others(
    threads: Pool, caplog: pytest.LogCaptureFixture
) -> None:
    bad, good = crashed(50), crashed(7)
    bad.files.fault = Fault(at=bad.files._eligible, kinds=frozenset({Operation.READ}))

    def logs() -> Iterator[Log]:
        yield bad.log
        yield good.log

    jobs = jobs_of(logs, threads)
    await jobs.collect_segment_stats()
    assert "could not be measured" in caplog.text
    assert good.log.segments.first.min_timestamp == 7
    bad.files.fault = None
    await jobs.collect_segment_stats()
    assert bad.log.segments.first.min_timestamp == 50
