"""``tidelog consume --group``: a member's share of a topic, for ever or until its backlog is done.

Every record of the group is shown once and committed, by this run or another. So a run that stops
leaves the records it did not show. With ``--exit-at-end`` it reads its share up to the ends that
the partitions had at the start. With ``--until`` it reads each partition up to the first record of
that time or later. Other members finish the partitions that the group assigns to them.
"""

from collections.abc import Mapping
from typing import Any

from cli.options import now_ms
from cli.records.reading import POLL_MS, Reading
from client.consumer import Consumer
from client.core.membership.options import CONSUMER
from client.types import ConsumerRecord, TopicPartition

_BATCH_RECORDS = 500

_EMPTY_SHARE_MS = 10_000
"""How long a broker may take to give a new member more than an empty share: Apache Kafka assigns
after a second, and says it with the next heartbeat, which is due after five."""


async def read_as_group(topic: str, reading: Reading, options: Mapping[str, Any]) -> None:
    """Show and commit records until the limits of `reading` are reached.

    `options` are those of the `Consumer`.

    Raises:
        BrokerRefused: the topic does not exist, or the group refuses this member.
    """
    reader = _GroupReader(topic, reading, options)
    await reader.run()


class _GroupReader:
    """One run of one member."""

    def __init__(self, topic: str, reading: Reading, options: Mapping[str, Any]) -> None:
        self._consumer = Consumer(
            topic, on_assigned=self._assigned, on_revoked=self._revoked, **options
        )
        self._topic = topic
        self._reading = reading
        self._shown = 0
        self._has_share = False
        self._is_assigned_by_broker = options["group_protocol"] == CONSUMER
        self._share_since_ms = 0
        self._stopped: set[TopicPartition] = set()
        self._ends: dict[TopicPartition, int] | None = None

    def _assigned(self, _: frozenset[TopicPartition]) -> None:
        self._has_share = True
        self._share_since_ms = now_ms()
        # Who was stopped reads on, and stops again: the reader of a partition may be a new one.
        self._stopped.clear()
        self._consumer.resume()

    def _revoked(self, _: frozenset[TopicPartition]) -> None:
        self._has_share = False

    async def run(self) -> None:
        """Read until the limit is reached or the backlog is done, and commit the records shown."""
        async with self._consumer:
            await self._read()
            await self._consumer.commit()

    async def _read(self) -> None:
        if self._reading.exit_at_end:
            await self._find_ends()
        while not await self._is_over():
            limit = self._reading.limit
            left = _BATCH_RECORDS if limit is None else min(_BATCH_RECORDS, limit - self._shown)
            found = await self._consumer.getmany(timeout_ms=POLL_MS, max_records=left)
            for partition, records in found.items():
                decoded = await self._reading.decoded(records)
                # The partition may have gone meanwhile: then its next reader shows them.
                if partition in self._consumer.assignment():
                    self._show(partition, decoded)

    async def _find_ends(self) -> None:
        partitions = await self._consumer.partitions(self._topic)
        self._ends = await self._consumer.end_offsets(partitions)

    async def _is_over(self) -> bool:
        reading = self._reading
        if reading.limit is not None and self._shown >= reading.limit:
            return True
        if self._ends is None and reading.until_ms is not None and now_ms() > reading.until_ms:
            await self._find_ends()
        # Before the group has given this member its share, no partition is known to be done.
        if self._ends is None or not self._has_share:
            return False
        share = self._consumer.assignment()
        if not share and self._is_assigned_by_broker:
            return now_ms() >= self._share_since_ms + _EMPTY_SHARE_MS
        return all(self._is_done(partition) for partition in share)

    def _is_done(self, partition: TopicPartition) -> bool:
        assert self._ends is not None
        if partition in self._stopped:
            return True
        position = self._consumer.position(partition)
        return position is not None and position >= self._ends.get(partition, 0)

    def _show(self, partition: TopicPartition, records: list[ConsumerRecord]) -> None:
        """Show records up to this run's end, and leave the position there."""
        until_ms = self._reading.until_ms
        end = None if self._ends is None else self._ends.get(partition, 0)
        wanted = []
        for record in records:
            is_late = until_ms is not None and record.timestamp_ms >= until_ms
            if is_late or (end is not None and record.offset >= end):
                self._consumer.seek(partition, record.offset)
                self._consumer.pause(partition)
                self._stopped.add(partition)
                break
            if self._reading.is_selected(record):
                wanted.append(record)
        self._reading.write(wanted)
        self._shown += len(wanted)
