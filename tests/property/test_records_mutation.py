"""Damaged bytes of every format give a typed error or the same content, never anything else."""

from collections.abc import Callable, Iterator

import pytest

from protocol.errors import RecordsError
from protocol.records.batch import RecordBatch
from protocol.records.builder import build_batch, build_message_set
from protocol.records.checksums import crc32
from protocol.records.convert import down_convert
from protocol.records.layout import CRC_AT, LEGACY_CRC_AT, MAGIC_AT, UINT32, Codec
from protocol.records.legacy import Message
from protocol.records.record import Record
from protocol.records.scan import iter_records, scan_checked, scan_entries
from storage.append.plan import AppendPlan, AppendRules, plan_append
from storage.errors import AppendRejected

RECORDS = [
    Record(0, 100, None, b"a"),
    Record(1, 999, b"k", b"bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"),
    Record(2, 200, b"k", None, (("h", b"1"), ("i", None))),
]
FORMATS = [
    (magic, codec) for magic in (0, 1, 2) for codec in Codec if magic == 2 or codec != Codec.ZSTD
]
REFUSED = (RecordsError, AppendRejected)


def sound(magic: int, codec: Codec) -> bytes:
    if magic == 2:
        return build_batch(RECORDS, codec=codec)
    return build_message_set(RECORDS, magic, codec)


def append(data: bytes, **rules: object) -> AppendPlan:
    return plan_append(
        data,
        rules=AppendRules(decompressed_bytes_max=1 << 20, **rules),  # type: ignore[arg-type]
        now_ms=1000,
        next_offset=50,
        leader_epoch=0,
    )


def content(plan: AppendPlan) -> list[tuple[object, ...]]:
    return [
        record[1:] for batch in plan.batches for record in iter_records(plan.buffer, batch.position)
    ]


def readers(data: bytes) -> Iterator[Callable[[], object]]:
    """Every way in which the product looks at bytes of unknown worth."""
    yield lambda: append(data)
    yield lambda: append(data, codec=Codec.LZ4)
    yield lambda: [list(iter_records(data, entry.position)) for entry in scan_entries(data)]
    yield lambda: scan_checked(data)
    yield lambda: down_convert(data, 0, 1)


def survive(data: bytes) -> None:
    for read in readers(data):
        try:
            read()
        except REFUSED:
            continue


def sealed(data: bytearray) -> bytes:
    """`data` with the CRC of its first entry made right, so that damage gets past it."""
    try:
        if data[MAGIC_AT] == 2:
            UINT32.pack_into(data, CRC_AT, RecordBatch(data).compute_crc())
        else:
            covered = memoryview(data)[MAGIC_AT : Message(data).size]
            UINT32.pack_into(data, LEGACY_CRC_AT, crc32(covered))
    except RecordsError:
        pass
    return bytes(data)


@pytest.mark.parametrize(("magic", "codec"), FORMATS)
def test_every_truncation_is_refused_or_keeps_whole_messages(magic: int, codec: Codec) -> None:
    data = sound(magic, codec)
    whole = content(append(data))
    for size in range(len(data)):
        kept = content(append(data[:size]))
        assert kept == whole[: len(kept)]
        assert len(kept) < len(whole)
        survive(data[:size])


@pytest.mark.parametrize(("magic", "codec"), FORMATS)
def test_every_flipped_bit_is_refused_or_harmless(magic: int, codec: Codec) -> None:
    data = sound(magic, codec)
    whole = content(append(data))
    for position in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[position] ^= 1 << bit
            try:
                kept = content(append(bytes(damaged)))
            except REFUSED:
                continue
            # A longer size field makes an entry incomplete, which cuts the set there.
            assert kept == whole[: len(kept)]


@pytest.mark.parametrize(("magic", "codec"), FORMATS)
def test_every_flipped_bit_under_a_right_checksum_is_survived(magic: int, codec: Codec) -> None:
    data = sound(magic, codec)
    for position in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[position] ^= 1 << bit
            survive(sealed(damaged))


@pytest.mark.parametrize(("magic", "codec"), FORMATS)
def test_every_byte_made_extreme_under_a_right_checksum_is_survived(
    magic: int, codec: Codec
) -> None:
    data = sound(magic, codec)
    for position in range(len(data)):
        for value in (0x00, 0x7F, 0x80, 0xFF):
            damaged = bytearray(data)
            damaged[position] = value
            survive(sealed(damaged))
