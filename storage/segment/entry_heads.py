"""Walking over the entries of a log file by their heads alone: offsets, sizes, timestamps.

Owns the step from one entry to the next in a *file*, for all three message formats, without reading
the records between. Refuses to know records (`protocol.records.scan`) and indexes.

    position                     position + size
    | offset | size | ... magic ... max timestamp | records      | next entry

A walk reads the file in small blocks and jumps over the bytes that it does not need. Finding a
batch in an index interval costs one or two positioned reads, whatever the size of the batches.

For magic 0 and 1 an entry is a message and its offset field is the *last* offset in it (for a
compressed wrapper: that of the last inner message). So `base_offset` is a true first offset only
for magic 2. Everything here decides by last offsets.

Source: Kafka `FileLogInputStream`.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final

from protocol.records.entry import Entry
from protocol.records.entry_loops import entry_head, find_entry
from protocol.records.layout import (
    BATCH_OVERHEAD,
    INT64_MIN,
    LOG_OVERHEAD,
    MAGIC_AT,
    MAGIC_V2,
    V0_MIN_SIZE,
)
from storage.disk.files import File
from storage.errors import CorruptLog

WALK_BLOCK_BYTES: Final = 4096
"""How much a walk reads at a time."""

_PREFIX_BYTES: Final = 17
_FRAME: Final = Struct(">qi")


class HeadWalk:
    """Reads heads from a log file; remembers the last block and counts the bytes read.

    A head is an `Entry` whose position counts from the start of the file. A batch that compaction
    left without records has no timestamp here, whatever its head contains: no lookup can find a
    record in it.

    Short-lived: made for one search and thrown away. `end` bounds the walk (exclusive).
    """

    __slots__ = ("_block", "_block_position", "_file", "bytes_read", "end")

    def __init__(self, file: File, end: int) -> None:
        """Walk over `file` up to position `end`, which is a boundary between entries."""
        self.end = end
        self.bytes_read = 0
        self._file = file
        self._block = b""
        self._block_position = 0

    def head(self, position: int) -> Entry:
        """The head of the entry at `position`.

        Raises:
            CorruptLog: there is no whole entry of a known format at this position.
        """
        at = position - self._block_position
        left = self.end - position
        if left < _PREFIX_BYTES:
            raise self.corrupt(position, f"{_PREFIX_BYTES} bytes at least", f"{max(left, 0)}")
        if at < 0 or at + min(BATCH_OVERHEAD, left) > len(self._block):
            self._load(position)
            at = 0
        magic = self._block[at + MAGIC_AT]
        _, size = _FRAME.unpack_from(self._block, at)
        if magic > MAGIC_V2:
            raise self.corrupt(position, f"magic 0 to {MAGIC_V2}", f"{magic}")
        least = BATCH_OVERHEAD - LOG_OVERHEAD if magic == MAGIC_V2 else V0_MIN_SIZE + 8 * magic
        if size < least or size + LOG_OVERHEAD > left:
            raise self.corrupt(position, f"a size from {least} to {left - LOG_OVERHEAD}", f"{size}")
        return Entry._make(entry_head(self._block, at, position))

    def heads(self, position: int) -> Iterator[Entry]:
        """The heads from the entry at `position` to the end of the walk."""
        while position < self.end:
            head = self.head(position)
            yield head
            position += head.size

    def find(self, position: int, *, offset: int, timestamp: int = INT64_MIN) -> Entry | None:
        """The first entry from `position` on that ends at `offset` or later and is new enough.

        New enough: its head's max timestamp is `timestamp` (ms) or above.

        Raises:
            CorruptLog: an entry before the hit is damaged.
        """
        while position < self.end:
            head = self.head(position)
            if head.last_offset >= offset and head.max_timestamp >= timestamp:
                return head
            position += head.size
            at = position - self._block_position
            if at < len(self._block):
                # The compiled loop handles the whole entries in the block. The one it stops at is
                # the hit, is cut off by the block's end, or is damaged: `head` decides.
                hit, _ = find_entry(self._block, at, len(self._block), offset, timestamp)
                position = self._block_position + hit
        return None

    def entry(self, head: Entry) -> bytes:
        """All bytes of an entry whose head was read."""
        at = head.position - self._block_position
        if at >= 0 and at + head.size <= len(self._block):
            return self._block[at : at + head.size]
        data = self._file.pread(head.size, head.position)
        self.bytes_read += len(data)
        if len(data) != head.size:
            raise self.corrupt(head.position, f"{head.size} bytes", f"{len(data)}")
        return data

    def _load(self, position: int) -> None:
        size = min(WALK_BLOCK_BYTES, self.end - position)
        self._block = self._file.pread(size, position)
        self._block_position = position
        self.bytes_read += len(self._block)
        if len(self._block) != size:
            raise self.corrupt(position, f"{size} bytes", f"{len(self._block)}")

    def corrupt(self, position: int, expected: str, found: str) -> CorruptLog:
        """The error for the bytes found at a position of this file."""
        return CorruptLog(self._file.path, position=position, expected=expected, found=found)
