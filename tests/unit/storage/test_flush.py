"""Tickets: what they pin, in which order they sync, and what becomes of errors."""

import pytest

from storage.flush import FlushTicket, Unsynced
from storage.log_reader import LogPosition
from storage.simulated_disk import Fault, Operation, SimulatedDisk
from tests.support.logs import DIRECTORY, add_at_end, disk, new_segment

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
    assert unsynced.end(ticket)
    assert not unsynced.is_dirty


def test_error_is_kept_in_the_ticket() -> None:
    files = disk()
    unsynced, ticket = begun(files)
    files.fault = Fault(at=0, kinds=frozenset({Operation.SYNC}))
    ticket.run()
    assert ticket.error is not None
    assert ticket.is_done
    unsynced.end(ticket)
    assert unsynced.ticket is None


def test_ticket_is_not_current_after_a_truncation() -> None:
    unsynced, ticket = begun(disk())
    unsynced.invalidate()
    ticket.run()
    assert not unsynced.end(ticket)


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
    unsynced.forget(closed.all_files())
    assert not unsynced.is_dirty
