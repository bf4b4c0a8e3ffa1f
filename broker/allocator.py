"""The memory allocator of the process: freed memory of large answers is kept for the next ones.

glibc returns memory to the kernel as soon as twice the size of its largest former block is free at
the end of the heap. Two partitions of an answer to Fetch, a megabyte each, are that much. Without
other settings, each such answer begins with hundreds of page faults, which cost more than reading
and sending its bytes (docs/adr/0017). Other allocators have other rules, and are left alone.

The exception is the buffer of a TLS connection: uvloop allocates 256 KiB and writes a page or two
of it. On the heap it would separate the blocks that a handshake frees, so that the next handshakes
cannot use them: 24 KB for each connection. Mapped by itself it costs the pages that are written.
"""

import sys
from collections.abc import Callable
from typing import Any, Final

KEPT_BYTES: Final = 16 * 1024 * 1024
"""Free bytes at the end of the heap that stay with the process: a few large answers."""

MAPPED_FROM_BYTES: Final = 4 * 1024 * 1024
"""Blocks from this size on are returned when they are freed, each by itself."""

TLS_BUFFER_BYTES: Final = 256 * 1024
"""What uvloop allocates for a TLS connection (`SSL_READ_MAX_SIZE`)."""

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3


_mallopt: Callable[[int, int], Any] | None = None
"""Set once freed memory is kept."""


def keep_freed_memory() -> bool:
    """Set both limits for this process, for good; False where the allocator is not glibc's."""
    global _mallopt
    if sys.platform != "linux":
        return False
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    if not (
        mallopt(_M_MMAP_THRESHOLD, MAPPED_FROM_BYTES) and mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
    ):
        return False
    _mallopt = mallopt
    return True


def map_tls_buffers(*, begin: bool) -> None:
    """Begin or end to map blocks from the size of a TLS buffer on, in place of larger ones."""
    if _mallopt is not None:
        _mallopt(_M_MMAP_THRESHOLD, TLS_BUFFER_BYTES if begin else MAPPED_FROM_BYTES)
