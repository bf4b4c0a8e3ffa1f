"""A magic 2 batch in place: what its header says and which bytes a stamp touches."""

import pytest

from protocol.errors import CorruptRecords, UnsupportedCompression
from protocol.records.batch import RecordBatch
from protocol.records.builder import build_batch
from protocol.records.entry import advance_sequence
from protocol.records.layout import ATTRIBUTES_AT, DELETE_HORIZON_BIT, UINT32, Codec, TimestampType
from protocol.records.record import Record
from protocol.records.scan import scan_entries

SENT = bytes.fromhex(
    "0000000000000000000000500000000002d4ac0234000000000002000000000000006400000000000003e7ffffff"
    "ffffffffffffffffffffff000000030e000000010261001200860e02026b0262001800c80104026b010202680231"
)
STAMPED = bytes.fromhex(
    "00000000000000070000005000000000026e185091000800000002000000000000006400000000000013"
    "88ffffffffffffffffffffffffffff000000030e000000010261001200860e02026b0262001800c80104026b0102"
    "02680231"
)


def test_header_fields_of_the_golden_batch() -> None:
    batch = RecordBatch(SENT)
    assert (batch.size, batch.magic, batch.records_count, batch.crc) == (92, 2, 3, 0xD4AC0234)
    assert (batch.base_offset, batch.last_offset) == (0, 2)
    assert (batch.base_timestamp, batch.max_timestamp) == (100, 999)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (-1, -1, -1)
    assert (batch.codec, batch.timestamp_type) == (Codec.NONE, TimestampType.CREATE_TIME)
    assert not any((batch.is_control, batch.is_transactional, batch.has_producer_id))
    assert batch.crc_ok()
    assert bytes(batch.bytes) == SENT
    assert bytes(batch.payload) == SENT[61:]
    assert "offsets 0..2" in repr(batch)


def test_batch_inside_a_larger_buffer() -> None:
    batch = RecordBatch(memoryview(b"xyz" + SENT + b"more"), 3)
    assert batch.crc_ok()
    assert (batch.size, bytes(batch.bytes)) == (92, SENT)


def test_stamps_give_the_golden_bytes() -> None:
    buffer = bytearray(SENT)
    batch = RecordBatch(buffer)
    batch.stamp_position(7, 0)
    assert batch.crc_ok()
    assert batch.stamp_timestamps(TimestampType.LOG_APPEND_TIME, 5000)
    assert bytes(buffer) == STAMPED
    assert RecordBatch(buffer).crc_ok()
    assert batch.timestamp_type == TimestampType.LOG_APPEND_TIME


def test_stamp_that_changes_nothing_spends_nothing() -> None:
    batch = RecordBatch(SENT)  # Read-only: a write would raise.
    assert not batch.stamp_timestamps(TimestampType.CREATE_TIME, 999)


def test_rewritten_attributes_keep_known_flags_and_drop_unknown_bits() -> None:
    buffer = bytearray(SENT)
    buffer[ATTRIBUTES_AT : ATTRIBUTES_AT + 2] = b"\xff\xfa"
    batch = RecordBatch(buffer)
    assert batch.is_control
    assert batch.is_transactional
    assert batch.attributes & DELETE_HORIZON_BIT
    batch.stamp_timestamps(TimestampType.CREATE_TIME, 5)
    assert buffer[ATTRIBUTES_AT : ATTRIBUTES_AT + 2] == b"\x00\x72"
    assert RecordBatch(buffer).codec == Codec.SNAPPY


def test_checksum_notices_every_bit_it_covers() -> None:
    for bit in range(21 * 8, 92 * 8):
        buffer = bytearray(SENT)
        buffer[bit // 8] ^= 1 << bit % 8
        assert not RecordBatch(buffer).crc_ok()


def test_checksum_leaves_offset_and_epoch_out() -> None:
    buffer = bytearray(SENT)
    buffer[0:8] = b"\x01" * 8
    buffer[12:16] = b"\x01" * 4
    assert RecordBatch(buffer).crc_ok()


@pytest.mark.parametrize("size", [0, 17, 60, 91])
def test_too_few_bytes_are_corrupt(size: int) -> None:
    with pytest.raises(CorruptRecords):
        RecordBatch(SENT[:size])


@pytest.mark.parametrize(("position", "value"), [(8, 48), (8, 81), (8, -1)])
def test_impossible_sizes_are_corrupt(position: int, value: int) -> None:
    buffer = bytearray(SENT)
    UINT32.pack_into(buffer, position, value & 0xFFFFFFFF)
    with pytest.raises(CorruptRecords):
        RecordBatch(buffer)


@pytest.mark.parametrize("magic", [0, 1, 3, 255])
def test_other_magics_are_no_batches(magic: int) -> None:
    buffer = bytearray(SENT)
    buffer[16] = magic
    with pytest.raises(CorruptRecords):
        RecordBatch(buffer)


@pytest.mark.parametrize("number", [5, 6, 7])
def test_undefined_codec_is_unsupported(number: int) -> None:
    buffer = bytearray(SENT)
    buffer[22] = number
    with pytest.raises(UnsupportedCompression):
        _ = RecordBatch(buffer).codec


@pytest.mark.parametrize(
    ("sequence", "records", "after"),
    [(0, 1, 1), (2**31 - 1, 1, 0), (2**31 - 2, 3, 1), (2**31 - 1, 5, 4), (7, 0, 7)],
)
def test_sequences_wrap(sequence: int, records: int, after: int) -> None:
    assert advance_sequence(sequence, records) == after


def test_last_sequence_wraps() -> None:
    records = [Record(0, 1, None, None)] * 3
    (entry,) = scan_entries(build_batch(records, producer_id=1, base_sequence=2**31 - 2))
    assert entry.last_sequence == 0
