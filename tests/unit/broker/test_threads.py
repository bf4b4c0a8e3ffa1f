"""Pools: bounded, in order, and gone after a close; steps in slices with rests."""

import asyncio
import gc
import os
import sys
import threading
import time
import weakref
from collections.abc import AsyncIterator
from functools import partial

import pytest

from broker.threads import PATIENCE, Pool, Threads
from storage.disk.steps import Steps, off_loop


@pytest.fixture
async def pool() -> AsyncIterator[Pool]:
    pool = Pool("test", 2)
    yield pool
    pool.close()


async def test_calls_run_in_named_threads_and_no_more_than_allowed(pool: Pool) -> None:
    gate = threading.Event()
    begun: list[str] = []

    def call() -> str:
        begun.append(threading.current_thread().name)
        assert gate.wait(10)
        return threading.current_thread().name

    waiting = [asyncio.create_task(pool.run(call)) for _ in range(5)]
    while len(begun) < 2:
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.01)
    assert sorted(begun) == ["test-0", "test-1"]
    gate.set()
    assert set(await asyncio.gather(*waiting)) <= {"test-0", "test-1"}
    assert len(begun) == 5


async def test_one_call_after_the_other_needs_one_thread(pool: Pool) -> None:
    names = {await pool.run(lambda: threading.current_thread().name) for _ in range(5)}
    assert names == {"test-0"}


async def test_errors_come_back_whatever_they_are(pool: Pool) -> None:
    for error in (OSError("no"), ZeroDivisionError("a bug")):

        def fail(error: Exception = error) -> None:
            raise error

        with pytest.raises(type(error), match=str(error)):
            await pool.run(fail)
    assert await pool.run(lambda: 1) == 1


async def test_cancelled_caller_waits_for_the_end_of_its_call(pool: Pool) -> None:
    gate = threading.Event()
    events: list[str] = []

    def call() -> None:
        events.append("begin")
        assert gate.wait(10)
        events.append("end")

    async def caller() -> None:
        try:
            await pool.run(call)
        finally:
            events.append("caller ends")

    task = asyncio.create_task(caller())
    while not events:
        await asyncio.sleep(0.001)
    task.cancel()
    await asyncio.sleep(0.01)
    assert events == ["begin"]
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert events == ["begin", "end", "caller ends"]


async def test_waiting_thread_keeps_nothing_of_its_last_call(pool: Pool) -> None:
    class Data:
        pass

    data = Data()
    gone = weakref.ref(data)
    await pool.run(partial(repr, data))
    del data
    gc.collect()
    assert gone() is None


async def test_run_all_returns_after_the_last_call(pool: Pool) -> None:
    done: list[int] = []

    def call(index: int) -> None:
        time.sleep(0.005)
        done.append(index)

    pool.run_all([lambda index=index: call(index) for index in range(5)])  # type: ignore[misc]
    assert sorted(done) == [0, 1, 2, 3, 4]
    with pytest.raises(ZeroDivisionError):
        pool.run_all([lambda: None, lambda: 1 // 0])


async def test_close_drops_what_has_not_begun_and_ends_the_threads() -> None:
    pool = Pool("closing", 1)
    begun = threading.Event()
    gate = threading.Event()
    done: list[str] = []

    def first() -> None:
        begun.set()
        assert gate.wait(10)
        done.append("first")

    pool.submit(first, lambda *_: None)
    pool.submit(lambda: done.append("second"), lambda *_: None)
    assert begun.wait(10)
    threading.Timer(0.02, gate.set).start()
    pool.close()
    assert done == ["first"]
    assert not [each for each in threading.enumerate() if each.name.startswith("closing")]
    with pytest.raises(AssertionError, match="closed"):
        pool.submit(first, lambda *_: None)


async def test_close_of_all_pools_ends_every_thread_of_the_broker() -> None:
    before = set(threading.enumerate())
    threads = Threads()
    for pool in (threads.sync, threads.side, threads.jobs, threads.control):
        await pool.run(lambda: None)
    made = {thread.name for thread in set(threading.enumerate()) - before}
    assert made == {"sync-0", "side-0", "jobs-0", "control-0"}
    threads.close()
    assert set(threading.enumerate()) <= before


@pytest.mark.skipif(sys.platform != "linux", reason="threads have no priority of their own")
async def test_uploads_let_other_threads_run_first() -> None:
    def priority() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    threads, own = Threads(), priority()
    assert await threads.uploads.run(priority) == min(19, own + PATIENCE)
    assert await threads.bucket.run(priority) == own
    assert await threads.sync.run(priority) == own
    assert priority() == own
    threads.close()


async def test_a_refused_priority_costs_no_call(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "setpriority", refuse)
    threads = Threads()
    async with asyncio.timeout(10):
        assert await threads.uploads.run(lambda: 7) == 7
    threads.close()


async def test_others_have_a_turn_between_two_slices(pool: Pool) -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    def steps() -> Steps[str]:
        deadline = time.perf_counter() + 30
        while turns < 2 and time.perf_counter() < deadline:
            yield None
        return "done"

    task = asyncio.create_task(others())
    assert await pool.drive(steps()) == "done"
    assert turns >= 2
    task.cancel()


async def test_calls_run_elsewhere_and_their_errors_come_back(pool: Pool) -> None:
    def fail() -> None:
        raise OSError("no")

    def steps() -> Steps[None]:
        yield from off_loop(fail)

    with pytest.raises(OSError, match="no"):
        await pool.drive(steps())


async def test_rests_are_multiples_of_what_a_slice_or_a_call_took(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rests: list[float] = []
    sleep = asyncio.sleep

    async def noted(delay_s: float) -> None:
        rests.append(delay_s)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", noted)

    def steps() -> Steps[None]:
        time.sleep(0.004)
        yield None
        yield from off_loop(lambda: time.sleep(0.004))

    await pool.drive(steps(), rest_after_slice=3)
    assert rests[0] >= 3 * 0.004
    assert rests[1:] == [0]
    rests.clear()
    await pool.drive(steps(), rest_after_call=9)
    assert rests[0] == 0
    assert rests[1] >= 9 * 0.004


async def test_cancelled_steps_are_closed_after_their_call(pool: Pool) -> None:
    gate = threading.Event()
    events: list[str] = []

    def call() -> None:
        events.append("call begins")
        assert gate.wait(10)
        events.append("call ends")

    def steps() -> Steps[None]:
        try:
            yield from off_loop(call)
        finally:
            events.append("closed")

    task = asyncio.create_task(pool.drive(steps()))
    while not events:
        await asyncio.sleep(0.001)
    task.cancel()
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert events == ["call begins", "call ends", "closed"]
