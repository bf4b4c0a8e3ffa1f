"""Lookups through each density variant equal brute force, whatever has happened to the log."""

from random import Random

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from storage.density import MS_PER_MINUTE
from storage.fsck_partition import PartitionAudit
from storage.lookup import LookupExplanation
from storage.power_loss import Survival
from tests.support.log_model import ModelLog
from tests.support.logs import LogHarness

VARIANTS = ("none", "interval", "minute", "minute-map")
SPAN_MS = 20 * MS_PER_MINUTE


def some_timestamp(chosen: Random) -> int:
    """Anywhere in 20 minutes, often at the edge of a minute, sometimes none."""
    if chosen.random() < 0.05:
        return -1
    if chosen.random() < 0.5:
        return chosen.randrange(SPAN_MS)
    return chosen.randrange(1, 20) * MS_PER_MINUTE - chosen.randrange(2)


class DensityAgainstModel(RuleBasedStateMachine):
    """Random appends, rolls, restarts, power cuts, removals and changes of the variant."""

    def __init__(self) -> None:
        super().__init__()
        self.log = LogHarness(
            index_interval_bytes=0,
            segment_bytes=2_000,
            file_delete_delay_ms=5,
            time_index_interval_ms=30_000,
        )
        self.model = ModelLog()

    @initialize(variant=st.sampled_from(VARIANTS[1:]))
    def begin_with(self, variant: str) -> None:
        self.log.configure(time_index_variant=variant)

    @rule(variant=st.sampled_from(VARIANTS))
    def configure(self, variant: str) -> None:
        self.log.configure(time_index_variant=variant)

    @rule(interval_ms=st.sampled_from([1, 1_000, 30_000, MS_PER_MINUTE]))
    def configure_interval(self, interval_ms: int) -> None:
        self.log.configure(time_index_interval_ms=interval_ms)

    @rule(index_bytes=st.sampled_from([36, 60, 10_000]))
    def bound_indexes(self, index_bytes: int) -> None:
        self.log.configure(segment_index_bytes=index_bytes)

    @rule(seed=st.integers(0, 2**32), in_order=st.booleans())
    def append(self, seed: int, in_order: bool) -> None:
        # By a seed, because a log has to be long to be worth an index.
        chosen = Random(seed)
        batches = [
            [some_timestamp(chosen) for _ in range(chosen.choice((1, 1, 1, 3)))] for _ in range(12)
        ]
        for timestamps in sorted(batches) if in_order else batches:
            self.log.append(*timestamps)
            self.model.append(timestamps, [b"v"] * len(timestamps))

    @rule()
    def roll(self) -> None:
        self.log.log.roll(self.log.now_ms)

    @rule(clean=st.booleans(), knows=st.booleans())
    def restart(self, clean: bool, knows: bool) -> None:
        if clean:
            self.log.reopen()
        else:
            self.log.crash(recovery_point=self.log.log.recovery_point if knows else 0)

    @rule(seed=st.integers(0, 2**32), survival=st.sampled_from(Survival))
    def lose_power(self, seed: int, survival: Survival) -> None:
        self.log = LogHarness.after_power_cut(self.log, seed, survival)
        assert self.log.log.offline_reason is None

    @rule(share=st.floats(0, 1))
    def delete_before(self, share: float) -> None:
        offset = self.model.start + int(share * (self.model.end - self.model.start))
        self.log.log.delete_before(offset)
        self.model.delete_before(offset)

    @rule()
    def apply_retention(self) -> None:
        self.log.log.delete_expired(self.log.now_ms)
        self.log.log.delete_pending_files(self.log.now_ms)

    @rule()
    def look_up_every_time(self) -> None:
        times = {record.timestamp for record in self.model.visible()}
        asked = {time + late for time in times for late in (-1, 0, 1)} | {0}
        for timestamp in sorted(time for time in asked if time >= 0):
            expected = self.model.find(timestamp)
            explained = self.log.log.explain_offset_for_timestamp(timestamp)
            found = explained.found
            assert (None if found is None else (found.offset, found.timestamp)) == (
                None if expected is None else (expected.offset, expected.timestamp)
            )
            assert_index(explained, str(self.log.settings["time_index_variant"]))

    @invariant()
    def offsets_agree(self) -> None:
        log = self.log.log
        assert (log.log_start_offset, log.log_end_offset) == (self.model.start, self.model.end)

    def teardown(self) -> None:
        """A clean stop leaves files in which nothing is wrong."""
        self.look_up_every_time()
        self.log.log.close(self.log.now_ms)
        audit = PartitionAudit(self.log.path, self.log.files, stopped_cleanly=True)
        audit.run()
        assert [str(finding) for finding in audit.findings if finding.rule == "D3"] == []


def assert_index(explained: LookupExplanation, variant: str) -> None:
    expected = "timeindex" if variant == "none" else variant
    assert {search.index for search in explained.searched} <= {expected}


DensityAgainstModel.TestCase.settings = settings(
    max_examples=80,
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestDensityAgainstModel = DensityAgainstModel.TestCase
