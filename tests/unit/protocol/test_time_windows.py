"""The names of time windows: what is one, what is not, and the way back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.time_windows import (
    NO_END_MS,
    MalformedWindow,
    TimeWindow,
    parse_window,
    window_name,
)

TEN_MS = 1_793_527_200_000
LAST_MS = 253_402_300_799_999
"""The last millisecond of the calendar."""


@pytest.mark.parametrize(
    ("name", "window"),
    [
        (
            "flights.__t__20261101T100000Z__20261101T110000Z",
            TimeWindow("flights", TEN_MS, TEN_MS + 3_600_000),
        ),
        ("flights.__t__20261101T100000.250Z__", TimeWindow("flights", TEN_MS + 250, NO_END_MS)),
        (f"f.__t__{TEN_MS}__20261101T100001Z", TimeWindow("f", TEN_MS, TEN_MS + 1000)),
        ("f.__t__0__1", TimeWindow("f", 0, 1)),
        ("a.__t__b.__t__0__1", TimeWindow("a.__t__b", 0, 1)),
        ("flights", None),
        ("flights__t__0__1", None),
    ],
)
def test_names(name: str, window: TimeWindow | None) -> None:
    assert parse_window(name) == window


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        (".__t__0__1", "write TOPIC"),
        ("f.__t__0", "write TOPIC"),
        ("f.__t____1", "FROM is ''"),
        ("f.__t__20261301T000000Z__", "FROM is '20261301T000000Z', which is no time"),
        ("f.__t__0__20261101T100000", "TO is '20261101T100000', which is no time"),
        ("f.__t__19691231T235959Z__", "before 1970"),
        ("f.__t__1793527200__", "FROM is 1793527200, which is not in milliseconds"),
        ("f.__t__0__1793527200000000", "TO is 1793527200000000, which is not in milliseconds"),
        ("f.__t__5__5", "FROM must be earlier"),
        ("f.__t__5__4", "FROM must be earlier"),
        ("f.__t__-5__4", "FROM is '-5', which is no time"),
        ("f.__t__0__1__2", "TO is '1__2', which is no time"),
    ],
)
def test_what_has_the_mark_and_is_no_window(name: str, complaint: str) -> None:
    with pytest.raises(MalformedWindow, match=complaint):
        parse_window(name)


@given(
    times=st.lists(st.integers(0, LAST_MS), min_size=2, max_size=2, unique=True).map(sorted),
    is_open=st.booleans(),
)
def test_a_name_leads_back_to_its_times(times: list[int], is_open: bool) -> None:
    start_ms, end_ms = times
    name = window_name("t", start_ms, None if is_open else end_ms)
    assert parse_window(name) == TimeWindow("t", start_ms, NO_END_MS if is_open else end_ms)
    assert len(name) <= len("t") + 48
