"""Compaction against brute force: a log of keys, and the same log as a dictionary.

Whatever is appended, compacted, rolled, crashed and restarted, in any order: a reader who starts at
the beginning ends with the same last value of every key; nothing is found that was not written at
that offset; what is found by time is what a scan of the surviving records finds.
"""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from protocol.records.builder import build_batch
from protocol.records.layout import Codec
from protocol.records.record import Record
from storage.fsck_partition import PartitionAudit
from storage.power_loss import Survival
from storage.steps import run_steps
from tests.support.logs import LogHarness

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

    @rule(pairs=PAIRS, codec=st.sampled_from(Codec), idempotent=st.booleans())
    def append(self, pairs: list[tuple[bytes, bool, int]], codec: Codec, idempotent: bool) -> None:
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
        assert self.log.write(data).first_offset == base
        self.sequence += len(pairs) if idempotent else 0
        self.written |= {record.offset: record for record in records}

    @rule(map_bytes=st.sampled_from([300, 1 << 20]))
    def compact(self, map_bytes: int) -> None:
        run_steps(self.log.log.compact(now_ms=self.log.now_ms, map_bytes=map_bytes))

    @rule(steps=st.integers(1, 12), seed=st.integers(0, 99), survival=st.sampled_from(Survival))
    def lose_power_while_compacting(self, steps: int, seed: int, survival: Survival) -> None:
        work = self.log.log.compact(now_ms=self.log.now_ms, map_bytes=1 << 20)
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
        if clean:
            self.log.reopen()
        else:
            self.log.crash()

    @rule(passed_ms=st.integers(1, 5))
    def wait(self, passed_ms: int) -> None:
        self.log.now_ms += passed_ms
        self.log.log.delete_pending_files(self.log.now_ms)

    @rule(timestamp=st.integers(0, 61))
    def look_up(self, timestamp: int) -> None:
        expected = next((r for r in self.log.records() if r.timestamp >= timestamp), None)
        hit = self.log.log.offset_for_timestamp(timestamp)
        assert (hit and hit[:2]) == (expected and (expected.timestamp, expected.offset))

    @invariant()
    def the_last_value_of_every_key_is_there(self) -> None:
        found = self.log.records()
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
        largest = max((record.timestamp for record in self.log.records()), default=-1)
        hit = self.log.log.offset_for_max_timestamp()
        assert (-1 if hit is None else hit.timestamp) == largest

    def teardown(self) -> None:
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
