"""The four codecs of Kafka's batches, with pyarrow and Python's own libraries.

`protocol.records.compression` needs three packages that a Spark worker may not have; pyarrow is
there wherever our source runs. Output is capped, and an invalid stream is `CorruptData`.

Framing: gzip and zstd as they are; lz4 is one frame (a foreign content size or block checksum is
fine); snappy is xerial blocks, or raw as librdkafka writes it.

Source: Kafka `CompressionType`; snappy-java `SnappyInputStream`.
"""

import zlib
from typing import Final

import pyarrow as pa

from pipeline.errors import CorruptData

NONE: Final = 0
GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4

NAMES: Final = {"none": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}

DECOMPRESSED_BYTES_MAX: Final = 1 << 30
"""The most bytes that one batch may decompress to; Arrow's 32-bit ends hold twice as much."""

_GZIP_WBITS: Final = 31
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES: Final = 16
_XERIAL_HEADER: Final = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_CHUNK_BYTES: Final = 1 << 20


def compress(codec: int, data: bytes | bytearray | memoryview) -> bytes:
    """`data` framed as Kafka's clients expect it inside a batch; `codec` is Kafka's number."""
    if codec == NONE:
        return bytes(data)
    if codec == GZIP:
        return zlib.compress(data, -1, _GZIP_WBITS)
    if codec == SNAPPY:
        parts = [_XERIAL_HEADER]
        view = memoryview(data)
        for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
            block = view[start : start + _XERIAL_BLOCK_BYTES]
            packed = pa.compress(block, codec="snappy", asbytes=True)
            parts += [len(packed).to_bytes(4, "big"), packed]
        return b"".join(parts)
    name = "lz4" if codec == LZ4 else "zstd"
    return bytes(pa.compress(data, codec=name, asbytes=True))


def decompress(
    codec: int, data: memoryview, max_bytes: int = DECOMPRESSED_BYTES_MAX
) -> bytes | memoryview:
    """The decompressed `data`.

    Raises:
        CorruptData: not a valid stream of `codec`, an undefined codec, or longer than `max_bytes`.
    """
    try:
        if codec == NONE:
            return data
        if codec == SNAPPY:
            return _snappy(data, max_bytes)
        if codec in (GZIP, LZ4, ZSTD):
            return _stream({GZIP: "gzip", LZ4: "lz4", ZSTD: "zstd"}[codec], data, max_bytes)
    except (pa.ArrowException, OSError, IndexError, ValueError) as error:
        raise CorruptData(f"a compressed batch cannot be read: {error}") from error
    raise CorruptData(f"compression codec {codec} is not defined")


def _stream(name: str, data: memoryview, max_bytes: int) -> bytes:
    parts: list[bytes] = []
    produced = 0
    with pa.CompressedInputStream(pa.BufferReader(data), name) as stream:
        while part := stream.read(_CHUNK_BYTES):
            produced += len(part)
            _check_limit(produced, max_bytes)
            parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _check_limit(size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise CorruptData(f"a batch decompresses to more than {max_bytes} bytes")


def _snappy(data: memoryview, max_bytes: int) -> bytes | memoryview:
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _raw_snappy(data, max_bytes)
    parts: list[bytes | memoryview] = []
    position = _XERIAL_HEADER_BYTES
    produced = 0
    while position < len(data):
        size = int.from_bytes(data[position : position + 4], "big")
        position += 4
        if size > len(data) - position:
            raise CorruptData("a snappy block runs past its batch")
        part = _raw_snappy(data[position : position + size], max_bytes - produced)
        produced += len(part)
        parts.append(part)
        position += size
    return b"".join(parts)


def _raw_snappy(data: memoryview, max_bytes: int) -> memoryview:
    """One raw block, which starts with its uncompressed size as an unsigned varint."""
    size = shift = position = 0
    while True:
        byte = data[position]
        size |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            break
        if shift > 28:
            raise CorruptData("a snappy block claims an impossible size")
    _check_limit(size, max_bytes)
    return memoryview(pa.decompress(data, decompressed_size=size, codec="snappy")).cast("B")
