"""The grammar of times: what is understood, and how mistakes are named."""

import time
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from client.errors import InvalidTime, InvalidType
from client.times import (
    datetime_of,
    find_unit_mistake,
    format_duration,
    format_time,
    parse_time,
    to_ms,
)

NEW_YORK = ZoneInfo("America/New_York")
NOW_MS = 1_372_953_600_000  # 2013-07-04T16:00:00Z, noon in New York
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def parse(text: str) -> int:
    return parse_time(text, now_ms=NOW_MS, zone=NEW_YORK)


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("2013-07-04T12:00", NOW_MS),
        ("2013-07-04 12:00", NOW_MS),
        ("2013-07-04T12:00:00.250", NOW_MS + 250),
        ("2013-07-04T16:00Z", NOW_MS),
        ("2013-07-04T18:00+02:00", NOW_MS),
        ("2013-07-05T01:00[Asia/Tokyo]", NOW_MS),
        ("2013-07-05T01:00 Asia/Tokyo", NOW_MS),
        ("2013-07-04T16:00 UTC", NOW_MS),
        ("2013-07-04", NOW_MS - 12 * HOUR_MS),
        ("1372953600000", NOW_MS),
        ("1372953600s", NOW_MS),
        ("1372953600000ms", NOW_MS),
        ("1372953600000999us", NOW_MS),
        ("1372953600000999999ns", NOW_MS),
        ("0", 0),
        ("100", 100),
        ("20130704ms", 20_130_704),
        ("now", NOW_MS),
        ("  NOW ", NOW_MS),
        ("-15m", NOW_MS - 15 * 60_000),
        ("-1h30m", NOW_MS - 90 * 60_000),
        ("-250ms", NOW_MS - 250),
        ("+2d", NOW_MS + 2 * DAY_MS),
        ("-1w", NOW_MS - 7 * DAY_MS),
        ("today", NOW_MS - 12 * HOUR_MS),
        ("yesterday", NOW_MS - 36 * HOUR_MS),
        ("tomorrow", NOW_MS + 12 * HOUR_MS),
        ("today+9h", NOW_MS - 3 * HOUR_MS),
        ("now-1h", NOW_MS - HOUR_MS),
        ("yesterday+1h-30m", NOW_MS - 36 * HOUR_MS + HOUR_MS // 2),
    ],
)
def test_a_time_is_understood(text: str, expected_ms: int) -> None:
    assert parse(text) == expected_ms


@pytest.mark.parametrize(
    ("text", "unit", "right_value"),
    [
        ("1372953600", "seconds", "1372953600000"),
        ("1372953600.5", "seconds", "1372953600500"),
        ("1372953600000000", "microseconds", "1372953600000"),
        ("1372953600000000000", "nanoseconds", "1372953600000"),
    ],
)
def test_a_wrong_unit_is_named_with_the_right_value(text: str, unit: str, right_value: str) -> None:
    with pytest.raises(InvalidTime, match=f"looks like {unit}") as caught:
        parse(text)
    assert f"write {right_value}" in str(caught.value)
    assert "2013-07-04T16:00:00" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "empty"),
        ("noon", "'noon' is not a time"),
        ("2013-13-01", "is not a time"),
        ("2013-07-04T12:00[Moon/Crater]", "'Moon/Crater' is unknown"),
        ("hello world", "is not a time"),
        ("2013", "write 2013-01-01 or 2013ms"),
        ("20130704", "write 2013-07-04 or 20130704ms"),
        ("-1000", "lacks a unit"),
        ("1960-01-01", "before 1970"),
        ("-90w-4000w", "before 1970"),
        ("1" + "0" * 25, "beyond every calendar"),
        ("-15x", "is not a time"),
    ],
)
def test_what_is_no_time_is_refused_with_a_cure(text: str, sentence: str) -> None:
    with pytest.raises(InvalidTime, match=sentence.replace("'", ".")):
        parse(text)


def test_a_local_time_that_happens_twice_is_refused_with_both_instants() -> None:
    with pytest.raises(InvalidTime, match="happens twice") as caught:
        parse("2013-11-03T01:30")
    assert "2013-11-03T01:30:00-0400 or 2013-11-03T01:30:00-0500" in str(caught.value)


def test_a_local_time_that_the_clock_skips_is_refused() -> None:
    with pytest.raises(InvalidTime, match="never happens"):
        parse("2013-03-10T02:30")


def test_yesterday_is_a_calendar_day_also_over_a_clock_change() -> None:
    after_change = parse("2013-03-11T00:00")
    yesterday = parse_time("yesterday", now_ms=after_change, zone=NEW_YORK)
    assert after_change - yesterday == 23 * HOUR_MS


def test_a_number_near_zero_is_no_unit_mistake() -> None:
    assert find_unit_mistake(99_999_999) is None
    assert find_unit_mistake(NOW_MS) is None
    assert find_unit_mistake(NOW_MS // 1000) is not None


@pytest.mark.parametrize(
    ("timestamp_ms", "expected"),
    [
        (NOW_MS, "2013-07-04T12:00:00.000-04:00"),
        (NOW_MS + 7, "2013-07-04T12:00:00.007-04:00"),
        (-1, "-"),
        (2**62, f"{2**62} ms"),
    ],
)
def test_times_are_written_with_milliseconds_and_offset(timestamp_ms: int, expected: str) -> None:
    assert format_time(timestamp_ms, NEW_YORK) == expected


def test_universal_time_is_written_with_z() -> None:
    assert format_time(0, UTC) == "1970-01-01T00:00:00.000Z"
    assert format_time(0, timezone(timedelta(hours=1))) == "1970-01-01T01:00:00.000+01:00"


def test_what_is_written_reads_back() -> None:
    assert parse(format_time(NOW_MS + 123, NEW_YORK)) == NOW_MS + 123


@pytest.mark.parametrize(
    ("duration_ms", "expected"),
    [(0, "0ms"), (999, "999ms"), (61_000, "1m 1s"), (3 * DAY_MS + 5000, "3d 5s"), (-2000, "-2s")],
)
def test_durations_show_their_two_largest_units(duration_ms: int, expected: str) -> None:
    assert format_duration(duration_ms) == expected


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Tokyo", "Pacific/Kiritimati"])
def test_the_calendars_last_day_is_a_time_in_every_local_zone(
    zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the usual way to say that there is no end."""
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        last_day_ms = parse_time("9999-12-31", now_ms=NOW_MS)
        assert format_time(last_day_ms).startswith("9999-12-31T00:00:00.000")
        assert to_ms(last_day_ms, now_ms=NOW_MS) == last_day_ms
        with pytest.raises(InvalidTime, match="before 1970"):
            parse_time("0001-01-01", now_ms=NOW_MS)
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    ("zone", "is_known"),
    [("Nope/Zone", False), ("Berlin", False), ("CET-1CEST", True), ("<+03>-3", True), ("", True)],
)
def test_local_times_are_refused_in_a_zone_that_the_system_would_take_for_utc(
    zone: str, is_known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", zone)
    with nullcontext() if is_known else pytest.raises(InvalidTime, match=f"TZ={zone} names no"):
        parse_time("2013-07-04", now_ms=NOW_MS)
    assert parse_time("2013-07-04T00:00Z", now_ms=NOW_MS)


@pytest.mark.parametrize(
    ("text", "cure"), [("-1M", "write -1m"), ("today+2M", r"write \+2m"), ("-1h30M", "write -30m")]
)
def test_a_capital_m_is_refused_because_it_may_mean_months(text: str, cure: str) -> None:
    with pytest.raises(InvalidTime, match=f"minutes or months: for minutes {cure}"):
        parse(text)
    assert parse("-1H") == NOW_MS - HOUR_MS


@pytest.mark.parametrize("text", ["+99999999999999w", "9" * 5000, "9" * 19 + "s"])
def test_no_text_is_a_number_that_the_wire_cannot_hold(text: str) -> None:
    with pytest.raises(InvalidTime, match=r"beyond the largest timestamp|is no time"):
        parse(text)


def test_an_aware_datetime_is_a_time_and_comes_back() -> None:
    moment = datetime(2013, 7, 4, 12, 0, 0, 250_999, tzinfo=NEW_YORK)
    assert to_ms(moment, now_ms=0) == NOW_MS + 250
    assert datetime_of(NOW_MS + 250) == moment.replace(microsecond=250_000)
    assert datetime_of(-1) is None
    assert datetime_of(-2) == datetime(1969, 12, 31, 23, 59, 59, 998_000, tzinfo=UTC)
    assert datetime_of(2**62) is None


@pytest.mark.parametrize(
    ("when", "kind", "sentence"),
    [
        (datetime(2013, 7, 4), InvalidTime, "2013-07-04T00:00:00 has no zone"),
        (datetime(1960, 1, 1, tzinfo=UTC), InvalidTime, "before 1970"),
        (1372953600, InvalidTime, "looks like seconds"),
        (-5, InvalidTime, "before 1970"),
        (10**25, InvalidTime, "beyond the largest timestamp"),
        (1372953600.5, InvalidType, "whole milliseconds"),
        (True, InvalidType, "True is not a time"),
        (None, InvalidType, "None is not a time"),
    ],
)
def test_what_names_no_instant_is_refused(when: Any, kind: type[Exception], sentence: str) -> None:
    with pytest.raises(kind, match=sentence):
        to_ms(when, now_ms=NOW_MS)
