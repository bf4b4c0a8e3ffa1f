"""An event loop in a thread of its own, and calls into it from other threads.

Nothing waits for ever here: a call after the end, from a forked child, or from the loop itself is
refused, and the calls under way when it ends are.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from client.errors import InvalidType, InvalidUse

_T = TypeVar("_T")


class LoopThread:
    """Started by `start`, ended by `stop`, both once. Threads may share it."""

    def __init__(self, owner: str) -> None:
        """`owner` is the class in messages, such as ``BlockingConsumer``."""
        self._owner = owner
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ending: asyncio.Event | None = None
        self._thread: threading.Thread | None = None
        self._pid = 0
        self._callbacks = threading.local()

    @property
    def is_open(self) -> bool:
        """Whether it has begun and not ended."""
        return self._loop is not None

    def start(self, first: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Begin, and carry out `first`; if that fails, the loop has ended.

        Raises:
            InvalidUse: it has begun already.
            Exception: what `first` raises.
        """
        if self._thread is not None:
            raise InvalidUse(f"this {self._owner} was opened already: make another one")
        self._pid = os.getpid()
        is_running = threading.Event()

        async def run() -> None:
            self._ending = asyncio.Event()
            self._loop = asyncio.get_running_loop()
            is_running.set()
            await self._ending.wait()

        # A daemon: a program that forgets to close ends nevertheless.
        name = f"tidelog-{self._owner}"
        self._thread = threading.Thread(target=asyncio.run, args=(run(),), name=name, daemon=True)
        self._thread.start()
        is_running.wait()
        try:
            self.call(first())
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End the loop; calls under way are refused. May be called again."""
        with self._lock:
            loop, self._loop = self._loop, None
            if loop is None or self._ending is None:
                return
            if os.getpid() == self._pid:
                loop.call_soon_threadsafe(self._ending.set)
        if self._thread is not None and os.getpid() == self._pid:
            self._thread.join()

    def call(self, work: Coroutine[Any, Any, _T]) -> _T:
        """The result of `work`, which the loop carries out; an exception here cancels it.

        Raises:
            InvalidUse: the loop has not begun or has ended, or this is its own thread, or a child
                that was forked.
        """
        with self._lock:
            problem = self._problem()
            loop = self._loop
            if problem or loop is None:
                work.close()
                raise InvalidUse(problem)
            future = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise InvalidUse(f"this {self._owner} was closed during the call") from None
        except BaseException:
            future.cancel()
            raise

    def run(self, function: Callable[..., _T], *args: Any) -> _T:
        """The result of a function that the loop's thread calls; raises as `call`."""

        async def work() -> _T:
            return function(*args)

        return self.call(work())

    def check_no_callback(self) -> None:
        """Refuse what would wait for itself; raises InvalidUse in a listener."""
        if getattr(self._callbacks, "is_running", False):
            raise InvalidUse(f"a listener cannot close its own {self._owner}: do it outside")

    def listener(self, name: str, function: Any) -> Any:
        """A user's function as a coroutine function that calls it in another thread.

        There it may use the object that it listens to.

        Raises:
            InvalidType: it is not a plain function.
        """
        if function is None:
            return None
        if not callable(function) or inspect.iscoroutinefunction(function):
            raise InvalidType(f"{name}={function!r}: give a plain function, not a coroutine's")

        def called(value: object) -> None:
            self._callbacks.is_running = True
            try:
                function(value)
            finally:
                self._callbacks.is_running = False

        async def call(value: object) -> None:
            await asyncio.to_thread(called, value)

        return call

    def _problem(self) -> str:
        """Why no call is possible now, "" if one is."""
        if self._loop is None:
            return f"this {self._owner} is not open: use `with`"
        if os.getpid() != self._pid:
            return f"this {self._owner} belongs to the parent process: make one after the fork"
        if threading.current_thread() is self._thread:
            return f"this {self._owner} is called by its own event loop, which would wait for ever"
        return ""
