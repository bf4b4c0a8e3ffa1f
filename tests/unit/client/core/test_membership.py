"""What a member of the consumer protocol says in its heartbeats, and does by the answers."""

from typing import Any

import pytest

from client.core.membership.member import ConsumerMember, StepKind
from client.core.membership.options import ConsumerGroupOptions
from client.types import TopicPartition
from protocol.api.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from protocol.error_codes import ErrorCode
from protocol.structs import Assignment, TopicPartitions

T, U, T_AGAIN = (bytes([number]) * 16 for number in (1, 2, 3))
NAMES = {T: "t", U: "u", T_AGAIN: "t"}
Steps = list[tuple[str, set[str]]]


def member(*topics: str, regex: str | None = None, **options: Any) -> ConsumerMember:
    made = ConsumerMember(ConsumerGroupOptions(group_id="g", **options))
    made.subscribe(topics or ("t",), regex)
    return made


def answer(
    epoch: int, target: dict[bytes, list[int]] | None = None, interval_ms: int = 5000
) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        member_epoch=epoch,
        heartbeat_interval_ms=interval_ms,
        assignment=None
        if target is None
        else Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, partitions=numbers)
                for topic_id, numbers in target.items()
            ]
        ),
    )


def beat(
    one: ConsumerMember, epoch: int, target: dict[bytes, list[int]] | None = None
) -> ConsumerGroupHeartbeatRequest:
    request = one.heartbeat()
    one.answered(answer(epoch, target))
    one.learn(NAMES)
    return request


def steps(one: ConsumerMember) -> Steps:
    """Carry out all steps."""
    found: Steps = []
    while (step := one.next_step()) is not None:
        found.append((step.kind.name, {str(tp) for tp in step.partitions}))
        one.done(step)
    return found


def owned(request: ConsumerGroupHeartbeatRequest) -> dict[bytes, list[int]] | None:
    parts = request.topic_partitions
    return None if parts is None else {bytes(p.topic_id): p.partitions for p in parts}


def test_joining_says_everything_and_staying_nothing() -> None:
    one = member("u", "t", "t", max_poll_interval_ms=9000, remote_assignor="range")
    first = beat(one, 3, {T: [0, 1]})
    assert (first.member_epoch, first.subscribed_topic_names) == (0, ["t", "u"])
    assert (first.rebalance_timeout_ms, first.server_assignor) == (9000, "range")
    assert owned(first) == {}
    assert first.member_id
    assert one.interval_ms == 5000
    assert steps(one) == [("ASSIGN", {"t-0", "t-1"})]
    due = [one.is_due]
    second = beat(one, 3)
    assert owned(second) == {T: [0, 1]}
    due.append(one.is_due)
    assert due == [True, False]
    third = beat(one, 3)
    assert third.member_id == first.member_id
    for request in (second, third):
        assert (request.member_epoch, request.rebalance_timeout_ms) == (3, -1)
        assert request.subscribed_topic_names is None
        assert request.subscribed_topic_regex is None
        assert request.server_assignor is None
    assert owned(third) is None
    assert steps(one) == []


def test_what_is_revoked_is_owned_until_it_was_given_up() -> None:
    one = member()
    beat(one, 1, {T: [0, 1, 2]})
    steps(one)
    beat(one, 1)
    beat(one, 1, {T: [0]})
    step = one.next_step()
    assert step is not None
    assert step.kind is StepKind.REVOKE
    assert step.partitions == {TopicPartition("t", 1), TopicPartition("t", 2)}
    # A listener at work: the heartbeats go on, and give nothing back.
    assert owned(beat(one, 1)) is None
    one.done(step)
    assert one.is_due
    assert owned(beat(one, 2)) == {T: [0]}
    assert steps(one) == [("ASSIGN", {"t-0"})]
    beat(one, 2, {T: [0, 3]})
    assert steps(one) == [("ASSIGN", {"t-0", "t-3"})]


def test_an_empty_share_is_assigned_once() -> None:
    one = member()
    beat(one, 1, {})
    assert steps(one) == [("ASSIGN", set())]
    beat(one, 1, {})
    assert steps(one) == []


def test_a_lost_answer_has_everything_said_again() -> None:
    one = member(regex="t.*")
    beat(one, 1, {T: [0]})
    steps(one)
    beat(one, 1)
    one.subscribe(["u"], None)
    one.heartbeat()
    one.unheard()
    assert one.is_due
    again = beat(one, 1)
    assert (again.subscribed_topic_names, again.subscribed_topic_regex) == (["u"], "")
    assert again.rebalance_timeout_ms == 300_000
    assert owned(again) == {T: [0]}


def test_a_new_subscription_is_said_at_once_and_alone() -> None:
    one = member("t")
    beat(one, 1, {T: [0]})
    steps(one)
    beat(one, 1)
    one.subscribe([], "u.*")
    assert one.is_due
    request = beat(one, 1)
    assert (request.subscribed_topic_names, request.subscribed_topic_regex) == ([], "u.*")
    assert owned(request) is None
    assert request.rebalance_timeout_ms == -1


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
    ],
)
def test_a_fenced_member_loses_its_share_and_joins_under_its_id(code: ErrorCode) -> None:
    one = member()
    beat(one, 5, {T: [0, 1]})
    steps(one)
    one.heartbeat()
    assert one.refused(code)
    assert not one.is_member
    assert steps(one) == [("LOST", {"t-0", "t-1"})]
    request = beat(one, 7, {T: [1]})
    assert (request.member_epoch, request.member_id) == (0, one.member_id)
    assert owned(request) == {}
    assert request.subscribed_topic_names == ["t"]
    assert one.joins_count == 2
    assert steps(one) == [("ASSIGN", {"t-1"})]


def test_what_was_being_revoked_or_assigned_is_lost_once() -> None:
    one = member()
    beat(one, 1, {T: [0, 1, 2]})
    steps(one)
    beat(one, 1, {T: [0, 1]})
    revoking = one.next_step()
    assert revoking is not None
    one.heartbeat()
    one.refused(ErrorCode.FENCED_MEMBER_EPOCH)
    beat(one, 2, {T: [2]})
    one.done(revoking)
    assert steps(one) == [("LOST", {"t-0", "t-1"}), ("ASSIGN", {"t-2"})]
    beat(one, 2, {T: [2, 3]})
    assigning = one.next_step()
    assert assigning is not None
    one.heartbeat()
    one.refused(ErrorCode.UNKNOWN_MEMBER_ID)
    one.done(assigning)
    assert steps(one) == [("LOST", {"t-2", "t-3"})]


@pytest.mark.parametrize(
    ("code", "is_cured", "keeps"),
    [
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, True, True),
        (ErrorCode.NOT_COORDINATOR, True, True),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, False, True),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, False, False),
        (ErrorCode.FENCED_INSTANCE_ID, False, False),
        (ErrorCode.UNSUPPORTED_ASSIGNOR, False, False),
    ],
)
def test_which_refusals_are_told_and_which_take_the_share(
    code: ErrorCode, is_cured: bool, keeps: bool
) -> None:
    one = member()
    beat(one, 5, {T: [0]})
    steps(one)
    one.heartbeat()
    assert one.refused(code) is is_cured
    assert one.is_member is keeps
    assert steps(one) == ([] if keeps else [("LOST", {"t-0"})])
    assert owned(one.heartbeat()) == ({T: [0]} if keeps else {})


def test_a_group_of_another_type_is_told_when_joining() -> None:
    one = member()
    one.heartbeat()
    assert not one.refused(ErrorCode.GROUP_ID_NOT_FOUND)


def test_topics_without_a_name_wait_for_it() -> None:
    one = member()
    one.heartbeat()
    one.answered(answer(1, {T: [0], U: [0]}))
    assert one.unknown_ids() == {T, U}
    one.learn({T: "t"})
    assert one.unknown_ids() == {U}
    assert steps(one) == [("ASSIGN", {"t-0"})]
    one.learn({U: "u"})
    assert steps(one) == [("ASSIGN", {"t-0", "u-0"})]


def test_positions_in_a_topic_that_was_made_again_are_not_committed() -> None:
    one = member()
    beat(one, 1, {T: [0, 1], U: [0]})
    steps(one)
    beat(one, 2, {T_AGAIN: [0, 1]})
    assert steps(one) == [
        ("LOST", {"t-0", "t-1"}),
        ("REVOKE", {"u-0"}),
        ("ASSIGN", {"t-0", "t-1"}),
    ]


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, -1), ("a", -2)])
def test_leaving(instance_id: str | None, epoch: int) -> None:
    one = member(instance_id=instance_id)
    assert one.leaving() is None
    one.heartbeat()
    asked = one.leaving()  # the answer may be under way
    assert asked is not None
    assert (asked.member_epoch, asked.instance_id) == (epoch, instance_id)
    one.answered(answer(1, {T: [0]}))
    one.learn(NAMES)
    steps(one)
    one.release()
    assert steps(one) == [("REVOKE", {"t-0"})]
    one.left()
    assert one.leaving() is None
    assert one.heartbeat().member_epoch == 0
    one.answered(answer(1, {T: [0]}))
    assert steps(one) == [("ASSIGN", {"t-0"})]
