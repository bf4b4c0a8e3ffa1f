"""Records as values: legacy messages, scanning, building and converting, by golden bytes."""

import pytest

from protocol.errors import CorruptRecords, InvalidRecords, UnsupportedCompression
from protocol.records.batch import RecordBatch
from protocol.records.builder import build_batch, build_end_txn_marker, build_message_set
from protocol.records.compression import compress
from protocol.records.convert import down_convert, up_convert
from protocol.records.layout import Codec, ControlType, TimestampType
from protocol.records.legacy import Message, encode_message, encode_wrapper
from protocol.records.record import Record, control_type, decode_batch
from protocol.records.scan import Entry, Stop, iter_records, scan_checked, scan_entries

V0 = bytes.fromhex("00000000000000000000000f51df3a320000ffffffff0000000161")
V1 = bytes.fromhex("0000000000000000000000186d55d1d301000000000000000064000000016b0000000161")
V1_STAMPED = bytes.fromhex(
    "000000000000000500000018325dc23a01080000000000001388000000016b0000000161"
)
V2 = bytes.fromhex(
    "0000000000000000000000500000000002d4ac0234000000000002000000000000006400000000000003e7ffffff"
    "ffffffffffffffffffffff000000030e000000010261001200860e02026b0262001800c80104026b010202680231"
)
ABORT = bytes.fromhex(
    "000000000000001d0000004200000000020544898a00300000000000000000000013880000000000001388000000"
    "00000000010000ffffffff000000012000000008000000000c00000000000000"
)
RECORDS = [
    Record(0, 100, None, b"a"),
    Record(1, 999, b"k", b"b"),
    Record(2, 200, b"k", None, (("h", b"1"),)),
]
OLD_CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4]


def records_of(data: bytes) -> list[Record]:
    return [record for entry in scan_entries(data) for record in iter_records(data, entry.position)]


def plain(records: list[Record]) -> list[Record]:
    return [record._replace(headers=()) for record in records]


# --- golden bytes, both directions --------------------------------------------------------------


def test_golden_bytes_are_built() -> None:
    assert build_message_set([Record(0, -1, None, b"a")], 0) == V0
    assert build_message_set([Record(0, 100, b"k", b"a")], 1) == V1
    stamped = build_message_set(
        [Record(5, 100, b"k", b"a")], 1,
        timestamp_type=TimestampType.LOG_APPEND_TIME, append_timestamp=5000,
    )  # fmt: skip
    assert stamped == V1_STAMPED
    assert build_batch(RECORDS, leader_epoch=0) == V2
    marker = build_end_txn_marker(
        commit=False, producer_id=1, producer_epoch=0, timestamp_ms=5000, base_offset=29,
        leader_epoch=0,
    )  # fmt: skip
    assert marker == ABORT


def test_golden_bytes_are_read() -> None:
    assert records_of(V0) == [Record(0, -1, None, b"a")]
    assert records_of(V1) == [Record(0, 100, b"k", b"a")]
    assert records_of(V1_STAMPED) == [Record(5, 5000, b"k", b"a")]
    assert records_of(V2) == RECORDS
    (marker,) = records_of(ABORT)
    assert (marker.offset, marker.timestamp) == (29, 5000)
    assert control_type(marker) == ControlType.ABORT


def test_control_records_of_the_future_and_of_nonsense() -> None:
    assert control_type(Record(0, 0, b"\x00\x00\x00\x63", None)) is None
    for key in (None, b"\x00\x00\x00"):
        with pytest.raises(InvalidRecords):
            control_type(Record(0, 0, key, None))


# --- messages in place --------------------------------------------------------------------------


def test_message_fields() -> None:
    message = Message(V1_STAMPED)
    assert (message.offset, message.magic, message.size, message.timestamp) == (5, 1, 36, 5000)
    assert message.timestamp_type == TimestampType.LOG_APPEND_TIME
    assert (bytes(message.key or b""), bytes(message.value or b"")) == (b"k", b"a")
    assert message.crc_ok()
    assert Message(V0).timestamp_type == TimestampType.NO_TIMESTAMP_TYPE
    assert Message(V0).key is None
    assert Message(V1).timestamp_type == TimestampType.CREATE_TIME


def test_message_stamps_are_golden_and_idempotent() -> None:
    buffer = bytearray(V1)
    message = Message(buffer)
    message.stamp_offset(5)
    assert message.stamp_timestamp(TimestampType.LOG_APPEND_TIME, 5000)
    assert bytes(buffer) == V1_STAMPED
    assert not message.stamp_timestamp(TimestampType.LOG_APPEND_TIME, 5000)


@pytest.mark.parametrize("data", [V0, V1])
def test_cut_messages_are_corrupt(data: bytes) -> None:
    for size in range(len(data)):
        with pytest.raises(CorruptRecords):
            Message(data[:size])
    with pytest.raises(CorruptRecords):
        Message(V2)


@pytest.mark.parametrize("position", [26, 31])
@pytest.mark.parametrize("length", [2, 2**31 - 1])
def test_lengths_beyond_the_message_are_corrupt(position: int, length: int) -> None:
    data = bytearray(V1)
    data[position : position + 4] = length.to_bytes(4, "big")
    with pytest.raises(CorruptRecords):
        _ = Message(data).value


# --- wrappers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", OLD_CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_wrapper_holds_what_was_put_in(magic: int, codec: Codec) -> None:
    records = [Record(40 + i, 100 * i, b"k%d" % i, None) for i in range(3)]
    data = encode_wrapper(magic, records, codec)
    wrapper = Message(data)
    assert (wrapper.offset, wrapper.codec, wrapper.key) == (42, codec, None)
    assert wrapper.timestamp == (200 if magic else -1)
    expected = records if magic else [record._replace(timestamp=-1) for record in records]
    assert records_of(data) == expected
    inner_offsets = [entry.base_offset for entry in scan_entries(wrapper.inner_bytes())]
    assert inner_offsets == ([0, 1, 2] if magic else [40, 41, 42])


def test_wrapper_with_offset_0_counts_from_0() -> None:
    data = bytearray(encode_wrapper(1, [Record(i, 7, None, b"v") for i in range(3)], Codec.GZIP))
    Message(data).stamp_offset(0)
    assert [record.offset for record in records_of(bytes(data))] == [0, 1, 2]


def test_wrapper_offset_below_its_inner_ones_is_invalid() -> None:
    data = bytearray(encode_wrapper(1, [Record(i, 7, None, b"v") for i in range(3)], Codec.GZIP))
    Message(data).stamp_offset(1)
    with pytest.raises(InvalidRecords):
        records_of(bytes(data))


def test_stamped_wrapper_gives_its_time_to_all() -> None:
    data = encode_wrapper(
        1, [Record(0, 5, None, b"a"), Record(1, 6, None, b"b")], Codec.GZIP,
        timestamp_type=TimestampType.LOG_APPEND_TIME, append_timestamp=777,
    )  # fmt: skip
    assert [record.timestamp for record in records_of(data)] == [777, 777]
    assert Message(bytearray(Message(data).inner_bytes())).timestamp_type == (
        TimestampType.LOG_APPEND_TIME
    )


@pytest.mark.parametrize(
    "inner",
    [b"", encode_message(0, 0, -1, None, b"v"), encode_message(1, 0, 1, None, b"v", Codec.GZIP)],
    ids=["nothing", "another magic", "nested"],
)
def test_wrapper_content_that_readers_refuse(inner: bytes) -> None:
    data = encode_message(1, 0, 1, None, compress(Codec.GZIP, inner), Codec.GZIP)
    with pytest.raises(InvalidRecords):
        records_of(data)


def test_wrapper_without_value_and_with_zstd() -> None:
    with pytest.raises(InvalidRecords):
        records_of(encode_message(1, 0, 1, None, None, Codec.GZIP))
    with pytest.raises(UnsupportedCompression):
        records_of(encode_message(1, 0, 1, None, b"x", Codec.ZSTD))


# --- scanning -----------------------------------------------------------------------------------


def test_entries_name_what_the_headers_say() -> None:
    data = V0 + V1_STAMPED + V2 + ABORT
    entries = list(scan_entries(data))
    assert [entry.magic for entry in entries] == [0, 1, 2, 2]
    assert [entry.next_offset for entry in entries] == [1, 6, 3, 30]
    assert [entry.timestamp_type for entry in entries] == [
        TimestampType.NO_TIMESTAMP_TYPE,
        TimestampType.LOG_APPEND_TIME,
        TimestampType.CREATE_TIME,
        TimestampType.CREATE_TIME,
    ]
    marker = entries[-1]
    assert marker.is_control
    assert marker.is_transactional
    assert (marker.producer_id, marker.last_sequence, marker.codec) == (1, -1, Codec.NONE)
    assert not entries[1].is_control
    assert entries[2] == Entry(63, 92, 2, 0, 2, 999, 0, 0, 100, -1, -1, -1, 3)


def test_sequences_of_entries_wrap() -> None:
    (entry,) = scan_entries(build_batch(RECORDS, producer_id=1, base_sequence=2**31 - 1))
    assert entry.last_sequence == 1


def test_scan_of_sound_bytes_raises_at_what_is_no_entry() -> None:
    walk = scan_entries(V2 + bytes(20))
    assert next(walk).size == 92
    with pytest.raises(CorruptRecords):
        next(walk)
    assert [entry.size for entry in scan_entries(V2 + V2[:50])] == [92]


def test_checked_scan_says_where_the_sound_bytes_end() -> None:
    assert scan_checked(V2)[1:] == (92, Stop.END)
    assert scan_checked(V2 + V1[:20])[1:] == (92, Stop.INCOMPLETE)
    assert scan_checked(V2 + bytes(20))[1:] == (92, Stop.CORRUPT)
    damaged = bytearray(V0 + V2)
    damaged[-1] ^= 1
    assert scan_checked(damaged)[1:] == (27, Stop.CORRUPT)
    assert scan_checked(V0 + V2, 27, 80)[1:] == (27, Stop.INCOMPLETE)


def test_records_of_too_few_bytes_are_corrupt() -> None:
    with pytest.raises(CorruptRecords):
        list(iter_records(V2[:10]))


# --- building -----------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", list(Codec))
def test_built_batches_are_read_back(codec: Codec) -> None:
    data = build_batch(RECORDS, codec=codec, base_offset=70)
    batch = RecordBatch(data)
    assert (batch.codec, batch.crc_ok(), batch.max_timestamp) == (codec, True, 999)
    assert decode_batch(batch) == [r._replace(offset=70 + i) for i, r in enumerate(RECORDS)]


def test_kept_offsets_may_have_gaps() -> None:
    records = [Record(10, 1, b"a", b""), Record(17, 2, b"b", b"")]
    data = build_batch(records, base_offset=8, keep_offsets=True)
    assert RecordBatch(data).last_offset == 17
    assert records_of(data) == records


def test_no_records_give_no_message_set() -> None:
    for codec in (Codec.NONE, Codec.GZIP):
        assert build_message_set([], 1, codec) == b""


# --- converting ---------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", [Codec.NONE, *OLD_CODECS])
@pytest.mark.parametrize("magic", [0, 1])
def test_down_and_up_again_keeps_what_the_old_format_has(magic: int, codec: Codec) -> None:
    data = build_batch(RECORDS, codec=codec, base_offset=40)
    down = down_convert(data, magic, 40)
    assert {entry.magic for entry in scan_entries(down)} == {magic}
    expected = [
        record._replace(offset=40 + i, timestamp=record.timestamp if magic else -1)
        for i, record in enumerate(plain(RECORDS))
    ]
    assert records_of(down) == expected
    assert len(list(scan_entries(down))) == (1 if codec else 3)
    up = up_convert(down, base_offset=40, codec=codec)
    assert records_of(up) == expected
    assert len(list(scan_entries(up))) == 1


def test_down_conversion_starts_at_the_fetch_offset_only_if_uncompressed() -> None:
    for codec, offsets in ((Codec.NONE, [41, 42]), (Codec.GZIP, [40, 41, 42])):
        data = build_batch(RECORDS, codec=codec, base_offset=40)
        assert [record.offset for record in records_of(down_convert(data, 1, 41))] == offsets


def test_down_conversion_keeps_the_append_time_and_its_flag() -> None:
    data = build_batch(RECORDS, timestamp_type=TimestampType.LOG_APPEND_TIME, append_timestamp=5000)
    for entry in scan_entries(down := down_convert(data, 1, 0)):
        assert entry.timestamp_type == TimestampType.LOG_APPEND_TIME
    assert {record.timestamp for record in records_of(down)} == {5000}
    assert {record.timestamp for record in records_of(down_convert(data, 0, 0))} == {-1}


def test_down_conversion_drops_markers_and_copies_what_is_old_enough() -> None:
    assert down_convert(ABORT, 1, 0) == b""
    assert down_convert(V0 + V1 + ABORT, 1, 0) == V0 + V1
    assert down_convert(V0 + V1, 0, 0)[: len(V0)] == V0
    assert records_of(down_convert(V0 + V1, 0, 0))[1] == Record(0, -1, b"k", b"a")


def test_down_conversion_drops_an_incomplete_tail() -> None:
    assert records_of(down_convert(V2 + V2[:-1], 1, 0)) == plain(RECORDS)


def test_zstd_cannot_go_down_but_what_precedes_it_can() -> None:
    zstd = build_batch(RECORDS, codec=Codec.ZSTD, base_offset=3)
    with pytest.raises(UnsupportedCompression):
        down_convert(zstd, 1, 3)
    with pytest.raises(UnsupportedCompression):
        down_convert(ABORT + zstd, 1, 3)
    assert records_of(down_convert(V2 + zstd, 1, 0)) == plain(RECORDS)


def test_lz4_for_magic_0_gets_the_old_checksum() -> None:
    for magic, checksum in ((0, 0x1A), (1, 0x82)):
        down = down_convert(build_batch(RECORDS, codec=Codec.LZ4), magic, 0)
        value = Message(down).value
        assert value is not None
        assert value[6] == checksum


def test_up_conversion_makes_one_batch_of_many_messages() -> None:
    data = build_message_set([Record(i, i, None, b"v") for i in range(5)], 1)
    (entry,) = scan_entries(up_convert(data, base_offset=9))
    assert (entry.base_offset, entry.last_offset, entry.max_timestamp) == (9, 13, 4)
    assert up_convert(b"") == b""
    with pytest.raises(CorruptRecords):
        up_convert(V2)
