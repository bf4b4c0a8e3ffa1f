from __future__ import annotations

from broker.groups.classic.group import ClassicGroup
from broker.groups.classic.members import Members
from broker.groups.classic.values import GroupLimits, JoinRequest


def _group() -> ClassicGroup:
    group = ClassicGroup("g", GroupLimits())
    for name in ("a", "b"):
        request = JoinRequest(
            member_id="",
            new_member_id=name,
            protocol_type="consumer",
            protocols=(("range", name.encode()), ("sticky", b"other")),
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            group_instance_id=f"i-{name}",
        )
        group.join(request, object(), 0)
    return group


def test_what_is_stored_of_a_group() -> None:
    snapshot = _group().snapshot({"a": b"x"})
    assert snapshot.generation == 1
    assert (snapshot.protocol_type, snapshot.protocol) == ("consumer", "range")
    assert snapshot.leader == "a"
    assert [(m.member_id, m.subscription, m.assignment) for m in snapshot.members] == [
        ("a", b"a", b"x"),
        ("b", b"b", b""),
    ]


def test_what_has_a_group_without_a_join() -> None:
    snapshot = ClassicGroup("g", GroupLimits()).snapshot()
    assert (snapshot.protocol_type, snapshot.leader, snapshot.members) == ("", None, [])


def test_does_a_stored_group_come_back_the_same() -> None:
    snapshot = _group().snapshot({"a": b"x", "b": b"y"})
    group = ClassicGroup("g", GroupLimits())
    group.restore(snapshot, 0)
    assert group.snapshot() == snapshot


def test_does_a_leader_that_is_no_member_matter() -> None:
    snapshot = _group().snapshot()
    members = Members.restored(_group().snapshot())
    assert members.leader_id == snapshot.leader == "a"


def test_does_only_the_leader_get_the_members() -> None:
    group = _group()
    leader, follower = group.members.get("a"), group.members.get("b")
    answer = group.join_answer(leader)
    assert [(m.member_id, m.group_instance_id, m.metadata) for m in answer.members] == [
        ("a", "i-a", b"a"),
        ("b", "i-b", b"b"),
    ]
    assert group.join_answer(follower).members == ()


def test_does_naming_another_leader_hide_the_members() -> None:
    group = _group()
    answer = group.join_answer(group.members.get("a"), leader_id="gone")
    assert (answer.leader_id, answer.members) == ("gone", ())


def test_does_a_member_get_its_own_assignment() -> None:
    group = _group()
    member = group.members.get("b")
    member.assignment = b"y"
    answer = group.sync_answer(member)
    assert (answer.assignment, answer.protocol_name) == (b"y", "range")
