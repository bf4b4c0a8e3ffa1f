# cython: language_level=3
# mypy: disable-error-code="untyped-decorator,valid-type,no-any-return"
"""The end of a segment, which appends move: its numbers, and the newest entries of its indexes.

The rules are drawn in `storage.segment.segment` and `storage.segment.rolling`. They are here
because two ways of appending follow them, the general one and the lane (`storage.log.lane`), and so
that they run compiled where extensions were built. The classes below are the bases of `Segment`,
`SparseIndex` and `TimeCounts`: what those keep here are fields of C then, which the lane reads and
writes without an access to an object of Python.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, Final

from protocol.records.layout import CONTROL_BIT, INT32_MAX, INT64_MAX, NO_TIMESTAMP
from storage.segment.facts import UNKNOWN, UNKNOWN_MAXIMUM, UNKNOWN_MINIMUM

try:
    import cython
except ImportError:  # A wheel built without a compiler, on a machine without Cython.
    from protocol.records import cython_shim as cython

if TYPE_CHECKING:
    from storage.disk.files import File, Files

COMPILED: bool = bool(cython.compiled)
"""Whether this module was compiled to machine code."""

TAIL_ENTRIES_MAX: Final = 512
"""Entries of an index kept in memory before they are written out together."""

NO_ENTRIES: Final[Any] = ()
"""The integers of an index without a tail; most indexes of a broker never have one."""

OFFSET_ENTRY_SIZE: Final = 8
TIME_ENTRY_SIZE: Final = 12

# Numbers of C when they are compiled, by the .pxd.
_OFFSET_ENTRY_SIZE: Final = OFFSET_ENTRY_SIZE
_TIME_ENTRY_SIZE: Final = TIME_ENTRY_SIZE
_UNKNOWN: Final = UNKNOWN
_INT32_MAX: Final = INT32_MAX
_NO_TIMESTAMP: Final = NO_TIMESTAMP
_CONTROL_BIT: Final = CONTROL_BIT


class IndexTail:
    """The file of an index, and the entries that are in memory; the base of `SparseIndex`.

    Attributes:
        path: the name of the file.
        base_offset: that of the segment.
        count: number of entries, written out or not.
        _written: how many of them are in the file.
        _last: the last entry as it is in the file; None when there is none, or it was not read yet.

    Its subclasses have the entry's `ENTRY`, a `Struct`, and `FIRST_TYPE`, that of the first
    integers for `array`.
    """

    def __init__(
        self, files: Files, path: str, base_offset: cython.longlong, *, is_new: bool = False
    ) -> None:
        """Use the index file at `path` if it exists; partial entries in it do not count.

        With `is_new` a file there is not looked at: the subclass replaces it.
        """
        self.path = path
        self.base_offset = base_offset
        self._files = files
        self._file: File | None = None if is_new or not files.exists(path) else files.open(path)
        self._written = 0 if self._file is None else self._file.size // self.ENTRY.size  # type: ignore[attr-defined]
        self.count = self._written
        self._first = self._second = NO_ENTRIES
        self._last: tuple[int, int] | None = None

    @property
    def wants_writing(self) -> bool:
        """Whether the tail is long enough for a write."""
        return len(self._first) >= TAIL_ENTRIES_MAX

    def add(self, first: cython.longlong, second: cython.longlong) -> cython.int:
        """Add an entry; returns 0."""
        if not self._first:
            self._first, self._second = array(self.FIRST_TYPE), array("i")  # type: ignore[attr-defined]
        self._first.append(first)
        self._second.append(second)
        self.count += 1
        self._last = (first, second)
        return 0


class CountsEnd:
    """The bucket of the newest records; the base of `TimeCounts`.

    `_fresh` records of the bucket from `_start_ms` to `_end_ms` are not in the buckets yet.
    """

    def __init__(self) -> None:
        """There is no bucket."""
        self._start_ms, self._end_ms, self._fresh = 1, 0, 0


class SegmentEnd:
    """What appends change of a segment; the base of `Segment`, which describes the attributes."""

    def __init__(self, base_offset: int, log: File, offset_index: Any, time_index: Any) -> None:
        """All numbers are unknown if the `log` file is not empty."""
        is_empty = log.size == 0
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.log = log
        self.offset_index = offset_index
        self.time_index = time_index
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = base_offset
        self.min_timestamp = INT64_MAX if is_empty else UNKNOWN_MINIMUM
        self.data_max_timestamp = NO_TIMESTAMP if is_empty else UNKNOWN_MAXIMUM
        self.appended_ms = NO_TIMESTAMP
        self.records = 0
        self.bytes_since_index = 0
        self.roll_jitter_ms = 0
        self.auxiliary: tuple[Any, ...] = ()
        self._first_timestamp: int | None = None
        self._rules: Any = None

    def _forget_first(self) -> cython.int:
        """The first batch is not known, or another one; returns 0."""
        self._first_timestamp = None
        self._rules = None
        return 0

    def _learn(self, rules: Any) -> cython.int:
        """Note the limits that follow from the `RollRules`; returns 0."""
        first_timestamp = self._first_timestamp
        self._index_bytes = rules.index_bytes
        self._size_max, self._newest = -1, 0
        if first_timestamp is not None and first_timestamp >= 0:
            self._size_max = rules.segment_bytes
            newest = first_timestamp + rules.segment_ms - self.roll_jitter_ms
            self._newest = min(newest, INT64_MAX)
            self._rules = rules
        return 0

    def surely_takes(
        self,
        size: cython.longlong,
        last_offset: cython.longlong,
        max_timestamp: cython.longlong,
        rules: Any,
    ) -> cython.bint:
        """Whether a batch may be appended without a look at `storage.segment.rolling`.

        False may mean that a segment has to be started, or that it takes more to decide.
        """
        offset_index: IndexTail = self.offset_index
        time_index: IndexTail = self.time_index
        position: cython.longlong = self.log.size
        if rules is not self._rules:
            self._learn(rules)
        if (
            position == 0
            or position > self._size_max - size
            or max_timestamp > self._newest
            or offset_index.count >= self._index_bytes // _OFFSET_ENTRY_SIZE
            or time_index.count >= self._index_bytes // _TIME_ENTRY_SIZE - 1
            or last_offset - self.base_offset > _INT32_MAX
        ):
            return False
        for index in self.auxiliary:
            if not isinstance(index, CountsEnd) and index.is_full(self._index_bytes):
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
        counts: CountsEnd
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
            self.max_timestamp_offset = last_offset
        if self.bytes_since_index > index_interval:
            self._index(last_offset, position)
            self.bytes_since_index = 0
            is_indexed = True
        for index in self.auxiliary:
            if isinstance(index, CountsEnd):
                counts = index
                if (
                    counts._start_ms <= min_timestamp
                    and timestamp < counts._end_ms
                    and records_count > 0
                    and not batch.attributes & _CONTROL_BIT
                ):
                    counts._fresh += records_count
                    continue
            elif is_indexed:
                index.note_entry(self.max_timestamp, self.max_timestamp_offset)
            index.note_batch(batch, position, min_timestamp)
        self.bytes_since_index += size
        if self.records != _UNKNOWN:
            self.records += records_count
        self.next_offset = last_offset + 1
        return is_indexed

    def _index(self, offset: cython.longlong, position: cython.longlong) -> cython.int:
        """Add the batch at `position`, which ends with `offset`, to both indexes; returns 0."""
        offset_index: IndexTail = self.offset_index
        time_index: IndexTail = self.time_index
        relative: cython.longlong = offset - self.base_offset
        assert 0 <= relative <= _INT32_MAX, f"offset {offset} does not fit base {self.base_offset}"
        last = offset_index._last
        assert last is None or (relative > last[0] and position > last[1]), (
            f"({offset}, {position}) is not above the last entry"
        )
        offset_index.add(relative, position)
        last = time_index._last
        if last is None and time_index.count:
            last = self.time_index.load_last()
        relative = self.max_timestamp_offset - self.base_offset
        if last is None:
            if self.max_timestamp > _NO_TIMESTAMP:
                time_index.add(self.max_timestamp, relative)
            return 0
        assert self.max_timestamp >= last[0], f"timestamp {self.max_timestamp} is below {last[0]}"
        assert relative >= last[1], f"offset {self.max_timestamp_offset} is below the last entry's"
        if self.max_timestamp > last[0]:
            time_index.add(self.max_timestamp, relative)
        return 0
