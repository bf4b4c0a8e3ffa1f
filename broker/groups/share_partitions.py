"""Share partitions at work: loaded from their stored state, with timers, waiters and writes.

Owns every `SharePartition` in memory. Refuses to know the wire and sessions. A partition is loaded
by the first fetch and leaves memory when its group has no session left, when its offsets are set,
or when its log goes.

A fetch that finds nothing to acquire waits for its log to grow (`broker.fetch.waiters`), or for
records that come back: released, expired, or held back by a full window. `when_available` calls it
once.

The start that a first fetch chooses by `share.auto.offset.reset` is stored at once, so that records
that a member saw and did not acknowledge come again after a crash; so is a new leader epoch.

Differs from Kafka: there that start is stored with the first acknowledgement; a group that begins
at the end of the log and crashes before, begins at a later end.

Source: KIP-932; Kafka's `SharePartitionManager`, `SharePartition`.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from functools import partial
from typing import Final, TypeAlias

from broker.clocks.clock import Clock
from broker.groups.internal_topic import CoordinatorServices
from broker.groups.share.partition import SharePartition, Transition
from broker.groups.share.persister import Persister, StateChange
from broker.groups.share.stored_state import ShareKey
from broker.groups.share.values import (
    UNKNOWN_START,
    AckBatch,
    AckRefused,
    ShareLimits,
    StateBatch,
)
from broker.groups.timers import GroupTimers
from broker.topics.registry import TopicRegistry
from config.group import (
    BY_DURATION,
    SHARE_DELIVERY_LIMIT,
    SHARE_LOCK_DURATION,
    SHARE_OFFSET_RESET,
    SHARE_RECORD_LOCKS,
    SHARE_RENEW,
    group_choice,
    group_value,
    share_duration_ms,
)
from protocol.error_codes import ErrorCode
from storage.log.log import Log
from values.dataclasses import dataclass

_NO_OVERRIDES: Final[dict[str, str]] = {}

WhenAcknowledged: TypeAlias = Callable[[ErrorCode, str | None], object]


class NotInitialized(Exception):
    """A share partition has no state."""


@dataclass(slots=True, kw_only=True, eq=False)
class LoadedPartition:
    """A share partition in memory, with the fetches that wait for records to come back."""

    key: ShareKey
    log: Log
    partition: SharePartition
    state_epoch: int
    waiting: dict[Callable[[], object], None] = field(default_factory=dict)


class SharePartitions:
    """All loaded share partitions. Loop thread only."""

    def __init__(self, services: CoordinatorServices, states: Persister) -> None:
        self._services = services
        self._topics: TopicRegistry = services.topics
        self._clock: Clock = services.sessions
        self._states = states
        self._loaded: dict[ShareKey, LoadedPartition] = {}
        self._timers = GroupTimers(services.sessions, self._wake)
        self.expired = 0
        """Records whose lock has expired."""

        self.acknowledged: Counter[int] = Counter()
        """Records that members have acknowledged durably, by type (`Ack`)."""

    def __contains__(self, key: ShareKey) -> bool:
        """Whether a share partition is in memory."""
        return key in self._loaded

    def __iter__(self) -> Iterator[LoadedPartition]:
        """Those in memory."""
        return iter(list(self._loaded.values()))

    def stop(self) -> None:
        """Set no more timers."""
        self._timers.cancel_all()

    def now_ms(self) -> int:
        """The time of the locks."""
        return self._clock.monotonic_ms()

    def limits_of(self, group_id: str) -> ShareLimits:
        """The limits of a group now."""
        overrides = self._topics.group_overrides.get(group_id, _NO_OVERRIDES)
        config = self._topics.broker_config
        return ShareLimits(
            lock_duration_ms=group_value(SHARE_LOCK_DURATION, overrides, config),
            delivery_count=group_value(SHARE_DELIVERY_LIMIT, overrides, config),
            record_locks=group_value(SHARE_RECORD_LOCKS, overrides, config),
            may_renew=bool(group_choice(SHARE_RENEW, overrides)),
        )

    # -- loading -------------------------------------------------------------------------------

    def find(self, key: ShareKey) -> LoadedPartition | None:
        """The share partition if it is in memory, with its limits of now."""
        loaded = self._loaded.get(key)
        if loaded is not None:
            loaded.partition.limits = self.limits_of(key.group_id)
        return loaded

    def load(self, key: ShareKey, log: Log) -> LoadedPartition | None:
        """The share partition of `log`, loaded if need be; None while its start is undecided.

        Raises:
            NotInitialized: the group has no member that reads its topic.
            StateNeeded: its state has to be read first.
            StorageError, RemoteBytesNeeded, TooMuchAtOnce: the log could not be searched by time.
        """
        found = self.find(key)
        if found is not None and found.log is log:
            return found
        if found is not None:
            self._drop(found)
        state = self._states.find(key)
        if state is None:
            raise NotInitialized(key)
        start = state.start_offset
        if start == UNKNOWN_START:
            chosen = self._first_start(key.group_id, log)
            if chosen is None:
                return None
            start = chosen
        found = LoadedPartition(
            key=key,
            log=log,
            partition=SharePartition(start, state.batches, self.limits_of(key.group_id)),
            state_epoch=state.state_epoch,
        )
        self._loaded[key] = found
        if state.start_offset == UNKNOWN_START or state.leader_epoch != log.leader_epoch:
            self._store(found, [])
        return found

    def _first_start(self, group_id: str, log: Log) -> int | None:
        """Where a group begins in a partition that it has not read; None: at no record yet."""
        overrides = self._topics.group_overrides.get(group_id, _NO_OVERRIDES)
        reset = str(group_choice(SHARE_OFFSET_RESET, overrides))
        if reset.startswith(BY_DURATION):
            duration_ms = share_duration_ms(reset)
            assert duration_ms is not None, reset
            timestamp = max(0, self._services.time.now_ms() - duration_ms)
            found = log.offset_for_timestamp(timestamp)
            return None if found is None else found.offset
        return log.log_start_offset if reset == "earliest" else log.high_watermark

    def drop_group(self, group_id: str) -> None:
        """Forget what is in memory of a group; a fetch loads it again."""
        for loaded in [each for each in self._loaded.values() if each.key.group_id == group_id]:
            self._drop(loaded)

    def drop_topic(self, topic_id: bytes) -> None:
        """Forget the share partitions of a deleted topic."""
        for loaded in [each for each in self._loaded.values() if each.key.topic_id == topic_id]:
            self._drop(loaded)

    def _drop(self, loaded: LoadedPartition) -> None:
        del self._loaded[loaded.key]
        self.wake(loaded)

    # -- waiting -------------------------------------------------------------------------------

    def when_available(self, loaded: LoadedPartition, retry: Callable[[], object]) -> None:
        """Call `retry` once, when records may have come back."""
        loaded.waiting[retry] = None

    def wake(self, loaded: LoadedPartition) -> None:
        """Records may have come back: let the fetches that wait look again."""
        waiting, loaded.waiting = loaded.waiting, {}
        for retry in waiting:
            retry()

    # -- changes -------------------------------------------------------------------------------

    def acquired(self, loaded: LoadedPartition) -> None:
        """Records were acquired: set the timer of their locks."""
        self._timers.set(loaded.key, loaded.partition.wake_ms)

    def acknowledge(
        self,
        loaded: LoadedPartition,
        member_id: str,
        batches: Sequence[AckBatch],
        when_done: WhenAcknowledged,
    ) -> None:
        """Take a member's acknowledgements; `when_done` is called once, when they are durable."""
        share = loaded.partition
        try:
            transition = share.acknowledge(member_id, batches, self._clock.monotonic_ms())
        except AckRefused as refusal:
            when_done(refusal.error, str(refusal))
            return
        acknowledged = _count(batches, share.start_offset)
        if not transition:
            self.acquired(loaded)
            self.acknowledged += acknowledged
            when_done(ErrorCode.NONE, None)
            return
        settle = partial(self._settle, loaded, transition, acknowledged, when_done)
        self._states.write(self._change(loaded, transition.batches()), settle)

    def _settle(
        self,
        loaded: LoadedPartition,
        transition: Transition,
        acknowledged: Counter[int],
        when_done: WhenAcknowledged,
        error: ErrorCode,
    ) -> None:
        if error is ErrorCode.NONE:
            loaded.partition.commit(transition)
            self.acknowledged += acknowledged
        else:
            loaded.partition.rollback(transition, self._clock.monotonic_ms())
            self.acquired(loaded)
        current = self._loaded.get(loaded.key)
        is_fenced = error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        is_lost = error is not ErrorCode.NONE and (is_fenced or current is not loaded)
        if current is not None and is_lost:
            # One that was loaded meanwhile counts the change as done.
            self._drop(current)
        when_done(error, None)
        self.wake(loaded)

    def release(self, key: ShareKey, member_id: str) -> None:
        """Give back what a member has acquired of a share partition."""
        loaded = self._loaded.get(key)
        if loaded is not None:
            self._given_back(loaded, loaded.partition.release(member_id))

    def log_start_moved(self, loaded: LoadedPartition) -> None:
        """Records were deleted: the window begins at the log's start, at the earliest.

        That is stored, so that the lag counts no deleted record.
        """
        before = loaded.partition.start_offset
        loaded.partition.log_start_moved(loaded.log.log_start_offset)
        if loaded.partition.start_offset != before:
            self._store(loaded, [])

    def _wake(self, key: ShareKey, now_ms: int) -> None:
        loaded = self.find(key)
        if loaded is None:
            return
        batches = loaded.partition.expire(now_ms)
        self.expired += sum(batch.last - batch.first + 1 for batch in batches)
        self.acquired(loaded)
        self._given_back(loaded, batches)

    def _given_back(self, loaded: LoadedPartition, batches: Sequence[StateBatch]) -> None:
        if batches:
            self._store(loaded, batches)
            self.wake(loaded)

    def _store(self, loaded: LoadedPartition, batches: Sequence[StateBatch]) -> None:
        self._states.write(self._change(loaded, batches), _ignore)

    def _change(self, loaded: LoadedPartition, batches: Sequence[StateBatch]) -> StateChange:
        share = loaded.partition
        done_count = share.done_count
        assert 0 <= done_count <= share.in_flight, (done_count, share.in_flight)
        return StateChange(
            key=loaded.key,
            state_epoch=loaded.state_epoch,
            start_offset=share.start_offset,
            batches=batches,
            done_count=done_count,
            leader_epoch=loaded.log.leader_epoch,
        )


def _ignore(error: ErrorCode) -> None:
    """A restart finds the records available all the same."""


def _count(batches: Sequence[AckBatch], start_offset: int) -> Counter[int]:
    """How many records from `start_offset` on are acknowledged, by type."""
    found: Counter[int] = Counter()
    for batch in batches:
        first = max(batch.first, start_offset)
        if len(batch.types) == 1:
            found[batch.types[0]] += max(0, batch.last - first + 1)
        else:
            found.update(batch.types[first - batch.first :])
    return found
