# cython: language_level=3
# mypy: disable-error-code="untyped-decorator,valid-type,no-any-return"
"""How a batch that was written to a segment changes its numbers and feeds its indexes.

The rules are drawn in `storage.segment.segment` and `storage.segment.rolling`. They are here
because two ways of appending follow them, the general one and the lane (`storage.log.lane`), and so
that they run compiled where extensions were built. The lane appends many batches between `begin`
and `end`. `Segment` imports this module, so its type is not named here.
"""

from __future__ import annotations

from typing import Any, Final

from protocol.records.layout import INT32_MAX, INT64_MAX
from storage.segment.manifest import UNKNOWN
from storage.segment.offset_index import ENTRY_SIZE as OFFSET_ENTRY_SIZE
from storage.segment.time_index import ENTRY_SIZE as TIME_ENTRY_SIZE

try:
    import cython
except ImportError:  # A wheel built without a compiler, on a machine without Cython.
    from protocol.records import cython_shim as cython

COMPILED: bool = bool(cython.compiled)
"""Whether this module was compiled to machine code."""

# Numbers of C when they are compiled, by the .pxd.
_UNKNOWN: Final = UNKNOWN
_INT32_MAX: Final = INT32_MAX
_OFFSET_ENTRY_SIZE: Final = OFFSET_ENTRY_SIZE
_TIME_ENTRY_SIZE: Final = TIME_ENTRY_SIZE


class SegmentEnd:
    """The numbers of a segment that appends change, from `begin` until `end` writes them back.

    In between the segment's own are out of date, and the caller must not let anything use them.

    Attributes:
        size: bytes of the log file; the caller counts them.
        min_timestamp, data_max_timestamp: those of the segment; the caller keeps them.
    """

    def begin(self, segment: Any) -> cython.int:
        """Take over the numbers of `segment`; returns 0."""
        self._segment = segment
        self.size = segment.log.size
        self.min_timestamp = segment.min_timestamp
        self.data_max_timestamp = segment.data_max_timestamp
        self._next_offset = segment.next_offset
        self._max_timestamp = segment.max_timestamp
        self._max_timestamp_offset = segment.max_timestamp_offset
        self._bytes_since_index = segment.bytes_since_index
        self._records = segment.records
        self._offset_index = segment.offset_index
        self._time_index = segment.time_index
        self._auxiliary = segment.auxiliary
        self._index_room = 0
        return 0

    def set_limits(self, rules: Any) -> cython.int:
        """Note until when `fits` may accept batches, by the `RollRules`; returns 0."""
        segment = self._segment
        first_timestamp = segment._first_timestamp
        self._size_max, self._newest = -1, 0
        if self.size and first_timestamp is not None and first_timestamp >= 0:
            self._size_max = rules.segment_bytes
            newest = first_timestamp + rules.segment_ms - segment.roll_jitter_ms
            self._newest = min(newest, INT64_MAX)
        self._last_offset_max = segment.base_offset + _INT32_MAX
        self._index_bytes = rules.index_bytes
        self._index_room = min(
            self._index_bytes // _OFFSET_ENTRY_SIZE - self._offset_index.count,
            self._index_bytes // _TIME_ENTRY_SIZE - 1 - self._time_index.count,
        )
        return 0

    def fits(
        self, size: cython.longlong, last_offset: cython.longlong, max_timestamp: cython.longlong
    ) -> cython.bint:
        """Whether a batch may be appended without a look at `storage.segment.rolling`.

        False may mean that a segment has to be started, or that it takes more to decide.
        """
        if (
            self.size > self._size_max - size
            or max_timestamp > self._newest
            or self._index_room <= 0
            or last_offset > self._last_offset_max
        ):
            return False
        if self._auxiliary:
            for index in self._auxiliary:
                if index.is_full(self._index_bytes):
                    return False
        return True

    def feed(
        self,
        position: cython.longlong,
        size: cython.longlong,
        last_offset: cython.longlong,
        timestamp: cython.longlong,
        records_count: cython.longlong,
        index_interval: cython.longlong,
        batch: Any,
        min_timestamp: cython.longlong,
    ) -> cython.bint:
        """Count and index a batch of `size` bytes at `position`; whether the indexes got entries.

        `timestamp` is its largest (ms), or NO_TIMESTAMP. Auxiliary indexes get the `batch` itself,
        an `AppendedBatch`, and `min_timestamp`; see `AuxiliaryIndex.note_batch`.
        """
        is_indexed: cython.bint = False
        if timestamp > self._max_timestamp:
            self._max_timestamp = timestamp
            self._max_timestamp_offset = last_offset
        if self._bytes_since_index > index_interval:
            self._offset_index.append(last_offset, position)
            self._time_index.maybe_append(self._max_timestamp, self._max_timestamp_offset)
            self._bytes_since_index = 0
            self._index_room -= 1
            is_indexed = True
        if self._auxiliary:
            for index in self._auxiliary:
                if is_indexed:
                    index.note_entry(self._max_timestamp, self._max_timestamp_offset)
                index.note_batch(batch, position, min_timestamp)
        self._bytes_since_index += size
        if self._records != _UNKNOWN:
            self._records += records_count
        self._next_offset = last_offset + 1
        return is_indexed

    def end(self) -> cython.int:
        """Write the numbers back; returns 0."""
        segment = self._segment
        segment.min_timestamp = self.min_timestamp
        segment.data_max_timestamp = self.data_max_timestamp
        segment.next_offset = self._next_offset
        segment.max_timestamp = self._max_timestamp
        segment.max_timestamp_offset = self._max_timestamp_offset
        segment.bytes_since_index = self._bytes_since_index
        segment.records = self._records
        return 0
