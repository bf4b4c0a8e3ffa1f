"""The four codecs, both ways, with a cap on what decompression may produce.

Owns framing (the form of a codec's bytes inside a Kafka batch) and limits; libraries provide the
algorithms. All libraries used release the interpreter lock while they work.

| codec  | framing written                     | also read                                     |
|--------|-------------------------------------|-----------------------------------------------|
| gzip   | one member                          | several members                               |
| snappy | xerial: header, then 32 KiB blocks  | raw snappy without header (librdkafka), several
|        |                                     | xerial streams in a row                       |
| lz4    | one frame, 64 KiB blocks, no sizes  | any block size, content size, checksums       |
| zstd   | one frame                           | several frames; window at most 8 MiB          |

The libraries of snappy and zstd are imported with the first data of their kind, not by each start:
most brokers never have both, and each takes 2 ms.

Invariant: no call returns, or holds in memory, more than `max_bytes` plus one library buffer,
whatever sizes the input claims. Input may consist of many almost empty pieces (gzip members, snappy
or zstd blocks). Each costs a turn of a loop in Python, so their number is bounded too.

Dependent LZ4 blocks are refused although the library could read them: Kafka's Java clients cannot,
so a broker that accepted them would store batches that those consumers fail on. librdkafka,
kafka-python, aiokafka and the Java client all write independent blocks.

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
from lz4 import block as lz4_block
from lz4 import frame as lz4_frame

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
_LZ4_OPTIONS: Final = 0x1D
"""Flags of checksums, of the size of the content and of a dictionary."""
_LZ4_BLOCK_BYTES: Final = 64 * 1024
_LZ4_STORED: Final = 0x80000000
"""In the size of a block that is not compressed."""
_LZ4_END_MARK: Final = bytes(4)
_LZ4_SMALLEST_BLOCKS: Final = 4
"""Of 64 KiB, as producers have them."""
_LZ4_DEFAULT_LEVEL: Final = 9
_ZSTD_WINDOW_LOG_MAX: Final = ZSTD_WINDOW_BYTES_MAX.bit_length() - 1
_ZSTD_DEFAULT_LEVEL: Final = 3
_ZSTD_WIDE_LEVEL: Final = 20
"""The first level whose window may be larger than `ZSTD_WINDOW_BYTES_MAX`."""
_ZSTD_SKIPPABLE: Final = 0x184D2A50
_ZSTD_RLE_BLOCK: Final = 1
_UINT32_LE: Final = struct.Struct("<I")
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
    # Kafka's default level 9 selects the fast compressor, every other level the thorough one.
    strength = 0 if level is None or level == _LZ4_DEFAULT_LEVEL else level
    frame = lz4_frame.compress(
        data,
        compression_level=strength,
        block_size=lz4_frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    if not legacy:
        return bytes(frame)
    broken = bytearray(frame)
    broken[6] = _lz4_header_checksum(broken[0:6])
    return bytes(broken)


def _lz4_header_checksum(covered: Buffer) -> int:
    """LZ4's header checksum: the second byte of xxHash32 with seed 0."""
    return (xxhash.xxh32_intdigest(bytes(covered)) >> 8) & 0xFF


def _lz4_header_size(data: memoryview) -> int:
    """Bytes of the frame header, checksum included, after the checks that Kafka makes.

    Raises:
        CorruptRecords: wrong magic or version, reserved bits, dependent blocks, block size code
            outside 4 to 7, or a header cut short.
    """
    if len(data) < 7 or bytes(data[:4]) != _LZ4_MAGIC:
        raise CorruptRecords("lz4 data does not start with a frame header")
    flags, descriptor = data[4], data[5]
    if flags >> 6 != 1:
        raise CorruptRecords(f"lz4 frame has version {flags >> 6}, expected 1")
    if flags & 0x03 or descriptor & 0x8F:
        raise CorruptRecords("lz4 frame uses a dictionary or reserved bits")
    if not flags & 0x20:
        raise CorruptRecords("lz4 frame has dependent blocks, which Kafka clients cannot read")
    if not 4 <= descriptor >> 4 <= 7:
        raise CorruptRecords(f"lz4 frame has block size code {descriptor >> 4}, expected 4 to 7")
    size = 15 if flags & 0x08 else 7
    if len(data) < size:
        raise CorruptRecords("lz4 data ends inside the frame header")
    return size


class _Lz4Contexts(threading.local):
    """One decompression context per thread: making one costs more than a batch of 16 KB."""

    def __init__(self) -> None:
        self.decompressor = lz4_frame.LZ4FrameDecompressor()


_lz4 = _Lz4Contexts()


def _decompress_lz4(data: memoryview, max_bytes: int, _max_pieces: int, legacy: bool) -> Buffer:
    """The content of one frame; `legacy` frames have any header checksum."""
    header_size = _lz4_header_size(data)
    header = bytearray(data[:header_size])
    checksum = _lz4_header_checksum(header[4:-1])
    if header[-1] != checksum and not legacy:
        raise CorruptRecords("lz4 frame header has a wrong checksum")
    header[-1] = checksum
    block = _lz4_only_block(data, header_size)
    if block is not None and len(block) <= max_bytes:
        return block
    if header[_LZ4_BLOCK_SIZE_AT] >> 4 != _LZ4_SMALLEST_BLOCKS:
        # The context keeps the memory of its largest blocks.
        return _decompress_lz4_frame(lz4_frame.LZ4FrameDecompressor(), header, data, max_bytes)
    try:
        content = _decompress_lz4_frame(_lz4.decompressor, header, data, max_bytes)
    except BaseException:
        # A reset in the middle of a frame keeps how much content the frame has promised, and the
        # next frame would be refused for that.
        _lz4.decompressor = lz4_frame.LZ4FrameDecompressor()
        raise
    _lz4.decompressor.reset()
    return content


def _lz4_only_block(data: memoryview, header_size: int) -> Buffer | None:
    """The content of a frame of one block; None for any other frame, and for a damaged one.

    So are the frames of batches up to 64 KiB: it takes a third of the time of a context.
    """
    if data[_LZ4_FLAGS_AT] & _LZ4_OPTIONS or data[_LZ4_BLOCK_SIZE_AT] >> 4 != _LZ4_SMALLEST_BLOCKS:
        return None
    start, end = header_size + _UINT32_LE.size, len(data) - _UINT32_LE.size
    if start > end or data[end:] != _LZ4_END_MARK:
        return None
    (size,) = _UINT32_LE.unpack_from(data, header_size)
    if size & ~_LZ4_STORED != end - start or not 0 < end - start <= _LZ4_BLOCK_BYTES:
        return None
    if size & _LZ4_STORED:
        return data[start:end]
    try:
        content: bytes = lz4_block.decompress(data[start:end], uncompressed_size=_LZ4_BLOCK_BYTES)
    except lz4_block.LZ4BlockError:
        return None
    return content


def _decompress_lz4_frame(
    decompressor: lz4_frame.LZ4FrameDecompressor,
    header: bytearray,
    data: memoryview,
    max_bytes: int,
) -> Buffer:
    """The content of the frame that begins with `header`, by a fresh `decompressor`."""
    decompressor.decompress(bytes(header))
    parts: list[bytes] = []
    produced = 0
    rest: Buffer = data[len(header) :]
    while True:
        # One byte more than allowed distinguishes "exactly full" from "too long".
        wanted = min(max_bytes - produced + 1, _guess_output(len(data), produced))
        part: bytes = decompressor.decompress(rest, max_length=wanted)
        produced += len(part)
        parts.append(part)
        if produced > max_bytes:
            raise _limit_exceeded(Codec.LZ4, max_bytes)
        if decompressor.eof:
            break
        if decompressor.needs_input or not part:
            raise CorruptRecords("lz4 data ends before its end mark")
        rest = b""
    if decompressor.unused_data:
        raise CorruptRecords("foreign bytes follow the lz4 frame")
    return parts[0] if len(parts) == 1 else b"".join(parts)


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
