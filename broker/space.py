"""The last bytes of the disk are reserved: a full disk could not even delete segments.

Owns one decision: whether a client's records may still be appended. Deleting segments begins with
writing (the new start of the log, sometimes a new segment), and so do commits, checkpoints and
topic changes. If appends filled the disk to the last byte, retention would fail as well, and the
broker would stop until an operator makes room by hand. So the broker refuses appends of clients
`log.reserved.bytes` earlier, with the error of a full disk. It accepts them again when there is
space.

It knows nothing of other files on the disk. Another process may fill it between two checks. Then
appends fail for real, which the broker handles as well, and only the reserve is gone.

Cost: one query of the file system per `LOOK_EVERY_BYTES`, more often near the limit.

Differs from Kafka: Kafka has no such limit; a full disk ends its broker. See docs/adr/0018.
"""

import errno
import os

from storage.errors import DiskFull

LOOK_EVERY_BYTES = 4 * 1024 * 1024
RESERVE_SHARE_MAX = 20
"""The reserve is at most 1/RESERVE_SHARE_MAX of the file system, whatever the setting says."""


class SpaceGuard:
    """Watches the file system of the data directory. Loop thread only.

    Attributes:
        path: the data directory.
        credit: bytes that may be appended before the file system has to be queried again.
    """

    __slots__ = ("_reserved_bytes", "credit", "path")

    def __init__(self, path: str, reserved_bytes: int) -> None:
        """Keep `reserved_bytes` of the file system of `path` free of clients' records."""
        self.path = path
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
        # Half of the space left, as others write too: the closer to the limit, the more queries.
        self.credit = min(LOOK_EVERY_BYTES, left // 2)

    def left_bytes(self) -> int:
        """How many bytes clients may append before the reserve begins; negative within it."""
        stats = os.statvfs(self.path)
        total_bytes = stats.f_blocks * stats.f_frsize
        reserved_bytes = min(self._reserved_bytes, total_bytes // RESERVE_SHARE_MAX)
        return stats.f_bavail * stats.f_frsize - reserved_bytes
