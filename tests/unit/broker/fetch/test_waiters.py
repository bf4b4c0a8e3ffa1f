"""Parked fetches wake by bytes, by deadline, by change, and never twice."""

from typing import Any, cast

from broker.fetch.waiters import FetchWaiter, FetchWaiters
from tests.support.clock import FrozenClock


class FakeLog:
    """Stands for a log: only its identity matters here."""


def parked(
    waiters: FetchWaiters, *logs: FakeLog, missing: int = 10, max_wait_ms: int = 500
) -> list[bool]:
    """Park a fetch; the list receives True for each deadline and False for each wake by data."""
    calls: list[bool] = []
    waiter = FetchWaiter(cast(Any, list(logs)), missing, calls.append)
    waiters.park(waiter, max_wait_ms)
    return calls


def test_enough_bytes_wake() -> None:
    waiters = FetchWaiters(FrozenClock())
    log = FakeLog()
    calls = parked(waiters, log, missing=10)
    waiters.data_visible(cast(Any, log), 9)
    assert calls == []
    waiters.data_visible(cast(Any, log), 1)
    assert calls == [False]
    assert len(waiters) == 0


def test_bytes_of_several_logs_add_up() -> None:
    waiters = FetchWaiters(FrozenClock())
    first, second = FakeLog(), FakeLog()
    calls = parked(waiters, first, second, missing=10)
    waiters.data_visible(cast(Any, first), 5)
    waiters.data_visible(cast(Any, second), 5)
    assert calls == [False]


def test_other_logs_do_not_wake() -> None:
    waiters = FetchWaiters(FrozenClock())
    calls = parked(waiters, FakeLog())
    waiters.data_visible(cast(Any, FakeLog()), 1000)
    assert calls == []


def test_deadline_wakes_once() -> None:
    clock = FrozenClock()
    waiters = FetchWaiters(clock)
    log = FakeLog()
    calls = parked(waiters, log, max_wait_ms=500)
    clock.advance(499)
    assert calls == []
    clock.advance(1)
    waiters.data_visible(cast(Any, log), 1000)
    assert calls == [True]


def test_wake_by_data_cancels_the_deadline() -> None:
    clock = FrozenClock()
    waiters = FetchWaiters(clock)
    log = FakeLog()
    calls = parked(waiters, log)
    waiters.data_visible(cast(Any, log), 1000)
    clock.advance(10_000)
    assert calls == [False]


def test_changed_log_wakes_whatever_is_missing() -> None:
    waiters = FetchWaiters(FrozenClock())
    log = FakeLog()
    calls = parked(waiters, log, missing=10**9)
    waiters.log_changed(cast(Any, log))
    assert calls == [False]


def test_forgotten_fetch_is_silent() -> None:
    clock = FrozenClock()
    waiters = FetchWaiters(clock)
    log = FakeLog()
    calls: list[bool] = []
    waiter = FetchWaiter(cast(Any, [log]), 1, calls.append)
    waiters.park(waiter, 500)
    waiters.remove(waiter)
    waiters.data_visible(cast(Any, log), 1000)
    clock.advance(1000)
    assert calls == []
    assert len(waiters) == 0


def test_release_all_answers_every_waiter() -> None:
    waiters = FetchWaiters(FrozenClock())
    first, second = parked(waiters, FakeLog()), parked(waiters, FakeLog())
    waiters.release_all()
    assert (first, second) == ([True], [True])


def test_fetch_without_logs_waits_for_its_deadline() -> None:
    clock = FrozenClock()
    waiters = FetchWaiters(clock)
    calls = parked(waiters, max_wait_ms=10)
    clock.advance(10)
    assert calls == [True]
