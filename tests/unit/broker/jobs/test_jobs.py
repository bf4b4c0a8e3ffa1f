"""Jobs over all logs: statistics, past what fails; settings that change at run time."""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from broker.jobs.jobs import BackgroundJobs
from broker.threads import Pool
from config import load, with_dynamic
from storage.log.log import Log
from tests.support.clock import FrozenClock
from tests.support.logs import LogHarness, produced
from tests.support.simulated_disk import Fault, Operation


@pytest.fixture
async def threads() -> AsyncIterator[Pool]:
    pool = Pool("jobs", 4)
    yield pool
    pool.close()


def jobs_of(
    logs: Callable[[], Iterable[Log]], threads: Pool, *, now_ms: int = 0, **changed: str
) -> BackgroundJobs:
    """The jobs of a broker of which only the logs matter, and settings `changed` at run time."""
    others: Any = SimpleNamespace(now_ms=lambda: now_ms)
    overrides = {name.replace("_", "."): text for name, text in changed.items()}
    topics: Any = SimpleNamespace(logs=logs, broker_config=with_dynamic(load(), overrides))
    return BackgroundJobs(
        config=load(),
        clock=FrozenClock(),
        live=FrozenClock(),
        time=others,
        data_dir=others,
        topics=topics,
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


async def test_the_age_at_which_producer_ids_expire_changes_at_run_time(threads: Pool) -> None:
    log = LogHarness()
    log.write(produced(1000, producer_id=7, sequence=0))
    await jobs_of(lambda: [log.log], threads, now_ms=5000).expire_producer_ids()
    assert 7 in log.log.producers.state.producers
    jobs = jobs_of(lambda: [log.log], threads, now_ms=5000, producer_id_expiration_ms="4000")
    await jobs.expire_producer_ids()
    assert 7 not in log.log.producers.state.producers


async def test_the_memory_of_a_cleaning_changes_at_run_time(
    threads: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = LogHarness(cleanup_policy="compact", min_cleanable_dirty_ratio=0.0)
    log.append(1, key=b"k")
    log.log.roll(log.now_ms)
    asked: list[int] = []

    def noted(*_: object, map_bytes: int, **__: object) -> Iterator[None]:
        asked.append(map_bytes)
        return iter(())

    monkeypatch.setattr("storage.log.compaction.compact", noted)
    jobs = jobs_of(lambda: [log.log], threads, log_cleaner_dedupe_buffer_size="2000000")
    await jobs._cleaner.run()
    assert asked == [2_000_000]
