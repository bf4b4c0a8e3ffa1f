"""Writes ranges of a topic as Parquet files in a worker: one event date in each file.

A task writes one file for each date, whatever the number of its ranges. The name is a function of
the file's ranges and of the plan: writing it again gives the same name, and no two plans share one.
A file appears whole: it is written under a hidden name, synced and renamed, or sent as one object.

    event_date=2013-07-04/flights-5a0f12cd-0-000000000000-000000084194+3-beef0001.parquet
                          topic - its id - partition - start - end, and 3 ranges more - plan

An event date is a day of UTC in the years 1 to 9999, which is what Parquet readers, Delta and
Iceberg call a date. Records without a time (-1) and beyond those years have the date null; their
times are kept as they are.

The target is a path or the address of an object store (`plan.folders`). It must be the same place
for the driver and all executors. The driver writes a probe there, and every task
checks for it before it writes. The driver checks for every file when the tasks are done.
"""

import contextlib
import re
import secrets
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.errors import NotShared
from pipeline.net.cluster import Cluster
from pipeline.options.options import SourceOptions
from pipeline.options.reader import is_store
from pipeline.plan.archived import WrittenFile
from pipeline.plan.folders import Folder, file_at, folder_of, sync_directory
from pipeline.plan.segments import read_range
from pipeline.plan.splits import OffsetRange
from pipeline.records.batches import COLUMN_TYPES, DecodeRules
from protocol.records.layout import NO_TIMESTAMP

NO_DATE: Final = "__HIVE_DEFAULT_PARTITION__"
"""The directory of records without a date, as Hive and Spark name a null."""

INGEST_BATCH: Final = "ingestBatch"
EVENT_DATE: Final = pa.field("event_date", pa.date32())
FILE_SCHEMA: Final = pa.schema([*COLUMN_TYPES.items(), (INGEST_BATCH, pa.int64())])
DATED_SCHEMA: Final = FILE_SCHEMA.append(EVENT_DATE)
"""Of files that say their date themselves, for tables that take partitions from files alone."""
_PLAIN_COLUMNS: Final = (
    "topic", "partition", "offset", "timestampType", INGEST_BATCH, EVENT_DATE.name,
)  # fmt: skip
_ROW_GROUP_ROWS: Final = 262_144
_ROW_GROUP_BYTES: Final = 64 << 20
_PENDING_BYTES: Final = 256 << 20
"""How much may wait in all files of a task: beyond it the fullest one is written."""
_US_PER_DAY: Final = 86_400_000_000
_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()
_FIRST_DAY: Final = date.min.toordinal() - _EPOCH_ORDINAL
_LAST_DAY: Final = date.max.toordinal() - _EPOCH_ORDINAL
_NO_DAY: Final = _LAST_DAY + 1
_SCAN: Final[Mapping[str, Any]] = {
    "batch_size": 16_384, "batch_readahead": 2, "fragment_readahead": 1, "use_threads": False,
}  # fmt: skip
"""How a file is read for another one: a few batches in memory."""
_STALE_S: Final = 86_400
_LOOKS: Final = 6
_LOOK_AGAIN_S: Final = 0.5
_SHOWN: Final = 3
_SHARE: Final = (
    "Mount one shared file system under the same path on the driver and all executors, and give "
    "that path"
)


@dataclass(slots=True)
class _OpenFile:
    """A file under construction: rows wait until they fill a row group."""

    name: str
    hidden: Path
    writer: Any
    pending: list[pa.RecordBatch] = field(default_factory=list)
    pending_rows: int = 0
    pending_bytes: int = 0
    rows: int = 0
    first_offset: int = -1
    last_offset: int = -1
    min_ms: int = 0
    max_ms: int = 0
    youngest: dict[int, int] = field(default_factory=dict)

    def add(self, partition: int, batch: pa.RecordBatch) -> None:
        """Append rows of one partition; their times are within one day, or have no date."""
        offsets = batch.column("offset")
        times = pc.min_max(batch.column("timestamp").cast(pa.int64()))
        low, high = times["min"].as_py() // 1000, times["max"].as_py() // 1000
        first, last = offsets[0].as_py(), offsets[-1].as_py()
        if not self.rows:
            self.first_offset, self.min_ms, self.max_ms = first, low, high
        self.first_offset = min(self.first_offset, first)
        self.last_offset = max(self.last_offset, last)
        self.youngest[partition] = later(self.youngest.get(partition, NO_TIMESTAMP), high)
        self.min_ms, self.max_ms = min(self.min_ms, low), max(self.max_ms, high)
        self.rows += batch.num_rows
        self.pending.append(batch)
        self.pending_rows += batch.num_rows
        self.pending_bytes += batch.nbytes
        if self.pending_rows >= _ROW_GROUP_ROWS or self.pending_bytes >= _ROW_GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the waiting rows as one row group."""
        if self.pending:
            self.writer.write_table(pa.Table.from_batches(self.pending), row_group_size=_ROW_GROUP_ROWS)  # noqa: E501  # fmt: skip
            self.pending, self.pending_rows, self.pending_bytes = [], 0, 0


def write_ranges(
    options: SourceOptions,
    ranges: Sequence[OffsetRange],
    folder: str,
    number: int,
    digest: str,
    topic_ids: Mapping[str, str],
    *,
    dated: bool = False,
) -> list[WrittenFile]:
    """Write the records of `ranges`, all of one topic, below `folder`; the files, in no order.

    With `dated` each file has its date in a column too.

    Raises as `RangeReader.batches`, and OSError when the folder cannot be written.
    """
    rules = DecodeRules(
        columns=tuple(COLUMN_TYPES),
        read_committed=options.read_committed,
        verify_checksums=options.verify_checksums,
        on_malformed="clamp" if options.on_malformed == "null" else options.on_malformed,
    )
    name = file_name(ranges, topic_ids.get(ranges[0].topic, ""), digest)
    writer = _DateWriter(folder_of(folder), name, number, DATED_SCHEMA if dated else FILE_SCHEMA)
    with Cluster(options.connection) as cluster, writer:
        for one in ranges:
            for batch in read_range(cluster, options, one, rules):
                writer.add(one.partition, batch)
        return writer.finish(ranges[0].topic)


def rewrite_files(
    files: Sequence[WrittenFile], folder: str, name: str, *, dated: bool
) -> WrittenFile:
    """Write the rows of `files`, all of one day and topic, as one file below `folder`.

    The rows of a partition are in the order of their offsets, as in each of `files`. `dated` says
    whether these have their date in a column. Raises OSError.
    """
    # Only compaction needs it; archiving should not pay for the import.
    from pyarrow.dataset import dataset
    from pyarrow.dataset import field as field_of

    place, day = folder_of(folder), files[0].event_date
    schema = DATED_SCHEMA if dated else FILE_SCHEMA
    sources = [dataset(file.path, schema, format="parquet") for file in files]
    file = _open(place, day, name, schema)
    try:
        for partition in sorted({index for one in files for _, index in one.partitions}):
            is_its = field_of("partition") == partition
            firsts = [_first_offset(source, is_its) for source in sources]
            for first, source in sorted(zip(firsts, sources, strict=True), key=itemgetter(0)):
                for batch in source.to_batches(filter=is_its, **_SCAN) if first >= 0 else ():
                    if batch.num_rows:
                        file.add(partition, batch)
        return _close(place, files[0].topic, day, file)
    except BaseException:
        file.hidden.unlink(missing_ok=True)
        raise


def _first_offset(source: Any, condition: Any) -> int:
    """The offset of the first row that meets `condition`, -1 if none does."""
    for batch in source.to_batches(columns=["offset"], filter=condition, **_SCAN):
        if batch.num_rows:
            return int(batch.column(0)[0].as_py())
    return -1


def file_name(ranges: Sequence[OffsetRange], topic_id: str, digest: str) -> str:
    """The name of the files of a task in a plan; it distinguishes topics of the same name by id."""
    one = ranges[0]
    topic = re.sub(r"[^A-Za-z0-9._-]", "_", one.topic)
    more = f"+{len(ranges) - 1}" if len(ranges) > 1 else ""
    return (
        f"{topic}-{topic_id[:8] or 'x'}-{one.partition}-{one.start:012d}-{one.end:012d}{more}"
        f"-{digest}.parquet"
    )


@contextlib.contextmanager
def probing(folder: str, digest: str) -> Iterator[str]:
    """Make a file in `folder` for `find_unshared` to look for; its name. Removed at the end."""
    target = folder_of(folder)
    name = f"_probe-{digest}-{secrets.token_hex(4)}.tmp"
    target.create(name, b"")
    try:
        yield name
    finally:
        target.remove(name)


def find_unshared(folder: str, probe: str) -> str | None:
    """Why a worker must not write to `folder`: the driver's file `probe` is not there. Or None."""
    if _appears(folder_of(folder), probe):
        return None
    return (
        f"target {folder!r} is not the driver's directory for the executor on "
        f"{socket.gethostname()}: the file {probe}, which the driver has made in it, is not there. "
        f"{_SHARE}; nothing was archived"
    )


def check_files(files: Sequence[WrittenFile]) -> None:
    """Whether the driver finds each of `files` where a task has written it, as large as it was.

    Raises:
        NotShared: one is not there, or has another size.
    """
    wrong = []
    for file in files:
        folder, name = file_at(file.path)
        if not _appears(folder, name, file.size_bytes):
            size = folder.size(name)
            seen = "not there" if size is None else f"of {size} bytes"
            wrong.append(f"{file.path} ({file.size_bytes} bytes when it was written) is {seen}")
    if wrong:
        raise NotShared(
            f"{len(wrong)} of {len(files)} archived files are not as the executors wrote them, "
            f"seen from the driver: {'; '.join(wrong[:_SHOWN])}. {_SHARE}; nothing was committed"
        )


def sweep(files: Sequence[WrittenFile], digest: str) -> None:
    """Remove temporary files of failed tasks from the directories of `files`.

    Those of the plan `digest`, which is committed, and others that have not grown for a day. An
    object store has none: parts of objects that were never completed are the bucket's to expire.
    """
    for directory in {Path(file.path).parent for file in files if not is_store(file.path)}:
        for path in directory.glob("_*.parquet.*.tmp"):
            with contextlib.suppress(OSError):
                is_ours = f"-{digest}.parquet." in path.name
                if is_ours or time.time() - path.stat().st_mtime > _STALE_S:
                    path.unlink()


def _appears(folder: Folder, name: str, size_bytes: int | None = None) -> bool:
    """Whether the file is there, and so large; some file systems show it a moment later."""
    for look in range(_LOOKS):
        if look:
            time.sleep(_LOOK_AGAIN_S)
        size = folder.size(name)
        if size is not None and size_bytes in (None, size):
            return True
    return False


def later(left_ms: int, right_ms: int) -> int:
    """The larger of two timestamps, of which NO_TIMESTAMP is none."""
    if NO_TIMESTAMP in (left_ms, right_ms):
        return left_ms if right_ms == NO_TIMESTAMP else right_ms
    return max(left_ms, right_ms)


def split_by_date(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """(event date in UTC, rows) in order of dates; rows keep their order.

    '' is the date of rows without a time, and of times beyond the years 1 to 9999.
    """
    times = batch.column("timestamp").cast(pa.int64())
    # Integer division in Arrow cuts toward zero, and days before 1970 are rounded down.
    below = pc.subtract(pc.divide(pc.add(times, 1), _US_PER_DAY), 1)
    days = pc.if_else(pc.less(times, 0), below, pc.divide(times, _US_PER_DAY))
    has_date = pc.and_(pc.less_equal(_FIRST_DAY, days), pc.less_equal(days, _LAST_DAY))
    has_date = pc.and_(has_date, pc.not_equal(times, NO_TIMESTAMP * 1000))
    days = pc.if_else(has_date, days, _NO_DAY)
    distinct = sorted(pc.unique(days).to_pylist())
    for day in distinct:
        rows = batch if len(distinct) == 1 else batch.filter(pc.equal(days, day))
        yield "" if day == _NO_DAY else date.fromordinal(day + _EPOCH_ORDINAL).isoformat(), rows


class _DateWriter:
    """The files of one task, by event date. Leaving it by an exception removes the hidden files."""

    def __init__(self, folder: Folder, name: str, number: int, schema: pa.Schema) -> None:
        self._folder = folder
        self._schema = schema
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
        for day, rows in split_by_date(whole):
            file = self._files.get(day)
            if file is None:
                file = self._files[day] = _open(self._folder, day, self._name, self._schema)
            file.add(partition, _dated(rows, day) if self._schema is DATED_SCHEMA else rows)
        self._bound_pending()

    def _bound_pending(self) -> None:
        """Many days at once must not hold many row groups in memory."""
        while sum(file.pending_bytes for file in self._files.values()) > _PENDING_BYTES:
            max(self._files.values(), key=lambda file: file.pending_bytes).flush()

    def finish(self, topic: str) -> list[WrittenFile]:
        """Make all files appear, and stay over a power cut."""
        found = [_close(self._folder, topic, day, file) for day, file in self._files.items()]
        if found and not is_store(self._folder.address):
            sync_directory(Path(self._folder.address))
        return found


def _dated(rows: pa.RecordBatch, day: str) -> pa.RecordBatch:
    """`rows` with the column of their date."""
    value = date.fromisoformat(day) if day else None
    dates = pa.repeat(pa.scalar(value, EVENT_DATE.type), rows.num_rows)
    return pa.RecordBatch.from_arrays([*rows.columns, dates], schema=DATED_SCHEMA)


def _open(folder: Folder, day: str, name: str, schema: pa.Schema) -> _OpenFile:
    name = f"event_date={day or NO_DATE}/{name}"
    hidden = folder.scratch(name)
    writer = pq.ParquetWriter(
        hidden, schema, compression="zstd", compression_level=3,
        # Readers of statistics make dates of them, which times without a date do not fit.
        write_statistics=True if day else [one for one in _PLAIN_COLUMNS if one in schema.names],
    )  # fmt: skip
    return _OpenFile(name, hidden, writer)


def _close(folder: Folder, topic: str, day: str, file: _OpenFile) -> WrittenFile:
    file.flush()
    file.writer.close()
    size_bytes = folder.take(file.name, file.hidden)
    return WrittenFile(
        path=folder.path(file.name),
        event_date=day,
        topic=topic,
        youngest=tuple(sorted(file.youngest.items())),
        rows=file.rows,
        size_bytes=size_bytes,
        first_offset=file.first_offset,
        last_offset=file.last_offset,
        min_timestamp_ms=file.min_ms,
        max_timestamp_ms=file.max_ms,
    )
