"""What was durable and is gone: every start notices, names it, and gives no offset out twice.

One partition of 60 records, one record in a batch, three batches in a segment, everything durable
and the checkpoints written. A start that found nothing wrong here would lose acknowledged records
without a word, so each way of losing a segment is tried after each kind of stop, on a directory as
it was and as the start before has left it.
"""

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from config import load
from storage.audit.accept_loss import accept_loss
from storage.audit.fsck import Severity, audit_directory
from storage.directory.data_dir import DataDir
from storage.directory.offline import open_journal
from storage.disk.checkpoints import HIGH_WATERMARK_FILE, RECOVERY_POINT_FILE, read_unclean
from storage.disk.file_names import (
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    MANIFEST_NAME,
    OFFSET_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
    segment_file_path,
)
from storage.disk.files import RealFiles, sync_file
from storage.disk.steps import run_steps
from storage.errors import LogQuarantined, QuarantineKind
from storage.log.log import Log
from storage.log.retention import delete_expired
from storage.log.values import Isolation
from storage.recovery import loss, recovery
from tests.support.logs import batch, read_all
from tests.support.power_loss import Survival
from tests.support.simulated_disk import SimulatedDisk

ROOT = "/data"
DIRECTORY = f"{ROOT}/t-0"
NOW_MS = 1_700_000_000_000
RECORDS = 60
PER_SEGMENT = 3
BATCH_BYTES = 100
SETTINGS = {"segment.bytes": str(PER_SEGMENT * BATCH_BYTES), "index.interval.bytes": "0"}
FIRST, MIDDLE, ACTIVE = 0, 27, 57


def opened(disk: SimulatedDisk) -> DataDir:
    return DataDir.open(ROOT, files=disk, broker_config=load(), now_ms=NOW_MS)


def one(number: int) -> memoryview:
    """The batch of one record with a key, for compacted topics."""
    return memoryview(batch(NOW_MS + number, size=BATCH_BYTES, key=b"%d" % number))


def log_of(data_dir: DataDir, topic: str = "t") -> Log:
    return data_dir.topics[topic].logs[0]


def fill(log: Log, records: int = RECORDS) -> None:
    for number in range(records):
        log.append(one(number), now_ms=NOW_MS)
        log.flush()


def stopped(*, is_clean: bool, **settings: str) -> SimulatedDisk:
    """The directory of a broker with two topics, after a clean stop or a kill."""
    disk = SimulatedDisk()
    data_dir = opened(disk)
    for topic in ("t", "other"):
        fill(log_of_new(data_dir, topic, settings))
    run_steps(data_dir.checkpoint())
    if is_clean:
        data_dir.close(NOW_MS)
    return kill(disk)


def log_of_new(data_dir: DataDir, topic: str, settings: dict[str, str]) -> Log:
    settings = {**SETTINGS, **settings}
    return run_steps(data_dir.create_topic(topic, 1, settings, NOW_MS)).logs[0]


def kill(disk: SimulatedDisk) -> SimulatedDisk:
    return disk.power_cut(0, Survival.KEPT)


def path(base: int, suffix: str = LOG_SUFFIX) -> str:
    return segment_file_path(DIRECTORY, base, suffix)


def remove(disk: SimulatedDisk, base: int) -> None:
    """The segment with its indexes: what an `rm` of the wrong files leaves."""
    for suffix in (LOG_SUFFIX, *INDEX_SUFFIXES):
        if disk.exists(path(base, suffix)):
            disk.unlink(path(base, suffix))


def remove_log(disk: SimulatedDisk, base: int) -> None:
    disk.unlink(path(base))


def truncate(size: int) -> Callable[[SimulatedDisk, int], None]:
    def cut(disk: SimulatedDisk, base: int) -> None:
        disk.open(path(base)).truncate(size)

    return cut


DAMAGES: dict[str, tuple[Callable[[SimulatedDisk, int], None], int]] = {
    "removed": (remove, 0),
    "its log removed": (remove_log, 0),
    "emptied": (truncate(0), 0),
    "cut between batches": (truncate(2 * BATCH_BYTES), 2),
    "cut between batches, early": (truncate(BATCH_BYTES), 1),
    "cut inside of a batch": (truncate(BATCH_BYTES + 30), 1),
    "cut inside of a head": (truncate(2 * BATCH_BYTES + 5), 2),
}
"""How a segment is lost, and how many of its records are left."""

SEGMENTS = {"first": FIRST, "middle": MIDDLE, "active": ACTIVE}


@pytest.mark.parametrize("policy", ["delete", "compact"])
@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "killed"])
@pytest.mark.parametrize("segment", SEGMENTS)
@pytest.mark.parametrize("damage", DAMAGES)
def test_every_lost_segment_is_noticed(
    damage: str, segment: str, is_clean: bool, policy: str
) -> None:
    disk = stopped(is_clean=is_clean, **{"cleanup.policy": policy})
    base = SEGMENTS[segment]
    lose, left = DAMAGES[damage]
    lose(disk, base)
    good_until = base + left
    # Found again by the next start, after a kill and after a clean stop, and by the auditor.
    for stops in (False, True, False):
        assert audited_errors(disk)
        data_dir = opened(disk)
        log = log_of(data_dir)
        check_quarantined(log, good_until)
        assert all(each.base_offset <= good_until for each in log.segments)
        assert any(f"t-0: {log.offline_reason}" == notice for notice in data_dir.notices)
        assert serves(log_of(data_dir, "other"))
        if stops:
            data_dir.close(NOW_MS)
        else:
            run_steps(data_dir.checkpoint())
        disk = kill(disk)
    check_accepted(disk, good_until, base)


def audited_errors(disk: SimulatedDisk) -> list[str]:
    """The errors of an audit about the damaged log; its checkpoints name it."""
    errors = [str(f) for f in audit_directory(ROOT, disk).findings if f.severity is Severity.ERROR]
    assert all(DIRECTORY in error or "t-0 up to" in error for error in errors)
    return errors


@pytest.mark.parametrize("is_lost", [False, True])
def test_no_log_keeps_the_text_of_its_manifest(is_lost: bool) -> None:
    """Ten thousand segments have five megabytes of it."""
    disk = stopped(is_clean=False)
    opened(disk)  # This start has written a manifest without outdated lines.
    disk = kill(disk)
    if is_lost:
        remove(disk, ACTIVE)
    log = log_of(opened(disk))
    assert (log.quarantine is not None) == is_lost
    assert log.manifest.facts
    assert log.manifest._as_read is None


def test_a_stop_with_a_quarantined_partition_is_clean_for_the_others() -> None:
    disk = stopped(is_clean=False)
    remove(disk, MIDDLE)
    data_dir = opened(disk)
    other = log_of(data_dir, "other")
    assert serves(other)
    data_dir.close(NOW_MS)
    assert read_unclean(ROOT, disk) == {"t-0"}
    assert not [line for line in audit_directory(ROOT, disk).findings if "other" in str(line)]
    with open_journal(load(command_line={"log.dirs": ROOT}), files=disk, random_bytes=bytes):
        assert read_unclean(ROOT, disk) == frozenset()
    assert read_unclean(ROOT, disk) == {"t-0"}
    again = opened(kill(disk))
    assert again.stopped_cleanly
    found = log_of(again, "other")
    assert (found.leader_epoch, found.log_end_offset) == (other.leader_epoch, RECORDS + 1)
    assert found.recovery_report.scanned_bytes == 0
    assert log_of(again).quarantine is not None


def test_a_loss_may_be_accepted_after_a_stop_that_is_clean_for_the_others() -> None:
    disk = stopped(is_clean=False)
    remove(disk, MIDDLE)
    opened(disk).close(NOW_MS)
    accept_loss(ROOT, "t", 0, disk)
    disk = kill(disk)
    data_dir = opened(disk)
    assert (data_dir.stopped_cleanly, log_of(data_dir).offline_reason) == (True, None)
    assert log_of(data_dir).append(one(0), now_ms=NOW_MS).first_offset == RECORDS
    data_dir.close(NOW_MS)
    assert audit_directory(ROOT, disk).findings == []


def test_a_quarantined_partition_has_not_stopped_cleanly() -> None:
    """Its end was never sealed: what a crash tore there is found once the quarantine ends."""
    disk = stopped(is_clean=False)
    content = disk.read_all(path(MIDDLE))
    remove(disk, MIDDLE)
    torn = disk.read_all(path(ACTIVE)) + bytes(one(0))[:-1]
    disk.replace_atomically(path(ACTIVE), torn)
    opened(disk).close(NOW_MS)
    disk = kill(disk)
    disk.replace_atomically(path(MIDDLE), content)
    log = log_of(opened(disk))
    assert log.offline_reason is None
    assert log.append(one(0), now_ms=NOW_MS).first_offset == RECORDS
    log.flush()
    assert [record.offset for record in read_all(log)] == list(range(RECORDS + 1))


def test_reason_names_a_segment_that_was_cut_before_one_that_was_lost() -> None:
    disk = stopped(is_clean=False)
    last = ACTIVE - PER_SEGMENT
    remove(disk, ACTIVE)
    truncate(2 * BATCH_BYTES)(disk, last)
    log = log_of(opened(disk))
    check_quarantined(log, last + 2)
    assert log.offline_reason is not None
    assert (
        f"{path(last)} has 200 bytes and ends at offset 56, it had 300 and ended at 57"
        in log.offline_reason
    )


def check_quarantined(log: Log, good_until: int) -> None:
    found = log.quarantine
    assert found is not None
    assert found.good_until == good_until
    assert log.offline_reason is not None
    assert "tidelog fsck --accept-loss t-0 /data" in log.offline_reason
    assert [record.offset for record in read_all(log)] == list(range(good_until))
    asked: list[Callable[[], object]] = [
        lambda: log.append(one(0), now_ms=NOW_MS),
        lambda: log.read(good_until, max_bytes=1, isolation=Isolation.READ_UNCOMMITTED),
        lambda: log.read(RECORDS, max_bytes=1, isolation=Isolation.READ_UNCOMMITTED),
        lambda: log.offset_for_timestamp(NOW_MS + RECORDS - 1),
        log.offset_for_max_timestamp,
        log.check_end,
        lambda: log.end_offset_for_epoch(0),
    ]
    for ask in asked:
        with pytest.raises(LogQuarantined):
            ask()


def serves(log: Log) -> bool:
    first = log.append(one(0), now_ms=NOW_MS).first_offset
    log.flush()
    return log.offline_reason is None and first >= RECORDS


def check_accepted(disk: SimulatedDisk, good_until: int, base: int) -> None:
    """The loss is given up: all the rest is there, and no offset comes twice."""
    end = RECORDS if base == ACTIVE else base + PER_SEGMENT
    report = accept_loss(ROOT, "t", 0, disk)
    assert (report.lost[0].first_offset, report.lost[-1].next_offset) == (good_until, end)
    assert report.log_end_offset == RECORDS
    data_dir = opened(disk)
    log = log_of(data_dir)
    assert log.offline_reason is None
    expected = [*range(good_until), *range(end, RECORDS)]
    assert [record.offset for record in read_all(log, max_bytes=10_000)] == expected
    assert log.append(one(0), now_ms=NOW_MS).first_offset == RECORDS
    data_dir.close(NOW_MS)
    assert [str(finding) for finding in audit_directory(ROOT, disk).findings] == []
    assert log_of(opened(kill(disk))).offline_reason is None


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "killed"])
def test_what_is_gone_is_named(is_clean: bool) -> None:
    disk = stopped(is_clean=is_clean)
    remove(disk, MIDDLE)
    reason = log_of(opened(disk)).offline_reason
    assert reason is not None
    assert "offsets 27 to 29 were durable and are gone" in reason
    assert f"{path(MIDDLE)} is missing" in reason
    assert "between 2023-11-14T22:13:20.027+00:00 and 2023-11-14T22:13:20.029+00:00" in reason
    assert "offsets below 27 can still be read" in reason


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "killed"])
def test_several_lost_segments_are_one_loss(is_clean: bool) -> None:
    disk = stopped(is_clean=is_clean)
    for base in (30, 33, 36):
        remove(disk, base)
    reason = log_of(opened(disk)).offline_reason
    assert reason is not None
    assert f"offsets 30 to 38 were durable and are gone: 3 segments from {path(30)}" in reason


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "killed"])
@pytest.mark.parametrize("keeps_directory", [True, False])
def test_a_log_of_which_nothing_is_left(keeps_directory: bool, is_clean: bool) -> None:
    disk = stopped(is_clean=is_clean)
    disk.remove_tree(DIRECTORY)
    if keeps_directory:
        disk.make_directory(DIRECTORY)
    for _ in range(2):
        assert audited_errors(disk)
        data_dir = opened(disk)
        found = log_of(data_dir).quarantine
        assert found is not None
        assert found.kind is QuarantineKind.LOST
        assert serves(log_of(data_dir, "other"))
        run_steps(data_dir.checkpoint())
        disk = kill(disk)
    report = accept_loss(ROOT, "t", 0, disk)
    assert [(lost.first_offset, lost.next_offset) for lost in report.lost] == [(0, RECORDS)]
    log = log_of(opened(disk))
    assert log.offline_reason is None
    assert log.append(one(0), now_ms=NOW_MS).first_offset == RECORDS


def test_a_segment_that_comes_back_ends_the_quarantine() -> None:
    disk = stopped(is_clean=True)
    content = disk.read_all(path(MIDDLE))
    remove(disk, MIDDLE)
    assert log_of(opened(disk)).offline_reason is not None
    disk = kill(disk)
    disk.replace_atomically(path(MIDDLE), content)
    log = log_of(opened(disk))
    assert log.offline_reason is None
    assert [record.offset for record in read_all(log)] == list(range(RECORDS))


@pytest.mark.parametrize("what", ["checkpoint", "manifest"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_after_a_clean_stop_either_fact_tells_where_the_log_ended(damage: str, what: str) -> None:
    disk = stopped(is_clean=True)
    disk.unlink(
        f"{DIRECTORY}/{MANIFEST_NAME}"
        if what == "manifest"
        else f"{ROOT}/recovery-point-offset-checkpoint"
    )
    lose, left = DAMAGES[damage]
    lose(disk, ACTIVE)
    check_quarantined(log_of(opened(disk)), ACTIVE + left)


def end_facts() -> dict[str, str]:
    """The files that a clean stop leaves and that name the end of the log."""
    return {
        "manifest": f"{DIRECTORY}/{MANIFEST_NAME}",
        "recovery point": f"{ROOT}/{RECOVERY_POINT_FILE}",
        "high watermark": f"{ROOT}/{HIGH_WATERMARK_FILE}",
        "snapshot": path(RECORDS, SNAPSHOT_SUFFIX),
    }


@pytest.mark.parametrize("kept", end_facts())
@pytest.mark.parametrize("damage", DAMAGES)
def test_after_a_clean_stop_one_fact_about_the_end_is_enough(damage: str, kept: str) -> None:
    """The loss is found again after a kill, when only the recovery point counts."""
    disk = stopped(is_clean=True)
    for name, file in end_facts().items():
        if name != kept:
            disk.unlink(file)
    lose, left = DAMAGES[damage]
    lose(disk, ACTIVE)
    for _ in range(3):
        data_dir = opened(disk)
        check_quarantined(log_of(data_dir), ACTIVE + left)
        disk = kill(disk)
    check_accepted(disk, ACTIVE + left, ACTIVE)


@pytest.mark.parametrize("what", ["manifest", "recovery point"])
def test_a_quarantine_that_starts_and_stops_cleanly_keeps_its_proof(what: str) -> None:
    disk = stopped(is_clean=True)
    disk.unlink(end_facts()[what])
    remove(disk, ACTIVE)
    for _ in range(3):
        data_dir = opened(disk)
        check_quarantined(log_of(data_dir), ACTIVE)
        data_dir.close(NOW_MS)
        disk = kill(disk)


def test_a_quarantine_deletes_no_snapshot() -> None:
    """A snapshot above what is left of the log names offsets that were given out."""
    disk = stopped(is_clean=True)
    remove(disk, ACTIVE)
    before = {name for name in disk.list_directory(DIRECTORY) if name.endswith(SNAPSHOT_SUFFIX)}
    assert log_of(opened(disk)).quarantine is not None
    assert before <= set(disk.list_directory(DIRECTORY))


def test_a_directory_that_is_gone_is_known_by_its_high_watermark() -> None:
    disk = stopped(is_clean=True)
    disk.unlink(end_facts()["recovery point"])
    disk.remove_tree(DIRECTORY)
    for _ in range(3):
        log = log_of(opened(disk))
        assert log.offline_reason is not None
        assert f"{DIRECTORY} is missing; offsets up to 59 were durable in it" in log.offline_reason
        disk = kill(disk)


def test_damage_in_a_closed_log_is_not_cut_by_the_start_after_it() -> None:
    """The first start reads the log because its index is gone, the second because of the kill."""
    disk = stopped(is_clean=True)
    disk.unlink(end_facts()["recovery point"])
    disk.unlink(path(ACTIVE, OFFSET_INDEX_SUFFIX))
    disk.damage(path(ACTIVE), 2 * BATCH_BYTES, b"\xff" * BATCH_BYTES)
    for _ in range(3):
        log = log_of(opened(disk))
        assert log.quarantine is not None
        assert (log.quarantine.kind, log.quarantine.good_until) == (QuarantineKind.DAMAGED, 59)
        disk = kill(disk)
    assert disk.size(path(ACTIVE)) == PER_SEGMENT * BATCH_BYTES


@pytest.mark.parametrize("policy", ["batch", "os"])
def test_after_a_crash_the_high_watermark_proves_nothing(policy: str) -> None:
    """With `flush.policy=os` it may lie above what a power cut has left."""
    disk = SimulatedDisk()
    data_dir = opened(disk)
    log = log_of_new(data_dir, "t", {"flush.policy": policy})
    fill(log, 2)
    run_steps(data_dir.checkpoint())
    disk = kill(disk)
    disk.replace_atomically(end_facts()["high watermark"], b"0\n1\nt 0 9\n")
    log = log_of(opened(disk))
    assert (log.offline_reason, log.log_end_offset) == (None, 2)


def test_a_clean_stop_whose_recovery_points_are_gone_is_reported() -> None:
    disk = stopped(is_clean=True)
    disk.unlink(end_facts()["recovery point"])
    data_dir = opened(disk)
    notice = (
        "recovery-point-offset-checkpoint is missing, although a clean stop has written it; the "
        "high watermarks and the files of each log say where it ended"
    )
    assert notice in data_dir.notices
    assert serves(log_of(data_dir))
    again = opened(kill(disk))
    assert not any("recovery-point" in each for each in again.notices), "it has not stopped cleanly"


def test_the_line_lies_at_the_recovery_point() -> None:
    """The one exception: after a kill, what no fact on disk says to have been durable.

    The recovery point is the higher one of its checkpoint and of the last `durable` line, which
    every roll writes. Here no checkpoint was written, and the last roll was at offset 57.
    """
    disk = SimulatedDisk()
    fill(log_of_new(opened(disk), "t", {}))
    disk = kill(disk)
    beyond, below = kill(disk), kill(disk)
    truncate(2 * BATCH_BYTES)(beyond, ACTIVE)
    log = log_of(opened(beyond))
    assert (log.offline_reason, log.log_end_offset) == (None, ACTIVE + 2)
    truncate(2 * BATCH_BYTES)(below, ACTIVE - PER_SEGMENT)
    check_quarantined(log_of(opened(below)), ACTIVE - 1)


@pytest.mark.parametrize("left", ["a moved start", "nothing of the log"])
def test_records_that_a_power_cut_took_are_no_loss_after_the_next_clean_stop(left: str) -> None:
    """A later synced line had made lines durable about records that never were.

    The start after the power cut found none of these records, and left the lines in the manifest.
    A start after a clean stop believed them and quarantined the log.
    """
    disk = SimulatedDisk()
    data_dir = opened(disk)
    log = log_of_new(data_dir, "t", {"flush.policy": "os"})
    for number in range(2 * PER_SEGMENT):
        log.append(one(number), now_ms=NOW_MS)
    if left == "a moved start":
        log.delete_before(2)
    else:
        sync_file(disk.open(f"{DIRECTORY}/{MANIFEST_NAME}"))
    found = disk.power_cut(0, Survival.LOST)
    if left == "nothing of the log":
        # Each name is durable by itself, in any order.
        remove(found, 0)
    assert b"segment base_offset=0" in found.read_all(f"{DIRECTORY}/{MANIFEST_NAME}")

    data_dir = opened(found)
    survivor = log_of(data_dir)
    assert (survivor.offline_reason, survivor.quarantine) == (None, None)
    end = survivor.log_end_offset
    assert end == survivor.log_start_offset == (2 if left == "a moved start" else 0)
    data_dir.close(NOW_MS)
    assert audit_directory(ROOT, found).findings == []

    again = log_of(opened(found))
    assert (again.offline_reason, again.log_end_offset) == (None, end)
    again.append(one(9), now_ms=NOW_MS)
    assert again.log_end_offset == end + 1


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "killed"])
def test_what_was_removed_on_purpose_is_not_missing(is_clean: bool) -> None:
    """The first segment after a start that was moved is."""
    disk = SimulatedDisk()
    data_dir = opened(disk)
    log = log_of_new(data_dir, "t", {})
    fill(log)
    log.delete_before(31)
    delete_expired(log, NOW_MS)
    run_steps(data_dir.checkpoint())
    if is_clean:
        data_dir.close(NOW_MS)
    disk = kill(disk)
    log = log_of(opened(kill(disk)))
    assert (log.offline_reason, log.log_start_offset, log.log_end_offset) == (None, 31, RECORDS)
    remove(disk, 30)
    found = log_of(opened(disk)).quarantine
    assert found is not None
    assert found.good_until == 31
    assert "offsets 31 to 32 were durable and are gone" in found.reason


def test_damage_that_only_a_crash_has_shown_is_found_again_by_every_start() -> None:
    """The checkpoint of a quarantined log must not come down to what is left of it."""
    disk = stopped(is_clean=False)
    disk.unlink(f"{DIRECTORY}/{MANIFEST_NAME}")
    disk.damage(path(ACTIVE), BATCH_BYTES + 70, b"\xff")
    for _ in range(3):
        data_dir = opened(disk)
        log = log_of(data_dir)
        assert log.quarantine is not None
        assert (log.quarantine.kind, log.quarantine.good_until) == (QuarantineKind.DAMAGED, 58)
        run_steps(data_dir.checkpoint())
        disk = kill(disk)
    assert disk.size(path(ACTIVE)) == PER_SEGMENT * BATCH_BYTES


def test_a_real_directory(tmp_path: Path) -> None:
    files, root = RealFiles(), str(tmp_path / "data")

    def start() -> DataDir:
        return DataDir.open(root, files=files, broker_config=load(), now_ms=NOW_MS)

    data_dir = start()
    fill(log_of_new(data_dir, "t", {}))
    data_dir.close(NOW_MS)
    (tmp_path / "data" / "t-0" / f"{MIDDLE:020d}.log").unlink()
    log = log_of(start())
    assert log.offline_reason is not None
    assert [record.offset for record in read_all(log)] == list(range(MIDDLE))


# --- what the sentence says -----------------------------------------------------------------------


def reason_after(records: list[bytearray], *lost: int, **settings: str) -> str:
    """Why the log is quarantined when the segments `lost` of three records each are removed."""
    disk = SimulatedDisk()
    data_dir = opened(disk)
    log = log_of_new(data_dir, "t", settings)
    for record in records:
        log.append(memoryview(record), now_ms=NOW_MS)
        log.flush()
    data_dir.close(NOW_MS)
    disk = kill(disk)
    for base in lost:
        remove(disk, base)
    found = log_of(opened(disk)).quarantine
    assert found is not None
    return re.split("; offsets below |; none can be read", found.reason)[0]


def timed(*timestamps: int) -> list[bytearray]:
    return [batch(timestamp, size=BATCH_BYTES) for timestamp in timestamps]


def test_the_times_of_a_loss_are_those_of_what_is_gone() -> None:
    reason = reason_after(timed(1, 2, 3, 6000, 4000, 5000, 7000, 9000, 8000, 10_000), 3)
    assert reason == (
        f"offsets 3 to 5 were durable and are gone: {path(3)} is missing; their timestamps lie "
        "between 1970-01-01T00:00:04.000+00:00 and 1970-01-01T00:00:06.000+00:00"
    )


def test_the_times_of_several_segments_span_all_of_them() -> None:
    reason = reason_after(timed(1, 1, 1, 7000, 8000, 9000, 4000, 5000, 6000, 10_000), 3, 6)
    assert reason == (
        f"offsets 3 to 8 were durable and are gone: 2 segments from {path(3)} on are missing; "
        "their timestamps lie between 1970-01-01T00:00:04.000+00:00 and "
        "1970-01-01T00:00:09.000+00:00"
    )


def test_a_loss_at_time_zero_has_a_time() -> None:
    assert reason_after(timed(0, 0, 0, 1), 0).endswith(
        "lie between 1970-01-01T00:00:00.000+00:00 and 1970-01-01T00:00:00.000+00:00"
    )


def test_a_loss_of_records_without_timestamps_names_no_time() -> None:
    reason = reason_after(timed(-1, -1, -1, 1), 0)
    assert reason == f"offsets 0 to 2 were durable and are gone: {path(0)} is missing"


def test_a_time_beyond_the_calendar_is_named_in_milliseconds() -> None:
    far = 9_000_000_000_000_000
    settings = {"message.timestamp.after.max.ms": str(2**63 - 1)}
    reason = reason_after(timed(far, far, far, 1), 0, **settings)
    assert f"between {far} ms and {far} ms" in reason


@pytest.mark.parametrize("base", [MIDDLE, ACTIVE])
@pytest.mark.parametrize("left", [1, 2])
def test_a_segment_that_was_cut_is_named_with_both_its_sizes(base: int, left: int) -> None:
    disk = stopped(is_clean=True)
    truncate(left * BATCH_BYTES)(disk, base)
    found = log_of(opened(disk)).quarantine
    assert found is not None
    end = base + PER_SEGMENT
    assert (
        f"offsets {base + left} to {end - 1} were durable and are gone: {path(base)} has "
        f"{left}00 bytes and ends at offset {base + left}, it had 300 and ended at {end}; "
    ) in found.reason


def test_what_no_file_ever_held_is_named_so() -> None:
    """Only the checkpoint remembers: no line of the manifest speaks of the active segment."""
    disk = stopped(is_clean=False)
    truncate(BATCH_BYTES)(disk, ACTIVE)
    found = log_of(opened(disk)).quarantine
    assert found is not None
    assert found.reason.startswith(
        "offsets 58 to 59 were durable and are gone: no file has them; offsets below"
    )


def test_the_report_of_the_start_repeats_the_reason() -> None:
    disk = stopped(is_clean=True)
    remove(disk, MIDDLE)
    log = log_of(opened(disk))
    assert log.quarantine is not None
    assert log.recovery_report.notes == [log.quarantine.reason]
    assert log.quarantine.kind is QuarantineKind.LOST


# --- negative controls ----------------------------------------------------------------------------

Patch = pytest.MonkeyPatch


def _never(*_arguments: Any) -> None:
    """Never a loss."""


RULES: dict[str, Callable[[Patch], None]] = {
    "the start": lambda patch: patch.setattr(loss.StoredFacts, "find_missing_start", _never),
    "a gap": lambda patch: patch.setattr(loss.StoredFacts, "find_gap", _never),
    "a cut": lambda patch: patch.setattr(loss.StoredFacts, "find_cut", _never),
    "the end": lambda patch: patch.setattr(loss.StoredFacts, "find_missing_end", _never),
    "after what was read": lambda patch: patch.setattr(loss.StoredFacts, "find_loss_after", _never),
    "below the recovery point": lambda patch: patch.setattr(recovery, "_was_durable", _never),
}
"""Each rule, left out."""


@cache
def _states() -> dict[str, SimulatedDisk]:
    """Every way of losing a segment, after either stop, with and without the manifest."""
    states = {}
    for is_clean in (True, False):
        whole = stopped(is_clean=is_clean)
        for segment, base in SEGMENTS.items():
            for damage, (lose, _) in DAMAGES.items():
                for has_manifest in (True, False):
                    disk = kill(whole)
                    if not has_manifest:
                        disk.unlink(f"{DIRECTORY}/{MANIFEST_NAME}")
                    lose(disk, base)
                    states[f"{damage}, {segment}, {is_clean=}, {has_manifest=}"] = disk
    return states


def _noticed() -> set[str]:
    """The states that the second start after the loss notices."""
    noticed = set()
    for name, state in _states().items():
        disk = kill(state)
        opened(disk)
        disk = kill(disk)
        if log_of(opened(disk)).offline_reason is not None:
            noticed.add(name)
    return noticed


@cache
def _noticed_by_all_rules() -> set[str]:
    return _noticed()


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_is_needed(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = _noticed_by_all_rules()
    RULES[rule](monkeypatch)
    assert before - _noticed()
