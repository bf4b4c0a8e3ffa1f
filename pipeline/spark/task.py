"""One Spark task of the source, in batch and in micro-batches: its ranges, and reading them.

Source: Spark 4.3 Python Data Source API.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from pipeline.net.cluster import Cluster
from pipeline.options.options import SourceOptions
from pipeline.plan.segments import read_range
from pipeline.plan.splits import OffsetRange
from pipeline.records.batches import DecodeRules


@dataclass
class Task(InputPartition):
    """The ranges that one Spark task reads. Picklable: numbers and names."""

    ranges: tuple[OffsetRange, ...]
    oldest_ms: int
    newest_ms: int

    def __repr__(self) -> str:
        """The ranges, for Spark's own messages."""
        return f"Task({', '.join(map(str, self.ranges))})"


def read_task(
    options: SourceOptions, columns: tuple[str, ...], task: Task
) -> Iterator[pa.RecordBatch]:
    """The rows of `task` from the broker, or from segment files as far as they reach."""
    rules = DecodeRules(
        columns=columns,
        oldest_ms=task.oldest_ms,
        newest_ms=task.newest_ms,
        read_committed=options.read_committed,
        verify_checksums=options.verify_checksums,
        on_malformed=options.on_malformed,
        rows_per_batch=options.rows_per_batch,
        bytes_per_batch=options.bytes_per_batch,
    )
    with Cluster(options.connection) as cluster:
        for one in task.ranges:
            yield from read_range(cluster, options, one, rules)
