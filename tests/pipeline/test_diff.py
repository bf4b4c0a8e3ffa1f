"""The keys that differ between two times, against a model that looks at each record."""

import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipeline.errors import BadOptions
from pipeline.jobs.archive import ArchiveSettings, archive
from pipeline.jobs.diff import DiffSettings, diff, differences
from pipeline.net.producing import TaskProducer
from pipeline.options.options import parse_sink_options
from tests.pipeline.conftest import START_MS, Broker

HOUR_MS = 3_600_000

Record = tuple[int, bytes | None, int, bytes | None]
"""Partition, key, time in ms, value; in the order of the log."""


def fill(broker: Broker, topic: str, records: list[Record]) -> None:
    with broker.cluster() as cluster:
        options = parse_sink_options({**broker.options, "topic": topic})
        producer = TaskProducer(cluster, options)
        for partition, key, when, value in records:
            producer.add(topic, partition, when, key, value)
        producer.flush()


def some_records(luck: random.Random, count: int) -> list[Record]:
    """Few keys, so that each has several records; a fifth of the values delete their key."""
    return [
        (
            luck.randrange(2),
            None if luck.random() < 0.1 else b"k%d" % luck.randrange(25),
            START_MS + luck.randrange(10 * HOUR_MS),
            None if luck.random() < 0.2 else b"v%d" % luck.randrange(3),
        )
        for _ in range(count)
    ]


def table_as_of(records: list[Record], when_ms: int) -> dict[tuple[int, bytes], bytes]:
    """The value of each key by the last record before `when_ms`."""
    last: dict[tuple[int, bytes], bytes | None] = {}
    for partition, key, time_ms, value in records:
        if key is not None and time_ms < when_ms:
            last[partition, key] = value
    return {place: value for place, value in last.items() if value is not None}


def model(records: list[Record], earlier_ms: int, later_ms: int) -> set[tuple[Any, ...]]:
    before, after = table_as_of(records, earlier_ms), table_as_of(records, later_ms)
    kinds = {(False, True): "added", (True, False): "removed", (True, True): "changed"}
    return {
        (*place, kinds[place in before, place in after], before.get(place), after.get(place))
        for place in before.keys() | after.keys()
        if before.get(place) != after.get(place)
    }


def found(spark: SparkSession, settings: DiffSettings) -> set[tuple[Any, ...]]:
    rows = differences(spark, settings).selectExpr(
        "partition", "key", "difference", "earlier.value AS before", "later.value AS after"
    )
    return {
        (row.partition, bytes(row.key), row.difference,
         None if row.before is None else bytes(row.before),
         None if row.after is None else bytes(row.after))
        for row in rows.collect()
    }  # fmt: skip


@pytest.mark.core
def test_the_keys_that_differ_equal_a_model_in_topic_and_lake(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    """The first half is in the lake alone for the second round of windows."""
    luck = random.Random(18)
    records = some_records(luck, 300)
    topic = broker.topic(2)
    fill(broker, topic, records[:150])
    options = {**broker.options, "subscribe": topic}
    state = str(tmp_path / "state")
    archive(spark, ArchiveSettings(options=options, target=str(tmp_path / "lake"), state_dir=state))
    for partition in range(2):
        broker.delete_before(topic, partition, sum(one[0] == partition for one in records[:150]))
    fill(broker, topic, records[150:])
    windows = [sorted(START_MS + luck.randrange(11 * HOUR_MS) for _ in range(2)) for _ in range(6)]
    for earlier_ms, later_ms in windows:
        settings = DiffSettings(
            options={**options, "archive": state}, earlier_ms=earlier_ms, later_ms=later_ms
        )
        expected = model(records, earlier_ms, later_ms)
        assert found(spark, settings) == expected
    assert {one[2] for one in expected} <= {"added", "removed", "changed"}
    outcome = diff(spark, settings)
    assert sum(outcome.report[kind] for kind in ("added", "removed", "changed")) == len(expected)
    assert len(outcome.rows) == len(expected) > 5


def test_all_keys_that_differ_are_in_the_output(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    topic = broker.topic(1)
    fill(broker, topic, [(0, b"k%d" % number, START_MS + number, b"v") for number in range(90)])
    settings = DiffSettings(
        options={**broker.options, "subscribe": topic}, earlier_ms=START_MS + 10,
        later_ms=START_MS + 80, output=str(tmp_path / "differences"),
    )  # fmt: skip
    outcome = diff(spark, settings)
    assert (outcome.report["added"], len(outcome.rows)) == (70, 50)
    assert spark.read.parquet(str(tmp_path / "differences")).count() == 70


def test_options_that_choose_rows_and_times_in_the_wrong_order_are_refused(broker: Broker) -> None:
    settings = DiffSettings(
        options={**broker.options, "subscribe": "t", "startingOffsets": "latest"},
        earlier_ms=START_MS, later_ms=START_MS,
    )  # fmt: skip
    with pytest.raises(BadOptions) as refused:
        diff(None, settings)
    assert len(refused.value.problems) == 2
    assert "startingOffsets means nothing to a diff" in refused.value.problems[0]
    assert "is not before" in refused.value.problems[1]
