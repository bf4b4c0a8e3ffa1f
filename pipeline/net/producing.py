"""A blocking producer for one task: idempotent always, transactional when it has a name.

Owns the batches under construction, the sequence numbers and the transaction. A batch that is not
acknowledged is sent again with the same sequence numbers, so the broker keeps it once. A failed
task leaves an open transaction, which the next producer of the same name aborts before it begins:
`InitProducerId` fences the previous owner of the name. Without a name the identity of a task that
ended well serves the next one of the same process: brokers remember every identity for a day.

Invariant: after `commit` all added records are acknowledged and committed together with the mark.
After `abort`, or without either, read-committed readers see none of them.

Source: KIP-98; Kafka `TransactionManager`.
"""

import itertools
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Final

from client.blocking import run
from client.core.identity import ProducerIdentity
from client.core.options import ClusterOptions
from client.core.records import PRODUCE_VERSIONS, produce_request
from client.errors import BrokerRefused, BrokerUnreachable
from client.partitioner import partition_for_key
from client.types import OffsetAndMetadata
from client.types import TopicPartition as Named
from pipeline.errors import Fenced
from pipeline.net.cluster import Cluster
from pipeline.options.options import SinkOptions, TopicPartition
from pipeline.records import codecs
from pipeline.records.encode import BatchBuilder, Headers
from protocol.error_codes import ErrorCode

MARK_PREFIX: Final = "tidelog-mark "
"""The prefix of a mark's text; `broker.groups.offsets.lag` knows it too."""

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

_IDLE: Final[dict[ClusterOptions, tuple[int, int, dict[TopicPartition, int]]]] = {}
"""Identities whose every batch was acknowledged, with their next sequence numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """The mark committed together with the records: a group's offset with a text.

    It is no position in a topic. The text begins with `MARK_PREFIX`, so the broker's metrics leave
    it out of the lag.
    """

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
        self._identity = ProducerIdentity(
            cluster.core,
            transactional_id=transactional_id,
            transaction_timeout_ms=options.transaction_timeout_ms,
        )
        self._builders: dict[TopicPartition, BatchBuilder] = {}
        self._sequences: dict[TopicPartition, int] = {}
        self._in_transaction: set[TopicPartition] = set()
        self._round = itertools.count()
        self._started_s = time.monotonic()
        self.records_count = 0
        if transactional_id is None and (idle := _IDLE.pop(options.connection, None)) is not None:
            self._identity.producer_id, self._identity.producer_epoch, self._sequences = idle
            return
        self._run("InitProducerId", self._identity.acquire())

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
            one = self._identity
            _IDLE[self._options.connection] = (one.producer_id, one.producer_epoch, self._sequences)

    def commit(self, mark: Mark) -> None:
        """Flush, and commit the records and `mark` together.

        Raises:
            Fenced: another producer has taken the name; none of our records is visible.
        """
        self.flush()
        self._run("AddOffsetsToTxn", self._identity.add_group(mark.group))
        position = {Named(mark.topic, 0): OffsetAndMetadata(mark.offset, mark.metadata)}
        self._run("TxnOffsetCommit", self._identity.commit_offsets(mark.group, position))
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
        new = set(builders) - self._in_transaction
        if self._transactional_id is not None and new:
            named = [Named(*tp) for tp in new]
            self._run("AddPartitionsToTxn", self._identity.add_partitions(named))
            self._in_transaction |= new
        built: dict[Named, bytes] = {}
        for tp, builder in builders.items():
            sequence = self._sequences.get(tp, 0)
            built[Named(*tp)] = builder.build(
                self._codec,
                producer_id=self._identity.producer_id,
                producer_epoch=self._identity.producer_epoch,
                base_sequence=sequence,
                is_transactional=self._transactional_id is not None,
            )
            self._sequences[tp] = sequence + builder.records_count & _SEQUENCE_MASK
        core = self._cluster.core
        work = core.retrying_at_leaders(list(built), lambda: self._produce(built))
        self._run("Produce", work)

    async def _produce(self, built: dict[Named, bytes]) -> None:
        """One attempt for the batches in `built`; acknowledged ones are taken out."""
        core = self._cluster.core
        for partition, batch in list(built.items()):
            request = produce_request(
                {partition: batch},
                transactional_id=self._transactional_id,
                acks=self._options.acks,
                timeout_ms=core.options.request_timeout_ms,
            )
            connection = await core.connection(await core.leader(partition))
            answer = await connection.call(request, **PRODUCE_VERSIONS)
            part = answer.responses[0].partition_responses[0]
            if part.error_code not in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                raise BrokerRefused(
                    f"producing to {partition}",
                    part.error_code,
                    broker=connection.address,
                    detail=part.error_message,
                )
            del built[partition]

    def _end(self, *, committed: bool) -> None:
        self._run("EndTxn", self._identity.end(committed=committed))
        self._in_transaction.clear()

    def _run(self, what: str, work: Coroutine[Any, Any, None]) -> None:
        """Carry out requests, with the core's retries.

        Raises:
            Fenced: the identity is no longer ours.
        """
        try:
            run(work)
        except BrokerRefused as error:
            if error.code in _FENCING:
                raise Fenced(self._explain_fencing(what)) from error
            raise

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
