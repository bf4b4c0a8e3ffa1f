"""The `.index` file: from an offset to a position in the log at or before it.

| at | size | type  | meaning                                                     |
|----|------|-------|-------------------------------------------------------------|
| 0  | 4    | int32 | last offset of a batch, minus the segment's base offset     |
| 4  | 4    | int32 | position of that batch's first byte in the `.log`           |

Both ascend strictly. Readers rely on this theorem: the batch at an entry's position ends at the
entry's offset. So a reader that looks for offset o and starts at the position of the last entry not
above o finds it by walking forward over at most one index interval.

Source: Kafka `OffsetIndex`.
"""

from bisect import bisect_left
from struct import Struct
from typing import ClassVar, NamedTuple

from protocol.records.layout import INT32_MAX
from storage.disk.file_names import OFFSET_INDEX_SUFFIX
from storage.segment.feed import OFFSET_ENTRY_SIZE
from storage.segment.sparse_index import SparseIndex


class OffsetPosition(NamedTuple):
    """An offset and the position of the batch that ends with it."""

    offset: int
    position: int


class OffsetIndex(SparseIndex):
    """The sparse map from offsets to positions; see `SparseIndex` for its lifecycle."""

    __slots__ = ()

    SUFFIX: ClassVar[str] = OFFSET_INDEX_SUFFIX
    ENTRY: ClassVar[Struct] = Struct(">ii")
    FIRST_TYPE: ClassVar[str] = "i"

    def append(self, offset: int, position: int) -> None:
        """Add the batch that ends with `offset` and starts at `position`; both must be new maxima.

        No check for a full index here: the segment rolls before (see `is_full`).
        """
        relative = offset - self.base_offset
        assert 0 <= relative <= INT32_MAX, f"offset {offset} does not fit base {self.base_offset}"
        last = self._last
        assert last is None or relative > last[0], f"offset {offset} is not above the last entry's"
        assert last is None or position > last[1], f"position {position} is not above {last[1]}"
        self.add(relative, position)

    def is_full(self, max_bytes: int) -> bool:
        """Whether an index file of `max_bytes` (`segment.index.bytes`) has no more room."""
        return self.count >= max_bytes // OFFSET_ENTRY_SIZE

    def floor(self, offset: int) -> OffsetPosition:
        """The last entry whose offset is not above `offset`, or (base offset, 0).

        The batch there, or one after it, is the first that can hold `offset` or come after it.
        Source: Kafka `OffsetIndex.lookup`.
        """
        relative = offset - self.base_offset
        count = self._count_up_to(min(relative, INT32_MAX))
        return self.entry_at(count - 1) if count else OffsetPosition(self.base_offset, 0)

    def above(self, offset: int) -> OffsetPosition | None:
        """The first entry whose offset is above `offset`; None when there is none."""
        slot = self._count_up_to(min(offset - self.base_offset, INT32_MAX))
        return self.entry_at(slot) if slot < self.count else None

    def entry_at(self, slot: int) -> OffsetPosition:
        """Entry number `slot`, with its offset made absolute."""
        relative, position = self.entry(slot)
        return OffsetPosition(self.base_offset + relative, position)

    def between(self, start: int, end: int) -> list[OffsetPosition]:
        """The entries for `[start, end)` of the log, the two before and the one after them.

        Raises OSError.
        """

        def position_of(slot: int) -> int:
            return self.entry(slot)[1]

        slots = range(self.count)
        first, after = (bisect_left(slots, at, key=position_of) for at in (start, end))
        base = self.base_offset
        return [
            OffsetPosition(base + relative, position)
            for relative, position in self.block(max(0, first - 2), min(after + 1, self.count))
        ]

    def last(self) -> OffsetPosition:
        """The last entry, or (base offset, 0) when there is none."""
        return self.entry_at(self.count - 1) if self.count else OffsetPosition(self.base_offset, 0)
