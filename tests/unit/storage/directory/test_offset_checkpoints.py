"""The offset checkpoints: hints that never speak of another topic of the same name."""

import pytest

from config import load
from protocol.records.builder import build_batch
from protocol.records.record import Record
from storage.directory.data_dir import DataDir
from storage.directory.offset_checkpoints import Hints, OffsetCheckpoints
from storage.disk.checkpoints import (
    CLEANER_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    read_offsets,
)
from storage.disk.file_names import MANIFEST_NAME
from storage.disk.steps import run_steps
from storage.errors import StorageFailed
from storage.log.compaction import find_cleanable
from tests.support.power_loss import Survival
from tests.support.simulated_disk import Fault, Operation, SimulatedDisk
from tests.unit.storage.directory.test_data_dir import NOW, ROOT, open_dir, produce


def test_missing_files_say_nothing() -> None:
    disk = SimulatedDisk()
    disk.make_directory(ROOT)
    hints, notices = OffsetCheckpoints(ROOT, disk).read(stopped_cleanly=False)
    assert (hints.recovery_points, hints.log_starts, notices) == ({}, {}, [])


def test_broken_file_is_reported_and_counts_as_empty() -> None:
    disk = SimulatedDisk()
    disk.make_directory(ROOT)
    disk.replace_atomically(f"{ROOT}/{RECOVERY_POINT_FILE}", b"7\n")
    disk.replace_atomically(f"{ROOT}/{LOG_START_FILE}", b"0\n1\nt 0 5\n")
    hints, notices = OffsetCheckpoints(ROOT, disk).read(stopped_cleanly=True)
    assert (hints.recovery_points, hints.log_starts) == ({}, {("t", 0): 5})
    assert notices == [
        f"{RECOVERY_POINT_FILE} cannot be read and is taken for empty: "
        "expected a version and a count, found one line"
    ]


@pytest.mark.parametrize(
    ("recovery_point", "high_watermark", "clean", "unclean"),
    [(5, 7, 7, 5), (7, 5, 7, 7), (None, 7, 7, 0), (5, None, 5, 5), (None, None, 0, 0)],
)
def test_a_clean_stop_has_synced_everything_below_the_high_watermark(
    recovery_point: int | None, high_watermark: int | None, clean: int, unclean: int
) -> None:
    key = ("t", 0)
    hints = Hints(
        recovery_points={} if recovery_point is None else {key: recovery_point},
        high_watermarks={} if high_watermark is None else {key: high_watermark},
    )
    assert hints.recovery_point(key, is_clean=True) == clean
    assert hints.recovery_point(key, is_clean=False) == unclean


def test_new_topic_is_not_held_to_the_high_watermark_of_its_predecessor() -> None:
    """Also when the other checkpoints, which had an entry for it as well, are gone."""
    disk, data_dir = prepared()
    data_dir.close(NOW)
    disk.replace_atomically(f"{ROOT}/{HIGH_WATERMARK_FILE}", b"0\n1\nt 1 6\n")
    disk.unlink(f"{ROOT}/{RECOVERY_POINT_FILE}")
    data_dir = open_dir(disk)
    run_steps(data_dir.create_topic("t", 2, {}, NOW))
    assert read_offsets(ROOT, HIGH_WATERMARK_FILE, disk) == {}
    data_dir.close(NOW)
    log = open_dir(disk).topics["t"].logs[1]
    assert (log.log_end_offset, log.offline_reason) == (0, None)


def prepared() -> tuple[SimulatedDisk, DataDir]:
    """A topic with a checkpoint at offset 6, deleted."""
    disk = SimulatedDisk()
    data_dir = open_dir(disk)
    log = run_steps(data_dir.create_topic("t", 2, {}, NOW)).logs[1]
    produce(log, 6)
    log.flush()
    run_steps(data_dir.checkpoint())
    assert read_offsets(ROOT, RECOVERY_POINT_FILE, disk)["t", 1] == 6
    data_dir.delete_topic("t", NOW)
    return disk, data_dir


def test_new_topic_is_not_held_to_the_recovery_point_of_its_predecessor() -> None:
    """Found by the crash campaign: the new, empty log was quarantined as if 6 records were lost."""
    disk, data_dir = prepared()
    run_steps(data_dir.create_topic("t", 2, {}, NOW))
    assert read_offsets(ROOT, RECOVERY_POINT_FILE, disk) == {}
    log = open_dir(disk.power_cut(0, Survival.KEPT)).topics["t"].logs[1]
    assert (log.log_end_offset, log.offline_reason) == (0, None)


def test_added_partition_is_not_held_to_it_either() -> None:
    disk, data_dir = prepared()
    survivor = disk.power_cut(0, Survival.LOST)
    again = open_dir(survivor)
    run_steps(again.create_topic("t", 1, {}, NOW))
    run_steps(again.add_partitions("t", 2, NOW))
    log = open_dir(survivor.power_cut(0, Survival.LOST)).topics["t"].logs[1]
    assert log.offline_reason is None
    assert data_dir.topics == {}


def test_topic_is_not_created_when_old_checkpoints_cannot_be_removed() -> None:
    disk, data_dir = prepared()
    disk.fault = Fault(at=0, kinds=frozenset({Operation.RENAME}))
    with pytest.raises(StorageFailed, match="checkpoint"):
        run_steps(data_dir.create_topic("t", 2, {}, NOW))
    assert data_dir.topics == {}
    run_steps(data_dir.create_topic("t", 2, {}, NOW))


def test_checkpoints_are_not_rewritten_without_need() -> None:
    disk = SimulatedDisk()
    data_dir = DataDir.open(ROOT, files=disk, broker_config=load(), now_ms=NOW)
    before = disk.counts[Operation.RENAME]
    run_steps(data_dir.create_topic("t", 2, {}, NOW))
    assert disk.counts[Operation.RENAME] == before


def test_what_has_not_changed_is_not_written_again() -> None:
    disk = SimulatedDisk()
    data_dir = open_dir(disk)
    log = run_steps(data_dir.create_topic("t", 1, {}, NOW)).logs[0]
    run_steps(data_dir.checkpoint())
    before = dict(disk.counts)
    run_steps(data_dir.checkpoint())
    assert disk.counts == before
    produce(log, 6)
    log.flush()
    disk.fault = Fault(at=0, kinds=frozenset({Operation.RENAME}))
    with pytest.raises(StorageFailed):
        run_steps(data_dir.checkpoint())
    disk.fault = None
    run_steps(data_dir.checkpoint())
    assert read_offsets(ROOT, RECOVERY_POINT_FILE, disk) == {("t", 0): 6}


def test_case_79_a_corrupt_recovery_point_costs_time_only() -> None:
    """After a crash everything is read again; after a clean stop nothing is all the same."""
    disk, data_dir = prepared()
    run_steps(data_dir.create_topic("u", 1, {}, NOW))
    log = data_dir.topics["u"].logs[0]
    produce(log, 6)
    log.flush()
    run_steps(data_dir.checkpoint())
    path = f"{ROOT}/{RECOVERY_POINT_FILE}"
    disk.replace_atomically(path, b"not a checkpoint")
    crashed = open_dir(disk.power_cut(0, Survival.KEPT))
    report = crashed.topics["u"].logs[0].recovery_report
    assert report.scanned_bytes == log.size_bytes
    assert any(RECOVERY_POINT_FILE in notice for notice in crashed.notices)
    data_dir.close(NOW)
    disk.replace_atomically(path, b"not a checkpoint")
    again = open_dir(disk)
    report = again.topics["u"].logs[0].recovery_report
    assert (again.stopped_cleanly, report.scanned_bytes) == (True, 0)
    assert again.topics["u"].logs[0].log_end_offset == 6


def test_word_of_kafkas_cleaner_is_taken_over_and_given_back() -> None:
    disk = SimulatedDisk()
    data_dir = open_dir(disk)
    log = run_steps(data_dir.create_topic("t", 1, {"cleanup.policy": "compact"}, NOW)).logs[0]
    for number in range(4):
        record = Record(0, NOW, b"k", b"%d" % number)
        log.append(memoryview(bytearray(build_batch([record]))), now_ms=NOW)
        log.roll(NOW)
    data_dir.close(NOW)
    assert read_offsets(ROOT, CLEANER_FILE, disk) == {("t", 0): 0}
    # As Kafka leaves a directory: its checkpoint, and no manifest.
    disk.unlink(f"{ROOT}/t-0/{MANIFEST_NAME}")
    disk.replace_atomically(f"{ROOT}/{CLEANER_FILE}", b"0\n1\nt 0 3\n")
    data_dir = open_dir(disk)
    log = data_dir.topics["t"].logs[0]
    assert log.cleaned_offset == 3
    plan = find_cleanable(log, NOW)
    assert plan is not None
    assert plan.first_dirty == 3
    data_dir.close(NOW)
    assert read_offsets(ROOT, CLEANER_FILE, disk) == {("t", 0): 3}


def test_new_topic_is_not_held_to_what_was_cleaned_of_its_predecessor() -> None:
    disk = SimulatedDisk()
    open_dir(disk).close(NOW)
    disk.replace_atomically(f"{ROOT}/{CLEANER_FILE}", b"0\n1\nt 0 3\n")
    data_dir = open_dir(disk)
    run_steps(data_dir.create_topic("t", 1, {"cleanup.policy": "compact"}, NOW))
    assert ("t", 0) not in read_offsets(ROOT, CLEANER_FILE, disk)


def test_steps_that_were_overtaken_write_nothing() -> None:
    """Else they would tell a new topic of the offsets of its predecessor."""
    disk = SimulatedDisk()
    data_dir = open_dir(disk)
    log = run_steps(data_dir.create_topic("t", 1, {}, NOW)).logs[0]
    produce(log, 6)
    log.flush()
    steps = data_dir.checkpoint()
    call = next(steps)
    assert call is not None
    data_dir.delete_topic("t", NOW)
    run_steps(data_dir.create_topic("t", 1, {}, NOW))
    call.run()
    assert list(steps) == []
    assert read_offsets(ROOT, RECOVERY_POINT_FILE, disk) == {}
    run_steps(data_dir.checkpoint())
    assert read_offsets(ROOT, RECOVERY_POINT_FILE, disk) == {("t", 0): 0}


def test_steps_that_are_overtaken_while_they_begin_leave_the_old_entries_nowhere() -> None:
    """A thread may be suspended between any two of its lines."""
    disk = SimulatedDisk()
    data_dir = open_dir(disk)
    run_steps(data_dir.checkpoint())
    log = run_steps(data_dir.create_topic("t", 1, {}, NOW)).logs[0]
    produce(log, 6)
    log.flush()
    checkpoints = Overtaken(ROOT, disk)
    run_steps(checkpoints.write([]))
    call = next(checkpoints.write([log]))
    assert call is not None
    checkpoints.overtaking = True
    call.run()
    assert checkpoints.overtaken_by is not None


class Overtaken(OffsetCheckpoints):
    """A write without the topic begins after the thread has compared the generations."""

    overtaking = False
    overtaken_by: object = None

    @property
    def _generation(self) -> int:
        number: int = self.__dict__["number"]
        if self.overtaking:
            self.overtaking = False
            # None is the end of the steps: the file is believed to have these entries already.
            self.overtaken_by = next(self.write([]), None)
        return number

    @_generation.setter
    def _generation(self, number: int) -> None:
        self.__dict__["number"] = number
