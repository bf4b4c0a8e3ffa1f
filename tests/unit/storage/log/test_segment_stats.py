"""The smallest timestamp of closed segments: kept by appends, found by reading, never a guess."""

from dataclasses import asdict

import pytest

from protocol.records.layout import INT64_MAX, NO_TIMESTAMP, Codec
from storage.append.plan import Origin
from storage.audit.partition import PartitionAudit
from storage.disk.steps import run_steps
from storage.errors import StorageFailed
from storage.log.compaction import compact
from storage.log.retention import delete_expired
from storage.log.segment_stats import collect_statistics, statistics_of_entries
from storage.segment.facts import UNKNOWN, UNKNOWN_MAXIMUM, UNKNOWN_MINIMUM, SegmentFacts
from storage.segment.manifest import Manifest
from storage.segment.scan import rebuild_indexes
from tests.support.logs import (
    DIRECTORY,
    LogHarness,
    add,
    batch,
    disk,
    marker,
    messages,
    new_segment,
)
from tests.support.simulated_disk import Fault, Operation

CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]


def minima(log: LogHarness) -> list[int]:
    return [segment.min_timestamp for segment in log.log.segments]


def remembered(log: LogHarness) -> dict[int, SegmentFacts]:
    return Manifest(DIRECTORY, log.files).facts


def close_segment(log: LogHarness) -> SegmentFacts:
    base_offset = log.log.segments.active.base_offset
    log.log.roll(log.now_ms)
    return remembered(log)[base_offset]


def audit(log: LogHarness) -> list[str]:
    one = PartitionAudit(DIRECTORY, log.files, stopped_cleanly=True)
    one.run()
    return [str(finding) for finding in one.findings]


@pytest.mark.parametrize("codec", CODECS)
def test_closing_remembers_the_smallest_timestamp_of_all_records(codec: Codec) -> None:
    log = LogHarness()
    log.append(50, 20, 70, codec=codec)
    log.append(30, 90, codec=codec)
    facts = close_segment(log)
    assert (facts.min_timestamp, facts.max_timestamp, facts.records) == (20, 90, 5)
    log.append(40)
    assert minima(log) == [20, 40]


def test_records_without_a_timestamp_are_the_smallest() -> None:
    log = LogHarness()
    log.append(50, NO_TIMESTAMP)
    assert close_segment(log).min_timestamp == NO_TIMESTAMP


def test_append_time_is_smallest_and_largest_of_all() -> None:
    log = LogHarness(message_timestamp_type="LogAppendTime")
    log.now_ms = 5000
    log.append(1, 2)
    log.now_ms = 6000
    log.append(3)
    facts = close_segment(log)
    assert (facts.min_timestamp, facts.max_timestamp) == (5000, 6000)


def test_markers_count_like_records() -> None:
    log = LogHarness()
    log.append(50)
    log.write(marker(commit=True, producer_id=7, timestamp_ms=30), origin=Origin.COORDINATOR)
    assert close_segment(log).min_timestamp == 30


def test_markers_bound_no_record_from_above() -> None:
    """Their time is the broker's clock: it once made every segment of transactions one of today."""
    log = LogHarness()
    log.append(50, 70)
    log.write(marker(commit=True, producer_id=7, timestamp_ms=900), origin=Origin.COORDINATOR)
    facts = close_segment(log)
    assert (facts.max_timestamp, facts.data_max_timestamp) == (900, 70)
    log.write(marker(commit=True, producer_id=7, timestamp_ms=900), origin=Origin.COORDINATOR)
    assert close_segment(log).data_max_timestamp == NO_TIMESTAMP
    log.log.close(log.now_ms)
    assert audit(log) == []
    # What reading finds is what appending knew.
    data = log.files.read_all(f"{DIRECTORY}/{0:020d}.log")
    assert statistics_of_entries(data).data_max_timestamp == 70


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_older_messages_are_measured_when_they_are_converted(magic: int, codec: Codec) -> None:
    log = LogHarness()
    data = messages(50, 20, magic=magic, codec=codec)
    log.log.append(memoryview(bytearray(data)), now_ms=1, produce_version=2)
    assert close_segment(log).min_timestamp == (20 if magic else NO_TIMESTAMP)


def test_recompression_and_a_failed_write_change_nothing() -> None:
    log = LogHarness(compression_type="zstd")
    log.append(50, 20)
    log.files.fault = Fault(at=log.files._eligible, kinds=frozenset({Operation.APPEND}))
    with pytest.raises(StorageFailed):
        log.append(5)
    assert close_segment(log).min_timestamp == 20


def test_clean_restart_knows_what_was_known() -> None:
    log = LogHarness()
    log.append(50, 20)
    log.log.roll(log.now_ms)
    log.append(40)
    log.reopen()
    assert minima(log) == [20, 40]
    log.append(30)
    assert minima(log) == [20, 30]


def test_crash_leaves_it_unknown_until_it_is_measured() -> None:
    log = LogHarness()
    log.append(50, 20)
    log.log.roll(log.now_ms)
    log.append(40)
    log.crash()
    assert minima(log) == [UNKNOWN_MINIMUM, UNKNOWN_MINIMUM]
    assert run_steps(collect_statistics(log.log, set())) == 1
    assert minima(log) == [20, UNKNOWN_MINIMUM]
    assert remembered(log)[0].min_timestamp == 20
    assert remembered(log)[0].data_max_timestamp == 50
    log.append(30)
    assert close_segment(log).min_timestamp == UNKNOWN_MINIMUM
    assert run_steps(collect_statistics(log.log, set())) == 1
    assert remembered(log)[2].min_timestamp == 30
    assert audit(log) == []


def test_segment_that_begins_empty_after_a_crash_is_known_again() -> None:
    log = LogHarness()
    log.crash()
    log.append(50, 20)
    assert minima(log) == [20]


def test_compacted_segment_is_measured_again() -> None:
    log = LogHarness(cleanup_policy="compact", min_cleanable_dirty_ratio="0")
    for timestamp, key in ((10, b"a"), (20, b"b"), (30, b"a")):
        log.append(timestamp, key=key)
    log.log.roll(log.now_ms)
    log.log.flush()
    run_steps(compact(log.log, now_ms=log.now_ms, map_bytes=1 << 20))
    assert minima(log)[0] == UNKNOWN_MINIMUM
    assert log.log.segments[0].data_max_timestamp == UNKNOWN_MAXIMUM
    assert run_steps(collect_statistics(log.log, set())) == 1
    assert (remembered(log)[0].min_timestamp, remembered(log)[0].records) == (20, 2)


def test_directory_without_a_manifest_is_measured() -> None:
    log = LogHarness()
    log.append(50, 20)
    log.log.roll(log.now_ms)
    log.log.close(log.now_ms)
    log.files.unlink(f"{DIRECTORY}/segment-manifest")
    log.open(is_clean=True)
    assert remembered(log)[0].min_timestamp == UNKNOWN_MINIMUM
    assert run_steps(collect_statistics(log.log, set())) == 1
    assert (remembered(log)[0].min_timestamp, remembered(log)[0].records) == (20, 2)


def test_long_segments_are_read_in_slices() -> None:
    log = LogHarness()
    for timestamp in range(30, 10, -1):
        log.append(timestamp, size=150_000, flush=False)
    log.append(9, size=1_040_000)
    log.log.roll(log.now_ms)
    log.crash()
    steps = collect_statistics(log.log, set())
    calls = 0
    for call in steps:
        assert call is not None
        call.run()
        calls += 1
    assert calls > 3
    assert minima(log)[0] == 9


def test_segment_that_retention_takes_meanwhile_is_left() -> None:
    log = LogHarness(retention_ms=100)
    log.append(50)
    log.log.roll(log.now_ms)
    log.append(999)
    log.crash()
    steps = collect_statistics(log.log, set())
    call = next(steps)
    assert delete_expired(log.log, log.now_ms)
    assert call is not None
    call.run()
    with pytest.raises(StopIteration):
        next(steps)
    assert 0 not in log.log.manifest.facts


def test_statistics_of_a_deleted_log_are_not_stored_in_its_successor() -> None:
    log = LogHarness()
    log.append(50)
    log.log.roll(log.now_ms)
    log.append(999)
    log.crash()
    steps = collect_statistics(log.log, set())
    call = next(steps)
    assert call is not None
    log.log.abandon()
    log.files.rename(DIRECTORY, f"{DIRECTORY}.deleted")
    log.files.make_directory(DIRECTORY)
    log.open(is_clean=True)
    call.run()
    with pytest.raises(StopIteration):
        next(steps)
    assert remembered(log) == {}
    log.crash()
    assert log.log.offline_reason is None


def test_what_cannot_be_read_stays_unknown_and_is_not_tried_again() -> None:
    log = LogHarness()
    log.append(50, size=200)
    log.append(40, size=200)
    log.log.roll(log.now_ms)
    log.log.close(log.now_ms)
    file = log.files.open(f"{DIRECTORY}/{0:020d}.log")
    damaged = bytearray(file.pread(400, 0))
    damaged[200 + 8 : 200 + 12] = b"\xff" * 4
    file.truncate(0)
    file.append(damaged)
    file.close()
    manifest = Manifest(DIRECTORY, log.files)
    manifest.remember(SegmentFacts(**{**as_dict(manifest.facts[0]), "min_timestamp": -(2**63)}))
    log.open(is_clean=True)
    given_up: set[int] = set()
    assert run_steps(collect_statistics(log.log, given_up)) == 0
    assert given_up == {0}
    assert run_steps(collect_statistics(log.log, given_up)) == 0


def as_dict(facts: SegmentFacts) -> dict[str, int]:
    return asdict(facts)


@pytest.mark.parametrize("codec", CODECS)
def test_measure_counts_every_format(codec: Codec) -> None:
    data = bytes(batch(50, 20, codec=codec)) + bytes(batch(7, 8, codec=codec, stamped_ms=300))
    assert statistics_of_entries(data) == (4, 20, 300, len(data), {0: 4}, 0)
    if codec is not Codec.ZSTD:
        old = messages(50, 20, magic=1, codec=codec) + messages(60, magic=1)
        assert statistics_of_entries(old) == (3, 20, 60, len(old), {0: 3}, 0)
        ancient = messages(50, 20, magic=0, codec=codec)
        assert statistics_of_entries(ancient) == (
            2, NO_TIMESTAMP, NO_TIMESTAMP, len(ancient), {NO_TIMESTAMP: 2}, 0,
        )  # fmt: skip
    assert statistics_of_entries(data[:-1]).size == len(bytes(batch(50, 20, codec=codec)))
    assert statistics_of_entries(b"") == (0, INT64_MAX, NO_TIMESTAMP, 0, {}, 0)


@pytest.mark.parametrize("codec", CODECS)
def test_times_are_counted_by_buckets_up_to_an_offset(codec: Codec) -> None:
    times = (5_000, 4_999, NO_TIMESTAMP, 5_001, 2**62)
    data = bytes(batch(*times, base_offset=10, codec=codec))
    data += bytes(batch(7, 8, base_offset=15, codec=codec, stamped_ms=9_300))
    if codec is not Codec.ZSTD:
        data += messages(9_400, 20_000, base_offset=17, magic=1, codec=codec)
    data += bytes(marker(commit=True, producer_id=7, timestamp_ms=9_000))
    whole = statistics_of_entries(data, width_ms=5_000)
    late = {} if codec is Codec.ZSTD else {20_000: 1}
    assert whole.times == {
        NO_TIMESTAMP: 1, 0: 1, 5_000: 4 if codec is Codec.ZSTD else 5, 2**62 - 2**62 % 5_000: 1,
        **late,
    }  # fmt: skip
    assert whole.markers == 1
    counted = [
        sum(statistics_of_entries(data[:-78], end_offset=end).times.values())
        for end in range(10, 18)
    ]
    assert counted == [0, 1, 2, 3, 4, 5, 6, 7]


def test_wrapper_is_not_taken_for_one_record_by_recovery() -> None:
    files = disk()
    segment = new_segment(files=files)
    old = messages(50, 20, magic=1, codec=Codec.GZIP) + messages(9, base_offset=2, magic=1)
    add(segment, old)
    rebuild_indexes(segment, index_interval=0)
    assert (segment.records, segment.max_timestamp) == (UNKNOWN, 50)
    log = LogHarness(files)
    log.log.roll(log.now_ms)
    assert run_steps(collect_statistics(log.log, set())) == 1
    assert (remembered(log)[0].records, remembered(log)[0].min_timestamp) == (3, 9)
    log.log.close(log.now_ms)
    assert audit(log) == []


def test_auditor_names_a_wrong_minimum() -> None:
    log = LogHarness()
    log.append(50, 20)
    log.log.roll(log.now_ms)
    log.log.close(log.now_ms)
    assert audit(log) == []
    manifest = Manifest(DIRECTORY, log.files)
    facts = as_dict(manifest.facts[0])
    manifest.remember(SegmentFacts(**{**facts, "min_timestamp": 21}))
    (finding,) = audit(log)
    assert "'min_timestamp': 20" in finding
    manifest.remember(SegmentFacts(**{**facts, "records": 3}))
    assert len(audit(log)) == 1
    manifest.remember(SegmentFacts(**{**facts, "data_max_timestamp": 49}))
    (finding,) = audit(log)
    assert "'data_max_timestamp': 50" in finding
    manifest.remember(
        SegmentFacts(**{**facts, "records": UNKNOWN, "min_timestamp": UNKNOWN_MINIMUM})
    )
    assert audit(log) == []
