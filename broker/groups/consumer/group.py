"""The consumer group protocol (KIP-848) as a pure state machine: heartbeats in, assignments out.

Owns one group: members, epochs, the target assignment and each member's progress towards it.
Refuses to know connections, clocks, the wire and the log. A heartbeat gives an answer and the
changes to store; the answer counts once they are durable.

```
 subscriptions or topics change ──▶ group epoch + 1 ──▶ new target (assignment epoch = group epoch)

 each member, at its own heartbeats:     must give up something that it owns
        STABLE ────────────────────────────────────────▶ UNREVOKED ──┐ given up
          ▲  ▲                                              ▲        │
          │  └── everything released ── UNRELEASED ◀────────┼────────┤ waits for others
          └─────────────────────────────────────────────────┴────────┘
```

Invariants: a partition is assigned to, or still held by, one member at a time; epochs only grow; a
member's epoch never passes the assignment's. `wake_ms` is never later than the earliest deadline.

Differs from Kafka: a member that waits for others, or for the target of a large group, sends its
next heartbeat within half a second, not after the heartbeat interval.

All times are ms of one monotonic clock. Source: KIP-848; Kafka's `GroupMetadataManager`,
`CurrentAssignmentBuilder`, `TargetAssignmentBuilder`.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final

from broker.groups.consumer.assignors import ASSIGNORS, DEFAULT_ASSIGNOR, AssignedMember, assign
from broker.groups.consumer.subscribed_topics import SubscribedTopics, compile_pattern
from broker.groups.consumer.values import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    NO_PARTITIONS,
    Change,
    ChangeKind,
    ConsumerGroupState,
    ConsumerLimits,
    ConsumerMember,
    CurrentAssignment,
    HeartbeatAnswer,
    HeartbeatRefused,
    HeartbeatRequest,
    MemberState,
    Partition,
    Partitions,
    StoredConsumerGroup,
    Subscription,
    Topics,
)
from broker.groups.deadlines import earliest, is_due
from protocol.error_codes import ErrorCode

_SMALL_SIZE: Final = 50
_PAUSE_PER_MEMBER_MS: Final = 1
_SOON_MS: Final = 500


class ConsumerGroup:
    """One group of the consumer protocol. Loop thread only; one coordinator calls it.

    A crash keeps only the changes that were stored; `restore` starts from those.
    """

    def __init__(self, group_id: str, limits: ConsumerLimits) -> None:
        """Create an empty group of epoch 0."""
        self.group_id = group_id
        self.epoch = 0
        self.assignment_epoch = 0
        self.assignor = DEFAULT_ASSIGNOR
        self.members: dict[str, ConsumerMember] = {}
        self.targets: dict[str, Partitions] = {}
        self.wake_ms: int | None = None
        self.limits = limits
        self.static_ids: dict[str, str] = {}
        self._owner_of: dict[Partition, str] = {}
        self._view = SubscribedTopics()
        self._assigned_ms: int | None = None
        self._changes: list[Change] = []

    @property
    def is_empty(self) -> bool:
        """Whether there is no member: only such a group can be deleted."""
        return not self.members

    @property
    def is_classic_only(self) -> bool:
        """Whether there are members, and none speaks the consumer protocol."""
        return bool(self.members) and all(each.is_classic for each in self.members.values())

    @property
    def state(self) -> ConsumerGroupState:
        """The state of the group, as shown to people."""
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        for member in self.members.values():
            current = member.current
            is_there = current.member_epoch in (self.assignment_epoch, LEAVE_STATIC_EPOCH)
            if current.state is not MemberState.STABLE or not is_there:
                return ConsumerGroupState.RECONCILING
        return ConsumerGroupState.STABLE

    def subscribed_topics(self, topics: Topics) -> frozenset[str]:
        """Those of `topics` that members read, also before the first heartbeat after a restart.

        All of them, if another broker admitted a member with a pattern that we do not accept.
        """
        subscriptions = list(self._subscriptions())
        try:
            for pattern in {each.regex for each in subscriptions if each.regex}:
                compile_pattern(pattern)
        except HeartbeatRefused:
            return frozenset(topics.by_name)
        return self._view.resolve(topics, subscriptions)

    # -- requests ------------------------------------------------------------------------------

    def heartbeat(self, request: HeartbeatRequest, topics: Topics, now_ms: int) -> HeartbeatAnswer:
        """Take a heartbeat: join, continue, or leave. `drain` gives the changes to store."""
        self._view.look_as(request.sees)
        try:
            if request.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
                return self._leave(request, now_ms)
            return self._go_on(request, topics, now_ms)
        except HeartbeatRefused as refusal:
            return HeartbeatAnswer(
                error=refusal.error, error_message=str(refusal), member_id=request.member_id
            )

    def offset_error(
        self, member_id: str, member_epoch: int, committed: Iterable[Partition] | None = None
    ) -> ErrorCode:
        """NONE when this member may fetch offsets in this epoch, or commit those of `committed`.

        A member may commit in a past epoch for partitions that it has had since then (KIP-1251):
        its commit may have crossed the heartbeat that brought the next epoch.
        """
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        current = member.current
        if current.member_epoch == member_epoch:
            return ErrorCode.NONE
        if committed is not None and member_epoch < current.member_epoch:
            since = [current.had_since(partition) for partition in committed]
            if all(epoch is not None and epoch <= member_epoch for epoch in since):
                return ErrorCode.NONE
        return ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH

    # -- what happens without a request --------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        """Remove members that were silent, or too slow to give up partitions; set `wake_ms`."""
        for member in list(self.members.values()):
            if is_due(earliest((member.session_due_ms, member.rebalance_due_ms)), now_ms):
                self.remove(member)
        self.wake_ms = earliest(
            due_ms
            for member in self.members.values()
            for due_ms in (member.session_due_ms, member.rebalance_due_ms)
        )

    def restore(self, stored: StoredConsumerGroup, now_ms: int) -> None:
        """Take the stored state; members get a full session from now to come back."""
        self.epoch = stored.epoch
        self.assignment_epoch = stored.assignment_epoch
        for member_id, subscription in stored.subscriptions.items():
            member = ConsumerMember(
                member_id=member_id,
                subscription=subscription,
                current=stored.current.get(member_id, CurrentAssignment()),
            )
            self.members[member_id] = member
            self.targets[member_id] = stored.targets.get(member_id, NO_PARTITIONS)
            if subscription.instance_id is not None:
                self.static_ids[subscription.instance_id] = member_id
            held = member.current.assigned | member.current.pending_revocation
            if not held.isdisjoint(self._owner_of):
                # Not what we write: the member must join again, so that nothing is read twice.
                member.current = CurrentAssignment()
            self._own(member_id, member.current)
            self.expect(member, now_ms)
            self._limit_revocation(member, now_ms)

    def erase(self) -> list[Change]:
        """Tombstones for all stored records of the group, whatever members it has."""
        if self.epoch == 0:
            return []
        for member_id in self.members:
            self._forget_records(member_id)
        return [
            *self.drain(),
            Change(ChangeKind.ASSIGNMENT_EPOCH, None, None),
            Change(ChangeKind.GROUP_EPOCH, None, None),
        ]

    # -- consumer members ----------------------------------------------------------------------

    def _leave(self, request: HeartbeatRequest, now_ms: int) -> HeartbeatAnswer:
        member = find_known(self, request.instance_id, request.member_id)
        if request.member_epoch == LEAVE_STATIC_EPOCH:
            away = replace(member.current, member_epoch=LEAVE_STATIC_EPOCH)
            self._set_current(member, away)
            member.rebalance_due_ms = None
            self.expect(member, now_ms)
        else:
            self.remove(member)
        return HeartbeatAnswer(member_id=request.member_id, member_epoch=request.member_epoch)

    def _go_on(self, request: HeartbeatRequest, topics: Topics, now_ms: int) -> HeartbeatAnswer:
        check_wishes(request)
        count_before = len(self.members)
        member = find_or_join(self, request)
        is_new = len(self.members) > count_before
        before = member.current
        has_changed = self.set_subscription(member, _said(member.subscription, request))
        self.advance(
            member,
            owned=request.owned,
            is_changed=has_changed or is_new,
            topics=topics,
            now_ms=now_ms,
        )
        is_full = request.member_epoch == JOIN_EPOCH or (
            request.owned is not None and request.rebalance_timeout_ms is not None
        )
        has_assignment = is_full or before.assigned != member.current.assigned
        return HeartbeatAnswer(
            member_id=member.member_id,
            member_epoch=member.current.member_epoch,
            heartbeat_interval_ms=self._interval_ms(member),
            assigned=member.current.assigned if has_assignment else None,
        )

    # -- steps, for both kinds of members ------------------------------------------------------

    def add(self, member: ConsumerMember) -> None:
        """Add a new member; it owns nothing yet."""
        assert member.member_id not in self.members, f"{member.member_id} is a member already"
        self.members[member.member_id] = member
        if member.subscription.instance_id is not None:
            self.static_ids[member.subscription.instance_id] = member.member_id

    def remove(self, member: ConsumerMember) -> None:
        """Remove a member: its partitions are free, and the others get a new target."""
        member_id = member.member_id
        self._disown(member_id, member.current)
        del self.members[member_id]
        instance_id = member.subscription.instance_id
        if instance_id is not None and self.static_ids.get(instance_id) == member_id:
            del self.static_ids[instance_id]
        self.targets.pop(member_id, None)
        self._forget_records(member_id)
        self._bump()

    def start_over(self, member: ConsumerMember) -> None:
        """Take everything from a member that joins again."""
        self._disown(member.member_id, member.current)
        self._set_current(member, CurrentAssignment())

    def take_over(self, known_id: str, member_id: str) -> ConsumerMember:
        """Give a returning static member, under its new id, its former place and partitions."""
        former = self.members.pop(known_id)
        self._disown(known_id, former.current)
        self._forget_records(known_id)
        member = ConsumerMember(
            member_id=member_id,
            subscription=former.subscription,
            current=replace(former.current, member_epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH),
        )
        self.add(member)
        self._own(member_id, member.current)
        self.targets[member_id] = self.targets.pop(known_id, NO_PARTITIONS)
        self._changes.append(Change(ChangeKind.TARGET, member_id, self.targets[member_id]))
        self._changes.append(Change(ChangeKind.SUBSCRIPTION, member_id, member.subscription))
        return member

    def set_subscription(self, member: ConsumerMember, after: Subscription) -> bool:
        """Store a member's subscription; return whether it wants other topics than before."""
        before = member.subscription
        if after == before:
            return False
        if (before.classic is None) != (after.classic is None):
            member.rebalance_due_ms = None
        member.subscription = after
        self._changes.append(Change(ChangeKind.SUBSCRIPTION, member.member_id, after))
        return (after.names, after.regex or None) != (before.names, before.regex or None)

    def advance(
        self,
        member: ConsumerMember,
        *,
        owned: Partitions | None,
        is_changed: bool,
        topics: Topics,
        now_ms: int,
    ) -> None:
        """Bring a member that has just sent a request as near to its target as the others allow.

        `owned` is what it claims to own, None when it does not say; `is_changed` is whether its
        request makes a new target necessary.
        """
        if is_changed or self._have_topics_changed(topics):
            self._bump()
        self.assign_if_due(topics, now_ms)
        self._reconcile(member, owned, now_ms)
        self.expect(member, now_ms)

    def assign_if_due(self, topics: Topics, now_ms: int) -> None:
        """Compute the target of the current epoch, unless that is done or not due yet."""
        if self.epoch > self.assignment_epoch and self._may_assign(now_ms):
            self._assigned_ms = now_ms
            self._assign(topics)

    def is_waiting(self, member: ConsumerMember) -> bool:
        """Whether some of a member's target is still held by others."""
        target = self.targets.get(member.member_id, NO_PARTITIONS)
        owners = (self._owner_of.get(partition) for partition in target)
        return any(owner not in (None, member.member_id) for owner in owners)

    def _forget_records(self, member_id: str) -> None:
        for kind in (ChangeKind.CURRENT, ChangeKind.TARGET, ChangeKind.SUBSCRIPTION):
            self._changes.append(Change(kind, member_id, None))

    # -- the target ----------------------------------------------------------------------------

    def _have_topics_changed(self, topics: Topics) -> bool:
        """Whether a topic that members read has come, gone or grown since the last target."""
        if topics.revision == self._view.revision:
            return False
        is_first_look = self._view.revision is None
        before = self._view.seen
        self._view.look(topics, self._subscriptions())
        if not is_first_look:
            return before != self._view.seen
        # After a restart there is nothing to compare with but the targets themselves.
        held = {partition for target in self.targets.values() for partition in target}
        return held != self._view.partitions()

    def _subscriptions(self) -> Iterator[Subscription]:
        return (member.subscription for member in self.members.values())

    def _bump(self) -> None:
        self.epoch += 1
        self._changes.append(Change(ChangeKind.GROUP_EPOCH, None, self.epoch))
        if not self.members:
            self.assignment_epoch = self.epoch
            self._view = SubscribedTopics()
            self._changes.append(Change(ChangeKind.ASSIGNMENT_EPOCH, None, self.epoch))

    def _may_assign(self, now_ms: int) -> bool:
        """Whether a new target is due: once per interval, and the larger the group, the less often.

        Otherwise a thousand members that join one after the other would cost a thousand targets.
        """
        size = len(self.members)
        pause_ms = self.limits.assignment_interval_ms
        if size > _SMALL_SIZE:
            pause_ms = max(pause_ms, size * _PAUSE_PER_MEMBER_MS)
        return self._assigned_ms is None or now_ms - self._assigned_ms >= pause_ms

    def _interval_ms(self, member: ConsumerMember) -> int:
        """The member's heartbeat interval: short while it waits for partitions or a target."""
        is_waiting = (
            self.epoch > self.assignment_epoch or member.current.state is MemberState.UNRELEASED
        )
        if not is_waiting:
            return self.limits.heartbeat_interval_ms
        soon_ms = max(_SOON_MS, len(self.members) * _PAUSE_PER_MEMBER_MS)
        return min(soon_ms, self.limits.heartbeat_interval_ms)

    def _assign(self, topics: Topics) -> None:
        """Compute the target of the current epoch; store only the differences."""
        self._view.look(topics, self._subscriptions())
        votes = Counter(each.server_assignor for each in self._subscriptions())
        del votes[None]
        self.assignor = next((name for name, _ in votes.most_common(1) if name), DEFAULT_ASSIGNOR)
        targets = assign(
            self.assignor,
            {
                member_id: AssignedMember(
                    sort_key=member.subscription.instance_id or member_id,
                    topics=self._view.of(member.subscription),
                    target=self.targets.get(member_id, NO_PARTITIONS),
                )
                for member_id, member in self.members.items()
            },
            self._view.seen,
        )
        for member_id, target in targets.items():
            if self.targets.get(member_id) != target:
                self._changes.append(Change(ChangeKind.TARGET, member_id, target))
        assert targets.keys() <= self.members.keys(), "a target without a member"
        self.targets = targets
        self.assignment_epoch = self.epoch
        self._changes.append(Change(ChangeKind.ASSIGNMENT_EPOCH, None, self.epoch))

    # -- on the way to the target --------------------------------------------------------------

    def _reconcile(self, member: ConsumerMember, owned: Partitions | None, now_ms: int) -> None:
        """Bring a member as near to its target as the others allow."""
        current = member.current
        is_settled = (
            current.state is MemberState.STABLE and current.member_epoch == self.assignment_epoch
        )
        is_holding = current.state is MemberState.UNREVOKED and (
            owned is None or bool(owned & current.pending_revocation)
        )
        if is_settled or is_holding:
            return
        member_id = member.member_id
        after = _next_assignment(
            current,
            self.targets.get(member_id, NO_PARTITIONS),
            owned=owned,
            epoch=self.assignment_epoch,
            is_free=lambda tp: self._owner_of.get(tp, member_id) == member_id,
        )
        assert after.member_epoch >= current.member_epoch, f"{member_id}: the epoch falls"
        if after != current:
            self._disown(member_id, current)
            self._set_current(member, after)
            self._own(member_id, after)
        self._limit_revocation(member, now_ms)

    def _set_current(self, member: ConsumerMember, current: CurrentAssignment) -> None:
        assert current.member_epoch <= self.assignment_epoch <= self.epoch, member.member_id
        member.current = current
        self._changes.append(Change(ChangeKind.CURRENT, member.member_id, current))

    def _own(self, member_id: str, current: CurrentAssignment) -> None:
        for partition in current.assigned | current.pending_revocation:
            assert self._owner_of.get(partition, member_id) == member_id, partition
            self._owner_of[partition] = member_id

    def _disown(self, member_id: str, current: CurrentAssignment) -> None:
        for partition in current.assigned | current.pending_revocation:
            assert self._owner_of.get(partition) == member_id, partition
            del self._owner_of[partition]

    # -- deadlines -----------------------------------------------------------------------------

    def expect(self, member: ConsumerMember, now_ms: int) -> None:
        """Give a member a full session from now: the group's, or a classic member's own."""
        classic = member.subscription.classic
        timeout_ms = self.limits.session_timeout_ms
        if classic is not None:
            timeout_ms = classic.session_timeout_ms
        member.session_due_ms = now_ms + timeout_ms
        self._wake_by(member.session_due_ms)

    def limit_rebalance(self, member: ConsumerMember, now_ms: int) -> None:
        """Give a member its own rebalance timeout for its next step in the rebalance."""
        member.rebalance_due_ms = now_ms + max(member.subscription.rebalance_timeout_ms, 0)
        self._wake_by(member.rebalance_due_ms)

    def _limit_revocation(self, member: ConsumerMember, now_ms: int) -> None:
        """Limit the time to give up partitions; a classic member's requests have other limits."""
        if member.is_classic:
            return
        member.rebalance_due_ms = None
        if member.current.state is MemberState.UNREVOKED:
            self.limit_rebalance(member, now_ms)

    def _wake_by(self, due_ms: int) -> None:
        self.wake_ms = earliest((self.wake_ms, due_ms))

    def drain(self) -> list[Change]:
        """The changes to store since the last call."""
        assert self.assignment_epoch <= self.epoch, f"{self.group_id}: a target of later members"
        changes, self._changes = self._changes, []
        return changes


def _next_assignment(
    current: CurrentAssignment,
    target: Partitions,
    *,
    owned: Partitions | None,
    epoch: int,
    is_free: Callable[[Partition], bool],
) -> CurrentAssignment:
    """One member's next step towards its target.

    | partitions to give up   | partitions to receive    | it becomes                             |
    |-------------------------|--------------------------|----------------------------------------|
    | some is still its own   | whatever                 | UNREVOKED, in its epoch, with the rest |
    | nothing is left         | another still holds some | UNRELEASED, in the new epoch           |
    | nothing is left         | everything is free       | STABLE, in the new epoch               |

    `owned` is what the member claims to own now, None when it does not say; `is_free` returns
    whether no other member holds a partition; `epoch` is the target's. Source: Kafka's
    `CurrentAssignmentBuilder`.
    """
    kept = current.assigned & target
    revoked = current.assigned - target
    if revoked and (owned is None or owned & revoked):
        return replace(
            current, state=MemberState.UNREVOKED, assigned=kept, pending_revocation=revoked
        )
    since = {partition: current.had_since(partition) or JOIN_EPOCH for partition in kept}
    since.update((partition, epoch) for partition in target - kept if is_free(partition))
    assigned = frozenset(since)
    return CurrentAssignment(
        member_epoch=epoch,
        previous_epoch=current.member_epoch,
        state=MemberState.STABLE if assigned == target else MemberState.UNRELEASED,
        assigned=assigned,
        since=since,
    )


def _said(before: Subscription, request: HeartbeatRequest) -> Subscription:
    """A consumer-protocol member's subscription after this heartbeat."""
    names, regex = request.subscribed_names, request.subscribed_regex
    timeout_ms = request.rebalance_timeout_ms
    return replace(
        before,
        instance_id=request.instance_id or before.instance_id,
        rack_id=request.rack_id or before.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        names=before.names if names is None else names,
        regex=before.regex if regex is None else regex,
        rebalance_timeout_ms=before.rebalance_timeout_ms if timeout_ms is None else timeout_ms,
        server_assignor=request.server_assignor or before.server_assignor,
        classic=None,
    )


# The member that a heartbeat speaks for, and the reasons to refuse it. The order of the checks is
# Kafka's, because clients act on the error: a fenced member gives everything up and joins again,
# one with an unreleased instance id ends. Source: Kafka's
# `getOrMaybeSubscribeDynamicConsumerMember`, `getOrMaybeSubscribeStaticConsumerMember`,
# `throwIfConsumerGroupMemberEpochIsInvalid`.


def check_wishes(request: HeartbeatRequest) -> None:
    """Check the pattern and the name of the assignor. Raises: HeartbeatRefused."""
    if request.subscribed_regex:
        compile_pattern(request.subscribed_regex)
    if request.server_assignor is not None and request.server_assignor not in ASSIGNORS:
        names = ", ".join(ASSIGNORS)
        raise HeartbeatRefused(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"There is no assignor {request.server_assignor!r}; use one of {names}.",
        )


def find_or_join(group: ConsumerGroup, request: HeartbeatRequest) -> ConsumerMember:
    """The member that a heartbeat comes from, added if it is new. Raises: HeartbeatRefused."""
    is_joining = request.member_epoch == JOIN_EPOCH
    if request.instance_id is not None:
        known_id = group.static_ids.get(request.instance_id)
        if is_joining and known_id is not None and known_id != request.member_id:
            _check_released(group.members[known_id])
            if request.member_id in group.members:
                raise HeartbeatRefused(
                    ErrorCode.INVALID_REQUEST,
                    f"Member id {request.member_id} is that of another member of the group.",
                )
            return group.take_over(known_id, request.member_id)
        if known_id is not None or not is_joining:
            member = find_known(group, request.instance_id, request.member_id)
            return _accept(group, member, request)
    member_or_none = group.members.get(request.member_id)
    if member_or_none is not None:
        return _accept(group, member_or_none, request)
    if not is_joining:
        find_known(group, None, request.member_id)
    check_room(group)
    member = ConsumerMember(
        member_id=request.member_id,
        subscription=Subscription(instance_id=request.instance_id),
        current=CurrentAssignment(),
    )
    group.add(member)
    return member


def check_room(group: ConsumerGroup) -> None:
    """Check that one more member may join. Raises: HeartbeatRefused."""
    if len(group.members) >= group.limits.size_max:
        raise HeartbeatRefused(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The group has {len(group.members)} members, as many as allowed.",
        )


def find_known(group: ConsumerGroup, instance_id: str | None, member_id: str) -> ConsumerMember:
    """The member of this id; a static one must not have another id by now.

    Raises: HeartbeatRefused.
    """
    known_id: str | None = member_id
    if instance_id is not None:
        known_id = group.static_ids.get(instance_id)
    member = group.members.get(known_id or "")
    if member is None:
        who = repr(member_id) if instance_id is None else f"Instance {instance_id!r}"
        raise HeartbeatRefused(
            ErrorCode.UNKNOWN_MEMBER_ID, f"{who} is not a member of group {group.group_id}."
        )
    if known_id != member_id:
        raise HeartbeatRefused(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Instance {instance_id} belongs to member {known_id} by now.",
        )
    return member


def _accept(
    group: ConsumerGroup, member: ConsumerMember, request: HeartbeatRequest
) -> ConsumerMember:
    """Check a known member's epoch; one that joins again loses everything.

    The previous epoch is accepted from a member that cannot know the current one. Its answer was
    lost, so it still owns no more than it has been given.
    """
    current = member.current
    if request.member_epoch == JOIN_EPOCH:
        group.start_over(member)
        return member
    if request.member_epoch == current.member_epoch:
        return member
    is_retry = (
        request.member_epoch == current.previous_epoch
        and request.owned is not None
        and request.owned <= current.assigned
    )
    if not is_retry:
        raise HeartbeatRefused(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"Member {member.member_id} is in epoch {current.member_epoch}, "
            f"not {request.member_epoch}; join again.",
        )
    return member


def _check_released(former: ConsumerMember) -> None:
    """Check that a static member has left its place before another takes it over.

    A member of the classic protocol cannot leave for a while, so its place is taken at once.
    """
    if former.current.member_epoch != LEAVE_STATIC_EPOCH and not former.is_classic:
        raise HeartbeatRefused(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Instance {former.subscription.instance_id} is still in use by member "
            f"{former.member_id}.",
        )
