"""Changes that take long: one at a time, in slices, and to the end.

Owns two things that whoever changes topics needs. `drive` runs the steps of `storage.disk.steps` in
the loop thread with a pause after each slice, so that making ten thousand partitions holds up
nobody for longer than a slice. `Changes` lets one change run at a time, because between two slices
a change is half done, and finishes it also when its requester hangs up meanwhile.

It refuses to know what is changed. Read next: `broker.topics.registry`, `storage.disk.steps`.
"""

import asyncio
import time
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from storage.disk.steps import Steps

Result = TypeVar("Result")

SLICE_NS: Final = 2_000_000
"""How long steps may follow each other before everybody else has a turn."""


async def drive(steps: Steps[Result]) -> Result:
    """The result of `steps`, or raises what they raise."""
    loop = asyncio.get_running_loop()
    slice_end_ns = time.perf_counter_ns() + SLICE_NS
    while True:
        try:
            call = next(steps)
        except StopIteration as stop:
            result: Result = stop.value
            return result
        if call is not None:
            await loop.run_in_executor(None, call.run)
        elif time.perf_counter_ns() < slice_end_ns:
            continue
        else:
            await asyncio.sleep(0)
        slice_end_ns = time.perf_counter_ns() + SLICE_NS


class Changes:
    """The changes under way or waiting. Loop thread only."""

    def __init__(self) -> None:
        """None yet."""
        self._one_at_a_time = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def make(self, change: Coroutine[Any, Any, Result]) -> Result:
        """What `change` returns, once those before it are through; or raises what it raises.

        Cancelling the caller does not cancel the change.
        """
        task = asyncio.create_task(self._take_turn(change))
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return await asyncio.shield(task)

    async def finish(self) -> None:
        """Return when no change is under way or waiting."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _take_turn(self, change: Coroutine[Any, Any, Result]) -> Result:
        async with self._one_at_a_time:
            return await change

    def _done(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        # Nobody may be left to hear of a failure, and asyncio would complain of that at exit.
        if not task.cancelled():
            task.exception()
