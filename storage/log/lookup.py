"""From a time to an offset: the first record at or after it, found without looking at the others.

Owns the promise: **the answer is the first record, in log order, with a timestamp of T or later and
an offset at or above the log's start. Every surviving record before it is older than T.**

    segments     the oldest one whose largest timestamp reaches T         binary search
    time index   the last entry not above T: nothing before it exceeds T  binary search
                 (a topic with an auxiliary index: that one instead, see
                 storage.segment.auxiliary_index)
    offset index the last entry not above that offset: a position         binary search
    log          walk over batch heads, then the records of one batch     one interval, one batch

A segment whose log is in an object store costs one ranged GET; its indexes are here. The lookup
raises RemoteBytesNeeded with the range, and finds the bytes in memory when it is repeated.

So the cost does not depend on the size of the log: at most one index interval and one batch are
read from it, in blocks of 4 KiB. Only the segment that the log's start cuts through can cost more.
Its maximum may lie below the start, and then the walk continues to its end and on to later
segments.

Differs from Kafka: it stops after the first segment that reaches T. So it answers "none" when the
hits there lie below the log's start, or when a segment without timestamps was merely modified after
T. Here the search continues, and segments without timestamps are never candidates.

Source: KIP-33, KIP-79, KIP-734; Kafka `UnifiedLog.fetchOffsetByTimestamp`,
`LogSegment.findOffsetByTimestamp`.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeAlias

from protocol.errors import DecompressionLimitExceeded
from protocol.records.batch import RecordBatch
from protocol.records.layout import (
    MAGIC_AT,
    MAGIC_V2,
    NO_LEADER_EPOCH,
    NO_OFFSET,
    NO_TIMESTAMP,
    TimestampType,
)
from protocol.records.record import DECOMPRESSED_BYTES_MAX, Record, record_bytes
from protocol.records.record_loops import find_timestamp
from protocol.records.scan import iter_records
from storage.errors import TooMuchAtOnce
from storage.log.auxiliary_indexes import AuxiliaryIndexes
from storage.segment.entry_heads import WALK_BLOCK_BYTES, HeadWalk
from storage.segment.offset_index import OffsetPosition
from storage.segment.remote.log import RANGE_BYTES_MAX, RemoteLogFile
from storage.segment.scan import ensure_indexes
from storage.segment.segment import Segment
from storage.segment.segment_list import SegmentList
from storage.segment.time_index import TimestampedOffset
from values.dataclasses import dataclass

AT_ONCE_BYTES: Final = 1024 * 1024
"""Bytes that one search decompresses in the loop thread: 1 ms with zstd, 3 ms with gzip."""

RECORDS_AT_ONCE_BYTES: Final = 64 * 1024
"""Bytes of records of which it makes objects, one by one: a few milliseconds."""

_ANY_TIMESTAMP: Final = -(2**63)

_EntrySearch: TypeAlias = Callable[..., Any]
"""A pure function of one entry's bytes and further arguments, the last of them `at_once`."""


class TimestampOffset(NamedTuple):
    """A record found by time: its own timestamp (ms), its offset, its batch's leader epoch."""

    timestamp: int
    offset: int
    leader_epoch: int = NO_LEADER_EPOCH


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentSearch:
    """The cost of the search in one segment, for an explanation of its answer.

    `index` names the index that the time entry is from: the time index, or an auxiliary one. The
    steps are the entries that the binary searches looked at, with their slots. There are none in
    the time index when an auxiliary one was used.
    """

    base_offset: int
    max_timestamp: int
    index: str
    time_entry: TimestampedOffset
    offset_entry: OffsetPosition
    bytes_read: int
    batches_scanned: int
    records_scanned: int
    time_entries: int
    time_steps: tuple[tuple[int, TimestampedOffset], ...]
    offset_entries: int
    offset_steps: tuple[tuple[int, OffsetPosition], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupExplanation:
    """A lookup with its cost.

    Attributes:
        timestamp: the requested time, ms.
        found: the answer, or None.
        visible: whether a consumer may see the answer yet (it lies below the high watermark).
        segments: how many segments the log has.
        segment_steps: the segments at which the search for one that reaches the time looked, by
            base offset, each with the largest timestamp up to its end.
        searched: the searched segments, in order; empty when none reaches the time.
        before: the record before the answer, if it is still in the log; after: the record after it.
    """

    timestamp: int
    found: TimestampOffset | None
    visible: bool
    segments: int
    segment_steps: tuple[tuple[int, int], ...]
    searched: tuple[SegmentSearch, ...]
    before: TimestampOffset | None
    after: TimestampOffset | None

    @property
    def bytes_read(self) -> int:
        """Bytes of log that were read, without index files."""
        return sum(search.bytes_read for search in self.searched)


class LargeEntries:
    """The searches of one lookup in entries that are too large for the loop thread.

    With this, a lookup that comes to such an entry raises TooMuchAtOnce. The caller then calls
    `search` in another thread and starts the lookup again, which finds the result here. So the
    answer is that of the log as it is at the last start; a result counts for the same bytes only.
    """

    __slots__ = ("_known", "_next")

    def __init__(self) -> None:
        """Know nothing."""
        self._known: list[tuple[tuple[Any, ...], Any]] = []
        self._next: tuple[Any, ...] = ()

    def call(self, function: _EntrySearch, *arguments: Any) -> Any:
        """`function(*arguments)`. Raises TooMuchAtOnce if that takes long and is not known yet."""
        search = (function, *arguments)
        for known, result in self._known:
            if known == search:
                return result
        try:
            return function(*arguments, True)
        except DecompressionLimitExceeded:
            self._next = search
            raise TooMuchAtOnce from None

    def search(self) -> None:
        """Make the search that the lookup asked for. Raises RecordsError."""
        function, *arguments = self._next
        self._known.append((self._next, function(*arguments, False)))


def _search(large: LargeEntries | None, function: _EntrySearch, *arguments: Any) -> Any:
    return function(*arguments, False) if large is None else large.call(function, *arguments)


class TimeLookup:
    """Looks up records by time in a `SegmentList` that its owner keeps changing.

    Every method raises OSError, or CorruptLog when a batch that has to be read is damaged.
    """

    __slots__ = ("_auxiliary", "_known_miss", "_segments", "index_interval")

    def __init__(
        self, segments: SegmentList, auxiliary: AuxiliaryIndexes, *, index_interval: int
    ) -> None:
        """Search in `segments`; `index_interval` is for indexes that have to be rebuilt."""
        self._segments = segments
        self._auxiliary = auxiliary
        # The segment that the log's start cuts through has a maximum that may lie below the start.
        # After one walk to its end without a hit, this remembers (base offset, size, log start,
        # timestamp): no record in it is as new, so the next lookups need not walk again.
        self._known_miss = (NO_OFFSET, 0, 0, 0)
        self.index_interval = index_interval

    def forget_positions(self) -> None:
        """Drop the remembered walk, because segments were removed or replaced."""
        self._known_miss = (NO_OFFSET, 0, 0, 0)

    def find(
        self,
        timestamp: int,
        log_start_offset: int,
        trace: list[SegmentSearch] | None = None,
        large: LargeEntries | None = None,
    ) -> TimestampOffset | None:
        """The first record at or after `timestamp` (ms) from `log_start_offset` on, or None.

        `trace` gets the cost of each segment's search.
        Raises TooMuchAtOnce, if there are `large` entries to search in another thread.
        """
        segments = self._segments
        index = segments.first_reaching(timestamp, segments.index_of(log_start_offset))
        while index is not None:
            segment = self._verified(index)
            if not self._is_known_miss(segment, log_start_offset, timestamp):
                found = find_in_segment(segment, timestamp, log_start_offset, trace, large)
                if found is not None:
                    assert found.timestamp >= timestamp, f"{found} is older than {timestamp}"
                    assert found.offset >= log_start_offset, f"{found} is below the log's start"
                    return found
                self._known_miss = (segment.base_offset, segment.size, log_start_offset, timestamp)
            if index + 1 == len(segments):
                return None
            index = segments.first_reaching(timestamp, index + 1)
        return None

    def find_max(
        self, log_start_offset: int, large: LargeEntries | None = None
    ) -> TimestampOffset | None:
        """The first record that has the largest timestamp from `log_start_offset` on, or None.

        Raises as `find`.
        """
        largest = self._segments.max_timestamp
        if largest < 0:
            return None
        found = self.find(largest, log_start_offset, None, large)
        if found is None:
            # The maximum lies below the log's start, in a segment that is still there.
            largest = self._max_timestamp_from(log_start_offset, large)
            found = self.find(largest, log_start_offset, None, large) if largest >= 0 else None
        return found

    def explain(
        self, timestamp: int, log_start_offset: int, high_watermark: int
    ) -> LookupExplanation:
        """`find` with its cost and the records before and after the answer."""
        searched: list[SegmentSearch] = []
        found = self.find(timestamp, log_start_offset, searched)
        before = after = None
        if found is not None:
            before = self._before(found.offset, log_start_offset)
            after = self._after(found.offset)
        return LookupExplanation(
            timestamp=timestamp,
            found=found,
            visible=found is not None and found.offset < high_watermark,
            segments=len(self._segments),
            segment_steps=tuple(self._segments.steps_to(timestamp)),
            searched=tuple(searched),
            before=before,
            after=after,
        )

    def _is_known_miss(self, segment: Segment, log_start_offset: int, timestamp: int) -> bool:
        base_offset, size, start, reached = self._known_miss
        return (
            segment.base_offset == base_offset
            and segment.size == size
            and log_start_offset >= start
            and timestamp >= reached
        )

    def _verified(self, index: int) -> Segment:
        segment = self._segments[index]
        ensure_indexes(segment, index_interval=self.index_interval)
        if self._auxiliary.guides:
            self._auxiliary.ensure(segment, is_active=index + 1 == len(self._segments))
        return segment

    def _max_timestamp_from(self, log_start_offset: int, large: LargeEntries | None) -> int:
        first = self._segments.index_of(log_start_offset)
        newest = [segment.max_timestamp for segment in list(self._segments)[first + 1 :]]
        cut = self._verified(first)
        head = cut.find_entry(log_start_offset)
        if head is not None:
            # The maximum of the entry that the start cuts through may lie below the start.
            rest = cut.walk()
            entry = rest.entry(rest.head(head.position))
            newest.append(_search(large, _largest_in_entry, entry, log_start_offset))
            newest += [entry.max_timestamp for entry in rest.heads(head.position + head.size)]
        return max(newest, default=NO_TIMESTAMP)

    def _before(self, offset: int, log_start_offset: int) -> TimestampOffset | None:
        """The record before the one at `offset`; after compaction it may be far away."""
        for index in reversed(range(self._segments.index_of(offset) + 1)):
            segment = self._verified(index)
            walk, target = segment.walk(), offset
            while target >= log_start_offset:
                start = segment.offset_index.floor(target)
                before = None
                for head in walk.heads(start.position):
                    for record in iter_records(walk.entry(head)):
                        if log_start_offset <= record.offset < offset:
                            before = TimestampOffset(
                                record.timestamp, record.offset, head.partition_leader_epoch
                            )
                    if head.last_offset >= offset:
                        break
                if before is not None:
                    return before
                if start.position == 0:
                    break
                target = start.offset - 1
        return None

    def _after(self, offset: int) -> TimestampOffset | None:
        """The record after the one at `offset`."""
        for index in range(self._segments.index_of(offset), len(self._segments)):
            segment = self._verified(index)
            walk = segment.walk()
            for head in walk.heads(segment.offset_index.floor(offset).position):
                if head.last_offset <= offset:
                    continue
                for record in iter_records(walk.entry(head)):
                    if record.offset > offset:
                        return TimestampOffset(
                            record.timestamp, record.offset, head.partition_leader_epoch
                        )
        return None


def offsets_before(
    segments: SegmentList,
    timestamp: int,
    *,
    log_start_offset: int,
    log_end_offset: int,
    now_ms: int,
) -> list[int]:
    """Starts of segments last written at or before `timestamp` (ms), newest first.

    The log's end counts as written at `now_ms`, unless the active segment is empty.
    Source: Kafka `UnifiedLog.legacyFetchOffsetsBefore`. Differs from Kafka: it uses the files'
    modification times, which a copied directory does not keep.
    """
    starts = [
        (
            max(segment.base_offset, log_start_offset),
            segment.created_ms if segment.is_empty else segment.appended_ms,
        )
        for segment in segments
    ]
    if not segments.active.is_empty:
        starts.append((log_end_offset, now_ms))
    count = len(starts)
    while count and starts[count - 1][1] > timestamp:
        count -= 1
    return sorted((offset for offset, _ in starts[:count]), reverse=True)


def find_in_segment(
    segment: Segment,
    timestamp: int,
    log_start_offset: int,
    trace: list[SegmentSearch] | None = None,
    large: LargeEntries | None = None,
) -> TimestampOffset | None:
    """The first record of one segment at or after `timestamp` from `log_start_offset` on."""
    time_entry, index = _time_entry(segment, timestamp)
    if isinstance(segment.log, RemoteLogFile):
        offset_entry = _require_remote(segment, segment.log, timestamp, log_start_offset)
    else:
        offset_entry = segment.offset_index.floor(max(time_entry.offset, log_start_offset))
    walk = segment.walk()
    found, position = None, offset_entry.position
    while found is None:
        head = walk.find(position, offset=log_start_offset, timestamp=timestamp)
        if head is None:
            position = walk.end
            break
        # The head's maximum may be that of a record below the log's start; then the walk continues.
        entry = walk.entry(head)
        at = _search(large, _find_in_entry, entry, timestamp, log_start_offset)
        if at is not None:
            found = TimestampOffset(at[0], at[1], head.partition_leader_epoch)
        position = head.position + head.size
    if trace is not None:
        trace.append(
            _describe(
                segment, index, time_entry, offset_entry, walk, position, found, timestamp,
                max(time_entry.offset, log_start_offset),
            )
        )  # fmt: skip
    return found


def _require_remote(
    segment: Segment, log: RemoteLogFile, timestamp: int, log_start_offset: int
) -> OffsetPosition:
    """Where the walk in a remote segment starts, with all bytes that it reads in memory.

    Both indexes get their entries at the same batches, a time entry wherever the maximum has grown.
    So the first record at or after `timestamp` lies after the offset entry before the one at which
    the maximum reached it, and not after the batch that set it: between an index entry and the next
    but one. Raises RemoteBytesNeeded with that range.
    """
    reached = segment.time_index.ceiling(timestamp)
    last = log_start_offset if reached is None else max(reached.offset, log_start_offset)
    start = segment.offset_index.floor(max(last - 1, log_start_offset))
    above = segment.offset_index.above(last)
    # The walk reads whole blocks, the last of them beyond the range.
    end = log.size if above is None else above.position + WALK_BLOCK_BYTES
    log.require(start.position, min(end, start.position + RANGE_BYTES_MAX))
    return start


def _time_entry(segment: Segment, timestamp: int) -> tuple[TimestampedOffset, str]:
    """The position to start from by time, and the name of the index that gave it."""
    for index in segment.auxiliary:
        # Without an auxiliary index the answer is the same: the time index gives it too.
        with suppress(OSError):
            entry = index.floor(timestamp)
            if entry is not None:
                return entry, index.NAME
    return segment.time_index.floor(timestamp), segment.time_index.NAME


def _find_in_entry(
    entry: bytes, timestamp: int, log_start_offset: int, at_once: bool
) -> tuple[int, int] | None:
    """Timestamp and offset of the first record at or after `timestamp` and `log_start_offset`.

    Raises RecordsError; with `at_once` DecompressionLimitExceeded when that would take long.
    """
    if entry[MAGIC_AT] != MAGIC_V2:
        for record in _iter_records(entry, at_once):
            if record.timestamp >= timestamp and record.offset >= log_start_offset:
                return record.timestamp, record.offset
        return None
    batch = RecordBatch(entry)
    is_stamped = batch.timestamp_type == TimestampType.LOG_APPEND_TIME
    if is_stamped and batch.max_timestamp < timestamp:
        return None
    max_bytes = AT_ONCE_BYTES if at_once else DECOMPRESSED_BYTES_MAX
    records, start, end = record_bytes(batch, max_bytes=max_bytes)
    found, offset = find_timestamp(
        records,
        start,
        end,
        batch.records_count,
        batch.base_offset,
        batch.base_timestamp,
        _ANY_TIMESTAMP if is_stamped else timestamp,
        log_start_offset,
    )
    if offset < 0:
        return None
    return (batch.max_timestamp if is_stamped else found), offset


def _largest_in_entry(entry: bytes, log_start_offset: int, at_once: bool) -> int:
    """The largest timestamp of the records from `log_start_offset` on. Raises as above."""
    return max(
        (
            record.timestamp
            for record in _iter_records(entry, at_once)
            if record.offset >= log_start_offset
        ),
        default=NO_TIMESTAMP,
    )


def _iter_records(entry: bytes, at_once: bool) -> Iterator[Record]:
    if at_once and len(entry) > RECORDS_AT_ONCE_BYTES:
        raise DecompressionLimitExceeded("The entry is too large for the loop thread.")
    return iter_records(
        entry, max_bytes=RECORDS_AT_ONCE_BYTES if at_once else DECOMPRESSED_BYTES_MAX
    )


def _describe(
    segment: Segment,
    index: str,
    time_entry: TimestampedOffset,
    offset_entry: OffsetPosition,
    walk: HeadWalk,
    end: int,
    found: TimestampOffset | None,
    timestamp: int,
    offset: int,
) -> SegmentSearch:
    """The search's cost; a second walk over the same part counts batches and records."""
    batches = records = 0
    times, offsets = segment.time_index, segment.offset_index
    counting = segment.walk(end)
    for head in counting.heads(offset_entry.position):
        batches += 1
        if found is not None and head.position + head.size == end:
            last = iter_records(counting.entry(head))
            records = sum(1 for record in last if record.offset <= found.offset)
    return SegmentSearch(
        base_offset=segment.base_offset,
        max_timestamp=segment.max_timestamp,
        index=index,
        time_entry=time_entry,
        offset_entry=offset_entry,
        bytes_read=walk.bytes_read,
        batches_scanned=batches,
        records_scanned=records,
        time_entries=times.count,
        time_steps=tuple(
            (slot, times.entry_at(slot))
            for slot in (times.slots_to(timestamp) if index == times.NAME else ())
        ),
        offset_entries=offsets.count,
        offset_steps=tuple(
            (slot, offsets.entry_at(slot))
            for slot in offsets.slots_to(offset - segment.base_offset)
        ),
    )
