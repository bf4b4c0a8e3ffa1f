"""Runs a dialogue with a group whose members may be of either protocol, written as text.

The coordinator answers, over logs in memory and frozen time, so that a restart reads what was
really stored. A transcript holds blocks as in `tests.transcripts.dialogue`; the last line of a
block is the group itself:

    = consumer STATE EPOCH/ASSIGNMENT-EPOCH [member@epoch STATE partitions -to-give-up >target]
    = classic STATE gen=GENERATION [members]

Commands (times in ms). Partitions are written t0: topic t, partition 0.

    topics  t=4 u=2                          topics made (or grown) from now on; gone: t=0
    setting group.consumer.max.size=2        must come first, if at all
    join    WHO [topics=t,u] [regex=..] [instance=i] [rebalance=1000] [assignor=range]
    beat    WHO epoch=1 [owns=t0,t1] [owns=] [topics=t,u] [instance=i]
    leave   WHO [epoch=-1] [instance=i]
    old-join  WHO [id=WHO] [owns=t0] [topics=t] [protocols=range] [instance=i] [type=consumer]
              [known] [session=10000] [rebalance=1000]
    old-sync  WHO gen=1 [instance=i] [other=t0,t1 ...]     the leader names members' partitions
    old-beat  WHO gen=1 [instance=i]
    old-leave WHO [instance=i]
    commit  WHO epoch=1 [version=8]
    wait    MS
    restart                                  a new coordinator on the same log

An old member's id is its WHO unless `id=` says otherwise; `id=` alone is a first join.
"""

from __future__ import annotations

import asyncio
from typing import Any

from broker.groups.classic.subscription import parse_assignment
from broker.groups.classic.values import (
    GroupState,
    JoinAnswer,
    JoinRequest,
    SyncAnswer,
    SyncRequest,
)
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.values import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    HeartbeatAnswer,
    HeartbeatRequest,
    MemberState,
    Partitions,
)
from broker.groups.coordinator import GroupCoordinator
from client.assignors import Subscription
from client.subscription import encode_subscription
from client.types import TopicPartition
from protocol.error_codes import ErrorCode
from protocol.stored.consumer_protocol import encode_assignment
from tests.unit.broker.groups.fakes import World, topic_id

_SETTINGS = {
    "group.consumer.min.session.timeout.ms": "5000",
    "group.consumer.session.timeout.ms": "5000",
    "group.consumer.min.heartbeat.interval.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "1000",
}


class ConsumerDialogue:
    """A coordinator and one group `g`, its clock and its log, driven by text."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._world = World(t=4)
        self._settings = dict(_SETTINGS)
        self._coordinator = self._start()

    def run(self, command: str) -> list[str]:
        """The answer lines of one command."""
        verb, *words = command.split()
        names = [word for word in words if "=" not in word]
        pairs = (word.partition("=") for word in words if "=" in word)
        self.lines = []
        getattr(self, "_" + verb.replace("-", "_"))(names, {key: text for key, _, text in pairs})
        return [*self.lines, self._describe()]

    def _start(self) -> GroupCoordinator:
        settings = {name.replace(".", "_"): text for name, text in self._settings.items()}
        coordinator = GroupCoordinator(self._world.services(**settings))
        asyncio.run(coordinator.start())
        return coordinator

    # -- the world -----------------------------------------------------------------------------

    def _topics(self, names: list[str], facts: dict[str, str]) -> None:
        for name, count in facts.items():
            if name in self._world.topics.logs:
                self._world.topics.delete(name)
            if int(count):
                self._world.topics.make(name, int(count))

    def _setting(self, names: list[str], facts: dict[str, str]) -> None:
        self._settings |= facts
        self._restart([], {})

    def _restart(self, names: list[str], facts: dict[str, str]) -> None:
        self._coordinator.stop()
        self._coordinator = self._start()

    def _wait(self, names: list[str], facts: dict[str, str]) -> None:
        self._world.clock.advance(int(names[0]))

    # -- members of the consumer protocol ------------------------------------------------------

    def _join(self, names: list[str], facts: dict[str, str]) -> None:
        said = {"topics": "t"} if "regex" not in facts else {}
        self._beat(
            names, {"epoch": str(JOIN_EPOCH), "owns": "", "rebalance": "1000"} | said | facts
        )

    def _leave(self, names: list[str], facts: dict[str, str]) -> None:
        self._beat(names, {"epoch": str(LEAVE_EPOCH)} | facts)

    def _beat(self, names: list[str], facts: dict[str, str]) -> None:
        topics, rebalance = facts.get("topics"), facts.get("rebalance")
        request = HeartbeatRequest(
            member_id=names[0],
            member_epoch=int(facts["epoch"]),
            instance_id=facts.get("instance"),
            rebalance_timeout_ms=None if rebalance is None else int(rebalance),
            subscribed_names=None if topics is None else frozenset(topics.split(",")),
            subscribed_regex=facts.get("regex"),
            server_assignor=facts.get("assignor"),
            owned=_partitions(facts["owns"]) if "owns" in facts else None,
        )

        def answer(reply: HeartbeatAnswer) -> None:
            self.lines.append(f"{names[0]}: {_heartbeat_text(reply)}")

        self._coordinator.consumer_heartbeat("g", request, answer)

    # -- members of the classic protocol -------------------------------------------------------

    def _old_join(self, names: list[str], facts: dict[str, str]) -> None:
        who = names[0]
        owned = [TopicPartition(t, p) for t, p in _pairs(facts.get("owns", ""))]
        metadata = encode_subscription(
            Subscription(
                topics=tuple(facts.get("topics", "t").split(",")),
                owned=tuple(owned),
                generation=-1,
                instance_id=None,
            )
        )
        request = JoinRequest(
            member_id=facts.get("id", ""),
            new_member_id=who,
            protocol_type=facts.get("type", "consumer"),
            protocols=tuple(
                (name, metadata) for name in facts.get("protocols", "range").split(",")
            ),
            session_timeout_ms=int(facts.get("session", "10000")),
            rebalance_timeout_ms=int(facts.get("rebalance", "1000")),
            group_instance_id=facts.get("instance"),
            requires_known_member_id="known" in names,
        )

        def answer(reply: JoinAnswer) -> None:
            self.lines.append(f"{who}: {_join_text(reply)}")

        self._coordinator.join("g", request, answer)

    def _old_sync(self, names: list[str], facts: dict[str, str]) -> None:
        who, plain = names[0], {"gen", "instance", "id"}
        request = SyncRequest(
            member_id=facts.get("id", who),
            generation_id=int(facts["gen"]),
            group_instance_id=facts.get("instance"),
            assignments={
                member: encode_assignment(_by_topic(text), 1)
                for member, text in facts.items()
                if member not in plain
            },
        )

        def answer(reply: SyncAnswer) -> None:
            self.lines.append(f"{who}: {_sync_text(reply)}")

        self._coordinator.sync("g", request, answer)

    def _old_beat(self, names: list[str], facts: dict[str, str]) -> None:
        member_id = facts.get("id", names[0])
        error = self._coordinator.heartbeat(
            "g", member_id, facts.get("instance"), int(facts["gen"])
        )
        self.lines.append(f"{names[0]}: {error.name}")

    def _old_leave(self, names: list[str], facts: dict[str, str]) -> None:
        error = self._coordinator.leave("g", facts.get("id", names[0]), facts.get("instance"))
        self.lines.append(f"{names[0]}: {error.name}")

    def _commit(self, names: list[str], facts: dict[str, str]) -> None:
        partitions = _by_topic(facts.get("of", "t0"))
        error = self._coordinator.commit_error(
            "g",
            names[0] if names else "",
            facts.get("instance"),
            int(facts.get("epoch", "-1")),
            [(topic, index) for topic, indexes in partitions.items() for index in indexes],
            knows_epochs=int(facts.get("version", "9")) >= 9,
        )
        self.lines.append(f"{names[0] if names else 'nobody'}: {error.name}")

    # -- what is seen --------------------------------------------------------------------------

    def _describe(self) -> str:
        consumers = self._coordinator.consumer_groups.get("g")
        classic = self._coordinator.classic_groups.get("g")
        assert consumers is None or classic is None, "a name belongs to one protocol"
        if consumers is not None:
            return _consumer_text(consumers)
        if classic is None:
            return "= no group"
        assert classic.state is not GroupState.DEAD
        members = " ".join(
            f"{m.member_id}{'*' * (m.member_id == classic.members.leader_id)}"
            f"{'?' * m.is_waiting} {_assignment_text(m.assignment)}".rstrip()
            for m in classic.members
        )
        return f"= classic {classic.state.value} gen={classic.generation_id} [{members}]"


def _pairs(text: str) -> list[tuple[str, int]]:
    return [(word[0], int(word[1:])) for word in text.split(",") if word]


def _by_topic(text: str) -> dict[str, list[int]]:
    by_topic: dict[str, list[int]] = {}
    for topic, index in _pairs(text):
        by_topic.setdefault(topic, []).append(index)
    return by_topic


def _partitions(text: str) -> Partitions:
    return frozenset((topic_id(topic), index) for topic, index in _pairs(text))


def _text(partitions: Partitions) -> str:
    return ",".join(f"{chr(each[0])}{index}" for each, index in sorted(partitions)) or "nothing"


def _heartbeat_text(reply: HeartbeatAnswer) -> str:
    if reply.error is not ErrorCode.NONE:
        return reply.error.name
    has = "" if reply.assigned is None else f" has {_text(reply.assigned)}"
    return f"epoch {reply.member_epoch}, again in {reply.heartbeat_interval_ms}{has}"


def _join_text(reply: JoinAnswer) -> str:
    if reply.error is not ErrorCode.NONE:
        return f"{reply.error.name} {reply.member_id}".rstrip()
    leader = reply.leader_id or "nobody"
    return f"joined gen={reply.generation_id} {reply.protocol_name} leader={leader}"


def _sync_text(reply: SyncAnswer) -> str:
    if reply.error is not ErrorCode.NONE:
        return reply.error.name
    return f"has {_assignment_text(reply.assignment) or 'nothing'}"


def _assignment_text(assignment: bytes) -> str:
    found = parse_assignment(assignment)
    return "?" if found is None else ",".join(f"{t}{p}" for t, p in sorted(found))


def _consumer_text(group: ConsumerGroup) -> str:
    members: list[Any] = []
    for member in group.members.values():
        current = member.current
        words = [f"{member.member_id}{'(old)' * member.is_classic}@{current.member_epoch}"]
        if current.state is not MemberState.STABLE:
            words.append(current.state.name)
        words.append(_text(current.assigned))
        if current.pending_revocation:
            words.append(f"-{_text(current.pending_revocation)}")
        target = group.targets.get(member.member_id, frozenset())
        if target != current.assigned:
            words.append(f">{_text(target)}")
        members.append(" ".join(words))
    epochs = f"{group.epoch}/{group.assignment_epoch}"
    return f"= consumer {group.state.value} {epochs} [{'; '.join(members)}]"
