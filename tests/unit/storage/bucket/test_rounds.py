"""Rounds of shipping: of several entries, cut between them, answered late, after a start."""

from collections.abc import Iterator
from random import Random

import pytest

from protocol.records.builder import build_batch
from protocol.records.record import Record
from storage.bucket import journal as journals
from storage.bucket import shipping
from storage.bucket.audit import audit_bucket
from storage.bucket.journal import JOURNAL_PREFIX, BucketJournal, read_state
from storage.bucket.map import BucketState
from storage.bucket.restore import restore
from storage.bucket.shipping import Shipper
from storage.directory.data_dir import DataDir
from storage.disk.steps import run_steps
from storage.errors import BucketEmptied, StoreFailed
from storage.log.log import Log
from storage.remote.upload import next_to_upload, upload_segment
from tests.support.logs import batch
from tests.support.power_loss import Survival
from tests.support.simulated_disk import SimulatedDisk
from tests.support.simulated_store import SimulatedStore, StoreFault
from tests.unit.storage.bucket.test_audit import CONFIG, ROOT, TIERED
from tests.unit.storage.remote.test_compacted import Machine as CompactedMachine

NOW_MS = 1_000
ONE_SEGMENT = {**TIERED, "segment.bytes": "1000000"}


class Machine:
    """A directory with two users' topics and a compacted one of the broker, and its bucket."""

    def __init__(self, settings: dict[str, str] = ONE_SEGMENT) -> None:
        self.disk, self.store = SimulatedDisk(), SimulatedStore()
        self.disk.make_directory(ROOT)
        self.open()
        for name in ("s", "t"):
            run_steps(self.dir.create_topic(name, 1, settings, NOW_MS))
        run_steps(self.dir.create_topic("groups", 1, {"cleanup.policy": "compact"}, NOW_MS))

    def open(self) -> None:
        self.dir = DataDir.open(ROOT, files=self.disk, broker_config=CONFIG, now_ms=NOW_MS)
        self.journal = BucketJournal(self.store, self.dir.directory_id, Random(1))
        self.shipper = Shipper(self.dir, self.journal, lambda name: name == "groups")

    def log(self, name: str) -> Log:
        return self.dir.topics[name].logs[0]

    def append(self, name: str, count: int = 1) -> None:
        for _ in range(count):
            self.log(name).append(memoryview(batch(NOW_MS, size=150)), now_ms=NOW_MS)
        self.log(name).flush()

    def commit(self, key: str) -> None:
        record = Record(offset=0, timestamp=NOW_MS, key=key.encode(), value=b"v" * 90, headers=())
        self.log("groups").append(memoryview(build_batch([record])), now_ms=NOW_MS)
        self.log("groups").flush()

    def ship(self) -> int:
        if not self.journal.is_owner:
            run_steps(self.shipper.begin())
        return run_steps(self.shipper.ship())

    def ends(self) -> dict[str, int]:
        return {name: topic.logs[0].log_end_offset for name, topic in self.dir.topics.items()}


def restored_ends(store: SimulatedStore) -> dict[str, int]:
    """The ends of all logs on a machine that has only the bucket."""
    disk = SimulatedDisk()
    disk.make_directory(ROOT)
    restore(read_state(store), store, ROOT, disk, cluster_id="c", directory_id=bytes(range(16)))
    again = DataDir.open(ROOT, files=disk, broker_config=CONFIG, now_ms=NOW_MS)
    assert [topic.logs[0].offline_reason for topic in again.topics.values()] == [None] * 3
    return {name: topic.logs[0].log_end_offset for name, topic in again.topics.items()}


@pytest.fixture
def small_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipping, "ENTRY_BYTES", 400)


def restores_while_shipping(machine: Machine) -> Iterator[dict[str, int]]:
    """What a restore gets before each request of a round, and after the last one."""
    for call in machine.shipper.ship():
        yield restored_ends(machine.store)
        if call is not None:
            call.run()
    yield restored_ends(machine.store)


@pytest.mark.usefixtures("small_entries")
def test_a_round_of_several_entries_takes_effect_in_its_last_one() -> None:
    """In between, records of a transaction would be there, and its coordinator would not know."""
    machine = Machine()
    machine.append("t")
    machine.commit("a")
    machine.ship()
    for _ in range(3):
        before = machine.ends()
        machine.append("s", 3)
        machine.append("t", 4)
        machine.commit("b")
        machine.commit("a")
        entries = machine.journal.state.number
        found = list(restores_while_shipping(machine))
        assert machine.journal.state.number > entries + 2
        assert (found[0], found[-1]) == (before, machine.ends())
        assert all(ends in (before, machine.ends()) for ends in found)


@pytest.mark.usefixtures("small_entries")
def test_a_round_of_a_rewritten_log_takes_effect_in_its_last_entry() -> None:
    machine = CompactedMachine(segment_bytes="2000", remote_storage_enable="false")
    machine.shipper = shipper = Shipper(machine.dir, machine.journal, lambda name: True)
    for number in range(20):
        machine.put("abcdefgh"[number % 8], f"{number:02}")
    machine.roll()
    machine.ship()
    machine.compact()
    pieces = len(list(machine.journal.state.keys("tail")))
    for call in shipper.ship():
        assert machine.restored().log_end_offset == 20
        if call is not None:
            call.run()
    assert len(list(machine.journal.state.keys("tail"))) < pieces
    machine.check()


@pytest.mark.usefixtures("small_entries")
def test_records_of_a_round_that_failed_are_not_sent_again() -> None:
    machine = Machine()
    machine.ship()
    machine.append("t", 8)
    machine.store.faults = {"PUT": [None, None, None, StoreFault.REFUSED]}
    with pytest.raises(StoreFailed):
        machine.ship()
    written = machine.journal.state.number
    assert restored_ends(machine.store)["t"] == 0
    assert machine.ship() == 1
    assert machine.journal.state.number == written + 1
    assert restored_ends(machine.store) == machine.ends()


@pytest.mark.usefixtures("small_entries")
def test_records_that_a_checkpoint_has_deleted_are_sent_again() -> None:
    machine = Machine()
    machine.ship()
    machine.append("t", 8)
    machine.store.faults = {"PUT": [None, None, None, StoreFault.REFUSED]}
    with pytest.raises(StoreFailed):
        machine.ship()
    run_steps(machine.journal.checkpoint())
    machine.ship()
    assert restored_ends(machine.store) == machine.ends()


@pytest.mark.usefixtures("small_entries")
def test_uploads_that_end_during_a_round_do_not_hold_it_up() -> None:
    """At full load one ends every moment, and a round that began again would never end."""
    machine = Machine(TIERED)
    machine.append("t")
    machine.ship()
    log, topic_id = machine.log("t"), machine.dir.topics["t"].topic_id
    machine.append("s", 4)
    machine.append("t", 12)
    machine.commit("a")
    before, wanted = restored_ends(machine.store), machine.ends()
    uploaded, entries = 0, machine.journal.state.number
    for call in machine.shipper.ship():
        found = restored_ends(machine.store)
        assert found in (before, wanted)
        due = next_to_upload(log)
        if due is not None and machine.journal.state.number > entries + 3:
            run_steps(upload_segment(log, due, topic_id, machine.store, Random(uploaded)))
            uploaded += 1
        if call is not None:
            call.run()
    assert uploaded > 2
    assert restored_ends(machine.store) == wanted
    assert machine.shipper.has_changes()
    machine.ship()
    assert not machine.shipper.has_changes()
    assert audit_bucket(read_state(machine.store), machine.store).problems == []
    assert restored_ends(machine.store) == wanted


@pytest.mark.parametrize("fault", [StoreFault.LATE, StoreFault.LOST])
def test_a_log_whose_first_entry_turns_up_late_is_continued(fault: StoreFault) -> None:
    machine = Machine()
    run_steps(machine.shipper.begin())
    machine.append("t")
    machine.store.faults = {"PUT": [fault], "HEAD": [StoreFault.REFUSED]}
    with pytest.raises(StoreFailed):
        machine.ship()
    machine.store.settle()
    run_steps(machine.shipper.check())
    machine.append("t")
    machine.ship()
    assert machine.shipper.shipped_end(machine.log("t")) == 2
    assert restored_ends(machine.store) == machine.ends()


@pytest.mark.parametrize("has_backup", [False, True])
def test_a_round_that_was_cut_off_is_not_continued_in_an_emptied_bucket(
    monkeypatch: pytest.MonkeyPatch, has_backup: bool
) -> None:
    """The entries that it has written are gone, and so are those after a backup of the bucket."""
    monkeypatch.setattr(shipping, "ENTRY_BYTES", 400)
    machine = Machine()
    machine.append("s")
    machine.ship()
    backup = dict(machine.store.objects) if has_backup else {}
    machine.append("s", 2)
    machine.append("t", 6)
    machine.ship()
    machine.append("t", 6)
    machine.store.faults = {"PUT": [None, StoreFault.REFUSED]}
    with pytest.raises(StoreFailed):
        machine.ship()
    machine.store.objects = backup
    with pytest.raises(BucketEmptied):
        run_steps(machine.shipper.check())
    run_steps(machine.shipper.begin())
    assert machine.shipper.shipped_end(machine.log("t")) == 0
    machine.ship()
    assert restored_ends(machine.store) == machine.ends()
    assert machine.shipper.shipped_end(machine.log("t")) == 12


@pytest.mark.parametrize("merged", [1, 2])
def test_a_start_does_not_take_a_merged_segment_for_the_one_in_the_bucket(merged: int) -> None:
    """Its first bytes are the same; the bucket has the rest of it in other pieces."""
    machine = CompactedMachine(segment_bytes="1000")
    for key in "abcdef"[: 2 + 2 * merged]:
        machine.put(key, "value")
        if key in "bd":
            machine.roll()
            machine.ship()
    machine.roll()
    machine.ship()
    segments = len(machine.log.segments)
    machine.compact()
    assert len(machine.log.segments) < segments
    machine.restart()
    machine.put("z", "later")
    machine.log.flush()
    machine.ship()
    machine.check()
    machine.upload()
    machine.ship()
    machine.check()


def test_each_start_reads_a_bounded_number_of_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that is killed early never counts to the next checkpoint by itself."""
    monkeypatch.setattr(journals, "CHECKPOINT_ENTRIES", 8)
    machine = Machine()
    most = 0
    for seed in range(12):
        machine.disk = machine.disk.power_cut(seed, Survival.KEPT)
        machine.open()
        for _ in range(4):
            machine.append("t")
            machine.ship()
        if machine.journal.wants_checkpoint:
            run_steps(machine.journal.checkpoint())
        left = [key for key in machine.store.objects if key.startswith(JOURNAL_PREFIX)]
        machine.store.operations.clear()
        assert read_state(machine.store).documents == machine.journal.state.documents
        most = max(most, sum(f"GET {key}" in machine.store.operations for key in left))
    assert most <= 16


def test_entries_are_written_while_a_checkpoint_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the map as it was, and deletes nothing that came after it."""
    monkeypatch.setattr(journals, "CHECKPOINT_ENTRIES", 4)
    machine = Machine()
    for _ in range(6):
        machine.append("t")
        machine.ship()
    assert machine.journal.wants_checkpoint
    for call in machine.journal.checkpoint():
        machine.append("t")
        machine.ship()
        if call is not None:
            call.run()
        assert restored_ends(machine.store) == machine.ends()
        found: BucketState = read_state(machine.store)
        assert found.documents == machine.journal.state.documents
    assert 0 < machine.journal.entries < 6
