"""Segments that span more than 2^31 offsets, as Kafka's compaction once made them, are split."""

import contextlib

import pytest

from protocol.records.builder import build_end_txn_marker
from protocol.records.layout import Codec
from storage.disk.file_names import MANIFEST_NAME
from storage.disk.files import sync_file
from storage.log.values import Isolation
from storage.segment.txn_index import AbortedTxn, TxnIndex
from tests.support.logs import DIRECTORY, LogHarness, batch, disk, messages
from tests.support.power_loss import Survival
from tests.support.simulated_disk import Operation, PowerCut, SimulatedDisk

FAR = 2**31 + 5
FARTHER = 2**32 + 77
LOG = f"{DIRECTORY}/{0:020d}.log"
TIMES = {0: 10, 1: 20, FAR: 30, FAR + 1: 40, FARTHER: 50}


def directory(*, magic: int = 2) -> SimulatedDisk:
    """One segment of base 0 with records at the offsets of TIMES, without any other file."""
    files = disk()
    file = files.create(LOG)
    for offset, timestamp in TIMES.items():
        file.append(
            batch(timestamp, base_offset=offset)
            if magic == 2
            else messages(timestamp, base_offset=offset, magic=magic)
        )
    sync_file(file)
    file.close()
    for folder in ("/", "/data", DIRECTORY):
        files.sync_directory(folder)
    return files


def opened(files: SimulatedDisk, **settings: object) -> LogHarness:
    return LogHarness.on_real_files(DIRECTORY, files, cleanup_policy="compact", **settings)


def clean(files: SimulatedDisk) -> LogHarness:
    return LogHarness(files, cleanup_policy="compact")


def found(log: LogHarness) -> dict[int, int]:
    return {record.offset: record.timestamp for record in log.records()}


@pytest.mark.parametrize("magic", [1, 2])
def test_all_records_are_served_from_segments_that_fit(magic: int) -> None:
    log = clean(directory(magic=magic))
    # The head of an older message does not tell where it begins: its base is the least that fits.
    older = [0, FAR - 2**31 + 1, FAR + 1, FARTHER - 2**31 + 1]
    assert log.bases() == (older if magic == 1 else [0, FAR, FARTHER])
    assert found(log) == TIMES
    for offset, timestamp in TIMES.items():
        hit = log.log.offset_for_timestamp(timestamp)
        assert hit is not None
        assert (hit.offset, hit.timestamp) == (offset, timestamp)
    (note,) = log.log.recovery_report.notes
    assert f"was split into {len(log.bases())} segments" in note
    assert log.log.log_end_offset == FARTHER + 1
    assert log.append(60, key=b"k").first_offset == FARTHER + 1


def test_next_start_finds_nothing_to_split() -> None:
    log = clean(directory())
    bases = log.bases()
    log.reopen()
    assert (log.bases(), log.log.recovery_report.notes) == (bases, [])
    assert found(log) == TIMES


def test_closed_segment_is_split_too() -> None:
    files = directory()
    last = FARTHER + 1
    file = files.create(f"{DIRECTORY}/{last:020d}.log")
    file.append(batch(60, base_offset=last))
    file.close()
    log = clean(files)
    assert log.bases() == [0, FAR, FARTHER, last]
    assert found(log) == {**TIMES, last: 60}


def test_a_crash_before_is_no_reason_to_lose_anything() -> None:
    files = directory()
    file = files.open(LOG)
    file.append(b"\0" * 33)
    log = LogHarness.__new__(LogHarness)
    log.files, log.path, log.now_ms = files, DIRECTORY, 1_000
    log.settings = {"cleanup_policy": "compact"}
    log.open(is_clean=False, recovery_point=FARTHER)
    assert log.log.offline_reason is None
    assert log.log.recovery_report.truncated_bytes == 33
    assert found(log) == TIMES


def test_parts_follow_each_other_without_a_gap_where_that_is_possible() -> None:
    files = disk()
    file = files.create(LOG)
    offsets = [0, 2**31 - 1, 2**31, 2**31 + 1]
    for offset in offsets:
        file.append(batch(offset // 2**20, base_offset=offset))
    file.close()
    log = clean(files)
    assert log.bases() == [0, 2**31]
    assert list(found(log)) == offsets


def test_a_first_entry_that_is_too_far_above_the_base_leaves_the_start_where_it_was() -> None:
    """Kafka's compaction keeps the base of a segment whose first records it has removed."""
    files = disk()
    file = files.create(LOG)
    for offset in (FAR, FAR + 1):
        file.append(batch(TIMES[offset], base_offset=offset))
    file.close()
    log = clean(files)
    assert log.bases() == [0, FAR]
    assert log.log.log_start_offset == 0
    assert found(log) == {FAR: 30, FAR + 1: 40}
    hit = log.log.offset_for_timestamp(0)
    assert hit is not None
    assert hit.offset == FAR
    log.reopen()
    assert log.log.recovery_report.notes == []
    assert found(log) == {FAR: 30, FAR + 1: 40}


@pytest.mark.parametrize("survival", [Survival.KEPT, Survival.LOST, Survival.REORDERED])
def test_a_crash_between_two_splits_leaves_the_second_to_the_next_start(survival: Survival) -> None:
    def two() -> SimulatedDisk:
        files = directory()
        file = files.create(f"{DIRECTORY}/{2 * FARTHER:020d}.log")
        for offset in (2 * FARTHER, 2 * FARTHER + FAR):
            file.append(batch(60, base_offset=offset))
        sync_file(file)
        file.close()
        files.sync_directory(DIRECTORY)
        return files

    expected = [*TIMES, 2 * FARTHER, 2 * FARTHER + FAR]
    for stop_at in range(1, 200, 3):
        files = two()
        last = files.operations + stop_at

        def cut(operation: Operation, path: str, last: int = last) -> None:
            if files.operations >= last:  # noqa: B023 - called within this round
                raise PowerCut

        files.before_operation = cut
        with contextlib.suppress(PowerCut):
            clean(files)
            return
        files.before_operation = None
        log = opened(files.power_cut(stop_at, survival))
        assert list(found(log)) == expected, f"cut before operation {stop_at}"


def test_aborted_transactions_go_where_their_markers_are() -> None:
    files = directory()
    file = files.open(LOG)
    end = FARTHER + 1
    file.append(
        build_end_txn_marker(
            commit=False, producer_id=7, producer_epoch=0, timestamp_ms=60, base_offset=end
        )
    )
    file.close()
    index = TxnIndex(files, f"{DIRECTORY}/{0:020d}.txnindex", 0)
    index.append(AbortedTxn(6, 0, 1, 2))
    index.append(AbortedTxn(7, FARTHER, end, end + 1))
    index.close()
    log = clean(files)
    counts = [(s.base_offset, s.txn_index.count) for s in log.log.segments]
    assert counts == [(0, 1), (FAR, 0), (FARTHER, 1)]


def test_segments_that_fit_are_left_alone() -> None:
    files = disk()
    file = files.create(LOG)
    file.append(batch(1, base_offset=0) + batch(2, base_offset=2**31 - 1, codec=Codec.GZIP))
    file.close()
    log = clean(files)
    assert log.bases() == [0]
    assert log.log.recovery_report.notes == []


def test_directory_with_a_manifest_is_believed() -> None:
    log = LogHarness()
    log.append(1)
    log.reopen()
    assert MANIFEST_NAME in log.files.list_directory(DIRECTORY)
    before = log.files.counts[Operation.READ]
    log.reopen()
    assert log.files.counts[Operation.READ] - before < 10


@pytest.mark.parametrize("survival", list(Survival))
def test_power_cut_in_every_moment_of_a_split_loses_nothing(survival: Survival) -> None:
    for stop_at in range(1, 500):
        files = directory()
        file = files.open(LOG)
        file.begin_sync()
        file.sync()
        last = files.operations + stop_at

        def cut(
            _kind: Operation, _path: str, files: SimulatedDisk = files, last: int = last
        ) -> None:
            if files.operations >= last:
                raise PowerCut

        files.before_operation = cut
        done = False
        with contextlib.suppress(PowerCut):
            clean(files)
            done = True
        files.before_operation = None
        log = clean(files.power_cut(stop_at, survival))
        assert found(log) == TIMES, stop_at
        assert log.log.read(0, max_bytes=1, isolation=Isolation.LOG_END).records
        if done:
            return
    raise AssertionError("the split has more operations than were tried")
