"""The simulated disk: it keeps the promises of the file seam, and not one more."""

import errno
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.disk.files import Files, RealFiles, sync_file
from tests.support.power_loss import SECTOR_BYTES, Survival
from tests.support.simulated_disk import Fault, Operation, SimulatedDisk

UNKIND = [survival for survival in Survival if survival is not Survival.KEPT]


def disk_with_directory() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory("/d")
    disk.sync_directory("/")
    return disk


# --- the contract, on both implementations ------------------------------------------------------


@pytest.fixture(params=["real", "simulated"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Files, str]:
    if request.param == "real":
        return RealFiles(), str(tmp_path)
    return disk_with_directory(), "/d"


def test_appended_bytes_are_read_at_once(place: tuple[Files, str]) -> None:
    files, root = place
    file = files.create(f"{root}/a")
    file.append(b"hello ")
    file.append(memoryview(b"world"))
    assert file.size == files.size(f"{root}/a") == 11
    assert file.pread(5, 6) == b"world"
    assert file.pread(50, 6) == b"world"
    assert files.read_all(f"{root}/a") == b"hello world"


def test_truncation_cuts_and_appends_go_on_there(place: tuple[Files, str]) -> None:
    files, root = place
    file = files.create(f"{root}/a")
    file.append(b"hello")
    file.truncate(2)
    file.append(b"!")
    file.truncate(5)
    assert files.read_all(f"{root}/a") == b"he!\0\0"


def test_existing_file_is_not_created_again(place: tuple[Files, str]) -> None:
    files, root = place
    files.create(f"{root}/a")
    with pytest.raises(FileExistsError):
        files.create(f"{root}/a")


def test_missing_names_are_missing(place: tuple[Files, str]) -> None:
    files, root = place
    for operation in (files.open, files.size, files.unlink, files.read_all, files.modified_ms):
        with pytest.raises(FileNotFoundError):
            operation(f"{root}/none")
    with pytest.raises(FileNotFoundError):
        files.rename(f"{root}/none", f"{root}/other")
    with pytest.raises(FileNotFoundError):
        files.create(f"{root}/none/a")
    assert not files.exists(f"{root}/none")
    files.remove_tree(f"{root}/none")


def test_rename_replaces_a_file(place: tuple[Files, str]) -> None:
    files, root = place
    files.create(f"{root}/a").append(b"new")
    files.create(f"{root}/b").append(b"old")
    files.rename(f"{root}/a", f"{root}/b")
    assert files.list_directory(root) == ["b"]
    assert files.read_all(f"{root}/b") == b"new"


def test_directories_are_renamed_with_their_content_and_removed(place: tuple[Files, str]) -> None:
    files, root = place
    files.make_directory(f"{root}/p/q")
    files.make_directory(f"{root}/p")
    files.create(f"{root}/p/q/x")
    files.rename(f"{root}/p", f"{root}/r")
    assert files.is_directory(f"{root}/r/q")
    assert files.exists(f"{root}/r/q/x")
    files.remove_tree(f"{root}/r")
    files.create(f"{root}/file")
    files.remove_tree(f"{root}/file")
    assert files.list_directory(root) == []


def test_atomic_replacement_leaves_one_name(place: tuple[Files, str]) -> None:
    files, root = place
    files.replace_atomically(f"{root}/a", b"one")
    files.replace_atomically(f"{root}/a", b"two")
    assert files.list_directory(root) == ["a"]
    assert files.read_all(f"{root}/a") == b"two"


def test_lock_is_exclusive_until_released(place: tuple[Files, str]) -> None:
    files, root = place
    lock = files.lock(f"{root}/.lock")
    with pytest.raises(BlockingIOError):
        files.lock(f"{root}/.lock")
    lock.release()
    lock.release()
    files.lock(f"{root}/.lock").release()


def test_unlink_and_rename_keep_open_handles_alive(place: tuple[Files, str]) -> None:
    files, root = place
    file = files.create(f"{root}/a")
    file.append(b"x")
    files.unlink(f"{root}/a")
    assert file.pread(1, 0) == b"x"
    file.close()
    file.close()


# --- what survives ------------------------------------------------------------------------------


@pytest.mark.parametrize("survival", Survival)
@pytest.mark.parametrize("seed", range(20))
def test_synced_data_under_a_synced_name_survives(survival: Survival, seed: int) -> None:
    disk = disk_with_directory()
    file = disk.create("/d/a")
    file.append(b"x" * 2000)
    sync_file(file)
    disk.sync_directory("/d")
    file.append(b"y" * 2000)
    content = disk.power_cut(seed, survival).read_all("/d/a")
    assert content[:2000] == b"x" * 2000
    assert len(content) <= 4000


def test_data_without_sync_is_lost() -> None:
    disk = disk_with_directory()
    disk.create("/d/a").append(b"x")
    disk.sync_directory("/d")
    assert disk.power_cut(0, Survival.LOST).read_all("/d/a") == b""


def test_name_without_directory_sync_is_lost_though_the_data_was_synced() -> None:
    disk = disk_with_directory()
    file = disk.create("/d/a")
    file.append(b"x")
    sync_file(file)
    assert disk.power_cut(0, Survival.LOST).list_directory("/d") == []


def test_unlink_and_rename_without_directory_sync_are_undone() -> None:
    disk = disk_with_directory()
    for name in ("a", "b"):
        disk.create(f"/d/{name}")
    disk.sync_directory("/d")
    disk.unlink("/d/a")
    disk.rename("/d/b", "/d/c")
    assert disk.power_cut(0, Survival.LOST).list_directory("/d") == ["a", "b"]
    assert disk.power_cut(0, Survival.KEPT).list_directory("/d") == ["c"]
    found = {
        tuple(disk.power_cut(seed, Survival.REORDERED).list_directory("/d")) for seed in range(50)
    }
    assert found == {("a", "b"), ("b",), ("a", "c"), ("c",)}


def test_killed_process_loses_nothing() -> None:
    disk = disk_with_directory()
    disk.create("/d/a").append(b"x")
    assert disk.power_cut(0, Survival.KEPT).tree() == disk.tree()


def test_only_what_was_marked_before_the_sync_is_durable() -> None:
    disk = disk_with_directory()
    file = disk.create("/d/a")
    disk.sync_directory("/d")
    file.append(b"one")
    mark = file.begin_sync()
    file.append(b"two")
    file.sync()
    file.end_sync(mark)
    assert disk.power_cut(0, Survival.LOST).read_all("/d/a") == b"one"


def test_torn_write_is_torn_at_sectors() -> None:
    disk = disk_with_directory()
    file = disk.create("/d/a")
    disk.sync_directory("/d")
    file.append(b"x" * 300)
    sync_file(file)
    file.append(b"y" * 3 * SECTOR_BYTES)
    lengths, holes = set(), False
    for seed in range(100):
        content = disk.power_cut(seed, Survival.TORN).read_all("/d/a")
        lengths.add(len(content))
        holes = holes or b"\0" in content
        for start in range(SECTOR_BYTES, len(content), SECTOR_BYTES):
            assert len(set(content[start : start + SECTOR_BYTES])) == 1
    assert lengths == {300, 512, 1024, 1536, 300 + 3 * SECTOR_BYTES}
    assert holes


def test_zeroed_write_has_its_length_but_not_its_data() -> None:
    disk = disk_with_directory()
    file = disk.create("/d/a")
    disk.sync_directory("/d")
    file.append(b"abc")
    assert disk.power_cut(0, Survival.ZEROED).read_all("/d/a") == b"\0\0\0"


def test_prefix_is_a_prefix() -> None:
    disk = disk_with_directory()
    file = disk.create("/d/a")
    disk.sync_directory("/d")
    whole = b"".join(bytes([number]) * 700 for number in range(1, 6))
    for number in range(1, 6):
        file.append(bytes([number]) * 700)
    contents = {disk.power_cut(seed, Survival.PREFIX).read_all("/d/a") for seed in range(100)}
    assert all(whole.startswith(content) for content in contents)
    assert len(contents) > 5


def test_replacement_is_old_or_new_at_every_operation() -> None:
    disk = disk_with_directory()
    disk.replace_atomically("/d/a", b"old" * 300)
    seen = set()

    def look(operation: Operation, path: str) -> None:
        for survival in Survival:
            for seed in range(5):
                seen.add(disk.power_cut(seed, survival).read_all("/d/a"))

    disk.before_operation = look
    disk.replace_atomically("/d/a", b"new" * 300)
    assert seen == {b"old" * 300, b"new" * 300}
    disk.before_operation = None
    for survival in UNKIND:
        assert disk.power_cut(1, survival).read_all("/d/a") == b"new" * 300


def test_directory_whose_name_was_not_synced_is_lost_with_its_content() -> None:
    disk = SimulatedDisk()
    disk.make_directory("/d")
    file = disk.create("/d/a")
    sync_file(file)
    disk.sync_directory("/d")
    assert not disk.power_cut(0, Survival.LOST).exists("/d")


def test_locks_do_not_survive() -> None:
    disk = disk_with_directory()
    disk.lock("/d/.lock")
    disk.power_cut(0, Survival.KEPT).lock("/d/.lock")


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(list(Survival)))
def test_same_seed_gives_the_same_disk(seed: int, survival: Survival) -> None:
    disk = disk_with_directory()
    for name in ("a", "b", "c"):
        file = disk.create(f"/d/{name}")
        file.append(name.encode() * 1500)
        file.truncate(900)
    assert disk.power_cut(seed, survival).tree() == disk.power_cut(seed, survival).tree()


# --- faults -------------------------------------------------------------------------------------


def test_chosen_operation_fails_once() -> None:
    disk = disk_with_directory()
    disk.fault = Fault(at=1, errno=errno.ENOSPC, kinds=frozenset({Operation.APPEND}))
    file = disk.create("/d/a")
    file.append(b"one")
    with pytest.raises(OSError) as raised:
        file.append(b"two")
    assert raised.value.errno == errno.ENOSPC
    assert file.size == 3
    file.append(b"three")
    assert disk.read_all("/d/a") == b"onethree"
    assert disk.faults_raised == 1


def test_chosen_operation_fails_for_ever() -> None:
    disk = disk_with_directory()
    disk.fault = Fault(at=0, for_ever=True)
    for _ in range(3):
        with pytest.raises(OSError):
            disk.create("/d/a")
    assert disk.list_directory("/d") == []


def test_short_write_leaves_half() -> None:
    disk = disk_with_directory()
    disk.fault = Fault(at=0, short_write=True, kinds=frozenset({Operation.APPEND}))
    file = disk.create("/d/a")
    with pytest.raises(OSError):
        file.append(b"abcdef")
    assert (file.size, disk.read_all("/d/a")) == (0, b"abc")
    file.truncate(0)
    file.append(b"x")
    assert disk.read_all("/d/a") == b"x"


def test_second_sync_after_a_failed_one_lies_as_on_linux() -> None:
    disk = disk_with_directory()
    file = disk.create("/d/a")
    disk.sync_directory("/d")
    file.append(b"lost")
    disk.fault = Fault(at=0, kinds=frozenset({Operation.SYNC}))
    with pytest.raises(OSError):
        sync_file(file)
    sync_file(file)
    assert disk.read_all("/d/a") == b"lost"
    assert disk.power_cut(0, Survival.PREFIX).read_all("/d/a") == b""


def test_operations_are_counted_by_kind() -> None:
    disk = disk_with_directory()
    before = disk.operations
    disk.replace_atomically("/d/a", b"x")
    assert disk.operations - before == 5
    assert disk.counts[Operation.RENAME] == 1


def test_damage_reaches_the_medium() -> None:
    disk = disk_with_directory()
    disk.replace_atomically("/d/a", b"abc")
    disk.damage("/d/a", 1, b"X")
    assert disk.power_cut(0, Survival.LOST).read_all("/d/a") == b"aXc"
