"""What an operator gives up to take a log out of quarantine: the damage, and nothing else."""

from pathlib import Path

import pytest

from config import load
from storage.append.plan import Origin
from storage.audit.accept_loss import LossReport, accept_loss
from storage.audit.fsck import audit_directory
from storage.directory.data_dir import DataDir
from storage.disk.file_names import LOG_SUFFIX, segment_file_path
from storage.disk.steps import run_steps
from storage.errors import DataDirLocked
from storage.log.log import Log
from storage.log.values import Isolation
from tests.support.logs import batch, marker, produced, read_all
from tests.support.power_loss import Survival
from tests.support.simulated_disk import SimulatedDisk

ROOT = "/data"
NOW_MS = 1_700_000_000_000
SEGMENT = {"segment.bytes": "400", "index.interval.bytes": "0"}


def opened(disk: SimulatedDisk) -> DataDir:
    return DataDir.open(ROOT, files=disk, broker_config=load(), now_ms=NOW_MS)


def prepared() -> SimulatedDisk:
    """12 batches of 100 bytes in segments of 4, all durable, and a broker that was killed."""
    disk = SimulatedDisk()
    data_dir = opened(disk)
    log = run_steps(data_dir.create_topic("t", 1, SEGMENT, NOW_MS)).logs[0]
    for number in range(12):
        log.append(memoryview(batch(NOW_MS + number, size=100)), now_ms=NOW_MS)
    log.flush()
    run_steps(data_dir.checkpoint())
    return kill(disk)


def kill(disk: SimulatedDisk) -> SimulatedDisk:
    return disk.power_cut(0, Survival.KEPT)


def path(base: int) -> str:
    return segment_file_path(f"{ROOT}/t-0", base, LOG_SUFFIX)


def log_of(data_dir: DataDir) -> Log:
    return data_dir.topics["t"].logs[0]


def repaired(disk: SimulatedDisk) -> tuple[LossReport, Log]:
    report = accept_loss(ROOT, "t", 0, disk)
    data_dir = opened(disk)
    log = log_of(data_dir)
    assert log.offline_reason is None
    assert log.append(memoryview(batch(NOW_MS + 99)), now_ms=NOW_MS).first_offset == (
        report.log_end_offset
    )
    log.flush()
    return report, log


def test_one_damaged_batch_is_all_that_goes() -> None:
    disk = prepared()
    disk.damage(path(4), 170, b"\xff\xff")
    report, log = repaired(disk)
    assert [(lost.first_offset, lost.next_offset) for lost in report.lost] == [(5, 6)]
    assert [record.offset for record in read_all(log)] == [*range(5), *range(6, 13)]
    hit = log.offset_for_timestamp(NOW_MS + 5)
    assert hit is not None
    assert hit.offset == 6
    kept_as = report.lost[0].kept_as
    assert kept_as is not None
    assert len(disk.read_all(kept_as)) == 100
    result = log.read(5, max_bytes=1000, isolation=Isolation.READ_UNCOMMITTED)
    assert result.next_offset > 5


def test_damage_to_the_end_of_a_closed_segment_is_bridged_to_the_next() -> None:
    disk = prepared()
    disk.damage(path(4), 210, bytes(190))
    report, log = repaired(disk)
    assert [(lost.first_offset, lost.next_offset) for lost in report.lost] == [(6, 8)]
    assert [record.offset for record in read_all(log)] == [*range(6), *range(8, 13)]


def test_the_lost_end_of_a_log_is_bridged() -> None:
    """Its offsets were given out: they are not given out again."""
    disk = prepared()
    file = disk.open(path(8))
    file.truncate(250)
    quarantined = log_of(opened(kill(disk)))
    assert quarantined.offline_reason is not None
    assert quarantined.high_watermark == 10
    report, log = repaired(disk)
    assert report.log_end_offset == 12
    assert [(lost.first_offset, lost.next_offset) for lost in report.lost] == [(10, 12)]
    assert [record.offset for record in read_all(log)] == [*range(10), 12]


@pytest.mark.parametrize("byte", [4, 7])
def test_a_base_offset_that_does_not_follow_is_damage(byte: int) -> None:
    """No checksum covers it; too high as well as too low."""
    disk = prepared()
    disk.damage(path(4), 200 + byte, bytes([0 if byte == 7 else 9]))
    report = accept_loss(ROOT, "t", 0, disk)
    assert [(lost.first_offset, lost.next_offset) for lost in report.lost] == [(6, 7)]
    log = log_of(opened(disk))
    assert log.offline_reason is None
    assert [offset for offset in range(12) if offset != 6] == [
        record.offset for record in read_all(log)
    ]


def test_what_was_aborted_in_a_mended_segment_stays_aborted() -> None:
    disk = SimulatedDisk()
    topic = run_steps(opened(disk).create_topic("t", 1, {"index.interval.bytes": "0"}, NOW_MS))
    log = topic.logs[0]
    for data, origin in (
        (produced(2, 3, producer_id=7, sequence=0, is_transactional=True), Origin.CLIENT),
        (marker(commit=False, producer_id=7, timestamp_ms=4), Origin.COORDINATOR),
        (batch(5), Origin.CLIENT),
        (batch(55), Origin.CLIENT),
    ):
        position = log.segments.active.size
        log.append(memoryview(bytearray(data)), now_ms=NOW_MS, origin=origin)
    log.roll(NOW_MS)
    log.append(memoryview(batch(6)), now_ms=NOW_MS)
    log.flush()
    disk = kill(disk)
    disk.damage(path(0), position + 64, b"\xff")
    assert accept_loss(ROOT, "t", 0, disk).lost
    aborted = log_of(opened(disk)).read(0, max_bytes=9999, isolation=Isolation.READ_COMMITTED)
    assert [txn.producer_id for txn in aborted.aborted_transactions or ()] == [7]


def test_a_sound_log_stays_as_it_is() -> None:
    disk = prepared()
    before = disk.tree()
    report = accept_loss(ROOT, "t", 0, disk)
    assert (report.lost, report.log_end_offset) == ([], 12)
    assert disk.tree() == before


def test_the_auditor_knows_of_the_loss() -> None:
    disk = prepared()
    disk.damage(path(4), 170, b"\xff\xff")
    accept_loss(ROOT, "t", 0, disk)
    data_dir = opened(disk)
    data_dir.close(NOW_MS)
    assert [str(finding) for finding in audit_directory(ROOT, disk).findings] == []


def test_a_running_broker_is_in_the_way(tmp_path: Path) -> None:
    disk = prepared()
    opened(disk)
    with pytest.raises(DataDirLocked):
        accept_loss(ROOT, "t", 0, disk)
