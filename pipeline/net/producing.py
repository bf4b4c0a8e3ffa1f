"""A blocking producer for one task: idempotent always, transactional when it has a name.

Owns the batches under construction, the sequence numbers and the transaction. A batch that is not
acknowledged is sent again with the same sequence numbers, so the broker keeps it once. A failed
task leaves an open transaction, which the next producer of the same name aborts before it begins:
`InitProducerId` fences the previous owner of the name. Without a name the identity of a task that
ended well serves the next one of the same process: brokers remember every identity for a day.

Invariant: after `commit` all added records are acknowledged and committed together with the mark.
After `abort`, or without either, read-committed readers see none of them.

Source: KIP-98; Kafka `TransactionManager`. Read next: `sink`.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from client.partitioner import partition_for_key
from pipeline.errors import BrokerRefused, BrokerUnreachable, Fenced
from pipeline.net.cluster import Cluster, check
from pipeline.options.options import ConnectionOptions, SinkOptions, TopicPartition
from pipeline.records import codecs
from pipeline.records.encode import BatchBuilder, Headers
from protocol.api.add_offsets_to_txn import AddOffsetsToTxnRequest
from protocol.api.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from protocol.api.end_txn import EndTxnRequest
from protocol.api.init_producer_id import InitProducerIdRequest
from protocol.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from protocol.error_codes import ErrorCode

_GROUP: Final = 0
_TRANSACTION: Final = 1
_ATTEMPTS: Final = 10
_PAUSE_S: Final = 0.2
_PACE_S: Final = 0.1
"""How far ahead of its rate a producer may run before it sleeps."""
_SEQUENCE_MASK: Final = 0x7FFFFFFF
_FENCING: Final = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)

_T = TypeVar("_T")


_IDLE: Final[dict[ConnectionOptions, tuple[int, int, dict[TopicPartition, int]]]] = {}
"""Identities whose every batch was acknowledged, with their next sequence numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """The mark committed together with the records: a group's offset with a text."""

    group: str
    topic: str
    offset: int
    metadata: str


class TaskProducer:
    """Adds records for one task. Belongs to one thread, borrows its cluster."""

    def __init__(
        self, cluster: Cluster, options: SinkOptions, *, transactional_id: str | None = None
    ) -> None:
        """Get an identity; with a transactional id, end the transaction the last owner left open.

        Raises:
            BrokerRefused: the broker gives none.
            BrokerUnreachable: no answer after all retries.
        """
        self._cluster = cluster
        self._options = options
        self._codec = codecs.NAMES[options.compression]
        self._transactional_id = transactional_id
        self._builders: dict[TopicPartition, BatchBuilder] = {}
        self._sequences: dict[TopicPartition, int] = {}
        self._in_transaction: set[TopicPartition] = set()
        self._producer_id: int
        self._epoch: int
        self._round = itertools.count()
        self._started_s = time.monotonic()
        self.records_count = 0
        if transactional_id is None and (idle := _IDLE.pop(options.connection, None)) is not None:
            self._producer_id, self._epoch, self._sequences = idle
            return
        answer = self._persist(
            "InitProducerId",
            lambda: self._coordinated(
                InitProducerIdRequest(
                    transactional_id=transactional_id,
                    transaction_timeout_ms=options.transaction_timeout_ms,
                ),
                4,
            ),
        )
        self._producer_id = answer.producer_id
        self._epoch = answer.producer_epoch

    def add(
        self,
        topic: str,
        partition: int | None,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
    ) -> None:
        """Take one record; full batches are sent. Without a partition the key decides."""
        if partition is None:
            partition = self._choose(topic, key)
        tp = (topic, partition)
        builder = self._builders.get(tp)
        if builder is None:
            self._cluster.check_partition(topic, partition)
            builder = self._builders[tp] = BatchBuilder()
        builder.add(timestamp_ms, key, value, headers)
        self.records_count += 1
        if self._options.max_rows_per_second:
            self._keep_pace(self._options.max_rows_per_second)
        if builder.size_bytes >= self._options.batch_bytes:
            self._send({tp: self._builders.pop(tp)})

    def flush(self) -> None:
        """Send the remaining records, and return when all are acknowledged."""
        builders, self._builders = self._builders, {}
        self._send(builders)

    def retire(self) -> None:
        """Flush, and leave the identity to the next task of this process, if it has no name."""
        self.flush()
        if self._transactional_id is None:
            _IDLE[self._options.connection] = (self._producer_id, self._epoch, self._sequences)

    def commit(self, mark: Mark) -> None:
        """Flush, and commit the records and `mark` together.

        Raises:
            Fenced: another producer has taken the name; none of our records is visible.
        """
        self.flush()
        self._persist(
            "AddOffsetsToTxn",
            lambda: self._coordinated(
                AddOffsetsToTxnRequest(
                    transactional_id=self._transactional_id or "",
                    producer_id=self._producer_id,
                    producer_epoch=self._epoch,
                    group_id=mark.group,
                ),
                3,
            ),
        )
        self._persist("TxnOffsetCommit", lambda: self._commit_mark(mark))
        self._end(committed=True)

    def abort(self) -> None:
        """Abort the transaction; if that fails, the next owner of the name aborts it."""
        self._builders.clear()
        if self._in_transaction:
            try:
                self._end(committed=False)
            except (BrokerRefused, BrokerUnreachable, Fenced):
                return

    def _keep_pace(self, rows_per_second: int) -> None:
        """Sleep as long as more was added than the time since the start allows."""
        ahead_s = self.records_count / rows_per_second - (time.monotonic() - self._started_s)
        if ahead_s > _PACE_S:
            self.flush()
            time.sleep(ahead_s)

    # --- sending -----------------------------------------------------------------------------

    def _choose(self, topic: str, key: bytes | None) -> int:
        count = self._cluster.count_partitions(topic)
        if key is None:
            return next(self._round) // 1024 % count
        return partition_for_key(key, count)

    def _send(self, builders: dict[TopicPartition, BatchBuilder]) -> None:
        """Send the batches, each until it is acknowledged; they are built once."""
        if not builders:
            return
        if self._transactional_id is not None:
            self._join_transaction(set(builders) - self._in_transaction)
        built: dict[TopicPartition, bytes] = {}
        for tp, builder in builders.items():
            sequence = self._sequences.get(tp, 0)
            built[tp] = builder.build(
                self._codec,
                producer_id=self._producer_id,
                producer_epoch=self._epoch,
                base_sequence=sequence,
                is_transactional=self._transactional_id is not None,
            )
            self._sequences[tp] = sequence + builder.records_count & _SEQUENCE_MASK
        self._persist("Produce", lambda: self._produce(built))

    def _produce(self, built: dict[TopicPartition, bytes]) -> None:
        """One attempt for the batches in `built`; acknowledged ones are taken out."""
        for (topic, index), batch in list(built.items()):
            request = ProduceRequest(
                transactional_id=self._transactional_id,
                acks=self._options.acks,
                timeout_ms=self._options.connection.request_timeout_ms,
                topic_data=[
                    TopicProduceData(
                        name=topic,
                        partition_data=[PartitionProduceData(index=index, records=batch)],
                    )
                ],
            )
            answer = self._cluster.leader((topic, index)).call(request, 9, 3)
            part = answer.responses[0].partition_responses[0]
            if part.error_code != ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                check(part.error_code, f"{topic}-{index}", part.error_message)
            del built[topic, index]

    def _join_transaction(self, partitions: set[TopicPartition]) -> None:
        if not partitions:
            return
        by_topic: dict[str, list[int]] = {}
        for topic, index in sorted(partitions):
            by_topic.setdefault(topic, []).append(index)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._transactional_id or "",
            v3_and_below_producer_id=self._producer_id,
            v3_and_below_producer_epoch=self._epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=topic, partitions=indexes)
                for topic, indexes in by_topic.items()
            ],
        )

        def ask() -> None:
            answer = self._coordinator().call(request, 3)
            for topic in answer.results_by_topic_v3_and_below:
                for part in topic.results_by_partition:
                    check(part.partition_error_code, f"{topic.name}-{part.partition_index}")

        self._persist("AddPartitionsToTxn", ask)
        self._in_transaction |= partitions

    def _commit_mark(self, mark: Mark) -> None:
        request = TxnOffsetCommitRequest(
            transactional_id=self._transactional_id or "",
            group_id=mark.group,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=mark.topic,
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=0,
                            committed_offset=mark.offset,
                            committed_metadata=mark.metadata,
                        )
                    ],
                )
            ],
        )
        answer = self._cluster.coordinator(mark.group, _GROUP).call(request, 3)
        check(answer.topics[0].partitions[0].error_code, f"group {mark.group}")

    def _end(self, *, committed: bool) -> None:
        self._persist(
            "EndTxn",
            lambda: self._coordinated(
                EndTxnRequest(
                    transactional_id=self._transactional_id or "",
                    producer_id=self._producer_id,
                    producer_epoch=self._epoch,
                    committed=committed,
                ),
                3,
            ),
        )
        self._in_transaction.clear()

    # --- asking ------------------------------------------------------------------------------

    def _coordinator(self) -> Any:
        if self._transactional_id is None:
            return self._cluster.any_connection()
        return self._cluster.coordinator(self._transactional_id, _TRANSACTION)

    def _coordinated(self, request: Any, wanted: int) -> Any:
        answer = self._coordinator().call(request, wanted)
        check(answer.error_code, f"producer {self._transactional_id or ''}".strip())
        return answer

    def _persist(self, what: str, ask: Callable[[], _T]) -> _T:
        """The result of `ask`, called again while the error is transient.

        Raises:
            Fenced: the identity is no longer ours.
        """
        for attempt in range(_ATTEMPTS):
            try:
                return ask()
            except BrokerRefused as error:
                if error.code in _FENCING:
                    raise Fenced(self._explain_fencing(what)) from error
                if not ErrorCode(error.code).retriable or attempt == _ATTEMPTS - 1:
                    raise
                if error.code != ErrorCode.CONCURRENT_TRANSACTIONS:
                    self._cluster.close()
            except BrokerUnreachable:
                if attempt == _ATTEMPTS - 1:
                    raise
                self._cluster.close()
            time.sleep(_PAUSE_S * (attempt + 1))
        raise AssertionError("the loop returns or raises")

    def _explain_fencing(self, what: str) -> str:
        timeout_ms = self._options.transaction_timeout_ms
        if (time.monotonic() - self._started_s) * 1000 >= timeout_ms:
            return (
                f"{what}: the transaction {self._transactional_id} was open for longer than "
                f"{timeout_ms} ms and the broker has ended it: write fewer rows in a batch, or "
                "faster, or set kafka.transaction.timeout.ms (brokers bound it by "
                "transaction.max.timeout.ms)"
            )
        return (
            f"{what}: another task has taken over the name {self._transactional_id}: a second run "
            "with the same transactionalIdPrefix, a retry of this task, or another task with rows "
            "of the same partition (use by_partition)"
        )
