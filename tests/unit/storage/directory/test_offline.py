"""The journal of a directory that no broker has open: what stays, what is refused, power cuts."""

from pathlib import Path, PurePosixPath

import pytest

from storage.directory.metadata import Json
from storage.directory.offline import open_journal
from storage.disk.checkpoints import CLEAN_SHUTDOWN_FILE
from storage.disk.files import RealFiles
from storage.errors import DataDirLocked, ForeignDataDir
from tests.support.power_loss import Survival
from tests.support.simulated_disk import CHANGES, Operation, PowerCut, SimulatedDisk
from tests.unit.storage.directory.test_data_dir import NOW, config, open_dir

ROOT = "/data"
SETTINGS = config(log_dirs=ROOT)


def random_bytes(count: int) -> bytes:
    return b"z" * count


def put(disk: SimulatedDisk, **documents: Json) -> None:
    with open_journal(SETTINGS, files=disk, random_bytes=random_bytes) as journal:
        journal.put_all("kind", documents, erase_former=True)


def documents(disk: SimulatedDisk) -> dict[str, Json]:
    with open_journal(SETTINGS, files=disk, random_bytes=random_bytes) as journal:
        return journal.documents("kind")


def close(disk: SimulatedDisk) -> None:
    directory = open_dir(disk, SETTINGS)
    directory.close(now_ms=NOW)


def test_a_new_directory_gets_an_identity_that_a_start_keeps() -> None:
    disk = SimulatedDisk()
    put(disk, a=1)
    meta = disk.read_all(f"{ROOT}/meta.properties")
    directory = open_dir(disk, SETTINGS)
    assert directory.documents("kind") == {"a": 1}
    assert disk.read_all(f"{ROOT}/meta.properties") == meta


def test_a_relative_path_is_one_below_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = config(log_dirs="new")
    with open_journal(given, files=RealFiles(), random_bytes=random_bytes) as journal:
        journal.put("kind", "a", 1)
    assert (tmp_path / "new" / "metadata.journal").exists()


def test_a_directory_in_use_is_refused_and_stays_locked() -> None:
    disk = SimulatedDisk()
    directory = open_dir(disk, SETTINGS)
    for _ in range(2):
        with pytest.raises(DataDirLocked, match="stop that broker"):
            put(disk, a=1)
    directory.put_documents("kind", {"b": 2})
    assert directory.documents("kind") == {"b": 2}


def test_the_lock_is_released_also_after_an_error() -> None:
    disk = SimulatedDisk()
    with (
        pytest.raises(KeyError),
        open_journal(SETTINGS, files=disk, random_bytes=random_bytes),
    ):
        raise KeyError
    put(disk, a=1)
    assert documents(disk) == {"a": 1}


@pytest.mark.parametrize("is_clean", [True, False])
def test_the_marker_of_a_clean_stop_stays_as_it_was(is_clean: bool) -> None:
    disk = SimulatedDisk()
    close(disk)
    marker = f"{ROOT}/{CLEAN_SHUTDOWN_FILE}"
    if not is_clean:
        disk.unlink(marker)
    put(disk, a=1)
    assert disk.exists(marker) is is_clean


def test_a_directory_of_kafka_is_refused_and_not_changed() -> None:
    disk = SimulatedDisk()
    put(disk, a=1)
    disk.unlink(f"{ROOT}/metadata.journal")
    disk.make_directory(f"{ROOT}/flights-0")
    before = disk.tree()
    with pytest.raises(ForeignDataDir, match="start the broker on it once"):
        put(disk, a=2)
    assert disk.tree() == before
    disk = SimulatedDisk()
    disk.make_directory(ROOT)
    disk.create(f"{ROOT}/notes")
    with pytest.raises(ForeignDataDir):
        put(disk, a=2)
    assert {PurePosixPath(path).name for path in disk.tree()} <= {"notes", ".lock"}


@pytest.mark.parametrize("survival", list(Survival))
def test_a_power_cut_leaves_the_old_documents_or_the_new_ones(survival: Survival) -> None:
    seen = set()
    for at in range(1_000):
        disk = SimulatedDisk()
        close(disk)
        put(disk, a="old", b="old")
        begun = disk.operations
        left = [at]

        def cut(operation: Operation, _path: str, left: list[int] = left) -> None:
            if operation in CHANGES:
                left[0] -= 1
                if left[0] < 0:
                    raise PowerCut

        disk.before_operation = cut
        try:
            put(disk, a="new", b="new")
        except PowerCut:
            pass
        else:
            assert disk.operations > begun
            assert documents(disk.power_cut(at, survival)) == {"a": "new", "b": "new"}
            break
        after = disk.power_cut(at, survival)
        found = documents(after)
        assert found in ({"a": "old", "b": "old"}, {"a": "new", "b": "new"}), at
        seen.add(found["a"])
        directory = open_dir(after, SETTINGS)
        assert directory.documents("kind") == found
    else:
        pytest.fail("the work never ends")
    assert "old" in seen
