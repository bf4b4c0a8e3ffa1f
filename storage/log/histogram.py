"""How many records of several logs are in each span of time, exactly: the counts of their segments.

Owns the sum over segments and logs, for bars over a window of time, as steps. Nothing is read but
the segments' counts (`storage.segment.time_counts`) and, within a budget of bytes, what is not
counted yet; that is kept, so the next question begins where this one stopped. What the budget did
not reach is *missing*: none of it is in the sums.

The bars are as wide as wanted, or as the coarsest counts that touch the window; so a bar is always
the sum of whole buckets. The counts of a log are those from its start to its end at one moment: a
segment of which the start cuts off a part is counted without it, and a log whose segments change
meanwhile is counted again.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Final
from weakref import WeakKeyDictionary

from protocol.errors import RecordsError
from protocol.records.layout import INT64_MAX
from storage.disk.steps import Slice, Steps, off_loop
from storage.errors import CorruptLog, storage_failure
from storage.log.log import Log
from storage.log.segment_stats import LogReading, count_stretches, counts_in_memory
from storage.segment.scan import ensure_indexes
from storage.segment.segment import Segment
from storage.segment.time_counts import (
    WIDTHS_MS,
    Buckets,
    StoredCounts,
    TimeCounts,
    read_counts,
    wider,
)
from values.dataclasses import dataclass

NOT_COUNTED: Final = "not counted yet"
CUT: Final = "the log starts within it, and that part is not counted yet"
DAMAGED: Final = "damaged"
REMOTE: Final = "in the object store only, and not counted before its local copy was removed"

_SEGMENTS_AT_ONCE: Final = 20
"""Segments summed in one step: about a millisecond."""

_FILES_AT_ONCE: Final = 100
"""Files of counts read by one call in a thread: some milliseconds, 400 kB of memory."""

_TRIES: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The window of a histogram.

    Attributes:
        from_ms: where it begins (ms, inclusive).
        to_ms: where it ends (exclusive).
        bars: at most so many bars are wanted.
        least_ms: and none narrower than this.
    """

    from_ms: int
    to_ms: int
    bars: int
    least_ms: int = 0

    def width_ms(self) -> int:
        """The smallest width with few enough bars."""
        width_ms = WIDTHS_MS[0]
        while width_ms < self.least_ms or len(self.bars_of(width_ms)) > self.bars:
            width_ms = wider(width_ms)
        return width_ms

    def bars_of(self, width_ms: int) -> range:
        """Where bars of `width_ms` begin that cover the window."""
        end = self.to_ms + -self.to_ms % width_ms
        return range(self.from_ms - self.from_ms % width_ms, end, width_ms)


@dataclass(slots=True, kw_only=True)
class PartitionCounts:
    """The records of one log, from its start to its end at one moment.

    Attributes:
        partition: which one.
        from_offset: the start; `to_offset` is the end.
        bars: by where they begin (ms).
        before: records older than the first bar; `after`: newer than the last.
        oldest_before_ms: since when there are records before the bars; None: there are none.
        without_time: records without timestamp.
        markers: the markers of transactions, which are no records here.
    """

    partition: int
    from_offset: int
    to_offset: int = 0
    bars: dict[int, int] = field(default_factory=dict)
    before: int = 0
    after: int = 0
    oldest_before_ms: int | None = None
    without_time: int = 0
    markers: int = 0

    @property
    def records(self) -> int:
        """All records that were counted."""
        return sum(self.bars.values()) + self.before + self.after + self.without_time

    def add(self, buckets: Buckets, bars: range) -> None:
        """Count `buckets`, which are not wider than the bars that they touch."""
        width_ms, found = bars.step, self.bars
        starts, counts = buckets.starts, buckets.counts
        first, end = bisect_left(starts, bars.start), bisect_left(starts, bars.stop)
        self.before += sum(counts[:first])
        oldest = next((at for at in range(first) if counts[at] and starts[at] >= 0), None)
        if oldest is not None:
            known = self.oldest_before_ms
            self.oldest_before_ms = starts[oldest] if known is None else min(known, starts[oldest])
        self.after += sum(counts[end:])
        for start, count in zip(starts[first:end], counts[first:end], strict=True):
            if count:
                bar = start - start % width_ms
                found[bar] = found.get(bar, 0) + count
        self.without_time += buckets.without_time
        self.markers += buckets.markers


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingPart:
    """A segment of which something is not counted.

    Attributes:
        partition: of which log.
        base_offset: which segment; it ends before `next_offset`.
        size_bytes: so many bytes of it are not counted.
        min_timestamp: its smallest time (ms), as `Segment` knows it.
        max_timestamp: its largest time (ms).
        why: in words.
    """

    partition: int
    base_offset: int
    next_offset: int
    size_bytes: int
    min_timestamp: int
    max_timestamp: int
    why: str


@dataclass(slots=True, kw_only=True)
class Histogram:
    """The answer.

    Attributes:
        bars: where the bars begin (ms); their width is the step.
        partitions: the counts of each log.
        missing: what is not counted.
        bytes_read: bytes of log that were read for it.
    """

    bars: range
    partitions: list[PartitionCounts]
    missing: list[MissingPart]
    bytes_read: int

    @property
    def oldest_before_ms(self) -> int | None:
        """Since when there are records before the bars; None: there are none."""
        known = (one.oldest_before_ms for one in self.partitions)
        return min((time_ms for time_ms in known if time_ms is not None), default=None)


@dataclass(slots=True)
class _CutOff:
    """The part of a segment that lies below the log's start, as far as it is counted."""

    segment: Segment
    log_start_offset: int
    reading: LogReading
    buckets: Buckets


class _TooFine(Exception):
    """The bars have to be wider: as wide as counts that touch the window."""

    def __init__(self, width_ms: int) -> None:
        self.width_ms = width_ms


def span_of(logs: Sequence[Log]) -> tuple[int, int] | None:
    """The smallest known time in `logs` and one above the largest (ms); None without times."""
    segments = [segment for log in logs for segment in log.segments]
    newest = max((segment.newest_record_ms for segment in segments), default=-1)
    times = (
        time_ms
        for segment in segments
        for time_ms in (segment.min_timestamp, segment.max_timestamp)
        if 0 <= time_ms < INT64_MAX
    )
    return None if newest < 0 else (min(min(times, default=newest), newest), newest + 1)


class TimeHistogram:
    """Counts records of logs by time; keeps what it counted of segments that a log's start cuts."""

    def __init__(self) -> None:
        """Nothing is counted yet."""
        self._cut_off: WeakKeyDictionary[Log, _CutOff] = WeakKeyDictionary()

    def count(self, logs: Sequence[Log], window: Window, *, bytes_max: int) -> Steps[Histogram]:
        """Count the records of `logs`, reading about `bytes_max` bytes of log at most.

        Raises StorageFailed.
        """
        width_ms = window.width_ms()
        bytes_read = 0
        while True:
            counting = _Counting(self._cut_off, window.bars_of(width_ms), bytes_max - bytes_read)
            try:
                for log in logs:
                    yield from counting.count(log)
                return Histogram(
                    bars=counting.bars,
                    partitions=counting.partitions,
                    missing=counting.missing,
                    bytes_read=bytes_read + counting.bytes_read,
                )
            except _TooFine as error:
                width_ms = error.width_ms
                bytes_read += counting.bytes_read


class _Counting:
    """One pass over logs, for bars of one width."""

    def __init__(
        self, cut_off: WeakKeyDictionary[Log, _CutOff], bars: range, bytes_max: int
    ) -> None:
        self.bars = bars
        self.partitions: list[PartitionCounts] = []
        self.missing: list[MissingPart] = []
        self.bytes_read = 0
        self._cut_off = cut_off
        self._bytes_max = bytes_max
        self._spent = Slice(_SEGMENTS_AT_ONCE)

    @property
    def _bytes_left(self) -> int:
        return max(0, self._bytes_max - self.bytes_read)

    def count(self, log: Log) -> Steps[None]:
        """Count one log. Raises StorageFailed, _TooFine."""
        for _ in range(_TRIES):
            found, missing = PartitionCounts(partition=log.partition, from_offset=0), []
            segments = list(log.segments)
            found.from_offset = log.log_start_offset
            try:
                for start in range(0, len(segments), _FILES_AT_ONCE):
                    part = segments[start : start + _FILES_AT_ONCE]
                    files = yield from _stored_counts(part)
                    for segment, stored in zip(part, files, strict=True):
                        if segment.next_offset > found.from_offset or segment is segments[-1]:
                            missing += yield from self._add(log, segment, found, stored)
                        if self._spent.add(1):
                            yield None
            except OSError as error:
                if not _are_there(log, segments):
                    continue
                raise storage_failure("count", log.path, error) from error
            if found.from_offset == log.log_start_offset and _are_there(log, segments):
                break
        self.partitions.append(found)
        self.missing += missing

    def _add(
        self, log: Log, segment: Segment, found: PartitionCounts, stored: StoredCounts | None
    ) -> Steps[list[MissingPart]]:
        counts = counts_in_memory(segment)
        is_open = counts is not None
        if counts is None:
            counts = TimeCounts(segment.files, segment.path(TimeCounts.SUFFIX))
            counts.continue_after(segment.coverage())
            segment.auxiliary += (counts,)
        cut: Buckets | None = None
        is_cut = segment.base_offset < found.from_offset
        why = REMOTE if segment.is_remote else NOT_COUNTED
        try:
            counts.load(stored)
            if counts.stretches and self._bytes_left:
                self.bytes_read += yield from count_stretches(
                    log, segment, counts, self._bytes_left
                )
            if is_cut:
                cut = yield from self._count_cut_off(log, segment, found.from_offset)
                if cut is None and not segment.is_remote:
                    why = CUT
        except (CorruptLog, RecordsError):
            why = DAMAGED
        finally:
            if not is_open:
                segment.auxiliary = tuple(one for one in segment.auxiliary if one is not counts)
        counts.load()  # Another reader may have released them meanwhile.
        found.to_offset = segment.next_offset
        lacks_bytes = counts.lacks_bytes
        buckets = counts.buckets
        if is_cut and segment.size:
            if cut is None or lacks_bytes:
                buckets, lacks_bytes = Buckets(), segment.size
            else:
                buckets = Buckets()
                buckets.add_buckets(counts.buckets)
                buckets.subtract(cut)
        self._check_width(buckets)
        found.add(buckets, self.bars)
        if segment is not log.segments.active:
            counts.release()
        return [_missing(log, segment, lacks_bytes, why)] if lacks_bytes else []

    def _check_width(self, buckets: Buckets) -> None:
        """Raise _TooFine if buckets that touch the window are wider than the bars."""
        if buckets.width_ms > self.bars.step:
            first = bisect_right(buckets.starts, self.bars.start - buckets.width_ms)
            end = bisect_left(buckets.starts, self.bars.stop)
            if any(buckets.counts[first:end]):
                raise _TooFine(buckets.width_ms)

    def _count_cut_off(self, log: Log, segment: Segment, start: int) -> Steps[Buckets | None]:
        """The records of `segment` below the log's start; None while they are not all counted.

        Those of a remote segment are known only if they were counted while its log was here.
        """
        known = self._cut_off.get(log)
        if known is None or known.segment is not segment or known.log_start_offset != start:
            if segment.is_remote:
                return None
            ensure_indexes(segment, index_interval=log.config.index_interval_bytes)
            entry = segment.find_entry(start)
            end = segment.size if entry is None else entry.position + entry.size
            known = _CutOff(segment, start, LogReading(log, segment, 0, end, start), Buckets())
            self._cut_off[log] = known
        while not known.reading.is_done:
            if not self._bytes_left or known.reading.is_busy:
                return None
            before = known.reading.position
            part = yield from known.reading.next(known.buckets.width_ms)
            if part is None:
                return None
            self.bytes_read += known.reading.position - before
            known.buckets.add_all(part.times)
            known.buckets.markers += part.markers
        return known.buckets


def _stored_counts(segments: Sequence[Segment]) -> Steps[list[StoredCounts | None]]:
    """Counts that are in files only, read in a thread; None for those in memory."""
    paths = [
        (segment.files, segment.path(TimeCounts.SUFFIX))
        if (counts := counts_in_memory(segment)) is None or counts.needs_file
        else None
        for segment in segments
    ]
    if not any(paths):
        return [None] * len(paths)
    return (
        yield from off_loop(
            lambda: [None if path is None else read_counts(*path) for path in paths]
        )
    )


def _are_there(log: Log, segments: list[Segment]) -> bool:
    """Whether these are still the log's segments, but for newer ones."""
    if log.is_closed:
        return False
    here: Iterator[Segment] = iter(log.segments)
    return all(next(here, None) is segment for segment in segments)


def _missing(log: Log, segment: Segment, size_bytes: int, why: str) -> MissingPart:
    return MissingPart(
        partition=log.partition,
        base_offset=segment.base_offset,
        next_offset=segment.next_offset,
        size_bytes=size_bytes,
        min_timestamp=segment.min_timestamp,
        max_timestamp=segment.max_timestamp,
        why=why,
    )
