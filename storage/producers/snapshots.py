"""Producer snapshots: the producer map of a partition as it was at one offset, in a file.

Owns the files ``<offset>.snapshot`` of a partition directory: their bytes, and the rules by which
they are created and deleted. The number in the name is the *next* offset at that time, so the file
covers everything below it. Refuses to judge producers: that is :mod:`storage.producers.state`.

A snapshot only saves time: without one, the whole log is replayed. So a corrupt snapshot is deleted
and the one before it is used. File layout, all integers big-endian:

| offset | size | meaning                       |
|--------|------|-------------------------------|
| 0      | 2    | version, 1                    |
| 2      | 4    | CRC-32C of bytes 6 to the end |
| 6      | 4    | number of entries             |
| 10     | 46 n | the entries                   |

and of one entry:

| offset | size | meaning                                            |
|--------|------|----------------------------------------------------|
| 0      | 8    | producer id                                        |
| 8      | 2    | producer epoch                                     |
| 10     | 4    | last sequence, -1 when no batch is remembered      |
| 14     | 8    | last offset, -1 when no batch is remembered        |
| 22     | 4    | last offset - first offset of that batch           |
| 26     | 8    | last timestamp, ms                                 |
| 34     | 4    | coordinator epoch                                  |
| 38     | 8    | first offset of the open transaction, -1 when none |

Only the last of a producer's five cached batches is stored, as in Kafka.

Source: Kafka ``ProducerStateManager`` and ``ProducerSnapshot.json``. Next:
:mod:`storage.recovery.recovery`.
"""

import contextlib
import struct
from collections.abc import Callable, Collection, Iterable
from typing import Final

from protocol.records.checksums import crc32c
from protocol.records.layout import NO_OFFSET
from storage.disk.file_names import SNAPSHOT_SUFFIX, parsed_names, segment_file_path
from storage.disk.files import File, Files
from storage.producers.state import CachedBatch, ProducerEntry, ProducerState

SNAPSHOT_VERSION: Final = 1

_HEADER: Final = struct.Struct(">hIi")
_ENTRY: Final = struct.Struct(">qhiqiqiq")
_CRC_COVERS_FROM: Final = 6

assert _HEADER.size == 10
assert _ENTRY.size == 46


class CorruptSnapshot(Exception):
    """The bytes are no producer snapshot; raised only inside storage, which tries another file."""


def encode_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """The file content for these entries, ordered by producer id."""
    body = b"".join(
        _encode_entry(entry) for entry in sorted(entries, key=lambda entry: entry.producer_id)
    )
    counted = struct.pack(">i", len(body) // _ENTRY.size) + body
    return struct.pack(">hI", SNAPSHOT_VERSION, crc32c(counted)) + counted


def decode_snapshot(content: bytes) -> list[ProducerEntry]:
    """The entries of a snapshot file, in file order.

    Raises:
        CorruptSnapshot: wrong version, size or checksum.
    """
    if len(content) < _HEADER.size:
        raise CorruptSnapshot(f"expected at least {_HEADER.size} bytes, found {len(content)}")
    version, crc, count = _HEADER.unpack_from(content)
    if version != SNAPSHOT_VERSION:
        raise CorruptSnapshot(f"expected version {SNAPSHOT_VERSION}, found {version}")
    if len(content) != _HEADER.size + count * _ENTRY.size:
        raise CorruptSnapshot(f"{count} entries do not make {len(content)} bytes")
    found = crc32c(memoryview(content)[_CRC_COVERS_FROM:])
    if crc != found:
        raise CorruptSnapshot(f"expected checksum {crc:#010x}, found {found:#010x}")
    return [_decode_entry(fields) for fields in _ENTRY.iter_unpack(content[_HEADER.size :])]


class ProducerSnapshots:
    """The snapshot files of one partition directory.

    Opened by listing the directory; used by the partition's single writer. The files survive a
    crash whole or not at all (atomic replace).
    """

    __slots__ = ("_directory", "_files", "_offsets")

    def __init__(self, directory: str, files: Files, *, names: Iterable[str] | None = None) -> None:
        """List the snapshots in ``directory``, or take them from ``names`` when listed already."""
        self._directory = directory
        self._files = files
        listed = files.list_directory(directory) if names is None else names
        self._offsets = sorted(
            name.base_offset
            for name in parsed_names(listed)
            if name.kind == SNAPSHOT_SUFFIX and not name.stage
        )

    @property
    def offsets(self) -> tuple[int, ...]:
        """The offsets of the snapshots, ascending."""
        return tuple(self._offsets)

    def path(self, offset: int) -> str:
        """Path of the snapshot at ``offset``, which need not exist."""
        return segment_file_path(self._directory, offset, SNAPSHOT_SUFFIX)

    def read(self, offset: int) -> bytes | None:
        """The file of the snapshot at ``offset``; None when there is none. Raises OSError."""
        return self._files.read_all(self.path(offset)) if offset in self._offsets else None

    def take(self, state: ProducerState) -> bool:
        """Write the map at its end offset; False when the newest snapshot is as new.

        Durable on return.

        Raises:
            OSError: the file could not be written; the map is unchanged, the log is unharmed.
        """
        offset = state.map_end_offset
        if not self._is_news(offset):
            return False
        self._files.replace_atomically(self.path(offset), encode_snapshot(state))
        self._offsets.append(offset)
        return True

    def take_unsynced(self, state: ProducerState) -> File | None:
        """As `take`, but the caller has yet to sync the returned file, with its directory.

        For use while appends wait. None when the newest snapshot is as new. If a crash leaves the
        file incomplete, its checksum shows that.

        Raises:
            OSError: the file could not be written; the map is unchanged, the log is unharmed.
        """
        offset = state.map_end_offset
        if not self._is_news(offset):
            return None
        # Only a file left by a failed attempt can have this name.
        self.delete(offset)
        file = self._files.create(self.path(offset))
        try:
            file.append(encode_snapshot(state))
        except OSError:
            file.close()
            with contextlib.suppress(OSError):
                self.delete(offset)
            raise
        self._offsets.append(offset)
        return file

    def reload(
        self, state: ProducerState, *, log_start_offset: int, log_end_offset: int, now_ms: int
    ) -> int:
        """Load the newest good snapshot into ``state``; returns the offset to replay the log from.

        Files outside of (``log_start_offset``, ``log_end_offset``] are deleted, and so is every
        corrupt one that is read. Expired producer ids are left out. Without a file the map is empty
        and the result is ``log_start_offset``.
        """
        assert log_start_offset <= log_end_offset
        self._delete_where(lambda offset: not log_start_offset < offset <= log_end_offset)
        while self._offsets:
            offset = self._offsets[-1]
            try:
                entries = decode_snapshot(self._files.read_all(self.path(offset)))
            except CorruptSnapshot:
                self.delete(offset)
                continue
            state.restore(entries, map_end_offset=offset, now_ms=now_ms)
            return offset
        state.clear(log_start_offset)
        return log_start_offset

    def load(self, state: ProducerState, *, end_offset: int, now_ms: int) -> int:
        """As `reload` for everything up to ``end_offset``, but without deleting files."""
        for offset in reversed(self._offsets):
            if offset <= end_offset:
                with contextlib.suppress(CorruptSnapshot):
                    entries = decode_snapshot(self._files.read_all(self.path(offset)))
                    state.restore(entries, map_end_offset=offset, now_ms=now_ms)
                    return offset
        state.clear(0)
        return 0

    def newest_sound(self, above: int) -> int:
        """The newest snapshot above the offset that is whole, or ``above``; reads only such files.

        Raises OSError.
        """
        for offset in reversed(self._offsets):
            if offset <= above:
                break
            with contextlib.suppress(CorruptSnapshot):
                decode_snapshot(self._files.read_all(self.path(offset)))
                return offset
        return above

    def delete(self, offset: int) -> None:
        """Delete one snapshot, if it exists."""
        if offset in self._offsets:
            self._offsets.remove(offset)
        with contextlib.suppress(FileNotFoundError):
            self._files.unlink(self.path(offset))

    def delete_before(self, offset: int) -> None:
        """Delete the snapshots below ``offset`` (exclusive)."""
        self._delete_where(lambda candidate: candidate < offset)

    def delete_stray(self, base_offsets: Collection[int], log_end_offset: int) -> None:
        """Delete the snapshots that belong to no segment.

        The largest of them is kept when it lies beyond the last segment and not beyond the log's
        end: a clean stop took it there.
        """
        last_base = max(base_offsets, default=NO_OFFSET)
        strays = [offset for offset in self._offsets if offset not in base_offsets]
        is_end = bool(strays) and last_base < strays[-1] <= log_end_offset
        keep = strays[-1] if is_end else NO_OFFSET
        for offset in strays:
            if offset != keep:
                self.delete(offset)

    def _is_news(self, offset: int) -> bool:
        """Whether a snapshot there would be newer than the existing ones; at 0 there is nothing."""
        return offset > (self._offsets[-1] if self._offsets else 0)

    def _delete_where(self, is_unwanted: Callable[[int], bool]) -> None:
        for offset in [offset for offset in self._offsets if is_unwanted(offset)]:
            self.delete(offset)


def _encode_entry(entry: ProducerEntry) -> bytes:
    last = entry.batches[-1] if entry.batches else None
    return _ENTRY.pack(
        entry.producer_id,
        entry.producer_epoch,
        entry.last_sequence,
        entry.last_offset,
        0 if last is None else last.offset_delta,
        entry.last_timestamp,
        entry.coordinator_epoch,
        entry.txn_first_offset,
    )


def _decode_entry(fields: tuple[int, ...]) -> ProducerEntry:
    producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, txn = fields
    batches = [] if offset < 0 else [CachedBatch(sequence, offset, delta, timestamp)]
    return ProducerEntry(
        producer_id=producer_id,
        producer_epoch=epoch,
        coordinator_epoch=coordinator_epoch,
        last_timestamp=timestamp,
        txn_first_offset=txn,
        batches=batches,
    )
