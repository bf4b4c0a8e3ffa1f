"""The files of a log that cannot be read: an empty directory in which nothing can change.

`EmptyFiles` implements `storage.disk.files.Files` for `storage.recovery.unusable_log`. A file that
is created is empty and has no place on a disk; no other file exists. Syncing succeeds, because
there is nothing to make durable. Every change raises `OSError` with EROFS: such a log is offline
from its beginning, so a change is a bug, and it must not reach the partition's real directory.
"""

import errno
import os
from typing import NoReturn

from storage.disk.files import Bytes, File, Lock


class EmptyFiles:
    """A file system without content; see `storage.disk.files.Files` for the methods."""

    def create(self, path: str) -> "EmptyFile":
        """An empty file that is kept nowhere."""
        return EmptyFile(path)

    def open(self, path: str) -> File:
        """Raises FileNotFoundError."""
        _missing(path)

    def exists(self, path: str) -> bool:
        """False."""
        return False

    def is_directory(self, path: str) -> bool:
        """False."""
        return False

    def size(self, path: str) -> int:
        """Raises FileNotFoundError."""
        _missing(path)

    def modified_ms(self, path: str) -> int:
        """Raises FileNotFoundError."""
        _missing(path)

    def list_directory(self, path: str) -> list[str]:
        """No name."""
        return []

    def make_directory(self, path: str) -> None:
        """Raises OSError."""
        _read_only(path)

    def rename(self, source: str, target: str) -> None:
        """Raises OSError."""
        _read_only(source)

    def rename_open(self, file: File, target: str) -> None:
        """Raises OSError."""
        _read_only(file.path)

    def unlink(self, path: str) -> None:
        """Raises FileNotFoundError."""
        _missing(path)

    def remove_tree(self, path: str) -> None:
        """Nothing: there is no such directory."""

    def sync_directory(self, path: str) -> None:
        """Nothing to make durable."""

    def read_all(self, path: str) -> bytes:
        """Raises FileNotFoundError."""
        _missing(path)

    def replace_atomically(self, path: str, data: Bytes) -> None:
        """Raises OSError."""
        _read_only(path)

    def lock(self, path: str) -> Lock:
        """Raises OSError."""
        _read_only(path)


class EmptyFile:
    """A file of no bytes; see `storage.disk.files.File`."""

    __slots__ = ("path",)

    size = 0

    def __init__(self, path: str) -> None:
        """An empty file of this name."""
        self.path = path

    def append(self, data: Bytes) -> None:
        """Raises OSError."""
        _read_only(self.path)

    def pread(self, size: int, position: int) -> bytes:
        """No bytes."""
        return b""

    def truncate(self, size: int) -> None:
        """Raises OSError."""
        _read_only(self.path)

    def begin_sync(self) -> int:
        """Everything so far, which is nothing."""
        return 0

    def sync(self) -> None:
        """Nothing to make durable."""

    def end_sync(self, mark: int | None) -> None:
        """Nothing was pinned."""

    def close(self) -> None:
        """No descriptor is open."""


def _missing(path: str) -> NoReturn:
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def _read_only(path: str) -> NoReturn:
    raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
