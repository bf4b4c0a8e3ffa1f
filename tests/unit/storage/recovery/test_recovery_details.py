"""What a start leaves besides the records: reports, indexes, names, the newest stamp."""

from unittest import mock

import pytest

from storage.disk.file_names import MANIFEST_NAME
from tests.support.logs import DIRECTORY, LogHarness, batch, disk, offset_entries, produced
from tests.support.tiered import TieredHarness
from tests.unit.storage.recovery.test_recovery import log_of_three_segments, of_kafka, path_of


def without_manifest(log: LogHarness) -> LogHarness:
    """Stopped without a word, with nothing known to be durable."""
    log.log.abandon()
    log.files.unlink(f"{DIRECTORY}/{MANIFEST_NAME}")
    return log


def test_the_report_counts_the_bytes_of_all_segments_that_were_verified() -> None:
    log = log_of_three_segments()
    sizes = [segment.size for segment in log.log.segments]
    without_manifest(log).open(is_clean=False)
    assert log.log.recovery_report.scanned_bytes == sum(sizes)


@pytest.mark.parametrize("start", [0, 3])
def test_nothing_comes_before_the_first_segment_that_a_snapshot_could_have(start: int) -> None:
    log = log_of_three_segments(producer_id=7)
    for name in log.names():
        if name.endswith(".snapshot") or (start and name.startswith(f"{0:020d}")):
            log.files.unlink(f"{DIRECTORY}/{name}")
    without_manifest(log)
    touched: list[str] = []
    log.files.before_operation = lambda _, path: touched.append(path)
    log.open(is_clean=False, log_start_offset=start)
    log.files.before_operation = None
    assert log.bases() == [0, 3, 6][bool(start) :]
    snapshots = {path.partition(".snapshot")[0] for path in touched if ".snapshot" in path}
    assert snapshots == {path_of(3, ""), path_of(6, "")} - {path_of(start, "")}


def test_a_cut_is_noted_with_its_place_and_the_damage() -> None:
    log = log_of_three_segments()
    log.log.abandon()
    log.files.open(path_of(6, ".log")).append(b"garbage" * 20)
    log.open(is_clean=False)
    (note,) = log.log.recovery_report.notes
    size = 3 * len(batch(8))
    place, _, damage = note.partition(": ")
    assert place == f"{path_of(6, '.log')} was cut at byte {size}, offset 9"
    assert damage
    assert "None" not in damage


def test_a_quarantine_after_a_crash_names_the_damage() -> None:
    log = log_of_three_segments()
    log.log.abandon()
    log.files.damage(path_of(3, ".log"), len(batch(3)) + 65, b"\xff")
    log.open(is_clean=False, recovery_point=5)
    assert log.log.offline_reason is not None
    assert "wrong checksum" in log.log.offline_reason


@pytest.mark.parametrize("damaged", [0, 3])
def test_a_crash_removes_the_guides_of_lookups_that_cannot_be_trusted(damaged: int) -> None:
    log = LogHarness(index_interval_bytes=0, time_index_variant="minute")
    for timestamp in range(9):
        log.append(60_000 * timestamp)
        if timestamp in (2, 5):
            log.log.roll(log.now_ms)
    log.log.abandon()
    log.files.open(path_of(damaged, ".density")).append(b"torn")
    with mock.patch.object(log.files, "unlink", wraps=log.files.unlink) as unlink:
        log.open(is_clean=False, recovery_point=9)
    removed = [call.args[0] for call in unlink.mock_calls]
    assert path_of(damaged, ".density") in removed
    assert path_of(3 - damaged, ".density") not in removed
    found = log.log.offset_for_timestamp(60_000 * 4)
    assert found is not None
    assert found.offset == 4


def test_a_new_partition_looks_for_no_files_of_an_older_one() -> None:
    """Its directory was just listed, and a thousand partitions may be new at once."""
    files = disk()
    with mock.patch.object(files, "exists", wraps=files.exists) as exists:
        LogHarness(files)
    asked = [call.args[0] for call in exists.mock_calls]
    assert path_of(0, ".index") not in asked


def test_a_log_that_starts_again_has_nothing_of_files_at_its_start() -> None:
    log = log_of_three_segments()
    log.log.abandon()
    with mock.patch.object(log.files, "exists", wraps=log.files.exists) as exists:
        log.open(is_clean=False, log_start_offset=50)
    asked = [call.args[0] for call in exists.mock_calls]
    assert path_of(50, ".index") in asked


def test_an_active_segment_that_a_crash_took_follows_the_last_object() -> None:
    tiered = TieredHarness()
    for number in range(6):
        tiered.append(1_000 + 10 * number, 1_005 + 10 * number, size=150)
    tiered.log.roll(tiered.now_ms)
    tiered.log.flush()
    tiered.tier()
    tiered.log.abandon()
    tiered.files.unlink(f"{tiered.path}/{12:020d}.log")
    tiered.now_ms += 5
    tiered.open(is_clean=False)
    assert tiered.log.quarantine is None
    assert tiered.bases() == [0, 4, 8, 12]
    assert [segment.is_remote for segment in tiered.log.segments] == [True] * 3 + [False]
    assert tiered.log.segments.active.created_ms == tiered.now_ms


def test_all_that_was_uploaded_is_known_after_a_restart() -> None:
    tiered = TieredHarness()
    for number in range(8):
        tiered.append(1_000 + 10 * number, 1_005 + 10 * number, size=150)
    assert tiered.upload() == 3
    tiered.reopen()
    assert [s.remote is not None for s in tiered.log.segments] == [True, True, True, False]
    tiered.now_ms += 100_000
    assert tiered.drop_local() == [0, 4, 8]


@pytest.mark.parametrize(("kind", "stamp"), [("CreateTime", 1_000), ("LogAppendTime", 5_000)])
def test_stamps_continue_after_those_of_an_object(kind: str, stamp: int) -> None:
    tiered = TieredHarness(message_timestamp_type=kind)
    tiered.now_ms = 5_000
    for _ in range(2):
        tiered.append(5_000, size=150)
    tiered.log.roll(tiered.now_ms)
    tiered.log.flush()
    tiered.tier()
    assert tiered.log.segments[0].is_remote
    tiered.now_ms = 1_000
    tiered.reopen()
    tiered.configure(message_timestamp_type="LogAppendTime")
    tiered.append(1, size=150)
    assert tiered.all_records()[-1] == (2, stamp)


def test_the_newest_stamp_is_found_although_an_index_is_damaged() -> None:
    log = log_of_three_segments()
    log.log.roll(log.now_ms)
    log.log.flush()
    entries = offset_entries(log.log.segments[2])
    log.log.close(log.now_ms)
    log.files.damage(path_of(6, ".index"), 0, b"\xff" * 4)
    log.open(is_clean=True)
    assert log.log.quarantine is None
    assert offset_entries(log.log.segments[2]) == entries
    assert log.append(70).first_offset == 9


def test_a_directory_of_kafka_with_one_segment_is_not_known_to_be_durable() -> None:
    """So a new partition, which also has one and no manifest, costs no manifest."""
    log = LogHarness(index_interval_bytes=0)
    for timestamp in range(3):
        log.append(timestamp)
    of_kafka(log).open(is_clean=True)
    assert log.log.manifest.durable_offset < 3
    log.log.abandon()
    log.files.damage(path_of(0, ".log"), len(batch(1)) + 8, b"\x7f")
    log.open(is_clean=False)
    assert log.log.quarantine is None
    assert log.log.log_end_offset == 1


def test_an_open_transaction_before_lost_segments_stays_open() -> None:
    """What a crash leaves of a log without snapshots is read for its producers."""
    log = LogHarness(index_interval_bytes=0)
    log.write(produced(0, producer_id=7, sequence=0, is_transactional=True))
    for timestamp in range(1, 9):
        if timestamp in (3, 6):
            log.log.roll(log.now_ms)
        log.append(timestamp)
    log.log.abandon()
    for name in log.names():
        if name.endswith(".snapshot") or name == f"{3:020d}.log":
            log.files.unlink(f"{DIRECTORY}/{name}")
    log.open(is_clean=False, recovery_point=9)
    assert log.log.quarantine is not None
    assert (log.log.log_end_offset, log.log.last_stable_offset) == (3, 0)
