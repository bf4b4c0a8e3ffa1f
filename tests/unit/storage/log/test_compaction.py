"""What one round of compaction leaves of a log, and how it puts it in place."""

import gzip
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from protocol.errors import ProtocolError
from protocol.records.batch import RecordBatch
from protocol.records.builder import assemble_batch, build_batch, build_message_set
from protocol.records.layout import (
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    INT64_MAX,
    INT64_MIN,
    MAGIC_V0,
    MAGIC_V1,
    TRANSACTIONAL_BIT,
    Codec,
    TimestampType,
)
from protocol.records.record import Record, record_bytes
from protocol.records.scan import Entry, iter_records, scan_entries
from storage.append.plan import Origin
from storage.audit.partition import PartitionAudit
from storage.disk.files import RealFiles
from storage.disk.steps import SLICE_BYTES, SLICE_RECORDS, run_steps
from storage.errors import CorruptLog, DiskFull, InvalidProducerEpoch, LogOffline, StorageFailed
from storage.log import compaction_filter
from storage.log.compaction import CompactionResult, compact, find_cleanable
from storage.log.compaction_filter import KEY_OVERHEAD_BYTES, OFF_LOOP_BYTES
from storage.log.flush import FlushTicket
from storage.log.retention import delete_expired
from storage.log.values import Isolation
from tests.support.logs import LogHarness, marker
from tests.support.power_loss import Survival
from tests.support.simulated_disk import Fault, Operation

ONE_MB = 1 << 20
LAG = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": 0.0}

Pair = tuple[str, str | None]


def opened(**settings: object) -> LogHarness:
    merged: dict[str, object] = {**LAG, **settings}
    return LogHarness(None, **merged)


def put(log: LogHarness, *pairs: Pair, at: int = 100, **options: object) -> int:
    """Append one batch of keys and values, all with timestamp `at`; its first offset."""
    records = [
        Record(0, at, key.encode(), None if value is None else value.encode())
        for key, value in pairs
    ]
    return log.write(build_batch(records, **options)).first_offset  # type: ignore[arg-type]


def compact_now(log: LogHarness, *, map_bytes: int = ONE_MB) -> CompactionResult | None:
    return run_steps(compact(log.log, now_ms=log.now_ms, map_bytes=map_bytes))


def roll_and_compact(log: LogHarness, **options: int) -> CompactionResult | None:
    log.log.roll(log.now_ms)
    return compact_now(log, **options)


def content(log: LogHarness) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(record.offset, record.key, record.value) for record in log.records()]


def entries(log: LogHarness) -> list[Entry]:
    found: list[Entry] = []
    for segment in log.log.segments:
        found += scan_entries(segment.log.pread(segment.size, 0))
    return found


def findings(log: LogHarness) -> list[str]:
    log.log.close(log.now_ms)
    audit = PartitionAudit(log.path, log.files, stopped_cleanly=True, is_compacted=True)
    audit.run()
    log.open(is_clean=True)
    return [str(finding) for finding in audit.findings]


def test_the_last_value_of_each_key_stays_at_its_offset() -> None:
    log = opened()
    put(log, ("a", "1"), ("b", "1"), ("a", "2"))
    put(log, ("b", "2"))
    put(log, ("c", "1"))
    result = roll_and_compact(log)
    assert content(log) == [(2, b"a", b"2"), (3, b"b", b"2"), (4, b"c", b"1")]
    assert result is not None
    assert (result.records_dropped, result.end) == (2, 5)
    assert log.log.log_end_offset == 5
    assert findings(log) == []


def test_a_round_reports_what_it_read_and_what_that_became() -> None:
    log = opened()
    for value in "123":
        put(log, ("a", value), (value, "own"))
        log.log.roll(log.now_ms)
    sizes = [segment.size for segment in log.log.segments]
    result = compact_now(log)
    assert result == CompactionResult(
        end=6,
        segments_before=3,
        bytes_before=sum(sizes),
        bytes_after=log.log.segments.first.size,
        records_dropped=2,
    )
    assert result.bytes_after < result.bytes_before


def test_a_round_adds_up_what_all_its_segments_became() -> None:
    log = opened()
    for value in "123":
        put(log, ("a", value), (value, "v" * 600))
        log.log.roll(log.now_ms)
    log.configure(segment_bytes=1000)
    result = compact_now(log)
    assert result is not None
    sizes = [segment.size for segment in log.log.segments]
    assert len(sizes) == 4
    assert result.bytes_after == sum(sizes)


def test_a_segment_that_keeps_all_its_records_is_not_replaced() -> None:
    log = opened()
    put(log, ("a", "1"), ("b", "1"))
    log.log.roll(log.now_ms)
    kept = log.log.segments.first
    result = compact_now(log)
    assert log.log.segments.first is kept
    assert result is not None
    assert (result.segments_before, result.records_dropped) == (1, 0)
    assert log.log.cleaned_offset == 2
    assert findings(log) == []


def test_the_active_segment_is_not_touched() -> None:
    log = opened()
    put(log, ("a", "1"))
    log.log.roll(log.now_ms)
    put(log, ("a", "2"), ("a", "3"))
    compact_now(log)
    # The map ends where the active segment begins, so its newer values are not known.
    assert content(log) == [(0, b"a", b"1"), (1, b"a", b"2"), (2, b"a", b"3")]


def test_a_log_without_dirty_segments_is_left_alone() -> None:
    log = opened()
    put(log, ("a", "1"), ("a", "2"))
    assert compact_now(log) is None
    roll_and_compact(log)
    assert compact_now(log) is None
    names = log.names()
    assert log.reopen().cleaned_offset == 2
    assert [name for name in names if name.endswith((".cleaned", ".swap"))] == []


@pytest.mark.parametrize("codec", Codec)
def test_compressed_batches_are_compressed_again(codec: Codec) -> None:
    log = opened()
    put(log, *((f"k{i % 3}", "v" * 50) for i in range(20)), codec=codec)
    roll_and_compact(log)
    assert [offset for offset, _, _ in content(log)] == [17, 18, 19]
    kept = entries(log)[0]
    assert (kept.codec, kept.base_offset, kept.last_offset) == (codec, 0, 19)
    assert not kept.attributes & DELETE_HORIZON_BIT, "it has no tombstone"
    assert findings(log) == []


def test_an_untouched_batch_stays_byte_for_byte() -> None:
    log = opened()
    put(log, ("a", "1"), ("b", "1"), codec=Codec.GZIP)
    put(log, ("c", "1"))
    put(log, ("c", "2"))
    first = log.log.segments.first
    before = first.log.pread(first.size, 0)[: entries(log)[0].size]
    roll_and_compact(log)
    first = log.log.segments.first
    assert first.log.pread(len(before), 0) == before


def test_a_batch_that_another_library_compressed_stays_byte_for_byte() -> None:
    log = opened()
    ours = RecordBatch(build_batch([Record(0, 100, b"a", b"v" * 400)]))
    clear, start, end = record_bytes(ours)
    foreign = assemble_batch(
        gzip.compress(bytes(clear[start:end]), compresslevel=1, mtime=1),
        base_offset=0,
        leader_epoch=0,
        attributes=Codec.GZIP,
        last_offset_delta=0,
        base_timestamp=100,
        max_timestamp=100,
        producer=(-1, -1, -1),
        records_count=1,
    )
    start_with(log, foreign)
    put(log, ("c", "1"))
    put(log, ("c", "2"))
    roll_and_compact(log)
    first = log.log.segments.first
    assert first.log.pread(first.size, 0)[: len(foreign)] == foreign


def test_segments_are_merged_while_they_fit() -> None:
    log = opened(segment_bytes=2000)
    for number in range(12):
        put(log, ("k", "x" * 300), (f"own-{number}", "y" * 20))
    assert len(log.log.segments) > 2
    roll_and_compact(log)
    roll_and_compact(log)
    # The first round shrinks each; what is left of them fits into one with the next.
    put(log, ("k", "z"))
    roll_and_compact(log)
    assert len(log.log.segments) <= 3
    assert len(content(log)) == 13
    assert findings(log) == []


@pytest.mark.parametrize(("short_by", "left"), [(0, [2, 2]), (1, [1, 1, 1, 1])])
def test_segments_are_merged_up_to_the_very_limit(short_by: int, left: list[int]) -> None:
    log = opened()
    for key in "abcd":
        put(log, (key, "1"))
        log.log.roll(log.now_ms)
    two = 2 * log.log.segments.first.size
    log.settings = {**log.settings, "segment_bytes": two - short_by}
    log.reopen()
    compact_now(log)
    found = [len(list(scan_entries(s.log.pread(s.size, 0)))) for s in log.log.segments]
    assert found == [*left, 0]


def test_offsets_in_the_gaps_lead_to_the_next_record() -> None:
    log = opened()
    for number in range(10):
        put(log, ("k", f"{number}"))
    log.log.roll(log.now_ms)
    put(log, ("z", "end"))
    compact_now(log)
    for offset in range(10):
        result = log.log.read(offset, max_bytes=ONE_MB, isolation=Isolation.READ_UNCOMMITTED)
        assert next(scan_entries(result.records)).last_offset == 9
        assert result.next_offset == 10


def test_a_rewritten_segment_ends_where_the_old_ones_did() -> None:
    log = opened()
    put(log, ("a", "1"))
    put(log, ("b", "1"))
    log.log.roll(log.now_ms)
    put(log, ("a", "2"), ("b", "2"))
    roll_and_compact(log)
    bare = [entry for entry in entries(log) if not entry.records_count]
    ends = [segment.next_offset for segment in log.log.segments]
    assert ends == [4, 4]
    assert [(entry.base_offset, entry.size) for entry in bare] == []
    log.log.roll(log.now_ms)
    put(log, ("a", "3"), ("b", "3"))
    roll_and_compact(log)
    assert log.log.segments.first.next_offset == log.log.segments[1].base_offset
    assert findings(log) == []


# --- time -----------------------------------------------------------------------------------------


def test_the_largest_timestamp_may_fall_and_lookups_stay_exact() -> None:
    log = opened(index_interval_bytes=0)
    put(log, ("a", "1"), at=500)
    put(log, ("b", "1"), at=100)
    put(log, ("a", "2"), at=200)
    put(log, ("c", "1"), at=50)
    roll_and_compact(log)
    assert log.log.segments.first.max_timestamp == 200
    newest = log.log.offset_for_max_timestamp()
    assert newest is not None
    assert newest[:2] == (200, 2)
    assert log.log.offset_for_timestamp(201) is None
    hit = log.log.offset_for_timestamp(150)
    assert hit is not None
    assert hit.offset == 2
    assert findings(log) == []


def test_a_batch_without_records_has_no_timestamp_for_lookups() -> None:
    """Its head keeps the largest time it ever had; nothing of that time is left."""
    log = opened(index_interval_bytes=0, segment_bytes=400)
    put(log, ("a", "1"), at=900, producer_id=7, producer_epoch=0, base_sequence=0)
    put(log, ("a", "2"), ("b", "x" * 300), at=100)
    put(log, ("b", "2"), at=150)
    roll_and_compact(log)
    bare = next(entry for entry in entries(log) if not entry.records_count)
    assert (bare.max_timestamp, bare.producer_id, bare.base_sequence) == (900, 7, 0)
    for again in (log.log, log.reopen(), log.crash()):
        newest = again.offset_for_max_timestamp()
        assert newest is not None
        assert newest.timestamp == 150
        assert again.offset_for_timestamp(151) is None


def test_log_append_time_stays_the_batches_time() -> None:
    log = opened(message_timestamp_type="LogAppendTime", delete_retention_ms=10)
    put(log, ("a", "1"), ("b", None), ("a", "2"))
    stamp = entries(log)[0].max_timestamp
    roll_and_compact(log)
    kept = entries(log)[0]
    assert kept.max_timestamp == stamp == 1000
    assert kept.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert {record.timestamp for record in log.records()} == {stamp}


@pytest.mark.parametrize("lag_ms", [1, 500])
def test_young_segments_wait_for_min_compaction_lag(lag_ms: int) -> None:
    log = opened(min_compaction_lag_ms=lag_ms)
    log.now_ms = 900
    put(log, ("a", "1"), ("a", "2"), at=100)
    log.log.roll(log.now_ms)
    put(log, ("b", "1"), ("b", "2"), at=900)
    roll_and_compact(log)
    assert [offset for offset, _, _ in content(log)] == [1, 2, 3]
    log.now_ms = 899 + lag_ms
    assert compact_now(log) is None
    log.now_ms = 900 + lag_ms
    compact_now(log)
    assert [offset for offset, _, _ in content(log)] == [1, 3]


def test_a_log_is_due_by_its_dirty_share_or_by_max_compaction_lag() -> None:
    log = opened(min_cleanable_dirty_ratio=0.5, max_compaction_lag_ms=5000)
    for number in range(4):
        put(log, (f"k{number}", "v" * 100), at=1000)
    roll_and_compact(log)
    put(log, ("k", "v"), at=1000)
    log.log.roll(log.now_ms)
    plan = find_cleanable(log.log, log.now_ms)
    assert plan is not None
    assert 0 < plan.ratio < 0.5
    assert not plan.is_due
    on_time = find_cleanable(log.log, 6000)
    assert on_time is not None
    assert not on_time.is_due
    overdue = find_cleanable(log.log, 6001)
    assert overdue is not None
    assert overdue.is_due


@pytest.mark.parametrize(("at", "is_overdue"), [(-1, False), (0, False), (1, True)])
def test_a_segment_without_a_real_time_makes_no_log_overdue(at: int, is_overdue: bool) -> None:
    """As in Kafka, whose `LogCleanerManager.maxCompactionDelay` takes times above 0."""
    log = opened(min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=5000)
    put(log, ("k", "v"), at=at)
    log.log.roll(log.now_ms)
    plan = find_cleanable(log.log, 6000)
    assert plan is not None
    assert plan.is_overdue is is_overdue


def test_what_is_not_compacted_or_cannot_be_has_no_cleanable_part() -> None:
    deleted = opened(cleanup_policy="delete")
    put(deleted, ("a", "1"), ("a", "2"))
    deleted.log.roll(deleted.now_ms)
    assert find_cleanable(deleted.log, deleted.now_ms) is None
    log = opened()
    put(log, ("a", "1"), ("a", "2"))
    none_yet = find_cleanable(log.log, log.now_ms)
    assert none_yet is not None
    assert (none_yet.first_dirty, none_yet.end, none_yet.is_due) == (0, 0, False)
    log.log.roll(log.now_ms)
    with pytest.raises(LogOffline):
        log.log.go_offline(OSError(5, "gone"))
    assert find_cleanable(log.log, log.now_ms) is None


def test_the_dirty_share_counts_every_clean_segment() -> None:
    log = opened(segment_bytes=200, min_cleanable_dirty_ratio=0.9)
    for key in "abc":
        put(log, (key, "v" * 100))
        log.log.roll(log.now_ms)
    compact_now(log)
    put(log, ("d", "v" * 100))
    log.log.roll(log.now_ms)
    put(log, ("e", "v" * 50))
    log.log.roll(log.now_ms)
    sizes = [segment.size for segment in log.log.segments]
    assert len(sizes) == 6
    plan = find_cleanable(log.log, log.now_ms)
    assert plan is not None
    assert (plan.clean_bytes, plan.dirty_bytes) == (sum(sizes[:3]), sum(sizes[3:5]))
    assert plan.ratio == pytest.approx(sum(sizes[3:5]) / sum(sizes[:5]))


def test_segments_below_the_start_of_the_log_are_left_to_retention() -> None:
    log = opened(cleanup_policy="compact,delete")
    for value in "123":
        put(log, ("a", value), (value, "own"))
        log.log.roll(log.now_ms)
    log.log.delete_before(2)
    result = compact_now(log)
    assert result is not None
    assert (result.segments_before, result.records_dropped) == (2, 1)
    assert log.bases()[0] == 0


def test_the_next_flush_makes_durable_how_far_the_log_is_clean() -> None:
    log = opened()
    put(log, ("a", "1"), ("b", "1"))
    log.log.roll(log.now_ms)
    log.log.flush()
    compact_now(log)
    log.log.flush()
    again = LogHarness.after_power_cut(log, 1, Survival.LOST)
    assert again.log.cleaned_offset == 2


def test_clean_segments_make_no_log_overdue() -> None:
    log = opened(min_cleanable_dirty_ratio=0.9, max_compaction_lag_ms=5000)
    put(log, ("a", "v" * 100), at=1000)
    roll_and_compact(log)
    assert log.log.cleaned_offset == 1
    put(log, ("b", "v"), at=5500)
    log.log.roll(log.now_ms)
    plan = find_cleanable(log.log, 6500)
    assert plan is not None
    assert not plan.is_due


def test_replaced_files_stay_for_the_delay() -> None:
    log = opened(file_delete_delay_ms=100)
    put(log, ("a", "1"), ("a", "2"))
    roll_and_compact(log)
    assert f"{0:020d}.log.deleted" in log.names()
    assert run_steps(log.log.delete_pending_files(log.now_ms + 99)) == 0
    assert run_steps(log.log.delete_pending_files(log.now_ms + 100)) > 0
    assert not [name for name in log.names() if name.endswith(".deleted")]


@pytest.mark.parametrize("survival", [Survival.KEPT, Survival.LOST])
def test_a_crash_between_files_of_the_same_size_loses_nothing(survival: Survival) -> None:
    """The manifest's line about the old segment fits the new one, which ends later."""
    log = opened()
    for value in "12":
        put(log, ("a", value))
        log.log.roll(log.now_ms)
    compact_now(log)
    size_before = log.log.segments.first.size
    put(log, ("a", "3"))
    log.log.roll(log.now_ms)
    put(log, ("b", "1"))
    end, crashed = log.log.log_end_offset, []

    def crash(operation: Operation, path: str) -> None:
        crashed.append(LogHarness.after_power_cut(log, 1, survival, recovery_point=end))

    log.files.before_operation = crash
    compact_now(log)
    log.files.before_operation = None
    assert log.log.segments.first.size == size_before
    for again in crashed:
        assert again.log.quarantine is None
        assert content(again)[-2:] == [(2, b"a", b"3"), (3, b"b", b"1")]
        assert findings(again) == []


# --- tombstones -----------------------------------------------------------------------------------


def test_a_tombstone_stays_until_its_horizon() -> None:
    log = opened(delete_retention_ms=100)
    put(log, ("a", "1"), ("b", "1"))
    put(log, ("a", None), at=150)
    roll_and_compact(log)
    assert content(log) == [(1, b"b", b"1"), (2, b"a", None)]
    data = log.log.read(2, max_bytes=ONE_MB, isolation=Isolation.READ_UNCOMMITTED).records
    batch = RecordBatch(data)
    assert batch.attributes & DELETE_HORIZON_BIT
    assert batch.base_timestamp == 1100
    assert [record.timestamp for record in log.records()] == [100, 150]
    log.now_ms = 1099
    put(log, ("z", "1"))
    roll_and_compact(log)
    assert (2, b"a", None) in content(log)
    log.now_ms = 1100
    put(log, ("z", "2"))
    roll_and_compact(log)
    assert [key for _, key, _ in content(log)] == [b"b", b"z"]
    assert findings(log) == []


@pytest.mark.parametrize("at", [100, 1090])
def test_a_tombstone_is_given_its_horizon_though_nothing_else_changes(at: int) -> None:
    """A time near to the horizon takes no more bytes than before, and the batch keeps its size."""
    log = opened(delete_retention_ms=100)
    put(log, ("a", None), at=at)
    roll_and_compact(log)
    data = log.log.read(0, max_bytes=ONE_MB, isolation=Isolation.READ_UNCOMMITTED).records
    batch = RecordBatch(data)
    assert batch.attributes & DELETE_HORIZON_BIT
    assert batch.base_timestamp == log.now_ms + 100


@pytest.mark.parametrize("codec", Codec)
def test_a_batch_under_a_horizon_may_lose_more_records(codec: Codec) -> None:
    log = opened(delete_retention_ms=100)
    put(log, ("a", "1"), ("b", None), ("c", "1"), codec=codec, at=150)
    roll_and_compact(log)
    put(log, ("a", "2"))
    roll_and_compact(log)
    first = entries(log)[0]
    assert (first.codec, first.records_count) == (codec, 2)
    assert first.attributes == codec | DELETE_HORIZON_BIT
    assert first.base_timestamp == log.now_ms + 100, "the horizon of the first round"
    assert content(log) == [(1, b"b", None), (2, b"c", b"1"), (3, b"a", b"2")]
    assert {record.timestamp for record in log.records()} == {150, 100}


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize("headers", [(), (("name", b"1"), ("\u00fc", None), ("\udcff", b"2"))])
@pytest.mark.parametrize("at", [-1, 0, 150, INT64_MAX, 1_100 + INT64_MIN, 1_099 + INT64_MIN])
def test_a_horizon_changes_neither_times_nor_headers(
    codec: Codec, headers: tuple[tuple[str, bytes | None], ...], at: int
) -> None:
    log = opened(delete_retention_ms=100, message_timestamp_after_max_ms=INT64_MAX)
    sent = [Record(0, at, b"a", None, headers), Record(1, 7, b"b", b"1", headers)]
    log.write(build_batch(sent, codec=codec))
    roll_and_compact(log)
    assert entries(log)[0].base_timestamp == log.now_ms + 100 == 1_100
    assert log.records() == sent


@pytest.mark.parametrize("magic", [1, 2])
@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4])
def test_large_compressed_entries_are_filtered_in_another_thread(magic: int, codec: Codec) -> None:
    log = opened()
    value = Random(0).randbytes(2 * OFF_LOOP_BYTES)
    records = [Record(i, 100, key, value) for i, key in enumerate((b"a", b"b", b"c"))]
    if magic == 2:
        log.write(build_batch(records, codec=codec))
    else:
        start_with(log, build_message_set(records, magic, codec))
    put(log, ("a", "2"))
    log.log.roll(log.now_ms)
    phases = []
    for call in compact(log.log, now_ms=log.now_ms, map_bytes=ONE_MB):
        if call is not None:
            phases.append(any(".cleaned" in name for name in log.names()))
            call.run()
    assert phases[:2] == [False, True], "once for the map, and again for the rewrite"
    assert content(log) == [(1, b"b", value), (2, b"c", value), (3, b"a", b"2")]
    assert {entry.codec for entry in entries(log)} == {codec, Codec.NONE}


def test_the_emptied_batch_of_a_producer_stays_byte_for_byte() -> None:
    log = opened()
    emptied = assemble_batch(
        b"",
        base_offset=0,
        leader_epoch=0,
        attributes=0,
        last_offset_delta=1,
        base_timestamp=70,
        max_timestamp=90,
        producer=(7, 0, 3),
        records_count=0,
    )
    start_with(log, emptied)
    put(log, ("a", "1"), ("a", "2"))
    roll_and_compact(log)
    first = log.log.segments.first
    assert first.log.pread(len(emptied), 0) == emptied


def with_records(batch: bytes | bytearray, records: list[Record]) -> bytes:
    """The header of `batch` over other records."""
    header = RecordBatch(batch)
    clear, start, end = record_bytes(RecordBatch(build_batch(records)))
    return assemble_batch(
        clear[start:end],
        base_offset=header.base_offset,
        leader_epoch=0,
        attributes=header.attributes,
        last_offset_delta=len(records) - 1,
        base_timestamp=records[0].timestamp,
        max_timestamp=header.max_timestamp,
        producer=(header.producer_id, header.producer_epoch, header.base_sequence),
        records_count=len(records),
    )


def start_with(log: LogHarness, data: bytes) -> None:
    """Let the log begin with entries that this broker would not write any more."""
    log.log.abandon()
    log.files.unlink(f"{log.path}/{0:020d}.log")
    log.place(0, data)
    log.open(is_clean=False)


@pytest.mark.parametrize(("retention_ms", "rounds"), [(100, 1), (500, 1), (501, 2)])
def test_old_tombstones_go_by_the_age_of_their_segment(retention_ms: int, rounds: int) -> None:
    """Kept until the newest clean segment is younger than theirs by delete.retention.ms."""
    log = opened(delete_retention_ms=retention_ms, segment_bytes=160)
    old = [Record(0, 100, b"a", b"1"), Record(1, 100, b"b", b"1"), Record(2, 100, b"a", None)]
    log.now_ms = log.files.now_ms
    start_with(log, build_message_set(old, MAGIC_V1))
    keys = []
    for number in range(3):
        log.now_ms += 500
        put(log, (f"own-{number}", "v" * 80))
        roll_and_compact(log)
        keys.append([key for _, key, _ in content(log) if key in (b"a", b"b")])
    assert keys == [[b"b", b"a"]] * rounds + [[b"b"]] * (3 - rounds)


@pytest.mark.parametrize("magic", [MAGIC_V0, MAGIC_V1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.LZ4])
def test_old_formats_are_compacted_in_their_own_format(magic: int, codec: Codec) -> None:
    log = opened()
    pairs = [(b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (None, b"no key"), (b"b", b"2")]
    old = [Record(i, 100 + i, key, value) for i, (key, value) in enumerate(pairs)]
    start_with(log, build_message_set(old, magic, codec))
    result = roll_and_compact(log)
    assert result is not None
    assert result.records_dropped == 3
    assert log.log.segments.first.records == 2
    assert content(log) == [(2, b"a", b"2"), (4, b"b", b"2")]
    assert {(entry.magic, entry.codec) for entry in entries(log)} == {(magic, codec)}
    put(log, ("a", "3"), ("b", "3"))
    roll_and_compact(log)
    assert content(log) == [(5, b"a", b"3"), (6, b"b", b"3")]


@pytest.mark.parametrize("magic", [MAGIC_V0, MAGIC_V1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_segment_that_lost_its_last_old_message_ends_where_it_did(
    magic: int, codec: Codec
) -> None:
    log = opened()
    old = [Record(i, 100, key, b"v") for i, key in enumerate((b"a", b"b"))]
    start_with(log, build_message_set(old, magic, codec))
    log.log.roll(log.now_ms)
    put(log, ("b", "2"))
    log.configure(segment_bytes=100)
    roll_and_compact(log)
    assert log.bases() == [0, 2, 3]
    assert log.log.segments.first.next_offset == 2
    message, bare, _ = entries(log)
    assert (message.codec, message.magic) == (codec, magic)
    assert (bare.base_offset, bare.last_offset, bare.records_count) == (1, 1, 0)
    assert content(log) == [(0, b"a", b"v"), (2, b"b", b"2")]
    assert findings(log) == []


def test_an_empty_key_of_old_messages_is_a_key() -> None:
    log = opened()
    keys = (b"", None, b"", None, b"a")
    old = [Record(i, 100, key, b"%d" % i) for i, key in enumerate(keys)]
    start_with(log, build_message_set(old, MAGIC_V1))
    roll_and_compact(log)
    assert content(log) == [(2, b"", b"2"), (4, b"a", b"4")]


def test_the_first_dirty_message_supersedes_clean_ones() -> None:
    log = opened()
    old = [Record(i, 100, b"a", b"%d" % i) for i in range(2)]
    start_with(log, build_message_set(old, MAGIC_V1))
    log.log.roll(log.now_ms)
    log.log.manifest.remember_cleaned(1)
    compact_now(log)
    assert content(log) == [(1, b"a", b"1")]


def test_old_messages_beyond_a_small_map_stay() -> None:
    log = opened()
    single = [Record(i, 100, b"a", b"v") for i in range(2)]
    together = [Record(2, 100, None, b"no key"), Record(3, 100, b"c", b"v")]
    start_with(
        log,
        build_message_set(single, MAGIC_V1)
        + build_message_set(together, MAGIC_V1, Codec.GZIP)
        + build_message_set([Record(4, 100, b"a", b"v")], MAGIC_V1),
    )
    result = roll_and_compact(log, map_bytes=1)
    assert result is not None
    assert (result.end, result.records_dropped) == (2, 1)
    assert [offset for offset, _, _ in content(log)] == [1, 2, 3, 4]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_stamped_messages_stay_stamped(codec: Codec) -> None:
    log = opened()
    old = [Record(i, 100 + i, key, b"v") for i, key in enumerate((b"a", b"b", b"a"))]
    stamp = {"timestamp_type": TimestampType.LOG_APPEND_TIME, "append_timestamp": 500}
    start_with(log, build_message_set(old, MAGIC_V1, codec, **stamp))  # type: ignore[arg-type]
    roll_and_compact(log)
    assert {entry.timestamp_type for entry in entries(log)} == {TimestampType.LOG_APPEND_TIME}
    assert [(record.offset, record.timestamp) for record in log.records()] == [(1, 500), (2, 500)]


# --- producers and transactions -------------------------------------------------------------------


def test_the_last_batch_of_a_producer_is_kept_as_a_header() -> None:
    log = opened()
    own = {"producer_id": 7, "producer_epoch": 0}
    put(log, ("a", "1"), base_sequence=0, **own)
    put(log, ("a", "2"), base_sequence=1, **own)
    put(log, ("a", "3"))
    roll_and_compact(log)
    assert [(e.producer_id, e.base_sequence, e.records_count) for e in entries(log)] == [
        (7, 1, 0),
        (-1, -1, 1),
    ]
    # Without any snapshot the sequence is still known.
    for name in [name for name in log.names() if name.endswith(".snapshot")]:
        log.files.unlink(f"{log.path}/{name}")
    log.crash()
    again = put(log, ("a", "2"), base_sequence=1, **own)
    assert again == 1
    assert findings(log) == []


def transaction(log: LogHarness, *pairs: Pair, producer_id: int = 5, commit: bool) -> None:
    known = log.log.producers.state.find(producer_id)
    put(
        log,
        *pairs,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0 if known is None else known.last_sequence + 1,
        is_transactional=True,
    )
    log.write(
        marker(commit=commit, producer_id=producer_id, timestamp_ms=200), origin=Origin.COORDINATOR
    )


def committed(log: LogHarness) -> list[tuple[int, bytes | None]]:
    """Keys that a read_committed consumer gets, by what the broker tells it."""
    found: list[tuple[int, bytes | None]] = []
    offset = log.log.log_start_offset
    while offset < log.log.last_stable_offset:
        result = log.log.read(offset, max_bytes=ONE_MB, isolation=Isolation.READ_COMMITTED)
        aborted: Sequence[tuple[int, int, int, int]] = result.aborted_transactions or ()
        for entry in scan_entries(result.records):
            if entry.is_control:
                continue
            dead = any(
                entry.producer_id == txn[0] and txn[1] <= entry.base_offset <= txn[2]
                for txn in aborted
            )
            if not dead:
                records = iter_records(result.records, entry.position)
                found += [(record.offset, record.key) for record in records]
        offset = result.next_offset
    return found


def test_aborted_records_go_and_do_not_supersede() -> None:
    log = opened()
    put(log, ("a", "kept"))
    transaction(log, ("a", "aborted"), ("b", "aborted"), commit=False)
    transaction(log, ("c", "committed"), commit=True)
    roll_and_compact(log)
    assert committed(log) == [(0, b"a"), (4, b"c")]
    assert [r.key for r in log.records() if r.key in (b"a", b"b", b"c")] == [b"a", b"c"]
    assert findings(log) == []


def test_every_aborted_record_counts_as_dropped() -> None:
    log = opened()
    transaction(log, ("a", "1"), ("b", "1"), producer_id=5, commit=False)
    transaction(log, ("c", "1"), producer_id=6, commit=False)
    put(log, ("d", "kept"))
    result = roll_and_compact(log)
    assert result is not None
    assert result.records_dropped == 3


def test_markers_go_after_their_transaction_is_empty_and_the_horizon_past() -> None:
    log = opened(delete_retention_ms=100)
    transaction(log, ("a", "1"), producer_id=5, commit=False)
    transaction(log, ("a", "2"), producer_id=6, commit=True)
    put(log, ("a", "3"))
    for producer in (5, 6):
        put(log, (f"p{producer}", "x"), producer_id=producer, producer_epoch=1, base_sequence=0)
    markers = []
    for _ in range(4):
        put(log, ("z", "1"))
        roll_and_compact(log)
        markers.append(sum(1 for entry in entries(log) if entry.is_control))
        log.now_ms += 60
        assert committed(log)[0] == (4, b"a")
        assert findings(log) == []
        if len(markers) == 2:
            (attributes,) = {entry.attributes for entry in entries(log) if entry.is_control}
            assert attributes == CONTROL_BIT | TRANSACTIONAL_BIT | DELETE_HORIZON_BIT
    # Emptied in the first round, given a horizon in the second, gone when that is past.
    assert markers == [2, 2, 2, 0]


def test_each_marker_goes_with_its_own_transaction() -> None:
    log = opened(delete_retention_ms=100)
    transaction(log, ("own", "1"), commit=True)
    transaction(log, ("a", "1"), commit=True)
    put(log, ("a", "2"))
    put(log, ("p", "x"), producer_id=5, producer_epoch=1, base_sequence=0)
    for _ in range(4):
        put(log, ("z", "1"))
        roll_and_compact(log)
        log.now_ms += 60
    markers = [entry.base_offset for entry in entries(log) if entry.is_control]
    assert markers == [1], "the first transaction still has its record"


def test_a_control_record_of_an_unknown_kind_stays() -> None:
    log = opened(delete_retention_ms=100)
    unknown = bytearray(marker(commit=True, producer_id=5, timestamp_ms=100))
    record = Record(0, 100, b"\x00\x00\x00\x07", b"\x00\x00")
    start_with(log, with_records(unknown, [record]))
    for _ in range(4):
        put(log, ("z", "1"))
        roll_and_compact(log)
        log.now_ms += 60
    first = entries(log)[0]
    assert (first.base_offset, first.is_control, first.records_count) == (0, True, 1)
    assert not first.attributes & DELETE_HORIZON_BIT


def test_only_the_last_marker_of_a_producer_stays_as_a_header() -> None:
    log = opened(delete_retention_ms=100)
    transaction(log, ("a", "1"), commit=True)
    put(log, ("a", "2"), producer_id=5, producer_epoch=0, base_sequence=1, is_transactional=True)
    log.write(
        marker(commit=False, producer_id=5, timestamp_ms=200, producer_epoch=1),
        origin=Origin.COORDINATOR,
    )
    put(log, ("a", "3"))
    for number in range(4):
        put(log, ("z", f"{number}"))
        roll_and_compact(log)
        log.now_ms += 1000
    mine = [entry for entry in entries(log) if entry.producer_id == 5]
    assert [(e.base_offset, e.producer_epoch, e.records_count) for e in mine] == [(3, 1, 0)]


def test_the_batches_of_a_forgotten_producer_go() -> None:
    log = opened()
    put(log, ("a", "1"), producer_id=7, producer_epoch=0, base_sequence=0)
    put(log, ("a", "2"))
    log.log.producers.state.clear(log.log.log_end_offset)
    roll_and_compact(log)
    assert [entry.producer_id for entry in entries(log)] == [-1]


def test_the_marker_that_gave_a_producer_its_epoch_stays_as_a_header() -> None:
    """Without it a start that lacks snapshots would accept the epoch that was fenced off."""
    log = opened(delete_retention_ms=100)
    old = {"producer_id": 5, "is_transactional": True}
    put(log, ("a", "1"), producer_epoch=0, base_sequence=0, **old)
    log.write(
        marker(commit=False, producer_id=5, timestamp_ms=200, producer_epoch=1),
        origin=Origin.COORDINATOR,
    )
    for number in range(4):
        put(log, ("z", f"{number}"))
        roll_and_compact(log)
        log.now_ms += 1000
    mine = [entry for entry in entries(log) if entry.producer_id == 5]
    assert [(e.producer_epoch, e.is_control, e.records_count) for e in mine] == [(1, True, 0)]
    for name in [name for name in log.names() if name.endswith(".snapshot")]:
        log.files.unlink(f"{log.path}/{name}")
    log.crash()
    with pytest.raises(InvalidProducerEpoch):
        put(log, ("a", "2"), producer_epoch=0, base_sequence=1, **old)


def test_a_marker_at_the_end_of_a_segment_stays_as_a_header() -> None:
    log = opened(delete_retention_ms=100, segment_bytes=160)
    transaction(log, ("a", "1"), producer_id=5, commit=False)
    for _ in range(5):
        put(log, ("z", "x" * 80), producer_id=5, producer_epoch=1, base_sequence=0)
        roll_and_compact(log)
        log.now_ms += 60
        put(log, ("y", "x" * 80))
    (bare, *_) = entries(log)
    assert (bare.is_control, bare.records_count, bare.last_offset) == (True, 0, 1)
    assert log.log.segments.first.next_offset == 2
    assert findings(log) == []


@pytest.mark.parametrize(("span", "merged"), [(2**31 - 1, 1), (2**31, 2)])
@pytest.mark.parametrize("first", [0, 2**33])
def test_a_merged_segment_spans_no_more_offsets_than_its_index_can_store(
    first: int, span: int, merged: int
) -> None:
    last = first + span
    log = opened()
    log.log.abandon()
    log.files.unlink(f"{log.path}/{0:020d}.log")
    for offset in (first, last, last + 1):
        record = Record(0, 100, b"%d" % offset, b"v")
        log.place(offset, build_batch([record], base_offset=offset))
    log.open(is_clean=False)
    compact_now(log)
    assert len(log.log.segments) == merged + 1
    assert [offset for offset, _, _ in content(log)] == [first, last, last + 1]
    assert findings(log) == []


def test_an_open_transaction_bounds_the_round() -> None:
    log = opened()
    put(log, ("a", "1"), ("a", "2"))
    log.log.roll(log.now_ms)
    put(
        log,
        ("a", "3"),
        producer_id=5,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    log.log.roll(log.now_ms)
    put(log, ("a", "4"))
    roll_and_compact(log)
    assert [offset for offset, _, _ in content(log)] == [1, 2, 3]


# --- memory ---------------------------------------------------------------------------------------


def test_a_small_map_takes_several_rounds_and_gets_there() -> None:
    log = opened()
    for number in range(40):
        put(log, (f"key-{number % 20}", f"{number}"))
    log.log.roll(log.now_ms)
    rounds = 0
    while True:
        result = compact_now(log, map_bytes=1000)
        if result is None:
            break
        rounds += 1
        assert rounds < 30
    assert rounds > 1
    assert [offset for offset, _, _ in content(log)] == list(range(20, 40))


def test_what_lies_beyond_a_small_map_stays_and_is_counted() -> None:
    log = opened()
    for key in ("a", "a", "b", "c", "d"):
        put(log, (key, "v"))
    log.log.roll(log.now_ms)
    result = compact_now(log, map_bytes=1)
    assert result is not None
    assert (result.end, result.records_dropped) == (2, 1)
    assert log.log.segments.first.records == 4
    assert [offset for offset, _, _ in content(log)] == [1, 2, 3, 4]


def test_a_map_is_full_when_the_next_key_does_not_fit() -> None:
    two_keys = 2 * (KEY_OVERHEAD_BYTES + 1)
    for map_bytes, end in ((two_keys, 3), (two_keys - 1, 2)):
        log = opened()
        for key in "aabc":
            put(log, (key, "v"))
        result = roll_and_compact(log, map_bytes=map_bytes)
        assert result is not None
        assert result.end == end


def test_what_begins_right_at_the_end_of_a_small_map_is_not_rewritten() -> None:
    log = opened()
    for key, value in (("a", "1"), ("a", "2"), ("b", None)):
        put(log, (key, value))
    transaction(log, ("c", "aborted"), commit=False)
    result = roll_and_compact(log, map_bytes=1)
    assert result is not None
    assert (result.end, result.records_dropped) == (2, 2)
    tombstone, *_ = [entry for entry in entries(log) if entry.base_offset == 2]
    assert not tombstone.attributes & DELETE_HORIZON_BIT, "its round is another one"
    assert [key for _, key, _ in content(log)][:2] == [b"a", b"b"]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_batches_of_many_records_are_filtered_in_slices(codec: Codec) -> None:
    log = opened()
    count = 2 * SLICE_RECORDS + 1
    put(log, *((f"k{number}", "v") for number in range(count)), codec=codec)
    gone = (0, SLICE_RECORDS - 1, SLICE_RECORDS, count - 1)
    put(log, *((f"k{number}", "w") for number in gone))
    result = roll_and_compact(log)
    assert result is not None
    assert result.records_dropped == len(gone)
    offsets = [offset for offset, _, _ in content(log)]
    assert offsets == sorted({*range(count + len(gone))} - {*gone})


def test_segments_beyond_a_small_map_are_not_read_again() -> None:
    log = opened()
    for key in "ab":
        put(log, (key, "1"), (key, "2"))
        log.log.roll(log.now_ms)
    result = compact_now(log, map_bytes=1)
    assert result is not None
    assert (result.end, result.segments_before) == (2, 1)
    assert [offset for offset, _, _ in content(log)] == [1, 2, 3]


# --- what happens meanwhile, and what goes wrong --------------------------------------------------


def test_retention_may_take_the_segments_that_a_round_works_on() -> None:
    log = opened(cleanup_policy="compact,delete", segment_bytes=150)
    for number in range(6):
        put(log, ("k", f"{number}" * 40))
    steps = compact(log.log, now_ms=log.now_ms, map_bytes=ONE_MB)
    call = next(steps)
    while call is None or not any(name.endswith(".swap") for name in log.names()):
        if call is not None:
            call.run()
        call = next(steps)
    log.log.delete_before(4)
    delete_expired(log.log, log.now_ms)
    if call is not None:
        call.run()
    result = run_steps(steps)
    assert result == CompactionResult(end=0)
    assert [offset for offset, _, _ in content(log)][-1] == 5
    assert not any(name.endswith((".cleaned", ".swap")) for name in log.names())
    assert findings(log) == []


def test_appends_and_reads_go_on_between_the_steps() -> None:
    log = opened(index_interval_bytes=0)
    for number in range(8):
        put(log, ("k", f"{number}"))
    log.log.roll(log.now_ms)
    for call in compact(log.log, now_ms=log.now_ms, map_bytes=ONE_MB):
        put(log, ("own", "v"))
        assert content(log)[-1][1] == b"own"
        hit = log.log.offset_for_timestamp(100)
        assert hit is not None
        if call is not None:
            call.run()
    assert [o for o, key, _ in content(log) if key == b"k"] == [7]


def test_small_entries_are_slow_to_read_too_and_let_others_run() -> None:
    log = opened()
    entries_count = 3 * SLICE_BYTES // 600
    for number in range(entries_count):
        log.append(100, flush=False, key=b"k", value=b"%d" % number)
    log.log.flush()
    log.log.roll(log.now_ms)
    steps = compact(log.log, now_ms=log.now_ms, map_bytes=ONE_MB)
    turns = 0
    for call in steps:
        turns += call is None
        if call is not None:
            call.run()
    assert turns >= 4, "two for the map and two for the rewrite"


def flush_across_a_roll(log: LogHarness) -> FlushTicket:
    """A flush that has run while the log was rolled and appended to, and is not complete yet."""
    log.log.unsynced.add_created()
    ticket = log.log.begin_flush()
    assert ticket is not None
    log.log.roll(log.now_ms)
    log.write(build_batch([Record(0, 100, b"z", b"last")]), flush=False)
    ticket.run()
    return ticket


@pytest.mark.parametrize("segment_bytes", [200, 100_000])
@pytest.mark.parametrize("is_late", [False, True])
def test_a_flush_that_ends_after_a_roll_leaves_all_readable(
    segment_bytes: int, is_late: bool
) -> None:
    log = opened(segment_bytes=segment_bytes)
    for value in "12345":
        put(log, ("a", value))
    ticket = flush_across_a_roll(log)
    if not is_late:
        log.log.complete_flush(ticket)
    compact_now(log)
    if is_late:
        log.log.complete_flush(ticket)
    assert log.log.high_watermark == 5
    assert content(log) == [(4, b"a", b"5")]
    log.log.flush()
    assert content(log) == [(4, b"a", b"5"), (5, b"z", b"last")]


def test_a_rewrite_that_grows_a_segment_cuts_no_batch_in_two(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = opened()
    put(log, ("a", "old"), ("b", "b" * 900), codec=Codec.GZIP)
    put(log, ("a", "new"))
    size = log.log.segments.first.size
    ticket = flush_across_a_roll(log)
    log.log.complete_flush(ticket)
    monkeypatch.setattr(compaction_filter, "compress", lambda _, clear: gzip.compress(clear, 0))
    compact_now(log)
    assert log.log.segments.first.size > size
    assert content(log) == [(1, b"b", b"b" * 900), (2, b"a", b"new")]


def test_the_files_of_a_round_may_be_closed_for_room(tmp_path: Path) -> None:
    """A file that counts as unsynced would keep its descriptor for ever."""
    files = RealFiles(max_open_files=16)
    log = LogHarness.on_real_files(str(tmp_path), files, **LAG)
    for number in range(30):
        put(log, (f"{number}", "v" * 100), (f"{number}", "w" * 100))
        log.log.roll(log.now_ms)
    log.configure(segment_bytes=200)
    result = compact_now(log)
    assert result is not None
    assert result.records_dropped == 30
    log.log.flush()
    assert len(content(log)) == 30
    assert len(files._open) <= 20
    log.log.close(log.now_ms)


def test_damage_is_not_rewritten() -> None:
    log = opened()
    put(log, ("a", "1"))
    put(log, ("a", "2"))
    log.log.roll(log.now_ms)
    path = log.log.segments.first.log.path
    log.files.damage(path, 65, b"\xff")
    with pytest.raises(CorruptLog, match="a whole batch, found an impossible entry") as caught:
        compact_now(log)
    assert path in str(caught.value)
    assert not any(name.endswith((".cleaned", ".swap")) for name in log.names())
    assert log.log.offline_reason is None


def test_records_that_cannot_be_opened_end_the_round_with_the_reason() -> None:
    """Their checksum is right, so another broker took them."""
    log = opened()
    rubbish = assemble_batch(
        b"rubbish",
        base_offset=0,
        leader_epoch=0,
        attributes=Codec.GZIP,
        last_offset_delta=0,
        base_timestamp=100,
        max_timestamp=100,
        producer=(-1, -1, -1),
        records_count=1,
    )
    start_with(log, rubbish)
    put(log, ("a", "1"), ("a", "2"))
    log.log.roll(log.now_ms)
    with pytest.raises(StorageFailed) as caught:
        compact_now(log)
    assert str(caught.value) == f"compact failed on {log.path}: {caught.value.__cause__}"
    assert isinstance(caught.value.__cause__, ProtocolError)
    assert log.log.offline_reason is None


def test_damage_is_named_even_when_the_rewritten_files_cannot_be_removed() -> None:
    log = opened()
    put(log, ("a", "1"), ("a", "2"))
    log.log.roll(log.now_ms)
    path = log.log.segments.first.log.path

    def damage_while_rewriting(kind: Operation, touched: str) -> None:
        if kind is Operation.CREATE and touched.endswith(".log.cleaned"):
            log.files.damage(path, 65, b"\xff")

    log.files.before_operation = damage_while_rewriting
    log.files.fault = Fault(at=0, errno=5, kinds=frozenset({Operation.UNLINK}), for_ever=True)
    with pytest.raises(CorruptLog, match="a whole batch"):
        compact_now(log)
    assert any(name.endswith(".cleaned") for name in log.names())
    log.files.before_operation = log.files.fault = None
    log.reopen()
    assert not any(name.endswith(".cleaned") for name in log.names())


def test_a_full_disk_leaves_the_log_as_it_was() -> None:
    log = opened()
    put(log, ("a", "1"), ("a", "2"))
    log.log.roll(log.now_ms)
    log.files.fault = Fault(at=0, errno=28, kinds=frozenset({Operation.CREATE}))
    with pytest.raises(StorageFailed, match=f"compact failed on {log.path}: "):
        compact_now(log)
    log.files.fault = None
    assert len(content(log)) == 2
    compact_now(log)
    assert len(content(log)) == 1


def test_a_failed_swap_stops_the_log_until_a_restart() -> None:
    log = opened()
    put(log, ("a", "1"), ("a", "2"))
    log.log.roll(log.now_ms)
    log.files.fault = Fault(at=1, errno=5, kinds=frozenset({Operation.SYNC_DIRECTORY}))
    with pytest.raises(LogOffline):
        compact_now(log)
    reason = log.log.offline_reason
    assert reason == f"[Errno 5] Input/output error: '{log.path}'"
    log.files.fault = None
    log.crash()
    assert log.log.offline_reason is None
    assert content(log)[-1] == (1, b"a", b"2")


def test_a_swap_that_was_overtaken_is_durable_before_the_next_round() -> None:
    """Else a start might take the names it left for those of that round, and remove them."""
    log = opened()
    put(log, ("a", "1"), ("a", "2"))
    log.log.roll(log.now_ms)
    steps = compact(log.log, now_ms=log.now_ms, map_bytes=ONE_MB)
    while not any(name.endswith(".swap") for name in log.names()):
        call = next(steps)
        if call is not None:
            call.run()
    steps.close()
    next(compact(log.log, now_ms=log.now_ms, map_bytes=ONE_MB), None)
    survivor = log.files.power_cut(1, Survival.LOST)
    assert not [name for name in survivor.list_directory(log.log.path) if ".swap" in name]


def test_retention_in_the_middle_of_a_swap_takes_no_more_than_it_planned() -> None:
    """What it counted as its segments, the swap replaces by one."""
    policy = {"cleanup_policy": "compact,delete", "retention_ms": 1000}
    for steps_before in range(1, 40):
        log = opened(**policy)
        log.now_ms = 10_000
        put(log, ("a", "1"), ("dup", "1"), at=5_000)
        log.log.roll(log.now_ms)
        put(log, ("b", "1"), at=9_500)
        log.log.roll(log.now_ms)
        put(log, ("c", "1"), ("dup", "2"), at=9_600)
        log.log.roll(log.now_ms)
        steps = compact(log.log, now_ms=log.now_ms, map_bytes=ONE_MB)
        for _, call in zip(range(steps_before), steps, strict=False):
            if call is not None:
                call.run()
        delete_expired(log.log, log.now_ms)
        run_steps(steps)
        kept = [(offset, key) for offset, key, _ in content(log) if offset >= 2]
        assert kept == [(2, b"b"), (3, b"c"), (4, b"dup")], f"after {steps_before} steps"


def test_a_compaction_ends_with_its_log_and_touches_nothing_of_the_next_one() -> None:
    """A topic may be deleted and created again between two steps."""
    for steps_before in range(1, 40):
        log = opened()
        put(log, ("a", "1"), ("dup", "1"))
        put(log, ("dup", "2"))
        log.log.roll(log.now_ms)
        steps = compact(log.log, now_ms=log.now_ms, map_bytes=ONE_MB)
        for _, call in zip(range(steps_before), steps, strict=False):
            if call is not None:
                call.run()
        log.log.abandon()
        log.files.rename(log.path, f"{log.path}.gone-delete")
        log.files.make_directory(log.path)
        log.open(is_clean=True)
        put(log, ("new", "1"))
        names = log.names()
        assert run_steps(steps) is None
        assert log.names() == names
        log.crash()
        assert content(log) == [(0, b"new", b"1")]


def test_a_full_disk_at_the_end_of_a_swap_is_named_by_retention() -> None:
    log = opened(cleanup_policy="compact,delete", retention_ms=10_000)
    put(log, ("a", "1"), ("dup", "1"), ("dup", "2"))
    log.log.roll(log.now_ms)
    steps = compact(log.log, now_ms=log.now_ms, map_bytes=ONE_MB)
    while log.log.changes.swap is None:
        call = next(steps)
        if call is not None:
            call.run()
    log.files.fault = Fault(
        at=0, errno=28, kinds=frozenset({Operation.APPEND, Operation.CREATE}), for_ever=True
    )
    with pytest.raises(DiskFull, match=f"delete failed on {log.path}: "):
        delete_expired(log.log, log.now_ms)


@pytest.mark.parametrize("at", range(8))
def test_a_swap_that_retention_cannot_finish_stops_the_log_as_it_is(at: int) -> None:
    log = opened(cleanup_policy="compact,delete", retention_ms=10_000)
    put(log, ("a", "1"), ("dup", "1"))
    log.log.roll(log.now_ms)
    put(log, ("b", "1"), ("dup", "2"))
    log.log.roll(log.now_ms)
    steps = compact(log.log, now_ms=log.now_ms, map_bytes=ONE_MB)
    while log.log.changes.swap is None:
        call = next(steps)
        if call is not None:
            call.run()
    before = content(log)
    log.files.fault = Fault(at=at, errno=5, kinds=frozenset({Operation.RENAME}))
    with pytest.raises(LogOffline):
        delete_expired(log.log, log.now_ms)
    assert (log.log.offline_reason or "").startswith("[Errno 5] Input/output error: ")
    log.files.fault = None
    with pytest.raises(LogOffline):
        run_steps(steps)
    assert content(log) in (before, before[:1] + before[2:])
    log.crash()
    assert content(log) in (before, before[:1] + before[2:])
