"""The consumer protocol's state machine: who is given what, when, and who is sent away."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.records import decode_consumer_key, encode_change, take_record
from broker.groups.consumer.subscribed_topics import SubscribedTopics
from broker.groups.consumer.values import (
    NO_PARTITIONS,
    Change,
    ConsumerGroupState,
    ConsumerLimits,
    CurrentAssignment,
    HeartbeatAnswer,
    HeartbeatRequest,
    MemberState,
    Partition,
    Partitions,
    StoredConsumerGroup,
    Subscription,
    TopicImage,
    Topics,
)
from protocol.error_codes import ErrorCode

A = b"a" * 16
LIMITS = ConsumerLimits(session_timeout_ms=1_000, heartbeat_interval_ms=100, size_max=4)


def topics(revision: int = 1, **counts: int) -> Topics:
    return Topics(
        revision=revision,
        by_name={
            name: TopicImage((name.encode() * 16)[:16], count) for name, count in counts.items()
        },
    )


def parts(*indexes: int) -> Partitions:
    return frozenset((A, index) for index in indexes)


class Table:
    """One group, its clock, its topics and its log; members are driven by name."""

    def __init__(self, **counts: int) -> None:
        self.group = ConsumerGroup("g", LIMITS)
        self.topics = topics(**(counts or {"a": 4}))
        self.now_ms = 0
        self.log: dict[bytes, bytes | None] = {}

    def beat(self, member_id: str, epoch: int, **fields: Any) -> HeartbeatAnswer:
        request = HeartbeatRequest(member_id=member_id, member_epoch=epoch, **fields)
        answer = self.group.heartbeat(request, self.topics, self.now_ms)
        self.store(self.group.drain())
        return answer

    def join(self, member_id: str, **fields: Any) -> HeartbeatAnswer:
        given_fields: dict[str, Any] = {
            "subscribed_names": frozenset({"a"}),
            "rebalance_timeout_ms": 500,
            "owned": NO_PARTITIONS,
        }
        return self.beat(member_id, 0, **given_fields | fields)

    def wait(self, delta_ms: int) -> None:
        self.now_ms += delta_ms
        self.group.tick(self.now_ms)
        self.store(self.group.drain())

    def store(self, changes: list[Change]) -> None:
        self.log.update(encode_change("g", change) for change in changes)

    def restart(self) -> None:
        stored = StoredConsumerGroup()
        for key, value in self.log.items():
            about = decode_consumer_key(key)
            if value is not None and about is not None:
                take_record(stored, about, value)
        self.group = ConsumerGroup("g", LIMITS)
        self.group.restore(stored, self.now_ms)


def test_the_first_member_has_everything_with_its_first_answer() -> None:
    table = Table()
    answer = table.join("m1")
    assert (answer.error, answer.member_epoch) == (ErrorCode.NONE, 1)
    assert answer.assigned == parts(0, 1, 2, 3)
    assert answer.heartbeat_interval_ms == 100
    assert table.group.state is ConsumerGroupState.STABLE
    assert table.beat("m1", 1).assigned is None


def test_a_second_member_waits_for_what_the_first_gives_up() -> None:
    table = Table()
    table.join("m1")
    second = table.join("m2")
    assert (second.member_epoch, second.assigned) == (2, NO_PARTITIONS)
    assert table.group.state is ConsumerGroupState.RECONCILING
    answer = table.beat("m1", 1)
    assert answer.member_epoch == 1, "not before it has given up what it must"
    kept = answer.assigned
    assert kept is not None
    assert len(kept) == 2
    assert table.beat("m2", 2).assigned is None, "still owned by m1"
    done = table.beat("m1", 1, owned=kept)
    assert (done.member_epoch, done.assigned) == (2, None)
    assert table.beat("m2", 2).assigned == parts(0, 1, 2, 3) - kept
    assert table.group.state.value == "Stable"


def test_a_member_that_does_not_give_up_in_time_is_out() -> None:
    table = Table()
    table.join("m1")
    table.join("m2")
    table.beat("m1", 1)
    table.wait(500)
    assert list(table.group.members) == ["m2"]
    assert table.beat("m2", 2).assigned == parts(0, 1, 2, 3)
    assert table.beat("m1", 1).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_silence_ends_a_session() -> None:
    table = Table()
    table.join("m1")
    assert table.group.wake_ms == 1_000
    table.wait(999)
    assert "m1" in table.group.members
    table.wait(1)
    assert table.group.state is ConsumerGroupState.EMPTY


def test_who_leaves_frees_its_partitions_at_once() -> None:
    table = Table()
    table.join("m1")
    table.join("m2")
    left = table.beat("m1", -1)
    assert (left.error, left.member_epoch) == (ErrorCode.NONE, -1)
    assert table.beat("m2", 2).assigned == parts(0, 1, 2, 3)


def test_a_topic_that_grows_or_appears_is_noticed_with_the_next_heartbeat() -> None:
    table = Table(a=2)
    table.join("m1", subscribed_names=frozenset({"a", "b"}))
    table.topics = topics(2, a=3)
    assert table.beat("m1", 1).assigned == parts(0, 1, 2)
    table.topics = topics(3, a=3, b=1)
    grown = table.beat("m1", 2)
    assert grown.member_epoch == 3
    assert grown.assigned == parts(0, 1, 2) | {(b"b" * 16, 0)}
    table.topics = topics(4, a=3, b=1, c=9)
    assert table.beat("m1", 3).member_epoch == 3, "no member reads c"


def test_a_topic_made_again_is_another_one() -> None:
    table = Table(a=1)
    table.join("m1")
    table.topics = Topics(revision=2, by_name={"a": TopicImage(b"z" * 16, 1)})
    answer = table.beat("m1", 1, owned=NO_PARTITIONS)
    assert answer.assigned == frozenset({(b"z" * 16, 0)})


def test_a_pattern_is_a_subscription() -> None:
    table = Table(a=1, ab=1, b=1)
    answer = table.join("m1", subscribed_names=None, subscribed_regex="a.*")
    assert answer.assigned == frozenset({(b"a" * 16, 0), (b"ab" * 8, 0)})
    bad = table.join("m2", subscribed_regex="(")
    assert bad.error is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert "m2" not in table.group.members
    unset = table.beat("m1", 1, subscribed_regex="", owned=NO_PARTITIONS)
    assert unset.assigned == NO_PARTITIONS


def test_a_pattern_finds_what_the_client_may_see() -> None:
    table = Table(a=1, ab=1, b=1)
    answer = table.join(
        "m1", subscribed_names=None, subscribed_regex="a.*", sees=lambda name: name == "ab"
    )
    assert answer.assigned == frozenset({(b"ab" * 8, 0)})
    # A named topic is checked by the API's guard, not here.
    named = table.join("m2", subscribed_names=frozenset({"b"}), sees=lambda name: False)
    assert named.assigned == frozenset({(b"b" * 16, 0)})


def test_a_pattern_looked_up_without_a_client_is_looked_up_again_for_one() -> None:
    table = Table(a=1, ab=1)
    table.join("m1", subscribed_names=None, subscribed_regex="a.*", sees=lambda name: name == "a")
    table.restart()
    assert table.group.subscribed_topics(table.topics) == {"a", "ab"}
    table.beat("m1", 1, sees=lambda name: name == "a")
    assert table.group.subscribed_topics(table.topics) == {"a"}


def test_a_pattern_that_a_broker_with_re2_has_kept_means_nothing_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    kept = [Subscription(regex="a[b].*"), Subscription(names=frozenset({"c"}))]
    assert SubscribedTopics().resolve(topics(ab=1, c=1), kept) == {"c"}


def test_the_assignor_that_most_ask_for_is_used() -> None:
    table = Table(a=4)
    assert table.group.assignor == "uniform"
    table.join("m1", server_assignor="range")
    assert table.group.assignor == "range"
    assert table.join("m2", server_assignor="best").error is ErrorCode.UNSUPPORTED_ASSIGNOR


@pytest.mark.parametrize(
    ("epoch", "fields", "error"),
    [
        (1, {}, ErrorCode.NONE),
        (2, {}, ErrorCode.FENCED_MEMBER_EPOCH),
        (0, {}, ErrorCode.NONE),
    ],
)
def test_epochs_that_are_not_the_members_are_fenced(
    epoch: int, fields: dict[str, Any], error: ErrorCode
) -> None:
    table = Table()
    table.join("m1")
    assert table.beat("m1", epoch, **fields).error is error


def test_the_epoch_before_is_taken_from_one_whose_answer_was_lost() -> None:
    table = Table(a=2)
    table.join("m1")
    table.topics = topics(2, a=3)
    assert table.beat("m1", 1).member_epoch == 2
    assert table.beat("m1", 1).error is ErrorCode.FENCED_MEMBER_EPOCH, "owns who knows what"
    assert table.beat("m1", 1, owned=parts(0, 7)).error is ErrorCode.FENCED_MEMBER_EPOCH
    retried = table.beat("m1", 1, owned=parts(0, 1), rebalance_timeout_ms=500)
    assert (retried.member_epoch, retried.assigned) == (2, parts(0, 1, 2))


def test_one_who_joins_again_starts_with_nothing_and_is_given_all() -> None:
    table = Table()
    table.join("m1")
    again = table.join("m1")
    assert (again.member_epoch, again.assigned) == (1, parts(0, 1, 2, 3))


def test_a_full_group_takes_no_member() -> None:
    table = Table()
    for index in range(4):
        assert table.join(f"m{index}").error is ErrorCode.NONE
    assert table.join("m4").error is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_static_member_comes_back_to_its_partitions() -> None:
    table = Table()
    table.join("m1", instance_id="i")
    table.join("m2")
    kept = table.beat("m1", 1, instance_id="i").assigned
    assert kept is not None
    table.beat("m1", 1, instance_id="i", owned=kept)
    assert table.beat("m1", -2, instance_id="i").member_epoch == -2
    table.beat("m2", 2)
    epoch = table.group.epoch
    back = table.join("m3", instance_id="i")
    assert (back.assigned, back.member_epoch) == (kept, epoch)
    assert table.group.epoch == epoch, "no other member moves"
    assert table.beat("m1", 2, instance_id="i").error is ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_does_not_come_back_under_the_id_of_another_member() -> None:
    table = Table()
    table.join("m1", instance_id="i")
    table.join("m2")
    kept = table.beat("m1", 1, instance_id="i").assigned
    table.beat("m1", -2, instance_id="i")
    assert table.join("m2", instance_id="i").error is ErrorCode.INVALID_REQUEST
    assert table.group.members.keys() == {"m1", "m2"}
    assert table.join("m3", instance_id="i").assigned == kept


def test_an_instance_id_in_use_is_not_given_away() -> None:
    table = Table()
    table.join("m1", instance_id="i")
    assert table.join("m2", instance_id="i").error is ErrorCode.UNRELEASED_INSTANCE_ID
    assert table.beat("m2", -1, instance_id="i").error is ErrorCode.FENCED_INSTANCE_ID
    assert table.beat("x", 3, instance_id="other").error is ErrorCode.UNKNOWN_MEMBER_ID
    assert table.join("m1", instance_id="i").error is ErrorCode.NONE


def test_an_absent_static_member_is_out_after_its_session() -> None:
    table = Table()
    table.join("m1", instance_id="i")
    table.beat("m1", -2, instance_id="i")
    table.wait(1_000)
    assert table.group.members == {}
    assert table.join("m2", instance_id="i").assigned == parts(0, 1, 2, 3)


def test_offsets_are_for_members_in_their_epoch() -> None:
    table = Table()
    table.join("m1")
    assert table.group.offset_error("m1", 1) is ErrorCode.NONE
    assert table.group.offset_error("m1", 0) is ErrorCode.STALE_MEMBER_EPOCH
    assert table.group.offset_error("m2", 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_offsets_of_kept_partitions_may_come_in_an_epoch_that_is_over() -> None:
    table = Table()
    table.join("m1")
    table.join("m2")
    kept = table.beat("m1", 1).assigned
    assert kept is not None
    given_up = parts(0, 1, 2, 3) - kept

    def error(epoch: int, *partitions: Partition) -> ErrorCode:
        return table.group.offset_error("m1", epoch, partitions)

    assert error(1, *given_up) is ErrorCode.NONE, "it still has them"
    table.beat("m1", 1, owned=kept)
    table.beat("m2", 2)
    table.restart()
    assert error(2, *given_up) is ErrorCode.NONE, "the present epoch is not looked into"
    assert error(1, *kept) is ErrorCode.NONE
    for epoch, partitions in ((1, given_up), (1, kept | given_up), (0, kept), (3, kept)):
        assert error(epoch, *partitions) is ErrorCode.STALE_MEMBER_EPOCH, (epoch, partitions)
    others = table.group.offset_error("m2", 1, given_up)
    assert others is ErrorCode.STALE_MEMBER_EPOCH, "it was given them in epoch 2"
    assert table.group.offset_error("m1", 1) is ErrorCode.STALE_MEMBER_EPOCH, "a fetch"


def test_a_restart_changes_nothing_for_members_that_go_on() -> None:
    table = Table()
    table.join("m1", instance_id="i")
    table.join("m2")
    table.beat("m1", 1, instance_id="i")
    before = {m.member_id: (m.subscription, m.current) for m in table.group.members.values()}
    table.restart()
    after = {m.member_id: (m.subscription, m.current) for m in table.group.members.values()}
    assert after == before
    epoch = table.group.epoch
    kept = table.group.members["m1"].current.assigned
    assert table.beat("m1", 1, instance_id="i", owned=kept).member_epoch == epoch
    assert table.beat("m2", 2).assigned == parts(0, 1, 2, 3) - kept
    assert table.group.epoch == epoch


def test_topics_that_changed_while_the_broker_was_down_are_noticed() -> None:
    table = Table(a=2)
    table.join("m1")
    table.topics = topics(1, a=3)
    table.restart()
    assert table.beat("m1", 1).assigned == parts(0, 1, 2)


def test_members_that_were_stored_with_the_same_partition_join_again() -> None:
    table = Table()
    table.join("m1")
    stored = StoredConsumerGroup(epoch=1, assignment_epoch=1)
    for member in ("m1", "m2"):
        stored.subscriptions[member] = table.group.members["m1"].subscription
        stored.current[member] = table.group.members["m1"].current
    group = ConsumerGroup("g", LIMITS)
    group.restore(stored, 0)
    assert group.members["m2"].current == CurrentAssignment()


def test_an_empty_group_leaves_no_record_when_it_is_erased() -> None:
    table = Table()
    assert table.group.erase() == []
    table.join("m1")
    table.beat("m1", -1)
    table.store(table.group.erase())
    assert set(table.log.values()) == {None}


def test_a_large_group_computes_its_target_now_and_then() -> None:
    table = Table(a=200)
    table.group = ConsumerGroup("g", ConsumerLimits(heartbeat_interval_ms=5_000))
    for index in range(100):
        answer = table.join(f"m{index}")
    assert (table.group.epoch, table.group.assignment_epoch) == (100, 50)
    assert (answer.member_epoch, answer.assigned) == (50, NO_PARTITIONS)
    assert answer.heartbeat_interval_ms == 500, "it shall come again soon"
    table.now_ms += 100
    answer = table.beat("m99", 50)
    assert (answer.member_epoch, table.group.assignment_epoch) == (100, 100)
    assert {len(target) for target in table.group.targets.values()} == {2}


def test_a_group_is_assigned_once_per_interval() -> None:
    table = Table()
    table.group = ConsumerGroup("g", replace(LIMITS, assignment_interval_ms=1_000))
    assert table.join("m1").assigned == parts(0, 1, 2, 3)
    second = table.join("m2")
    assert (second.member_epoch, second.assigned) == (1, NO_PARTITIONS)
    table.now_ms += 999
    assert table.beat("m2", 1).member_epoch == 1
    table.now_ms += 1
    assert table.beat("m2", 1).member_epoch == 2
    assert table.group.assignment_epoch == 2


class Client:
    """A member as a real client behaves: it gives up what it has to, a heartbeat later."""

    def __init__(self, member_id: str) -> None:
        self.member_id = member_id
        self.epoch = 0
        self.owned = NO_PARTITIONS
        self.is_in = False

    def beat(self, table: Table, names: frozenset[str]) -> None:
        if self.epoch == 0:
            self.owned = NO_PARTITIONS
            answer = table.join(self.member_id, subscribed_names=names)
        else:
            answer = table.beat(
                self.member_id, self.epoch, owned=self.owned, subscribed_names=names
            )
        if answer.error is not ErrorCode.NONE:
            assert answer.error in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)
            self.epoch = 0
            self.owned = NO_PARTITIONS
            return
        self.is_in = True
        self.epoch = answer.member_epoch
        if answer.assigned is not None:
            self.owned = answer.assigned


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_no_member_reads_what_another_still_owns_and_all_is_read_in_the_end(
    data: st.DataObject,
) -> None:
    table = Table(a=3, b=2)
    clients = [Client(f"m{index}") for index in range(3)]
    names = {client.member_id: frozenset("ab") for client in clients}
    for _ in range(data.draw(st.integers(1, 25))):
        client = data.draw(st.sampled_from(clients))
        action = data.draw(st.sampled_from(["beat", "beat", "beat", "leave", "topics", "restart"]))
        if action == "beat":
            names[client.member_id] = frozenset(data.draw(st.sampled_from(["a", "b", "ab"])))
            client.beat(table, names[client.member_id])
        elif action == "leave" and client.epoch > 0:
            table.beat(client.member_id, -1)
            client.epoch, client.owned, client.is_in = 0, NO_PARTITIONS, False
        elif action == "topics":
            count = len(table.topics.by_name["a"][:1]) + data.draw(st.integers(1, 4))
            table.topics = topics(table.topics.revision + 1, a=count, b=2)
        elif action == "restart":
            table.restart()
        owned = [partition for each in clients for partition in each.owned]
        assert len(owned) == len(set(owned))
    members = [client for client in clients if client.is_in]
    for _ in range(8):
        for client in members:
            client.beat(table, names[client.member_id])
    assert table.group.state in (ConsumerGroupState.STABLE, ConsumerGroupState.EMPTY)
    wanted = {
        (image.topic_id, index)
        for client in members
        for name, image in table.topics.by_name.items()
        if name in names[client.member_id]
        for index in range(image.partitions)
    }
    assert {partition for client in members for partition in client.owned} == wanted
    for member in table.group.members.values():
        assert member.current.state is MemberState.STABLE
        assert member.current == replace(
            member.current, assigned=table.group.targets[member.member_id]
        )
