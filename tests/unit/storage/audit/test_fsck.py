"""The auditor: silent over a sound directory, and it names everything that is put wrong in it."""

import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from config import load
from protocol.records.builder import build_batch, build_end_txn_marker
from protocol.records.record import Record
from storage.append.plan import Origin
from storage.audit.fsck import Finding, Severity, audit_directory
from storage.directory.data_dir import DataDir
from storage.disk.checkpoints import CLEAN_SHUTDOWN_FILE, write_clean_shutdown
from storage.disk.files import Files, RealFiles
from storage.disk.steps import run_steps
from storage.errors import HalfWrittenDataDir
from storage.log.log import Log
from tests.support.power_loss import Survival
from tests.support.simulated_disk import Operation, PowerCut, SimulatedDisk

ROOT = "/data"
NOW = 1_700_000_000_000
FIRST = f"{ROOT}/t-0/{0:020d}"

_BATCH_BYTES = 300


def produce(log: Log, number: int, **fields: int | bool) -> None:
    records = [Record(0, NOW + (number * 7) % 50, b"k", b"v" * 90) for _ in range(2)]
    batch = build_batch(records, **fields)  # type: ignore[arg-type]
    log.append(memoryview(bytearray(batch)), now_ms=NOW)


def sound_directory() -> SimulatedDisk:
    """Two partitions, several segments, producers, an aborted transaction, a clean stop."""
    disk = SimulatedDisk()
    data_dir = DataDir.open(ROOT, files=disk, broker_config=load(), now_ms=NOW)
    overrides = {"segment.bytes": "2000", "index.interval.bytes": "300"}
    topic = run_steps(data_dir.create_topic("t", 2, overrides, NOW))
    log = topic.logs[0]
    for number in range(12):
        produce(log, number)
    for number in range(6):
        produce(log, number, producer_id=5, producer_epoch=0, base_sequence=2 * number)
    produce(log, 0, producer_id=9, producer_epoch=1, base_sequence=0, is_transactional=True)
    marker = build_end_txn_marker(commit=False, producer_id=9, producer_epoch=1, timestamp_ms=NOW)
    log.append(memoryview(bytearray(marker)), now_ms=NOW, origin=Origin.COORDINATOR)
    for number in range(12):
        produce(log, number)
    produce(topic.logs[1], 0)
    data_dir.close(NOW)
    return disk


def audit(path: str, files: Files) -> list[Finding]:
    return audit_directory(path, files).findings


def rules(disk: SimulatedDisk) -> set[str]:
    return {finding.rule for finding in audit(ROOT, disk)}


def rewrite(disk: SimulatedDisk, path: str, change: Callable[[bytes], bytes]) -> None:
    disk.replace_atomically(path, change(disk.read_all(path)))


def test_sound_directory_has_no_findings() -> None:
    disk = sound_directory()
    report = audit_directory(ROOT, disk)
    assert [str(finding) for finding in report.findings] == []
    assert report.stopped_cleanly
    assert report.errors == 0
    summary = report.logs["t", 0]
    assert (summary.log_end_offset, summary.batches, summary.records) == (63, 32, 63)
    assert summary.segments > 3
    assert report.logs["t", 1].records == 2


def test_audit_changes_nothing() -> None:
    disk = sound_directory()
    before = disk.tree()
    audit(ROOT, disk)
    assert disk.tree() == before


def test_progress_is_reported_per_partition() -> None:
    steps: list[tuple[int, int]] = []
    audit_directory(
        ROOT, sound_directory(), progress=lambda done, total: steps.append((done, total))
    )
    assert steps == [(1, 2), (2, 2)]


def test_real_directory_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    path = str(tmp_path / "data")
    data_dir = DataDir.open(path, files=RealFiles(), broker_config=load(), now_ms=NOW)
    run_steps(data_dir.create_topic("t", 1, {}, NOW))
    data_dir.close(NOW)
    assert audit(path, RealFiles()) == []
    (tmp_path / "data" / "meta.properties").chmod(0o644)
    findings = audit(path, RealFiles())
    assert [(finding.rule, finding.found) for finding in findings] == [("D9", "0644")]


@pytest.mark.parametrize("at", [5, 17, 22, 25, 40, 60, 100, 250])
def test_flipped_bits_in_a_batch_are_found(at: int) -> None:
    disk = sound_directory()
    byte = disk.read_all(f"{FIRST}.log")[at]
    disk.damage(f"{FIRST}.log", at, bytes([byte ^ 0x10]))
    assert rules(disk) & {"D1", "D2"}


def test_torn_end_is_an_error_after_a_clean_stop_and_a_warning_after_a_crash() -> None:
    disk = sound_directory()
    last = max(name for name in disk.list_directory(f"{ROOT}/t-0") if name.endswith(".log"))
    disk.open(f"{ROOT}/t-0/{last}").append(b"\0" * 30)
    assert [f.severity for f in audit(ROOT, disk) if f.rule == "D2"] == [Severity.ERROR]
    disk.unlink(f"{ROOT}/{CLEAN_SHUTDOWN_FILE}")
    assert [f.severity for f in audit(ROOT, disk) if f.rule == "D2"] == [Severity.WARNING]
    for unclean, severity in (("other-0", Severity.ERROR), ("t-0", Severity.WARNING)):
        write_clean_shutdown(ROOT, disk, [unclean])
        assert [f.severity for f in audit(ROOT, disk) if f.rule == "D2"] == [severity]


def test_damage_before_the_last_segment_is_an_error_after_a_crash_too() -> None:
    disk = sound_directory()
    disk.unlink(f"{ROOT}/{CLEAN_SHUTDOWN_FILE}")
    disk.damage(f"{FIRST}.log", 100, b"????")
    finding = next(f for f in audit(ROOT, disk) if f.rule == "D2")
    assert finding.severity is Severity.ERROR
    assert finding.position == 0
    assert str(finding).startswith(f"error D2 {FIRST}.log at byte 0: expected a whole batch")


def test_missing_segment_is_found() -> None:
    disk = sound_directory()
    names = [name for name in disk.list_directory(f"{ROOT}/t-0") if name.endswith(".log")]
    for suffix in (".log", ".index", ".timeindex"):
        disk.unlink(f"{ROOT}/t-0/{names[1].replace('.log', suffix)}")
    assert "D1" in rules(disk)


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content[:-12],
        lambda content: content[:-5],
        lambda content: content + bytes(12),
        lambda content: content[:-12] + struct.pack(">qi", NOW + 999, 3),
        lambda content: content[12:] + content[:12],
        lambda content: b"",
    ],
    ids=["last entry gone", "torn", "padded", "wrong maximum", "order", "empty"],
)
def test_lies_in_the_time_index_are_found(change: Callable[[bytes], bytes]) -> None:
    disk = sound_directory()
    assert len(disk.read_all(f"{FIRST}.timeindex")) > 12
    rewrite(disk, f"{FIRST}.timeindex", change)
    assert rules(disk) == {"D3"}


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content[:-3],
        lambda content: content + bytes(8),
        lambda content: content[:4] + struct.pack(">i", 7) + content[8:],
        lambda content: struct.pack(">i", 4) + content[4:],
        lambda content: content[8:] + content[:8],
    ],
    ids=["torn", "padded", "wrong position", "wrong offset", "order"],
)
def test_lies_in_the_offset_index_are_found(change: Callable[[bytes], bytes]) -> None:
    disk = sound_directory()
    assert len(disk.read_all(f"{FIRST}.index")) > 8
    rewrite(disk, f"{FIRST}.index", change)
    assert rules(disk) == {"D4"}


def test_lie_in_the_transaction_index_is_found() -> None:
    disk = sound_directory()
    (name,) = [n for n in disk.list_directory(f"{ROOT}/t-0") if n.endswith(".txnindex")]
    rewrite(disk, f"{ROOT}/t-0/{name}", lambda content: content[:-1] + b"\x63")
    assert rules(disk) == {"D6"}


def test_lie_in_a_producer_snapshot_is_found() -> None:
    disk = sound_directory()
    snapshots = [n for n in disk.list_directory(f"{ROOT}/t-0") if n.endswith(".snapshot")]
    rewrite(disk, f"{ROOT}/t-0/{snapshots[-1]}", lambda content: content[:-1] + b"\x63")
    assert rules(disk) == {"D6"}


def test_lie_in_the_leader_epochs_is_found() -> None:
    disk = sound_directory()
    path = f"{ROOT}/t-0/leader-epoch-checkpoint"
    disk.replace_atomically(path, b"0\n2\n0 0\n7 40\n")
    assert rules(disk) == {"D6"}
    disk.replace_atomically(path, b"0\n2\n0 0\n1 4000\n")
    assert rules(disk) == {"D6"}
    disk.replace_atomically(path, b"junk")
    assert rules(disk) == {"D6"}


@pytest.mark.parametrize(
    "name",
    [
        "recovery-point-offset-checkpoint",
        "log-start-offset-checkpoint",
        "replication-offset-checkpoint",
    ],
)
def test_checkpoint_ahead_of_its_log_is_found(name: str) -> None:
    disk = sound_directory()
    disk.replace_atomically(f"{ROOT}/{name}", b"0\n1\nt 0 64\n")
    assert "D7" in rules(disk)
    disk.replace_atomically(f"{ROOT}/{name}", b"0\n9\n")
    assert rules(disk) == {"D7"}


@pytest.mark.parametrize("name", ["meta.properties", "metadata.journal"])
def test_damaged_identity_or_journal_is_found(name: str) -> None:
    disk = sound_directory()
    rewrite(disk, f"{ROOT}/{name}", lambda content: b"x" + content[1:])
    if name == "meta.properties":
        rewrite(disk, f"{ROOT}/{name}", lambda content: b"version=9")
    assert "D7" in rules(disk)
    disk.unlink(f"{ROOT}/meta.properties")
    assert "D7" in rules(disk)


def test_a_journal_without_its_first_line_is_found() -> None:
    """A start refuses it, though each of its lines is good."""
    disk = sound_directory()
    rewrite(disk, f"{ROOT}/metadata.journal", lambda content: content.partition(b"\n")[2])
    assert "D7" in rules(disk)
    with pytest.raises(HalfWrittenDataDir, match="does not begin with its format"):
        DataDir.open(ROOT, files=disk, broker_config=load(), now_ms=NOW)


def test_torn_journal_is_a_warning_after_a_crash() -> None:
    disk = sound_directory()
    disk.unlink(f"{ROOT}/{CLEAN_SHUTDOWN_FILE}")
    disk.open(f"{ROOT}/metadata.journal").append(b"abc")
    assert [(f.rule, f.severity) for f in audit(ROOT, disk)] == [("D7", Severity.WARNING)]


@pytest.mark.parametrize(
    "name", [f"{0:020d}.log.cleaned", f"{0:020d}.log.swap", "x.tmp", f"{7:020d}.index"]
)
def test_leftovers_are_found(name: str) -> None:
    disk = sound_directory()
    disk.create(f"{ROOT}/t-0/{name}")
    assert rules(disk) == {"D8"}


def test_files_waiting_for_their_removal_are_no_leftovers() -> None:
    disk = sound_directory()
    disk.create(f"{ROOT}/t-0/{7:020d}.log.deleted")
    assert rules(disk) == set()


def test_directories_that_disagree_with_the_journal_are_found() -> None:
    disk = sound_directory()
    disk.make_directory(f"{ROOT}/stray-0")
    disk.remove_tree(f"{ROOT}/t-1")
    found = {finding.path: finding.found for finding in audit(ROOT, disk)}
    assert found == {f"{ROOT}/t-1": "none", f"{ROOT}/stray-0": "a stray"}


def test_topic_ids_that_disagree_are_found() -> None:
    disk = sound_directory()
    path = f"{ROOT}/t-0/partition.metadata"
    disk.replace_atomically(path, b"")
    assert [f.severity for f in audit(ROOT, disk)] == [Severity.WARNING]
    disk.replace_atomically(path, b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw")
    assert [f.severity for f in audit(ROOT, disk)] == [Severity.ERROR]


def test_gaps_are_legal_in_compacted_topics_only() -> None:
    disk = sound_directory()
    data = bytearray(disk.read_all(f"{FIRST}.log"))
    # The first batch ends one offset later: a record less than offsets, and so on from there.
    second = struct.unpack_from(">i", data, 8)[0] + 12
    without = bytes(data[second:])
    disk.replace_atomically(f"{FIRST}.log", without)
    disk.unlink(f"{FIRST}.index")
    strict = [f for f in audit_directory(ROOT, disk).findings if f.rule == "D2"]
    assert [finding.found for finding in strict] == ["2"]
    lenient = audit_directory(ROOT, disk, compacted=["t"]).findings
    assert [finding for finding in lenient if finding.rule == "D2"] == []


def test_shallow_audit_does_not_decode_records() -> None:
    disk = sound_directory()
    assert audit_directory(ROOT, disk, deep=False).findings == []


def test_every_crash_state_of_a_run_is_at_most_warned_about() -> None:
    disk = SimulatedDisk()
    data_dir = DataDir.open(ROOT, files=disk, broker_config=load(), now_ms=NOW)
    log = run_steps(data_dir.create_topic("t", 1, {"segment.bytes": "2000"}, NOW)).logs[0]
    for number in range(20):
        produce(log, number)
        log.flush()
        findings = audit(ROOT, disk.power_cut(number, Survival.KEPT))
        assert [str(f) for f in findings if f.severity is Severity.ERROR] == []


def killed_in_recovery() -> Iterator[SimulatedDisk]:
    """A directory after a crash, killed again at each operation of its next start."""
    disk = SimulatedDisk()
    data_dir = DataDir.open(ROOT, files=disk, broker_config=load(), now_ms=NOW)
    overrides = {"segment.bytes": "2000", "index.interval.bytes": "300"}
    log = run_steps(data_dir.create_topic("t", 1, overrides, NOW)).logs[0]
    for number in range(24):
        produce(log, number)
    assert len(log.segments) > 2
    for stop_at in range(1, 400):
        crashed = disk.power_cut(stop_at, Survival.KEPT)
        last = crashed.operations + stop_at

        def kill(
            _kind: Operation, _path: str, disk: SimulatedDisk = crashed, last: int = last
        ) -> None:
            if disk.operations >= last:
                raise PowerCut

        crashed.before_operation = kill
        try:
            DataDir.open(ROOT, files=crashed, broker_config=load(), now_ms=NOW)
        except PowerCut:
            crashed.before_operation = None
            yield crashed.power_cut(stop_at, Survival.KEPT)
        else:
            return
    raise AssertionError("the start has more operations than were tried")


def test_half_made_indexes_of_a_killed_recovery_are_warned_about() -> None:
    states = list(killed_in_recovery())
    assert len(states) > 20
    found = [finding for state in states for finding in audit(ROOT, state)]
    assert [str(f) for f in found if f.severity is Severity.ERROR] == []
    assert {"D3", "D4"} & {finding.rule for finding in found}


def test_torn_closed_segment_is_a_warning_from_the_recovery_point_on() -> None:
    disk = sound_directory()
    disk.unlink(f"{ROOT}/{CLEAN_SHUTDOWN_FILE}")
    disk.unlink(f"{ROOT}/recovery-point-offset-checkpoint")
    rewrite(disk, f"{ROOT}/t-0/segment-manifest", lambda content: content[:27])
    disk.damage(f"{FIRST}.log", 100, b"????")
    rewrite(disk, f"{FIRST}.timeindex", lambda content: content[:-12])
    severities = {f.rule: f.severity for f in audit(ROOT, disk) if f.rule in ("D2", "D3")}
    assert severities == {"D2": Severity.WARNING, "D3": Severity.WARNING}
