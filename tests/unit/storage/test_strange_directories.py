"""Strange files and directories concern one partition at most."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from config import load
from storage.directory.data_dir import DataDir
from storage.disk.file_names import LOG_SUFFIX, SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX
from storage.disk.files import RealFiles
from storage.disk.steps import run_steps
from storage.errors import DataDirNotWritable, LogQuarantined, QuarantineKind
from storage.log.log import Log
from storage.log.values import Isolation
from storage.recovery import recovery
from storage.recovery.opening import DirectoryOpening
from storage.segment.segment import Segment
from tests.support.logs import read_all
from tests.support.power_loss import Survival
from tests.support.simulated_disk import Fault, SimulatedDisk
from tests.unit.storage.recovery.test_loss import (
    DIRECTORY,
    NOW_MS,
    RECORDS,
    ROOT,
    kill,
    log_of,
    one,
    opened,
    serves,
    stopped,
)

ALL_SUFFIXES = (*SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX)
STAGES = ("", ".deleted", ".cleaned", ".swap")

IMPOSSIBLE = (
    f"{2**63 - 10:020d}",
    f"{2**63:020d}",
    f"{2**63 - 2**31 + 1:020d}",
    "99999999999999999999",
    "42",
    "000000000000000000042",
    "-0000000000000000042",
    "0000000000000000004x",
    "٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٤٢",
)
"""What no segment can be called after: too high, not of 20 digits, or not of digits."""


@pytest.mark.parametrize("content", [b"", b"x" * 100], ids=["empty", "garbage"])
@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "killed"])
@pytest.mark.parametrize("digits", IMPOSSIBLE)
def test_a_file_with_an_impossible_name_is_left_alone(
    digits: str, is_clean: bool, content: bytes
) -> None:
    disk = stopped(is_clean=is_clean)
    names = [f"{digits}{suffix}{stage}" for suffix in ALL_SUFFIXES for stage in STAGES]
    for name in names:
        disk.create(f"{DIRECTORY}/{name}").append(content)
    data_dir = opened(disk)
    log = log_of(data_dir)
    assert (log.offline_reason, log.log_start_offset, log.log_end_offset) == (None, 0, RECORDS)
    assert [record.offset for record in read_all(log)] == list(range(RECORDS))
    hit = log.offset_for_timestamp(NOW_MS + RECORDS - 1)
    assert hit is not None
    assert hit.offset == RECORDS - 1
    assert log.offsets_before(2**62, 100, NOW_MS)[0] == RECORDS
    assert serves(log)
    for name in names:
        assert disk.exists(f"{DIRECTORY}/{name}")
        assert (
            f"t-0: {DIRECTORY}/{name} is no name that a segment's file can have; it is left "
            "alone" in data_dir.notices
        )
    data_dir.close(NOW_MS)


def test_names_of_other_files_are_not_reported() -> None:
    disk = stopped(is_clean=True)
    for name in ("notes.txt", "00000000000000000003.log.damaged-170", "checkpoint.log4j"):
        disk.create(f"{DIRECTORY}/{name}")
    assert opened(disk).notices == []


@pytest.mark.parametrize("suffix", ALL_SUFFIXES)
@pytest.mark.parametrize("base", [1, 100, 2**63 - 2**31])
@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "killed"])
@pytest.mark.parametrize("content", [b"", b"x" * 100], ids=["empty", "garbage"])
def test_a_file_of_a_segment_that_never_was(
    suffix: str, base: int, is_clean: bool, content: bytes
) -> None:
    """A `.log` of a possible name quarantines, or lies where a crash leaves what goes; no more."""
    disk = stopped(is_clean=is_clean)
    disk.create(f"{DIRECTORY}/{base:020d}{suffix}").append(content)
    data_dir = opened(disk)
    log = log_of(data_dir)
    assert serves(log_of(data_dir, "other"))
    is_beyond = base > RECORDS
    if suffix != LOG_SUFFIX or (is_beyond and not is_clean):
        assert log.offline_reason is None
        assert [record.offset for record in read_all(log)] == list(range(RECORDS))
        assert log.append(one(0), now_ms=NOW_MS).first_offset == RECORDS
        return
    assert log.quarantine is not None
    assert log.quarantine.kind is QuarantineKind.LOST
    assert log.quarantine.good_until == (RECORDS if is_beyond else 1)
    disk = kill(disk)
    disk.unlink(f"{DIRECTORY}/{base:020d}{suffix}")
    assert log_of(opened(disk)).offline_reason is None


def replace_by_file(path: Path) -> None:
    for child in sorted(path.rglob("*"), reverse=True):
        child.unlink()
    path.rmdir()
    path.write_bytes(b"no directory")


def log_is_a_directory(path: Path) -> None:
    (path / f"{RECORDS:020d}.log").mkdir()


def metadata_is_a_directory(path: Path) -> None:
    (path / "partition.metadata").unlink()
    (path / "partition.metadata").mkdir()


def epochs_are_a_directory(path: Path) -> None:
    (path / "leader-epoch-checkpoint").unlink()
    (path / "leader-epoch-checkpoint").mkdir()


def manifest_is_a_directory(path: Path) -> None:
    (path / "segment-manifest").unlink()
    (path / "segment-manifest").mkdir()


def manifest_speaks_nonsense(path: Path) -> None:
    (path / "segment-manifest").write_bytes(
        b"tidelog segment manifest 1\nsegment base_offset=x 00000000\n"
    )


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "killed"])
@pytest.mark.parametrize(
    ("spoil", "is_served"),
    [
        (replace_by_file, False),
        (log_is_a_directory, False),
        (metadata_is_a_directory, False),
        (epochs_are_a_directory, False),
        (manifest_is_a_directory, False),
        (manifest_speaks_nonsense, True),
    ],
)
def test_one_bad_directory_keeps_no_other_from_starting(
    spoil: Callable[[Path], None], is_served: bool, is_clean: bool, tmp_path: Path
) -> None:
    files, root = RealFiles(), str(tmp_path / "data")

    def start() -> DataDir:
        return DataDir.open(root, files=files, broker_config=load(), now_ms=NOW_MS)

    data_dir = start()
    for topic in ("bad", "good"):
        log = run_steps(data_dir.create_topic(topic, 2, {"segment.bytes": "300"}, NOW_MS)).logs[0]
        for number in range(RECORDS):
            log.append(one(number), now_ms=NOW_MS)
        log.flush()
    run_steps(data_dir.checkpoint())
    if is_clean:
        data_dir.close(NOW_MS)
    else:
        for topic_object in data_dir.topics.values():
            for log in topic_object.logs:
                log.abandon()
        data_dir._lock.release()
    spoil(tmp_path / "data" / "bad-0")
    for _ in range(2):
        data_dir = start()
        bad, sound = data_dir.topics["bad"].logs
        assert (bad.offline_reason is None) is is_served
        assert sound.offline_reason is None
        assert serves(log_of(data_dir, "good"))
        if not is_served:
            check_unusable(bad)
            assert any("bad-0" in notice for notice in data_dir.notices)
        run_steps(data_dir.checkpoint())
        data_dir._lock.release()


def check_unusable(log: Log) -> None:
    asked: list[Callable[[], object]] = [
        lambda: log.append(one(0), now_ms=NOW_MS),
        lambda: log.read(0, max_bytes=1, isolation=Isolation.READ_UNCOMMITTED),
        lambda: log.offset_for_timestamp(0),
        log.check_end,
        lambda: log.delete_before(0),
    ]
    for ask in asked:
        with pytest.raises(LogQuarantined):
            ask()


def test_a_bug_in_opening_one_directory_is_reported_with_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = stopped(is_clean=True)
    original = recovery.choose_start

    def choose_start(opening: DirectoryOpening, segments: list[Segment]) -> int:
        if opening.path == DIRECTORY:
            raise OverflowError("int too big to convert")
        return original(opening, segments)

    monkeypatch.setattr(recovery, "choose_start", choose_start)
    data_dir = opened(disk)
    reason = log_of(data_dir).offline_reason
    assert reason is not None
    assert "OverflowError: int too big to convert, at " in reason
    assert "test_strange_directories.py:" in reason
    assert serves(log_of(data_dir, "other"))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE, errno.EROFS])
def test_what_is_wrong_with_the_machine_stops_the_start(number: int) -> None:
    whole = stopped(is_clean=True)
    seen = set()
    for at in range(60):
        disk = kill(whole)
        disk.fault = Fault(at=at, errno=number)
        try:
            data_dir = opened(disk)
        except DataDirNotWritable as error:
            seen.add(error.what)
            continue
        assert all(
            log.offline_reason is None for topic in data_dir.topics.values() for log in topic.logs
        )
    assert seen


def test_partition_directories_have_one_spelling() -> None:
    disk = SimulatedDisk()
    opened(disk).close(NOW_MS)
    for name in ("t-007", "t-9999999999", "t-٣"):
        disk.make_directory(f"{ROOT}/{name}")
    data_dir = opened(disk.power_cut(0, Survival.KEPT))
    assert data_dir.topics == {}
    assert any("left alone 3 unknown directories" in notice for notice in data_dir.notices)
