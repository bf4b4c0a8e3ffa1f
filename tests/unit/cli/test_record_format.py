"""Records as text, both ways."""

import json

import pytest

from cli.record_format import (
    DEFAULT_FORMAT,
    field_of,
    from_json,
    line_format,
    to_json,
    unescape,
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
    given = from_json(to_json(RECORD).encode())
    assert (given.key, given.value) == (RECORD.key, RECORD.value)
    assert (given.timestamp_ms, given.partition) == (NOON_MS, 3)
    assert given.headers == RECORD.headers


def test_bytes_that_are_no_text_are_base64() -> None:
    assert json.loads(to_json(RECORD))["value"] == {"base64": "/wA="}


def test_an_object_as_value_is_json_text() -> None:
    assert from_json(b'{"value":{"a":[1,2]}}').value == b'{"a":[1,2]}'


def test_times_may_be_text() -> None:
    assert from_json(b'{"value":"","time":"2013-07-04T16:00Z"}').timestamp_ms == NOON_MS


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
        from_json(line)


def test_a_small_number_is_a_time_near_1970_and_no_year() -> None:
    assert from_json(b'{"value":"","timestamp_ms":2000}').timestamp_ms == 2000


def test_a_time_in_seconds_is_refused() -> None:
    with pytest.raises(InvalidTime, match="looks like seconds"):
        from_json(b'{"value":"","timestamp_ms":1372953600}')


def test_line_formats_know_every_field() -> None:
    template = "{topic} {partition:>2} {offset} {timestamp} {key} {headers} {size} {deliveries}"
    shown = line_format(template)(RECORD._replace(delivery_count=2))
    assert shown == f"t  3 42 {NOON_MS} key h=1 n=- 5 2".encode()
    assert line_format(DEFAULT_FORMAT)(RECORD).endswith("  3:42  key  \ufffd\0".encode())


def test_line_formats_reach_into_values_and_headers() -> None:
    record = RECORD._replace(value=b'{"a":{"b":["x",{"c":1.5}]},"n":null}')
    shown = line_format("{value.a.b[0]} {value.a.b} {value.n} {value.no} {header.h} {header.no}")
    assert shown(record) == b'x ["x",{"c":1.5}] - - 1 -'


def test_line_formats_have_escapes() -> None:
    assert line_format(r"{key}\t{offset}\x00\\\n")(RECORD) == b"key\t42\0\\\n"


def test_raw_formats_write_the_bytes_as_they_are_stored() -> None:
    assert line_format("{key}={value}{header.h}{header.n}", is_raw=True)(RECORD) == b"key=\xff\x001"
    assert line_format("{key}", is_raw=True)(RECORD._replace(key=None)) == b""


@pytest.mark.parametrize(
    ("template", "sentence"),
    [
        ("{nope}", "no field {nope}: choose topic"),
        ("{value.}", "no field"),
        ("{", "is broken"),
        ("{0}", "no field"),
        ("%s", "has no field, so that every line would be the same"),
        ("{{}}", "has no field, so"),
        (r"{key}\q", r"no escape \\q"),
        ("{key}\\", "no escape"),
        ("{key:d}", "is broken"),
        ("{offset:>5000000000}", "a width of at most 10000"),
        ("{key:.10001}", "a width of at most 10000"),
        ("{key!x}", "is broken"),
    ],
)
def test_a_format_that_cannot_work_is_refused_before_reading(template: str, sentence: str) -> None:
    with pytest.raises(InvalidUse, match=sentence):
        line_format(template)


def test_escapes_are_bytes() -> None:
    assert unescape(r"a\t\xff\r\0é", "--end") == b"a\t\xff\r\x00" + "é".encode()
    with pytest.raises(InvalidUse, match=r"--end: there is no escape \\x:"):
        unescape(r"\xg1", "--end")


def test_fields_are_found_by_path() -> None:
    assert field_of(b'{"a":{"b":5}}', "a.b") == 5
    for line in (b"{}", b"[]", b'"a"', b"1", b"nope"):
        with pytest.raises(InvalidUse):
            field_of(line, "a.b")
