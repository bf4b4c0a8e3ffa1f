"""The coordinator over logs in memory, with a flush that can be held and a crash at any step."""

from __future__ import annotations

from typing import Any

import pytest

from broker.groups.coordinator import GroupCoordinator
from broker.groups.offsets.records import CommittedOffset
from broker.groups.offsets.store import OffsetCommit
from broker.transactions.coordinator import TransactionCoordinator
from broker.transactions.state import TxnState
from protocol.error_codes import ErrorCode
from protocol.records.builder import build_batch
from protocol.records.record import Record
from storage.errors import LogOffline
from tests.unit.broker.groups.fakes import FakeLog, World

NONE = ErrorCode.NONE
T0, T1 = ("t", 0), ("t", 1)


class Coordinated:
    """Both coordinators, started, and short words for talking to them."""

    def __init__(self, world: World, **settings: str) -> None:
        self.world = world
        services = world.services(**settings)
        self.groups = GroupCoordinator(services)
        self.txns = TransactionCoordinator(services, self.groups)

    @classmethod
    async def start(cls, world: World | None = None, **settings: str) -> Coordinated:
        self = cls(world or World(t=2, u=1), **settings)
        await self.groups.start()
        await self.txns.start()
        return self

    def init(
        self, name: str = "x", expected: tuple[int, int] | None = None, timeout_ms: int = 60_000
    ) -> Any:
        answers: list[Any] = []
        self.txns.init_producer(
            name,
            timeout_ms=timeout_ms,
            expected=expected,
            answer=lambda error, producer: answers.append(producer if error is NONE else error),
        )
        return answers[0] if answers else None

    def add(self, producer: tuple[int, int], *partitions: tuple[str, int]) -> list[ErrorCode]:
        answers: list[ErrorCode] = []
        self.txns.add_partitions("x", producer, partitions, answers.append)
        return answers

    def end(self, producer: tuple[int, int], *, is_commit: bool = True) -> list[ErrorCode]:
        answers: list[ErrorCode] = []
        self.txns.end("x", producer, is_commit=is_commit, answer=answers.append)
        return answers

    def state(self) -> TxnState:
        found = self.txns.find("x")
        assert found is not None
        return found.state

    def log(self, name: str, partition: int = 0) -> FakeLog:
        return self.world.topics.led_log(name, partition)


async def test_are_ids_and_epochs_given_out() -> None:
    c = await Coordinated.start()
    first = c.init()
    assert first[1] == 0
    assert c.init() == (first[0], 1)
    assert c.init("y")[0] != first[0]
    assert c.txns.allocate_producer_id() not in (first[0], c.init("y")[0])


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
async def test_is_an_impossible_timeout_refused(timeout_ms: int) -> None:
    c = await Coordinated.start()
    assert c.init(timeout_ms=timeout_ms) is ErrorCode.INVALID_TRANSACTION_TIMEOUT


async def test_is_an_unknown_id_refused() -> None:
    c = await Coordinated.start()
    assert c.add((0, 0), T0) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    assert c.end((0, 0)) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    assert c.txns.find("x") is None
    answers: list[ErrorCode] = []
    c.txns.add_partitions("", (0, 0), [T0], answers.append)
    c.txns.end("", (0, 0), is_commit=True, answer=answers.append)
    c.txns.admit("", (0, 0), [T0], answers.append)
    assert answers == [ErrorCode.INVALID_REQUEST] * 3, "no transactional id is empty"


@pytest.mark.parametrize("is_commit", [True, False])
async def test_does_every_partition_get_its_marker(is_commit: bool) -> None:
    c = await Coordinated.start()
    me = c.init()
    assert c.add(me, T0) == [NONE]
    assert c.add(me, T1, T0) == [NONE]
    assert c.end(me, is_commit=is_commit) == [NONE]
    for partition in (0, 1):
        assert c.log("t", partition).markers() == [(*me, is_commit)]
    assert c.log("u").markers() == []
    assert c.state() is (TxnState.COMPLETE_COMMIT if is_commit else TxnState.COMPLETE_ABORT)


async def test_may_the_next_transaction_begin_at_once() -> None:
    c = await Coordinated.start()
    me = c.init()
    for _ in range(3):
        assert c.add(me, T0) == [NONE]
        assert c.end(me) == [NONE]
    assert len(c.log("t").markers()) == 3


async def test_is_nothing_answered_before_it_is_durable() -> None:
    c = await Coordinated.start()
    me = c.init()
    c.world.group_commit.is_holding = True
    added = c.add(me, T0)
    assert added == []
    assert c.txns.append_error("x", me, T0) is ErrorCode.TRANSACTION_ABORTABLE
    c.world.group_commit.flush()
    assert added == [NONE]
    ended = c.end(me)
    steps = 0
    while not ended:
        assert c.add(me, T1) == [ErrorCode.CONCURRENT_TRANSACTIONS]
        c.world.group_commit.flush(1)
        steps += 1
    assert steps == 3, "the decision, the marker, the completion"


async def test_what_hears_the_client_when_the_decision_cannot_be_stored() -> None:
    c = await Coordinated.start()
    me = c.init()
    c.add(me, T0)
    c.world.group_commit.is_holding = True
    ended = c.end(me)
    c.world.group_commit.fail()
    assert ended == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert c.state() is TxnState.ONGOING
    assert c.log("t").markers() == []


async def test_is_a_refused_marker_tried_again() -> None:
    c = await Coordinated.start()
    me = c.init()
    c.add(me, T0, T1)
    c.log("t", 1).error = LogOffline("/d", "gone")
    assert c.end(me) == [NONE], "the decision stands, the client need not wait"
    assert c.state() is TxnState.PREPARE_COMMIT
    assert c.add(me, T0) == [ErrorCode.CONCURRENT_TRANSACTIONS]
    c.txns.tick()
    assert c.state() is TxnState.PREPARE_COMMIT
    c.log("t", 1).error = None
    c.txns.tick()
    assert c.state() is TxnState.COMPLETE_COMMIT
    assert len(c.log("t", 0).markers()) == len(c.log("t", 1).markers()) == 1


async def test_is_a_completion_that_could_not_be_stored_tried_again() -> None:
    c = await Coordinated.start()
    me = c.init()
    c.add(me, T0)
    c.world.group_commit.is_holding = True
    ended = c.end(me)
    c.world.group_commit.flush(2)
    c.world.group_commit.fail()
    assert ended == [NONE]
    assert c.state() is TxnState.PREPARE_COMMIT
    c.world.group_commit.is_holding = False
    c.txns.tick()
    assert c.state() is TxnState.COMPLETE_COMMIT


async def test_does_a_deleted_topic_hold_up_the_end() -> None:
    c = await Coordinated.start()
    me = c.init()
    c.add(me, T0, ("u", 0))
    c.world.topics.delete("u")
    assert c.end(me) == [NONE]
    assert c.log("t").markers() == [(*me, True)]
    c.add(me, T0)
    c.world.topics.delete("t")
    assert c.end(me) == [NONE]
    assert c.state() is TxnState.COMPLETE_COMMIT


async def test_does_a_new_producer_abort_what_the_old_one_left_open() -> None:
    c = await Coordinated.start()
    old = c.init()
    c.add(old, T0)
    assert c.init() is ErrorCode.CONCURRENT_TRANSACTIONS
    assert c.log("t").markers() == [(old[0], old[1] + 1, False)]
    new = c.init()
    assert new == (old[0], old[1] + 2)
    assert c.add(old, T0) == [ErrorCode.PRODUCER_FENCED]
    assert c.end(old) == [ErrorCode.PRODUCER_FENCED]


async def test_is_a_transaction_aborted_when_it_takes_too_long() -> None:
    c = await Coordinated.start()
    me = c.init(timeout_ms=5_000)
    c.add(me, T0)
    c.world.clock.advance(5_000)
    c.txns.tick()
    assert c.state() is TxnState.ONGOING
    c.world.clock.advance(1)
    c.txns.tick()
    assert c.state() is TxnState.COMPLETE_ABORT
    assert c.log("t").markers() == [(me[0], me[1] + 1, False)]
    assert c.end(me) == [ErrorCode.PRODUCER_FENCED]


async def test_does_a_wall_clock_set_ahead_abort_anything() -> None:
    c = await Coordinated.start()
    me = c.init()
    c.add(me, T0)
    c.world.clock.jump_wall(10**12)
    c.txns.tick()
    assert c.state() is TxnState.ONGOING


async def test_is_an_unused_id_forgotten() -> None:
    c = await Coordinated.start(transactional_id_expiration_ms="10000")
    producer_id, _ = c.init()
    assert c.txns.transactional_id_of(producer_id) == "x"
    c.world.clock.advance(3_600_000)
    c.txns.tick()
    assert c.txns.find("x") is None
    assert c.txns.transactional_id_of(producer_id) is None
    assert (await Coordinated.start(c.world)).txns.find("x") is None


async def test_a_producer_id_belongs_to_its_transactional_id_from_its_first_answer_on() -> None:
    c = await Coordinated.start()
    mine, other = c.init()[0], c.init("y")[0]
    assert c.init()[0] == mine
    for txns in (c.txns, (await Coordinated.start(c.world)).txns):
        assert [txns.transactional_id_of(it) for it in (mine, other, 999)] == ["x", "y", None]


# -- what a partition takes (KIP-890) --------------------------------------------------------------


async def test_may_only_the_open_transaction_write() -> None:
    c = await Coordinated.start()
    me = c.init()
    assert c.txns.append_error("x", me, T0) is ErrorCode.TRANSACTION_ABORTABLE
    c.add(me, T0)
    assert c.txns.append_error("x", me, T0) is NONE
    assert c.txns.append_error("x", me, T1) is ErrorCode.TRANSACTION_ABORTABLE
    assert c.txns.append_error("x", (me[0], me[1] - 1), T0) is ErrorCode.PRODUCER_FENCED
    c.end(me)
    assert c.txns.append_error("x", me, T0) is ErrorCode.TRANSACTION_ABORTABLE


async def test_has_a_write_to_wait_while_the_transaction_ends() -> None:
    c = await Coordinated.start()
    me = c.init()
    c.add(me, T0)
    c.log("t").error = LogOffline("/d", "gone")
    c.end(me)
    assert c.state() is TxnState.PREPARE_COMMIT
    assert c.txns.append_error("x", me, T0) is ErrorCode.CONCURRENT_TRANSACTIONS


async def test_may_a_producer_write_under_another_transactional_id() -> None:
    c = await Coordinated.start()
    me = c.init()
    c.add(me, T0)
    c.init("y")
    for name in ("y", "nosuch"):
        assert c.txns.append_error(name, me, T0) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert c.txns.append_error("", me, T0) is ErrorCode.INVALID_REQUEST
    assert c.txns.append_error("x", (4711, 0), T0) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


# -- offsets in transactions -----------------------------------------------------------------------


def _commit_offset(c: Coordinated, producer: tuple[int, int], offset: int) -> None:
    answers: list[ErrorCode] = []
    c.txns.add_group("x", producer, "g", answers.append)
    commit = OffsetCommit(
        group_id="g",
        offsets=[(T0, CommittedOffset(offset, -1, "", 0))],
        producer_id=producer[0],
        producer_epoch=producer[1],
    )
    c.groups.commit(commit, answers.append)
    assert answers == [NONE, NONE]


@pytest.mark.parametrize(("is_commit", "offset"), [(True, 5), (False, None)])
async def test_do_offsets_share_the_fate_of_the_records(
    is_commit: bool, offset: int | None
) -> None:
    c = await Coordinated.start()
    me = c.init()
    c.add(me, T0)
    _commit_offset(c, me, 5)
    assert c.groups.offsets.table.is_unstable("g", T0)
    c.end(me, is_commit=is_commit)
    found = c.groups.offsets.table.of_group("g").get(T0)
    assert (None if found is None else found.offset) == offset
    again = await Coordinated.start(c.world)
    found = again.groups.offsets.table.of_group("g").get(T0)
    assert (None if found is None else found.offset) == offset


# -- crashes ---------------------------------------------------------------------------------------


async def _three_transactions(c: Coordinated) -> list[tuple[str, bool]]:
    """Commit, abort, leave open; the decisions that were answered."""
    answered = []
    me = c.init()
    for name, is_commit in (("first", True), ("second", False)):
        c.add(me, T0, T1)
        _commit_offset(c, me, 1 if is_commit else 2)
        if c.end(me, is_commit=is_commit) == [NONE]:
            answered.append((name, is_commit))
    c.add(me, T0)
    return answered


async def test_is_a_decision_carried_out_after_a_crash_at_any_step() -> None:
    """Replays a whole run with the transaction log cut after each of its records.

    Markers that were written before the crash stay, as on a disk; a restart must bring every
    partition to the same decision, and the one that was prepared, if any, to its end.
    """
    whole = await Coordinated.start()
    await _three_transactions(whole)
    steps = len(whole.log("__transaction_state").batches)
    assert steps == 10
    for kept in range(steps + 1):
        c = await Coordinated.start()
        await _three_transactions(c)
        c.log("__transaction_state").cut(kept)
        for name, partition in (("t", 0), ("t", 1), ("__consumer_offsets", 0)):
            log = c.log(name, partition)
            is_lost = kept < steps and log.markers()
            if is_lost:
                _drop_markers_after(log, decided=_decisions(kept))
        again = await Coordinated.start(c.world)
        found = again.txns.find("x")
        assert found is None or found.state not in (
            TxnState.PREPARE_COMMIT,
            TxnState.PREPARE_ABORT,
        ), kept
        outcomes = [
            [committed for _, _, committed in _distinct(again.log("t", partition).markers())]
            for partition in (0, 1)
        ]
        assert outcomes[0] == outcomes[1] == [True, False][: _decisions(kept)], kept


def _decisions(kept: int) -> int:
    """How many decisions are among so many records: init, (add, add group, prepare, done) x 2."""
    return sum(kept >= prepared for prepared in (4, 8))


def _distinct(markers: list[tuple[int, int, bool]]) -> list[tuple[int, int, bool]]:
    """Markers written again after a restart count once."""
    return list(dict.fromkeys(markers))


def _drop_markers_after(log: FakeLog, decided: int) -> None:
    """A marker is never written before its decision is durable, so those cannot be there."""
    seen = 0
    for index, data in enumerate(list(log.batches)):
        probe = FakeLog("p", 0)
        probe.batches = [data]
        if probe.markers():
            seen += 1
            if seen > decided:
                log.cut(index)
                return


async def test_is_an_open_transaction_still_open_after_a_restart() -> None:
    c = await Coordinated.start()
    me = c.init()
    c.add(me, T0)
    again = await Coordinated.start(c.world)
    assert again.txns.append_error("x", me, T0) is NONE
    assert again.end(me) == [NONE]
    assert again.log("t").markers() == [(*me, True)]


async def test_are_strange_records_in_the_log_skipped() -> None:
    c = await Coordinated.start()
    c.init()
    c.log("__transaction_state").append(
        memoryview(bytearray(build_batch([Record(0, 0, b"\x00\x09", b"v", ())]))), now_ms=0
    )
    again = await Coordinated.start(c.world)
    assert [found.transactional_id for found in again.txns.snapshots()] == ["x"]


# -- transaction version 2 -------------------------------------------------------------------------


async def test_do_those_who_wait_go_on_in_the_order_they_came() -> None:
    c = await Coordinated.start()
    me = c.init()
    c.world.group_commit.is_holding = True
    answers: list[tuple[str, ErrorCode]] = []

    def admit(name: str, *partitions: tuple[str, int]) -> None:
        c.txns.admit("x", me, partitions, lambda error: answers.append((name, error)))

    admit("first", T0)
    admit("second", T0)
    admit("third", T1)
    admit("fourth", T0)
    assert answers == []
    assert c.txns.must_wait("x", me, [T0], joins=True)
    c.world.group_commit.flush(1)
    assert answers == [("first", NONE), ("second", NONE)], "the third has to be stored first"
    assert c.txns.must_wait("x", me, [T0], joins=True), "the fourth is before a new request"
    c.world.group_commit.flush(1)
    assert answers[2:] == [("third", NONE), ("fourth", NONE)]
    assert not c.txns.must_wait("x", me, [T0, T1], joins=True)


async def test_is_no_producer_admitted_when_the_log_refuses() -> None:
    c = await Coordinated.start()
    me = c.init()
    c.world.group_commit.is_holding = True
    answers: list[ErrorCode] = []
    c.txns.admit("x", me, [T0], answers.append)
    c.world.group_commit.fail()
    assert answers == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert c.txns.must_wait("x", me, [T0], joins=True)
    c.world.group_commit.is_holding = False
    c.txns.admit("x", me, [T0], answers.append)
    assert answers[1:] == [NONE]


async def test_is_a_transaction_of_version_2_whole_after_a_crash_at_any_step() -> None:
    """The disk stops after each sync of a run; the producer returns with its last answer."""
    for synced in range(8):
        c = await Coordinated.start()
        me = c.init()
        c.world.group_commit.is_holding = True
        admitted: list[ErrorCode] = []
        ended: list[ErrorCode] = []
        c.txns.admit("x", me, [T0, T1], admitted.append)
        c.world.group_commit.flush(1)
        c.txns.end("x", me, is_commit=True, answer=ended.append, bumps_epoch=True)
        c.world.group_commit.flush(synced)
        c.world.group_commit.held.clear()
        c.world.group_commit.is_holding = False
        again = await Coordinated.start(c.world)
        answers: list[ErrorCode] = []
        again.txns.end("x", me, is_commit=True, answer=answers.append, bumps_epoch=True)
        assert answers == [NONE], synced
        found = again.txns.find("x")
        assert found is not None
        assert found.next_producer == (me[0], me[1] + 1)
        for log in (again.log("t", 0), again.log("t", 1)):
            assert {marker[1:] for marker in log.markers()} == {(me[1] + 1, True)}
        late: list[ErrorCode] = []
        again.txns.end("x", me, is_commit=False, answer=late.append, bumps_epoch=True)
        assert late == [ErrorCode.INVALID_TXN_STATE]
