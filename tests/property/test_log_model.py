"""A `Log` on a simulated disk behaves like a list of records, through every kind of event."""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from protocol.records.builder import build_batch, build_message_set
from protocol.records.layout import INT64_MAX, Codec
from protocol.records.record import Record
from storage.disk.steps import run_steps
from storage.log.retention import delete_expired
from storage.log.segment_stats import collect_statistics
from storage.log.values import Isolation
from storage.segment.facts import UNKNOWN_MINIMUM
from tests.support.log_model import ModelLog
from tests.support.logs import LogHarness

TIMESTAMPS = st.one_of(st.just(-1), st.integers(0, 60))


class LogAgainstModel(RuleBasedStateMachine):
    """Random appends, rolls, restarts, crashes, removals; lookups against brute force."""

    def __init__(self) -> None:
        super().__init__()
        self.log = LogHarness(
            index_interval_bytes=100, segment_bytes=700, segment_ms=40, file_delete_delay_ms=5
        )
        self.model = ModelLog()
        self.written = 0

    @rule(
        batches=st.lists(st.lists(TIMESTAMPS, min_size=1, max_size=4), min_size=1, max_size=3),
        codec=st.sampled_from(Codec),
    )
    def append(self, batches: list[list[int]], codec: Codec) -> None:
        for timestamps in batches:
            values = []
            for _ in timestamps:
                values.append(b"%d" % self.written)
                self.written += 1
            records = [
                Record(0, timestamp, None, value)
                for timestamp, value in zip(timestamps, values, strict=True)
            ]
            result = self.log.write(build_batch(records, codec=codec))
            assert result.first_offset == self.model.end
            self.model.append(timestamps, values)

    @rule(
        timestamps=st.lists(TIMESTAMPS, min_size=1, max_size=5),
        magic=st.sampled_from([0, 1]),
        codec=st.sampled_from([Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]),
    )
    def append_old_messages(self, timestamps: list[int], magic: int, codec: Codec) -> None:
        values = [b"%d" % (self.written + index) for index in range(len(timestamps))]
        self.written += len(timestamps)
        records = [
            Record(index, timestamp, None, value)
            for index, (timestamp, value) in enumerate(zip(timestamps, values, strict=True))
        ]
        data = memoryview(bytearray(build_message_set(records, magic, codec)))
        self.log.log.append(data, now_ms=self.log.now_ms, produce_version=2)
        self.log.log.flush()
        stored = [-1] * len(timestamps) if magic == 0 else timestamps
        # Old messages are stored as batches, and how many is not the model's business.
        for start, end in self.batches_from(self.model.end):
            taken = end - start
            self.model.append(stored[:taken], values[:taken])
            stored, values = stored[taken:], values[taken:]

    def batches_from(self, offset: int) -> list[tuple[int, int]]:
        """First and next offsets of the stored batches from `offset` on."""
        found = []
        while offset < self.log.log.high_watermark:
            result = self.log.log.read(offset, max_bytes=1, isolation=Isolation.READ_UNCOMMITTED)
            found.append((offset, result.next_offset))
            offset = result.next_offset
        return found

    @rule()
    def roll(self) -> None:
        self.log.log.roll(self.log.now_ms)

    @rule(clean=st.booleans(), knows=st.booleans())
    def restart(self, clean: bool, knows: bool) -> None:
        self.log.now_ms += 3
        if clean:
            self.log.reopen()
        else:
            self.log.crash(recovery_point=self.log.log.durable_offset if knows else 0)
        assert self.log.log.offline_reason is None
        assert self.log.log.recovery_report.truncated_bytes == 0

    @rule(share=st.floats(0, 1))
    def delete_before(self, share: float) -> None:
        offset = self.model.start + int(share * (self.model.end - self.model.start))
        self.log.log.delete_before(offset)
        self.model.delete_before(offset)

    @rule()
    def apply_retention(self) -> None:
        delete_expired(self.log.log, self.log.now_ms)
        run_steps(self.log.log.delete_pending_files(self.log.now_ms))

    @rule(timestamp=st.integers(0, 62))
    def look_up(self, timestamp: int) -> None:
        expected = self.model.find(timestamp)
        hit = self.log.log.offset_for_timestamp(timestamp)
        if expected is None:
            assert hit is None
        else:
            assert hit is not None
            assert (hit.offset, hit.timestamp) == (expected.offset, expected.timestamp)

    @rule()
    def look_up_the_newest(self) -> None:
        expected = self.model.find_max()
        hit = self.log.log.offset_for_max_timestamp()
        if expected is None:
            assert hit is None
        else:
            assert hit is not None
            assert (hit.offset, hit.timestamp) == (expected.offset, expected.timestamp)

    @rule(max_bytes=st.integers(1, 2000))
    def read_everything(self, max_bytes: int) -> None:
        found = [(r.offset, r.timestamp, r.value) for r in self.log.records()]
        assert found == [(r.offset, r.timestamp, r.value) for r in self.model.visible()]

    @rule()
    def measure(self) -> None:
        run_steps(collect_statistics(self.log.log, set()))
        segments = list(self.log.log.segments)[:-1]
        assert UNKNOWN_MINIMUM not in [segment.min_timestamp for segment in segments]

    @invariant()
    def segments_know_both_ends_of_their_times(self) -> None:
        for segment in self.log.log.segments:
            times = [
                record.timestamp
                for record in self.model.records
                if segment.base_offset <= record.offset < segment.next_offset
            ]
            assert segment.max_timestamp == max(times, default=-1)
            assert segment.min_timestamp in (UNKNOWN_MINIMUM, min(times, default=INT64_MAX))

    @invariant()
    def offsets_agree(self) -> None:
        log = self.log.log
        assert (log.log_start_offset, log.log_end_offset) == (self.model.start, self.model.end)
        assert log.high_watermark == log.last_stable_offset == self.model.end


LogAgainstModel.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestLogAgainstModel = LogAgainstModel.TestCase
