"""What must hold for a group whatever its members do; the dialogues say what it answers.

Hypothesis plays up to six members, some static, who join, sync, beat, leave, repeat themselves on
new connections and fall silent, while the log is slow or fails and the broker restarts.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from broker.groups.classic.group import ClassicGroup
from broker.groups.classic.values import (
    GroupLimits,
    GroupState,
    JoinAnswer,
    JoinRequest,
    Receipt,
    StoreGroup,
    SyncAnswer,
    SyncRequest,
)
from protocol.error_codes import ErrorCode
from protocol.stored.group_log import GroupMetadataValue

NAMES = st.sampled_from("abcdef")
INSTANCES = {"a": "i1", "b": "i2"}


class Client:
    """What one consumer knows of itself."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.instance = INSTANCES.get(name)
        self.member_id = ""
        self.joined: JoinAnswer | None = None


class GroupMachine(RuleBasedStateMachine):
    """The group, its clients, its log, and the books kept about them."""

    def __init__(self) -> None:
        super().__init__()
        self.limits = GroupLimits(initial_rebalance_delay_ms=0, size_max=5)
        self.group = ClassicGroup("g", self.limits)
        self.clients = {name: Client(name) for name in "abcdef"}
        self.ids = itertools.count(1)
        self.now_ms = 0
        self.waiting: set[tuple[str, int]] = set()
        self.waiters = itertools.count()
        self.receipts: list[Receipt] = []
        self.stored: GroupMetadataValue | None = None
        self.generation = 0
        self.owners: dict[int, dict[bytes, str]] = {}

    # -- what happens ------------------------------------------------------------------------------

    @rule(name=NAMES, knows_id=st.booleans(), protocol=st.sampled_from(["x", "y", "xy", "yx"]))
    def join(self, name: str, knows_id: bool, protocol: str) -> None:
        client = self.clients[name]
        request = JoinRequest(
            member_id=client.member_id,
            new_member_id=f"{name}{next(self.ids)}",
            protocol_type="consumer",
            protocols=tuple((each, name.encode()) for each in protocol),
            session_timeout_ms=10_000,
            rebalance_timeout_ms=20_000,
            group_instance_id=client.instance,
            requires_known_member_id=knows_id,
        )
        self._carry_out(self.group.join(request, self._waiter(name), self.now_ms))

    @rule(name=NAMES)
    def sync(self, name: str) -> None:
        joined = self.clients[name].joined
        if joined is None:
            return
        request = SyncRequest(
            member_id=joined.member_id,
            generation_id=joined.generation_id,
            assignments={
                each.member_id: b"%d" % number for number, each in enumerate(joined.members)
            },
        )
        self._carry_out(self.group.sync(request, self._waiter(name), self.now_ms))

    @rule(name=NAMES)
    def beat(self, name: str) -> None:
        client = self.clients[name]
        generation = -1 if client.joined is None else client.joined.generation_id
        self.group.heartbeat(client.member_id, client.instance, generation, self.now_ms)

    @rule(name=NAMES)
    def leave(self, name: str) -> None:
        client = self.clients[name]
        _, actions = self.group.leave(client.member_id, client.instance, self.now_ms)
        client.member_id = ""
        client.joined = None
        self._carry_out(actions)

    @rule(name=NAMES)
    def forget(self, name: str) -> None:
        self.clients[name] = Client(name)

    @rule(ms=st.integers(0, 25_000))
    def wait(self, ms: int) -> None:
        until_ms = self.now_ms + ms
        while self.group.wake_ms is not None and self.group.wake_ms <= until_ms:
            assert self.group.wake_ms >= self.now_ms - 25_000
            self.now_ms = max(self.now_ms, self.group.wake_ms)
            self._carry_out(self.group.tick(self.now_ms))
            assert self.group.wake_ms is None or self.group.wake_ms > self.now_ms
        self.now_ms = until_ms

    @rule(is_good=st.booleans())
    def log_answers(self, is_good: bool) -> None:
        if self.receipts:
            error = ErrorCode.NONE if is_good else ErrorCode.COORDINATOR_NOT_AVAILABLE
            self._carry_out(self.group.stored(self.receipts.pop(0), error, self.now_ms))

    @rule()
    def restart(self) -> None:
        self.receipts.clear()
        self.waiting.clear()
        self.group = ClassicGroup("g", self.limits)
        self.generation = 0
        self.owners.clear()
        if self.stored is not None:
            self.group.restore(self.stored, self.now_ms)
            self.generation = self.stored.generation

    # -- the books ---------------------------------------------------------------------------------

    def _waiter(self, name: str) -> Any:
        waiter = (name, next(self.waiters))
        self.waiting.add(waiter)
        return waiter

    def _carry_out(self, actions: list[Any]) -> None:
        for action in actions:
            if isinstance(action, StoreGroup):
                self.stored = action.snapshot
                if action.receipt is not None:
                    self.receipts.append(action.receipt)
                continue
            assert action.waiter in self.waiting, "answered twice, or never asked"
            self.waiting.remove(action.waiter)
            client = self.clients[action.waiter[0]]
            if isinstance(action.answer, JoinAnswer):
                self._note_join(client, action.answer)
            else:
                self._note_sync(client, action.answer)

    def _note_join(self, client: Client, answer: JoinAnswer) -> None:
        if answer.error is ErrorCode.NONE:
            client.member_id, client.joined = answer.member_id, answer
            ids = [each.member_id for each in answer.members]
            assert len(set(ids)) == len(ids)
            assert not ids or answer.leader_id == answer.member_id
        elif answer.error is ErrorCode.MEMBER_ID_REQUIRED:
            client.member_id = answer.member_id
        elif answer.error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            client.member_id, client.joined = "", None

    def _note_sync(self, client: Client, answer: SyncAnswer) -> None:
        if answer.error is not ErrorCode.NONE or not answer.assignment:
            return
        owners = self.owners.setdefault(self.group.generation_id, {})
        owner = owners.setdefault(answer.assignment, client.name)
        assert owner == client.name, "one owner per assignment and generation"

    # -- what must hold ----------------------------------------------------------------------------

    @invariant()
    def generations_only_grow(self) -> None:
        assert self.group.generation_id >= self.generation
        self.generation = self.group.generation_id

    @invariant()
    def state_and_members_agree(self) -> None:
        group = self.group
        assert (group.state is GroupState.EMPTY) <= (not len(group.members))
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            assert len(group.members)
            assert group.protocol_name is not None
            assert all(member.join_waiter is None for member in group.members)
        if group.state is not GroupState.COMPLETING_REBALANCE:
            assert all(member.sync_waiter is None for member in group.members)

    @invariant()
    def every_member_is_watched(self) -> None:
        """Each member that may fall silent has a deadline; the group wakes by the earliest."""
        due = list(self.group.members.pending.values())
        for member in self.group.members:
            if not member.is_waiting:
                assert member.deadline_ms is not None
            if member.deadline_ms is not None:
                due.append(member.deadline_ms)
        if due:
            assert self.group.wake_ms is not None
            assert self.group.wake_ms <= min(due)

    @invariant()
    def counts_are_right(self) -> None:
        members = self.group.members
        assert members.joining_count == sum(each.join_waiter is not None for each in members)
        static = [each.group_instance_id for each in members if each.group_instance_id is not None]
        assert len(set(static)) == len(static)
        assert all(each not in members.pending for each in (m.member_id for m in members))

    @invariant()
    def a_full_group_has_no_more_members_than_it_may(self) -> None:
        if self.group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            assert len(self.group.members) <= self.limits.size_max


TestGroupWhateverHappens = GroupMachine.TestCase
TestGroupWhateverHappens.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_states_follow_one_another_and_fit_the_members() -> None:
    group = ClassicGroup("g", GroupLimits())
    for state in (GroupState.COMPLETING_REBALANCE, GroupState.EMPTY):
        with pytest.raises(AssertionError, match="g: "):
            group._become(state)
    group._become(GroupState.PREPARING_REBALANCE)
    with pytest.raises(AssertionError, match="g: "):
        group._become(GroupState.COMPLETING_REBALANCE)
    group._become(GroupState.EMPTY)
