"""What a broker does to its disk, and what it has promised at each moment.

`Workload.run` drives a `DataDir` on a simulated disk through a seeded mixture of appends (plain,
idempotent, transactional), flushes with appends in between, rolls, checkpoints, deletions, topic
changes and restarts. Beside the engine it keeps `Promises`: what was reported to a client as done,
and may therefore not be gone after any crash, whatever the disk does. A crash is judged by them and
by nothing else (`tests.crash.checker`).

An operation that fails is tolerated as a client would tolerate it: what it wanted may or may not
have happened.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from config import BrokerConfig, load
from protocol.records.builder import build_batch, build_end_txn_marker
from protocol.records.record import Record
from storage.append.plan import Origin
from storage.directory.data_dir import DataDir
from storage.disk.steps import run_steps
from storage.errors import AppendRejected, StorageError
from storage.log.compaction import Tier, compact
from storage.log.log import Log
from storage.log.retention import delete_expired
from storage.log.segment_stats import collect_statistics
from tests.support.simulated_disk import SimulatedDisk
from tests.support.simulated_store import SimulatedStore

ROOT = "/data"
NOW_MS = 1_700_000_000_000
EIGHT_DAYS_MS = 8 * 24 * 3600 * 1000
SEGMENT_BYTES = 3500
TOPICS = ("orders", "lazy", "ledger")
KEYS = 7
CONFIG: BrokerConfig = load()

_OVERRIDES = {
    "orders": {
        "segment.bytes": str(SEGMENT_BYTES),
        "index.interval.bytes": "300",
        "time.index.variant": "interval",
    },
    "lazy": {
        "segment.bytes": str(SEGMENT_BYTES),
        "flush.policy": "os",
        "retention.bytes": str(2 * SEGMENT_BYTES),
    },
    "ledger": {
        "segment.bytes": str(SEGMENT_BYTES),
        "index.interval.bytes": "300",
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0",
        "time.index.variant": "minute-map",
    },
}


@dataclass(slots=True, kw_only=True)
class Batch:
    """One batch as it was handed to the log. `marker` is None for data."""

    first_offset: int
    values: list[bytes]
    producer_id: int = -1
    base_sequence: int = -1
    is_transactional: bool = False
    marker: str | None = None

    @property
    def next_offset(self) -> int:
        return self.first_offset + len(self.values)


@dataclass(slots=True, kw_only=True)
class PartitionPromises:
    """What may be relied on in one partition."""

    # Every batch for which `append` returned, by first offset; a failed one may be in `maybe`.
    batches: list[Batch] = field(default_factory=list)
    maybe: list[Batch] = field(default_factory=list)
    end: int = 0
    durable: int = 0
    visible: int = 0
    start: int = 0
    start_wanted: int = 0
    # The bucket has all records below this offset.
    shipped: int = 0


@dataclass(slots=True, kw_only=True)
class Promises:
    """What may be relied on, or may at most be found, in the directory."""

    partitions: dict[tuple[str, int], PartitionPromises] = field(default_factory=dict)
    # Topic -> numbers of partitions that may be found; 0 means that it may be absent.
    topics: dict[str, set[int]] = field(default_factory=dict)
    ids: dict[str, bytes] = field(default_factory=dict)
    producer_ids: int = 0
    is_open: bool = False


class Workload:
    """A seeded sequence of steps. Run it once; read `promises` at any time, also from a hook."""

    config: BrokerConfig = CONFIG
    overrides: Mapping[str, Mapping[str, str]] = _OVERRIDES
    store: SimulatedStore | None = None

    def __init__(self, disk: SimulatedDisk, seed: int, *, steps: int = 60) -> None:
        self.disk = disk
        # Every third run is mostly about the compacted topic.
        self._compacts = seed % 3 == 0
        self.promises = Promises()
        self.steps_done = 0
        self.errors: list[str] = []
        self._rng = random.Random(seed)
        self._id_rng = random.Random(seed + 1)
        self._steps = steps
        self._serial = 0
        self._sequences: dict[tuple[str, int, int], int] = {}
        self._open_txns: set[tuple[str, int, int]] = set()
        self._data_dir: DataDir | None = None
        self._is_over = False

    def run(self) -> None:
        """All steps; what fails is noted in `errors` and the run goes on or ends."""
        try:
            self._start()
            for topic, partitions in (("orders", 2), ("lazy", 1), ("ledger", 1)):
                self._create(topic, partitions)
            for _ in range(self._steps):
                if not self._is_over:
                    self._step()
                    self.steps_done += 1
        except StorageError as error:
            self.errors.append(str(error))

    # --- steps ----------------------------------------------------------------------------------

    def _step(self) -> None:
        steps = self._kinds()
        kind = self._rng.choices([step for step, _ in steps], [weight for _, weight in steps])[0]
        try:
            kind()
        except (StorageError, AppendRejected) as error:
            self.errors.append(str(error))
        if not self._is_over:
            self._note_offsets()

    def _kinds(self) -> list[tuple[Callable[[], None], int]]:
        """The steps, each with its weight."""
        return [
            (self._append_plain, 30),
            (self._append_idempotent, 12),
            (self._append_transactional, 12),
            (self._retry, 4),
            (self._flush, 14),
            (self._flush_around_append, 10),
            (self._checkpoint, 5),
            (self._delete_before, 2),
            (self._expire, 3),
            (self._delete_files, 2),
            (self._change_topic, 3),
            (self._take_producer_ids, 2),
            (self._compact, 25 if self._compacts else 4),
            (self._restart, 2),
            (self._measure, 3),
        ]

    def _start(self) -> None:
        self._data_dir = DataDir.open(
            ROOT,
            files=self.disk,
            broker_config=self.config,
            now_ms=NOW_MS,
            random_bytes=self._id_rng.randbytes,
        )
        self.promises.is_open = True

    def _restart(self) -> None:
        data_dir = self._dir()
        # A broker whose stop fails is gone all the same, and so is one that cannot start.
        self._is_over = True
        data_dir.close(NOW_MS)
        for (topic, _), partition in self.promises.partitions.items():
            if topic in data_dir.topics:
                partition.durable = partition.end
        self._start()
        self._is_over = False

    def _append_plain(self) -> None:
        log = self._pick()
        self._append(log, self._values(), producer_id=-1)

    def _append_idempotent(self) -> None:
        self._append(self._pick(), self._values(), producer_id=self._rng.randrange(1, 3))

    def _append_transactional(self) -> None:
        log = self._pick()
        producer_id = self._rng.randrange(11, 13)
        key = (log.topic, log.partition, producer_id)
        if key in self._open_txns and self._rng.random() < 0.5:
            self._end_txn(log, producer_id)
        else:
            self._append(log, self._values(), producer_id=producer_id, is_transactional=True)
            self._open_txns.add(key)

    def _end_txn(self, log: Log, producer_id: int) -> None:
        commit = self._rng.random() < 0.5
        marker = build_end_txn_marker(
            commit=commit, producer_id=producer_id, producer_epoch=0, timestamp_ms=NOW_MS
        )
        batch = Batch(
            first_offset=log.log_end_offset,
            values=[b""],
            producer_id=producer_id,
            marker="commit" if commit else "abort",
        )
        self._write(log, batch, marker, Origin.COORDINATOR)
        self._open_txns.discard((log.topic, log.partition, producer_id))

    def _retry(self) -> None:
        """The last batch of a producer again: the answer must be the original offsets."""
        log = self._pick()
        partition = self._promises_of(log)
        for batch in reversed(partition.batches):
            if batch.first_offset < log.log_start_offset:
                # Removed, and after a restart its producer may be forgotten with it.
                return
            if batch.base_sequence >= 0 and not batch.is_transactional:
                result = log.append(_encode(batch), now_ms=NOW_MS)
                if not result.is_duplicate or result.first_offset != batch.first_offset:
                    raise AssertionError(f"retry of {batch.first_offset} answered {result}")
                return

    def _flush(self) -> None:
        self._pick().flush()

    def _flush_around_append(self) -> None:
        """Appends that arrive between the parts of a flush are not covered by it."""
        log = self._pick()
        ticket = log.begin_flush()
        try:
            self._append(log, self._values(), producer_id=-1)
        finally:
            # As the broker does: whatever happens meanwhile, the ticket comes back.
            if ticket is not None:
                ticket.run()
                log.complete_flush(ticket)

    def _checkpoint(self) -> None:
        run_steps(self._dir().checkpoint())

    def _delete_before(self) -> None:
        log = self._pick()
        partition = self._promises_of(log)
        start = self._rng.randint(log.log_start_offset, log.high_watermark)
        if not log.config.is_deleted_by_retention:
            return
        partition.start_wanted = max(partition.start_wanted, start)
        log.delete_before(start)
        delete_expired(log, NOW_MS)

    def _expire(self) -> None:
        """Retention by size, and now and then by time, which takes all there is."""
        log = self._pick()
        partition = self._promises_of(log)
        partition.start_wanted = max(partition.start_wanted, log.log_end_offset)
        is_late = self._rng.random() < 0.3
        delete_expired(log, NOW_MS + (EIGHT_DAYS_MS if is_late else 0))

    def _delete_files(self) -> None:
        run_steps(self._dir().delete_pending_files(NOW_MS + 100_000))

    def _compact(self) -> None:
        """A round of compaction with appends in between; some are not driven to their end."""
        log = self._dir().topics["ledger"].logs[0]
        if self._rng.random() < 0.7:
            log.roll(NOW_MS)
            log.flush()
        steps = compact(
            log, now_ms=NOW_MS, map_bytes=self._rng.choice((600, 1 << 20)), tier=self._tier_of()
        )
        for call in steps:
            if call is not None:
                call.run()
            if self._rng.random() < 0.1:
                self._append(log, self._values(), producer_id=-1)
            if self._rng.random() < 0.02:
                steps.close()

    def _tier_of(self) -> Tier | None:
        """The store of compacted logs."""
        return None

    def _measure(self) -> None:
        """The statistics of closed segments that are unknown, with appends in between."""
        log = self._pick()
        for call in collect_statistics(log, set()):
            if call is not None:
                call.run()
            if self._rng.random() < 0.2:
                self._append(log, self._values(), producer_id=-1)

    def _take_producer_ids(self) -> None:
        found = self._dir().metadata.allocate_producer_ids(10)
        if found.start < self.promises.producer_ids:
            raise AssertionError(f"producer id {found.start} was given out before")
        self.promises.producer_ids = found.stop

    def _change_topic(self) -> None:
        data_dir = self._dir()
        name = self._rng.choice(("temporary", "growing"))
        topic = data_dir.topics.get(name)
        if topic is None:
            self._create(name, self._rng.randint(1, 2))
        elif name == "growing" and len(topic.logs) < 4:
            total = len(topic.logs) + 1
            self.promises.topics[name].add(total)
            run_steps(data_dir.add_partitions(name, total, NOW_MS))
            self.promises.topics[name] = {total}
        else:
            self.promises.topics[name].add(0)
            data_dir.delete_topic(name, NOW_MS)
            self.promises.topics[name] = {0}
            self._forget(name)

    def _create(self, name: str, partitions: int) -> None:
        before = self.promises.topics.get(name, set())
        self.promises.topics[name] = {0, partitions, *before}
        self.promises.ids.pop(name, None)
        topic = run_steps(
            self._dir().create_topic(name, partitions, self.overrides.get(name, {}), NOW_MS)
        )
        self.promises.topics[name] = {partitions}
        self.promises.ids[name] = topic.topic_id
        # Of an older topic, whose deletion failed when it had already happened.
        self._forget(name)

    def _forget(self, name: str) -> None:
        for key in [key for key in self.promises.partitions if key[0] == name]:
            del self.promises.partitions[key]
        self._open_txns = {key for key in self._open_txns if key[0] != name}
        self._sequences = {k: v for k, v in self._sequences.items() if k[0] != name}

    # --- helpers --------------------------------------------------------------------------------

    def _dir(self) -> DataDir:
        assert self._data_dir is not None
        return self._data_dir

    def _pick(self) -> Log:
        topics = list(self._dir().topics.values())
        if not topics:
            raise StorageError("no topic could be created")
        ledger = 12 if self._compacts else 2
        weights = [{"orders": 4, "ledger": ledger}.get(topic.name, 1) for topic in topics]
        return self._rng.choice(self._rng.choices(topics, weights)[0].logs)

    def _promises_of(self, log: Log) -> PartitionPromises:
        return self.promises.partitions.setdefault((log.topic, log.partition), PartitionPromises())

    def _values(self) -> list[bytes]:
        values = []
        for _ in range(self._rng.randint(1, 4)):
            self._serial += 1
            size = self._rng.choice((5, 40, 200, 700))
            values.append(b"%08d" % self._serial + self._rng.randbytes(size))
        return values

    def _append(
        self, log: Log, values: list[bytes], *, producer_id: int, is_transactional: bool = False
    ) -> None:
        key = (log.topic, log.partition, producer_id)
        base_sequence = self._sequences.get(key, 0) if producer_id >= 0 else -1
        batch = Batch(
            first_offset=log.log_end_offset,
            values=values,
            producer_id=producer_id,
            base_sequence=base_sequence,
            is_transactional=is_transactional,
        )
        self._write(log, batch, _encode(batch), Origin.CLIENT)
        if producer_id >= 0:
            self._sequences[key] = base_sequence + len(values)

    def _write(self, log: Log, batch: Batch, data: bytes | memoryview, origin: Origin) -> None:
        partition = self._promises_of(log)
        partition.maybe.append(batch)
        result = log.append(memoryview(bytearray(data)), now_ms=NOW_MS, origin=origin)
        assert result.first_offset == batch.first_offset == partition.end
        partition.maybe.pop()
        partition.batches.append(batch)
        partition.end = batch.next_offset
        self._note_offsets()

    def _note_offsets(self) -> None:
        """What the engine claims now is promised from now on."""
        for topic in self._dir().topics.values():
            for log in topic.logs:
                partition = self._promises_of(log)
                partition.durable = max(partition.durable, log.durable_offset)
                partition.start = max(partition.start, log.log_start_offset)
                partition.start_wanted = max(partition.start_wanted, log.log_start_offset)
                if topic.name != "lazy":
                    partition.visible = max(partition.visible, log.high_watermark)


def key_of(value: bytes) -> bytes:
    """The key that goes with a value, which begins with its serial number."""
    return b"key-%d" % (int(value[:8]) % KEYS)


def _encode(batch: Batch) -> memoryview:
    records = [
        Record(0, NOW_MS + (number * 37) % 11, key_of(value), value)
        for number, value in enumerate(batch.values)
    ]
    data = build_batch(
        records,
        producer_id=batch.producer_id,
        producer_epoch=0 if batch.producer_id >= 0 else -1,
        base_sequence=batch.base_sequence,
        is_transactional=batch.is_transactional,
    )
    return memoryview(bytearray(data))
