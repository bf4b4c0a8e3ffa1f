"""What a caller hands in is refused with its name, its value, what is allowed and the cure."""

from typing import Any

import pytest

from client import checks
from client.errors import ClientError, InvalidType, InvalidUse
from client.types import OffsetAndMetadata, TopicPartition


@pytest.mark.parametrize(
    ("value", "kind", "sentence"),
    [
        (-1, InvalidUse, "linger_ms=-1 is out of range: give 0 to 2147483647"),
        (2**31, InvalidUse, "is out of range"),
        ("5", InvalidType, "linger_ms='5' is not a whole number: give 0 to 2147483647"),
        (5.0, InvalidType, "is not a whole number"),
        (True, InvalidType, "is not a whole number"),
        (None, InvalidType, "is not a whole number"),
    ],
)
def test_a_number_is_whole_and_in_its_range(
    value: object, kind: type[Exception], sentence: str
) -> None:
    with pytest.raises(kind, match=sentence):
        checks.check_numbers(0, linger_ms=value)
    checks.check_numbers(0, linger_ms=0)


def test_errors_of_types_are_what_python_and_the_client_expect() -> None:
    with pytest.raises(TypeError) as caught:
        checks.check_text("topic", 5)
    assert isinstance(caught.value, ClientError)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (b"t", r"topic=b't' is a bytes, and a str is wanted: decode it, b't'.decode\(\)"),
        (["a"], r"topic=\['a'\] is a list, and a str is wanted"),
        ("", "topic is empty: give a name"),
        ("\ud800", "half a character"),
        ("x" * 40_000, "has 40000 bytes in UTF-8: give 32767 at most"),
    ],
)
def test_a_name_is_text_that_a_request_can_hold(value: object, sentence: str) -> None:
    with pytest.raises(InvalidUse, match=sentence):
        checks.check_text("topic", value)


def test_a_list_of_topics_is_answered_with_how_to_write_them() -> None:
    with pytest.raises(InvalidType, match=r"write Consumer\('a', 'b'\) or Consumer\(\*topics\)"):
        checks.check_topics([["a", "b"]], "Consumer")
    with pytest.raises(InvalidUse, match="group_instance_id needs a group_id"):
        checks.check_sharing(None, "i", wait_for_topics=False)


def test_a_partition_is_a_pair() -> None:
    assert checks.partition_of(("t", 1)) == TopicPartition("t", 1)
    for wrong in ("t", ("t", "0"), ("t", -1), (b"t", 0), ("t", 0, 0), None):
        with pytest.raises(InvalidUse):
            checks.partition_of(wrong)


def test_what_is_given_for_partitions_is_a_mapping() -> None:
    assert list(checks.pairs_of("offsets", {("t", 1): 5})) == [(("t", 1), 5)]
    for wrong in ([TopicPartition("t", 1)], TopicPartition("t", 1), "t", 5):
        with pytest.raises(InvalidType, match=r"offsets is an? \w+, and a mapping is wanted"):
            checks.pairs_of("offsets", wrong)


def test_a_position_is_an_offset_with_or_without_a_note() -> None:
    assert checks.position_of("offset", 5) == OffsetAndMetadata(5)
    note = OffsetAndMetadata(5, "note")
    assert checks.position_of("offset", note) is note
    wrong: list[Any] = [-1, "5", None, OffsetAndMetadata(-1), OffsetAndMetadata(1, b"x")]  # type: ignore[arg-type]
    for value in wrong:
        with pytest.raises(InvalidUse):
            checks.position_of("offset", value)


def test_contents_are_bytes_and_buffers_are_copied() -> None:
    buffer = bytearray(b"ab")
    content = checks.content_of("value", buffer)
    buffer[0] = 0
    assert content == b"ab"
    assert checks.content_of("value", memoryview(b"cd")) == b"cd"
    assert checks.content_of("value", None) is None
    with pytest.raises(InvalidType, match=r"the value is a str, .*encode it, 'text'.encode\(\)"):
        checks.content_of("value", "text")


def test_headers_are_pairs_of_text_and_bytes() -> None:
    assert checks.headers_of({"a": b"1"}) == (("a", b"1"),)
    assert checks.headers_of([("a", None), ["", bytearray(b"2")]]) == (("a", None), ("", b"2"))
    assert checks.headers_of([("\udcff", b"")]) == (("\udcff", b""),)
    for wrong in ("ab", b"ab", 5, [5], [("a",)], [(b"a", b"1")], [("a", "1")], [("\ud800", b"")]):
        with pytest.raises(InvalidUse):
            checks.headers_of(wrong)
