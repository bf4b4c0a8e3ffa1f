"""What all releases of Spark since 4.0 can do here; `make spark-versions` runs it on older ones."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from client.errors import BrokerRefused
from pipeline.errors import BadOptions, DataLoss
from pipeline.jobs.archive import ArchiveSettings, archive
from pipeline.jobs.diff import DiffSettings, diff
from pipeline.options.options import parse_source_options
from pipeline.spark.session import by_partition
from pipeline.spark.stream import parse_offset
from pipeline.spark.task import Columns
from pipeline.spark.unlimited import UnlimitedReader
from tests.pipeline.conftest import START_MS, Broker, finish, values


def write(frame: DataFrame, broker: Broker, **options: str) -> None:
    frame.write.format("tidelog").mode("append").options(**broker.options, **options).save()


def test_rows_are_read_and_written_once(broker: Broker, read: Any, topic: str) -> None:
    copy, once = broker.topic(3), broker.topic(3)
    window = {"startingTimestamp": str(START_MS + 5000), "endingTimestamp": str(START_MS + 9000)}
    assert read(topic, timeWindow="strict", **window).count() == 4
    write(read(topic, includeHeaders="true").drop("topic"), broker, topic=copy)
    assert values(read(copy)) == values(read(topic))
    for _ in range(2):
        rows = read(topic).select("key", "value", "timestamp")
        spread = by_partition(rows, broker.bootstrap, once)
        write(spread, broker, topic=once, delivery="exactly-once", transactionalIdPrefix=once)
    assert read(once, kafka__isolation__level="read_committed").count() == 21


def test_a_stream_resumes_where_it_ended(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    topic, found = broker.topic(2), []
    for count in (10, 5, 0):
        broker.produce(topic, 1, count)
        frame = (
            spark.readStream.format("tidelog").options(**broker.options, subscribe=topic)
            .option("startingOffsets", "earliest").option("journalDir", str(tmp_path / "journal"))
        )  # fmt: skip
        writer = frame.load().writeStream.foreachBatch(lambda rows, _: found.append(rows.count()))
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        finish(writer.trigger(availableNow=True).start())
    assert found == [10, 5]


def test_a_stream_is_written(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    copy = broker.topic(3)
    frame = spark.readStream.format("tidelog").options(**broker.options, subscribe=topic)
    frame = frame.option("startingOffsets", "earliest").option("journalDir", str(tmp_path / "j"))
    sink = frame.load().drop("topic").writeStream.format("tidelog").options(**broker.options)
    sink = sink.option("topic", copy).option("checkpointLocation", str(tmp_path / "c"))
    finish(sink.trigger(availableNow=True).start())
    assert sum(broker.ends(copy)) == 21


def test_jobs_and_the_table_over_topic_and_lake(
    spark: SparkSession, broker: Broker, read: Any, topic: str, tmp_path: Path
) -> None:
    options, state = {**broker.options, "subscribe": topic}, str(tmp_path / "state")
    settings = ArchiveSettings(options=options, target=str(tmp_path / "lake"), state_dir=state)
    assert archive(spark, settings).report["rows"] == 21
    assert values(read(topic, archive=state)) == values(read(topic))
    between = DiffSettings(options=options, earlier_ms=START_MS + 3000, later_ms=START_MS + 9000)
    assert diff(spark, between).report["added"] == 4


Make = Callable[..., UnlimitedReader]


@pytest.fixture
def unlimited(broker: Broker, tmp_path: Path) -> Iterator[Make]:
    """`unlimited(topic, journal, option=value, ...)`: a reader, whose connections are closed."""
    made: list[UnlimitedReader] = []

    def make(topic: str, journal: str = "journal", **options: str) -> UnlimitedReader:
        named = {**broker.options, "subscribe": topic, "journalDir": str(tmp_path / journal),
                 "startingOffsets": "earliest", **options}  # fmt: skip
        made.append(
            UnlimitedReader(parse_source_options(named, is_stream=True), Columns(("offset",)))
        )
        return made[-1]

    yield make
    for reader in made:
        reader.stop()


@pytest.mark.core
def test_a_reader_without_limits_takes_all_and_sees_what_was_lost(
    broker: Broker, unlimited: Make
) -> None:
    """As Spark 4.0 and 4.1 call it: the end of a batch is asked for without its start."""
    topic = broker.topic(2)
    broker.produce(topic, 0, 4)
    reader = unlimited(topic)
    start = reader.initialOffset()
    first = reader.latestOffset()
    assert parse_offset(first) == {(topic, 0): 4, (topic, 1): 0}
    broker.produce(topic, 1, 3)
    second = reader.latestOffset()
    rows = [row for task in reader.partitions(first, second) for row in reader.read(task)]
    assert [batch.num_rows for batch in rows] == [3]
    assert reader.latestOffset() == second
    # Started again, it knows where the query began, and Spark where it was.
    again = unlimited(topic)
    assert again.latestOffset() == second
    assert len(again.partitions(start, second)) == 2
    broker.delete_topic(topic)
    with pytest.raises((DataLoss, BrokerRefused)):
        again.latestOffset()
    broker.topic(2, topic)
    made_again = unlimited(topic, "other").latestOffset()
    with pytest.raises(DataLoss, match="deleted and created again"):
        unlimited(topic).partitions(second, made_again)
    forgiving = unlimited(topic, "other", failOnDataLoss="false")
    assert not forgiving.partitions(second, made_again)


@pytest.mark.core
def test_limits_that_spark_does_not_have_are_refused(unlimited: Make) -> None:
    with pytest.raises(BadOptions) as refused:
        unlimited("t", maxOffsetsPerTrigger="5", minOffsetsPerTrigger="2")
    assert [text.split(":")[0] for text in refused.value.problems] == [
        "option maxOffsetsPerTrigger", "option minOffsetsPerTrigger",
    ]  # fmt: skip
