"""Statistics of closed segments that were not collected on append: records, smallest timestamp.

An append knows the smallest timestamp of its records, because it has read each of them. A segment
made in another way is known by its batch heads only: by recovery after a crash, by Kafka, by an
earlier release, by compaction. Such a segment has UNKNOWN_MINIMUM, which prunes nothing, until this
module has read it: one segment at a time, in the background, in slices. Heads do not contain the
minimum: a batch's base timestamp is that of its first record, which need not be its oldest.

Owns reading a segment for its statistics; `storage.segment.manifest` stores them and defines their
meaning.
"""

from collections.abc import Iterator
from functools import partial
from typing import Final, NamedTuple

from protocol.errors import RecordsError
from protocol.records import layout
from protocol.records.batch import RecordBatch
from protocol.records.record import record_bytes
from protocol.records.record_loops import TYPE_IGNORED, check_records
from protocol.records.scan import Entry, iter_records, scan_entries
from storage.disk.files import Bytes
from storage.disk.steps import SLICE_BYTES, Steps, off_loop
from storage.errors import CorruptLog, storage_failure
from storage.log.log import Log
from storage.segment.manifest import UNKNOWN, UNKNOWN_MINIMUM
from storage.segment.scan import read_exactly
from storage.segment.segment import Segment

_MIN_TIMESTAMP_AT: Final = 4
"""Place of the minimum in what `check_records` returns."""


class Statistics(NamedTuple):
    """Statistics of a stretch of log.

    Attributes:
        records: how many records, those inside wrappers and markers included.
        min_timestamp: the smallest timestamp that a reader sees (ms), NO_TIMESTAMP if a record has
            none; 2^63-1 without records.
        data_max_timestamp: no record is newer, markers left out (ms).
        size: bytes of whole entries.
    """

    records: int
    min_timestamp: int
    data_max_timestamp: int
    size: int


def statistics_of_entries(data: Bytes) -> Statistics:
    """Collect the statistics of the whole entries at the start of `data`.

    Raises:
        RecordsError: an entry, its compression or a record is broken.
    """
    records, least, most, size = 0, layout.INT64_MAX, layout.NO_TIMESTAMP, 0
    for entry in scan_entries(data):
        count, timestamp = _statistics_of_entry(entry, data)
        records += count
        least = min(least, timestamp)
        if count and not entry.is_control:
            most = max(most, entry.max_timestamp)
        size += entry.size
    return Statistics(records, least, most, size)


def _statistics_of_entry(entry: Entry, data: Bytes) -> tuple[int, int]:
    """(records, smallest timestamp) of one entry of any magic."""
    if entry.magic != layout.MAGIC_V2:
        if entry.codec == layout.Codec.NONE:
            return 1, layout.NO_TIMESTAMP if entry.magic == layout.MAGIC_V0 else entry.max_timestamp
        timestamps = [record.timestamp for record in iter_records(data, entry.position)]
        return len(timestamps), min(timestamps, default=layout.INT64_MAX)
    if entry.records_count == 0:
        return 0, layout.INT64_MAX
    if entry.timestamp_type is layout.TimestampType.LOG_APPEND_TIME:
        return entry.records_count, entry.max_timestamp
    batch = RecordBatch(data, entry.position)
    clear, start, end = record_bytes(batch)
    found = check_records(
        clear, start, end, batch.records_count, batch.base_timestamp,
        layout.INT64_MIN, layout.INT64_MAX, TYPE_IGNORED, False,
    )  # fmt: skip
    return entry.records_count, found[_MIN_TIMESTAMP_AT]


def collect_statistics(log: Log, given_up: set[int]) -> Steps[int]:
    """Collect the statistics of every closed segment of `log` that lacks them; returns the number.

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
                _store(log, segment, found)
                collected += 1
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


def _read_segment(log: Log, segment: Segment) -> Steps[Statistics | None]:
    """The statistics of a segment; None when the segment or the log went away meanwhile."""
    records, least, most, position = 0, layout.INT64_MAX, layout.NO_TIMESTAMP, 0
    slice_bytes = SLICE_BYTES
    while position < segment.size:
        if not _is_there(log, segment):
            return None
        data = read_exactly(segment, min(slice_bytes, segment.size - position), position)
        part = yield from off_loop(partial(statistics_of_entries, data))
        if part.size == 0 and position + len(data) == segment.size:
            raise CorruptLog(
                segment.log.path, position=position, expected="a whole batch", found="a part of one"
            )
        records, least = records + part.records, min(least, part.min_timestamp)
        most = max(most, part.data_max_timestamp)
        position += part.size
        # The batch is longer than the slice: read more at once.
        slice_bytes = SLICE_BYTES if part.size else 2 * slice_bytes
    return Statistics(records, least, most, position) if _is_there(log, segment) else None


def _is_there(log: Log, segment: Segment) -> bool:
    """Whether the segment is part of an open log; the directory of a deleted one may be reused."""
    is_here = log.offline_reason is None and log.segments.holds([segment])
    return is_here and not segment.is_remote


def _store(log: Log, segment: Segment, found: Statistics) -> None:
    # The lowest int64 is UNKNOWN_MINIMUM here, but Kafka may store it as a timestamp. One above it
    # prunes as little.
    least = max(found.min_timestamp, UNKNOWN_MINIMUM + 1)
    facts = segment.remember_measured(found.records, least, found.data_max_timestamp)
    log.manifest.remember(facts)
    log.unsynced.add_created(log.manifest.file)
