"""Long changes: one at a time, in slices, and to the end.

Owns two tools for changes of topics. `drive` runs the steps of `storage.disk.steps` in the loop
thread with a pause after each slice. So the creation of ten thousand partitions delays no request
for longer than a slice. `Changes` runs one change at a time, because between two slices a change is
half done. It finishes a change even if the requester hangs up meanwhile.

It does not know the content of a change. Read next: `broker.topics.registry`, `storage.disk.steps`.
"""

import asyncio
import time
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from storage.disk.steps import Steps

Result = TypeVar("Result")

SLICE_NS: Final = 2_000_000
"""How long steps may run before other work has a turn."""


async def drive(steps: Steps[Result]) -> Result:
    """The result of `steps`; raises what they raise."""
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
    """The running and the waiting changes. Loop thread only."""

    def __init__(self) -> None:
        """Start without changes."""
        self._one_at_a_time = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def make(self, change: Coroutine[Any, Any, Result]) -> Result:
        """The result of `change`, run after the earlier ones; raises what it raises.

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
        # There may be no caller left for a failure, and asyncio would log that at exit.
        if not task.cancelled():
            task.exception()
