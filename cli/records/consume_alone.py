"""``tidelog consume`` without a group: partitions from a position on; see `cli.records.consume`."""

import sys

from cli.failures import CommandFailed
from cli.options import now_ms
from cli.output import Progress
from cli.records.reading import POLL_MS, Reading
from client.consumer import Consumer
from client.errors import NotThere
from client.types import ConsumerRecord, TopicPartition
from protocol.records.layout import TimestampType


async def read_alone(
    consumer: Consumer, topic: str, numbers: tuple[int, ...], reading: Reading
) -> None:
    """Show the requested records of all partitions, or of those with the given numbers.

    Raises:
        NotThere: the topic has no such partition.
        BrokerRefused: the topic does not exist, or an offset is not in the log.
    """
    async with consumer:
        everything = await consumer.partitions(topic)
        partitions = [TopicPartition(topic, n) for n in numbers] if numbers else everything
        missing = set(partitions) - set(everything)
        if missing:
            raise NotThere.partition(topic, min(missing).partition, len(everything))
        if reading.start.offset is not None:
            await _check_offset(consumer, partitions, reading.start.offset)
        consumer.assign(partitions)
        if reading.start.offset is not None:
            for partition in partitions:
                consumer.seek(partition, reading.start.offset)
        elif reading.start.time_ms is not None:
            await consumer.seek_to_time(reading.start.time_ms)
        elif reading.start.word == "earliest":
            await consumer.seek_to_beginning()
        else:
            await consumer.seek_to_end()
        await _Reader(consumer, reading, await _ends(consumer, partitions, reading)).run()


async def _check_offset(consumer: Consumer, partitions: list[TopicPartition], offset: int) -> None:
    """Refuse an offset that a partition lacks; its end, where the next record comes, counts.

    Raises:
        CommandFailed: names the partition and its range.
    """
    first = await consumer.beginning_offsets(partitions)
    ends = await consumer.end_offsets(partitions)
    for partition in partitions:
        if not first[partition] <= offset <= ends[partition]:
            raise CommandFailed(
                f"{partition} has no offset {offset}: it has {first[partition]} to "
                f"{ends[partition]}, where the next record comes; choose one of these, or earliest "
                "or latest, and with --partition one partition"
            )


async def _ends(
    consumer: Consumer, partitions: list[TopicPartition], reading: Reading
) -> dict[TopicPartition, int] | None:
    """Where to stop, by partition; None to follow."""
    is_past = reading.until_ms is not None and reading.until_ms <= now_ms()
    if not reading.exit_at_end and not is_past:
        return None
    return await consumer.end_offsets(partitions)


class _Reader:
    """One run over the assigned partitions."""

    def __init__(
        self, consumer: Consumer, reading: Reading, ends: dict[TopicPartition, int] | None
    ) -> None:
        self._consumer = consumer
        self._reading = reading
        self._ends = ends
        self._shown = 0
        self._done: set[TopicPartition] = set()

    async def run(self) -> None:
        """Read until there are no more records to show."""
        total = None
        if self._ends is not None:
            total = sum(self._left(tp) for tp in self._ends)
        # Records on a terminal and a bar on the same one would fight for it.
        is_quiet = total is None or sys.stdout.isatty()
        with Progress("reading", total, is_quiet=is_quiet) as progress:
            while not self._is_over():
                found = await self._consumer.getmany(timeout_ms=POLL_MS, max_records=2000)
                for partition, records in found.items():
                    self._show(partition, await self._reading.decoded(records))
                    progress.advance(len(records))

    def _left(self, partition: TopicPartition) -> int:
        assert self._ends is not None
        return max(0, self._ends[partition] - (self._consumer.position(partition) or 0))

    def _is_over(self) -> bool:
        reading = self._reading
        if reading.limit is not None and self._shown >= reading.limit:
            return True
        if self._ends is not None:
            return all(tp in self._done or self._left(tp) == 0 for tp in self._ends)
        return reading.until_ms is not None and now_ms() > reading.until_ms

    def _show(self, partition: TopicPartition, records: list[ConsumerRecord]) -> None:
        if partition in self._done:
            return
        end = None if self._ends is None else self._ends[partition]
        wanted = [
            record
            for record in records
            if self._reading.is_shown(record) and (end is None or record.offset < end)
        ]
        if self._reading.limit is not None:
            wanted = wanted[: self._reading.limit - self._shown]
        self._reading.write(wanted)
        self._shown += len(wanted)
        until_ms = self._reading.until_ms
        last = records[-1]
        if (
            until_ms is not None
            and last.timestamp_type == TimestampType.LOG_APPEND_TIME
            and last.timestamp_ms >= until_ms
        ):
            self._done.add(partition)
            self._consumer.pause(partition)
