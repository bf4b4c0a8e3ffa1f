"""Messages of magic 0 and 1 in place, and wrappers around them."""

import pytest

from protocol.errors import CorruptRecords, InvalidRecords, UnsupportedCompression
from protocol.records.compression import compress
from protocol.records.layout import INT64, OFFSET_AT, Codec, TimestampType
from protocol.records.legacy import Message, encode_message, encode_wrapper
from protocol.records.record import Record
from protocol.records.scan import scan_entries
from tests.unit.protocol.records.samples import (
    OLD_CODECS,
    V0,
    V1,
    V1_STAMPED,
    V2,
    records_of,
)


def test_message_fields() -> None:
    message = Message(V1_STAMPED)
    assert (message.offset, message.magic, message.size, message.timestamp) == (5, 1, 36, 5000)
    assert message.timestamp_type == TimestampType.LOG_APPEND_TIME
    assert (bytes(message.key or b""), bytes(message.value or b"")) == (b"k", b"a")
    assert message.crc_ok()
    assert Message(V0).timestamp_type == TimestampType.NO_TIMESTAMP_TYPE
    assert Message(V0).key is None
    assert Message(V1).timestamp_type == TimestampType.CREATE_TIME


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
    INT64.pack_into(data, OFFSET_AT, 0)
    assert [record.offset for record in records_of(bytes(data))] == [0, 1, 2]


def test_wrapper_offset_below_its_inner_ones_is_invalid() -> None:
    data = bytearray(encode_wrapper(1, [Record(i, 7, None, b"v") for i in range(3)], Codec.GZIP))
    INT64.pack_into(data, OFFSET_AT, 1)
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
