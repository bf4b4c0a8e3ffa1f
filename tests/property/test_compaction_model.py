"""Compaction against brute force: a log of keys, and the same log as a dictionary.

Whatever is appended, compacted, rolled, crashed and restarted, in any order: a reader who starts at
the beginning ends with the same last value of every key; nothing is found that was not written at
that offset; what is found by time is what a scan of the surviving records finds.
"""

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from protocol.records.builder import build_batch
from protocol.records.layout import Codec
from protocol.records.record import Record
from storage.audit.partition import PartitionAudit
from storage.disk.steps import run_steps
from storage.errors import CorruptLog
from storage.log.compaction import compact
from storage.log.flush import FlushTicket
from storage.log.values import Isolation
from tests.crash.seeded_bugs import late_flush_ends_in_a_closed_segment
from tests.support.logs import LogHarness
from tests.support.power_loss import Survival

KEYS = st.integers(0, 5).map(lambda number: b"key-%d" % number)
PAIRS = st.lists(st.tuples(KEYS, st.booleans(), st.integers(0, 60)), min_size=1, max_size=5)
RETENTION_MS = 7


class CompactedLogAgainstDictionary(RuleBasedStateMachine):
    """Random work on a compacted log."""

    def __init__(self) -> None:
        super().__init__()
        self.log = LogHarness(
            cleanup_policy="compact",
            segment_bytes=600,
            index_interval_bytes=100,
            delete_retention_ms=RETENTION_MS,
            file_delete_delay_ms=5,
        )
        self.written: dict[int, Record] = {}
        self.sequence = 0
        self.ticket: FlushTicket | None = None

    @rule(
        pairs=PAIRS,
        codec=st.sampled_from(Codec),
        idempotent=st.booleans(),
        flush=st.booleans(),
    )
    def append(
        self, pairs: list[tuple[bytes, bool, int]], codec: Codec, idempotent: bool, flush: bool
    ) -> None:
        base = self.log.log.log_end_offset
        records = [
            Record(base + index, timestamp, key, None if dead else b"%d" % (base + index))
            for index, (key, dead, timestamp) in enumerate(pairs)
        ]
        data = build_batch(
            records,
            codec=codec,
            producer_id=3 if idempotent else -1,
            producer_epoch=0 if idempotent else -1,
            base_sequence=self.sequence if idempotent else -1,
        )
        if flush:
            self.end_flush()
        assert self.log.write(data, flush=flush).first_offset == base
        self.sequence += len(pairs) if idempotent else 0
        self.written |= {record.offset: record for record in records}

    @rule()
    def begin_flush(self) -> None:
        """What is appended, rolled or compacted until the end is not covered by it."""
        self.end_flush()
        self.ticket = self.log.log.begin_flush()
        if self.ticket is not None:
            self.ticket.run()

    @rule()
    def end_flush(self) -> None:
        if self.ticket is not None:
            self.log.log.complete_flush(self.ticket)
            self.ticket = None

    @rule(pairs=PAIRS, compacts=st.booleans())
    def roll_while_flushing(self, pairs: list[tuple[bytes, bool, int]], compacts: bool) -> None:
        """A flush of the whole log ends when that has become a closed segment."""
        self.begin_flush()
        self.roll()
        self.append(pairs, Codec.NONE, idempotent=False, flush=False)
        self.end_flush()
        if compacts:
            self.compact(1 << 20)

    @rule(map_bytes=st.sampled_from([300, 1 << 20]))
    def compact(self, map_bytes: int) -> None:
        run_steps(compact(self.log.log, now_ms=self.log.now_ms, map_bytes=map_bytes))

    @rule(steps=st.integers(1, 12), seed=st.integers(0, 99), survival=st.sampled_from(Survival))
    def lose_power_while_compacting(self, steps: int, seed: int, survival: Survival) -> None:
        self.end_flush()
        self.log.log.flush()
        work = compact(self.log.log, now_ms=self.log.now_ms, map_bytes=1 << 20)
        for call, _ in zip(work, range(steps), strict=False):
            if call is not None:
                call.run()
        self.log = LogHarness.after_power_cut(self.log, seed, survival)
        assert self.log.log.offline_reason is None
        assert self.log.log.recovery_report.truncated_bytes == 0
        assert self.log.log.log_end_offset == len(self.written)

    @rule()
    def roll(self) -> None:
        self.log.log.roll(self.log.now_ms)

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        self.end_flush()
        if clean:
            self.log.reopen()
        else:
            self.log.crash()

    @rule(passed_ms=st.integers(1, 5))
    def wait(self, passed_ms: int) -> None:
        self.log.now_ms += passed_ms
        run_steps(self.log.log.delete_pending_files(self.log.now_ms))

    @rule(timestamp=st.integers(0, 61))
    def look_up(self, timestamp: int) -> None:
        everything = self.log.records(Isolation.LOG_END)
        expected = next((r for r in everything if r.timestamp >= timestamp), None)
        if expected is not None and expected.offset >= self.log.log.high_watermark:
            expected = None
        hit = self.log.log.offset_for_timestamp(timestamp)
        assert (hit and hit[:2]) == (expected and (expected.timestamp, expected.offset))

    @invariant()
    def the_last_value_of_every_key_is_there(self) -> None:
        found = self.log.records(Isolation.LOG_END)
        high_watermark = self.log.log.high_watermark
        assert self.log.records() == [r for r in found if r.offset < high_watermark]
        assert [record.offset for record in found] == sorted({r.offset for r in found})
        for record in found:
            assert self.written[record.offset] == record
        last = {record.key: record for record in self.written.values()}
        known = {record.key: record for record in found}
        for key, record in last.items():
            # A deleted key may be gone altogether, but never come back.
            assert known.get(key, record) == record
            assert key in known or record.value is None

    @invariant()
    def the_largest_timestamp_is_exact(self) -> None:
        everything = self.log.records(Isolation.LOG_END)
        largest = max((record.timestamp for record in everything), default=-1)
        first = next((r.offset for r in everything if r.timestamp == largest), -1)
        hit = self.log.log.offset_for_max_timestamp()
        is_visible = 0 <= first < self.log.log.high_watermark
        assert (None if hit is None else hit[:2]) == ((largest, first) if is_visible else None)

    def teardown(self) -> None:
        self.end_flush()
        self.log.log.close(self.log.now_ms)
        audit = PartitionAudit(
            self.log.path, self.log.files, stopped_cleanly=True, is_compacted=True
        )
        audit.run()
        assert [str(finding) for finding in audit.findings] == []


TestCompactedLog = CompactedLogAgainstDictionary.TestCase
TestCompactedLog.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


def test_a_late_flush_that_points_into_a_compacted_segment_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    late_flush_ends_in_a_closed_segment(monkeypatch)
    searched = settings(
        TestCompactedLog.settings,
        max_examples=2000,
        derandomize=True,
        phases=[Phase.generate],
        report_multiple_bugs=False,
    )
    with pytest.raises((CorruptLog, AssertionError)):
        run_state_machine_as_test(CompactedLogAgainstDictionary, settings=searched)
