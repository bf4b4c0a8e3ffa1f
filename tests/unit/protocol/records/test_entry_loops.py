"""Entry headers of any magic and inner messages, in bulk, both ways of running."""

from types import ModuleType
from typing import Any

import pytest

from protocol.errors import CorruptRecords
from protocol.records.builder import build_batch, build_message_set
from protocol.records.checksums import crc32, crc32c
from protocol.records.layout import INT64_MAX, INT64_MIN, Codec
from protocol.records.legacy import encode_message
from protocol.records.record import Record
from tests.unit.protocol.records.flavours import ENTRY_LOOPS

ANY_TIME = INT64_MIN


@pytest.fixture(params=list(ENTRY_LOOPS.values()), ids=list(ENTRY_LOOPS))
def loops(request: pytest.FixtureRequest) -> ModuleType:
    module: ModuleType = request.param
    return module


def batch(base: int, *timestamps: int) -> bytes:
    return build_batch([Record(0, t, b"k", b"v") for t in timestamps], base_offset=base)


MIXED = (
    build_message_set([Record(3, -1, None, b"a")], 0)
    + build_message_set([Record(4, 70, None, b"a"), Record(5, 60, None, b"a")], 1)
    + build_message_set([Record(6, 80, None, b"a"), Record(7, 90, None, b"a")], 1, Codec.GZIP)
    + batch(8, 100, 50)
    + batch(10, 40)
)
"""Last offsets 3, 4, 5, 7, 9, 10 and header timestamps -1, 70, 60, 90, 100, 40."""


def ends(loops: ModuleType) -> list[int]:
    headers, end, stop = loops.check_entries(MIXED, 0, len(MIXED), crc32c, crc32)
    assert (end, stop) == (len(MIXED), loops.STOP_END)
    return [header[0] + header[1] for header in headers]


def test_headers_of_every_magic(loops: ModuleType) -> None:
    headers, _, _ = loops.check_entries(MIXED, 0, len(MIXED), crc32c, crc32)
    assert [header[2:6] for header in headers] == [
        (0, 3, 3, -1),
        (1, 4, 4, 70),
        (1, 5, 5, 60),
        (1, 7, 7, 90),
        (2, 8, 9, 100),
        (2, 10, 10, 40),
    ]
    assert headers[3][6] == Codec.GZIP
    assert headers[4][6:] == (0, -1, 100, -1, -1, -1, 2)


def test_producer_fields_keep_their_signs(loops: ModuleType) -> None:
    data = build_batch(
        [Record(0, 1, None, None)],
        producer_id=2**40 + 7,
        producer_epoch=-5,
        base_sequence=2**31 - 1,
        leader_epoch=-1,
        is_transactional=True,
    )
    ((*_, attributes, epoch, _base, producer, producer_epoch, sequence, count),) = (
        loops.check_entries(data, 0, len(data), crc32c, crc32)[0]
    )
    assert (attributes, epoch, producer, producer_epoch) == (0x10, -1, 2**40 + 7, -5)
    assert (sequence, count) == (2**31 - 1, 1)


@pytest.mark.parametrize("cut", [1, 8, 16, 17, 60])
def test_incomplete_tail_ends_the_walk_quietly(loops: ModuleType, cut: int) -> None:
    headers, end, stop = loops.check_entries(MIXED[:-cut], 0, len(MIXED) - cut, crc32c, crc32)
    assert (len(headers), end, stop) == (5, ends(loops)[4], loops.STOP_INCOMPLETE)


def test_zero_filled_tail_is_impossible_not_incomplete(loops: ModuleType) -> None:
    data = MIXED + bytes(100)
    headers, end, stop = loops.check_entries(data, 0, len(data), None, None)
    assert (len(headers), end, stop) == (6, len(MIXED), loops.STOP_CORRUPT)


@pytest.mark.parametrize(
    ("position", "value"),
    [(8, b"\x80\x00\x00\x00"), (8, b"\x00\x00\x00\x30"), (16, b"\x03"), (16, b"\xff")],
)
def test_impossible_sizes_and_magics_are_corrupt(
    loops: ModuleType, position: int, value: bytes
) -> None:
    data = bytearray(batch(0, 1))
    data[position : position + len(value)] = value
    assert loops.check_entries(data, 0, len(data), None, None)[2] == loops.STOP_CORRUPT


@pytest.mark.parametrize("entry", range(6))
def test_wrong_checksum_is_where_the_sound_log_ends(loops: ModuleType, entry: int) -> None:
    starts = [0, *ends(loops)]
    data = bytearray(MIXED)
    data[starts[entry + 1] - 1] ^= 1
    headers, end, stop = loops.check_entries(data, 0, len(data), crc32c, crc32)
    assert (len(headers), end, stop) == (entry, starts[entry], loops.STOP_CORRUPT)
    assert loops.check_entries(data, 0, len(data), None, None)[2] == loops.STOP_END


def test_whole_entries_stop_at_the_limit(loops: ModuleType) -> None:
    bounds = ends(loops)
    lasts = [3, 4, 5, 7, 9, 10]
    for limit in range(len(MIXED) + 2):
        count = sum(bound <= limit for bound in bounds)
        expected = (bounds[count - 1], lasts[count - 1], count) if count else (0, -1, 0)
        assert loops.whole_entries(MIXED, 0, len(MIXED), limit, False) == expected


def test_first_entry_may_pass_the_limit_if_it_is_whole(loops: ModuleType) -> None:
    first = ends(loops)[0]
    assert loops.whole_entries(MIXED, 0, len(MIXED), 1, True) == (first, 3, 1)
    assert loops.whole_entries(MIXED, 0, first - 1, 1, True) == (0, -1, 0)
    assert loops.whole_entries(MIXED, first, len(MIXED), 0, True)[1:] == (4, 1)


def test_entry_is_found_by_offset(loops: ModuleType) -> None:
    bounds = [0, *ends(loops)]
    lasts = [3, 4, 5, 7, 9, 10]
    for offset in range(12):
        position, size = loops.find_entry(MIXED, 0, len(MIXED), offset, ANY_TIME)
        index = next((i for i, last in enumerate(lasts) if last >= offset), None)
        if index is None:
            assert (position, size) == (len(MIXED), 0)
        else:
            assert (position, position + size) == (bounds[index], bounds[index + 1])


@pytest.mark.parametrize(
    ("offset", "timestamp", "index"),
    [
        (0, -1, 0),
        (0, 0, 1),
        (0, 71, 3),
        (5, 60, 2),
        (6, 60, 3),
        (0, 100, 4),
        (9, 40, 4),
        (10, 40, 5),
    ],
)
def test_entry_is_found_by_time_and_offset(
    loops: ModuleType, offset: int, timestamp: int, index: int
) -> None:
    bounds = [0, *ends(loops)]
    assert loops.find_entry(MIXED, 0, len(MIXED), offset, timestamp)[0] == bounds[index]


def test_search_tells_an_impossible_entry_from_the_end(loops: ModuleType) -> None:
    assert loops.find_entry(MIXED, 0, len(MIXED), 0, 101) == (len(MIXED), 0)
    assert loops.find_entry(MIXED + bytes(50), 0, len(MIXED) + 50, 11, ANY_TIME) == (
        len(MIXED),
        -1,
    )
    assert loops.find_entry(b"", 0, 0, 0, ANY_TIME) == (0, 0)


def test_forged_offset_does_not_overflow(loops: ModuleType) -> None:
    data = bytearray(batch(0, 1, 2))
    for forged in (INT64_MAX, INT64_MIN):
        data[:8] = forged.to_bytes(8, "big", signed=True)
        assert loops.find_entry(data, 0, len(data), forged, ANY_TIME)[1] == len(data)


def check(loops: ModuleType, inner: bytes, magic: int = 1, **changed: Any) -> Any:
    rules = {
        "oldest": INT64_MIN,
        "newest": INT64_MAX,
        "type_rule": 0,
        "keys_required": False,
        "wrapper_timestamp": 0,
        "stamped": False,
    } | changed
    return loops.check_messages(inner, 0, len(inner), magic, *rules.values(), crc32)


INNER = b"".join(
    encode_message(1, i, timestamp, key, b"v")
    for i, (timestamp, key) in enumerate([(5, b"k"), (9, None), (7, b"k")])
)


def test_inner_messages_are_measured(loops: ModuleType) -> None:
    assert check(loops, INNER) == (3, 9, None, 5)
    assert check(loops, b"") == (0, -1, None, INT64_MAX)
    assert check(loops, INNER, stamped=True, wrapper_timestamp=44) == (3, 44, None, 44)
    absolute = b"".join(encode_message(0, 40 + i, -1, None, b"v") for i in range(2))
    assert check(loops, absolute, 0) == (2, -1, None, -1)


def test_inner_faults_name_index_kind_and_timestamp(loops: ModuleType) -> None:
    assert check(loops, INNER, keys_required=True)[2] == [(1, 1, 9)]
    assert check(loops, INNER, oldest=6, newest=8)[2] == [(0, 2, 5), (1, 2, 9)]
    assert check(loops, INNER, type_rule=1)[2] == [(0, 3, 5), (1, 3, 9), (2, 3, 7)]
    assert check(loops, INNER, 0)[2] == [(0, 4, 5), (1, 4, 9), (2, 4, 7)]
    nested = encode_message(1, 0, 5, None, b"v", Codec.GZIP)
    assert check(loops, nested)[2] == [(0, 5, 5)]


@pytest.mark.parametrize(
    "damage",
    [
        INNER[:-1],
        INNER + bytes(20),
        INNER[:12] + b"\x00" + INNER[13:],
        encode_message(1, 0, 5, b"k", b"v")[:-4] + b"\x7f\xff\xff\xff",
    ],
    ids=["cut", "zeros", "crc", "value length"],
)
def test_damaged_inner_messages_are_corrupt(loops: ModuleType, damage: bytes) -> None:
    with pytest.raises(CorruptRecords):
        check(loops, damage)


def resealed(data: bytearray) -> bytes:
    data[12:16] = crc32(memoryview(data)[16:]).to_bytes(4, "big")
    return bytes(data)


@pytest.mark.parametrize("position", [26, 31])
@pytest.mark.parametrize("length", [2, 100, 2**31 - 1, -2])
def test_lengths_that_do_not_fill_the_message_are_corrupt(
    loops: ModuleType, position: int, length: int
) -> None:
    data = bytearray(encode_message(1, 0, 5, b"k", b"v"))
    data[position : position + 4] = length.to_bytes(4, "big", signed=True)
    with pytest.raises(CorruptRecords):
        check(loops, resealed(data))
    with pytest.raises(CorruptRecords):
        loops.message_positions(resealed(data), 0, len(data))


def test_positions_of_messages(loops: ModuleType) -> None:
    size = len(INNER) // 3
    found = loops.message_positions(INNER, 0, len(INNER))
    assert [entry[2:4] for entry in found] == [(0, 5), (1, 9), (2, 7)]
    assert found[0] == (0, len(encode_message(1, 0, 5, b"k", b"v")), 0, 5, 26)
    assert size > 0
    with pytest.raises(CorruptRecords):
        loops.message_positions(batch(0, 1), 0, 69)
