"""Making appended records durable without holding up the thread that appends.

Owns the hand-over between the log's writer thread and the thread that waits for the disk:

    writer:   ticket = log.begin_flush()      notes the log's end and pins what has to be synced
    any:      ticket.run()                    fdatasync each file, fsync the directory; touches
                                              no state of the log
    writer:   log.complete_flush(ticket)      the durable offset moves, or the log goes offline

A log has one ticket out at a time; the next ticket covers appends made meanwhile. The first error
of a sync is final: the kernel reports a failed write-back only once, so a second sync would succeed
over lost data. The ticket therefore keeps the error, and the log stops for good.

Order in a ticket: files before the directory that names them; closed segments before the active
one, so that the durable part of a log is a prefix of it.

Source: reliability of fsync, as in "Can Applications Recover from fsync Failures?" (USENIX ATC
2020).
"""

from collections.abc import Iterable

from storage.disk.files import File, Files
from storage.log.reader import LogPosition
from storage.segment.segment import Segment


class FlushTicket:
    """One sync of one log. Made by the log, run once by any thread, given back to the log.

    Attributes:
        end: everything below this boundary is durable once `run` has succeeded.
        error: the error of `run`, or None.
        is_done: whether `run` came to its end.
    """

    __slots__ = ("_directory", "_files", "_marks", "end", "error", "is_done")

    def __init__(
        self,
        files: Files,
        *,
        to_sync: list[File],
        directory: str | None,
        end: LogPosition,
    ) -> None:
        """Pin `to_sync`. Raises OSError, with nothing pinned."""
        self.end = end
        self.error: OSError | None = None
        self.is_done = False
        self._files = files
        self._directory = directory
        self._marks: list[tuple[File, int]] = []
        try:
            for file in to_sync:
                self._marks.append((file, file.begin_sync()))
        except OSError:
            self.release()
            raise

    def run(self) -> None:
        """Make all pinned files durable. Never raises OSError: see `error`."""
        assert not self.is_done, "a ticket runs once"
        try:
            for file, _ in self._marks:
                file.sync()
            if self._directory is not None:
                self._files.sync_directory(self._directory)
        except OSError as error:
            self.error = error
        finally:
            self.is_done = True

    def release(self) -> None:
        """Unpin the files; on the writer's thread, after `run`."""
        for file, mark in self._marks:
            file.end_sync(mark if self.is_done and self.error is None else None)


class Unsynced:
    """The files of one log that are not durable yet, apart from its active segment's growth.

    Belongs to the log's writer thread. `is_dirty` is whether anything waits to be synced; each
    append asks.
    """

    __slots__ = (
        "_complete",
        "_created",
        "_directory",
        "_files",
        "_to_sync",
        "is_dirty",
        "ticket",
    )

    def __init__(self, files: Files, directory: str) -> None:
        """Everything is durable."""
        self.ticket: FlushTicket | None = None
        self.is_dirty = False
        self._files = files
        self._directory = directory
        self._to_sync: list[File] = []
        self._complete: list[File] = []
        self._created = False

    @property
    def has_files(self) -> bool:
        """Whether files wait to be synced, and not only their names."""
        return bool(self._to_sync)

    def add(self, files: Iterable[File]) -> None:
        """These files have unsynced bytes and get no more of them."""
        self._to_sync += [file for file in files if file not in self._to_sync]
        self.is_dirty = self._created or bool(self._to_sync)

    def add_created(self, file: File | None = None) -> None:
        """Names in the directory have changed; `file`, if any, has unsynced bytes."""
        self._created = self.is_dirty = True
        if file is not None:
            self.add((file,))

    def add_complete(self, file: File | None) -> None:
        """As `add_created`; `file` has no further use, so it is closed once it was synced."""
        self.add_created(file)
        if file is not None:
            self._complete.append(file)

    def drop(self, files: Iterable[File]) -> None:
        """Drop these files, which are about to be deleted."""
        gone = list(files)
        self._to_sync = [file for file in self._to_sync if file not in gone]
        self.is_dirty = self._created or bool(self._to_sync)

    def begin(self, active: Segment, end: LogPosition) -> FlushTicket:
        """A ticket for all waiting files and for the active segment up to `end`. Raises OSError."""
        assert self.ticket is None, "one ticket at a time"
        to_sync = [*self._to_sync, active.log]
        if active.txn_index.file is not None:
            to_sync.append(active.txn_index.file)
        ticket = FlushTicket(
            self._files,
            to_sync=to_sync,
            directory=self._directory if self._created else None,
            end=end,
        )
        # The ticket pins them: they close when it is returned.
        self._close_complete()
        self._to_sync, self._created, self.ticket = [], False, ticket
        self.is_dirty = False
        return ticket

    def close(self) -> None:
        """Close the descriptors that no other object closes."""
        self._close_complete()

    def _close_complete(self) -> None:
        complete, self._complete = self._complete, []
        for file in complete:
            file.close()

    def end(self, ticket: FlushTicket) -> None:
        """Take the ticket back."""
        assert ticket is self.ticket, "a ticket that is not out came back"
        assert ticket.is_done, "a ticket came back without having run"
        ticket.release()
        self.ticket = None
