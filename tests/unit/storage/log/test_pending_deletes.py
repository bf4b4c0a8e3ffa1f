"""Renamed files wait for their time; a failing unlink keeps the rest waiting."""

import pytest

from storage.disk.steps import OffLoop
from storage.log.pending_deletes import Graveyard
from tests.support.logs import DIRECTORY, add_at_end, disk, new_segment
from tests.support.simulated_disk import Fault, Operation


def test_files_are_unlinked_when_due() -> None:
    files = disk()
    graveyard = Graveyard(files)
    first, second = new_segment(0, files=files), new_segment(5, files=files)
    add_at_end(first, 1)
    first.seal(now_ms=0)
    graveyard.bury([first], due_ms=10)
    graveyard.bury([second], due_ms=20)
    assert len(graveyard) == 4
    assert [graveyard.unlink_due(now_ms) for now_ms in (9, 10, 19, 20)] == [0, 3, 0, 1]
    assert files.list_directory(DIRECTORY) == []


def test_file_that_is_gone_already_is_fine() -> None:
    files = disk()
    graveyard = Graveyard(files)
    graveyard.bury([new_segment(0, files=files)], due_ms=0)
    files.unlink(f"{DIRECTORY}/00000000000000000000.log.deleted")
    assert graveyard.unlink_due(0) == 1


def test_failure_keeps_the_file_waiting() -> None:
    files = disk()
    graveyard = Graveyard(files)
    graveyard.bury([new_segment(0, files=files)], due_ms=0)
    files.fault = Fault(at=0, kinds=frozenset({Operation.UNLINK}))
    with pytest.raises(OSError, match="error"):
        graveyard.unlink_due(0)
    assert graveyard.unlink_due(0) == 1


def test_each_file_is_unlinked_elsewhere_and_others_may_be_buried_meanwhile() -> None:
    files = disk()
    graveyard = Graveyard(files)
    graveyard.bury([new_segment(0, files=files)], due_ms=0)
    for step, call in enumerate(graveyard.unlink_steps(0)):
        assert isinstance(call, OffLoop)
        if step == 0:
            graveyard.bury([new_segment(5, files=files)], due_ms=0)
        there = files.list_directory(DIRECTORY)
        call.run()
        assert files.list_directory(DIRECTORY) == there[1:], "one file in one step"
    assert len(graveyard) > 0, "what was buried meanwhile waits"
    graveyard.unlink_due(0)
    assert (len(graveyard), files.list_directory(DIRECTORY)) == (0, [])
