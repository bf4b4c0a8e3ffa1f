"""The members of a classic group: static ids, pending ids, the leader and the protocol vote.

Owns the facts about members and keeps them consistent with each other. Refuses to know states,
generations and the meaning of timers (`broker.groups.classic.group` does). Invariants, checked
after each change: there is a leader whenever there are members, and it is one of them; every static
id maps to a member that carries it; an id is pending or a member, never both.

Source: KIP-345 for static ids, KIP-394 for pending ids; Kafka's `ClassicGroup`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from broker.groups.classic.values import JoinRequest, Protocols, Waiter
from broker.groups.deadlines import is_due
from protocol.error_codes import ErrorCode
from protocol.stored.group_log import GroupMetadataMember, GroupMetadataValue
from values.dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class ClassicMember:
    """One member. `deadline_ms` is when its silence ends it (monotonic), None while it waits."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    join_waiter: Waiter | None = None
    sync_waiter: Waiter | None = None
    deadline_ms: int | None = None
    is_new: bool = False

    @property
    def is_waiting(self) -> bool:
        """Whether the broker owes this member an answer, so that it cannot send heartbeats."""
        return self.join_waiter is not None or self.sync_waiter is not None

    def metadata(self, protocol_name: str | None) -> bytes:
        """The member's metadata for this protocol; empty when it did not name the protocol."""
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        return b""

    def snapshot(self, protocol_name: str | None) -> GroupMetadataMember:
        """The member as stored, and as described, under the chosen protocol."""
        return GroupMetadataMember(
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout=self.rebalance_timeout_ms,
            session_timeout=self.session_timeout_ms,
            subscription=self.metadata(protocol_name),
            assignment=self.assignment,
        )


def stored_member(stored: GroupMetadataMember, protocol_name: str | None) -> ClassicMember:
    """A member as stored.

    Only the chosen protocol's metadata was stored, so that is the only protocol it supports until
    it joins again.
    """
    return ClassicMember(
        member_id=stored.member_id,
        group_instance_id=stored.group_instance_id,
        client_id=stored.client_id,
        client_host=stored.client_host,
        session_timeout_ms=stored.session_timeout,
        rebalance_timeout_ms=stored.rebalance_timeout,
        protocols=((protocol_name or "", stored.subscription),),
        assignment=stored.assignment,
    )


def joining_member(
    request: JoinRequest, member_id: str, waiter: Waiter, *, deadline_ms: int
) -> ClassicMember:
    """A member as its first JoinGroup describes it, waiting for the next generation."""
    return ClassicMember(
        member_id=member_id,
        group_instance_id=request.group_instance_id,
        client_id=request.client_id,
        client_host=request.client_host,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        protocols=request.protocols,
        join_waiter=waiter,
        deadline_ms=deadline_ms,
        is_new=True,
    )


class Members:
    """The members of one group in order of arrival, and the leader among them.

    Counts of waiting joiners and of protocol support are incremental, so that a thousand members
    joining cost a thousand steps and not a million.
    """

    def __init__(self) -> None:
        self.leader_id: str | None = None
        self.pending: dict[str, int] = {}
        self._members: dict[str, ClassicMember] = {}
        self._static_ids: dict[str, str] = {}
        self._support: Counter[str] = Counter()
        self._joining = 0

    @classmethod
    def restored(cls, snapshot: GroupMetadataValue) -> Members:
        """A snapshot's members and their leader."""
        members = cls()
        for stored in snapshot.members:
            members.add(stored_member(stored, snapshot.protocol))
        if snapshot.leader is not None and snapshot.leader in members:
            members.leader_id = snapshot.leader
        return members

    def __len__(self) -> int:
        """How many members there are."""
        return len(self._members)

    def __iter__(self) -> Iterator[ClassicMember]:
        """The members in order of arrival."""
        return iter(self._members.values())

    def __contains__(self, member_id: str) -> bool:
        """Whether this id belongs to a member; pending ids do not."""
        return member_id in self._members

    def get(self, member_id: str) -> ClassicMember:
        """The member. Raises: KeyError for an unknown id."""
        return self._members[member_id]

    def find(self, member_id: str) -> ClassicMember | None:
        """The member, or None."""
        return self._members.get(member_id)

    def overdue(self, now_ms: int) -> list[ClassicMember]:
        """The members whose deadline has passed."""
        return [member for member in self if is_due(member.deadline_ms, now_ms)]

    def find_static(self, group_instance_id: str) -> str | None:
        """The member id of a group instance id at present, or None."""
        return self._static_ids.get(group_instance_id)

    def identity_error(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """Why this is no member: unknown, or its instance id has another member id now."""
        if group_instance_id is not None:
            known_id = self._static_ids.get(group_instance_id)
            if known_id is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if known_id != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self._members else ErrorCode.UNKNOWN_MEMBER_ID

    @property
    def joining_count(self) -> int:
        """How many members wait for the next generation."""
        return self._joining

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long the most patient member waits for the others."""
        return max((member.rebalance_timeout_ms for member in self), default=0)

    @property
    def has_all_joined(self) -> bool:
        """Whether every member waits and no id that was given out is outstanding."""
        return self._joining == len(self._members) and not self.pending

    def add(self, member: ClassicMember) -> None:
        """Add a member; the first one becomes the leader."""
        assert member.member_id not in self._members, member.member_id
        self.pending.pop(member.member_id, None)
        self._members[member.member_id] = member
        if member.group_instance_id is not None:
            self._static_ids[member.group_instance_id] = member.member_id
        self._count(member.protocols, 1)
        self._joining += member.join_waiter is not None
        if self.leader_id is None:
            self.leader_id = member.member_id
        self._check()

    def remove(self, member_id: str) -> ClassicMember:
        """Remove a member; leadership passes to the member that has been in longest."""
        member = self._members.pop(member_id)
        if member.group_instance_id is not None:
            del self._static_ids[member.group_instance_id]
        self._count(member.protocols, -1)
        self._joining -= member.join_waiter is not None
        if self.leader_id == member_id:
            self.leader_id = next(iter(self._members), None)
        self._check()
        return member

    def rename(self, member_id: str, new_member_id: str) -> ClassicMember:
        """Give a static member its next id; it keeps its leadership and its assignment."""
        member = self._members.pop(member_id)
        assert member.group_instance_id is not None, member_id
        member.member_id = new_member_id
        self._members[new_member_id] = member
        self._static_ids[member.group_instance_id] = new_member_id
        if self.leader_id == member_id:
            self.leader_id = new_member_id
        self._check()
        return member

    def set_protocols(self, member: ClassicMember, protocols: Protocols) -> None:
        """Replace the protocols that a member supports."""
        self._count(member.protocols, -1)
        member.protocols = protocols
        self._count(protocols, 1)

    def set_join_waiter(self, member: ClassicMember, waiter: Waiter | None) -> Waiter | None:
        """Set or clear the waiter of a member's JoinGroup; returns the one it had before."""
        former = member.join_waiter
        member.join_waiter = waiter
        self._joining += (waiter is not None) - (former is not None)
        assert 0 <= self._joining <= len(self._members)
        return former

    def elect_joined_leader(self) -> bool:
        """Make sure that the leader is a waiting member; False when no member waits."""
        leader = self._members.get(self.leader_id or "")
        if leader is not None and leader.join_waiter is not None:
            return True
        for member in self:
            if member.join_waiter is not None:
                self.leader_id = member.member_id
                return True
        return False

    def common_protocols(self) -> set[str]:
        """The protocols that every member supports."""
        size = len(self._members)
        return {name for name, count in self._support.items() if count == size}

    def accepts(self, protocols: Iterable[tuple[str, bytes]]) -> bool:
        """Whether one of these protocols is supported by every member already here."""
        common = self.common_protocols()
        return any(name in common for name, _ in protocols)

    def select_protocol(self) -> str:
        """The protocol with most votes; each member votes for its first common one.

        A tie goes to the leader's preference, so that the choice does not depend on hashing.
        Raises: AssertionError when there is no common protocol (joins are checked before).
        """
        common = self.common_protocols()
        votes: Counter[str] = Counter()
        for member in self:
            votes[next(name for name, _ in member.protocols if name in common)] += 1
        assert votes, "a vote needs members"
        assert self.leader_id is not None
        order = [name for name, _ in self._members[self.leader_id].protocols]
        return max(votes, key=lambda name: (votes[name], -order.index(name)))

    def _count(self, protocols: Protocols, step: int) -> None:
        for name in {name for name, _ in protocols}:
            self._support[name] += step
            if not self._support[name]:
                del self._support[name]

    def _check(self) -> None:
        assert (self.leader_id is None) == (not self._members)
        assert self.leader_id is None or self.leader_id in self._members
        assert len(self._static_ids) <= len(self._members)
