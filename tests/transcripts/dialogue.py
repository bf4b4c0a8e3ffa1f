"""Runs a consumer-group dialogue written as text and gives back what the group said.

A transcript holds blocks: a `> command`, then every line the group answered with. Lines that
start with `#` and blank lines are prose. The last answer line of a block is the group itself:
`= state generation [members] wakes in N`, the leader marked with `*`, waiting members with `?`.

Commands (times in ms; each defaults to what a plain consumer would send):

    limit   [delay=0] [size=1000]           must come first, if at all
    join    WHO [id=m1] [instance=i] [type=consumer] [protocols=range:a,sticky:b]
            [session=10000] [rebalance=60000] [known] [skipping]
    sync    WHO id=m1 gen=1 [instance=i] [type=t] [protocol=p] [m1=assignment ...]
    beat    id=m1 gen=1 [instance=i]
    leave   id=m1 [instance=i]
    commit  [id=m1] [gen=1] [instance=i] [transactional]
    wait    MS                              let time pass, ticking whenever the group asks to
    hold                                    from now on the log does not answer
    stored | failed                         it answers the oldest write
    restart                                 restore from the last stored snapshot
    kill                                    the group is deleted

WHO names the waiter; ids of new members are m1, m2, ... in order of asking.
"""

from __future__ import annotations

from dataclasses import replace

from broker.groups.classic.group import ClassicGroup
from broker.groups.classic.values import (
    Action,
    Answer,
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

_LIMITS = GroupLimits()


class Dialogue:
    """One group, its clock and its log, driven by text."""

    def __init__(self) -> None:
        self.group = ClassicGroup("g", _LIMITS)
        self.now_ms = 0
        self.lines: list[str] = []
        self._limits = _LIMITS
        self._asked = 0
        self._is_holding = False
        self._held: list[Receipt] = []
        self._snapshot: GroupMetadataValue | None = None

    def run(self, command: str) -> list[str]:
        """The answer lines of one command."""
        verb, *words = command.split()
        self.lines = []
        getattr(self, f"_{verb}")(*_arguments(words))
        return [*self.lines, self._describe()]

    def _limit(self, names: list[str], facts: dict[str, str]) -> None:
        self._limits = replace(
            _LIMITS,
            initial_rebalance_delay_ms=int(facts.get("delay", "0")),
            size_max=int(facts.get("size", "1000")),
        )
        self.group = ClassicGroup("g", self._limits)

    def _join(self, names: list[str], facts: dict[str, str]) -> None:
        self._asked += "id" not in facts
        protocols = facts.get("protocols", "range:" + names[0])
        request = JoinRequest(
            member_id=facts.get("id", ""),
            new_member_id=f"m{self._asked}",
            protocol_type=facts.get("type", "consumer"),
            protocols=tuple(
                (name, metadata.encode())
                for name, _, metadata in (each.partition(":") for each in protocols.split(","))
                if name
            ),
            session_timeout_ms=int(facts.get("session", "10000")),
            rebalance_timeout_ms=int(facts.get("rebalance", "60000")),
            group_instance_id=facts.get("instance"),
            requires_known_member_id="known" in names,
            supports_skipping_assignment="skipping" in names,
        )
        self._carry_out(self.group.join(request, names[0], self.now_ms))

    def _sync(self, names: list[str], facts: dict[str, str]) -> None:
        request = SyncRequest(
            member_id=facts["id"],
            generation_id=int(facts["gen"]),
            group_instance_id=facts.get("instance"),
            protocol_type=facts.get("type"),
            protocol_name=facts.get("protocol"),
            assignments={k: v.encode() for k, v in facts.items() if k.startswith("m")},
        )
        self._carry_out(self.group.sync(request, names[0], self.now_ms))

    def _beat(self, names: list[str], facts: dict[str, str]) -> None:
        error = self.group.heartbeat(
            facts["id"], facts.get("instance"), int(facts["gen"]), self.now_ms
        )
        self.lines.append(error.name)

    def _leave(self, names: list[str], facts: dict[str, str]) -> None:
        error, actions = self.group.leave(facts.get("id", ""), facts.get("instance"), self.now_ms)
        self.lines.append(error.name)
        self._carry_out(actions)

    def _commit(self, names: list[str], facts: dict[str, str]) -> None:
        error = self.group.commit_error(
            facts.get("id", ""),
            facts.get("instance"),
            int(facts.get("gen", "-1")),
            now_ms=self.now_ms,
            is_transactional="transactional" in names,
        )
        self.lines.append(error.name)

    def _wait(self, names: list[str], facts: dict[str, str]) -> None:
        until_ms = self.now_ms + int(names[0])
        while self.group.wake_ms is not None and self.group.wake_ms <= until_ms:
            self.now_ms = self.group.wake_ms
            actions = self.group.tick(self.now_ms)
            if actions:
                self.lines.append(f"at {self.now_ms}:")
            self._carry_out(actions)
        self.now_ms = until_ms

    def _hold(self, names: list[str], facts: dict[str, str]) -> None:
        self._is_holding = True

    def _stored(self, names: list[str], facts: dict[str, str]) -> None:
        self._carry_out(self.group.stored(self._held.pop(0), ErrorCode.NONE, self.now_ms))

    def _failed(self, names: list[str], facts: dict[str, str]) -> None:
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        self._carry_out(self.group.stored(self._held.pop(0), error, self.now_ms))

    def _restart(self, names: list[str], facts: dict[str, str]) -> None:
        self.group = ClassicGroup("g", self._limits)
        if self._snapshot is not None:
            self.group.restore(self._snapshot, self.now_ms)

    def _kill(self, names: list[str], facts: dict[str, str]) -> None:
        self.group.kill()

    def _carry_out(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Answer(answer=JoinAnswer() as joined):
                    self.lines.append(f"{action.waiter}: {_join_text(joined)}")
                case Answer(answer=SyncAnswer() as synced):
                    self.lines.append(f"{action.waiter}: {_sync_text(synced)}")
                case StoreGroup():
                    self._store(action)

    def _store(self, action: StoreGroup) -> None:
        self.lines.append(f"store {_snapshot_text(action.snapshot)}")
        self._snapshot = action.snapshot
        if action.receipt is None:
            return
        if self._is_holding:
            self._held.append(action.receipt)
        else:
            self._carry_out(self.group.stored(action.receipt, ErrorCode.NONE, self.now_ms))

    def _describe(self) -> str:
        group = self.group
        members = " ".join(
            member.member_id
            + "*" * (member.member_id == group.members.leader_id)
            + "?" * member.is_waiting
            for member in group.members
        )
        parts = ["=", group.state.value, f"gen={group.generation_id}", f"[{members}]"]
        if group.members.pending:
            parts.append(f"pending={','.join(group.members.pending)}")
        if group.wake_ms is not None and group.state is not GroupState.DEAD:
            parts.append(f"wakes in {group.wake_ms - self.now_ms}")
        return " ".join(parts)


def _arguments(words: list[str]) -> tuple[list[str], dict[str, str]]:
    names = [word for word in words if "=" not in word]
    pairs = (word.partition("=") for word in words if "=" in word)
    return names, {key: value for key, _, value in pairs}


def _join_text(answer: JoinAnswer) -> str:
    if answer.error is not ErrorCode.NONE:
        return f"{answer.error.name} {answer.member_id}".rstrip()
    members = " ".join(
        f"{m.member_id}:{m.metadata.decode()}"
        + (f"@{m.group_instance_id}" if m.group_instance_id else "")
        for m in answer.members
    )
    skip = " skip" if answer.skip_assignment else ""
    return (
        f"joined as {answer.member_id} gen={answer.generation_id} "
        f"{answer.protocol_type}/{answer.protocol_name} leader={answer.leader_id}{skip} [{members}]"
    )


def _sync_text(answer: SyncAnswer) -> str:
    if answer.error is not ErrorCode.NONE:
        return answer.error.name
    return f"owns {answer.assignment.decode()!r} {answer.protocol_type}/{answer.protocol_name}"


def _snapshot_text(snapshot: GroupMetadataValue) -> str:
    members = " ".join(f"{m.member_id}={m.assignment.decode()}" for m in snapshot.members)
    return f"gen={snapshot.generation} [{members}]"
