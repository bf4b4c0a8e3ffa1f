"""A time window against brute force: the records of a log, filtered by their times.

Whatever is appended, by plain and transactional producers, with disorder, all codecs and formats,
stamped by the broker or not; whatever is rolled, compacted, deleted, crashed and measured: a reader
of the window gets exactly the records that a reader of everything would keep. Windows live through
all of it, so that what they remember has to stay true.
"""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from protocol.records.builder import build_batch, build_message_set
from protocol.records.layout import Codec
from protocol.records.record import Record
from protocol.time_windows import NO_END_MS
from storage.append.plan import Origin
from storage.disk.steps import run_steps
from storage.log.compaction import compact
from storage.log.segment_stats import collect_statistics
from storage.window.log_window import LogWindow
from tests.support.logs import LogHarness, disk, marker
from tests.support.window_reader import COMMITTED, UNCOMMITTED, consume, expected, seen_by_consumer

TIMES = st.lists(st.one_of(st.just(-1), st.integers(0, 60)), min_size=1, max_size=6)
WINDOWS = ((0, NO_END_MS), (10, 30), (20, 21), (25, 60), (55, NO_END_MS), (90, 99))
PRODUCERS = (7, 8)
NO_TIME = -1


class WindowAgainstBruteForce(RuleBasedStateMachine):
    """Random work on a log, and readers of windows before, during and after it."""

    @initialize(
        old=st.lists(st.tuples(TIMES, st.sampled_from([0, 1]), st.sampled_from(list(Codec)[:4]))),
        compacted=st.booleans(),
    )
    def start(self, old: list[tuple[list[int], int, Codec]], compacted: bool) -> None:
        """The oldest segment is one that a broker of old formats has written."""
        self.log = LogHarness(
            disk(),
            cleanup_policy="compact,delete" if compacted else "delete",
            index_interval_bytes=100,
            segment_bytes=900,
            segment_ms=1_000_000,
            file_delete_delay_ms=5,
        )
        self.log.log.abandon()
        data, offset = b"", 0
        for times, magic, codec in old:
            records = [Record(offset + i, time, b"k%d" % i, b"o") for i, time in enumerate(times)]
            data += build_message_set(records, magic, codec)
            offset += len(times)
        path = f"{self.log.path}/{0:020d}.log"
        self.log.files.open(path).append(data)
        self.log.open(is_clean=False)
        assert self.log.log.log_end_offset == offset
        self.sequences = dict.fromkeys(PRODUCERS, 0)
        self.ongoing: set[int] = set()
        self.windows = self.made_now()
        self.followers = {window: (0, list[Record]()) for window in WINDOWS}
        self.written: dict[int, Record] = {}

    def made_now(self) -> list[LogWindow]:
        return [LogWindow(self.log.log, *window) for window in WINDOWS]

    def keyed(self, times: list[int]) -> list[Record]:
        base = self.log.log.log_end_offset
        return [
            Record(base + i, time, b"k%d" % (time % 5), b"%d" % (base + i))
            for i, time in enumerate(times)
        ]

    @rule(times=TIMES, codec=st.sampled_from(Codec), pad=st.sampled_from([0, 0, 80]))
    def append(self, times: list[int], codec: Codec, pad: int) -> None:
        records = [
            record._replace(value=(record.value or b"") + b"x" * pad)
            for record in self.keyed(times)
        ]
        self.log.write(build_batch(records, codec=codec))

    @rule(times=TIMES, now_ms=st.integers(0, 60))
    def append_stamped(self, times: list[int], now_ms: int) -> None:
        self.log.configure(message_timestamp_type="LogAppendTime")
        self.log.now_ms, before = now_ms, self.log.now_ms
        self.log.write(build_batch(self.keyed(times)))
        self.log.now_ms = before
        self.log.configure(message_timestamp_type="CreateTime")

    @rule(times=TIMES, producer=st.sampled_from(PRODUCERS), codec=st.sampled_from(Codec))
    def append_in_transaction(self, times: list[int], producer: int, codec: Codec) -> None:
        records = self.keyed(times)
        data = build_batch(
            records,
            codec=codec,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=self.sequences[producer],
            is_transactional=True,
        )
        self.log.write(data)
        self.sequences[producer] += len(times)
        self.ongoing.add(producer)

    @rule(producer=st.sampled_from(PRODUCERS), commit=st.booleans(), time=st.integers(0, 60))
    def end_transaction(self, producer: int, commit: bool, time: int) -> None:
        if producer in self.ongoing:
            self.ongoing.remove(producer)
            data = marker(commit=commit, producer_id=producer, timestamp_ms=time)
            self.log.write(data, origin=Origin.COORDINATOR)

    @rule()
    def roll(self) -> None:
        self.log.log.roll(self.log.now_ms)

    @rule()
    def compact(self) -> None:
        if self.log.log.config.is_compacted:
            run_steps(compact(self.log.log, now_ms=self.log.now_ms, map_bytes=1 << 20))

    @rule(passed_ms=st.integers(1, 20))
    def wait(self, passed_ms: int) -> None:
        self.log.now_ms += passed_ms
        run_steps(self.log.log.delete_pending_files(self.log.now_ms))

    @rule(share=st.floats(0, 1))
    def delete_before(self, share: float) -> None:
        log = self.log.log
        log.delete_before(
            log.log_start_offset + int(share * (log.high_watermark - log.log_start_offset))
        )

    @rule()
    def measure(self) -> None:
        run_steps(collect_statistics(self.log.log, set()))

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        if clean:
            self.log.reopen()
        else:
            start = self.log.log.log_start_offset
            self.log.log.abandon()
            self.log.open(is_clean=False, log_start_offset=start)
        self.windows = self.made_now()

    @rule(timestamp=st.integers(0, 62), number=st.integers(0, len(WINDOWS) - 1))
    def look_up(self, timestamp: int, number: int) -> None:
        window = self.windows[number]
        records = expected(
            self.log.log, max(window.start_ms, timestamp), window.end_ms, UNCOMMITTED
        )
        found = run_steps(window.find(timestamp, UNCOMMITTED))
        wanted = (records[0].timestamp, records[0].offset) if records else None
        assert (None if found is None else found[:2]) == wanted

    @rule(number=st.integers(0, len(WINDOWS) - 1))
    def look_up_the_newest(self, number: int) -> None:
        window = self.windows[number]
        records = expected(self.log.log, window.start_ms, window.end_ms, UNCOMMITTED)
        found = run_steps(window.find_max(UNCOMMITTED))
        newest = max((record.timestamp for record in records), default=NO_TIME)
        wanted = next(((r.timestamp, r.offset) for r in records if r.timestamp == newest), None)
        assert (None if found is None else found[:2]) == wanted

    @rule(max_bytes=st.integers(1, 2000))
    def follow(self, max_bytes: int) -> None:
        """Readers that come back take one answer each, across all that happens in between."""
        for window in self.windows:
            key = (window.start_ms, window.end_ms)
            offset, records = self.followers[key]
            read = window.read(offset, max_bytes=max_bytes, isolation=UNCOMMITTED, min_one=True)
            result = run_steps(read)
            taken, offset = seen_by_consumer(result, offset)
            self.followers[key] = (offset, records + taken)

    @rule(
        max_bytes=st.integers(1, 2000),
        isolation=st.sampled_from([COMMITTED, UNCOMMITTED]),
        share=st.floats(0, 1),
    )
    def read_everything(self, max_bytes: int, isolation: object, share: float) -> None:
        level = COMMITTED if isolation is COMMITTED else UNCOMMITTED
        first = int(share * self.log.log.high_watermark)
        for window in self.windows:
            records = expected(self.log.log, window.start_ms, window.end_ms, level)
            assert consume(window, max_bytes=max_bytes, isolation=level) == records
            later = [record for record in records if record.offset >= first]
            assert consume(window, first, max_bytes=max_bytes, isolation=level) == later

    @invariant()
    def ends_hold_the_records(self) -> None:
        for window in self.windows:
            records = expected(self.log.log, window.start_ms, window.end_ms, UNCOMMITTED)
            start = run_steps(window.start_offset())
            end = window.end_offset(UNCOMMITTED, start)
            assert self.log.log.log_start_offset <= start <= end <= self.log.log.high_watermark
            assert all(start <= record.offset < end for record in records)

    @invariant()
    def followers_miss_nothing_that_is_there(self) -> None:
        for window in WINDOWS:
            offset, taken = self.followers[window]
            there = [r for r in expected(self.log.log, *window, UNCOMMITTED) if r.offset < offset]
            assert [record for record in there if record not in taken] == []
            offsets = [record.offset for record in taken]
            assert offsets == sorted(set(offsets))


WindowAgainstBruteForce.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestWindowAgainstBruteForce = WindowAgainstBruteForce.TestCase
