"""From a time to an offset: time-semantics cases 11, 12, 57 to 66 and 69, and what it costs."""

from itertools import pairwise

import pytest

from protocol.records.builder import assemble_batch, build_message_set
from protocol.records.layout import Codec
from protocol.records.record import Record
from storage.append.plan import Origin
from storage.disk.steps import run_steps
from storage.errors import TooMuchAtOnce
from storage.log.compaction import compact
from storage.log.lookup import (
    AT_ONCE_BYTES,
    RECORDS_AT_ONCE_BYTES,
    LargeEntries,
    SegmentSearch,
    TimestampOffset,
)
from storage.log.retention import delete_expired
from storage.log.values import Isolation
from storage.segment.entry_heads import WALK_BLOCK_BYTES
from storage.segment.offset_index import OffsetPosition
from storage.segment.segment import Segment
from storage.segment.time_index import TimestampedOffset
from tests.support.logs import LogHarness, batch, marker, messages, produced
from tests.support.simulated_disk import Operation


def found(log: LogHarness, timestamp: int) -> tuple[int, int] | None:
    hit = log.log.offset_for_timestamp(timestamp)
    return None if hit is None else (hit.timestamp, hit.offset)


def newest(log: LogHarness) -> tuple[int, int] | None:
    hit = log.log.offset_for_max_timestamp()
    return None if hit is None else (hit.timestamp, hit.offset)


def log_of(*timestamps: int, roll_after: tuple[int, ...] = (), **settings: object) -> LogHarness:
    """One record per batch, indexed densely, rolled after the given offsets."""
    log = LogHarness(None, **({"index_interval_bytes": 0} | settings))
    for offset, timestamp in enumerate(timestamps):
        log.append(timestamp)
        if offset in roll_after:
            log.log.roll(log.now_ms)
    return log


def test_case_11_lookups_in_unordered_time() -> None:
    log = log_of(50, 40, 60, 60, 55)
    for timestamp in (0, 40, 45, 50):
        assert found(log, timestamp) == (50, 0)
    for timestamp in (51, 55, 60):
        assert found(log, timestamp) == (60, 2)
    assert found(log, 61) is None


@pytest.mark.parametrize(
    ("timestamp", "offset"),
    [(420, 42), (421, 43), (430, 43), (431, 44), (491, None), (401, 41), (399, 40)],
)
def test_case_12_lookups_between_index_entries(timestamp: int, offset: int | None) -> None:
    log = LogHarness(index_interval_bytes=2 * len(batch(400)) - 1)
    log.log.abandon()
    log.files.unlink(f"{log.path}/00000000000000000000.log")
    log.place(40, b"".join(batch(10 * o, base_offset=o) for o in range(40, 50)))
    log.open(is_clean=False)
    hit = log.log.offset_for_timestamp(timestamp)
    assert (None if hit is None else hit.offset) == offset


def test_case_13_answer_is_the_record_not_the_batch() -> None:
    log = LogHarness()
    log.append(100, 999, 200)
    assert found(log, 900) == (999, 1)
    assert found(log, 101) == (999, 1)
    assert newest(log) == (999, 1)


def test_case_57_empty_log_has_no_record_at_any_time() -> None:
    log = LogHarness()
    assert found(log, 0) is None
    assert newest(log) is None
    assert (log.log.log_start_offset, log.log.high_watermark) == (0, 0)


def test_case_58_largest_timestamp_need_not_be_last() -> None:
    assert newest(log_of(0, 1, 2, 3, 4, 6, 5)) == (6, 5)


def test_case_59_records_of_one_stamped_batch_share_their_time() -> None:
    log = LogHarness(message_timestamp_type="LogAppendTime")
    log.now_ms = 5000
    log.append(1, 2, 3)
    assert newest(log) == (5000, 0)
    assert found(log, 4000) == (5000, 0)
    log.now_ms = 6000
    log.append(1)
    assert newest(log) == (6000, 3)


def test_case_60_later_than_everything_is_nothing() -> None:
    assert found(log_of(1, 2, 3), 4) is None


def test_case_61_zero_skips_records_without_timestamp() -> None:
    assert found(log_of(-1, -1, 7, 3), 0) == (7, 2)


def test_case_62_first_of_equal_timestamps_across_segments() -> None:
    log = log_of(10, 70, 70, 20, roll_after=(1,))
    assert found(log, 70) == (70, 1)
    assert newest(log) == (70, 1)


def test_case_63_committed_readers_do_not_find_what_is_unstable() -> None:
    log = LogHarness()
    log.append(10)
    log.write(produced(20, producer_id=1, sequence=0, is_transactional=True))
    committed = Isolation.READ_COMMITTED
    assert log.log.last_stable_offset == 1
    assert log.log.offset_for_timestamp(20, isolation=committed) is None
    assert log.log.offset_for_max_timestamp(isolation=committed) is None
    assert log.log.offset_for_timestamp(10, isolation=committed) == TimestampOffset(10, 0, 0)
    assert found(log, 20) == (20, 1)
    log.write(marker(commit=True, producer_id=1, timestamp_ms=30), origin=Origin.COORDINATOR)
    assert log.log.offset_for_timestamp(20, isolation=committed) == TimestampOffset(20, 1, 0)


def test_case_64_hit_below_the_start_continues_in_later_segments() -> None:
    """Intended difference: Kafka answers nothing here."""
    log = log_of(90, 10, 80, 20, 95, roll_after=(1, 3))
    log.log.delete_before(1)
    assert found(log, 85) == (95, 4)
    assert found(log, 15) == (80, 2)
    assert newest(log) == (95, 4)


def test_case_64_inside_one_batch() -> None:
    log = LogHarness()
    log.append(90, 10)
    log.append(50)
    log.log.delete_before(1)
    assert found(log, 5) == (10, 1)
    assert found(log, 40) == (50, 2)
    assert found(log, 60) is None
    assert newest(log) == (50, 2)


def test_case_65_segment_without_timestamps_is_not_in_the_way() -> None:
    """Intended difference: Kafka takes the file's time for its records' and answers nothing."""
    log = LogHarness()
    log.log.abandon()
    log.files.now_ms = 10_000
    log.files.unlink(f"{log.path}/00000000000000000000.log")
    log.place(0, messages(-1, -1, magic=0))
    log.place(2, bytes(batch(700, base_offset=2)))
    log.open(is_clean=False)
    assert found(log, 600) == (700, 2)
    assert newest(log) == (700, 2)


def test_case_66_markers_count_like_records() -> None:
    log = LogHarness()
    log.write(produced(600, producer_id=1, sequence=0, is_transactional=True))
    log.now_ms = 700
    log.write(marker(commit=False, producer_id=1, timestamp_ms=700), origin=Origin.COORDINATOR)
    assert found(log, 650) == (700, 1)


def test_case_69_version_0_lists_segment_starts_newest_first() -> None:
    log = LogHarness()
    for offset in range(20):
        log.append(offset)
        if offset % 2 == 1 and offset < 19:
            log.log.roll(log.now_ms)
    now = log.now_ms
    assert log.log.offsets_before(now, 15, now) == [20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0]
    assert log.log.offsets_before(0, 10, now) == []
    log.log.delete_before(3)
    delete_expired(log.log, now)
    assert log.log.offsets_before(now, 15, now) == [20, 18, 16, 14, 12, 10, 8, 6, 4, 3]
    assert log.log.offsets_before(now, 2, now) == [20, 18]


def test_version_0_list_follows_the_append_times() -> None:
    log = LogHarness()
    for now_ms in (1000, 2000, 3000):
        log.now_ms = now_ms
        log.append(1)
        log.log.roll(now_ms)
    assert log.log.offsets_before(2500, 10, 9000) == [1, 0]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_records_inside_compressed_batches_are_found(codec: Codec) -> None:
    log = LogHarness()
    log.append(10, 30, 20, codec=codec)
    log.append(5, 40, codec=codec)
    assert [found(log, t) for t in (10, 11, 31, 41)] == [(10, 0), (30, 1), (40, 4), None]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_records_in_old_messages_are_found(codec: Codec) -> None:
    log = LogHarness()
    log.log.abandon()
    log.files.unlink(f"{log.path}/00000000000000000000.log")
    log.place(0, messages(10, 30, 20, magic=1, codec=codec))
    log.open(is_clean=False)
    assert [found(log, t) for t in (10, 11, 31)] == [(10, 0), (30, 1), None]


def test_leader_epoch_is_that_of_the_batch() -> None:
    log = LogHarness()
    log.append(10)
    log.log.leader_epoch += 1
    log.append(20)
    first, second = (log.log.offset_for_timestamp(t) for t in (10, 20))
    assert first is not None
    assert second is not None
    assert (first.leader_epoch, second.leader_epoch) == (0, 1)
    assert log.log.end_offset_for_epoch(0) == (0, 1)
    assert log.log.end_offset_for_epoch(1) == (1, 2)
    assert log.log.epoch_at(1) == 1


def test_invisible_records_are_not_found() -> None:
    log = LogHarness()
    log.append(10)
    log.append(20, flush=False)
    assert found(log, 20) is None
    assert newest(log) is None
    at_end = log.log.offset_for_timestamp(20, isolation=Isolation.LOG_END)
    assert at_end is not None
    log.log.flush()
    assert found(log, 20) == (20, 1)


def test_damaged_index_is_rebuilt_before_it_answers() -> None:
    log = log_of(*range(0, 400, 10), roll_after=(19,))
    segment = log.log.segments.first
    log.log.close(log.now_ms)
    for suffix in (".index", ".timeindex"):
        path = segment.path(suffix)
        log.files.damage(path, 0, bytes(log.files.size(path)))
    log.open(is_clean=True)
    assert [found(log, t) for t in (0, 95, 190, 200)] == [(0, 0), (100, 10), (190, 19), (200, 20)]
    again = Segment.open(log.files, log.path, 0, now_ms=0)
    assert again.offset_index.find_disorder() is None


def test_explanation_tells_what_was_looked_at() -> None:
    log = log_of(*range(0, 400, 10), roll_after=(19,), index_interval_bytes=300)
    log.append(995, 1000, 990)
    explained = log.log.explain_offset_for_timestamp(255)
    assert explained.found == TimestampOffset(260, 26, 0)
    assert explained.before == TimestampOffset(250, 25, 0)
    assert explained.after == TimestampOffset(270, 27, 0)
    assert explained.visible
    assert explained.segments == 2
    (search,) = explained.searched
    assert search.base_offset == 20
    assert search.time_entry.timestamp <= 255
    assert search.offset_entry.offset <= 26
    assert 1 <= search.batches_scanned <= 300 // len(batch(1)) + 2
    assert search.records_scanned == 1
    assert 0 < explained.bytes_read <= 300 + 4096


def test_explanation_of_nothing() -> None:
    log = log_of(1, 2)
    explained = log.log.explain_offset_for_timestamp(3)
    assert (explained.found, explained.searched, explained.bytes_read) == (None, (), 0)
    assert (explained.before, explained.after) == (None, None)
    assert not explained.visible
    log.log.delete_before(2)
    explained = log.log.explain_offset_for_timestamp(1)
    assert explained.found is None
    assert len(explained.searched) == 1


def test_explanation_has_no_neighbours_beyond_the_ends() -> None:
    log = log_of(1)
    explained = log.log.explain_offset_for_timestamp(1)
    assert (explained.before, explained.after) == (None, None)


def test_walk_in_vain_is_not_repeated() -> None:
    log = log_of(90, *range(50), 95, roll_after=(50,))
    log.log.delete_before(1)
    before = log.files.counts[Operation.READ]
    assert found(log, 60) == (95, 51)
    once = log.files.counts[Operation.READ] - before
    assert found(log, 61) == (95, 51)
    assert log.files.counts[Operation.READ] - before < 2 * once
    assert found(log, 45) == (45, 46)
    assert found(log, 60) == (95, 51)


def test_what_is_known_to_be_in_vain_is_forgotten_with_new_records() -> None:
    log = log_of(90, 1, 2)
    log.log.delete_before(1)
    assert found(log, 60) is None
    log.append(3)
    assert found(log, 60) is None
    log.append(70)
    assert found(log, 60) == (70, 4)


@pytest.mark.parametrize("size", [80, 1_000, 10_000])
def test_no_more_is_read_than_an_interval_and_a_batch_in_whole_blocks(size: int) -> None:
    log = LogHarness(index_interval_bytes=4096)
    for timestamp in range(60):
        log.write(batch(timestamp * 10, size=size))
    for timestamp in range(0, 600, 7):
        explained = log.log.explain_offset_for_timestamp(timestamp)
        assert explained.bytes_read <= 4096 + size + WALK_BLOCK_BYTES


def test_the_record_before_is_found_beyond_what_compaction_emptied() -> None:
    log = LogHarness(index_interval_bytes=0, cleanup_policy="compact", min_cleanable_dirty_ratio=0)
    for number, key in enumerate(b"abbbbcbbbdbbbbz"):
        log.write(batch(number * 10, key=bytes([key])))
        if number % 6 == 5:
            log.log.roll(log.now_ms)
    log.log.roll(log.now_ms)
    run_steps(compact(log.log, now_ms=log.now_ms, map_bytes=1 << 20))
    left = [(record.timestamp, record.offset) for record in log.records()]
    assert [offset for _, offset in left] == [0, 5, 9, 13, 14]
    for before, here in pairwise(left):
        explained = log.log.explain_offset_for_timestamp(here[0])
        assert explained.found == TimestampOffset(*here, 0)
        assert explained.before == TimestampOffset(*before, 0)
        assert log.log.explain_offset_for_timestamp(before[0]).after == explained.found


def test_explanation_names_every_step_of_the_search() -> None:
    log = log_of(10, 20, 30, 40, 50)
    size = len(batch(1))
    (search,) = log.log.explain_offset_for_timestamp(35).searched
    assert search == SegmentSearch(
        base_offset=0,
        max_timestamp=50,
        index="timeindex",
        time_entry=TimestampedOffset(30, 2),
        offset_entry=OffsetPosition(2, 2 * size),
        bytes_read=3 * size,
        batches_scanned=2,
        records_scanned=1,
        time_entries=4,
        time_steps=((2, TimestampedOffset(40, 3)), (1, TimestampedOffset(30, 2))),
        offset_entries=4,
        offset_steps=((2, OffsetPosition(3, 3 * size)), (1, OffsetPosition(2, 2 * size))),
    )


def log_of_three_epochs() -> LogHarness:
    """Nine records in three batches of three leader epochs, without index entries between them."""
    log = LogHarness(index_interval_bytes=4096)
    log.append(10, 20, 30)
    log.log.leader_epoch += 1
    log.append(90, 40, 50, 60)
    log.log.leader_epoch += 1
    log.append(70, 100)
    return log


THREE_EPOCHS = [
    # The time asked for, the neighbours and the answer, what was scanned: batches, then the records
    # of the last one.
    (5, None, (10, 0, 0), (20, 1, 0), 1, 1),
    (15, (10, 0, 0), (20, 1, 0), (30, 2, 0), 1, 2),
    (30, (20, 1, 0), (30, 2, 0), (90, 3, 1), 1, 3),
    (31, (30, 2, 0), (90, 3, 1), (40, 4, 1), 2, 1),
    (91, (70, 7, 2), (100, 8, 2), None, 3, 2),
]


@pytest.mark.parametrize(
    ("timestamp", "before", "found_record", "after", "batches", "records"), THREE_EPOCHS
)
def test_explanation_has_the_neighbours_with_their_epochs(
    timestamp: int,
    before: tuple[int, int, int] | None,
    found_record: tuple[int, int, int],
    after: tuple[int, int, int] | None,
    batches: int,
    records: int,
) -> None:
    explained = log_of_three_epochs().log.explain_offset_for_timestamp(timestamp)
    assert explained.timestamp == timestamp
    assert (explained.before, explained.found, explained.after) == (before, found_record, after)
    (search,) = explained.searched
    assert (search.batches_scanned, search.records_scanned) == (batches, records)


@pytest.mark.parametrize(
    ("timestamp", "before", "found_record"),
    [
        (15, None, (40, 4, 1)),
        (45, (40, 4, 1), (50, 5, 1)),
        (65, (60, 6, 1), (70, 7, 2)),
    ],
)
def test_explanation_names_nothing_below_the_start(
    timestamp: int, before: tuple[int, int, int] | None, found_record: tuple[int, int, int]
) -> None:
    log = log_of_three_epochs()
    log.log.delete_before(4)
    explained = log.log.explain_offset_for_timestamp(timestamp)
    assert (explained.before, explained.found) == (before, found_record)


def test_explanation_finds_neighbours_in_other_segments() -> None:
    log = log_of(10, 20, 30, roll_after=(0, 1))
    explained = log.log.explain_offset_for_timestamp(20)
    assert explained.before == TimestampOffset(10, 0, 0)
    assert explained.after == TimestampOffset(30, 2, 0)
    assert (explained.segments, [search.base_offset for search in explained.searched]) == (3, [1])


def test_segments_below_the_start_are_not_searched() -> None:
    """Retention has not removed their files yet."""
    log = log_of(90, 80, 10, 20, roll_after=(0, 1))
    log.log.delete_before(2)
    explained = log.log.explain_offset_for_timestamp(5)
    assert (explained.found, explained.segments) == (TimestampOffset(10, 2, 0), 3)
    assert [search.base_offset for search in explained.searched] == [2]


def test_explanation_has_the_first_record_of_the_log_as_a_neighbour() -> None:
    log = log_of(10, 20, 30, 40)
    log.log.delete_before(1)
    assert log.log.explain_offset_for_timestamp(30).before == TimestampOffset(20, 1, 0)
    assert log.log.explain_offset_for_timestamp(20).before is None


def test_explanation_reads_the_segments_around_the_answer_only() -> None:
    log = log_of(*range(10, 100, 10), roll_after=(2, 5))
    read: set[str] = set()
    log.files.before_operation = lambda kind, path: (
        read.add(path) if kind is Operation.READ and path.endswith(".log") else None
    )
    explained = log.log.explain_offset_for_timestamp(80)
    log.files.before_operation = None
    assert explained.found == TimestampOffset(80, 7, 0)
    assert read == {log.log.segments.active.log.path}


def test_explanation_adds_up_what_all_searched_segments_cost() -> None:
    log = log_of(90, 10, 80, 20, 95, roll_after=(1, 3))
    log.log.delete_before(1)
    explained = log.log.explain_offset_for_timestamp(85)
    assert [search.base_offset for search in explained.searched] == [0, 4]
    size = len(batch(1))
    # The first segment from its second record to its end, in vain; then the record itself.
    assert [search.bytes_read for search in explained.searched] == [size, size]
    assert explained.bytes_read == 2 * size
    assert [search.batches_scanned for search in explained.searched] == [1, 1]
    assert [search.records_scanned for search in explained.searched] == [0, 1]


def test_explanation_says_that_an_answer_is_not_visible_yet() -> None:
    log = log_of(10)
    log.append(20, flush=False)
    assert log.log.explain_offset_for_timestamp(10).visible
    explained = log.log.explain_offset_for_timestamp(20)
    assert (explained.found, explained.visible) == (TimestampOffset(20, 1, 0), False)


def test_largest_timestamp_at_time_zero_is_found() -> None:
    assert newest(log_of(0)) == (0, 0)
    assert newest(log_of(-1)) is None


def test_largest_timestamp_above_the_start_is_found_in_either_part_of_the_cut_segment() -> None:
    inside = log_of(90, 0)
    inside.log.delete_before(1)
    assert newest(inside) == (0, 1)
    later = log_of(90, 10, 5, 30, 20, roll_after=(2,))
    later.log.delete_before(1)
    assert newest(later) == (30, 3)
    nothing = log_of(90, -1)
    nothing.log.delete_before(1)
    assert newest(nothing) is None
    at_end = log_of(90)
    at_end.log.delete_before(1)
    assert newest(at_end) is None


def test_case_69_an_empty_log_starts_when_it_was_created() -> None:
    log = LogHarness()
    created = log.log.segments.active.created_ms
    assert log.log.offsets_before(created, 5, created) == [0]
    assert log.log.offsets_before(created - 1, 5, created) == []


def test_case_69_the_end_counts_as_written_now() -> None:
    log = LogHarness()
    log.now_ms = 1000
    log.append(1)
    assert log.log.offsets_before(1000, 5, 2000) == [0]
    assert log.log.offsets_before(1999, 5, 2000) == [0]
    assert log.log.offsets_before(2000, 5, 2000) == [1, 0]
    assert log.log.offsets_before(999, 5, 2000) == []


def test_largest_timestamp_costs_one_search() -> None:
    log = LogHarness(index_interval_bytes=4096)
    for timestamp in range(0, 2000, 10):
        log.append(timestamp)
    for _ in range(2):
        before = log.files.counts[Operation.READ]
        assert found(log, 1990) == (1990, 199)
        between = log.files.counts[Operation.READ]
        assert newest(log) == (1990, 199)
        assert log.files.counts[Operation.READ] - between <= between - before


def test_leader_epoch_of_a_stamped_batch_is_that_of_the_batch() -> None:
    log = LogHarness(message_timestamp_type="LogAppendTime")
    log.log.leader_epoch += 1
    log.now_ms = 5000
    log.append(1, 2)
    assert log.log.offset_for_timestamp(4000) == TimestampOffset(5000, 0, 1)


@pytest.mark.parametrize("magic", [0, 1])
def test_small_entries_are_searched_at_once(magic: int) -> None:
    """Only large ones may ask for another thread."""
    log = LogHarness()
    log.log.abandon()
    log.files.unlink(f"{log.path}/{0:020d}.log")
    log.place(0, messages(10, 20, magic=magic, codec=Codec.GZIP))
    log.open(is_clean=False)
    large = LargeEntries()
    found = log.log.offset_for_max_timestamp(large=large)
    assert (found is None) is (magic == 0), "messages of magic 0 have no times"
    if found is not None:
        assert (found.timestamp, found.offset) == (20, 1)


def test_a_large_entry_is_searched_when_the_caller_says_so() -> None:
    log = LogHarness()
    log.append(10, 20, value=b"v" * AT_ONCE_BYTES, codec=Codec.GZIP)
    large = LargeEntries()
    for _ in range(2):
        with pytest.raises(TooMuchAtOnce):
            log.log.offset_for_timestamp(15, large=large)
    large.search()
    found = log.log.offset_for_timestamp(15, large=large)
    assert found is not None
    assert (found.timestamp, found.offset) == (20, 1)
    assert log.log.offset_for_timestamp(15) == found, "without a word about large entries: at once"


@pytest.mark.parametrize(("start", "searches"), [(0, 1), (1, 2)])
def test_the_largest_timestamp_in_a_large_entry_is_searched_when_the_caller_says_so(
    start: int, searches: int
) -> None:
    """Where the start has cut off the log's maximum, first the one above the start is sought."""
    log = LogHarness()
    log.append(999 if start else 5)
    log.append(10, 20, value=b"v" * AT_ONCE_BYTES, codec=Codec.GZIP)
    log.log.delete_before(start)
    large = LargeEntries()
    for _ in range(searches):
        with pytest.raises(TooMuchAtOnce):
            log.log.offset_for_max_timestamp(large=large)
        large.search()
    assert log.log.offset_for_max_timestamp(large=large) == TimestampOffset(20, 2, 0)


def log_of_one_old_message(value_bytes: int, codec: Codec) -> LogHarness:
    log = LogHarness()
    log.log.abandon()
    log.files.unlink(f"{log.path}/{0:020d}.log")
    log.place(0, build_message_set([Record(0, 20, None, bytes(value_bytes))], 1, codec))
    log.open(is_clean=False)
    return log


def test_an_old_message_is_searched_at_once_up_to_the_very_limit() -> None:
    overhead = len(build_message_set([Record(0, 20, None, b"")], 1))
    log = log_of_one_old_message(RECORDS_AT_ONCE_BYTES - overhead, Codec.NONE)
    assert log.log.segments.active.size == RECORDS_AT_ONCE_BYTES
    found = log.log.offset_for_timestamp(15, large=LargeEntries())
    assert found == TimestampOffset(20, 0)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_large_old_message_is_searched_when_the_caller_says_so(codec: Codec) -> None:
    log = log_of_one_old_message(RECORDS_AT_ONCE_BYTES, codec)
    large = LargeEntries()
    with pytest.raises(TooMuchAtOnce):
        log.log.offset_for_timestamp(15, large=large)
    large.search()
    found = log.log.offset_for_timestamp(15, large=large)
    assert found == log.log.offset_for_timestamp(15) == TimestampOffset(20, 0)


def test_a_batch_that_compaction_emptied_has_no_largest_timestamp() -> None:
    log = LogHarness()
    log.log.abandon()
    log.files.unlink(f"{log.path}/{0:020d}.log")
    emptied = assemble_batch(
        b"",
        base_offset=1,
        leader_epoch=0,
        attributes=0,
        last_offset_delta=1,
        base_timestamp=-1,
        max_timestamp=500,
        producer=(-1, -1, -1),
        records_count=0,
    )
    log.place(0, b"".join((batch(999), emptied, batch(20, base_offset=3))))
    log.open(is_clean=False)
    log.log.delete_before(1)
    assert newest(log) == (20, 3)


def test_a_walk_without_a_hit_is_not_repeated_for_the_same_time() -> None:
    log = LogHarness(index_interval_bytes=0)
    log.append(100)
    for timestamp in range(50):
        log.append(timestamp)
    log.log.delete_before(1)
    assert log.log.offset_for_timestamp(80) is None
    assert log.log.explain_offset_for_timestamp(80).searched == ()
