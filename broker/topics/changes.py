"""Changes of topics: one at a time, and to the end.

A long change, such as the creation of ten thousand partitions, runs in steps; between two of them
it is half done. So only one runs at a time, and it ends even if the requester hangs up meanwhile.

It does not know the content of a change.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


class Changes:
    """The running and the waiting changes. Loop thread only."""

    def __init__(self) -> None:
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
