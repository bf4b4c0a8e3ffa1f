# cython: language_level=3
# mypy: disable-error-code="untyped-decorator,valid-type,no-any-return"
"""Reading whole batches from a log, by offset, with one positioned read where possible.

Owns the way from an offset to bytes, and a small memory of where readers are. Each read notes the
position of the next offset, and a search the position that it found, so a consumer that follows the
log never pays for a search, and of several that begin at one offset only the first does. Refuses to
know what is visible: the caller passes the end.

Cost of a read: with a noted position one `pread`, without it one or two more to find the batch
through the offset index. Batches are never split, converted or copied record by record.

Like `protocol.records.record_loops` it runs compiled and plain.

Source: Kafka `LocalLog.read`, `LogSegment.read`; KIP-98 for aborted transactions.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from protocol.records.entry_loops import whole_entries
from protocol.records.layout import LOG_OVERHEAD
from storage.errors import CorruptLog
from storage.segment.scan import ensure_indexes

try:
    import cython
except ImportError:  # A wheel built without a compiler, on a machine without Cython.
    from protocol.records import cython_shim as cython

if cython.compiled:
    from cython.cimports.storage.segment.feed import SegmentEnd
else:
    from storage.segment.feed import SegmentEnd

if TYPE_CHECKING:
    from storage.segment.segment import Segment
    from storage.segment.segment_list import SegmentList
    from storage.segment.txn_index import AbortedTxn

COMPILED: bool = bool(cython.compiled)
"""Whether this module was compiled to machine code."""

HINTS_MAX: Final = 64
"""How many positions of readers are remembered per log."""

_FRAME: Final = Struct(">qi")


class LogPosition(NamedTuple):
    """A boundary between batches: the offset of what follows it, and its position."""

    offset: int
    base_offset: int
    position: int


NOTHING: Final = memoryview(b"")


class LogReader:
    """Reads from a `SegmentList` that its owner keeps changing; same thread as the owner.

    Attributes:
        next_offset: the offset after the last batch of the last read.
    """

    def __init__(self, segments: SegmentList, *, index_interval: int) -> None:
        """Read from `segments`; `index_interval` is for indexes that have to be rebuilt."""
        self._segments = segments
        # Made by the first read: most partitions of a broker are idle.
        self._hints: dict[int, tuple[Segment, int]] | None = None
        self.index_interval = index_interval
        self.next_offset = 0

    def forget_positions(self) -> None:
        """Drop the noted positions, because segments were removed or replaced."""
        self._hints = None

    def read(
        self,
        offset: cython.longlong,
        max_bytes: cython.longlong,
        end_offset: cython.longlong,
        end_base: cython.longlong,
        end_position: cython.longlong,
        min_one: cython.bint,
    ) -> memoryview:
        """The batches from the one that holds `offset` on, up to `max_bytes` and up to the end.

        The end is a `LogPosition` by its fields; `offset` is below it. The first batch may begin
        below `offset`. With `min_one` it is returned even if it is larger than `max_bytes`. A read
        stays within one segment. `next_offset` says where the next one begins.

        Raises OSError, or CorruptLog when the log is not what was written.
        """
        assert offset < end_offset, f"read at {offset}, the end is {end_offset}"
        hint = None if self._hints is None else self._hints.get(offset)
        if hint is None:
            hint = self.locate(offset)
            self._remember(offset, hint)
        segment: SegmentEnd = hint[0]
        position: cython.longlong = hint[1]
        is_last: cython.bint = segment.base_offset == end_base
        limit: cython.longlong = end_position if is_last else segment.log.size
        if position >= limit and segment.base_offset < end_base:
            following = self._segments.after(segment)
            assert following is not None, "the end lies in a segment that is not there"
            segment, position = following, 0
            is_last = segment.base_offset == end_base
            limit = end_position if is_last else segment.log.size
        assert 0 <= position <= limit, f"read at byte {position} of {limit}"
        size: cython.longlong = min(limit - position, max_bytes)
        next_offset: cython.longlong
        data: memoryview = memoryview(segment.log.pread(size, position))
        if len(data) != size:
            raise _cut_off(segment, position, size, len(data))
        if position + size == limit:
            next_offset = end_offset if is_last else segment.next_offset
        else:
            taken, last_offset, count = whole_entries(data, 0, size, size, False)
            if count == 0:
                if not min_one:
                    self.next_offset = offset
                    return NOTHING
                data, last_offset = self._first_entry(segment, position, limit)
                taken = len(data)
            data = data[:taken]
            size = taken
            next_offset = last_offset + 1
        assert offset <= next_offset <= end_offset, f"read to {next_offset}, beyond {end_offset}"
        self._remember(next_offset, (segment, position + size))
        self.next_offset = next_offset
        return data

    def locate(self, offset: int) -> tuple[Segment, int]:
        """Where the first batch that ends at `offset` or later starts: segment and position.

        The end of the newest segment when there is no such batch.
        """
        segment = self._segments.floor(offset)
        ensure_indexes(segment, index_interval=self.index_interval)
        head = segment.find_entry(offset)
        if head is not None:
            return segment, head.position
        following = self._segments.after(segment)
        return (segment, segment.size) if following is None else (following, 0)

    def position_of(self, offset: int) -> LogPosition:
        """The boundary before the batch that holds `offset`."""
        segment, position = self.locate(offset)
        return LogPosition(offset, segment.base_offset, position)

    def at_segment_start(self, end: LogPosition) -> LogPosition:
        """The same boundary, named by the segment that begins there, if one does.

        The end of a closed segment is a byte position that compaction changes. The start of the
        segment after it never moves, and no segment that a boundary cuts in two is compacted.
        """
        if end.base_offset == self._segments.active.base_offset:
            return end
        after = self._segments.floor(end.offset)
        return LogPosition(end.offset, end.offset, 0) if after.base_offset == end.offset else end

    def aborted_transactions(self, offset: int, end_offset: int) -> list[AbortedTxn]:
        """The aborted transactions with records in `[offset, end_offset)`.

        Source: Kafka `LocalLog.collectAbortedTransactions`.
        """
        found: list[AbortedTxn] = []
        segment: Segment | None = self._segments.floor(offset)
        while segment is not None:
            if segment.is_remote:
                ensure_indexes(segment, index_interval=self.index_interval)
            for txn in segment.txn_index.read_from(offset):
                if txn.first_offset < end_offset:
                    found.append(txn)
                if txn.last_stable_offset >= end_offset:
                    return found
            segment = self._segments.after(segment)
        return found

    def _first_entry(self, segment: Segment, position: int, limit: int) -> tuple[memoryview, int]:
        """The one entry at `position`, whatever its size, and its last offset."""
        frame = segment.log.pread(LOG_OVERHEAD, position)
        if len(frame) != LOG_OVERHEAD:
            raise _cut_off(segment, position, LOG_OVERHEAD, len(frame))
        size = _FRAME.unpack(frame)[1] + LOG_OVERHEAD
        data = memoryview(segment.log.pread(max(0, min(size, limit - position)), position))
        taken, last_offset, _ = whole_entries(data, 0, len(data), len(data), True)
        if taken != size:
            raise _cut_off(segment, position, size, len(data))
        return data, last_offset

    def _remember(self, offset: cython.longlong, place: tuple[Segment, int]) -> cython.int:
        """Note that `offset` is at `place`; returns 0."""
        hints = self._hints
        if hints is None:
            hints = self._hints = {}
        # Re-inserted, so that the oldest in order is the one unused for longest.
        hints.pop(offset, None)
        if len(hints) >= HINTS_MAX:
            del hints[next(iter(hints))]
        hints[offset] = place
        return 0


def _cut_off(segment: Segment, position: int, expected: int, found: int) -> CorruptLog:
    return CorruptLog(
        segment.log.path,
        position=position,
        expected=f"{expected} bytes of whole batches",
        found=f"{found}",
    )
