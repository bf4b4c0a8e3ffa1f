"""The bucket against the directory: what is missing, and what may be deleted."""

from random import Random

import pytest

from storage.audit.findings import Severity
from storage.audit.fsck import audit_directory
from storage.audit.remote import Comparison, compare, read_partitions
from storage.directory.data_dir import DataDir
from storage.disk.checkpoints import format_uuid
from storage.disk.steps import run_steps
from storage.errors import StoreFailed
from storage.log.log import Log
from storage.remote.local import drop_expired_locally
from storage.remote.object_store import StoredObject
from tests.support.logs import batch
from tests.support.simulated_disk import SimulatedDisk
from tests.support.simulated_store import SimulatedStore, StoreFault
from tests.support.tiered import tiered_broker, upload_all

ROOT = "/data"
NOW_MS = 10_000
DAY_MS = 86_400_000


class Bench:
    """A data directory with one tiered topic of four segments, three of them in the store."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk()
        self.store = SimulatedStore()
        self.dir = DataDir.open(ROOT, files=self.disk, broker_config=tiered_broker(), now_ms=NOW_MS)
        settings = {
            "remote.storage.enable": "true", "local.retention.ms": "0", "segment.bytes": "400",
        }  # fmt: skip
        self.topic = run_steps(self.dir.create_topic("t", 1, settings, NOW_MS))
        for number in range(8):
            self.log.append(memoryview(batch(5_000 + number, size=150)), now_ms=NOW_MS)
        self.log.flush()
        upload_all(self.log, self.store, Random(1), self.topic.topic_id)

    @property
    def log(self) -> Log:
        return self.topic.logs[0]

    def compare(
        self, *, journal: bytes = b"of other topics", now_ms: int = NOW_MS + DAY_MS
    ) -> Comparison:
        return compare(
            read_partitions(ROOT, self.disk),
            self.store.list_objects(),
            journal=journal,
            now_ms=now_ms,
        )


def test_all_is_well() -> None:
    bench = Bench()
    drop_expired_locally(bench.log, NOW_MS)
    bench.log.flush()
    (part,) = read_partitions(ROOT, bench.disk)
    assert (len(part.objects), part.remote_only, part.waiting_bytes) == (3, 3, 0)
    found = bench.compare()
    assert (found.missing, found.garbage, found.stored) == ([], [], 3)
    bench.dir.close(NOW_MS)
    report = audit_directory(ROOT, bench.disk)
    assert report.findings == []
    (summary,) = report.logs.values()
    assert (summary.remote_segments, summary.segments) == (3, 1)


def test_the_audit_finds_a_damaged_index_of_a_remote_segment() -> None:
    bench = Bench()
    drop_expired_locally(bench.log, NOW_MS)
    bench.dir.close(NOW_MS)
    bench.disk.damage(f"{ROOT}/t-0/{0:020d}.timeindex", 3, b"\xff")
    (finding,) = audit_directory(ROOT, bench.disk).findings
    assert "timeindex" in str(finding)


@pytest.mark.parametrize("content", [None, b"", b"x"])
@pytest.mark.parametrize("is_clean", [True, False])
def test_the_audit_finds_a_manifest_that_has_lost_its_objects(
    content: bytes | None, is_clean: bool
) -> None:
    """A start quarantines the log, so an audit must not call it sound."""
    bench = Bench()
    drop_expired_locally(bench.log, NOW_MS)
    bench.log.flush()
    first, path = bench.log.segments.first_local.base_offset, bench.log.path
    if is_clean:
        bench.dir.close(NOW_MS)
    manifest = f"{path}/segment-manifest"
    if content is None:
        bench.disk.unlink(manifest)
    else:
        bench.disk.replace_atomically(manifest, content)
    (finding,) = [one for one in audit_directory(ROOT, bench.disk).findings if one.rule == "D1"]
    assert (finding.severity, finding.path) == (Severity.ERROR, manifest)
    assert finding.expected == f"the objects of offsets 0 to {first - 1}"


def test_a_tiered_log_without_objects_is_sound() -> None:
    bench = Bench()
    bench.dir.close(NOW_MS)
    bench.disk.unlink(f"{bench.log.path}/segment-manifest")
    found = audit_directory(ROOT, bench.disk).findings
    assert [one for one in found if one.severity is Severity.ERROR] == []


def test_a_missing_object_is_found() -> None:
    bench = Bench()
    key = next(iter(bench.store.objects))
    del bench.store.objects[key]
    assert [one.key for one in bench.compare().missing] == [key]


def test_an_upload_that_a_crash_cut_off_is_garbage_after_a_day() -> None:
    bench = Bench()
    for number in range(2):
        bench.log.append(memoryview(batch(6_000 + number, size=350)), now_ms=NOW_MS)
    bench.log.flush()
    bench.store.faults["GET"] = [StoreFault.LOST]
    with pytest.raises(StoreFailed):
        upload_all(bench.log, bench.store, Random(2), bench.topic.topic_id)
    assert len(bench.store.objects) == 4
    assert bench.compare(now_ms=NOW_MS).garbage == []
    (garbage,) = bench.compare().garbage
    named = {one.key for one in bench.log.manifest.remote.values()}
    assert garbage.key not in named
    assert bench.store.objects.keys() - named == {garbage.key}


def test_the_only_copy_is_never_garbage() -> None:
    bench = Bench()
    bench.dir.close(NOW_MS)
    journal = format_uuid(bench.topic.topic_id).encode()
    # The directory is lost: the journal still knows the topic.
    gone = SimulatedDisk()
    gone.make_directory(ROOT)
    found = compare(
        read_partitions(ROOT, gone),
        bench.store.list_objects(),
        journal=b'{"id":"' + journal + b'"}',
        now_ms=NOW_MS + DAY_MS,
    )
    assert found.garbage == []
    # The manifest is lost: the directory does not say what is in use.
    kept = bench.disk.read_all(f"{ROOT}/t-0/segment-manifest")
    bench.disk.unlink(f"{ROOT}/t-0/segment-manifest")
    assert bench.compare().garbage == []
    bench.disk.replace_atomically(f"{ROOT}/t-0/segment-manifest", kept)
    # A manifest with a damaged line in its middle does not say all it named.
    bench.disk.damage(f"{ROOT}/t-0/segment-manifest", 60, b"\x00")
    found = bench.compare()
    assert found.garbage == []
    assert not read_partitions(ROOT, bench.disk)[0].is_whole


def test_what_the_bucket_names_is_never_garbage() -> None:
    """The directory may be an older copy; a restore would read these objects."""
    bench = Bench()
    where = bench.log.manifest.remote[0]
    bench.log.manifest.remember_erased(where)
    assert [one.key for one in bench.compare().garbage] == [where.key]
    found = compare(
        read_partitions(ROOT, bench.disk),
        bench.store.list_objects(),
        named_there=[where],
        journal=b"of other topics",
        now_ms=NOW_MS + DAY_MS,
    )
    assert found.garbage == []


def test_objects_of_a_topic_that_nothing_knows_are_garbage() -> None:
    bench = Bench()
    other = f"{'ab' * 16}/0/{0:020d}-0-{7:016x}.segment"
    bench.store.create(other, b"x")
    bench.store.create("not/ours", b"x")
    assert [one.key for one in bench.compare().garbage] == [other]
    # Without a journal this may be a part of the directory.
    assert bench.compare(journal=b"").garbage == []
    assert StoredObject(other, 1, 1_000) in list(bench.store.list_objects())


def test_an_object_below_the_start_is_not_missing() -> None:
    bench = Bench()
    bench.log.delete_before(2)
    key = bench.log.manifest.remote[0].key
    del bench.store.objects[key]
    assert bench.compare().missing == []


def test_stray_and_deleted_partitions_keep_their_objects() -> None:
    for ending in ("stray", "delete"):
        bench = Bench()
        bench.log.abandon()
        bench.disk.rename(f"{ROOT}/t-0", f"{ROOT}/t-0.{'0' * 32}-{ending}")
        found = bench.compare()
        assert (found.garbage, found.missing) == ([], [])
