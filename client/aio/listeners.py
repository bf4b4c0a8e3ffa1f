"""Functions of the user that a client calls: at rebalances, and with statistics.

A listener may be a function or a coroutine function. One that raises does not end the client's
work: its exception becomes a `ListenerFailed`, which the next poll or flush raises.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import TypeVar

from client.aio.background import end_tasks, start_watched
from client.checks import check_called, check_numbers
from client.errors import ClientBroken, ClientError, InvalidUse, ListenerFailed

_T = TypeVar("_T")

Listener = Callable[[_T], Awaitable[None] | None]
"""A function or a coroutine function of one argument."""


def check_listeners(**listeners: object) -> None:
    """Each named value is None or can be called; raises InvalidType."""
    check_called(**{name: one for name, one in listeners.items() if one is not None})


async def call_listener(name: str, listener: Listener[_T] | None, value: _T) -> None:
    """Call a listener, if there is one, and wait for it.

    Raises:
        ListenerFailed: it raised.
    """
    if listener is None:
        return
    try:
        answer = listener(value)
        if inspect.isawaitable(answer):
            await answer
    except Exception as error:
        raise ListenerFailed(f"{name} raised {type(error).__name__}: {error}") from error


class Reporter:
    """Calls ``on_statistics`` at intervals, and once more when the client closes."""

    def __init__(
        self, listener: Listener[_T] | None, interval_ms: int | None, take: Callable[[], _T]
    ) -> None:
        """`take` makes the statistics; without a listener nothing is called.

        Raises:
            InvalidType: the listener cannot be called.
            InvalidUse: the interval is out of its range, or one is given without the other.
        """
        check_listeners(on_statistics=listener)
        if interval_ms is not None:
            check_numbers(1, statistics_interval_ms=interval_ms)
        if (listener is None) != (interval_ms is None):
            raise InvalidUse("give both on_statistics and statistics_interval_ms, or neither")
        self._interval_s = (interval_ms or 0) / 1000
        self._task: asyncio.Task[None] | None = None

        async def report() -> None:
            await call_listener("on_statistics", listener, take())

        self._report = None if listener is None else report

    def start(
        self, on_failure: Callable[[ClientError], None], on_defect: Callable[[ClientBroken], None]
    ) -> None:
        """Begin; `on_failure` gets the error of a listener that raised."""
        if (report := self._report) is None:
            return

        async def run() -> None:
            while True:
                await asyncio.sleep(self._interval_s)
                try:
                    await report()
                except ListenerFailed as error:
                    on_failure(error)

        self._task = start_watched(run(), "statistics.report", on_defect)

    async def close(self) -> None:
        """End, after a last call.

        Raises:
            ListenerFailed: the listener raised in that last call.
        """
        if self._task is None or self._report is None:
            return
        await end_tasks(self._task)
        self._task = None
        await self._report()
