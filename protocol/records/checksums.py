"""CRC-32C and CRC-32 over a buffer, borrowed and never copied.

CRC-32C (Castagnoli) guards magic 2 batches, index snapshots and journals; CRC-32 (zlib's) guards
magic 0 and 1 messages. The `crc32c` package uses the processor's instruction where there is one;
where it cannot be imported, `crcmod` (whose predefined polynomial is our portable definition) takes
its place, and a test compares the two.

Source: RFC 3720 appendix B.4 for the polynomial; Kafka `Crc32C`.
"""

import zlib
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Protocol

Buffer = bytes | bytearray | memoryview


class Crc(Protocol):
    """A function that computes checksums."""

    def __call__(self, buffer: Buffer, seed: int = 0, /) -> int:
        """The checksum of `buffer`, continuing from `seed`."""


def _portable_crc32c() -> Crc:
    """The pure definition, by crcmod; its table is built once per process."""
    from crcmod.predefined import mkPredefinedCrcFun

    function = mkPredefinedCrcFun("crc-32c")

    def portable(buffer: Buffer, seed: int = 0) -> int:
        # crcmod's C extension takes contiguous buffers, but not read-only memoryviews of all kinds.
        return int(function(bytes(buffer), seed))

    return portable


def _fastest_crc32c() -> tuple[Crc, bool]:
    """(function, hardware?): the `crc32c` package when it can be imported, else crcmod.

    Only its extension is loaded. The package itself looks up its own version on import, which reads
    metadata and imports the e-mail parser: 20 ms and 2 MB of every start.
    """
    package = find_spec("crc32c")
    places = None if package is None else package.submodule_search_locations
    spec = PathFinder.find_spec("_crc32c", places)
    try:
        if spec is None or spec.loader is None:
            from crc32c import crc32c as package_crc32c
            from crc32c import hardware_based

            return package_crc32c, bool(hardware_based)
        extension = module_from_spec(spec)
        spec.loader.exec_module(extension)
    except ImportError:
        return _portable_crc32c(), False
    return extension.crc32c, bool(extension.hardware_based)


crc32c, HARDWARE_CRC32C = _fastest_crc32c()
"""CRC-32C of a buffer, continuing from a second argument, the CRC of what came before it."""


def crc32(buffer: Buffer, seed: int = 0) -> int:
    """CRC-32 of `buffer` as an unsigned number, continuing from `seed`."""
    return zlib.crc32(buffer, seed)
