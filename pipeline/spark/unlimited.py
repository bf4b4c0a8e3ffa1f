"""Streams on Spark 4.0 and 4.1, where a batch of a Python source takes all that is there.

These releases ask for the end of the next batch without saying where it begins, and know no limits,
so the options that would limit a batch are refused. What was lost before a restart is seen when the
next batch is planned.

Source: Spark 4.1, `DataSourceStreamReader`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql.datasource import InputPartition

from pipeline.errors import BadOptions, DataLoss
from pipeline.options.options import SourceOptions
from pipeline.spark.stream import CURE, Offset, StreamReader, parse_offset
from pipeline.spark.task import Columns

_LIMITS: Final = {
    "maxOffsetsPerTrigger": "max_offsets_per_trigger",
    "maxBytesPerTrigger": "max_bytes_per_trigger",
    "minOffsetsPerTrigger": "min_offsets_per_trigger",
}
"""Fields by the options that fill them."""


class UnlimitedReader(StreamReader):
    """A stream whose batches take all new records."""

    def __init__(self, options: SourceOptions, columns: Columns) -> None:
        """Keep the options.

        Raises:
            BadOptions: a limit is given, or as `StreamReader`.
        """
        if limits := [name for name, field in _LIMITS.items() if getattr(options, field)]:
            raise BadOptions(
                *[
                    f"option {name}: Spark has limits of micro-batches for Python sources since "
                    "4.2, and this is an earlier release; leave the option out, or take PySpark 4.2"
                    for name in limits
                ]
            )
        super().__init__(options, columns)
        self._reached: Offset | None = None

    def latestOffset(self) -> Offset:
        """How far the topics reach; raises as `available`."""
        known = self._reached or self.initialOffset()
        ends = {**parse_offset(known), **self.available(known)}
        self._reached = self.offset(ends, known.get("oldestMs"), known.get("topicIds"))
        return self._reached

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """The tasks between two offsets.

        Raises:
            DataLoss: they were not one log's any more when `end` was looked up, and
                `failOnDataLoss` is on.
        """
        complaint = self.loss(parse_offset(start), parse_offset(end), start)
        if complaint is not None and self.options.fail_on_data_loss:
            raise DataLoss(f"{complaint}. {CURE}")
        return super().partitions(start, end)
