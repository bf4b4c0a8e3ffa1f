"""The last bytes of the disk are not for clients: a full disk could not even be emptied.

Owns one decision: whether a client's records may still be appended.  Deleting segments begins with
writing (the new start of the log, sometimes a new segment), and so do commits, checkpoints and
topic changes.  With the disk filled to the last byte by appends, retention fails as they do, and
the broker stands still until somebody makes room by hand.  So appends of clients are refused
`log.reserved.bytes` earlier, with the error that a full disk gives them, and taken again by
themselves when there is space.

It refuses to know what else is on the disk.  Somebody else may fill it, and faster than this looks:
then appends fail for real, which is handled as well, and only the reserve is gone.

Cost: the file system is asked once per `LOOK_EVERY_BYTES`, more often near the mark.

Differs from Kafka: has no such limit; there a full disk ends the broker.  See docs/adr/0018.
"""

import errno
import os

from storage.errors import DiskFull

LOOK_EVERY_BYTES = 4 * 1024 * 1024
RESERVE_SHARE_MAX = 20
"""At most one in so many bytes of the file system is reserved, whatever the setting says."""


class SpaceGuard:
    """Watches the file system of the data directory.  Loop thread only."""

    __slots__ = ("_credit", "_path", "_reserved_bytes")

    def __init__(self, path: str, reserved_bytes: int) -> None:
        """Keep `reserved_bytes` of the file system of `path` free of clients' records."""
        self._path = path
        self._reserved_bytes = reserved_bytes
        self._credit = 0

    def check(self, path: str, size_bytes: int) -> None:
        """Let an append of `size_bytes` to the log in `path` pass.

        Raises:
            DiskFull: it would use the reserve.
        """
        self._credit -= size_bytes
        if self._credit >= 0:
            return
        left = self._left() - size_bytes
        if left < 0:
            raise DiskFull(
                "append", path, f"{os.strerror(errno.ENOSPC)}, what is left is log.reserved.bytes"
            )
        # Half of what is left, as others write too: the closer, the more often it is looked at.
        self._credit = min(LOOK_EVERY_BYTES, left // 2)

    def _left(self) -> int:
        stats = os.statvfs(self._path)
        total_bytes = stats.f_blocks * stats.f_frsize
        reserved_bytes = min(self._reserved_bytes, total_bytes // RESERVE_SHARE_MAX)
        return stats.f_bavail * stats.f_frsize - reserved_bytes
