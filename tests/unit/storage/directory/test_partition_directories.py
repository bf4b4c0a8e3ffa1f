"""Directories of partitions: how they are made, moved aside and removed."""

import pytest

from storage.directory.partition_directories import PartitionDirectories
from storage.disk.checkpoints import format_partition_metadata
from storage.disk.steps import run_steps
from storage.errors import StorageFailed
from tests.support.power_loss import Survival
from tests.support.simulated_disk import Fault, Operation, SimulatedDisk

ROOT = "/data"
TOPIC_ID = bytes(range(16))


def new() -> tuple[SimulatedDisk, PartitionDirectories]:
    disk = SimulatedDisk()
    disk.make_directory(ROOT)
    disk.sync_directory("/")
    numbers = iter(range(100))
    return disk, PartitionDirectories(ROOT, disk, lambda size: bytes([next(numbers)]) * size)


def test_made_directory_is_durable_after_sync() -> None:
    disk, directories = new()
    assert directories.make("t", 3, TOPIC_ID) == f"{ROOT}/t-3"
    assert disk.read_all(f"{ROOT}/t-3/partition.metadata") == format_partition_metadata(TOPIC_ID)
    assert not disk.power_cut(0, Survival.LOST).exists(f"{ROOT}/t-3")
    directories.sync()
    assert disk.power_cut(0, Survival.LOST).exists(f"{ROOT}/t-3")


def test_directory_in_the_way_is_not_taken() -> None:
    disk, directories = new()
    disk.make_directory(f"{ROOT}/t-0")
    with pytest.raises(StorageFailed, match="such a directory already"):
        directories.make("t", 0, TOPIC_ID)


def test_metadata_is_replaced() -> None:
    disk, directories = new()
    directory = directories.make("t", 0, TOPIC_ID)
    directories.write_metadata(directory, b"x" * 16)
    assert disk.read_all(f"{directory}/partition.metadata") == format_partition_metadata(b"x" * 16)


def test_deleted_directory_goes_when_it_is_due() -> None:
    disk, directories = new()
    directories.make("t", 0, TOPIC_ID)
    directories.make("t", 1, TOPIC_ID)
    directories.delete("t", range(3), 90, delay_ms=10)
    assert disk.list_directory(ROOT) == [
        f"t-0.{'00' * 16}-delete",
        f"t-1.{'01' * 16}-delete",
    ]
    assert run_steps(directories.remove_due(99)) == 0
    assert run_steps(directories.remove_due(100)) == 2
    assert run_steps(directories.remove_due(100)) == 0
    assert disk.list_directory(ROOT) == []


def test_removal_that_fails_is_tried_again() -> None:
    disk, directories = new()
    directories.make("t", 0, TOPIC_ID)
    directories.delete("t", range(1), 0)
    disk.fault = Fault(at=0, kinds=frozenset({Operation.UNLINK}))
    with pytest.raises(StorageFailed, match="remove"):
        run_steps(directories.remove_due(0))
    assert run_steps(directories.remove_due(0)) == 1
    assert disk.list_directory(ROOT) == []


def test_topic_made_again_between_the_steps_of_a_removal_stays() -> None:
    disk, directories = new()
    for partition in range(2):
        directories.make("t", partition, TOPIC_ID)
    directories.delete("t", range(2), 0)
    steps = directories.remove_due(0)
    first = next(steps)
    assert first is not None
    directories.make("t", 0, TOPIC_ID)
    directories.delete("t", range(1), 0)
    directories.make("t", 0, TOPIC_ID)
    first.run()
    assert len(disk.list_directory(ROOT)) == 3, "one directory in one step"
    assert run_steps(steps) == 2
    assert disk.list_directory(ROOT) == ["t-0", f"t-0.{'02' * 16}-delete"]
    assert run_steps(directories.remove_due(0)) == 1
    assert disk.list_directory(ROOT) == ["t-0"]


def test_stray_keeps_its_content_under_another_name() -> None:
    disk, directories = new()
    directories.make("t", 0, TOPIC_ID)
    name = directories.set_aside("t", 0)
    assert name == f"t-0.{'00' * 16}-stray"
    assert disk.list_directory(f"{ROOT}/{name}") == ["partition.metadata"]


def test_longest_topic_name_still_fits_when_moved_aside() -> None:
    _, directories = new()
    topic = "x" * 249
    directories.make(topic, 12345, TOPIC_ID)
    assert len(directories.set_aside(topic, 12345)) == 255
