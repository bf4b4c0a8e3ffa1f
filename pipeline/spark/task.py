"""One Spark task of the source, in batch and in micro-batches: its ranges, and reading them.

Source: Spark 4.3 Python Data Source API.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import InputPartition

from pipeline.net.cluster import Cluster
from pipeline.options.options import SourceOptions
from pipeline.plan.archived import FilePart
from pipeline.plan.lake_files import read_part
from pipeline.plan.objects import ObjectPart, read_object
from pipeline.plan.segments import read_range
from pipeline.plan.splits import OffsetRange, Stop
from pipeline.records.batches import DecodeRules


@dataclass(frozen=True)
class Columns:
    """The columns that a query wants, in its order; the required ones are declared not null."""

    names: tuple[str, ...]
    required: frozenset[str] = frozenset()


@dataclass
class Task(InputPartition):
    """What one Spark task reads: ranges, files of an archive, or parts of a bucket's objects.

    Picklable: numbers and names. `stops` says which ranges probably end early, and when.
    """

    ranges: tuple[OffsetRange, ...]
    oldest_ms: int
    newest_ms: int
    files: tuple[FilePart, ...] = ()
    objects: tuple[ObjectPart, ...] = ()
    stops: Mapping[OffsetRange, Stop] = field(default_factory=dict)

    def __repr__(self) -> str:
        """The ranges, files and objects, for Spark's own messages."""
        return f"Task({', '.join(map(str, (*self.ranges, *self.files, *self.objects)))})"


def tasks_of(
    files: Iterable[tuple[FilePart, ...]],
    ranges: Iterable[tuple[OffsetRange, ...]],
    oldest_ms: int,
    newest_ms: int,
    objects: Iterable[tuple[ObjectPart, ...]] = (),
    stops: Mapping[OffsetRange, Stop] | None = None,
) -> list[Task]:
    """Spark's tasks of a plan: those of the archive, of the bucket, then those of the broker."""
    early = stops or {}
    archived = [Task((), oldest_ms, newest_ms, one) for one in files]
    stored = [Task((), oldest_ms, newest_ms, (), one) for one in objects]
    asked = [
        Task(some, oldest_ms, newest_ms, stops={one: early[one] for one in some if one in early})
        for some in ranges
    ]
    return [*archived, *stored, *asked]


def read_task(options: SourceOptions, columns: Columns, task: Task) -> Iterator[pa.RecordBatch]:
    """The rows of `task`: files and objects first, then ranges from the broker or segment files.

    Where an object is gone, retention has deleted its records, or the broker has them elsewhere: it
    is asked for them.
    """
    yield from _read(options, columns, task)
    if TaskContext.get() is not None:
        _spare_collections()


def _read(options: SourceOptions, columns: Columns, task: Task) -> Iterator[pa.RecordBatch]:
    rules = DecodeRules(
        columns=columns.names,
        required=columns.required,
        oldest_ms=task.oldest_ms,
        newest_ms=task.newest_ms,
        read_committed=options.read_committed,
        verify_checksums=options.verify_checksums,
        on_malformed=options.on_malformed,
    )
    for part in task.files:
        yield from read_part(part, rules, fail_on_data_loss=options.fail_on_data_loss)
    ranges = list(task.ranges)
    for stored in task.objects:
        rest = yield from read_object(options.segments_remote, stored, rules)
        ranges += [rest] if rest.size else []
    if not ranges:
        return
    with Cluster(options.connection) as cluster:
        for one in ranges:
            stop = task.stops.get(one)
            yield from read_range(cluster, options, one, replace(rules, stop=stop))


@functools.cache
def _spare_collections() -> None:
    """Exempt what this worker has imported from garbage collection, once.

    Spark's daemon collects garbage after each task of a worker that it uses again. What lives by
    then are the modules of Spark, pyarrow and ours: some 40 ms of walking for each task.
    """
    gc.freeze()
