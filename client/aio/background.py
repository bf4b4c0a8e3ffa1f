"""Background tasks whose failure is reported: a defect must fail its callers, not hang them.

The exception of a task that is not awaited is never seen, and callers that wait for its work then
wait for ever. This module starts the tasks of producer and consumer, so that theirs is reported.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from client.errors import ClientBroken

logger = logging.getLogger("tidelog.client.aio.background")


def start_watched(
    work: Coroutine[Any, Any, None], name: str, on_defect: Callable[[ClientBroken], None]
) -> "asyncio.Task[None]":
    """Run `work` as a task; if it raises, `on_defect` gets the exception, at once and once."""
    task = asyncio.create_task(work, name=name)

    def ended(task: "asyncio.Task[None]") -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            broken = ClientBroken(
                f"a defect of the client ended its task {name}: {type(error).__name__}: {error}; "
                "close this client and open another, and report the defect"
            )
            broken.__cause__ = error
            logger.error("%s", broken, exc_info=error)
            on_defect(broken)

    task.add_done_callback(ended)
    return task


async def end_tasks(*tasks: "asyncio.Task[None] | None") -> None:
    """Cancel the tasks that there are, and return once they have ended."""
    running = [task for task in tasks if task is not None]
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
