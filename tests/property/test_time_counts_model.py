"""Counts by time equal brute force, after any history of a log: disorder, future, gaps, none."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.records.builder import build_batch, build_message_set
from protocol.records.layout import NO_TIMESTAMP, Codec
from protocol.records.record import Record
from protocol.records.scan import iter_records, scan_entries
from storage.append.plan import Origin
from storage.disk.steps import run_steps
from storage.log.compaction import compact
from storage.log.histogram import Histogram, TimeHistogram, Window
from storage.log.retention import delete_expired
from storage.log.segment_stats import collect_statistics
from storage.segment.time_counts import BUCKETS_MAX, WIDTHS_MS, wider
from tests.support.logs import LogHarness, batch, marker

NOW_MS = 1_800_000_000_000
DAY_MS = 86_400_000

near = st.integers(NOW_MS - 3_000, NOW_MS + 3_000)
times = st.one_of(
    near,
    st.integers(NOW_MS - 30 * DAY_MS, NOW_MS),
    st.integers(NOW_MS, NOW_MS + 4_000 * DAY_MS),
    st.integers(0, 10),
    st.just(NO_TIMESTAMP),
    st.just(2**62),
)
batches = st.one_of(
    st.lists(near, min_size=1, max_size=6),
    st.lists(times, min_size=1, max_size=6),
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), batches, st.sampled_from([Codec.NONE, Codec.ZSTD])),
        st.tuples(st.just("append"), batches, st.sampled_from([Codec.NONE, Codec.ZSTD])),
        st.tuples(st.just("stamp"), st.lists(near, min_size=1, max_size=3), st.none()),
        st.tuples(st.just("old"), batches, st.sampled_from([Codec.NONE, Codec.GZIP])),
        st.tuples(st.just("many"), st.integers(1, 400), st.sampled_from([700, 4_000, 90_000])),
        st.tuples(st.just("transaction"), near, st.none()),
        st.tuples(st.just("roll"), st.none(), st.none()),
        st.tuples(st.just("close"), st.none(), st.none()),
        st.tuples(st.just("crash"), st.none(), st.none()),
        st.tuples(st.just("compact"), st.none(), st.none()),
        st.tuples(st.just("delete"), st.integers(0, 100), st.none()),
        st.tuples(st.just("retention"), st.none(), st.none()),
        st.tuples(st.just("statistics"), st.none(), st.none()),
        st.tuples(st.just("ask"), st.integers(0, 300), st.none()),
        st.tuples(st.just("lose"), st.integers(0, 5), st.none()),
    ),
    max_size=25,
)
windows = st.builds(
    lambda start, size, bars: Window(from_ms=start, to_ms=start + size, bars=bars),
    st.one_of(near, st.integers(0, NOW_MS)),
    st.integers(1, 100 * DAY_MS),
    st.integers(1, 300),
)


class History:
    """A log that goes through the steps of an example."""

    def __init__(self) -> None:
        self.log = LogHarness(
            None, cleanup_policy="compact,delete", retention_ms=40 * DAY_MS, segment_ms=2**50,
            message_timestamp_after_max_ms=2**62, min_cleanable_dirty_ratio=0,
        )  # fmt: skip
        self.log.now_ms = NOW_MS
        self.counting = TimeHistogram()
        self.sequence = 0
        self.key = 0

    def take(self, kind: str, argument: Any, option: Any) -> None:
        getattr(self, f"do_{kind}")(argument, option)
        self.log.log.flush()

    def do_append(self, timestamps: list[int], codec: Codec) -> None:
        self.key = (self.key + 1) % 7
        self.log.write(batch(*timestamps, codec=codec, key=b"%d" % self.key))

    def do_stamp(self, timestamps: list[int], _: None) -> None:
        self.log.configure(message_timestamp_type="LogAppendTime")
        self.log.write(batch(*timestamps, key=b"stamped"))
        self.log.configure(message_timestamp_type="CreateTime")

    def do_old(self, timestamps: list[int], codec: Codec) -> None:
        """Messages of magic 1, as an old client sends them."""
        records = [Record(0, timestamp, b"old", b"v") for timestamp in timestamps]
        self.log.write(build_message_set(records, 1, codec), origin=Origin.COORDINATOR)

    def do_many(self, count: int, step_ms: int) -> None:
        for number in range(count):
            self.log.write(batch(NOW_MS - number * step_ms, key=b"%d" % number))

    def do_transaction(self, timestamp: int, _: None) -> None:
        records = [Record(0, timestamp, b"txn", b"v")]
        data = build_batch(
            records, producer_id=7, producer_epoch=0, base_sequence=self.sequence,
            is_transactional=True,
        )  # fmt: skip
        self.log.write(data)
        self.sequence += 1
        end = marker(commit=True, producer_id=7, timestamp_ms=NOW_MS)
        self.log.write(end, origin=Origin.COORDINATOR)

    def do_roll(self, _: None, __: None) -> None:
        self.log.log.roll(self.log.now_ms)

    def do_close(self, _: None, __: None) -> None:
        self.log.reopen()

    def do_crash(self, _: None, __: None) -> None:
        self.log.crash()

    def do_compact(self, _: None, __: None) -> None:
        run_steps(compact(self.log.log, now_ms=self.log.now_ms, map_bytes=1 << 20))

    def do_delete(self, percent: int, _: None) -> None:
        log = self.log.log
        span = log.high_watermark - log.log_start_offset
        log.delete_before(log.log_start_offset + span * percent // 100)

    def do_retention(self, _: None, __: None) -> None:
        delete_expired(self.log.log, self.log.now_ms)

    def do_statistics(self, _: None, __: None) -> None:
        run_steps(collect_statistics(self.log.log, set()))

    def do_ask(self, bytes_max: int, _: None) -> None:
        window = Window(from_ms=NOW_MS - DAY_MS, to_ms=NOW_MS, bars=24)
        run_steps(self.counting.count([self.log.log], window, bytes_max=bytes_max))

    def do_lose(self, number: int, _: None) -> None:
        files = [name for name in self.log.names() if name.endswith(".counts")]
        if files:
            self.log.files.unlink(f"{self.log.path}/{files[number % len(files)]}")

    def records(self) -> list[tuple[int, bool]]:
        """Time and whether it is a marker, of every record from the log's start on."""
        log = self.log.log
        found = []
        for segment in log.segments:
            data = segment.log.pread(segment.size, 0)
            for entry in scan_entries(data):
                if entry.last_offset >= log.log_start_offset:
                    found += [
                        (record.timestamp, entry.is_control)
                        for record in iter_records(data, entry.position)
                        if record.offset >= log.log_start_offset
                    ]
        return found


def check(found: Histogram, records: list[tuple[int, bool]], window: Window) -> None:
    (one,) = found.partitions
    data = [time for time, is_marker in records if not is_marker]
    assert found.missing == []
    assert one.records == len(data)
    assert one.markers == len(records) - len(data)
    assert one.without_time == sum(time < 0 for time in data)
    bars = found.bars
    assert bars.start <= window.from_ms
    assert window.to_ms <= bars.stop
    assert one.before == sum(0 <= time < bars.start for time in data)
    assert one.after == sum(time >= bars.stop for time in data)
    expected: dict[int, int] = {}
    for time in data:
        if bars.start <= time < bars.stop:
            bar = time - time % bars.step
            expected[bar] = expected.get(bar, 0) + 1
    assert one.bars == expected


@settings(deadline=None)
@given(history=steps, window=windows)
def test_counts_equal_those_of_reading_every_record(
    history: list[tuple[str, Any, Any]], window: Window
) -> None:
    log = History()
    for kind, argument, option in history:
        log.take(kind, argument, option)
    found = run_steps(log.counting.count([log.log.log], window, bytes_max=1 << 30))
    check(found, log.records(), window)
    again = run_steps(log.counting.count([log.log.log], window, bytes_max=0))
    assert (again.partitions, again.bytes_read) == (found.partitions, 0)
    log.log.reopen()
    after = run_steps(TimeHistogram().count([log.log.log], window, bytes_max=1 << 30))
    check(after, log.records(), window)


@settings(deadline=None)
@given(history=steps, bytes_max=st.integers(0, 2_000))
def test_what_is_counted_and_what_is_missing_is_all_there_is(
    history: list[tuple[str, Any, Any]], bytes_max: int
) -> None:
    """Asked again and again with a small budget, the sum rises until nothing is missing."""
    log = History()
    for kind, argument, option in history:
        log.take(kind, argument, option)
    window = Window(from_ms=NOW_MS - DAY_MS, to_ms=NOW_MS, bars=240)
    expected = sum(not is_marker for _, is_marker in log.records())
    before = -1
    for _ in range(200):
        found = run_steps(log.counting.count([log.log.log], window, bytes_max=max(1, bytes_max)))
        (one,) = found.partitions
        assert before <= one.records <= expected
        assert (one.records == expected) or found.missing
        before = one.records
        if not found.missing:
            break
    assert not found.missing
    assert one.records == expected


def smallest_width(timestamps: list[int]) -> int:
    width_ms = WIDTHS_MS[0]
    while len({time // width_ms for time in timestamps}) > BUCKETS_MAX:
        width_ms = wider(width_ms)
    return width_ms


@settings(deadline=None)
@given(
    st.lists(st.lists(times.filter(lambda time: time >= 0), min_size=1, max_size=5), max_size=60),
    st.integers(0, 600),
)
def test_buckets_are_as_narrow_as_their_number_allows(
    appended: list[list[int]], spread: int
) -> None:
    log = LogHarness(None, message_timestamp_after_max_ms=2**62, segment_ms=2**50)
    log.now_ms = NOW_MS
    appended += [[NOW_MS - 7_000 * number] for number in range(spread)]
    for timestamps in appended:
        log.write(batch(*timestamps))
    window = Window(from_ms=0, to_ms=1, bars=1)
    run_steps(TimeHistogram().count([log.log], window, bytes_max=1 << 30))
    (counts,) = log.log.segments.active.auxiliary
    every = [time for timestamps in appended for time in timestamps]
    assert counts.buckets.width_ms == smallest_width(every)  # type: ignore[attr-defined]
