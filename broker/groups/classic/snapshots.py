"""A classic group as a value: stored, described, restored, and sent to its members.

Free functions that read a group, kept apart from `broker.groups.classic.group` so that the state
machine there contains only decisions.

Source: Kafka's `GroupMetadataValue` and `ClassicGroup.currentClassicGroupMembers`; KIP-814.
Read next: `broker.groups.offsets.records` for the bytes.
"""

from __future__ import annotations

from dataclasses import replace

from broker.groups.classic.roster import Member, Roster
from broker.groups.classic.values import (
    NO_LEADER,
    GroupSnapshot,
    JoinAnswer,
    JoinedMember,
    MemberSnapshot,
    SyncAnswer,
)
from broker.groups.classic.view import GroupView
from protocol.error_codes import ErrorCode


def take(group: GroupView, assignments: dict[str, bytes] | None = None) -> GroupSnapshot:
    """The group now, or as it will be under these assignments (absent members get none)."""
    members = tuple(member.snapshot(group.protocol_name) for member in group.roster)
    if assignments is not None:
        members = tuple(
            replace(member, assignment=assignments.get(member.member_id, b"")) for member in members
        )
    return GroupSnapshot(
        group_id=group.group_id,
        protocol_type=group.protocol_type or "",
        generation_id=group.generation_id,
        protocol_name=group.protocol_name,
        leader_id=group.roster.leader_id,
        members=members,
    )


def roster_of(snapshot: GroupSnapshot) -> Roster:
    """A snapshot's members and their leader.

    Only the chosen protocol's metadata was stored, so that is the only protocol the members support
    until they join again.
    """
    roster = Roster()
    for stored in snapshot.members:
        roster.add(_member(stored, snapshot.protocol_name or ""))
    if snapshot.leader_id is not None and snapshot.leader_id in roster:
        roster.leader_id = snapshot.leader_id
    return roster


def _member(stored: MemberSnapshot, protocol_name: str) -> Member:
    return Member(
        member_id=stored.member_id,
        group_instance_id=stored.group_instance_id,
        client_id=stored.client_id,
        client_host=stored.client_host,
        session_timeout_ms=stored.session_timeout_ms,
        rebalance_timeout_ms=stored.rebalance_timeout_ms,
        protocols=((protocol_name, stored.subscription),),
        assignment=stored.assignment,
    )


def join_answer(
    group: GroupView,
    member: Member,
    *,
    leader_id: str | None = None,
    skip_assignment: bool = False,
) -> JoinAnswer:
    """The current generation as sent to one member; only the leader gets the member list.

    `leader_id` names another leader than the real one: for a client before KIP-814 that is the
    only way to make it skip the assignment.
    """
    leader_id = leader_id or group.roster.leader_id or NO_LEADER
    members: tuple[JoinedMember, ...] = ()
    if member.member_id == leader_id:
        members = tuple(
            JoinedMember(
                member_id=each.member_id,
                group_instance_id=each.group_instance_id,
                metadata=each.metadata(group.protocol_name),
            )
            for each in group.roster
        )
    return JoinAnswer(
        error=ErrorCode.NONE,
        member_id=member.member_id,
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader_id=leader_id,
        skip_assignment=skip_assignment,
        members=members,
    )


def sync_answer(group: GroupView, member: Member) -> SyncAnswer:
    """One member's assignment in the current generation."""
    return SyncAnswer(
        error=ErrorCode.NONE,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        assignment=member.assignment,
    )
