"""Lookups through each density variant equal brute force, whatever has happened to the log."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from storage.audit.partition import PartitionAudit
from storage.disk.steps import run_steps
from storage.log.retention import delete_expired
from storage.segment.density import MS_PER_MINUTE
from tests.support.log_model import ModelLog
from tests.support.logs import LogHarness
from tests.support.power_loss import Survival

VARIANTS = ("interval", "minute", "minute-map")
SPAN_MS = 20 * MS_PER_MINUTE
STEPS = 30


class Life:
    """A log with density files and the model of it; what happens to them is drawn from `chosen`."""

    def __init__(self, chosen: Random) -> None:
        self.chosen = chosen
        self.log = LogHarness(
            None,
            index_interval_bytes=chosen.choice((0, 200)),
            segment_bytes=chosen.choice((900, 3_000)),
            segment_index_bytes=chosen.choice((60, 100_000)),
            file_delete_delay_ms=5,
            time_index_interval_ms=30_000,
            time_index_variant=chosen.choice(VARIANTS),
        )
        self.model = ModelLog()
        self.events = {
            self.append: 10,
            self.look_up_every_time: 2,
            self.restart: 2,
            self.crash: 2,
            self.lose_power: 2,
            self.roll: 1,
            self.lose_the_end: 2,
            self.delete_before: 1,
            self.apply_retention: 1,
            self.change_variant: 2,
            self.change_interval: 1,
        }

    def live(self) -> None:
        for event in self.chosen.choices(
            list(self.events), weights=list(self.events.values()), k=STEPS
        ):
            event()
            log = self.log.log
            assert (log.log_start_offset, log.log_end_offset) == (self.model.start, self.model.end)
        self.look_up_every_time()
        self.log.log.close(self.log.now_ms)
        audit = PartitionAudit(self.log.path, self.log.files, stopped_cleanly=True)
        audit.run()
        assert [str(finding) for finding in audit.findings if finding.rule == "D3"] == []

    def timestamp(self) -> int:
        """Anywhere in 20 minutes, often at the edge of a minute, sometimes none."""
        if self.chosen.random() < 0.05:
            return -1
        if self.chosen.random() < 0.5:
            return self.chosen.randrange(SPAN_MS)
        return self.chosen.randrange(1, 20) * MS_PER_MINUTE - self.chosen.randrange(2)

    def append(self) -> None:
        batches = [
            [self.timestamp() for _ in range(self.chosen.choice((1, 1, 1, 3)))] for _ in range(8)
        ]
        for timestamps in sorted(batches) if self.chosen.random() < 0.5 else batches:
            self.log.append(*timestamps)
            self.model.append(timestamps, [b"v"] * len(timestamps))

    def look_up_every_time(self) -> None:
        variant = str(self.log.settings["time_index_variant"])
        index = "timeindex" if variant == "none" else variant
        times = {record.timestamp for record in self.model.visible()}
        asked = {time + late for time in times for late in (-1, 0, 1)} | {0}
        for timestamp in sorted(time for time in asked if time >= 0):
            expected = self.model.find(timestamp)
            explained = self.log.log.explain_offset_for_timestamp(timestamp)
            found = explained.found
            assert (None if found is None else (found.offset, found.timestamp)) == (
                None if expected is None else (expected.offset, expected.timestamp)
            )
            assert {search.index for search in explained.searched} <= {index}

    def restart(self) -> None:
        self.log.reopen()

    def crash(self) -> None:
        knows = self.chosen.random() < 0.5
        self.log.crash(recovery_point=self.log.log.durable_offset if knows else 0)

    def lose_power(self) -> None:
        survival = self.chosen.choice(list(Survival))
        self.log = LogHarness.after_power_cut(self.log, self.chosen.randrange(2**32), survival)
        assert self.log.log.offline_reason is None

    def roll(self) -> None:
        self.log.log.roll(self.log.now_ms)

    def lose_the_end(self) -> None:
        """Batches that were not synced are gone: as if a crash had torn them."""
        log = self.log.log
        active = log.segments.active
        bound = max(log.log_start_offset, log.manifest.durable_offset)
        losable = [head for head in active.walk().heads(0) if head.base_offset >= bound]
        if not losable:
            return
        cut = self.chosen.choice(losable)
        log.close(self.log.now_ms)
        path = active.log.path
        left = self.log.files.read_all(path)[: cut.position + self.chosen.randrange(3)]
        self.log.files.replace_atomically(path, left)
        self.log.open(is_clean=False)
        self.model.records = [r for r in self.model.records if r.offset < cut.base_offset]
        self.model.end = cut.base_offset

    def delete_before(self) -> None:
        offset = self.offset_from(0)
        self.log.log.delete_before(offset)
        self.model.delete_before(offset)

    def offset_from(self, share: float) -> int:
        """An offset of the log that leaves at least this share of it in front."""
        share += (1 - share) * self.chosen.random()
        return self.model.start + int(share * (self.model.end - self.model.start))

    def apply_retention(self) -> None:
        delete_expired(self.log.log, self.log.now_ms)
        run_steps(self.log.log.delete_pending_files(self.log.now_ms))

    def change_variant(self) -> None:
        self.log.configure(time_index_variant=self.chosen.choice(("none", *VARIANTS)))

    def change_interval(self) -> None:
        self.log.configure(time_index_interval_ms=self.chosen.choice((1, 1_000, 30_000, 60_000)))


@given(seed=st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_lookups_through_each_variant_equal_brute_force(seed: int) -> None:
    Life(Random(seed)).live()
