"""The four codecs, both ways, with a cap on what decompression may produce.

Owns framing (the form of a codec's bytes inside a Kafka batch) and limits; libraries provide the
algorithms: cramjam has blocks of snappy and lz4, and wheels for every C library, musl too. All
libraries used release the interpreter lock while they work.

| codec  | framing written                     | also read                                     |
|--------|-------------------------------------|-----------------------------------------------|
| gzip   | one member                          | several members                               |
| snappy | xerial: header, then 32 KiB blocks  | raw snappy without header (librdkafka), several
|        |                                     | xerial streams in a row                       |
| lz4    | one frame, 64 KiB blocks, no sizes  | any block size, content size, checksums       |
| zstd   | one frame                           | several frames; window at most 8 MiB          |

The libraries of snappy, lz4 and zstd are imported with the first data of their kind, not by each
start: most brokers never have all, and each takes 2 ms.

Invariant: no call returns, or holds in memory, more than `max_bytes` plus one library buffer,
whatever sizes the input claims. Input may consist of many almost empty pieces (gzip members; blocks
of snappy, lz4 or zstd). Each costs a turn of a loop in Python, so their number is bounded too.

Dependent LZ4 blocks are refused: Kafka's Java clients cannot read them, so a broker that accepted
them would store batches that those consumers fail on. librdkafka, kafka-python, aiokafka and the
Java client all write independent blocks. So is an empty stored block, which those clients take for
the end of the frame.

LZ4 under magic 0 has a checksum quirk (KIP-57): the header checksum was computed over four bytes
too many. With `legacy_lz4` it is written that way and not checked when reading, as in Kafka.

Source: Kafka `CompressionType`, `Lz4BlockInputStream`; snappy-java `SnappyInputStream`; KIP-57.
"""

import struct
import threading
import zlib
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Final

import xxhash

from protocol.errors import (
    CorruptRecords,
    DecompressionLimitExceeded,
)
from protocol.records.checksums import Buffer
from protocol.records.layout import INT32, Codec

if TYPE_CHECKING:
    import zstandard

ZSTD_WINDOW_BYTES_MAX: Final = 8 * 1024 * 1024
"""Largest zstd window accepted; a decoder holds it in memory besides its output."""

PIECES_MAX: Final = 65_536
"""Members or blocks that one batch may have: of 64 MiB they would have a kibibyte each."""

_GZIP_WBITS: Final = 31
_GZIP_CHUNK_BYTES: Final = 4096
_GZIP_MAGIC: Final = b"\x1f\x8b"
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_SNAPPY_RATIO_MAX: Final = 64
"""Snappy cannot shrink data further than about 21 times; a larger claim is false."""
_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_FLAGS_AT: Final = 4
_LZ4_BLOCK_SIZE_AT: Final = 5
_LZ4_HEADER_BYTES: Final = 7
"""Without the size of the content, which stands before the checksum, the last byte."""
_LZ4_DESCRIPTOR: Final = b"\x60\x40"
"""Version 1, independent blocks, no checksums and no size; blocks of 64 KiB."""
_LZ4_HAS_BLOCK_CHECKSUMS: Final = 0x10
_LZ4_HAS_SIZE: Final = 0x08
_LZ4_HAS_CHECKSUM: Final = 0x04
_LZ4_BLOCK_BYTES: Final = 64 * 1024
_LZ4_STORED: Final = 0x80000000
"""In the size of a block that is not compressed."""
_LZ4_END_MARK: Final = bytes(4)
_LZ4_RATIO_MAX: Final = 255
"""A byte of a block stands for this many of its content at most."""
_LZ4_DEFAULT_LEVEL: Final = 9
_ZSTD_WINDOW_LOG_MAX: Final = ZSTD_WINDOW_BYTES_MAX.bit_length() - 1
_ZSTD_DEFAULT_LEVEL: Final = 3
_ZSTD_WIDE_LEVEL: Final = 20
"""The first level whose window may be larger than `ZSTD_WINDOW_BYTES_MAX`."""
_ZSTD_SKIPPABLE: Final = 0x184D2A50
_ZSTD_RLE_BLOCK: Final = 1
_UINT32_LE: Final = struct.Struct("<I")
_UINT64_LE: Final = struct.Struct("<Q")
_FIRST_READ_BYTES: Final = 64 * 1024
"""Output requested first. Libraries allocate the requested size, and more would come from the
kernel page by page, which for a small batch costs more than decompressing it."""


def compress(
    codec: Codec,
    data: Buffer,
    level: int | None = None,
    *,
    legacy_lz4: bool = False,
    like: memoryview | None = None,
) -> bytes:
    """`data` compressed and framed as Kafka expects it inside a batch.

    `level` is the codec's own (gzip 1-9 or -1, lz4 1-17, zstd -131072 to 22); None and Kafka's
    defaults give the library's default. `legacy_lz4` writes the checksum quirk of magic 0. `like`
    is what the new bytes replace: snappy without a header stays so, as some clients read no other.
    """
    if codec == Codec.NONE:
        return bytes(data)
    if codec == Codec.GZIP:
        return zlib.compress(data, -1 if level is None else level, _GZIP_WBITS)
    if codec == Codec.SNAPPY:
        if like is not None and not _has_xerial_header(like, 0):
            return _compress_snappy_block(data)
        return _compress_snappy(data)
    if codec == Codec.LZ4:
        return _compress_lz4(data, level, legacy=legacy_lz4)
    return _compress_zstd(data, _ZSTD_DEFAULT_LEVEL if level is None else level)


def decompress(
    codec: Codec,
    data: Buffer,
    *,
    max_bytes: int,
    legacy_lz4: bool = False,
    max_pieces: int = PIECES_MAX,
) -> Buffer:
    """The decompressed `data`, at most `max_bytes` long; `data` itself for NONE.

    Raises:
        CorruptRecords: the data is not a complete, valid stream of `codec`.
        DecompressionLimitExceeded: the output would be longer than `max_bytes`, or the data
            consists of more than `max_pieces` members or blocks.
    """
    if codec == Codec.NONE:
        return data
    try:
        return _DECOMPRESSORS[codec](memoryview(data), max_bytes, max_pieces, legacy_lz4)
    except (zlib.error, RuntimeError) as error:
        raise _corrupt(codec, error) from error


def _corrupt(codec: Codec, error: Exception) -> CorruptRecords:
    """The fault that a library has found."""
    return CorruptRecords(f"{codec.name.lower()} data is corrupt: {error}")


def _limit_exceeded(codec: Codec, max_bytes: int) -> DecompressionLimitExceeded:
    """The refusal to produce more, naming the cap."""
    return DecompressionLimitExceeded(
        f"{codec.name.lower()} data decompresses to more than {max_bytes} bytes"
    )


def _too_many_pieces(codec: Codec, max_pieces: int) -> DecompressionLimitExceeded:
    """The refusal to go through more members or blocks, naming the cap."""
    return DecompressionLimitExceeded(
        f"{codec.name.lower()} data consists of more than {max_pieces} members or blocks"
    )


def _guess_output(packed: int, produced: int) -> int:
    """How many more bytes to request: a usual ratio first, then as much as the output so far."""
    return max(_FIRST_READ_BYTES, 8 * packed, produced)


# --- gzip ---------------------------------------------------------------------------------------


def _decompress_gzip(data: memoryview, max_bytes: int, max_pieces: int, _legacy: bool) -> Buffer:
    """All members of `data`, one after another."""
    member = zlib.decompressobj(_GZIP_WBITS)
    # One byte more than allowed distinguishes "exactly full" from "too long".
    first = member.decompress(data, max_bytes + 1)
    if len(first) > max_bytes:
        raise _limit_exceeded(Codec.GZIP, max_bytes)
    if not member.eof:
        raise CorruptRecords("gzip data ends before its trailer")
    if not member.unused_data:
        return first
    parts = [first]
    produced = len(first)
    position = len(data) - len(member.unused_data)
    while position < len(data):
        if bytes(data[position : position + len(_GZIP_MAGIC)]) != _GZIP_MAGIC:
            raise CorruptRecords(f"{len(data) - position} foreign bytes follow the gzip data")
        if len(parts) >= max_pieces:
            raise _too_many_pieces(Codec.GZIP, max_pieces)
        part, position = _gzip_member(data, position, max_bytes - produced + 1)
        produced += len(part)
        parts.append(part)
        if produced > max_bytes:
            raise _limit_exceeded(Codec.GZIP, max_bytes)
    return b"".join(parts)


def _gzip_member(data: memoryview, position: int, most: int) -> tuple[bytes, int]:
    """The content of the member at `position`, at most `most` bytes, and the position after it.

    It is fed in chunks, because the library copies the bytes after a member: for the first of many
    members that would be most of the data.
    """
    member = zlib.decompressobj(_GZIP_WBITS)
    parts: list[bytes] = []
    while most and not member.eof:
        chunk: Buffer = member.unconsumed_tail
        if not chunk:
            chunk = data[position : position + _GZIP_CHUNK_BYTES]
            position += len(chunk)
            if not chunk:
                raise CorruptRecords("gzip data ends before its trailer")
        part = member.decompress(chunk, most)
        parts.append(part)
        most -= len(part)
    return b"".join(parts), position - len(member.unused_data)


# --- snappy -------------------------------------------------------------------------------------


def _compress_snappy_block(data: Buffer) -> bytes:
    """`data` as one raw block."""
    import cramjam

    return bytes(cramjam.snappy.compress_raw(data))


def _compress_snappy(data: Buffer) -> bytes:
    """`data` in xerial's framing: a 16-byte header, then length-prefixed snappy blocks."""
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = _compress_snappy_block(view[start : start + _XERIAL_BLOCK_BYTES])
        parts.append(INT32.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def _decompress_snappy(data: memoryview, max_bytes: int, max_pieces: int, _legacy: bool) -> Buffer:
    """Xerial's framing when `data` starts with its magic, else one raw snappy block.

    The version numbers after the magic are ignored: there is one framing, and some producers write
    them little-endian.
    """
    if not data:
        raise CorruptRecords("snappy data is empty")
    if not _has_xerial_header(data, 0):
        return _snappy_blocks([data], max_bytes)
    blocks: list[memoryview] = []
    position = len(_XERIAL_HEADER)
    while position < len(data):
        if _has_xerial_header(data, position):
            position += len(_XERIAL_HEADER)
            continue
        if len(data) - position < INT32.size:
            raise CorruptRecords("snappy data ends inside a block length")
        (size,) = INT32.unpack_from(data, position)
        position += INT32.size
        if not 0 < size <= len(data) - position:
            raise CorruptRecords(f"snappy block of {size} bytes in {len(data) - position}")
        blocks.append(data[position : position + size])
        position += size
        if len(blocks) > max_pieces:
            raise _too_many_pieces(Codec.SNAPPY, max_pieces)
    return _snappy_blocks(blocks, max_bytes)


def _has_xerial_header(data: memoryview, position: int) -> bool:
    """Whether a whole xerial header begins at `position`."""
    magic = bytes(data[position : position + len(_XERIAL_MAGIC)])
    return magic == _XERIAL_MAGIC and len(data) - position >= len(_XERIAL_HEADER)


def _snappy_blocks(blocks: list[memoryview], max_bytes: int) -> Buffer:
    """The concatenated content of raw snappy `blocks`, which claim their sizes in advance."""
    import cramjam

    try:
        return _decompressed_blocks(cramjam.snappy, blocks, max_bytes)
    except cramjam.DecompressionError as error:
        raise _corrupt(Codec.SNAPPY, error) from error


def _decompressed_blocks(snappy: ModuleType, blocks: list[memoryview], max_bytes: int) -> Buffer:
    sizes: list[int] = []
    for block in blocks:
        claimed = snappy.decompress_raw_len(block)
        if claimed > _SNAPPY_RATIO_MAX * len(block):
            raise CorruptRecords(f"snappy block of {len(block)} bytes claims {claimed}")
        sizes.append(claimed)
    if sum(sizes) > max_bytes:
        raise _limit_exceeded(Codec.SNAPPY, max_bytes)
    out = bytearray(sum(sizes))
    view = memoryview(out)
    position = 0
    for block, size in zip(blocks, sizes, strict=True):
        if size:
            produced = snappy.decompress_raw_into(block, view[position : position + size])
            if produced != size:
                raise CorruptRecords(f"snappy block claims {size} bytes but holds {produced}")
        position += size
    view.release()
    return out


# --- lz4 ----------------------------------------------------------------------------------------


def _compress_lz4(data: Buffer, level: int | None, *, legacy: bool) -> bytes:
    """`data` as one LZ4 frame of independent 64 KiB blocks without sizes or checksums."""
    view = memoryview(data)
    header = _LZ4_MAGIC + _LZ4_DESCRIPTOR
    covered = header if legacy else _LZ4_DESCRIPTOR
    parts: list[Buffer] = [header, bytes([_lz4_header_checksum(covered)])]
    for start in range(0, len(view), _LZ4_BLOCK_BYTES):
        whole = view[start : start + _LZ4_BLOCK_BYTES]
        block = _lz4_block(whole, level)
        size = len(block)
        if size >= len(whole):
            block, size = whole, len(whole) | _LZ4_STORED
        parts += (_UINT32_LE.pack(size), block)
    parts.append(_LZ4_END_MARK)
    return b"".join(parts)


def _lz4_block(data: memoryview, level: int | None) -> Buffer:
    """One block of `data`."""
    import cramjam

    # Kafka's default level 9 selects the fast compressor, every other level the thorough one.
    if level is None or level == _LZ4_DEFAULT_LEVEL:
        return bytes(cramjam.lz4.compress_block(data, store_size=False))
    # The library has levels for frames alone: the block comes from a frame that has no other.
    frame = memoryview(bytes(cramjam.lz4.compress(data, level=level)))
    ((block, is_stored),) = _lz4_blocks(frame, _LZ4_BLOCK_BYTES, _LZ4_HEADER_BYTES, 1)
    return data if is_stored else block


def _lz4_header_checksum(covered: Buffer) -> int:
    """LZ4's header checksum: the second byte of xxHash32 with seed 0."""
    return (xxhash.xxh32_intdigest(bytes(covered)) >> 8) & 0xFF


def _lz4_header_size(data: memoryview) -> int:
    """Bytes of the frame header, checksum included, after the checks that Kafka makes.

    Raises:
        CorruptRecords: wrong magic or version, reserved bits, dependent blocks, block size code
            outside 4 to 7, or a header cut short.
    """
    if len(data) < _LZ4_HEADER_BYTES or bytes(data[:4]) != _LZ4_MAGIC:
        raise CorruptRecords("lz4 data does not start with a frame header")
    flags, descriptor = data[_LZ4_FLAGS_AT], data[_LZ4_BLOCK_SIZE_AT]
    if flags >> 6 != 1:
        raise CorruptRecords(f"lz4 frame has version {flags >> 6}, expected 1")
    if flags & 0x03 or descriptor & 0x8F:
        raise CorruptRecords("lz4 frame uses a dictionary or reserved bits")
    if not flags & 0x20:
        raise CorruptRecords("lz4 frame has dependent blocks, which Kafka clients cannot read")
    if not 4 <= descriptor >> 4 <= 7:
        raise CorruptRecords(f"lz4 frame has block size code {descriptor >> 4}, expected 4 to 7")
    size = _LZ4_HEADER_BYTES + (_UINT64_LE.size if flags & _LZ4_HAS_SIZE else 0)
    if len(data) < size:
        raise CorruptRecords("lz4 data ends inside the frame header")
    return size


class _Lz4Scratch(threading.local):
    """Room for one block, for each thread: most batches are one."""

    def __init__(self) -> None:
        self.room = memoryview(bytearray(_LZ4_BLOCK_BYTES))


_lz4 = _Lz4Scratch()


def _decompress_lz4(data: memoryview, max_bytes: int, max_pieces: int, legacy: bool) -> Buffer:
    """The content of one frame; `legacy` frames have any header checksum."""
    header_size = _lz4_header_size(data)
    if not legacy and data[header_size - 1] != _lz4_header_checksum(data[4 : header_size - 1]):
        raise CorruptRecords("lz4 frame header has a wrong checksum")
    block_bytes = 1 << (8 + 2 * (data[_LZ4_BLOCK_SIZE_AT] >> 4))
    blocks = _lz4_blocks(data, block_bytes, header_size, max_pieces)
    content = _lz4_content(blocks, block_bytes, max_bytes)
    flags = data[_LZ4_FLAGS_AT]
    if flags & _LZ4_HAS_SIZE:
        (claimed,) = _UINT64_LE.unpack_from(data, _LZ4_HEADER_BYTES - 1)
        if claimed != len(content):
            raise CorruptRecords(f"lz4 frame claims {claimed} bytes but holds {len(content)}")
    if flags & _LZ4_HAS_CHECKSUM:
        (checksum,) = _UINT32_LE.unpack_from(data, len(data) - _UINT32_LE.size)
        if checksum != xxhash.xxh32_intdigest(content):
            raise CorruptRecords("lz4 frame has a wrong checksum of its content")
    return content


def _lz4_blocks(
    data: memoryview, block_bytes: int, position: int, max_pieces: int
) -> list[tuple[memoryview, bool]]:
    """The blocks of the frame, each with whether it is stored; after them the frame must end.

    Raises:
        CorruptRecords: a block is cut short, too large, empty or damaged, or bytes follow.
        DecompressionLimitExceeded: there are more than `max_pieces`.
    """
    flags = data[_LZ4_FLAGS_AT]
    checksum_bytes = _UINT32_LE.size if flags & _LZ4_HAS_BLOCK_CHECKSUMS else 0
    blocks: list[tuple[memoryview, bool]] = []
    try:
        while (word := _UINT32_LE.unpack_from(data, position)[0]) != 0:
            start = position + _UINT32_LE.size
            end = start + (word & ~_LZ4_STORED)
            if not 0 < end - start <= block_bytes:
                raise CorruptRecords(
                    f"lz4 block of {end - start} bytes, expected 1 to {block_bytes}"
                )
            if len(blocks) >= max_pieces:
                raise _too_many_pieces(Codec.LZ4, max_pieces)
            position = end + checksum_bytes
            if checksum_bytes:
                (checksum,) = _UINT32_LE.unpack_from(data, end)
                if checksum != xxhash.xxh32_intdigest(data[start:end]):
                    raise CorruptRecords("lz4 block has a wrong checksum")
            blocks.append((data[start:end], bool(word & _LZ4_STORED)))
    except struct.error as error:
        raise CorruptRecords("lz4 data ends before its end mark") from error
    position += _UINT32_LE.size * (2 if flags & _LZ4_HAS_CHECKSUM else 1)
    if position > len(data):
        raise CorruptRecords("lz4 data ends inside the checksum of its content")
    if position < len(data):
        raise CorruptRecords("foreign bytes follow the lz4 frame")
    return blocks


def _lz4_content(blocks: list[tuple[memoryview, bool]], block_bytes: int, max_bytes: int) -> Buffer:
    """What blocks of at most `block_bytes` hold together."""
    if len(blocks) == 1 and block_bytes == _LZ4_BLOCK_BYTES:
        content = _lz4_single(*blocks[0])
        if len(content) > max_bytes:
            raise _limit_exceeded(Codec.LZ4, max_bytes)
        return content
    most = sum(min(block_bytes, _LZ4_RATIO_MAX * len(block)) for block, _ in blocks)
    # A block that begins within the limit has room: a damaged one is then not taken for one too
    # many.
    out = bytearray(min(most, max_bytes + block_bytes))
    position = 0
    with memoryview(out) as view:
        for block, is_stored in blocks:
            if is_stored:
                view[position : position + len(block)] = block
                position += len(block)
            else:
                position += _lz4_decompress_into(block, view[position : position + block_bytes])
            if position > max_bytes:
                raise _limit_exceeded(Codec.LZ4, max_bytes)
    del out[position:]
    return out


def _lz4_single(block: memoryview, is_stored: bool) -> Buffer:
    """The content of a block of at most 64 KiB."""
    if is_stored:
        return block
    room = _lz4.room
    return bytes(room[: _lz4_decompress_into(block, room)])


def _lz4_decompress_into(block: memoryview, room: memoryview) -> int:
    """How many bytes of `room` the content of a block has filled."""
    import cramjam

    try:
        return int(cramjam.lz4.decompress_block_into(block, room))
    except cramjam.DecompressionError as error:
        raise _corrupt(Codec.LZ4, error) from error


# --- zstd ---------------------------------------------------------------------------------------


class _ZstdContexts(threading.local):
    """One decompression context per thread: making one costs as much as a small batch."""

    decompressor: "zstandard.ZstdDecompressor | None" = None


_zstd = _ZstdContexts()


def _compress_zstd(data: Buffer, level: int) -> bytes:
    import zstandard

    if level < _ZSTD_WIDE_LEVEL:
        return zstandard.ZstdCompressor(level=level).compress(data)
    # The highest levels look back further than is accepted here.
    parameters = zstandard.ZstdCompressionParameters.from_level(
        level, source_size=len(data), window_log=_ZSTD_WINDOW_LOG_MAX
    )
    return zstandard.ZstdCompressor(compression_params=parameters).compress(data)


def _decompress_zstd(data: memoryview, max_bytes: int, max_pieces: int, _legacy: bool) -> Buffer:
    """All frames of `data`, one after another."""
    import zstandard

    if _zstd.decompressor is None:
        _zstd.decompressor = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES_MAX)
    parts: list[bytes] = []
    produced = 0
    try:
        with _zstd.decompressor.stream_reader(data, read_across_frames=True) as reader:
            while part := reader.read(min(max_bytes + 1, _guess_output(len(data), produced))):
                parts.append(part)
                produced += len(part)
                if produced > max_bytes:
                    raise _limit_exceeded(Codec.ZSTD, max_bytes)
    except zstandard.ZstdError as error:
        raise _corrupt(Codec.ZSTD, error) from error
    _expect_whole_zstd_frames(data, max_pieces)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _expect_whole_zstd_frames(data: memoryview, max_pieces: int) -> None:
    """Refuse data that ends inside a frame, which the library's reader treats as a normal end.

    Follows the block sizes only; the content has been decoded before.
    """
    position = 0
    try:
        while position < len(data) or position == 0:
            position, blocks = _zstd_frame_end(data, position, max_pieces)
            max_pieces -= blocks
    except (struct.error, IndexError) as error:
        raise CorruptRecords("zstd data ends inside a frame header") from error
    if position != len(data):
        raise CorruptRecords("zstd data ends inside a frame")


def _zstd_frame_end(data: memoryview, position: int, max_blocks: int) -> tuple[int, int]:
    """The position after the frame at `position`, maybe beyond `data`, and its number of blocks.

    Source: RFC 8878, sections 3.1.1 and 3.1.2.
    """
    (magic,) = _UINT32_LE.unpack_from(data, position)
    if magic & 0xFFFFFFF0 == _ZSTD_SKIPPABLE:
        return position + 8 + int(_UINT32_LE.unpack_from(data, position + 4)[0]), 1
    descriptor = data[position + 4]
    is_single_segment = bool(descriptor & 0x20)
    content_size_bytes = (1 if is_single_segment else 0, 2, 4, 8)[descriptor >> 6]
    dictionary_id_bytes = (0, 1, 2, 4)[descriptor & 3]
    position += 5 + (not is_single_segment) + dictionary_id_bytes + content_size_bytes
    is_last = False
    blocks = 0
    while not is_last:
        blocks += 1
        if blocks > max_blocks:
            raise _too_many_pieces(Codec.ZSTD, max_blocks)
        header = data[position] | data[position + 1] << 8 | data[position + 2] << 16
        is_last = bool(header & 1)
        # A run-length block stores one byte, regardless of its length field.
        position += 3 + (1 if header >> 1 & 3 == _ZSTD_RLE_BLOCK else header >> 3)
    return position + (4 if descriptor & 0x04 else 0), blocks


_DECOMPRESSORS: Final[dict[Codec, Callable[[memoryview, int, int, bool], Buffer]]] = {
    Codec.GZIP: _decompress_gzip,
    Codec.SNAPPY: _decompress_snappy,
    Codec.LZ4: _decompress_lz4,
    Codec.ZSTD: _decompress_zstd,
}
