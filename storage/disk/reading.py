"""Reading many bytes of a file outside of its owner's thread.

A slice of a megabyte takes half a millisecond to read and to sum up, which appends would notice. So
it is a call for another thread, with the file pinned. A few bytes are read at once: a call costs
more than they do, and a round over thousands of partitions has as many of them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from protocol.records.checksums import crc32c
from storage.disk.files import File
from storage.disk.steps import SLICE_BYTES, Steps, off_loop

FEW_BYTES: Final = 64 * 1024
"""How many bytes are read where the caller is."""


@contextmanager
def pinned(file: File) -> Iterator[None]:
    """Keep the descriptor of `file` open meanwhile: see `File.pin`."""
    file.pin()
    try:
        yield
    finally:
        file.unpin()


def read_summed(file: File, size: int, position: int, crc: int = 0) -> Steps[tuple[bytes, int]]:
    """Read as `File.pread`; the bytes, and their CRC-32C, which continues `crc`.

    The file may be closed, replaced or removed meanwhile: these are the bytes that it had.
    """

    def read() -> tuple[bytes, int]:
        data = file.pread(size, position)
        return data, crc32c(data, crc)

    if size <= FEW_BYTES:
        result = read()
        yield None
        return result
    with pinned(file):
        return (yield from off_loop(read))


def sum_up(file: File, size: int, position: int) -> Steps[int]:
    """The CRC-32C of `size` bytes, read in slices; of the file that it was, as `read_summed`."""
    crc = 0
    with pinned(file):
        for at in range(position, position + size, SLICE_BYTES):
            _, crc = yield from read_summed(file, min(SLICE_BYTES, position + size - at), at, crc)
    return crc
