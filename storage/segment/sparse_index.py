"""A file of fixed-size pairs in ascending order, searched by floor: the base of index kinds.

Owns the bytes of one index file: `count` entries of two big-endian integers, nothing before,
between or after them. The subclass defines the meaning of an entry (`OffsetIndex`, `TimeIndex`). A
subclass for which Kafka has no format may frame the entries (an auxiliary index).

    file:    |key|value|key|value| ... |key|value|         entries [0, written)
    memory:                              key, value, ...   entries [written, count): the tail

New entries gather in memory and are written out some hundreds at a time. So an append costs no
second system call, and an idle partition keeps no index in memory. Searches use the tail first and
the file otherwise: a binary search by positioned reads that ends with one block.

An index is a cache of its log: it has no checksum and no durability. A caller that opens one from
an earlier run calls `find_disorder` first, and rebuilds the index from the log when the answer is
not None. A crash may lose the tail, or leave a partly written file. Both are found that way, or
recovery rebuilds the index without a check.

Differs from Kafka: files hold exactly their entries while in use (Kafka pads them to
`segment.index.bytes` until the segment is closed). Kafka reads such files.

Source: Kafka `AbstractIndex`.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import ClassVar, Final

from protocol.records.checksums import crc32c
from storage.disk.files import File
from storage.segment.feed import NO_ENTRIES, IndexTail

_BLOCK_ENTRIES: Final = 512
"""A search in the file stops halving at this many entries and reads them at once."""

_CHECK_BYTES: Final = 1 << 16


class SparseIndex(IndexTail):
    """Ascending pairs in a file; one writer, which also reads.

    Lifecycle: `Segment` opens, writes out and closes it. Without a file on disk it starts empty and
    creates the file when there is something to write. Nothing in the tail survives a crash.
    """

    __slots__ = ()

    SUFFIX: ClassVar[str]
    ENTRY: ClassVar[Struct]
    FIRST_TYPE: ClassVar[str]

    @property
    def size_bytes(self) -> int:
        """Bytes of all entries, written out or not."""
        return self.count * self.ENTRY.size

    @property
    def file(self) -> File | None:
        """The file, for syncing; None while nothing was written out."""
        return self._file

    @property
    def exists(self) -> bool:
        """Whether there is a file on disk."""
        return self._file is not None

    def entry(self, slot: int) -> tuple[int, int]:
        """The two integers of entry `slot` (0 up to `count`, exclusive) as they are in the file."""
        assert 0 <= slot < self.count, f"slot {slot} of {self.count}"
        if slot >= self._written:
            tail_slot = slot - self._written
            return self._first[tail_slot], self._second[tail_slot]
        size = self.ENTRY.size
        first, second = self.ENTRY.unpack(self._pread(size, slot * size))
        return first, second

    def entries(self) -> Iterator[tuple[int, int]]:
        """All entries as they are in the file, in order, read in blocks. Raises OSError."""
        for slot in range(0, self.count, _BLOCK_ENTRIES):
            yield from self.block(slot, min(slot + _BLOCK_ENTRIES, self.count))

    def block(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The entries `[start, end)` as they are in the file, from one read. Raises OSError."""
        size, written = self.ENTRY.size, self._written
        if start < (stop := min(end, written)):
            yield from self.ENTRY.iter_unpack(self._pread((stop - start) * size, start * size))
        tail = slice(max(start - written, 0), max(end - written, 0))
        yield from zip(self._first[tail], self._second[tail], strict=True)

    def load_last(self) -> tuple[int, int] | None:
        """The last entry as it is in the file, or None; kept in memory from the first call on.

        Called before the first append, so that no append has to read. Raises OSError.
        """
        if self._last is None and self.count:
            self._last = self.entry(self.count - 1)
        return self._last

    def write_out(self) -> None:
        """Write the tail to the file, which is created if necessary, also when there is no entry.

        Raises OSError; the tail is still in memory then, and the next call tries again.
        """
        if self._file is None:
            self._file = self._files.create(self.path)
        end = self._written * self.ENTRY.size
        if self._file.size != end:
            # A partial entry from before, or from a write that failed half-way.
            self._file.truncate(end)
        if not self._first:
            return
        self._file.append(self._encode_tail())
        self._forget_tail()
        assert self._file.size == self.size_bytes, f"{self.path} has other bytes than entries"

    def clear(self) -> None:
        """Remove all entries, also from the file."""
        self._last = None
        self.count = 0
        self._first = self._second = NO_ENTRIES
        if self._written:
            assert self._file is not None, "entries are written to a file"
            self._written = 0
            self._file.truncate(0)

    def move_to(self, path: str) -> None:
        """Rename the file; it stays open. Raises OSError."""
        self.path = path
        if self._file is not None:
            self._files.rename_open(self._file, path)

    def close(self) -> None:
        """Close the descriptor; entries not written out are gone."""
        if self._file is not None:
            self._file.close()

    def checksum(self, crc: int = 0) -> int:
        """CRC-32C of the entries, after that of other bytes. The tail has to be written out."""
        assert not self._first, "checksum of an index with a tail in memory"
        end = self._written * self.ENTRY.size
        for position in range(0, end, _CHECK_BYTES):
            crc = crc32c(self._pread(min(_CHECK_BYTES, end - position), position), crc)
        return crc

    def find_disorder(self) -> str | None:
        """The disorder in the file, in words, or None. Reads all of it.

        The first integers must strictly rise; the second ones of this entry kind must not fall.
        """
        if self._file is not None and self._file.size % self.ENTRY.size:
            return f"its size {self._file.size} is not a multiple of {self.ENTRY.size}"
        last_first, last_second = self._floor_of_first(), 0
        size = self.ENTRY.size
        step = _CHECK_BYTES // size * size
        for position in range(0, self._written * size, step):
            block = self._pread(min(step, self._written * size - position), position)
            for first, second in self.ENTRY.iter_unpack(block):
                if first <= last_first or second < last_second:
                    return (
                        f"entry ({first}, {second}) follows ({last_first}, {last_second}) "
                        f"in the block at byte {position}"
                    )
                last_first, last_second = first, second
        return None

    def _floor_of_first(self) -> int:
        """A value below every legal first integer."""
        return -1

    def _forget_tail(self) -> None:
        """The tail was written to the file."""
        self._written += len(self._first)
        self._first = self._second = NO_ENTRIES

    def _encode_tail(self) -> bytes:
        pairs: list[int] = [0] * (2 * len(self._first))
        pairs[0::2] = self._first
        pairs[1::2] = self._second
        return Struct(">" + self.ENTRY.format[1:] * len(self._first)).pack(*pairs)

    def _pread(self, size: int, position: int) -> bytes:
        assert self._file is not None, "read from an index that has no file"
        data = self._file.pread(size, position)
        if len(data) != size:
            raise OSError(f"{self.path} ends at byte {position + len(data)}, but has entries after")
        return data

    def slots_to(self, bound: int) -> list[int]:
        """The slots at which the search for `bound` looks, in order: for explanations."""
        visited: list[int] = []
        self._count_up_to(bound, visited)
        return visited

    def _count_up_to(self, bound: int, visited: list[int] | None = None) -> int:
        """The number of entries with a first integer of at most `bound`: the floor is the last.

        Adds the slots that it looks at to `visited`.
        """
        tail: Sequence[int] = self._first
        if not self._written or (tail and tail[0] <= bound):
            if visited is None:
                return self._written + bisect_right(tail, bound)

            def in_tail(slot: int) -> int:
                visited.append(self._written + slot)
                return tail[slot]

            return self._written + bisect_right(range(len(tail)), bound, key=in_tail)
        size = self.ENTRY.size
        low, high = 0, self._written
        while high - low > _BLOCK_ENTRIES:
            middle = (low + high) // 2
            if visited is not None:
                visited.append(middle)
            if self.ENTRY.unpack(self._pread(size, middle * size))[0] <= bound:
                low = middle + 1
            else:
                high = middle
        block = self._pread((high - low) * size, low * size)
        unpack_from = self.ENTRY.unpack_from

        def first_of(slot: int) -> int:
            if visited is not None:
                visited.append(low + slot)
            first: int = unpack_from(block, slot * size)[0]
            return first

        return low + bisect_right(range(high - low), bound, key=first_of)
