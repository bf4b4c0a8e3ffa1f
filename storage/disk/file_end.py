# cython: language_level=3
# mypy: disable-error-code="untyped-decorator,valid-type,no-any-return"
"""Appends to a real file, and reads of it; compiled, since each batch comes here both ways.

`FileEnd` is the base of `RealFile` (`storage.disk.files`), which describes the contract and owns
the descriptor. Like `protocol.records.record_loops` it runs compiled and plain.
"""

from __future__ import annotations

import os
from typing import Any, TypeAlias

try:
    import cython
except ImportError:  # A wheel built without a compiler, on a machine without Cython.
    from protocol.records import cython_shim as cython

COMPILED: bool = bool(cython.compiled)
"""Whether this module was compiled to machine code."""


Bytes: TypeAlias = bytes | bytearray | memoryview


class FileEnd:
    """What appends and reads need of a file.

    Attributes:
        path: the absolute name.
        size: the length in bytes.
        _fd: the descriptor, negative while the file is closed.
        _changes: how many changes were ever made.
        _recent: whether the file was used since the last search for idle ones.
    """

    def __init__(self, files: Any, path: str, size: cython.longlong) -> None:
        """A file of `files` that is not open."""
        self.path = path
        self.size = size
        self._files = files
        self._fd = -1
        self._changes = 0
        self._recent = False

    def append(self, data: Bytes) -> None:
        """See `File.append`."""
        size: cython.longlong = len(data)
        if self._fd < 0:
            self._files._open_again(self)
        position: cython.longlong = self.size
        self._changes += 1
        self._recent = True
        written: cython.longlong = os.pwrite(self._fd, data, position)
        if written != size:
            write_fully(self._fd, memoryview(data)[written:], position + written)
        self.size = position + size

    def pread(self, size: cython.longlong, position: cython.longlong) -> bytes:
        """See `File.pread`."""
        if self._fd < 0:
            self._files._open_again(self)
        self._recent = True
        return os.pread(self._fd, size, position)


def write_fully(fd: int, data: Bytes, position: int) -> None:
    """Write `data` by as many calls as it takes; a call that makes no progress raises."""
    rest = memoryview(data)
    while rest:
        written = os.pwrite(fd, rest, position)
        position += written
        rest = rest[written:]
