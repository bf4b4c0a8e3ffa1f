"""Background tasks whose death is heard of: a defect must fail its callers, not hang them.

A task that is not awaited keeps its exception to itself, and what waits for the task's work then
waits for ever. The tasks of producer and consumer are started here, so that theirs is reported.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from client.errors import ClientBroken

logger = logging.getLogger("tidelog.client.background")


def start_watched(
    work: Coroutine[Any, Any, None], name: str, on_defect: Callable[[ClientBroken], None]
) -> "asyncio.Task[None]":
    """Run `work` as a task; should it raise, `on_defect` hears of it, at once and once."""
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
