"""Lateness by rounds: the proposals equal those of a record by record model."""

import random
from bisect import bisect_left
from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import BadOptions, DataLoss, Fenced
from pipeline.jobs import lateness as job
from pipeline.jobs.lateness import LatenessSettings, duration, lateness
from pipeline.jobs.outcome import JobCode, Outcome
from pipeline.plan.journal import Journal
from protocol.records.lateness import LATENESS_MS
from tests.pipeline.conftest import START_MS, Broker


class World:
    """A topic that grows by rounds, and the model of its counts."""

    def __init__(self, spark: Any, broker: Broker, folder: Path, **settings: str) -> None:
        self.spark, self.broker = spark, broker
        self.topic = broker.topic(2, **settings)
        self.state_dir = str(folder / "state")
        self.youngest: dict[int, int] = {}
        self.reached_ms = -1
        self.largest_ms = 0
        self.behind: list[int] = []

    def produce(self, partition: int, times: list[int]) -> None:
        """One batch of records with these times, and the model's part."""
        for number, when in enumerate(times):
            self.broker.produce(
                self.topic, partition, 1, start_ms=when - number * 1000, first=number
            )
            before = self.youngest.get(partition, when)
            self.largest_ms = max(self.largest_ms, before - when)
            self.youngest[partition] = max(before, when)
            self.behind.append(max(self.reached_ms - when, 0) if self.reached_ms >= 0 else 0)

    def run(self, **options: str) -> Outcome:
        """One round."""
        named = {**self.broker.options, "subscribe": self.topic, **options}
        settings = LatenessSettings(options=named, state_dir=self.state_dir, share=0.9)
        outcome = lateness(self.spark, settings)
        self.reached_ms = max(self.youngest.values(), default=-1)
        return outcome


@pytest.fixture
def world(no_spark: Any, broker: Broker, tmp_path: Path) -> World:
    return World(no_spark, broker, tmp_path)


def test_rounds_equal_a_model_that_looks_at_each_record(world: World) -> None:
    luck = random.Random(3)
    for round_ in range(4):
        for _ in range(5):
            start = START_MS + round_ * 600_000
            times = [start + luck.randrange(-400_000, 400_000) for _ in range(4)]
            world.produce(luck.randrange(2), times)
        outcome = world.run()
    histogram = [0] * (len(LATENESS_MS) + 1)
    for behind in world.behind:
        histogram[bisect_left(LATENESS_MS, behind)] += 1
    assert outcome.report["records"] == len(world.behind) == 80
    assert outcome.report["max_lateness_ms"] == world.largest_ms > 0
    assert outcome.report["histogram"] == histogram
    assert outcome.report["round"] == 3
    kept = sorted(world.behind)[71]
    assert outcome.report["watermark_ms"] == LATENESS_MS[bisect_left(LATENESS_MS, kept)] > 0
    assert f"withWatermark('timestamp', '{outcome.report['watermark']}')" in outcome.sentence
    assert world.run().code == JobCode.NOTHING_TO_DO


def test_a_round_that_died_is_repeated_and_of_two_at_once_one_ends(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.produce(0, [START_MS, START_MS - 5000])
    inner = vars(job)["run_tasks"]

    def die(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(job, "run_tasks", die)
    with pytest.raises(KeyboardInterrupt):
        world.run()

    def overtaken(*arguments: Any) -> Any:
        found = inner(*arguments)
        Journal(world.state_dir).put("rounds/00000000", {"other": "run"})
        return found

    monkeypatch.setattr(job, "run_tasks", overtaken)
    with pytest.raises(Fenced, match="has written round 0"):
        world.run()
    Journal(world.state_dir).remove("rounds/00000000")
    monkeypatch.setattr(job, "run_tasks", inner)
    outcome = world.run()
    assert (outcome.report["records"], outcome.report["max_lateness_ms"]) == (2, 5000)


def test_retention_between_rounds_is_data_loss_or_left_out(world: World) -> None:
    world.produce(0, [START_MS])
    world.run()
    world.produce(0, [START_MS + 1000, START_MS + 2000])
    world.broker.delete_before(world.topic, 0, 2)
    with pytest.raises(DataLoss, match=f"{world.topic}-0: the last round ended at offset 1"):
        world.run()
    assert world.run(failOnDataLoss="false").report["records"] == 2


def test_a_new_partition_is_watched_from_its_beginning(world: World) -> None:
    world.produce(0, [START_MS])
    world.run(startingOffsets="latest")
    world.broker.add_partitions(world.topic, 3)
    world.produce(2, [START_MS + 9000, START_MS])
    outcome = world.run(startingOffsets="latest")
    assert (outcome.report["records"], outcome.report["max_lateness_ms"]) == (2, 9000)


def test_future_times_are_counted_and_records_without_a_time_are_not(
    no_spark: Any, broker: Broker, tmp_path: Path
) -> None:
    wide = {"message_timestamp_after_max_ms": str(2**63 - 1)}
    world = World(no_spark, broker, tmp_path, **wide)
    world.produce(0, [START_MS, START_MS + 10**12])
    world.broker.produce(world.topic, 1, 1, start_ms=-1)
    outcome = world.run()
    assert (outcome.report["records"], outcome.report["future"]) == (2, 1)


def test_bad_settings_are_refused(world: World) -> None:
    with pytest.raises(BadOptions, match="option endingTimestamp means nothing here"):
        world.run(endingTimestamp="2024-01-01")
    settings = LatenessSettings(options={}, state_dir=world.state_dir, share=1.5)
    with pytest.raises(BadOptions, match=r"share 1\.5: give a number above 0"):
        lateness(world.spark, settings)


def test_durations_are_those_of_spark() -> None:
    texts = [duration(one) for one in (0, 1, 1000, 60_000, 90_000, 7_200_000, 86_400_000)]
    assert texts == [
        "0 seconds", "1 milliseconds", "1 second", "1 minute", "90 seconds", "2 hours", "1 day",
    ]  # fmt: skip
