"""The membership of a share group as a pure state machine: heartbeats in, assignments out.

Owns one group: members, epochs, targets, and which partitions have a stored state. Refuses to know
connections, clocks, the wire and the log. A heartbeat gives an answer and the changes to store; the
answer counts once they are durable.

A changed target is effective at once, since members share partitions: nothing has to be given up
first. A partition is assigned only when its state is stored, so that a member can read what it is
assigned.

Differs from Kafka: the states of new partitions are stored with the heartbeat that asks for them,
so the first answer has an assignment; Kafka's is empty, and the next one has it.

All times are ms of one monotonic clock. Source: KIP-932; Kafka's `GroupMetadataManager`,
`ShareGroup`, `ShareGroupAssignmentBuilder`.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from broker.groups.consumer.values import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    NO_PARTITIONS,
    ConsumerLimits,
    HeartbeatAnswer,
    HeartbeatRefused,
    Partition,
    Partitions,
    TopicImage,
    Topics,
)
from broker.groups.share.assignor import assign_shares
from broker.groups.share.group_values import (
    ShareChange,
    ShareChangeKind,
    ShareGroupState,
    ShareHeartbeat,
    ShareMember,
    ShareSubscription,
    StatePartitions,
    StoredMember,
    StoredShareGroup,
)
from protocol.error_codes import ErrorCode

_FIRST_EPOCH: Final = 1


class ShareGroup:
    """One share group. Loop thread only; one coordinator calls it.

    A crash keeps only the changes that were stored; `restore` starts from those.
    """

    def __init__(self, group_id: str, limits: ConsumerLimits) -> None:
        """Create an empty group of epoch 1, as Kafka does."""
        self.group_id = group_id
        self.limits = limits
        self.epoch = _FIRST_EPOCH
        self.assignment_epoch = 0
        self.members: dict[str, ShareMember] = {}
        self.targets: dict[str, Partitions] = {}
        self.initialized: dict[bytes, tuple[str, frozenset[int]]] = {}
        self.wake_ms: int | None = None
        self.is_stored = False
        """Whether a record of the group was given out to be stored."""
        self._initializing: set[Partition] = set()
        self._topics_revision: int | None = None
        self._assigned_ms: int | None = None
        self._seen: object = None
        self._changes: list[ShareChange] = []

    @property
    def is_empty(self) -> bool:
        """Whether there is no member: only such a group can be deleted."""
        return not self.members

    @property
    def state(self) -> ShareGroupState:
        """The state of the group, as shown to people."""
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    def restore(self, stored: StoredShareGroup, now_ms: int) -> None:
        """Take the stored state; members get a full session from now to come back."""
        self.is_stored = True
        self.epoch = stored.epoch
        self.assignment_epoch = stored.assignment_epoch
        self.initialized = dict(stored.initialized)
        for member_id, subscription in stored.subscriptions.items():
            current = stored.current.get(member_id, StoredMember())
            member = ShareMember(member_id=member_id, subscription=subscription, current=current)
            self.members[member_id] = member
            self.targets[member_id] = stored.targets.get(member_id, NO_PARTITIONS)
            self._expect(member, now_ms)

    # -- partitions with a state ---------------------------------------------------------------

    def _subscribed(self) -> frozenset[str]:
        """The topics that members read."""
        wanted = [member.subscription.names for member in self.members.values()]
        return frozenset[str]().union(*wanted)

    def missing_states(
        self, names: frozenset[str] | None, topics: Topics
    ) -> list[tuple[str, Partition]]:
        """The partitions without a stored state, with the names of their topics.

        Of the topics that members read, and of `names`, which a member is about to name. Those
        whose state is being stored are left out.
        """
        if names is None and topics.revision == self._topics_revision:
            return []
        missing = []
        for name, (topic_id, count) in topics.named(self._subscribed().union(names or ())).items():
            _, known = self.initialized.get(topic_id, ("", frozenset()))
            missing += [
                (name, (topic_id, index))
                for index in range(count)
                if index not in known and (topic_id, index) not in self._initializing
            ]
        return missing

    def begin_states(self, partitions: Iterable[Partition]) -> None:
        """The states of these partitions are being stored: call `add_states` or `miss_states`."""
        self._initializing.update(partitions)

    def miss_states(self, partitions: Iterable[Partition]) -> None:
        """Their states could not be stored: the next heartbeat looks for them again."""
        self._initializing.difference_update(partitions)
        self._topics_revision = None

    def add_states(self, added: Iterable[tuple[str, Partition]]) -> None:
        """These partitions have a stored state from now on."""
        for name, (topic_id, index) in added:
            self._initializing.discard((topic_id, index))
            _, known = self.initialized.get(topic_id, (name, frozenset()))
            self.initialized[topic_id] = (name, known | {index})
        self._record_states()

    def remove_states(self, topic_id: bytes) -> None:
        """This topic has no stored state any more."""
        if self.initialized.pop(topic_id, None) is not None:
            self._record_states()

    def _record_states(self) -> None:
        value: StatePartitions = dict(self.initialized)
        self._changes.append(ShareChange(ShareChangeKind.STATES, None, value))
        self._topics_revision = None

    # -- members -------------------------------------------------------------------------------

    def heartbeat(self, request: ShareHeartbeat, topics: Topics, now_ms: int) -> HeartbeatAnswer:
        """Take a heartbeat: join, continue, or leave. `drain` gives the changes to store."""
        try:
            self.check(request)
        except HeartbeatRefused as refusal:
            return HeartbeatAnswer(
                error=refusal.error, error_message=str(refusal), member_id=request.member_id
            )
        if request.member_epoch == LEAVE_EPOCH:
            self._remove(self.members[request.member_id])
            self._assign_if_due(topics, now_ms, is_urgent=True)
            return HeartbeatAnswer(member_id=request.member_id, member_epoch=LEAVE_EPOCH)
        member = self.members.get(request.member_id)
        is_new = member is None
        if member is None:
            member = ShareMember(member_id=request.member_id, subscription=ShareSubscription())
            self.members[request.member_id] = member
        before = member.current
        is_other = self._subscribe(member, request)
        if is_other or is_new or self._have_topics_changed(topics):
            self._bump()
        self._assign_if_due(topics, now_ms, is_urgent=is_new)
        self._advance(member, topics, is_other=is_other)
        self._expect(member, now_ms)
        is_full = request.member_epoch == JOIN_EPOCH or request.names is not None
        is_changed = before.assigned != member.current.assigned
        return HeartbeatAnswer(
            member_id=member.member_id,
            member_epoch=member.current.epoch,
            heartbeat_interval_ms=self.limits.heartbeat_interval_ms,
            assigned=member.current.assigned if is_full or is_changed else None,
        )

    def check(self, request: ShareHeartbeat) -> None:
        """Check that the member is known and its epoch is right. Raises: HeartbeatRefused."""
        member = self.members.get(request.member_id)
        if request.member_epoch == JOIN_EPOCH:
            if member is None and len(self.members) >= self.limits.size_max:
                raise HeartbeatRefused(
                    ErrorCode.GROUP_MAX_SIZE_REACHED,
                    f"The group has {len(self.members)} members, as many as group.share.max.size "
                    "allows.",
                )
            return
        if member is None:
            raise HeartbeatRefused(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"{request.member_id!r} is not a member of group {self.group_id}.",
            )
        current = member.current
        if request.member_epoch not in (LEAVE_EPOCH, current.epoch, current.previous_epoch):
            raise HeartbeatRefused(
                ErrorCode.FENCED_MEMBER_EPOCH,
                f"Member {member.member_id} is in epoch {current.epoch}, "
                f"not {request.member_epoch}; join again.",
            )

    def tick(self, now_ms: int) -> None:
        """Remove members that were silent; set `wake_ms`. `drain` gives the changes to store."""
        for member in list(self.members.values()):
            if member.session_due_ms <= now_ms:
                self._remove(member)
        dues = (member.session_due_ms for member in self.members.values())
        self.wake_ms = min(dues, default=None)

    def erase(self) -> list[ShareChange]:
        """Tombstones for all stored records of the group."""
        self._changes.clear()
        for member_id in self.members:
            self._forget_records(member_id)
        for kind in (
            ShareChangeKind.STATES,
            ShareChangeKind.ASSIGNMENT_EPOCH,
            ShareChangeKind.GROUP_EPOCH,
        ):
            self._changes.append(ShareChange(kind, None, None))
        return self.drain()

    def touch(self) -> None:
        """Store the group even if it has no member: its offsets are set by an administrator."""
        if not self.is_stored:
            self._bump()

    def drain(self) -> list[ShareChange]:
        """The changes to store since the last call."""
        changes, self._changes = self._changes, []
        self.is_stored = self.is_stored or bool(changes)
        return changes

    def _subscribe(self, member: ShareMember, request: ShareHeartbeat) -> bool:
        """Store a changed subscription; return whether it names other topics."""
        before = member.subscription
        after = replace(
            before,
            rack_id=request.rack_id or before.rack_id,
            client_id=request.client_id,
            client_host=request.client_host,
            names=before.names if request.names is None else request.names,
        )
        if after == before:
            return False
        member.subscription = after
        change = ShareChange(ShareChangeKind.SUBSCRIPTION, member.member_id, after)
        self._changes.append(change)
        return after.names != before.names

    def _remove(self, member: ShareMember) -> None:
        del self.members[member.member_id]
        self.targets.pop(member.member_id, None)
        self._forget_records(member.member_id)
        self._bump()

    def _forget_records(self, member_id: str) -> None:
        for kind in (
            ShareChangeKind.CURRENT,
            ShareChangeKind.TARGET,
            ShareChangeKind.SUBSCRIPTION,
        ):
            self._changes.append(ShareChange(kind, member_id, None))

    def _expect(self, member: ShareMember, now_ms: int) -> None:
        member.session_due_ms = now_ms + self.limits.session_timeout_ms
        if self.wake_ms is None or member.session_due_ms < self.wake_ms:
            self.wake_ms = member.session_due_ms

    # -- the target ----------------------------------------------------------------------------

    def _bump(self) -> None:
        self.epoch += 1
        self._changes.append(ShareChange(ShareChangeKind.GROUP_EPOCH, None, self.epoch))

    def _have_topics_changed(self, topics: Topics) -> bool:
        """Whether a topic that members read has come, gone or grown, or got a state."""
        if topics.revision == self._topics_revision:
            return False
        self._topics_revision = topics.revision
        before, self._seen = self._seen, self._look(topics)
        if before is not None:
            return before != self._seen
        # After a restart there is nothing to compare with but the targets themselves.
        held = frozenset[Partition]().union(*self.targets.values())
        return held != self._assignable(topics.named(self._subscribed()))

    def _look(self, topics: Topics) -> object:
        seen = topics.named(self._subscribed())
        return seen, self._assignable(seen)

    def _assignable(self, seen: dict[str, TopicImage]) -> Partitions:
        return frozenset(
            (topic_id, index)
            for topic_id, count in seen.values()
            for index in self.initialized.get(topic_id, ("", frozenset()))[1]
            if index < count
        )

    def _assign_if_due(self, topics: Topics, now_ms: int, *, is_urgent: bool) -> None:
        """Compute the target of the current epoch, at most once per interval for a steady group."""
        if self.epoch == self.assignment_epoch:
            return
        is_early = (
            self._assigned_ms is not None
            and now_ms - self._assigned_ms < self.limits.assignment_interval_ms
        )
        if is_early and not is_urgent:
            return
        self._assigned_ms = now_ms
        seen = topics.named(self._subscribed())
        wanted = {
            member_id: member.subscription.names for member_id, member in self.members.items()
        }
        targets = assign_shares(wanted, self.targets, seen, self._assignable(seen))
        for member_id, target in targets.items():
            if self.targets.get(member_id) != target:
                self._changes.append(ShareChange(ShareChangeKind.TARGET, member_id, target))
        self.targets = targets
        self.assignment_epoch = self.epoch
        change = ShareChange(ShareChangeKind.ASSIGNMENT_EPOCH, None, self.epoch)
        self._changes.append(change)

    def _advance(self, member: ShareMember, topics: Topics, *, is_other: bool) -> None:
        """Give a member its target, or what it still subscribes to of one that is not renewed yet.

        Without the latter a member that has left a topic would get its records until the heartbeat
        after the assignment interval.
        """
        target = self.targets.get(member.member_id, NO_PARTITIONS)
        current = member.current
        if current.epoch == self.assignment_epoch and not is_other:
            return
        assert current.epoch <= self.assignment_epoch <= self.epoch, member.member_id
        if self.assignment_epoch != self.epoch:
            wanted = {topic_id for topic_id, _ in topics.named(member.subscription.names).values()}
            target = frozenset(each for each in target if each[0] in wanted)
        is_later = current.epoch != self.assignment_epoch
        member.current = StoredMember(
            epoch=self.assignment_epoch,
            previous_epoch=current.epoch if is_later else current.previous_epoch,
            assigned=target,
        )
        if member.current == current:
            return
        change = ShareChange(ShareChangeKind.CURRENT, member.member_id, member.current)
        self._changes.append(change)
