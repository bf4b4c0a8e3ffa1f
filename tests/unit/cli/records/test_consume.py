"""Where reading begins, and which records a window shows."""

import click
import pytest

from cli.records.consume import StartType
from cli.records.reading import Reading, Start
from client.types import ConsumerRecord
from console.data.conditions import parse_condition
from protocol.records.layout import TimestampType

NOON_MS = 1_372_953_600_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", Start(word="earliest")),
        ("latest", Start(word="latest")),
        ("0", Start(offset=0)),
        ("99999999", Start(offset=99_999_999)),
        ("offset:1372953600", Start(offset=1_372_953_600)),
        ("1372953600000", Start(time_ms=NOON_MS)),
        ("2013-07-04T16:00Z", Start(time_ms=NOON_MS)),
    ],
)
def test_a_start_is_a_word_an_offset_or_a_time(text: str, expected: Start) -> None:
    assert StartType().convert(text, None, None) == expected


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("1372953600", "looks like seconds.*for an offset write offset:1372953600"),
        ("newest", "did you mean latest"),
        ("Beginning", "did you mean earliest"),
        ("soon", "is not a time.*or write earliest or latest; for an offset write offset:N"),
    ],
)
def test_what_is_neither_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(click.BadParameter, match=sentence):
        StartType().convert(text, None, None)


@pytest.mark.parametrize(
    ("timestamp_ms", "start_ms", "until_ms", "is_shown"),
    [
        (5, None, None, True),
        (5, 9, None, True),
        (5, 5, 6, True),
        (6, 5, 6, False),
        (4, 5, 6, False),
        (0, None, 1, True),
    ],
)
def test_only_until_closes_a_window(
    timestamp_ms: int, start_ms: int | None, until_ms: int | None, is_shown: bool
) -> None:
    reading = Reading(
        start=Start(time_ms=start_ms),
        until_ms=until_ms,
        exit_at_end=False,
        limit=None,
        render=lambda record: b"",
    )
    record = ConsumerRecord("t", 0, 0, timestamp_ms, TimestampType.CREATE_TIME, None, None, (), 0)
    assert reading.is_shown(record) is is_shown


def test_only_records_that_fulfil_the_filter_are_shown() -> None:
    reading = Reading(
        start=Start(time_ms=5),
        until_ms=9,
        exit_at_end=False,
        limit=None,
        render=lambda record: b"",
        condition=parse_condition("value.a > 1 and not key = x", now_ms=0),
    )
    record = ConsumerRecord("t", 0, 0, 7, TimestampType.CREATE_TIME, b"k", b'{"a":2}', (), 0)
    assert reading.is_shown(record)
    assert not reading.is_shown(record._replace(value=b'{"a":1}'))
    assert not reading.is_shown(record._replace(key=b"x"))
    assert not reading.is_shown(record._replace(timestamp_ms=9))
