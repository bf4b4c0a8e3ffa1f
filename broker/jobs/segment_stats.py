"""The background job that collects statistics of closed segments that have none.

Most segments have their statistics when they are closed. The others come from a crash, a directory
of Kafka, an earlier release or compaction. This job reads them one after the other, so that readers
of a span of time can skip them (`storage.log.segment_stats`). No request waits for it: after each
slice, which runs in another thread, the job rests nine times as long as the slice took.

Read next: `broker.jobs.jobs`.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from broker.jobs.cleaner import run_elsewhere
from storage.errors import StorageError
from storage.log.segment_stats import collect_statistics

if TYPE_CHECKING:
    from storage.log.log import Log

logger = logging.getLogger("tidelog.broker.jobs.segment_stats")

REST: Final = 9
"""The rest after a slice, as a multiple of its duration."""


class Measuring:
    """The job; in the loop thread."""

    def __init__(self, logs: "Callable[[], Iterable[Log]]") -> None:
        """Collect statistics of the segments of `logs`."""
        self._logs = logs
        self._given_up: WeakKeyDictionary[Log, set[int]] = WeakKeyDictionary()

    def run(self) -> Iterator[int]:
        """Collect until all are known; each step is one slice, with the ms to wait after it."""
        for log in list(self._logs()):
            given_up = self._given_up.setdefault(log, set())
            try:
                yield from self._measure(log, given_up)
            except StorageError as error:
                logger.error("%s-%d could not be measured: %s", log.topic, log.partition, error)
            if not given_up:
                del self._given_up[log]

    def _measure(self, log: "Log", given_up: set[int]) -> Iterator[int]:
        for call in collect_statistics(log, given_up):
            started_ns = time.perf_counter_ns()
            if call is not None:
                yield from run_elsewhere(call)
            yield REST * ((time.perf_counter_ns() - started_ns) // 1_000_000)
        yield 0
