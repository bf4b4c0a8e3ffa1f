"""Broker addresses as people write them."""

import pytest

from client.core.options import parse_bootstrap
from client.errors import InvalidUse


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("localhost:9092", [("localhost", 9092)]),
        ("localhost", [("localhost", 9092)]),
        (":19092", [("127.0.0.1", 19092)]),
        ("a:1, b:2,", [("a", 1), ("b", 2)]),
        ("[::1]:9093", [("::1", 9093)]),
        ("::1", [("::1", 9092)]),
        ("PLAINTEXT://h:5", [("h", 5)]),
    ],
)
def test_addresses_are_understood(text: str, expected: list[tuple[str, int]]) -> None:
    assert list(parse_bootstrap(text)) == expected


@pytest.mark.parametrize("text", ["", " , ", "h:port", "h:0", "h:65536"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidUse, match="host:port"):
        parse_bootstrap(text)


def test_several_addresses_may_come_as_a_list() -> None:
    assert parse_bootstrap(["a:1", "b"]) == (("a", 1), ("b", 9092))
