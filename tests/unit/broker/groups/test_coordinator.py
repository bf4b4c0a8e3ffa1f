"""The coordinator over logs in memory and frozen time."""

from __future__ import annotations

from typing import Any

from broker.groups.classic.values import (
    GroupState,
    JoinAnswer,
    JoinRequest,
    SyncAnswer,
    SyncRequest,
)
from broker.groups.coordinator import GroupCoordinator
from broker.groups.offsets.records import CommittedOffset
from broker.groups.offsets.store import OffsetCommit
from protocol.error_codes import ErrorCode
from tests.unit.broker.groups.fakes import FakeLog, World

DAY_MS = 86_400_000
SUBSCRIBED_TO_T = bytes.fromhex("0001 00000001 0001 74 ffffffff")


class Coordinated:
    """A started coordinator and short words for talking to it."""

    def __init__(self, world: World, **settings: str) -> None:
        self.world = world
        self.coordinator = GroupCoordinator(world.services(**settings))

    @classmethod
    async def start(cls, world: World | None = None, **settings: str) -> Coordinated:
        self = cls(world or World(t=4, u=1), **settings)
        await self.coordinator.start()
        return self

    def join(self, member_id: str = "", new_id: str = "m1", **fields: Any) -> list[JoinAnswer]:
        facts: dict[str, Any] = {
            "member_id": member_id,
            "new_member_id": new_id,
            "protocol_type": "consumer",
            "protocols": (("range", SUBSCRIBED_TO_T),),
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 60_000,
        }
        answers: list[JoinAnswer] = []
        self.coordinator.join("g", JoinRequest(**(facts | fields)), answers.append)
        return answers

    def sync(self, member_id: str, generation_id: int, **assignments: bytes) -> list[SyncAnswer]:
        answers: list[SyncAnswer] = []
        request = SyncRequest(
            member_id=member_id, generation_id=generation_id, assignments=assignments
        )
        self.coordinator.sync("g", request, answers.append)
        return answers

    def commit(self, offset: int, tp: tuple[str, int] = ("t", 0), **fields: Any) -> list[ErrorCode]:
        answers: list[ErrorCode] = []
        committed = CommittedOffset(offset, -1, "", self.world.clock.wall_ms())
        commit = OffsetCommit(group_id="g", offsets=[(tp, committed)], **fields)
        self.coordinator.commit(commit, answers.append)
        return answers

    def offset(self, tp: tuple[str, int] = ("t", 0)) -> int | None:
        found = self.coordinator.offsets.table.of_group("g").get(tp)
        return None if found is None else found.offset

    def pass_time(self, ms: int, step_ms: int = 600_000) -> None:
        while ms > 0:
            self.world.clock.advance(min(ms, step_ms))
            self.coordinator.tick()
            ms -= step_ms

    @property
    def log(self) -> FakeLog:
        return self.world.topics.led_log("__consumer_offsets", 0)


async def test_is_the_offsets_topic_made_at_first_start() -> None:
    world = World()
    await Coordinated.start(world, offsets_topic_num_partitions="5")
    assert len(world.topics.logs["__consumer_offsets"]) == 5


async def test_is_an_assignment_sent_only_when_durable() -> None:
    g = await Coordinated.start()
    (joined,) = g.join()
    assert joined.generation_id == 1
    g.world.group_commit.is_holding = True
    answers = g.sync("m1", 1, m1=b"x")
    assert answers == []
    g.world.group_commit.flush()
    assert answers[0].assignment == b"x"


async def test_does_a_silent_member_end_by_the_timer() -> None:
    g = await Coordinated.start()
    g.join()
    g.sync("m1", 1)
    g.world.clock.advance(9_999)
    assert g.coordinator.classic_groups["g"].state is GroupState.STABLE
    g.world.clock.advance(1)
    assert len(g.coordinator.classic_groups["g"].members) == 0


async def test_do_heartbeats_keep_a_member_without_new_timers() -> None:
    g = await Coordinated.start()
    g.join()
    g.sync("m1", 1)
    for _ in range(100):
        g.world.clock.advance(3_000)
        assert g.coordinator.heartbeat("g", "m1", None, 1) is ErrorCode.NONE
    g.world.clock.advance(10_000)
    assert g.coordinator.heartbeat("g", "m1", None, 1) is ErrorCode.UNKNOWN_MEMBER_ID


async def test_does_an_earlier_deadline_move_the_timer() -> None:
    g = await Coordinated.start()
    g.join(session_timeout_ms=1_000_000, rebalance_timeout_ms=1_000_000)
    g.sync("m1", 1)
    g.join(new_id="m2", session_timeout_ms=6_000, rebalance_timeout_ms=1_000_000)
    g.join("m1", session_timeout_ms=1_000_000, rebalance_timeout_ms=1_000_000)
    g.sync("m2", 2)
    g.sync("m1", 2)
    g.world.clock.advance(6_000)
    assert [m.member_id for m in g.coordinator.classic_groups["g"].members] == ["m1"]


async def test_does_a_thousand_member_group_need_one_timer() -> None:
    g = await Coordinated.start()
    g.join()
    waiting = [g.join(new_id=f"n{i}") for i in range(999)]
    g.join("m1")
    assert {answers[0].generation_id for answers in waiting} == {2}
    assert len(g.coordinator._timers._heap) < 10


async def test_do_members_go_on_after_a_restart() -> None:
    g = await Coordinated.start()
    g.join()
    g.sync("m1", 1, m1=b"x")
    again = await Coordinated.start(g.world)
    assert again.coordinator.heartbeat("g", "m1", None, 1) is ErrorCode.NONE
    assert again.sync("m1", 1)[0].assignment == b"x"
    g.world.clock.advance(10_000)
    assert again.coordinator.classic_groups["g"].state is GroupState.PREPARING_REBALANCE or not len(
        again.coordinator.classic_groups["g"].members
    )


async def test_does_the_generation_go_on_after_a_restart() -> None:
    g = await Coordinated.start()
    g.join()
    g.sync("m1", 1)
    g.coordinator.leave("g", "m1", None)
    again = await Coordinated.start(g.world)
    assert again.join(new_id="m2")[0].generation_id == 3


async def test_are_requests_for_no_group_refused() -> None:
    g = await Coordinated.start()
    c = g.coordinator
    assert c.heartbeat("g", "m", None, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert c.heartbeat("", "m", None, 1) is ErrorCode.INVALID_GROUP_ID
    assert c.leave("g", "m", None) is ErrorCode.UNKNOWN_MEMBER_ID
    assert g.sync("m", 1)[0].error is ErrorCode.UNKNOWN_MEMBER_ID
    assert g.join("m")[0].error is ErrorCode.UNKNOWN_MEMBER_ID
    assert c.classic_groups == {}
    answers: list[JoinAnswer] = []
    request = JoinRequest(
        member_id="",
        new_member_id="m",
        protocol_type="t",
        protocols=(("p", b""),),
        session_timeout_ms=10_000,
        rebalance_timeout_ms=1,
    )
    c.join("", request, answers.append)
    assert answers[0].error is ErrorCode.INVALID_GROUP_ID


async def test_has_the_group_without_a_name_members_once_it_has_offsets() -> None:
    g = await Coordinated.start()
    c = g.coordinator
    committed = CommittedOffset(7, -1, "", g.world.clock.wall_ms())
    c.commit(OffsetCommit(group_id="", offsets=[(("t", 0), committed)]), lambda _: None)
    assert "" in c.classic_groups
    answers: list[SyncAnswer] = []
    request = SyncRequest(member_id="m", generation_id=1, assignments={})
    c.sync("", request, answers.append)
    assert answers[0].error is ErrorCode.INVALID_GROUP_ID
    assert c.heartbeat("", "m", None, 1) is ErrorCode.INVALID_GROUP_ID
    assert c.leave("", "m", None) is ErrorCode.INVALID_GROUP_ID


async def test_does_a_refused_join_create_a_group() -> None:
    g = await Coordinated.start()
    assert g.join(session_timeout_ms=1)[0].error is ErrorCode.INVALID_SESSION_TIMEOUT
    assert g.coordinator.classic_groups == {}
    g.commit(5)
    g.join(session_timeout_ms=1)
    assert list(g.coordinator.classic_groups) == ["g"]


async def test_is_a_new_member_id_recognisable_and_unique() -> None:
    c = (await Coordinated.start()).coordinator
    first, second = c.new_member_id("app", None), c.new_member_id("app", None)
    assert first.startswith("app-")
    assert first != second
    assert c.new_member_id("app", "host-1").startswith("host-1-")


async def test_are_waiters_released_when_the_broker_stops() -> None:
    g = await Coordinated.start()
    g.join()
    g.sync("m1", 1)
    waiting = g.join(new_id="m2")
    g.coordinator.release_waiters()
    assert waiting[0].error is ErrorCode.NOT_COORDINATOR
    g.coordinator.stop()
    g.world.clock.advance(100_000)


# -- offsets ---------------------------------------------------------------------------------------


async def test_is_a_commit_visible_only_when_durable() -> None:
    g = await Coordinated.start()
    g.world.group_commit.is_holding = True
    answers = g.commit(5)
    assert (answers, g.offset()) == ([], None)
    g.world.group_commit.flush()
    assert (answers, g.offset()) == ([ErrorCode.NONE], 5)


async def test_is_a_failed_commit_not_visible() -> None:
    g = await Coordinated.start()
    g.world.group_commit.is_holding = True
    answers = g.commit(5)
    g.world.group_commit.fail()
    assert answers == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert g.offset() is None
    assert g.coordinator.classic_groups == {}


async def test_are_offsets_there_after_a_restart() -> None:
    g = await Coordinated.start()
    g.commit(5)
    g.commit(6)
    again = await Coordinated.start(g.world)
    assert again.offset() == 6
    assert again.coordinator.classic_groups["g"].state is GroupState.EMPTY


async def test_who_may_commit_to_an_unknown_group() -> None:
    c = (await Coordinated.start()).coordinator
    assert c.commit_error("g", "", None, -1) is ErrorCode.NONE
    assert c.commit_error("g", "m", None, 3) is ErrorCode.ILLEGAL_GENERATION


async def test_do_transactional_offsets_wait_for_their_marker() -> None:
    g = await Coordinated.start()
    g.commit(5, producer_id=7, producer_epoch=0)
    assert g.offset() is None
    _, partition = g.coordinator.offsets_partition("g")
    g.coordinator.transaction_ended(7, partition + 1, is_commit=True)
    assert g.offset() is None, "that marker is another partition's"
    g.coordinator.transaction_ended(7, partition, is_commit=True)
    assert g.offset() == 5


async def test_is_an_empty_commit_answered() -> None:
    g = await Coordinated.start()
    answers: list[ErrorCode] = []
    g.coordinator.commit(OffsetCommit(group_id="g", offsets=[]), answers.append)
    assert answers == [ErrorCode.NONE]


async def test_are_offsets_of_a_deleted_topic_forgotten() -> None:
    g = await Coordinated.start()
    g.commit(5)
    g.commit(6, ("u", 0))
    g.world.topics.delete("t")
    assert (g.offset(), g.offset(("u", 0))) == (None, 6)
    assert (await Coordinated.start(g.world)).offset() is None


async def test_are_offsets_of_a_deleted_topic_forgotten_group_by_group() -> None:
    g = await Coordinated.start()
    committed = CommittedOffset(5, -1, "", 0)
    names = [f"g{number}" for number in range(3)]
    for name in names:
        commit = OffsetCommit(group_id=name, offsets=[(("t", 0), committed)])
        g.coordinator.commit(commit, lambda _: None)
    table = g.coordinator.offsets.table
    steps = g.coordinator.cleanup.topic_deleted("t")
    left = [sum(table.has_offsets(name) for name in names) for _ in steps]
    assert left == [2, 1, 0]


async def test_may_offsets_of_a_subscribed_topic_be_deleted() -> None:
    g = await Coordinated.start()
    g.commit(5)
    g.commit(6, ("u", 0))
    g.join()
    g.sync("m1", 1)
    outcome: list[tuple[ErrorCode, frozenset[tuple[str, int]]]] = []
    g.coordinator.cleanup.delete_offsets("g", [("t", 0), ("u", 0)], lambda *a: outcome.append(a))
    assert outcome == [(ErrorCode.NONE, frozenset({("t", 0)}))]
    assert (g.offset(), g.offset(("u", 0))) == (5, None)


async def test_may_offsets_of_a_busy_group_of_another_type_be_deleted() -> None:
    g = await Coordinated.start()
    g.join(protocol_type="connect")
    outcome: list[ErrorCode] = []
    g.coordinator.cleanup.delete_offsets("g", [("t", 0)], lambda error, _: outcome.append(error))
    assert outcome == [ErrorCode.NON_EMPTY_GROUP]


async def test_may_offsets_without_a_group_be_deleted() -> None:
    outcome: list[ErrorCode] = []
    g = await Coordinated.start()
    g.coordinator.cleanup.delete_offsets("g", [("t", 0)], lambda error, _: outcome.append(error))
    assert outcome == [ErrorCode.GROUP_ID_NOT_FOUND]


# -- deleting groups -------------------------------------------------------------------------------


async def _delete(g: Coordinated) -> ErrorCode:
    outcome: list[ErrorCode] = []
    g.coordinator.cleanup.delete_group("g", outcome.append)
    return outcome[0]


async def test_is_a_deleted_group_gone_for_good() -> None:
    g = await Coordinated.start()
    g.join()
    g.sync("m1", 1)
    g.commit(5)
    assert await _delete(g) is ErrorCode.NON_EMPTY_GROUP
    g.coordinator.leave("g", "m1", None)
    assert await _delete(g) is ErrorCode.NONE
    assert g.coordinator.classic_groups == {}
    again = await Coordinated.start(g.world)
    assert again.coordinator.classic_groups == {}
    assert await _delete(again) is ErrorCode.GROUP_ID_NOT_FOUND


async def test_is_a_group_deleted_with_its_offsets_in_open_transactions() -> None:
    g = await Coordinated.start()
    g.commit(5, producer_id=7, producer_epoch=0)
    assert await _delete(g) is ErrorCode.NONE
    assert g.coordinator.classic_groups == {}
    _, partition = g.coordinator.offsets_partition("g")
    g.coordinator.transaction_ended(7, partition, is_commit=True)
    assert g.offset() is None


async def test_does_a_group_expire_that_an_open_transaction_commits_for() -> None:
    g = await Coordinated.start()
    g.commit(5)
    g.commit(6, ("u", 0), producer_id=7, producer_epoch=0)
    g.coordinator.cleanup.expire(10**15)
    assert set(g.coordinator.classic_groups) == {"g"}
    assert g.offset() is None


async def test_does_a_deleted_topic_come_back_with_the_commit_of_a_transaction() -> None:
    g = await Coordinated.start()
    g.commit(5, producer_id=7, producer_epoch=0)
    g.world.topics.delete("t")
    _, partition = g.coordinator.offsets_partition("g")
    g.coordinator.transaction_ended(7, partition, is_commit=True)
    assert g.offset() is None


async def test_does_a_group_survive_that_comes_to_life_while_it_is_deleted() -> None:
    g = await Coordinated.start()
    g.commit(5)
    g.world.group_commit.is_holding = True
    outcome: list[ErrorCode] = []
    g.coordinator.cleanup.delete_group("g", outcome.append)
    g.join()
    g.world.group_commit.flush()
    assert g.offset() is None
    assert g.coordinator.classic_groups["g"].state is GroupState.COMPLETING_REBALANCE


# -- retention -------------------------------------------------------------------------------------


async def test_do_offsets_outlive_their_group_by_the_retention() -> None:
    g = await Coordinated.start()
    g.join()
    g.sync("m1", 1)
    g.commit(5)
    g.coordinator.leave("g", "m1", None)
    g.pass_time(7 * DAY_MS - 1)
    assert g.offset() == 5
    g.pass_time(600_000)
    assert g.offset() is None
    assert g.coordinator.classic_groups == {}
    assert (await Coordinated.start(g.world)).coordinator.classic_groups == {}


async def test_do_offsets_in_use_never_expire() -> None:
    g = await Coordinated.start()
    g.join(session_timeout_ms=1_800_000)
    g.sync("m1", 1)
    g.commit(5)
    g.commit(6, ("u", 0))
    for _ in range(8 * 48):
        g.pass_time(1_800_000 - 1)
        assert g.coordinator.heartbeat("g", "m1", None, 1) is ErrorCode.NONE
    assert g.offset() == 5
    assert g.offset(("u", 0)) is None, "no member reads that topic any more"


async def test_does_a_simple_consumer_keep_its_offsets_for_the_retention() -> None:
    g = await Coordinated.start()
    g.commit(5)
    g.pass_time(6 * DAY_MS)
    g.commit(6)
    g.pass_time(6 * DAY_MS)
    assert g.offset() == 6
    g.pass_time(DAY_MS + 600_000)
    assert g.offset() is None


async def test_does_a_wall_clock_set_ahead_expire_anything() -> None:
    g = await Coordinated.start()
    g.commit(5)
    g.world.clock.jump_wall(3650 * DAY_MS)
    g.coordinator.tick()
    g.pass_time(599_999)
    g.world.clock.jump_wall(-3650 * DAY_MS)
    g.pass_time(1_200_000)
    assert g.offset() == 5


async def test_do_offsets_expire_after_a_clock_that_started_behind_was_corrected() -> None:
    g = await Coordinated.start()
    g.world.clock.jump_wall(400 * DAY_MS)
    g.commit(5)
    g.pass_time(7 * DAY_MS - 600_000)
    assert g.offset() == 5
    g.pass_time(1_800_000)
    assert g.offset() is None


async def test_is_an_empty_group_without_offsets_cleaned_up() -> None:
    g = await Coordinated.start()
    g.join(requires_known_member_id=True)
    g.world.clock.advance(10_000)
    assert "g" in g.coordinator.classic_groups
    g.pass_time(1_200_000)
    assert g.coordinator.classic_groups == {}
