"""What a log says when the disk fails: the operation, the partition, the reason of the system."""

import errno
from collections.abc import Callable
from contextlib import suppress

import pytest

from storage.errors import LogOffline, OffsetOutOfRange, PolicyViolation, StorageFailed
from storage.log.producers import LogProducers
from storage.log.values import Isolation
from storage.segment.feed import TAIL_ENTRIES_MAX
from storage.segment.segment import Segment
from tests.support.logs import LogHarness, produced
from tests.support.power_loss import Survival
from tests.support.simulated_disk import Operation, SimulatedFile
from tests.unit.storage.log.test_log import fail_next

OPERATIONS: dict[str, tuple[Callable[[LogHarness], object], tuple[Operation, ...]]] = {
    "append": (lambda log: log.append(2), (Operation.APPEND,)),
    "roll": (lambda log: log.log.roll(5), (Operation.CREATE,)),
    "delete": (lambda log: log.log.delete_before(1), (Operation.APPEND, Operation.SYNC)),
    "close": (lambda log: log.log.begin_close(5), (Operation.APPEND, Operation.CREATE)),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_failure_names_the_operation_the_partition_and_the_reason(operation: str) -> None:
    log = LogHarness(index_interval_bytes=0)
    log.append(1)
    act, kinds = OPERATIONS[operation]
    fail_next(log.files, *kinds, errno=5)
    with pytest.raises(StorageFailed) as raised:
        act(log)
    error = raised.value
    assert (error.operation, error.path) == (operation, log.path)
    assert error.reason == str(error.__cause__)
    assert "Errno 5" in error.reason


def test_a_first_segment_of_an_epoch_that_cannot_be_noted_fails_the_append() -> None:
    log = LogHarness()
    fail_next(log.files, Operation.CREATE, errno=5)
    with pytest.raises(StorageFailed) as raised:
        log.append(1)
    error = raised.value
    assert (error.operation, error.path) == ("append", log.path)
    assert error.reason == str(error.__cause__)
    assert log.append(1).first_offset == 0


def test_a_log_does_not_close_during_a_sync() -> None:
    log = LogHarness()
    log.append(1, flush=False)
    ticket = log.log.begin_flush()
    with pytest.raises(StorageFailed) as raised:
        log.log.begin_close(5)
    assert str(raised.value) == f"close failed on {log.path}: a sync is still under way"
    assert ticket is not None
    ticket.run()
    log.log.complete_flush(ticket)


def test_what_took_the_log_offline_is_its_reason() -> None:
    log = LogHarness()
    log.append(1, flush=False)
    ticket = log.log.begin_flush()
    assert ticket is not None
    fail_next(log.files, Operation.SYNC, errno=5)
    ticket.run()
    with pytest.raises(LogOffline) as raised:
        log.log.complete_flush(ticket)
    assert raised.value.path == log.path
    assert log.log.offline_reason == str(ticket.error)
    assert "Errno 5" in str(ticket.error)


def test_a_write_that_cannot_be_taken_back_is_the_reason() -> None:
    log = LogHarness()
    log.append(1)
    fail_next(
        log.files, Operation.APPEND, Operation.TRUNCATE, for_ever=True, short_write=True, errno=5
    )
    with pytest.raises(LogOffline, match="Errno 5"):
        log.append(2)


def test_a_closed_log_says_so() -> None:
    log = LogHarness()
    states: list[object] = [log.log.is_closed]
    log.log.close(5)
    states.append(log.log.is_closed)
    assert states == [False, True]
    with pytest.raises(LogOffline) as raised:
        log.append(1)
    assert (raised.value.path, raised.value.reason) == (log.path, "the log was closed")


def test_a_read_out_of_range_says_which_offset() -> None:
    log = LogHarness()
    log.append(1)
    with pytest.raises(OffsetOutOfRange) as raised:
        log.log.read(5, max_bytes=1, isolation=Isolation.READ_UNCOMMITTED)
    error = raised.value
    assert (error.offset, error.start, error.end) == (5, 0, 1)


def test_committed_readers_get_a_list_even_of_nothing() -> None:
    log = LogHarness()
    log.append(1)
    found = {
        isolation: log.log.read(0, max_bytes=999, isolation=isolation).aborted_transactions
        for isolation in (Isolation.READ_UNCOMMITTED, Isolation.READ_COMMITTED)
    }
    assert found == {Isolation.READ_UNCOMMITTED: None, Isolation.READ_COMMITTED: []}


@pytest.mark.parametrize("has_producer", [True, False])
@pytest.mark.parametrize("segments", [1, 2])
def test_a_close_saves_producers_where_a_start_would_have_to_look_for_them(
    segments: int, has_producer: bool
) -> None:
    log = LogHarness()
    if has_producer:
        log.write(produced(1, producer_id=7, sequence=0))
    else:
        log.append(1)
    if segments == 2:
        log.log.roll(5)
        log.append(2)
    log.log.close(5)
    end = log.log.log_end_offset
    assert (f"{end:020d}.snapshot" in log.names()) is (has_producer or segments == 2)


def test_a_log_that_nothing_was_appended_to_closes_without_a_write() -> None:
    assert LogHarness().log.begin_close(5) is None, "not even for the name of a new one"
    log = LogHarness()
    log.append(1)
    log.reopen()
    assert log.log.begin_close(5) is None


def test_a_flush_that_cannot_open_a_file_fails_and_may_be_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = LogHarness()
    log.append(1, flush=False)

    def fail(self: SimulatedFile) -> int:
        raise OSError(errno.EMFILE, "too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(SimulatedFile, "begin_sync", fail)
        with pytest.raises(StorageFailed) as raised:
            log.log.begin_flush()
    error = raised.value
    assert (error.operation, error.path) == ("flush", log.path)
    assert error.reason == f"[Errno {errno.EMFILE}] too many open files"
    log.log.flush()
    assert log.log.durable_offset == 1


def test_index_entries_that_cannot_be_written_stay_in_memory() -> None:
    log = LogHarness(index_interval_bytes=0)
    while len(log.log.segments.active.offset_index._first) < TAIL_ENTRIES_MAX - 1:
        log.append(1)
    end = log.log.log_end_offset
    fail_next(log.files, Operation.APPEND, skip=1, errno=5)
    log.append(2)
    assert log.files.fault is not None
    assert log.log.log_end_offset == end + 1
    log.files.fault = None
    log.append(3)
    hit = log.log.offset_for_timestamp(3)
    assert hit is not None
    assert hit.offset == end + 1


def test_a_marker_that_is_in_the_log_and_not_in_its_index_stops_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = LogHarness()
    log.write(produced(1, producer_id=7, sequence=0, is_transactional=True))

    def fail(*_: object) -> None:
        raise OSError(5, "the index is gone")

    monkeypatch.setattr(LogProducers, "update", fail)
    with pytest.raises(LogOffline, match="the index is gone"):
        log.append(2)


def test_a_segment_begins_at_the_time_of_the_append_that_rolled() -> None:
    log = LogHarness(segment_ms=10)
    log.append(log.now_ms)
    assert log.log.held_by_future is None
    log.now_ms += 100
    log.append(log.now_ms)
    assert log.bases() == [0, 1]
    assert log.log.segments.active.created_ms == log.now_ms


def test_an_append_in_the_same_epoch_changes_no_name() -> None:
    log = LogHarness()
    log.append(1)
    log.append(2, flush=False)
    assert not log.log.has_unsynced_files


def test_a_start_that_stays_is_not_stored_again() -> None:
    log = LogHarness()
    log.append(1, 2)
    log.log.delete_before(1)
    fail_next(log.files, Operation.APPEND, Operation.SYNC, for_ever=True)
    log.log.delete_before(1)
    assert log.log.log_start_offset == 1


@pytest.mark.parametrize("again", [2, 1])
def test_a_start_whose_name_was_not_durable_is_stored_again(again: int) -> None:
    log = LogHarness()
    log.append(1, 2, 3)
    fail_next(log.files, Operation.SYNC_DIRECTORY)
    with pytest.raises(StorageFailed):
        log.log.delete_before(2)
    assert log.log.log_start_offset == 0
    log.log.delete_before(again)
    assert log.log.log_start_offset == again
    survivor = LogHarness.after_power_cut(log, 1, Survival.LOST)
    assert (survivor.log.log_start_offset, survivor.log.log_end_offset) == (2, 3)


def test_a_log_that_is_only_compacted_names_the_policy_in_the_way() -> None:
    log = LogHarness(cleanup_policy="compact")
    with pytest.raises(PolicyViolation, match=r"cleanup\.policy of t does not contain delete"):
        log.log.delete_before(0)


def test_a_close_saves_where_no_snapshot_was_found_above_two_segments() -> None:
    log = LogHarness()
    log.append(1)
    log.log.roll(5)
    log.append(2)
    log.log.close(5)
    for name in log.names():
        if name.endswith(".snapshot"):
            log.files.unlink(f"{log.path}/{name}")
    log.open(is_clean=True)
    log.append(3)
    log.log.close(5)
    assert [name for name in log.names() if name.endswith(".snapshot")] == [f"{3:020d}.snapshot"]


@pytest.mark.parametrize("kind", [Operation.APPEND, Operation.CREATE])
def test_a_roll_that_fails_changes_nothing_and_each_segment_gets_its_snapshot(
    kind: Operation,
) -> None:
    failed_rolls = 0
    for skip in range(20):
        log = LogHarness()
        log.write(produced(1, producer_id=7, sequence=0))
        fail_next(log.files, kind, skip=skip, errno=5)
        with suppress(StorageFailed):
            log.log.roll(5)
        if not log.files.faults_raised:
            break
        log.files.fault = None
        if len(log.log.segments) == 1:
            # The next append goes on in the old segment; the roll is tried again later.
            failed_rolls += 1
        log.append(2)
        log.log.roll(5)
        log.append(3)
        log.log.flush()
        bases = [segment.base_offset for segment in log.log.segments]
        snapshots = [name for name in log.names() if name.endswith(".snapshot")]
        assert {f"{base:020d}.snapshot" for base in bases[1:]} <= set(snapshots), skip
        again = LogHarness.after_power_cut(log, 0, Survival.LOST)
        assert again.log.producers.state.find(7) is not None
    assert failed_rolls > 0
    assert skip < 19, "the faults have not reached the end of the roll"


@pytest.mark.parametrize("interval_bytes", [0, 200])
def test_a_read_rebuilds_a_damaged_index_as_dense_as_the_setting_says(interval_bytes: int) -> None:
    log = LogHarness(index_interval_bytes=interval_bytes)
    for timestamp in range(20):
        log.append(timestamp)
    entries = log.log.segments.active.offset_index.count
    log.log.roll(5)
    log.append(20)
    segment = log.log.segments.first
    log.log.close(5)
    for suffix in (".index", ".timeindex"):
        path = segment.path(suffix)
        log.files.damage(path, 0, bytes(log.files.size(path)))
    log.open(is_clean=True)
    assert log.log.read(15, max_bytes=1, isolation=Isolation.READ_UNCOMMITTED).next_offset == 16
    again = Segment.open(log.files, log.path, 0, now_ms=0)
    assert again.offset_index.find_disorder() is None
    assert again.offset_index.count >= entries > 0
