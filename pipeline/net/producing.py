"""A blocking producer for one task: idempotent always, transactional when it has a name.

Owns the batches under construction, those under way, the sequence numbers and the transaction.
Some batches are under way at a time. If one of them is not acknowledged, it and those after it are
sent again in their order and with the same sequence numbers, so the broker keeps each once. A
failed task leaves an open transaction, which the next producer of the same name aborts before it
begins: `InitProducerId` fences the previous owner of the name. Without a name the identity of a
task that ended well serves the next one of the same process: brokers remember every identity for a
day.

Invariant: after `commit` all added records are acknowledged and committed together with the mark.
After `abort`, or without either, read-committed readers see none of them.

Source: KIP-98; Kafka `TransactionManager`.
"""

import functools
import itertools
import time
from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from client.blocking import Answer, run
from client.core.identity import ProducerIdentity
from client.core.options import ClusterOptions
from client.core.records import PRODUCE_VERSIONS, produce_request
from client.errors import BrokerRefused, BrokerUnreachable
from client.partitioner import partition_for_key
from client.types import GroupMetadata, OffsetAndMetadata
from client.types import TopicPartition as Named
from pipeline.errors import BadOptions, Fenced
from pipeline.net.cluster import Cluster
from pipeline.options.options import SinkOptions, TopicPartition
from pipeline.records import codecs
from pipeline.records.encode import (
    BatchBuilder,
    Headers,
    Rows,
    groups,
    numbers_of,
    partitions_of,
)
from protocol.api_keys import ApiKey
from protocol.error_codes import ErrorCode

MARK_PREFIX: Final = "tidelog-mark "
"""The prefix of a mark's text; `broker.groups.offsets.lag` knows it too."""

_IN_FLIGHT_MAX: Final = 5
"""As many as brokers remember of a producer in a partition, to recognise what is sent again."""
_DIGESTS: Final = 1 << 64
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


_Sent = tuple[Named, bytes, Answer | None]
"""A batch under way to a partition; without an answer if it could not be sent."""


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
        self._under_way: deque[_Sent] = deque()
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
        builder = self._builder(tp)
        builder.add(timestamp_ms, key, value, headers)
        self.records_count += 1
        if self._options.max_rows_per_second:
            self._keep_pace(self._options.max_rows_per_second)
        if builder.size_bytes >= self._options.batch_bytes:
            self._send({tp: self._builders.pop(tp)})

    def add_rows(
        self, topic: str, partition: int, rows: Rows, numbers: pa.Array, *, digests: bool = False
    ) -> int:
        """Take the rows with these numbers (i32); full batches are sent.

        Returns the sum of the rows' digests modulo 2^64, 0 unless `digests`.
        """
        tp, at, digest = (topic, partition), 0, 0
        chosen = numbers_of(numbers)
        while at < len(chosen):
            builder = self._builder(tp)
            taken, part = builder.add_rows(
                rows, chosen, at, self._options.batch_bytes, digests=digests
            )
            at += taken
            digest += part
            if builder.size_bytes >= self._options.batch_bytes:
                self._send({tp: self._builders.pop(tp)})
        self.records_count += len(chosen)
        return digest % _DIGESTS

    def add_batch(self, topic: str, batch: pa.RecordBatch) -> None:
        """Take all rows of a batch; where the partition is null the key decides.

        `topic` replaces every row's own unless it is empty.

        Raises:
            BadOptions: a topic is null, or as `Rows`.
        """
        if not topic:
            for name, numbers in groups(batch.column("topic")):
                if name is None:
                    raise BadOptions("column topic is null: name a topic in every row")
                self.add_batch(name, batch.take(numbers))
            return
        rate = self._options.max_rows_per_second
        step = max(int(rate * _PACE_S) if rate else batch.num_rows, 1)
        for start in range(0, batch.num_rows, step):
            part = batch.slice(start, step)
            rows = Rows(part, time.time_ns() // 1_000_000)
            for partition, numbers in groups(self._partitions(topic, part)):
                self.add_rows(topic, partition, rows, numbers)
            if rate:
                self._keep_pace(rate)

    def flush(self) -> None:
        """Send the remaining records, and return when all are acknowledged."""
        builders, self._builders = self._builders, {}
        self._send(builders)
        while self._under_way:
            self._settle()

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
        self._run(
            "TxnOffsetCommit",
            self._identity.commit_offsets(GroupMetadata(group_id=mark.group), position),
        )
        self._end(committed=True)

    def abort(self) -> None:
        """Abort the transaction; if that fails, the next owner of the name aborts it."""
        self._builders.clear()
        while self._under_way:
            # A batch that arrived after the end would begin a transaction.
            self._is_acknowledged(self._under_way.popleft())
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

    def _partitions(self, topic: str, batch: pa.RecordBatch) -> pa.Array:
        """The partition of each row, as `_choose` gives it where the row has none."""
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        given = columns.get("partition", pa.nulls(batch.num_rows, pa.int32()))
        if not given.null_count:
            return given
        keys = columns.get("key", pa.nulls(batch.num_rows, pa.binary())).cast(pa.binary())
        count = self._cluster.count_partitions(topic)
        chosen = partitions_of(keys, count)
        if chosen.null_count:
            turns = [self._choose(topic, None) for _ in range(chosen.null_count)]
            chosen = pc.replace_with_mask(chosen, chosen.is_null(), pa.array(turns, pa.int32()))
        return pc.coalesce(given, chosen)

    def _choose(self, topic: str, key: bytes | None) -> int:
        count = self._cluster.count_partitions(topic)
        if key is None:
            return next(self._round) // 1024 % count
        return partition_for_key(key, count)

    def _send(self, builders: dict[TopicPartition, BatchBuilder]) -> None:
        """Send the batches, some at a time; they are built once."""
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
        for partition, batch in built.items():
            while len(self._under_way) >= _IN_FLIGHT_MAX or any(map(_is_lost, self._under_way)):
                self._settle()
            self._under_way.append((partition, batch, self._post(partition, batch)))

    def _post(self, partition: Named, batch: bytes) -> Answer | None:
        """Send a batch without waiting for its answer; None if that was not possible."""
        try:
            return run(self._start(partition, batch))
        except (BrokerRefused, BrokerUnreachable):
            return None

    async def _start(self, partition: Named, batch: bytes) -> Answer:
        core = self._cluster.core
        request = produce_request(
            {partition: batch},
            transactional_id=self._transactional_id,
            acks=self._options.acks,
            timeout_ms=core.options.request_timeout_ms,
        )
        connection = await core.connection(await core.leader(partition))
        version = connection.version_of(ApiKey.PRODUCE, **PRODUCE_VERSIONS)
        answer = connection.send(request, ApiKey.PRODUCE, version)
        assert isinstance(answer, Answer), "executors have blocking connections"
        return answer

    def _settle(self) -> None:
        """Read the oldest answer; after a failure send again whatever is not acknowledged."""
        if self._is_acknowledged(self._under_way[0]):
            self._under_way.popleft()
            return
        # A broker refuses the batches after one that failed. All answers first, then in order.
        failed = [self._under_way.popleft()]
        failed += [one for one in self._under_way if not self._is_acknowledged(one)]
        self._under_way.clear()
        for partition, batch, _ in failed:
            attempt = functools.partial(self._produce, partition, batch)
            work = self._cluster.core.retrying_at_leaders([partition], attempt)
            self._run("Produce", work)

    @staticmethod
    def _is_acknowledged(sent: _Sent) -> bool:
        partition, _, answer = sent
        if answer is None:
            return False
        try:
            run(_check(partition, answer))
        except (BrokerRefused, BrokerUnreachable):
            return False
        return True

    async def _produce(self, partition: Named, batch: bytes) -> None:
        """One attempt to have a batch acknowledged."""
        await _check(partition, await self._start(partition, batch))

    def _builder(self, tp: TopicPartition) -> BatchBuilder:
        """The batch under construction of a partition, which exists."""
        builder = self._builders.get(tp)
        if builder is None:
            self._cluster.check_partition(*tp)
            builder = self._builders[tp] = BatchBuilder()
        return builder

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


def _is_lost(sent: _Sent) -> bool:
    """Whether the connection failed: on another one a later batch could overtake this one."""
    answer = sent[2]
    return answer is None or isinstance(answer.outcome, BrokerUnreachable)


async def _check(partition: Named, answer: Answer) -> None:
    """Read the answer to a Produce request; raises BrokerRefused and BrokerUnreachable."""
    part = (await answer).responses[0].partition_responses[0]
    if part.error_code not in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
        raise BrokerRefused(f"producing to {partition}", part.error_code, detail=part.error_message)
