"""Reads the Parquet files of an archive as the columns and rows that a query wants.

The rows are those that the broker would have given: the same columns and types, the same window of
time, the same offsets. Of a file only the columns asked for are read, and those that are needed to
choose rows. Row groups that cannot hold a wanted row are skipped by their statistics. Where the
statistics show that all rows of a row group are wanted, no row is looked at.

Times in the files are microseconds, and times beyond them were cut to the limits when they were
archived. With `onMalformedTimestamp=null` those are null here too.

A file holds the records of one event date, so records out of the order of their times alternate
between files. `read_in_order` merges the files of one partition for readers that need the log's
order: it reads all of them at once where their offsets overlap, a batch of each.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.errors import CorruptData, DataLoss
from pipeline.options.options import SourceOptions, TopicPartition
from pipeline.options.reader import is_store
from pipeline.plan.archived import Archive, FilePart, WrittenFile
from pipeline.plan.folders import file_at
from pipeline.plan.splits import OffsetRange
from pipeline.records.arrow_loops import MICROS_MS_MAX
from pipeline.records.batches import OFFSET, PARTITION, TIMESTAMP, DecodeRules
from protocol.records.layout import INT64_MAX, INT64_MIN, NO_TIMESTAMP

_US: Final = 1000
_TIMELESS: Final = (NO_TIMESTAMP * _US, MICROS_MS_MAX * _US, -MICROS_MS_MAX * _US)


def read_part(
    part: FilePart, rules: DecodeRules, *, fail_on_data_loss: bool
) -> Iterator[pa.RecordBatch]:
    """The records of `part`, in the file's order.

    Raises:
        DataLoss: the file is not there, and `fail_on_data_loss` is set.
    """
    folder, name = file_at(part.path)
    try:
        # Of a store the ranges of several columns come in one request.
        file = pq.ParquetFile(folder.open(name), pre_buffer=is_store(part.path))
    except FileNotFoundError as error:
        if fail_on_data_loss:
            raise DataLoss(
                f"the archive lists {part.path}, and it is not there: bring it back, mount the "
                "lake on every executor under the path that the archive job wrote to, or set "
                "failOnDataLoss=false to continue with what is there"
            ) from error
        return
    with file:
        for number in range(file.num_row_groups):
            bounds = _bounds(file.metadata.row_group(number))
            choice = _Choice(part.wanted, rules, bounds)
            if not choice.is_empty:
                yield from _read_group(file, number, choice, rules)


def read_in_order(
    parts: Sequence[FilePart], rules: DecodeRules, *, fail_on_data_loss: bool
) -> Iterator[pa.RecordBatch]:
    """The records of `parts`, all of one partition, in the order of their offsets.

    Raises as `read_part`.
    """
    merged = rules if OFFSET in rules.columns else replace(rules, columns=(*rules.columns, OFFSET))
    waiting = deque(sorted(parts, key=lambda part: part.first_offset))
    heads: list[_Head] = []
    while waiting or heads:
        bound = min((head.last_offset for head in heads), default=INT64_MAX)
        while waiting and waiting[0].first_offset <= bound:
            batches = read_part(waiting.popleft(), merged, fail_on_data_loss=fail_on_data_loss)
            first = next(batches, None)
            if first is not None:
                heads.append(_Head(first, batches))
                bound = min(bound, heads[-1].last_offset)
        taken = [rows for head in heads if (rows := head.take(bound)).num_rows]
        heads = [head for head in heads if head.rows.num_rows]
        if len(taken) > 1:
            taken = pa.Table.from_batches(taken).sort_by(OFFSET).to_batches(rules.rows_per_batch)
        for batch in taken:
            yield batch.select(list(rules.columns))


class _Head:
    """The next rows of a file whose rows are in the order of their offsets."""

    def __init__(self, rows: pa.RecordBatch, later: Iterator[pa.RecordBatch]) -> None:
        self.rows = rows
        self._later = later

    @property
    def last_offset(self) -> int:
        """The offset of the last of `rows`."""
        return int(self.rows.column(OFFSET)[-1].as_py())

    def take(self, bound: int) -> pa.RecordBatch:
        """The rows up to offset `bound`, at most `last_offset`; `rows` are those after them."""
        count = pc.sum(pc.less_equal(self.rows.column(OFFSET), bound)).as_py()
        taken, self.rows = self.rows.slice(0, count), self.rows.slice(count)
        if not self.rows.num_rows:
            self.rows = next(self._later, self.rows)
        return taken


def read_gap(
    directory: str, gap: OffsetRange, rules: DecodeRules, *, fail_on_data_loss: bool
) -> Iterator[pa.RecordBatch]:
    """The records of `gap`, which the broker has deleted, from the archive that `directory` names.

    They come in the order of their offsets.

    Raises:
        DataLoss: the archive does not have all of them, and `fail_on_data_loss` is set.
    """
    archive = Archive(directory)
    while (outside := archive.split([gap])[1]) and archive.follow(outside):
        pass
    if outside and fail_on_data_loss:
        raise DataLoss(describe_gaps(outside))
    inside = archive.split([gap])[0]
    parts = list(archive.parts(inside, rules.oldest_ms, rules.newest_ms))
    yield from read_in_order(parts, rules, fail_on_data_loss=fail_on_data_loss)


def describe_unfinished(ranges: Iterable[OffsetRange]) -> str:
    """The sentence for offsets that only an unfinished batch of the archive job has."""
    return (
        f"retention removed the offsets of {_shown(ranges)}, and the archive job has not finished "
        "its batch of them. Run `tidelog spark archive` to finish it, or set failOnDataLoss=false "
        "to continue with what is there"
    )


def _shown(ranges: Iterable[OffsetRange]) -> str:
    return "; ".join(f"{one.topic}-{one.partition} {one.start} to {one.end}" for one in ranges)


def describe_gaps(gaps: Iterable[OffsetRange]) -> str:
    """The sentence for offsets that neither side has."""
    return (
        f"neither the broker nor the archive has the offsets of {_shown(gaps)}: retention removed "
        "them before they were archived. Run the archive more often than retention deletes, or set "
        "failOnDataLoss=false to continue with what is there"
    )


def first_bounds(
    archive: Archive, times: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Offsets before which no record in the lake is at or after its time (ms), by its files.

    Partitions are left out where no record is.
    """
    found: dict[TopicPartition, int] = {}
    for file in archive.files:
        for tp in file.partitions:
            if tp in times and file.max_timestamp_ms >= times[tp]:
                lowest = max(file.first_offset, archive.first_offset(tp) or 0)
                found[tp] = min(found.get(tp, lowest), lowest)
    return found


def first_offsets(
    archive: Archive, options: SourceOptions, times: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The offset of the first record in the lake at or after each time (ms).

    Partitions are left out where there is none.

    Raises:
        DataLoss: a file is not there, and `failOnDataLoss` is on.
    """
    found: dict[TopicPartition, int] = {}
    for file in sorted(archive.files, key=lambda file: file.first_offset):
        for tp in file.partitions:
            if tp in times and file.max_timestamp_ms >= times[tp]:
                first = _first_in(file, tp, found.get(tp, INT64_MAX), times[tp], options)
                if first is not None:
                    found[tp] = first
    return found


def _first_in(
    file: WrittenFile, tp: TopicPartition, below: int, when_ms: int, options: SourceOptions
) -> int | None:
    """The smallest offset below `below` of a record of `tp` at or after `when_ms`, if any."""
    if file.first_offset >= below:
        return None
    part = FilePart(file.path, file.size_bytes, file.topic, (OffsetRange(*tp, 0, below),))
    rules = DecodeRules(columns=(OFFSET,), oldest_ms=when_ms)
    batches = read_part(part, rules, fail_on_data_loss=options.fail_on_data_loss)
    # Rows of one partition are in the order of their offsets.
    first = next(batches, None)
    return None if first is None else int(first.column(OFFSET)[0].as_py())


class _Choice:
    """The wanted rows of one row group: none, all, or those that pass `mask`."""

    def __init__(
        self,
        wanted: Iterable[OffsetRange],
        rules: DecodeRules,
        bounds: Mapping[str, tuple[int, int]],
    ) -> None:
        partitions = bounds.get(PARTITION, (INT64_MIN, INT64_MAX))
        first, last = bounds.get(OFFSET, (INT64_MIN, INT64_MAX))
        oldest, newest = bounds.get(TIMESTAMP, (INT64_MIN, INT64_MAX))
        self._ranges = [
            one
            for one in wanted
            if partitions[0] <= one.partition <= partitions[1]
            and one.start <= last
            and one.end > first
        ]
        # Every record fits into microseconds, so limits beyond them are no limits.
        lowest = min(rules.oldest_ms, MICROS_MS_MAX)
        self._from = lowest * _US if lowest > -MICROS_MS_MAX else INT64_MIN
        self._until = rules.newest_ms * _US if rules.newest_ms <= MICROS_MS_MAX else INT64_MAX
        self.is_empty = not self._ranges or oldest >= self._until or newest < self._from
        self._by_offset = not any(
            partitions == (one.partition, one.partition) and one.start <= first and last < one.end
            for one in self._ranges
        )
        self._by_time = self._from > oldest or (self._until <= newest and self._until != INT64_MAX)

    @property
    def columns(self) -> set[str]:
        """The columns that `mask` looks at."""
        by_offset = {OFFSET, PARTITION} if self._by_offset else set()
        return by_offset | ({TIMESTAMP} if self._by_time else set())

    def mask(self, batch: pa.RecordBatch) -> Any:
        """Which rows of `batch` are wanted; None for all."""
        mask = None
        if self._by_offset:
            offsets, partitions = batch.column(OFFSET), batch.column(PARTITION)
            for one in self._ranges:
                inside = pc.and_(
                    pc.equal(partitions, one.partition), _between(offsets, one.start, one.end)
                )
                mask = inside if mask is None else pc.or_(mask, inside)
        if self._by_time:
            inside = _between(batch.column(TIMESTAMP).cast(pa.int64()), self._from, self._until)
            mask = inside if mask is None else pc.and_(mask, inside)
        return mask


def _between(numbers: Any, start: int, end: int) -> Any:
    """Which of `numbers` are in `[start, end)`; the largest number has no end after it."""
    above = pc.greater_equal(numbers, start)
    return above if end == INT64_MAX else pc.and_(above, pc.less(numbers, end))


def _bounds(group: Any) -> dict[str, tuple[int, int]]:
    """The smallest and the largest number of each column of a row group that has statistics."""
    bounds = {}
    for index in range(group.num_columns):
        column = group.column(index)
        if column.path_in_schema in (OFFSET, PARTITION, TIMESTAMP):
            statistics = column.statistics
            if statistics is not None and statistics.has_min_max:
                bounds[column.path_in_schema] = (statistics.min_raw, statistics.max_raw)
    return bounds


def _read_group(
    file: Any, number: int, choice: _Choice, rules: DecodeRules
) -> Iterator[pa.RecordBatch]:
    group = file.metadata.row_group(number)
    bytes_per_row = max(group.total_byte_size // max(group.num_rows, 1), 1)
    rows = max(min(rules.rows_per_batch, rules.bytes_per_batch // bytes_per_row), 1)
    columns = sorted({*rules.columns, *choice.columns})
    for batch in file.iter_batches(batch_size=rows, row_groups=[number], columns=columns):
        mask = choice.mask(batch)
        chosen = batch if mask is None else batch.filter(mask)
        if chosen.num_rows:
            yield _as_asked(chosen, rules)


def _as_asked(batch: pa.RecordBatch, rules: DecodeRules) -> pa.RecordBatch:
    """The columns of the rules, with their types to the bit."""
    arrays = []
    for field in rules.schema:
        array = batch.column(field.name)
        if field.name == TIMESTAMP and rules.on_malformed == "null":
            micros = array.cast(pa.int64())
            timeless = pc.is_in(micros, value_set=pa.array(_TIMELESS, pa.int64()))
            array = pc.if_else(timeless, pa.scalar(None, field.type), array)
        if array.null_count and not field.nullable:
            raise CorruptData(
                f"the archive has rows without {field.name}, which every record has: they are not "
                "of an archive job; remove the files that other programs have put there"
            )
        arrays.append(array if array.type == field.type else array.cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=rules.schema)
