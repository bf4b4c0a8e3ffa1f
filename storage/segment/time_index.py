"""The `.timeindex` file: from a timestamp to an offset before which no record is newer.

| at | size | type  | meaning                                                              |
|----|------|-------|----------------------------------------------------------------------|
| 0  | 8    | int64 | the largest timestamp seen in the segment so far, milliseconds       |
| 8  | 4    | int32 | last offset of the first batch that reached it, minus the base offset |

Timestamps rise strictly, offsets do not fall. Every lookup by time relies on this theorem: **every
record of the segment with a larger timestamp than an entry's lies after the entry's offset.** Hence
the first record with a timestamp of at least T lies after the offset of the last entry below T, or
in its batch; a walk from there over the log finds it.

Records without timestamp (magic 0) add no entry: an index without entries is legal, and carries no
information. Closing a segment adds an entry for its maximum, so that the last entry of a closed
segment is the segment's largest timestamp: retention reads it there.

Source: KIP-33, as shipped; Kafka `TimeIndex`.
"""

from struct import Struct
from typing import ClassVar, NamedTuple

from protocol.records.layout import INT32_MAX, INT64_MAX, NO_TIMESTAMP
from storage.disk.file_names import TIME_INDEX_SUFFIX
from storage.segment.feed import TIME_ENTRY_SIZE
from storage.segment.sparse_index import SparseIndex


class TimestampedOffset(NamedTuple):
    """A running maximum of timestamps and the last offset of the batch that set it."""

    timestamp: int
    offset: int


class TimestampIndex(SparseIndex):
    """A sparse map from timestamps to offsets: what the time index shares with auxiliary ones."""

    __slots__ = ()

    NAME: ClassVar[str]
    """For explanations of lookups."""
    ENTRY: ClassVar[Struct] = Struct(">qi")
    FIRST_TYPE: ClassVar[str] = "q"

    def is_full(self, max_bytes: int) -> bool:
        """Whether an index file of `max_bytes` has room for the closing entry only."""
        return self.count >= max_bytes // TIME_ENTRY_SIZE - 1

    def floor(self, timestamp: int) -> TimestampedOffset:
        """The last entry whose timestamp is not above `timestamp`, or (NO_TIMESTAMP, base offset).

        Every record newer than the entry's timestamp lies after its offset. Cost: one binary
        search, in memory for the newest entries, otherwise by a few positioned reads.
        Source: KIP-33; Kafka `TimeIndex.lookup`.
        """
        count = self._count_up_to(min(timestamp, INT64_MAX))
        return self.entry_at(count - 1) if count else self._nothing()

    def ceiling(self, timestamp: int) -> TimestampedOffset | None:
        """The first entry whose timestamp is `timestamp` or above; None when there is none."""
        slot = self._count_up_to(timestamp - 1)
        return self.entry_at(slot) if slot < self.count else None

    def entry_at(self, slot: int) -> TimestampedOffset:
        """Entry number `slot`, with its offset made absolute."""
        timestamp, relative = self.entry(slot)
        return TimestampedOffset(timestamp, self.base_offset + relative)

    def last(self) -> TimestampedOffset:
        """The last entry, or (NO_TIMESTAMP, base offset) when there is none."""
        return self.entry_at(self.count - 1) if self.count else self._nothing()

    def _nothing(self) -> TimestampedOffset:
        return TimestampedOffset(NO_TIMESTAMP, self.base_offset)


class TimeIndex(TimestampIndex):
    """The map that Kafka's format prescribes; see `SparseIndex` for its lifecycle."""

    __slots__ = ()

    SUFFIX: ClassVar[str] = TIME_INDEX_SUFFIX
    NAME: ClassVar[str] = "timeindex"

    def maybe_append(self, timestamp: int, offset: int) -> bool:
        """Add an entry if `timestamp` is a new maximum; whether it was added.

        Neither may fall below the last entry's. NO_TIMESTAMP is never stored.
        """
        relative = offset - self.base_offset
        last_timestamp, last_relative = self.load_last() or (NO_TIMESTAMP, 0)
        assert 0 <= relative <= INT32_MAX, f"offset {offset} does not fit base {self.base_offset}"
        assert relative >= last_relative, f"offset {offset} is below the last entry's"
        assert timestamp >= last_timestamp, f"timestamp {timestamp} is below {last_timestamp}"
        if timestamp <= last_timestamp:
            return False
        self.add(timestamp, relative)
        return True
