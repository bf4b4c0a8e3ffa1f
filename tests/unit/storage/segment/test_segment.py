"""One segment: what an append puts into its indexes, cases 6 to 22, and truncation."""

import pytest

from storage.errors import CorruptLog
from storage.segment.segment import Segment
from tests.support.logs import (
    DIRECTORY,
    add,
    add_at_end,
    batch,
    disk,
    messages,
    new_segment,
    offset_entries,
    time_entries,
)


def test_case_06_first_batch_never_gets_an_index_entry() -> None:
    segment = new_segment()
    add_at_end(segment, 100, interval=0)
    assert offset_entries(segment) == []
    assert time_entries(segment) == []


def test_case_07_interval_counts_bytes_since_the_last_entry() -> None:
    segment = new_segment()
    for index in range(17):
        add_at_end(segment, index, size=1000, interval=4096)
    assert offset_entries(segment) == [(5, 5000), (10, 10000), (15, 15000)]


def test_case_08_interval_must_be_exceeded_not_reached() -> None:
    segment = new_segment()
    for index in range(7):
        add_at_end(segment, index, size=1000, interval=4000)
    assert offset_entries(segment) == [(5, 5000)]


def test_case_09_interval_zero_indexes_all_but_the_first() -> None:
    segment = new_segment()
    for index in range(10):
        add_at_end(segment, 10 * index, interval=0)
    assert len(offset_entries(segment)) == 9
    assert len(time_entries(segment)) == 9


def test_case_10_time_entries_hold_running_maxima() -> None:
    segment = new_segment()
    for timestamp in (50, 40, 60, 60, 55):
        add_at_end(segment, timestamp)
    assert time_entries(segment) == [(50, 0), (60, 2)]
    segment.seal(now_ms=0)
    assert time_entries(segment) == [(50, 0), (60, 2)]


def test_case_13_time_entry_names_the_last_offset_of_the_batch() -> None:
    segment = new_segment()
    add_at_end(segment, 100, 999, 200)
    segment.seal(now_ms=0)
    assert time_entries(segment) == [(999, 2)]


def test_case_14_without_timestamps_the_time_index_stays_empty() -> None:
    files = disk()
    segment = new_segment(files=files)
    add(segment, messages(-1, -1, -1, magic=0), now_ms=77)
    segment.seal(now_ms=99)
    assert files.size(segment.time_index.path) == 0
    # Differs from Kafka, which answers with the file's modification time.
    assert segment.largest_timestamp == 77


def test_case_15_first_batch_without_timestamp_leaves_the_maximum_to_later_ones() -> None:
    segment = new_segment()
    add_at_end(segment, -1)
    add_at_end(segment, 500)
    assert segment.max_timestamp == 500
    assert segment.first_timestamp == -1


def test_case_16_closing_adds_no_second_entry_for_the_same_maximum() -> None:
    segment = new_segment()
    add_at_end(segment, 10)
    add_at_end(segment, 20)
    assert time_entries(segment) == [(20, 1)]
    segment.seal(now_ms=0)
    segment.seal(now_ms=0)
    assert time_entries(segment) == [(20, 1)]


def test_case_17_index_files_hold_exactly_their_entries() -> None:
    files = disk()
    segment = new_segment(files=files)
    for index in range(5):
        add_at_end(segment, index)
    segment.seal(now_ms=0)
    assert files.size(segment.offset_index.path) == 8 * 4
    assert files.size(segment.time_index.path) == 12 * 4


def test_case_21_batches_of_one_append_are_indexed_one_by_one() -> None:
    segment = new_segment()
    for index in range(2):
        add_at_end(segment, index, size=100, interval=150)
    three = b"".join(batch(i, size=100, base_offset=i) for i in range(2, 5))
    add(segment, three, interval=150)
    assert offset_entries(segment) == [(2, 200), (4, 400)]


def test_case_22_offsets_fit_in_31_bits_above_the_base() -> None:
    segment = new_segment(7)
    assert segment.fits(7 + 2**31 - 1)
    assert not segment.fits(7 + 2**31)


def test_entry_is_found_by_any_of_its_offsets() -> None:
    segment = new_segment()
    for _ in range(20):
        add_at_end(segment, 1, 2, 3, interval=100)
    for offset in range(60):
        head = segment.find_entry(offset)
        assert head is not None
        assert head.base_offset == offset // 3 * 3
    assert segment.find_entry(60) is None


def test_gap_in_offsets_is_answered_with_the_next_entry() -> None:
    segment = new_segment()
    add(segment, batch(1, base_offset=0))
    add(segment, batch(2, base_offset=50))
    head = segment.find_entry(10)
    assert head is not None
    assert head.base_offset == 50


def test_first_timestamp_is_read_again_after_opening() -> None:
    files = disk()
    segment = new_segment(files=files)
    assert segment.first_timestamp == -1
    add_at_end(segment, 30, 40)
    again = Segment.open(files, DIRECTORY, 0, now_ms=5)
    assert again.first_timestamp == 40


def test_first_timestamp_is_not_that_of_a_batch_appended_after_opening() -> None:
    files = disk()
    add_at_end(new_segment(files=files), 30, 40)
    again = Segment.open(files, DIRECTORY, 0, now_ms=5)
    again.next_offset = 2
    add_at_end(again, 70)
    assert again.first_timestamp == 40


def test_facts_survive_in_another_object() -> None:
    files = disk()
    segment = new_segment(files=files)
    for timestamp in (5, 9, 7):
        add_at_end(segment, timestamp)
    facts = segment.seal(now_ms=3)
    again = Segment.open(files, DIRECTORY, 0, now_ms=5)
    assert again.matches(facts)
    again.adopt(facts)
    assert again.find_index_damage() is None
    assert again.next_offset == 3
    assert (again.max_timestamp, again.max_timestamp_offset) == (9, 1)
    assert again.records == 3
    assert again.first_timestamp == 5


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_every_damaged_byte_of_an_index_is_noticed(suffix: str) -> None:
    files = disk()
    segment = new_segment(files=files)
    for timestamp in (5, 9, 7, 11):
        add_at_end(segment, timestamp)
    facts = segment.seal(now_ms=3)
    path = segment.path(suffix)
    good = files.read_all(path)
    for position in range(len(good)):
        files.damage(path, position, bytes([good[position] ^ 0x40]))
        again = Segment.open(files, DIRECTORY, 0, now_ms=5)
        again.adopt(facts)
        assert "checksum" in str(again.find_index_damage())
        files.damage(path, position, good[position : position + 1])


def test_deleted_files_are_renamed() -> None:
    files = disk()
    segment = new_segment(files=files)
    add_at_end(segment, 5)
    segment.seal(now_ms=0)
    assert segment.mark_deleted() == [
        f"{DIRECTORY}/00000000000000000000{suffix}.deleted"
        for suffix in (".log", ".index", ".timeindex")
    ]


def test_creation_removes_files_of_the_same_base() -> None:
    files = disk()
    segment = new_segment(3, files=files)
    add_at_end(segment, 5)
    segment.seal(now_ms=0)
    assert new_segment(3, files=files).is_empty
    assert files.list_directory(DIRECTORY) == ["00000000000000000003.log"]


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (bytes(61), "found 0"),
        (b"\0" * 8 + b"\0\0\0\x50" + b"\0" * 4 + b"\3" + bytes(60), "found 3"),
        (bytes(10), "found 10"),
        (batch(1)[:-1], "found"),
    ],
)
def test_walk_names_where_the_log_is_damaged(data: bytes, found: str) -> None:
    segment = new_segment()
    add_at_end(segment, 5)
    position = segment.size
    segment.log.append(data)
    with pytest.raises(CorruptLog, match=found) as caught:
        segment.find_entry(10)
    assert caught.value.position == position
