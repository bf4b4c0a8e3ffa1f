"""Leader epochs of one partition: at which offset each epoch began.

Owns the list *epoch -> start offset* and its file `leader-epoch-checkpoint`. A client that knows
the epoch of its last record queries where that epoch ended. When the answer is below the client's
position, the log was cut there and the client must go back. Refuses to know why an epoch changes.

Invariant, asserted at every change: epochs and start offsets are both strictly increasing.

The file is text, replaced atomically::

    0                   format version
    2                   number of entries
    0 0                 epoch, start offset
    3 1500

It is derived: magic 2 batches carry their epoch, so recovery rebuilds lost entries. Recovery
therefore treats a file that cannot be read as missing, not as an error of the log. For the same
reason the first entry of a log needs no sync of its own: it begins with the first batch that is not
durable, and until a flush has covered both, recovery reads that batch again.

Source: KIP-101, KIP-279; Kafka `LeaderEpochFileCache`, `LeaderEpochCheckpointFile`.
"""

import contextlib
from bisect import bisect_right
from collections.abc import Iterable
from typing import Final, NamedTuple

from protocol.records.layout import NO_LEADER_EPOCH, NO_OFFSET
from storage.disk.checkpoints import (
    CorruptCheckpoint,
    format_checkpoint,
    is_number,
    parse_checkpoint,
)
from storage.disk.files import File, Files

LEADER_EPOCHS_NAME: Final = "leader-epoch-checkpoint"


class EpochStart(NamedTuple):
    """One leader epoch and the offset of the first record written in it."""

    epoch: int
    start_offset: int


class EpochEnd(NamedTuple):
    """A leader epoch and its end offset (exclusive); both -1 when it is not known."""

    epoch: int
    end_offset: int


UNKNOWN_EPOCH_END: Final = EpochEnd(NO_LEADER_EPOCH, NO_OFFSET)


class LeaderEpochs:
    """The epochs of one partition, changed by its single writer.

    With a `directory`, each change is in the file and durable before the method returns, except
    for `assign_unsynced`. Without one the list is in memory only.
    """

    __slots__ = ("_directory", "_entries", "_files")

    def __init__(
        self,
        entries: Iterable[EpochStart] = (),
        *,
        directory: str | None = None,
        files: Files | None = None,
    ) -> None:
        """Start from `entries`, which must be strictly increasing in both numbers."""
        self._entries = list(entries)
        self._files = files
        self._directory = directory
        assert (directory is None) == (files is None)
        self._assert_increasing()

    @classmethod
    def open(cls, directory: str, files: Files) -> "LeaderEpochs":
        """The epochs stored in `directory`; none when there is no file.

        Raises:
            CorruptCheckpoint: the file is malformed; the caller decides (recovery starts from
                nothing and learns the epochs from the batches).
        """
        try:
            content = files.read_all(_path_in(directory))
        except FileNotFoundError:
            content = b""
        return cls(parse_leader_epochs(content), directory=directory, files=files)

    @classmethod
    def start_over(cls, directory: str, files: Files) -> "LeaderEpochs":
        """Replace a file that cannot be read by one without epochs, durably."""
        epochs = cls(directory=directory, files=files)
        epochs._changed()
        return epochs

    @property
    def entries(self) -> tuple[EpochStart, ...]:
        """All epochs, ascending."""
        return tuple(self._entries)

    @property
    def latest_epoch(self) -> int:
        """The newest epoch, or NO_LEADER_EPOCH."""
        return self._entries[-1].epoch if self._entries else NO_LEADER_EPOCH

    @property
    def earliest(self) -> EpochStart | None:
        """The oldest epoch still known, or None."""
        return self._entries[0] if self._entries else None

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Note that `epoch` begins at `start_offset`; False when that was known.

        Entries that contradict the new one (same or higher epoch, same or higher offset) are
        dropped: the record written now is the truth.
        """
        assert epoch >= 0
        assert start_offset >= 0
        if self._entries:
            latest = self._entries[-1]
            if epoch == latest.epoch and start_offset >= latest.start_offset:
                return False
        self._entries = [
            entry
            for entry in self._entries
            if entry.epoch < epoch and entry.start_offset < start_offset
        ]
        self._entries.append(EpochStart(epoch, start_offset))
        self._changed()
        return True

    def assign_unsynced(self, epoch: int, start_offset: int) -> File | None:
        """As `assign`; the caller has yet to sync the returned file, with its directory.

        For use while appends wait. None when nothing changed, and when there are older entries,
        which a torn file would lose: in that case the change is already durable.

        Raises:
            OSError: the file could not be written; the epochs are unchanged.
        """
        if self._entries or self._directory is None or self._files is None:
            self.assign(epoch, start_offset)
            return None
        entries = [EpochStart(epoch, start_offset)]
        path = _path_in(self._directory)
        try:
            file = self._files.create(path)
        except FileExistsError:
            self._files.unlink(path)
            file = self._files.create(path)
        try:
            file.append(format_leader_epochs(entries))
        except OSError:
            file.close()
            with contextlib.suppress(OSError):
                self._files.unlink(path)
            raise
        self._entries = entries
        return file

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEnd:
        """Where `epoch` ended, with the epoch that the answer refers to.

        =============================  ==================================================
        requested                      answer
        =============================  ==================================================
        none (-1), or above the latest unknown (-1, -1)
        the latest                     that epoch, `log_end_offset`
        below the earliest             the requested epoch, start of the earliest
        in between                     the greatest known epoch not above it, and the
                                       start of the one after
        =============================  ==================================================

        Source: Kafka `LeaderEpochFileCache.endOffsetFor`.
        """
        if epoch == NO_LEADER_EPOCH or epoch > self.latest_epoch:
            return UNKNOWN_EPOCH_END
        if epoch == self.latest_epoch:
            return EpochEnd(epoch, log_end_offset)
        after = bisect_right(self._entries, epoch, key=lambda entry: entry.epoch)
        end_offset = self._entries[after].start_offset
        if after == 0:
            return EpochEnd(epoch, end_offset)
        return EpochEnd(self._entries[after - 1].epoch, end_offset)

    def epoch_for_offset(self, offset: int) -> int:
        """The epoch in which the record at `offset` was written, or NO_LEADER_EPOCH."""
        after = bisect_right(self._entries, offset, key=lambda entry: entry.start_offset)
        return self._entries[after - 1].epoch if after else NO_LEADER_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        """Drop epochs that begin at or above `end_offset`, the new end of the log."""
        assert end_offset >= 0
        if self._entries and self._entries[-1].start_offset >= end_offset:
            self._entries = [e for e in self._entries if e.start_offset < end_offset]
            self._changed()

    def truncate_from_start(self, start_offset: int) -> None:
        """Drop epochs that ended below `start_offset`; the one in force there begins there.

        Never raises: the log's start is stored elsewhere, and every open truncates here again.
        """
        assert start_offset >= 0
        after = bisect_right(self._entries, start_offset, key=lambda entry: entry.start_offset)
        if after == 0 or self._entries[after - 1].start_offset == start_offset == self._first():
            return
        in_force = self._entries[after - 1]
        self._entries[:after] = [EpochStart(in_force.epoch, start_offset)]
        with contextlib.suppress(OSError):
            self._changed()

    def clear(self) -> None:
        """Drop all epochs."""
        if self._entries:
            self._entries = []
            self._changed()

    def _first(self) -> int:
        return self._entries[0].start_offset

    def _changed(self) -> None:
        self._assert_increasing()
        if self._directory is not None and self._files is not None:
            path = _path_in(self._directory)
            self._files.replace_atomically(path, format_leader_epochs(self._entries))

    def _assert_increasing(self) -> None:
        for before, entry in zip(self._entries, self._entries[1:], strict=False):
            assert before.epoch < entry.epoch
            assert before.start_offset < entry.start_offset


def format_leader_epochs(entries: Iterable[EpochStart]) -> bytes:
    """The content of `leader-epoch-checkpoint` for these entries."""
    return format_checkpoint(f"{entry.epoch} {entry.start_offset}" for entry in entries)


def parse_leader_epochs(content: bytes) -> list[EpochStart]:
    """The entries of a `leader-epoch-checkpoint` file; none for an empty file.

    Raises:
        CorruptCheckpoint: wrong version, malformed line, wrong count, not increasing, or cut off in
            the middle of a line, whose number would then be another one.
    """
    if content and not content.endswith(b"\n"):
        raise CorruptCheckpoint("the last line does not end")
    entries: list[EpochStart] = []
    for line in parse_checkpoint(content):
        fields = line.split(" ")
        if len(fields) != 2 or not all(map(is_number, fields)):
            raise CorruptCheckpoint(f"expected an epoch and an offset, found {line!r}")
        entry = EpochStart(int(fields[0]), int(fields[1]))
        if entries and not (
            entries[-1].epoch < entry.epoch and entries[-1].start_offset < entry.start_offset
        ):
            raise CorruptCheckpoint(f"epochs do not increase at {line!r}")
        entries.append(entry)
    return entries


def _path_in(directory: str) -> str:
    return f"{directory}/{LEADER_EPOCHS_NAME}"
