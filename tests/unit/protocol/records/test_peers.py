"""The same records by four independent codecs: ours, kafka-python's, aiokafka's and kio's.

Uncompressed bytes are compared whole; compressed ones by what the other side reads from them,
since two compressors may rightly differ.
"""

import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from io import BytesIO
from types import SimpleNamespace
from typing import Any

import cramjam
import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords as AioMemoryRecords
from kio.records.readers import read_batch
from kio.records.schema import NewRecordBatch, RecordHeader
from kio.records.schema import Record as KioRecord
from kio.records.writers import write_new_batch
from kio.static.primitive import i8, i16, i32, i64

from protocol.records.builder import build_batch, build_end_txn_marker, build_message_set
from protocol.records.layout import Codec, TimestampType
from protocol.records.record import Record
from protocol.records.scan import iter_records, scan_entries
from storage.append.plan import AppendRules, plan_append

with warnings.catch_warnings():
    # kafka-python reads its schemas at import by a function that Python 3.11 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import codec as kafka_codec
    from kafka.record import MemoryRecords, MemoryRecordsBuilder

FORMATS = [
    (magic, codec) for magic in (0, 1, 2) for codec in Codec if magic == 2 or codec != Codec.ZSTD
]
LARGE = 1 << 30
HEADERS = (("name", b"value"), ("empty", b""), ("null", None))


@pytest.fixture(autouse=True)
def _snappy_for_kafka_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """kafka-python takes snappy from a package that needs a C library; cramjam holds the same."""
    snappy = SimpleNamespace(
        compress=lambda data: bytes(cramjam.snappy.compress_raw(data)),
        decompress=lambda data: bytes(cramjam.snappy.decompress_raw(bytes(data))),
    )
    monkeypatch.setattr(kafka_codec, "snappy", snappy)


def sample(magic: int) -> list[Record]:
    headers = HEADERS if magic == 2 else ()
    times = [-1] * 5 if magic == 0 else [1_700_000_000_000, 5, 1_700_000_000_999, 0, 2**40]
    return [
        Record(0, times[0], b"key", b"value", headers),
        Record(1, times[1], None, b"x" * 3000),
        Record(2, times[2], b"", None, headers[:1]),
        Record(3, times[3], None, None),
        Record(4, times[4], b"k" * 200, b"", headers),
    ]


def ours(magic: int, codec: Codec, records: list[Record]) -> bytes:
    if magic == 2:
        return build_batch(records, codec=codec)
    return build_message_set(records, magic, codec)


def by_kafka_python(magic: int, codec: Codec, records: list[Record]) -> bytes:
    builder = MemoryRecordsBuilder(magic, int(codec), LARGE)
    for record in records:
        timestamp = None if magic == 0 else record.timestamp
        assert builder.append(timestamp, record.key, record.value, list(record.headers))
    builder.close()
    return bytes(builder.buffer())


def by_aiokafka(magic: int, codec: Codec, records: list[Record]) -> bytes:
    builder: Any
    if magic == 2:
        builder = DefaultRecordBatchBuilder(2, int(codec), 0, -1, -1, -1, LARGE)
    else:
        builder = LegacyRecordBatchBuilder(magic, int(codec), LARGE)
    for record in records:
        timestamp = None if magic == 0 else record.timestamp
        arguments = [record.offset, timestamp, record.key, record.value]
        builder.append(*arguments, *([list(record.headers)] if magic == 2 else []))
    return bytes(builder.build())


def read_by_peer(memory_records: Callable[[bytes], Any], data: bytes) -> list[Record]:
    found = []
    whole = memory_records(data)
    while whole.has_next():
        batch = whole.next_batch()
        assert batch.validate_crc()
        for record in batch:
            timestamp = -1 if record.timestamp is None else record.timestamp
            headers = tuple((name, value) for name, value in record.headers)
            found.append(Record(record.offset, timestamp, record.key, record.value, headers))
    return found


def read_by_us(data: bytes | memoryview) -> list[Record]:
    return [record for entry in scan_entries(data) for record in iter_records(data, entry.position)]


ENCODERS = [by_kafka_python, by_aiokafka]
DECODERS = [MemoryRecords, AioMemoryRecords]


def each_with_its_formats(
    kafka_python: object, aiokafka: object
) -> list[tuple[object, int, Codec]]:
    """Each peer's function with every format that it has: aiokafka has no LZ4 in magic 0."""
    return [
        (peer, magic, codec)
        for peer in (kafka_python, aiokafka)
        for magic, codec in FORMATS
        if peer is kafka_python or (magic, codec) != (0, Codec.LZ4)
    ]


@pytest.mark.parametrize("encode", ENCODERS)
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_uncompressed_bytes_are_equal(
    magic: int, encode: Callable[[int, Codec, list[Record]], bytes]
) -> None:
    theirs = bytearray(encode(magic, Codec.NONE, sample(magic)))
    mine = bytearray(ours(magic, Codec.NONE, sample(magic)))
    if magic == 2:
        # Clients differ in the leader epoch they leave for the broker: 0 or -1.
        theirs[12:16] = mine[12:16]
    assert theirs == mine


@pytest.mark.parametrize(("encode", "magic", "codec"), each_with_its_formats(*ENCODERS))
def test_their_bytes_are_read_and_appended(
    magic: int, codec: Codec, encode: Callable[[int, Codec, list[Record]], bytes]
) -> None:
    data = encode(magic, codec, sample(magic))
    assert read_by_us(data) == sample(magic)
    plan = plan_append(
        data,
        rules=AppendRules(),
        now_ms=7,
        next_offset=40,
        leader_epoch=0,
        produce_version=9 if magic == 2 else 2,
    )
    expected = [record._replace(offset=40 + i) for i, record in enumerate(sample(magic))]
    assert read_by_us(plan.buffer) == expected
    for decode in DECODERS:
        assert read_by_peer(decode, bytes(plan.buffer)) == expected


@pytest.mark.parametrize(("decode", "magic", "codec"), each_with_its_formats(*DECODERS))
def test_our_bytes_are_read_by_them(
    magic: int, codec: Codec, decode: Callable[[bytes], Any]
) -> None:
    assert read_by_peer(decode, ours(magic, codec, sample(magic))) == sample(magic)


@pytest.mark.parametrize("decode", DECODERS)
@pytest.mark.parametrize("codec", list(Codec))
def test_stamped_batches_are_read_by_them(codec: Codec, decode: Callable[[bytes], Any]) -> None:
    plan = plan_append(
        build_batch(sample(2), codec=codec),
        rules=AppendRules(timestamp_type=TimestampType.LOG_APPEND_TIME),
        now_ms=1_800_000_000_000,
        next_offset=2**40,
        leader_epoch=3,
    )
    records = read_by_peer(decode, bytes(plan.buffer))
    assert {record.timestamp for record in records} == {1_800_000_000_000}
    assert [record.offset for record in records] == [2**40 + i for i in range(5)]


def test_marker_is_one_to_them() -> None:
    data = build_end_txn_marker(commit=True, producer_id=5, producer_epoch=1, timestamp_ms=9)
    for decode in DECODERS:
        batch = decode(data).next_batch()
        assert batch.validate_crc()
        assert batch.is_control_batch
        assert batch.is_transactional
        assert batch.producer_id == 5
        assert batch.next_offset == 1


def test_gaps_left_by_compaction_are_read_by_them() -> None:
    records = [Record(3, 5, b"a", b"1"), Record(9, 6, b"b", b"2")]
    data = build_batch(records, base_offset=0, keep_offsets=True)
    for decode in DECODERS:
        assert read_by_peer(decode, data) == records


# --- kio, magic 2 uncompressed, times in whole seconds (see its own limits) ---------------------

SECONDS = [Record(i, 1_700_000_000_000 + 1000 * i, b"k", b"v" * i, HEADERS[:2]) for i in range(4)]


def kio_record(record: Record) -> KioRecord:
    headers = tuple(RecordHeader(key=name.encode(), value=value) for name, value in record.headers)
    return KioRecord(
        attributes=i8(0),
        timestamp=datetime.fromtimestamp(record.timestamp // 1000, UTC),  # type: ignore[arg-type]
        offset=i64(record.offset),
        key=record.key,
        value=record.value,
        headers=headers,
    )


def test_kio_reads_our_batch() -> None:
    data = build_batch(SECONDS, producer_id=7, producer_epoch=2, base_sequence=9, leader_epoch=4)
    batch, size = read_batch(data, 0)
    assert size == len(data)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (7, 2, 9)
    assert batch.partition_leader_epoch == 4
    assert batch.records == tuple(kio_record(record) for record in SECONDS)


def test_kio_writes_what_we_write() -> None:
    buffer = BytesIO()
    batch = NewRecordBatch(
        producer_id=i64(7),
        producer_epoch=i16(2),
        partition_leader_epoch=i32(4),
        base_sequence=i32(9),
        records=tuple(kio_record(record) for record in SECONDS),
        attributes=i16(0),
    )
    write_new_batch(buffer, batch)
    assert buffer.getvalue() == build_batch(
        SECONDS, producer_id=7, producer_epoch=2, base_sequence=9, leader_epoch=4
    )
    assert read_by_us(buffer.getvalue()) == SECONDS
