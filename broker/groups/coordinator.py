"""The coordinator of all groups: timers, waiters and storage around the classic state machine.

Owns every `ClassicGroup`, the offsets topic, and the coordinator of the groups of KIP-848. Refuses
to know the wire: handlers translate requests into `broker.groups.classic.values` and give a
callable as waiter. It adds only time to a group: the monotonic clock for deadlines, the log for
durability.

A name belongs to one protocol at a time. An empty group changes its protocol with its next member.
One with members becomes a consumer group with the first member of the new protocol, and a classic
one again when the last of them leaves (`broker.groups.migration`). Requests of classic
members in a consumer group are passed on to that group.

Heartbeats move deadlines later and touch no timer, so a thousand members cost a thousand dictionary
look-ups per heartbeat interval and nothing else. A member's connection may vanish without
consequence; only its session ends it.

Retention runs on the `TrustedClock`, so that a clock set ten years ahead expires no offset.

Differs from Kafka: a member's waiting request is answered with NOT_COORDINATOR when the broker
stops, so that its client retries at once after the restart.

Source: Kafka's `GroupCoordinator`; KIP-211 for expiry.
"""

import logging
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from broker.groups import loading, migration
from broker.groups.classic.group import ClassicGroup, session_error
from broker.groups.classic.values import (
    Action,
    GroupLimits,
    GroupState,
    JoinAnswer,
    JoinRequest,
    StoreGroup,
    SyncAnswer,
    SyncRequest,
)
from broker.groups.cleanup import GroupCleanup
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.values import (
    JOIN_EPOCH,
    ConsumerGroupState,
    HeartbeatAnswer,
    HeartbeatRequest,
)
from broker.groups.consumer_coordinator import ConsumerGroupCoordinator
from broker.groups.internal_topic import CoordinatorServices, InternalTopic, KeyValue, WhenDone
from broker.groups.later import Later
from broker.groups.offsets.records import encode_group_key, encode_group_value
from broker.groups.offsets.store import OffsetCommit, OffsetStore, TopicPartition, log_failure
from broker.groups.share_coordinator import ShareGroupCoordinator
from broker.groups.streams_coordinator import StreamsGroupCoordinator
from broker.groups.timers import GroupTimers, log_silent
from broker.topics.registry import CONSUMER_OFFSETS
from protocol.error_codes import ErrorCode
from protocol.records.layout import NO_TIMESTAMP
from protocol.stored.group_log import GroupMetadataValue

if TYPE_CHECKING:
    from broker.groups.share.group_values import ShareHeartbeat
    from broker.groups.streams import values as streams_values
else:  # loaded with the first request of such a group
    streams_values = Later(".streams.values")

logger = logging.getLogger("tidelog.broker.groups.coordinator")

_MS_PER_MINUTE: Final = 60_000
_RECORD_BYTES_MAX: Final = 16 * 1024 * 1024


class GroupCoordinator:
    """All groups of this broker. Loop thread only; driven by the server's life cycle.

    A crash loses what was not yet stored: rebalances under way start over, stable groups continue.
    """

    def __init__(self, services: CoordinatorServices) -> None:
        """Prepare; nothing is read before `start`."""
        config = services.config
        self.classic_groups: dict[str, ClassicGroup] = {}
        self._services = services
        self._clock = services.sessions
        self._limits = GroupLimits(
            session_timeout_min_ms=config.group_min_session_timeout_ms,
            session_timeout_max_ms=config.group_max_session_timeout_ms,
            initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
            size_max=config.group_max_size,
        )
        self._topic = InternalTopic(
            services,
            CONSUMER_OFFSETS,
            partitions=config.offsets_topic_num_partitions,
            overrides={
                "cleanup.policy": "compact",
                "compression.type": "producer",
                # A group is one record, and one of a thousand members exceeds Kafka's 1 MiB.
                "max.message.bytes": str(_RECORD_BYTES_MAX),
                "segment.bytes": str(config.offsets_topic_segment_bytes),
            },
        )
        self.offsets = OffsetStore(self._topic, lambda name: services.topics.find(name) is not None)
        self._consumers = ConsumerGroupCoordinator(services, self._topic, give_back=self._downgrade)
        self.consumer_groups = self._consumers.groups
        self.shares = ShareGroupCoordinator(services, self._topic, self._consumers.topics)
        self.share_groups = self.shares.groups
        self.streams = StreamsGroupCoordinator(services, self._topic, self._consumers.topics)
        self.streams_groups = self.streams.groups
        self._state_since_ms: dict[str, int] = {}
        self.cleanup = GroupCleanup(
            self.classic_groups,
            self._consumers,
            self.offsets,
            self._state_since_ms,
            self.shares,
            self.streams,
            retention_ms=config.offsets_retention_minutes * _MS_PER_MINUTE,
        )
        self._timers = GroupTimers(services.sessions, self._wake)
        self._time = services.time
        self._next_expiry_ms = 0
        self._followed: dict[int, int] = {}

    # -- life cycle ----------------------------------------------------------------------------

    async def start(self) -> None:
        """Load groups and offsets; members get a full session to come back.

        A standby loads offsets only, by `follow`.

        Raises:
            StorageError: the offsets topic cannot be created or read.
        """
        if self._services.is_standby:
            return
        self._set_next_expiry()
        self._services.topics.when_deleted(lambda topic: self.cleanup.topic_deleted(topic.name))
        self._services.topics.when_deleted(self.shares.topic_deleted)
        await self._topic.open()
        for partition in self._topic.partitions:
            loaded = loading.load(self._topic.replay(partition), self.offsets.table)
            for group_id, found in loaded.consumer_groups.items():
                self._consumers.restore(group_id, found)
            for group_id, shared in loaded.share_groups.items():
                self.shares.restore(group_id, shared)
            for group_id, streaming in loaded.streams_groups.items():
                self.streams.restore(group_id, streaming)
            for group_id, stored in loaded.groups.items():
                if not self._is_other(group_id):
                    self._restore(group_id, stored)
        await self.shares.start()
        for group_id in self.offsets.table.groups():
            self._ensure(group_id)
        others = len(self.consumer_groups) + len(self.share_groups) + len(self.streams_groups)
        logger.info("%d groups loaded", len(self.classic_groups) + others)

    def follow(self, partition: int) -> None:
        """Take over the offsets that the log of a partition has got at a standby.

        Raises StorageError.
        """
        log, begin = self._topic.log(partition), self._followed.get(partition)
        self._topic.follow()
        if begin is None:
            loading.load(self._topic.replay(partition), self.offsets.table)
            touched = set(self.offsets.table.groups())
        else:
            touched = loading.follow(
                self._topic.replay(partition, begin),
                self.offsets.table,
                lambda group_id: self._topic.partition_of(group_id) == partition,
            )
        self._followed[partition] = log.log_end_offset
        for group_id in touched:
            self._ensure(group_id)

    def tick(self) -> None:
        """Expire offsets and groups that are past their retention, once per check interval.

        The states of share groups have work of their own: `shares.tick`.
        """
        if self._services.clock.monotonic_ms() < self._next_expiry_ms:
            return
        self._set_next_expiry()
        self.cleanup.expire(self._time.now_ms())

    def _set_next_expiry(self) -> None:
        interval_ms = self._services.config.offsets_retention_check_interval_ms
        self._next_expiry_ms = self._services.clock.monotonic_ms() + interval_ms

    def release_waiters(self) -> None:
        """Answer every waiting request, so that its client sends it again after the restart."""
        for group in self.classic_groups.values():
            self._carry_out(group, group.release(ErrorCode.NOT_COORDINATOR))

    def stop(self) -> None:
        """Cancel all timers; no more requests come."""
        self._timers.cancel_all()
        self._consumers.stop()
        self.shares.stop()
        self.streams.stop()

    # -- membership ----------------------------------------------------------------------------

    def new_member_id(self, client_id: str, group_instance_id: str | None) -> str:
        """Make an id for a new member: recognisable for people, unique for machines."""
        unique = uuid.UUID(int=self._services.random.getrandbits(128), version=4)
        return f"{group_instance_id or client_id}-{unique}"

    def join(
        self, group_id: str, request: JoinRequest, answer: Callable[[JoinAnswer], object]
    ) -> None:
        """Take a JoinGroup; `answer` is called once, now or when the rebalance completes."""
        if not group_id:
            answer(JoinAnswer(error=ErrorCode.INVALID_GROUP_ID, member_id=request.member_id))
            return
        streaming = self.streams_groups.get(group_id)
        if group_id in self.share_groups or (streaming is not None and streaming.members):
            error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            answer(JoinAnswer(error=error, member_id=request.member_id))
            return
        consumers = self.consumer_groups.get(group_id)
        if consumers is not None and consumers.members:
            error = session_error(request, self._limits)
            if error is ErrorCode.NONE:
                self._consumers.join(consumers, request, answer)
            else:
                answer(JoinAnswer(error=error, member_id=request.member_id))
            return
        group = self.classic_groups.get(group_id)
        if group is None and request.member_id:
            error = ErrorCode.UNKNOWN_MEMBER_ID
            answer(JoinAnswer(error=error, member_id=request.member_id))
            return
        if group is None:
            group = ClassicGroup(group_id, self._limits)
        actions = group.join(request, answer, self._clock.monotonic_ms())
        if not _is_blank(group):
            self.classic_groups[group_id] = group
            if consumers is not None or streaming is not None:
                self._become_classic(group_id)
        elif not self.offsets.table.has_offsets(group_id):
            self.classic_groups.pop(group_id, None)
        self._carry_out(group, actions)

    def sync(
        self, group_id: str, request: SyncRequest, answer: Callable[[SyncAnswer], object]
    ) -> None:
        """Take a SyncGroup; `answer` is called once, when the assignment is durable."""
        consumers = self.consumer_groups.get(group_id)
        if consumers is not None:
            answer(self._consumers.sync(consumers, request))
            return
        group = self.classic_groups.get(group_id)
        if group is None or not group_id:
            answer(SyncAnswer(error=_no_group(group_id)))
            return
        actions = group.sync(request, answer, self._clock.monotonic_ms())
        self._carry_out(group, actions)

    def heartbeat(
        self, group_id: str, member_id: str, group_instance_id: str | None, generation_id: int
    ) -> ErrorCode:
        """Note that a member is alive."""
        consumers = self.consumer_groups.get(group_id)
        if consumers is not None:
            who = (member_id, group_instance_id, generation_id)
            return self._consumers.classic_heartbeat(consumers, *who)
        group = self.classic_groups.get(group_id)
        if group is None or not group_id:
            return _no_group(group_id)
        now_ms = self._clock.monotonic_ms()
        return group.heartbeat(member_id, group_instance_id, generation_id, now_ms)

    def leave(self, group_id: str, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """Remove one member."""
        consumers = self.consumer_groups.get(group_id)
        if consumers is not None:
            return self._consumers.leave(consumers, member_id, group_instance_id)
        group = self.classic_groups.get(group_id)
        if group is None or not group_id:
            return _no_group(group_id)
        now_ms = self._clock.monotonic_ms()
        error, actions = group.leave(member_id, group_instance_id, now_ms)
        self._carry_out(group, actions)
        return error

    def consumer_heartbeat(
        self,
        group_id: str,
        request: HeartbeatRequest,
        answer: Callable[[HeartbeatAnswer], object],
    ) -> None:
        """Take a ConsumerGroupHeartbeat; `answer` is called once, when it is durable.

        The first member of the consumer protocol turns a classic group into a consumer group. The
        group keeps its offsets, and its members if the policy allows that; else it does not change.
        """
        if group_id in self.share_groups or group_id in self.streams_groups:
            text = f"Group {group_id} is not a consumer group."
            answer(_no_such(request.member_id, text))
            return
        classic = self.classic_groups.get(group_id)
        if classic is None or request.member_epoch != JOIN_EPOCH:
            self._consumers.heartbeat(group_id, request, answer)
            return
        made: ConsumerGroup | None = None
        before: list[KeyValue] = []
        if classic.generation_id:
            before.append((encode_group_key(group_id), None))
        if classic.state is not GroupState.EMPTY:
            problem = self._consumers.upgrade_problem(classic)
            if problem is not None:
                answer(_no_such(request.member_id, problem))
                return
            made, records = self._consumers.upgraded(classic)
            before += records
        self._consumers.heartbeat(group_id, request, answer, before=before, made=made)
        if group_id in self.consumer_groups:
            self._retire(classic, "of the consumer protocol")

    def share_heartbeat(
        self,
        group_id: str,
        request: "ShareHeartbeat",
        answer: Callable[[HeartbeatAnswer], object],
    ) -> None:
        """Take a ShareGroupHeartbeat; `answer` is called once, when it is durable."""
        every = (self.classic_groups, self.consumer_groups, self.streams_groups)
        if any(group_id in groups for groups in every):
            answer(_no_such(request.member_id, f"Group {group_id} is not a share group."))
        elif request.member_epoch != JOIN_EPOCH and group_id not in self.share_groups:
            answer(_no_such(request.member_id, f"Group {group_id} not found."))
        else:
            self.shares.heartbeat(group_id, request, answer)

    def streams_heartbeat(
        self,
        group_id: str,
        request: "streams_values.StreamsHeartbeat",
        answer: "Callable[[streams_values.StreamsAnswer], object]",
    ) -> None:
        """Take a StreamsGroupHeartbeat; `answer` is called once, when it is durable.

        The first member turns an empty classic group into a streams group, with its offsets.
        """
        classic = self.classic_groups.get(group_id)
        is_joining = request.member_epoch == JOIN_EPOCH
        may_convert = is_joining and classic is not None and classic.state is GroupState.EMPTY
        others = (
            self.consumer_groups,
            self.share_groups,
            () if may_convert else self.classic_groups,
        )
        text = None
        if any(group_id in groups for groups in others):
            text = f"Group {group_id} is not a streams group."
        elif not is_joining and group_id not in self.streams_groups:
            text = f"Group {group_id} not found."
        if text is not None:
            error = ErrorCode.GROUP_ID_NOT_FOUND
            answer(streams_values.StreamsAnswer(error=error, error_message=text))
            return
        before: list[KeyValue] = []
        if classic is not None and classic.generation_id:
            before.append((encode_group_key(group_id), None))
        self.streams.heartbeat(group_id, request, answer, before=before)
        if classic is not None and group_id in self.streams_groups:
            self._retire(classic, "a streams group")

    def _retire(self, classic: ClassicGroup, now: str) -> None:
        logger.info("group %s is %s now", classic.group_id, now)
        self._carry_out(classic, classic.retire(ErrorCode.REBALANCE_IN_PROGRESS))
        del self.classic_groups[classic.group_id]
        self._state_since_ms.pop(classic.group_id, None)

    # -- offsets -------------------------------------------------------------------------------

    def commit_error(
        self,
        group_id: str,
        member_id: str,
        group_instance_id: str | None,
        generation_id: int,
        committed: Iterable[TopicPartition] = (),
        *,
        is_transactional: bool = False,
        knows_epochs: bool = True,
    ) -> ErrorCode:
        """NONE when this member may commit the offsets of `committed`.

        An unknown group accepts only commits that name no generation.
        """
        if group_id in self.share_groups:
            return ErrorCode.GROUP_ID_NOT_FOUND
        owner: ConsumerGroupCoordinator | StreamsGroupCoordinator | None = None
        if group_id in self.consumer_groups:
            owner = self._consumers
        elif group_id in self.streams_groups:
            owner = self.streams
        if owner is not None:
            return owner.commit_error(
                group_id,
                member_id,
                generation_id,
                committed,
                is_transactional=is_transactional,
                knows_epochs=knows_epochs,
            )
        group = self.classic_groups.get(group_id)
        if group is None:
            return ErrorCode.NONE if generation_id < 0 else ErrorCode.ILLEGAL_GENERATION
        return group.commit_error(
            member_id,
            group_instance_id,
            generation_id,
            now_ms=self._clock.monotonic_ms(),
            is_transactional=is_transactional,
        )

    def commit(self, commit: OffsetCommit, when_done: WhenDone) -> None:
        """Store offsets that `commit_error` has allowed; a new name becomes an empty group."""

        def stored(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                self._ensure(commit.group_id)
            when_done(error)

        self.offsets.commit(commit, stored)

    def offsets_partition(self, group_id: str) -> TopicPartition:
        """The partition of the offsets topic that keeps this group."""
        return self._topic.name, self._topic.partition_of(group_id)

    def is_available(self, group_id: str) -> bool:
        """Whether the partition that keeps this group is whole; else nothing of it is known."""
        return self._topic.is_available(group_id)

    def transaction_ended(self, producer_id: int, partition: int, *, is_commit: bool) -> None:
        """Apply a marker for this producer, durable in that partition of the offsets topic."""
        self.offsets.table.complete(
            producer_id,
            is_commit=is_commit,
            has_ended=lambda group_id: self._topic.partition_of(group_id) == partition,
        )

    # -- carrying out --------------------------------------------------------------------------

    def _carry_out(self, group: ClassicGroup, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, StoreGroup):
                self._store(group, action)
            else:
                cast("Callable[[Any], object]", action.waiter)(action.answer)
        self._set_timer(group)

    def _store(self, group: ClassicGroup, action: StoreGroup) -> None:
        group_id, receipt = group.group_id, action.receipt

        def stored(error: ErrorCode) -> None:
            if receipt is not None:
                actions = group.stored(receipt, error, self._clock.monotonic_ms())
                self._carry_out(group, actions)

        record = self._record(group_id, action.snapshot)
        self._topic.append(self._topic.partition_of(group_id), [record], stored)

    def _record(self, group_id: str, snapshot: GroupMetadataValue) -> KeyValue:
        """The record of a group that enters a state now."""
        now_ms = self._state_since_ms[group_id] = self._time.now_ms()
        snapshot.current_state_timestamp = now_ms
        return encode_group_key(group_id), encode_group_value(snapshot)

    def _get_or_create(self, group_id: str) -> ClassicGroup:
        group = self.classic_groups.get(group_id)
        if group is None:
            group = self.classic_groups[group_id] = ClassicGroup(group_id, self._limits)
        return group

    def _ensure(self, group_id: str) -> None:
        """Make a name with offsets a group: a classic one until a consumer member joins."""
        if not self._is_other(group_id):
            self._get_or_create(group_id)

    def _is_other(self, group_id: str) -> bool:
        """Whether a name belongs to a group that is not a classic one."""
        every = (self.consumer_groups, self.share_groups, self.streams_groups)
        return any(group_id in groups for groups in every)

    def _become_classic(self, group_id: str) -> None:
        """Drop the records of an empty group: its next member has joined as classic."""
        owner = self._consumers if group_id in self.consumer_groups else self.streams
        records = owner.erase(group_id)
        owner.remove(group_id)
        self._topic.append(self._topic.partition_of(group_id), records, log_failure)

    def _downgrade(
        self,
        consumers: ConsumerGroup,
        records: Sequence[KeyValue],
        when_done: WhenDone,
    ) -> None:
        """Continue with the classic members alone: store `records` and the classic group.

        If the partitions of a member that left are free, all join again. A member that took over
        the place of another one continues as it is.
        """
        group_id = consumers.group_id
        now_ms = self._clock.monotonic_ms()
        is_settled = consumers.state is ConsumerGroupState.STABLE
        group = migration.to_classic(consumers, self._limits, self._consumers.topics(), now_ms)
        tombstones = self._consumers.erase(group_id)
        self._consumers.remove(group_id)
        self.classic_groups[group_id] = group
        snapshot = group.snapshot()
        if not is_settled:
            snapshot.leader = None
        stored = [*records, *tombstones, self._record(group_id, snapshot)]
        self._topic.append(self._topic.partition_of(group_id), stored, when_done)
        logger.info("group %s is of the classic protocol now", group_id)
        self._carry_out(group, [] if is_settled else group.rebalance(now_ms))

    def _restore(self, group_id: str, stored: GroupMetadataValue) -> None:
        group = self._get_or_create(group_id)
        group.restore(stored, self._clock.monotonic_ms())
        if stored.current_state_timestamp != NO_TIMESTAMP:
            self._state_since_ms[group_id] = stored.current_state_timestamp
        # Members without a leader: a restart came between a downgrade and its rebalance.
        is_settled = stored.leader is not None or not stored.members
        self._carry_out(group, [] if is_settled else group.rebalance(self._clock.monotonic_ms()))

    # -- the timer -----------------------------------------------------------------------------

    def _set_timer(self, group: ClassicGroup) -> None:
        if group.state is not GroupState.DEAD:
            self._timers.set(group.group_id, group.wake_ms)

    def _wake(self, group_id: str, now_ms: int) -> None:
        group = self.classic_groups.get(group_id)
        if group is not None:
            for member in group.members.overdue(now_ms):
                log_silent(group_id, member.member_id, member.client_id, member.client_host)
            self._carry_out(group, group.tick(now_ms))


def _no_such(member_id: str, text: str) -> HeartbeatAnswer:
    return HeartbeatAnswer(
        error=ErrorCode.GROUP_ID_NOT_FOUND, error_message=text, member_id=member_id
    )


def _is_blank(group: ClassicGroup) -> bool:
    """Whether no member ever joined: a refusal then neither creates nor converts a group."""
    is_unused = group.generation_id == 0 and group.state is GroupState.EMPTY
    return is_unused and not group.members.pending


def _no_group(group_id: str) -> ErrorCode:
    """The error for a missing member; the group without a name has offsets but no members."""
    return ErrorCode.UNKNOWN_MEMBER_ID if group_id else ErrorCode.INVALID_GROUP_ID
