"""What has to happen without a request: retention, checkpoints, deferred deletes, expiry, sweeps.

Every job is a plain function with an interval.  One timer per job on the monotonic clock, first run
and every interval jittered by up to a tenth so that jobs do not fall together; a job that raises is
logged, counted and run again next time.  That boundary is one of the two places in the broker that
catch everything.

Jobs run in the loop thread, because a log has one writer; each is cut into steps (one log per loop
turn), so that ten thousand logs do not hold up requests.

The retention clock.  Retention compares record timestamps with the time of day, so a clock set ten
years ahead would delete everything.  `RetentionClock` follows the wall clock only as long as that
moves with the monotonic one.  After a step ahead of more than a minute it goes on from where it
was; after a step back it follows at once, which only keeps data longer.  A new time that is right
is accepted by a restart, and the log says so.

Differs from Kafka: it deletes by the wall clock alone, at once after such a step.

Source: Kafka's `LogManager.startup` schedule.
"""

import logging
import random
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from broker.clock import Clock, TimerHandle

if TYPE_CHECKING:
    from broker.metrics import Metrics

logger = logging.getLogger("tidelog.broker.housekeeping")

WALL_CLOCK_STEP_MS = 60_000
"""A difference between the two clocks above which the wall clock counts as having jumped."""

JITTER = 0.1

Job = Callable[[], "Iterator[int | None] | None"]
"""A job returns None when it is done, or an iterator whose steps are spread over loop turns; a step
may yield how many milliseconds to wait before the next one."""


class RetentionClock:
    """The time of day for decisions that delete data: it cannot be made to jump ahead."""

    def __init__(self, clock: Clock) -> None:
        """Trust what the wall clock says now."""
        self._clock = clock
        self._trusted_offset_ms = clock.wall_ms() - clock.monotonic_ms()
        self._last_offset_ms = self._trusted_offset_ms
        self.jumps = 0

    def now_ms(self) -> int:
        """Milliseconds since the epoch, by the wall clock unless that has jumped ahead."""
        monotonic_ms = self._clock.monotonic_ms()
        offset_ms = self._clock.wall_ms() - monotonic_ms
        if abs(offset_ms - self._last_offset_ms) > WALL_CLOCK_STEP_MS:
            self._notice_jump(offset_ms - self._last_offset_ms)
        self._last_offset_ms = offset_ms
        ahead_ms = offset_ms - self._trusted_offset_ms
        if ahead_ms > WALL_CLOCK_STEP_MS:
            return monotonic_ms + self._trusted_offset_ms
        if ahead_ms >= -WALL_CLOCK_STEP_MS:
            # Slow drift, and the small steps of a clock that is being disciplined.
            self._trusted_offset_ms = offset_ms
        return monotonic_ms + offset_ms

    def _notice_jump(self, step_ms: int) -> None:
        self.jumps += 1
        logger.warning(
            "the wall clock jumped by %+d ms. Nothing is deleted because of a jump ahead: "
            "retention goes on by the time before it. Correct the clock, or restart the broker "
            "if the new time is right.",
            step_ms,
        )


class _ScheduledJob:
    """One job with its timer."""

    __slots__ = ("interval_ms", "name", "run", "timer")

    def __init__(self, name: str, interval_ms: int, run: Job) -> None:
        self.name = name
        self.interval_ms = interval_ms
        self.run = run
        self.timer: TimerHandle | None = None


class Housekeeping:
    """The schedule of background jobs; `start` when clients are accepted, `stop` before they go."""

    def __init__(self, clock: Clock, source: random.Random, metrics: "Metrics") -> None:
        """Prepare an empty schedule."""
        self._clock = clock
        self._random = source
        self._metrics = metrics
        self._jobs: list[_ScheduledJob] = []
        self._is_running = False

    def add(self, name: str, interval_ms: int, run: Job) -> None:
        """Run `run` every `interval_ms` (> 0), named `name` in log and metrics."""
        assert interval_ms > 0, "a job without an interval would never let go"
        self._jobs.append(_ScheduledJob(name, interval_ms, run))

    def start(self, first_delay_ms: int) -> None:
        """Run every job for the first time after at most `first_delay_ms` or its interval."""
        self._is_running = True
        for job in self._jobs:
            self._schedule(job, min(first_delay_ms, job.interval_ms))

    def stop(self) -> None:
        """Run no job any more; steps under way end with the current one."""
        self._is_running = False
        for job in self._jobs:
            if job.timer is not None:
                job.timer.cancel()
                job.timer = None

    def run_now(self, name: str) -> None:
        """Run the job `name` to its end, errors included in the supervision; for tests and stop."""
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
        """How long to wait for the next step (ms), None after the last one; an error ends the job
        for this time.
        """
        try:
            return next(steps) or 0
        except StopIteration:
            return None
        except Exception:
            # The job boundary, see the module docstring.
            self._metrics.job_failures[job.name] += 1
            logger.exception("background job %s failed; it runs again later", job.name)
            return None
