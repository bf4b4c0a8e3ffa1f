"""The consumer for threads; see `client.consumer`.

with BlockingConsumer("flights", start="-15m") as consumer:
    for record in consumer: ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from types import TracebackType
from typing import Any, Generic, Self

from client.consumer import Consumer
from client.statistics import ConsumerStatistics
from client.synchronous.loop_thread import LoopThread
from client.types import (
    ConsumerRecord,
    GroupMetadata,
    KeyT,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicPartition,
    ValueT,
)

_Partitions = frozenset[TopicPartition]


class BlockingConsumer(Generic[KeyT, ValueT]):
    """`Consumer` with calls that block. Opened by ``with``; one thread at a time reads.

    A member of a group stays one between polls: its heartbeats are sent in the background, for at
    most `max_poll_interval_ms` without a poll. Listeners are called in a thread of their own, and
    may use this object.
    """

    def __init__(
        self,
        *topics: str,
        key_deserializer: Callable[[bytes], KeyT] | None = None,
        value_deserializer: Callable[[bytes], ValueT] | None = None,
        on_assigned: Callable[[_Partitions], None] | None = None,
        on_revoked: Callable[[_Partitions], None] | None = None,
        on_lost: Callable[[_Partitions], None] | None = None,
        on_statistics: Callable[[ConsumerStatistics], None] | None = None,
        **options: Any,
    ) -> None:
        """Set up without connecting; the arguments are those of `Consumer`.

        Raises:
            InvalidUse: values that do not exist, are out of range or do not fit together.
            TypeError: an argument that `Consumer` does not have.
        """
        self._thread = LoopThread("BlockingConsumer")
        self._consumer = Consumer(
            *topics,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            on_assigned=self._thread.listener("on_assigned", on_assigned),
            on_revoked=self._thread.listener("on_revoked", on_revoked),
            on_lost=self._thread.listener("on_lost", on_lost),
            on_statistics=self._thread.listener("on_statistics", on_statistics),
            **options,
        )

    def __enter__(self) -> Self:
        """Connect and begin to read; see `start`."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Close. Without an error, all records handed out count as processed for auto-commit."""
        self._close(self._consumer.__aexit__(kind, error, None))

    def start(self) -> None:
        """Connect; join the group, or read all partitions; raises as `Consumer.start`."""
        self._thread.start(self._consumer.start)

    def close(self) -> None:
        """Commit what auto-commit may, leave the group, end the thread. May be called again."""
        self._close(self._consumer.close())

    def _close(self, work: Any) -> None:
        try:
            self._thread.check_no_callback()
            if self._thread.is_open:
                self._thread.call(work)
        finally:
            # Of a coroutine that was not needed; one that has run is closed already.
            work.close()
        self._thread.stop()

    # Reading.

    def getmany(
        self, *, timeout_ms: int = 1000, max_records: int = 500
    ) -> dict[TopicPartition, list[ConsumerRecord[KeyT, ValueT]]]:
        """Records by partition, as soon as there are any; see and raises as `Consumer.getmany`."""
        work = self._consumer.getmany(timeout_ms=timeout_ms, max_records=max_records)
        return self._thread.call(work)

    def __iter__(self) -> Iterator[ConsumerRecord[KeyT, ValueT]]:
        """The records, for ever, as they come."""
        return self

    def __next__(self) -> ConsumerRecord[KeyT, ValueT]:
        """The next record of any partition; waits for one. Ctrl-C ends the waiting."""
        return self._thread.call(self._consumer.__anext__())

    def between(
        self, start: int | str | datetime, end: int | str | datetime
    ) -> Iterator[ConsumerRecord[KeyT, ValueT]]:
        """Exactly the records with ``start <= time < end``; see and raises as the `Consumer`'s."""
        return self._window(self._thread.run(self._consumer.between, start, end))

    def _window(self, records: Any) -> Iterator[ConsumerRecord[KeyT, ValueT]]:
        try:
            while True:
                try:
                    record = self._thread.call(anext(records))
                except StopAsyncIteration:
                    return
                yield record
        finally:
            if self._thread.is_open:
                self._thread.call(records.aclose())

    # Partitions and positions.

    def subscribe(self, *topics: str, pattern: str | None = None) -> None:
        """Read these topics, or those that match, from now on; as `Consumer.subscribe`."""
        self._thread.call(self._consumer.subscribe(*topics, pattern=pattern))

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions; as `Consumer.assign`."""
        self._thread.run(self._consumer.assign, partitions)

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are read now."""
        return self._thread.run(self._consumer.assignment)

    def pause(self, *partitions: TopicPartition) -> None:
        """Hand out no records of these (none given: all) until `resume`."""
        self._thread.run(self._consumer.pause, *partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        """Hand out again."""
        self._thread.run(self._consumer.resume, *partitions)

    def position(self, partition: TopicPartition) -> int | None:
        """The next offset to be handed out, None while it is looked up."""
        return self._thread.run(self._consumer.position, partition)

    def lag(self, partition: TopicPartition) -> int | None:
        """Offsets between the position and the end that the latest fetch saw, None before it."""
        return self._thread.run(self._consumer.lag, partition)

    def statistics(self) -> ConsumerStatistics:
        """What was read so far, and where each partition stands."""
        return self._thread.run(self._consumer.statistics)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Hand out from `offset` next; as `Consumer.seek`."""
        self._thread.run(self._consumer.seek, partition, offset)

    def seek_to_time(
        self, when: int | str | datetime, *partitions: TopicPartition
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Go to the first record at or after a time; as `Consumer.seek_to_time`."""
        return self._thread.call(self._consumer.seek_to_time(when, *partitions))

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go to the earliest record (none given: in all partitions)."""
        self._thread.call(self._consumer.seek_to_beginning(*partitions))

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Go to the end, after the last record (none given: in all partitions)."""
        self._thread.call(self._consumer.seek_to_end(*partitions))

    # Questions and commits.

    def offsets_for_times(
        self, times_ms: Mapping[TopicPartition, int | str | datetime]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after each time, None where there is none."""
        return self._thread.call(self._consumer.offsets_for_times(times_ms))

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The earliest offset of each partition."""
        return self._thread.call(self._consumer.beginning_offsets(partitions))

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """One past the last offset that this consumer may see, for each partition."""
        return self._thread.call(self._consumer.end_offsets(partitions))

    def partitions(self, topic: str) -> list[TopicPartition]:
        """All partitions of a topic; raises BrokerRefused if it does not exist."""
        return self._thread.call(self._consumer.partitions(topic))

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None
    ) -> None:
        """Store positions for the group; as `Consumer.commit`."""
        self._thread.call(self._consumer.commit(offsets))

    def committed(self, *partitions: TopicPartition) -> dict[TopicPartition, OffsetAndMetadata]:
        """The group's stored positions; as `Consumer.committed`."""
        return self._thread.call(self._consumer.committed(*partitions))

    def group_metadata(self) -> GroupMetadata:
        """In whose name this member commits now; as `Consumer.group_metadata`."""
        return self._thread.run(self._consumer.group_metadata)
