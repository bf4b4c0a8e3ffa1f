"""Writes ranges of a topic as Parquet files in a worker: one event date in each file.

A task writes one file for each date, whatever the number of its ranges. The name is a function of
what it holds and of the plan: writing it again gives the same name, and no two plans share one. A
file appears whole: written under a hidden name, synced, renamed.

    event_date=2013-07-04/flights-5a0f12cd-0-000000000000-000000084194+3-beef0001.parquet
                          topic - its id - partition - start - end, and 3 ranges more - plan

Only a local or mounted path is written to; object stores need their own file system mounted.
Read next: `archive`, `lake`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.batches import COLUMN_TYPES, DecodeRules
from pipeline.cluster import Cluster
from pipeline.journal import sync_directory
from pipeline.options import SourceOptions
from pipeline.segments import read_range
from pipeline.splits import OffsetRange

NO_DATE: Final = "__HIVE_DEFAULT_PARTITION__"
"""The directory of records without a time, as Hive and Spark name a null."""

INGEST_BATCH: Final = "ingestBatch"
FILE_SCHEMA: Final = pa.schema([*COLUMN_TYPES.items(), (INGEST_BATCH, pa.int64())])
_ROW_GROUP_ROWS: Final = 262_144
_MS_PER_DAY: Final = 86_400_000


@dataclass(frozen=True, slots=True, order=True)
class WrittenFile:
    """A file that a worker wrote; `event_date` is empty for records without a time."""

    path: str
    event_date: str
    topic: str
    youngest: tuple[tuple[int, int], ...]
    """(partition, largest timestamp in ms) of each partition in it."""
    rows: int
    size_bytes: int
    first_offset: int
    last_offset: int
    min_timestamp_ms: int
    max_timestamp_ms: int


@dataclass(slots=True)
class _OpenFile:
    """A file under construction: rows wait until they fill a row group."""

    path: Path
    hidden: Path
    writer: Any
    pending: list[pa.RecordBatch] = field(default_factory=list)
    pending_rows: int = 0
    rows: int = 0
    first_offset: int = -1
    last_offset: int = -1
    min_ms: int = 0
    max_ms: int = 0
    youngest: dict[int, int] = field(default_factory=dict)

    def add(self, partition: int, batch: pa.RecordBatch) -> None:
        """Append rows of one partition; their times are within one day."""
        offsets = batch.column("offset")
        times = pc.min_max(batch.column("timestamp").cast(pa.int64()))
        low, high = times["min"].as_py() // 1000, times["max"].as_py() // 1000
        first, last = offsets[0].as_py(), offsets[-1].as_py()
        if not self.rows:
            self.first_offset, self.min_ms, self.max_ms = first, low, high
        self.first_offset = min(self.first_offset, first)
        self.last_offset = max(self.last_offset, last)
        self.youngest[partition] = max(self.youngest.get(partition, -1), high)
        self.min_ms, self.max_ms = min(self.min_ms, low), max(self.max_ms, high)
        self.rows += batch.num_rows
        self.pending.append(batch)
        self.pending_rows += batch.num_rows
        if self.pending_rows >= _ROW_GROUP_ROWS:
            self.flush()

    def flush(self) -> None:
        """Write the waiting rows as one row group."""
        if self.pending:
            self.writer.write_table(pa.Table.from_batches(self.pending), row_group_size=_ROW_GROUP_ROWS)  # noqa: E501  # fmt: skip
            self.pending, self.pending_rows = [], 0


def write_ranges(
    options: SourceOptions,
    ranges: Sequence[OffsetRange],
    folder: str,
    number: int,
    digest: str,
    topic_ids: Mapping[str, str],
) -> list[WrittenFile]:
    """Write the records of `ranges`, all of one topic, below `folder`; the files, in no order.

    Raises as `RangeReader.batches`, and OSError when the folder cannot be written.
    """
    rules = DecodeRules(
        columns=tuple(COLUMN_TYPES),
        read_committed=options.read_committed,
        verify_checksums=options.verify_checksums,
        on_malformed="clamp" if options.on_malformed == "null" else options.on_malformed,
    )
    name = file_name(ranges, topic_ids.get(ranges[0].topic, ""), digest)
    writer = _DateWriter(Path(folder), name, number)
    with Cluster(options.connection) as cluster, writer:
        for one in ranges:
            for batch in read_range(cluster, options, one, rules):
                writer.add(one.partition, batch)
        return writer.finish(ranges[0].topic)


def parse_file(document: Mapping[str, Any]) -> WrittenFile:
    """A file as the journal keeps it."""
    youngest = tuple((partition, when) for partition, when in document["youngest"])
    return WrittenFile(**{**document, "youngest": youngest})


def file_name(ranges: Sequence[OffsetRange], topic_id: str, digest: str) -> str:
    """The name of the files of a task in a plan; it tells a topic from its namesake."""
    one = ranges[0]
    topic = re.sub(r"[^A-Za-z0-9._-]", "_", one.topic)
    more = f"+{len(ranges) - 1}" if len(ranges) > 1 else ""
    return (
        f"{topic}-{topic_id[:8] or 'x'}-{one.partition}-{one.start:012d}-{one.end:012d}{more}"
        f"-{digest}.parquet"
    )


def split_by_date(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """(event date in UTC, rows) in order of dates; rows keep their order, no time gives ''."""
    times = batch.column("timestamp").cast(pa.int64())
    # Integer division in Arrow cuts toward zero; the only negative time is "none".
    days = pc.if_else(pc.less(times, 0), -1, pc.divide(times, _MS_PER_DAY * 1000))
    distinct = sorted(pc.unique(days).to_pylist())
    for day in distinct:
        rows = batch if len(distinct) == 1 else batch.filter(pc.equal(days, day))
        yield "" if day < 0 else pa.scalar(day, pa.int32()).cast(pa.date32()).as_py().isoformat(), rows  # noqa: E501  # fmt: skip


class _DateWriter:
    """The files of one task, by event date. Leaving it by an exception removes what is hidden."""

    def __init__(self, folder: Path, name: str, number: int) -> None:
        self._folder = folder
        self._name = name
        self._number = number
        self._files: dict[str, _OpenFile] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            for file in self._files.values():
                file.hidden.unlink(missing_ok=True)

    def add(self, partition: int, batch: pa.RecordBatch) -> None:
        """Append rows of one partition to the files of their dates."""
        ingest = pa.repeat(pa.scalar(self._number, pa.int64()), batch.num_rows)
        whole = pa.RecordBatch.from_arrays([*batch.columns, ingest], schema=FILE_SCHEMA)
        for date, rows in split_by_date(whole):
            file = self._files.get(date)
            if file is None:
                directory = self._folder / f"event_date={date or NO_DATE}"
                file = self._files[date] = _open(directory, self._name)
            file.add(partition, rows)

    def finish(self, topic: str) -> list[WrittenFile]:
        """Make all files appear, and stay over a power cut."""
        found = [_close(topic, date, file) for date, file in self._files.items()]
        for directory in {file.path.parent for file in self._files.values()}:
            sync_directory(directory)
        if found:
            sync_directory(self._folder)
        return found


def _open(directory: Path, name: str) -> _OpenFile:
    directory.mkdir(parents=True, exist_ok=True)
    hidden = directory / f"_{name}.{os.getpid()}.tmp"
    writer = pq.ParquetWriter(hidden, FILE_SCHEMA, compression="zstd", compression_level=3)
    return _OpenFile(directory / name, hidden, writer)


def _close(topic: str, date: str, file: _OpenFile) -> WrittenFile:
    file.flush()
    file.writer.close()
    with open(file.hidden, "rb") as handle:
        os.fsync(handle.fileno())
    file.hidden.replace(file.path)
    return WrittenFile(
        path=str(file.path),
        event_date=date,
        topic=topic,
        youngest=tuple(sorted(file.youngest.items())),
        rows=file.rows,
        size_bytes=file.path.stat().st_size,
        first_offset=file.first_offset,
        last_offset=file.last_offset,
        min_timestamp_ms=file.min_ms,
        max_timestamp_ms=file.max_ms,
    )
