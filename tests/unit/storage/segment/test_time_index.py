"""`.timeindex`: running maxima, the closing slot, and time-semantics cases 1 to 5 and 19."""

import pytest

from storage.segment.time_index import TimeIndex
from tests.support.logs import DIRECTORY, disk

PATH = f"{DIRECTORY}/00000000000000000045.timeindex"


def index(*entries: tuple[int, int], base: int = 45) -> TimeIndex:
    made = TimeIndex(disk(), PATH, base)
    for timestamp, offset in entries:
        assert made.maybe_append(timestamp, offset)
    return made


def test_case_01_new_segment_answers_no_timestamp_and_the_base() -> None:
    assert index().floor(10**15) == (-1, 45)
    assert index().last() == (-1, 45)


@pytest.mark.parametrize("written", [False, True])
def test_case_02_floor_is_the_last_entry_not_above(written: bool) -> None:
    made = index(*((10 * i, 45 + 10 * i) for i in range(10)))
    if written:
        made.write_out()
    # Entry 0 has timestamp 0, which a lookup of 9 finds; the reference counts from 1.
    assert made.floor(-1) == (-1, 45)
    assert made.floor(9) == (0, 45)
    assert made.floor(25) == (20, 65)
    assert made.floor(30) == (30, 75)
    assert index(*((10 * i, 45 + 10 * i) for i in range(1, 10))).floor(9) == (-1, 45)


def test_case_03_one_slot_is_kept_for_the_closing_entry() -> None:
    made = index(*((10 * i, 45 + i) for i in range(1, 29)))
    assert not made.is_full(30 * 12)
    made.maybe_append(290, 80)
    assert made.is_full(30 * 12)
    assert made.maybe_append(300, 81), "the closing entry still has its slot"
    assert made.count == 30
    with pytest.raises(AssertionError):
        made.maybe_append(310, 80)


def test_case_04_same_timestamp_is_ignored() -> None:
    made = index((10, 50))
    assert not made.maybe_append(10, 50)
    assert not made.maybe_append(10, 51)
    assert made.count == 1


@pytest.mark.parametrize("entry", [(11, 49), (9, 51)])
def test_case_05_going_back_in_offset_or_time_is_an_error(entry: tuple[int, int]) -> None:
    with pytest.raises(AssertionError):
        index((10, 50)).maybe_append(*entry)


def test_no_timestamp_is_never_stored() -> None:
    made = index()
    assert not made.maybe_append(-1, 45)
    assert made.count == 0


def test_golden_bytes() -> None:
    files = disk()
    made = TimeIndex(files, PATH, 40)
    made.maybe_append(999, 41)
    made.maybe_append(5000, 47)
    made.write_out()
    assert files.read_all(PATH).hex() == "00000000000003e700000001000000000000138800000007"


def test_entries_after_a_write_still_compare_with_the_last() -> None:
    made = index((10, 50))
    made.write_out()
    assert not made.maybe_append(10, 55)
    assert made.maybe_append(11, 55)


def test_order_is_checked_in_the_file() -> None:
    files = disk()
    made = TimeIndex(files, PATH, 40)
    made.maybe_append(999, 41)
    made.write_out()
    assert TimeIndex(files, PATH, 40).find_disorder() is None
    files.open(PATH).append(bytes(12))
    assert TimeIndex(files, PATH, 40).find_disorder() is not None
