"""The stored states of all share partitions: the topic `__share_group_state`, appended and folded.

Owns the way from a change of a share partition to a durable record, and the table of what a restart
would find. The topic is created with the first share group, so that a broker without one has none.

A change is stored as an update; after `UPDATES_MAX` updates as a snapshot. The topic is not
compacted: `prune` deletes what lies below the oldest snapshot in use, and stores a new snapshot of
partitions that were not written for a while, so that they do not hold back the others. A write of
an older state epoch is fenced: an administrator has set the offsets since.

`when_done` runs once the record is durable or refused. A change is merged into the table when it is
durable, so that what a full disk refused is in no later snapshot; until then `find` adds it. After
a snapshot that was refused the next change is a snapshot, too: updates name their snapshot.

Source: KIP-932; Kafka's `ShareCoordinatorShard`, `ShareCoordinatorOffsetsManager`.
"""

import asyncio
import base64
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from broker.errors import BrokerError
from broker.groups.internal_topic import CoordinatorServices, InternalTopic, KeyValue, WhenDone
from broker.groups.later import Later
from broker.groups.share.persister import StateChange
from broker.groups.share.stored_state import (
    FIRST_LEADER_EPOCH,
    NO_FENCES,
    UNKNOWN_COUNT,
    ShareKey,
    StoredState,
)
from broker.groups.share.values import UNKNOWN_START
from broker.topics.registry import SHARE_GROUP_STATE
from protocol.error_codes import ErrorCode
from protocol.stored.codec import UnknownRecord
from storage.errors import StorageError

if TYPE_CHECKING:
    from broker.groups.share import records
else:  # loaded with the first group
    records = Later(".share.records")

logger = logging.getLogger("tidelog.broker.groups.share_states")

PRUNE_INTERVAL_MS: Final = 300_000
_NO_OFFSET: Final = -1

WhenStored: TypeAlias = Callable[[ErrorCode, Sequence[int]], object]


class ShareStates:
    """The states of all share partitions. Loop thread only."""

    def __init__(self, services: CoordinatorServices) -> None:
        """Prepare; nothing is read before `start`."""
        config = services.config
        self._services = services
        self._topic = InternalTopic(
            services,
            SHARE_GROUP_STATE,
            partitions=config.share_coordinator_state_topic_num_partitions,
            overrides={
                "cleanup.policy": "delete",
                "retention.ms": "-1",
                "retention.bytes": "-1",
                "compression.type": "producer",
                "segment.bytes": str(config.share_coordinator_state_topic_segment_bytes),
            },
        )
        self._updates_max = config.share_coordinator_snapshot_update_records_per_snapshot
        self._table: dict[ShareKey, StoredState] = {}
        self._pending: dict[ShareKey, list[StateChange]] = {}
        """Changes that are appended and not durable yet, in order."""

        self._opening = asyncio.Lock()
        self._next_prune_ms = 0
        self.is_open = False
        self.written = 0
        """Records appended to the topic."""

    # -- life cycle ----------------------------------------------------------------------------

    async def start(self) -> None:
        """Load the states if the topic exists. Raises: StorageError: it cannot be read."""
        self._set_next_prune()
        if self._services.topics.find(SHARE_GROUP_STATE) is not None:
            await self.open()

    async def open(self) -> None:
        """Create the topic unless it exists, and load it. Raises: StorageError."""
        async with self._opening:
            if not self.is_open:
                await self._topic.open()
                self._load()

    def _load(self) -> None:
        skipped = 0
        for partition in self._topic.partitions:
            for batch in self._topic.replay(partition):
                for number, (key, value) in enumerate(batch.records):
                    try:
                        records.fold(self._table, key, value, batch.base_offset + number)
                    except UnknownRecord as error:
                        logger.debug("skipped: %s", error)
                        skipped += 1
        if skipped:
            logger.warning("%d records in %s are not understood", skipped, SHARE_GROUP_STATE)
        self.is_open = True

    def is_available(self, key: str) -> bool:
        """Whether the stored state of a share partition, named by its key, could be loaded."""
        return self.is_open and self._topic.is_available(key)

    def is_prune_due(self) -> bool:
        """Whether it is time to prune the topic; once per interval."""
        is_due = self.is_open and self._services.clock.monotonic_ms() >= self._next_prune_ms
        if is_due:
            self._set_next_prune()
        return is_due

    def _set_next_prune(self) -> None:
        self._next_prune_ms = self._services.clock.monotonic_ms() + PRUNE_INTERVAL_MS

    # -- reading and writing -------------------------------------------------------------------

    def find(self, key: ShareKey) -> StoredState | None:
        """The state of a share partition; None before it is initialized. Not to be changed."""
        state = self._table.get(key)
        if state is None or key not in self._pending:
            return state
        return self._with_pending(key, state)

    def read(self, key: ShareKey, when_read: Callable[[], object]) -> None:
        """As in `Persister`: they are all here."""
        when_read()

    def _with_pending(self, key: ShareKey, state: StoredState) -> StoredState:
        """A copy that has the changes that are not durable yet."""
        found = replace(state, batches=list(state.batches))
        for change in self._pending.get(key, ()):
            _take(found, change)
        return found

    def __contains__(self, key: ShareKey) -> bool:
        """Whether a share partition is initialized."""
        return key in self._table

    def __iter__(self) -> Iterator[ShareKey]:
        """The initialized share partitions."""
        return iter(list(self._table))

    def keys_of(self, group_id: str) -> list[ShareKey]:
        """The share partitions of a group."""
        return [key for key in self._table if key.group_id == group_id]

    def initialize(
        self, begins: Iterable[tuple[ShareKey, int]], state_epoch: int, when_done: WhenDone
    ) -> None:
        """Let share partitions begin at an offset each, -1 for "as the first fetch decides".

        States that exist begin again, in a higher epoch, and fence what was loaded from them.
        """
        made: dict[ShareKey, StoredState] = {}
        for key, start_offset in begins:
            known = self._table.get(key)
            epoch = state_epoch
            if known is not None:
                epoch = max(state_epoch, known.fences.state_epoch + 1)
            made[key] = self._begun(key, start_offset, epoch)
        self._begin(made, when_done)

    def initialize_as_asked(
        self, key: ShareKey, start_offset: int, state_epoch: int, when_done: WhenDone
    ) -> None:
        """The same for one share partition, in exactly the state epoch of a request."""
        self._begin({key: self._begun(key, start_offset, state_epoch)}, when_done)

    def _begun(self, key: ShareKey, start_offset: int, state_epoch: int) -> StoredState:
        """A share partition at its beginning."""
        known = self._table.get(key)
        fences = NO_FENCES if known is None else known.fences
        return StoredState(
            snapshot_epoch=0 if known is None else known.snapshot_epoch + 1,
            state_epoch=state_epoch,
            fences=fences.raised(FIRST_LEADER_EPOCH, state_epoch),
            start_offset=start_offset,
            done_count=UNKNOWN_COUNT if start_offset == UNKNOWN_START else 0,
            created_ms=self._services.clock.wall_ms(),
        )

    def _begin(self, made: Mapping[ShareKey, StoredState], when_done: WhenDone) -> None:
        def stored(error: ErrorCode, positions: Sequence[int]) -> None:
            if error is ErrorCode.NONE:
                for state, position in zip(made.values(), positions, strict=True):
                    state.position = position
                self._table.update(made)
            when_done(error)

        encoded = [
            (key, records.encode_snapshot(key, state, state.created_ms))
            for key, state in made.items()
        ]
        self._append(encoded, stored)

    def write(self, change: StateChange, when_done: WhenDone) -> None:
        """Store a change. `when_done` gets NOT_LEADER_OR_FOLLOWER when it is fenced."""
        state = self._table.get(change.key)
        if state is None:
            when_done(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return
        if state.state_epoch != change.state_epoch:
            when_done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        state.was_written = True
        self._pending.setdefault(change.key, []).append(change)
        written = partial(self._written, state, change, when_done)
        if state.updates < self._updates_max:
            record = records.encode_update(state, change)
            state.updates += 1
            self._append([(change.key, record)], lambda error, _: written(error))
        else:
            self._snapshot(change.key, state, written)

    def _written(
        self, state: StoredState, change: StateChange, when_done: WhenDone, error: ErrorCode
    ) -> None:
        pending = self._pending[change.key]
        pending.remove(change)
        if not pending:
            del self._pending[change.key]
        if error is ErrorCode.NONE:
            _take(state, change)
        when_done(error)

    def forget(self, keys: Sequence[ShareKey], when_done: WhenDone) -> None:
        """Delete states, durably."""

        def stored(error: ErrorCode, _: Sequence[int]) -> None:
            if error is ErrorCode.NONE:
                for key in keys:
                    self._table.pop(key, None)
            when_done(error)

        self._append([(key, records.encode_forgotten(key)) for key in keys], stored)

    def _snapshot(self, key: ShareKey, state: StoredState, when_done: WhenDone) -> None:
        state.snapshot_epoch += 1
        state.updates = 0
        whole = self._with_pending(key, state)
        record = records.encode_snapshot(key, whole, self._services.clock.wall_ms())

        def stored(error: ErrorCode, positions: Sequence[int]) -> None:
            if error is ErrorCode.NONE:
                (state.position,) = positions
            else:
                state.updates = self._updates_max
            when_done(error)

        self._append([(key, record)], stored)

    def _append(self, encoded: Sequence[tuple[ShareKey, KeyValue]], when_done: WhenStored) -> None:
        """Append records, each to the partition of its key; `when_done` gets their offsets."""
        self.written += len(encoded)
        by_partition: dict[int, list[KeyValue]] = {}
        positions: list[int] = []
        for key, record in encoded:
            partition = self._topic.partition_of(coordinator_key(key))
            waiting = by_partition.setdefault(partition, [])
            positions.append(self._next_offset(partition) + len(waiting))
            waiting.append(record)
        missing = len(by_partition)
        failed = ErrorCode.NONE

        def settle(error: ErrorCode) -> None:
            nonlocal missing, failed
            assert missing > 0, "a partition of the state topic has settled twice"
            missing -= 1
            failed = failed if error is ErrorCode.NONE else error
            if missing == 0:
                when_done(failed, positions)

        if not by_partition:
            when_done(ErrorCode.NONE, positions)
        for partition, waiting in by_partition.items():
            self._topic.append(partition, waiting, settle)

    def _next_offset(self, partition: int) -> int:
        try:
            return self._topic.log(partition).log_end_offset
        except BrokerError:
            return _NO_OFFSET  # The append is refused, too.

    # -- pruning -------------------------------------------------------------------------------

    def prune(self) -> None:
        """Delete the records below the oldest snapshot in use of each partition of the topic."""
        by_partition: dict[int, list[tuple[ShareKey, StoredState]]] = {}
        for key, state in self._table.items():
            partition = self._topic.partition_of(coordinator_key(key))
            by_partition.setdefault(partition, []).append((key, state))
        for partition in self._topic.partitions:
            states = by_partition.get(partition, [])
            self._refresh(states)
            self._delete_below(
                partition, min((state.position for _, state in states), default=None)
            )

    def _refresh(self, states: Iterable[tuple[ShareKey, StoredState]]) -> None:
        """Store snapshots of what was not written since the last time, unless nothing was."""
        states = list(states)
        if not any(state.was_written for _, state in states):
            return
        for key, state in states:
            if not state.was_written:
                self._snapshot(key, state, _ignore)
            state.was_written = False

    def _delete_below(self, partition: int, offset: int | None) -> None:
        try:
            log = self._topic.log(partition)
            wanted = log.high_watermark if offset is None else min(offset, log.high_watermark)
            if wanted > log.log_start_offset and log.quarantine is None:
                log.delete_before(wanted)
        except (BrokerError, StorageError) as error:
            logger.warning("%s-%d is not pruned: %s", SHARE_GROUP_STATE, partition, error)


def coordinator_key(key: ShareKey) -> str:
    """The key of FindCoordinator, which also chooses the partition of the state topic."""
    topic = base64.urlsafe_b64encode(key.topic_id).rstrip(b"=").decode("ascii")
    return f"{key.group_id}:{topic}:{key.partition}"


def _take(state: StoredState, change: StateChange) -> None:
    state.merge(change.start_offset, change.batches, change.done_count, change.leader_epoch)


def _ignore(error: ErrorCode) -> None:
    """Do nothing: the internal topic has logged the refusal."""
