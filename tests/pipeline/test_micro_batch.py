"""Micro-batches, by the cases of Spark's own `KafkaMicroBatchSourceSuite` where they apply."""

import json
import random
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable

from pipeline.errors import DataLoss
from pipeline.options.options import parse_source_options
from pipeline.plan.journal import Journal
from pipeline.plan.splits import OffsetRange
from pipeline.spark.micro_batches import MicroBatchReader
from pipeline.spark.stream import parse_offset
from pipeline.spark.task import Columns
from tests.pipeline.conftest import START_MS, Broker, expected, finish, offsets_json

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
        finish(query)
        return [
            (p["batchId"], p["numInputRows"]) for p in query.recentProgress if p["numInputRows"]
        ]

    return make


def seen(spark: SparkSession, path: Path) -> list[str]:
    rows = spark.read.parquet(str(path / "out")).orderBy("partition", "offset").collect()
    return [row["value"] for row in rows]


@pytest.mark.parametrize("loss", ["true", "false"], ids=["failOnDataLoss", "noFailOnDataLoss"])
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
    broker: Broker, run: Run, how: str, start: dict[str, str], rows: int, loss: str
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
    options["failOnDataLoss"] = loss
    options[how] = json.dumps({topic: [0, 1]}) if how == "assign" else topic
    assert sum(count for _, count in run(topic, **options)) == rows
    broker.produce(topic, 0, 2, first=100)
    assert sum(count for _, count in run(topic, **options)) == 2


@pytest.mark.parametrize("option", ["startingTimestamp", "startingOffsetsByTimestamp"])
@pytest.mark.parametrize("strategy", ["error", "latest"])
def test_non_matching_starting_offset(broker: Broker, run: Run, option: str, strategy: str) -> None:
    topic = broker.topic(1)
    broker.produce(topic, 0, 5)
    is_global = option == "startingTimestamp"
    late_ms = START_MS + 10**9
    options = {
        option: str(late_ms) if is_global else offsets_json(topic, p0=late_ms),
        "startingOffsetsByTimestampStrategy": strategy,
    }
    if strategy == "error":
        with pytest.raises(StreamingQueryException, match="no offset matched in 1 of 1"):
            run(topic, **options)
        return
    assert run(topic, **options) == []
    broker.produce(topic, 0, 3)
    assert [count for _, count in run(topic, **options)] == [3]


@pytest.mark.core
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
    broker.add_partitions(topic, 2)
    broker.produce(topic, 1, 3, first=50)
    assert run(topic) == [(1, 3)]
    assert seen(spark, tmp_path / "q") == expected((0, 4), (50, 53))


@pytest.mark.core
def test_a_topic_made_again_between_batches(
    spark: SparkSession, broker: Broker, run: Run, tmp_path: Path
) -> None:
    """Also with more records than before: the topic's id tells, where an offset could not."""
    topic = broker.topic(1)
    broker.produce(topic, 0, 4)
    run(topic)
    broker.delete_topic(topic)
    broker.topic(1, name=topic)
    broker.produce(topic, 0, 6, first=100)
    with pytest.raises(StreamingQueryException, match="deleted and created again"):
        run(topic)
    run(topic, failOnDataLoss="false")
    assert sorted(seen(spark, tmp_path / "q")) == sorted(expected((0, 4), (100, 106)))


def test_a_batch_that_is_repeated_after_its_topic_was_made_again(
    broker: Broker, tmp_path: Path
) -> None:
    """Its records are gone; those of the new topic at these offsets are of a later batch.

    Likewise for a reader that has seen the topic as it was: what it knows is not the cluster.
    """
    topic = broker.topic(1)
    broker.produce(topic, 0, 10)

    def reader(**more: str) -> MicroBatchReader:
        given = {**broker.options, "subscribe": topic, "startingOffsets": "earliest"}
        given |= {"journalDir": str(tmp_path / "journal"), **more}
        options = parse_source_options(given, is_stream=True)
        return MicroBatchReader(options, Columns(("offset", "value")))

    first = reader()
    start = first.initialOffset()
    end = first.latestOffset(start, ReadAllAvailable())
    assert len(first.partitions(start, end)) == 1
    broker.delete_topic(topic)
    broker.topic(1, name=topic)
    broker.produce(topic, 0, 25, first=1000)
    strict, forgiving = reader(), reader(failOnDataLoss="false")
    for one in (first, strict):
        with pytest.raises(DataLoss, match="deleted and created again"):
            one.partitions(start, end)
        one.stop()
    assert not forgiving.partitions(start, end)
    forgiving.stop()


def test_a_cluster_that_was_asked_nothing_yet_says_its_id(broker: Broker) -> None:
    """A batch that is repeated without ids of topics compares it with the archive's first."""
    with broker.cluster() as fresh, broker.cluster() as asked:
        asked.topics(None)
        assert fresh.cluster_id == asked.cluster_id
        assert len(fresh.cluster_id) == 22


@pytest.mark.core
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
        finish(writer.start())


def test_a_journal_belongs_to_one_query(broker: Broker, run: Run, tmp_path: Path) -> None:
    topic, other = broker.topic(1), broker.topic(1)
    run(topic)
    (tmp_path / "q" / "checkpoint").rename(tmp_path / uuid.uuid4().hex)
    with pytest.raises(StreamingQueryException, match="belongs to a query with other topics"):
        run(other)


def test_retention_between_batches_is_data_loss(broker: Broker, run: Run) -> None:
    topic = broker.topic(1)
    broker.produce(topic, 0, 5)
    run(topic)
    broker.produce(topic, 0, 10, first=5)
    broker.delete_before(topic, 0, 9)
    with pytest.raises(StreamingQueryException, match="failOnDataLoss=false"):
        run(topic)
    assert sum(count for _, count in run(topic, failOnDataLoss="false")) == 6


def reader(broker: Broker, topic: str, tmp_path: Path, **options: str) -> MicroBatchReader:
    """The planner's half of a stream, without Spark around it."""
    named = {**broker.options, "subscribe": topic, "startingOffsets": "earliest", **options}
    named["journalDir"] = str(tmp_path / "journal")
    return MicroBatchReader(parse_source_options(named, is_stream=True), Columns(("offset",)))


@pytest.mark.core
def test_min_offsets_per_trigger_waits_for_so_many_or_for_its_delay(
    broker: Broker, tmp_path: Path
) -> None:
    topic = broker.topic(1)
    options = {"minOffsetsPerTrigger": "10", "maxTriggerDelay": "700ms"}
    planner = reader(broker, topic, tmp_path, **options)
    start = planner.initialOffset()
    broker.produce(topic, 0, 9)
    assert planner.latestOffset(start, ReadAllAvailable()) == start
    time.sleep(0.8)
    late = planner.latestOffset(start, ReadAllAvailable())
    assert parse_offset(late) == {(topic, 0): 9}
    broker.produce(topic, 0, 10, first=9)
    assert parse_offset(planner.latestOffset(late, ReadAllAvailable())) == {(topic, 0): 19}
    planner.stop()


def test_composite_read_limit_at_least_so_many_and_at_most_so_many(
    broker: Broker, tmp_path: Path
) -> None:
    topic = broker.topic(1)
    options = {"minOffsetsPerTrigger": "10", "maxOffsetsPerTrigger": "12"}
    planner = reader(broker, topic, tmp_path, **options)
    start, limit = planner.initialOffset(), planner.getDefaultReadLimit()
    broker.produce(topic, 0, 9)
    assert planner.latestOffset(start, limit) == start
    broker.produce(topic, 0, 9, first=9)
    first = planner.latestOffset(start, limit)
    assert parse_offset(first) == {(topic, 0): 12}
    assert planner.latestOffset(first, limit) == first
    planner.stop()


@pytest.mark.core
def test_an_end_that_went_back_is_data_loss(broker: Broker, tmp_path: Path) -> None:
    topic = broker.topic(1)
    broker.produce(topic, 0, 1)
    planner = reader(broker, topic, tmp_path)
    known = {**planner.initialOffset(), "offsets": {topic: {"0": 2}}}
    with pytest.raises(DataLoss, match=f"{topic}-0 was changed from 2 to 1"):
        planner.latestOffset(known, ReadAllAvailable())
    planner.stop()


def test_a_topic_that_is_gone_stops_no_other_and_is_known_when_it_is_back(
    broker: Broker, tmp_path: Path
) -> None:
    kept, gone = broker.topic(1), broker.topic(1)
    both = {"subscribe": f"{kept},{gone}", "failOnDataLoss": "false"}
    planner = reader(broker, kept, tmp_path, **both)
    for topic in (kept, gone):
        broker.produce(topic, 0, 10)
    first = planner.latestOffset(planner.initialOffset(), ReadAllAvailable())
    broker.delete_topic(gone)
    broker.produce(kept, 0, 5, first=10)
    without = planner.latestOffset(first, ReadAllAvailable())
    assert parse_offset(without) == {(kept, 0): 15, (gone, 0): 10}
    assert without["topicIds"] == first["topicIds"]
    broker.topic(1, name=gone)
    broker.produce(gone, 0, 12)
    again = planner.latestOffset(without, ReadAllAvailable())
    tasks: Any = planner.partitions(without, again)
    # Of the new topic all records, of the other nothing twice.
    assert [one for task in tasks for one in task.ranges] == [OffsetRange(gone, 0, 0, 12)]
    planner.stop()


@pytest.mark.core
def test_available_now_takes_what_was_there_at_its_start(
    spark: SparkSession, broker: Broker, run: Run, tmp_path: Path
) -> None:
    topic = broker.topic(2)
    for partition in range(2):
        broker.produce(topic, partition, 15, first=15 * partition)
    planner = reader(broker, topic, tmp_path)
    start = planner.initialOffset()
    planner.prepareForTriggerAvailableNow()
    broker.produce(topic, 0, 5, first=30)
    assert parse_offset(planner.latestOffset(start, ReadAllAvailable())) == {
        (topic, 0): 15, (topic, 1): 15,
    }  # fmt: skip
    planner.stop()
    batches = run(topic, maxOffsetsPerTrigger="10")
    assert sum(count for _, count in batches) == 35
    assert len(batches) >= 3
    broker.produce(topic, 1, 4, first=35)
    assert sum(count for _, count in run(topic, maxOffsetsPerTrigger="10")) == 4
    assert sorted(seen(spark, tmp_path / "q")) == sorted(expected((0, 39)))


@pytest.mark.parametrize("then", ["lost", "lowered"])
def test_available_now_with_partitions_that_got_lost_or_lowered(
    spark: SparkSession, broker: Broker, tmp_path: Path, then: str
) -> None:
    """Between two batches of one run the topic is deleted, or created again with fewer records."""
    topic = broker.topic(1)
    broker.produce(topic, 0, 20)

    def spoil(_: Any, batch: int) -> None:
        if batch == 0:
            broker.delete_topic(topic)
            if then == "lowered":
                broker.topic(1, name=topic)
                broker.produce(topic, 0, 3)

    query = (
        spark.readStream.format("tidelog")
        .options(**broker.options, subscribe=topic, startingOffsets="earliest")
        .options(journalDir=str(tmp_path / "journal"), maxOffsetsPerTrigger="10").load()
        .writeStream.foreachBatch(spoil).option("checkpointLocation", str(tmp_path / "c"))
        .trigger(availableNow=True).start()
    )  # fmt: skip
    message = "does not exist" if then == "lost" else "deleted and created again"
    with pytest.raises(StreamingQueryException, match=message):
        finish(query)


@pytest.mark.core
def test_spark_53560_a_batch_that_was_not_committed_is_repeated_by_available_now(
    spark: SparkSession, broker: Broker, run: Run, tmp_path: Path
) -> None:
    topic = broker.topic(1)
    broker.produce(topic, 0, 10)
    assert run(topic) == [(0, 10)]
    commits = tmp_path / "q" / "checkpoint" / "commits"
    for name in ("0", ".0.crc"):
        (commits / name).unlink()
    broker.produce(topic, 0, 5, first=10)
    assert run(topic)[-1:] == [(1, 5)]
    assert seen(spark, tmp_path / "q") == expected((0, 15))


def test_spark_22956_two_sources_of_which_one_has_nothing_new(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    first, second = broker.topic(1), broker.topic(1)

    def source(topic: str) -> Any:
        options = {**broker.options, "subscribe": topic, "startingOffsets": "earliest"}
        options |= {"maxOffsetsPerTrigger": "5", "journalDir": str(tmp_path / topic)}
        return spark.readStream.format("tidelog").options(**options).load()

    def run() -> int:
        query = (
            source(first).union(source(second)).writeStream.format("noop")
            .option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
        )  # fmt: skip
        finish(query)
        return sum(progress["numInputRows"] for progress in query.recentProgress)

    broker.produce(first, 0, 10)
    assert run() == 10
    broker.produce(second, 0, 12)
    assert run() == 12
    broker.produce(first, 0, 3)
    assert run() == 3


def test_spark_25495_committed_records_after_an_aborted_transaction(
    spark: SparkSession, broker: Broker, run: Run, tmp_path: Path
) -> None:
    topic = broker.topic(1)
    committed = {"kafka__isolation__level": "read_committed"}
    broker.produce(topic, 0, 5, transactional_id=f"{topic}-a", abort=True)
    assert sum(count for _, count in run(topic, **committed)) == 0
    broker.produce(topic, 0, 5, first=5, transactional_id=f"{topic}-a")
    broker.produce(topic, 0, 5, first=10, transactional_id=f"{topic}-a", abort=True)
    broker.produce(topic, 0, 5, first=15, transactional_id=f"{topic}-a")
    run(topic, **committed)
    assert seen(spark, tmp_path / "q") == expected((5, 10), (15, 20))


def test_a_stream_without_fail_on_data_loss_returns_nothing_twice(
    spark: SparkSession, broker: Broker, run: Run, tmp_path: Path
) -> None:
    topic = broker.topic(1)
    total = 0
    for round_ in range(3):
        broker.produce(topic, 0, 20, first=total)
        total += 20
        if round_:
            broker.delete_before(topic, 0, total - 10)
        run(topic, failOnDataLoss="false", maxOffsetsPerTrigger="7")
    assert seen(spark, tmp_path / "q") == expected((0, 20), (30, 40), (50, 60))


def test_stress_random_rows_partitions_limits_and_restarts(
    spark: SparkSession, broker: Broker, run: Run, tmp_path: Path
) -> None:
    choose = random.Random(7)
    topic = broker.topic(2)
    partitions, total = 2, 0
    for _ in range(8):
        for _ in range(choose.randrange(4)):
            count = choose.randrange(1, 40)
            broker.produce(topic, choose.randrange(partitions), count, first=total)
            total += count
        if choose.random() < 0.4:
            partitions += 1
            broker.add_partitions(topic, partitions)
        run(topic, maxOffsetsPerTrigger=str(choose.randrange(5, 60)))
    assert sorted(seen(spark, tmp_path / "q")) == sorted(expected((0, total)))


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
    finish(query)
    row: Any = spark.table("counted").first()
    assert row["count"] == 120
