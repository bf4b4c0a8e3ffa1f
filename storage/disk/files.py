"""The seam between storage and the operating system: every file operation goes through here.

Owns file descriptors. `Files` and `File` are the protocols that the rest of the package is written
against; `RealFiles` is the production implementation. A simulated disk implements the same two and
may lose, tear or reorder unsynced changes. So *the durability that a method promises* is as much
part of its contract as its result:

| operation               | visible to readers | survives a crash of the machine after        |
|-------------------------|--------------------|----------------------------------------------|
| `File.append`           | at once            | `File.sync` of this file                     |
| `File.truncate`         | at once            | `File.sync` of this file                     |
| creating a file         | at once            | `sync` of the file + `sync_directory`        |
| `rename`, `unlink`      | at once            | `sync_directory` of the parent               |
| `replace_atomically`    | at once            | its return: all of the above, in order       |

Refuses to know the content of the files. All methods raise plain `OSError`; callers that know the
partition translate it. Nothing here retries: a second fsync after a failed one reports success over
lost data on Linux, so the first failure has to reach the log.

Descriptors are a bounded resource: 10,000 partitions with 1,100 segments each must work within
20,000 of them. A `File` is therefore a name with a descriptor *while it is in use*. When too many
are open, `RealFiles` closes the ones idle for longest, and the next use opens them again. It never
closes a file that has unsynced bytes or is being synced: only an open descriptor is sure to get the
error of a failed write-back.

Concurrency: one thread (the log's writer) uses a `Files` and its `File`s. The only exceptions are
`File.sync` and `File.pread` of a pinned file, which any other thread may run meanwhile.

Source: the assumptions are those of ext4 and XFS with barriers.
"""

import contextlib
import fcntl
import os
import resource
import shutil
from collections import OrderedDict
from typing import Protocol

from storage.disk.file_end import Bytes as Bytes
from storage.disk.file_end import FileEnd, write_fully

FILE_MODE = 0o600
DIRECTORY_MODE = 0o700
TEMPORARY_SUFFIX = ".tmp"

# Files may use half of the process's descriptors; the rest is for connections.
_SHARE_OF_DESCRIPTORS = 2
_MIN_OPEN_FILES = 16
_SEARCHES_PER_DOUBLING = 16


class File(Protocol):
    """One file, addressed by position; stays valid when its descriptor is closed for idleness.

    `size` is the length in bytes that this object knows: appends go there. After an operation has
    raised, the length on disk is unknown until `truncate` has succeeded.
    """

    @property
    def path(self) -> str:
        """The absolute name that the file was opened with."""

    @property
    def size(self) -> int:
        """Length in bytes, and the position of the next append."""

    def append(self, data: Bytes) -> None:
        """Write `data` at the end of the file, usually by one system call. Not atomic."""

    def pread(self, size: int, position: int) -> bytes:
        """Up to `size` bytes from `position`; fewer only where the file ends."""

    def truncate(self, size: int) -> None:
        """Set the length of the file to `size` bytes; added bytes are zero."""

    def pin(self) -> None:
        """Keep the descriptor open until `unpin`, so that any one thread may `pread`."""

    def unpin(self) -> None:
        """End one `pin`. A file that was closed meanwhile is closed with the last one."""

    def begin_sync(self) -> int:
        """Pin the descriptor for `sync`; the mark returned stands for all changes so far."""

    def sync(self) -> None:
        """Make everything up to the last `begin_sync` durable. May run in any one thread."""

    def end_sync(self, mark: int | None) -> None:
        """Unpin. `mark` is what `begin_sync` returned, or None when `sync` failed or never ran."""

    def close(self) -> None:
        """Close the descriptor, now or when it is unpinned. Closing again does nothing."""


class Lock(Protocol):
    """A held lock on a file; it dies with the process."""

    def release(self) -> None:
        """Release the lock. Releasing again does nothing."""


class Files(Protocol):
    """The operations of a file system, as far as storage needs them. Paths are absolute strings."""

    def create(self, path: str) -> File:
        """Create an empty file. Raises FileExistsError if there is one of that name."""

    def open(self, path: str) -> File:
        """Open the existing file for reading and appending. Raises FileNotFoundError."""

    def exists(self, path: str) -> bool:
        """Whether a file or directory has this name."""

    def is_directory(self, path: str) -> bool:
        """Whether the name is that of a directory."""

    def size(self, path: str) -> int:
        """Length of the file in bytes."""

    def modified_ms(self, path: str) -> int:
        """When the file was last changed, in milliseconds since the epoch."""

    def list_directory(self, path: str) -> list[str]:
        """The names in the directory, sorted."""

    def make_directory(self, path: str) -> None:
        """Create the directory and missing parents; an existing one is fine."""

    def rename(self, source: str, target: str) -> None:
        """Rename the file or directory, replacing a file that has the new name."""

    def rename_open(self, file: File, target: str) -> None:
        """`rename` of a file in use, which has the new name from now on."""

    def unlink(self, path: str) -> None:
        """Remove the file. Raises FileNotFoundError."""

    def remove_tree(self, path: str) -> None:
        """Remove the directory with everything below it, or a file in its place, if it exists."""

    def sync_directory(self, path: str) -> None:
        """Make the current names in the directory durable."""

    def read_all(self, path: str) -> bytes:
        """The whole content. For small files only."""

    def replace_atomically(self, path: str, data: Bytes) -> None:
        """Replace the content durably; a crash leaves the old content or the new one."""

    def lock(self, path: str) -> Lock:
        """Lock the file, created if necessary. Raises BlockingIOError when it is locked."""


def sync_file(file: File) -> None:
    """`begin_sync`, `sync` and `end_sync` at once, for callers that need not share the wait."""
    mark = file.begin_sync()
    synced: int | None = None
    try:
        file.sync()
        synced = mark
    finally:
        file.end_sync(synced)


class RealFiles:
    """The operating system's files, with a bounded number of descriptors open at once."""

    def __init__(self, *, max_open_files: int | None = None) -> None:
        """Bound open descriptors to `max_open_files`, by default half of the process's limit."""
        if max_open_files is None:
            soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            max_open_files = soft // _SHARE_OF_DESCRIPTORS
        self.max_open_files = max(_MIN_OPEN_FILES, max_open_files)
        # More than the bound only while all are in use, in the order in which the clock hand visits
        # them. Not a dict: when it is emptied from the front, its first key comes after all removed
        # slots, and finding it scans them all.
        self._open: OrderedDict[RealFile, None] = OrderedDict()
        self._next_search_at = 0

    def create(self, path: str) -> "RealFile":
        """See `Files.create`."""
        self._make_room()
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, FILE_MODE)
        file = self._new_file(path, 0)
        file._adopt(fd)
        self._open[file] = None
        return file

    def open(self, path: str) -> "RealFile":
        """See `Files.open`. No descriptor is opened before the first use."""
        return self._new_file(path, os.stat(path).st_size)

    def exists(self, path: str) -> bool:
        """See `Files.exists`."""
        return os.path.lexists(path)

    def is_directory(self, path: str) -> bool:
        """See `Files.is_directory`."""
        return os.path.isdir(path)

    def size(self, path: str) -> int:
        """See `Files.size`."""
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        """See `Files.modified_ms`."""
        return os.stat(path).st_mtime_ns // 1_000_000

    def list_directory(self, path: str) -> list[str]:
        """See `Files.list_directory`."""
        return sorted(os.listdir(path))

    def make_directory(self, path: str) -> None:
        """See `Files.make_directory`. Only the owner may look inside."""
        os.makedirs(path, mode=DIRECTORY_MODE, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        """See `Files.rename`."""
        os.rename(source, target)

    def rename_open(self, file: File, target: str) -> None:
        """See `Files.rename_open`."""
        assert isinstance(file, RealFile)
        os.rename(file.path, target)
        file.path = target

    def unlink(self, path: str) -> None:
        """See `Files.unlink`."""
        os.unlink(path)

    def remove_tree(self, path: str) -> None:
        """See `Files.remove_tree`."""
        with contextlib.suppress(FileNotFoundError):
            try:
                shutil.rmtree(path)
            except NotADirectoryError:
                os.unlink(path)

    def sync_directory(self, path: str) -> None:
        """See `Files.sync_directory`. May run in any thread."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def read_all(self, path: str) -> bytes:
        """See `Files.read_all`."""
        with open(path, "rb") as stream:
            return stream.read()

    def replace_atomically(self, path: str, data: Bytes) -> None:
        """See `Files.replace_atomically`: write aside, sync, rename, sync the directory."""
        aside = path + TEMPORARY_SUFFIX
        fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, FILE_MODE)
        try:
            write_fully(fd, data, 0)
            os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(aside, path)
        self.sync_directory(os.path.dirname(path))

    def lock(self, path: str) -> "RealLock":
        """See `Files.lock`."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT, FILE_MODE)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            raise
        return RealLock(fd)

    def _new_file(self, path: str, size: int) -> "RealFile":
        """A file that is not open yet; a kind of its own in `tidelog.testing`."""
        return RealFile(self, path, size)

    def _open_again(self, file: "RealFile") -> int:
        self._make_room()
        fd = os.open(file.path, os.O_RDWR)
        file._adopt(fd)
        self._open[file] = None
        return fd

    def _forget(self, file: "RealFile") -> None:
        self._open.pop(file, None)

    def _make_room(self) -> None:
        """Close one idle file when the bound is reached (second chance: recent use saves once)."""
        count = len(self._open)
        if count < self.max_open_files or count < self._next_search_at:
            return
        for _ in range(2 * count):
            file = next(iter(self._open))
            if file._may_be_evicted():
                file.close()
                self._next_search_at = 0
                return
            self._open.move_to_end(file)
        # Every file holds unsynced bytes: exceeding the bound is better than losing an error. The
        # next search is useful only when there are some more files.
        self._next_search_at = count + count // _SEARCHES_PER_DOUBLING


class RealFile(FileEnd):
    """A file of `RealFiles`; see `File` for the contract."""

    __slots__ = ("_closing", "_pins", "_synced")

    def __init__(self, files: RealFiles, path: str, size: int) -> None:
        """Know of the file without opening it."""
        super().__init__(files, path, size)
        self._pins = 0
        self._synced = 0  # how many of the changes are known to be on the medium
        self._closing = False

    def truncate(self, size: int) -> None:
        """See `File.truncate`."""
        assert size >= 0, f"{self.path}: truncate to {size}"
        fd = self._fd if self._fd >= 0 else self._files._open_again(self)
        self._changes += 1
        os.ftruncate(fd, size)
        self.size = size

    def pin(self) -> None:
        """See `File.pin`."""
        if self._fd < 0:
            self._files._open_again(self)
        self._pins += 1

    def unpin(self) -> None:
        """See `File.unpin`."""
        assert self._pins > 0, f"{self.path} is not pinned"
        self._pins -= 1
        if self._closing and self._pins == 0:
            self.close()

    def begin_sync(self) -> int:
        """See `File.begin_sync`."""
        self.pin()
        return self._changes

    def sync(self) -> None:
        """See `File.sync`."""
        assert self._pins > 0, "sync of a file that is not pinned"
        os.fdatasync(self._fd)

    def end_sync(self, mark: int | None) -> None:
        """See `File.end_sync`."""
        if mark is not None:
            assert mark <= self._changes, "a mark of changes that were not made"
            self._synced = max(self._synced, mark)
        self.unpin()

    def close(self) -> None:
        """See `File.close`."""
        if self._pins:
            self._closing = True
            return
        fd, self._fd = self._fd, -1
        self._closing = False
        self._files._forget(self)
        if fd >= 0:
            os.close(fd)

    def _adopt(self, fd: int) -> None:
        self._fd = fd
        self._recent = True

    def _may_be_evicted(self) -> bool:
        if self._pins or self._changes != self._synced:
            return False
        recent, self._recent = self._recent, False
        return not recent


class RealLock:
    """An flock held through its own descriptor."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        """Take over the descriptor that holds the lock."""
        self._fd = fd

    def release(self) -> None:
        """See `Lock.release`."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
