"""What the sink writes is read back whole by the protocol's own reader."""

import pytest

pytest.importorskip("pyarrow")

from pipeline.records.codecs import NAMES
from pipeline.records.encode import BatchBuilder
from protocol.records.batch import RecordBatch
from protocol.records.builder import build_batch
from protocol.records.record import Record
from protocol.records.scan import iter_records

PRODUCER = {"producer_id": 7, "producer_epoch": 2, "base_sequence": 40, "is_transactional": True}


@pytest.mark.parametrize("codec", list(NAMES))
def test_time_key_headers_and_nulls_survive_every_codec(codec: str) -> None:
    builder = BatchBuilder()
    builder.add(1000, b"k", b"v", [(b"h", b"1"), (b"h", None)])
    builder.add(900, None, b"", ())
    builder.add(-1, b"", None, ())
    data = builder.build(NAMES[codec], **PRODUCER)  # type: ignore[arg-type]
    assert list(iter_records(data)) == [
        Record(0, 1000, b"k", b"v", (("h", b"1"), ("h", None))),
        Record(1, 900, None, b"", ()),
        Record(2, -1, b"", None, ()),
    ]
    batch = RecordBatch(data)
    assert batch.crc_ok()
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (7, 2, 40)
    assert batch.is_transactional
    assert batch.max_timestamp == 1000


def test_plain_bytes_are_those_of_the_protocols_builder() -> None:
    records = [Record(0, 5, b"k", b"v", ()), Record(1, 9, None, b"w", (("a", b"b"),))]
    builder = BatchBuilder()
    for record in records:
        headers = [(name.encode(), value) for name, value in record.headers]
        builder.add(record.timestamp, record.key, record.value, headers)
    ours = builder.build(
        0, producer_id=-1, producer_epoch=-1, base_sequence=-1, is_transactional=False
    )
    assert ours == build_batch(records)
