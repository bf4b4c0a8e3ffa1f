"""An ext4 file system in a file, whose power can be cut.

`LoopDisk` mounts an image through a loop device. `cut_power` shuts the file system down without
writing its journal (`EXT4_IOC_SHUTDOWN`, not flushing the log): from that instant nothing more
reaches the image, every write and sync fails, and whatever was not synced is gone after the next
`mount`, which replays the journal as after any power loss. Needs root and loop devices;
`why_unavailable` says what is missing.
"""

import fcntl
import os
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Self

IMAGE_BYTES = 256 << 20

_EXT4_IOC_SHUTDOWN = 0x8004587D
_GOING_DOWN_WITHOUT_LOG_FLUSH = struct.pack("I", 2)


def why_unavailable() -> str | None:
    """What this machine lacks, as a sentence; None when nothing."""
    if os.geteuid() != 0:
        return "cutting the power of a loop-mounted ext4 needs root"
    for tool in ("mkfs.ext4", "mount", "umount"):
        if shutil.which(tool) is None:
            return f"cutting the power of a loop-mounted ext4 needs the program {tool}"
    if not os.path.exists("/dev/loop-control"):
        return "cutting the power of a loop-mounted ext4 needs loop devices (/dev/loop-control)"
    return None


class LoopDisk:
    """One image and its mount point, both below `directory`. A context manager."""

    def __init__(self, directory: Path) -> None:
        """Make a file system and mount it. Raises CalledProcessError."""
        self._image = directory / "disk.ext4"
        self.path = directory / "mounted"
        self.path.mkdir()
        self._is_mounted = False
        with self._image.open("wb") as image:
            image.truncate(IMAGE_BYTES)
        _run("mkfs.ext4", "-q", "-F", str(self._image))
        self.mount()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.unmount()
        self._image.unlink()

    def mount(self) -> None:
        """The power is back."""
        _run("mount", "-o", "loop", str(self._image), str(self.path))
        self._is_mounted = True

    def unmount(self) -> None:
        """No program may use it any more."""
        if self._is_mounted:
            _run("umount", str(self.path))
            self._is_mounted = False

    def cut_power(self) -> None:
        """Nothing reaches the image from now on."""
        fd = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, _EXT4_IOC_SHUTDOWN, _GOING_DOWN_WITHOUT_LOG_FLUSH)
        finally:
            os.close(fd)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
