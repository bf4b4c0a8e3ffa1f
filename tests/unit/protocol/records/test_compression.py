"""Codecs: framing as Kafka has it, foreign framings that occur, and a cap on every output."""

import gzip
import random
import struct
import tracemalloc
from collections.abc import Iterator

import cramjam
import pytest
import zstandard
from lz4 import frame as lz4_frame

from protocol.errors import CorruptRecords, DecompressionLimitExceeded
from protocol.records import compression
from protocol.records.compression import ZSTD_WINDOW_BYTES_MAX, compress, decompress
from protocol.records.layout import Codec

REAL_CODECS = [codec for codec in Codec if codec != Codec.NONE]
TEXT = b"".join(b"line %d of a text that repeats itself\n" % (i % 97) for i in range(3000))
LIMIT = 1 << 20


def unlimited(codec: Codec, data: bytes | bytearray, *, legacy: bool = False) -> bytes:
    return bytes(decompress(codec, data, max_bytes=LIMIT, legacy_lz4=legacy))


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("data", [b"", b"a", TEXT, bytes(range(256)) * 300])
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_what_goes_in_comes_out(codec: Codec, data: bytes, kind: type) -> None:
    packed = compress(codec, kind(data))
    assert unlimited(codec, kind(packed)) == data
    assert bytes(decompress(codec, packed, max_bytes=len(data))) == data


@pytest.mark.parametrize(
    ("codec", "levels"),
    [
        (Codec.GZIP, [-1, 1, 9]),
        (Codec.LZ4, [1, 3, 9, 17]),
        (Codec.ZSTD, [-131072, 1, 3, 22]),
        (Codec.SNAPPY, [0]),
    ],
)
def test_every_level_kafka_allows(codec: Codec, levels: list[int]) -> None:
    for level in levels:
        assert unlimited(codec, compress(codec, TEXT, level)) == TEXT


# --- limits -------------------------------------------------------------------------------------


def bombs() -> Iterator[tuple[Codec, bytes]]:
    zeros = bytes(8 << 20)
    for codec in REAL_CODECS:
        yield codec, compress(codec, zeros)


@pytest.fixture(scope="module")
def bomb() -> dict[Codec, bytes]:
    return dict(bombs())


@pytest.mark.parametrize("codec", REAL_CODECS)
@pytest.mark.parametrize("limit", [0, 1, 65_536, (8 << 20) - 1])
def test_bombs_stop_at_the_limit(codec: Codec, limit: int, bomb: dict[Codec, bytes]) -> None:
    with pytest.raises(DecompressionLimitExceeded) as caught:
        decompress(codec, bomb[codec], max_bytes=limit)
    assert str(limit) in str(caught.value)


@pytest.mark.parametrize("codec", REAL_CODECS)
def test_exactly_full_is_allowed(codec: Codec, bomb: dict[Codec, bytes]) -> None:
    assert len(decompress(codec, bomb[codec], max_bytes=8 << 20)) == 8 << 20


def test_many_members_share_one_limit() -> None:
    members = {
        Codec.GZIP: compress(Codec.GZIP, bytes(1000)),
        Codec.ZSTD: compress(Codec.ZSTD, bytes(1000)),
    }
    for codec, member in members.items():
        with pytest.raises(DecompressionLimitExceeded):
            decompress(codec, member * 50, max_bytes=49_999)
        assert len(decompress(codec, member * 50, max_bytes=50_000)) == 50_000


def test_claimed_sizes_are_not_believed() -> None:
    claim = bytes([0xFF, 0xFF, 0xFF, 0xFF, 0x0F])  # A raw snappy length of 2^32 - 1.
    with pytest.raises(CorruptRecords):
        decompress(Codec.SNAPPY, claim + b"\x00a", max_bytes=LIMIT)
    frame = zstandard.ZstdCompressor(write_content_size=True).compress(bytes(2 << 20))
    with pytest.raises(DecompressionLimitExceeded):
        decompress(Codec.ZSTD, frame, max_bytes=LIMIT)


def test_zstd_window_above_the_limit_is_refused() -> None:
    for log, accepted in ((23, True), (24, False)):
        parameters = zstandard.ZstdCompressionParameters(window_log=log)
        writer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
        frame = writer.compress(TEXT) + writer.flush()
        assert (1 << log <= ZSTD_WINDOW_BYTES_MAX) is accepted
        if accepted:
            assert unlimited(Codec.ZSTD, frame) == TEXT
        else:
            with pytest.raises(CorruptRecords):
                unlimited(Codec.ZSTD, frame)


# --- damage -------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", REAL_CODECS)
def test_every_truncation_is_corrupt(codec: Codec) -> None:
    packed = compress(codec, TEXT[:5000])
    for size in range(len(packed)):
        if codec == Codec.SNAPPY and size == 16:
            continue  # Xerial's header alone is a whole, empty stream.
        with pytest.raises(CorruptRecords):
            unlimited(codec, packed[:size])


@pytest.mark.parametrize("codec", REAL_CODECS)
def test_foreign_bytes_after_the_stream_are_corrupt(codec: Codec) -> None:
    with pytest.raises(CorruptRecords):
        unlimited(codec, compress(codec, TEXT) + b"\x00\x00\x00\x05junk!")


@pytest.mark.parametrize("codec", REAL_CODECS)
def test_flipped_bits_give_data_or_a_typed_error(codec: Codec) -> None:
    packed = compress(codec, TEXT[:300])
    for position in range(len(packed)):
        for bit in range(8):
            damaged = bytearray(packed)
            damaged[position] ^= 1 << bit
            try:
                unlimited(codec, damaged)
            except (CorruptRecords, DecompressionLimitExceeded):
                continue


# --- framings -----------------------------------------------------------------------------------


def test_gzip_members_are_concatenated() -> None:
    assert unlimited(Codec.GZIP, gzip.compress(b"one ") + gzip.compress(b"two")) == b"one two"


def test_zstd_frames_are_concatenated_and_skippable_ones_skipped() -> None:
    skippable = struct.pack("<II", 0x184D2A53, 3) + b"xyz"
    frames = compress(Codec.ZSTD, b"one ") + skippable + compress(Codec.ZSTD, b"two")
    assert unlimited(Codec.ZSTD, frames) == b"one two"
    checked = zstandard.ZstdCompressor(write_checksum=True, write_content_size=False)
    assert unlimited(Codec.ZSTD, checked.compress(TEXT)) == TEXT
    with pytest.raises(CorruptRecords):
        unlimited(Codec.ZSTD, checked.compress(TEXT)[:-1])


def test_snappy_is_written_in_xerial_blocks() -> None:
    packed = compress(Codec.SNAPPY, TEXT)
    assert packed[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    size = int.from_bytes(packed[16:20], "big")
    assert bytes(cramjam.snappy.decompress_raw(packed[20 : 20 + size])) == TEXT[: 32 * 1024]


def test_raw_snappy_is_read() -> None:
    assert unlimited(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT))) == TEXT


def test_xerial_streams_may_follow_one_another_with_any_version() -> None:
    stream = compress(Codec.SNAPPY, b"one ")
    little_endian = stream[:8] + b"\x01\x00\x00\x00\x01\x00\x00\x00" + stream[16:]
    assert unlimited(Codec.SNAPPY, stream + little_endian) == b"one one "


@pytest.mark.parametrize("size", [0, -1, 100])
def test_xerial_block_lengths_are_checked(size: int) -> None:
    header = compress(Codec.SNAPPY, b"")
    with pytest.raises(CorruptRecords):
        unlimited(Codec.SNAPPY, header + struct.pack(">i", size) + b"\x00")


def test_lz4_frame_header_is_kafkas() -> None:
    assert compress(Codec.LZ4, b"x")[:7] == bytes.fromhex("04224d18604082")
    assert compress(Codec.LZ4, b"x", legacy_lz4=True)[:7] == bytes.fromhex("04224d1860401a")


def test_lz4_header_checksum_matters_except_in_magic_0() -> None:
    for legacy in (False, True):
        packed = compress(Codec.LZ4, TEXT, legacy_lz4=legacy)
        assert unlimited(Codec.LZ4, packed, legacy=True) == TEXT
    with pytest.raises(CorruptRecords):
        unlimited(Codec.LZ4, packed)


@pytest.mark.parametrize("block_size", [4, 5, 6, 7])
@pytest.mark.parametrize("store_size", [True, False])
@pytest.mark.parametrize("checksums", [True, False])
def test_lz4_frames_of_other_writers_are_read(
    block_size: int, store_size: bool, checksums: bool
) -> None:
    packed = lz4_frame.compress(
        TEXT,
        block_size=block_size,
        block_linked=False,
        store_size=store_size,
        content_checksum=checksums,
        block_checksum=checksums,
    )
    for legacy in (False, True):
        assert unlimited(Codec.LZ4, packed, legacy=legacy) == TEXT


@pytest.mark.parametrize("block_size", [4, 5, 6, 7])
@pytest.mark.parametrize("names_size", [True, False])
def test_an_lz4_frame_is_read_after_one_that_is_cut_off_damaged_or_too_long(
    block_size: int, names_size: bool
) -> None:
    """Also a frame that does not name its size after one that does, as those of clients."""
    data = random.Random(block_size).randbytes(30_000) + bytes(300_000)
    before = lz4_frame.compress(data, block_size=block_size, block_linked=False)
    good = lz4_frame.compress(
        data, block_size=block_size, block_linked=False, store_size=names_size
    )
    damaged = bytearray(before)
    damaged[-1] ^= 1  # the end mark
    for bad in (before[:-9], before[:20_000], bytes(damaged), before + b"foreign"):
        with pytest.raises(CorruptRecords):
            decompress(Codec.LZ4, bad, max_bytes=len(data))
        assert decompress(Codec.LZ4, good, max_bytes=len(data)) == data
    with pytest.raises(DecompressionLimitExceeded):
        decompress(Codec.LZ4, before, max_bytes=100_000)
    assert decompress(Codec.LZ4, good, max_bytes=len(data)) == data


@pytest.mark.parametrize("level", [None, 1, 3, 9, 12, 17])
@pytest.mark.parametrize("content", [b"", b"a", TEXT * 50, random.Random(1).randbytes(200_000)])
def test_other_readers_read_lz4_of_every_level(level: int | None, content: bytes) -> None:
    packed = compress(Codec.LZ4, content, level)
    assert lz4_frame.decompress(packed) == content
    blocks = -(-len(content) // 65_536)
    assert len(packed) <= len(content) + 11 + 4 * blocks, "blocks that do not shrink are stored"


def test_a_higher_level_of_lz4_is_smaller() -> None:
    content = b" ".join(random.Random(2).choices([b"%06x" % n for n in range(500)], k=60_000))
    sizes = [len(compress(Codec.LZ4, content, level)) for level in (None, 3, 12)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[2] < 0.98 * sizes[0]


@pytest.mark.parametrize("place", ["content", "block", "of the block", "of the content", "size"])
@pytest.mark.parametrize("count", [1, 2])
def test_damage_that_a_checksum_of_lz4_shows_is_found(place: str, count: int) -> None:
    """Blocks are stored here, so that damage to them is still an LZ4 block."""
    content = random.Random(3).randbytes(65_536 * count)
    packed = bytearray(
        lz4_frame.compress(
            content,
            block_size=4,
            block_linked=False,
            store_size=True,
            content_checksum=True,
            block_checksum=place != "content",
        )
    )
    at = {"content": 40, "block": 40, "of the block": 19 + 65_536, "of the content": -1, "size": 6}
    packed[at[place]] ^= 1
    with pytest.raises(CorruptRecords, match=r"checksum|claims"):
        unlimited(Codec.LZ4, packed, legacy=True)


def test_blocks_of_lz4_are_counted_and_none_may_be_empty_or_too_large() -> None:
    head = bytes.fromhex("04224d18604082")
    one = b"\1\0\0\x80a"
    assert unlimited(Codec.LZ4, head + one * 100 + bytes(4)) == b"a" * 100
    data = head + one * 100 + bytes(4)
    with pytest.raises(DecompressionLimitExceeded, match="members or blocks"):
        decompress(Codec.LZ4, data, max_bytes=1000, max_pieces=99)
    for wrong in (b"\0\0\0\x80", (65_537).to_bytes(4, "little") + bytes(65_537)):
        with pytest.raises(CorruptRecords, match="expected 1 to 65536"):
            unlimited(Codec.LZ4, head + one + wrong + bytes(4))


def test_a_small_lz4_block_cannot_claim_much_memory() -> None:
    """A frame of blocks of 4 MiB: what is set aside follows from the bytes that are there."""
    frame = lz4_frame.compress(b"ab" * 50, block_size=7, block_linked=False)
    tracemalloc.start()
    try:
        assert unlimited(Codec.LZ4, frame) == b"ab" * 50
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_lz4_dependent_blocks_are_refused_since_java_clients_cannot_read_them() -> None:
    with pytest.raises(CorruptRecords, match="dependent"):
        unlimited(Codec.LZ4, lz4_frame.compress(TEXT, block_linked=True))


@pytest.mark.parametrize(
    ("flags", "descriptor"),
    [(0xE0, 0x40), (0x61, 0x40), (0x62, 0x40), (0x60, 0xC0), (0x60, 0x41), (0x60, 0x30)],
)
def test_lz4_reserved_bits_and_sizes_are_refused(flags: int, descriptor: int) -> None:
    packed = bytearray(compress(Codec.LZ4, TEXT))
    packed[4:6] = bytes([flags, descriptor])
    with pytest.raises(CorruptRecords):
        unlimited(Codec.LZ4, packed, legacy=True)


def test_gzip_members_of_all_sizes_are_concatenated() -> None:
    """Those after the first are fed in chunks; their ends lie anywhere in them."""
    rng = random.Random(5)
    parts = [rng.randbytes(size) for size in (0, 1, 4_000, 4_070, 4_096, 9_000, 70_000, 0, 300)]
    assert unlimited(Codec.GZIP, b"".join(map(gzip.compress, parts))) == b"".join(parts)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.ZSTD])
def test_pieces_are_counted(codec: Codec) -> None:
    """Each is a turn of a loop, though it holds nothing."""
    data = {
        Codec.GZIP: gzip.compress(b"") * 100,
        Codec.SNAPPY: compress(Codec.SNAPPY, b"a")[:16] + b"\0\0\0\1\0" * 100,
        Codec.ZSTD: bytes.fromhex("28b52ffd 00 58") + b"\0\0\0" * 99 + b"\1\0\0",
    }[codec]
    assert bytes(decompress(codec, data, max_bytes=10, max_pieces=100)) == b""
    with pytest.raises(DecompressionLimitExceeded, match="members or blocks"):
        decompress(codec, data, max_bytes=10, max_pieces=99)


@pytest.mark.parametrize("content", [b"stored", b"x" * 65_536, random.Random(0).randbytes(65_536)])
def test_lz4_frames_of_one_block_are_read_without_new_room(
    monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    frame = compress(Codec.LZ4, content)
    damaged = bytearray(frame)
    damaged[7:11] = (len(frame) - 14).to_bytes(4, "little")  # one byte less than there are
    with pytest.raises(CorruptRecords):
        decompress(Codec.LZ4, damaged, max_bytes=1 << 20)
    with pytest.raises(DecompressionLimitExceeded):
        decompress(Codec.LZ4, frame, max_bytes=len(content) - 1)
    monkeypatch.setattr(compression, "bytearray", None, raising=False)
    assert bytes(decompress(Codec.LZ4, frame, max_bytes=len(content))) == content
