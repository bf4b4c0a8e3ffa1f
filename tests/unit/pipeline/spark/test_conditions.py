"""What conditions in SQL say about offsets, partitions, topics and times: never too much."""

from collections.abc import Sequence

import pytest

from pipeline.options.narrowing import NO_LIMITS, Narrowing
from pipeline.spark.conditions import comparisons, narrowing_of


def no_time(constants: Sequence[str]) -> list[int]:
    raise AssertionError(f"{constants} are no times")


def limits(condition: str) -> Narrowing:
    return narrowing_of(condition, no_time)


@pytest.mark.parametrize(
    ("condition", "wanted"),
    [
        ("offset >= 15", Narrowing(first_offset=15)),
        ("15 <= offset", Narrowing(first_offset=15)),
        ("`Offset` == 15", Narrowing(first_offset=15, end_offset=16)),
        ("offset BETWEEN 3 AND 5 AND partition = 2",
         Narrowing(first_offset=3, end_offset=6, partitions=frozenset({2}))),
        ("((offset < 9) and (value is not null and offset IN (1, 7)))",
         Narrowing(first_offset=1, end_offset=8)),
        ("partition IN (0, 1) AND partition IN (1, 2)", Narrowing(partitions=frozenset({1}))),
        ("topic = 'a' AND key = \"offset >= 5\"", Narrowing(topics=frozenset({"a"}))),
        ("topic IN ('a', \"b'c\")", Narrowing(topics=frozenset({"a", "b'c"}))),
        ("x BETWEEN offset AND 9 AND offset > 3", Narrowing(first_offset=3)),
        (f"offset <= {2**63 - 1}", NO_LIMITS),
    ],
)  # fmt: skip
def test_comparisons_with_constants_are_limits(condition: str, wanted: Narrowing) -> None:
    assert limits(condition) == wanted


@pytest.mark.parametrize(
    "condition",
    [
        "",
        "offset >= 15 OR partition = 1",
        "offset >= 15 AND true OR partition = 1",
        "NOT (offset >= 15)",
        "NOT offset >= 15 AND true",
        "offset NOT IN (1, 2)",
        "offset NOT BETWEEN 3 AND 5",
        "(offset >= 15) = false",
        "offset >= 15 IS NULL",
        "true = offset >= 15",
        "CASE WHEN value IS NULL AND offset >= 15 AND true THEN false ELSE true END",
        "exists(headers, h -> h.key = 'a' AND offset >= 15 AND true)",
        "offset + 5 >= 15",
        "-offset >= 15",
        "15 <= -offset",
        "5 + 15 <= offset",
        "offset >= -5",
        "offset >= 15.5",
        "offset >= 1e3",
        "offset >= '15'",
        "offset <=> 15",
        "offset <> 15",
        "15 != offset",
        "value.offset >= 15",
        "partition > 3",
        "topic = 'a' 'b'",
        "topic = 'a\\'b'",
        "topic = 7",
        "topic >= 'a'",
        "topic = 'a' || 'b'",
        "offset IN (1, partition)",
        "key = 'x' -- ' AND offset >= 15 AND true",
        "key = 'x' /* ' */ AND offset >= 15",
        "offset >=",
        "offset",
        ") AND offset >= 15 AND (",
    ],
)
def test_what_is_not_surely_a_limit_is_none(condition: str) -> None:
    assert limits(condition) == NO_LIMITS


@pytest.mark.parametrize(
    ("condition", "constants"),
    [
        ("timestamp >= '2013-07-04'", [("'2013-07-04'",)]),
        ("timestamp < DATE '2013-07-04'", [("DATE '2013-07-04'",)]),
        ("timestamp BETWEEN TIMESTAMP '2013-07-04' AND timestamp_millis(7)",
         [("TIMESTAMP '2013-07-04'",), ("timestamp_millis(7)",)]),
        ("timestamp >= current_timestamp() - INTERVAL 1 HOUR", []),
        ("timestamp >= timestamp_millis(offset)", []),
    ],
)  # fmt: skip
def test_times_are_constants_that_mean_the_same_at_every_moment(
    condition: str, constants: list[tuple[str, ...]]
) -> None:
    assert [one.constants for one in comparisons(condition)] == constants


@pytest.mark.parametrize(("micros", "low", "end"), [(1500, 1, 2), (-1500, -2, -1)])
def test_a_part_of_a_millisecond_keeps_all_of_it(micros: int, low: int, end: int) -> None:
    """1.5 ms, and 1.5 ms before the epoch."""
    assert narrowing_of("timestamp > '1970'", lambda _: [micros]) == Narrowing(oldest_ms=low)
    assert narrowing_of("timestamp <= '1970'", lambda _: [micros]) == Narrowing(newest_ms=end)


def test_a_text_that_is_no_time_is_left_to_the_query() -> None:
    condition = "timestamp >= 'soon' AND offset > 2"
    assert narrowing_of(condition, lambda _: []) == Narrowing(first_offset=2)


def test_the_session_is_asked_once_for_all_times() -> None:
    """Each question took as long as a small query."""
    asked: list[list[str]] = []

    def times(constants: Sequence[str]) -> list[int]:
        asked.append(list(constants))
        return [int(one.strip("'")) * 1000 for one in constants]

    condition = "timestamp >= '1000' AND partition = 1 AND timestamp < '2000'"
    found = narrowing_of(condition, times)
    assert (found.oldest_ms, found.newest_ms) == (1000, 2001)
    assert asked == [["'1000'", "'2000'"]]
