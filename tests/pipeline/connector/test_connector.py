"""Spark's own connector against the broker, unchanged: batch, stream, times, patterns, sink.

The same cases as `tests.pipeline.test_relation` where both sources promise the same.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from protocol.time_windows import window_name
from tests.pipeline.conftest import (
    START_MS,
    Broker,
    expected,
    finish,
    offsets_json,
    values,
    window_equals_brute_force,
)

FAILURES = (PySparkException, Py4JJavaError)


def test_explicit_earliest_to_latest_offsets(topic: str, read: Any) -> None:
    frame = read(topic, startingOffsets="earliest", endingOffsets="latest")
    assert values(frame) == expected((0, 21))


def test_explicit_offsets(topic: str, read: Any) -> None:
    frame = read(
        topic,
        startingOffsets=offsets_json(topic, p0=-2, p1=4, p2=0),
        endingOffsets=offsets_json(topic, p0=3, p1=-1, p2=1),
    )
    assert values(frame) == expected((0, 3), (14, 20), (20, 21))


def test_a_time_window_is_read_by_its_name(broker: Broker, read: Any) -> None:
    """Whole batches in it, one across each edge, and a long tail that is not in it."""
    name = broker.topic(2)
    broker.produce(name, 0, 10)
    broker.produce(name, 1, 10, first=10)
    broker.produce(name, 0, 5, first=60)
    window = window_name(name, START_MS + 3000, START_MS + 12_000)
    assert values(read(window)) == expected((3, 12))
    assert values(read(window_name(name, START_MS + 15_000))) == expected((60, 65), (15, 20))
    assert values(read(window_name(name, 1000, 2000))) == []


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.01"},
        {"retention_bytes": "700"},
    ],
    ids=["disorder", "compaction", "retention"],
)
def test_a_time_window_equals_brute_force(
    settings: dict[str, str], broker: Broker, read: Any
) -> None:
    window_equals_brute_force(broker, read, **settings)


def test_headers_and_null_without_any(broker: Broker, read: Any) -> None:
    name = broker.topic(1)
    broker.produce(name, 0, 1, headers=((b"a", b"b"), (b"c", None)))
    broker.produce(name, 0, 1, first=1)
    rows = read(name, includeHeaders="true").orderBy("offset").collect()
    assert [tuple(header) for header in rows[0]["headers"]] == [("a", b"b"), ("c", None)]
    assert rows[1]["headers"] is None


def test_timestamps_by_partition(topic: str, read: Any) -> None:
    frame = read(
        topic,
        startingOffsetsByTimestamp=offsets_json(
            topic, p0=START_MS + 2500, p1=START_MS + 12_000, p2=START_MS
        ),
        endingOffsetsByTimestamp=offsets_json(
            topic, p0=START_MS + 5000, p1=START_MS + 14_001, p2=START_MS + 99_000
        ),
    )
    assert values(frame) == expected((3, 5), (12, 15), (20, 21))


def test_global_timestamps(topic: str, read: Any) -> None:
    frame = read(
        topic, startingTimestamp=str(START_MS + 500), endingTimestamp=str(START_MS + 11_500)
    )
    assert values(frame) == expected((1, 10), (10, 12))


def test_no_matched_offset_for_timestamp(topic: str, read: Any) -> None:
    times = offsets_json(topic, p0=2**63 - 1, p1=START_MS, p2=START_MS)
    with pytest.raises(FAILURES):
        read(topic, startingOffsetsByTimestamp=times).count()
    strategy = {"startingOffsetsByTimestampStrategy": "latest"}
    assert read(topic, startingOffsetsByTimestamp=times, **strategy).count() == 11


def test_assign_and_pattern_choose_partitions(topic: str, read: Any) -> None:
    assert values(read(assign=json.dumps({topic: [1]}))) == expected((10, 20))
    assert read(subscribePattern=topic[:-1] + ".").count() == 21


def test_min_partitions(topic: str, read: Any) -> None:
    assert values(read(topic, minPartitions="6")) == expected((0, 21))


def test_read_committed(broker: Broker, read: Any) -> None:
    name = broker.topic(1)
    broker.produce(name, 0, 5, transactional_id=f"{name}-a")
    broker.produce(name, 0, 5, first=5, transactional_id=f"{name}-b", abort=True)
    broker.produce(name, 0, 5, first=10, transactional_id=f"{name}-a")
    committed = read(name, kafka__isolation__level="read_committed")
    assert values(committed) == expected((0, 5), (10, 15))


def test_both_sources_agree_row_for_row(
    spark: SparkSession, broker: Broker, topic: str, read: Any
) -> None:
    ours = spark.read.format("tidelog").options(**broker.options, subscribe=topic)
    frame = ours.option("includeHeaders", "true").load()
    theirs = read(topic, includeHeaders="true")
    assert frame.exceptAll(theirs).count() == theirs.exceptAll(frame).count() == 0


def test_sink(spark: SparkSession, broker: Broker, read: Any) -> None:
    name = broker.topic(2)
    rows = spark.range(30).selectExpr("concat('v', id) as value", "cast(id as string) as key")
    rows.write.format("kafka").options(**broker.options, topic=name).save()
    assert sorted(values(read(name))) == sorted(f"v{number}" for number in range(30))


def test_stream_from_a_time_with_limits_and_resumed(
    spark: SparkSession, broker: Broker, read: Any, tmp_path: Path
) -> None:
    origin, copy = broker.topic(2), broker.topic(1)
    broker.produce(origin, 0, 50)
    broker.produce(origin, 1, 50)

    def run() -> list[int]:
        query = (
            spark.readStream.format("kafka").options(**broker.options, subscribe=origin)
            .option("startingTimestamp", str(START_MS + 10_000))
            .option("maxOffsetsPerTrigger", "30").load()
            .select("key", "value")
            .writeStream.format("kafka").options(**broker.options, topic=copy)
            .option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
        )  # fmt: skip
        finish(query)
        return [p["numInputRows"] for p in query.recentProgress if p["numInputRows"]]

    batches = run()
    assert sum(batches) == 80
    assert len(batches) == 3
    broker.produce(origin, 0, 5, first=50)
    assert sum(run()) == 5
    assert read(copy).count() == 85
