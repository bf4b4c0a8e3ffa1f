"""Renamed files wait for their time; a failing unlink keeps the rest waiting."""

import pytest

from storage.disk.steps import OffLoop, run_steps
from storage.errors import StorageFailed
from tests.support.logs import LogHarness
from tests.support.simulated_disk import Fault, Operation


def with_closed_segments(count: int) -> LogHarness:
    """A log of so many closed segments with one batch each, and an empty active one."""
    log = LogHarness()
    for _ in range(count):
        log.append(1)
        log.log.roll(log.now_ms)
    return log


def deleted(log: LogHarness) -> list[str]:
    return [name for name in log.names() if name.endswith(".deleted")]


def test_files_are_unlinked_when_due() -> None:
    log = with_closed_segments(2)
    log.log.changes.remove_oldest(1, due_ms=10)
    one = len(deleted(log))
    log.log.changes.remove_oldest(1, due_ms=20)
    assert len(deleted(log)) == 2 * one
    unlinked = [run_steps(log.log.delete_pending_files(now_ms)) for now_ms in (9, 10, 19, 20)]
    assert unlinked == [0, one, 0, one]
    assert deleted(log) == []


def test_file_that_is_gone_already_is_fine() -> None:
    log = with_closed_segments(1)
    log.log.changes.remove_oldest(1, due_ms=0)
    count = len(deleted(log))
    log.files.unlink(f"{log.path}/00000000000000000000.log.deleted")
    assert run_steps(log.log.delete_pending_files(0)) == count


def test_failure_keeps_the_file_waiting() -> None:
    log = with_closed_segments(1)
    log.log.changes.remove_oldest(1, due_ms=0)
    log.files.fault = Fault(at=0, kinds=frozenset({Operation.UNLINK}))
    with pytest.raises(StorageFailed, match="error"):
        run_steps(log.log.delete_pending_files(0))
    assert len(deleted(log)) == 1, "the others were tried"
    assert run_steps(log.log.delete_pending_files(0)) == 1


def test_each_file_is_unlinked_elsewhere_and_others_may_be_removed_meanwhile() -> None:
    log = with_closed_segments(2)
    log.log.changes.remove_oldest(1, due_ms=0)
    first = deleted(log)
    for step, call in enumerate(log.log.delete_pending_files(0)):
        assert isinstance(call, OffLoop)
        if step == 0:
            log.log.changes.remove_oldest(1, due_ms=0)
        before = deleted(log)
        call.run()
        assert len(before) - len(deleted(log)) == 1, "one file in one step"
    assert not set(first) & set(deleted(log))
    assert deleted(log), "what was removed meanwhile waits"
    run_steps(log.log.delete_pending_files(0))
    assert deleted(log) == []
