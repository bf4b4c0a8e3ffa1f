"""Compacted topics in a store: clean segments have objects, rewriting replaces them."""

from random import Random

import pytest

from config import load
from protocol.records.builder import build_batch
from protocol.records.record import Record
from storage.audit.fsck import audit_directory
from storage.audit.remote import compare, read_journal, read_partitions
from storage.bucket.audit import audit_bucket
from storage.bucket.journal import BucketJournal, read_state
from storage.bucket.restore import restore
from storage.bucket.shipping import Shipper
from storage.directory.data_dir import DataDir
from storage.disk.steps import run_steps
from storage.errors import StoreFailed
from storage.log.compaction import CompactionResult, compact, find_cleanable
from storage.log.log import Log
from storage.remote.cleaning import StoredLogs
from storage.remote.erase import erase_unused, objects_to_erase
from storage.remote.local import drop_expired_locally
from storage.remote.upload import backlog_of, next_to_upload
from storage.segment.facts import RemoteObject
from tests.support.power_loss import Survival
from tests.support.simulated_disk import SimulatedDisk
from tests.support.simulated_store import SimulatedStore, StoreFault
from tests.support.tiered import read_everything, upload_all

ROOT = "/data"
CONFIG = load(command_line={"remote.storage.url": "memory:"})
SETTINGS = {
    "remote.storage.enable": "true",
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0",
    "delete.retention.ms": "0",
    "local.retention.ms": "0",
    "segment.bytes": "500",
}


class Machine:
    """A directory with one compacted topic in a store, its bucket, and what was written."""

    def __init__(self, **settings: str) -> None:
        self.disk, self.store = SimulatedDisk(), SimulatedStore()
        self.disk.make_directory(ROOT)
        self.disk.sync_directory("/")
        self.now_ms = 1_000
        self.history: list[tuple[bytes, bytes | None]] = []
        self.open()
        overrides = SETTINGS | {name.replace("_", "."): text for name, text in settings.items()}
        run_steps(self.dir.create_topic("t", 1, overrides, self.now_ms))
        self.ship()

    def open(self) -> None:
        self.dir = DataDir.open(ROOT, files=self.disk, broker_config=CONFIG, now_ms=self.now_ms)
        self.journal = BucketJournal(self.store, self.dir.directory_id, Random(1))
        self.shipper = Shipper(self.dir, self.journal, lambda name: False)

    @property
    def log(self) -> Log:
        return self.dir.topics["t"].logs[0]

    def put(self, key: str, value: str | None) -> None:
        self.now_ms += 10
        content = None if value is None else value.encode() * 20
        record = Record(0, self.now_ms, key.encode(), content)
        self.log.append(memoryview(bytearray(build_batch([record]))), now_ms=self.now_ms)
        self.history.append((key.encode(), content))

    def roll(self) -> None:
        if not self.log.segments.active.is_empty:
            self.log.roll(self.now_ms)
        self.log.flush()

    def ship(self) -> None:
        if not self.journal.is_owner:
            run_steps(self.shipper.begin())
        run_steps(self.shipper.ship())

    def compact(self) -> CompactionResult | None:
        self.now_ms += 10
        tier = StoredLogs(self.store, self.shipper.shipped_end)
        return run_steps(compact(self.log, now_ms=self.now_ms, map_bytes=1 << 20, tier=tier))

    def upload(self) -> int:
        self.log.flush()
        return upload_all(self.log, self.store, topic_id=self.dir.topics["t"].topic_id)

    def drop_local(self) -> None:
        self.now_ms += 100_000
        drop_expired_locally(self.log, self.now_ms)
        run_steps(self.dir.delete_pending_files(self.now_ms + 100_000))

    def erase(self) -> int:
        def may_go(where: RemoteObject) -> bool:
            return self.journal.is_owner and not self.shipper.names(where)

        return run_steps(erase_unused(self.log, self.store, may_go))

    def restart(self, survival: Survival | None = None) -> None:
        if survival is None:
            self.dir.close(self.now_ms)
        else:
            self.disk = self.disk.power_cut(1, survival)
        self.open()

    def clean(self) -> None:
        """One whole cycle: ship, compact, upload, ship, erase, drop."""
        self.roll()
        self.ship()
        self.compact()
        self.upload()
        self.ship()
        self.erase()
        self.drop_local()

    def restored(self) -> Log:
        """The log on a machine that has only the bucket."""
        disk = SimulatedDisk()
        disk.make_directory(ROOT)
        state = read_state(self.store)
        restore(state, self.store, ROOT, disk, cluster_id="c", directory_id=bytes(range(16)))
        other = DataDir.open(ROOT, files=disk, broker_config=CONFIG, now_ms=self.now_ms)
        log = other.topics["t"].logs[0]
        assert log.offline_reason is None
        return log

    def check(self) -> None:
        """Both machines have the values of all keys as of their ends; nothing named is missing."""
        for log in (self.log, self.restored()):
            assert values_in(log, self.store) == values_of(self.history[: log.high_watermark])
        assert self.restored().log_end_offset >= self.shipper.shipped_end(self.log)
        report = audit_bucket(read_state(self.store), self.store)
        assert report.problems == []
        found = compare(
            read_partitions(ROOT, self.disk),
            self.store.list_objects(),
            journal=read_journal(ROOT, self.disk),
            now_ms=self.store.now_ms,
            older_than_ms=0,
        )
        assert (found.missing, found.garbage) == ([], [])


def values_of(history: list[tuple[bytes, bytes | None]]) -> dict[bytes, bytes]:
    values = dict(history)
    return {key: value for key, value in values.items() if value is not None}


def values_in(log: Log, store: SimulatedStore) -> dict[bytes, bytes]:
    records = read_everything(log, store)
    return values_of([(bytes(r.key or b""), r.value and bytes(r.value)) for r in records])


def filled(**settings: str) -> Machine:
    """Four clean segments have objects and no `.log` here; two batches more are dirty."""
    machine = Machine(**settings)
    for number in range(14):
        machine.put("abcdefghijklm"[number % 13], f"{number:02}")
    machine.clean()
    assert [s.is_remote for s in machine.log.segments] == [*[True] * 4, False]
    machine.put("a", "later")
    machine.put("b", None)
    return machine


def objects(machine: Machine) -> set[str]:
    return set(machine.store.segments)


def test_only_what_is_clean_goes_to_the_store() -> None:
    machine = Machine()
    for number in range(14):
        machine.put("abcdefg"[number % 7], f"{number:02}")
    machine.roll()
    assert (next_to_upload(machine.log), backlog_of(machine.log)) == (None, (0, 0))
    machine.ship()
    machine.compact()
    assert next_to_upload(machine.log) is machine.log.segments.first
    assert backlog_of(machine.log)[0] == sum(s.size for s in list(machine.log.segments)[:-1])
    assert machine.upload() > 0
    machine.check()


def test_a_log_is_compacted_up_to_what_the_bucket_has() -> None:
    """Else the bucket would lose an older value before it has the newer one."""
    machine = Machine()
    for number in range(14):
        machine.put("abcdefg"[number % 7], f"{number:02}")
    machine.roll()
    assert machine.compact() is None
    assert find_cleanable(machine.log, machine.now_ms) is None
    machine.ship()
    assert machine.compact() is not None


def test_rewriting_replaces_the_objects() -> None:
    machine = filled()
    before = objects(machine)
    machine.roll()
    machine.ship()
    assert machine.compact() is not None
    # The map has the earlier objects until the new ones are there.
    assert objects_to_erase(machine.log) != []
    assert machine.erase() == 0
    machine.check()
    assert machine.upload() > 0
    machine.check()
    assert machine.erase() == 0
    machine.ship()
    machine.check()
    assert machine.erase() > 0
    assert before - objects(machine)
    assert len(objects(machine)) == machine.log.segments.uploaded
    machine.check()
    machine.drop_local()
    machine.check()
    machine.restart()
    machine.check()
    assert audit_directory(ROOT, machine.disk).errors == 0


def test_a_segment_that_stays_as_it_is_keeps_its_object_and_leaves_the_disk_again() -> None:
    machine = Machine()
    for number in range(14):
        machine.put(f"key-{number}", "value")
    machine.clean()
    before = objects(machine)
    machine.put("key-new", "value")
    machine.roll()
    machine.ship()
    gets = machine.store.count("GET")
    machine.compact()
    assert machine.store.count("GET") > gets
    assert before <= objects(machine)
    assert [s.is_remote for s in machine.log.segments][: len(before)] == [True] * len(before)
    assert machine.erase() == 0
    machine.check()


@pytest.mark.parametrize("survival", list(Survival))
def test_a_crash_leaves_the_old_segments_or_the_new_one(survival: Survival) -> None:
    """After each step of a round, with the objects that a start finds."""
    at, is_whole = 0, False
    while not is_whole:
        machine = filled()
        machine.roll()
        machine.ship()
        tier = StoredLogs(machine.store, machine.shipper.shipped_end)
        round_ = compact(machine.log, now_ms=machine.now_ms, map_bytes=1 << 20, tier=tier)
        for number, call in enumerate(round_):
            if number == at:
                break
            if call is not None:
                call.run()
        else:
            is_whole = True
        machine.restart(survival)
        machine.check()
        assert audit_directory(ROOT, machine.disk).errors == 0
        machine.clean()
        machine.check()
        at += 1
    assert at > 10


def test_retention_leaves_what_a_round_reads() -> None:
    machine = filled()
    machine.roll()
    machine.ship()
    tier = StoredLogs(machine.store, machine.shipper.shipped_end)
    seen = 0
    for call in compact(machine.log, now_ms=machine.now_ms, map_bytes=1 << 20, tier=tier):
        if call is not None:
            call.run()
        seen += len(machine.log.changes.being_read)
        drop_expired_locally(machine.log, machine.now_ms + 100_000)
    assert seen > 0
    assert machine.log.changes.being_read == []
    machine.check()


@pytest.mark.parametrize("fault", [StoreFault.REFUSED, StoreFault.TORN])
def test_a_store_that_fails_leaves_the_log_as_it_was(fault: StoreFault) -> None:
    machine = filled()
    machine.roll()
    machine.ship()
    machine.store.faults = {"GET": [fault] * 20}
    with pytest.raises(StoreFailed):
        machine.compact()
    machine.store.faults = {}
    assert not any(name.endswith(".cleaned") for name in machine.disk.list_directory(f"{ROOT}/t-0"))
    machine.check()
    assert machine.compact() is not None
    machine.check()


def test_a_restored_log_is_compacted_from_where_it_was_clean() -> None:
    machine = filled()
    machine.ship()
    assert machine.restored().cleaned_offset == machine.log.cleaned_offset == 14
    machine.roll()
    machine.ship()
    machine.compact()
    # The objects in the map are older: their keys were not compared with each other.
    machine.ship()
    assert machine.restored().cleaned_offset < machine.log.cleaned_offset
    machine.check()


def test_a_deleted_topic_takes_superseded_objects_with_it() -> None:
    machine = filled()
    machine.roll()
    machine.ship()
    machine.compact()
    assert machine.log.manifest.superseded
    machine.dir.delete_topic("t", machine.now_ms)
    machine.ship()
    run_steps(machine.dir.erase_remote(machine.now_ms + 10_000_000, machine.store, lambda _: True))
    assert objects(machine) == set()


@pytest.mark.parametrize("seed", range(12))
def test_any_order_of_work_keeps_the_values(seed: int) -> None:
    machine, rng = Machine(), Random(seed)
    steps = [
        machine.roll,
        machine.ship,
        machine.compact,
        machine.upload,
        machine.erase,
        machine.drop_local,
        machine.clean,
    ]
    for number in range(120):
        kind = rng.random()
        if kind < 0.5:
            value = None if rng.random() < 0.3 else f"{number:03}"
            machine.put(rng.choice("abcdefghij"), value)
        elif kind < 0.97:
            rng.choice(steps)()
        elif kind < 0.985:
            machine.restart()
        else:
            machine.log.flush()
            machine.restart(rng.choice(list(Survival)))
        machine.log.flush()
        if number % 3 == 0:
            machine.check()


def test_a_segment_that_is_being_swapped_in_is_not_uploaded() -> None:
    """A start would find its object beside the facts of the segment that it replaces."""
    machine = filled()
    machine.roll()
    machine.ship()
    tier = StoredLogs(machine.store, machine.shipper.shipped_end)
    round_ = compact(machine.log, now_ms=machine.now_ms, map_bytes=1 << 20, tier=tier)
    before = machine.log.segments.replacements
    for call in round_:
        if machine.log.segments.replacements > before:
            break
        if call is not None:
            call.run()
    round_.close()
    assert machine.log.changes.swap is not None
    assert machine.upload() == 0
    assert drop_expired_locally(machine.log, machine.now_ms + 100_000, is_pressed=True) == []
    machine.restart(Survival.KEPT)
    machine.check()
