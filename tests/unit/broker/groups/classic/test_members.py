from __future__ import annotations

import pytest

from broker.groups.classic.members import ClassicMember, Members
from broker.groups.classic.values import Protocols


def _member(
    member_id: str,
    protocols: Protocols = (("range", b""),),
    instance: str | None = None,
    *,
    is_joining: bool = False,
) -> ClassicMember:
    return ClassicMember(
        member_id=member_id,
        group_instance_id=instance,
        client_id="c",
        client_host="h",
        session_timeout_ms=1,
        rebalance_timeout_ms=1,
        protocols=protocols,
        join_waiter=object() if is_joining else None,
    )


def _members(*each: ClassicMember) -> Members:
    members = Members()
    for member in each:
        members.add(member)
    return members


def test_is_the_first_to_come_the_leader() -> None:
    assert _members(_member("a"), _member("b")).leader_id == "a"


def test_who_leads_when_the_leader_goes() -> None:
    members = _members(_member("a"), _member("b"), _member("c"))
    members.remove("a")
    assert members.leader_id == "b"


def test_who_leads_an_empty_roster() -> None:
    members = _members(_member("a"))
    members.remove("a")
    assert members.leader_id is None
    assert len(members) == 0


def test_does_a_renamed_static_member_keep_leading() -> None:
    members = _members(_member("a", instance="i"))
    members.rename("a", "b")
    assert (members.leader_id, members.find_static("i")) == ("b", "b")
    assert "a" not in members
    assert members.get("b").member_id == "b"


def test_is_a_static_id_free_again_after_leaving() -> None:
    members = _members(_member("a", instance="i"))
    members.remove("a")
    assert members.find_static("i") is None


def test_may_a_dynamic_member_be_renamed() -> None:
    with pytest.raises(AssertionError):
        _members(_member("a")).rename("a", "b")


def test_does_adding_end_the_pending_state() -> None:
    members = Members()
    members.pending["a"] = 5
    members.add(_member("a"))
    assert members.pending == {}


def test_has_every_member_joined_only_without_outstanding_ids() -> None:
    members = _members(_member("a", is_joining=True))
    assert members.has_all_joined
    members.pending["b"] = 5
    assert not members.has_all_joined


def test_are_joining_members_counted_through_every_change() -> None:
    members = _members(_member("a", is_joining=True), _member("b"))
    assert members.joining_count == 1
    members.set_join_waiter(members.get("b"), object())
    assert members.joining_count == 2
    members.remove("a")
    assert members.joining_count == 1
    members.set_join_waiter(members.get("b"), None)
    assert members.joining_count == 0


def test_which_protocols_are_common() -> None:
    members = _members(
        _member("a", (("x", b""), ("y", b""))),
        _member("b", (("y", b""), ("z", b""))),
    )
    assert members.common_protocols() == {"y"}
    assert members.accepts((("z", b""), ("y", b"")))
    assert not members.accepts((("z", b""),))


def test_does_a_protocol_named_twice_count_once() -> None:
    members = _members(_member("a", (("x", b"1"), ("x", b"2"))), _member("b", (("y", b""),)))
    assert members.common_protocols() == set()


def test_is_support_forgotten_with_the_member() -> None:
    members = _members(_member("a", (("x", b""),)), _member("b", (("x", b""), ("y", b""))))
    members.remove("a")
    assert members.common_protocols() == {"x", "y"}


def test_does_replacing_protocols_change_the_count() -> None:
    members = _members(_member("a", (("x", b""),)))
    members.set_protocols(members.get("a"), (("y", b""),))
    assert members.common_protocols() == {"y"}


def test_does_the_majority_choose_the_protocol() -> None:
    both, other = (("x", b""), ("y", b"")), (("y", b""), ("x", b""))
    members = _members(_member("a", both), _member("b", other), _member("c", other))
    assert members.select_protocol() == "y"


def test_does_the_leader_break_a_tie() -> None:
    both, other = (("x", b""), ("y", b"")), (("y", b""), ("x", b""))
    assert _members(_member("a", both), _member("b", other)).select_protocol() == "x"
    assert _members(_member("a", other), _member("b", both)).select_protocol() == "y"


def test_is_a_joined_member_elected_when_the_leader_is_absent() -> None:
    members = _members(_member("a"), _member("b", is_joining=True))
    assert members.elect_joined_leader()
    assert members.leader_id == "b"


def test_is_no_leader_elected_without_a_join() -> None:
    members = _members(_member("a"))
    assert not members.elect_joined_leader()
    assert members.leader_id == "a"


def test_what_metadata_has_a_protocol_that_was_not_offered() -> None:
    member = _member("a", (("x", b"m"),))
    assert (member.metadata("x"), member.metadata("y"), member.metadata(None)) == (b"m", b"", b"")
