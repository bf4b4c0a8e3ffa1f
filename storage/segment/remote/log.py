"""The `.log` of a segment whose bytes are in an object store only.

Owns the rule for reading it: **a read is answered from bytes that are in memory, or it names the
bytes that are missing.** Storage never waits for a network. A read that lacks bytes raises
`RemoteBytesNeeded` with the object and the range; the caller gets the range elsewhere, adds it by
`RemoteLogFile.keep` and repeats the operation from its start. The operations that can meet such a
file change nothing before they have all bytes, so the repetition is the whole protocol.

    log.read(...)  --RemoteBytesNeeded(file, start, end)-->  broker: one ranged GET in a thread
    log.read(...)  <--file.keep(start, data)---------------  broker: again, in the loop thread

Ranges are forgotten by the owner of the memory (`broker.remote.reads`). It also has them checked
before it keeps them (`storage.segment.remote.range_check`). Every range begins with a batch, since
that is where readers go on.
"""

from collections.abc import Sequence
from typing import Final, NoReturn

from storage.disk.files import Bytes
from storage.errors import StorageError
from storage.segment.facts import RemoteObject
from storage.segment.offset_index import OffsetIndex, OffsetPosition
from storage.segment.remote.range_check import CheckedRange, check_range

RANGE_BYTES_MIN: Final = 64 * 1024
"""The least that a read asks for, if the object has it: a request costs as much as these bytes."""

READ_AHEAD_BYTES: Final = 2 * 1024 * 1024
"""What a reader gets beyond the first bytes that it lacks: those of its next reads."""

RANGE_BYTES_MAX: Final = 16 * 1024 * 1024
"""The most that a read asks for at once, unless one batch is larger."""


class RemoteBytesNeeded(StorageError):
    """Bytes of a remote segment are not in memory: get `[start, end)` of the object of `file`.

    The read needs them up to `least`; the rest are for the next reads.
    """

    def __init__(
        self, file: "RemoteLogFile", start: int, end: int, least: int | None = None
    ) -> None:
        """Remember the range, which lies in the object; without `least` all of it is needed."""
        super().__init__(f"bytes {start} to {end} of {file.path} are in the object store")
        assert 0 <= start < end <= file.object.object_bytes, f"{file.path}: {start} to {end}"
        self.file = file
        self.start = start
        self.end = end
        self.least = end if least is None else least

    def widened(self, max_bytes: int) -> "RemoteBytesNeeded":
        """The need of a reader of `max_bytes`, who will want the bytes after these as well."""
        ahead = min(max(max_bytes, READ_AHEAD_BYTES), RANGE_BYTES_MAX)
        # What follows the log is asked for as it is.
        end = max(self.end, min(self.end + ahead, self.file.size))
        return RemoteBytesNeeded(self.file, self.start, end, self.least)


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
            raise RemoteBytesNeeded(self, position, max(end, least), end)
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

    def landmarks(self, start: int, end: int) -> list[OffsetPosition]:
        """What `check` compares `[start, end)` with. Raises OSError."""
        index = self.offset_index
        return [] if index is None else index.between(start, end)

    def check(self, start: int, data: bytes, landmarks: Sequence[OffsetPosition]) -> CheckedRange:
        """Whether these are the bytes of the object from `start` on; any thread may call it.

        What follows the log has a checksum of its own.
        """
        found = check_range(self.object, start, data[: max(0, self.size - start)], landmarks)
        return found if start + len(data) < self.size else found._replace(whole_bytes=len(data))

    def keep(self, start: int, data: bytes) -> None:
        """Keep these bytes of the object in memory."""
        self._ranges.pop(start, None)
        self._ranges[start] = data

    def forget(self, start: int) -> None:
        """Drop the bytes that were kept from `start` on."""
        self._ranges.pop(start, None)

    def _find(self, start: int, end: int) -> bytes | None:
        # The newest first: an older one may have ended inside a batch.
        for at, data in reversed(self._ranges.items()):
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
