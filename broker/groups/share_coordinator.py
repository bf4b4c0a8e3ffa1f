"""The coordinator of share groups (KIP-932): membership, stored states and offsets around them.

Owns every `ShareGroup`, the stored states, the loaded share partitions and the share sessions.
Refuses to know the wire, and the groups of other protocols: `broker.groups.coordinator`, which owns
this, decides whether a name belongs to one.

A heartbeat that names topics first stores the states of their new partitions, then runs with them,
and is answered when its own changes are durable. A name with members or states is a share group
until it is deleted.

Source: KIP-932; Kafka's `GroupCoordinatorService`, `GroupMetadataManager`, `ShareCoordinator`.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from broker.errors import BrokerError
from broker.groups.consumer.values import (
    LEAVE_EPOCH,
    ConsumerLimits,
    HeartbeatAnswer,
    HeartbeatRefused,
    Partition,
    Topics,
)
from broker.groups.internal_topic import CoordinatorServices, InternalTopic, KeyValue, WhenDone
from broker.groups.later import Later
from broker.groups.share.sessions import ShareSession, ShareSessions
from broker.groups.share.stored_state import UNKNOWN_COUNT, ShareKey
from broker.groups.share.values import UNKNOWN_START
from broker.groups.share_partitions import SharePartitions
from broker.groups.share_states import ShareStates
from broker.groups.timers import GroupTimers, log_silent_of
from config.group import (
    SHARE_ASSIGNMENT_INTERVAL,
    SHARE_HEARTBEAT_INTERVAL,
    SHARE_SESSION_TIMEOUT,
    group_value,
)
from protocol.error_codes import ErrorCode
from storage.directory.data_dir import Topic
from storage.disk.steps import Steps
from storage.errors import StorageError

if TYPE_CHECKING:
    from broker.groups.share import group as share_group
    from broker.groups.share import group_values, records
else:  # loaded with the first group
    share_group = Later(".share.group")
    group_values = Later(".share.group_values")
    records = Later(".share.records")

logger = logging.getLogger("tidelog.broker.groups.share_coordinator")

UNKNOWN_LAG: Final = -1
_NO_OVERRIDES: Final[dict[str, str]] = {}


class ShareOffset(NamedTuple):
    """Where a group stands in a partition: -1 while unknown."""

    start_offset: int
    lag: int
    leader_epoch: int


def _ignore(error: ErrorCode) -> None:
    """Do nothing: the internal topic has logged the refusal."""


class ShareGroupCoordinator:
    """All share groups. Loop thread only; started and stopped with the coordinator of all groups.

    A crash loses what was not answered yet; members repeat it.
    """

    def __init__(
        self, services: CoordinatorServices, topic: InternalTopic, topics: Callable[[], Topics]
    ) -> None:
        """Store membership into `topic`, which its owner opens and replays; see `topics`."""
        config = services.config
        self.groups: dict[str, share_group.ShareGroup] = {}
        self.states = ShareStates(services)
        self.persister = services.share_states or self.states
        self.partitions = SharePartitions(services, self.persister)
        self.sessions = ShareSessions(config.group_share_max_share_sessions, self._session_ended)
        self._registry = services.topics
        self._clock = services.sessions
        self._topic = topic
        self._topics = topics
        self._size_max = config.group_share_max_size
        self.rebalances = 0
        """How often a group got another target assignment."""

        self._timers = GroupTimers(services.sessions, self._wake)

    async def start(self) -> None:
        """Load the states. Raises: StorageError: they cannot be read."""
        await self.states.start()

    def restore(self, group_id: str, stored: "group_values.StoredShareGroup") -> None:
        """Take over a group as found in the log."""
        group = self.groups[group_id] = share_group.ShareGroup(group_id, self._limits_of(group_id))
        group.restore(stored, self._clock.monotonic_ms())
        self._timers.set(group_id, group.wake_ms)

    def tick(self) -> Steps[None]:
        """Now and then, forget the states of topics that are gone, and prune the others' topic.

        A crash after a topic's deletion leaves its states.
        """
        if self.states.is_prune_due():
            named = {key.topic_id for key in self.states}
            named.update(*(group.initialized for group in self.groups.values()))
            for topic_id in named:
                if self._registry.find_by_id(topic_id) is None:
                    yield from self._forget_deleted(topic_id)
            self.states.prune()

    def stop(self) -> None:
        """Set no more timers."""
        self._timers.cancel_all()
        self.partitions.stop()

    # -- members -------------------------------------------------------------------------------

    def heartbeat(
        self,
        group_id: str,
        request: "group_values.ShareHeartbeat",
        answer: Callable[[HeartbeatAnswer], object],
    ) -> None:
        """Take a heartbeat; `answer` is called once, when its changes are durable.

        The topic of the states must be open: see `states`. A group that does not exist is created,
        unless the member is refused.
        """
        group = self._find_or_create(group_id)

        def refuse(error: ErrorCode, text: str | None = None) -> None:
            who = request.member_id
            answer(HeartbeatAnswer(error=error, error_message=text, member_id=who))

        if request.member_epoch != LEAVE_EPOCH:
            try:
                group.check(request)
            except HeartbeatRefused as refusal:
                refuse(refusal.error, str(refusal))
                return
            self.groups[group_id] = group
            missing = group.missing_states(request.names, self._topics())
            if missing:
                begins = [(partition, UNKNOWN_START) for partition in missing]

                def initialized(error: ErrorCode) -> None:
                    if error is ErrorCode.NONE:
                        self._run(group, request, answer)
                    else:
                        self._forget_blank(group)
                        refuse(error)

                self._initialize(group, begins, initialized)
                return
        self._run(group, request, answer)

    def _run(
        self,
        group: "share_group.ShareGroup",
        request: "group_values.ShareHeartbeat",
        answer: Callable[[HeartbeatAnswer], object],
    ) -> None:
        answered = group.heartbeat(request, self._topics(), self._clock.monotonic_ms())
        if answered.error is not ErrorCode.NONE:
            self._forget_blank(group)
            answer(answered)
            return

        def stored(error: ErrorCode) -> None:
            who = request.member_id
            is_good = error is ErrorCode.NONE
            answer(answered if is_good else HeartbeatAnswer(error=error, member_id=who))

        self._store(group, stored)

    def _initialize(
        self,
        group: "share_group.ShareGroup",
        begins: Sequence[tuple[tuple[str, Partition], int]],
        when_done: WhenDone,
    ) -> None:
        """Store new states, then let the group know them.

        A state that exists continues, unless it is to begin at a certain offset.
        """
        keys = [
            (ShareKey(group.group_id, topic_id, index), start)
            for (_, (topic_id, index)), start in begins
        ]
        partitions = {partition for (_, partition), _ in begins}
        group.begin_states(partitions)

        def stored(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                group.add_states(named for named, _ in begins)
            else:
                group.miss_states(partitions)
            when_done(error)

        missing = [
            (key, start) for key, start in keys if start != UNKNOWN_START or key not in self.states
        ]
        self.states.initialize(missing, group.epoch, stored)

    def _forget_blank(self, group: "share_group.ShareGroup") -> None:
        """A refusal creates no group."""
        if group.is_empty and not group.is_stored:
            self.groups.pop(group.group_id, None)

    def _find_or_create(self, group_id: str) -> "share_group.ShareGroup":
        """The group with its limits of now; a new one is not yet among `groups`."""
        limits = self._limits_of(group_id)
        group = self.groups.get(group_id)
        if group is None:
            return share_group.ShareGroup(group_id, limits)
        group.limits = limits
        return group

    def _limits_of(self, group_id: str) -> ConsumerLimits:
        overrides: Mapping[str, str] = self._registry.group_overrides.get(group_id, _NO_OVERRIDES)
        config = self._registry.broker_config
        return ConsumerLimits(
            session_timeout_ms=group_value(SHARE_SESSION_TIMEOUT, overrides, config),
            heartbeat_interval_ms=group_value(SHARE_HEARTBEAT_INTERVAL, overrides, config),
            assignment_interval_ms=group_value(SHARE_ASSIGNMENT_INTERVAL, overrides, config),
            size_max=self._size_max,
        )

    def _wake(self, group_id: str, now_ms: int) -> None:
        group = self.groups.get(group_id)
        if group is not None:
            before = list(group.members.values())
            group.tick(now_ms)
            log_silent_of(group_id, before, group.members)
            self._store(group, _ignore)

    def _store(self, group: "share_group.ShareGroup", when_done: WhenDone) -> None:
        """Store changes; if the log refuses, a restart finds the group as it was before them."""
        self._timers.set(group.group_id, group.wake_ms)
        changes = group.drain()
        kind = group_values.ShareChangeKind.ASSIGNMENT_EPOCH
        self.rebalances += sum(each.kind is kind for each in changes)
        encoded = [records.encode_change(group.group_id, change) for change in changes]
        if encoded:
            self._topic.append(self._topic.partition_of(group.group_id), encoded, when_done)
        else:
            when_done(ErrorCode.NONE)

    def _session_ended(self, session: ShareSession, was_last: bool) -> None:
        for topic_id, index in session.partitions:
            key = ShareKey(session.group_id, topic_id, index)
            self.partitions.release(key, session.member_id)
        if was_last:
            self.partitions.drop_group(session.group_id)

    # -- offsets -------------------------------------------------------------------------------

    def offset(self, key: ShareKey, high_watermark: int | None) -> ShareOffset:
        """Where a group stands, from the stored state."""
        state = self.states.find(key)
        if state is None or state.start_offset == UNKNOWN_START:
            epoch = 0 if state is None else state.leader_epoch
            return ShareOffset(UNKNOWN_START, UNKNOWN_LAG, epoch)
        lag = UNKNOWN_LAG
        if high_watermark is not None and state.done_count != UNKNOWN_COUNT:
            lag = max(0, high_watermark - state.start_offset - state.done_count)
        return ShareOffset(state.start_offset, lag, state.leader_epoch)

    def alter_offsets(
        self, group_id: str, begins: Sequence[tuple[str, Partition, int]], when_done: WhenDone
    ) -> None:
        """Let an empty group, created if need be, begin at these offsets."""
        group = self._find_or_create(group_id)
        if not group.is_empty:
            when_done(ErrorCode.NON_EMPTY_GROUP)
            return
        self.groups[group_id] = group
        group.touch()

        def stored(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                self._store(group, when_done)
            else:
                when_done(error)

        named = [((name, partition), start) for name, partition, start in begins]
        self._initialize(group, named, stored)

    def delete_offsets(self, group_id: str, topic_id: bytes, when_done: WhenDone) -> None:
        """Forget a topic of an empty group."""
        group = self.groups.get(group_id)
        if group is None:
            when_done(ErrorCode.GROUP_ID_NOT_FOUND)
        elif not group.is_empty:
            when_done(ErrorCode.NON_EMPTY_GROUP)
        else:
            self._forget_topic(group, topic_id, when_done)

    def _forget_topic(
        self, group: "share_group.ShareGroup", topic_id: bytes, when_done: WhenDone
    ) -> None:
        keys = [key for key in self.states.keys_of(group.group_id) if key.topic_id == topic_id]
        if not keys:
            when_done(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return

        def forgotten(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                when_done(error)
                return
            group.remove_states(topic_id)
            self._store(group, when_done)

        self._drop(group.group_id)
        self.states.forget(keys, forgotten)

    # -- ends ----------------------------------------------------------------------------------

    def delete_group(self, group_id: str, when_done: WhenDone) -> None:
        """Delete an empty group: its states, then its records."""
        group = self.groups[group_id]
        if not group.is_empty:
            when_done(ErrorCode.NON_EMPTY_GROUP)
            return

        def forgotten(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE or not group.is_empty:
                when_done(error or ErrorCode.NON_EMPTY_GROUP)
                return
            self.groups.pop(group_id, None)
            erased: list[KeyValue] = [
                records.encode_change(group_id, change) for change in group.erase()
            ]
            self._topic.append(self._topic.partition_of(group_id), erased, when_done)

        self._drop(group_id)
        self.states.forget(self.states.keys_of(group_id), forgotten)

    def _drop(self, group_id: str) -> None:
        """Forget what is in memory of a group, here and in the other workers."""
        self.partitions.drop_group(group_id)
        peers = self._registry.peers
        if peers is not None:
            peers.drop_share_group(group_id)

    def topic_deleted(self, topic: Topic) -> Steps[None]:
        """Forget a deleted topic, also where no group knows its states, in a step for each group.

        AlterShareGroupOffsets and brokers' requests store states before their group knows them, or
        without one.
        """
        self.partitions.drop_topic(topic.topic_id)
        yield from self._forget_deleted(topic.topic_id)

    def _forget_deleted(self, topic_id: bytes) -> Steps[None]:
        keys = [key for key in self.states if key.topic_id == topic_id]
        if keys:
            for group_id in {key.group_id for key in keys}:
                self._drop(group_id)
            self.states.forget(keys, _ignore)
        for group in list(self.groups.values()):
            if topic_id in group.initialized:
                group.remove_states(topic_id)
                self._store(group, _ignore)
            yield None

    def is_available(self, key: str) -> bool:
        """Whether the partition that keeps this share partition, named by its key, is whole."""
        return self.states.is_available(key)

    async def open_states(self) -> ErrorCode:
        """Open the topic of the states, creating it with the first share group."""
        try:
            await self.states.open()
        except (BrokerError, StorageError) as error:
            logger.warning("the states of share groups cannot be opened: %s", error)
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return ErrorCode.NONE
