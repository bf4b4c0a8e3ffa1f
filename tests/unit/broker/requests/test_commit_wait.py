"""Waiting for the disk before an answer: when the wait ends, and what is still owed then."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.requests.commit_wait import PATIENCE_MS, CommitWait, committed
from storage.errors import LogOffline, StorageError
from tests.support.clock import FrozenClock


class FakeLog:
    """The part of a log that a wait looks at when it ends."""

    def __init__(self) -> None:
        self.high_watermark = 0
        self.offline_reason: str | None = None


class FakeCommits:
    """Group commit that keeps who waits; the test says when a log is durable."""

    def __init__(self) -> None:
        self.waiting: list[tuple[FakeLog, int, Any]] = []

    def when_durable(self, log: FakeLog, next_offset: int, callback: Any) -> None:
        self.waiting.append((log, next_offset, callback))

    def settle(self, error: StorageError | None = None) -> None:
        """The oldest wait ends."""
        log, next_offset, callback = self.waiting.pop(0)
        if error is None:
            log.high_watermark = next_offset
        callback(error)


class Bench:
    """A context with a frozen clock, two logs, and what was called."""

    def __init__(self) -> None:
        self.clock, self.commits = FrozenClock(), FakeCommits()
        self.context = cast(Any, SimpleNamespace(clock=self.clock, group_commit=self.commits))
        self.first, self.second = FakeLog(), FakeLog()
        self.ends = cast(Any, {self.first: 5, self.second: 7})
        self.calls: list[int] = []

    def wait(self) -> CommitWait:
        return CommitWait(self.context, self.ends, lambda: self.calls.append(1))

    async def committed(self) -> "asyncio.Task[Any]":
        task = asyncio.ensure_future(committed(self.context, self.ends))
        await asyncio.sleep(0)
        return task


def test_a_wait_asks_for_each_log_up_to_its_own_end() -> None:
    bench = Bench()
    bench.wait()
    asked = [(log, end) for log, end, _ in bench.commits.waiting]
    assert asked == [(bench.first, 5), (bench.second, 7)]
    assert bench.calls == []


def test_a_wait_ends_once_when_the_last_log_is_durable() -> None:
    bench = Bench()
    bench.wait()
    bench.commits.settle()
    assert bench.calls == []
    bench.commits.settle()
    assert bench.calls == [1]
    bench.clock.advance(2 * PATIENCE_MS)
    assert bench.calls == [1]


def test_a_log_that_stopped_counts_as_settled() -> None:
    bench = Bench()
    bench.wait()
    bench.commits.settle(LogOffline("/nowhere/t-0", "Input/output error"))
    bench.commits.settle()
    assert bench.calls == [1]


def test_a_wait_ends_with_its_patience_and_not_before() -> None:
    bench = Bench()
    bench.wait()
    bench.clock.advance(PATIENCE_MS - 1)
    assert bench.calls == []
    bench.clock.advance(1)
    assert bench.calls == [1]
    bench.commits.settle()
    bench.commits.settle()
    assert bench.calls == [1], "the disk that answers late ends nothing"


def test_a_cancelled_wait_calls_nothing() -> None:
    bench = Bench()
    bench.wait().cancel()
    bench.commits.settle()
    bench.commits.settle()
    bench.clock.advance(2 * PATIENCE_MS)
    assert bench.calls == []


async def test_nothing_is_owed_when_all_logs_are_durable() -> None:
    bench = Bench()
    task = await bench.committed()
    bench.commits.settle()
    bench.commits.settle()
    assert await task == set()


async def test_what_the_disk_owes_after_the_patience_is_named() -> None:
    bench = Bench()
    task = await bench.committed()
    bench.commits.settle()
    bench.clock.advance(PATIENCE_MS)
    assert await task == {bench.second}


async def test_a_log_that_is_offline_owes_nothing() -> None:
    bench = Bench()
    task = await bench.committed()
    bench.second.offline_reason = "Input/output error"
    bench.clock.advance(PATIENCE_MS)
    assert await task == {bench.first}


async def test_a_requester_that_goes_ends_its_wait() -> None:
    bench = Bench()
    task = await bench.committed()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert all(timer.cancelled for _, _, timer in bench.clock._timers)
    bench.commits.settle()
    bench.commits.settle()
