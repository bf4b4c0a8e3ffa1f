"""The threads of one broker: made, named, bounded and ended here and nowhere else.

| pool    | threads | what it calls                                                           |
|---------|---------|-------------------------------------------------------------------------|
| sync    | 8       | syncs of logs: those of group commit, and the last ones of a stop       |
| side    | 1       | steps of requests that cannot be sliced; see `broker.replies.turns`    |
| jobs    | 4       | steps of background jobs: unlinking, checkpoints, compaction, statistics |
| control | 2       | steps of changes of topics, and loading code after a start              |
| uploads | 1       | reads and requests of uploads, deletions in the store; see `PATIENCE`   |
| bucket  | 2       | requests of the bucket's journal, and reads for it; wait for no upload  |
| downloads | 8     | ranged GETs from the object store, for requests                         |
| audit   | 1       | appends to the file of the audit log, in their order                    |

A pool is used by the loop thread alone; its threads touch nothing that the loop thread changes
meanwhile. A coroutine awaits `run` (one call) or `drive` (the steps of `storage.disk.steps`); code
that must not cost a task uses `submit`. Threads start when there are calls for them.
"""

import asyncio
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from threading import Lock, Thread, get_native_id
from typing import Any, Final, TypeAlias, TypeVar

from storage.disk.steps import Elsewhere, Steps

Result = TypeVar("Result")

Done: TypeAlias = Callable[[Any, BaseException | None], object]
"""Receives the result of a call, or its error."""

_Call: TypeAlias = "tuple[Callable[[], object], Done, asyncio.AbstractEventLoop | None]"
"""A call, and the loop in which `Done` is called; without one, the thread calls it."""

SYNC_THREADS: Final = 8
"""Syncs that may run at once.

Measured on a virtual disk: 64 partitions take 20 ms one after the other, 7 ms with 8 threads and 6
ms with 32, while each thread costs memory and switches.
"""

SIDE_THREADS: Final = 1
"""One, so that only one step of a request at a time holds the memory of such a step."""

JOB_THREADS: Final = 4
"""One for each job that uses them, so that a slow sync of one does not delay the others."""

CONTROL_THREADS: Final = 2
"""Changes of topics run one at a time, and may come while the start still loads code."""

UPLOAD_THREADS: Final = 1
"""One upload at a time; a store that hangs delays nothing else."""

BUCKET_THREADS: Final = 2
"""Entries of the journal are written one after the other, and wait for no deletion of old ones."""

DOWNLOAD_THREADS: Final = 8
"""Ranges of remote segments that are on their way at once."""

PATIENCE: Final = 10
"""How much nicer than the process a patient thread is.

Measured with uploads as fast as they go on two busy cores: the rate of appends was 0.59 of that
without uploads at 0, and 0.66 at 10; their p99 was not worse in any run. Nothing starves: 10 is a
tenth of the share that others get.
"""

_NICEST: Final = 19

IMPORTING: Final = Lock()
"""Held while a library is imported that a start and a request may need at the same time.

Where modules import each other, a second thread may see half of one.
"""

SLICE_NS: Final = 2_000_000
"""How long `drive` runs steps in the loop thread before other work has a turn."""


class Pool:
    """The threads for calls of one purpose. Loop thread only."""

    def __init__(
        self, name: str, size: int, *, is_left: bool = False, is_patient: bool = False
    ) -> None:
        """Allow `size` threads, named `name-0` and so on; none runs yet.

        With `is_left`, `close` does not wait for calls: they read, and their results have no use.
        With `is_patient`, the system lets other threads run first, where it knows such threads.
        """
        self.size = size
        self._is_patient = is_patient
        self._is_left = is_left
        self._name = name
        self._threads: list[Thread] = []
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._unfinished = 0
        self._is_closed = False

    def submit(self, function: Callable[[], object], done: Done) -> None:
        """Call `function` in a thread, then `done(result, error)` in the loop thread."""
        assert not self._is_closed, f"the pool {self._name} is closed"
        self._unfinished += 1
        if len(self._threads) < self._unfinished:
            self._start_threads(self._unfinished)
        self._calls.put((function, done, asyncio.get_running_loop()))

    async def run(self, function: Callable[[], Result]) -> Result:
        """The result of `function`, called in a thread; raises what it raises.

        A cancelled caller waits for the end of the call, so that it closes nothing in use.
        """
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()

        def settle(result: Result, error: BaseException | None) -> None:
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        self.submit(function, settle)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            await asyncio.wait([future])
            raise

    async def drive(
        self, steps: Steps[Result], *, rest_after_slice: int = 0, rest_after_call: int = 0
    ) -> Result:
        """The result of `steps`, whose calls are made in a thread; raises what they raise.

        The steps run in the loop thread, in slices of `SLICE_NS`. Other work has a turn after each
        slice and each call. The rests are how much longer the pause is, as multiples of the
        duration of that slice or call.
        """
        begun_ns = time.perf_counter_ns()
        try:
            while True:
                call = next(steps)
                rest = rest_after_slice
                if isinstance(call, Elsewhere):
                    await _elsewhere(call)
                elif call is not None:
                    begun_ns = time.perf_counter_ns()
                    await self.run(call.run)
                    rest = rest_after_call
                elif time.perf_counter_ns() < begun_ns + SLICE_NS:
                    continue
                await asyncio.sleep(rest * (time.perf_counter_ns() - begun_ns) / 1e9)
                begun_ns = time.perf_counter_ns()
        except StopIteration as stop:
            result: Result = stop.value
            return result
        finally:
            steps.close()

    def run_all(self, functions: Sequence[Callable[[], object]]) -> None:
        """Call all `functions`, blocking the loop thread until the last has ended.

        Raises:
            BaseException: what one of them raised.
        """
        ended: SimpleQueue[BaseException | None] = SimpleQueue()
        self._start_threads(len(functions))
        for function in functions:
            self._calls.put((function, lambda _, error: ended.put(error), None))
        errors = [ended.get() for _ in functions]
        for error in filter(None, errors):
            raise error

    def close(self) -> None:
        """Drop the calls that have not begun, wait for the others, end the threads."""
        self._is_closed = True
        while not self._calls.empty():
            self._calls.get()
        for _ in self._threads:
            self._calls.put(None)
        for thread in () if self._is_left else self._threads:
            thread.join()
        self._threads.clear()

    def _start_threads(self, wanted: int) -> None:
        while len(self._threads) < min(wanted, self.size):
            name = f"{self._name}-{len(self._threads)}"
            thread = Thread(target=self._serve, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self) -> None:
        """Body of a thread: make the calls until `close`."""
        if self._is_patient and sys.platform == "linux":
            # There, and nowhere else, a thread has a priority of its own.
            own = get_native_id()
            with suppress(OSError):  # a filter of system calls may refuse it
                nice = os.getpriority(os.PRIO_PROCESS, own) + PATIENCE
                os.setpriority(os.PRIO_PROCESS, own, min(nice, _NICEST))
        while (call := self._calls.get()) is not None:
            function, done, loop = call
            result, error = None, None
            try:
                result = function()
            except BaseException as failure:  # noqa: BLE001 - delivered to the caller
                error = failure
            if loop is None:
                done(result, error)
            elif not loop.is_closed():  # Else the call has no caller any more.
                loop.call_soon_threadsafe(self._returned, done, result, error)
            # A waiting thread keeps no data of its last call in memory.
            del call, function, done, result, error

    def _returned(self, done: Done, result: object, error: BaseException | None) -> None:
        self._unfinished -= 1
        assert self._unfinished >= 0, f"the pool {self._name} returned a call twice"
        done(result, error)


async def _elsewhere(call: Elsewhere[Any]) -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    call.begin(lambda: None if future.done() else future.set_result(None))
    await future


class Threads:
    """The pools of one broker; see the module's table."""

    def __init__(self) -> None:
        self.sync = Pool("sync", SYNC_THREADS)
        self.side = Pool("side", SIDE_THREADS)
        self.jobs = Pool("jobs", JOB_THREADS)
        self.control = Pool("control", CONTROL_THREADS)
        self.uploads = Pool("uploads", UPLOAD_THREADS, is_patient=True)
        self.bucket = Pool("bucket", BUCKET_THREADS)
        self.downloads = Pool("downloads", DOWNLOAD_THREADS, is_left=True)
        self.audit = Pool("audit", 1)

    def close(self) -> None:
        """End all threads, each after the call that it makes now."""
        for pool in (
            *(self.downloads, self.side, self.jobs, self.control, self.uploads, self.bucket),
            self.sync,
            self.audit,
        ):
            pool.close()
