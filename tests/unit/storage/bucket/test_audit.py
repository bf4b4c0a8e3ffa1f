"""`fsck --remote`: the journal of a bucket against its objects."""

from itertools import chain
from random import Random
from typing import Any

import pytest

from config import load
from protocol.records.builder import build_batch
from protocol.records.record import Record
from storage.audit.accept_loss import accept_loss
from storage.audit.fsck import audit_directory
from storage.bucket import differences, shipping
from storage.bucket.audit import audit_bucket
from storage.bucket.journal import BucketJournal, entry_key, read_state
from storage.bucket.restore import restore
from storage.bucket.shipping import Shipper
from storage.directory.data_dir import DataDir
from storage.disk import reading
from storage.disk.steps import run_steps
from storage.errors import BucketEmptied, DirectoryOlder, StoreFailed
from storage.log.compaction import compact
from storage.log.log import Log
from storage.log.retention import delete_expired
from storage.remote.erase import erase_unused
from storage.remote.local import drop_expired_locally
from storage.segment.facts import RemoteObject
from storage.segment.segment import Segment
from tests.support.logs import batch
from tests.support.power_loss import Survival
from tests.support.simulated_disk import SimulatedDisk
from tests.support.simulated_store import SimulatedStore, StoreFault
from tests.support.tiered import read_everything, upload_all

ROOT = "/data"
CONFIG = load(command_line={"remote.storage.url": "memory:"})
TIERED = {"remote.storage.enable": "true", "segment.bytes": "400", "local.retention.ms": "0"}


class Machine:
    """A directory with one tiered topic, and its bucket."""

    def __init__(self, disk: SimulatedDisk, store: SimulatedStore) -> None:
        self.disk, self.store = disk, store
        self.open()

    def open(self) -> None:
        self.dir = DataDir.open(ROOT, files=self.disk, broker_config=CONFIG, now_ms=1_000)
        self.journal = BucketJournal(self.store, self.dir.directory_id, Random(1))
        self.shipper = Shipper(self.dir, self.journal, lambda name: False)

    def fill(self, count: int) -> None:
        log = self.dir.topics["t"].logs[0]
        for _ in range(count):
            log.append(memoryview(batch(1_000, size=150)), now_ms=1_000)
        log.flush()

    def ship(self) -> None:
        if not self.journal.is_owner:
            run_steps(self.shipper.begin())
        self.upload()
        run_steps(self.shipper.ship())

    def upload(self) -> None:
        topic = self.dir.topics["t"]
        upload_all(topic.logs[0], self.store, topic_id=topic.topic_id)

    def delete(self, goes: str = "segments") -> None:
        if goes == "topic":
            self.dir.delete_topic("t", 1_000)
            return
        log = self.dir.topics["t"].logs[0]
        log.delete_before(log.high_watermark)
        delete_expired(log, 1_000)

    def erase(self) -> int:
        """Delete the objects that nothing names any more, as the job does; how many."""

        def may_go(where: RemoteObject) -> bool:
            return not self.shipper.names(where)

        logs = [log for topic in self.dir.topics.values() for log in topic.logs]
        erased = sum(run_steps(erase_unused(log, self.store, may_go)) for log in logs)
        return erased + run_steps(self.dir.erase_remote(10_000_000, self.store, may_go))


def filled() -> Machine:
    """Three segments have an object, all is in the bucket."""
    disk = SimulatedDisk()
    disk.make_directory(ROOT)
    machine = Machine(disk, SimulatedStore())
    run_steps(machine.dir.create_topic("t", 1, TIERED, 1_000))
    machine.fill(7)
    machine.ship()
    return machine


@pytest.fixture
def machine() -> Machine:
    return filled()


def audit(machine: Machine, *, is_deep: bool = True) -> list[str]:
    return audit_bucket(read_state(machine.store), machine.store, is_deep=is_deep).problems


def test_a_sound_bucket(machine: Machine) -> None:
    report = audit_bucket(read_state(machine.store), machine.store)
    assert (report.problems, report.orphans) == ([], [])
    assert (report.objects, report.pieces) == (3, 1)


def test_what_is_wrong_is_named(machine: Machine) -> None:
    objects = machine.store.objects
    first, second, third = sorted(machine.store.segments)
    lost = objects.pop(first)
    objects[second] = objects[second][:-1]
    objects[third] = b"x" + objects[third][1:]
    entry = next(key for key in objects if key.startswith("journal/") and b"tail/" in objects[key])
    objects[entry] = b"x" + objects[entry][1:]
    objects[first.replace("-0-", "-9-")] = lost
    machine.store._modified_ms[first.replace("-0-", "-9-")] = 0
    state = machine.journal.state
    report = audit_bucket(state, machine.store)
    assert [problem.split(": ", 1)[1][:12] for problem in report.problems] == [
        "missing, off",
        f"{len(objects[second])} bytes, exp"[:12],
        "CRC-32C " + report.problems[2].split("CRC-32C ")[1][:4],
        "journal/0000",
    ]
    assert [one.key for one in report.orphans] == [first.replace("-0-", "-9-")]
    quick = audit_bucket(state, machine.store, is_deep=False).problems
    assert len(quick) == 2
    del objects[entry]
    assert "is missing" in audit_bucket(state, machine.store).problems[-1]


def test_an_older_copy_of_the_directory_is_refused(machine: Machine) -> None:
    """It would write over records that only the bucket has."""
    older = machine.disk.power_cut(0, Survival.KEPT)
    machine.fill(2)
    machine.ship()
    late = Machine(older, machine.store)
    with pytest.raises(DirectoryOlder, match="t-0 from offset"):
        run_steps(late.shipper.begin())
    assert read_state(machine.store).epoch == 1


def test_a_damaged_partition_holds_up_no_other(machine: Machine) -> None:
    """What it lacks is no sign of an older copy; the bucket keeps what it has of it."""
    run_steps(machine.dir.create_topic("u", 1, TIERED, 1_000))
    machine.ship()
    drop_expired_locally(machine.dir.topics["t"].logs[0], 10_000_000)
    machine.dir.close(1_000)
    machine.disk.unlink(f"{ROOT}/t-0/segment-manifest")
    late = Machine(machine.disk, machine.store)
    topic = late.dir.topics["t"]
    assert topic.logs[0].offline is not None
    before = dict(read_state(machine.store).documents)
    run_steps(late.shipper.begin())
    run_steps(late.shipper.ship())
    assert not late.shipper.has_changes()
    other = late.dir.topics["u"].logs[0]
    other.append(memoryview(batch(1_000, size=150)), now_ms=1_000)
    other.flush()
    assert [log for log, _ in late.shipper.waiting()] == [other]
    run_steps(late.shipper.ship())
    assert not list(late.shipper.waiting())
    assert audit(late) == []
    after = read_state(machine.store).documents
    place = f"/{topic.topic_id.hex()}/"
    kept = {key: value for key, value in before.items() if place in key}
    assert len(kept) > 3
    assert {key: value for key, value in after.items() if place in key} == kept


def test_a_loss_of_names_of_objects_can_be_accepted(machine: Machine) -> None:
    """The quarantine names this command; it used to find no damage."""
    log = machine.dir.topics["t"].logs[0]
    drop_expired_locally(log, 10_000_000)
    first = next(one.base_offset for one in log.segments if not one.is_remote)
    machine.dir.close(1_000)
    machine.disk.unlink(f"{ROOT}/t-0/segment-manifest")
    report = accept_loss(ROOT, "t", 0, machine.disk)
    assert [(lost.first_offset, lost.next_offset) for lost in report.lost] == [(0, first)]
    assert not accept_loss(ROOT, "t", 0, machine.disk).lost
    late = Machine(machine.disk, machine.store)
    log = late.dir.topics["t"].logs[0]
    assert log.offline is None
    assert log.log_start_offset == first
    late.fill(1)
    late.ship()
    assert audit(late) == []
    assert [log.log_start_offset, log.log_end_offset] == [first, 8]


def test_a_loss_of_all_local_records_can_be_accepted(machine: Machine) -> None:
    """What the store has stays; the log used to end at 0."""
    log = machine.dir.topics["t"].logs[0]
    drop_expired_locally(log, 10_000_000)
    (active,) = [one.base_offset for one in log.segments if not one.is_remote]
    machine.dir.close(1_000)
    machine.disk.unlink(f"{ROOT}/t-0/{active:020d}.log")
    assert Machine(machine.disk, machine.store).dir.topics["t"].logs[0].offline is not None
    disk = machine.disk.power_cut(0, Survival.KEPT)
    report = accept_loss(ROOT, "t", 0, disk)
    assert [(lost.first_offset, lost.next_offset) for lost in report.lost] == [(active, 7)]
    assert report.log_end_offset == 7
    log = Machine(disk, machine.store).dir.topics["t"].logs[0]
    assert log.offline is None
    assert [log.log_start_offset, log.log_end_offset] == [0, 7]
    log.append(memoryview(batch(1_000, size=150)), now_ms=1_000)
    log.flush()
    found = [record.offset for record in read_everything(log, machine.store)]
    assert found == [*range(active), 7]


def test_a_local_copy_that_goes_while_a_start_compares_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The segment has its object, and the map has still its piece."""
    monkeypatch.setattr(reading, "SLICE_BYTES", 100)
    monkeypatch.setattr(reading, "FEW_BYTES", 40)
    disk = SimulatedDisk()
    disk.make_directory(ROOT)
    machine = Machine(disk, SimulatedStore())
    run_steps(machine.dir.create_topic("t", 1, TIERED, 1_000))
    machine.fill(1)
    machine.ship()
    machine.fill(2)
    machine.upload()
    late = Machine(disk.power_cut(0, Survival.KEPT), machine.store)
    log = late.dir.topics["t"].logs[0]
    dropped: list[Segment] = []
    for call in late.shipper.begin():
        reads = call is not None and "read_summed" in repr(call._function)
        if call is not None:
            call.run()
        if reads:
            dropped += drop_expired_locally(log, 10_000_000)
    assert [segment.base_offset for segment in dropped] == [0]
    run_steps(late.shipper.ship())
    assert audit(late) == []


def restored(machine: Machine) -> Log:
    """The log of another machine, from the bucket alone."""
    disk = SimulatedDisk()
    disk.make_directory(ROOT)
    state = read_state(machine.store)
    restore(state, machine.store, ROOT, disk, cluster_id="c", directory_id=bytes(range(16)))
    again = DataDir.open(ROOT, files=disk, broker_config=CONFIG, now_ms=1_000)
    return again.topics["t"].logs[0]


def test_an_older_copy_of_the_bucket_gets_what_it_lacks(machine: Machine) -> None:
    """As long as the disk has it: what left the disk and is in no object is named as missing."""
    older = dict(machine.store.objects)
    machine.fill(5)
    records = read_everything(machine.dir.topics["t"].logs[0], machine.store)
    run_steps(machine.shipper.ship())
    machine.store.objects = dict(older)
    machine.dir.close(1_000)
    machine.open()
    machine.ship()
    assert read_state(machine.store).epoch == 2
    assert audit(machine) == []
    log = restored(machine)
    assert read_everything(log, machine.store) == records
    assert (log.log_end_offset, log.leader_epoch) == (len(records), 1)

    newer = machine.store.segments.keys() - older.keys()
    assert newer
    machine.store.objects = older
    machine.dir.close(1_000)
    machine.open()
    run_steps(machine.shipper.begin())
    run_steps(machine.shipper.ship())
    problems = audit(machine)
    assert {problem.partition(": missing")[0] for problem in problems} == newer


def test_many_small_pieces_become_few(machine: Machine) -> None:
    machine.dir.set_topic_overrides("t", {**TIERED, "segment.bytes": "1000000"})
    for _ in range(200):
        machine.fill(1)
        machine.ship()
    report = audit_bucket(read_state(machine.store), machine.store)
    assert report.problems == []
    assert report.pieces < 50
    shipped = sum(len(data) for key, data in machine.store.objects.items() if "journal" in key)
    assert shipped < 200 * 150 * 20
    records = read_everything(machine.dir.topics["t"].logs[0], machine.store)
    disk = SimulatedDisk()
    disk.make_directory(ROOT)
    state = read_state(machine.store)
    restore(state, machine.store, ROOT, disk, cluster_id="c", directory_id=bytes(range(16)))
    again = DataDir.open(ROOT, files=disk, broker_config=CONFIG, now_ms=1_000)
    log = again.topics["t"].logs[0]
    assert read_everything(log, machine.store) == records
    assert log.leader_epoch == 1


def test_a_restored_directory_is_sound(machine: Machine) -> None:
    """Its remote segments have no indexes yet; a damaged one is an error all the same."""
    disk = SimulatedDisk()
    disk.make_directory(ROOT)
    state = read_state(machine.store)
    assert list(state.keys("segment"))
    restore(state, machine.store, ROOT, disk, cluster_id="c", directory_id=bytes(range(16)))
    assert audit_directory(ROOT, disk).errors == 0
    file = disk.create(f"{ROOT}/t-0/{0:020d}.index")
    file.append(b"damaged!")
    file.close()
    assert audit_directory(ROOT, disk).errors == 1


def test_a_restore_reads_damaged_records_as_an_error(machine: Machine) -> None:
    (key,) = (k for k in machine.store.objects if k == entry_key(machine.journal.state.number))
    machine.store.objects[key] = b"x" + machine.store.objects[key][1:]
    disk = SimulatedDisk()
    disk.make_directory(ROOT)
    with pytest.raises(StoreFailed, match="is damaged"):
        restore(
            machine.journal.state,
            machine.store,
            ROOT,
            disk,
            cluster_id="c",
            directory_id=bytes(range(16)),
        )
    assert not disk.exists(f"{ROOT}/meta.properties")


def test_an_emptied_bucket_is_not_written_on(machine: Machine) -> None:
    """No restore would find the records: the entries before the next one are missing."""
    store, objects = machine.store, dict(machine.store.objects)
    store.objects.clear()
    with pytest.raises(BucketEmptied, match=r"has no journal/0+\d"):
        run_steps(machine.shipper.check())
    assert not machine.journal.is_owner
    with pytest.raises(BucketEmptied, match=r"has no .*\.segment"):
        run_steps(machine.shipper.begin())
    machine.dir.close(1_000)
    machine.open()
    with pytest.raises(BucketEmptied, match=r"has no .*\.segment"):
        run_steps(machine.shipper.begin())
    assert store.objects == {}
    store.objects.update(objects)
    machine.ship()
    assert audit(machine) == []


def test_a_bucket_that_had_only_tails_is_filled_again() -> None:
    machine = Machine(SimulatedDisk(), SimulatedStore())
    run_steps(machine.dir.create_topic("t", 1, TIERED | {"segment.bytes": "100000"}, 1_000))
    machine.fill(3)
    machine.ship()
    log = machine.dir.topics["t"].logs[0]
    machine.store.objects.clear()
    with pytest.raises(BucketEmptied):
        run_steps(machine.shipper.check())
    run_steps(machine.shipper.begin())
    assert machine.shipper.shipped_end(log) == 0
    machine.ship()
    assert machine.shipper.shipped_end(log) == 3
    assert (audit(machine), len(list(read_state(machine.store).keys("tail")))) == ([], 1)


def test_a_deleted_topic_leaves_the_bucket(machine: Machine) -> None:
    machine.dir.delete_topic("t", 1_000)
    run_steps(machine.shipper.ship())
    documents = read_state(machine.store).documents
    assert not any(key.startswith(("segment/", "tail/", "log/")) for key in documents)
    assert not any("topic/t" in key for key in documents)


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        ("PUT", StoreFault.REFUSED),
        ("PUT", StoreFault.LATE),
        ("HEAD", StoreFault.REFUSED),
        ("GET", StoreFault.LOST),
    ],
)
@pytest.mark.parametrize("looks", [False, True])
def test_an_object_stays_while_an_entry_that_names_it_may_turn_up(
    machine: Machine, kind: str, fault: StoreFault, looks: bool
) -> None:
    """The outcome of the entry is unknown when the segment is deleted."""
    machine.fill(4)
    machine.upload()
    # Nor is the look at what a PUT has done answered.
    machine.store.faults = {"HEAD": [StoreFault.REFUSED]} if kind == "PUT" else {}
    machine.store.faults[kind] = [fault]
    with pytest.raises(StoreFailed):
        run_steps(machine.shipper.ship())
    machine.delete()
    machine.erase()
    machine.store.is_down = True
    with pytest.raises(StoreFailed):
        run_steps(machine.shipper.ship())
    machine.store.is_down = False
    machine.erase()
    machine.store.settle()
    assert audit(machine) == []
    if looks:
        run_steps(machine.shipper.check())
        machine.erase()
        assert audit(machine) == []
    assert machine.shipper.has_changes()
    run_steps(machine.shipper.ship())
    assert machine.erase() == 5
    assert audit(machine) == []
    assert machine.store.segments == {}


@pytest.mark.parametrize("goes", ["segments", "topic"])
def test_objects_stay_until_the_bucket_names_them_no_more(goes: str) -> None:
    """Segments, or the topic, are deleted before each step of an entry, and erased at once."""
    at = pauses = 0
    while at <= pauses:
        machine = filled()
        machine.fill(4)
        machine.upload()
        steps = chain([None], machine.shipper.ship())
        for pauses, call in enumerate(steps):
            if pauses == at:
                machine.delete(goes)
            machine.erase()
            assert audit(machine) == []
            if call is not None:
                call.run()
            assert audit(machine) == []
        at += 1
    assert pauses


def test_an_object_stays_while_its_entry_is_not_void_for_readers(machine: Machine) -> None:
    """Only the owner could not read the entry, and the next one does not say so yet."""
    machine.fill(4)
    machine.upload()
    machine.store.faults = {
        "GET": [StoreFault.TORN] * 3,
        "PUT": [None, StoreFault.REFUSED],
    }
    with pytest.raises(StoreFailed):
        run_steps(machine.shipper.ship())
    machine.delete()
    machine.erase()
    assert audit(machine) == []


def test_what_an_unknown_entry_has_does_not_stay(machine: Machine) -> None:
    """A topic is created and deleted again while the outcome of its entry is unknown."""
    machine.delete("topic")
    run_steps(machine.shipper.ship())
    run_steps(machine.dir.create_topic("u", 1, {}, 1_000))
    machine.store.faults = {"PUT": [StoreFault.LATE], "HEAD": [StoreFault.REFUSED]}
    with pytest.raises(StoreFailed):
        run_steps(machine.shipper.ship())
    machine.dir.delete_topic("u", 1_000)
    assert machine.shipper.has_changes()
    run_steps(machine.shipper.ship())
    machine.store.settle()
    assert "meta/topic/u" not in read_state(machine.store).documents
    assert not machine.shipper.has_changes()


def test_compaction_while_the_bucket_is_written_takes_no_records_out(machine: Machine) -> None:
    """The end that was noted is then inside a rewritten segment."""
    run_steps(machine.dir.create_topic("groups", 1, {"cleanup.policy": "compact"}, 1_000))
    shipper = Shipper(machine.dir, machine.journal, lambda name: name == "groups")
    log = machine.dir.topics["groups"].logs[0]

    def append(name: str) -> None:
        record = Record(offset=0, timestamp=1_000, key=name.encode(), value=b"v", headers=())
        log.append(memoryview(build_batch([record])), now_ms=1_000)
        log.flush()

    def restored() -> int:
        disk = SimulatedDisk()
        disk.make_directory(ROOT)
        state = read_state(machine.store)
        restore(state, machine.store, ROOT, disk, cluster_id="c", directory_id=bytes(range(16)))
        again = DataDir.open(ROOT, files=disk, broker_config=CONFIG, now_ms=1_000)
        return again.topics["groups"].logs[0].log_end_offset

    for name in "abc":
        append(name)
    log.roll(1_000)
    append("d")
    run_steps(shipper.begin())
    run_steps(shipper.ship())
    assert (restored(), shipper.shipped_end(log)) == (4, 4)
    append("e")
    steps = shipper.ship()
    next(steps)
    append("f")
    log.roll(1_000)
    append("g")
    assert run_steps(compact(log, now_ms=1_000, map_bytes=1 << 20)) is not None
    run_steps(steps)
    assert restored() >= shipper.shipped_end(log) >= 4
    run_steps(shipper.ship())
    assert (restored(), shipper.shipped_end(log)) == (7, 7)


def test_a_log_that_is_in_the_bucket_costs_no_look_at_its_segments(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job asks five times a second, for all partitions."""
    looked: list[Log] = []
    unsealed = differences.unsealed

    def counted(log: Log, found: Any, objects: int) -> list[Segment]:
        looked.append(log)
        return unsealed(log, found, objects)

    monkeypatch.setattr(shipping, "unsealed", counted)
    assert list(machine.shipper.waiting()) == []
    assert looked == []
    machine.fill(1)
    ((log, size),) = machine.shipper.waiting()
    assert (looked, size) == ([log], log.segments.active.size - machine_tail(machine))


def machine_tail(machine: Machine) -> int:
    """Bytes of the active segment that the bucket has."""
    base = machine.dir.topics["t"].logs[0].segments.active.base_offset
    tails = [value for key, value in machine.journal.state.keys("tail") if key.base_offset == base]
    return sum(size for _, _, size, _ in tails)
