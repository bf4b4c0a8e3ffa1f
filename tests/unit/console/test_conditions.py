"""The filter language: what it selects, what it refuses, and that it runs nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client.errors import InvalidUse
from client.types import ConsumerRecord
from console.data.conditions import (
    Both,
    Bounds,
    Compare,
    Condition,
    Not,
    bounds_of,
    filter_by_key,
    fulfils,
    parse_condition,
)
from protocol.records.layout import TimestampType

NOW = 1_795_392_000_000


def record(value: bytes | None = b"", key: bytes | None = b"k", **more: object) -> ConsumerRecord:
    given: dict[str, object] = {
        "topic": "t",
        "partition": 3,
        "offset": 41,
        "timestamp_ms": NOW,
        "timestamp_type": TimestampType.CREATE_TIME,
        "key": key,
        "value": value,
        "headers": [("source", b"batch"), ("none", None)],
        "leader_epoch": 0,
    }
    return ConsumerRecord(**(given | more))  # type: ignore[arg-type]


def parse(text: str) -> Condition | None:
    return parse_condition(text, now_ms=NOW)


ORDER = b'{"user": {"id": 17, "name": "Ann"}, "lines": [{"sku": "a"}, {"sku": "b"}], "paid": true}'


@pytest.mark.parametrize(
    ("text", "is_selected"),
    [
        ("", True),
        ("value.user.id = 17", True),
        ("value.user.id != 17", False),
        ("value.user.id > 16 and value.user.id <= 17", True),
        ("value.user.id = '17'", False),
        ('value.user.name = "Ann"', True),
        ("value.user.name ~ AN", True),
        ("value.lines[1].sku = b", True),
        ("value.lines[2].sku = b", False),
        ("value.lines[2].sku != b", True),
        ("value.paid = true", True),
        ("value.paid = 1", False),
        ('partition = "3" and offset = "41"', True),
        ("value.nothing = null", False),
        ("not value.user.id = 17 or key = k", True),
        ("not (value.user.id = 17 or key = k)", False),
        ("key = k and (partition = 2 or partition = 3)", True),
        ("offset >= 41 and offset < 42 and size > 10", True),
        ("header.source = batch", True),
        ("header.none = null", True),
        ("header.other = x", False),
        ("time >= 2026-11-20T00:00Z", True),
        ("time < -1h", False),
        ('value ~ "\\"paid\\""', True),
        ("NOT key = k", False),
    ],
)
def test_selects(text: str, is_selected: bool) -> None:
    assert fulfils(parse(text), record(ORDER)) is is_selected


@pytest.mark.parametrize(
    ("text", "is_selected"),
    [
        ("value.id = 9223372036854775807", True),
        ("value.id = 9223372036854775806", False),
        ("value.id > 9223372036854775806", True),
        ("value.cost < 1e5", True),
        ("value.cost = 2.5E+3", True),
        ("value.cost > 1e400", False),
    ],
)
def test_numbers_are_those_of_json(text: str, is_selected: bool) -> None:
    value = b'{"id": 9223372036854775807, "cost": 2500.0}'
    assert fulfils(parse(text), record(value)) is is_selected


def test_values_that_are_no_json_are_text() -> None:
    assert fulfils(parse("value = 'a b'"), record(b"a b"))
    assert not fulfils(parse("value.a = 1"), record(b"a b"))
    assert fulfils(parse("value ~ 00ff"), record(b"\x00\xff\x01"))
    assert not fulfils(parse("value ~ x"), record(None))


@given(st.binary(max_size=500) | st.text(max_size=200).map(str.encode), st.binary(max_size=3))
def test_a_filter_by_a_key_selects_it_and_no_other(key: bytes, end: bytes) -> None:
    text = filter_by_key(key)
    assert text is not None
    assert fulfils(parse(text), record(key=key))
    assert fulfils(parse(text), record(key=key + end)) == (end == b"")


def test_what_no_filter_can_say_of_a_key() -> None:
    assert filter_by_key(None) is None
    assert filter_by_key(b"k" * 992) is not None
    assert filter_by_key(b"k" * 993) is None
    assert filter_by_key(b'"' * 600) is None
    assert filter_by_key(b"\xff" * 900) is None


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("value.a", "operator"),
        ("= 3", "field"),
        ("user = 3", "field"),
        ("value.a == 3", "value"),
        ("value.a = ", "ends"),
        ("(key = k", ")"),
        ("key = k key = k", "not expected"),
        ("partition = x", "whole number"),
        ("partition = true", "whole number"),
        ("size > null", "whole number"),
        ("offset = 1.5", "whole number"),
        ("time > soon", "time"),
        ("time > 1700000000", "seconds"),
        ('key = "a', "broken"),
        ("(" * 30 + "key = k" + ")" * 30, "nests"),
        ("not " * 30 + "key = k", "nests"),
        (" and ".join(["key = k"] * 30), "at most"),
        ("key = " + "x" * 1000, "characters"),
    ],
)
def test_refuses_with_a_sentence(text: str, word: str) -> None:
    with pytest.raises(InvalidUse) as caught:
        parse(text)
    assert word in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os') = 1",
        "value.a() = 1",
        "key.__class__.__mro__ = 1",
        "exec ~ x",
        "len(key) > 1",
    ],
)
def test_filter_grammar_has_no_calls(text: str) -> None:
    try:
        condition = parse(text)
    except InvalidUse:
        return
    # What parses is a plain path into the data, which the record does not have.
    assert isinstance(condition, Compare)
    assert fulfils(condition, record(ORDER)) is False


@given(st.text(max_size=80))
def test_any_text_parses_or_is_refused(text: str) -> None:
    try:
        condition = parse(text)
    except InvalidUse:
        return
    assert fulfils(condition, record(ORDER)) in (True, False)


TERMS = st.builds(
    Compare,
    st.sampled_from(["partition", "time"]),
    st.sampled_from(["=", "!=", "<", "<=", ">", ">="]),
    st.just(""),
    st.integers(NOW - 3, NOW + 3) | st.integers(0, 5),
)
TREES = st.recursive(
    TERMS,
    lambda inner: st.builds(Both, st.booleans(), inner, inner) | st.builds(Not, inner),
    max_leaves=8,
)


@given(TREES, st.integers(NOW - 4, NOW + 4), st.integers(0, 5))
def test_what_is_outside_the_bounds_is_not_selected(
    tree: Condition, time: int, number: int
) -> None:
    one = record(timestamp_ms=time, partition=number)
    bounds = bounds_of(tree)
    is_inside = (
        (bounds.from_ms is None or time >= bounds.from_ms)
        and (bounds.to_ms is None or time < bounds.to_ms)
        and (bounds.partitions is None or number in bounds.partitions)
    )
    assert is_inside or not fulfils(tree, one)


def test_bounds_narrow_before_reading() -> None:
    found = bounds_of(parse("time >= 2026-11-01 and partition = 3 and key = k"))
    assert found.partitions == frozenset((3,))
    assert found.from_ms is not None
    assert bounds_of(parse("time >= now or partition = 3")) == Bounds()
