"""Between magics, both ways."""

import pytest

from protocol.errors import UnsupportedCompression
from protocol.records.builder import build_batch
from protocol.records.convert import down_convert
from protocol.records.layout import Codec, TimestampType
from protocol.records.legacy import Message
from protocol.records.record import Record
from protocol.records.scan import scan_entries
from tests.unit.protocol.records.samples import (
    ABORT,
    OLD_CODECS,
    RECORDS,
    V0,
    V1,
    V2,
    plain,
    records_of,
)


def converted(data: bytes, magic: int, fetch_offset: int) -> bytes:
    return down_convert(data, magic, fetch_offset).records


@pytest.mark.parametrize("codec", [Codec.NONE, *OLD_CODECS])
@pytest.mark.parametrize("magic", [0, 1])
def test_down_conversion_keeps_what_the_old_format_has(magic: int, codec: Codec) -> None:
    data = build_batch(RECORDS, codec=codec, base_offset=40)
    down = converted(data, magic, 40)
    assert {entry.magic for entry in scan_entries(down)} == {magic}
    expected = [
        record._replace(offset=40 + i, timestamp=record.timestamp if magic else -1)
        for i, record in enumerate(plain(RECORDS))
    ]
    assert records_of(down) == expected
    assert len(list(scan_entries(down))) == (1 if codec else 3)


def test_down_conversion_starts_at_the_fetch_offset_only_if_uncompressed() -> None:
    for codec, offsets in ((Codec.NONE, [41, 42]), (Codec.GZIP, [40, 41, 42])):
        data = build_batch(RECORDS, codec=codec, base_offset=40)
        assert [record.offset for record in records_of(converted(data, 1, 41))] == offsets


def test_down_conversion_keeps_the_append_time_and_its_flag() -> None:
    data = build_batch(RECORDS, timestamp_type=TimestampType.LOG_APPEND_TIME, append_timestamp=5000)
    for entry in scan_entries(down := converted(data, 1, 0)):
        assert entry.timestamp_type == TimestampType.LOG_APPEND_TIME
    assert {record.timestamp for record in records_of(down)} == {5000}
    assert {record.timestamp for record in records_of(converted(data, 0, 0))} == {-1}


def test_down_conversion_drops_markers_and_copies_what_is_old_enough() -> None:
    assert converted(ABORT, 1, 0) == b""
    assert converted(V0 + V1 + ABORT, 1, 0) == V0 + V1
    assert converted(V0 + V1, 0, 0)[: len(V0)] == V0
    assert records_of(converted(V0 + V1, 0, 0))[1] == Record(0, -1, b"k", b"a")


def test_down_conversion_drops_an_incomplete_tail() -> None:
    assert records_of(converted(V2 + V2[:-1], 1, 0)) == plain(RECORDS)


def test_zstd_cannot_go_down_but_what_precedes_it_can() -> None:
    zstd = build_batch(RECORDS, codec=Codec.ZSTD, base_offset=3)
    with pytest.raises(UnsupportedCompression):
        converted(zstd, 1, 3)
    with pytest.raises(UnsupportedCompression):
        converted(ABORT + zstd, 1, 3)
    assert records_of(converted(V2 + zstd, 1, 0)) == plain(RECORDS)


def test_lz4_for_magic_0_gets_the_old_checksum() -> None:
    for magic, checksum in ((0, 0x1A), (1, 0x82)):
        down = converted(build_batch(RECORDS, codec=Codec.LZ4), magic, 0)
        value = Message(down).value
        assert value is not None
        assert value[6] == checksum


def test_does_conversion_stop_when_enough_was_opened() -> None:
    """But never before the first entry: a reader has to get on."""
    one = build_batch(RECORDS, codec=Codec.GZIP)
    cost = down_convert(one, 1, 0).opened_bytes
    assert cost == sum(len(r.key or b"") + len(r.value or b"") for r in RECORDS)
    for enough, entries in ((0, 1), (1, 1), (cost, 1), (cost + 1, 2), (None, 3)):
        some = down_convert(one * 3, 1, 0, enough_bytes=enough)
        assert len(list(scan_entries(some.records))) == entries
        assert some.opened_bytes == cost * entries
