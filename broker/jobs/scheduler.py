"""The scheduler of background jobs: retention, checkpoints, deferred deletes, expiry, sweeps.

A job is a function with an interval, and a coroutine if it is long. It runs in the loop thread,
because a log has one writer. A long one awaits after each log or each slice, so that ten thousand
logs do not delay requests, and awaits calls of `broker.threads` that would block.

Each job has one timer, on the elapsed time of the scheduler's clock or of one of its own. The first
run and every interval are jittered by up to a tenth, so that jobs do not coincide. A job never runs
twice at the same time. One that raises is logged, counted and run again after its interval. That
boundary is one of the two places in the broker that catch everything.

Source: Kafka's `KafkaScheduler` and `LogManager.startup`.
"""

import asyncio
import inspect
import logging
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from broker.clocks.clock import Clock, TimerHandle
from broker.metrics import Metrics

logger = logging.getLogger("tidelog.broker.jobs.scheduler")

JITTER = 0.1

Run: TypeAlias = Callable[[], Any]
"""A function, or a coroutine function."""


class Job:
    """One job: its name, its interval, and its next or current run."""

    __slots__ = ("_interval_ms", "clock", "is_hurried", "is_long", "name", "run", "task", "timer")

    def __init__(
        self, name: str, interval_ms: int | Callable[[], int], run: Run, clock: Clock
    ) -> None:
        """Keep the facts; the scheduler sets the timer on `clock`."""
        self.name = name
        self.clock = clock
        self._interval_ms = interval_ms
        self.run = run
        self.is_long = inspect.iscoroutinefunction(run)
        self.is_hurried = False
        self.timer: TimerHandle | None = None
        self.task: asyncio.Task[None] | None = None

    @property
    def interval_ms(self) -> int:
        """How long to wait from one run to the next, at this moment."""
        interval_ms = self._interval_ms
        return interval_ms if isinstance(interval_ms, int) else interval_ms()


class JobScheduler:
    """All jobs; `start` when clients are accepted, `stop` before their collaborators close."""

    def __init__(self, clock: Clock, source: random.Random, metrics: Metrics) -> None:
        """Prepare an empty schedule."""
        self._clock = clock
        self._random = source
        self._metrics = metrics
        self._jobs: dict[str, Job] = {}
        self._is_running = False

    def __getitem__(self, name: str) -> Job:
        """The job of that name."""
        return self._jobs[name]

    def add(
        self,
        name: str,
        interval_ms: int | Callable[[], int],
        run: Run,
        *,
        clock: Clock | None = None,
    ) -> None:
        """Run `run` every `interval_ms` (> 0), named `name` in log and metrics.

        A function is called before each wait, for an interval that may change. `clock` measures it
        in place of the scheduler's own clock.
        """
        assert name not in self._jobs, name
        job = self._jobs[name] = Job(name, interval_ms, run, clock or self._clock)
        assert job.interval_ms > 0, f"{name} would run without a pause"

    def start(self, first_delay_ms: int) -> None:
        """Run every job first after at most `first_delay_ms` or its interval."""
        self._is_running = True
        for job in self._jobs.values():
            self._schedule(job, min(first_delay_ms, job.interval_ms))

    async def stop(self) -> None:
        """Start no further run; cancel the current ones, each after the call that it awaits."""
        self._is_running = False
        for job in self._jobs.values():
            if job.timer is not None:
                job.timer.cancel()
                job.timer = None
        for task in self._tasks():
            task.cancel()
        await self.settle()

    async def settle(self) -> None:
        """Wait for the end of the current runs."""
        await asyncio.gather(*self._tasks(), return_exceptions=True)

    async def run_now(self, name: str) -> None:
        """Run the job `name` to its end, after the current run if there is one; for tests."""
        job = self._jobs[name]
        if job.task is not None:
            await asyncio.wait([job.task])
        if job.is_long:
            await self._run_long(job)
        else:
            self._run_short(job)

    def hurry(self, name: str) -> None:
        """Run the job `name` without further delay; once more, if it is running."""
        job = self._jobs[name]
        if job.timer is not None:
            job.timer.cancel()
            self._start(job)
        else:
            job.is_hurried = True

    def _tasks(self) -> list[asyncio.Task[None]]:
        return [job.task for job in self._jobs.values() if job.task is not None]

    def _schedule(self, job: Job, delay_ms: int) -> None:
        jittered_ms = int(delay_ms * (1 + JITTER * self._random.random()))
        job.timer = job.clock.call_later(jittered_ms, lambda: self._start(job))

    def _start(self, job: Job) -> None:
        job.timer = None
        if job.is_long:
            job.task = asyncio.create_task(self._run_long(job), name=job.name)
            job.task.add_done_callback(lambda _: self._ended(job))
        else:
            self._run_short(job)
            self._ended(job)

    def _ended(self, job: Job) -> None:
        job.task = None
        if self._is_running:
            delay_ms, job.is_hurried = 0 if job.is_hurried else job.interval_ms, False
            self._schedule(job, delay_ms)

    def _run_short(self, job: Job) -> None:
        with self._boundary(job):
            job.run()

    async def _run_long(self, job: Job) -> None:
        with self._boundary(job):
            await job.run()

    @contextmanager
    def _boundary(self, job: Job) -> Iterator[None]:
        """The job boundary, see the module docstring."""
        try:
            yield
        except Exception:
            self._metrics.job_failures[job.name] += 1
            logger.exception("background job %s failed; it runs again later", job.name)
