"""Positions that readers are expected at: used, bounded, forgotten."""

from storage.log.reader import HINTS_MAX
from storage.log.retention import delete_expired
from storage.log.values import Isolation
from tests.support.logs import LogHarness, batch
from tests.support.simulated_disk import Operation

UNCOMMITTED = Isolation.READ_UNCOMMITTED


def reads(log: LogHarness, offset: int, max_bytes: int = 1) -> int:
    """File reads that one fetch costs."""
    before = log.files.counts[Operation.READ]
    log.log.read(offset, max_bytes=max_bytes, isolation=UNCOMMITTED)
    return log.files.counts[Operation.READ] - before


def test_tail_reader_pays_one_read_for_new_records() -> None:
    log = LogHarness()
    log.append(0)
    size = len(batch(0))
    reads(log, 0, size)
    for offset in range(1, 20):
        log.append(offset)
        assert reads(log, offset, size) == 1


def test_tail_reader_crosses_into_a_new_segment() -> None:
    log = LogHarness()
    size = len(batch(0))
    log.append(0)
    reads(log, 0, size)
    log.log.roll(log.now_ms)
    log.append(1)
    assert reads(log, 1, size) == 1
    assert [record.offset for record in log.records()] == [0, 1]


def test_remembered_positions_are_bounded() -> None:
    log = LogHarness(index_interval_bytes=0)
    for offset in range(2 * HINTS_MAX):
        log.append(offset)
    for offset in range(2 * HINTS_MAX):
        reads(log, offset, len(batch(0)))
    assert len(log.log.reader._hints or ()) == HINTS_MAX


def test_positions_are_forgotten_when_segments_are_deleted() -> None:
    log = LogHarness()
    for offset in range(4):
        log.append(offset)
        log.log.roll(log.now_ms)
    reads(log, 0, 1)
    log.log.delete_before(2)
    delete_expired(log.log, log.now_ms)
    assert [record.offset for record in log.records()] == [2, 3]
