"""The judge: what must hold on a disk that was found after a crash.

`check` opens the directory as a broker would and compares it with `Promises`. Then it closes it,
audits it offline, and opens it once more. Everything wrong comes back as sentences; a state in
which nothing is wrong gives none. Nothing is repaired, nothing is retried.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

from protocol.records.layout import NO_PRODUCER_ID
from protocol.records.scan import iter_records, scan_entries
from storage.audit.fsck import audit_directory
from storage.audit.remote import compare, read_journal, read_partitions
from storage.bucket.journal import BucketJournal, read_state
from storage.bucket.map import BucketState
from storage.bucket.restore import objects_in, restore
from storage.bucket.shipping import Shipper
from storage.directory.data_dir import DataDir, Topic
from storage.disk.steps import run_steps
from storage.errors import DataDirError, StorageError
from storage.log.log import Log
from storage.log.values import Isolation, ReadResult
from tests.crash.workload import (
    CONFIG,
    NOW_MS,
    ROOT,
    Batch,
    PartitionPromises,
    Promises,
    key_of,
)
from tests.support.power_loss import Survival
from tests.support.simulated_disk import SimulatedDisk
from tests.support.simulated_store import SimulatedStore
from tests.support.tiered import with_store

CLUSTER_ID = "campaign"


def check(
    disk: SimulatedDisk,
    promises: Promises,
    *,
    killed_only: bool,
    twice: bool = True,
    store: SimulatedStore | None = None,
) -> list[str]:
    """What is wrong with `disk`, found after a crash at which `promises` had been made.

    `killed_only` says that the machine lived on: then nothing at all that was written may be gone.
    `twice` looks at a second crash and at a clean stop too, for twice the time. `store` is what the
    object store has. Disk and store are changed.
    """
    try:
        return list(_problems(disk, promises, killed_only, twice, store))
    except (DataDirError, StorageError) as error:
        return [f"refused: {type(error).__name__}: {error}"]
    except Exception as error:  # noqa: BLE001 - whatever escapes the engine is a finding
        return [f"crashed: {type(error).__name__}: {error}"]


def open_directory(disk: SimulatedDisk) -> DataDir:
    """Start on the disk as a broker would."""
    return DataDir.open(ROOT, files=disk, broker_config=CONFIG, now_ms=NOW_MS)


def _problems(
    disk: SimulatedDisk,
    promises: Promises,
    killed_only: bool,
    twice: bool,
    store: SimulatedStore | None,
) -> Iterator[str]:
    data_dir = open_directory(disk)
    yield from _check_topics(data_dir, promises)
    for (name, number), partition in promises.partitions.items():
        topic = data_dir.topics.get(name)
        if topic is not None and number < len(topic.logs) and _is_same(topic, promises):
            for problem in _check_log(topic.logs[number], partition, killed_only, store):
                yield f"{name}-{number}: {problem}"
    metadata = data_dir.metadata
    if promises.producer_ids > metadata.allocate_producer_ids(1).start:
        yield f"producer id {metadata.allocate_producer_ids(1).start} would be given out twice"
    if twice:
        yield from _check_second_recovery(disk, data_dir)
    for topic in data_dir.topics.values():
        for log in topic.logs:
            yield from _check_writable(log)
    data_dir.close(NOW_MS)
    for finding in audit_directory(ROOT, disk).findings:
        yield f"fsck: {finding}"
    if store is not None:
        yield from _check_store(disk, store)
        yield from check_restored(store, promises)
        if twice:
            yield from _check_shipping_continues(disk, store, promises)
    if not twice:
        return
    ends = _ends(data_dir)
    reopened = open_directory(disk.power_cut(0, Survival.LOST))
    if not reopened.stopped_cleanly or _ends(reopened) != ends:
        yield f"a clean stop did not keep {ends}: {_ends(reopened)}"
    for topic in reopened.topics.values():
        for log in topic.logs:
            if log.offline_reason is not None:
                part = f"{topic.name}-{log.partition}"
                yield f"{part} is offline after a clean stop: {log.offline_reason}"


def _is_same(topic: Topic, promises: Promises) -> bool:
    """Not another incarnation of the topic, whose deletion was under way."""
    return promises.ids.get(topic.name) == topic.topic_id


def _check_topics(data_dir: DataDir, promises: Promises) -> Iterator[str]:
    for name, allowed in promises.topics.items():
        topic = data_dir.topics.get(name)
        found = 0 if topic is None else len(topic.logs)
        if found not in allowed:
            yield f"topic {name} has {found} partitions, promised {sorted(allowed)}"
    for name in data_dir.topics.keys() - promises.topics.keys():
        yield f"topic {name} was never created"


def _check_log(
    log: Log, promised: PartitionPromises, killed_only: bool, store: SimulatedStore | None
) -> Iterator[str]:
    if log.offline_reason is not None:
        yield f"offline: {log.offline_reason}"
        return
    end = log.log_end_offset
    if end < promised.durable:
        yield f"lost: ends at {end}, {promised.durable} was durable"
    if end < promised.visible:
        yield f"lost: ends at {end}, consumers had seen {promised.visible}"
    if killed_only and end < promised.end:
        yield f"lost: ends at {end} after a mere kill, {promised.end} was written"
    if not promised.start <= log.log_start_offset <= max(promised.start_wanted, promised.start):
        yield (
            f"starts at {log.log_start_offset}, promised {promised.start} "
            f"to {promised.start_wanted}"
        )
    if log.high_watermark != end:
        yield f"high watermark {log.high_watermark} is not the end {end}"
    if log.config.is_compacted:
        yield from _check_compacted(log, promised, store)
    else:
        yield from _check_content(log, promised, store)
    yield from _check_producers(log, promised)


def _check_store(disk: SimulatedDisk, store: SimulatedStore) -> Iterator[str]:
    """Nothing that is named is gone, and what is not named is known as garbage."""
    partitions = read_partitions(ROOT, disk)
    named_there = list(objects_in(read_state(store)))
    found = compare(
        partitions,
        store.list_objects(),
        named_there=named_there,
        journal=read_journal(ROOT, disk),
        now_ms=store.now_ms,
        older_than_ms=0,
    )
    for one in found.missing:
        yield f"lost: object {one.key} is named and not in the store"
    named = {one.key for part in partitions for one in part.objects}
    named |= {one.key for one in named_there}
    garbage = {one.key for one in found.garbage}
    for key in store.segments.keys() - named - garbage:
        yield f"object {key} is neither named nor garbage"
    for key in named & garbage:
        yield f"lost: object {key} is named and would be deleted as garbage"


def check_named(state: BucketState, store: SimulatedStore) -> Iterator[str]:
    """All objects that the map of the bucket names are there."""
    for one in objects_in(state):
        if one.key not in store.objects:
            yield f"lost: the bucket names object {one.key}, which is gone"


def check_restored(store: SimulatedStore, promises: Promises) -> Iterator[str]:
    """A machine that has only the bucket gets back what was promised to be there."""
    state = read_state(store)
    if not state.documents:
        return
    yield from check_named(state, store)
    machine = SimulatedDisk()
    machine.make_directory("/data")
    machine.make_directory(ROOT)
    restore(state, store, ROOT, machine, cluster_id=CLUSTER_ID, directory_id=bytes(range(16)))
    data_dir = open_directory(machine)
    for (name, number), promised in promises.partitions.items():
        topic = data_dir.topics.get(name)
        if topic is None or not _is_same(topic, promises):
            if promised.shipped and promises.topics.get(name) != {0}:
                yield f"lost: restored without {name}"
            continue
        if number >= len(topic.logs):
            continue
        log = topic.logs[number]
        where = f"restored {name}-{number}"
        if log.offline_reason is not None:
            yield f"{where}: offline: {log.offline_reason}"
        elif log.log_end_offset < promised.shipped:
            yield f"lost: {where} ends at {log.log_end_offset}, the bucket had {promised.shipped}"
        elif log.log_start_offset > max(promised.start_wanted, promised.start):
            yield f"lost: {where} starts at {log.log_start_offset}"
        else:
            check_records = _check_compacted if log.config.is_compacted else _check_content
            yield from (f"{where}: {problem}" for problem in check_records(log, promised, store))
    for topic in data_dir.topics.values():
        for log in topic.logs:
            log.abandon()


def _check_shipping_continues(
    disk: SimulatedDisk, store: SimulatedStore, promises: Promises
) -> Iterator[str]:
    """The survivor takes its bucket over again; then the bucket has all that the survivor has."""
    data_dir = open_directory(disk)
    ends = {}
    journal = BucketJournal(store, data_dir.directory_id, random.Random(1))
    shipper = Shipper(data_dir, journal, is_internal_to(data_dir))
    run_steps(shipper.begin())
    run_steps(shipper.ship())
    for topic in data_dir.topics.values():
        for log in topic.logs:
            ends[topic.name, log.partition] = shipper.shipped_end(log)
            if ends[topic.name, log.partition] != log.log_end_offset:
                yield (
                    f"{topic.name}-{log.partition} ends at {log.log_end_offset}, the bucket has "
                    f"{ends[topic.name, log.partition]}"
                )
    run_steps(journal.checkpoint())
    data_dir.close(NOW_MS)
    now = replace(
        promises,
        partitions={
            part: replace(promised, shipped=ends.get(part, 0))
            for part, promised in promises.partitions.items()
        },
    )
    yield from check_restored(store, now)


def is_internal_to(data_dir: DataDir) -> Callable[[str], bool]:
    """A compacted topic without a store is shipped as a whole, like those of the broker."""
    topics = data_dir.topics

    def is_internal(name: str) -> bool:
        return name == "ledger" and not topics[name].config.remote_storage_enable

    return is_internal


def _read(log: Log, offset: int, store: SimulatedStore | None) -> ReadResult:
    def read() -> ReadResult:
        return log.read(offset, max_bytes=1 << 20, isolation=Isolation.LOG_END)

    return read() if store is None else with_store(store, read)


def _check_content(
    log: Log, promised: PartitionPromises, store: SimulatedStore | None
) -> Iterator[str]:
    expected: dict[int, list[Batch]] = {}
    for batch in (*promised.batches, *promised.maybe):
        expected.setdefault(batch.first_offset, []).append(batch)
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = _read(log, offset, store).records
        entries = list(scan_entries(data))
        if not entries:
            yield f"nothing can be read at {offset}"
            return
        for entry in entries:
            if entry.base_offset > offset:
                yield f"gap: {entry.base_offset} follows {offset}"
            values = [record.value for record in iter_records(data, entry.position)]
            candidates = expected.get(entry.base_offset, [])
            if not any(_matches(batch, values) for batch in candidates):
                yield f"the batch at {entry.base_offset} is none that was written there"
            offset = entry.next_offset
    if offset != log.log_end_offset:
        yield f"the last batch ends at {offset}, the log at {log.log_end_offset}"


def _check_compacted(
    log: Log, promised: PartitionPromises, store: SimulatedStore | None
) -> Iterator[str]:
    """What is there was written there, and the last value of every key is there."""
    found: dict[int, bytes] = {}
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        result = _read(log, offset, store)
        entries = list(scan_entries(result.records))
        if not entries or entries[0].last_offset < offset:
            yield f"nothing can be read at {offset}"
            return
        for entry in entries:
            if not entry.is_control:
                for record in iter_records(result.records, entry.position):
                    found[record.offset] = record.value or b""
        offset = result.next_offset
    written = {
        batch.first_offset + index: value
        for batch in (*promised.maybe, *promised.batches)
        if batch.marker is None
        for index, value in enumerate(batch.values)
    }
    for offset, value in found.items():
        if written.get(offset) != value and not _is_maybe(promised, offset, value):
            yield f"the record at {offset} is none that was written there"
    if any(batch.first_offset < log.log_end_offset for batch in promised.maybe):
        return
    aborted = _aborted(promised)
    last = {
        key_of(value): offset
        for offset, value in sorted(written.items())
        if offset < log.log_end_offset and offset not in aborted
    }
    for key, offset in last.items():
        if offset not in found:
            yield f"lost: the last value of {key!r}, at {offset}"


def _is_maybe(promised: PartitionPromises, offset: int, value: bytes) -> bool:
    return any(
        batch.first_offset <= offset < batch.next_offset
        and batch.values[offset - batch.first_offset] == value
        for batch in promised.maybe
    )


def _aborted(promised: PartitionPromises) -> set[int]:
    """Offsets of records whose transactions were aborted."""
    open_txns: dict[int, list[Batch]] = {}
    aborted: set[int] = set()
    for batch in promised.batches:
        if batch.marker is not None:
            ended = open_txns.pop(batch.producer_id, [])
            if batch.marker == "abort":
                aborted |= {o for b in ended for o in range(b.first_offset, b.next_offset)}
        elif batch.is_transactional:
            open_txns.setdefault(batch.producer_id, []).append(batch)
    return aborted


def _matches(batch: Batch, values: list[bytes | None]) -> bool:
    return batch.marker is not None or list(values) == batch.values


def _check_producers(log: Log, promised: PartitionPromises) -> Iterator[str]:
    """The map of producers and the stable end are those of the batches that are there."""
    last: dict[int, Batch] = {}
    open_txns: dict[int, int] = {}
    for batch in promised.batches:
        if batch.next_offset > log.log_end_offset or batch.producer_id == NO_PRODUCER_ID:
            continue
        if batch.marker is not None:
            open_txns.pop(batch.producer_id, None)
            continue
        last[batch.producer_id] = batch
        if batch.is_transactional:
            open_txns.setdefault(batch.producer_id, batch.first_offset)
    if any(batch.first_offset < log.log_end_offset for batch in promised.maybe):
        # What failed may be there too, and then it counts: the engine's replay is the judge.
        return
    for producer_id, batch in last.items():
        if batch.first_offset < log.log_start_offset:
            continue
        entry = log.producers.state.find(producer_id)
        known = None if entry is None or not entry.batches else entry.batches[-1]
        if known is None or known.first_offset != batch.first_offset:
            yield f"producer {producer_id} is remembered with {known}, not {batch.first_offset}"
    if any(first_offset < log.log_start_offset for first_offset in open_txns.values()):
        # Only a snapshot can know of a transaction that began in records since removed.
        return
    stable = min([*open_txns.values(), log.log_end_offset])
    if log.last_stable_offset != max(stable, log.log_start_offset):
        yield f"last stable offset {log.last_stable_offset}, expected {stable}"


def _check_second_recovery(disk: SimulatedDisk, first: DataDir) -> Iterator[str]:
    """What a start found is durable at once: another crash and start change nothing."""
    second = open_directory(disk.power_cut(1, Survival.LOST))
    if _ends(second) != _ends(first):
        yield f"second recovery: {_ends(second)} after {_ends(first)}"
    for topic in second.topics.values():
        for log in topic.logs:
            if log.recovery_report.truncated_bytes:
                yield f"second recovery cut {topic.name}-{log.partition} again"


def _check_writable(log: Log) -> Iterator[str]:
    if log.needs_flush:
        log.flush()
    if log.durable_offset != log.log_end_offset:
        yield f"{log.topic}-{log.partition} is durable to {log.durable_offset} only"


def _ends(data_dir: DataDir) -> dict[str, tuple[int, int]]:
    return {
        f"{topic.name}-{log.partition}": (log.log_start_offset, log.log_end_offset)
        for topic in data_dir.topics.values()
        for log in topic.logs
    }
