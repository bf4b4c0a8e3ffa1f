"""What the sink writes is read back whole by the protocol's own reader."""

import random
from typing import Any

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa

from client.partitioner import partition_for_key
from pipeline.errors import BadOptions
from pipeline.records import encode
from pipeline.records.batches import COLUMN_TYPES, TIMESTAMP_ARROW
from pipeline.records.codecs import NAMES
from pipeline.records.encode import (
    BatchBuilder,
    Rows,
    digest_rows,
    groups,
    numbers_of,
    partitions_of,
)
from protocol.records.batch import RecordBatch
from protocol.records.builder import build_batch
from protocol.records.record import Record
from protocol.records.scan import iter_records
from tests.unit.protocol.records.flavours import ENCODE_LOOPS

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


def arrow_rows(luck: random.Random, count: int) -> pa.RecordBatch:
    """Rows with nulls, headers and text for bytes, as slices of longer columns."""

    def piece(longest: int) -> bytes:
        return luck.randbytes(luck.randrange(longest))

    def header() -> tuple[str, bytes | None]:
        return luck.choice(("h", "")), luck.choice((piece(200), None))

    def maybe(value: Any) -> Any:
        return luck.choice((value, value, None))

    columns = {
        "key": pa.array([maybe("ä" * luck.randrange(80)) for _ in range(count)], pa.string()),
        "value": pa.array([maybe(piece(20_000)) for _ in range(count)], pa.binary()),
        "timestamp": pa.array(
            [maybe(luck.randrange(-(10**15), 10**15)) for _ in range(count)], TIMESTAMP_ARROW
        ),
        "headers": pa.array(
            [maybe([header() for _ in range(luck.randrange(4))]) for _ in range(count)],
            COLUMN_TYPES["headers"],
        ),
    }
    chosen = {name: columns[name] for name in columns if name == "value" or luck.random() < 0.8}
    whole = pa.RecordBatch.from_arrays(list(chosen.values()), names=list(chosen))
    return whole.slice(luck.randrange(count // 2), luck.randrange(1, count // 2))


NOW_MS = 1_700_000_000_000


def record_of(row: dict[str, Any]) -> tuple[Any, ...]:
    """Time, key, value and headers of one row, by way of Python objects."""
    headers = row.get("headers") or ()
    when = row.get("timestamp")
    micros = NOW_MS * 1000 if when is None else when
    key = row.get("key")
    return (
        micros // 1000,
        None if key is None else key.encode(),
        row["value"],
        [(one["key"].encode(), one["value"]) for one in headers],
    )


@pytest.mark.parametrize("flavour", ENCODE_LOOPS)
def test_keys_choose_the_partitions_that_every_client_chooses(
    flavour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`client.partitioner` agrees with Kafka's own figures (tests/unit/client)."""
    loops = ENCODE_LOOPS[flavour]
    monkeypatch.setattr(encode, "choose_partitions", loops.choose_partitions)
    luck = random.Random(5)
    keys: list[bytes | None] = [luck.randbytes(number % 23) for number in range(300)]
    for number in range(0, 300, 7):
        keys[number] = None
    for some in (keys, [key for key in keys if key is not None], [b""], [None, None], []):
        array = pa.array([b"ahead", *some], pa.binary()).slice(1)
        for count in (1, 2, 7, 1000):
            expected = [None if key is None else partition_for_key(key, count) for key in some]
            assert partitions_of(array, count).to_pylist() == expected


@pytest.mark.parametrize("flavour", ENCODE_LOOPS)
@pytest.mark.parametrize("seed", range(10))
def test_rows_of_arrow_columns_become_the_records_that_objects_become(
    flavour: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encode, "encode_rows", ENCODE_LOOPS[flavour].encode_rows)
    luck = random.Random(seed)
    batch = arrow_rows(luck, 60)
    order = luck.sample(range(batch.num_rows), luck.randrange(1, batch.num_rows + 1))
    rows, numbers = Rows(batch, NOW_MS), numbers_of(pa.array([9, *order], pa.int32()).slice(1))
    if "timestamp" in batch.schema.names:
        micros = batch.column("timestamp").cast(pa.int64())
        at = batch.schema.get_field_index("timestamp")
        batch = batch.set_column(at, "timestamp", micros)
    objects = batch.to_pylist()
    at, full, digest = 0, luck.choice((1, 5000, 1 << 30)), 0
    while at < len(order):
        ours, theirs = BatchBuilder(), BatchBuilder()
        taken, part = ours.add_rows(rows, numbers, at, full, digests=True)
        for number in order[at : at + taken]:
            assert theirs.size_bytes < full
            theirs.add(*record_of(objects[number]))
        assert ours.build(0, **PRODUCER) == theirs.build(0, **PRODUCER)  # type: ignore[arg-type]
        assert at + taken == len(order) or ours.size_bytes >= full
        at, digest = at + taken, digest + part
    luck.shuffle(order)
    assert digest_rows(rows, pa.array(order, pa.int32())) == digest % (1 << 64)
    assert digest_rows(rows, pa.array(order[1:], pa.int32())) != digest % (1 << 64)


def test_rows_are_grouped_in_their_order() -> None:
    column = pa.array([2, 0, None, 2, 0, 7], pa.int32())
    assert [(value, rows.to_pylist()) for value, rows in groups(column)] == [
        (0, [1, 4]), (2, [0, 3]), (7, [5]), (None, [2]),
    ]  # fmt: skip
    assert list(groups(column.slice(0, 0))) == []


def test_a_null_header_is_refused() -> None:
    for row, message in (
        ([("a", b"1"), None], "an array with a null element"),
        ([("a", b"1"), (None, b"2")], "a header whose key is null"),
    ):
        headers = pa.array([[("b", None)], None, row], COLUMN_TYPES["headers"])
        batch = pa.RecordBatch.from_arrays([headers], names=["headers"])
        with pytest.raises(BadOptions, match=message):
            Rows(batch, NOW_MS)
        Rows(batch.slice(0, 2), NOW_MS)


def test_a_batch_without_rows_and_values_without_bytes_are_no_fault() -> None:
    """Spark gives a task of a stream batches without rows."""
    values = pa.array([b"", b"", None], pa.binary())
    for count in (0, 3):
        batch = pa.RecordBatch.from_arrays([values.slice(0, count)] * 2, names=["key", "value"])
        rows, builder = Rows(batch, NOW_MS), BatchBuilder()
        every = pa.array(range(count), pa.int32())
        if count:
            assert builder.add_rows(rows, numbers_of(every), 0, 1 << 20, digests=False)[0] == 3
            data = builder.build(0, **PRODUCER)  # type: ignore[arg-type]
            assert [one.value for one in iter_records(data)] == [b"", b"", None]
        assert (digest_rows(rows, every) == 0) == (count == 0)
    assert list(groups(pa.array([], pa.int32()))) == []
    empty = Rows(pa.RecordBatch.from_arrays([pa.array([], pa.binary())], names=["value"]), NOW_MS)
    assert len(empty.micros) == 0
