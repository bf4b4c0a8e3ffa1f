"""Rounds of shipping: of several entries, cut between them, answered late, after a start."""

from collections.abc import Iterator
from random import Random

import pytest

from protocol.records.builder import build_batch
from protocol.records.record import Record
from storage.bucket import differences, shipping
from storage.bucket import ends as noted_ends
from storage.bucket import journal as journals
from storage.bucket.audit import audit_bucket
from storage.bucket.ends import EndsQueue
from storage.bucket.journal import JOURNAL_PREFIX, BucketJournal, read_state
from storage.bucket.map import BucketState
from storage.bucket.restore import restore
from storage.bucket.shipping import Shipper
from storage.directory.data_dir import DataDir
from storage.disk.steps import run_steps
from storage.errors import BucketEmptied, StoreFailed
from storage.log.log import Log
from storage.remote.local import drop_expired_locally
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


def restored_ends(store: SimulatedStore, topics: tuple[int, ...] = (3,)) -> dict[str, int]:
    """The ends of all logs on a machine that has only the bucket, of so many topics."""
    disk = SimulatedDisk()
    disk.make_directory(ROOT)
    restore(read_state(store), store, ROOT, disk, cluster_id="c", directory_id=bytes(range(16)))
    again = DataDir.open(ROOT, files=disk, broker_config=CONFIG, now_ms=NOW_MS)
    assert len(again.topics) in topics
    assert {topic.logs[0].offline_reason for topic in again.topics.values()} == {None}
    return {name: topic.logs[0].log_end_offset for name, topic in again.topics.items()}


@pytest.fixture
def small_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipping, "ENTRY_BYTES", 400)
    monkeypatch.setattr(shipping, "_ENTRIES_AT_ONCE", 1)


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


@pytest.mark.usefixtures("small_entries")
def test_a_round_ships_up_to_the_oldest_ends_that_were_noted() -> None:
    machine = Machine()
    machine.append("t")
    machine.commit("a")
    machine.ship()
    noted = []
    for _ in range(3):
        machine.append("s")
        machine.append("t", 2)
        machine.commit("b")
        machine.shipper.note_ends()
        noted.append(machine.ends())
    machine.append("t")
    last = machine.shipper.note_ends()
    machine.append("t")
    for ends in noted:
        assert not machine.shipper.is_shipped(last)
        machine.ship()
        assert restored_ends(machine.store) == ends
    machine.ship()
    assert machine.shipper.is_shipped(last)
    assert not machine.shipper.has_noted
    ((log, _),) = machine.shipper.waiting()
    assert log is machine.log("t")
    machine.ship()
    assert restored_ends(machine.store) == machine.ends()


def test_a_round_covers_all_noted_ends_that_a_few_entries_have_room_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a slow store, each round may take longer than the time between two moments."""
    machine = Machine()
    machine.append("t")
    machine.ship()
    size = len(batch(NOW_MS, size=150))
    monkeypatch.setattr(shipping, "ENTRY_BYTES", 5 * size // 4)
    noted = []
    for _ in range(12):
        machine.append("t", 2)
        machine.shipper.note_ends()
        noted.append(machine.ends())
    for number in range(1, 12, 2):
        machine.ship()
        assert restored_ends(machine.store) == noted[number]
    assert not machine.shipper.has_noted


def test_no_offset_of_a_deleted_topic_comes_with_another_one_of_its_name() -> None:
    """The ends from before the deletion have a commit that the new topic has no records for."""
    machine = Machine()
    machine.append("t", 3)
    machine.commit("offset of t")
    machine.ship()
    machine.append("t")
    machine.commit("offset of t")
    machine.shipper.note_ends()
    machine.dir.delete_topic("t", NOW_MS)
    machine.commit("deletion of it")
    run_steps(machine.dir.create_topic("t", 1, ONE_SEGMENT, NOW_MS))
    machine.append("t")
    machine.ship()
    assert restored_ends(machine.store) == machine.ends()
    assert not machine.shipper.has_noted


@pytest.mark.usefixtures("small_entries")
def test_no_offset_comes_with_a_topic_that_was_deleted_during_a_round() -> None:
    """Its records could not be read any more, and the commit after them would be there."""
    machine = Machine()
    machine.append("t", 3)
    machine.commit("offset of t")
    machine.ship()
    before = machine.ends()
    machine.append("s", 9)
    machine.append("t")
    machine.commit("offset of t")
    steps = machine.shipper.ship()
    for number, call in enumerate(steps):
        assert restored_ends(machine.store) == before
        if call is not None:
            call.run()
        if number == 8:
            machine.dir.delete_topic("t", NOW_MS)
            break
    for call in steps:
        found = restored_ends(machine.store, (3, 2))
        assert found in (before, machine.ends())
        if call is not None:
            call.run()
    assert restored_ends(machine.store, (2,)) == machine.ends()


def test_an_object_that_reaches_over_the_noted_ends_is_named_later() -> None:
    """Its log would be ahead of the others: half of a transaction, for one."""
    machine = Machine(TIERED)
    machine.append("s")
    machine.ship()
    machine.append("t", 3)
    machine.shipper.note_ends()
    noted = machine.ends()
    machine.append("t", 9)
    machine.commit("a")
    log, topic_id = machine.log("t"), machine.dir.topics["t"].topic_id
    while (due := next_to_upload(log)) is not None:
        run_steps(upload_segment(log, due, topic_id, machine.store, Random(due.base_offset)))
    assert (log.segments.remote_end or 0) > noted["t"]
    unnamed = dict(machine.shipper.waiting())[log]
    assert unnamed == sum(segment.size for segment in log.segments)
    machine.ship()
    assert restored_ends(machine.store) == noted
    assert machine.shipper.has_changes()
    machine.ship()
    assert restored_ends(machine.store) == machine.ends()
    assert not machine.shipper.has_changes()
    assert list(machine.shipper.waiting()) == []
    assert audit_bucket(read_state(machine.store), machine.store).problems == []


def test_local_copies_wait_until_the_journal_names_their_objects() -> None:
    machine = Machine({**TIERED, "local.retention.bytes": "0", "file.delete.delay.ms": "0"})
    machine.append("t", 6)
    log, topic_id = machine.log("t"), machine.dir.topics["t"].topic_id
    machine.ship()
    while (due := next_to_upload(log)) is not None:
        run_steps(upload_segment(log, due, topic_id, machine.store, Random(due.base_offset)))
    names = machine.shipper.names
    assert drop_expired_locally(log, NOW_MS, is_named=names) == []
    assert drop_expired_locally(log, NOW_MS, is_named=names, is_pressed=True) == []
    machine.ship()
    dropped = drop_expired_locally(log, NOW_MS, is_named=names)
    assert len(dropped) == log.segments.uploaded > 1


def test_records_that_only_the_store_has_need_later_ends() -> None:
    """A directory of an earlier version may have dropped them before the journal named them."""
    machine = Machine({**TIERED, "local.retention.bytes": "0", "file.delete.delay.ms": "0"})
    machine.append("t", 3)
    machine.ship()
    machine.append("s")
    machine.shipper.note_ends()
    machine.append("t", 6)
    log, topic_id = machine.log("t"), machine.dir.topics["t"].topic_id
    while (due := next_to_upload(log)) is not None:
        run_steps(upload_segment(log, due, topic_id, machine.store, Random(due.base_offset)))
    assert len(drop_expired_locally(log, NOW_MS)) > 1
    machine.ship()
    assert restored_ends(machine.store) == machine.ends()
    assert not machine.shipper.has_noted


@pytest.mark.usefixtures("small_entries")
def test_rounds_stay_short_when_more_comes_than_the_store_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A round that took all there is would be longer than the one before it, without a bound."""
    monkeypatch.setattr(differences, "MERGED_BYTES", 400)
    machine = Machine()
    machine.ship()
    entries, calls = [], 0
    machine.append("t", 8)
    for _ in range(20):
        before = machine.journal.state.number
        for call in machine.shipper.ship():
            if call is not None:
                call.run()
                calls += 1
                machine.append("t")
                if calls % 8 == 0:
                    machine.shipper.note_ends()
        entries.append(machine.journal.state.number - before)
    (waiting,) = (size for _, size in machine.shipper.waiting())
    assert waiting > 10 * 8 * len(batch(NOW_MS, size=150)), "the store takes as much as comes"
    assert max(entries) < 12


def test_noted_ends_are_thinned_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a store is down for long, as many are kept as rounds should be made of it."""
    monkeypatch.setattr(noted_ends, "ENDS_MAX", 32)
    machine = Machine()
    logs = [machine.log(name) for name in ("s", "t")]
    queue = EndsQueue()
    noted = [queue.note(logs) for _ in range(160)]
    left = []
    while (oldest := run_steps(queue.newest_within(0, len))) is not None:
        left.append(oldest.number)
        queue.reach(oldest)
    assert 8 <= len(left) <= 16
    assert left == sorted(left)
    assert left[-1] == noted[-1].number
    assert all(queue.is_reached(one) for one in noted)
    assert not queue.is_reached(queue.now([]))


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


def test_records_may_be_deleted_after_ends_were_noted() -> None:
    """The log then begins after the noted end, and a restore begins there, too."""
    machine = Machine()
    machine.append("t", 3)
    machine.shipper.note_ends()
    machine.append("t", 6)
    machine.log("t").delete_before(8)
    machine.ship()
    assert restored_ends(machine.store)["t"] >= 8
    machine.ship()
    assert restored_ends(machine.store) == machine.ends()
