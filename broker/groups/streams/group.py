"""The membership of a group of Kafka Streams (KIP-1071) as a pure state machine.

Owns one group: members, epochs, the topology, the target assignment and each member's progress
towards it. Refuses to know connections, clocks, the wire and the log. A heartbeat gives an answer;
`drain` gives the changes to store, and the answer counts once they are durable.

A change of members, topics or standbys raises the group epoch, and a new target follows, once per
interval. Each member goes there in the steps of `broker.groups.consumer.group`, with tasks in place
of partitions.

Invariants: an active task belongs to one process at a time, also while it is given up; a process
never has two copies of a task; epochs only grow. Nothing changes in a heartbeat that is refused.

The first target of a group that was empty waits for `initial_delay_ms`, so that the members of an
application join together.

Differs from Kafka: a member of a full group may join again. One that asks for the end of the
application when it creates the group is heard. One that lists other tasks than it should have gets
the list again, as the answer that had it may be lost. One that names a subtopology and no task of
it owns nothing of it. The time of an assignment is not stored: the first one after a restart is due
at once.

All times are ms of one monotonic clock. Source: Kafka's `GroupMetadataManager`, `StreamsGroup`,
`CurrentAssignmentBuilder`, `TargetAssignmentBuilder`.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from broker.groups.consumer.values import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    HeartbeatRefused,
    Topics,
    indexes_by_key,
)
from broker.groups.deadlines import earliest, is_due
from broker.groups.streams import topology as topologies
from broker.groups.streams.assignor import AssignedMember, assign_tasks
from broker.groups.streams.topology import Configured
from broker.groups.streams.values import (
    FIRST_EPOCH,
    NOTHING,
    CurrentTasks,
    EndpointPartitions,
    GroupFacts,
    MemberFacts,
    MemberState,
    PartitionsOfTopic,
    Status,
    StatusCode,
    StoredStreamsGroup,
    StreamsAnswer,
    StreamsChange,
    StreamsChangeKind,
    StreamsGroupState,
    StreamsHeartbeat,
    StreamsLimits,
    StreamsMember,
    Task,
    Tasks,
    TaskSet,
)
from protocol.error_codes import ErrorCode
from protocol.streams import Topology

_Kind = StreamsChangeKind


class _Target(NamedTuple):
    """What a member is to reach, and why that is not the newest."""

    epoch: int
    tasks: TaskSet
    delay: Status | None = None


class StreamsGroup:
    """One group of Kafka Streams. Loop thread only; one coordinator calls it.

    A crash keeps only the changes that were stored; `restore` starts from those.
    """

    def __init__(self, group_id: str, limits: StreamsLimits) -> None:
        """Create an empty group of epoch 1, as Kafka does."""
        self.group_id = group_id
        self.limits = limits
        self.facts = GroupFacts()
        self.assignment_epoch = FIRST_EPOCH
        self.topology: Topology | None = None
        self.members: dict[str, StreamsMember] = {}
        self.targets: dict[str, TaskSet] = {}
        self.wake_ms: int | None = None
        self.is_stored = False
        """Whether a record of the group was given out to be stored."""

        self._configured: Configured | None = None
        self._topics_revision: int | None = None
        self._assigned_ms: int | None = None
        self._delayed_until_ms: int | None = None
        self._shutdown_by: str | None = None
        self._endpoint_epoch = 0
        self._active_owner: dict[Task, str] = {}
        self._standby_owners: Counter[tuple[Task, str]] = Counter()
        self._changes: list[StreamsChange] = []

    @property
    def is_empty(self) -> bool:
        """Whether there is no member: only such a group can be deleted."""
        return not self.members

    @property
    def state(self) -> StreamsGroupState:
        """The state of the group, as shown to people."""
        if not self.members:
            return StreamsGroupState.EMPTY
        if self.topology is None or self.topology.epoch != self.facts.validated_topology_epoch:
            return StreamsGroupState.NOT_READY
        if self.facts.epoch > self.assignment_epoch:
            return StreamsGroupState.ASSIGNING
        if all(_is_settled(each, self.assignment_epoch) for each in self.members.values()):
            return StreamsGroupState.STABLE
        return StreamsGroupState.RECONCILING

    @property
    def configured(self) -> Configured | None:
        """The topics of the topology as last decided; None after a restart."""
        return self._configured

    def source_topics(self) -> frozenset[str]:
        """The topics that members read."""
        if self.topology is None or not self.members:
            return frozenset()
        return frozenset(topologies.source_subtopologies(self.topology))

    # -- requests ------------------------------------------------------------------------------

    def heartbeat(self, request: StreamsHeartbeat, topics: Topics, now_ms: int) -> StreamsAnswer:
        """Take a heartbeat: join, continue, or leave. `drain` gives the changes to store."""
        try:
            if request.member_epoch == LEAVE_EPOCH:
                return self._leave(request)
            return self._continue(request, topics, now_ms)
        except HeartbeatRefused as refusal:
            return StreamsAnswer(error=refusal.error, error_message=str(refusal))

    def offset_error(
        self,
        member_id: str,
        member_epoch: int,
        committed: Iterable[tuple[str, int]] | None = None,
    ) -> ErrorCode:
        """NONE when this member may fetch offsets in this epoch, or commit those of `committed`.

        A member may commit in a past epoch for active tasks that it has had since then (KIP-1251).
        """
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member.current.member_epoch == member_epoch:
            return ErrorCode.NONE
        is_past = committed is not None and member_epoch < member.current.member_epoch
        if is_past and self.topology is not None:
            subtopologies = topologies.source_subtopologies(self.topology)
            since = [
                member.current.had_since((subtopologies.get(topic, ""), index))
                for topic, index in committed or ()
            ]
            if all(epoch is not None and epoch <= member_epoch for epoch in since):
                return ErrorCode.NONE
        return ErrorCode.STALE_MEMBER_EPOCH

    # -- what happens without a request --------------------------------------------------------

    def tick(self, topics: Topics, now_ms: int) -> None:
        """Remove members that are late, compute a delayed target; set `wake_ms`."""
        for member in list(self.members.values()):
            if is_due(earliest((member.session_due_ms, member.rebalance_due_ms)), now_ms):
                self._remove(member)
        if is_due(self._delayed_until_ms, now_ms):
            self._delayed_until_ms = None
            if self.members and self.topology is not None:
                self._configured = self._configured or topologies.configure(self.topology, topics)
                self._assign_if_due(self._configured, now_ms)
        dues_left = [self._delayed_until_ms]
        for member in self.members.values():
            dues_left += (member.session_due_ms, member.rebalance_due_ms)
        self.wake_ms = earliest(dues_left)

    def restore(self, stored: StoredStreamsGroup, now_ms: int) -> None:
        """Take the stored state; members get a full session from now to come back."""
        self.is_stored = True
        self.facts = stored.group or GroupFacts()
        self.assignment_epoch = stored.assignment_epoch
        self.topology = stored.topology
        for member_id, facts in stored.facts.items():
            member = StreamsMember(
                member_id=member_id,
                facts=facts,
                current=stored.current.get(member_id, CurrentTasks()),
            )
            self.members[member_id] = member
            if member_id in stored.targets:
                self.targets[member_id] = stored.targets[member_id]
            self._own(member)
            self._expect(member, now_ms)
            if member.current.state is MemberState.UNREVOKED:
                self._limit_revocation(member, now_ms)

    def erase(self) -> list[StreamsChange]:
        """Tombstones for all stored records of the group."""
        self._changes.clear()
        for member_id in self.members:
            self._forget_records(member_id)
        for kind in (_Kind.ASSIGNMENT_EPOCH, _Kind.GROUP, _Kind.TOPOLOGY):
            self._changes.append(StreamsChange(kind, None, None))
        return self.drain()

    def drain(self) -> list[StreamsChange]:
        """The changes to store since the last call."""
        assert self.assignment_epoch <= self.facts.epoch, (
            f"{self.group_id}: a target of later tasks"
        )
        changes, self._changes = self._changes, []
        self.is_stored = self.is_stored or bool(changes)
        return changes

    # -- members -------------------------------------------------------------------------------

    def _leave(self, request: StreamsHeartbeat) -> StreamsAnswer:
        member = self._known(request.member_id)
        if request.wants_shutdown:
            self._shutdown_by = self._shutdown_by or request.member_id
        self._remove(member)
        return StreamsAnswer(member_id=request.member_id, member_epoch=LEAVE_EPOCH)

    def _continue(self, request: StreamsHeartbeat, topics: Topics, now_ms: int) -> StreamsAnswer:
        known = self._checked_member(request)
        topology = self._checked_topology(request)
        configured, digest = self._checked_topics(topology, topics)
        if configured.is_ready:
            _check_tasks(configured, request.owned)
        # Nothing is refused from here on.
        was_empty = self.is_empty
        member = known or StreamsMember(member_id=request.member_id)
        facts = _said(member.facts, request)
        stale = self._stale_status(facts)
        is_changed = known is None or facts != member.facts
        if is_changed:
            self._describe(member, facts)
        if self.topology is None:
            self.topology = topology
            self._changes.append(StreamsChange(_Kind.TOPOLOGY, None, topology))
        self._configured, self._topics_revision = configured, topics.revision
        wanted = GroupFacts(
            epoch=self.facts.epoch,
            metadata_hash=digest,
            validated_topology_epoch=topology.epoch if configured.is_ready else -1,
            standby_replicas=self.limits.standby_replicas,
        )
        if is_changed or wanted != self.facts:
            self.facts = wanted
            self._bump()
        if was_empty and self.limits.initial_delay_ms and self._delayed_until_ms is None:
            self._delayed_until_ms = now_ms + self.limits.initial_delay_ms
            self._wake_by(self._delayed_until_ms)
        before = member.current
        target = self._target(member, configured, now_ms)
        self._reconcile(member, target, request.owned, now_ms)
        self._expect(member, now_ms)
        if request.wants_shutdown:
            self._shutdown_by = self._shutdown_by or request.member_id
        statuses = (stale, target.delay, configured.problem, self._shutdown_status())
        assigned = member.current.assigned
        is_sent = (
            request.member_epoch == JOIN_EPOCH
            or before.assigned != assigned
            or request.owned not in (None, assigned)
        )
        endpoint_epoch, endpoints = self._endpoints(request, member, topics, is_sent=is_sent)
        return StreamsAnswer(
            member_id=member.member_id,
            member_epoch=member.current.member_epoch,
            heartbeat_interval_ms=self.limits.heartbeat_interval_ms,
            statuses=tuple(status for status in statuses if status is not None),
            tasks=assigned if is_sent else None,
            endpoint_epoch=endpoint_epoch,
            endpoints=endpoints,
            missing=configured.missing,
        )

    def _known(self, member_id: str) -> StreamsMember:
        member = self.members.get(member_id)
        if member is None:
            raise HeartbeatRefused(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member {member_id} is not a member of group {self.group_id}.",
            )
        return member

    def _checked_member(self, request: StreamsHeartbeat) -> StreamsMember | None:
        """The member, None for a new one. Raises: HeartbeatRefused."""
        if request.member_epoch == JOIN_EPOCH:
            known = self.members.get(request.member_id)
            if known is None and len(self.members) >= self.limits.size_max:
                raise HeartbeatRefused(
                    ErrorCode.GROUP_MAX_SIZE_REACHED,
                    f"The group has {len(self.members)} members, as many as "
                    "group.streams.max.size allows.",
                )
            return known
        member = self._known(request.member_id)
        current = member.current
        is_retry = (
            request.member_epoch == current.previous_epoch < current.member_epoch
            and request.owned is not None
            and request.owned.is_within(current.assigned)
        )
        if request.member_epoch != current.member_epoch and not is_retry:
            raise HeartbeatRefused(
                ErrorCode.FENCED_MEMBER_EPOCH,
                f"Member {member.member_id} is in epoch {current.member_epoch}, "
                f"not {request.member_epoch}; give up all tasks and join again.",
            )
        return member

    def _checked_topology(self, request: StreamsHeartbeat) -> Topology:
        """The group's topology, the member's if it is the first. Raises: HeartbeatRefused."""
        asked, known = request.topology, self.topology
        if known is None:
            if asked is None:
                raise topologies.invalid(f"Group {self.group_id} has no topology; join again.")
            return asked
        if (
            asked is not None
            and asked.epoch >= known.epoch
            and not topologies.is_same(asked, known)
        ):
            raise HeartbeatRefused(
                ErrorCode.INVALID_REQUEST,
                "Topology updates are not supported: a changed application needs another "
                "application.id, or the deletion of the empty group.",
            )
        return known

    def _checked_topics(self, topology: Topology, topics: Topics) -> tuple[Configured, int]:
        """What the existing topics mean for the topology. Raises: HeartbeatRefused."""
        if self._configured is not None and topics.revision == self._topics_revision:
            return self._configured, self.facts.metadata_hash
        digest = topologies.metadata_hash(topology, topics)
        if self._configured is not None and digest == self.facts.metadata_hash:
            return self._configured, digest
        return topologies.configure(topology, topics), digest

    def _describe(self, member: StreamsMember, facts: MemberFacts) -> None:
        if member.member_id in self.members:
            self._disown(member)
        member.facts = facts
        self.members[member.member_id] = member
        self._own(member)
        self._changes.append(StreamsChange(_Kind.MEMBER, member.member_id, facts))

    def _remove(self, member: StreamsMember) -> None:
        self._disown(member)
        del self.members[member.member_id]
        self.targets.pop(member.member_id, None)
        self._forget_records(member.member_id)
        self._bump()
        if not self.members:
            self._shutdown_by = None

    def _forget_records(self, member_id: str) -> None:
        for kind in (_Kind.CURRENT, _Kind.TARGET, _Kind.MEMBER):
            self._changes.append(StreamsChange(kind, member_id, None))

    def _bump(self) -> None:
        self.facts = replace(self.facts, epoch=self.facts.epoch + 1)
        self._changes.append(StreamsChange(_Kind.GROUP, None, self.facts))

    # -- statuses ------------------------------------------------------------------------------

    def _stale_status(self, facts: MemberFacts) -> Status | None:
        if self.topology is None or facts.topology_epoch >= self.topology.epoch:
            return None
        return Status(
            StatusCode.STALE_TOPOLOGY,
            f"The member's topology epoch {facts.topology_epoch} is behind the group's topology "
            f"epoch {self.topology.epoch}.",
        )

    def _shutdown_status(self) -> Status | None:
        if self._shutdown_by is None:
            return None
        return Status(
            StatusCode.SHUTDOWN_APPLICATION,
            f"Member {self._shutdown_by} encountered a fatal error and requested the shutdown of "
            "the entire application.",
        )

    def _endpoints(
        self, request: StreamsHeartbeat, member: StreamsMember, topics: Topics, *, is_sent: bool
    ) -> tuple[int, list[EndpointPartitions] | None]:
        """The epoch of the endpoints, and the partitions of each if the member does not know them.

        A group that begins with this heartbeat has epoch 0, as in Kafka.
        """
        epoch = self._endpoint_epoch + (is_sent and member.facts.endpoint is not None)
        endpoints = None
        if epoch != request.endpoint_epoch:
            others = [each for each in self.members.values() if each is not member]
            endpoints = [
                EndpointPartitions(
                    each.facts.endpoint,
                    self._partitions(each.current.assigned.active, topics),
                    self._partitions(each.current.assigned.standby, topics),
                )
                for each in (*others, member)
                if each.facts.endpoint is not None
            ]
        if self.is_stored:
            self._endpoint_epoch = epoch
        return self._endpoint_epoch, endpoints

    def _partitions(self, tasks: Tasks, topics: Topics) -> list[PartitionsOfTopic]:
        """The partitions of source topics that tasks read."""
        subtopologies = None if self._configured is None else self._configured.subtopologies
        found = []
        for name, indexes in indexes_by_key(tasks).items():
            sub = (subtopologies or {}).get(name)
            if sub is None:
                continue
            names = {*sub.source_topics, *(info.name for info in sub.repartition_sources)}
            for topic, image in sorted(topics.named(names).items()):
                there = [index for index in indexes if index < image.partitions]
                found.append(PartitionsOfTopic(topic, there))
        return found

    # -- the target ----------------------------------------------------------------------------

    def _target(self, member: StreamsMember, configured: Configured, now_ms: int) -> _Target:
        delay = None
        if self._delayed_until_ms is not None:
            text = "Assignment delayed due to the configured initial rebalance delay."
            delay = Status(StatusCode.ASSIGNMENT_DELAYED, text)
            return _Target(self.assignment_epoch, NOTHING, delay)
        if not self._assign_if_due(configured, now_ms):
            text = "Assignment delayed due to the configured assignment interval."
            delay = Status(StatusCode.ASSIGNMENT_DELAYED, text)
        tasks = self.targets.get(member.member_id, NOTHING)
        return _Target(self.assignment_epoch, tasks, delay)

    def _assign_if_due(self, configured: Configured, now_ms: int) -> bool:
        """Compute the target of the current epoch; return False if it is too early for that."""
        if self.assignment_epoch >= self.facts.epoch:
            return True
        pause_ms = self.limits.assignment_interval_ms
        if self._assigned_ms is not None and now_ms - self._assigned_ms < pause_ms:
            return False
        self._assigned_ms = now_ms
        members = {
            member_id: AssignedMember(member.facts.process_id, self.targets.get(member_id, NOTHING))
            for member_id, member in self.members.items()
        }
        standbys = self.facts.standby_replicas or 0
        targets = assign_tasks(members, configured.task_groups(), standbys)
        for member_id, target in targets.items():
            if self.targets.get(member_id) != target:
                self._changes.append(StreamsChange(_Kind.TARGET, member_id, target))
        self.targets = targets
        self.assignment_epoch = self.facts.epoch
        self._changes.append(StreamsChange(_Kind.ASSIGNMENT_EPOCH, None, self.assignment_epoch))
        return True

    # -- on the way to the target --------------------------------------------------------------

    def _reconcile(
        self, member: StreamsMember, target: _Target, owned: TaskSet | None, now_ms: int
    ) -> None:
        """Bring a member as near to its target as the others allow."""
        before = member.current
        if _is_settled(member, target.epoch):
            return
        epoch = before.member_epoch
        if before.state is MemberState.UNREVOKED:
            if owned is None or owned.overlaps(before.pending_revocation):
                return
            epoch += 1
        after = self._next(member, epoch, target, owned)
        if after == before:
            return
        self._disown(member)
        member.current = after
        self._own(member)
        self._changes.append(StreamsChange(_Kind.CURRENT, member.member_id, after))
        member.rebalance_due_ms = None
        if after.state is MemberState.UNREVOKED:
            self._limit_revocation(member, now_ms)

    def _next(
        self, member: StreamsMember, epoch: int, target: _Target, owned: TaskSet | None
    ) -> CurrentTasks:
        """One member's next step towards its target, as in a consumer group (`_next_assignment`).

        It is UNREVOKED in `epoch`, UNRELEASED or STABLE in the epoch of the target.
        """
        current, wanted = member.current, target.tasks
        kept = TaskSet(
            current.assigned.active & wanted.active, current.assigned.standby & wanted.standby
        )
        revoked = TaskSet(
            current.assigned.active - wanted.active, current.assigned.standby - wanted.standby
        )
        since = {task: current.had_since(task) or 0 for task in current.assigned.active}
        previous = current.member_epoch
        if revoked != NOTHING and (owned is None or owned.overlaps(revoked)):
            return CurrentTasks(
                member_epoch=epoch,
                previous_epoch=previous,
                state=MemberState.UNREVOKED,
                assigned=kept,
                pending_revocation=revoked,
                since=since,
            )
        process = member.facts.process_id
        active = kept.active | {
            task
            for task in wanted.active - kept.active
            if task not in self._active_owner and not self._standby_owners[task, process]
        }
        standby = kept.standby | {
            task
            for task in wanted.standby - kept.standby
            if self._active_owner.get(task) != process and not self._standby_owners[task, process]
        }
        assigned = TaskSet(active, standby)
        return CurrentTasks(
            member_epoch=target.epoch,
            previous_epoch=previous,
            state=MemberState.STABLE if assigned == wanted else MemberState.UNRELEASED,
            assigned=assigned,
            since={task: since.get(task, target.epoch) for task in active},
        )

    def _own(self, member: StreamsMember) -> None:
        process = member.facts.process_id
        for tasks in (member.current.assigned, member.current.pending_revocation):
            self._active_owner.update(dict.fromkeys(tasks.active, process))
            self._standby_owners.update((task, process) for task in tasks.standby)

    def _disown(self, member: StreamsMember) -> None:
        process = member.facts.process_id
        for tasks in (member.current.assigned, member.current.pending_revocation):
            for task in tasks.active:
                if self._active_owner.get(task) == process:
                    del self._active_owner[task]
            for task in tasks.standby:
                self._standby_owners[task, process] -= 1
                if not self._standby_owners[task, process]:
                    del self._standby_owners[task, process]

    # -- deadlines -----------------------------------------------------------------------------

    def _expect(self, member: StreamsMember, now_ms: int) -> None:
        member.session_due_ms = now_ms + self.limits.session_timeout_ms
        self._wake_by(member.session_due_ms)

    def _limit_revocation(self, member: StreamsMember, now_ms: int) -> None:
        member.rebalance_due_ms = now_ms + max(member.facts.rebalance_timeout_ms, 0)
        self._wake_by(member.rebalance_due_ms)

    def _wake_by(self, due_ms: int) -> None:
        self.wake_ms = earliest((self.wake_ms, due_ms))


def _is_settled(member: StreamsMember, epoch: int) -> bool:
    current = member.current
    return current.state is MemberState.STABLE and current.member_epoch == epoch


def _said(before: MemberFacts, request: StreamsHeartbeat) -> MemberFacts:
    """A member's description after this heartbeat."""
    timeout_ms, topology, tags = request.rebalance_timeout_ms, request.topology, request.tags
    return replace(
        before,
        rack_id=before.rack_id if request.rack_id is None else request.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        rebalance_timeout_ms=before.rebalance_timeout_ms if timeout_ms is None else timeout_ms,
        topology_epoch=before.topology_epoch if topology is None else topology.epoch,
        process_id=before.process_id if request.process_id is None else request.process_id,
        endpoint=before.endpoint if request.endpoint is None else request.endpoint,
        tags=before.tags if tags is None else dict(tags),
    )


def _check_tasks(configured: Configured, owned: TaskSet | None) -> None:
    """Check that the tasks exist that a member claims to own. Raises: HeartbeatRefused."""
    groups = configured.task_groups()
    for name, partition in () if owned is None else owned.active | owned.standby:
        if name not in groups:
            text = f"Subtopology {name} does not exist in the topology."
        elif not 0 <= partition < groups[name].task_count:
            text = (
                f"Subtopology {name} has {groups[name].task_count} tasks, and no task {partition}."
            )
        else:
            continue
        raise HeartbeatRefused(ErrorCode.INVALID_REQUEST, text)
