"""How many records a segment has in each span of time: sparse counts, exact to the record.

A lookup by time finds the first record at or after a time *in the order of the log*, so differences
of lookups count late records in the wrong place. These counts go by the records' own times, however
disordered they are. A segment has a map from buckets to counts, all buckets of one width: the
smallest of the chain

    1 s, 5 s, 15 s, 1 min, 5 min, 15 min, 1 h, 3 h, 12 h, 1 d, 7 d, 14 d, 28 d, ... (doubling)

with at most `BUCKETS_MAX` buckets that are not empty. Each width divides the next, so counts of
several segments add up exactly. Buckets begin at multiples of the width since 1970. Only buckets
with records are kept: a record far ahead costs one entry.

An append costs one addition per batch while the batch is within the bucket of the batch before. A
batch within another bucket moves there. Of a *wide* batch, in two buckets or more, only the ends
are known without its records, so its place in the log is kept as a *stretch*. When buckets grow
wider, stretches that fit into one are counted. The others are read when counts are asked for
(`storage.log.histogram`), or in the background (`storage.log.segment_stats`). So are the parts of a
log of which nothing is known: after a crash, after compaction, in directories of Kafka and of
earlier releases. The ends of a stretch occupy their buckets with a count of zero, so that the width
is always that of all records.

The markers of transactions are counted, but in no bucket: they are no records of a producer.

The file `<base>.counts`; integers are big-endian:

| part      | size | fields                                                                        |
|-----------|------|-------------------------------------------------------------------------------|
| header    | 64   | `TLTC`, version u32 = 1, width ms i64, buckets u32, stretches u32,            |
|           |      | records without time i64, markers i64; covered: log size i64, next offset     |
|           |      | i64, largest timestamp i64                                                    |
| starts    | 8    | of the buckets: start ms i64; rising                                          |
| counts    | 4    | of the buckets: records u32, in the same order                                |
| stretches | 40   | position i64, end i64, oldest and newest time ms i64 (-1: not known),         |
|           |      | records i64 (-1: not known); rising                                           |
| checksum  | 4    | CRC-32C of all before                                                         |

It is written when the segment is closed, the log stops, or a stretch was read; never synced. A file
with a wrong checksum, or about a log of other size, end or maximum, counts as missing. It is read
when counts are asked for, so it costs no start.

Differs from Kafka: it has no such files, and ignores them.
"""

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from contextlib import suppress
from struct import Struct, error
from typing import ClassVar, Final, Literal, NamedTuple, TypeAlias

from config import TopicConfig
from protocol.records.checksums import crc32c
from protocol.records.layout import CONTROL_BIT, INT64_MAX
from storage.disk.file_names import TIME_COUNTS_SUFFIX
from storage.disk.files import Files
from storage.segment.auxiliary_index import (
    AppendedBatch,
    AuxiliaryIndex,
    Coverage,
    DamagedAuxiliaryIndex,
)
from storage.segment.feed import CountsEnd
from storage.segment.time_index import TimestampedOffset
from values.dataclasses import dataclass

WIDTHS_MS: Final = (
    1_000, 5_000, 15_000, 60_000, 300_000, 900_000,
    3_600_000, 10_800_000, 43_200_000, 86_400_000, 604_800_000,
)  # fmt: skip
"""The widths of buckets; beyond the last they double."""

BUCKETS_MAX: Final = 256
STRETCHES_MAX: Final = 256
"""Wide batches kept one by one; from the next one on, all of the segment is one stretch."""

NO_TIME: Final = -1
"""The key of records without timestamp among buckets."""

MAGIC: Final = b"TLTC"
VERSION: Final = 1
HEADER: Final = Struct(">4sIqIIqqqqq")
STRETCH: Final = Struct(">qqqqq")
_CHECKSUM: Final = Struct(">I")
_START_SIZE: Final = 8
_COUNT_SIZE: Final = 4
_UNKNOWN: Final = -1


def wider(width_ms: int) -> int:
    """The next width of the chain."""
    at = bisect_right(WIDTHS_MS, width_ms)
    return WIDTHS_MS[at] if at < len(WIDTHS_MS) else 2 * width_ms


class Stretch(NamedTuple):
    """A part of the log whose records are not counted yet.

    Attributes:
        position: its first byte.
        end: the position after it.
        oldest_ms: the smallest time in it, or -1.
        newest_ms: the largest, or -1.
        records: how many records, or -1.
    """

    position: int
    end: int
    oldest_ms: int = _UNKNOWN
    newest_ms: int = _UNKNOWN
    records: int = _UNKNOWN


class Buckets:
    """Counts by time, at the smallest width that keeps few buckets.

    Attributes:
        width_ms: of all buckets.
        starts: where the buckets begin (ms), rising.
        counts: how many records are in each.
        without_time: records without timestamp.
        markers: the markers of transactions.
    """

    __slots__ = ("counts", "markers", "starts", "width_ms", "without_time")

    def __init__(self, width_ms: int = WIDTHS_MS[0]) -> None:
        """No records."""
        self.width_ms = width_ms
        self.starts = array("q")
        self.counts = array("q")
        self.without_time = 0
        self.markers = 0

    @property
    def records(self) -> int:
        """All records, without the markers."""
        return sum(self.counts) + self.without_time

    def add(self, time_ms: int, count: int) -> None:
        """Count records of the bucket of `time_ms`, 0 or later."""
        start = time_ms - time_ms % self.width_ms
        at = bisect_left(self.starts, start)
        if at < len(self.starts) and self.starts[at] == start:
            self.counts[at] += count
            return
        self.starts.insert(at, start)
        self.counts.insert(at, count)
        while len(self.starts) > BUCKETS_MAX:
            self.widen(wider(self.width_ms))

    def add_all(self, counts: Mapping[int, int]) -> None:
        """Count records by their buckets, which are not wider than these; NO_TIME for no time."""
        for start, count in counts.items():
            if start == NO_TIME:
                self.without_time += count
            else:
                self.add(start, count)

    def widen(self, width_ms: int) -> None:
        """Make the buckets wider."""
        if width_ms <= self.width_ms:
            return
        self.width_ms = width_ms
        starts, counts = array("q"), array("q")
        for start, count in zip(self.starts, self.counts, strict=True):
            start -= start % width_ms
            if starts and starts[-1] == start:
                counts[-1] += count
            else:
                starts.append(start)
                counts.append(count)
        self.starts, self.counts = starts, counts

    def add_buckets(self, other: "Buckets") -> None:
        """Count what `other` has counted."""
        self.widen(other.width_ms)
        for start, count in zip(other.starts, other.counts, strict=True):
            self.add(start, count)
        self.without_time += other.without_time
        self.markers += other.markers

    def subtract(self, part: "Buckets") -> None:
        """Take out records that are among these."""
        self.widen(part.width_ms)
        for start, count in zip(part.starts, part.counts, strict=True):
            self.add(start, -count)
        self.without_time -= part.without_time
        self.markers -= part.markers


def count_before(
    buckets: Buckets, stretches: Iterable[Stretch], records: int, when_ms: int
) -> tuple[int, int] | None:
    """The first time from `when_ms` (ms) on before which it is known how many records there are,
    and how many; those without a time count as before all.

    None where parts of the segment are not counted, or where its records and their times are not
    exactly `records`, one for each of its offsets.
    """
    spans = [
        (start, start + buckets.width_ms, count)
        for start, count in zip(buckets.starts, buckets.counts, strict=True)
        if count
    ]
    for one in stretches:
        if one.oldest_ms < 0 or one.records < 0:
            return None
        spans.append((one.oldest_ms, one.newest_ms + 1, one.records))
    if buckets.markers or buckets.without_time + sum(span[2] for span in spans) != records:
        return None
    spans.sort()
    before = buckets.without_time
    for start, end, count in spans:
        if start >= when_ms:
            break
        when_ms = max(when_ms, end)
        before += count
    return when_ms, before


StoredCounts: TypeAlias = tuple[Buckets, list[Stretch], Coverage]
"""The content of a file."""


@dataclass(frozen=True, slots=True)
class TimeCountsRule:
    """Every topic has these counts; implements `AuxiliaryRule`."""

    SUFFIX: ClassVar[str] = TIME_COUNTS_SUFFIX
    GUIDES_LOOKUPS: ClassVar[bool] = False

    @classmethod
    def from_config(cls, _config: TopicConfig) -> "TimeCountsRule":
        """See `AuxiliaryRule.from_config`."""
        return RULE

    def create(self, files: Files, path: str, base_offset: int, carried_ms: int) -> "TimeCounts":
        """See `AuxiliaryRule.create`."""
        return TimeCounts(files, path)

    @classmethod
    def load(cls, files: Files, path: str, base_offset: int, coverage: Coverage) -> "TimeCounts":
        """See `AuxiliaryRule.load`. The file is read and checked when its counts are needed."""
        index = TimeCounts(files, path)
        index.continue_after(coverage)
        return index


RULE: Final = TimeCountsRule()


class TimeCounts(CountsEnd, AuxiliaryIndex):
    """The counts of one segment. Same thread as its log.

    Attributes:
        stretches: what is not counted yet, by position; `load` brings it up to date.
        is_claimed: whether a reader is counting stretches; a second one has to leave them alone.
    """

    __slots__ = (
        "_buckets",
        "_earlier",
        "_files",
        "_has_tail",
        "_lacks",
        "_narrow_ms",
        "_stored",
        "is_claimed",
        "path",
        "rule",
        "stretches",
    )

    SUFFIX = TIME_COUNTS_SUFFIX
    NAME = "counts"

    def __init__(self, files: Files, path: str) -> None:
        """The counts of a segment without records."""
        super().__init__()
        self.rule = RULE
        self.path = path
        # Made when something is counted: most partitions of a broker are idle.
        self._buckets: Buckets | None = None
        self.stretches: list[Stretch] = []
        self.is_claimed = False
        self._files = files
        # Whether the last stretch takes in all that is appended.
        self._has_tail = False
        # The width at which the stretches were last found to be wide.
        self._narrow_ms = WIDTHS_MS[0]
        # Whether stretches were left when the counts were released.
        self._lacks = False
        # What the file covers whose counts are not loaded yet.
        self._earlier: Coverage | None = None
        # What the file covers that holds all of the above.
        self._stored: Coverage | None = None

    @property
    def buckets(self) -> Buckets:
        """What is counted; `load` brings it up to date."""
        if self._buckets is None:
            self._buckets = Buckets()
        return self._buckets

    # --- appends --------------------------------------------------------------------------------

    def note_batch(self, batch: AppendedBatch, position: int, min_timestamp: int) -> None:
        """Count a batch, or remember where it is. See `AuxiliaryIndex.note_batch`."""
        if (
            self._start_ms <= min_timestamp
            and batch.max_timestamp < self._end_ms
            and not batch.attributes & CONTROL_BIT
            and batch.records_count >= 0
        ):
            self._fresh += batch.records_count
        else:
            self._note_elsewhere(batch, position, min_timestamp)

    def _note_elsewhere(self, batch: AppendedBatch, position: int, oldest_ms: int) -> None:
        count, newest_ms = batch.records_count, batch.max_timestamp
        end = position + batch.size
        if self._has_tail:
            self.stretches[-1] = self.stretches[-1]._replace(end=end)
        elif not count:
            return
        elif count < 0:  # a message of an old format, not counted by its head
            self._add_stretch(Stretch(position, end))
        elif batch.attributes & CONTROL_BIT:
            self.buckets.markers += count
        elif newest_ms < 0:
            self.buckets.without_time += count
        elif oldest_ms < 0:
            self._add_stretch(Stretch(position, end))
        elif self._is_first(oldest_ms, newest_ms):
            self._fresh = count
        else:
            self._flush()
            start = oldest_ms - oldest_ms % self.buckets.width_ms
            if newest_ms - start < self.buckets.width_ms:
                self.buckets.add(oldest_ms, count)
                width_ms = self.buckets.width_ms
                self._start_ms = oldest_ms - oldest_ms % width_ms
                self._end_ms = min(self._start_ms + width_ms, INT64_MAX)
            else:
                self._add_stretch(Stretch(position, end, oldest_ms, newest_ms, count))
            if self._narrow_ms != self.buckets.width_ms:
                self._count_narrow()

    def _is_first(self, oldest_ms: int, newest_ms: int) -> bool:
        """Whether nothing is counted yet, and these times share a bucket, the current one now.

        `_fresh` counts it until there is another one: many partitions never have two.
        """
        if self._buckets is not None or self._fresh:
            return False
        width_ms = WIDTHS_MS[0]
        start = oldest_ms - oldest_ms % width_ms
        if newest_ms - start >= width_ms:
            return False
        self._start_ms, self._end_ms = start, min(start + width_ms, INT64_MAX)
        return True

    def _add_stretch(self, stretch: Stretch) -> None:
        if stretch.oldest_ms >= 0:
            self.buckets.add(stretch.oldest_ms, 0)
            self.buckets.add(stretch.newest_ms, 0)
        elif self.stretches:
            last = self.stretches[-1]
            if last.oldest_ms < 0 and last.end == stretch.position:
                self.stretches[-1] = last._replace(end=stretch.end)
                return
        self.stretches.append(stretch)
        if len(self.stretches) > STRETCHES_MAX:
            self.stretches[-1] = Stretch(stretch.position, stretch.end)
            self._has_tail = True
            self._start_ms, self._end_ms = 1, 0

    def _count_narrow(self) -> None:
        """Count the stretches that are within one bucket, since the buckets are wider now."""
        self._narrow_ms = self.buckets.width_ms
        left = []
        for stretch in self.stretches:
            start = stretch.oldest_ms - stretch.oldest_ms % self.buckets.width_ms
            if stretch.oldest_ms >= 0 and stretch.newest_ms - start < self.buckets.width_ms:
                self.buckets.add(stretch.oldest_ms, stretch.records)
            else:
                left.append(stretch)
        self.stretches = left

    def _flush(self) -> None:
        """Move the additions of the current bucket to the others."""
        if self._fresh:
            self.buckets.add(self._start_ms, self._fresh)
            self._fresh = 0

    # --- the part before ------------------------------------------------------------------------

    def continue_after(self, coverage: Coverage) -> None:
        """The segment has bytes already: their counts are in the file, if it covers just these."""
        self._earlier = coverage if coverage.size_bytes else None

    def fill(self, points: Iterable[TimestampedOffset], coverage: Coverage) -> None:
        """See `AuxiliaryIndex.fill`. Points do not count: the whole log is a stretch."""
        if coverage.size_bytes:
            self.stretches.append(Stretch(0, coverage.size_bytes))

    def load(self, stored: StoredCounts | None = None) -> None:
        """Take in the counts of the file, or a stretch in their place when there are none.

        `stored` is what `read_counts` has found in it; it is moved, not copied.
        """
        self._flush()
        if self._earlier is None:
            return
        covered, self._earlier = self._earlier, None
        is_all = not self.buckets.starts and not self.stretches and not self.buckets.records
        try:
            buckets, stretches, coverage = stored or parse_counts(self._files.read_all(self.path))
            if coverage != covered:
                raise DamagedAuxiliaryIndex(f"it covers {coverage}, the log is {covered}")
        except (DamagedAuxiliaryIndex, OSError):
            self.stretches.insert(0, Stretch(0, covered.size_bytes))
            return
        buckets.add_buckets(self.buckets)
        self._buckets = buckets
        self.stretches = stretches + self.stretches
        self._start_ms, self._end_ms = 1, 0
        self._count_narrow()
        if is_all:
            self._stored = covered

    # --- stretches ------------------------------------------------------------------------------

    def begin_stretch(self) -> Stretch:
        """The first stretch, which its reader counts from now on: wider buckets leave it alone."""
        first = self.stretches[0]
        self.stretches[0] = Stretch(first.position, first.end)
        return self.stretches[0]

    def end_stretch(self, size: int, counts: Mapping[int, int], markers: int) -> None:
        """The first `size` bytes of the first stretch have these records."""
        self._stored = None
        self.buckets.add_all(counts)
        self.buckets.markers += markers
        first = self.stretches[0]
        first = first._replace(position=first.position + size)
        assert first.position <= first.end, "counted beyond a stretch"
        if first.position < first.end:
            self.stretches[0] = first
        else:
            del self.stretches[0]
            self._has_tail = self._has_tail and bool(self.stretches)
        self._flush()
        self._start_ms, self._end_ms = 1, 0
        self._count_narrow()

    def replace(self, buckets: Buckets) -> None:
        """All of the segment's log was counted by another reader."""
        self._buckets, self.stretches = buckets, []
        self._earlier = self._stored = None
        self._fresh, self._has_tail = 0, False
        self._start_ms, self._end_ms = 1, 0

    @property
    def needs_file(self) -> bool:
        """Whether `load` reads the file."""
        return self._earlier is not None

    @property
    def needs_reading(self) -> bool:
        """Whether there are stretches, as far as that is known without the file."""
        return bool(self.stretches) or (self._lacks and self._earlier is not None)

    @property
    def lacks_bytes(self) -> int:
        """Bytes of log that are not counted yet, as far as the counts are loaded."""
        return sum(stretch.end - stretch.position for stretch in self.stretches)

    # --- the file -------------------------------------------------------------------------------

    def seal(self, coverage: Coverage, max_timestamp_offset: int) -> None:
        """See `AuxiliaryIndex.seal`."""
        self.load()
        if self._stored != coverage:
            self._stored = None
            with suppress(OSError):
                self._write(encode_counts(self.buckets, self.stretches, coverage))
                self._stored = coverage

    def _write(self, content: bytes) -> None:
        if self._files.exists(self.path):
            self._files.unlink(self.path)
        file = self._files.create(self.path)
        try:
            file.append(content)
        finally:
            file.close()

    def release(self) -> None:
        """Keep the counts in the file only."""
        if self._stored is not None and not self.is_claimed:
            self._lacks = bool(self.stretches)
            self._earlier, self._stored = self._stored, None
            self._buckets, self.stretches = None, []

    def move_to(self, path: str) -> None:
        """See `AuxiliaryIndex.move_to`."""
        if self._files.exists(self.path):
            self._files.rename(self.path, path)
        self.path = path


def encode_counts(buckets: Buckets, stretches: Iterable[Stretch], coverage: Coverage) -> bytes:
    """The bytes of a file."""
    listed = list(stretches)
    parts = [
        HEADER.pack(
            MAGIC, VERSION, buckets.width_ms, len(buckets.starts), len(listed),
            buckets.without_time, buckets.markers, *coverage,
        ),
        _big_endian(buckets.starts),
        _big_endian(array("I", buckets.counts)),
        *(STRETCH.pack(*stretch) for stretch in listed),
    ]  # fmt: skip
    content = b"".join(parts)
    return content + _CHECKSUM.pack(crc32c(content))


def read_counts(files: Files, path: str) -> StoredCounts | None:
    """What a file holds, None when it cannot be used; for any thread."""
    with suppress(DamagedAuxiliaryIndex, OSError):
        return parse_counts(files.read_all(path))
    return None


def parse_counts(content: bytes) -> StoredCounts:
    """Parse the content of a file.

    Raises:
        DamagedAuxiliaryIndex: it is cut off, of another version, or its checksum is wrong.
    """
    body = content[: -_CHECKSUM.size]
    if len(body) < HEADER.size or content[len(body) :] != _CHECKSUM.pack(crc32c(body)):
        raise DamagedAuxiliaryIndex("the checksum is wrong")
    magic, version, width_ms, count, stretches, without_time, markers, *coverage = (
        HEADER.unpack_from(body)
    )
    if magic != MAGIC or version != VERSION:
        raise DamagedAuxiliaryIndex(f"version {version} is not known")
    buckets = Buckets(width_ms)
    middle = HEADER.size + count * _START_SIZE
    end = middle + count * _COUNT_SIZE
    try:
        buckets.starts = _numbers("q", body[HEADER.size : middle])
        buckets.counts = array("q", _numbers("I", body[middle:end]))
        left = [Stretch(*fields) for fields in STRETCH.iter_unpack(body[end:])]
    except (error, ValueError):
        raise DamagedAuxiliaryIndex("entries are cut off") from None
    if len(left) != stretches or len(buckets.counts) != count:
        raise DamagedAuxiliaryIndex(f"{len(left)} stretches, {stretches} were written")
    buckets.without_time, buckets.markers = without_time, markers
    return buckets, left, Coverage(*coverage)


def _big_endian(numbers: "array[int]") -> bytes:
    swapped = numbers[:]
    if sys.byteorder == "little":
        swapped.byteswap()
    return swapped.tobytes()


def _numbers(kind: Literal["q", "I"], content: bytes) -> "array[int]":
    """The big-endian numbers in `content`. Raises ValueError when the last one is cut off."""
    numbers = array(kind)
    numbers.frombytes(content)
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers
