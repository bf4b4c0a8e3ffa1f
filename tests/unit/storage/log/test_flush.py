"""Tickets: what they pin, in which order they sync, and what becomes of errors."""

import errno
import os
from pathlib import Path

import pytest

from storage.disk.files import File, RealFile, RealFiles
from storage.log.flush import FlushTicket, Unsynced
from storage.log.reader import LogPosition
from storage.segment.segment import Segment
from tests.support.logs import DIRECTORY, add_at_end, disk, new_segment
from tests.support.simulated_disk import Fault, Operation, SimulatedDisk

END = LogPosition(1, 0, 69)


def begun(files: SimulatedDisk) -> tuple[Unsynced, FlushTicket]:
    segment = new_segment(5, files=files)
    add_at_end(segment, 1)
    closed = new_segment(0, files=files)
    add_at_end(closed, 1)
    closed.seal(now_ms=0)
    unsynced = Unsynced(files, DIRECTORY)
    unsynced.add(closed.all_files())
    unsynced.add(closed.all_files())
    unsynced.add_created()
    return unsynced, unsynced.begin(segment, END)


def test_closed_segments_then_the_active_one_then_the_directory() -> None:
    files = disk()
    unsynced, ticket = begun(files)
    synced: list[str] = []
    files.before_operation = lambda _kind, path: synced.append(path.rpartition("/")[2])
    ticket.run()
    assert synced == [
        "00000000000000000000.log",
        "00000000000000000000.index",
        "00000000000000000000.timeindex",
        "00000000000000000005.log",
        "t-0",
    ]
    unsynced.end(ticket)
    assert not unsynced.is_dirty
    synced.clear()
    unsynced.begin(new_segment(9, files=files), END).run()
    assert synced[-1] == "00000000000000000009.log", "no names have changed since"


def test_complete_files_are_closed_once_they_were_synced(tmp_path: Path) -> None:
    files = RealFiles()
    directory = str(tmp_path)
    segment = Segment.create(files, directory, 0, now_ms=0)
    unsynced = Unsynced(files, directory)
    complete = files.create(f"{directory}/leader-epoch-checkpoint")
    complete.append(b"0\n0\n")
    unsynced.add_complete(complete)
    ticket = unsynced.begin(segment, END)
    assert len(files._open) == 2
    ticket.run()
    unsynced.end(ticket)
    assert len(files._open) == 1
    segment.close()


@pytest.mark.parametrize("fails", [False, True])
def test_a_file_may_be_closed_for_room_once_it_was_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    files = RealFiles()
    segment = Segment.create(files, str(tmp_path), 0, now_ms=0)
    add_at_end(segment, 1)

    def fail(_fd: int) -> None:
        raise OSError(errno.EIO, "no")

    unsynced = Unsynced(files, str(tmp_path))
    ticket = unsynced.begin(segment, END)
    if fails:
        monkeypatch.setattr(os, "fdatasync", fail)
    ticket.run()
    unsynced.end(ticket)
    assert may_be_closed(segment.log) is not fails


def test_a_ticket_that_cannot_be_made_leaves_its_files_unsynced(tmp_path: Path) -> None:
    files = RealFiles()
    first, second = (files.create(f"{tmp_path}/{name}") for name in "ab")
    first.append(b"1")
    second.close()
    files.unlink(second.path)
    with pytest.raises(FileNotFoundError):
        FlushTicket(files, to_sync=[first, second], directory=None, end=END)
    assert not may_be_closed(first)
    first.close()
    assert len(files._open) == 0, "nothing is pinned"


def may_be_closed(file: File) -> bool:
    assert isinstance(file, RealFile)
    file._recent = False
    return file._may_be_evicted()


def test_complete_files_are_closed_with_the_log(tmp_path: Path) -> None:
    files = RealFiles()
    unsynced = Unsynced(files, str(tmp_path))
    unsynced.add_complete(files.create(f"{tmp_path}/snapshot"))
    unsynced.close()
    assert len(files._open) == 0


def test_error_is_kept_in_the_ticket() -> None:
    files = disk()
    unsynced, ticket = begun(files)
    files.fault = Fault(at=0, kinds=frozenset({Operation.SYNC}))
    ticket.run()
    assert ticket.error is not None
    assert ticket.is_done
    unsynced.end(ticket)
    assert unsynced.ticket is None


def test_misuse_is_a_bug() -> None:
    files = disk()
    unsynced, ticket = begun(files)
    segment = new_segment(9, files=files)
    with pytest.raises(AssertionError):
        unsynced.begin(segment, END)
    with pytest.raises(AssertionError):
        unsynced.end(ticket)
    ticket.run()
    with pytest.raises(AssertionError):
        ticket.run()
    unsynced.end(ticket)
    with pytest.raises(AssertionError):
        unsynced.end(ticket)


def test_forgotten_files_are_not_synced() -> None:
    files = disk()
    closed = new_segment(0, files=files)
    unsynced = Unsynced(files, DIRECTORY)
    unsynced.add(closed.all_files())
    assert unsynced.is_dirty
    unsynced.drop(closed.all_files())
    assert not unsynced.is_dirty
