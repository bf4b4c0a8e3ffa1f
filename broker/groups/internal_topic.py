"""A coordinator's state on disk: its own compacted topic, appended to and replayed.

Owns the way from (key, value) pairs to durable batches and back. Refuses to know what the pairs
mean (`broker.groups.offsets.records`, `broker.transactions.records`). Invariant: `when_done(NONE)`
is called only when the records would survive a power cut (or as far as the operator's
`flush.policy=os` promises). The callbacks of one partition run in the order of their appends.

Source: Kafka's `GroupMetadataManager.appendForGroup`, `TransactionStateManager`.
"""

import logging
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from broker.clocks.clock import Clock
from broker.clocks.trusted_clock import TrustedClock
from broker.errors import BrokerError
from broker.group_commit import GroupCommit
from broker.groups.share.persister import Persister
from broker.topics.registry import CONSUMER_OFFSETS, TopicRegistry
from config import BrokerConfig
from protocol.error_codes import ErrorCode
from protocol.records.batch import RecordBatch
from protocol.records.builder import build_batch
from protocol.records.layout import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ControlType
from protocol.records.record import Record, control_type, decode_batch
from protocol.records.scan import scan_entries
from protocol.stored.codec import version_of
from protocol.stored.group_log import OFFSET_COMMIT_KEY
from storage.append.plan import Origin
from storage.errors import InvalidProducerEpoch, StorageError, TransactionCoordinatorFenced
from storage.log.log import Log
from storage.log.values import Isolation
from values.dataclasses import dataclass

logger = logging.getLogger("tidelog.broker.groups.internal_topic")

KeyValue: TypeAlias = tuple[bytes, bytes | None]
WhenDone: TypeAlias = Callable[[ErrorCode], object]

_BATCH_BYTES_MAX = 512 * 1024
_REPLAY_BYTES = 4 * 1024 * 1024
_RECORD_OVERHEAD_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorServices:
    """The collaborators of a coordinator, which exists before any `Context`.

    `sessions` times members; `clock` times all else. They differ when the clock is settable. At a
    standby all topics follow those of the bucket's owner.
    """

    config: BrokerConfig
    clock: Clock
    sessions: Clock
    time: TrustedClock
    random: random.Random
    topics: TopicRegistry
    group_commit: GroupCommit
    is_standby: bool = False
    share_states: Persister | None = None
    """Where share partitions are stored if not here."""


class StoredBatch(NamedTuple):
    """A batch as replayed.

    Attributes:
        producer_id: whose transaction it belongs to, if any.
        is_transactional: its records count only once that transaction commits.
        is_commit: for the marker that ends a transaction, whether it commits; None for records.
        records: (key, value) in order; empty for a marker.
        base_offset: of the first record.
    """

    producer_id: int
    is_transactional: bool
    is_commit: bool | None
    records: Iterable[KeyValue]
    base_offset: int = 0


class InternalTopic:
    """One internal topic. Loop thread only; the logs belong to the data directory."""

    def __init__(
        self,
        services: CoordinatorServices,
        name: str,
        *,
        partitions: int,
        overrides: Mapping[str, str],
    ) -> None:
        """Describe the topic; `partitions` and `overrides` count only when it is created."""
        self.name = name
        self._services = services
        self._partitions = partitions
        self._overrides = dict(overrides)

    async def open(self) -> None:
        """Create the topic unless it exists; an existing one keeps its partition count.

        A standby creates none.

        Raises:
            StorageError: the data directory refuses.
        """
        topic = self._services.topics.find(self.name)
        if topic is None and self._services.is_standby:
            return
        if topic is None:
            topic = await self._services.topics.create(self.name, self._partitions, self._overrides)
        self._partitions = len(topic.partitions)

    def follow(self) -> None:
        """Take over the partition count of the topic, which a standby has got."""
        topic = self._services.topics.find(self.name)
        if topic is not None:
            self._partitions = len(topic.partitions)

    @property
    def partitions(self) -> range:
        """The partition numbers."""
        return range(self._partitions)

    def partition_of(self, name: str) -> int:
        """The partition of a group or transactional id: the same as Kafka's, so tools agree."""
        return abs(_java_hash(name)) % self._partitions

    def log(self, partition: int) -> Log:
        """The partition's log. Raises: BrokerError when it is not ours to write."""
        return self._services.topics.led_log(self.name, partition)

    def is_available(self, name: str) -> bool:
        """Whether the stored state of a group or transactional id could be loaded."""
        try:
            return self.log(self.partition_of(name)).quarantine is None
        except BrokerError:
            return False

    def append(
        self,
        partition: int,
        records: Sequence[KeyValue],
        when_done: WhenDone,
        *,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
    ) -> None:
        """Write records in order and call `when_done` once they are durable, or refused.

        With a producer id they become part of its open transaction. Long lists are split into
        batches. A refusal in the middle leaves the earlier ones in the log, which is harmless:
        records do not depend on each other, and a retry writes them all again.

        At a standby nothing is written: see `_at_standby`.
        """
        if self._services.is_standby:
            when_done(self._at_standby(records))
            return
        try:
            log = self.log(partition)
            next_offset = 0
            for chunk in _chunks(records):
                next_offset = self._append_batch(log, chunk, producer_id, producer_epoch)
        except (BrokerError, StorageError) as error:
            logger.warning("%s-%d takes no records: %s", self.name, partition, error)
            when_done(_refusal(error))
            return
        self._when_durable(log, next_offset, when_done)

    def _at_standby(self, records: Sequence[KeyValue]) -> ErrorCode:
        """The answer to an append at a standby, whose topics are those of the bucket's owner.

        It knows the members of its groups in memory only. A commit fails with an error that
        consumers report and survive; one that they retry would hold up their polls.
        """
        if self.name != CONSUMER_OFFSETS:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if any(version_of(key) <= OFFSET_COMMIT_KEY for key, _ in records):
            return ErrorCode.POLICY_VIOLATION
        return ErrorCode.NONE

    def append_prepared(self, log: Log, batch: bytes, when_done: WhenDone) -> None:
        """Write one finished batch (a transaction marker) to any log, like `append`."""
        now_ms = self._services.clock.wall_ms()
        try:
            result = log.append(
                memoryview(bytearray(batch)),
                now_ms=now_ms,
                origin=Origin.COORDINATOR,
                stamp_slack_ms=self._services.time.stamp_slack_ms,
            )
        except StorageError as error:
            logger.warning("%s-%d takes no marker: %s", log.topic, log.partition, error)
            when_done(_refusal(error))
            return
        self._services.group_commit.appended(log, result.size_bytes)
        self._when_durable(log, result.last_offset + 1, when_done)

    def replay(self, partition: int, begin: int = 0) -> Iterator[StoredBatch]:
        """The batches from `begin` on, oldest first; records are valid until the next is taken.

        A quarantined log yields none: see `is_available`.

        Raises:
            StorageError: the log cannot be read.
        """
        log = self.log(partition)
        if log.quarantine is not None:
            # Half a state is worse than none: a lost record may have undone the rest.
            logger.error("%s-%d is not loaded: %s", self.name, partition, log.offline_reason)
            return
        offset = max(begin, log.log_start_offset)
        while offset < log.log_end_offset:
            found = log.read(offset, max_bytes=_REPLAY_BYTES, isolation=Isolation.LOG_END)
            for entry in scan_entries(found.records):
                yield _stored(RecordBatch(found.records, entry.position))
            assert found.next_offset > offset, f"{self.name}-{partition} stands still at {offset}"
            offset = found.next_offset

    def _append_batch(
        self, log: Log, chunk: Sequence[KeyValue], producer_id: int, producer_epoch: int
    ) -> int:
        now_ms = self._services.clock.wall_ms()
        batch = build_batch(
            [Record(0, now_ms, key, value, ()) for key, value in chunk],
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            is_transactional=producer_id != NO_PRODUCER_ID,
        )
        result = log.append(memoryview(bytearray(batch)), now_ms=now_ms, origin=Origin.COORDINATOR)
        self._services.group_commit.appended(log, result.size_bytes)
        return result.last_offset + 1

    def _when_durable(self, log: Log, next_offset: int, when_done: WhenDone) -> None:
        if not log.waits_for_disk:
            when_done(ErrorCode.NONE)
            return

        def settle(error: StorageError | None) -> None:
            when_done(ErrorCode.NONE if error is None else ErrorCode.COORDINATOR_NOT_AVAILABLE)

        self._services.group_commit.when_durable(log, next_offset, settle)


def _refusal(error: Exception) -> ErrorCode:
    """A fenced producer or coordinator must know; every other error makes it try again later."""
    if isinstance(error, InvalidProducerEpoch):
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if isinstance(error, TransactionCoordinatorFenced):
        return ErrorCode.TRANSACTION_COORDINATOR_FENCED
    return ErrorCode.COORDINATOR_NOT_AVAILABLE


def _stored(batch: RecordBatch) -> StoredBatch:
    records = decode_batch(batch)
    if batch.is_control:
        is_commit = control_type(records[0]) is ControlType.COMMIT
        return StoredBatch(batch.producer_id, True, is_commit, ())
    pairs = [(record.key or b"", record.value) for record in records]
    return StoredBatch(batch.producer_id, batch.is_transactional, None, pairs, batch.base_offset)


def _chunks(records: Sequence[KeyValue]) -> Iterator[Sequence[KeyValue]]:
    """The records in runs that fit a batch comfortably; one huge record is a run of its own."""
    start = size = 0
    for i, (key, value) in enumerate(records):
        record_size = len(key) + len(value or b"") + _RECORD_OVERHEAD_BYTES
        if i > start and size + record_size > _BATCH_BYTES_MAX:
            yield records[start:i]
            start, size = i, 0
        size += record_size
    if start < len(records):
        yield records[start:]


def _java_hash(text: str) -> int:
    """Java's `String.hashCode`: over UTF-16 units, 32 bits, signed; its least value becomes 0."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for high, low in zip(units[0::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    if value == 1 << 31:
        return 0
    return value - (1 << 32) if value > 1 << 31 else value
