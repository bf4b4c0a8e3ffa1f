"""Leader epochs: where each began, where each ended, and the file they live in."""

from pathlib import Path

import pytest

from storage.disk.checkpoints import CorruptCheckpoint
from storage.disk.files import RealFiles
from storage.log.leader_epochs import (
    UNKNOWN_EPOCH_END,
    EpochEnd,
    EpochStart,
    LeaderEpochs,
    format_leader_epochs,
    parse_leader_epochs,
)
from tests.support.simulated_disk import Fault, Operation, SimulatedDisk


def three_epochs() -> LeaderEpochs:
    return LeaderEpochs([EpochStart(1, 0), EpochStart(3, 10), EpochStart(4, 25)])


def test_file_bytes_are_kafkas() -> None:
    assert format_leader_epochs([EpochStart(0, 0), EpochStart(3, 1500)]) == b"0\n2\n0 0\n3 1500\n"
    assert parse_leader_epochs(b"0\n2\n0 0\n3 1500\n") == [EpochStart(0, 0), EpochStart(3, 1500)]


@pytest.mark.parametrize(
    "content",
    [
        b"1\n0\n",
        b"0\n2\n0 0\n",
        b"0\n1\n0\n",
        b"0\n1\n-1 0\n",
        b"0\n2\n3 0\n3 5\n",
        b"0\n2\n1 5\n2 5\n",
        b"0\n1\n0 15",
    ],
)
def test_broken_file_is_reported(content: bytes) -> None:
    with pytest.raises(CorruptCheckpoint):
        parse_leader_epochs(content)


@pytest.mark.parametrize(
    ("requested", "expected"),
    [
        (-1, UNKNOWN_EPOCH_END),
        (0, EpochEnd(0, 0)),
        (1, EpochEnd(1, 10)),
        (2, EpochEnd(1, 10)),
        (3, EpochEnd(3, 25)),
        (4, EpochEnd(4, 40)),
        (5, UNKNOWN_EPOCH_END),
    ],
)
def test_end_offset_for_epoch(requested: int, expected: EpochEnd) -> None:
    assert three_epochs().end_offset_for(requested, 40) == expected


def test_end_offset_without_any_epoch_is_unknown() -> None:
    assert LeaderEpochs().end_offset_for(0, 5) == UNKNOWN_EPOCH_END


def test_epoch_for_offset() -> None:
    epochs = LeaderEpochs([EpochStart(1, 5), EpochStart(3, 10)])
    assert [epochs.epoch_for_offset(offset) for offset in (4, 5, 9, 10, 99)] == [-1, 1, 1, 3, 3]


def test_assigning_the_epoch_in_force_changes_nothing() -> None:
    epochs = three_epochs()
    assert not epochs.assign(4, 30)
    assert epochs.assign(5, 30)
    assert epochs.latest_epoch == 5


def test_assignment_removes_what_contradicts_it() -> None:
    epochs = three_epochs()
    epochs.assign(3, 8)
    assert epochs.entries == (EpochStart(1, 0), EpochStart(3, 8))
    epochs = three_epochs()
    epochs.assign(9, 10)
    assert epochs.entries == (EpochStart(1, 0), EpochStart(9, 10))


def test_truncation_from_the_end() -> None:
    epochs = three_epochs()
    epochs.truncate_from_end(26)
    assert len(epochs.entries) == 3
    epochs.truncate_from_end(25)
    assert epochs.latest_epoch == 3
    epochs.truncate_from_end(0)
    assert epochs.earliest is None


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (0, [(1, 0), (3, 10), (4, 25)]),
        (5, [(1, 5), (3, 10), (4, 25)]),
        (10, [(3, 10), (4, 25)]),
        (24, [(3, 24), (4, 25)]),
        (90, [(4, 90)]),
    ],
)
def test_truncation_from_the_start_keeps_the_epoch_in_force(
    start: int, expected: list[tuple[int, int]]
) -> None:
    epochs = three_epochs()
    epochs.truncate_from_start(start)
    assert list(epochs.entries) == expected
    assert epochs.earliest == expected[0]


def test_truncation_below_the_first_epoch_changes_nothing() -> None:
    epochs = LeaderEpochs([EpochStart(2, 7)])
    epochs.truncate_from_start(3)
    assert epochs.entries == (EpochStart(2, 7),)


def test_each_change_is_in_the_file(tmp_path: Path) -> None:
    files = RealFiles()
    epochs = LeaderEpochs.open(str(tmp_path), files)
    assert epochs.earliest is None
    epochs.assign(0, 0)
    epochs.assign(2, 12)
    path = tmp_path / "leader-epoch-checkpoint"
    assert path.read_bytes() == b"0\n2\n0 0\n2 12\n"
    assert LeaderEpochs.open(str(tmp_path), files).entries == epochs.entries
    epochs.clear()
    assert path.read_bytes() == b"0\n0\n"


def test_first_epoch_is_written_without_a_sync(tmp_path: Path) -> None:
    disk = SimulatedDisk()
    disk.make_directory("/t-0")
    epochs = LeaderEpochs.open("/t-0", disk)
    done: list[Operation] = []
    disk.before_operation = lambda kind, _path: done.append(kind)
    file = epochs.assign_unsynced(0, 7)
    assert file is not None
    assert not {Operation.SYNC, Operation.SYNC_DIRECTORY} & set(done)
    assert disk.read_all("/t-0/leader-epoch-checkpoint") == b"0\n1\n0 7\n"
    assert epochs.entries == (EpochStart(0, 7),)


def test_later_epochs_are_durable_at_once(tmp_path: Path) -> None:
    epochs = LeaderEpochs([EpochStart(0, 0)], directory=str(tmp_path), files=RealFiles())
    assert epochs.assign_unsynced(2, 12) is None
    assert (tmp_path / "leader-epoch-checkpoint").read_bytes() == b"0\n2\n0 0\n2 12\n"


def test_failed_write_of_the_first_epoch_can_be_tried_again() -> None:
    disk = SimulatedDisk()
    disk.make_directory("/t-0")
    epochs = LeaderEpochs.open("/t-0", disk)
    disk.fault = Fault(at=0, kinds=frozenset({Operation.APPEND}), short_write=True)
    with pytest.raises(OSError):
        epochs.assign_unsynced(0, 7)
    assert epochs.earliest is None
    disk.fault = None
    assert epochs.assign_unsynced(0, 7) is not None
    assert LeaderEpochs.open("/t-0", disk).entries == (EpochStart(0, 7),)


def test_contradicting_entries_are_a_bug() -> None:
    with pytest.raises(AssertionError):
        LeaderEpochs([EpochStart(2, 7), EpochStart(2, 9)])
