"""Stand-ins for what a coordinator needs: logs in memory, a flush that can be held, frozen time.

`FakeLog` keeps real batches, so what a coordinator wrote is what the next one replays; `crash`
drops everything that was not flushed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

from broker.clocks.trusted_clock import TrustedClock
from broker.errors import UnknownTopicOrPartition
from broker.groups.internal_topic import CoordinatorServices
from broker.metrics import Metrics
from config import load
from protocol.records.batch import RecordBatch
from protocol.records.record import Record, decode_batch
from storage.disk.steps import Steps, run_steps
from storage.errors import LogOffline, LogQuarantined, StorageError
from tests.support.clock import FrozenClock

AT_ONCE = {"group.initial.rebalance.delay.ms": "0"}
CONFIG = load(command_line=AT_ONCE)


class FakeRead(NamedTuple):
    records: memoryview
    next_offset: int


class FakeLog:
    """One partition in memory."""

    def __init__(self, topic: str, partition: int, waits_for_disk: bool = True) -> None:
        self.topic = topic
        self.partition = partition
        self.waits_for_disk = waits_for_disk
        self.offline = self.refusal = None
        self.leader_epoch = 0
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.durable_offset = 0
        self.batches: list[bytes] = []
        self.error: StorageError | None = None
        self.quarantine: LogQuarantined | None = None

    def append(self, records: memoryview, *, now_ms: int, **_: Any) -> Any:
        if self.error is not None:
            raise self.error
        batch = RecordBatch(records)
        batch.stamp_position(self.log_end_offset, self.leader_epoch)
        self.batches.append(bytes(batch.bytes))
        self.log_end_offset = batch.last_offset + 1
        return SimpleNamespace(
            first_offset=batch.base_offset, last_offset=batch.last_offset, size_bytes=len(records)
        )

    def read(self, offset: int, **_: Any) -> FakeRead:
        kept = [b for b in self.batches if RecordBatch(b).base_offset >= offset]
        return FakeRead(memoryview(b"".join(kept)), self.log_end_offset)

    def records(self) -> list[Record]:
        """Every record, in order."""
        return [record for data in self.batches for record in decode_batch(RecordBatch(data))]

    def markers(self) -> list[tuple[int, int, bool]]:
        """(producer id, epoch, committed) of each control batch."""
        found = []
        for data in self.batches:
            batch = RecordBatch(data)
            if batch.is_control:
                (record,) = decode_batch(batch)
                assert record.key is not None
                found.append((batch.producer_id, batch.producer_epoch, record.key[3] == 1))
        return found

    def cut(self, batches: int) -> None:
        """Keep only the first so many batches."""
        del self.batches[batches:]
        last = RecordBatch(self.batches[-1]) if self.batches else None
        self.log_end_offset = self.durable_offset = 0 if last is None else last.last_offset + 1


def topic_id(name: str) -> bytes:
    """The id of a topic in these tests: its name, padded."""
    return name.encode().ljust(16, b"-")


class FakeTopics:
    """The registry: user topics made in advance, internal ones on demand."""

    def __init__(self, **partitions: int) -> None:
        self.logs: dict[str, list[FakeLog]] = {}
        self.deleted: list[Callable[[Any], Steps[None] | None]] = []
        self.next_producer_id = 0
        self.revision = 0
        self.group_overrides: dict[str, dict[str, str]] = {}
        for name, count in partitions.items():
            self.make(name, count)

    def make(self, name: str, count: int) -> Any:
        self.logs[name] = [FakeLog(name, index) for index in range(count)]
        self.revision += 1
        return self.find(name)

    def find(self, name: str) -> Any:
        logs = self.logs.get(name)
        if logs is None:
            return None
        return SimpleNamespace(name=name, topic_id=topic_id(name), partitions=logs)

    def __iter__(self) -> Iterator[Any]:
        return (self.find(name) for name in self.logs)

    async def create(self, name: str, partitions: int, overrides: dict[str, str]) -> Any:
        return self.make(name, partitions)

    def led_log(self, name: str, partition: int) -> FakeLog:
        try:
            return self.logs[name][partition]
        except (KeyError, IndexError):
            raise UnknownTopicOrPartition(name, partition) from None

    def when_deleted(self, callback: Callable[[Any], Steps[None] | None]) -> None:
        self.deleted.append(callback)

    def delete(self, name: str) -> None:
        topic = self.find(name)
        del self.logs[name]
        self.revision += 1
        for callback in self.deleted:
            steps = callback(topic)
            if steps is not None:
                run_steps(steps)

    def allocate_producer_ids(self, count: int) -> range:
        first = self.next_producer_id
        self.next_producer_id += count
        return range(first, first + count)


class FakeGroupCommit:
    """Group commit: durable at once, or when `flush` is called while `is_holding`."""

    def __init__(self) -> None:
        self.is_holding = False
        self.held: list[tuple[FakeLog, int, Callable[[StorageError | None], object]]] = []

    def appended(self, log: FakeLog, size_bytes: int) -> None:
        assert size_bytes > 0

    def when_durable(
        self, log: FakeLog, next_offset: int, callback: Callable[[StorageError | None], object]
    ) -> None:
        self.held.append((log, next_offset, callback))
        if not self.is_holding:
            self.flush()

    def flush(self, count: int | None = None) -> None:
        """Complete what waits, oldest first."""
        while self.held and count != 0:
            log, next_offset, callback = self.held.pop(0)
            log.durable_offset = max(log.durable_offset, next_offset)
            callback(None)
            count = None if count is None else count - 1

    def fail(self) -> None:
        """The disk refuses what waits."""
        held, self.held = self.held, []
        for log, _, callback in held:
            callback(LogOffline(log.topic, "input/output error"))


class World:
    """Everything around a coordinator; outlives it, like a disk outlives a process."""

    def __init__(self, **partitions: int) -> None:
        self.clock = FrozenClock()
        self.topics = FakeTopics(**partitions)
        self.group_commit = FakeGroupCommit()

    def services(self, **settings: str) -> CoordinatorServices:
        config = CONFIG
        if settings:
            config = load(
                command_line=AT_ONCE
                | {key.replace("_", "."): value for key, value in settings.items()}
            )
        return CoordinatorServices(
            config=config,
            clock=self.clock,
            sessions=self.clock,
            time=TrustedClock(self.clock, Metrics(), hold_ms=config.log_clock_trust_delay_ms),
            random=random.Random(1),
            topics=cast(Any, self.topics),
            group_commit=cast(Any, self.group_commit),
        )
