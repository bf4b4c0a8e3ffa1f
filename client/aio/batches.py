"""Records on their way: grouped by partition, kept in order until each batch is settled.

Owns the queues of a producer. It knows sizes, order and sequence numbers, and nothing of
brokers or time limits; `client.aio.sender` moves batches from here to the wire and back.

Invariant per partition: batches are settled or sent again in the order in which their records
were given. With sequence numbers several may be under way, because the broker refuses what
comes out of order; without them only one is.

Source: Kafka ``RecordAccumulator``, ``ProducerBatch``; KIP-98 and KIP-360 for sequences.
"""

import asyncio
from collections import deque
from collections.abc import Generator
from dataclasses import dataclass, field

from client.errors import ClientError
from client.types import RecordMetadata, TopicPartition
from protocol.records.layout import NO_OFFSET, NO_SEQUENCE, NO_TIMESTAMP, TimestampType
from protocol.records.record import Record

RECORD_OVERHEAD_BYTES = 24
"""Bytes counted for a record besides key, value and headers; its varints need fewer."""

BATCH_OVERHEAD_BYTES = 61


@dataclass(slots=True, eq=False, repr=False)
class Batch:
    """Records of one partition that travel together. Settled exactly once.

    `sequence` is the first record's number once assigned. `is_in_doubt` says that a request
    with this batch was lost, so that the broker may or may not have it. `created_at` is loop time
    in seconds.
    """

    partition: TopicPartition
    order: int
    created_at: float
    must_renumber: bool = False
    records: list[Record] = field(default_factory=list)
    size_bytes: int = BATCH_OVERHEAD_BYTES
    sequence: int = NO_SEQUENCE
    is_in_doubt: bool = False
    is_observed: bool = False
    encoded: bytes | None = None
    base_offset: int = NO_OFFSET
    log_append_time_ms: int = NO_TIMESTAMP
    error: ClientError | None = None
    record_errors: dict[int, ClientError] = field(default_factory=dict)
    _done: "asyncio.Future[None]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    @property
    def is_settled(self) -> bool:
        """Whether the outcome is known."""
        return self._done.done()

    def succeed(self, base_offset: int, log_append_time_ms: int) -> None:
        """The broker has stored it, from `base_offset` on (-1: unknown)."""
        assert not self.is_settled
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self._done.set_result(None)

    def fail(self, error: ClientError, record_errors: dict[int, ClientError] | None = None) -> None:
        """It will not be sent again; `record_errors` are messages of single records, by index."""
        assert not self.is_settled
        self.error = error
        self.record_errors = record_errors or {}
        self._done.set_result(None)

    async def settled(self) -> None:
        """Return once the outcome is known; giving up waiting does not touch the batch."""
        if not self._done.done():
            await asyncio.shield(self._done)

    def forget_sequence(self) -> None:
        """Its numbers were never used: it will be numbered and encoded again."""
        self.sequence = NO_SEQUENCE
        self.encoded = None
        self.must_renumber = False
        self.is_in_doubt = False

    def metadata(self, index: int) -> RecordMetadata:
        """The stored position of the record at `index`.

        Raises:
            ClientError: it was not stored, or its fate is unknown.
        """
        assert self.is_settled
        if self.error is not None:
            raise self.record_errors.get(index, self.error)
        is_stamped = self.log_append_time_ms != NO_TIMESTAMP
        return RecordMetadata(
            self.partition.topic,
            self.partition.partition,
            NO_OFFSET if self.base_offset == NO_OFFSET else self.base_offset + index,
            self.log_append_time_ms if is_stamped else self.records[index].timestamp,
            TimestampType.LOG_APPEND_TIME if is_stamped else TimestampType.CREATE_TIME,
        )


@dataclass(slots=True, eq=False, repr=False)
class Delivery:
    """The fate of one record: await it for its `RecordMetadata`, or for the error.

    Need not be awaited: `Producer.flush` reports failures that no caller awaited.
    """

    _batch: Batch
    _index: int

    @property
    def is_done(self) -> bool:
        """Whether awaiting returns at once."""
        return self._batch.is_settled

    def outcome(self) -> RecordMetadata:
        """What awaiting returns or raises, once `is_done`."""
        self._batch.is_observed = True
        return self._batch.metadata(self._index)

    def __await__(self) -> Generator[object, None, RecordMetadata]:
        """Wait until the broker has stored it.

        Raises:
            ClientError: it was not stored, or its fate is unknown.
        """
        self._batch.is_observed = True
        yield from self._batch.settled().__await__()
        return self._batch.metadata(self._index)


@dataclass(slots=True, eq=False)
class PartitionQueue:
    """The batches of one partition, oldest first: those under way, then those that wait.

    `last_error` is why the newest attempt to send failed, None after one that succeeded.
    """

    partition: TopicPartition
    waiting: deque[Batch] = field(default_factory=deque)
    in_flight: list[Batch] = field(default_factory=list)
    batches_count: int = 0
    next_sequence: int = 0
    not_before: float = 0.0
    is_recovering: bool = False
    is_established: bool = False
    last_error: ClientError | None = None

    def append(self, record: Record, size_bytes: int, *, limit_bytes: int, now: float) -> Delivery:
        """Add a record to the last batch, or to a new one if it is full, sent or numbered."""
        last = self.waiting[-1] if self.waiting else None
        if last is None or last.encoded is not None or last.size_bytes + size_bytes > limit_bytes:
            last = Batch(self.partition, self.batches_count, now)
            self.batches_count += 1
            self.waiting.append(last)
        last.records.append(record)
        last.size_bytes += size_bytes
        return Delivery(last, len(last.records) - 1)

    def has_full_batch(self, limit_bytes: int) -> bool:
        """Whether the oldest waiting batch takes no more records."""
        if not self.waiting:
            return False
        first = self.waiting[0]
        return len(self.waiting) > 1 or first.encoded is not None or first.size_bytes >= limit_bytes

    def take(self) -> Batch:
        """The oldest waiting batch, which is under way from now on."""
        batch = self.waiting.popleft()
        assert not batch.is_settled, "a batch with an outcome is not sent"
        self.in_flight.append(batch)
        return batch

    def settle(self, batch: Batch) -> None:
        """The batch is done with, for better or worse."""
        self.in_flight.remove(batch)
        self._end_recovery()

    def send_again(self, batch: Batch) -> None:
        """The batch waits again, before everything given later than its records.

        No other batch of this partition is sent until all in flight came back.
        """
        self.in_flight.remove(batch)
        if batch.must_renumber:
            batch.forget_sequence()
        assert not batch.is_settled, "a batch with an outcome is not sent again"
        position = sum(1 for other in self.waiting if other.order < batch.order)
        self.waiting.insert(position, batch)
        self.is_recovering = True
        self._end_recovery()

    def is_oldest_unsettled(self, batch: Batch) -> bool:
        """Whether every batch given before this one is settled."""
        numbered = [other for other in self.waiting if other.sequence != NO_SEQUENCE]
        return all(other.order >= batch.order for other in (*self.in_flight, *numbered))

    def renumber_from(self, sequence: int) -> None:
        """Number from `sequence` again: no batch numbered at or after it can have been stored.

        The broker refuses batches still in flight with such numbers, and they are sent again.
        """
        assert sequence >= 0, sequence
        self.next_sequence = sequence
        self.is_established = self.is_established and sequence > 0
        for batch in self.waiting:
            if batch.sequence >= sequence:
                batch.forget_sequence()
        for batch in self.in_flight:
            batch.must_renumber = True
        self.is_recovering = bool(self.in_flight)

    def _end_recovery(self) -> None:
        if not self.in_flight:
            self.is_recovering = False
