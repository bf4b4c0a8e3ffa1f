"""The last bytes of the disk are reserved: a full disk could not even delete segments.

Owns one decision: whether a client's records may still be appended. Deleting segments begins with
writing (the new start of the log, sometimes a new segment), and so do commits, checkpoints and
topic changes. If appends filled the disk to the last byte, retention would fail as well, and the
broker would stop until an operator makes room by hand. So the broker refuses appends of clients
`log.reserved.bytes` earlier, with the error of a full disk. It accepts them again when there is
space.

It knows nothing of other files on the disk. Another process may fill it between two checks. Then
appends fail for real, which the broker handles as well, and only the reserve is gone.

Cost: one query of the file system per `LOOK_EVERY_BYTES`, two in the lane (`renew`), more often
near the limit.

Differs from Kafka: Kafka has no such limit; a full disk ends its broker. See docs/adr/0018.
"""

import contextlib
import errno
import os
from typing import NamedTuple

from storage.errors import DiskFull

LOOK_EVERY_BYTES = 4 * 1024 * 1024
LOW_CREDIT_BYTES = LOOK_EVERY_BYTES // 2
"""Below this the lane looks again, so that most large requests find enough credit."""

RESERVE_SHARE_MAX = 20
"""The reserve is at most 1/RESERVE_SHARE_MAX of the file system, whatever the setting says."""


class Space(NamedTuple):
    """A file system, in bytes. `appendable` is negative within the reserve."""

    size: int
    free: int
    appendable: int


class SpaceGuard:
    """Watches the file system of the data directory. Loop thread only.

    Attributes:
        credit: bytes that may be appended before the file system has to be queried again.
    """

    __slots__ = ("_path", "_reserved_bytes", "credit")

    def __init__(self, path: str, reserved_bytes: int) -> None:
        """Keep `reserved_bytes` of the file system of `path` free of clients' records."""
        self._path = path
        self._reserved_bytes = reserved_bytes
        self.credit = 0

    def check(self, path: str, size_bytes: int) -> None:
        """Accept an append of `size_bytes` to the log in `path`.

        Raises:
            DiskFull: it would use the reserve.
        """
        self.credit -= size_bytes
        if self.credit >= 0:
            return
        left = self.left_bytes() - size_bytes
        if left < 0:
            raise DiskFull(
                "append", path, f"{os.strerror(errno.ENOSPC)}, what is left is log.reserved.bytes"
            )
        self._grant(left)

    def renew(self) -> None:
        """Look again before the credit is used up, for appends that do without `check`."""
        with contextlib.suppress(OSError):  # `check` meets it, in an append that can report it
            self._grant(max(self.left_bytes(), 0))

    def _grant(self, left_bytes: int) -> None:
        # Half of the space left, as others write too: the closer to the limit, the more queries.
        self.credit = min(LOOK_EVERY_BYTES, left_bytes // 2)

    def left_bytes(self) -> int:
        """How many bytes clients may append before the reserve begins; negative within it."""
        return self.look().appendable

    def look(self) -> Space:
        """The file system as it is now. Raises OSError."""
        stats = os.statvfs(self._path)
        size = stats.f_blocks * stats.f_frsize
        free = stats.f_bavail * stats.f_frsize
        return Space(size, free, free - min(self._reserved_bytes, size // RESERVE_SHARE_MAX))
