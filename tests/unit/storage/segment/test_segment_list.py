"""The order of segments, and prefix maxima against brute force."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.segment.segment import Segment
from storage.segment.segment_list import SegmentList
from tests.support.logs import add_at_end, disk, new_segment

FILES = disk()


def segments(*maxima: int) -> list[Segment]:
    """Segments of ten offsets each that know nothing but their largest timestamp."""
    made = []
    for index, maximum in enumerate(maxima):
        segment = new_segment(10 * index, files=FILES)
        segment.max_timestamp = maximum
        made.append(segment)
    return made


def test_floor_is_the_last_base_not_above() -> None:
    listed = SegmentList(segments(1, 2, 3))
    assert [listed.index_of(offset) for offset in (0, 9, 10, 29, 99)] == [0, 0, 1, 2, 2]
    assert listed.floor(15).base_offset == 10
    assert SegmentList(segments(1, 2)[1:]).index_of(3) == 0


def test_neighbours() -> None:
    listed = SegmentList(segments(1, 2, 3))
    assert listed.after(listed[0]) is listed[1]
    assert listed.after(listed.active) is None
    assert (listed.first, listed.active, len(listed)) == (listed[0], listed[2], 3)


@settings(max_examples=200, deadline=None)
@given(
    maxima=st.lists(st.integers(-1, 8), min_size=1, max_size=8),
    timestamp=st.integers(0, 9),
    start=st.integers(0, 7),
)
def test_first_reaching_equals_brute_force(maxima: list[int], timestamp: int, start: int) -> None:
    listed = SegmentList(segments(*maxima))
    start = min(start, len(maxima) - 1)
    wanted = (i for i, maximum in enumerate(maxima) if i >= start and maximum >= timestamp)
    assert listed.first_reaching(timestamp, start) == next(wanted, None)
    assert listed.max_timestamp == max(maxima)


def test_active_maximum_moves_without_notice() -> None:
    listed = SegmentList(segments(5, -1))
    add_at_end(listed.active, 9)
    assert listed.max_timestamp == 9
    assert listed.first_reaching(7) == 1
    (added,) = segments(0)[:1]
    added.base_offset = 20
    listed.add(added)
    assert listed.first_reaching(7) == 1
    assert listed.first_reaching(10) is None


def test_removal_keeps_the_maxima_right() -> None:
    listed = SegmentList(segments(9, 3, 5, 1))
    assert [s.base_offset for s in listed.remove_first(1)] == [0]
    assert listed.first_reaching(4) == 1
    assert [s.base_offset for s in listed.remove_first(2)] == [10, 20]
    assert (len(listed), listed.max_timestamp) == (1, 1)


def test_replacement_of_closed_segments() -> None:
    listed = SegmentList(segments(9, 3, 5, 1))
    (merged,) = segments(7)
    listed.replace_closed([listed[0], listed[1]], [merged])
    assert [s.base_offset for s in listed] == [0, 20, 30]
    assert listed.first_reaching(8) is None
    with pytest.raises(AssertionError):
        listed.replace_closed([listed.active], [])


def test_misuse_is_a_bug() -> None:
    with pytest.raises(AssertionError):
        SegmentList([])
    listed = SegmentList(segments(1, 2))
    for misuse in (
        lambda: listed.remove_first(2),
        lambda: listed.add(listed.first),
    ):
        with pytest.raises(AssertionError):
            misuse()
