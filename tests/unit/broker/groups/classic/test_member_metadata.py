"""The consumers' own protocol inside the classic one: golden bytes, and what is not that."""

import pytest

from broker.groups.classic.subscription import MemberMetadata, parse_assignment, parse_subscription
from client.subscription import decode_assignment
from client.types import TopicPartition
from protocol.stored.consumer_protocol import encode_assignment

TWO_TOPICS = bytes.fromhex("0001 00000002 0001 61 0002 6262 ffffffff 00000000")
OWNING = bytes.fromhex(
    "0003 00000001 0001 61 00000001 ff 00000001 0001 61 00000002 00000000 0000000200000007 0001 72"
)


@pytest.mark.parametrize(
    ("data", "topics"),
    [
        (TWO_TOPICS, {"a", "bb"}),
        (bytes.fromhex("0000 00000000 00000000"), set()),
        (b"", None),
        (bytes.fromhex("0001 00000001"), None),
        (bytes.fromhex("0001 00000001 0005 61"), None),
        (bytes.fromhex("0001 00000001 ffff"), None),
        (bytes.fromhex("0001 00000001 0001 ff"), None),
        (b'{"host": "x"}', None),
    ],
)
def test_which_topics_are_in_the_metadata(data: bytes, topics: set[str] | None) -> None:
    parsed = parse_subscription(data)
    assert (None if parsed is None else parsed.topics) == topics


def test_a_subscription_says_what_its_member_still_owns_and_where_it_is() -> None:
    assert parse_subscription(OWNING) == MemberMetadata(
        version=3, topics=frozenset({"a"}), owned=frozenset({("a", 0), ("a", 2)}), rack_id="r"
    )


@pytest.mark.parametrize("size", range(13, len(OWNING)))
def test_a_subscription_that_ends_early_still_names_its_topics(size: int) -> None:
    parsed = parse_subscription(OWNING[:size])
    assert parsed is not None
    assert parsed.topics == {"a"}
    assert parsed.rack_id is None


def test_an_assignment_is_what_clients_read() -> None:
    data = encode_assignment({"b": [2, 0], "a": [1]}, version=1)
    assert data == bytes.fromhex(
        "0001 00000002 0001 61 00000001 00000001 0001 62 00000002 00000000 00000002 ffffffff"
    )
    read = [TopicPartition("a", 1), TopicPartition("b", 0), TopicPartition("b", 2)]
    assert decode_assignment(data) == read
    assert parse_assignment(data) == frozenset({("a", 1), ("b", 0), ("b", 2)})
    assert encode_assignment({}, version=9) == bytes.fromhex("0003 00000000 ffffffff")


@pytest.mark.parametrize(
    ("data", "found"), [(b"", frozenset()), (b"\x00", None), (b"\xff\xff\0\0\0\0", None)]
)
def test_an_assignment_may_be_nothing_or_something_else(
    data: bytes, found: frozenset[tuple[str, int]] | None
) -> None:
    assert parse_assignment(data) == found
