"""Consumer-protocol groups and the log: what is answered when, and what a refusal leaves."""

from __future__ import annotations

from typing import Any

from broker.groups.consumer_values import NO_PARTITIONS, HeartbeatAnswer, HeartbeatRequest
from broker.groups.coordinator import GroupCoordinator
from protocol.error_codes import ErrorCode
from tests.unit.broker.groups.fakes import World, topic_id


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

    def join(self, member_id: str = "m") -> list[HeartbeatAnswer]:
        names = frozenset({"t"})
        fields: dict[str, Any] = {"rebalance_timeout_ms": 1_000, "owned": NO_PARTITIONS}
        return self.beat(0, member_id, subscribed_names=names, **fields)


async def test_is_a_join_answered_when_it_is_durable() -> None:
    c = await Coordinated.start()
    c.world.commits.is_holding = True
    answers = c.join()
    assert answers == []
    c.world.commits.flush()
    (answer,) = answers
    assert answer.assigned == frozenset({(topic_id("t"), 0), (topic_id("t"), 1)})
    c.world.commits.is_holding = True
    assert len(c.beat(1)) == 1, "nothing has changed, so there is nothing to wait for"


async def test_is_a_member_sent_away_when_the_log_refuses_and_welcome_again() -> None:
    c = await Coordinated.start()
    c.world.commits.is_holding = True
    answers = c.join()
    c.world.commits.fail()
    assert [answer.error for answer in answers] == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    c.world.commits.is_holding = False
    (again,) = c.join()
    assert (again.error, len(again.assigned or ())) == (ErrorCode.NONE, 2)


async def test_does_a_crash_before_the_sync_leave_no_group() -> None:
    c = await Coordinated.start()
    c.world.commits.is_holding = True
    c.join()
    c.world.topics.led_log("__consumer_offsets", 0).cut(0)
    c.world.commits.held.clear()
    again = await Coordinated.start(c.world)
    assert again.coordinator.consumers.groups == {}
    assert again.beat(1)[0].error is ErrorCode.UNKNOWN_MEMBER_ID


async def test_does_silence_end_a_session_without_any_request() -> None:
    c = await Coordinated.start()
    c.join()
    c.world.clock.advance(44_999)
    assert c.coordinator.consumers.groups["g"].members
    c.world.clock.advance(1)
    assert not c.coordinator.consumers.groups["g"].members
    again = await Coordinated.start(c.world)
    assert not again.coordinator.consumers.groups["g"].members


async def test_is_an_empty_group_without_offsets_forgotten_in_time() -> None:
    c = await Coordinated.start()
    c.join()
    c.beat(-1)
    c.world.clock.advance(600_000)
    c.coordinator.tick()
    assert c.coordinator.consumers.groups == {}
    again = await Coordinated.start(c.world)
    assert again.coordinator.consumers.groups == {}


async def test_does_a_group_in_use_stay() -> None:
    c = await Coordinated.start()
    c.join()
    for _ in range(20):
        c.world.clock.advance(40_000)
        c.beat(1)
    c.coordinator.tick()
    assert set(c.coordinator.consumers.groups) == {"g"}


async def test_is_a_topic_that_grows_noticed() -> None:
    c = await Coordinated.start()
    c.join()
    c.world.topics.make("t", 3)
    assert len(c.beat(1)[0].assigned or ()) == 3
