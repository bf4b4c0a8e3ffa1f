"""The consumer group protocol (KIP-848) as a pure state machine: heartbeats in, assignments out.

Owns one group: members, epochs, the target assignment and how far each member is on its way to
it. Refuses to know connections, clocks, the wire and the log. A heartbeat gives an answer and the
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

Differs from Kafka: a member that waits for others, or for the target of a large group, is asked to
come again within half a second, not after the heartbeat interval.

All times are ms of one monotonic clock. Source: KIP-848; Kafka's `GroupMetadataManager`,
`CurrentAssignmentBuilder`, `TargetAssignmentBuilder`.
Read next: `broker.groups.assignors`, `broker.groups.consumer_coordinator`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from broker.groups import topic_pattern
from broker.groups.assignors import ASSIGNORS, DEFAULT_ASSIGNOR, AssignedMember, assign
from broker.groups.consumer_values import (
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
    Outcome,
    Partition,
    Partitions,
    StoredConsumerGroup,
    Subscription,
    Topics,
)
from broker.groups.reconciliation import next_assignment
from broker.groups.subscribed_topics import SubscribedTopics
from protocol.error_codes import ErrorCode

_SMALL_SIZE: Final = 50
_PAUSE_PER_MEMBER_MS: Final = 1
_SOON_MS: Final = 500


class ConsumerGroup:
    """One group of the consumer protocol. Loop thread only; one coordinator calls it.

    Nothing survives a crash but the changes that were stored; `restore` starts from those.
    """

    def __init__(self, group_id: str, limits: ConsumerLimits) -> None:
        """An empty group of epoch 0."""
        self.group_id = group_id
        self.epoch = 0
        self.assignment_epoch = 0
        self.assignor = DEFAULT_ASSIGNOR
        self.members: dict[str, ConsumerMember] = {}
        self.targets: dict[str, Partitions] = {}
        self.wake_ms: int | None = None
        self._limits = limits
        self._static_ids: dict[str, str] = {}
        self._owner_of: dict[Partition, str] = {}
        self._view = SubscribedTopics()
        self._assigned_ms: int | None = None
        self._changes: list[Change] = []

    @property
    def state(self) -> ConsumerGroupState:
        """Where the group stands, as shown to people."""
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

    def subscribed_topics(self) -> frozenset[str]:
        """The topics that members read, as far as they exist."""
        return frozenset(self._view.seen)

    # -- requests ------------------------------------------------------------------------------

    def heartbeat(self, request: HeartbeatRequest, topics: Topics, now_ms: int) -> Outcome:
        """Take a heartbeat: join, go on, or leave."""
        try:
            if request.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
                answer = self._leave(request, now_ms)
            else:
                answer = self._go_on(request, topics, now_ms)
        except HeartbeatRefused as refusal:
            answer = HeartbeatAnswer(
                error=refusal.error, error_message=str(refusal), member_id=request.member_id
            )
        return Outcome(answer, self._drain())

    def offset_error(self, member_id: str, member_epoch: int) -> ErrorCode:
        """NONE when this member may commit or fetch offsets in this epoch."""
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member.current.member_epoch != member_epoch:
            return ErrorCode.STALE_MEMBER_EPOCH
        return ErrorCode.NONE

    # -- what happens without a request --------------------------------------------------------

    def tick(self, topics: Topics, now_ms: int) -> list[Change]:
        """Remove members that were silent, or too slow to give up partitions; set `wake_ms`."""
        for member in list(self.members.values()):
            dues = (member.session_due_ms, member.rebalance_due_ms)
            if any(due_ms is not None and due_ms <= now_ms for due_ms in dues):
                self._remove(member)
        dues_left = [
            due_ms
            for member in self.members.values()
            for due_ms in (member.session_due_ms, member.rebalance_due_ms)
            if due_ms is not None
        ]
        self.wake_ms = min(dues_left, default=None)
        return self._drain()

    def restore(self, stored: StoredConsumerGroup, now_ms: int) -> None:
        """Become what was stored; members get a full session from now to show up."""
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
                self._static_ids[subscription.instance_id] = member_id
            held = member.current.assigned | member.current.pending_revocation
            if not held.isdisjoint(self._owner_of):
                # Not what we write: let the member join again, and nobody reads anything twice.
                member.current = CurrentAssignment()
            self._own(member_id, member.current)
            self._expect(member, now_ms)
            self._limit_revocation(member, now_ms)

    def erase(self) -> list[Change]:
        """Tombstones for all that is stored of an empty group."""
        assert not self.members, self.group_id
        if self.epoch == 0:
            return []
        return [
            Change(ChangeKind.ASSIGNMENT_EPOCH, None, None),
            Change(ChangeKind.GROUP_EPOCH, None, None),
        ]

    # -- leaving -------------------------------------------------------------------------------

    def _leave(self, request: HeartbeatRequest, now_ms: int) -> HeartbeatAnswer:
        if request.instance_id is None:
            member = self._get(request.member_id)
        else:
            member = self._get_static(request.instance_id, request.member_id)
        if request.member_epoch == LEAVE_STATIC_EPOCH:
            away = replace(member.current, member_epoch=LEAVE_STATIC_EPOCH)
            self._set_current(member, away)
            member.rebalance_due_ms = None
            self._expect(member, now_ms)
        else:
            self._remove(member)
        return HeartbeatAnswer(member_id=request.member_id, member_epoch=request.member_epoch)

    def _remove(self, member: ConsumerMember) -> None:
        """Let a member go: what it had is free, and the others get a new target."""
        member_id = member.member_id
        self._disown(member_id, member.current)
        del self.members[member_id]
        instance_id = member.subscription.instance_id
        if instance_id is not None and self._static_ids.get(instance_id) == member_id:
            del self._static_ids[instance_id]
        self.targets.pop(member_id, None)
        self._forget_records(member_id)
        self._bump()

    def _forget_records(self, member_id: str) -> None:
        for kind in (ChangeKind.CURRENT, ChangeKind.TARGET, ChangeKind.SUBSCRIPTION):
            self._changes.append(Change(kind, member_id, None))

    # -- joining and going on ------------------------------------------------------------------

    def _go_on(self, request: HeartbeatRequest, topics: Topics, now_ms: int) -> HeartbeatAnswer:
        if request.subscribed_regex:
            topic_pattern.compile_pattern(request.subscribed_regex)
        if request.server_assignor is not None and request.server_assignor not in ASSIGNORS:
            names = ", ".join(ASSIGNORS)
            raise HeartbeatRefused(
                ErrorCode.UNSUPPORTED_ASSIGNOR,
                f"There is no assignor {request.server_assignor!r}; use one of {names}.",
            )
        count_before = len(self.members)
        member = self._find_or_join(request)
        is_new = len(self.members) > count_before
        before = member.current
        has_changed = self._take_subscription(member, request)
        if has_changed or is_new or self._have_topics_changed(topics):
            self._bump()
        if self.epoch > self.assignment_epoch and self._may_assign(now_ms):
            self._assigned_ms = now_ms
            self._assign(topics)
        self._reconcile(member, request.owned, now_ms)
        self._expect(member, now_ms)
        is_full = request.member_epoch == JOIN_EPOCH or (
            request.owned is not None and request.rebalance_timeout_ms is not None
        )
        tells = is_full or before.assigned != member.current.assigned
        return HeartbeatAnswer(
            member_id=member.member_id,
            member_epoch=member.current.member_epoch,
            heartbeat_interval_ms=self._interval_ms(member),
            assigned=member.current.assigned if tells else None,
        )

    def _find_or_join(self, request: HeartbeatRequest) -> ConsumerMember:
        is_joining = request.member_epoch == JOIN_EPOCH
        if request.instance_id is not None:
            known_id = self._static_ids.get(request.instance_id)
            if is_joining and known_id is not None and known_id != request.member_id:
                return self._replace_static(known_id, request)
            if known_id is not None or not is_joining:
                member = self._get_static(request.instance_id, request.member_id)
                return self._accept(member, request)
        member_or_none = self.members.get(request.member_id)
        if member_or_none is not None:
            return self._accept(member_or_none, request)
        if not is_joining:
            self._get(request.member_id)
        if len(self.members) >= self._limits.size_max:
            raise HeartbeatRefused(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The group has {len(self.members)} members, as many as allowed.",
            )
        member = ConsumerMember(
            member_id=request.member_id,
            subscription=Subscription(instance_id=request.instance_id),
            current=CurrentAssignment(),
        )
        self.members[request.member_id] = member
        if request.instance_id is not None:
            self._static_ids[request.instance_id] = request.member_id
        return member

    def _accept(self, member: ConsumerMember, request: HeartbeatRequest) -> ConsumerMember:
        """Check a known member's epoch; one that joins again has nothing any more.

        The epoch before is accepted from a member that cannot know the present one: its answer
        was lost, so it still owns no more than it has been given.
        """
        current = member.current
        if request.member_epoch == JOIN_EPOCH:
            self._disown(member.member_id, current)
            self._set_current(member, CurrentAssignment())
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

    def _replace_static(self, known_id: str, request: HeartbeatRequest) -> ConsumerMember:
        """A static member came back under a new id: it takes its place, if it had left it."""
        former = self.members[known_id]
        if former.current.member_epoch != LEAVE_STATIC_EPOCH:
            raise HeartbeatRefused(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Instance {request.instance_id} is still in use by member {known_id}.",
            )
        self._disown(known_id, former.current)
        del self.members[known_id]
        self._forget_records(known_id)
        member_id = request.member_id
        member = ConsumerMember(
            member_id=member_id,
            subscription=former.subscription,
            current=replace(former.current, member_epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH),
        )
        self.members[member_id] = member
        self._static_ids[request.instance_id or ""] = member_id
        self._own(member_id, member.current)
        self.targets[member_id] = self.targets.pop(known_id, NO_PARTITIONS)
        self._changes.append(Change(ChangeKind.TARGET, member_id, self.targets[member_id]))
        self._changes.append(Change(ChangeKind.SUBSCRIPTION, member_id, member.subscription))
        return member

    def _get(self, member_id: str) -> ConsumerMember:
        member = self.members.get(member_id)
        if member is None:
            raise HeartbeatRefused(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"{member_id!r} is not a member of group {self.group_id}.",
            )
        return member

    def _get_static(self, instance_id: str, member_id: str) -> ConsumerMember:
        known_id = self._static_ids.get(instance_id)
        if known_id is None:
            return self._get("")
        if known_id != member_id:
            raise HeartbeatRefused(
                ErrorCode.FENCED_INSTANCE_ID,
                f"Instance {instance_id} belongs to member {known_id} by now.",
            )
        return self._get(known_id)

    def _take_subscription(self, member: ConsumerMember, request: HeartbeatRequest) -> bool:
        """Note what the member says about itself; whether it wants other topics than before."""
        before = member.subscription
        regex = request.subscribed_regex
        timeout_ms = request.rebalance_timeout_ms
        after = replace(
            before,
            instance_id=request.instance_id or before.instance_id,
            rack_id=request.rack_id or before.rack_id,
            client_id=request.client_id,
            client_host=request.client_host,
            names=before.names if request.subscribed_names is None else request.subscribed_names,
            regex=before.regex if regex is None else regex,
            rebalance_timeout_ms=before.rebalance_timeout_ms if timeout_ms is None else timeout_ms,
            server_assignor=request.server_assignor or before.server_assignor,
        )
        if after == before:
            return False
        member.subscription = after
        self._changes.append(Change(ChangeKind.SUBSCRIPTION, member.member_id, after))
        return (after.names, after.regex) != (before.names, before.regex)

    # -- the target ----------------------------------------------------------------------------

    def _have_topics_changed(self, topics: Topics) -> bool:
        """Whether what members read has come, gone or grown since the target was computed."""
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
        """Whether it is time for a new target: the larger the group, the less often.

        A thousand members that join one after the other would otherwise cost a thousand targets.
        """
        size = len(self.members)
        if self._assigned_ms is None or size <= _SMALL_SIZE:
            return True
        return now_ms - self._assigned_ms >= size * _PAUSE_PER_MEMBER_MS

    def _interval_ms(self, member: ConsumerMember) -> int:
        """When the member shall come again: soon, if something is on its way to it."""
        is_waiting = (
            self.epoch > self.assignment_epoch or member.current.state is MemberState.UNRELEASED
        )
        if not is_waiting:
            return self._limits.heartbeat_interval_ms
        soon_ms = max(_SOON_MS, len(self.members) * _PAUSE_PER_MEMBER_MS)
        return min(soon_ms, self._limits.heartbeat_interval_ms)

    def _assign(self, topics: Topics) -> None:
        """Compute the target of the present epoch; only what differs is stored."""
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
        after = next_assignment(
            current,
            self.targets.get(member_id, NO_PARTITIONS),
            owned=owned,
            epoch=self.assignment_epoch,
            is_free=lambda tp: self._owner_of.get(tp, member_id) == member_id,
        )
        if after != current:
            self._disown(member_id, current)
            self._set_current(member, after)
            self._own(member_id, after)
        self._limit_revocation(member, now_ms)

    def _set_current(self, member: ConsumerMember, current: CurrentAssignment) -> None:
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

    def _expect(self, member: ConsumerMember, now_ms: int) -> None:
        member.session_due_ms = now_ms + self._limits.session_timeout_ms
        self._wake_by(member.session_due_ms)

    def _limit_revocation(self, member: ConsumerMember, now_ms: int) -> None:
        """A member that has to give up partitions has its own rebalance timeout to do it."""
        member.rebalance_due_ms = None
        if member.current.state is MemberState.UNREVOKED:
            member.rebalance_due_ms = now_ms + max(member.subscription.rebalance_timeout_ms, 0)
            self._wake_by(member.rebalance_due_ms)

    def _wake_by(self, due_ms: int) -> None:
        if self.wake_ms is None or due_ms < self.wake_ms:
            self.wake_ms = due_ms

    def _drain(self) -> list[Change]:
        changes, self._changes = self._changes, []
        return changes
