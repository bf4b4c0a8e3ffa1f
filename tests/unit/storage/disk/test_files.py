"""The real file system: descriptors are bounded, unsynced files stay open, syncs are pinned.

What both implementations promise is tested in `test_simulated_disk`.
"""

import errno
import os
from pathlib import Path

import pytest

from storage.disk.files import RealFile, RealFiles, sync_file


def opened(files: RealFiles, directory: Path, count: int, *, synced: bool = True) -> list[RealFile]:
    made = []
    for number in range(count):
        file = files.create(f"{directory}/{number}")
        file.append(b"%d" % number)
        if synced:
            sync_file(file)
        made.append(file)
    return made


def test_descriptors_are_bounded_and_come_back(tmp_path: Path) -> None:
    files = RealFiles(max_open_files=16)
    made = opened(files, tmp_path, 50)
    assert len(files._open) == 16
    for number, file in enumerate(made):
        assert file.pread(9, 0) == b"%d" % number
        assert len(files._open) <= 16
    for file in made:
        file.close()
    assert len(files._open) == 0


def test_recently_used_file_is_closed_later(tmp_path: Path) -> None:
    files = RealFiles(max_open_files=16)
    made = opened(files, tmp_path, 16)
    opened(files, tmp_path / "..", 0)
    for file in made:
        file._recent = False
    made[0].pread(1, 0)
    files.create(f"{tmp_path}/more")
    assert made[0]._fd >= 0
    assert made[1]._fd < 0


def test_file_with_unsynced_bytes_is_never_closed_for_room(tmp_path: Path) -> None:
    files = RealFiles(max_open_files=16)
    made = opened(files, tmp_path, 20, synced=False)
    assert len(files._open) == 20
    for file in made:
        sync_file(file)
    files.create(f"{tmp_path}/more")
    files.create(f"{tmp_path}/more2")
    assert len(files._open) < 22


def test_changes_after_the_mark_are_not_taken_as_synced(tmp_path: Path) -> None:
    file = RealFiles().create(f"{tmp_path}/a")
    file.append(b"1")
    mark = file.begin_sync()
    file.append(b"2")
    file.sync()
    file.end_sync(mark)
    assert not file._may_be_evicted()
    sync_file(file)
    file._recent = False
    assert file._may_be_evicted()


def test_failed_sync_leaves_the_file_unsynced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = RealFiles().create(f"{tmp_path}/a")
    file.append(b"1")

    def fail(_fd: int) -> None:
        raise OSError(errno.EIO, "no")

    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(OSError, match="no"):
        sync_file(file)
    file._recent = False
    assert not file._may_be_evicted()


def test_closing_waits_for_a_sync_under_way(tmp_path: Path) -> None:
    files = RealFiles()
    file = files.create(f"{tmp_path}/a")
    file.append(b"1")
    mark = file.begin_sync()
    file.close()
    assert len(files._open) == 1
    file.sync()
    file.end_sync(mark)
    assert len(files._open) == 0
    assert file.pread(1, 0) == b"1"


def test_sync_without_pin_is_a_bug(tmp_path: Path) -> None:
    file = RealFiles().create(f"{tmp_path}/a")
    with pytest.raises(AssertionError):
        file.sync()
    with pytest.raises(AssertionError):
        file.end_sync(0)


def test_interrupted_write_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = RealFiles().create(f"{tmp_path}/a")
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: real(fd, bytes(data)[:3], at))
    file.append(b"0123456789")
    assert file.size == 10
    assert file.pread(99, 0) == b"0123456789"


def test_append_after_a_failure_and_truncation_starts_at_the_end(tmp_path: Path) -> None:
    file = RealFiles().create(f"{tmp_path}/a")
    file.append(b"good")
    os.pwrite(file._fd, b"half-writ", 4)
    file.truncate(4)
    file.append(b"!")
    assert file.pread(99, 0) == b"good!"


def test_files_are_private(tmp_path: Path) -> None:
    files = RealFiles()
    files.make_directory(f"{tmp_path}/d/e")
    files.create(f"{tmp_path}/d/a")
    files.replace_atomically(f"{tmp_path}/d/b", b"x")
    files.lock(f"{tmp_path}/d/c").release()
    assert [os.stat(tmp_path / "d" / name).st_mode & 0o777 for name in "abc"] == [0o600] * 3
    assert os.stat(tmp_path / "d" / "e").st_mode & 0o777 == 0o700


def test_default_bound_leaves_descriptors_to_others() -> None:
    assert RealFiles().max_open_files >= 16
    assert RealFiles(max_open_files=1).max_open_files == 16


def test_many_files_with_unsynced_bytes_are_not_searched_again_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten thousand partitions written to for the first time: each search in vain looks at all."""
    looked = 0
    original = RealFile._may_be_evicted

    def counted(file: RealFile) -> bool:
        nonlocal looked
        looked += 1
        return original(file)

    monkeypatch.setattr(RealFile, "_may_be_evicted", counted)
    files = RealFiles(max_open_files=16)
    made = [files.create(f"{tmp_path}/{number}") for number in range(16)]
    for file in made:
        file.append(b"x")
    for number in range(16, 400):
        made.append(files.create(f"{tmp_path}/{number}"))
        made[-1].append(b"x")
    assert len(files._open) == 400
    assert looked < 400 * 40
    for file in made:
        sync_file(file)
    before = len(files._open)
    for number in range(400, 450):
        files.create(f"{tmp_path}/{number}").append(b"x")
    assert len(files._open) <= before + before // 16
    for file in made:
        file.close()
