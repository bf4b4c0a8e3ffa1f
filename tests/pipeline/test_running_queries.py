"""Queries that run while their topics, their broker and their records change."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from pipeline.spark.progress import StreamProgress, watch
from tests.pipeline.conftest import QUERY_TIMEOUT_S, Broker, expected, values


def wait_for(what: str, holds: Callable[[], bool]) -> None:
    """Return when `holds` does."""
    deadline = time.monotonic() + QUERY_TIMEOUT_S
    while not holds():
        assert time.monotonic() < deadline, f"not within {QUERY_TIMEOUT_S} s: {what}"
        time.sleep(0.2)


class Copy:
    """A query that copies topics into files until it is stopped."""

    def __init__(self, spark: SparkSession, broker: Broker, folder: Path, **options: str) -> None:
        self.spark, self.folder = spark, folder
        frame = (
            spark.readStream.format("tidelog")
            .options(**broker.options, startingOffsets="earliest", **options)
            .option("journalDir", str(folder / "journal"))
            .load()
        )
        self.query = (
            frame.selectExpr("topic", "partition", "offset", "cast(value as string) as value")
            .writeStream.format("parquet")
            .option("path", str(folder / "out"))
            .option("checkpointLocation", str(folder / "checkpoint"))
            .start()
        )

    def rows(self) -> list[Any]:
        """What is committed so far: topic, partition, offset, value."""
        if not (self.folder / "out" / "_spark_metadata" / "0").exists():
            return []
        return sorted(map(tuple, self.spark.read.parquet(str(self.folder / "out")).collect()))

    def wait_for_rows(self, count: int) -> list[Any]:
        """The rows when there are `count`; a query that ended has raised why."""

        def reached() -> bool:
            if self.query.exception() is not None:
                raise self.query.exception() or AssertionError
            return len(self.rows()) >= count

        wait_for(f"{count} rows", reached)
        return self.rows()


@contextmanager
def copying(spark: SparkSession, broker: Broker, folder: Path, **options: str) -> Iterator[Copy]:
    copy = Copy(spark, broker, folder, **options)
    try:
        yield copy
    finally:
        copy.query.stop()


def test_new_partitions_and_new_topics_are_read_by_a_running_query(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    stem = broker.topic(1)
    broker.produce(stem, 0, 5)
    with copying(spark, broker, tmp_path, subscribePattern=f"{stem}.*") as copy:
        copy.wait_for_rows(5)
        broker.add_partitions(stem, 3)
        broker.produce(stem, 2, 4, first=5)
        copy.wait_for_rows(9)
        broker.topic(2, f"{stem}-later")
        broker.produce(f"{stem}-later", 1, 3, first=20)
        broker.produce(stem, 0, 1, first=9)
        rows = copy.wait_for_rows(13)
    assert [row[3] for row in rows] == expected((0, 5), (9, 10), (5, 9), (20, 23))
    assert {row[0] for row in rows[-3:]} == {f"{stem}-later"}


def test_a_query_goes_on_after_its_broker_was_killed(spark: SparkSession, tmp_path: Path) -> None:
    """Three times, with SIGKILL; the broker comes back at its address with its records."""
    broker = Broker(tmp_path / "data")
    port = broker.port
    try:
        topic = broker.topic(2)
        broker.produce(topic, 0, 5)
        with copying(spark, broker, tmp_path / "q", subscribe=topic) as copy:
            copy.wait_for_rows(5)
            for kill in range(1, 4):
                broker.process.send_signal(signal.SIGKILL)
                broker.process.communicate(timeout=30)
                broker = Broker(tmp_path / "data", f"listeners=PLAINTEXT://127.0.0.1:{port}")
                broker.produce(topic, kill % 2, 5, first=5 * kill)
                rows = copy.wait_for_rows(5 + 5 * kill)
        assert sorted(row[3] for row in rows) == sorted(expected((0, 20)))
        assert len({row[:3] for row in rows}) == 20
    finally:
        broker.stop()


@pytest.mark.parametrize("fail", [True, False], ids=["failOnDataLoss", "noFailOnDataLoss"])
def test_records_that_retention_takes_from_a_running_query(
    spark: SparkSession, broker: Broker, tmp_path: Path, *, fail: bool
) -> None:
    """Offsets 5 to 29 are gone before the query has planned them: an error, or a gap."""
    topic, other = broker.topic(1), broker.topic(1)
    broker.produce(topic, 0, 5)
    broker.produce(other, 0, 1)
    options = {"subscribe": f"{topic},{other}", "failOnDataLoss": str(fail).lower()}
    with copying(spark, broker, tmp_path / "q", maxOffsetsPerTrigger="10", **options) as copy:
        copy.wait_for_rows(6)
        copy.query.stop()
    broker.produce(topic, 0, 30, first=5)
    broker.delete_before(topic, 0, 30)
    with copying(spark, broker, tmp_path / "q", maxOffsetsPerTrigger="10", **options) as copy:
        if fail:
            with pytest.raises(StreamingQueryException, match="failOnDataLoss=false"):
                copy.wait_for_rows(7)
            return
        rows = copy.wait_for_rows(11)
        assert sorted(row[3] for row in rows) == sorted([*expected((0, 5), (30, 35)), "v0"])
        # It goes on after the gap, and the next loss is one too.
        broker.produce(topic, 0, 2, first=35)
        copy.wait_for_rows(13)


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_two_queries_write_into_one_topic_at_once(
    spark: SparkSession, broker: Broker, read: Any, tmp_path: Path, delivery: str
) -> None:
    """Each copies a topic of its own; all records of both are there, each once."""
    origins, copy = [broker.topic(1), broker.topic(1)], broker.topic(2)
    queries = []
    for number, origin in enumerate(origins):
        broker.produce(origin, 0, 60, first=100 * number)
        frame = (
            spark.readStream.format("tidelog")
            .options(**broker.options, subscribe=origin, startingOffsets="earliest")
            .options(journalDir=str(tmp_path / origin / "journal"), maxOffsetsPerTrigger="20")
            .load()
            .selectExpr("key", "value", "timestamp", "int(offset % 2) as partition")
        )
        sink = {"topic": copy, "delivery": delivery}
        if delivery == "exactly-once":
            frame = frame.repartition("partition")
            sink["transactionalIdPrefix"] = origin
        writer = frame.writeStream.format("tidelog").options(**broker.options, **sink)
        writer = writer.option("checkpointLocation", str(tmp_path / origin / "checkpoint"))
        queries.append(writer.trigger(availableNow=True).start())
    try:
        for query in queries:
            assert query.awaitTermination(QUERY_TIMEOUT_S)
    finally:
        for query in queries:
            query.stop()
    committed = read(copy, kafka__isolation__level="read_committed")
    assert sorted(values(committed)) == sorted(expected((0, 60), (100, 160)))


@pytest.mark.core
def test_a_listener_reports_how_far_a_query_is_behind(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    """Ten records in one partition and two in the other, four in a batch; another source beside."""
    topic = broker.topic(2)
    broker.produce(topic, 0, 10)
    broker.produce(topic, 1, 2, first=10)
    reports: list[StreamProgress] = []
    listener = watch(spark, reports.append)
    other = spark.readStream.format("rate").load().writeStream.format("noop").start()
    copy = Copy(spark, broker, tmp_path, subscribe=topic, maxOffsetsPerTrigger="4")
    try:
        copy.wait_for_rows(12)
        wait_for("three reports with rows", lambda: sum(one.rows for one in reports) >= 12)
    finally:
        copy.query.stop()
        other.stop()
        spark.streams.removeListener(listener)
    filled = [one for one in reports if one.rows]
    assert [(one.batch, one.rows) for one in filled] == [(0, 4), (1, 4), (2, 4)]
    assert {one.query for one in filled} == {str(copy.query.id)}
    assert [sum(one.behind.values()) for one in filled] == [8, 4, 0]
    assert set(filled[0].behind) == {f"{topic}-0", f"{topic}-1"}
    first = filled[0]
    assert first.max_offsets_behind_latest == max(first.behind.values()) > 4
    assert first.min_offsets_behind_latest == min(first.behind.values())
    assert first.avg_offsets_behind_latest == 4
    assert "8 offsets behind" in str(first)
