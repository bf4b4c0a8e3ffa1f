"""Who reads what: completeness, balance and stickiness of the server-side assignors."""

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.groups.consumer.assignors import ASSIGNORS, AssignedMember, assign
from broker.groups.consumer.values import NO_PARTITIONS, RANGE, UNIFORM, Partitions, TopicImage

A, B, C = (name.encode() * 16 for name in "abc")
TOPICS = {"a": TopicImage(A, 4), "b": TopicImage(B, 3), "c": TopicImage(C, 5)}


def member(topics: str, target: Partitions = NO_PARTITIONS, sort_key: str = "m") -> AssignedMember:
    return AssignedMember(sort_key=sort_key, topics=frozenset(topics), target=target)


def test_range_gives_the_same_indexes_of_each_topic() -> None:
    targets = assign(RANGE, {"m1": member("ab"), "m2": member("ab")}, TOPICS)
    assert targets["m1"] == {(A, 0), (A, 1), (B, 0), (B, 1)}
    assert targets["m2"] == {(A, 2), (A, 3), (B, 2)}


def test_range_orders_static_members_by_their_instance() -> None:
    members = {"z": member("a", sort_key="1"), "b": member("a", sort_key="2")}
    assert assign(RANGE, members, TOPICS)["z"] == {(A, 0), (A, 1)}


def test_more_members_than_partitions_leaves_some_with_nothing() -> None:
    for name in ASSIGNORS:
        targets = assign(name, {f"m{i}": member("b") for i in range(5)}, TOPICS)
        assert sorted(map(len, targets.values())) == [0, 0, 1, 1, 1], name


def test_uniform_moves_only_what_the_new_member_gets() -> None:
    first = assign(UNIFORM, {"m1": member("a"), "m2": member("a")}, TOPICS)
    members = {name: member("a", target) for name, target in first.items()}
    second = assign(UNIFORM, members | {"m3": member("a")}, TOPICS)
    assert sorted(map(len, second.values())) == [1, 1, 2]
    assert second["m1"] <= first["m1"]
    assert second["m2"] <= first["m2"]


def test_uniform_does_not_move_anything_without_need() -> None:
    first = assign(UNIFORM, {"m1": member("abc"), "m2": member("abc")}, TOPICS)
    members = {name: member("abc", target) for name, target in first.items()}
    assert assign(UNIFORM, members, TOPICS) == first


def test_uniform_evens_out_different_subscriptions() -> None:
    members = {"m1": member("abc"), "m2": member("c")}
    targets = assign(UNIFORM, members, TOPICS)
    assert targets["m2"] == {(C, index) for index in range(5)}
    assert targets["m1"] == {(A, i) for i in range(4)} | {(B, i) for i in range(3)}


def test_a_topic_that_no_member_can_have_is_left_out() -> None:
    for name in ASSIGNORS:
        assert assign(name, {"m1": member("")}, TOPICS) == {"m1": NO_PARTITIONS}
        assert assign(name, {}, TOPICS) == {}


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(sorted(ASSIGNORS)),
    rounds=st.lists(
        st.dictionaries(
            st.sampled_from([f"m{i}" for i in range(6)]),
            st.sets(st.sampled_from("abc")).map(frozenset),
            min_size=1,
        ),
        min_size=1,
        max_size=4,
    ),
)
def test_every_partition_has_one_reader_who_wants_it(
    name: str, rounds: list[dict[str, frozenset[str]]]
) -> None:
    targets: dict[str, Partitions] = {}
    for subscriptions in rounds:
        members = {
            member_id: member("".join(topics), targets.get(member_id, NO_PARTITIONS))
            for member_id, topics in subscriptions.items()
        }
        targets = assign(name, members, TOPICS)
        given_out = sorted(p for target in targets.values() for p in target)
        wanted = frozenset[str]().union(*subscriptions.values())
        expected = [(TOPICS[t].topic_id, i) for t in sorted(wanted) for i in range(TOPICS[t][1])]
        assert given_out == expected
        for member_id, target in targets.items():
            may_have = {TOPICS[topic].topic_id for topic in subscriptions[member_id]}
            assert {topic_id for topic_id, _ in target} <= may_have
        if name == UNIFORM and len(set(subscriptions.values())) == 1:
            counts = [len(target) for target in targets.values()]
            assert max(counts) - min(counts) <= 1
