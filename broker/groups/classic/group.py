"""The classic group protocol as a pure state machine: requests in, actions out, time handed in.

Owns one group's state, generation and deadlines. Refuses to know connections, tasks, clocks, the
wire and the log. A request that must wait leaves its waiter here, and a later action answers it.
What must be durable leaves as `StoreGroup` and comes back through `stored`.

```
            join                    all joined, or rebalance timeout
    EMPTY ────────▶ PREPARING_REBALANCE ────────────────▶ COMPLETING_REBALANCE
      ▲               │   ▲        ▲                               │ leader's sync stored
      └── all gone ───┘   │        └──── join, leave, expiry ◀─────┤
                          └───────────── join, leave, expiry ── STABLE
```

Invariants: the generation only grows. A waiting member has no deadline unless it is new: it cannot
send heartbeats, and a new one may have gone away unnoticed. Every waiter taken is answered once.
`wake_ms` is never later than the earliest deadline, so the owner needs one timer per group, not one
per member: heartbeats only move deadlines later and leave the timer alone.

All times are ms of one monotonic clock. Source: Kafka's `GroupMetadataManager.classicGroupJoin`
and `ClassicGroup` (3.9); KIP-62, KIP-134, KIP-345, KIP-394, KIP-814.
"""

from broker.groups.classic.members import ClassicMember, Members, joining_member
from broker.groups.classic.values import (
    NO_LEADER,
    NO_MEMBER_ID,
    Action,
    Answer,
    AssignmentReceipt,
    GroupLimits,
    GroupState,
    JoinAnswer,
    JoinedMember,
    JoinRequest,
    Receipt,
    StaticMemberReceipt,
    StoreGroup,
    SyncAnswer,
    SyncRequest,
    Waiter,
)
from broker.groups.deadlines import earliest, is_due
from protocol.error_codes import ErrorCode
from protocol.stored.group_log import GroupMetadataValue

_REBALANCEABLE = frozenset({GroupState.EMPTY, GroupState.COMPLETING_REBALANCE, GroupState.STABLE})

_PREDECESSORS = {
    GroupState.EMPTY: {GroupState.PREPARING_REBALANCE},
    GroupState.PREPARING_REBALANCE: _REBALANCEABLE,
    GroupState.COMPLETING_REBALANCE: {GroupState.PREPARING_REBALANCE},
    GroupState.STABLE: {GroupState.COMPLETING_REBALANCE, GroupState.EMPTY},
    GroupState.DEAD: frozenset(GroupState),
}
"""The states before each state; only a group that is taken over becomes stable at once."""


class ClassicGroup:
    """One classic group.

    Lives in the loop thread, called by one coordinator. Each request method returns the actions to
    carry out, in order. After any call the owner compares `wake_ms` with its timer. A crash keeps
    only what `StoreGroup` actions wrote; `restore` starts from that.
    """

    def __init__(self, group_id: str, limits: GroupLimits) -> None:
        """Create an empty group of generation 0, without a protocol type."""
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.members = Members()
        self.wake_ms: int | None = None
        self._limits = limits
        self._actions: list[Action] = []
        self._rebalance_due_ms: int | None = None
        self._initial_delay_left_ms: int | None = None
        self._joined_since_delay = False
        self._sync_due_ms: int | None = None
        self._unsynced: set[str] = set()

    @property
    def is_empty(self) -> bool:
        """Whether there is no member and no rebalance: only such a group can be deleted."""
        return self.state is GroupState.EMPTY

    # -- requests ------------------------------------------------------------------------------

    def join(self, request: JoinRequest, waiter: Waiter, now_ms: int) -> list[Action]:
        """Take a JoinGroup; the answer comes at once or when the rebalance completes."""
        error = join_error(self, request, self._limits)
        if error is not ErrorCode.NONE:
            self._reject_join(waiter, error, request.member_id)
            if error is ErrorCode.GROUP_MAX_SIZE_REACHED and request.member_id in self.members:
                self._drop(request.member_id)
        elif request.member_id == NO_MEMBER_ID:
            self._join_new(request, waiter, now_ms)
        else:
            self._join_known(request, waiter, now_ms)
        self._try_complete_join(now_ms)
        return self._drain()

    def sync(self, request: SyncRequest, waiter: Waiter, now_ms: int) -> list[Action]:
        """Take a SyncGroup; followers wait until the leader's assignments are durable."""
        error = _sync_error(self, request)
        if error is not ErrorCode.NONE:
            self._actions.append(Answer(waiter=waiter, answer=SyncAnswer(error=error)))
            return self._drain()
        member = self.members.get(request.member_id)
        self._unsynced.discard(request.member_id)
        if not self._unsynced:
            self._sync_due_ms = None
        if self.state is GroupState.STABLE:
            self._actions.append(Answer(waiter=waiter, answer=self.sync_answer(member)))
            self._expect(member, now_ms)
            return self._drain()
        self._release_sync(member, ErrorCode.REBALANCE_IN_PROGRESS)
        member.sync_waiter = waiter
        member.deadline_ms = None
        if member.member_id == self.members.leader_id:
            given = request.assignments
            self._store(AssignmentReceipt(self.generation_id, given), given)
        return self._drain()

    def heartbeat(
        self, member_id: str, group_instance_id: str | None, generation_id: int, now_ms: int
    ) -> ErrorCode:
        """Note that a member is alive; REBALANCE_IN_PROGRESS makes it join again."""
        error = _member_error(self, member_id, group_instance_id, generation_id)
        if error is not ErrorCode.NONE:
            return error
        self._expect(self.members.get(member_id), now_ms)
        if self.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def leave(
        self, member_id: str, group_instance_id: str | None, now_ms: int
    ) -> tuple[ErrorCode, list[Action]]:
        """Remove one member; a static member may be named by its instance id alone."""
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, []
        if member_id in self.members.pending:
            if group_instance_id is not None:
                return ErrorCode.UNKNOWN_MEMBER_ID, []
            self._forget_pending(member_id, now_ms)
            return ErrorCode.NONE, self._drain()
        if member_id == NO_MEMBER_ID and group_instance_id is not None:
            member_id = self.members.find_static(group_instance_id) or NO_MEMBER_ID
        error = self.members.identity_error(member_id, group_instance_id)
        if error is not ErrorCode.NONE:
            return error, []
        self._remove(member_id, now_ms)
        return ErrorCode.NONE, self._drain()

    def commit_error(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_id: int,
        *,
        now_ms: int,
        is_transactional: bool = False,
    ) -> ErrorCode:
        """NONE when this member may commit offsets; the commit then counts as a sign of life."""
        who = (member_id, group_instance_id, generation_id)
        error = commit_error(self, *who, is_transactional=is_transactional)
        member = self.members.find(member_id)
        if error is ErrorCode.NONE and member is not None and not is_transactional:
            self._expect(member, now_ms)
        return error

    # -- what happens without a request --------------------------------------------------------

    def tick(self, now_ms: int) -> list[Action]:
        """Act on every deadline that has passed and set `wake_ms` to the next one.

        Cost: one pass over the members; called about once per earliest deadline.
        """
        for member_id in [m for m, due in self.members.pending.items() if due <= now_ms]:
            self._forget_pending(member_id, now_ms)
        for member in self.members.overdue(now_ms):
            self._remove(member.member_id, now_ms)
        if is_due(self._rebalance_due_ms, now_ms):
            self._rebalance_due(now_ms)
        if is_due(self._sync_due_ms, now_ms):
            self._sync_due(now_ms)
        deadlines = [member.deadline_ms for member in self.members]
        deadlines += [*self.members.pending.values(), self._rebalance_due_ms, self._sync_due_ms]
        self.wake_ms = earliest(deadlines)
        return self._drain()

    def stored(self, receipt: Receipt, error: ErrorCode, now_ms: int) -> list[Action]:
        """Continue after a `StoreGroup` with a receipt is durable (NONE) or failed (its error)."""
        if isinstance(receipt, AssignmentReceipt):
            self._assignments_stored(receipt, error, now_ms)
        else:
            self._static_member_stored(receipt, error)
        return self._drain()

    def restore(self, snapshot: GroupMetadataValue, now_ms: int) -> None:
        """Take the state of a snapshot; members get a full session from now to come back."""
        self.protocol_type = snapshot.protocol_type or None
        self.protocol_name = snapshot.protocol
        self.take_over(Members.restored(snapshot), snapshot.generation, now_ms)

    def take_over(self, members: Members, generation_id: int, now_ms: int) -> None:
        """Become the group of these members, in a generation that they already have."""
        assert self.state is GroupState.EMPTY
        assert self.generation_id <= generation_id, self.group_id
        self.members = members
        self.generation_id = generation_id
        for member in members:
            self._expect(member, now_ms)
        if len(members):
            self._become(GroupState.STABLE)

    def rebalance(self, now_ms: int) -> list[Action]:
        """Make every member join again, for a reason outside this state machine."""
        self._maybe_prepare_rebalance(now_ms)
        return self._drain()

    def snapshot(self, assignments: dict[str, bytes] | None = None) -> GroupMetadataValue:
        """The group now, or as it will be under these assignments (absent members get none)."""
        members = [member.snapshot(self.protocol_name) for member in self.members]
        if assignments is not None:
            for member in members:
                member.assignment = assignments.get(member.member_id, b"")
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation_id,
            protocol=self.protocol_name,
            leader=self.members.leader_id,
            members=members,
        )

    def release(self, error: ErrorCode) -> list[Action]:
        """Answer every waiting request with `error`: the coordinator goes away."""
        for member in self.members:
            waiter = self.members.set_join_waiter(member, None)
            if waiter is not None:
                self._reject_join(waiter, error, member.member_id)
            self._release_sync(member, error)
        return self._drain()

    def kill(self) -> None:
        """Become DEAD; only an empty group can be deleted. Raises: AssertionError otherwise."""
        assert self.state is GroupState.EMPTY, self.state
        self.retire(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def retire(self, error: ErrorCode) -> list[Action]:
        """Become DEAD because the members continue elsewhere; answer waiters with `error`."""
        actions = self.release(error)
        self._become(GroupState.DEAD)
        self.members.pending.clear()
        return actions

    # -- joining -------------------------------------------------------------------------------

    def _join_new(self, request: JoinRequest, waiter: Waiter, now_ms: int) -> None:
        member_id = request.new_member_id
        if request.group_instance_id is not None:
            known_id = self.members.find_static(request.group_instance_id)
            if known_id is not None:
                self._replace_static(known_id, request, waiter, now_ms)
                return
        elif request.requires_known_member_id:
            due_ms = now_ms + request.session_timeout_ms
            self.members.pending[member_id] = due_ms
            self._wake_by(due_ms)
            self._reject_join(waiter, ErrorCode.MEMBER_ID_REQUIRED, member_id)
            return
        self._add(member_id, request, waiter, now_ms)

    def _join_known(self, request: JoinRequest, waiter: Waiter, now_ms: int) -> None:
        if request.member_id in self.members.pending and request.group_instance_id is None:
            self._add(request.member_id, request, waiter, now_ms)
            return
        error = self.members.identity_error(request.member_id, request.group_instance_id)
        if error is not ErrorCode.NONE:
            self._reject_join(waiter, error, request.member_id)
            return
        member = self.members.get(request.member_id)
        if _is_settled(self, member, request):
            self._actions.append(Answer(waiter=waiter, answer=self.join_answer(member)))
            return
        self._update(member, request, waiter)
        self._maybe_prepare_rebalance(now_ms)

    def _add(self, member_id: str, request: JoinRequest, waiter: Waiter, now_ms: int) -> None:
        if not len(self.members):
            self.protocol_type = request.protocol_type
        due_ms = now_ms + self._limits.new_member_join_timeout_ms
        member = joining_member(request, member_id, waiter, deadline_ms=due_ms)
        self.members.add(member)
        self._wake_by(due_ms)
        if self.state is GroupState.PREPARING_REBALANCE:
            self._joined_since_delay = True
        self._maybe_prepare_rebalance(now_ms)

    def _update(self, member: ClassicMember, request: JoinRequest, waiter: Waiter) -> None:
        self.members.set_protocols(member, request.protocols)
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        former = self.members.set_join_waiter(member, waiter)
        if former is not None:
            self._reject_join(former, ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
        if not member.is_new:
            member.deadline_ms = None

    def _replace_static(
        self, former_id: str, request: JoinRequest, waiter: Waiter, now_ms: int
    ) -> None:
        """Give a returning static member its former place; the old member id is fenced."""
        former_leader_id = self.members.leader_id or NO_LEADER
        member = self.members.get(former_id)
        former = self.members.set_join_waiter(member, None)
        if former is not None:
            self._reject_join(former, ErrorCode.FENCED_INSTANCE_ID, former_id)
        self._release_sync(member, ErrorCode.FENCED_INSTANCE_ID)
        member = self.members.rename(former_id, request.new_member_id)
        self._unsynced.discard(former_id)
        self._update(member, request, waiter)
        if (
            self.state is not GroupState.STABLE
            or self.members.select_protocol() != self.protocol_name
        ):
            self._maybe_prepare_rebalance(now_ms)
            return
        self.members.set_join_waiter(member, None)
        self._expect(member, now_ms)
        # Assignments of a stable group are not handed out again, so the member must not act as
        # leader. KIP-814 has a flag for that; before it, naming the old leader id does the same.
        is_leader = member.member_id == self.members.leader_id
        may_skip = request.supports_skipping_assignment
        answer = self.join_answer(
            member,
            leader_id=None if may_skip else former_leader_id,
            skip_assignment=may_skip and is_leader,
        )
        self._store(StaticMemberReceipt(waiter=waiter, answer=answer))

    def _static_member_stored(self, receipt: StaticMemberReceipt, error: ErrorCode) -> None:
        """Answer the replacement; after a failure the member joins and replaces itself again."""
        answer = receipt.answer
        if error is not ErrorCode.NONE:
            answer = JoinAnswer(error=error, member_id=NO_MEMBER_ID)
        self._actions.append(Answer(waiter=receipt.waiter, answer=answer))

    # -- rebalancing ---------------------------------------------------------------------------

    def _maybe_prepare_rebalance(self, now_ms: int) -> None:
        if self.state in _REBALANCEABLE:
            self._prepare_rebalance(now_ms)

    def _prepare_rebalance(self, now_ms: int) -> None:
        if self.state is GroupState.COMPLETING_REBALANCE:
            self._propagate(ErrorCode.REBALANCE_IN_PROGRESS, now_ms, assignments={})
        was_empty = self.state is GroupState.EMPTY
        self._become(GroupState.PREPARING_REBALANCE)
        self._unsynced.clear()
        self._sync_due_ms = None
        timeout_ms = self.members.rebalance_timeout_ms
        delay_ms = self._limits.initial_rebalance_delay_ms
        self._initial_delay_left_ms = None
        if was_empty and not delay_ms:
            self._complete_join(now_ms)
            return
        if was_empty:
            self._joined_since_delay = False
            self._initial_delay_left_ms = max(timeout_ms - delay_ms, 0)
            timeout_ms = delay_ms
        self._rebalance_due_ms = now_ms + timeout_ms
        self._wake_by(self._rebalance_due_ms)
        self._try_complete_join(now_ms)

    def _try_complete_join(self, now_ms: int) -> None:
        """Start the generation when no member is missing; an empty group first waits its delay."""
        is_open = self.state is GroupState.PREPARING_REBALANCE
        if is_open and self._initial_delay_left_ms is None and self.members.has_all_joined:
            self._complete_join(now_ms)

    def _rebalance_due(self, now_ms: int) -> None:
        assert self.state is GroupState.PREPARING_REBALANCE
        left_ms = self._initial_delay_left_ms
        if left_ms and self._joined_since_delay:
            delay_ms = min(self._limits.initial_rebalance_delay_ms, left_ms)
            self._joined_since_delay = False
            self._initial_delay_left_ms = left_ms - delay_ms
            self._rebalance_due_ms = now_ms + delay_ms
            return
        self._complete_join(now_ms)

    def _complete_join(self, now_ms: int) -> None:
        """Drop the dynamic members that did not rejoin, and begin the next generation."""
        for member in [m for m in self.members if m.join_waiter is None]:
            if member.group_instance_id is None:
                self._drop(member.member_id)
        if len(self.members) and not self.members.elect_joined_leader():
            # Only absent static members are left; their sessions decide, not this deadline.
            self._rebalance_due_ms = now_ms + self.members.rebalance_timeout_ms
            self._wake_by(self._rebalance_due_ms)
            return
        self._rebalance_due_ms = None
        self._initial_delay_left_ms = None
        self.generation_id += 1
        if not len(self.members):
            self.protocol_name = None
            self._become(GroupState.EMPTY)
            self._store()
            return
        self.protocol_name = self.members.select_protocol()
        self._become(GroupState.COMPLETING_REBALANCE)
        self._unsynced = {member.member_id for member in self.members}
        self._sync_due_ms = now_ms + self.members.rebalance_timeout_ms
        self._wake_by(self._sync_due_ms)
        for member in self.members:
            waiter = self.members.set_join_waiter(member, None)
            member.is_new = False
            self._expect(member, now_ms)
            if waiter is not None:
                self._actions.append(Answer(waiter=waiter, answer=self.join_answer(member)))

    # -- assignments ---------------------------------------------------------------------------

    def _assignments_stored(
        self, receipt: AssignmentReceipt, error: ErrorCode, now_ms: int
    ) -> None:
        is_waiting = self.state is GroupState.COMPLETING_REBALANCE
        if not is_waiting or receipt.generation_id != self.generation_id:
            return  # another rebalance began meanwhile and has already answered the waiters
        if error is not ErrorCode.NONE:
            self._propagate(error, now_ms, assignments={})
            self._maybe_prepare_rebalance(now_ms)
            return
        self._become(GroupState.STABLE)
        self._propagate(ErrorCode.NONE, now_ms, assignments=receipt.assignments)

    def _propagate(self, error: ErrorCode, now_ms: int, *, assignments: dict[str, bytes]) -> None:
        """Set every member's assignment and answer the SyncGroups that wait for it.

        Their sessions start again: a deadline that passed while they waited had no effect.
        """
        for member in self.members:
            member.assignment = assignments.get(member.member_id, b"")
            if member.sync_waiter is not None:
                self._release_sync(member, error)
                self._expect(member, now_ms)

    def _sync_due(self, now_ms: int) -> None:
        """Drop the members that sent no SyncGroup in time; the others rebalance."""
        self._sync_due_ms = None
        if not self._unsynced:
            return
        for member_id in sorted(self._unsynced):
            self._drop(member_id)
        self._prepare_rebalance(now_ms)

    # -- leaving -------------------------------------------------------------------------------

    def _remove(self, member_id: str, now_ms: int) -> None:
        self._drop(member_id)
        self._maybe_prepare_rebalance(now_ms)
        self._try_complete_join(now_ms)

    def _drop(self, member_id: str) -> None:
        self._unsynced.discard(member_id)
        member = self.members.remove(member_id)
        # This error makes a waiting member join again under a new id.
        if member.join_waiter is not None:
            self._reject_join(member.join_waiter, ErrorCode.UNKNOWN_MEMBER_ID, member_id)
        self._release_sync(member, ErrorCode.UNKNOWN_MEMBER_ID)

    def _forget_pending(self, member_id: str, now_ms: int) -> None:
        del self.members.pending[member_id]
        self._try_complete_join(now_ms)

    # -- small steps ---------------------------------------------------------------------------

    def _become(self, state: GroupState) -> None:
        assert self.state in _PREDECESSORS[state], f"{self.group_id}: {self.state} to {state}"
        if state in _REBALANCEABLE:
            assert (state is GroupState.EMPTY) == (not len(self.members)), (
                f"{self.group_id}: {state}"
            )
        self.state = state

    def _release_sync(self, member: ClassicMember, error: ErrorCode) -> None:
        if member.sync_waiter is None:
            return
        waiter, member.sync_waiter = member.sync_waiter, None
        is_good = error is ErrorCode.NONE
        answer = self.sync_answer(member) if is_good else SyncAnswer(error=error)
        self._actions.append(Answer(waiter=waiter, answer=answer))

    def _store(
        self, receipt: Receipt | None = None, assignments: dict[str, bytes] | None = None
    ) -> None:
        snapshot = self.snapshot(assignments)
        self._actions.append(StoreGroup(snapshot=snapshot, receipt=receipt))

    def _reject_join(self, waiter: Waiter, error: ErrorCode, member_id: str) -> None:
        answer = JoinAnswer(error=error, member_id=member_id)
        self._actions.append(Answer(waiter=waiter, answer=answer))

    def _expect(self, member: ClassicMember, now_ms: int) -> None:
        """Give a member a full session from now, unless it waits and cannot send heartbeats."""
        if member.is_waiting:
            return
        member.deadline_ms = now_ms + member.session_timeout_ms
        self._wake_by(member.deadline_ms)

    def _wake_by(self, due_ms: int) -> None:
        self.wake_ms = earliest((self.wake_ms, due_ms))

    def join_answer(
        self,
        member: ClassicMember,
        *,
        leader_id: str | None = None,
        skip_assignment: bool = False,
    ) -> JoinAnswer:
        """The current generation as sent to one member; only the leader gets the member list.

        `leader_id` names another leader than the real one: for a client before KIP-814 that is the
        only way to make it skip the assignment.
        """
        leader_id = leader_id or self.members.leader_id or NO_LEADER
        members: tuple[JoinedMember, ...] = ()
        if member.member_id == leader_id:
            members = tuple(
                JoinedMember(
                    member_id=each.member_id,
                    group_instance_id=each.group_instance_id,
                    metadata=each.metadata(self.protocol_name),
                )
                for each in self.members
            )
        return JoinAnswer(
            error=ErrorCode.NONE,
            member_id=member.member_id,
            generation_id=self.generation_id,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader_id=leader_id,
            skip_assignment=skip_assignment,
            members=members,
        )

    def sync_answer(self, member: ClassicMember) -> SyncAnswer:
        """One member's assignment in the current generation."""
        return SyncAnswer(
            error=ErrorCode.NONE,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            assignment=member.assignment,
        )

    def _drain(self) -> list[Action]:
        actions, self._actions = self._actions, []
        return actions


# The checks that admit or refuse requests. They change nothing, and return `ErrorCode.NONE` to
# accept. Their order is Kafka's, because clients act on the first error they see: a fenced static
# member must get FENCED_INSTANCE_ID and stop, not ILLEGAL_GENERATION and try again. Source: Kafka's
# `ClassicGroup.validateMember`, `validateOffsetCommit`, `acceptJoiningMember` and
# `supportsProtocols`; KIP-345, KIP-559.


def join_error(group: ClassicGroup, request: JoinRequest, limits: GroupLimits) -> ErrorCode:
    """Why this JoinGroup is refused, before its member is checked."""
    error = session_error(request, limits)
    if error is not ErrorCode.NONE:
        return error
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if not _has_room(group, request.member_id, limits.size_max):
        return ErrorCode.GROUP_MAX_SIZE_REACHED
    if not request.protocol_type or not request.protocols:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if len(group.members) and (
        request.protocol_type != group.protocol_type or not group.members.accepts(request.protocols)
    ):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.NONE


def session_error(request: JoinRequest, limits: GroupLimits) -> ErrorCode:
    """Why a member's session timeout is refused, whatever the group."""
    timeout_ms = request.session_timeout_ms
    if not limits.session_timeout_min_ms <= timeout_ms <= limits.session_timeout_max_ms:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    return ErrorCode.NONE


def _has_room(group: ClassicGroup, member_id: str, size_max: int) -> bool:
    """Whether one more member fits; during a rebalance only members that have rejoined count."""
    member = group.members.find(member_id)
    if group.state is GroupState.PREPARING_REBALANCE:
        is_waiting = member is not None and member.join_waiter is not None
        return is_waiting or group.members.joining_count < size_max
    return member is not None or len(group.members) < size_max


def _member_error(
    group: ClassicGroup, member_id: str, group_instance_id: str | None, generation_id: int
) -> ErrorCode:
    """Why this is not a member of the group's current generation."""
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    error = group.members.identity_error(member_id, group_instance_id)
    if error is ErrorCode.NONE and generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    return error


def _is_settled(group: ClassicGroup, member: ClassicMember, request: JoinRequest) -> bool:
    """Whether a rejoin changes nothing, so that the current generation answers it.

    | state                | leader    | others    |
    |----------------------|-----------|-----------|
    | PREPARING_REBALANCE  | rejoin    | rejoin    |
    | COMPLETING_REBALANCE | unchanged | unchanged |
    | STABLE               | rejoin    | unchanged |

    A stable leader that rejoins wants new assignments, so it is never settled.
    """
    if group.state is GroupState.STABLE and member.member_id == group.members.leader_id:
        return False
    if group.state is GroupState.PREPARING_REBALANCE:
        return False
    return member.protocols == request.protocols


def _sync_error(group: ClassicGroup, request: SyncRequest) -> ErrorCode:
    """Why this SyncGroup is refused."""
    error = _member_error(
        group, request.member_id, request.group_instance_id, request.generation_id
    )
    if error is not ErrorCode.NONE:
        return error
    for asked, ours in (
        (request.protocol_type, group.protocol_type),
        (request.protocol_name, group.protocol_name),
    ):
        if asked is not None and asked != ours:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is GroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def commit_error(
    group: ClassicGroup,
    member_id: str,
    group_instance_id: str | None,
    generation_id: int,
    *,
    is_transactional: bool,
) -> ErrorCode:
    """Why these offsets may not be committed.

    | named as               | group empty       | preparing, stable | between join and sync |
    |------------------------|-------------------|-------------------|-----------------------|
    | no member              | yes               | UNKNOWN_MEMBER_ID | UNKNOWN_MEMBER_ID     |
    | none, transactional    | yes               | yes               | yes                   |
    | member                 | UNKNOWN_MEMBER_ID | yes               | REBALANCE_IN_PROGRESS |
    | member, transactional  | UNKNOWN_MEMBER_ID | yes               | yes                   |

    Commits while others join are accepted: that is how a consumer that revokes its partitions
    saves its position. Between join and sync no member owns a partition yet. Transactions of
    clients before KIP-447 name no member.
    """
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if generation_id < 0 and group.state is GroupState.EMPTY:
        return ErrorCode.NONE
    if generation_id < 0 and member_id == NO_MEMBER_ID and group_instance_id is None:
        return ErrorCode.NONE if is_transactional else ErrorCode.UNKNOWN_MEMBER_ID
    error = _member_error(group, member_id, group_instance_id, generation_id)
    if error is not ErrorCode.NONE:
        return error
    if group.state is GroupState.COMPLETING_REBALANCE and not is_transactional:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE
