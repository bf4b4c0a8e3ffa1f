"""The compiled and the plain way to read the numbers of a line give the same answer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.segment import facts
from storage.segment.facts import NUMBER, numbers_in, step_through

FORM = b"kind first=# second=# third=#"


def by_pattern(line: bytes, form: bytes) -> list[int] | None:
    found = facts._pattern(form).fullmatch(line)
    return None if found is None else list(map(int, found.groups()))


@given(st.lists(st.integers(-(2**130), 2**130), min_size=3, max_size=3))
def test_numbers_of_any_size_are_read(numbers: list[int]) -> None:
    line = b"kind first=%d second=%d third=%d" % tuple(numbers)
    assert numbers_in(line, FORM) == numbers
    assert step_through(line, FORM) == by_pattern(line, FORM) == numbers


@given(
    st.lists(st.sampled_from([b"-", b"0", b"17", b"=", b" ", b"kind", b"first=", b"a"])),
    st.lists(st.sampled_from([NUMBER, b"=", b" ", b"kind", b"first=", b"a"]), min_size=1),
)
def test_both_ways_agree_on_any_line(words: list[bytes], form: list[bytes]) -> None:
    line = b"".join(words)
    # Two numbers side by side have no end that a form could name.
    joined = b"".join(form).replace(NUMBER * 2, NUMBER + b"," + NUMBER)
    assert step_through(line, joined) == by_pattern(line, joined)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"kind first=1 second=2 third=",
        b"kind first=1 second=2 third=-",
        b"kind first=1 second=2 third=3 ",
        b"kind first=1 second=2 third=+3",
        b"kind first=1 second=2 third=1_0",
        b"kind first=1 second=2",
        b"kind first= 1 second=2 third=3",
        b"mind first=1 second=2 third=3",
    ],
)
def test_another_text_is_no_line_of_the_form(line: bytes) -> None:
    assert step_through(line, FORM) is None
    assert by_pattern(line, FORM) is None
