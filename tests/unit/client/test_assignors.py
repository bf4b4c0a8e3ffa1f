"""Who gets which partitions."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from client.assignors import ASSIGNORS, Assignment, Subscription
from client.types import TopicPartition

RANGE, ROUND_ROBIN = ASSIGNORS["range"], ASSIGNORS["roundrobin"]
STICKY = ASSIGNORS["cooperative-sticky"]


def wants(*topics: str, owned: str = "", generation: int = -1) -> Subscription:
    return Subscription(topics=topics, owned=tuple(parse(owned)), generation=generation)


def parse(text: str) -> list[TopicPartition]:
    """``a0 a1 b0`` as partitions."""
    return [TopicPartition(word[0], int(word[1:])) for word in text.split()]


def shown(assignment: Assignment) -> dict[str, str]:
    return {
        member: " ".join(f"{tp.topic}{tp.partition}" for tp in sorted(share))
        for member, share in assignment.items()
    }


def test_range_gives_neighbours_and_the_rest_to_the_first_members() -> None:
    members = {"x": wants("a", "b"), "y": wants("a", "b")}
    assert shown(RANGE.assign(members, {"a": 3, "b": 3})) == {"x": "a0 a1 b0 b1", "y": "a2 b2"}


def test_range_orders_static_members_by_their_lasting_name() -> None:
    members = {
        "m9": Subscription(topics=("a",), instance_id="first"),
        "m1": Subscription(topics=("a",), instance_id="second"),
        "m0": wants("a"),
    }
    assert shown(RANGE.assign(members, {"a": 3})) == {"m9": "a0", "m1": "a1", "m0": "a2"}


def test_round_robin_deals_partitions_one_by_one() -> None:
    members = {"x": wants("a", "b"), "y": wants("a", "b")}
    assert shown(ROUND_ROBIN.assign(members, {"a": 3, "b": 3})) == {
        "x": "a0 a2 b1",
        "y": "a1 b0 b2",
    }


def test_round_robin_passes_over_who_does_not_want_a_topic() -> None:
    members = {"x": wants("a"), "y": wants("a", "b")}
    assert shown(ROUND_ROBIN.assign(members, {"a": 1, "b": 2})) == {"x": "a0", "y": "b0 b1"}


def test_sticky_starts_balanced() -> None:
    members = {"x": wants("a"), "y": wants("a")}
    assert shown(STICKY.assign(members, {"a": 4})) == {"x": "a0 a2", "y": "a1 a3"}


def test_sticky_takes_away_first_and_gives_a_round_later() -> None:
    first = {"x": wants("a", owned="a0 a1 a2 a3", generation=1), "y": wants("a")}
    assert shown(STICKY.assign(first, {"a": 4})) == {"x": "a0 a1", "y": ""}
    second = {"x": wants("a", owned="a0 a1", generation=2), "y": wants("a", generation=2)}
    assert shown(STICKY.assign(second, {"a": 4})) == {"x": "a0 a1", "y": "a2 a3"}


def test_sticky_keeps_everything_when_balanced() -> None:
    members = {"x": wants("a", owned="a0 a3"), "y": wants("a", owned="a1 a2")}
    assert shown(STICKY.assign(members, {"a": 4})) == {"x": "a0 a3", "y": "a1 a2"}


def test_sticky_believes_the_later_of_two_who_claim_a_partition() -> None:
    members = {
        "old": wants("a", owned="a0", generation=3),
        "new": wants("a", owned="a0", generation=4),
    }
    assert shown(STICKY.assign(members, {"a": 1})) == {"old": "", "new": "a0"}


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
@settings(max_examples=60, deadline=None)
@given(
    counts=st.dictionaries(st.sampled_from("abc"), st.integers(0, 7), max_size=3),
    interests=st.lists(st.sets(st.sampled_from("abc"), min_size=1), min_size=1, max_size=5),
)
def test_every_wanted_partition_has_exactly_one_interested_member(
    name: str, counts: dict[str, int], interests: list[set[str]]
) -> None:
    members = {f"m{n}": wants(*sorted(topics)) for n, topics in enumerate(interests)}
    assignment = ASSIGNORS[name].assign(members, counts)
    given_out = sorted(tp for share in assignment.values() for tp in share)
    wanted = {topic for topics in interests for topic in topics}
    assert given_out == sorted(
        TopicPartition(topic, n)
        for topic in counts
        if topic in wanted
        for n in range(counts[topic])
    )
    assert all(tp.topic in members[m].topics for m, share in assignment.items() for tp in share)
