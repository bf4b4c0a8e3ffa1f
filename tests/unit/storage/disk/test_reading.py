"""Reads for another thread: what they return, whatever happens to the file meanwhile."""

from collections.abc import Generator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from protocol.records.checksums import crc32c
from storage.disk.files import RealFile, RealFiles
from storage.disk.reading import FEW_BYTES, read_summed
from storage.disk.steps import run_steps

CONTENT = bytes(range(256)) * (2 * FEW_BYTES // 256)


@pytest.fixture
def file(tmp_path: Path) -> RealFile:
    made = RealFiles().create(str(tmp_path / "a"))
    made.append(CONTENT)
    return made


def finish(steps: Generator[Any, None, Any]) -> Any:
    """Continue after the call; what the steps return."""
    with pytest.raises(StopIteration) as stop:
        next(steps)
    return stop.value.value


def test_many_bytes_are_read_in_another_thread(
    file: RealFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []

    def pread(self: RealFile, size: int, position: int) -> bytes:
        read.append(size)
        return whole(self, size, position)

    whole = RealFile.pread
    monkeypatch.setattr(RealFile, "pread", pread)
    steps = read_summed(file, len(CONTENT) - 3, 3)
    call = next(steps)
    assert call is not None
    assert read == []
    thread = Thread(target=call.run)
    thread.start()
    thread.join()
    assert finish(steps) == (CONTENT[3:], crc32c(CONTENT[3:]))


def test_few_bytes_are_read_at_once(file: RealFile) -> None:
    steps = read_summed(file, FEW_BYTES, 1, crc=7)
    assert next(steps) is None
    expected = CONTENT[1 : FEW_BYTES + 1]
    assert finish(steps) == (expected, crc32c(expected, 7))


def test_a_file_that_is_closed_and_removed_meanwhile_is_read_to_the_end(
    file: RealFile, tmp_path: Path
) -> None:
    steps = read_summed(file, len(CONTENT), 0)
    call = next(steps)
    file.close()
    (tmp_path / "a").unlink()
    assert call is not None
    call.run()
    assert finish(steps)[0] == CONTENT
    with pytest.raises(FileNotFoundError):
        file.pread(1, 0)


def test_a_read_that_is_given_up_unpins_the_file(file: RealFile) -> None:
    steps = read_summed(file, len(CONTENT), 0)
    next(steps)
    steps.close()
    file.close()
    assert file._fd < 0


def test_what_the_disk_refuses_is_raised(file: RealFile, tmp_path: Path) -> None:
    file.close()
    (tmp_path / "a").unlink()
    with pytest.raises(FileNotFoundError):
        run_steps(read_summed(file, len(CONTENT), 0))
