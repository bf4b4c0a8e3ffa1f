"""The cleaner: compacts one log after the other, in the background, in slices.

Each round picks the log that needs it most (`max.compaction.lag.ms` passed first, then the largest
share of dirty bytes). The loop thread reads the records, a few milliseconds at a time. After each
slice the job rests for as long as the slice took, so that it never takes more than half of a busy
thread. Syncs and large (de)compressions run in another thread.

The cleaner skips a log with a damaged segment until the next start: every further try would end at
the same place. The log still serves.

`storage.log.compaction` decides what to clean, and how to recover from a crash in between.
Source: Kafka `LogCleaner`.
"""

import logging
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from broker.metrics import Metrics
from broker.threads import Pool
from storage.disk.steps import Steps
from storage.errors import CorruptLog, StorageError
from storage.log.log import Log

if TYPE_CHECKING:
    from broker.jobs.tiering import Tiering
    from storage.log.compaction import CompactionResult

logger = logging.getLogger("tidelog.broker.jobs.cleaner")


class Cleaner:
    """The background job that compacts; in the loop thread."""

    def __init__(
        self,
        logs: Callable[[], Iterable[Log]],
        now_ms: Callable[[], int],
        *,
        map_bytes: Callable[[], int],
        metrics: Metrics,
        threads: Pool,
        tiering: "Tiering | None",
    ) -> None:
        """Compact the due ones among `logs`, by the clock `now_ms`, which cannot jump ahead.

        `map_bytes` is asked before each one, since the setting may change at run time.

        Those with an object store use that of `tiering`, and its threads.
        """
        self._logs = logs
        self._now_ms = now_ms
        self._map_bytes = map_bytes
        self._metrics = metrics
        self._threads = threads
        self._tiering = tiering
        self._tier = None if tiering is None else tiering.stored_logs
        self._given_up: set[Log] = set()

    async def run(self) -> None:
        """Clean until no log is due."""
        from storage.log.compaction import compact

        tried: set[Log] = set()
        while (log := self._filthiest(tried)) is not None:
            tried.add(log)
            steps = compact(
                log, now_ms=self._now_ms(), map_bytes=self._map_bytes(), tier=self._tier
            )
            is_tiered = self._tiering is not None and log.config.remote_storage_enable
            threads = self._tiering.threads if is_tiered and self._tiering else self._threads
            try:
                result = await threads.drive(self._timed(steps), rest_after_slice=1)
            except StorageError as error:
                if isinstance(error, CorruptLog):
                    self._given_up.add(log)
                logger.error("%s-%d could not be compacted: %s", log.topic, log.partition, error)
            else:
                self._report(log, result)

    def _filthiest(self, tried: set[Log]) -> Log | None:
        from storage.log.compaction import find_cleanable

        now_ms = self._now_ms()
        best: tuple[tuple[bool, float], Log] | None = None
        for log in self._logs():
            if log in tried or log in self._given_up:
                continue
            plan = find_cleanable(log, now_ms, self._tier)
            if plan is not None and plan.is_due:
                need = (plan.is_overdue, plan.ratio)
                if best is None or need > best[0]:
                    best = need, log
        return None if best is None else best[1]

    def _timed(self, steps: "Steps[CompactionResult | None]") -> "Steps[CompactionResult | None]":
        """`steps`, with the longest one noted in the metrics."""
        while True:
            started_ns = time.perf_counter_ns()
            try:
                call = next(steps)
            except StopIteration as stop:
                result: CompactionResult | None = stop.value
                return result
            took_ms = (time.perf_counter_ns() - started_ns) // 1_000_000
            self._metrics.cleaner_slice_max_ms = max(self._metrics.cleaner_slice_max_ms, took_ms)
            yield call

    def _report(self, log: Log, result: "CompactionResult | None") -> None:
        if result is None or not result.segments_before:
            return
        self._metrics.compactions += 1
        self._metrics.records_compacted += result.records_dropped
        logger.info(
            "%s-%d: compacted up to offset %d, %d bytes to %d, %d records dropped",
            log.topic,
            log.partition,
            result.end,
            result.bytes_before,
            result.bytes_after,
            result.records_dropped,
        )
