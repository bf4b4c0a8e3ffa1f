"""The entries of a buffer of log bytes, of any magic, and their records.

Produce, Fetch, recovery and tools share this one walk; the loops are in `entry_loops`. An entry is
a magic 2 batch or a top-level message of magic 0 or 1 (plain or wrapper).

Two ways to stop, for two kinds of bytes: `scan_entries` is for bytes that should be valid (other
bytes are an error), `scan_checked` for a log's tail after a crash (there, the first other bytes end
the log). Both stop quietly where the bytes end inside an entry, since every read has limits.

Source: Kafka `ByteBufferLogInputStream`, `FileLogInputStream`.
"""

from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from protocol.errors import CorruptRecords
from protocol.records import entry_loops
from protocol.records.batch import RecordBatch
from protocol.records.checksums import Buffer, crc32, crc32c
from protocol.records.entry import Entry
from protocol.records.layout import MAGIC_AT, MAGIC_V2
from protocol.records.legacy import Message, decode_message
from protocol.records.record import DECOMPRESSED_BYTES_MAX, Record, decode_batch

__all__ = [
    "CheckedEntries",
    "Entry",
    "Stop",
    "iter_records",
    "scan_checked",
    "scan_entries",
]


class Stop(IntEnum):
    """Why a scan of possibly unsound bytes ended."""

    END = entry_loops.STOP_END
    INCOMPLETE = entry_loops.STOP_INCOMPLETE
    CORRUPT = entry_loops.STOP_CORRUPT


class CheckedEntries(NamedTuple):
    """The valid entries of a chunk of log bytes.

    Attributes:
        entries: in order, each with a valid CRC.
        end_position: the position after the last of them, where reading continues.
        stop: END, or INCOMPLETE (more bytes may complete an entry), or CORRUPT (no bytes can).
    """

    entries: list[Entry]
    end_position: int
    stop: Stop


def scan_entries(buffer: Buffer, start: int = 0, end: int | None = None) -> Iterator[Entry]:
    """The complete entries in `[start, end)`, headers only; CRCs are not looked at.

    Raises:
        CorruptRecords: an entry is impossible: a size below its format's least, or an unknown
            magic. Bytes that end inside an entry end the scan instead.
    """
    stop = len(buffer) if end is None else end
    headers, position, reason = entry_loops.check_entries(buffer, start, stop, None, None)
    yield from map(Entry._make, headers)
    if reason == entry_loops.STOP_CORRUPT:
        raise CorruptRecords(f"no entry can start like the bytes at position {position}")


def scan_checked(buffer: Buffer, start: int = 0, end: int | None = None) -> CheckedEntries:
    """The entries in `[start, end)` up to the first that is not valid.

    Not valid means incomplete, impossible or with a wrong CRC; never raises for such bytes. One
    pass, records are not decoded.
    """
    stop = len(buffer) if end is None else end
    headers, position, reason = entry_loops.check_entries(buffer, start, stop, crc32c, crc32)
    return CheckedEntries([Entry._make(header) for header in headers], position, Stop(reason))


def iter_records(
    buffer: Buffer, position: int = 0, *, max_bytes: int = DECOMPRESSED_BYTES_MAX
) -> Iterator[Record]:
    """The records of the entry at `position`, of any magic, decompressed; CRCs are not checked.

    Raises:
        RecordsError: the entry, its compression or a record is broken. Raised at the first
            record, not midway.
    """
    if len(buffer) - position <= MAGIC_AT:
        raise CorruptRecords(f"{len(buffer) - position} bytes hold no entry")
    if buffer[position + MAGIC_AT] == MAGIC_V2:
        yield from decode_batch(RecordBatch(buffer, position), max_bytes=max_bytes)
    else:
        yield from decode_message(Message(buffer, position), max_bytes=max_bytes)
