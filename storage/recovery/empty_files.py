"""The files of a log that cannot be read: an empty directory in which nothing can change.

`EmptyFiles` implements `storage.disk.files.Files` for `storage.recovery.unusable_log`. A file that
is created is empty and has no place on a disk; no other file exists. Syncing succeeds, because
there is nothing to make durable. Every change raises `OSError` with EROFS: such a log is offline
from its beginning, so a change is a bug, and it must not reach the partition's real directory.
"""

import errno
import os
from typing import NoReturn

from storage.disk.files import Bytes, File


def _missing(path: str, *_: object) -> NoReturn:
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def _refuse(path: str | File, *_: object) -> NoReturn:
    name = path if isinstance(path, str) else path.path
    raise OSError(errno.EROFS, os.strerror(errno.EROFS), name)


def _no(path: str) -> bool:
    return False


def _nothing(path: str) -> None:
    """There is nothing to remove, nor to make durable."""


class EmptyFiles:
    """A file system without content; see `storage.disk.files.Files` for the methods."""

    exists = is_directory = staticmethod(_no)
    open = size = modified_ms = read_all = unlink = staticmethod(_missing)
    make_directory = rename = rename_open = replace_atomically = lock = staticmethod(_refuse)
    remove_tree = sync_directory = staticmethod(_nothing)

    def create(self, path: str) -> "EmptyFile":
        """An empty file that is kept nowhere."""
        return EmptyFile(path)

    def list_directory(self, path: str) -> list[str]:
        """No name."""
        return []


class EmptyFile:
    """A file of no bytes; see `storage.disk.files.File`."""

    __slots__ = ("path",)

    size = 0

    def __init__(self, path: str) -> None:
        """An empty file of this name."""
        self.path = path

    def append(self, data: Bytes) -> None:
        """Raises OSError."""
        _refuse(self.path)

    def pread(self, size: int, position: int) -> bytes:
        """No bytes."""
        return b""

    def truncate(self, size: int) -> None:
        """Raises OSError."""
        _refuse(self.path)

    def pin(self) -> None:
        """No descriptor is open."""

    def unpin(self) -> None:
        """Nothing was pinned."""

    def begin_sync(self) -> int:
        """Everything so far, which is nothing."""
        return 0

    def sync(self) -> None:
        """Nothing to make durable."""

    def end_sync(self, mark: int | None) -> None:
        """Nothing was pinned."""

    def close(self) -> None:
        """No descriptor is open."""
