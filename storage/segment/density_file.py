"""The `.density` file: the entries of a density variant, and a seal that says what they cover.

| part    | size | fields                                                                          |
|---------|------|---------------------------------------------------------------------------------|
| header  | 28   | `TLDX`, version i8 = 1, variant i8, 0 i16, interval ms i64, carried ms i64, crc |
| entries | 12   | timestamp i64, offset minus base i32: the entry of KIP-33's drafts              |
| seal    | 40   | `TLDS`, entries u32, log size i64, next offset i64, largest timestamp i64,      |
|         |      | CRC-32C of header and entries u32, CRC-32C of the seal u32                      |

The header stores the rule by which the entries were made, because the setting may have changed
since. The seal stores what they cover. It is written when the segment is closed or the log stops
cleanly, and cut off by the first write after that. A file is trusted only if it has a seal,
everything in it is correct, and the log still has the size, the end and the maximum in the seal. A
file that is not trusted is rebuilt (`storage.log.density_upkeep`): it contains nothing that cannot
be derived from the log and the time index.

Owns the bytes; `storage.segment.density` owns the meaning of entries. Integers are big-endian.

Differs from Kafka: it has no such files, and ignores them. It would not ignore the draft's name
`<base>.time.index`: its tools take the last part for that of an offset index.

Source: KIP-33 drafts. Read next: `storage.segment.density`.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple

from protocol.records.checksums import crc32c
from storage.disk.files import File, Files

MAGIC: Final = b"TLDX"
SEAL_MAGIC: Final = b"TLDS"
VERSION: Final = 1

HEADER: Final = Struct(">4sbbhqqI")
ENTRY: Final = Struct(">qi")
SEAL: Final = Struct(">4sIqqqII")

_CRC_SIZE: Final = 4
_BLOCK_ENTRIES: Final = 512
"""A search stops halving at this many entries and reads them at once."""


class DamagedDensity(Exception):
    """The file differs from what was sealed, or does not belong to the current log."""


class Coverage(NamedTuple):
    """The state of a segment's log when its entries were complete."""

    size_bytes: int
    next_offset: int
    max_timestamp: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DensityHeader:
    """The rule by which a file was made.

    Attributes:
        variant: the number of the rule; see `storage.segment.density.Variant`.
        interval_ms: the width of a bucket.
        carried_ms: the largest timestamp of the log before the segment, or NO_TIMESTAMP.
    """

    variant: int
    interval_ms: int
    carried_ms: int

    def encode(self) -> bytes:
        """The first bytes of the file."""
        body = HEADER.pack(MAGIC, VERSION, self.variant, 0, self.interval_ms, self.carried_ms, 0)[
            :-_CRC_SIZE
        ]
        return body + crc32c(body).to_bytes(_CRC_SIZE, "big")


@dataclass(frozen=True, slots=True, kw_only=True)
class DensityContent:
    """A whole file, its checksums verified; `coverage` is None when it has no seal."""

    header: DensityHeader
    entries: bytes
    coverage: Coverage | None


def parse_density(content: bytes) -> DensityContent:
    """Parse the content of a file.

    Raises:
        DamagedDensity: it is too short, of another version, cut off, or a checksum is wrong.
    """
    if len(content) < HEADER.size:
        raise DamagedDensity(f"{len(content)} bytes are no header")
    magic, version, variant, _, interval_ms, carried_ms, crc = HEADER.unpack_from(content)
    if magic != MAGIC or crc != crc32c(content[: HEADER.size - _CRC_SIZE]):
        raise DamagedDensity("the header is damaged")
    if version != VERSION:
        raise DamagedDensity(f"version {version} is not known")
    header = DensityHeader(variant=variant, interval_ms=interval_ms, carried_ms=carried_ms)
    body = content[HEADER.size :]
    if len(body) < SEAL.size or not body[-SEAL.size :].startswith(SEAL_MAGIC):
        return DensityContent(
            header=header, entries=body[: len(body) - len(body) % ENTRY.size], coverage=None
        )
    entries, seal = body[: -SEAL.size], body[-SEAL.size :]
    _, count, size_bytes, next_offset, max_timestamp, entries_crc, seal_crc = SEAL.unpack(seal)
    if seal_crc != crc32c(seal[:-_CRC_SIZE]):
        raise DamagedDensity("the seal is damaged")
    if count * ENTRY.size != len(entries) or entries_crc != crc32c(content[: -SEAL.size]):
        raise DamagedDensity("the entries are not those that were sealed")
    return DensityContent(
        header=header,
        entries=entries,
        coverage=Coverage(size_bytes, next_offset, max_timestamp),
    )


class DensityFile:
    """The file of one segment; one writer, which also reads. No file exists before the first write.

    Attributes:
        path: its name.
        header: the rule that its entries follow.
        count: entries in the file.
        file: the open file, for syncing and renaming; None while there is none.
    """

    __slots__ = (
        "_crc",
        "_end",
        "_files",
        "_is_torn",
        "_sealed",
        "count",
        "file",
        "header",
        "path",
    )

    def __init__(self, files: Files, path: str, header: DensityHeader) -> None:
        """A file that is yet to be written; the first write removes one of the same name."""
        self.path = path
        self.header = header
        self.count = 0
        self.file: File | None = None
        self._files = files
        self._end = 0
        self._crc = 0
        self._is_torn = False
        self._sealed: Coverage | None = None

    @classmethod
    def load(cls, files: Files, path: str, coverage: Coverage) -> "DensityFile":
        """The file at `path`, verified as a whole and against the log's `coverage`.

        Raises:
            DamagedDensity: it must not be trusted.
            OSError: it cannot be read.
        """
        file = files.open(path)
        try:
            content = parse_density(file.pread(file.size, 0))
            if content.coverage != coverage:
                raise DamagedDensity(f"it covers {content.coverage}, the log is {coverage}")
        except BaseException:
            file.close()
            raise
        loaded = cls(files, path, content.header)
        loaded.file = file
        loaded.count = len(content.entries) // ENTRY.size
        loaded._end = HEADER.size + len(content.entries)
        loaded._crc = crc32c(content.entries, crc32c(content.header.encode()))
        loaded._sealed = coverage
        return loaded

    @property
    def size_bytes(self) -> int:
        """Bytes on disk, the seal included."""
        return 0 if self.file is None else self.file.size

    def append(self, entries: bytes) -> None:
        """Add whole entries; a seal is cut off first.

        Raises OSError; the file then counts as before, and the next call writes the same place.
        """
        data = entries if self._end else self.header.encode() + entries
        self._sealed = None
        self._write(data)
        self._crc = crc32c(data, self._crc)
        self._end += len(data)
        self.count += len(entries) // ENTRY.size

    def seal(self, coverage: Coverage) -> None:
        """Store that the entries are complete for a log in this state. Raises OSError."""
        if self._sealed == coverage:
            return
        if not self._end:
            self.append(b"")
        body = SEAL.pack(SEAL_MAGIC, self.count, *coverage, self._crc, 0)[:-_CRC_SIZE]
        self._write(body + crc32c(body).to_bytes(_CRC_SIZE, "big"))
        self._sealed = coverage

    def entry(self, slot: int) -> tuple[int, int]:
        """(timestamp, relative offset) of entry number `slot`. Raises OSError."""
        timestamp, relative = ENTRY.unpack(self._pread(slot, 1))
        return timestamp, relative

    def count_up_to(self, timestamp: int) -> int:
        """The number of entries not above `timestamp`, if they rise. Raises OSError."""
        low, high = 0, self.count
        while high - low > _BLOCK_ENTRIES:
            middle = (low + high) // 2
            if self.entry(middle)[0] <= timestamp:
                low = middle + 1
            else:
                high = middle
        block = self._pread(low, high - low)
        return low + bisect_right(
            range(high - low),
            timestamp,
            key=lambda slot: ENTRY.unpack_from(block, slot * ENTRY.size)[0],
        )

    def entries(self) -> Iterator[tuple[int, int]]:
        """All entries in the file's order, read in blocks. Raises OSError."""
        for slot in range(0, self.count, _BLOCK_ENTRIES):
            yield from ENTRY.iter_unpack(self._pread(slot, min(_BLOCK_ENTRIES, self.count - slot)))

    def close(self) -> None:
        """Close the descriptor."""
        if self.file is not None:
            self.file.close()

    def _write(self, data: bytes) -> None:
        """Write `data` after the entries; the file is cut to them first, or created."""
        if self.file is None:
            if self._files.exists(self.path):
                self._files.unlink(self.path)
            self.file = self._files.create(self.path)
        if self._is_torn or self.file.size != self._end:
            self.file.truncate(self._end)
        self._is_torn = True
        self.file.append(data)
        self._is_torn = False

    def _pread(self, slot: int, count: int) -> bytes:
        if not count:
            return b""
        assert self.file is not None, "read from a density index that has no file"
        data = self.file.pread(count * ENTRY.size, HEADER.size + slot * ENTRY.size)
        if len(data) != count * ENTRY.size:
            raise OSError(f"{self.path} ends within entry {slot + len(data) // ENTRY.size}")
        return data
