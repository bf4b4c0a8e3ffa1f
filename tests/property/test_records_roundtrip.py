"""Any records survive every format, every conversion and every append; loops agree with a model."""

from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from protocol.errors import RecordsError
from protocol.records import record_loops
from protocol.records.batch import RecordBatch
from protocol.records.builder import build_batch, build_message_set
from protocol.records.checksums import crc32, crc32c
from protocol.records.compression import compress, decompress
from protocol.records.convert import down_convert
from protocol.records.layout import INT64_MAX, INT64_MIN, RECORDS_AT, Codec
from protocol.records.record import Record
from protocol.records.scan import iter_records, scan_entries
from tests.unit.protocol.records.flavours import ENTRY_LOOPS, RECORD_LOOPS

TIMESTAMPS = st.one_of(
    st.integers(-1, 2000), st.integers(-1, INT64_MAX), st.sampled_from([-1, 0, INT64_MAX])
)
BLOBS = st.one_of(st.none(), st.binary(max_size=40), st.binary(min_size=100, max_size=300))
HEADERS = st.lists(st.tuples(st.text(max_size=5), BLOBS), max_size=3).map(tuple)
CODECS = st.sampled_from(list(Codec))
OLD_CODECS = st.sampled_from([Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])


def numbered(rows: list[tuple[int, Any, Any, Any]]) -> list[Record]:
    return [Record(i, *row) for i, row in enumerate(rows)]


RECORDS = st.lists(st.tuples(TIMESTAMPS, BLOBS, BLOBS, HEADERS), min_size=1, max_size=8).map(
    numbered
)


def read(data: bytes) -> list[Record]:
    return [record for entry in scan_entries(data) for record in iter_records(data, entry.position)]


@given(records=RECORDS, codec=CODECS, base=st.integers(0, INT64_MAX - 10))
def test_batches_give_back_their_records(records: list[Record], codec: Codec, base: int) -> None:
    data = build_batch(records, codec=codec, base_offset=base)
    assert RecordBatch(data).crc_ok()
    assert read(data) == [r._replace(offset=base + i) for i, r in enumerate(records)]


@given(records=RECORDS, codec=OLD_CODECS, magic=st.sampled_from([0, 1]))
def test_conversions_keep_what_the_old_format_has(
    records: list[Record], codec: Codec, magic: int
) -> None:
    expected = [r._replace(headers=(), timestamp=r.timestamp if magic else -1) for r in records]
    old = build_message_set(records, magic, codec)
    assert read(old) == expected
    assert read(down_convert(build_batch(records, codec=codec), magic, 0).records) == expected


@given(data=st.binary(max_size=5000), codec=CODECS, legacy=st.booleans())
def test_codecs_give_back_their_input(data: bytes, codec: Codec, legacy: bool) -> None:
    packed = compress(codec, data, legacy_lz4=legacy)
    assert decompress(codec, packed, max_bytes=len(data), legacy_lz4=legacy) == data


@given(data=st.binary(max_size=200), codec=CODECS)
def test_noise_is_decompressed_or_refused(data: bytes, codec: Codec) -> None:
    try:
        decompress(codec, data, max_bytes=1000)
    except RecordsError:
        return


def outcome(call: Any, *arguments: Any) -> Any:
    """What a loop returns, or the kind and text of what it raises."""
    try:
        return call(*arguments)
    except RecordsError as error:
        return type(error), str(error)


@settings(max_examples=150)
@given(
    records=RECORDS,
    damage=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=3),
    base=st.one_of(st.sampled_from([-1, 0, INT64_MAX, INT64_MIN]), st.integers(-5, 5000)),
    rules=st.tuples(TIMESTAMPS, TIMESTAMPS, st.integers(0, 1), st.booleans()),
    target=TIMESTAMPS,
)
def test_compiled_and_interpreted_record_loops_agree(
    records: list[Record],
    damage: list[tuple[int, int]],
    base: int,
    rules: tuple[int, int, int, bool],
    target: int,
) -> None:
    payload = bytearray(build_batch(records)[RECORDS_AT:])
    for position, value in damage:
        payload[position % len(payload)] = value
    whole = (bytes(payload), 0, len(payload), len(records))
    calls: list[tuple[str, tuple[Any, ...]]] = [
        ("check_records", (*whole, base, *rules)),
        ("decode_records", (*whole, 7, base, 9, False)),
        ("find_timestamp", (*whole, 7, base, target, 8)),
        ("outline_records", (*whole, 7, base)),
    ]
    for name, arguments in calls:
        results = [outcome(getattr(loops, name), *arguments) for loops in RECORD_LOOPS.values()]
        assert results[0] == results[1], name


@settings(max_examples=100)
@given(
    sets=st.lists(st.tuples(RECORDS, OLD_CODECS, st.sampled_from([0, 1, 2])), max_size=4),
    damage=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=3),
    limit=st.integers(0, 3000),
    target=TIMESTAMPS,
)
def test_compiled_and_interpreted_entry_loops_agree(
    sets: list[tuple[list[Record], Codec, int]],
    damage: list[tuple[int, int]],
    limit: int,
    target: int,
) -> None:
    data = bytearray()
    for records, codec, magic in sets:
        made = (
            build_batch(records, codec=codec)
            if magic == 2
            else build_message_set(records, magic, codec)
        )
        data += made
    assume(data)
    for position, value in damage:
        data[position % len(data)] = value
    whole = (bytes(data), 0, len(data))
    calls: list[tuple[str, tuple[Any, ...]]] = [
        ("check_entries", (*whole, None, None)),
        ("whole_entries", (*whole, limit, bool(limit % 2))),
        ("find_entry", (*whole, limit % 9, target)),
        ("message_positions", whole),
        ("check_messages", (*whole, 1, 0, target, 0, True, 5, False, lambda view: 0)),
    ]
    for name, arguments in calls:
        results = [outcome(getattr(loops, name), *arguments) for loops in ENTRY_LOOPS.values()]
        assert results[0] == results[1], name
    state = (0, 2**31, -1, 0, limit % 200, limit % 500, 3)
    for functions in ((None, None), (crc32c, crc32)):
        digest = (bytes(data), len(data), *functions, *state)
        results = [outcome(loops.digest_entries, *digest) for loops in ENTRY_LOOPS.values()]
        assert results[0] == results[1]


@given(records=RECORDS, target=TIMESTAMPS, first=st.integers(0, 8))
def test_search_by_time_equals_a_plain_scan(records: list[Record], target: int, first: int) -> None:
    payload = build_batch(records)[RECORDS_AT:]
    base = records[0].timestamp
    hits = [(r.timestamp, r.offset) for r in records if r.timestamp >= target and r.offset >= first]
    assert record_loops.find_timestamp(
        payload, 0, len(payload), len(records), 0, base, target, first
    ) == (hits[0] if hits else (-1, -1))


@pytest.mark.parametrize("magic", [0, 1, 2])
@given(records=RECORDS)
def test_scan_cuts_where_bytes_end(magic: int, records: list[Record]) -> None:
    data = build_batch(records) if magic == 2 else build_message_set(records, magic)
    cut = len(data) * 2 // 3
    whole = [entry for entry in scan_entries(data) if entry.position + entry.size <= cut]
    assert list(scan_entries(data[:cut])) == whole
