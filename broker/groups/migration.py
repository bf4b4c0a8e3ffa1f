"""A group changes its protocol, classic or consumer, while its members are at work (KIP-848).

Pure: one group in, the other out, with the assignments of the members. Refuses to know the log and
the waiters (`broker.groups.coordinator`). No partition is lost or assigned twice by it: a member
still holds its assignment afterwards, in a generation that is the new epoch, or the other way
round.

| when                                             | what happens                                  |
|--------------------------------------------------|-----------------------------------------------|
| a consumer member joins a classic group at work  | it becomes a consumer group; old members stay |
| the last consumer member goes                    | it becomes a classic group, which rebalances  |

`group.consumer.migration.policy` allows each direction. An empty group needs no such care.

Meanwhile an old member continues to join, sync and send heartbeats, and is one of the consumer
group's members like the new ones. These are functions over `ConsumerGroup`, which knows nothing of
JoinGroup; the caller drains the changes.

| the old request | its meaning in the new protocol                                             |
|-----------------|-----------------------------------------------------------------------------|
| JoinGroup       | a heartbeat: subscription and owned partitions in; the epoch, as generation |
| SyncGroup       | returns the partitions that the last step has left or given                 |
| Heartbeat       | REBALANCE_IN_PROGRESS whenever joining again would bring the member further |
| LeaveGroup      | leaves, whichever member is named                                           |

There is no leader: the coordinator assigns, so every member is answered as a follower. A member
that must join, or fetch its assignment, has its rebalance timeout to do it.

Differs from Kafka: a group that is upgraded in a rebalance which overtook another one leaves its
members the partitions that they claimed to own; Kafka treats these as free and assigns them to
others meanwhile.

Source: KIP-848 ("Online migration"); Kafka's `ConsumerGroup.fromClassicGroup`,
`ClassicGroup.fromConsumerGroup`, `validateOnlineUpgrade`, `classicGroupJoinToConsumerGroup`,
`classicGroupSyncToConsumerGroup`, `classicGroupHeartbeatToConsumerGroup`, observed in 4.3.1.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from broker.groups.classic.group import ClassicGroup
from broker.groups.classic.members import ClassicMember, Members
from broker.groups.classic.subscription import (
    MemberMetadata,
    parse_assignment,
    parse_subscription,
)
from broker.groups.classic.values import (
    NO_LEADER,
    NO_MEMBER_ID,
    GroupLimits,
    GroupState,
    JoinAnswer,
    JoinRequest,
    SyncAnswer,
    SyncRequest,
)
from broker.groups.consumer.group import ConsumerGroup, check_room, find_known
from broker.groups.consumer.values import (
    Change,
    ChangeKind,
    ClassicFacts,
    ConsumerLimits,
    ConsumerMember,
    CurrentAssignment,
    HeartbeatRefused,
    MemberState,
    Partitions,
    StoredConsumerGroup,
    Subscription,
    Topics,
)
from protocol.error_codes import ErrorCode
from protocol.stored.consumer_protocol import CONSUMER_PROTOCOL_TYPE, encode_assignment
from values.dataclasses import dataclass

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


def upgrade_problem(group: ClassicGroup, policy: MigrationPolicy, size_max: int) -> str | None:
    """Why a classic group cannot become a consumer group, as a sentence; None when it can."""
    head = f"Group {group.group_id} has members of the classic protocol and cannot be upgraded: "
    if not policy.may_upgrade:
        return head + "group.consumer.migration.policy does not allow it."
    if group.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE):
        return head + f"they are of the type {group.protocol_type!r}, not consumers."
    if len(group.members) > size_max:
        return head + f"it has {len(group.members)} of them, above group.consumer.max.size."
    for member in group.members:
        is_readable = parse_assignment(member.assignment) is not None
        if not is_readable or parse_subscription(_metadata(group, member)) is None:
            return head + "their metadata is not that of consumers."
    return None


def to_consumer(
    group: ClassicGroup, limits: ConsumerLimits, topics: Topics, now_ms: int
) -> tuple[ConsumerGroup, list[Change]]:
    """The consumer group that a classic one becomes, and all records to store for it.

    The classic group is untouched; `upgrade_problem` has found nothing. A partition that two
    members were given, as some assignors do, stays with the first of them. The other one gets
    ILLEGAL_GENERATION and joins again.
    """
    generation = group.generation_id
    stored = StoredConsumerGroup(epoch=generation, assignment_epoch=generation)
    for member in group.members:
        assigned = _as_partitions(_held(group, member), topics)
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


def to_classic(
    group: ConsumerGroup, limits: GroupLimits, topics: Topics, now_ms: int
) -> ClassicGroup:
    """The classic group that a consumer group becomes when its last consumer member has gone.

    Its generation is the epoch that its members have reached, so that they continue in it.
    """
    assert group.is_classic_only, group.group_id
    members = Members()
    for member in group.members.values():
        members.add(_classic_member(member, topics))
    made = ClassicGroup(group.group_id, limits)
    made.protocol_type = CONSUMER_PROTOCOL_TYPE
    made.protocol_name = members.select_protocol()
    made.take_over(members, group.assignment_epoch, now_ms)
    return made


def _metadata(group: ClassicGroup, member: ClassicMember) -> bytes:
    """A member's metadata under the chosen protocol; under its first one before there is one."""
    return member.metadata(group.protocol_name) or member.protocols[0][1]


def _held(group: ClassicGroup, member: ClassicMember) -> frozenset[tuple[str, int]]:
    """The partitions that a member's client may hold.

    The group has cleared its assignment if one rebalance overtook another. A cooperative client
    keeps the partitions that it claimed when it joined, until an answer says otherwise.
    """
    if member.assignment or group.state is GroupState.STABLE:
        return parse_assignment(member.assignment) or frozenset()
    wanted = parse_subscription(_metadata(group, member))
    return frozenset() if wanted is None else wanted.owned


def _subscription(group: ClassicGroup, member: ClassicMember) -> Subscription:
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


def _classic_member(member: ConsumerMember, topics: Topics) -> ClassicMember:
    said = member.subscription
    assert said.classic is not None, member.member_id
    return ClassicMember(
        member_id=member.member_id,
        group_instance_id=said.instance_id,
        client_id=said.client_id,
        client_host=said.client_host,
        session_timeout_ms=said.classic.session_timeout_ms,
        rebalance_timeout_ms=said.rebalance_timeout_ms,
        protocols=said.classic.protocols,
        assignment=_encode_for(member, said.classic.protocols[0][1], topics),
    )


# Requests of classic members.


def join(group: ConsumerGroup, request: JoinRequest, topics: Topics, now_ms: int) -> JoinAnswer:
    """Take a JoinGroup; the answer counts once the changes are durable."""
    member_id = request.member_id or request.new_member_id
    wanted = parse_subscription(request.protocols[0][1]) if request.protocols else None
    try:
        _check_protocols(group, request)
        is_nameless = not request.member_id and request.group_instance_id is None
        if is_nameless and request.requires_known_member_id:
            return JoinAnswer(error=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
        if wanted is None:
            raise HeartbeatRefused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "unreadable metadata")
        count_before = len(group.members)
        member = _find_or_join(group, request, member_id)
    except HeartbeatRefused as refusal:
        return JoinAnswer(error=refusal.error, member_id=request.member_id)
    is_new = len(group.members) > count_before
    has_changed = group.set_subscription(member, _said(member.subscription, request, wanted))
    group.advance(
        member,
        owned=_as_partitions(wanted.owned, topics),
        is_changed=has_changed or is_new,
        topics=topics,
        now_ms=now_ms,
    )
    group.limit_rebalance(member, now_ms)
    return JoinAnswer(
        error=ErrorCode.NONE,
        member_id=member.member_id,
        generation_id=member.current.member_epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=request.protocols[0][0],
        leader_id=NO_LEADER,
    )


def sync(group: ConsumerGroup, request: SyncRequest, topics: Topics, now_ms: int) -> SyncAnswer:
    """Take a SyncGroup: the member's partitions, as far as it may have them now."""
    who = (request.member_id, request.group_instance_id, request.generation_id)
    member, error = _identify(group, *who)
    if member is None or error is not ErrorCode.NONE:
        return SyncAnswer(error=error)
    classic = member.subscription.classic
    assert classic is not None
    name, metadata = classic.protocols[0]
    is_other_type = request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE)
    if is_other_type or request.protocol_name not in (None, name):
        return SyncAnswer(error=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    is_behind = member.current.member_epoch < group.assignment_epoch
    if is_behind and member.current.state is not MemberState.UNREVOKED:
        _expect_join(group, member, now_ms)
        return SyncAnswer(error=ErrorCode.REBALANCE_IN_PROGRESS)
    member.rebalance_due_ms = None
    group.expect(member, now_ms)
    return SyncAnswer(
        error=ErrorCode.NONE,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=name,
        assignment=_encode_for(member, metadata, topics),
    )


def heartbeat(
    group: ConsumerGroup,
    member_id: str,
    group_instance_id: str | None,
    generation_id: int,
    *,
    topics: Topics,
    now_ms: int,
) -> ErrorCode:
    """Note that a member is alive; REBALANCE_IN_PROGRESS makes it join again.

    It also computes a target that is due by now: no other member may send a request.
    """
    member, error = _identify(group, member_id, group_instance_id, generation_id)
    if member is None or error is not ErrorCode.NONE:
        return error
    group.expect(member, now_ms)
    group.assign_if_due(topics, now_ms)
    current = member.current
    if (
        current.member_epoch < group.assignment_epoch
        or current.state is MemberState.UNREVOKED
        or (current.state is MemberState.UNRELEASED and not group.is_waiting(member))
    ):
        _expect_join(group, member, now_ms)
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def leave(group: ConsumerGroup, member_id: str, group_instance_id: str | None) -> ErrorCode:
    """Remove a member; a static one may be named by its instance id alone."""
    if member_id == NO_MEMBER_ID and group_instance_id is not None:
        member_id = group.static_ids.get(group_instance_id, NO_MEMBER_ID)
    try:
        group.remove(find_known(group, group_instance_id, member_id))
    except HeartbeatRefused as refusal:
        return refusal.error
    return ErrorCode.NONE


def _as_partitions(named: frozenset[tuple[str, int]], topics: Topics) -> Partitions:
    """The partitions by topic id; topics that do not exist are left out."""
    known = ((topics.find(name), index) for name, index in named)
    return frozenset((image.topic_id, index) for image, index in known if image is not None)


def _encode_for(member: ConsumerMember, metadata: bytes, topics: Topics) -> bytes:
    """A member's assignment, encoded in the version of its own `metadata`."""
    by_topic: dict[str, list[int]] = {}
    held: dict[bytes, list[int]] = {}
    for topic_id, index in member.current.assigned:
        held.setdefault(topic_id, []).append(index)
    for name in member.subscription.names:
        image = topics.find(name)
        if image is not None and image.topic_id in held:
            by_topic[name] = held[image.topic_id]
    subscription = parse_subscription(metadata)
    return encode_assignment(by_topic, 0 if subscription is None else subscription.version)


def _check_protocols(group: ConsumerGroup, request: JoinRequest) -> None:
    """Check that the other classic members share a protocol with this one.

    Raises:
        HeartbeatRefused: they do not.
    """
    names = {name for name, _ in request.protocols}
    for member in group.members.values():
        classic = member.subscription.classic
        if classic is not None and member.member_id != request.member_id:
            names &= {name for name, _ in classic.protocols}
    if request.protocol_type != CONSUMER_PROTOCOL_TYPE or not names:
        raise HeartbeatRefused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "no common protocol")


def _find_or_join(group: ConsumerGroup, request: JoinRequest, member_id: str) -> ConsumerMember:
    instance_id = request.group_instance_id
    known_id = None if instance_id is None else group.static_ids.get(instance_id)
    if known_id is not None and request.member_id == NO_MEMBER_ID:
        return group.take_over(known_id, member_id)
    if known_id is not None or (instance_id is not None and request.member_id):
        return find_known(group, instance_id, member_id)
    member = group.members.get(member_id)
    if member is None:
        check_room(group)
        member = ConsumerMember(
            member_id=member_id,
            subscription=Subscription(instance_id=instance_id),
            current=CurrentAssignment(),
        )
        group.add(member)
    return member


def _said(before: Subscription, request: JoinRequest, wanted: MemberMetadata) -> Subscription:
    return replace(
        before,
        rack_id=wanted.rack_id or before.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        names=wanted.topics,
        regex=None,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        server_assignor=None,
        classic=ClassicFacts(
            session_timeout_ms=request.session_timeout_ms, protocols=request.protocols
        ),
    )


def _identify(
    group: ConsumerGroup, member_id: str, group_instance_id: str | None, generation_id: int
) -> tuple[ConsumerMember | None, ErrorCode]:
    """The classic member of a request in this generation, or the error."""
    try:
        member = find_known(group, group_instance_id, member_id)
    except HeartbeatRefused as refusal:
        return None, refusal.error
    if not member.is_classic:
        return None, ErrorCode.UNKNOWN_MEMBER_ID
    if generation_id != member.current.member_epoch:
        return None, ErrorCode.ILLEGAL_GENERATION
    return member, ErrorCode.NONE


def _expect_join(group: ConsumerGroup, member: ConsumerMember, now_ms: int) -> None:
    if member.rebalance_due_ms is None:
        group.limit_rebalance(member, now_ms)
