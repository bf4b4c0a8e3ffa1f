"""The `.log` of a segment whose bytes are in an object store only.

Owns the rule for reading it: **a read is answered from bytes that are in memory, or it names the
bytes that are missing.** Storage never waits for a network. A read that lacks bytes raises
`RemoteBytesNeeded` with the object and the range; the caller gets the range elsewhere, adds it by
`RemoteLogFile.keep` and repeats the operation from its start. The operations that can meet such a
file change nothing before they have all bytes, so the repetition is the whole protocol.

    log.read(...)  --RemoteBytesNeeded(file, start, end)-->  broker: one ranged GET in a thread
    log.read(...)  <--file.keep(start, data)---------------  broker: again, in the loop thread

Ranges are forgotten by the owner of the memory (`broker.remote.reads`). It also has them checked by
`find_damage` before it keeps them: one answer with a wrong byte must not stay. Every range begins
with a batch, since that is where readers go on.
"""

from typing import Final, NamedTuple, NoReturn

from protocol.records.checksums import crc32, crc32c
from protocol.records.entry_loops import STOP_CORRUPT, STOP_INCOMPLETE, check_entries
from protocol.records.layout import LOG_OVERHEAD, NO_LEADER_EPOCH, SIZE_AT
from protocol.records.scan import Entry
from storage.disk.files import Bytes
from storage.errors import StorageError
from storage.segment.facts import RemoteObject
from storage.segment.offset_index import OffsetIndex, OffsetRange

RANGE_BYTES_MIN: Final = 64 * 1024
"""The least that a read asks for, if the object has it: a request costs as much as these bytes."""

READ_AHEAD_BYTES: Final = 2 * 1024 * 1024
"""What a reader gets beyond the first bytes that it lacks: those of its next reads."""

RANGE_BYTES_MAX: Final = 16 * 1024 * 1024
"""The most that a read asks for at once, unless one batch is larger."""

_LAST_OFFSET: Final = Entry._fields.index("last_offset")
_LEADER_EPOCH: Final = Entry._fields.index("partition_leader_epoch")


class RangeDamage(NamedTuple):
    """What is wrong with a range, in words.

    It `misleads` where no reader of the records notices it.
    """

    reason: str
    misleads: bool


class RemoteBytesNeeded(StorageError):
    """Bytes of a remote segment are not in memory: get `[start, end)` of the object of `file`."""

    def __init__(self, file: "RemoteLogFile", start: int, end: int) -> None:
        """Remember the range; it lies in the object."""
        super().__init__(f"bytes {start} to {end} of {file.path} are in the object store")
        assert 0 <= start < end <= file.object.object_bytes, f"{file.path}: {start} to {end}"
        self.file = file
        self.start = start
        self.end = end

    def widened(self, max_bytes: int) -> "RemoteBytesNeeded":
        """The need of a reader of `max_bytes`, who will want the bytes after these as well."""
        ahead = min(max(max_bytes, READ_AHEAD_BYTES), RANGE_BYTES_MAX)
        # What follows the log is asked for as it is.
        end = max(self.end, min(self.end + ahead, self.file.size))
        return RemoteBytesNeeded(self.file, self.start, end)


class RemoteLogFile:
    """A `storage.disk.files.File` that is only read, from ranges kept in memory.

    Attributes:
        path: the name that the local file had.
        size: bytes of the log, without what follows it in the object.
        object: where the bytes are.
        offset_index: of the segment, if it is here.
    """

    __slots__ = ("_ranges", "object", "offset_index", "path", "size")

    def __init__(
        self, path: str, where: RemoteObject, offset_index: OffsetIndex | None = None
    ) -> None:
        """No byte is in memory."""
        self.path = path
        self.size = where.log_bytes
        self.object = where
        self.offset_index = offset_index
        self._ranges: dict[int, bytes] = {}

    def pread(self, size: int, position: int) -> bytes:
        """See `File.pread`. Raises RemoteBytesNeeded."""
        end = min(position + size, self.size)
        if end <= position:
            return b""
        data = self._find(position, end)
        if data is None:
            least = min(self.size, position + self._least_bytes(position))
            raise RemoteBytesNeeded(self, position, max(end, least))
        return data

    def _least_bytes(self, position: int) -> int:
        """How much to ask for from `position` on: twice the range that has ended there."""
        ended = (len(d) for at, d in self._ranges.items() if at <= position <= at + len(d))
        return min(max(RANGE_BYTES_MIN, 2 * max(ended, default=0)), RANGE_BYTES_MAX)

    def require(self, start: int, end: int) -> None:
        """Make sure that the next reads in `[start, end)` are answered, or raise RemoteBytesNeeded.

        `end` is cut at the log's end.
        """
        end = min(end, self.size)
        if start < end and self._find(start, end) is None:
            raise RemoteBytesNeeded(self, start, end)

    def trailer(self) -> bytes:
        """What follows the log in the object. Raises RemoteBytesNeeded."""
        end = self.object.object_bytes
        data = self._find(self.size, end)
        if data is None:
            raise RemoteBytesNeeded(self, self.size, end)
        return data

    def landmarks(self, start: int, end: int) -> dict[int, OffsetRange]:
        """What `find_damage` compares `[start, end)` with. Raises OSError."""
        index = self.offset_index
        return {} if index is None or not index.count else index.ends_between(start, end)

    def find_damage(
        self, start: int, data: bytes, landmarks: dict[int, OffsetRange]
    ) -> RangeDamage | None:
        """Why these are not the bytes of the log from `start` on; None if they may be.

        Whole batches have their checksums and ascending offsets of this segment. The checksum does
        not cover where a batch begins, so batches that the index names are compared with it, too,
        and leader epochs with that of the upload. What follows the log has a checksum of its own.
        Any thread may call it.
        """
        size = min(len(data), self.size - start)
        if size <= 0:
            return None
        heads, position, stop = check_entries(data, 0, size, crc32c, crc32)
        next_offset = self.object.base_offset
        for head in heads:
            where, last_offset, epoch = start + head[0], head[_LAST_OFFSET], head[_LEADER_EPOCH]
            known = landmarks.get(where)
            if not next_offset <= last_offset < self.object.next_offset or (
                known is not None and not known.lowest <= last_offset <= known.highest
            ):
                reason = f"the batch at byte {where} has a wrong offset, {last_offset}"
                return RangeDamage(reason, misleads=True)
            if not NO_LEADER_EPOCH <= epoch <= self.object.epoch:
                reason = f"the batch at byte {where} has a wrong leader epoch, {epoch}"
                return RangeDamage(reason, misleads=False)
            next_offset = last_offset + 1
        is_cut = stop == STOP_INCOMPLETE and self._cannot_end(
            start + position, memoryview(data)[position:size]
        )
        if stop == STOP_CORRUPT or is_cut:
            reason = f"the batch at byte {start + position} has a wrong checksum or head"
            return RangeDamage(reason, misleads=False)
        return None

    def _cannot_end(self, position: int, begin: memoryview) -> bool:
        """Whether a batch at `position`, of which `begin` is here, is longer than the log."""
        least = len(begin) + 1
        if len(begin) >= LOG_OVERHEAD:
            least = LOG_OVERHEAD + int.from_bytes(begin[SIZE_AT:LOG_OVERHEAD])
        return position + least > self.size

    def keep(self, start: int, data: bytes) -> None:
        """Keep these bytes of the object in memory."""
        self._ranges[start] = data

    def forget(self, start: int) -> None:
        """Drop the bytes that were kept from `start` on."""
        self._ranges.pop(start, None)

    def _find(self, start: int, end: int) -> bytes | None:
        for at, data in self._ranges.items():
            if at <= start and end <= at + len(data):
                return data[start - at : end - at]
        return None

    def close(self) -> None:
        """See `File.close`: no descriptor is open, the memory is given back."""
        self._ranges.clear()

    def append(self, data: Bytes) -> NoReturn:
        """A remote segment is closed for good."""
        raise AssertionError(f"append of {len(data)} bytes to the remote segment {self.path}")

    def truncate(self, size: int) -> NoReturn:
        """A remote segment is closed for good."""
        raise AssertionError(f"truncate the remote segment {self.path} to {size} bytes")

    def pin(self) -> NoReturn:
        """A remote segment has no local file to read in another thread."""
        raise AssertionError(f"pin of the remote segment {self.path}")

    def unpin(self) -> NoReturn:
        """See `pin`."""
        self.pin()

    def begin_sync(self) -> NoReturn:
        """A remote segment has no unsynced byte."""
        raise AssertionError(f"sync of the remote segment {self.path}")

    def sync(self) -> NoReturn:
        """See `begin_sync`."""
        raise AssertionError(f"sync of the remote segment {self.path}")

    def end_sync(self, mark: int | None) -> NoReturn:
        """See `begin_sync`."""
        raise AssertionError(f"sync of the remote segment {self.path}: {mark}")
