"""One partition: append, read, visibility, flush, failing disks, truncation."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from protocol.records.batch import RecordBatch
from protocol.records.layout import NO_TIMESTAMP, Codec, TimestampType
from protocol.records.scan import scan_entries
from storage.append.plan import Origin
from storage.audit.partition import PartitionAudit
from storage.disk.files import RealFiles
from storage.errors import (
    CorruptBatch,
    CorruptLog,
    DiskFull,
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTimestamp,
    LogOffline,
    OffsetOutOfRange,
    OutOfOrderSequence,
    StorageError,
    StorageFailed,
)
from storage.log.retention import delete_expired
from storage.log.values import Isolation
from tests.support.clock import DAY_MS
from tests.support.logs import LogHarness, batch, marker, messages, produced
from tests.support.power_loss import Survival
from tests.support.simulated_disk import Fault, Operation, SimulatedDisk

UNCOMMITTED = Isolation.READ_UNCOMMITTED
COMMITTED = Isolation.READ_COMMITTED


def fail_next(disk: SimulatedDisk, *kinds: Operation, skip: int = 0, **fault: object) -> None:
    """The next operation of these kinds fails, or the one after `skip` more of them."""
    at = disk._eligible + skip
    disk.fault = Fault(at=at, kinds=frozenset(kinds), **fault)  # type: ignore[arg-type]


# --- append -------------------------------------------------------------------------------------


def test_offsets_are_handed_out_without_gaps() -> None:
    log = LogHarness()
    first, second = log.append(10, 20), log.append(30)
    assert (first.first_offset, first.last_offset, first.records_count) == (0, 1, 2)
    assert (second.first_offset, second.last_offset, second.records_count) == (2, 2, 1)
    assert second.size_bytes == len(batch(30))
    assert [record.offset for record in log.records()] == [0, 1, 2]


def test_create_time_answers_no_append_time() -> None:
    assert LogHarness().append(10).log_append_time_ms == NO_TIMESTAMP


def test_append_time_is_stamped_and_answered() -> None:
    log = LogHarness(message_timestamp_type="LogAppendTime")
    log.now_ms = 5000
    assert log.append(10).log_append_time_ms == 5000
    stored = RecordBatch(log.log.read(0, max_bytes=999, isolation=UNCOMMITTED).records)
    assert stored.max_timestamp == 5000
    assert stored.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert stored.crc_ok()


@pytest.mark.parametrize("restart", ["none", "clean", "crash"])
def test_append_time_never_goes_back(restart: str) -> None:
    log = LogHarness(message_timestamp_type="LogAppendTime")
    log.now_ms = 5000
    log.append(10)
    log.log.roll(log.now_ms)
    log.now_ms = 3000
    if restart == "clean":
        log.reopen()
    elif restart == "crash":
        log.crash()
    assert log.append(10).log_append_time_ms == 5000
    log.now_ms = 6000
    assert log.append(10).log_append_time_ms == 6000


@pytest.mark.parametrize(
    ("back_ms", "slack_ms", "falls"),
    [
        (1, 60_000, False),
        (60_000, 60_000, False),
        (60_001, 60_000, True),
        (DAY_MS, DAY_MS, False),
        (10, 0, True),
    ],
)
def test_append_time_follows_a_clock_that_was_set_back_by_more_than_the_slack(
    back_ms: int, slack_ms: int, falls: bool
) -> None:
    log = LogHarness(message_timestamp_type="LogAppendTime", index_interval_bytes=0)
    stamps = []
    for now_ms in (10 * DAY_MS, 10 * DAY_MS - back_ms, 10 * DAY_MS - back_ms + 1):
        data = memoryview(batch(1))
        result = log.log.append(data, now_ms=now_ms, stamp_slack_ms=slack_ms)
        stamps.append(result.log_append_time_ms)
    log.log.flush()
    assert (stamps[1] < stamps[0], stamps[2] < stamps[0]) == (falls, falls)
    # Whatever the order of the stamps, lookups are by what the records say.
    for timestamp in {*stamps, stamps[0] + 1, stamps[1] - 1}:
        first = next((at for at, stamped in enumerate(stamps) if stamped >= timestamp), None)
        hit = log.log.offset_for_timestamp(timestamp)
        assert (None if hit is None else hit.offset) == first
    log.log.close(log.now_ms)
    audit = PartitionAudit(log.path, log.files, stopped_cleanly=True)
    audit.run()
    assert [str(finding) for finding in audit.findings] == []


def test_create_time_from_the_future_does_not_bind_a_later_append_time() -> None:
    log = LogHarness()
    log.append(log.now_ms + 3000)
    log.settings = {"message_timestamp_type": "LogAppendTime"}
    log.reopen()
    assert log.append(1).log_append_time_ms == log.now_ms


def test_rejected_batch_changes_nothing() -> None:
    log = LogHarness(message_timestamp_before_max_ms=10)
    log.append(log.now_ms)
    before = (log.log.log_end_offset, log.log.size_bytes)
    with pytest.raises(InvalidTimestamp):
        log.append(1)
    data = batch(log.now_ms)
    data[-1] ^= 1
    with pytest.raises(CorruptBatch):
        log.write(data)
    assert (log.log.log_end_offset, log.log.size_bytes) == before


def test_a_request_is_judged_by_the_rules_of_its_version() -> None:
    log = LogHarness()
    with pytest.raises(InvalidRecord, match="Produce v9 carries magic 2 only, found 1"):
        log.write(messages(1, magic=1))


def test_leader_epoch_is_noted_once_and_stamped() -> None:
    log = LogHarness()
    log.append(1)
    log.log.leader_epoch += 1
    log.append(2)
    log.append(3)
    assert log.log.leader_epochs.entries == ((0, 0), (1, 1))
    log.reopen()
    assert log.log.leader_epoch == 1
    log.append(4)
    records = log.log.read(0, max_bytes=9999, isolation=UNCOMMITTED).records
    assert [entry.partition_leader_epoch for entry in scan_entries(records)] == [0, 1, 1, 1]


# --- producers ----------------------------------------------------------------------------------


def test_retried_batch_is_answered_with_its_first_offsets() -> None:
    log = LogHarness()
    log.append(1)
    first = log.write(produced(10, 20, producer_id=7, sequence=0))
    again = log.write(produced(10, 20, producer_id=7, sequence=0))
    assert (again.first_offset, again.last_offset, again.is_duplicate) == (1, 2, True)
    assert (first.is_duplicate, again.size_bytes, again.log_append_time_ms) == (False, 0, 20)
    assert log.log.log_end_offset == 3


@pytest.mark.parametrize("restart", ["clean", "crash"])
def test_duplicates_are_known_after_a_restart(restart: str) -> None:
    log = LogHarness()
    log.write(produced(10, producer_id=7, sequence=0))
    log.log.roll(log.now_ms)
    log.write(produced(10, producer_id=7, sequence=1))
    _ = log.reopen() if restart == "clean" else log.crash()
    assert log.write(produced(10, producer_id=7, sequence=1)).is_duplicate
    with pytest.raises(OutOfOrderSequence):
        log.write(produced(10, producer_id=7, sequence=5))
    assert log.write(produced(10, producer_id=7, sequence=2)).first_offset == 2


@pytest.mark.parametrize("restart", ["clean", "crash"])
def test_a_producer_id_below_none_is_none(restart: str) -> None:
    """As in Kafka: its batches are repeated, skipped and fenced by nothing."""
    log = LogHarness()
    for offset, (sequence, epoch) in enumerate([(0, 3), (0, 3), (9, 0)]):
        sent = produced(10, producer_id=-2, sequence=sequence, epoch=epoch)
        assert log.write(sent).first_offset == offset
    _ = log.reopen() if restart == "clean" else log.crash()
    assert not len(log.log.producers.state)
    assert log.write(produced(10, producer_id=-2, sequence=0, epoch=3)).first_offset == 3


def test_fenced_producer_is_refused() -> None:
    log = LogHarness()
    log.write(produced(10, producer_id=7, sequence=0, epoch=3))
    with pytest.raises(InvalidProducerEpoch):
        log.write(produced(10, producer_id=7, sequence=0, epoch=2))


def transaction(log: LogHarness, producer_id: int, *, commit: bool) -> None:
    log.write(produced(10, 20, producer_id=producer_id, sequence=0, is_transactional=True))
    log.write(
        marker(commit=commit, producer_id=producer_id, timestamp_ms=log.now_ms),
        origin=Origin.COORDINATOR,
    )


def test_open_transaction_holds_the_last_stable_offset() -> None:
    log = LogHarness()
    log.append(1)
    log.write(produced(10, producer_id=7, sequence=0, is_transactional=True))
    log.append(2)
    assert (log.log.last_stable_offset, log.log.high_watermark) == (1, 3)
    assert [r.offset for r in log.records(COMMITTED)] == [0]
    assert [r.offset for r in log.records()] == [0, 1, 2]
    read = log.log.read(0, max_bytes=1, isolation=UNCOMMITTED)
    assert (read.next_offset, read.high_watermark, read.last_stable_offset) == (1, 3, 1)
    assert (read.log_start_offset, read.aborted_transactions) == (0, None)
    log.write(marker(commit=True, producer_id=7, timestamp_ms=5), origin=Origin.COORDINATOR)
    assert log.log.last_stable_offset == 4


def test_marker_counts_only_once_it_is_durable() -> None:
    log = LogHarness()
    log.write(produced(10, producer_id=7, sequence=0, is_transactional=True))
    log.write(
        marker(commit=True, producer_id=7, timestamp_ms=5), origin=Origin.COORDINATOR, flush=False
    )
    assert log.log.last_stable_offset == 0
    log.log.flush()
    assert log.log.last_stable_offset == 2


@pytest.mark.parametrize("restart", ["none", "clean", "crash"])
def test_aborted_transactions_are_listed_for_committed_readers(restart: str) -> None:
    log = LogHarness()
    transaction(log, 7, commit=False)
    log.log.roll(log.now_ms)
    transaction(log, 8, commit=True)
    transaction(log, 9, commit=False)
    if restart != "none":
        _ = log.reopen() if restart == "clean" else log.crash()
    result = log.log.read(0, max_bytes=9999, isolation=COMMITTED)
    assert result.aborted_transactions is not None
    assert [(t.producer_id, t.first_offset) for t in result.aborted_transactions] == [(7, 0)]
    result = log.log.read(3, max_bytes=9999, isolation=COMMITTED)
    assert result.aborted_transactions is not None
    assert [(t.producer_id, t.first_offset) for t in result.aborted_transactions] == [(9, 6)]
    assert log.log.read(0, max_bytes=99, isolation=UNCOMMITTED).aborted_transactions is None


def test_open_transaction_is_known_after_a_crash() -> None:
    log = LogHarness()
    log.append(1)
    log.write(produced(10, producer_id=7, sequence=0, is_transactional=True))
    log.crash()
    assert log.log.last_stable_offset == 1


# --- read ---------------------------------------------------------------------------------------


def test_read_returns_whole_batches_from_the_one_that_holds_the_offset() -> None:
    log = LogHarness()
    log.append(1, 2, 3)
    log.append(4, 5, 6)
    size = len(batch(1, 2, 3))
    for offset in range(3):
        result = log.log.read(offset, max_bytes=size, isolation=UNCOMMITTED)
        assert (len(result.records), result.next_offset) == (size, 3)
    for max_bytes in (size, 2 * size - 1):
        result = log.log.read(0, max_bytes=max_bytes, isolation=UNCOMMITTED)
        assert (len(result.records), result.next_offset) == (size, 3)
    result = log.log.read(1, max_bytes=2 * size, isolation=UNCOMMITTED)
    assert (len(result.records), result.next_offset) == (2 * size, 6)


def test_one_batch_is_returned_however_large() -> None:
    log = LogHarness()
    log.append(1, size=5000)
    log.append(2)
    result = log.log.read(0, max_bytes=1, isolation=UNCOMMITTED)
    assert (len(result.records), result.next_offset) == (5000, 1)
    result = log.log.read(0, max_bytes=1, isolation=UNCOMMITTED, min_one=False)
    assert (len(result.records), result.next_offset) == (0, 0)
    result = log.log.read(0, max_bytes=0, isolation=UNCOMMITTED)
    assert len(result.records) == 5000


def test_read_at_the_end_is_empty_and_beyond_is_refused() -> None:
    log = LogHarness()
    log.append(1)
    log.append(2, flush=False)
    for offset in (1, 2):
        result = log.log.read(offset, max_bytes=99, isolation=UNCOMMITTED)
        assert (bytes(result.records), result.next_offset) == (b"", offset)
    with pytest.raises(OffsetOutOfRange) as caught:
        log.log.read(3, max_bytes=99, isolation=UNCOMMITTED)
    assert (caught.value.start, caught.value.end) == (0, 2)
    log.log.delete_before(1)
    with pytest.raises(OffsetOutOfRange):
        log.log.read(0, max_bytes=99, isolation=UNCOMMITTED)


def test_reads_go_on_over_segment_ends() -> None:
    log = LogHarness(index_interval_bytes=0)
    for timestamp in range(9):
        log.append(timestamp, timestamp)
        if timestamp % 3 == 2:
            log.log.roll(log.now_ms)
    assert [record.offset for record in log.records()] == list(range(18))
    for offset in range(18):
        result = log.log.read(offset, max_bytes=1, isolation=UNCOMMITTED)
        assert next(scan_entries(result.records)).base_offset == offset // 2 * 2


def test_sequential_reads_cost_one_operation_each() -> None:
    log = LogHarness(index_interval_bytes=0)
    for timestamp in range(50):
        log.append(timestamp)
    size = len(batch(1))
    log.log.read(0, max_bytes=size, isolation=UNCOMMITTED)
    before = log.files.counts[Operation.READ]
    for offset in range(1, 50):
        log.log.read(offset, max_bytes=size, isolation=UNCOMMITTED)
    assert log.files.counts[Operation.READ] - before == 49


def test_append_costs_one_operation() -> None:
    log = LogHarness()
    log.append(0)
    before = log.files.operations
    for timestamp in range(20):
        log.append(timestamp, flush=False)
    assert log.files.operations - before == 20


def test_reader_at_the_log_end_sees_what_is_visible_only() -> None:
    log = LogHarness()
    log.append(1)
    log.append(2, flush=False)
    assert log.log.read(0, max_bytes=999, isolation=UNCOMMITTED).next_offset == 1
    assert log.log.read(0, max_bytes=999, isolation=Isolation.LOG_END).next_offset == 2


def test_damaged_log_is_an_error_to_the_reader() -> None:
    log = LogHarness()
    log.append(1, 2)
    log.append(3, 4)
    path = log.log.segments.active.log.path
    log.files.damage(path, 8, b"\x7f\xff\xff\xff")
    with pytest.raises(CorruptLog):
        log.log.read(0, max_bytes=1, isolation=UNCOMMITTED)
    log.files.open(path).truncate(70)
    with pytest.raises(CorruptLog):
        log.log.read(0, max_bytes=9999, isolation=UNCOMMITTED)


# --- visibility and flush -----------------------------------------------------------------------


def test_batch_policy_shows_what_is_durable() -> None:
    log = LogHarness()
    log.append(1, flush=False)
    assert (log.log.high_watermark, log.log.durable_offset, log.log.log_end_offset) == (0, 0, 1)
    ticket = log.log.begin_flush()
    assert ticket is not None
    log.append(2, flush=False)
    assert log.log.begin_flush() is None
    ticket.run()
    assert log.log.high_watermark == 0
    log.log.complete_flush(ticket)
    assert (log.log.high_watermark, log.log.durable_offset, log.log.log_end_offset) == (1, 1, 2)
    assert log.log.needs_flush
    log.log.flush()
    assert log.log.high_watermark == 2
    assert log.log.begin_flush() is None


def test_os_policy_shows_the_log_end() -> None:
    log = LogHarness(flush_policy="os")
    log.append(1, flush=False)
    assert (log.log.high_watermark, log.log.durable_offset) == (1, 0)
    assert len(log.log.read(0, max_bytes=99, isolation=UNCOMMITTED).records) > 0
    log.log.flush()
    assert (log.log.high_watermark, log.log.durable_offset) == (1, 1)


def test_policy_may_change_at_run_time() -> None:
    log = LogHarness()
    log.append(1, flush=False)
    log.configure(flush_policy="os")
    assert log.log.high_watermark == 1
    log.configure(flush_policy="batch")
    log.append(2, flush=False)
    assert log.log.high_watermark == 1


@pytest.mark.parametrize("survival", Survival)
def test_flush_covers_closed_segments_and_new_names(survival: Survival) -> None:
    log = LogHarness()
    for timestamp in range(3):
        log.append(timestamp, flush=False)
        log.log.roll(log.now_ms)
    log.append(3, flush=False)
    log.log.flush()
    again = LogHarness.after_power_cut(log, 1, survival)
    assert again.log.log_end_offset == 4
    assert [record.timestamp for record in again.records()] == [0, 1, 2, 3]
    assert again.bases() == [0, 1, 2, 3]


def test_flush_while_a_segment_is_rolled_and_deleted() -> None:
    log = LogHarness(retention_bytes=0)
    log.append(1)
    log.append(2, flush=False)
    ticket = log.log.begin_flush()
    assert ticket is not None
    log.log.roll(log.now_ms)
    ticket.run()
    log.log.complete_flush(ticket)
    assert log.log.high_watermark == 2
    assert len(delete_expired(log.log, log.now_ms)) == 1
    log.append(3)
    assert [record.offset for record in log.records()] == [2]


def test_first_append_waits_for_no_sync_and_the_first_flush_covers_all_of_it() -> None:
    log = LogHarness()
    operations: list[tuple[Operation, str]] = []
    log.files.before_operation = lambda kind, path: operations.append(
        (kind, path.rpartition("/")[2])
    )
    log.append(1, flush=False)
    syncs = {Operation.SYNC, Operation.SYNC_DIRECTORY}
    assert not [kind for kind, _ in operations if kind in syncs]
    log.log.flush()
    synced = [name for kind, name in operations if kind in syncs]
    assert synced == ["leader-epoch-checkpoint", "00000000000000000000.log", "t-0"]


def test_failed_sync_takes_the_log_offline_for_good() -> None:
    log = LogHarness()
    log.append(1)
    log.append(2, flush=False)
    ticket = log.log.begin_flush()
    assert ticket is not None
    fail_next(log.files, Operation.SYNC)
    ticket.run()
    with pytest.raises(LogOffline):
        log.log.complete_flush(ticket)
    assert log.log.offline_reason is not None
    with pytest.raises(LogOffline):
        log.append(3)
    for attempt in (log.log.flush, log.log.begin_flush):
        with pytest.raises(LogOffline):
            attempt()
    changes: list[Callable[[], object]] = [
        lambda: log.log.roll(0),
        lambda: log.log.delete_before(0),
        lambda: log.log.close(0),
    ]
    for change in changes:
        with pytest.raises(LogOffline):
            change()
    assert not log.log.needs_flush
    assert delete_expired(log.log, 10**15) == []


def test_offline_log_still_shows_what_is_durable() -> None:
    log = LogHarness()
    log.append(1)
    log.append(2, flush=False)
    fail_next(log.files, Operation.SYNC)
    with pytest.raises(LogOffline):
        log.log.flush()
    assert [record.timestamp for record in log.records()] == [1]
    assert [record.timestamp for record in log.records(Isolation.LOG_END)] == [1]


# --- failing writes -----------------------------------------------------------------------------


@pytest.mark.parametrize("short_write", [False, True])
def test_full_disk_leaves_the_log_as_it_was(short_write: bool) -> None:
    log = LogHarness(index_interval_bytes=0)
    log.append(1)
    size = log.log.size_bytes
    fail_next(log.files, Operation.APPEND, errno=errno.ENOSPC, short_write=short_write)
    with pytest.raises(DiskFull, match=f"append failed on {log.path}: "):
        log.append(2)
    assert (log.log.log_end_offset, log.log.size_bytes) == (1, size)
    assert log.files.size(log.log.segments.active.log.path) == size
    assert log.append(3).first_offset == 1
    assert [record.timestamp for record in log.records()] == [1, 3]
    log.crash()
    assert [record.timestamp for record in log.records()] == [1, 3]


def test_write_that_cannot_be_taken_back_takes_the_log_offline() -> None:
    log = LogHarness()
    log.append(1)
    fail_next(log.files, Operation.APPEND, Operation.TRUNCATE, for_ever=True, short_write=True)
    with pytest.raises(LogOffline):
        log.append(2)
    log.files.fault = None
    with pytest.raises(LogOffline):
        log.append(3)
    assert [record.timestamp for record in log.records()] == [1]
    log.crash()
    assert [record.timestamp for record in log.records()] == [1]


@pytest.mark.parametrize("kind", [Operation.APPEND, Operation.CREATE])
@pytest.mark.parametrize("count", range(6))
def test_failure_while_rolling_leaves_the_log_usable(kind: Operation, count: int) -> None:
    log = LogHarness(index_interval_bytes=0)
    for timestamp in range(3):
        log.append(timestamp)
    fail_next(log.files, kind, skip=count, errno=errno.ENOSPC)
    try:
        log.log.roll(log.now_ms)
    except DiskFull:
        assert log.log.log_end_offset == 3
    log.files.fault = None
    log.append(3)
    log.log.roll(log.now_ms)
    log.append(4)
    assert [record.timestamp for record in log.records()] == list(range(5))
    log.crash()
    assert [record.timestamp for record in log.records()] == list(range(5))
    assert [log.log.offset_for_timestamp(t).offset for t in range(5)] == list(range(5))  # type: ignore[union-attr]


@pytest.mark.parametrize("failed", [Operation.APPEND, Operation.SYNC_DIRECTORY])
def test_no_power_cut_after_a_failed_roll_leaves_a_hole(failed: Operation) -> None:
    """The next roll took the file of the failed one for a manifest with a durable name."""
    log = LogHarness(index_interval_bytes=4096)
    log.append(0)
    fail_next(log.files, failed, skip=3 if failed is Operation.APPEND else 0)
    with pytest.raises(StorageError):
        log.log.roll(log.now_ms)
    log.files.fault = None
    for timestamp in (1, 2):
        log.append(timestamp, flush=False)
        log.log.roll(log.now_ms)
    log.append(3, flush=False)
    for seed in range(100):
        found = LogHarness.after_power_cut(log, seed, Survival.MIXED)
        offsets = [record.offset for record in found.records()]
        assert offsets == list(range(found.log.log_end_offset)), seed


@pytest.mark.parametrize("restart", ["none", "clean", "crash"])
def test_appends_never_read(restart: str) -> None:
    """An append that read the last time entry back after writing its bytes failed half-way."""
    log = LogHarness(index_interval_bytes=0)
    for timestamp in range(600):
        log.append(timestamp, flush=False)
    log.log.flush()
    if restart != "none":
        _ = log.reopen() if restart == "clean" else log.crash()
    assert log.log.segments.active.first_timestamp == 0
    fail_next(log.files, Operation.READ, for_ever=True)
    for timestamp in (0, 599, 600, 700):
        log.append(timestamp)
    log.files.fault = None
    assert log.log.segments.active.time_index.last() == (700, 603)


def test_failed_read_is_an_error_and_nothing_more() -> None:
    log = LogHarness()
    log.append(1)
    fail_next(log.files, Operation.READ)
    with pytest.raises(StorageFailed, match=f"read failed on {log.path}: "):
        log.log.read(0, max_bytes=99, isolation=UNCOMMITTED)
    assert log.log.offline_reason is None
    assert len(log.records()) == 1


def test_failed_lookup_is_an_error_and_nothing_more() -> None:
    log = LogHarness()
    log.append(1)
    for question in (
        lambda: log.log.offset_for_timestamp(1),
        lambda: log.log.offset_for_max_timestamp(),
        lambda: log.log.explain_offset_for_timestamp(1),
    ):
        fail_next(log.files, Operation.READ)
        with pytest.raises(StorageFailed, match=f"lookup failed on {log.path}: "):
            question()
        log.files.fault = None
        assert question() is not None


# --- the rest -----------------------------------------------------------------------------------


def test_closing_twice_is_fine_and_ends_appends() -> None:
    log = LogHarness()
    log.append(1)
    log.log.close(log.now_ms)
    log.log.close(log.now_ms)
    assert log.log.offline_reason == "the log was closed"
    with pytest.raises(LogOffline):
        log.append(2)


def test_a_closed_log_is_durable() -> None:
    log = LogHarness()
    log.append(1, flush=False)
    log.log.close(log.now_ms)
    again = LogHarness.after_power_cut(log, 1, Survival.LOST)
    assert [record.timestamp for record in again.records()] == [1]


def test_another_configuration_shows_nothing_that_is_not_durable() -> None:
    log = LogHarness()
    log.append(1, flush=False)
    log.configure(retention_ms=5)
    assert log.log.high_watermark == 0


def test_failed_close_is_reported() -> None:
    log = LogHarness()
    log.append(1)
    fail_next(log.files, Operation.APPEND)
    with pytest.raises(StorageFailed, match=f"close failed on {log.path}: "):
        log.log.close(log.now_ms)
    log.open(is_clean=False)
    assert len(log.records()) == 1


def test_real_files_hold_the_same_log(tmp_path: Path) -> None:
    files = RealFiles(max_open_files=16)
    log = LogHarness.on_real_files(str(tmp_path), files, segment_bytes=300, index_interval_bytes=0)
    for timestamp in range(200):
        log.append(timestamp, codec=Codec(timestamp % 5))
    assert len(log.bases()) > 20
    starts: list[Callable[[], object]] = [log.reopen, log.crash, log.reopen]
    for start in starts:
        start()
        assert [record.timestamp for record in log.records()] == list(range(200))
        for timestamp in range(0, 200, 7):
            hit = log.log.offset_for_timestamp(timestamp)
            assert hit is not None
            assert hit.offset == timestamp
    assert len(files._open) <= 20
    log.log.close(log.now_ms)
    assert len(files._open) == 0


@pytest.mark.parametrize("name", ["log_start_offset", "durable_offset", "high_watermark"])
def test_offset_above_the_log_end_is_noticed_at_the_next_change(name: str) -> None:
    log = LogHarness()
    log.append(1)
    log.append(2, flush=False)
    setattr(log.log, name, 9)
    change = log.log.delete_before if name == "durable_offset" else lambda _: log.log.flush()
    with pytest.raises(AssertionError):
        change(1)
