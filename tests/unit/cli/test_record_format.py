"""Records as text, both ways."""

import json

import pytest

from cli.record_format import (
    DEFAULT_FORMAT,
    check_format,
    field_of,
    format_line,
    from_json,
    to_json,
)
from client.errors import InvalidTime, InvalidUse
from client.types import ConsumerRecord
from protocol.records.layout import TimestampType

NOON_MS = 1_372_953_600_000
RECORD = ConsumerRecord(
    "t",
    3,
    42,
    NOON_MS,
    TimestampType.CREATE_TIME,
    b"key",
    b"\xff\x00",
    (("h", b"1"), ("n", None)),
    0,
)


def test_a_record_reads_back_from_its_json() -> None:
    given = from_json(to_json(RECORD).encode(), now_ms=0)
    assert (given.key, given.value) == (RECORD.key, RECORD.value)
    assert (given.timestamp_ms, given.partition) == (NOON_MS, 3)
    assert given.headers == RECORD.headers


def test_bytes_that_are_no_text_are_base64() -> None:
    assert json.loads(to_json(RECORD))["value"] == {"base64": "/wA="}


def test_an_object_as_value_is_json_text() -> None:
    assert from_json(b'{"value":{"a":[1,2]}}', now_ms=0).value == b'{"a":[1,2]}'


def test_times_may_be_text() -> None:
    assert from_json(b'{"value":"","time":"2013-07-04T16:00Z"}', 0).timestamp_ms == NOON_MS


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (b"x", "not JSON"),
        (b"[1]", "not a record"),
        (b'{"a":1}', "not a record"),
        (b'{"value":"","partition":"x"}', "partition 'x'"),
        (b'{"value":"","headers":[1]}', "headers are not pairs"),
        (b'{"value":{"base64":"*"}}', "base64"),
        (b'{"value":"","timestamp_ms":true}', "True is no time"),
    ],
)
def test_what_is_no_record_is_refused(line: bytes, sentence: str) -> None:
    with pytest.raises(InvalidUse, match=sentence):
        from_json(line, now_ms=0)


def test_a_time_in_seconds_is_refused() -> None:
    with pytest.raises(InvalidTime, match="looks like seconds"):
        from_json(b'{"value":"","timestamp_ms":1372953600}', now_ms=0)


def test_line_formats_know_every_field() -> None:
    template = "{topic} {partition} {offset} {timestamp} {key} {headers}"
    check_format(template)
    assert format_line(RECORD, template) == f"t 3 42 {NOON_MS} key h=1 n=-"
    check_format(DEFAULT_FORMAT)


@pytest.mark.parametrize("template", ["{nope}", "{", "{0}"])
def test_a_format_that_cannot_work_is_refused_before_reading(template: str) -> None:
    with pytest.raises(InvalidUse):
        check_format(template)


def test_fields_are_found_by_path() -> None:
    assert field_of(b'{"a":{"b":5}}', "a.b") == 5
    for line in (b"{}", b"[]", b'"a"', b"1", b"nope"):
        with pytest.raises(InvalidUse):
            field_of(line, "a.b")
