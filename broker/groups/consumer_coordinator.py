"""The coordinator of consumer-protocol groups (KIP-848): topics, timers and storage around them.

Owns every `ConsumerGroup`, with its members of either protocol. Refuses to know the wire, and the
classic groups: `broker.groups.coordinator`, which owns this, decides whether a name belongs to one.

A heartbeat is answered when its changes are durable. Until then the state machine is ahead of the
log. No other member gets an answer based on them earlier, because whatever follows from a change is
stored after it. When the log refuses, the member gets an error and tries again. A restart falls
back to what was stored: members then get FENCED_MEMBER_EPOCH and join again.

Differs from Kafka: a heartbeat to a group that does not exist is UNKNOWN_MEMBER_ID, and its member
joins again; Kafka's GROUP_ID_NOT_FOUND ends the Java client.

Source: KIP-848; Kafka's `GroupCoordinatorService`, `GroupMetadataManager`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from broker.groups import migration
from broker.groups.classic.group import ClassicGroup
from broker.groups.classic.values import JoinAnswer, JoinRequest, SyncAnswer, SyncRequest
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.records import encode_change
from broker.groups.consumer.values import (
    ConsumerLimits,
    HeartbeatAnswer,
    HeartbeatRequest,
    StoredConsumerGroup,
    TopicImage,
    Topics,
)
from broker.groups.internal_topic import CoordinatorServices, InternalTopic, KeyValue, WhenDone
from broker.groups.migration import MigrationPolicy
from broker.groups.offsets.store import TopicPartition
from broker.groups.timers import GroupTimers, log_silent_of
from config.group import ASSIGNMENT_INTERVAL, HEARTBEAT_INTERVAL, SESSION_TIMEOUT, group_value
from protocol.error_codes import ErrorCode

GiveBack: TypeAlias = Callable[[ConsumerGroup, Sequence[KeyValue], WhenDone], object]


def _ignore(error: ErrorCode) -> None:
    """Do nothing: the internal topic has logged the refusal."""


class ConsumerGroupCoordinator:
    """All groups of the consumer protocol. Loop thread only.

    A crash loses what was not answered yet; members repeat it.
    """

    def __init__(
        self, services: CoordinatorServices, topic: InternalTopic, *, give_back: GiveBack
    ) -> None:
        """Store into `topic`, which its owner opens and replays.

        `give_back` takes a group over, with the records to store, when the last member of the
        consumer protocol has gone and members of the classic one remain.
        """
        config = services.config
        self.groups: dict[str, ConsumerGroup] = {}
        self._registry = services.topics
        self._clock = services.sessions
        self._topic = topic
        self._config = config
        self._limits = self._resolve_limits({})
        self._policy = MigrationPolicy.of(config.group_consumer_migration_policy)
        self._give_back = give_back
        self._timers = GroupTimers(services.sessions, self._wake)
        self._topics: Topics | None = None

    def restore(self, group_id: str, stored: StoredConsumerGroup) -> None:
        """Take over a group as found in the log."""
        group = self.groups[group_id] = ConsumerGroup(group_id, self._limits_of(group_id))
        group.restore(stored, self._clock.monotonic_ms())
        self._timers.set(group_id, group.wake_ms)

    def stop(self) -> None:
        """Set no more timers."""
        self._timers.cancel_all()

    def heartbeat(
        self,
        group_id: str,
        request: HeartbeatRequest,
        answer: Callable[[HeartbeatAnswer], object],
        *,
        before: Sequence[KeyValue] = (),
        made: ConsumerGroup | None = None,
    ) -> None:
        """Take a heartbeat; `answer` is called once, when its changes are durable.

        A group that does not exist is created, or is the one `made` of a classic group, unless the
        member is refused. `before` are records to store ahead of the group's first ones.
        """
        known = self.groups.get(group_id)
        group = known or made or ConsumerGroup(group_id, self._limits)
        group.limits = self._limits_of(group_id)
        answered = group.heartbeat(request, self.topics(), self._clock.monotonic_ms())
        if known is None and answered.error is not ErrorCode.NONE:
            answer(answered)
            return
        self.groups[group_id] = group

        def stored(error: ErrorCode) -> None:
            is_good, who = error is ErrorCode.NONE, request.member_id
            answer(answered if is_good else HeartbeatAnswer(error=error, member_id=who))

        self._store(group, stored, before=before)

    # -- members of the classic protocol -------------------------------------------------------

    def upgrade_problem(self, classic: ClassicGroup) -> str | None:
        """Why a classic group with members cannot become one of ours; None when it can."""
        return migration.upgrade_problem(classic, self._policy, self._limits.size_max)

    def upgraded(self, classic: ClassicGroup) -> tuple[ConsumerGroup, list[KeyValue]]:
        """The consumer group that a classic group becomes, and its records."""
        now_ms = self._clock.monotonic_ms()
        group, changes = migration.to_consumer(classic, self._limits, self.topics(), now_ms)
        return group, [encode_change(classic.group_id, change) for change in changes]

    def join(
        self, group: ConsumerGroup, request: JoinRequest, answer: Callable[[JoinAnswer], object]
    ) -> None:
        """Take a JoinGroup; `answer` is called once, when its changes are durable."""
        answered = migration.join(group, request, self.topics(), self._clock.monotonic_ms())

        def stored(error: ErrorCode) -> None:
            is_good = error is ErrorCode.NONE
            answer(answered if is_good else JoinAnswer(error=error, member_id=request.member_id))

        self._store(group, stored)

    def sync(self, group: ConsumerGroup, request: SyncRequest) -> SyncAnswer:
        """Take a SyncGroup: the member's partitions, which are durable since it joined."""
        now_ms = self._clock.monotonic_ms()
        answered = migration.sync(group, request, self.topics(), now_ms)
        self._timers.set(group.group_id, group.wake_ms)
        return answered

    def classic_heartbeat(
        self,
        group: ConsumerGroup,
        member_id: str,
        group_instance_id: str | None,
        generation_id: int,
    ) -> ErrorCode:
        """Note that a classic member is alive; return whether it must join again."""
        error = migration.heartbeat(
            group,
            member_id,
            group_instance_id,
            generation_id,
            topics=self.topics(),
            now_ms=self._clock.monotonic_ms(),
        )
        self._store(group)
        return error

    def leave(
        self, group: ConsumerGroup, member_id: str, group_instance_id: str | None
    ) -> ErrorCode:
        """Remove one member, of either protocol."""
        error = migration.leave(group, member_id, group_instance_id)
        self._store(group)
        return error

    # -- offsets -------------------------------------------------------------------------------

    def commit_error(
        self,
        group_id: str,
        member_id: str,
        member_epoch: int,
        committed: Iterable[TopicPartition],
        *,
        is_transactional: bool,
        knows_epochs: bool,
    ) -> ErrorCode:
        """NONE when this member may commit the offsets of `committed`.

        | named as               | group empty       | group with members                   |
        |------------------------|-------------------|--------------------------------------|
        | no member              | yes               | UNKNOWN_MEMBER_ID                    |
        | none, transactional    | yes               | yes                                  |
        | member                 | UNKNOWN_MEMBER_ID | in its epoch, else STALE_MEMBER_EPOCH |
        | classic member         | UNKNOWN_MEMBER_ID | in its epoch, else ILLEGAL_GENERATION |

        An older epoch is enough for partitions that the member has had since then. Requests of
        consumer-protocol members that cannot carry an epoch (`knows_epochs`) are
        UNSUPPORTED_VERSION; for transactions a stale epoch is ILLEGAL_GENERATION.
        """
        group = self.groups[group_id]
        if member_epoch < 0 and not group.members:
            return ErrorCode.NONE
        if member_epoch < 0 and not member_id and is_transactional:
            return ErrorCode.NONE
        committed = list(committed)
        topics = self.topics().named({name for name, _ in committed})
        wanted = [(topics[name].topic_id, index) for name, index in committed if name in topics]
        error = group.offset_error(member_id, member_epoch, wanted)
        if error is ErrorCode.UNKNOWN_MEMBER_ID:
            return error
        if not knows_epochs and not group.members[member_id].is_classic:
            return ErrorCode.UNSUPPORTED_VERSION
        if error is ErrorCode.STALE_MEMBER_EPOCH and is_transactional:
            return ErrorCode.ILLEGAL_GENERATION
        return error

    def subscribed_topics(self, group_id: str) -> frozenset[str]:
        """The topics that members of the group read now."""
        return self.groups[group_id].subscribed_topics(self.topics())

    def erase(self, group_id: str) -> list[KeyValue]:
        """Tombstones for an empty group; call `remove` when they are stored."""
        changes = self.groups[group_id].erase()
        return [encode_change(group_id, change) for change in changes]

    def remove(self, group_id: str) -> None:
        """Drop the group from memory."""
        del self.groups[group_id]

    def _limits_of(self, group_id: str) -> ConsumerLimits:
        """The limits of a group now: its own settings may have changed since its last request."""
        overrides = self._registry.group_overrides.get(group_id)
        return self._limits if overrides is None else self._resolve_limits(overrides)

    def _resolve_limits(self, overrides: Mapping[str, str]) -> ConsumerLimits:
        return ConsumerLimits(
            session_timeout_ms=group_value(SESSION_TIMEOUT, overrides, self._config),
            heartbeat_interval_ms=group_value(HEARTBEAT_INTERVAL, overrides, self._config),
            assignment_interval_ms=group_value(ASSIGNMENT_INTERVAL, overrides, self._config),
            size_max=self._config.group_consumer_max_size,
        )

    def topics(self) -> Topics:
        """The existing topics."""
        if self._topics is None or self._topics.revision != self._registry.revision:
            self._topics = Topics(
                revision=self._registry.revision,
                by_name={
                    topic.name: TopicImage(topic.topic_id, len(topic.partitions))
                    for topic in self._registry
                },
                unlisted=self._window,
            )
        return self._topics

    def _window(self, name: str) -> TopicImage | None:
        found = self._registry.windows.find(name)
        return None if found is None else TopicImage(found.topic_id, len(found.partitions))

    def _wake(self, group_id: str, now_ms: int) -> None:
        group = self.groups.get(group_id)
        if group is not None:
            before = list(group.members.values())
            group.tick(now_ms)
            log_silent_of(group_id, before, group.members)
            self._store(group)

    def _store(
        self,
        group: ConsumerGroup,
        when_done: WhenDone = _ignore,
        *,
        before: Sequence[KeyValue] = (),
    ) -> None:
        """Store changes; if the log refuses, a restart finds the group as it was before them."""
        changes = group.drain()
        records = [*before, *(encode_change(group.group_id, change) for change in changes)]
        if changes and self._policy.may_downgrade and group.is_classic_only:
            self._give_back(group, records, when_done)
            return
        self._timers.set(group.group_id, group.wake_ms)
        if records:
            self._topic.append(self._topic.partition_of(group.group_id), records, when_done)
        else:
            when_done(ErrorCode.NONE)
