"""Turns: who has more to do than a slice gives the others theirs, and nothing is done twice."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from broker.replies.pending import Pending
from broker.replies.turns import Turns, Work
from broker.threads import Pool
from storage.disk.steps import Steps, off_loop
from storage.errors import CorruptBatch


@pytest.fixture
def turns() -> Iterator[Turns]:
    turns = Turns(Pool("side", 1))
    yield turns
    turns.side.close()


def counting(count: int, seen: list[str], name: str = "") -> Steps[int]:
    """Steps that each take longer than a slice."""
    for _ in range(count):
        seen.append(name)
        end = asyncio.get_running_loop().time() + 0.003
        while asyncio.get_running_loop().time() < end:
            pass
        yield None
    return count


async def settled(work: Pending[int]) -> int:
    for _ in range(1000):
        if work.settled:
            return work.result()
        await asyncio.sleep(0)
    raise AssertionError("never settled")


async def test_what_fits_into_a_slice_is_answered_at_once(turns: Turns) -> None:
    def quick() -> Steps[str]:
        yield None
        return "done"

    assert turns.begin(quick()) == "done"
    assert turns.taken == 0


async def test_long_work_continues_in_turns_that_others_share(turns: Turns) -> None:
    seen: list[str] = []
    first, second = (turns.begin(counting(4, seen, name)) for name in "ab")
    assert isinstance(first, Work)
    assert seen == ["a", "b"], "no one of them is served to the end before the other one begins"
    assert await settled(first) == await settled(second) == 4
    assert seen == list("abababab")


async def test_loop_goes_round_between_two_slices(turns: Turns) -> None:
    rounds = 0

    async def bystander() -> None:
        nonlocal rounds
        while True:
            rounds += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(bystander())
    works = [turns.begin(counting(5, [])) for _ in range(10)]
    for work in works:
        await settled(work)
    task.cancel()
    assert rounds >= 20, "ten works of five slices, two slices to a round at most"


async def test_aside_runs_in_another_thread_and_raises_what_it_raised(turns: Turns) -> None:
    def steps(fails: bool) -> Steps[int]:
        def look() -> int:
            if fails:
                raise CorruptBatch("bad")
            return threading.get_ident()

        try:
            return (yield from off_loop(look))
        except CorruptBatch:
            return -1

    assert await asyncio.wait_for(_result(turns.begin(steps(False))), 5) != threading.get_ident()
    assert await asyncio.wait_for(_result(turns.begin(steps(True))), 5) == -1


async def test_bug_aside_reaches_the_request(turns: Turns) -> None:
    def steps() -> Steps[int]:
        return (yield from off_loop(lambda: 1 // 0))

    with pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(_result(turns.begin(steps())), 5)


async def test_abandoned_work_is_closed_and_takes_no_further_step(turns: Turns) -> None:
    seen: list[str] = []
    work = turns.begin(counting(100, seen))
    work.abandon()
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(seen) == 1
    assert len(turns._waiting) == 0


async def _result(work: Pending[int]) -> int:
    while not work.settled:
        await asyncio.sleep(0.001)
    return work.result()
