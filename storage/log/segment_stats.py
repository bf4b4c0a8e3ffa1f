"""Statistics of closed segments that were not collected on append: records, smallest timestamp,
records per span of time.

An append knows the smallest timestamp of its records, because it has read each of them. A segment
made in another way is known by its batch heads only: by recovery after a crash, by Kafka, by an
earlier release, by compaction. Such a segment has UNKNOWN_MINIMUM, which prunes nothing, until this
module has read it: one segment at a time, in the background, in slices. Heads do not contain the
minimum: a batch's base timestamp is that of its first record, which need not be its oldest. The
same reading counts the records by time. Of a segment with a minimum only the stretches are read
that an append could not count (`storage.segment.time_counts`).

Owns reading a segment for its statistics; `storage.segment.manifest` stores them and defines their
meaning.
"""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from protocol.errors import RecordsError
from protocol.records import layout
from protocol.records.batch import RecordBatch
from protocol.records.record import record_bytes
from protocol.records.record_loops import count_times
from protocol.records.scan import Entry, iter_records, scan_entries
from storage.disk.files import Bytes
from storage.disk.steps import SLICE_BYTES, Steps, off_loop
from storage.errors import CorruptLog, storage_failure
from storage.log.log import Log
from storage.segment.facts import UNKNOWN, UNKNOWN_MINIMUM
from storage.segment.scan import read_exactly
from storage.segment.segment import Segment
from storage.segment.time_counts import NO_TIME, WIDTHS_MS, Buckets, TimeCounts


class Statistics(NamedTuple):
    """Statistics of a stretch of log.

    Attributes:
        records: how many records, those inside wrappers and markers included.
        min_timestamp: the smallest timestamp that a reader sees (ms), NO_TIMESTAMP if a record has
            none; 2^63-1 without records.
        data_max_timestamp: no record is newer, markers left out (ms).
        size: bytes of whole entries.
        times: records by the start of their bucket (ms), NO_TIME for those without; no markers.
        markers: how many of the records are markers of transactions.
    """

    records: int
    min_timestamp: int
    data_max_timestamp: int
    size: int
    times: dict[int, int]
    markers: int


def statistics_of_entries(
    data: Bytes, *, width_ms: int = WIDTHS_MS[0], end_offset: int = layout.INT64_MAX
) -> Statistics:
    """Collect the statistics of the whole entries at the start of `data`.

    `times` has buckets of `width_ms`, and only records below `end_offset`.

    Raises:
        RecordsError: an entry, its compression or a record is broken.
    """
    records, least, most, size, markers = 0, layout.INT64_MAX, layout.NO_TIMESTAMP, 0, 0
    times: dict[int, int] = {}
    for entry in scan_entries(data):
        found: dict[int, int] = {} if entry.is_control else times
        count, timestamp = _statistics_of_entry(entry, data, width_ms, end_offset, found)
        records += count
        least = min(least, timestamp)
        if entry.is_control:
            markers += sum(found.values())
        elif count:
            most = max(most, entry.max_timestamp)
        size += entry.size
    return Statistics(records, least, most, size, times, markers)


def _statistics_of_entry(
    entry: Entry, data: Bytes, width_ms: int, end_offset: int, times: dict[int, int]
) -> tuple[int, int]:
    """(records, smallest timestamp) of one entry of any magic; counts into `times`."""
    is_stamped = entry.timestamp_type is layout.TimestampType.LOG_APPEND_TIME
    is_whole = entry.last_offset < end_offset
    if entry.magic == layout.MAGIC_V2 and not (is_stamped and not is_whole):
        if entry.records_count == 0:
            return 0, layout.INT64_MAX
        if is_stamped:
            _count(times, entry.max_timestamp, entry.records_count, width_ms)
            return entry.records_count, entry.max_timestamp
        batch = RecordBatch(data, entry.position)
        clear, start, end = record_bytes(batch)
        least = count_times(
            clear, start, end, batch.records_count, batch.base_offset, batch.base_timestamp,
            width_ms, end_offset, times,
        )  # fmt: skip
        return entry.records_count, least
    if entry.magic != layout.MAGIC_V2 and entry.codec == layout.Codec.NONE:
        time_ms = layout.NO_TIMESTAMP if entry.magic == layout.MAGIC_V0 else entry.max_timestamp
        _count(times, time_ms, int(is_whole), width_ms)
        return 1, time_ms
    found = [(one.offset, one.timestamp) for one in iter_records(data, entry.position)]
    for offset, time_ms in found:
        _count(times, time_ms, int(offset < end_offset), width_ms)
    return len(found), min((time_ms for _, time_ms in found), default=layout.INT64_MAX)


def _count(times: dict[int, int], time_ms: int, count: int, width_ms: int) -> None:
    if count:
        start = time_ms - time_ms % width_ms if time_ms >= 0 else NO_TIME
        times[start] = times.get(start, 0) + count


def collect_statistics(log: Log, given_up: set[int]) -> Steps[int]:
    """Collect the statistics of every closed segment of `log` that lacks some; returns the number.

    Segments whose base offset is in `given_up` are left out; a segment that cannot be read is added
    to it. The caller may use other methods of the log between the steps.

    Raises:
        StorageFailed: a file could not be read, or the manifest could not be written.
    """
    collected = 0
    try:
        while log.offline_reason is None:
            segment = next(iter(_unknown_segments(log, given_up)), None)
            if segment is None:
                break
            try:
                found = yield from _read_segment(log, segment)
            except (CorruptLog, RecordsError):
                # Recovery or a reader will report the damage; here it only means that nothing is
                # pruned.
                given_up.add(segment.base_offset)
                continue
            if found is not None:
                _store(log, segment, *found)
                collected += 1
        for segment in list(log.segments)[:-1]:
            counts = counts_in_memory(segment)
            if counts is None or not counts.needs_reading or segment.base_offset in given_up:
                continue
            try:
                collected += bool((yield from count_stretches(log, segment, counts)))
            except (CorruptLog, RecordsError):
                given_up.add(segment.base_offset)
            counts.release()
    except OSError as error:
        raise storage_failure("collect statistics", log.path, error) from error
    return collected


def _unknown_segments(log: Log, given_up: set[int]) -> Iterator[Segment]:
    """The closed segments with unknown statistics, oldest first."""
    for segment in list(log.segments)[:-1]:
        is_known = segment.min_timestamp != UNKNOWN_MINIMUM and segment.records != UNKNOWN
        if is_known or segment.is_remote or segment.base_offset in given_up:
            continue
        if segment.matches_manifest:
            yield segment


def _read_segment(log: Log, segment: Segment) -> Steps[tuple[Statistics, Buckets] | None]:
    """The statistics of a segment; None when the segment or the log went away meanwhile."""
    records, least, most = 0, layout.INT64_MAX, layout.NO_TIMESTAMP
    buckets = Buckets()
    reading = LogReading(log, segment, 0, segment.size)
    while not reading.is_done:
        part = yield from reading.next(buckets.width_ms)
        if part is None:
            return None
        records, least = records + part.records, min(least, part.min_timestamp)
        most = max(most, part.data_max_timestamp)
        buckets.add_all(part.times)
        buckets.markers += part.markers
    if not is_there(log, segment):
        return None
    return Statistics(records, least, most, reading.position, {}, 0), buckets


class LogReading:
    """A part of a segment's log that is read for its statistics, slice by slice.

    Attributes:
        position: where to continue.
        end: where it ends.
        is_busy: whether a slice is being read; a second reader has to wait.
    """

    def __init__(
        self,
        log: Log,
        segment: Segment,
        position: int,
        end: int,
        end_offset: int = layout.INT64_MAX,
    ) -> None:
        """Read from `position` to `end`, both at entries; count only records below `end_offset`."""
        self.position = position
        self.end = end
        self._log = log
        self._segment = segment
        self._end_offset = end_offset
        self._slice_bytes = SLICE_BYTES
        self.is_busy = False

    @property
    def is_done(self) -> bool:
        """Whether all of it was read."""
        return self.position >= self.end

    def next(self, width_ms: int) -> Steps[Statistics | None]:
        """The statistics of the next slice; None when the segment or the log went away meanwhile.

        Raises OSError, RecordsError, CorruptLog.
        """
        while is_there(self._log, self._segment):
            size = min(self._slice_bytes, self.end - self.position)
            data = read_exactly(self._segment, size, self.position)
            self.is_busy = True
            try:
                part = yield from off_loop(
                    partial(
                        statistics_of_entries, data, width_ms=width_ms, end_offset=self._end_offset
                    )
                )
            finally:
                self.is_busy = False
            if part.size:
                self.position += part.size
                self._slice_bytes = SLICE_BYTES
                return part
            if self.position + size == self.end:
                path = self._segment.log.path
                raise CorruptLog(
                    path, position=self.position, expected="a whole batch", found="a part of one"
                )
            # The batch is longer than the slice: read more at once.
            self._slice_bytes *= 2
        return None


def is_there(log: Log, segment: Segment) -> bool:
    """Whether the segment is part of an open log; the directory of a deleted one may be reused."""
    if log.offline_reason is not None or log.is_closed or segment.is_remote:
        return False
    return segment is log.segments.active or log.segments.holds([segment])


def counts_in_memory(segment: Segment) -> TimeCounts | None:
    """The counts of a segment that has them open: the active one, and those closed in this run."""
    return next((index for index in segment.auxiliary if isinstance(index, TimeCounts)), None)


def count_stretches(
    log: Log, segment: Segment, counts: TimeCounts, bytes_max: int = layout.INT64_MAX
) -> Steps[int]:
    """Count stretches of a segment until about `bytes_max` bytes are read; returns how many were.

    The caller releases the counts of a closed segment. Nothing is read while another reader does.
    Raises OSError, RecordsError, CorruptLog.
    """
    counts.load()
    if counts.is_claimed:
        return 0
    read_bytes = 0
    counts.is_claimed = True
    try:
        while counts.stretches and read_bytes < bytes_max:
            first = counts.begin_stretch()
            reading = LogReading(log, segment, first.position, first.end)
            part = yield from reading.next(counts.buckets.width_ms)
            if part is None:
                break
            counts.end_stretch(part.size, part.times, part.markers)
            read_bytes += part.size
    finally:
        counts.is_claimed = False
        if read_bytes and segment is not log.segments.active and is_there(log, segment):
            counts.seal(segment.coverage(), segment.max_timestamp_offset)
    return read_bytes


def _store(log: Log, segment: Segment, found: Statistics, buckets: Buckets) -> None:
    # The lowest int64 is UNKNOWN_MINIMUM here, but Kafka may store it as a timestamp. One above it
    # prunes as little.
    least = max(found.min_timestamp, UNKNOWN_MINIMUM + 1)
    facts = segment.remember_measured(found.records, least, found.data_max_timestamp)
    log.manifest.remember(facts)
    log.unsynced.add_created(log.manifest.file)
    counts = counts_in_memory(segment) or TimeCounts(segment.files, segment.path(TimeCounts.SUFFIX))
    if not counts.is_claimed:
        counts.replace(buckets)
        counts.seal(segment.coverage(), segment.max_timestamp_offset)
        counts.release()
