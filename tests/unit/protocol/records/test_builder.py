"""Golden bytes are built, and what is built is read back."""

import pytest

from protocol.records.batch import RecordBatch
from protocol.records.builder import build_batch, build_end_txn_marker, build_message_set
from protocol.records.layout import Codec, TimestampType
from protocol.records.record import Record, decode_batch
from tests.unit.protocol.records.samples import (
    ABORT,
    RECORDS,
    V0,
    V1,
    V1_STAMPED,
    V2,
    records_of,
)


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
