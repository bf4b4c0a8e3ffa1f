"""Log bytes become Arrow columns: every flavour of batch, every reason to leave a record out."""

import importlib.util
import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")

from pipeline.errors import CorruptData, MalformedTimestamp  # noqa: E402
from pipeline.records import arrow_loops, batches  # noqa: E402
from pipeline.records.batches import COLUMN_TYPES, DecodeRules, PartitionDecoder  # noqa: E402
from protocol.records.builder import (  # noqa: E402
    build_batch,
    build_end_txn_marker,
    build_message_set,
)
from protocol.records.layout import Codec, TimestampType  # noqa: E402
from protocol.records.record import Record  # noqa: E402

ALL = tuple(COLUMN_TYPES)


def record(offset: int, timestamp: int = 1_700_000_000_000, **fields: Any) -> Record:
    defaults: dict[str, Any] = {"key": b"k", "value": b"v%d" % offset, "headers": ()}
    return Record(offset=offset, timestamp=timestamp, **{**defaults, **fields})


def batch(first: int, count: int, **fields: Any) -> bytes:
    records = [record(first + index) for index in range(count)]
    return build_batch(records, base_offset=first, **fields)


def decode(
    data: bytes,
    start: int = 0,
    end: int = 1 << 40,
    aborted: tuple[tuple[int, int], ...] = (),
    **rules: Any,
) -> list[dict[str, Any]]:
    decoder = PartitionDecoder("t", 3, start, end, DecodeRules(**{"columns": ALL, **rules}))
    rows: list[dict[str, Any]] = []
    for one in decoder.feed(memoryview(data), aborted):
        one.validate(full=True)
        rows += one.to_pylist()
    return rows


def offsets(rows: list[dict[str, Any]]) -> list[int]:
    return [row["offset"] for row in rows]


@pytest.fixture(params=["compiled", "plain"], autouse=True)
def loops(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test runs with the compiled loop, where there is one, and with the plain one."""
    if request.param == "compiled":
        if not arrow_loops.COMPILED:
            pytest.skip("the loops are not compiled here")
    else:
        monkeypatch.setattr(batches, "fill_rows", _plain_loops().fill_rows)


def _plain_loops() -> ModuleType:
    known = sys.modules.get("plain_arrow_loops")
    if known is None:
        source = str(arrow_loops.__file__).partition(".cpython")[0].removesuffix(".py") + ".py"
        spec = importlib.util.spec_from_file_location("plain_arrow_loops", source)
        assert spec is not None
        assert spec.loader is not None
        known = sys.modules["plain_arrow_loops"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(known)
    return known


def test_the_columns_are_those_of_sparks_kafka_source() -> None:
    headers = (("a", b"1"), ("a", None), ("é", b""))
    data = build_batch([record(0, 1234, key=None, headers=headers)], base_offset=7)
    (row,) = decode(data)
    assert row.pop("timestamp").timestamp() == 1.234
    assert row == {
        "key": None,
        "value": b"v0",
        "topic": "t",
        "partition": 3,
        "offset": 7,
        "timestampType": 0,
        "headers": [
            {"key": "a", "value": b"1"},
            {"key": "a", "value": None},
            {"key": "é", "value": b""},
        ],
    }


def test_reading_imports_no_pandas() -> None:
    """Each of Spark's workers would pay half a second for it."""
    code = (
        "import sys\n"
        "from pipeline.records.batches import COLUMN_TYPES, DecodeRules, PartitionDecoder\n"
        "tried = []\n"
        "class Finder:\n"
        "    def find_spec(self, name, *_): tried.append(name)\n"
        "sys.meta_path.insert(0, Finder())\n"
        "rules = DecodeRules(columns=tuple(COLUMN_TYPES))\n"
        "decoder = PartitionDecoder('t', 3, 0, 9, rules)\n"
        "(rows,) = decoder.feed(memoryview(bytes.fromhex(sys.argv[1])))\n"
        "print(rows.num_rows, [name for name in tried if name.startswith('pandas')])\n"
    )
    command = [sys.executable, "-c", code, batch(0, 3).hex()]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert answer.stdout == "3 []\n"


def test_null_empty_and_present_bytes_are_three_things() -> None:
    """SPARK-27494: null keys and values."""
    data = build_batch(
        [record(0, key=None, value=None), record(1, key=b"", value=b""), record(2, key=b"x")]
    )
    rows = decode(data)
    assert [row["key"] for row in rows] == [None, b"", b"x"]
    assert [row["value"] for row in rows] == [None, b"", b"v2"]
    assert [row["headers"] for row in rows] == [None, None, None]


@pytest.mark.parametrize("codec", list(Codec))
def test_every_codec_is_read(codec: Codec) -> None:
    data = batch(0, 300, codec=codec) + batch(300, 2)
    rows = decode(data)
    assert offsets(rows) == list(range(302))
    assert rows[299]["value"] == b"v299"


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_old_messages_are_read_too(magic: int, codec: Codec) -> None:
    data = build_message_set([record(0), record(1)], magic, codec) + batch(2, 2)
    rows = decode(data, start=1)
    assert offsets(rows) == [1, 2, 3]
    assert rows[0]["timestampType"] == (-1 if magic == 0 else 0)


def test_only_the_asked_offsets_come_out() -> None:
    data = batch(0, 10) + batch(10, 10)
    assert offsets(decode(data, start=4, end=13)) == list(range(4, 13))


def test_a_strict_window_keeps_rows_by_their_own_time() -> None:
    data = build_batch([record(index, 1000 + (index * 7) % 10) for index in range(10)])
    rows = decode(data, oldest_ms=1003, newest_ms=1006)
    assert {round(row["timestamp"].timestamp() * 1000) for row in rows} == {1003, 1004, 1005}


def test_log_append_time_stands_for_every_record_of_its_batch() -> None:
    stamped = batch(
        0, 2, timestamp_type=TimestampType.LOG_APPEND_TIME, append_timestamp=1_800_000_000_000
    )
    rows = decode(stamped + batch(2, 1))
    assert [row["timestampType"] for row in rows] == [1, 1, 0]
    assert rows[1]["timestamp"].timestamp() == 1_800_000_000


def test_an_aborted_transaction_is_invisible_only_to_committed_readers() -> None:
    def transaction(first: int, producer: int) -> bytes:
        return batch(first, 2, producer_id=producer, producer_epoch=0, base_sequence=0,
                     is_transactional=True)  # fmt: skip

    def marker(offset: int, producer: int, commit: bool) -> bytes:
        return build_end_txn_marker(
            commit=commit, producer_id=producer, producer_epoch=0, timestamp_ms=1,
            base_offset=offset,
        )  # fmt: skip

    data = (
        transaction(0, 1) + transaction(2, 2) + marker(4, 1, commit=False)
        + marker(5, 2, commit=True) + transaction(6, 1) + marker(8, 1, commit=True)
    )  # fmt: skip
    aborted = ((1, 0),)
    assert offsets(decode(data, aborted=aborted, read_committed=True)) == [2, 3, 6, 7]
    assert offsets(decode(data, read_committed=False)) == [0, 1, 2, 3, 6, 7]


def test_an_aborted_transaction_may_reach_over_two_fetches() -> None:
    fields = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
    decoder = PartitionDecoder("t", 0, 0, 100, DecodeRules(columns=ALL, read_committed=True))
    assert list(decoder.feed(memoryview(batch(0, 2, **fields)), [(1, 0)])) == []
    assert list(decoder.feed(memoryview(batch(2, 2, **fields)), [(1, 0)])) == []
    marker = build_end_txn_marker(
        commit=False, producer_id=1, producer_epoch=0, timestamp_ms=1, base_offset=4
    )
    tail = memoryview(marker + batch(5, 1))
    assert sum(one.num_rows for one in decoder.feed(tail, [(1, 0)])) == 1
    assert decoder.next_offset == 6


def test_gaps_of_compaction_move_reading_on() -> None:
    sparse = build_batch([record(3), record(9)], base_offset=0, keep_offsets=True)
    decoder = PartitionDecoder("t", 0, 0, 100, DecodeRules(columns=ALL))
    (one,) = decoder.feed(memoryview(sparse))
    assert one.column("offset").to_pylist() == [3, 9]
    assert decoder.next_offset == 10


@pytest.mark.parametrize("start", [0, 5])
def test_a_gap_that_reaches_over_the_end_ends_reading(start: int) -> None:
    """Else a reader would fetch the batch after the end for ever."""
    decoder = PartitionDecoder("t", 0, start, 100, DecodeRules(columns=ALL))
    data = memoryview((batch(0, 5) if not start else b"") + batch(150, 5))
    rows = [one.num_rows for one in decoder.feed(data)]
    assert rows == ([5] if not start else [])
    assert decoder.is_done


def test_a_batch_cut_short_at_the_end_waits_for_the_next_fetch() -> None:
    whole = batch(0, 3)
    decoder = PartitionDecoder("t", 0, 0, 100, DecodeRules(columns=ALL))
    rows = [one.num_rows for one in decoder.feed(memoryview(whole + batch(3, 3)[:-1]))]
    assert rows == [3]
    assert decoder.next_offset == 3


def test_a_flipped_bit_is_named_with_its_offset() -> None:
    data = bytearray(batch(0, 3) + batch(3, 3))
    data[-1] ^= 1
    with pytest.raises(CorruptData, match=r"t-3: the batch at offset 3 has CRC-32C"):
        decode(bytes(data))


@pytest.mark.parametrize("position", range(61, 90))
def test_nonsense_under_a_good_checksum_never_crashes(position: int) -> None:
    data = bytearray(batch(0, 3))
    data[position] ^= 0xFF
    try:
        rows = decode(bytes(data), verify_checksums=False)
    except (CorruptData, MalformedTimestamp, UnicodeDecodeError):
        return
    assert len(rows) <= 3


def test_nanoseconds_written_by_mistake_are_an_error_with_a_cure() -> None:
    """SPARK-56243: a time beyond 64-bit microseconds."""
    data = build_batch([record(0), record(1, 1_700_000_000_000_000_000)])
    with pytest.raises(MalformedTimestamp, match=r"from offset 1 on.*null or clamp"):
        decode(data)
    assert [row["timestamp"] is None for row in decode(data, on_malformed="null")] == [False, True]


@pytest.mark.parametrize("magic", [1, 2])
def test_a_time_that_does_not_fit_matters_only_where_times_are_read(magic: int) -> None:
    bad = [record(0, 1_700_000_000_000_000_000, headers=())]
    data = build_batch(bad) if magic == 2 else build_message_set(bad, magic, Codec.NONE)
    assert decode(data, columns=("value", "offset")) == [{"value": b"v0", "offset": 0}]
    with pytest.raises(MalformedTimestamp, match="leave the column timestamp out"):
        decode(data)
    (row,) = decode(data, on_malformed="null")
    assert row["timestamp"] is None
    clamped = PartitionDecoder("t", 0, 0, 9, DecodeRules(columns=ALL, on_malformed="clamp"))
    (one,) = clamped.feed(memoryview(data))
    micros = one.column("timestamp").cast(pa.int64()).to_pylist()
    assert micros == [9_223_372_036_854_775_000]


def test_no_timestamp_is_the_millisecond_before_1970_as_in_spark_or_null() -> None:
    data = build_batch([record(0, -1)])
    assert decode(data)[0]["timestamp"].timestamp() == -0.001
    assert decode(data, on_malformed="null")[0]["timestamp"] is None


def test_a_projection_holds_only_its_columns_in_its_order() -> None:
    (row,) = decode(batch(0, 1), columns=("offset", "value"))
    assert list(row.items()) == [("offset", 0), ("value", b"v0")]


def test_large_fetches_come_out_in_batches_of_the_asked_size() -> None:
    decoder = PartitionDecoder("t", 0, 0, 1 << 40, DecodeRules(columns=ALL, rows_per_batch=100))
    rows = [one.num_rows for one in decoder.feed(memoryview(batch(0, 250)))]
    assert rows == [100, 100, 50]


def test_the_largest_number_of_all_is_judged_and_not_dropped() -> None:
    data = build_batch([record(0, 2**63 - 1)])
    with pytest.raises(MalformedTimestamp):
        decode(data)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_reading_ends_once_as_many_old_records_were_seen_as_there_are(codec: Codec) -> None:
    """Those that are not wanted count too, and so do whole batches that are too old."""
    times = [[10, 50, 20], [5, 6], [60, 70], [61, 30], [80, 90]]
    data, first = [], 0
    for some in times:
        records = [record(first + number, when) for number, when in enumerate(some)]
        data.append(build_batch(records, base_offset=first, codec=codec))
        first += len(some)
    assert offsets(decode(b"".join(data), oldest_ms=15, newest_ms=55)) == [1, 2, 8]

    def fed(start: int, stop: tuple[int, int]) -> tuple[list[int], list[int]]:
        """The offsets read chunk by chunk, and where reading continued after each of them."""
        rules = DecodeRules(columns=("offset",), oldest_ms=15, newest_ms=55, stop=stop)
        decoder = PartitionDecoder("t", 0, start, 11, rules)
        rows, reached = [], []
        for one in data:
            if decoder.is_done:
                break
            for part in decoder.feed(memoryview(one)):
                rows += part.column(0).to_pylist()
            reached.append(decoder.next_offset)
        return rows, reached

    # 10, 50, 20, 5, 6 and 30 are before 60.
    assert fed(0, (60, 6)) == ([1, 2, 8], [3, 5, 7, 11])
    assert fed(0, (60, 5)) == ([1, 2], [3, 11])
    assert fed(0, (60, 7)) == ([1, 2, 8], [3, 5, 7, 9, 11])
    # Of a batch that begins before the first offset only the records from it on count.
    assert fed(2, (60, 3)) == ([2], [3, 11])
    # What is too old as a whole is not counted in part: more is read.
    assert fed(4, (60, 2)) == ([8], [4, 5, 7, 9, 11])
