from __future__ import annotations

from broker.groups.classic.group import ClassicGroup
from broker.groups.classic.subscription import subscribed_topics
from broker.groups.classic.values import GroupLimits, JoinRequest

TWO_TOPICS = bytes.fromhex("0001 00000002 0001 61 0002 6262 ffffffff 00000000")


def _group(protocol_type: str, *metadata: bytes) -> ClassicGroup:
    group = ClassicGroup("g", GroupLimits())
    for index, each in enumerate(metadata):
        request = JoinRequest(
            member_id="",
            new_member_id=f"m{index}",
            protocol_type=protocol_type,
            protocols=(("range", each),),
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
        )
        group.join(request, object(), 0)
    return group


def test_are_the_members_topics_united() -> None:
    other = bytes.fromhex("0001 00000001 0001 63 ffffffff")
    assert subscribed_topics(_group("consumer", TWO_TOPICS, other)) == frozenset({"a", "bb", "c"})


def test_does_one_unreadable_member_make_it_unknown() -> None:
    assert subscribed_topics(_group("consumer", TWO_TOPICS, b"?")) is None


def test_is_it_unknown_for_other_types() -> None:
    assert subscribed_topics(_group("connect", TWO_TOPICS)) is None
