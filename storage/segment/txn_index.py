"""The `.txnindex` file: the aborted transactions, for readers of committed records.

| at | size | type  | meaning                                                            |
|----|------|-------|--------------------------------------------------------------------|
| 0  | 2    | int16 | version, 0                                                         |
| 2  | 8    | int64 | producer id                                                        |
| 10 | 8    | int64 | first offset of the transaction                                    |
| 18 | 8    | int64 | last offset: the abort marker's                                    |
| 26 | 8    | int64 | last stable offset when the marker was written                     |

Entries are in the segment that holds the abort marker; last offsets strictly rise. Most segments
have no such file: the first abort creates it. Entries are written to the file at once, because they
are few and a reader needs all of a segment's.

The last stable offset of an entry shows a reader when it may stop: every transaction that is
aborted later began at or after it.

Source: KIP-98; Kafka `TransactionIndex`, `AbortedTxn`.
"""

from bisect import bisect_left
from collections.abc import Iterator
from struct import Struct
from typing import ClassVar, Final, NamedTuple

from storage.disk.file_names import TXN_INDEX_SUFFIX
from storage.disk.files import File, Files

ENTRY: Final = Struct(">hqqqq")
VERSION: Final = 0


class AbortedTxn(NamedTuple):
    """An aborted transaction; offsets are inclusive."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TxnIndex:
    """The aborted transactions of one segment. One writer, which also reads."""

    __slots__ = ("_file", "_files", "base_offset", "path")

    SUFFIX: ClassVar[str] = TXN_INDEX_SUFFIX

    def __init__(self, files: Files, path: str, base_offset: int, *, is_new: bool = False) -> None:
        """Use the file at `path` if it exists; with `is_new` it does not."""
        self.path = path
        self.base_offset = base_offset
        self._files = files
        self._file: File | None = None if is_new or not files.exists(path) else files.open(path)

    @property
    def file(self) -> File | None:
        """The file, for syncing; None while nothing was aborted in the segment."""
        return self._file

    @property
    def count(self) -> int:
        """Number of entries."""
        return 0 if self._file is None else self._file.size // ENTRY.size

    def append(self, txn: AbortedTxn) -> None:
        """Add a transaction whose marker was just written. Raises OSError."""
        assert txn.first_offset <= txn.last_offset, f"transaction ends before it begins: {txn}"
        assert txn.last_offset >= self.base_offset, f"transaction ends before the segment: {txn}"
        if self._file is None:
            self._file = self._files.create(self.path)
        self._file.append(ENTRY.pack(VERSION, *txn))

    def read_from(self, offset: int) -> Iterator[AbortedTxn]:
        """The entries whose last offset is `offset` or above, ascending."""
        if self._file is None:
            return
        count = self.count
        data = self._file.pread(count * ENTRY.size, 0)
        first = bisect_left(
            range(count), offset, key=lambda slot: ENTRY.unpack_from(data, slot * ENTRY.size)[3]
        )
        for fields in ENTRY.iter_unpack(data[first * ENTRY.size : count * ENTRY.size]):
            yield AbortedTxn(*fields[1:])

    def find_damage(self) -> str | None:
        """The fault of the file, in words, or None. Reads all of it."""
        if self._file is None:
            return None
        if self._file.size % ENTRY.size:
            return f"its size {self._file.size} is not a multiple of {ENTRY.size}"
        last = self.base_offset - 1
        for version, _, first_offset, last_offset, _ in ENTRY.iter_unpack(
            self._file.pread(self._file.size, 0)
        ):
            if version != VERSION or last_offset <= last or first_offset > last_offset:
                return f"entry ({first_offset}, {last_offset}) version {version} after {last}"
            last = last_offset
        return None

    def clear(self) -> None:
        """Remove all entries, also from the file."""
        if self._file is not None and self._file.size:
            self._file.truncate(0)

    def move_to(self, path: str) -> None:
        """Rename the file; it stays open. Raises OSError."""
        self.path = path
        if self._file is not None:
            self._files.rename_open(self._file, path)

    def close(self) -> None:
        """Close the descriptor."""
        if self._file is not None:
            self._file.close()
