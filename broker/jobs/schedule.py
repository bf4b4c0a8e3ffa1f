"""The schedule of background work: retention, checkpoints, deferred deletes, expiry, sweeps.

Every job is a plain function with an interval. Each has one timer on the monotonic clock. The first
run and every interval are jittered by up to a tenth, so that jobs do not coincide. A job that
raises is logged, counted and run again next time. That boundary is one of the two places in the
broker that catch everything.

Jobs run in the loop thread, because a log has one writer; each is split into steps (one log per
loop turn), so that ten thousand logs do not delay requests.

Source: Kafka's `LogManager.startup` schedule.
"""

import logging
import random
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from broker.clocks.clock import Clock, TimerHandle

if TYPE_CHECKING:
    from broker.metrics import Metrics

logger = logging.getLogger("tidelog.broker.jobs.schedule")

JITTER = 0.1

Job = Callable[[], "Iterator[int | None] | None"]
"""A job returns None when it is done, or an iterator whose steps are spread over loop turns.

A step may yield the milliseconds to wait before the next one.
"""


class _ScheduledJob:
    """One job with its timer."""

    __slots__ = ("_interval_ms", "name", "run", "timer")

    def __init__(self, name: str, interval_ms: int | Callable[[], int], run: Job) -> None:
        self.name = name
        self._interval_ms = interval_ms
        self.run = run
        self.timer: TimerHandle | None = None

    @property
    def interval_ms(self) -> int:
        """How long to wait from one run to the next, at this moment."""
        interval_ms = self._interval_ms
        return interval_ms if isinstance(interval_ms, int) else interval_ms()


class Housekeeping:
    """The schedule of background jobs; `start` when clients are accepted, `stop` before they go."""

    def __init__(self, clock: Clock, source: random.Random, metrics: "Metrics") -> None:
        """Prepare an empty schedule."""
        self._clock = clock
        self._random = source
        self._metrics = metrics
        self._jobs: list[_ScheduledJob] = []
        self._is_running = False

    def add(self, name: str, interval_ms: int | Callable[[], int], run: Job) -> None:
        """Run `run` every `interval_ms` (> 0), named `name` in log and metrics.

        A function is called before each wait, for an interval that may change.
        """
        job = _ScheduledJob(name, interval_ms, run)
        assert job.interval_ms > 0, "a job without an interval would never let go"
        self._jobs.append(job)

    def start(self, first_delay_ms: int) -> None:
        """Run every job first after at most `first_delay_ms` or its interval."""
        self._is_running = True
        for job in self._jobs:
            self._schedule(job, min(first_delay_ms, job.interval_ms))

    def stop(self) -> None:
        """Run no further job; a job under way ends after its current step."""
        self._is_running = False
        for job in self._jobs:
            if job.timer is not None:
                job.timer.cancel()
                job.timer = None

    def run_now(self, name: str) -> None:
        """Run the job `name` to its end, with its errors supervised; for tests and stop."""
        for job in self._jobs:
            if job.name == name:
                steps = self._supervised(job)
                while self._step(job, steps) is not None:
                    pass

    def _schedule(self, job: _ScheduledJob, delay_ms: int) -> None:
        jittered_ms = int(delay_ms * (1 + JITTER * self._random.random()))
        job.timer = self._clock.call_later(jittered_ms, lambda: self._begin(job))

    def _begin(self, job: _ScheduledJob) -> None:
        self._continue(job, self._supervised(job))

    def _continue(self, job: _ScheduledJob, steps: Iterator[int | None]) -> None:
        if not self._is_running:
            return
        wait_ms = self._step(job, steps)
        if wait_ms is None:
            self._schedule(job, job.interval_ms)
        else:
            job.timer = self._clock.call_later(wait_ms, lambda: self._continue(job, steps))

    def _supervised(self, job: _ScheduledJob) -> Iterator[int | None]:
        steps = job.run()
        if steps is not None:
            yield from steps

    def _step(self, job: _ScheduledJob, steps: Iterator[int | None]) -> int | None:
        """The wait before the next step (ms), None after the last one; an error ends the run."""
        try:
            return next(steps) or 0
        except StopIteration:
            return None
        except Exception:
            # The job boundary, see the module docstring.
            self._metrics.job_failures[job.name] += 1
            logger.exception("background job %s failed; it runs again later", job.name)
            return None
