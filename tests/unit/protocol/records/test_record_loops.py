"""Magic 2 records in bulk: both ways of running give the same answers."""

from types import ModuleType
from typing import Any

import pytest

from protocol.errors import InvalidRecords
from protocol.records.builder import build_batch
from protocol.records.layout import INT64_MAX, INT64_MIN, RECORDS_AT, TimestampType
from protocol.records.record import Record
from tests.unit.protocol.records.flavours import RECORD_LOOPS

OPEN = (INT64_MIN, INT64_MAX)
GOLDEN = bytes.fromhex("0e000000010261001200860e02026b0262001800c80104026b010202680231")
"""Records with timestamps 100, 999, 200; keys null, k, k; values a, b, null; one header."""


@pytest.fixture(params=list(RECORD_LOOPS.values()), ids=list(RECORD_LOOPS))
def loops(request: pytest.FixtureRequest) -> ModuleType:
    module: ModuleType = request.param
    return module


def check(loops: ModuleType, data: bytes, count: int, *rules: Any) -> Any:
    base, oldest, newest, type_rule, keys = rules or (100, *OPEN, 0, False)
    return loops.check_records(data, 0, len(data), count, base, oldest, newest, type_rule, keys)


def varint(value: int) -> bytes:
    raw = (value << 1) ^ (value >> 63)
    out = bytearray()
    while raw >= 0x80:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    return bytes([*out, raw])


def record(body: bytes) -> bytes:
    return varint(len(body)) + body


def test_max_timestamp_is_the_first_records_that_has_it(loops: ModuleType) -> None:
    assert check(loops, GOLDEN, 3) == (999, 1, True, None, 100)
    batch = build_batch(
        [Record(0, 5, None, None), Record(1, 9, None, None), Record(2, 9, None, None)]
    )
    assert check(loops, batch[RECORDS_AT:], 3, 5, *OPEN, 0, False)[:2] == (9, 1)


def test_outlines_tell_where_records_lie_and_can_be_taken_in_parts(loops: ModuleType) -> None:
    end = len(GOLDEN)
    whole = loops.outline_records(GOLDEN, 0, end, 3, 40, 100)
    assert [outline[2:] for outline in whole] == [
        (40, 100, None, True),
        (41, 999, b"k", True),
        (42, 200, b"k", False),
    ]
    assert whole[0][0] == 0
    assert whole[-1][1] == end
    first = loops.outline_records(GOLDEN, 0, end, 1, 40, 100)
    rest = loops.outline_records(GOLDEN, first[-1][1], end, 2, 40, 100)
    assert first + rest == whole
    with pytest.raises(InvalidRecords):
        loops.outline_records(GOLDEN, 0, end, 4, 40, 100)


def test_no_timestamps_leave_minus_one(loops: ModuleType) -> None:
    batch = build_batch([Record(0, -1, None, b"a"), Record(1, -1, None, b"b")])
    assert check(loops, batch[RECORDS_AT:], 2, -1, *OPEN, 0, False) == (-1, -1, True, None, -1)
    assert check(loops, b"", 0) == (-1, -1, True, None, INT64_MAX)


@pytest.mark.parametrize(
    ("rules", "faults"),
    [
        ((100, 100, 999, 0, False), None),
        ((100, 101, 999, 0, False), [(0, 2, 100)]),
        ((100, 100, 998, 0, False), [(1, 2, 999)]),
        ((100, *OPEN, 0, True), [(0, 1, 100)]),
        ((100, 200, 200, 0, True), [(0, 1, 100), (1, 2, 999)]),
        ((100, *OPEN, 1, False), [(0, 3, 100), (1, 3, 999), (2, 3, 200)]),
        ((-1, 0, 5000, 0, False), None),
    ],
)
def test_faults_name_index_kind_and_timestamp(
    loops: ModuleType, rules: tuple[Any, ...], faults: Any
) -> None:
    assert check(loops, GOLDEN, 3, *rules)[3] == faults


def test_scattered_offsets_are_noticed(loops: ModuleType) -> None:
    records = [Record(0, 1, None, b"a"), Record(2, 1, None, b"b")]
    payload = build_batch(records, keep_offsets=True)[RECORDS_AT:]
    assert check(loops, payload, 2, 1, *OPEN, 0, False)[2] is False


@pytest.mark.parametrize(
    ("timestamps", "sums"),
    [
        ((INT64_MAX, -1), (INT64_MAX, -1)),
        ((-1, INT64_MAX), (-1, INT64_MAX)),
        ((INT64_MIN, INT64_MAX), (INT64_MIN, INT64_MAX)),
        ((0, INT64_MIN), (0, INT64_MIN)),
    ],
)
def test_distances_beyond_64_bits_wrap_as_in_java(
    loops: ModuleType, timestamps: tuple[int, int], sums: tuple[int, int]
) -> None:
    payload = build_batch([Record(i, t, None, None) for i, t in enumerate(timestamps)])[RECORDS_AT:]
    decoded = loops.decode_records(payload, 0, len(payload), 2, 0, timestamps[0], 0, False)
    assert tuple(fields[1] for fields in decoded) == sums
    assert check(loops, payload, 2, timestamps[0], *OPEN, 0, False)[0] == max(-1, *sums)


@pytest.mark.parametrize(
    ("what", "data", "count"),
    [
        ("fewer bytes than records", GOLDEN, 4),
        ("more bytes than records", GOLDEN, 2),
        ("no bytes", b"", 1),
        ("length beyond the batch", b"\x7e" + GOLDEN[1:], 3),
        ("negative length", b"\x01" + bytes(9), 1),
        ("zero length", b"\x00" + bytes(9), 1),
        ("unfinished varint", b"\x80", 1),
        ("length of 6 bytes", b"\x80\x80\x80\x80\x80\x01" + bytes(9), 1),
        ("timestamp of 11 bytes", record(b"\x00" + b"\x80" * 10 + b"\x01" + bytes(5)), 1),
        ("timestamp beyond the record", record(b"\x00\x80\x80\x80"), 1),
        ("key beyond the record", record(b"\x00\x00\x00\x20\x01\x00"), 1),
        ("value beyond the record", record(b"\x00\x00\x00\x01\x20\x00"), 1),
        ("no header count", record(b"\x00\x00\x00\x01\x01"), 1),
        ("negative header count", record(b"\x00\x00\x00\x01\x01\x01"), 1),
        ("more headers than bytes", record(b"\x00\x00\x00\x01\x01\x06\x00"), 1),
        ("null header key", record(b"\x00\x00\x00\x01\x01\x02\x01\x01"), 1),
        ("bytes after the headers", record(b"\x00\x00\x00\x01\x01\x00\x00"), 1),
        ("only attributes", record(b"\x00"), 1),
    ],
)
def test_broken_structure_is_invalid(loops: ModuleType, what: str, data: bytes, count: int) -> None:
    with pytest.raises(InvalidRecords):
        check(loops, data, count)
    with pytest.raises(InvalidRecords):
        loops.decode_records(data, 0, len(data), count, 0, 0, 0, False)


def test_any_negative_length_means_null(loops: ModuleType) -> None:
    data = record(b"\x00\x00\x00" + varint(-5) + varint(-9) + b"\x00")
    assert check(loops, data, 1, 0, *OPEN, 0, True)[3] == [(0, 1, 0)]
    assert loops.decode_records(data, 0, len(data), 1, 7, 3, 0, False) == [(7, 3, None, None, ())]


def test_bytes_outside_of_the_range_are_not_looked_at(loops: ModuleType) -> None:
    data = memoryview(b"\xff" * 5 + GOLDEN + b"\xff" * 5)
    end = 5 + len(GOLDEN)
    assert loops.check_records(data, 5, end, 3, 100, *OPEN, 0, False) == (
        999, 1, True, None, 100,
    )  # fmt: skip
    assert loops.find_timestamp(bytearray(data), 5, end, 3, 40, 100, 101, 0) == (999, 41)


@pytest.mark.parametrize(
    ("timestamp", "first_offset", "found"),
    [
        (0, 0, (100, 40)),
        (100, 0, (100, 40)),
        (101, 0, (999, 41)),
        (150, 42, (200, 42)),
        (900, 0, (999, 41)),
        (900, 42, (-1, -1)),
        (1000, 0, (-1, -1)),
    ],
)
def test_case_13_search_finds_the_record_not_the_batch(
    loops: ModuleType, timestamp: int, first_offset: int, found: tuple[int, int]
) -> None:
    end = len(GOLDEN)
    assert loops.find_timestamp(GOLDEN, 0, end, 3, 40, 100, timestamp, first_offset) == found


def test_case_13_largest_timestamp_is_the_middle_record(loops: ModuleType) -> None:
    assert check(loops, GOLDEN, 3)[:2] == (999, 1)


def test_search_refuses_a_broken_record_before_the_hit(loops: ModuleType) -> None:
    with pytest.raises(InvalidRecords):
        loops.find_timestamp(b"\x7e", 0, 1, 1, 0, 0, 0, 0)


def test_decoded_fields_are_copies_in_record_order(loops: ModuleType) -> None:
    data = bytearray(GOLDEN)
    decoded = loops.decode_records(data, 0, len(data), 3, 7, 100, 5000, False)
    data[:] = bytes(len(data))
    assert decoded == [
        (7, 100, None, b"a", ()),
        (8, 999, b"k", b"b", ()),
        (9, 200, b"k", None, (("h", b"1"),)),
    ]


def test_case_59_stamped_records_all_have_the_append_time(loops: ModuleType) -> None:
    batch = build_batch(
        [Record(i, i, None, b"") for i in range(3)],
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        append_timestamp=5000,
    )
    payload = batch[RECORDS_AT:]
    decoded = loops.decode_records(payload, 0, len(payload), 3, 7, 0, 5000, True)
    assert [fields[:2] for fields in decoded] == [(7, 5000), (8, 5000), (9, 5000)]


def test_header_names_that_are_not_text_survive(loops: ModuleType) -> None:
    data = record(b"\x00\x00\x00\x01\x01\x02\x02\xff\x01")
    ((_, _, _, _, headers),) = loops.decode_records(data, 0, len(data), 1, 0, 0, 0, False)
    assert headers == (("\udcff", None),)
    rebuilt = build_batch([Record(0, 0, None, None, headers)])
    assert rebuilt[RECORDS_AT:] == data


def test_timestamp_fault_is_the_loops_own_rule(loops: ModuleType) -> None:
    assert loops.timestamp_fault(5, 5, 5, 0) == 0
    assert loops.timestamp_fault(4, 5, 5, 0) == loops.FAULT_TIMESTAMP_RANGE
    assert loops.timestamp_fault(-1, 5, 5, 0) == 0
    assert loops.timestamp_fault(5, 5, 5, loops.TYPE_FORBIDDEN) == loops.FAULT_TIMESTAMP_TYPE
