"""Counts of records by time: what an append counts, what it leaves for later, and their file."""

from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.records.layout import NO_TIMESTAMP
from storage.audit.findings import IndexProblem, Severity
from storage.audit.partition import PartitionAudit
from storage.audit.time_counts import CountsFile, read_counts
from storage.disk.steps import run_steps
from storage.log.histogram import TimeHistogram, Window
from storage.log.segment_stats import collect_statistics, count_stretches, counts_in_memory
from storage.segment.auxiliary_index import Coverage, DamagedAuxiliaryIndex
from storage.segment.segment import Segment
from storage.segment.time_counts import (
    BUCKETS_MAX,
    HEADER,
    STRETCHES_MAX,
    WIDTHS_MS,
    Buckets,
    Stretch,
    TimeCounts,
    count_before,
    encode_counts,
    parse_counts,
    wider,
)
from tests.support.logs import LogHarness
from tests.support.simulated_disk import Operation

SECOND = 1_000
COVERAGE = Coverage(500, 7, 9_000)


def counts_of(segment: Segment) -> TimeCounts:
    counts = counts_in_memory(segment)
    assert counts is not None
    counts.load()
    return counts


def bars(counts: TimeCounts) -> dict[int, int]:
    return {
        start: count
        for start, count in zip(counts.buckets.starts, counts.buckets.counts, strict=True)
        if count
    }


def path_of(log: LogHarness, base: int = 0) -> str:
    return f"{log.path}/{base:020d}.counts"


def all_records(log: LogHarness, bytes_max: int = 1 << 30) -> int:
    window = Window(from_ms=0, to_ms=1, bars=1)
    (one,) = run_steps(TimeHistogram().count([log.log], window, bytes_max=bytes_max)).partitions
    return one.records


def findings(log: LogHarness) -> list[tuple[Severity, str]]:
    audit = PartitionAudit(log.path, log.files, stopped_cleanly=True, deep=True)
    audit.run()
    return [(one.severity, one.path.rpartition("/")[2]) for one in audit.findings]


def test_every_width_divides_the_next() -> None:
    widths = [*WIDTHS_MS, *(WIDTHS_MS[-1] * 2**power for power in range(1, 27))]
    assert all(wider(one) == following for one, following in pairwise(widths))
    assert all(following % one == 0 for one, following in pairwise(widths))
    assert 2**63 // widths[-1] <= BUCKETS_MAX


def test_batches_within_a_bucket_need_no_reading() -> None:
    log = LogHarness()
    log.append(1_000, 1_999, 1_500)
    log.append(1_001)
    log.append(5_000)
    log.append(NO_TIMESTAMP, NO_TIMESTAMP)
    counts = counts_of(log.log.segments.active)
    assert (bars(counts), counts.buckets.without_time) == ({1_000: 4, 5_000: 1}, 2)
    assert counts.stretches == []


def test_a_wide_batch_is_a_stretch_until_it_is_read() -> None:
    log = LogHarness()
    log.append(1_500)
    first = log.log.segments.active.size
    log.append(1_999, 2_000, 9_000)
    segment = log.log.segments.active
    counts = counts_of(segment)
    assert counts.stretches == [Stretch(first, segment.size, 1_999, 9_000, 3)]
    assert bars(counts) == {1_000: 1}
    run_steps(count_stretches(log.log, segment, counts))
    assert bars(counts) == {1_000: 2, 2_000: 1, 9_000: 1}
    log.append(2_500)
    assert bars(counts_of(segment))[2_000] == 2


def test_wider_buckets_take_in_stretches() -> None:
    """257 seconds need buckets of 5 s, which a batch of 4 s fits into."""
    log = LogHarness()
    log.append(20_000, 24_000)
    for second in range(100, 100 + BUCKETS_MAX):
        log.append(second * SECOND)
    counts = counts_of(log.log.segments.active)
    assert counts.buckets.width_ms == 5_000
    assert counts.stretches == []
    assert bars(counts)[20_000] == 2


def test_the_ends_of_a_stretch_decide_about_the_width() -> None:
    log = LogHarness()
    for second in range(0, 2 * BUCKETS_MAX + 2, 2):
        log.append(second * SECOND, (second + 1) * SECOND)
    counts = counts_of(log.log.segments.active)
    assert counts.buckets.width_ms > 1_000
    assert sum(stretch.records for stretch in counts.stretches) < 2 * BUCKETS_MAX


def test_many_stretches_become_one_that_grows() -> None:
    log = LogHarness()
    count = STRETCHES_MAX + 50
    for _ in range(count):
        log.append(0, 60_000)
        log.append(500)
    segment = log.log.segments.active
    counts = counts_of(segment)
    assert len(counts.stretches) == STRETCHES_MAX + 1
    assert counts.stretches[-1].end == segment.size
    assert all_records(log) == 3 * count
    assert bars(counts_of(segment)) == {0: 2 * count, 60_000: count}
    log.append(700)
    assert (bars(counts_of(segment))[0], counts.stretches) == (2 * count + 1, [])


def test_appends_while_a_stretch_is_read_are_counted_once() -> None:
    """Between the steps the buckets grow wider, so that the stretch would fit into one."""
    log = LogHarness()
    log.append(20_000, 24_000)
    segment = log.log.segments.active
    counts = counts_of(segment)
    steps = count_stretches(log.log, segment, counts)
    call = next(steps)
    assert call is not None
    for second in range(100, 100 + BUCKETS_MAX):
        log.append(second * SECOND)
    log.append(0, 70_000)
    assert run_steps(count_stretches(log.log, segment, counts)) == 0
    call.run()
    run_steps(steps)
    assert counts.buckets.records + len(counts.stretches) == 2 + BUCKETS_MAX + 2
    assert bars(counts)[20_000] == 2


def test_a_reader_that_gives_up_leaves_the_rest_to_the_next() -> None:
    log = LogHarness()
    log.append(0, 60_000)
    segment = log.log.segments.active
    counts = counts_of(segment)
    steps = count_stretches(log.log, segment, counts)
    next(steps)
    steps.close()
    assert not counts.is_claimed
    assert all_records(log) == 2


@settings(deadline=None, max_examples=50)
@given(
    batches=st.lists(
        st.lists(st.integers(-1, 60_000), min_size=1, max_size=6), min_size=1, max_size=40
    ),
    when_ms=st.integers(1, 61_000),
    is_read=st.booleans(),
)
def test_the_records_before_a_time_are_counted_exactly(
    batches: list[list[int]], when_ms: int, is_read: bool
) -> None:
    """Before a time as soon after the wanted one as batches and buckets leave it open."""
    log = LogHarness()
    for times in batches:
        log.append(*times)
    segment = log.log.segments.active
    counts = counts_of(segment)
    if is_read:
        run_steps(count_stretches(log.log, segment, counts))
    times = [time for one in batches for time in one]
    found = count_before(counts.buckets, counts.stretches, len(times), when_ms)
    if found is None:
        # A batch with and without times is not counted by its head.
        assert not is_read
        assert any(min(one) < 0 <= max(one) for one in batches)
        return
    ms, records = found
    assert ms >= when_ms
    assert records == sum(time < ms for time in times)
    if is_read and counts.buckets.width_ms == SECOND:
        assert ms < when_ms + SECOND


def test_the_records_before_a_time_are_those_of_a_segment_without_gaps() -> None:
    """A reader takes the offsets of its first part for as many records."""
    buckets = Buckets()
    buckets.add(1_000, 3)
    buckets.add(5_000, 4)
    buckets.without_time = 2
    assert count_before(buckets, [], 9, 3_000) == (3_000, 5)
    assert count_before(buckets, [], 9, 5_001) == (6_000, 9)
    assert count_before(buckets, [], 9, 1_000) == (1_000, 2)
    assert count_before(buckets, [], 10, 3_000) is None
    wide = [Stretch(0, 9, 2_500, 3_500, 1), Stretch(9, 20, 3_400, 4_999, 2)]
    assert count_before(buckets, wide, 12, 3_000) == (5_000, 8)
    assert count_before(buckets, wide, 12, 2_500) == (2_500, 5)
    assert count_before(buckets, [Stretch(0, 9)], 9, 3_000) is None
    buckets.markers = 1
    assert count_before(buckets, [], 10, 3_000) is None


def test_counts_survive_a_restart_and_cost_it_no_reading() -> None:
    log = LogHarness()
    log.append(1_000)
    log.append(0, 60_000)
    log.log.roll(log.now_ms)
    log.append(2_000)
    log.log.close(log.now_ms)
    reads: list[str] = []
    log.files.before_operation = lambda kind, path: (
        reads.append(path) if kind is Operation.READ and path.endswith(".counts") else None
    )
    log.open(is_clean=True)
    log.append(2_100)
    assert reads == []
    assert all_records(log) == 5
    assert len(reads) > 0


def test_a_file_about_another_state_of_the_log_counts_as_missing() -> None:
    log = LogHarness()
    log.append(1_000)
    log.log.close(log.now_ms)
    stale = log.files.read_all(path_of(log))
    log.open(is_clean=True)
    log.append(2_000)
    log.log.close(log.now_ms)
    log.files.unlink(path_of(log))
    log.files.create(path_of(log)).append(stale)
    log.open(is_clean=True)
    assert counts_of(log.log.segments.active).stretches == [
        Stretch(0, log.log.segments.active.size)
    ]
    assert all_records(log) == 2


@pytest.mark.parametrize("fault", ["write", "read"])
def test_a_file_that_cannot_be_used_loses_no_record(fault: str) -> None:
    log = LogHarness()
    log.append(1_000)
    log.append(0, 60_000)

    def unusable(kind: Operation, path: str) -> None:
        wanted = Operation.READ if fault == "read" else Operation.CREATE
        if kind is wanted and path.endswith(".counts"):
            raise OSError(5, "Input/output error", path)

    log.files.before_operation = unusable
    log.log.roll(log.now_ms)
    log.append(2_000)
    assert all_records(log) == 4
    log.files.before_operation = None
    log.reopen()
    assert all_records(log) == 4


def test_closed_segments_are_counted_in_the_background() -> None:
    log = LogHarness()
    log.append(0, 60_000)
    log.log.roll(log.now_ms)
    log.append(2_000)
    assert run_steps(collect_statistics(log.log, set())) == 1
    assert run_steps(collect_statistics(log.log, set())) == 0
    assert all_records(log, bytes_max=0) == 3


def test_a_segment_of_a_crash_is_counted_with_its_statistics() -> None:
    log = LogHarness()
    log.append(0, 60_000)
    log.log.roll(log.now_ms)
    log.append(2_000)
    log.crash()
    assert all_records(log, bytes_max=0) == 0
    run_steps(collect_statistics(log.log, set()))
    assert all_records(log, bytes_max=0) == 2
    assert all_records(log) == 3


def test_a_rolled_segment_keeps_no_counts_in_memory() -> None:
    log = LogHarness()
    log.append(1_000)
    closed = log.log.segments.active
    log.log.roll(log.now_ms)
    counts = counts_in_memory(closed)
    assert counts is not None
    assert len(counts.buckets.starts) == 0
    assert bars(counts_of(closed)) == {1_000: 1}


def test_the_owners_thread_reads_no_file_of_closed_segments(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = LogHarness()
    for n in range(3):
        log.append(n * SECOND)
        log.log.roll(log.now_ms)
    log.append(4_000)
    log.reopen()
    read: list[str] = []
    read_all = log.files.read_all

    def noted(path: str) -> bytes:
        read.append(path)
        return read_all(path)

    monkeypatch.setattr(log.files, "read_all", noted)
    window = Window(from_ms=0, to_ms=1, bars=1)
    steps = TimeHistogram().count([log.log], window, bytes_max=0)
    aside: list[str] = []
    with suppress(StopIteration):
        while True:
            if (call := next(steps)) is not None:
                before = len(read)
                call.run()
                aside += read[before:]
    assert read == aside == [path_of(log, base) for base in range(4)]


def test_counts_in_memory_cost_no_call_in_a_thread() -> None:
    log = LogHarness()
    log.append(4_000)
    window = Window(from_ms=0, to_ms=1, bars=1)
    assert not any(TimeHistogram().count([log.log], window, bytes_max=0))


# --- the file -----------------------------------------------------------------------------------


def example() -> tuple[Buckets, list[Stretch]]:
    buckets = Buckets(5_000)
    buckets.add(15_000, 2**32 - 1)
    buckets.add(5_000, 0)
    buckets.without_time, buckets.markers = 3, 4
    return buckets, [Stretch(10, 90), Stretch(100, 200, 5_000, 12_000, 7)]


def test_a_file_holds_what_was_counted() -> None:
    buckets, stretches = example()
    content = encode_counts(buckets, stretches, COVERAGE)
    assert len(content) == 64 + 2 * 12 + 2 * 40 + 4
    found, left, coverage = parse_counts(content)
    assert (found.width_ms, list(found.starts), list(found.counts)) == (
        5_000, [5_000, 15_000], [0, 2**32 - 1],
    )  # fmt: skip
    assert (found.without_time, found.markers, left, coverage) == (3, 4, stretches, COVERAGE)


def test_no_damage_is_taken_for_counts() -> None:
    content = encode_counts(*example(), COVERAGE)
    for size in range(len(content)):
        with pytest.raises(DamagedAuxiliaryIndex):
            parse_counts(content[:size])
    for at in range(len(content)):
        damaged = bytearray(content)
        damaged[at] ^= 0x10
        with pytest.raises(DamagedAuxiliaryIndex):
            parse_counts(bytes(damaged))
        assert isinstance(read_counts(bytes(damaged)), IndexProblem)


def test_the_audit_reads_the_same_file() -> None:
    found = read_counts(encode_counts(*example(), COVERAGE))
    assert isinstance(found, CountsFile)
    assert (found.width_ms, found.covered) == (5_000, COVERAGE)
    facts, words = found.describe()
    assert facts["not_counted_bytes"] == 180
    assert "180 bytes not counted yet" in words


def test_the_audit_finds_counts_that_do_not_add_up() -> None:
    log = LogHarness()
    log.append(1_000, 1_001)
    log.log.close(log.now_ms)
    assert findings(log) == []
    buckets, _, coverage = parse_counts(log.files.read_all(path_of(log)))
    buckets.add(1_000, 1)
    log.files.unlink(path_of(log))
    log.files.create(path_of(log)).append(encode_counts(buckets, [], coverage))
    assert findings(log) == [(Severity.ERROR, path_of(log).rpartition("/")[2])]
    log.files.unlink(path_of(log))
    log.files.create(path_of(log)).append(b"x" * HEADER.size)
    assert findings(log) == []
