from __future__ import annotations

import pytest

from broker.groups.classic.roster import ClassicMember, Roster
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


def _roster(*members: ClassicMember) -> Roster:
    roster = Roster()
    for member in members:
        roster.add(member)
    return roster


def test_is_the_first_to_come_the_leader() -> None:
    assert _roster(_member("a"), _member("b")).leader_id == "a"


def test_who_leads_when_the_leader_goes() -> None:
    roster = _roster(_member("a"), _member("b"), _member("c"))
    roster.remove("a")
    assert roster.leader_id == "b"


def test_who_leads_an_empty_roster() -> None:
    roster = _roster(_member("a"))
    roster.remove("a")
    assert roster.leader_id is None
    assert len(roster) == 0


def test_does_a_renamed_static_member_keep_leading() -> None:
    roster = _roster(_member("a", instance="i"))
    roster.rename("a", "b")
    assert (roster.leader_id, roster.find_static("i")) == ("b", "b")
    assert "a" not in roster
    assert roster.get("b").member_id == "b"


def test_is_a_static_id_free_again_after_leaving() -> None:
    roster = _roster(_member("a", instance="i"))
    roster.remove("a")
    assert roster.find_static("i") is None


def test_may_a_dynamic_member_be_renamed() -> None:
    with pytest.raises(AssertionError):
        _roster(_member("a")).rename("a", "b")


def test_does_adding_end_the_pending_state() -> None:
    roster = Roster()
    roster.pending["a"] = 5
    roster.add(_member("a"))
    assert roster.pending == {}


def test_has_everybody_joined_only_without_outstanding_ids() -> None:
    roster = _roster(_member("a", is_joining=True))
    assert roster.has_all_joined
    roster.pending["b"] = 5
    assert not roster.has_all_joined


def test_are_joining_members_counted_through_every_change() -> None:
    roster = _roster(_member("a", is_joining=True), _member("b"))
    assert roster.joining_count == 1
    roster.set_join_waiter(roster.get("b"), object())
    assert roster.joining_count == 2
    roster.remove("a")
    assert roster.joining_count == 1
    roster.set_join_waiter(roster.get("b"), None)
    assert roster.joining_count == 0


def test_which_protocols_are_common() -> None:
    roster = _roster(
        _member("a", (("x", b""), ("y", b""))),
        _member("b", (("y", b""), ("z", b""))),
    )
    assert roster.common_protocols() == {"y"}
    assert roster.accepts((("z", b""), ("y", b"")))
    assert not roster.accepts((("z", b""),))


def test_does_a_protocol_named_twice_count_once() -> None:
    roster = _roster(_member("a", (("x", b"1"), ("x", b"2"))), _member("b", (("y", b""),)))
    assert roster.common_protocols() == set()


def test_is_support_forgotten_with_the_member() -> None:
    roster = _roster(_member("a", (("x", b""),)), _member("b", (("x", b""), ("y", b""))))
    roster.remove("a")
    assert roster.common_protocols() == {"x", "y"}


def test_does_replacing_protocols_change_the_count() -> None:
    roster = _roster(_member("a", (("x", b""),)))
    roster.set_protocols(roster.get("a"), (("y", b""),))
    assert roster.common_protocols() == {"y"}


def test_does_the_majority_choose_the_protocol() -> None:
    both, other = (("x", b""), ("y", b"")), (("y", b""), ("x", b""))
    roster = _roster(_member("a", both), _member("b", other), _member("c", other))
    assert roster.select_protocol() == "y"


def test_does_the_leader_break_a_tie() -> None:
    both, other = (("x", b""), ("y", b"")), (("y", b""), ("x", b""))
    assert _roster(_member("a", both), _member("b", other)).select_protocol() == "x"
    assert _roster(_member("a", other), _member("b", both)).select_protocol() == "y"


def test_is_a_joined_member_elected_when_the_leader_is_absent() -> None:
    roster = _roster(_member("a"), _member("b", is_joining=True))
    assert roster.elect_joined_leader()
    assert roster.leader_id == "b"


def test_is_nobody_elected_when_nobody_joined() -> None:
    roster = _roster(_member("a"))
    assert not roster.elect_joined_leader()
    assert roster.leader_id == "a"


def test_what_metadata_has_a_protocol_that_was_not_offered() -> None:
    member = _member("a", (("x", b"m"),))
    assert (member.metadata("x"), member.metadata("y"), member.metadata(None)) == (b"m", b"", b"")
