"""Reading a whole segment from its first byte: the basis of recovery and index repair.

Owns the rule for the indexes' content when they are rebuilt from the log. The result is the same as
if every batch had been appended one by one. It does not decide what to do with a damaged log: it
reports where the good part ends.

Two ways to read. `SegmentScan` yields every entry. `SegmentDigest`, which recovery uses, rebuilds
the indexes and yields only the entries that other components need, so that it keeps up with the
disk when batches are small. Both read in chunks, one positioned read each.

Source: Kafka `LogSegment.recover`.
"""

import errno
from collections.abc import Generator, Iterator
from typing import Final

from protocol.records.checksums import crc32, crc32c
from protocol.records.entry_loops import (
    STOP_CORRUPT,
    STOP_DISORDER,
    STOP_INCOMPLETE,
    check_entries,
    digest_entries,
)
from protocol.records.layout import INT32_MAX, LOG_OVERHEAD, NO_TIMESTAMP, SIZE_AT
from protocol.records.scan import Entry
from storage.errors import CorruptLog
from storage.segment.facts import UNKNOWN
from storage.segment.remote.log import RemoteLogFile
from storage.segment.remote.object import decode_trailer
from storage.segment.segment import Segment
from values.dataclasses import dataclass

SCAN_CHUNK_BYTES: Final = 1 << 20

_LAST_OFFSET: Final = Entry._fields.index("last_offset")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanEnd:
    """The position where a scan of a segment stopped.

    Attributes:
        valid_bytes: everything before this position is whole and correct.
        damage: why the scan did not reach the end of the file, in words; None if it did.
        next_offset: one above the last offset of the valid part.
    """

    valid_bytes: int
    damage: str | None
    next_offset: int


class _Scan:
    """Iterates over a segment's log in chunks; afterwards `end` is the position it reached."""

    def __init__(self, segment: Segment, *, check_crc: bool) -> None:
        """Prepare to read the log file from its first byte."""
        self._segment = segment
        self._crcs = (crc32c, crc32) if check_crc else (None, None)
        self._position = 0
        self._damage: str | None = None
        self._next_offset = segment.base_offset
        self._data = b""
        self._data_position = 0

    @property
    def end(self) -> ScanEnd:
        """The end of the scan; final once the iteration is over."""
        return ScanEnd(
            valid_bytes=self._position, damage=self._damage, next_offset=self._next_offset
        )

    def bytes_of(self, entry: Entry) -> memoryview:
        """The bytes of the entry that was yielded last, borrowed until the next one."""
        start = entry.position - self._data_position
        return memoryview(self._data)[start : start + entry.size]

    def __iter__(self) -> Iterator[Entry]:
        """Entries in file order, up to the first that is not whole and correct."""
        size = self._segment.size
        chunk_bytes = SCAN_CHUNK_BYTES
        while self._position < size and self._damage is None:
            start = self._position
            self._data = read_exactly(self._segment, min(chunk_bytes, size - start), start)
            self._data_position = start
            stop = yield from self._take_chunk(start)
            assert start <= self._position <= start + len(self._data), "scan left its chunk"
            if stop == STOP_CORRUPT:
                self._damage = self._damage or "an impossible entry or a wrong checksum"
            elif stop == STOP_INCOMPLETE and self._position == start:
                if start + len(self._data) == size:
                    self._damage = self._damage or "an entry that is cut off"
                chunk_bytes *= 2
            else:
                chunk_bytes = SCAN_CHUNK_BYTES

    def _take_chunk(self, start: int) -> Generator[Entry, None, int]:
        """Yield from the chunk at `start`, move the position; returns STOP_*."""
        raise NotImplementedError


class SegmentScan(_Scan):
    """Iterates over the entries of a segment; afterwards `end` is the position it reached.

    Entries come with `position` in the file. With `check_crc` the checksum of each is verified.
    """

    def _take_chunk(self, start: int) -> Generator[Entry, None, int]:
        """All entries of the chunk, as long as offsets rise and fit."""
        heads, _, stop = check_entries(self._data, 0, len(self._data), *self._crcs)
        offset_max = self._segment.base_offset + INT32_MAX
        next_offset, position = self._next_offset, self._position
        for head in heads:
            last_offset = head[_LAST_OFFSET]
            if not next_offset <= last_offset <= offset_max:
                self._damage = f"last offset {last_offset}, expected {next_offset} or more"
                break
            entry = Entry._make((start + head[0], *head[1:])) if start else Entry._make(head)
            yield entry
            next_offset, position = last_offset + 1, entry.position + entry.size
        self._next_offset, self._position = next_offset, position
        return stop


class SegmentDigest(_Scan):
    """Rebuilds the indexes and the numbers of a segment, from its first byte to the first damage.

    Iterate over it to the end. It yields the entries that other components need: those of
    producers, and the first of every leader epoch above the given one. Afterwards `end` is the
    position it reached, and the segment is as if its batches had been appended one by one. The log
    file stays as it is.
    """

    def __init__(
        self, segment: Segment, *, index_interval: int, check_crc: bool, epoch: int = INT32_MAX
    ) -> None:
        """Clear the segment's indexes and numbers."""
        assert not segment.auxiliary, "an auxiliary index would miss the batches that are read"
        super().__init__(segment, check_crc=check_crc)
        self._interval = index_interval
        self._epoch = epoch
        segment.offset_index.clear()
        segment.time_index.clear()
        segment.max_timestamp = NO_TIMESTAMP
        segment.max_timestamp_offset = segment.base_offset
        segment.next_offset = segment.base_offset
        segment.records = 0
        segment.bytes_since_index = 0

    def __iter__(self) -> Iterator[Entry]:
        """The notable entries, in file order."""
        yield from super().__iter__()
        segment = self._segment
        segment.bytes_since_index = 0
        segment.time_index.maybe_append(segment.max_timestamp, segment.max_timestamp_offset)
        segment.offset_index.write_out()
        segment.time_index.write_out()

    def _take_chunk(self, start: int) -> Generator[Entry, None, int]:
        """The notable entries of the chunk, after it was indexed."""
        segment, data = self._segment, self._data
        (
            points,
            notable,
            taken,
            stop,
            segment.next_offset,
            segment.max_timestamp,
            segment.max_timestamp_offset,
            segment.bytes_since_index,
            records,
        ) = digest_entries(
            data,
            len(data),
            self._crcs[0],
            self._crcs[1],
            segment.next_offset,
            segment.base_offset + INT32_MAX,
            segment.max_timestamp,
            segment.max_timestamp_offset,
            segment.bytes_since_index,
            self._interval,
            self._epoch,
        )
        if stop == STOP_DISORDER:
            self._damage = f"offsets that do not follow {segment.next_offset - 1}"
        if records == UNKNOWN or segment.records == UNKNOWN:
            segment.records = UNKNOWN
        else:
            segment.records += records
        self._position, self._next_offset = start + taken, segment.next_offset
        for offset, position, timestamp, timestamp_offset in points:
            segment.offset_index.append(offset, start + position)
            segment.time_index.maybe_append(timestamp, timestamp_offset)
        if segment.offset_index.wants_writing:
            segment.offset_index.write_out()
            segment.time_index.write_out()
        for position in notable:
            size = int.from_bytes(data[position + SIZE_AT : position + LOG_OVERHEAD], "big")
            end = position + LOG_OVERHEAD + size
            ((head,), _, _) = check_entries(data, position, end, None, None)
            yield Entry._make((start + head[0], *head[1:]))
        return stop


def read_exactly(segment: Segment, size: int, position: int) -> bytes:
    """Exactly the given number of bytes of the log file.

    Raises OSError when the file is shorter than it was: no scan has seen that end.
    """
    data = segment.log.pread(size, position)
    if len(data) < size:
        found = f"ends at byte {position + len(data)}, but had {segment.size}"
        raise OSError(errno.EIO, found, segment.log.path)
    return data


def ensure_indexes(segment: Segment, *, index_interval: int) -> str | None:
    """Verify indexes found on disk before their first use; returns the fault of rebuilt ones.

    Raises OSError, or CorruptLog when they need a rebuild and the log is damaged. Those of a remote
    segment come from its object: RemoteBytesNeeded, StoreFailed.
    """
    if segment.indexes_verified:
        return None
    damage = segment.find_index_damage()
    if damage is not None and isinstance(segment.log, RemoteLogFile):
        segment.put_index_files(decode_trailer(segment.log.trailer())[0])
    elif damage is not None:
        rebuild_indexes(segment, index_interval=index_interval)
    segment.indexes_verified = True
    return damage


def rebuild_indexes(segment: Segment, *, index_interval: int) -> bool:
    """Rebuild the offset and the time index of an intact log; whether it has control batches.

    Raises:
        CorruptLog: the log itself is damaged. The indexes then cover the part before the damage.
    """
    scan = SegmentDigest(segment, index_interval=index_interval, check_crc=False)
    has_markers = False
    for entry in scan:
        has_markers = has_markers or entry.is_control
    if scan.end.damage is not None:
        raise CorruptLog(
            segment.log.path,
            position=scan.end.valid_bytes,
            expected="a whole batch",
            found=scan.end.damage,
        )
    return has_markers
