"""The memory allocator of the process: freed memory of large answers is kept for the next ones.

glibc returns memory to the kernel as soon as twice the size of its largest former block is free at
the end of the heap. Two partitions of an answer to Fetch, a megabyte each, are that much. Without
other settings, each such answer begins with hundreds of page faults, which cost more than reading
and sending its bytes (docs/adr/0017). Other allocators have other rules, and are left alone.
"""

import sys
from typing import Final

KEPT_BYTES: Final = 16 * 1024 * 1024
"""Free bytes at the end of the heap that stay with the process: a few large answers."""

MAPPED_FROM_BYTES: Final = 4 * 1024 * 1024
"""Blocks from this size on are returned when they are freed, each by itself."""

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3


def keep_freed_memory() -> bool:
    """Set both limits for this process, for good; False where the allocator is not glibc's."""
    if sys.platform != "linux":
        return False
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(
        mallopt(_M_MMAP_THRESHOLD, MAPPED_FROM_BYTES) and mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
    )
