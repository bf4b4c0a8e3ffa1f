"""The coordinator of all transactional ids: stores decisions, writes markers, enforces timeouts.

Owns the steps between the pure decisions of `broker.transactions.state` and the logs. A decision
takes effect when it is durable in `__transaction_state`; only then does the coordinator answer it
or act on it. A prepared end always completes: the coordinator retries markers that a partition
refuses, and writes them again after a restart. Knows no wire format.

While one decision of an id is being stored, every other request for the id gets
CONCURRENT_TRANSACTIONS, and its client retries.

Differs from Kafka: EndTxn is answered when the markers are durable, not when the decision is. The
client that gets the answer can begin its next transaction at once (Kafka makes it retry), and any
reader it notifies finds the records. If a partition refuses its marker, the answer does not wait
for it.

Differs from Kafka: every transactional batch is compared with the transactional id of its request.
Kafka queries its coordinator once for each partition and transaction. It stores later batches of
the same producer under any id but null.

Source: KIP-98, KIP-360, KIP-890 (part 1: a partition takes transactional records only while it is
part of the transaction); Kafka's `TransactionCoordinator`, `TransactionMarkerChannelManager`.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import field
from functools import partial
from typing import Final, NamedTuple

from broker.clocks.clock import SteadyTime
from broker.errors import NotLeader, UnknownTopicOrPartition
from broker.groups.coordinator import GroupCoordinator
from broker.groups.internal_topic import CoordinatorServices, InternalTopic, WhenDone
from broker.topics.registry import CONSUMER_OFFSETS, TRANSACTION_STATE
from broker.transactions import records, state
from broker.transactions.state import (
    PREPARED,
    Plan,
    ProducerIdAndEpoch,
    TopicPartition,
    TxnSnapshot,
    TxnState,
)
from protocol.error_codes import ErrorCode
from protocol.errors import CorruptRecords
from protocol.records.batch import RecordBatch
from protocol.records.builder import build_end_txn_marker
from protocol.records.checksums import Buffer
from protocol.records.layout import (
    ATTRIBUTES_AT,
    BATCH_OVERHEAD,
    MAGIC_AT,
    MAGIC_V2,
    TRANSACTIONAL_BIT,
)
from protocol.stored.codec import UnknownRecord
from storage.log.log import Log
from values.dataclasses import dataclass

logger = logging.getLogger("tidelog.broker.transactions.coordinator")

_EXPIRY_INTERVAL_MS: Final = 3_600_000
_PRODUCER_ID_BLOCK_SIZE: Final = 1000
_NO_PRODUCER: Final = (-1, -1)


class Admission(NamedTuple):
    """A producer's request that names its partitions only by writing to them."""

    producer: ProducerIdAndEpoch
    partitions: frozenset[TopicPartition]
    answer: WhenDone


@dataclass(slots=True, kw_only=True, eq=False)
class TransactionalId:
    """One transactional id at work.

    Attributes:
        now: the durable state.
        is_busy: a decision is being stored.
        missing: partitions whose marker is not durable yet.
        refused: those of `missing` that did not accept it; `tick` retries them.
        waiting: the answer to the request that ended the transaction.
        admissions: producers' requests that wait for their partitions to join, in order.
    """

    now: TxnSnapshot
    is_busy: bool = False
    missing: set[TopicPartition] = field(default_factory=set)
    refused: set[TopicPartition] = field(default_factory=set)
    waiting: WhenDone | None = None
    admissions: deque[Admission] = field(default_factory=deque)


class TransactionCoordinator:
    """All transactional ids and all new producer ids. Loop thread only; driven by the server.

    A crash loses no answered decision; an unanswered one may or may not have taken effect.
    """

    def __init__(self, services: CoordinatorServices, groups: GroupCoordinator) -> None:
        """Prepare; nothing is read before `start`. `groups` receive the committed offsets."""
        config = services.config
        self._services = services
        self._clock = services.clock
        self._groups = groups
        self._producer_ids = iter(range(0))
        self._topic = InternalTopic(
            services,
            TRANSACTION_STATE,
            partitions=config.transaction_state_log_num_partitions,
            overrides={
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "segment.bytes": str(config.transaction_state_log_segment_bytes),
            },
        )
        self._entries: dict[str, TransactionalId] = {}
        self._of_producer: dict[int, str] = {}
        self._open: set[str] = set()
        self._time = SteadyTime(services.clock)
        self._next_expiry_ms = 0

    # -- life cycle ----------------------------------------------------------------------------

    async def start(self) -> None:
        """Load every transactional id and finish prepared ends; runs after the groups' start.

        Raises:
            StorageError: the topic cannot be created or read.
        """
        self._time = SteadyTime(self._clock)
        self._next_expiry_ms = self._time.now_ms() + _EXPIRY_INTERVAL_MS
        await self._topic.open()
        for partition in self._topic.partitions:
            newest: dict[bytes, bytes | None] = {}
            for batch in self._topic.replay(partition):
                newest.update(batch.records)
            for key, value in newest.items():
                if value is not None:
                    self._restore(key, value)
        for entry in list(self._entries.values()):
            if entry.now.state in PREPARED:
                self._write_markers(entry)
        logger.info("%d transactional ids loaded", len(self._entries))

    def tick(self) -> None:
        """Abort timed-out transactions, retry refused markers, expire unused ids."""
        now_ms = self._time.now_ms()
        for transactional_id in list(self._open):
            entry = self._entries[transactional_id]
            if entry.is_busy:
                continue
            if entry.refused:
                self._write_to(entry, sorted(entry.refused))
            elif entry.now.state in PREPARED and not entry.missing:
                self._complete(entry)
            elif state.is_timed_out(entry.now, now_ms):
                logger.info("%s: transaction timed out, aborted", transactional_id)
                aborted = state.plan_fence(entry.now, now_ms, self.allocate_producer_id)
                self._prepare_end(entry, aborted, None)
        if now_ms >= self._next_expiry_ms:
            self._next_expiry_ms = now_ms + _EXPIRY_INTERVAL_MS
            self._expire(now_ms)

    # -- requests of producers -----------------------------------------------------------------

    def allocate_producer_id(self) -> int:
        """A producer id that was never used before, for the life of the data directory.

        Ids are reserved durably in blocks, so that one sync serves a thousand producers. A restart
        loses the rest of a block, which is negligible among 2**63 ids. Source: Kafka's
        `ProducerIdManager`; KIP-98, KIP-730.

        Raises:
            StorageError: the next block could not be made durable.
        """
        producer_id = next(self._producer_ids, None)
        if producer_id is None:
            self._producer_ids = iter(
                self._services.topics.allocate_producer_ids(_PRODUCER_ID_BLOCK_SIZE)
            )
            producer_id = next(self._producer_ids)
        return producer_id

    def init_producer(
        self,
        transactional_id: str,
        *,
        timeout_ms: int,
        expected: ProducerIdAndEpoch | None,
        answer: Callable[[ErrorCode, ProducerIdAndEpoch], object],
    ) -> None:
        """Give the transactional id to this producer and fence the producer before it."""
        if not 0 < timeout_ms <= self._services.config.transaction_max_timeout_ms:
            answer(ErrorCode.INVALID_TRANSACTION_TIMEOUT, _NO_PRODUCER)
            return
        entry = self._entries.get(transactional_id)
        if entry is None:
            entry = self._create(transactional_id, timeout_ms)
        if entry.is_busy:
            answer(ErrorCode.CONCURRENT_TRANSACTIONS, _NO_PRODUCER)
            return
        plan = state.plan_init(
            entry.now,
            timeout_ms=timeout_ms,
            expected=expected,
            allocate=self.allocate_producer_id,
            now_ms=self._time.now_ms(),
        )
        if plan.next is not None and plan.next.state in PREPARED:
            self._prepare_end(entry, plan.next, None)
        if plan.next is None or plan.error is not ErrorCode.NONE:
            answer(plan.error, _NO_PRODUCER)
            return
        given = (plan.next.producer_id, plan.next.producer_epoch)
        self._store(
            entry,
            plan.next,
            lambda error: answer(error, given if error is ErrorCode.NONE else _NO_PRODUCER),
        )

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Iterable[TopicPartition],
        answer: WhenDone,
    ) -> None:
        """Make partitions part of the producer's transaction, beginning one if needed."""
        entry, error = self._find_ready(transactional_id)
        if entry is None:
            answer(error)
            return
        plan = state.plan_add_partitions(
            entry.now, producer, frozenset(partitions), self._time.now_ms()
        )
        if plan.next is None:
            answer(plan.error)
        else:
            self._store(entry, plan.next, answer)

    def _find_ready(self, transactional_id: str) -> tuple[TransactionalId | None, ErrorCode]:
        """The entry, or the error: an unknown id, or a pending decision."""
        entry = self._entries.get(transactional_id)
        if entry is None:
            return None, _no_entry(transactional_id)
        if entry.is_busy:
            return None, ErrorCode.CONCURRENT_TRANSACTIONS
        return entry, ErrorCode.NONE

    def add_group(
        self, transactional_id: str, producer: ProducerIdAndEpoch, group_id: str, answer: WhenDone
    ) -> None:
        """Make a group's offsets part of the producer's transaction."""
        partition = self._groups.offsets_partition(group_id)
        self.add_partitions(transactional_id, producer, [partition], answer)

    def admit(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Iterable[TopicPartition],
        answer: WhenDone,
        *,
        joins: bool = True,
    ) -> None:
        """Let a producer of transaction version 2 write; the partitions join its transaction.

        Answered at once when the partitions are already part of it. Requests that have to wait
        continue in the order of their arrival, or the sequence of the producer's batches would
        break.
        """
        assert joins, "other producers are checked when they write"
        entry = self._entries.get(transactional_id)
        if entry is None:
            answer(_no_entry(transactional_id))
            return
        entry.admissions.append(Admission(producer, frozenset(partitions), answer))
        if len(entry.admissions) == 1:
            self._admit_next(entry)

    def must_wait(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Iterable[TopicPartition],
        *,
        joins: bool,
    ) -> bool:
        """Whether `admit` must answer before the producer may write.

        If it `joins` (transaction version 2), unless all partitions have joined and no request
        waits.
        """
        if not joins:
            return False
        entry = self._entries.get(transactional_id)
        if entry is None or entry.admissions:
            return True
        return any(_write_error(entry, producer, tp) is not ErrorCode.NONE for tp in partitions)

    def _admit_next(self, entry: TransactionalId) -> None:
        """Process the waiting requests, oldest first, until a decision has to be stored."""
        while entry.admissions:
            producer, partitions, answer = entry.admissions[0]
            plan = Plan(error=ErrorCode.CONCURRENT_TRANSACTIONS)
            if not entry.is_busy:
                plan = state.plan_add_partitions(
                    entry.now, producer, partitions, self._time.now_ms()
                )
            if plan.next is not None:
                self._store(entry, plan.next, partial(self._admitted, entry))
                return
            entry.admissions.popleft()
            answer(plan.error)

    def _admitted(self, entry: TransactionalId, error: ErrorCode) -> None:
        entry.admissions.popleft().answer(error)
        self._admit_next(entry)

    def end(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        *,
        is_commit: bool,
        answer: WhenDone,
        bumps_epoch: bool = False,
    ) -> None:
        """Commit or abort; answered when every reachable partition has its marker.

        With `bumps_epoch` (transaction version 2) the producer continues as `next_producer` of the
        snapshot that `find` returns at the time of the answer.
        """
        entry = self._entries.get(transactional_id)
        if entry is None:
            answer(_no_entry(transactional_id))
            return
        if entry.is_busy and bumps_epoch:
            answer(ErrorCode.CONCURRENT_TRANSACTIONS)
            return
        plan = state.plan_end(
            entry.now,
            producer,
            is_commit=is_commit,
            now_ms=self._time.now_ms(),
            allocate=self.allocate_producer_id if bumps_epoch else None,
        )
        if plan.next is None:
            answer(plan.error)
        elif entry.is_busy:
            answer(ErrorCode.CONCURRENT_TRANSACTIONS)
        elif plan.next.state in PREPARED:
            self._prepare_end(entry, plan.next, answer)
        else:
            self._store(entry, plan.next, answer)

    def append_error(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partition: TopicPartition
    ) -> ErrorCode:
        """NONE when this producer's transaction is open and covers the partition (KIP-890).

        Without the check a late batch would open a transaction that no end marker ever ends, and
        the wrong producer would end one under a foreign id. TRANSACTION_ABORTABLE is the error of a
        partition that was not added; clients that do not know it get INVALID_TXN_STATE
        (`state.refusal_of_a_write`).
        """
        entry = self._entries.get(transactional_id)
        if entry is None:
            return _no_entry(transactional_id)
        return _write_error(entry, producer, partition)

    def append_marker(
        self, log: Log, marker: bytes, answer: WhenDone, *, producer_id: int, is_commit: bool
    ) -> None:
        """Write a marker that an operator requested; answered once it is durable.

        The transaction itself does not change; its producer or its timeout ends it.
        """

        def stored(error: ErrorCode) -> None:
            if error is ErrorCode.NONE and log.topic == CONSUMER_OFFSETS:
                self._groups.transaction_ended(producer_id, log.partition, is_commit=is_commit)
            answer(error)

        self._topic.append_prepared(log, marker, stored)

    # -- queries of operators ------------------------------------------------------------------

    def find(self, transactional_id: str) -> TxnSnapshot | None:
        """The durable state of a transactional id, or None."""
        entry = self._entries.get(transactional_id)
        return None if entry is None else entry.now

    def transactional_id_of(self, producer_id: int) -> str | None:
        """To which transactional id a producer id belongs, as far as this worker knows."""
        return self._of_producer.get(producer_id)

    def snapshots(self) -> list[TxnSnapshot]:
        """Every transactional id."""
        return [entry.now for entry in self._entries.values()]

    def now_ms(self) -> int:
        """The time that transactions use."""
        return self._time.now_ms()

    # -- storing -------------------------------------------------------------------------------

    def _create(self, transactional_id: str, timeout_ms: int) -> TransactionalId:
        snapshot = TxnSnapshot(
            transactional_id=transactional_id,
            producer_id=self.allocate_producer_id(),
            timeout_ms=timeout_ms,
        )
        entry = self._entries[transactional_id] = TransactionalId(now=snapshot)
        return entry

    def _restore(self, key: bytes, value: bytes) -> None:
        try:
            transactional_id = records.decode_key(key)
            entry = TransactionalId(now=records.decode_value(transactional_id, value))
        except UnknownRecord as error:
            logger.warning("a record of the transaction log is not understood: %s", error)
            return
        former = self._entries.get(transactional_id)
        if former is not None:
            self._of_producer.pop(former.now.producer_id, None)
        self._entries[transactional_id] = entry
        self._index(entry)

    def _store(self, entry: TransactionalId, snapshot: TxnSnapshot, when_done: WhenDone) -> None:
        """Store `snapshot`; once it is durable, make it the current state and call `when_done`."""
        assert not entry.is_busy, snapshot.transactional_id
        state.check_successor(entry.now, snapshot)
        entry.is_busy = True
        transactional_id = snapshot.transactional_id

        def stored(error: ErrorCode) -> None:
            assert entry.is_busy, f"{transactional_id}: a decision was stored twice"
            entry.is_busy = False
            if error is ErrorCode.NONE:
                self._of_producer.pop(entry.now.producer_id, None)
                entry.now = snapshot
                self._index(entry)
            when_done(error)

        record = (records.encode_key(transactional_id), records.encode_value(snapshot))
        self._topic.append(self._topic.partition_of(transactional_id), [record], stored)

    def _index(self, entry: TransactionalId) -> None:
        self._of_producer[entry.now.producer_id] = entry.now.transactional_id
        if entry.now.state is TxnState.ONGOING or entry.now.state in PREPARED:
            self._open.add(entry.now.transactional_id)
        else:
            self._open.discard(entry.now.transactional_id)

    # -- ending --------------------------------------------------------------------------------

    def _prepare_end(
        self, entry: TransactionalId, prepared: TxnSnapshot, answer: WhenDone | None
    ) -> None:
        def stored(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                if answer is not None:
                    answer(error)
                return
            entry.waiting = answer
            self._write_markers(entry)

        self._store(entry, prepared, stored)

    def _write_markers(self, entry: TransactionalId) -> None:
        assert entry.now.state in PREPARED, f"{entry.now.transactional_id}: {entry.now.state}"
        entry.missing = set(entry.now.partitions)
        if entry.missing:
            self._write_to(entry, sorted(entry.missing))
        else:
            self._complete(entry)

    def _write_to(self, entry: TransactionalId, partitions: list[TopicPartition]) -> None:
        """Write the marker to these partitions; the last one to accept it completes the end."""
        entry.refused.clear()
        snapshot = entry.now
        marker = build_end_txn_marker(
            commit=snapshot.state is TxnState.PREPARE_COMMIT,
            producer_id=snapshot.producer_id,
            producer_epoch=snapshot.producer_epoch,
            timestamp_ms=self._clock.wall_ms(),
            coordinator_epoch=self._coordinator_epoch(snapshot.transactional_id),
        )
        for tp in partitions:
            try:
                log = self._services.topics.led_log(*tp)
            except UnknownTopicOrPartition:
                self._marker_done(entry, tp, ErrorCode.NONE)  # deleted in the meantime
                continue
            except NotLeader:
                self._write_to_worker(entry, tp, marker)
                continue
            self._topic.append_prepared(log, marker, partial(self._marker_done, entry, tp))

    def _write_to_worker(self, entry: TransactionalId, tp: TopicPartition, marker: bytes) -> None:
        """Let the worker that keeps the partition write the marker."""
        topics = self._services.topics
        topic = topics.find(tp[0])
        assert topic is not None, "led_log has found it"
        assert topics.peers is not None, "another worker keeps a partition"
        worker = topic.workers[tp[1]]
        topics.peers.write_marker(worker, *tp, marker, partial(self._marker_done, entry, tp))

    def is_available(self, transactional_id: str) -> bool:
        """As `GroupCoordinator.is_available`."""
        return self._topic.is_available(transactional_id)

    def _coordinator_epoch(self, transactional_id: str) -> int:
        return self._topic.log(self._topic.partition_of(transactional_id)).leader_epoch

    def _marker_done(self, entry: TransactionalId, tp: TopicPartition, error: ErrorCode) -> None:
        if error is not ErrorCode.NONE:
            entry.refused.add(tp)
            self._answer_end(entry)
            return
        entry.missing.discard(tp)
        if tp[0] == CONSUMER_OFFSETS:
            is_commit = entry.now.state is TxnState.PREPARE_COMMIT
            self._groups.transaction_ended(entry.now.producer_id, tp[1], is_commit=is_commit)
        if not entry.missing and entry.now.state in PREPARED and not entry.is_busy:
            self._complete(entry)

    def _complete(self, entry: TransactionalId) -> None:
        assert not entry.missing, f"{entry.now.transactional_id}: markers are missing"

        def stored(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                logger.warning("%s: end not recorded yet", entry.now.transactional_id)
            self._answer_end(entry)

        self._store(entry, state.plan_complete(entry.now, self._time.now_ms()), stored)

    @staticmethod
    def _answer_end(entry: TransactionalId) -> None:
        answer, entry.waiting = entry.waiting, None
        if answer is not None:
            answer(ErrorCode.NONE)

    # -- expiry --------------------------------------------------------------------------------

    def _expire(self, now_ms: int) -> None:
        expiration_ms = self._services.config.transactional_id_expiration_ms
        for entry in list(self._entries.values()):
            if not entry.is_busy and state.is_expired(entry.now, now_ms, expiration_ms):
                self._forget(entry)

    def _forget(self, entry: TransactionalId) -> None:
        transactional_id = entry.now.transactional_id
        entry.is_busy = True

        def stored(error: ErrorCode) -> None:
            entry.is_busy = False
            if error is ErrorCode.NONE:
                self._entries.pop(transactional_id, None)
                self._of_producer.pop(entry.now.producer_id, None)

        tombstone = (records.encode_key(transactional_id), None)
        self._topic.append(self._topic.partition_of(transactional_id), [tombstone], stored)


def transactional_producer(data: Buffer | None) -> ProducerIdAndEpoch | None:
    """The producer of a transactional first batch; None if that batch is not transactional.

    The log refuses records that are no batch at all.
    """
    if data is None or len(data) < BATCH_OVERHEAD or data[MAGIC_AT] != MAGIC_V2:
        return None
    if not data[ATTRIBUTES_AT + 1] & TRANSACTIONAL_BIT:
        return None
    try:
        batch = RecordBatch(data)
    except CorruptRecords:
        return None
    return batch.producer_id, batch.producer_epoch


def _no_entry(transactional_id: str) -> ErrorCode:
    """The error for a transactional id without an entry."""
    if not transactional_id:
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.INVALID_PRODUCER_ID_MAPPING


def _write_error(
    entry: TransactionalId, producer: ProducerIdAndEpoch, partition: TopicPartition
) -> ErrorCode:
    """The error of a write to the partition now, NONE when it is allowed."""
    error = state.producer_error(entry.now, producer)
    if error is not ErrorCode.NONE:
        return error
    if entry.now.state in PREPARED:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if entry.now.state is not TxnState.ONGOING or partition not in entry.now.partitions:
        return ErrorCode.TRANSACTION_ABORTABLE
    return ErrorCode.NONE
