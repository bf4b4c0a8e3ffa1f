"""Changes of topics: one at a time, to the end."""

import asyncio

import pytest

from broker.topics.changes import Changes


async def test_one_change_at_a_time() -> None:
    changes = Changes()
    order: list[str] = []

    async def change(name: str) -> None:
        order.append(f"{name} begins")
        await asyncio.sleep(0)
        order.append(f"{name} ends")

    await asyncio.gather(changes.make(change("first")), changes.make(change("second")))
    assert order == ["first begins", "first ends", "second begins", "second ends"]


async def test_change_outlives_its_requester() -> None:
    changes = Changes()
    gate = asyncio.Event()
    done: list[str] = []

    async def change() -> None:
        await gate.wait()
        done.append("through")
        raise ValueError("without a recipient")

    asker = asyncio.create_task(changes.make(change()))
    await asyncio.sleep(0)
    asker.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asker
    gate.set()
    await changes.finish()
    assert done == ["through"]
