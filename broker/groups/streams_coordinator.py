"""The coordinator of groups of Kafka Streams (KIP-1071): topics, timers and storage around them.

Owns every `StreamsGroup`. Refuses to know the wire, the creation of topics, and the groups of other
protocols: `broker.groups.coordinator`, which owns this, decides whether a name belongs to one.

A heartbeat is answered when its changes are durable. When the log refuses, the member gets an error
and tries again; a restart falls back to what was stored.

Source: KIP-1071; Kafka's `GroupCoordinatorService`, `GroupMetadataManager`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from broker.groups.consumer.values import Topics
from broker.groups.internal_topic import CoordinatorServices, InternalTopic, KeyValue, WhenDone
from broker.groups.later import Later
from broker.groups.offsets.store import TopicPartition, log_failure
from broker.groups.timers import GroupTimers, log_silent
from config.group import (
    STREAMS_ASSIGNMENT_INTERVAL,
    STREAMS_HEARTBEAT_INTERVAL,
    STREAMS_INITIAL_DELAY,
    STREAMS_SESSION_TIMEOUT,
    STREAMS_STANDBYS,
    group_value,
)
from protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from broker.groups.streams import group as streams_group
    from broker.groups.streams import records, values
else:  # loaded with the first group
    streams_group = Later(".streams.group")
    records = Later(".streams.records")
    values = Later(".streams.values")

_NO_OVERRIDES: Final[dict[str, str]] = {}


class StreamsGroupCoordinator:
    """All groups of Kafka Streams. Loop thread only.

    A crash loses what was not answered yet; members repeat it.
    """

    def __init__(
        self, services: CoordinatorServices, topic: InternalTopic, topics: Callable[[], Topics]
    ) -> None:
        """Store into `topic`, which its owner opens and replays; see `topics`."""
        self.groups: dict[str, streams_group.StreamsGroup] = {}
        self.rebalances = 0
        """How often a group got another epoch."""

        self._registry = services.topics
        self._clock = services.sessions
        self._topic = topic
        self._topics = topics
        self._size_max = services.config.group_streams_max_size
        self._timers = GroupTimers(services.sessions, self._wake)

    def restore(self, group_id: str, stored: "values.StoredStreamsGroup") -> None:
        """Take over a group as found in the log."""
        group = self.groups[group_id] = streams_group.StreamsGroup(
            group_id, self._limits_of(group_id)
        )
        group.restore(stored, self._clock.monotonic_ms())
        self._timers.set(group_id, group.wake_ms)

    def stop(self) -> None:
        """Set no more timers."""
        self._timers.cancel_all()

    def heartbeat(
        self,
        group_id: str,
        request: "values.StreamsHeartbeat",
        answer: "Callable[[values.StreamsAnswer], object]",
        *,
        before: Sequence[KeyValue] = (),
    ) -> None:
        """Take a heartbeat; `answer` is called once, when its changes are durable.

        A group that does not exist is created, unless the member is refused. `before` are records
        to store ahead of the group's first ones.
        """
        limits = self._limits_of(group_id)
        group = self.groups.get(group_id) or streams_group.StreamsGroup(group_id, limits)
        group.limits = limits
        answered = group.heartbeat(request, self._topics(), self._clock.monotonic_ms())
        if answered.error is not ErrorCode.NONE:
            answer(answered)
            return
        self.groups[group_id] = group

        def stored(error: ErrorCode) -> None:
            answer(answered if error is ErrorCode.NONE else values.StreamsAnswer(error=error))

        self._store(group, stored, before=before)

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

        As for consumer groups (`ConsumerGroupCoordinator.commit_error`), with the tasks that a
        member has in place of partitions.
        """
        group = self.groups[group_id]
        if member_epoch < 0 and (group.is_empty or (not member_id and is_transactional)):
            return ErrorCode.NONE
        error = group.offset_error(member_id, member_epoch, list(committed))
        if error is ErrorCode.UNKNOWN_MEMBER_ID:
            return error
        if not knows_epochs:
            return ErrorCode.UNSUPPORTED_VERSION
        if error is ErrorCode.STALE_MEMBER_EPOCH and is_transactional:
            return ErrorCode.ILLEGAL_GENERATION
        return error

    # -- ends ----------------------------------------------------------------------------------

    def erase(self, group_id: str) -> list[KeyValue]:
        """Tombstones for an empty group; call `remove` when they are stored."""
        return [records.encode_change(group_id, change) for change in self.groups[group_id].erase()]

    def remove(self, group_id: str) -> None:
        """Drop the group from memory."""
        del self.groups[group_id]

    def _limits_of(self, group_id: str) -> "values.StreamsLimits":
        overrides: Mapping[str, str] = self._registry.group_overrides.get(group_id, _NO_OVERRIDES)
        config = self._registry.broker_config
        return values.StreamsLimits(
            session_timeout_ms=group_value(STREAMS_SESSION_TIMEOUT, overrides, config),
            heartbeat_interval_ms=group_value(STREAMS_HEARTBEAT_INTERVAL, overrides, config),
            assignment_interval_ms=group_value(STREAMS_ASSIGNMENT_INTERVAL, overrides, config),
            initial_delay_ms=group_value(STREAMS_INITIAL_DELAY, overrides, config),
            standby_replicas=group_value(STREAMS_STANDBYS, overrides, config),
            size_max=self._size_max,
        )

    def _wake(self, group_id: str, now_ms: int) -> None:
        group = self.groups.get(group_id)
        if group is not None:
            before = list(group.members.values())
            group.tick(self._topics(), now_ms)
            for member in before:
                if member.member_id not in group.members:
                    client = member.facts
                    log_silent(group_id, member.member_id, client.client_id, client.client_host)
            self._store(group, log_failure)

    def _store(
        self,
        group: "streams_group.StreamsGroup",
        when_done: WhenDone,
        *,
        before: Sequence[KeyValue] = (),
    ) -> None:
        """Store changes; if the log refuses, a restart finds the group as it was before them."""
        self._timers.set(group.group_id, group.wake_ms)
        changes = group.drain()
        self.rebalances += sum(each.kind is values.StreamsChangeKind.GROUP for each in changes)
        encoded = [*before, *(records.encode_change(group.group_id, change) for change in changes)]
        if encoded:
            self._topic.append(self._topic.partition_of(group.group_id), encoded, when_done)
        else:
            when_done(ErrorCode.NONE)
