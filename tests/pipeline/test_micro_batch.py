"""Micro-batches, by the cases of Spark's own `KafkaMicroBatchSourceSuite` where they apply."""

import json
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import SparkSession

from pipeline.journal import Journal
from protocol.api.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from protocol.api.delete_topics import DeleteTopicsRequest
from tests.pipeline.conftest import START_MS, Broker, expected, offsets_json

Run = Callable[..., list[tuple[int, int]]]


@pytest.fixture
def run(spark: SparkSession, broker: Broker, tmp_path: Path) -> Run:
    """`run(topic, option=value, ...)`: read what is there, remember; (batch, rows) of the run."""

    def make(topic: str, *, name: str = "q", **options: str) -> list[tuple[int, int]]:
        named = {key.replace("__", "."): value for key, value in options.items()}
        if not {"subscribe", "assign", "subscribePattern"} & set(named):
            named["subscribe"] = topic
        named.setdefault("startingOffsets", "earliest")
        query = (
            spark.readStream.format("tidelog")
            .options(**broker.options, journalDir=str(tmp_path / name / "journal"), **named)
            .load()
            .selectExpr("cast(value as string) as value", "partition", "offset")
            .writeStream.format("parquet")
            .option("path", str(tmp_path / name / "out"))
            .option("checkpointLocation", str(tmp_path / name / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)
        return [
            (p["batchId"], p["numInputRows"]) for p in query.recentProgress if p["numInputRows"]
        ]

    return make


def seen(spark: SparkSession, path: Path) -> list[str]:
    rows = spark.read.parquet(str(path / "out")).orderBy("partition", "offset").collect()
    return [row["value"] for row in rows]


@pytest.mark.parametrize("how", ["subscribe", "subscribePattern", "assign"])
@pytest.mark.parametrize(
    ("start", "rows"),
    [
        ({"startingOffsets": "earliest"}, 20),
        ({"startingOffsets": "latest"}, 0),
        ({"startingOffsets": "EXPLICIT"}, 12),
        ({"startingOffsetsByTimestamp": "TIMES"}, 8),
        ({"startingTimestamp": str(START_MS + 4500)}, 15),
    ],
    ids=["earliest", "latest", "specific-offsets", "specific-timestamps", "global-timestamp"],
)
def test_start_of_a_stream(
    broker: Broker, run: Run, how: str, start: dict[str, str], rows: int
) -> None:
    topic = broker.topic(2)
    broker.produce(topic, 0, 10)
    broker.produce(topic, 1, 10, start_ms=START_MS + 5000, first=10)
    # Specific offsets 3 and 5; specific times +6 s and +21 s.
    replaced = {
        "EXPLICIT": offsets_json(topic, p0=3, p1=5),
        "TIMES": offsets_json(topic, p0=START_MS + 6000, p1=START_MS + 21_000),
    }
    options = {name: replaced.get(value, value) for name, value in start.items()}
    options[how] = json.dumps({topic: [0, 1]}) if how == "assign" else topic
    assert sum(count for _, count in run(topic, **options)) == rows
    broker.produce(topic, 0, 2, first=100)
    assert sum(count for _, count in run(topic, **options)) == 2


def test_non_matching_starting_timestamp_fails_or_waits(broker: Broker, run: Run) -> None:
    topic = broker.topic(1)
    broker.produce(topic, 0, 5)
    late = {"startingTimestamp": "2030-01-01T00:00Z"}
    with pytest.raises(StreamingQueryException, match="no offset matched in 1 of 1"):
        run(topic, name="fails", **late)
    assert run(topic, startingOffsetsByTimestampStrategy="latest", **late) == []
    broker.produce(topic, 0, 3)
    batches = run(topic, startingOffsetsByTimestampStrategy="latest", **late)
    assert [count for _, count in batches] == [3]


def test_max_offsets_per_trigger_is_shared_out(broker: Broker, run: Run) -> None:
    topic = broker.topic(3)
    for partition, count in ((0, 100), (1, 20), (2, 1)):
        broker.produce(topic, partition, count)
    batches = run(topic, maxOffsetsPerTrigger="50")
    assert sum(count for _, count in batches) == 121
    assert all(count <= 53 for _, count in batches)
    assert len(batches) == 3


def test_spark_26718_a_limit_of_long_max(broker: Broker, run: Run) -> None:
    topic = broker.topic(1)
    broker.produce(topic, 0, 10)
    assert run(topic, maxOffsetsPerTrigger=str(2**63 - 1)) == [(0, 10)]


def test_max_bytes_per_trigger(broker: Broker, run: Run) -> None:
    topic = broker.topic(1)
    broker.produce(topic, 0, 2000)
    batches = run(topic, maxBytesPerTrigger="10k")
    assert sum(count for _, count in batches) == 2000
    assert len(batches) > 2


def test_spark_41375_empty_partitions_are_in_the_offset(broker: Broker, run: Run) -> None:
    topic = broker.topic(3)
    broker.produce(topic, 1, 4)
    assert run(topic) == [(0, 4)]
    broker.produce(topic, 2, 4)
    assert run(topic) == [(1, 4)]


def test_partitions_added_while_stopped_are_read_from_their_beginning(
    spark: SparkSession, broker: Broker, run: Run, tmp_path: Path
) -> None:
    topic = broker.topic(1)
    broker.produce(topic, 0, 4)
    assert run(topic) == [(0, 4)]
    with broker.cluster() as cluster:
        cluster.any_connection().call(
            CreatePartitionsRequest(
                topics=[CreatePartitionsTopic(name=topic, count=2, assignments=None)],
                timeout_ms=10_000,
            ),
            1,
        )
    broker.produce(topic, 1, 3, first=50)
    assert run(topic) == [(1, 3)]
    assert seen(spark, tmp_path / "q") == expected((0, 4), (50, 53))


def test_topic_made_anew_between_batches(
    spark: SparkSession, broker: Broker, run: Run, tmp_path: Path
) -> None:
    """Also with more records than before: the topic's id tells, where an offset could not."""
    topic = broker.topic(1)
    broker.produce(topic, 0, 4)
    run(topic)
    with broker.cluster() as cluster:
        cluster.any_connection().call(
            DeleteTopicsRequest(topic_names=[topic], timeout_ms=10_000), 3
        )
    deadline = time.monotonic() + 20
    while True:
        try:
            broker.topic(1, name=topic)
            break
        except AssertionError:
            assert time.monotonic() < deadline
            time.sleep(0.2)
    broker.produce(topic, 0, 6, first=100)
    with pytest.raises(StreamingQueryException, match="deleted and made anew"):
        run(topic)
    run(topic, failOnDataLoss="false")
    assert sorted(seen(spark, tmp_path / "q")) == sorted(expected((0, 4), (100, 106)))


def test_the_initial_offset_survives_a_crash_before_the_first_batch(
    broker: Broker, run: Run, tmp_path: Path
) -> None:
    """The trap: Spark stores no initial offset, so "latest" would be a later one after a crash."""
    topic = broker.topic(1)
    broker.produce(topic, 0, 5)
    assert run(topic, startingOffsets="latest") == []
    kept = Journal(tmp_path / "q" / "journal").get("initial-offset")
    assert kept["offset"]["offsets"] == {topic: {"0": 5}}
    broker.produce(topic, 0, 5, first=5)
    # What a crash between the plan and the first commit leaves: no checkpoint, but the journal.
    for folder in ("checkpoint", "out"):
        (tmp_path / "q" / folder).rename(tmp_path / uuid.uuid4().hex)
    assert sum(count for _, count in run(topic, startingOffsets="latest")) == 5


def test_a_start_that_moves_needs_a_journal(spark: SparkSession, broker: Broker) -> None:
    frame = spark.readStream.format("tidelog").options(**broker.options, subscribe="t").load()
    writer = frame.writeStream.format("noop").trigger(availableNow=True)
    with pytest.raises((AnalysisException, StreamingQueryException), match="journalDir is missing"):
        writer.start().awaitTermination(60)


def test_a_journal_belongs_to_one_query(broker: Broker, run: Run, tmp_path: Path) -> None:
    topic, other = broker.topic(1), broker.topic(1)
    run(topic)
    (tmp_path / "q" / "checkpoint").rename(tmp_path / uuid.uuid4().hex)
    with pytest.raises(StreamingQueryException, match="belongs to a query with other topics"):
        run(other)


def test_retention_between_batches_is_data_loss(broker: Broker, run: Run) -> None:
    from tests.pipeline.test_relation import delete_before

    topic = broker.topic(1)
    broker.produce(topic, 0, 5)
    run(topic)
    broker.produce(topic, 0, 10, first=5)
    with broker.cluster() as cluster:
        delete_before(cluster, topic, 0, 9)
    with pytest.raises(StreamingQueryException, match="failOnDataLoss=false"):
        run(topic)
    assert sum(count for _, count in run(topic, failOnDataLoss="false")) == 6


def test_source_with_watermark(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    topic = broker.topic(1)
    broker.produce(topic, 0, 120)
    frame = (
        spark.readStream.format("tidelog")
        .options(**broker.options, subscribe=topic, startingOffsets="earliest")
        .option("journalDir", str(tmp_path / "journal"))
        .load()
        .withWatermark("timestamp", "10 seconds")
        .groupBy("topic")
        .count()
    )
    query = (
        frame.writeStream.format("memory").queryName("counted").outputMode("complete")
        .option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination(120)
    row: Any = spark.table("counted").first()
    assert row["count"] == 120
