"""Consumer-protocol groups and the log: what is answered when, and what a refusal leaves."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import pytest

from broker.groups.classic.values import JoinAnswer, JoinRequest
from broker.groups.consumer.values import NO_PARTITIONS, HeartbeatAnswer, HeartbeatRequest
from broker.groups.coordinator import GroupCoordinator
from broker.groups.offsets.records import CommittedOffset
from broker.groups.offsets.store import OffsetCommit
from protocol.error_codes import ErrorCode
from protocol.records.builder import build_end_txn_marker
from tests.unit.broker.groups.fakes import World, topic_id

TP = ("t", 0)
YEARS_LATER_MS = 10**12


class Coordinated:
    """A coordinator over a world that outlives it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.coordinator = GroupCoordinator(world.services())

    @classmethod
    async def start(cls, world: World | None = None) -> Coordinated:
        self = cls(world or World(t=2))
        await self.coordinator.start()
        return self

    def beat(self, epoch: int, member_id: str = "m", **fields: Any) -> list[HeartbeatAnswer]:
        answers: list[HeartbeatAnswer] = []
        request = HeartbeatRequest(member_id=member_id, member_epoch=epoch, **fields)
        self.coordinator.consumer_heartbeat("g", request, answers.append)
        return answers

    def commit(self, offset: int, **of_transaction: int) -> None:
        committed = CommittedOffset(offset, -1, "", 0)
        commit = OffsetCommit(group_id="g", offsets=[(TP, committed)], **of_transaction)
        answers: list[ErrorCode] = []
        self.coordinator.commit(commit, answers.append)
        assert answers == [ErrorCode.NONE]

    def end_transaction(self, producer_id: int) -> None:
        """Write the marker, as the coordinator of transactions does, and tell of it."""
        name, partition = self.coordinator.offsets_partition("g")
        log = self.world.topics.led_log(name, partition)
        marker = build_end_txn_marker(
            commit=True,
            producer_id=producer_id,
            producer_epoch=0,
            timestamp_ms=0,
            coordinator_epoch=0,
        )
        log.append(memoryview(bytearray(marker)), now_ms=0)
        self.coordinator.transaction_ended(producer_id, partition, is_commit=True)

    def offset(self) -> int | None:
        committed = self.coordinator.offsets.table.of_group("g").get(TP)
        return None if committed is None else committed.offset

    def delete(self) -> list[ErrorCode]:
        answers: list[ErrorCode] = []
        self.coordinator.cleanup.delete_group("g", answers.append)
        return answers

    def join(self, member_id: str = "m") -> list[HeartbeatAnswer]:
        names = frozenset({"t"})
        fields: dict[str, Any] = {"rebalance_timeout_ms": 1_000, "owned": NO_PARTITIONS}
        return self.beat(0, member_id, subscribed_names=names, **fields)


async def test_is_a_join_answered_when_it_is_durable() -> None:
    c = await Coordinated.start()
    c.world.group_commit.is_holding = True
    answers = c.join()
    assert answers == []
    c.world.group_commit.flush()
    (answer,) = answers
    assert answer.assigned == frozenset({(topic_id("t"), 0), (topic_id("t"), 1)})
    c.world.group_commit.is_holding = True
    assert len(c.beat(1)) == 1, "nothing has changed, so there is nothing to wait for"


async def test_is_a_member_sent_away_when_the_log_refuses_and_welcome_again() -> None:
    c = await Coordinated.start()
    c.world.group_commit.is_holding = True
    answers = c.join()
    c.world.group_commit.fail()
    assert [answer.error for answer in answers] == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    c.world.group_commit.is_holding = False
    (again,) = c.join()
    assert (again.error, len(again.assigned or ())) == (ErrorCode.NONE, 2)


async def test_does_a_crash_before_the_sync_leave_no_group() -> None:
    c = await Coordinated.start()
    c.world.group_commit.is_holding = True
    c.join()
    c.world.topics.led_log("__consumer_offsets", 0).cut(0)
    c.world.group_commit.held.clear()
    again = await Coordinated.start(c.world)
    assert again.coordinator.consumer_groups == {}
    assert again.beat(1)[0].error is ErrorCode.UNKNOWN_MEMBER_ID


async def test_does_silence_end_a_session_without_any_request() -> None:
    c = await Coordinated.start()
    c.join()
    c.world.clock.advance(44_999)
    assert c.coordinator.consumer_groups["g"].members
    c.world.clock.advance(1)
    assert not c.coordinator.consumer_groups["g"].members
    again = await Coordinated.start(c.world)
    assert not again.coordinator.consumer_groups["g"].members


async def test_is_an_empty_group_without_offsets_forgotten_in_time() -> None:
    c = await Coordinated.start()
    c.join()
    c.beat(-1)
    c.world.clock.advance(600_000)
    c.coordinator.tick()
    assert c.coordinator.consumer_groups == {}
    again = await Coordinated.start(c.world)
    assert again.coordinator.consumer_groups == {}


async def test_does_a_group_in_use_stay() -> None:
    c = await Coordinated.start()
    c.join()
    for _ in range(20):
        c.world.clock.advance(40_000)
        c.beat(1)
    c.coordinator.tick()
    assert set(c.coordinator.consumer_groups) == {"g"}


async def test_what_a_member_reads_is_known_before_its_first_heartbeat_after_a_restart() -> None:
    c = await Coordinated.start()
    c.join()
    c.commit(5)
    again = await Coordinated.start(c.world)
    outcome: list[tuple[ErrorCode, frozenset[tuple[str, int]]]] = []
    again.coordinator.cleanup.delete_offsets("g", [TP], lambda *given: outcome.append(given))
    assert outcome == [(ErrorCode.NONE, frozenset({TP}))]
    again.coordinator.cleanup.expire(YEARS_LATER_MS)
    assert again.offset() == 5


async def test_asking_what_members_read_hides_no_new_partition_from_them() -> None:
    c = await Coordinated.start()
    c.join()
    c.world.topics.make("t", 3)
    c.coordinator.cleanup.expire(0)
    assert len(c.beat(1)[0].assigned or ()) == 3


async def test_a_pattern_that_only_another_broker_took_may_mean_any_topic() -> None:
    c = await Coordinated.start()
    c.join()
    c.commit(5)
    (member,) = c.coordinator.consumer_groups["g"].members.values()
    member.subscription = replace(member.subscription, names=frozenset(), regex="(")
    c.coordinator.cleanup.expire(YEARS_LATER_MS)
    assert c.offset() == 5


async def test_without_re2_a_pattern_that_was_kept_may_mean_any_topic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    c = await Coordinated.start()
    c.join()
    c.commit(5)
    (member,) = c.coordinator.consumer_groups["g"].members.values()
    monkeypatch.setitem(sys.modules, "re2", None)
    member.subscription = replace(member.subscription, names=frozenset(), regex="t[a-z]{0,7}")
    c.coordinator.cleanup.expire(YEARS_LATER_MS)
    assert c.offset() == 5


async def test_a_group_with_offsets_in_an_open_transaction_does_not_expire() -> None:
    c = await Coordinated.start()
    c.join()
    c.beat(-1)
    c.commit(5, producer_id=7, producer_epoch=0)
    c.coordinator.cleanup.expire(YEARS_LATER_MS)
    assert set(c.coordinator.consumer_groups) == {"g"}
    c.end_transaction(7)
    assert c.offset() == 5
    c.coordinator.cleanup.expire(YEARS_LATER_MS)
    assert (c.offset(), c.coordinator.consumer_groups) == (None, {})


async def test_a_group_is_deleted_with_its_offsets_in_open_transactions() -> None:
    c = await Coordinated.start()
    c.join()
    c.beat(-1)
    c.commit(5, producer_id=7, producer_epoch=0)
    assert c.delete() == [ErrorCode.NONE]
    c.end_transaction(7)
    for each in (c, await Coordinated.start(c.world)):
        assert each.offset() is None
        assert (each.coordinator.consumer_groups, each.coordinator.classic_groups) == ({}, {})


async def test_a_group_whose_deletion_the_log_refuses_is_still_there() -> None:
    c = await Coordinated.start()
    c.join()
    c.commit(5)
    c.beat(-1)
    c.world.group_commit.is_holding = True
    answers = c.delete()
    c.world.group_commit.fail()
    assert answers == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    c.world.group_commit.is_holding = False
    assert c.offset() == 5
    assert c.delete() == [ErrorCode.NONE]
    assert (c.offset(), c.coordinator.consumer_groups) == (None, {})


async def test_a_member_that_joins_while_its_group_is_deleted_stays() -> None:
    c = await Coordinated.start()
    c.join()
    c.beat(-1)
    c.world.group_commit.is_holding = True
    c.delete()
    c.join()
    c.world.group_commit.flush()
    for each in (c, await Coordinated.start(c.world)):
        assert set(each.coordinator.consumer_groups["g"].members) == {"m"}


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"session_timeout_ms": 1}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"member_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
async def test_a_refused_classic_member_leaves_an_empty_group_what_it_is(
    fields: dict[str, Any], error: ErrorCode
) -> None:
    c = await Coordinated.start()
    c.join()
    c.beat(-1)
    epoch = c.coordinator.consumer_groups["g"].epoch
    answers: list[JoinAnswer] = []
    facts: dict[str, Any] = {
        "member_id": "",
        "new_member_id": "m1",
        "protocol_type": "consumer",
        "protocols": (("range", b""),),
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
    }
    c.coordinator.join("g", JoinRequest(**(facts | fields)), answers.append)
    assert [answer.error for answer in answers] == [error]
    for each in (c, await Coordinated.start(c.world)):
        assert each.coordinator.consumer_groups["g"].epoch == epoch
        assert each.coordinator.classic_groups == {}


async def test_is_a_topic_that_grows_noticed() -> None:
    c = await Coordinated.start()
    c.join()
    c.world.topics.make("t", 3)
    assert len(c.beat(1)[0].assigned or ()) == 3
