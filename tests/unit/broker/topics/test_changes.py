"""Long changes: one at a time, in slices, to the end."""

import asyncio
import time

import pytest

from broker.topics.changes import Changes, drive
from storage.disk.steps import Steps, off_loop


async def test_others_have_a_turn_between_two_slices() -> None:
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
    assert await drive(steps()) == "done"
    assert turns >= 2
    task.cancel()


async def test_calls_run_elsewhere_and_their_errors_come_back() -> None:
    def fail() -> None:
        raise OSError("no")

    def steps() -> Steps[None]:
        yield from off_loop(fail)

    with pytest.raises(OSError, match="no"):
        await drive(steps())


async def test_one_change_at_a_time() -> None:
    changes = Changes()
    order: list[str] = []

    async def change(name: str) -> None:
        order.append(f"{name} begins")
        await asyncio.sleep(0)
        order.append(f"{name} ends")

    await asyncio.gather(changes.make(change("first")), changes.make(change("second")))
    assert order == ["first begins", "first ends", "second begins", "second ends"]


async def test_change_outlives_whoever_asked_for_it() -> None:
    changes = Changes()
    gate = asyncio.Event()
    done: list[str] = []

    async def change() -> None:
        await gate.wait()
        done.append("through")
        raise ValueError("that nobody hears of")

    asker = asyncio.create_task(changes.make(change()))
    await asyncio.sleep(0)
    asker.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asker
    gate.set()
    await changes.finish()
    assert done == ["through"]
