"""Lines by a template: what consume writes by a format, produce reads by the same."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.record_format import line_format
from cli.records.template import PASSED_OVER, line_reader
from client.errors import InvalidTime, InvalidUse
from client.types import ConsumerRecord
from protocol.records.layout import TimestampType

NOON_MS = 1_372_953_600_000


def record(**given: Any) -> ConsumerRecord:
    fields: dict[str, Any] = {
        "timestamp_ms": NOON_MS,
        "key": b"k",
        "value": b"v",
        "headers": (),
    } | given
    return ConsumerRecord(
        "t",
        3,
        42,
        fields["timestamp_ms"],
        TimestampType.CREATE_TIME,
        fields["key"],
        fields["value"],
        fields["headers"],
        0,
    )


def test_each_part_of_a_line_goes_where_the_template_says() -> None:
    read = line_reader("[{time}] {partition}:{offset} {key}={value};{header.who}.")
    found = read(b"[2013-07-04T16:00:00.000Z] 3:42 N1=up=;tower.")
    assert (found.timestamp_ms, found.partition) == (NOON_MS, 3)
    assert (found.key, found.value) == (b"N1", b"up=")
    assert found.headers == (("who", b"tower"),)


texts = st.binary(max_size=20).filter(lambda text: b"\t" not in text)


@given(
    key=texts,
    value=st.binary(max_size=50),
    header=texts,
    timestamp_ms=st.integers(0, 253_402_300_799_999).filter(lambda ms: not 1000 < ms < 10**11),
    partition=st.integers(0, 1000),
)
def test_what_a_raw_format_writes_is_read_back(
    key: bytes, value: bytes, header: bytes, timestamp_ms: int, partition: int
) -> None:
    template = "<{timestamp}\\t{partition}\\t{key}\\t{topic}\\t{header.h}\\t{value}>"
    given = ConsumerRecord(
        *("t", partition, 42, timestamp_ms, TimestampType.CREATE_TIME, key, value),
        (("h", header),),
        0,
    )
    found = line_reader(template)(line_format(template, is_raw=True)(given))
    assert (found.key, found.value, found.partition) == (key, value, partition)
    assert (found.timestamp_ms, found.headers) == (timestamp_ms, (("h", header),))


def test_the_default_of_consume_reads_back() -> None:
    template = "{time}  {partition}:{offset}  {key}  {value}"
    found = line_reader(template)(line_format(template)(record()))
    assert (found.timestamp_ms, found.partition, found.key, found.value) == (NOON_MS, 3, b"k", b"v")


def test_headers_are_read_as_they_are_written() -> None:
    template = "{headers}\\t{value}"
    headers = (("a", b"1"), ("b", b"2=3"))
    found = line_reader(template)(line_format(template)(record(headers=headers)))
    assert found.headers == headers
    assert line_reader(template)(b"\tv").headers == ()


def test_a_record_without_a_time_has_none_again() -> None:
    for template in ("{time} {value}", "{timestamp} {value}"):
        line = line_format(template)(record(timestamp_ms=-1))
        assert line_reader(template)(line).timestamp_ms is None


def test_null_is_what_the_option_says() -> None:
    read = line_reader("{key}\\t{value}\\t{header.h}", b"-")
    found = read(b"-\tv\t-")
    assert (found.key, found.value, found.headers) == (None, b"v", (("h", None),))
    assert line_reader("{key} {value}")(b"- v").key == b"-"


def test_braces_and_escapes_are_text() -> None:
    assert line_reader("{{{value}}}")(b"{v}").value == b"v"
    assert line_reader("\\x41{value}\\\\")(b"Av\\").value == b"v"


@pytest.mark.parametrize(
    ("template", "sentence"),
    [
        ("{value", "is broken"),
        ("{key}{value}", "no text between {key} and {value}"),
        ("{value} {value}", "{value} twice"),
        ("{time} {timestamp} {value}", "both say when"),
        ("{time}", "neither {key} nor {value}"),
        ("{value:>8}", "width"),
        ("{value!r}", "width"),
        ("{value.user}", "no record can be made from {value.user}: choose key, value"),
        ("{} {value}", "no record can be made from {}"),
        ("{header.} {value}", "no record can be made from {header.}"),
        ("\\q{value}", "no escape"),
    ],
)
def test_a_template_that_reads_nothing_is_refused(template: str, sentence: str) -> None:
    with pytest.raises(InvalidUse, match=sentence.replace("{", r"\{").replace(".", r"\.")):
        line_reader(template)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (b"k\tv", r"does not begin with '<'"),
        (b"<k v>", r"no '\\t' after \{key\} in it"),
        (b"<k\tv", r"does not end with '>'"),
        (b"<k\t1>", None),
    ],
)
def test_a_line_of_another_form_names_what_it_lacks(line: bytes, sentence: str | None) -> None:
    read = line_reader("<{key}\\t{value}>")
    if sentence is None:
        assert read(line).value == b"1"
        return
    with pytest.raises(InvalidUse, match=sentence):
        read(line)


@pytest.mark.parametrize(
    ("template", "line", "sentence"),
    [
        ("{timestamp} {value}", b"noon v", "not a number of milliseconds"),
        ("{time} {value}", b"yesterday v", "relative to the present"),
        ("{partition} {value}", b"x v", "{partition} is 'x', not a number"),
        ("{headers}|{value}", b"a|v", "write NAME=VALUE"),
    ],
)
def test_a_part_that_is_wrong_is_named(template: str, line: bytes, sentence: str) -> None:
    with pytest.raises((InvalidUse, InvalidTime), match=sentence.replace("{", r"\{")):
        line_reader(template)(line)


def test_what_a_record_cannot_choose_is_passed_over() -> None:
    assert {"topic", "offset", "deliveries", "size"} == PASSED_OVER
    assert line_reader("{topic}:{offset}:{size}:{deliveries}:{value}")(b"t:1:2:3:v").value == b"v"
