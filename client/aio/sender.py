"""From waiting batches to answered requests: the producer's background tasks.

Decides when a batch is sent (full, lingered long enough, or flushed), where (to the partition's
leader) and how often (until the delivery timeout), and handles its answer. `client.aio.batches`
keeps the order of batches and their numbers, `client.core.identity` the identity.

A separate task fails batches that were not settled in time, so that no silent broker, lost leader
or slow connection can keep a record longer than `delivery_timeout_ms`. A defect in a task fails
every record and every later `queue`.

What an answer means:

| answer                     | consequence                                                        |
|----------------------------|--------------------------------------------------------------------|
| no error                   | settled, with offset and stored time                               |
| duplicate                  | settled: an earlier attempt did arrive; its offset is not known    |
| retriable, or request lost | sent again after a pause, within the delivery timeout              |
| out of order               | never stored: waits for the batch before it, then goes again; with |
|                            | no batch before it the identity is stale                           |
| anything else              | failed, and numbering resumes where the batch began                |
| time is up, fate unknown   | failed, and the identity is stale                                  |

Source: Kafka ``Sender``, ``TransactionManager``.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from client.aio.background import end_tasks, start_watched
from client.aio.batches import Batch, PartitionQueue
from client.checks import check_numbers
from client.core.cluster import Cluster
from client.core.connection import Connection
from client.core.identity import ProducerIdentity
from client.core.records import PRODUCE_VERSIONS, produce_request
from client.core.retry import is_retriable
from client.errors import (
    BrokerRefused,
    BrokerUnreachable,
    ClientBroken,
    ClientError,
    InvalidUse,
)
from client.times import format_time
from client.types import TopicPartition
from protocol.api_keys import ApiKey
from protocol.error_codes import ErrorCode
from protocol.records.builder import build_batch
from protocol.records.layout import NO_SEQUENCE, Codec

_SEQUENCE_MASK = 0x7FFFFFFF
_SIZE_ERRORS = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
_ORDER_ERRORS = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderOptions:
    """How batches are sent; all times in milliseconds, sizes in bytes."""

    acks: int = -1
    codec: Codec = Codec.NONE
    linger_ms: int = 5
    batch_bytes: int = 64 * 1024
    request_timeout_ms: int = 30_000
    delivery_timeout_ms: int = 120_000
    retry_backoff_ms: int = 100
    max_in_flight: int = 5

    def __post_init__(self) -> None:
        """Refuse invalid values, by the names that users give; raises InvalidUse."""
        check_numbers(0, linger_ms=self.linger_ms)
        check_numbers(
            1,
            batch_bytes=self.batch_bytes,
            request_timeout_ms=self.request_timeout_ms,
            delivery_timeout_ms=self.delivery_timeout_ms,
        )
        if self.linger_ms >= self.delivery_timeout_ms:
            raise InvalidUse(
                f"linger_ms={self.linger_ms} leaves no time to send within delivery_timeout_ms="
                f"{self.delivery_timeout_ms}: give less than that"
            )


class Sender:
    """Started by `start`, ended by `close`, which does not wait: flush first."""

    def __init__(
        self,
        cluster: Cluster,
        options: SenderOptions,
        identity: ProducerIdentity | None,
        on_settled: Callable[[Batch], None],
    ) -> None:
        """`on_settled` gets every batch once its outcome is known, before waiters run."""
        self.queues: dict[TopicPartition, PartitionQueue] = {}
        self.flushing = 0
        self._cluster = cluster
        self._options = options
        self._identity = identity
        self._on_settled = on_settled
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._requests: set[asyncio.Task[None]] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._defect: ClientBroken | None = None
        # Without sequence numbers a second request could overtake a repeated first one.
        self._max_in_flight = options.max_in_flight if identity is not None else 1

    def start(self) -> None:
        """Begin sending."""
        self._tasks = [
            start_watched(self._run(), "producer.send", self.break_off),
            start_watched(self._give_up_in_time(), "producer.give_up", self.break_off),
        ]

    async def close(self) -> None:
        """Stop; batches still unsettled then fail as cancelled by this client."""
        await end_tasks(*self._requests, *self._tasks)
        self._fail_everything(
            BrokerUnreachable("the producer was closed before the record was acknowledged")
        )

    def break_off(self, defect: ClientBroken) -> None:
        """A task has failed with a defect: sending ends, and every caller gets the reason."""
        self._defect = self._defect or defect
        for task in (*self._requests, *self._tasks):
            task.cancel()
        self._fail_everything(self._defect)

    def _fail_everything(self, error: ClientError) -> None:
        for queue in self.queues.values():
            batches = [*queue.in_flight, *queue.waiting]
            queue.in_flight.clear()
            queue.waiting.clear()
            for batch in batches:
                self._fail(batch, error)

    def check_works(self) -> None:
        """Raise the defect that ended the sender, if there is one.

        Raises:
            ClientBroken: a defect of the client.
        """
        if self._defect is not None:
            raise self._defect

    def queue(self, partition: TopicPartition) -> PartitionQueue:
        """The queue of a partition, made at its first record.

        Raises:
            ClientBroken: as `check_works`.
        """
        if self._defect is not None:
            raise self._defect
        queue = self.queues.get(partition)
        if queue is None:
            queue = self.queues[partition] = PartitionQueue(partition)
        return queue

    def wake(self) -> None:
        """Check the queues now: a batch is full, or must be flushed."""
        self._wake.set()

    def unsettled(self) -> list[Batch]:
        """Every batch whose outcome is not known yet."""
        return [b for q in self.queues.values() for b in (*q.in_flight, *q.waiting)]

    def drop_waiting(self, error: ClientError) -> None:
        """Fail every batch that is not in flight, as aborting a transaction does."""
        for queue in self.queues.values():
            while queue.waiting:
                batch = queue.waiting.popleft()
                if batch.sequence != NO_SEQUENCE and self._identity is not None:
                    self._identity.is_stale = True
                self._fail(batch, error)

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            delay_s = await self._send_what_is_due()
            try:
                async with asyncio.timeout(delay_s):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _send_what_is_due(self) -> float | None:
        """Start the requests that are due; seconds until the next may be, None for no idea."""
        if self._identity is not None and self._identity.is_stale:
            await self._renew_identity()
        now = self._loop.time()
        delays: list[float] = []
        due: dict[int, list[PartitionQueue]] = {}
        for queue in list(self.queues.values()):
            delay_s = self._delay_of(queue, now)
            if delay_s is None:
                continue
            if delay_s > 0:
                delays.append(delay_s)
            elif (node_id := await self._leader_of(queue)) is not None:
                due.setdefault(node_id, []).append(queue)
            else:
                delays.append(self._options.retry_backoff_ms / 1000)
        for node_id, queues in due.items():
            # Checked again: while the leader was looked up, batches may have been given up.
            batches = [queue.take() for queue in queues if self._delay_of(queue, now) == 0]
            if not batches:
                continue
            for batch in batches:
                # Here and not in the task: numbers are given in the order of the records.
                self._encode(batch)
            task = start_watched(
                self._request(node_id, batches), "producer.request", self.break_off
            )
            self._requests.add(task)
            task.add_done_callback(self._requests.discard)
            # The rest of a long queue may be due as well.
            delays.extend(0.0 for queue in queues if self._delay_of(queue, now) == 0)
        return min(delays, default=None)

    def _delay_of(self, queue: PartitionQueue, now: float) -> float | None:
        """Seconds until the oldest waiting batch is due (0: now), None if an event must come."""
        # A broker takes any number from a producer it has not seen: until it has seen this one,
        # a second batch could get ahead of a lost first one.
        limit = self._max_in_flight if queue.is_established else 1
        if not queue.waiting or queue.is_recovering or len(queue.in_flight) >= limit:
            return None
        first = queue.waiting[0]
        if self._identity is not None and self._identity.is_stale and not first.is_in_doubt:
            return None
        if now < queue.not_before:
            return queue.not_before - now
        if self.flushing or queue.has_full_batch(self._options.batch_bytes):
            return 0
        return max(0, first.created_at + self._options.linger_ms / 1000 - now)

    async def _leader_of(self, queue: PartitionQueue) -> int | None:
        try:
            return await self._cluster.leader(queue.partition)
        except ClientError as error:
            queue.last_error = error
            if not is_retriable(error):
                while queue.waiting:
                    self._fail(queue.waiting.popleft(), error)
            return None

    async def _give_up_in_time(self) -> None:
        """Give up each batch when its time is up, even while the other tasks wait."""
        limit_s = self._options.delivery_timeout_ms / 1000
        while True:
            now = self._loop.time()
            for queue in self.queues.values():
                self._expire(queue, now - limit_s)
            # Batches queued from now on have later deadlines than all of these.
            oldest = min((batch.created_at for batch in self.unsettled()), default=now)
            await asyncio.sleep(max(0.0, oldest + limit_s - now))

    def _expire(self, queue: PartitionQueue, created_until: float) -> None:
        """Fail the batches of a queue that were created at or before a loop time."""
        for batch in [b for b in queue.in_flight if b.created_at <= created_until]:
            # Its request may have arrived, and its answer is ignored from here on.
            queue.settle(batch)
            batch.is_in_doubt = True
            self._give_up(queue, batch)
        while queue.waiting and queue.waiting[0].created_at <= created_until:
            self._give_up(queue, queue.waiting.popleft())

    def _give_up(self, queue: PartitionQueue, batch: Batch) -> None:
        if batch.is_in_doubt and self._identity is not None:
            self._identity.is_stale = True
        elif batch.sequence != NO_SEQUENCE:
            queue.renumber_from(batch.sequence)
        fate = "it may or may not be stored" if batch.is_in_doubt else "it was not stored"
        last = "" if queue.last_error is None else f". The last error was: {queue.last_error}"
        self._fail(
            batch,
            BrokerUnreachable(
                f"a record for {queue.partition} was not acknowledged within "
                f"{self._options.delivery_timeout_ms} ms; {fate}{last}"
            ),
        )
        # The batches after it wait for a new identity, or for nothing any more.
        self.wake()

    async def _renew_identity(self) -> None:
        """Get a new id once no batch in flight has the old one; in a transaction, at its end."""
        assert self._identity is not None
        carries_old = any(
            queue.in_flight or any(batch.is_in_doubt for batch in queue.waiting)
            for queue in self.queues.values()
        )
        if carries_old or self._identity.transactional_id is not None:
            return
        try:
            await self._identity.acquire()
        except ClientError as error:
            self.drop_waiting(error)
            return
        self.forget_numbers()

    def forget_numbers(self) -> None:
        """Number every partition from 0 again, as a new identity wants it."""
        for queue in self.queues.values():
            queue.renumber_from(0)

    # One request.

    async def _request(self, node_id: int, batches: list[Batch]) -> None:
        try:
            connection = await self._cluster.connection(node_id)
            await connection.drained()
            for batch in batches:
                if self._is_under_way(batch) and self.queues[batch.partition].is_recovering:
                    # One before it came back meanwhile; it must not get ahead of that one.
                    self._send_again(self.queues[batch.partition], batch)
            rest = [batch for batch in batches if self._is_under_way(batch)]
            if rest:
                await self._exchange(connection, rest)
        except ClientError as error:
            for batch in batches:
                if self._is_under_way(batch):
                    batch.is_in_doubt = batch.is_in_doubt or isinstance(error, BrokerUnreachable)
                    self._conclude(batch, error)
        finally:
            self.wake()

    def _is_under_way(self, batch: Batch) -> bool:
        return batch in self.queues[batch.partition].in_flight

    async def _exchange(self, connection: Connection, batches: list[Batch]) -> None:
        timeout_ms = self._options.request_timeout_ms
        request = produce_request(
            {batch.partition: batch.encoded for batch in batches},
            transactional_id=self._identity.transactional_id if self._identity else None,
            acks=self._options.acks,
            timeout_ms=timeout_ms,
        )
        version = connection.version_of(ApiKey.PRODUCE, **PRODUCE_VERSIONS)
        if self._options.acks == 0:
            connection.send_unanswered(request, ApiKey.PRODUCE, version)
            for batch in batches:
                self._settle(batch, -1, -1)
            return
        response = await connection.send(request, ApiKey.PRODUCE, version, timeout_ms=timeout_ms)
        answers = {
            TopicPartition(topic.name, answer.index): answer
            for topic in response.responses
            for answer in topic.partition_responses
        }
        for batch in batches:
            if not self._is_under_way(batch):
                continue
            answer = answers.get(batch.partition)
            if answer is None:
                error = BrokerUnreachable(f"{connection.address} left {batch.partition} unanswered")
                self._conclude(batch, error)
            else:
                self._take_answer(batch, answer, connection.address)

    def _encode(self, batch: Batch) -> None:
        """Number and encode a batch; a repeated batch is sent as the same bytes."""
        if batch.encoded is not None:
            return
        producer_id = producer_epoch = -1
        identity = self._identity
        if identity is not None:
            queue = self.queues[batch.partition]
            producer_id, producer_epoch = identity.producer_id, identity.producer_epoch
            batch.sequence = queue.next_sequence
            queue.next_sequence = (queue.next_sequence + len(batch.records)) & _SEQUENCE_MASK
        batch.encoded = build_batch(
            batch.records,
            codec=self._options.codec,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=batch.sequence,
            is_transactional=identity is not None and identity.transactional_id is not None,
        )

    # What an answer means.

    def _take_answer(self, batch: Batch, answer: Any, address: str) -> None:
        if answer.error_code == ErrorCode.NONE:
            self._settle(batch, answer.base_offset, answer.log_append_time_ms)
            return
        if answer.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            self._settle(batch, -1, -1)
            return
        what = f"producing to {batch.partition}"
        error = BrokerRefused(
            what,
            answer.error_code,
            broker=address,
            detail=_why_refused(batch, answer),
            denied=self._cluster.denied("WRITE", batch.partition.topic),
        )
        # The broker judged it: independent of earlier attempts, it is not stored.
        batch.is_in_doubt = False
        record_errors: dict[int, ClientError] = {
            bad.batch_index: BrokerRefused(
                what,
                answer.error_code,
                broker=address,
                detail=bad.batch_index_error_message or answer.error_message,
            )
            for bad in answer.record_errors
        }
        self._conclude(batch, error, record_errors)

    def _conclude(
        self, batch: Batch, error: ClientError, record_errors: dict[int, ClientError] | None = None
    ) -> None:
        """Send the batch again or give it up."""
        queue = self.queues[batch.partition]
        queue.last_error = error
        identity = self._identity
        if (
            isinstance(error, BrokerRefused)
            and error.code in _ORDER_ERRORS
            and identity is not None
        ):
            if not batch.must_renumber and queue.is_oldest_unsettled(batch):
                identity.is_stale = True
                batch.must_renumber = True
            self._send_again(queue, batch)
        elif is_retriable(error) or batch.must_renumber:
            self._cluster.forget_topic(batch.partition.topic)
            self._send_again(queue, batch)
        else:
            queue.settle(batch)
            if batch.sequence != NO_SEQUENCE:
                queue.renumber_from(batch.sequence)
            self._fail(batch, error, record_errors)

    def _send_again(self, queue: PartitionQueue, batch: Batch) -> None:
        queue.send_again(batch)
        queue.not_before = self._loop.time() + self._options.retry_backoff_ms / 1000

    def _settle(self, batch: Batch, base_offset: int, log_append_time_ms: int) -> None:
        queue = self.queues[batch.partition]
        queue.settle(batch)
        queue.is_established, queue.last_error = True, None
        batch.succeed(base_offset, log_append_time_ms)
        self._on_settled(batch)

    def _fail(
        self, batch: Batch, error: ClientError, record_errors: dict[int, ClientError] | None = None
    ) -> None:
        batch.fail(error, record_errors)
        self._on_settled(batch)


def _why_refused(batch: Batch, answer: Any) -> str | None:
    """The broker's message, with the number of records, their times and sizes added."""
    said: str | None = answer.error_message
    count = len(batch.records)
    if answer.record_errors:
        first = answer.record_errors[0]
        said = first.batch_index_error_message or said or "no reason is given"
        time = ""
        if 0 <= first.batch_index < count:
            time = f", which has the time {format_time(batch.records[first.batch_index].timestamp)}"
        refused = len(answer.record_errors)
        return f"{refused} of {count} records in the batch are refused, the first{time}: {said}"
    if answer.error_code in _SIZE_ERRORS and batch.encoded is not None:
        largest = max(len(record.value or b"") + len(record.key or b"") for record in batch.records)
        sizes = f"the batch has {len(batch.encoded)} bytes, its largest record about {largest}"
        return f"{said}; {sizes}" if said else sizes
    return said
