"""A group changes its protocol, classic or consumer, while its members are at work.

Pure: one group in, the other out, with the assignments of the members. Refuses to know the log and
the waiters (`broker.groups.coordinator`). No partition is lost or assigned twice by it: a member
still holds its assignment afterwards, in a generation that is the new epoch, or the other way
round.

| when                                             | what happens                                  |
|--------------------------------------------------|-----------------------------------------------|
| a consumer member joins a classic group at work  | it becomes a consumer group; old members stay |
| the last consumer member goes                    | it becomes a classic group, which rebalances  |

`group.consumer.migration.policy` allows each direction. An empty group needs no such care.

Differs from Kafka: a group that is upgraded in a rebalance which overtook another one leaves its
members the partitions that they claimed to own; Kafka treats these as free and assigns them to
others meanwhile.

Source: KIP-848 ("Online migration"); Kafka's `ConsumerGroup.fromClassicGroup`,
`ClassicGroup.fromConsumerGroup`, `validateOnlineUpgrade`, observed in 4.3.1.
Read next: `broker.groups.mixed.classic_members`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from broker.groups.classic.group import Group
from broker.groups.classic.roster import Member, Roster
from broker.groups.classic.values import GroupLimits, GroupState
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.values import (
    Change,
    ChangeKind,
    ClassicFacts,
    ConsumerLimits,
    ConsumerMember,
    CurrentAssignment,
    StoredConsumerGroup,
    Subscription,
    Topics,
)
from broker.groups.embedded import parse_assignment, parse_subscription
from broker.groups.mixed.classic_members import as_partitions, encode_for
from protocol.stored.consumer_protocol import CONSUMER_PROTOCOL_TYPE

_UPGRADING: Final = frozenset({"upgrade", "bidirectional"})
_DOWNGRADING: Final = frozenset({"downgrade", "bidirectional"})


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationPolicy:
    """The directions in which groups with members may move."""

    may_upgrade: bool
    may_downgrade: bool

    @classmethod
    def of(cls, word: str) -> MigrationPolicy:
        """Parse the value of `group.consumer.migration.policy`."""
        return cls(may_upgrade=word in _UPGRADING, may_downgrade=word in _DOWNGRADING)


def upgrade_problem(group: Group, policy: MigrationPolicy, size_max: int) -> str | None:
    """Why a classic group cannot become a consumer group, as a sentence; None when it can."""
    head = f"Group {group.group_id} has members of the classic protocol and cannot be upgraded: "
    if not policy.may_upgrade:
        return head + "group.consumer.migration.policy does not allow it."
    if group.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE):
        return head + f"they are of the type {group.protocol_type!r}, not consumers."
    if len(group.roster) > size_max:
        return head + f"it has {len(group.roster)} of them, above group.consumer.max.size."
    for member in group.roster:
        is_readable = parse_assignment(member.assignment) is not None
        if not is_readable or parse_subscription(_metadata(group, member)) is None:
            return head + "their metadata is not that of consumers."
    return None


def to_consumer(
    group: Group, limits: ConsumerLimits, topics: Topics, now_ms: int
) -> tuple[ConsumerGroup, list[Change]]:
    """The consumer group that a classic one becomes, and all records to store for it.

    The classic group is untouched; `upgrade_problem` has found nothing. A partition that two
    members were given, as some assignors do, stays with the first of them. The other one gets
    ILLEGAL_GENERATION and joins again.
    """
    generation = group.generation_id
    stored = StoredConsumerGroup(epoch=generation, assignment_epoch=generation)
    for member in group.roster:
        assigned = as_partitions(_held(group, member), topics)
        stored.subscriptions[member.member_id] = _subscription(group, member)
        stored.targets[member.member_id] = assigned
        stored.current[member.member_id] = CurrentAssignment(
            member_epoch=generation, previous_epoch=generation, assigned=assigned
        )
    made = ConsumerGroup(group.group_id, limits)
    made.restore(stored, now_ms)
    changes = [
        Change(ChangeKind.GROUP_EPOCH, None, generation),
        Change(ChangeKind.ASSIGNMENT_EPOCH, None, generation),
    ]
    for member_id, each in made.members.items():
        changes += (
            Change(ChangeKind.SUBSCRIPTION, member_id, each.subscription),
            Change(ChangeKind.TARGET, member_id, made.targets[member_id]),
            Change(ChangeKind.CURRENT, member_id, each.current),
        )
    return made, changes


def to_classic(group: ConsumerGroup, limits: GroupLimits, topics: Topics, now_ms: int) -> Group:
    """The classic group that a consumer group becomes when its last consumer member has gone.

    Its generation is the epoch that its members have reached, so that they continue in it.
    """
    assert group.is_classic_only, group.group_id
    roster = Roster()
    for member in group.members.values():
        roster.add(_classic_member(member, topics))
    made = Group(group.group_id, limits)
    made.protocol_type = CONSUMER_PROTOCOL_TYPE
    made.protocol_name = roster.select_protocol()
    made.take_over(roster, group.assignment_epoch, now_ms)
    return made


def _metadata(group: Group, member: Member) -> bytes:
    """A member's metadata under the chosen protocol; under its first one before there is one."""
    return member.metadata(group.protocol_name) or member.protocols[0][1]


def _held(group: Group, member: Member) -> frozenset[tuple[str, int]]:
    """The partitions that a member's client may hold.

    The group has cleared its assignment if one rebalance overtook another. A cooperative client
    keeps the partitions that it claimed when it joined, until an answer says otherwise.
    """
    if member.assignment or group.state is GroupState.STABLE:
        return parse_assignment(member.assignment) or frozenset()
    wanted = parse_subscription(_metadata(group, member))
    return frozenset() if wanted is None else wanted.owned


def _subscription(group: Group, member: Member) -> Subscription:
    wanted = parse_subscription(_metadata(group, member))
    assert wanted is not None, member.member_id
    return Subscription(
        instance_id=member.group_instance_id,
        rack_id=wanted.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        names=wanted.topics,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicFacts(
            session_timeout_ms=member.session_timeout_ms, protocols=member.protocols
        ),
    )


def _classic_member(member: ConsumerMember, topics: Topics) -> Member:
    said = member.subscription
    assert said.classic is not None, member.member_id
    return Member(
        member_id=member.member_id,
        group_instance_id=said.instance_id,
        client_id=said.client_id,
        client_host=said.client_host,
        session_timeout_ms=said.classic.session_timeout_ms,
        rebalance_timeout_ms=said.rebalance_timeout_ms,
        protocols=said.classic.protocols,
        assignment=encode_for(member, said.classic.protocols[0][1], topics),
    )
