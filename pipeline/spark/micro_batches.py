"""How far a micro-batch goes: the limits of the options, and the ends of AvailableNow.

Source: Spark `KafkaMicroBatchStream`, SPARK-55304 (admission control, since Spark 4.2).
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from client.errors import BrokerRefused
from pipeline.errors import DataLoss
from pipeline.options.options import SourceOptions, TopicPartition
from pipeline.plan.offsets import bytes_per_offset
from pipeline.plan.splits import OffsetRange, limit_ends
from pipeline.spark.stream import Offset, StreamReader, parse_offset
from pipeline.spark.task import Columns


class MicroBatchReader(StreamReader, SupportsTriggerAvailableNow):
    """A stream whose batches have a limit."""

    def __init__(self, options: SourceOptions, columns: Columns) -> None:
        """Keep the options; raises as `StreamReader`."""
        super().__init__(options, columns)
        self._target: dict[TopicPartition, int] | None = None
        self._last_batch_s = time.monotonic()

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limit of the options."""
        if self.options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self.options.max_offsets_per_trigger)
        if self.options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self.options.max_bytes_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """The end of the next batch; `start` itself when there are no new records yet.

        With `Trigger.AvailableNow` the ends are those at the start of the run, and must still
        exist. Raises as `available`.
        """
        known = parse_offset(start)
        # A missing partition keeps its offset, and continues there when it comes back.
        ends = {**known, **self._bounded(self.available(start, self._target))}
        starts = {tp: known.get(tp, 0) for tp in ends}
        fresh = sum(max(end - starts[tp], 0) for tp, end in ends.items())
        if self._waits(fresh):
            return start
        ends = self._limited(starts, ends, limit)
        self._last_batch_s = time.monotonic()
        return self.offset(ends, start.get("oldestMs"), start.get("topicIds"))

    def reportLatestOffset(self) -> Offset | None:
        """How far the topics reach, for Spark's progress reports."""
        try:
            return self.offset(self.ends(), None)
        except (BrokerRefused, DataLoss):
            return None

    def prepareForTriggerAvailableNow(self) -> None:
        """Take the current ends as the end of this run."""
        self._target = self.ends()

    def _bounded(self, ends: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        if self._target is None:
            return ends
        return {tp: min(end, ends[tp]) for tp, end in self._target.items() if tp in ends}

    def _waits(self, fresh: int) -> bool:
        """Whether `minOffsetsPerTrigger` has this batch wait for more."""
        wanted = self.options.min_offsets_per_trigger
        if wanted is None or self._target is not None or fresh >= wanted:
            return False
        waited_ms = (time.monotonic() - self._last_batch_s) * 1000
        return waited_ms < self.options.max_trigger_delay_ms

    def _limited(
        self,
        starts: Mapping[TopicPartition, int],
        ends: dict[TopicPartition, int],
        limit: ReadLimit,
    ) -> dict[TopicPartition, int]:
        if isinstance(limit, ReadMaxRows):
            return limit_ends(starts, ends, limit.max_rows)
        if not isinstance(limit, ReadMaxBytes):
            return ends
        ranges = [OffsetRange(*tp, starts[tp], max(end, starts[tp])) for tp, end in ends.items()]
        estimates = bytes_per_offset(self.connected(), ranges)
        rows = sum(one.size for one in ranges)
        size = sum(one.size * estimates.get(one.topic_partition, 0.0) for one in ranges)
        if size <= limit.max_bytes:
            return ends
        return limit_ends(starts, ends, max(int(rows * limit.max_bytes / size), 1))
