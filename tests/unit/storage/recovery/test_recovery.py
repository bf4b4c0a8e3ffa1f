"""Opening a directory after any stop: time-semantics cases 72 to 80, quarantine, power cuts."""

import contextlib
import errno
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from protocol.records.layout import Codec
from storage.append.plan import Origin
from storage.disk.file_names import MANIFEST_NAME
from storage.disk.files import RealFiles, sync_file
from storage.disk.steps import run_steps
from storage.errors import LogQuarantined, StorageFailed
from storage.log.retention import delete_expired
from storage.log.values import Isolation
from storage.recovery.recovery import open_log
from storage.segment.segment import Segment
from storage.segment.txn_index import AbortedTxn
from tests.support.logs import (
    DIRECTORY,
    LogHarness,
    add_at_end,
    batch,
    config,
    disk,
    marker,
    messages,
    new_segment,
    offset_entries,
    produced,
    time_entries,
)
from tests.support.power_loss import Survival
from tests.support.simulated_disk import CHANGES, Fault, Operation, PowerCut, SimulatedFile


def log_of_three_segments(*, producer_id: int = -1) -> LogHarness:
    """Nine records of one batch each, three per segment, everything indexed and durable."""
    log = LogHarness(index_interval_bytes=0)
    for timestamp in range(9):
        if producer_id < 0:
            log.append(timestamp)
        else:
            log.write(produced(timestamp, producer_id=producer_id, sequence=timestamp))
        if timestamp in (2, 5):
            log.log.roll(log.now_ms)
    assert log.bases() == [0, 3, 6]
    return log


def path_of(base_offset: int, suffix: str) -> str:
    return f"{DIRECTORY}/{base_offset:020d}{suffix}"


def timestamps(log: LogHarness) -> list[int]:
    return [record.timestamp for record in log.records()]


def test_case_72_clean_restart_reads_no_records() -> None:
    log = log_of_three_segments()
    log.log.close(log.now_ms)
    reads: list[str] = []
    log.files.before_operation = lambda kind, path: (
        reads.append(path) if kind is Operation.READ and path.endswith(".log") else None
    )
    log.open(is_clean=True)
    log.files.before_operation = None
    report = log.log.recovery_report
    assert report.scanned_bytes == 0
    assert report.rebuilt_indexes == []
    # One small read after the last index entry, for the newest append time.
    assert reads == [path_of(6, ".log")]
    assert log.log.segments.active.time_index.last() == (8, 8)
    assert timestamps(log) == list(range(9))


@pytest.mark.parametrize("records", [0, 1])
def test_a_clean_start_changes_nothing_on_the_disk(records: int) -> None:
    log = LogHarness()
    for timestamp in range(records):
        log.append(timestamp)
        log.log.roll(log.now_ms)
    log.reopen()
    log.log.close(log.now_ms)
    names, before = log.names(), {kind: log.files.counts[kind] for kind in CHANGES}
    log.open(is_clean=True)
    assert {kind: log.files.counts[kind] for kind in CHANGES} == before
    assert log.names() == names
    assert not log.log.needs_flush


def test_a_log_knows_its_partition_and_whether_its_names_are_durable() -> None:
    log = LogHarness()
    assert (log.log.topic, log.log.partition, log.log.path) == ("t", 0, DIRECTORY)
    assert log.log.needs_flush, "its first file is new"


def test_the_jitter_of_rolls_is_drawn_from_the_given_numbers() -> None:
    log = LogHarness(segment_ms=10_000, segment_jitter_ms=1_000)
    assert log.log.segments.active.roll_jitter_ms == Random(0).randrange(1_000)


def test_a_clean_restart_knows_the_producers() -> None:
    log = log_of_three_segments(producer_id=7)
    log.reopen()
    again = log.write(produced(8, producer_id=7, sequence=8))
    assert again.first_offset == 8
    assert log.log.log_end_offset == 9, "a duplicate"


def test_an_index_of_the_active_segment_is_verified_before_it_grows() -> None:
    log = log_of_three_segments()
    log.log.close(log.now_ms)
    path = path_of(6, ".timeindex")
    log.files.damage(path, 0, bytes(log.files.size(path)))
    log.open(is_clean=True)
    rebuilt = [(6, f"{path} is not what was written (checksum)")]
    assert log.log.recovery_report.rebuilt_indexes == rebuilt
    log.append(9)
    log.reopen()
    for timestamp in range(10):
        hit = log.log.offset_for_timestamp(timestamp)
        assert hit is not None
        assert hit.offset == timestamp


@contextlib.contextmanager
def counting_log_reads(patch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """How many bytes of which `.log` file are read, counted where they are read."""
    read: Counter[str] = Counter()
    original = SimulatedFile.pread

    def pread(self: SimulatedFile, size: int, position: int) -> bytes:
        data = original(self, size, position)
        if self.path.endswith(".log"):
            read[self.path] += len(data)
        return data

    with patch.context() as patched:
        patched.setattr(SimulatedFile, "pread", pread)
        yield read


@pytest.mark.parametrize("producer_id", [-1, 7])
def test_case_73_crash_rescans_the_segment_of_the_recovery_point(
    producer_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = log_of_three_segments(producer_id=producer_id)
    active = log.log.segments.active
    active.seal(now_ms=0)
    before = (offset_entries(active), time_entries(active))
    with counting_log_reads(monkeypatch) as read:
        log.crash(recovery_point=9)
    active = log.log.segments.active
    assert (offset_entries(active), time_entries(active)) == before
    assert log.log.recovery_report.scanned_bytes == active.size
    assert set(read) == {active.log.path}
    # All of it, and once more the tail after the last index entry, for the newest append time.
    assert active.size <= read[active.log.path] <= 2 * active.size


def test_a_clean_restart_of_one_segment_reads_only_its_tail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has no snapshot, because no producer was ever known."""
    log = LogHarness(index_interval_bytes=0)
    for timestamp in range(20):
        log.append(timestamp)
    with counting_log_reads(monkeypatch) as read:
        log.reopen()
    assert sum(read.values()) == len(batch(1))


def test_without_snapshots_the_log_is_read_for_producers_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = log_of_three_segments()
    for name in log.names():
        if name.endswith(".snapshot"):
            log.files.unlink(f"{DIRECTORY}/{name}")
    with counting_log_reads(monkeypatch) as read:
        log.crash(recovery_point=9)
    assert len(read) == 3
    with counting_log_reads(monkeypatch) as read:
        log.crash(recovery_point=9)
    assert len(read) == 1


def test_a_crash_of_a_log_without_snapshots_leaves_one_at_each_segment() -> None:
    log = log_of_three_segments()
    for name in log.names():
        if name.endswith(".snapshot"):
            log.files.unlink(f"{DIRECTORY}/{name}")
    log.crash()
    snapshots = [name for name in log.names() if name.endswith(".snapshot")]
    assert snapshots == [f"{offset:020d}.snapshot" for offset in (3, 6)]


def test_each_roll_and_a_clean_stop_leave_a_snapshot_of_no_producers() -> None:
    log = log_of_three_segments()
    log.reopen()
    snapshots = [name for name in log.names() if name.endswith(".snapshot")]
    assert snapshots == [f"{offset:020d}.snapshot" for offset in (3, 6, 9)]
    # Version 1, CRC-32C of the count, no entries: as Apache Kafka writes it.
    for name in snapshots:
        content = log.files.read_all(f"{DIRECTORY}/{name}")
        assert content.hex() == "0001" + "48674bc7" + "00000000"


def test_case_74_garbage_in_the_middle_cuts_there_when_nothing_is_known_durable() -> None:
    log = log_of_three_segments()
    log.log.abandon()
    log.files.unlink(f"{DIRECTORY}/{MANIFEST_NAME}")
    log.files.open(path_of(3, ".log")).append(b"garbage" * 20)
    log.open(is_clean=False)
    assert timestamps(log) == list(range(6))
    assert log.bases() == [0, 3]
    report = log.log.recovery_report
    assert report.truncated_bytes > 140
    assert report.removed_segments == [6]
    assert log.append(77).first_offset == 6


def test_the_report_counts_the_bytes_of_all_segments_that_a_cut_removed() -> None:
    log = log_of_three_segments()
    sizes = [segment.size for segment in log.log.segments]
    log.log.abandon()
    log.files.unlink(f"{DIRECTORY}/{MANIFEST_NAME}")
    log.files.damage(path_of(0, ".log"), 8, b"\x7f")
    log.open(is_clean=False)
    report = log.log.recovery_report
    assert report.removed_segments == [3, 6]
    assert report.truncated_bytes == sum(sizes)


def test_torn_tail_is_cut() -> None:
    whole = log_of_three_segments()
    size = whole.log.segments.active.size
    for cut in range(1, len(batch(8))):
        log = log_of_three_segments()
        log.log.abandon()
        log.files.open(path_of(6, ".log")).truncate(size - cut)
        log.open(is_clean=False)
        assert timestamps(log) == list(range(8))
        assert log.log.recovery_report.truncated_bytes == len(batch(8)) - cut
        assert log.append(9).first_offset == 8


def cut_by_recovery(segment: Segment, size: int, **settings: object) -> Segment:
    """What a start makes of a segment whose log was torn at byte `size`.

    Nothing else cuts a log here: there are no replicas that would have to follow another one.
    """
    segment.seal(now_ms=0)
    segment.log.truncate(size)
    segment.close()
    log = LogHarness.on_real_files(DIRECTORY, segment.files, **settings)
    assert log.log.recovery_report.truncated_bytes == size % len(batch(1))
    return log.log.segments.active


def test_case_19_truncation_below_the_first_entry_leaves_nothing() -> None:
    segment = new_segment(45)
    for number in range(1, 10):
        add_at_end(segment, 10 * number)
    assert time_entries(segment)[0] == (20, 46)
    left = cut_by_recovery(segment, len(batch(1)) - 1)
    assert (time_entries(left), offset_entries(left)) == ([], [])
    assert (left.max_timestamp, left.next_offset) == (-1, 45)


def test_case_20_truncation_to_the_second_record() -> None:
    size = len(batch(1))
    interval = 2 * size - 1
    segment = new_segment(40)
    for offset in range(40, 70):
        add_at_end(segment, offset, interval=interval)
    assert len(time_entries(segment)) == 14
    left = cut_by_recovery(segment, size + 1, index_interval_bytes=interval)
    # The closing entry of recovery alone: those of the appends are gone.
    assert (offset_entries(left), time_entries(left)) == ([], [(40, 40)])
    assert (left.max_timestamp, left.next_offset) == (40, 41)


def test_damage_below_the_recovery_point_is_quarantined_and_nothing_is_cut() -> None:
    log = log_of_three_segments()
    log.log.abandon()
    log.files.unlink(f"{DIRECTORY}/{MANIFEST_NAME}")
    log.files.damage(path_of(3, ".log"), len(batch(3)) + 65, b"\xff")
    before = {name: log.files.size(f"{DIRECTORY}/{name}") for name in log.names() if "log" in name}
    log.open(is_clean=False, recovery_point=5)
    assert log.log.offline_reason is not None
    size = len(batch(3))
    assert f"{path_of(3, '.log')} is damaged at byte {size} (" in log.log.offline_reason
    assert "), where everything had been synced" in log.log.offline_reason
    assert (log.log.log_end_offset, log.log.high_watermark) == (4, 4)
    assert timestamps(log) == [0, 1, 2, 3]
    with pytest.raises(LogQuarantined) as caught:
        log.append(9)
    assert caught.value.good_until == 4
    with pytest.raises(LogQuarantined):
        log.log.read(5, max_bytes=1, isolation=Isolation.READ_UNCOMMITTED)
    after = {name: log.files.size(f"{DIRECTORY}/{name}") for name in before}
    assert after == before


def test_what_the_manifest_knows_to_be_durable_is_not_cut_either() -> None:
    log = log_of_three_segments()
    log.log.abandon()
    # Everything below offset 6 was durable when the third segment began.
    log.files.damage(path_of(3, ".log"), len(batch(3)) + 18, b"\xff")
    log.open(is_clean=False, recovery_point=0)
    assert log.log.offline_reason is not None
    assert timestamps(log) == [0, 1, 2, 3]
    assert log.files.exists(path_of(6, ".log"))


def test_case_75_missing_indexes_are_rebuilt_after_a_clean_stop() -> None:
    for suffix in (".index", ".timeindex"):
        log = log_of_three_segments()
        log.log.close(log.now_ms)
        contents = {
            base: [log.files.read_all(path_of(base, s)) for s in (".index", ".timeindex")]
            for base in (0, 6)
        }
        for base in (0, 6):
            log.files.unlink(path_of(base, suffix))
        log.open(is_clean=True)
        log.log.offset_for_timestamp(0)
        assert [base for base, _ in log.log.recovery_report.rebuilt_indexes] == [0, 6]
        for base, before in contents.items():
            after = [log.files.read_all(path_of(base, s)) for s in (".index", ".timeindex")]
            assert after == before
        assert timestamps(log) == list(range(9))


def test_case_76_index_files_without_a_log_are_removed() -> None:
    log = log_of_three_segments()
    log.log.close(log.now_ms)
    for suffix in (".index", ".timeindex", ".txnindex"):
        log.files.create(path_of(77, suffix)).append(b"x" * 12)
    log.open(is_clean=True)
    assert not any(name.startswith("00000000000000000077") for name in log.names())
    assert sorted(log.log.recovery_report.removed_files) == [
        f"00000000000000000077{suffix}" for suffix in (".index", ".timeindex", ".txnindex")
    ]


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("damage", ["gone", "cut", "odd"])
def test_a_transaction_index_is_rebuilt(damage: str, is_clean: bool) -> None:
    log = LogHarness(index_interval_bytes=0)
    log.append(1)
    log.write(produced(2, 3, producer_id=7, sequence=0, is_transactional=True))
    log.write(marker(commit=False, producer_id=7, timestamp_ms=4), origin=Origin.COORDINATOR)
    log.log.roll(log.now_ms)
    log.append(6)
    end = log.log.log_end_offset
    expected = log.log.read(0, max_bytes=9999, isolation=Isolation.READ_COMMITTED)
    assert [txn.producer_id for txn in expected.aborted_transactions or ()] == [7]
    if is_clean:
        log.log.close(log.now_ms)
    else:
        log.log.abandon()
    path = path_of(0, ".txnindex")
    if damage == "gone":
        log.files.unlink(path)
    else:
        log.files.open(path).truncate(0 if damage == "cut" else 33)
    for _ in range(2):
        log.open(is_clean=is_clean, recovery_point=end)
        found = log.log.read(0, max_bytes=9999, isolation=Isolation.READ_COMMITTED)
        assert found.aborted_transactions == expected.aborted_transactions
        log.log.close(log.now_ms)
    assert log.log.recovery_report.rebuilt_indexes == []


@pytest.mark.parametrize("survival", [Survival.LOST, Survival.ZEROED, Survival.REORDERED])
def test_a_rebuilt_transaction_index_is_durable_before_it_is_remembered(
    survival: Survival,
) -> None:
    log = LogHarness(index_interval_bytes=0)
    log.write(produced(2, 3, producer_id=7, sequence=0, is_transactional=True))
    log.write(marker(commit=False, producer_id=7, timestamp_ms=4), origin=Origin.COORDINATOR)
    log.log.roll(log.now_ms)
    log.append(6)
    log.log.close(log.now_ms)
    log.files.unlink(path_of(0, ".txnindex"))
    log.files.sync_directory(DIRECTORY)
    log.open(is_clean=True)
    log.append(7)
    for seed in range(10):
        again = LogHarness.after_power_cut(log, seed, survival)
        found = again.log.read(0, max_bytes=9999, isolation=Isolation.READ_COMMITTED)
        assert [txn.producer_id for txn in found.aborted_transactions or ()] == [7]


def test_a_time_index_cut_between_entries_is_not_believed() -> None:
    """Its last entry is in order, and far below the largest timestamp that was remembered."""
    log = LogHarness(index_interval_bytes=0, retention_ms=1000)
    for timestamp in (10, 20, 5000, 5, 6, 7):
        log.append(timestamp)
    log.log.roll(log.now_ms)
    log.append(8)
    log.log.close(log.now_ms)
    file = log.files.open(path_of(0, ".timeindex"))
    file.truncate(file.size - 12)
    log.now_ms = 3000
    log.open(is_clean=True)
    hit = log.log.offset_for_timestamp(4000)
    assert hit is not None
    assert hit.offset == 2
    assert delete_expired(log.log, log.now_ms) == []


@pytest.mark.parametrize("policy", ["compact", "delete"])
@pytest.mark.parametrize("recovery_point", [0, 5, 11, 20, 22])
def test_gaps_in_a_directory_of_kafka_are_no_damage(recovery_point: int, policy: str) -> None:
    """Its compaction leaves them, and the policy may have changed since; Kafka never looks."""
    log = LogHarness(cleanup_policy=policy)
    log.log.abandon()
    log.files.unlink(path_of(0, ".log"))
    assert MANIFEST_NAME not in log.names()
    for base_offset, offsets in ((0, (0, 3)), (10, (10, 12)), (20, (20, 21))):
        file = log.files.create(path_of(base_offset, ".log"))
        for offset in offsets:
            file.append(batch(offset, base_offset=offset))
    log.open(is_clean=False, recovery_point=recovery_point)
    assert timestamps(log) == [0, 3, 10, 12, 20, 21]
    log.write(batch(22, key=b"k"))
    log.crash()
    assert timestamps(log) == [0, 3, 10, 12, 20, 21, 22]
    assert log.log.offline_reason is None


@pytest.mark.parametrize("zeros", [1, 11, 12, 17, 61, 5000])
def test_case_77_zero_tail_is_cut(zeros: int) -> None:
    log = log_of_three_segments()
    log.log.abandon()
    path = path_of(6, ".log")
    size = log.files.size(path)
    log.files.open(path).append(bytes(zeros))
    log.open(is_clean=False)
    assert log.files.size(path) == size
    assert timestamps(log) == list(range(9))


def swapped_log(stage: str) -> LogHarness:
    """Segments 0 and 3 rewritten into one of base 0, whose files have got as far as `stage`."""
    log = log_of_three_segments()
    log.log.close(log.now_ms)
    other = disk()
    rewritten = new_segment(0, files=other)
    for timestamp in range(100, 106):
        add_at_end(rewritten, timestamp)
    rewritten.seal(now_ms=0)
    for suffix in (".log", ".index", ".timeindex"):
        log.files.create(path_of(0, suffix) + stage).append(other.read_all(path_of(0, suffix)))
    return log


def test_case_78_finished_rewrite_replaces_what_it_covers() -> None:
    log = swapped_log(".swap")
    log.open(is_clean=True)
    assert log.bases() == [0, 6]
    assert timestamps(log) == [100, 101, 102, 103, 104, 105, 6, 7, 8]
    assert not any(name.endswith(".swap") for name in log.names())


def test_case_78_finished_rewrite_is_finished_again_after_a_crash_in_between() -> None:
    for count in range(12):
        log = swapped_log(".swap")
        log.files.fault = Fault(
            at=log.files._eligible + count,
            kinds=frozenset({Operation.RENAME, Operation.UNLINK}),
            for_ever=True,
        )
        try:
            log.open(is_clean=True)
        except StorageFailed:
            log.files.fault = None
            log.open(is_clean=True)
        assert timestamps(log) == [100, 101, 102, 103, 104, 105, 6, 7, 8]


def test_case_78_unfinished_rewrite_is_thrown_away() -> None:
    log = swapped_log(".cleaned")
    log.files.create(path_of(0, ".log.swap")).append(b"x")
    log.open(is_clean=True)
    assert timestamps(log) == list(range(9))
    assert not any(name.endswith((".cleaned", ".swap")) for name in log.names())


@pytest.mark.parametrize("seed", range(12))
def test_an_unfinished_rewrite_leaves_nothing_when_its_removal_is_crashed(seed: int) -> None:
    """Whatever subset of the removals is durable: no index of it may take the place of ours."""
    log = swapped_log(".swap")
    log.files.rename(path_of(0, ".index.swap"), path_of(0, ".index.cleaned"))
    for name in log.names():
        sync_file(log.files.open(f"{DIRECTORY}/{name}"))
    log.files.sync_directory(DIRECTORY)
    crashes = 0

    def crash(operation: Operation, path: str) -> None:
        nonlocal crashes
        if operation in CHANGES:
            crashes += 1
            again = LogHarness.after_power_cut(log, seed + crashes, Survival.REORDERED)
            assert timestamps(again) == list(range(9))
            assert time_entries(again.log.segments.first) == [(1, 1), (2, 2)]

    log.files.before_operation = crash
    log.open(is_clean=False)
    assert crashes > 3


def test_case_80_log_that_ends_below_its_start_begins_empty() -> None:
    log = log_of_three_segments()
    log.log.abandon()
    log.open(is_clean=False, log_start_offset=50)
    assert (log.bases(), log.log.log_start_offset, log.log.log_end_offset) == ([50], 50, 50)
    (note,) = log.log.recovery_report.notes
    assert note == "the log ended at 9, below its start 50: it starts again"
    assert log.append(1).first_offset == 50
    assert log.log.leader_epochs.entries == ((0, 50),)


def test_checkpointed_start_inside_a_segment_is_kept() -> None:
    log = log_of_three_segments()
    log.log.close(log.now_ms)
    log.open(is_clean=True, log_start_offset=4)
    assert (log.log.log_start_offset, timestamps(log)) == (4, [4, 5, 6, 7, 8])


def test_temporary_files_are_removed() -> None:
    log = LogHarness()
    log.log.close(log.now_ms)
    log.files.create(f"{DIRECTORY}/leader-epoch-checkpoint.tmp").append(b"x")
    log.open(is_clean=True)
    assert not any(name.endswith(".tmp") for name in log.names())


def test_unreadable_leader_epochs_are_learned_again() -> None:
    log = LogHarness()
    log.append(1)
    log.log.leader_epoch += 1
    log.append(2)
    log.log.abandon()
    log.files.replace_atomically(f"{DIRECTORY}/leader-epoch-checkpoint", b"nonsense")
    log.open(is_clean=False)
    assert log.log.leader_epochs.entries == ((0, 0), (1, 1))
    assert any("leader-epoch-checkpoint" in note for note in log.log.recovery_report.notes)


def test_recovery_is_idempotent() -> None:
    log = log_of_three_segments()
    log.log.abandon()
    log.files.open(path_of(6, ".log")).append(b"tail")
    log.open(is_clean=False)
    log.log.abandon()
    tree = log.files.tree()
    log.open(is_clean=False)
    assert log.log.recovery_report.truncated_bytes == 0
    log.log.abandon()
    assert log.files.tree() == tree


@pytest.mark.parametrize(
    ("stored", "kept"), [(b"0\n2\n0 0\n5 2\n", ((0, 0), (5, 2))), (b"0\n2\n0 0\n5 3\n", ((0, 0),))]
)
def test_epoch_may_begin_at_the_end_and_not_beyond_it(
    stored: bytes, kept: tuple[tuple[int, int], ...]
) -> None:
    log = LogHarness()
    log.append(1)
    log.append(2)
    log.log.close(log.now_ms)
    log.files.replace_atomically(f"{DIRECTORY}/leader-epoch-checkpoint", stored)
    log.open(is_clean=True)
    assert log.log.leader_epochs.entries == kept


def of_kafka(log: LogHarness) -> LogHarness:
    """The directory after a clean stop, with what Kafka writes and no more."""
    log.log.close(log.now_ms)
    log.files.unlink(f"{DIRECTORY}/{MANIFEST_NAME}")
    return log


@pytest.mark.parametrize("last_of_closed", [(2, 5), (5,)])
def test_a_directory_of_kafka_that_stopped_cleanly_is_durable_from_then_on(
    last_of_closed: tuple[int, ...],
) -> None:
    log = LogHarness(index_interval_bytes=0)
    for timestamp in range(9):
        log.append(timestamp)
        if timestamp in last_of_closed:
            log.log.roll(log.now_ms)
    of_kafka(log).open(is_clean=True)
    log.log.abandon()
    log.files.damage(path_of(6, ".log"), len(batch(1)) + 8, b"\x7f")
    log.open(is_clean=False)
    assert log.log.quarantine is not None
    assert log.log.quarantine.good_until == 7


def test_aborts_that_the_log_does_not_have_are_dropped_with_a_rebuilt_index() -> None:
    log = log_of_three_segments()
    segment = log.log.segments[1]
    segment.txn_index.append(AbortedTxn(7, 3, 4, 5))
    of_kafka(log)
    log.files.unlink(path_of(3, ".index"))
    log.open(is_clean=True)
    assert log.log.segments[1].txn_index.count == 0
    assert not log.log.producers.has_aborts


def test_when_a_closed_segment_was_written_is_known_after_a_crash() -> None:
    """The file's own time may be that of a copy."""
    log = LogHarness()
    log.append(-1)
    log.log.roll(log.now_ms)
    log.append(-1)
    assert log.files.now_ms != log.now_ms
    log.crash()
    assert [segment.appended_ms for segment in log.log.segments] == [1_000, log.files.now_ms]


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_index_that_a_directory_of_kafka_lacks_is_named(suffix: str) -> None:
    log = of_kafka(log_of_three_segments())
    log.files.unlink(path_of(3, suffix))
    log.open(is_clean=True)
    report = log.log.recovery_report
    assert report.rebuilt_indexes == [(3, f"{path_of(3, suffix)} is missing")]
    assert [offset for offset, _ in offset_entries(log.log.segments[1])] == [4, 5]


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_index_of_a_directory_of_kafka_that_is_out_of_order_is_rebuilt(suffix: str) -> None:
    log = of_kafka(log_of_three_segments())
    before = log.files.read_all(path_of(3, suffix))
    log.files.damage(path_of(3, suffix), 0, b"\x7f")
    log.open(is_clean=True)
    ((base, reason),) = log.log.recovery_report.rebuilt_indexes
    assert (base, " follows (" in reason) == (3, True)
    assert log.files.read_all(path_of(3, suffix)) == before


def test_damage_after_the_last_index_entry_of_a_directory_of_kafka_is_named() -> None:
    log = of_kafka(log_of_three_segments())
    magic_at = 2 * len(batch(3)) + 16
    log.files.damage(path_of(3, ".log"), magic_at, b"\x09")
    log.open(is_clean=True)
    ((base, reason),) = log.log.recovery_report.rebuilt_indexes
    assert (base, path_of(3, ".log") in reason) == (3, True)
    assert log.log.quarantine is not None
    assert timestamps(log) == list(range(5))


def test_aborts_of_a_directory_of_kafka_are_found_from_a_snapshot_on() -> None:
    log = LogHarness(index_interval_bytes=0)
    log.write(produced(1, producer_id=7, sequence=0, is_transactional=True))
    log.write(produced(1, producer_id=8, sequence=0))
    log.log.roll(log.now_ms)
    log.write(marker(commit=False, producer_id=7, timestamp_ms=2), origin=Origin.COORDINATOR)
    log.append(3)
    log.log.roll(log.now_ms)
    log.append(4)
    of_kafka(log)
    for suffix in (".index", ".txnindex"):
        log.files.unlink(path_of(2, suffix))
    assert "00000000000000000002.snapshot" in log.names()
    log.open(is_clean=True)
    assert [base for base, _ in log.log.recovery_report.rebuilt_indexes] == [2]
    result = log.log.read(0, max_bytes=1 << 20, isolation=Isolation.READ_COMMITTED)
    assert result.aborted_transactions is not None
    assert [txn[:3] for txn in result.aborted_transactions] == [(7, 0, 2)]


def test_without_a_checkpoint_nothing_counts_as_compacted(tmp_path: Path) -> None:
    opened = {"topic": "t", "partition": 0, "config": config(), "now_ms": 0, "is_clean": True}
    log = open_log(str(tmp_path), files=RealFiles(), **opened)  # type: ignore[arg-type]
    log.append(memoryview(batch(1)), now_ms=0)
    log.roll(0)
    log.close(0)
    (tmp_path / MANIFEST_NAME).unlink()
    log = open_log(str(tmp_path), files=RealFiles(), **opened)  # type: ignore[arg-type]
    assert (log.log_end_offset, log.cleaned_offset) == (1, 0)


@pytest.mark.parametrize(("kind", "stamp"), [("CreateTime", 1000), ("LogAppendTime", 5000)])
def test_stamps_continue_after_those_of_the_broker_only(kind: str, stamp: int) -> None:
    """A clock that was set back gives no earlier time; a client's future counts for nothing."""
    log = LogHarness(message_timestamp_type=kind)
    log.now_ms = 5000
    log.append(5000)
    log.now_ms = 1000
    log.settings = {"message_timestamp_type": "LogAppendTime"}
    log.reopen()
    log.append(1)
    assert [record.timestamp for record in log.records()] == [5000, stamp]


def test_stamps_continue_after_the_very_last_one() -> None:
    log = LogHarness(message_timestamp_type="LogAppendTime")
    for log.now_ms in (2_000, 5_000):
        log.append(1)
    log.now_ms = 1_000
    log.reopen()
    log.append(1)
    assert [record.timestamp for record in log.records()] == [2_000, 5_000, 5_000]


def test_stamps_continue_after_those_of_an_earlier_segment() -> None:
    log = LogHarness(message_timestamp_type="LogAppendTime")
    log.now_ms = 5_000
    log.append(1)
    log.log.roll(log.now_ms)
    log.now_ms = 1_000
    log.reopen()
    log.append(1)
    assert [record.timestamp for record in log.records()] == [5_000, 5_000]


def test_directory_of_kafka_brings_what_was_compacted_already() -> None:
    log = of_kafka(log_of_three_segments())
    log.open(is_clean=True, cleaned_offset=6)
    assert log.log.cleaned_offset == 6
    log.log.close(log.now_ms)
    log.open(is_clean=True, cleaned_offset=3)
    assert log.log.cleaned_offset == 6, "our own manifest counts from then on"


def test_indexes_of_a_directory_of_kafka_whose_log_was_emptied_are_rebuilt() -> None:
    log = of_kafka(log_of_three_segments())
    log.files.open(path_of(6, ".log")).truncate(0)
    # With it, the start would know that the log had ended at 9.
    log.files.unlink(path_of(9, ".snapshot"))
    log.open(is_clean=True)
    assert [base for base, _ in log.log.recovery_report.rebuilt_indexes] == [6]
    assert log.append(70).first_offset == 6
    log.log.flush()
    hit = log.log.offset_for_timestamp(60)
    assert hit is not None
    assert (hit.timestamp, hit.offset) == (70, 6)


def test_directory_of_another_program_is_read_without_a_manifest() -> None:
    """Kafka's files after a clean stop: no manifest, all indexes closed."""
    log = log_of_three_segments()
    log.log.close(log.now_ms)
    log.files.unlink(f"{DIRECTORY}/{MANIFEST_NAME}")
    log.open(is_clean=True)
    assert log.log.recovery_report.rebuilt_indexes == []
    assert timestamps(log) == list(range(9))
    assert [s.max_timestamp for s in log.log.segments] == [2, 5, 8]
    hit = log.log.offset_for_timestamp(4)
    assert hit is not None
    assert hit.offset == 4
    assert log.append(9).first_offset == 9


@pytest.mark.parametrize("padding", [12, 24, 8, 3])
def test_padded_index_of_another_program_is_rebuilt(padding: int) -> None:
    """KAFKA-10207: zeros after the entries would make the largest timestamp 0."""
    log = log_of_three_segments()
    log.log.close(log.now_ms)
    log.files.unlink(f"{DIRECTORY}/{MANIFEST_NAME}")
    log.files.open(path_of(0, ".timeindex")).append(bytes(padding))
    log.open(is_clean=True)
    assert [base for base, _ in log.log.recovery_report.rebuilt_indexes] == [0]
    assert log.log.segments.first.max_timestamp == 2


def test_manifest_of_other_files_is_not_believed() -> None:
    log = log_of_three_segments()
    log.log.close(log.now_ms)
    log.files.open(path_of(0, ".log")).append(batch(900, base_offset=3, size=100))
    log.files.unlink(path_of(3, ".log"))
    log.open(is_clean=True)
    assert log.log.segments.first.max_timestamp == 900


def test_damage_found_while_rebuilding_an_index_is_quarantined() -> None:
    log = log_of_three_segments()
    log.log.close(log.now_ms)
    log.files.unlink(path_of(3, ".index"))
    log.files.damage(path_of(3, ".log"), len(batch(3)) + 8, b"\x7f")
    log.open(is_clean=True)
    assert (log.log.offline_reason or "").startswith(
        f"{path_of(3, '.log')} is damaged at byte {len(batch(3))} (an entry that is cut off), "
        "where everything had been synced; offsets below 4 can still be read"
    )
    assert log.bases() == [0, 3]
    assert timestamps(log) == [0, 1, 2, 3]
    with pytest.raises(LogQuarantined):
        log.append(9)


def test_damage_found_while_rebuilding_an_index_keeps_the_aborts_before_it() -> None:
    log = LogHarness(index_interval_bytes=0)
    log.write(produced(1, producer_id=7, sequence=0, is_transactional=True))
    log.write(produced(1, producer_id=8, sequence=0))
    log.log.roll(log.now_ms)
    end_of_txn = marker(commit=False, producer_id=7, timestamp_ms=2)
    log.write(end_of_txn, origin=Origin.COORDINATOR)
    log.append(3)
    log.log.roll(log.now_ms)
    log.append(4)
    of_kafka(log)
    for suffix in (".index", ".txnindex"):
        log.files.unlink(path_of(2, suffix))
    log.files.damage(path_of(2, ".log"), len(end_of_txn) + 8, b"\x7f")
    log.open(is_clean=True)
    assert log.log.quarantine is not None
    assert log.log.quarantine.good_until == 3
    result = log.log.read(0, max_bytes=1 << 20, isolation=Isolation.READ_COMMITTED)
    assert result.aborted_transactions is not None
    assert [txn[:3] for txn in result.aborted_transactions] == [(7, 0, 2)]


def test_open_of_a_missing_directory_is_a_storage_error() -> None:
    log = LogHarness()
    log.path = "/nowhere"
    with pytest.raises(StorageFailed, match=r"open failed on /nowhere: .*No such file"):
        log.open(is_clean=True)


def test_a_start_continues_without_the_snapshots_that_it_cannot_write() -> None:
    log = log_of_three_segments(producer_id=7)
    for name in log.names():
        if name.endswith(".snapshot"):
            log.files.unlink(f"{DIRECTORY}/{name}")
    log.log.abandon()

    def no_snapshot(kind: Operation, path: str) -> None:
        if kind in CHANGES and ".snapshot" in path:
            raise OSError(errno.ENOSPC, "No space left on device", path)

    log.files.before_operation = no_snapshot
    log.open(is_clean=False)
    log.files.before_operation = None
    assert timestamps(log) == list(range(9))
    assert not any(name.endswith(".snapshot") for name in log.names())
    assert log.write(produced(8, producer_id=7, sequence=8)).first_offset == 8, "a duplicate"


def test_producers_expire_as_the_broker_says() -> None:
    log = LogHarness()
    log.log.close(log.now_ms)
    opened = open_log(
        DIRECTORY,
        topic="t",
        partition=0,
        config=config(),
        files=log.files,
        now_ms=0,
        is_clean=True,
        producer_id_expiration_ms=77,
    )
    assert opened.producers.state.expiration_ms == 77


def test_old_formats_are_recovered() -> None:
    log = LogHarness()
    log.log.abandon()
    log.files.unlink(path_of(0, ".log"))
    log.place(
        0,
        messages(-1, -1, magic=0)
        + messages(5, 9, base_offset=2, magic=1, codec=Codec.GZIP)
        + bytes(batch(7, base_offset=4)),
    )
    log.open(is_clean=False)
    assert timestamps(log) == [-1, -1, 5, 9, 7]
    assert log.log.segments.first.max_timestamp == 9
    assert log.append(8).first_offset == 5


def test_segments_larger_than_a_scan_chunk_are_recovered() -> None:
    log = LogHarness(max_message_bytes=4_000_000)
    for timestamp in range(3):
        log.append(timestamp, size=1_500_000)
    log.append(3, size=2_500_000)
    log.crash()
    assert timestamps(log) == [0, 1, 2, 3]
    assert log.log.recovery_report.scanned_bytes == 7_000_000


# --- power ----------------------------------------------------------------------------------------


def workload(log: LogHarness) -> None:
    """Appends with and without flush, rolls, retention; synced records are below durable_offset."""
    for timestamp in range(12):
        log.append(timestamp, flush=timestamp % 3 == 2)
        if timestamp % 5 == 4:
            log.log.roll(log.now_ms)
        if timestamp == 8:
            log.log.flush()
            log.log.delete_before(4)
            delete_expired(log.log, log.now_ms)
            run_steps(log.log.delete_pending_files(log.now_ms + 10**9))


@pytest.mark.parametrize("survival", Survival)
def test_power_cut_after_every_operation_loses_nothing_durable(survival: Survival) -> None:
    reference = LogHarness(index_interval_bytes=0)
    start = reference.files.operations
    workload(reference)
    operations = reference.files.operations - start
    for cut in range(1, operations + 1, 1 if survival is Survival.KEPT else 2):
        log = LogHarness(index_interval_bytes=0)
        log.log.flush()
        stop_at = log.files.operations + cut

        def count(
            _kind: Operation, _path: str, files: object = log.files, stop: int = stop_at
        ) -> None:
            if files.operations >= stop:  # type: ignore[attr-defined]
                raise PowerCut

        log.files.before_operation = count
        with contextlib.suppress(PowerCut):
            workload(log)
        durable, start_offset = log.log.durable_offset, log.log.log_start_offset
        log.files.before_operation = None
        after = LogHarness.after_power_cut(log, cut, survival)
        assert after.log.offline_reason is None
        assert after.log.log_start_offset >= start_offset
        offsets = [record.offset for record in after.records()]
        assert offsets == list(range(after.log.log_start_offset, after.log.log_end_offset))
        assert timestamps(after) == offsets
        assert after.log.log_end_offset >= durable
        for timestamp in range(after.log.log_start_offset, durable):
            hit = after.log.offset_for_timestamp(timestamp)
            assert hit is not None
            assert hit.offset == timestamp


@pytest.mark.parametrize("seed", range(40))
def test_no_crash_keeps_the_second_segment_without_the_first(seed: int) -> None:
    log = LogHarness()
    log.append(0, flush=False)
    log.log.roll(log.now_ms)
    log.append(1, flush=False)
    after = LogHarness.after_power_cut(log, seed, Survival.REORDERED)
    assert after.log.log_start_offset == 0
    assert timestamps(after) == list(range(after.log.log_end_offset))


def test_real_directory_survives_a_restart(tmp_path: Path) -> None:
    log = LogHarness.on_real_files(str(tmp_path), RealFiles(), segment_bytes=500)
    for timestamp in range(30):
        log.append(timestamp)
    for again in (log.crash, log.reopen, log.crash):
        again()
        assert timestamps(log) == list(range(30))
    log.log.close(log.now_ms)
