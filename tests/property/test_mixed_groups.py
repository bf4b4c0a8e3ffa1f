"""Members of both protocols come, go, die and restart in one group: no partition has two owners.

The members are models of clients: what they own changes when their client would let their
application know. Eager ones give everything up before they join again, cooperative ones what they
are not given any more, those of the consumer protocol what answers take from them. In the end, when
no member comes or goes, every partition has an owner. `MIXED_GROUP_SEEDS=1000` lives more lives.
"""

from __future__ import annotations

import asyncio
import os
import random
from typing import Any

import pytest

from broker.groups.classic.subscription import parse_assignment, parse_subscription
from broker.groups.classic.values import (
    JoinAnswer,
    JoinedMember,
    JoinRequest,
    SyncAnswer,
    SyncRequest,
)
from broker.groups.consumer.values import JOIN_EPOCH, LEAVE_EPOCH, HeartbeatAnswer, HeartbeatRequest
from broker.groups.coordinator import GroupCoordinator
from client.assignors import Subscription
from client.subscription import encode_subscription
from client.types import TopicPartition
from protocol.error_codes import ErrorCode
from protocol.stored.consumer_protocol import encode_assignment
from tests.unit.broker.groups.fakes import World, topic_id

PARTITIONS = 5
SESSION_MS = 5_000
CALM_ROUNDS = 40
STEPS = 40
CLIENTS_MAX = 4
SEEDS = int(os.environ.get("MIXED_GROUP_SEEDS", "40"))


class Client:
    """What all members have: a place in the group's life, and what they own."""

    def __init__(self, group: Group, name: str) -> None:
        self.group = group
        self.name = name
        self.owned: frozenset[int] = frozenset()

    def speak(self) -> None:
        """Send the next request, unless an answer is still out."""
        raise NotImplementedError

    def leave(self) -> None:
        """Go, having given everything up."""
        raise NotImplementedError


class NewClient(Client):
    """A member of the consumer protocol."""

    epoch = JOIN_EPOCH

    def speak(self) -> None:
        is_joining = self.epoch == JOIN_EPOCH
        self._send(
            self.epoch,
            rebalance_timeout_ms=60_000 if is_joining else None,
            subscribed_names=frozenset("t") if is_joining else None,
            owned=frozenset((topic_id("t"), index) for index in self.owned),
        )

    def leave(self) -> None:
        self.owned = frozenset()
        self._send(LEAVE_EPOCH)

    def _send(self, epoch: int, **fields: Any) -> None:
        request = HeartbeatRequest(member_id=self.name, member_epoch=epoch, **fields)
        self.group.coordinator.consumer_heartbeat("g", request, self._take)

    def _take(self, answer: HeartbeatAnswer) -> None:
        if answer.error is not ErrorCode.NONE:
            self.epoch, self.owned = JOIN_EPOCH, frozenset()
            return
        self.epoch = answer.member_epoch
        if answer.assigned is not None:
            self.owned = frozenset(index for _, index in answer.assigned)


class OldClient(Client):
    """A member of the classic protocol; `is_cooperative` keeps what it has while it joins."""

    def __init__(self, group: Group, name: str, *, is_cooperative: bool) -> None:
        super().__init__(group, name)
        self._is_cooperative = is_cooperative
        self._member_id = ""
        self._generation = -1
        self._is_waiting = False
        self._must_join = True
        self._sync: SyncRequest | None = None

    def speak(self) -> None:
        if self._is_waiting:
            return
        if self._must_join:
            self._join()
            return
        if self._sync is not None:
            request, self._sync = self._sync, None
            self._is_waiting = True
            self.group.coordinator.sync("g", request, self._synced)
            return
        error = self.group.coordinator.heartbeat("g", self._member_id, None, self._generation)
        if error is ErrorCode.REBALANCE_IN_PROGRESS:
            self._must_join = True
        elif error is not ErrorCode.NONE:
            self._lose()

    def leave(self) -> None:
        self.owned = frozenset()
        self.group.coordinator.leave("g", self._member_id, None)

    def _lose(self) -> None:
        self.owned = frozenset()
        self._member_id, self._must_join = "", True

    def _join(self) -> None:
        if not self._is_cooperative:
            self.owned = frozenset()
        metadata = encode_subscription(
            Subscription(
                topics=("t",),
                owned=tuple(TopicPartition("t", index) for index in sorted(self.owned)),
                generation=self._generation,
                instance_id=None,
            )
        )
        self._is_waiting, self._must_join = True, False
        request = JoinRequest(
            member_id=self._member_id,
            new_member_id=f"{self.name}-{self.group.next_number()}",
            protocol_type="consumer",
            protocols=(("any", metadata),),
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
        )
        self.group.coordinator.join("g", request, self._joined)

    def _joined(self, answer: JoinAnswer) -> None:
        self._is_waiting = False
        if answer.error is ErrorCode.REBALANCE_IN_PROGRESS:
            self._member_id, self._must_join = answer.member_id, True
            return
        if answer.error is not ErrorCode.NONE:
            self._lose()
            return
        self._member_id, self._generation = answer.member_id, answer.generation_id
        is_leader = answer.leader_id == answer.member_id
        assignments = _lead(answer.members) if is_leader else {}
        self._sync = SyncRequest(
            member_id=self._member_id, generation_id=self._generation, assignments=assignments
        )

    def _synced(self, answer: SyncAnswer) -> None:
        self._is_waiting = False
        if answer.error is ErrorCode.REBALANCE_IN_PROGRESS:
            self._must_join = True
            return
        if answer.error is not ErrorCode.NONE:
            self._lose()
            return
        given_now = parse_assignment(answer.assignment) or frozenset()
        assigned = frozenset(index for _, index in given_now)
        self._must_join = self._is_cooperative and bool(self.owned - assigned)
        self.owned = assigned


def _lead(members: tuple[JoinedMember, ...]) -> dict[str, bytes]:
    """A leader's choice: a fair share for each, but for what others have to give up first."""
    owner_of: dict[int, str] = {}
    for member in members:
        subscription = parse_subscription(member.metadata)
        assert subscription is not None
        owner_of |= {index: member.member_id for _, index in subscription.owned}
    return {
        member.member_id: encode_assignment(
            {
                "t": [
                    index
                    for index in range(place, PARTITIONS, len(members))
                    if owner_of.get(index, member.member_id) == member.member_id
                ]
            },
            1,
        )
        for place, member in enumerate(members)
    }


class Group:
    """The coordinator, its clients, and the two things that must hold."""

    def __init__(self) -> None:
        self.world = World(t=PARTITIONS)
        self.clients: list[Client] = []
        self._number = 0
        self.coordinator = self._start()

    def _start(self) -> GroupCoordinator:
        timeout = str(SESSION_MS)
        services = self.world.services(
            group_consumer_min_session_timeout_ms=timeout,
            group_consumer_session_timeout_ms=timeout,
            group_consumer_min_heartbeat_interval_ms="1000",
            group_consumer_heartbeat_interval_ms="1000",
        )
        coordinator = GroupCoordinator(services)
        asyncio.run(coordinator.start())
        return coordinator

    def next_number(self) -> int:
        self._number += 1
        return self._number

    def come(self, kind: str) -> None:
        name = f"{kind}{self.next_number()}"
        if kind == "new":
            self.clients.append(NewClient(self, name))
        else:
            self.clients.append(OldClient(self, name, is_cooperative=kind == "cooperative"))

    def speak(self, which: int) -> None:
        if self.clients:
            self.clients[which % len(self.clients)].speak()

    def go(self, which: int) -> None:
        if self.clients:
            self.clients.pop(which % len(self.clients)).leave()

    def die(self, which: int) -> None:
        """One is silent from now on; the others go on until its session is over."""
        if self.clients:
            self.clients.pop(which % len(self.clients))
        self.calm_down(15_000 // 1_000)

    def restart(self) -> None:
        waiting = any(isinstance(each, OldClient) and each._is_waiting for each in self.clients)
        if not waiting:  # what a lost connection does to a waiting client is not modelled
            self.coordinator.stop()
            self.coordinator = self._start()

    def calm_down(self, rounds: int) -> None:
        for _ in range(rounds):
            for client in list(self.clients):
                client.speak()
                self.check()
            self.world.clock.advance(1_000)

    def check(self) -> None:
        owned = [index for client in self.clients for index in client.owned]
        assert len(owned) == len(set(owned)), [(c.name, sorted(c.owned)) for c in self.clients]


def _live(group: Group, fate: random.Random) -> None:
    """Whatever may happen to a group, each step followed by a look at who owns what."""
    for _ in range(STEPS):
        [step] = fate.choices(["come", "speak", "go", "die", "restart"], [4, 10, 2, 1, 1])
        which = fate.randrange(10)
        if step == "come" and len(group.clients) < CLIENTS_MAX:
            group.come(fate.choice(["new", "new", "eager", "cooperative"]))
        elif step == "speak":
            group.calm_down(fate.randrange(1, 4))
            group.speak(which)
        elif step == "go":
            group.go(which)
        elif step == "die":
            group.die(which)
        elif step == "restart":
            group.restart()
        group.check()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_partition_has_one_owner(seed: int) -> None:
    group = Group()
    _live(group, random.Random(seed))
    group.calm_down(CALM_ROUNDS)
    owned = sorted(index for client in group.clients for index in client.owned)
    assert owned == (list(range(PARTITIONS)) if group.clients else [])


@pytest.mark.parametrize("kind", ["eager", "cooperative"])
def test_a_restart_amid_a_downgrade_leaves_no_partition_without_a_reader(kind: str) -> None:
    group = Group()
    group.come("new")
    group.calm_down(3)
    group.come(kind)
    group.calm_down(10)
    owned = {partition for client in group.clients for partition in client.owned}
    group.go(0)
    group.restart()
    group.calm_down(60)
    (left,) = group.clients
    assert set(left.owned) == owned
