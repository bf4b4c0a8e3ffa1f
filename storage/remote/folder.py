"""A folder as an object store: writing its objects so that they survive a power cut.

The library writes, renames, and leaves the rest to the operating system, which may take half a
minute to put it on the disk. Until then a power cut leaves objects of 0 bytes, or none, while local
retention may have removed the records that they replace. So objects of `file:///` stores are
written here; the library reads, lists and deletes them.

The order is what counts:

1. The bytes go into a file beside the object, which is synced.
2. A link gives it the object's name, if that is free: no request finds an object that is not whole.
3. The directory is synced, and the directories above that were made for it.

A file that a crash has left beside has a name as the library's own have, ``NAME#NUMBER``, which no
listing of objects shows; `Folder.unfinished` does, for ``tidelog tier gc``. A directory that holds
no object any more is removed by the library; the next object makes it again.

Source: POSIX `link`, `fsync`; the layout is that of `LocalFileSystem` of the crate object_store.
"""

import errno
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from typing import Final

from storage.disk.file_end import write_fully
from storage.disk.files import Bytes, RealFiles
from storage.errors import ObjectExists
from storage.remote.object_store import StoredObject

_TRIES: Final = 100
"""How often a directory is made that deletions remove at the same moment."""

_NO_LINKS: Final = (errno.EPERM, errno.EOPNOTSUPP)

_UNFINISHED: Final = re.compile(r".+#[0-9]+")

_FILE_MODE: Final = 0o666
"""As the library has it: the user's umask says who else may read, such as Spark's workers."""


def is_unfinished(key: str) -> bool:
    """Whether it is the name of a file beside an object, not of an object."""
    return _UNFINISHED.fullmatch(key) is not None


class Folder:
    """The directory of a store, which exists. Any thread may call it."""

    def __init__(self, path: str) -> None:
        """Keep the path, which is absolute."""
        self.path = path
        self._durable: set[str] = set()
        """Directories whose names are on the disk."""

    def begin(self, key: str) -> "FolderUpload":
        """Begin an object. Raises OSError."""
        path = f"{self.path}/{key}"
        for tries_left in reversed(range(_TRIES)):
            try:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                return FolderUpload(self, path)
            except (FileNotFoundError, FileExistsError):
                # Also "exists": it went before `makedirs` looked whether it is a directory.
                if not tries_left:
                    raise
        raise AssertionError

    def forget(self, key: str) -> None:
        """Call this before an object is deleted, whose directories may go with it."""
        directory = os.path.dirname(f"{self.path}/{key}")
        while len(directory) > len(self.path):
            self._durable.discard(directory)
            directory = os.path.dirname(directory)

    def unfinished(self) -> Iterator[StoredObject]:
        """The files of uploads that are under way or were cut off. Raises OSError."""
        for directory, _, names in os.walk(self.path):
            for path in (f"{directory}/{name}" for name in names if is_unfinished(name)):
                with suppress(FileNotFoundError):
                    found = os.stat(path)
                    key = path.removeprefix(f"{self.path}/")
                    yield StoredObject(key, found.st_size, found.st_mtime_ns // 1_000_000)

    def remove_unfinished(self, key: str) -> None:
        """Remove the file of an upload that was cut off, if it is there. Raises OSError."""
        with suppress(FileNotFoundError):
            os.unlink(f"{self.path}/{key}")

    def sync_name(self, path: str) -> None:
        """Make the name of a file in this store durable, with those of its directories.

        Above the store that ends at a directory that cannot be synced, such as another user's: it
        was there before.
        """
        directory = os.path.dirname(path)
        try:
            RealFiles().sync_directory(directory)
        except OSError as error:
            # Some file systems that are shared with a virtual machine have no sync of directories.
            if len(directory) >= len(self.path) and error.errno != errno.EINVAL:
                raise
            return
        if directory not in self._durable and directory != path:
            self.sync_name(directory)
            self._durable.add(directory)


class FolderUpload:
    """An object on its way, see `storage.remote.object_store.ObjectUpload`; raises OSError."""

    def __init__(self, folder: Folder, path: str) -> None:
        """Create the file beside the object; its directory exists."""
        self._folder = folder
        self._path = path
        for number in count(1):
            self._aside = f"{path}#{number}"
            try:
                self._fd = os.open(self._aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _FILE_MODE)
                break
            except FileExistsError:
                continue
        self._size = 0

    def write(self, data: Bytes) -> None:
        """Add the next bytes."""
        write_fully(self._fd, data, self._size)
        self._size += len(data)

    def finish(self) -> None:
        """Create the object; it is durable on return. Raises ObjectExists."""
        try:
            os.fsync(self._fd)
            os.link(self._aside, self._path)
        except FileExistsError as error:
            raise ObjectExists(f"PUT {self._path}: there is such an object") from error
        except OSError as error:
            if error.errno in _NO_LINKS:
                reason = "the file system of the folder has no hard links: choose another folder"
                raise OSError(error.errno, reason, self._path) from error
            raise
        finally:
            self.abort()
        try:
            self._folder.sync_name(self._path)
        except OSError:
            # A look would find it, and take it for one that is on the disk.
            with suppress(OSError):
                os.unlink(self._path)
            raise

    def abort(self) -> None:
        """Give it up, or what is beside a finished one. Calling it again does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            with suppress(OSError):  # the object counts without it
                os.unlink(self._aside)
