"""A disk that fails when a test says so, below a real broker: full, or broken.

The files are real; only the outcome of writing is made up. What a power cut leaves is another
question, which `kill` and a restart answer.
"""

import errno
import os
from typing import Literal

from storage.disk.files import Bytes, RealFile, RealFiles

Fault = Literal["full", "unwritable", "unsyncable"]


class FaultyDisk(RealFiles):
    """Real files whose writes fail while there is a fault.

    | fault      | what happens                                                                |
    |------------|-----------------------------------------------------------------------------|
    | full       | appends fail with ENOSPC; they succeed again after `heal`                   |
    | unwritable | appends fail with EIO; they succeed again after `heal`                      |
    | unsyncable | fsync fails with EIO; the partitions it hits stay offline until a restart   |
    """

    def __init__(self) -> None:
        """Begin without a fault."""
        super().__init__()
        self.fault: Fault | None = None

    def fail(self, fault: Fault) -> None:
        """Let writes fail from now on."""
        self.fault = fault

    def heal(self) -> None:
        """Let writes succeed again."""
        self.fault = None

    def _new_file(self, path: str, size: int) -> RealFile:
        return _FaultyFile(self, path, size)


class _FaultyFile(RealFile):
    """A file of a `FaultyDisk`."""

    __slots__ = ("_disk",)

    def __init__(self, disk: FaultyDisk, path: str, size: int) -> None:
        super().__init__(disk, path, size)
        self._disk = disk

    def append(self, data: Bytes) -> None:
        if self._disk.fault in ("full", "unwritable"):
            number = errno.ENOSPC if self._disk.fault == "full" else errno.EIO
            raise OSError(number, os.strerror(number), self.path)
        super().append(data)

    def sync(self) -> None:
        if self._disk.fault == "unsyncable":
            raise OSError(errno.EIO, os.strerror(errno.EIO), self.path)
        super().sync()
