"""Times at the edges: markers beside records of 2013, before 1970, after the year 9999, none."""

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipeline.jobs.archive import ArchiveSettings, archive
from pipeline.jobs.restore import RestoreSettings, restore
from pipeline.net.cluster import Cluster
from pipeline.net.producing import TaskProducer
from pipeline.options.options import parse_sink_options, parse_source_options
from pipeline.plan import offsets
from pipeline.plan.offsets import ReadPlan, plan_batch
from pipeline.plan.reading import RangeReader
from pipeline.records.batches import DecodeRules
from pipeline.spark.session import where
from protocol.api.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.structs import ConfigText
from tests.pipeline.conftest import Broker, values
from tests.support.kafka_peer import KafkaPeer
from tests.support.toolchains import InstallFailed, MissingTool

JULY_4_MS = 1_372_896_000_000
HOUR_MS = 3_600_000
LATENESS_MS = 600_000
YEAR_1949_MS = -662_688_000_000
YEAR_10000_MS = 253_402_300_800_000
LAST_MS = 9_223_372_036_854_775
ODD_TIMES = (
    YEAR_1949_MS, -62_135_596_800_001, -62_135_596_800_000, -2, -1, 0, JULY_4_MS,
    YEAR_10000_MS - 1, YEAR_10000_MS, LAST_MS,
)  # fmt: skip
"""Plain ones, and before all dates, the first date, no time, after all dates, the last there is."""


class Transactions:
    """Transactions of one producer, committed and aborted, of records with times of 2013."""

    def __init__(self, options: dict[str, str], topic: str) -> None:
        self._options = {**options, "topic": topic}
        self._topic = topic

    def write(self, times: list[int], *, commit: bool) -> None:
        options = parse_sink_options(self._options)
        with Cluster(options.connection) as cluster:
            producer = TaskProducer(cluster, options, transactional_id=self._topic)
            for when in times:
                producer.add(self._topic, 0, when, None, b"%d" % when)
            producer.flush()
            producer._end(committed=commit)


def disordered(count: int) -> Iterator[tuple[list[int], bool]]:
    """Batches of times, no record more than LATENESS_MS older than one before it; some aborted."""
    chance = random.Random(7)
    for number in range(count):
        times = [
            JULY_4_MS + (number * 20 + at) * 60_000 - chance.randrange(LATENESS_MS)
            for at in range(20)
        ]
        yield times, chance.random() < 0.7


def counted(options: dict[str, str], **chosen: str) -> list[int]:
    """The times that a plan reads, without Spark; as its tasks would."""
    return read_planned(options, **chosen)[0]


def read_planned(options: dict[str, str], **chosen: str) -> tuple[list[int], ReadPlan]:
    """The times that a plan reads, and the plan."""
    parsed = parse_source_options({**options, **chosen}, is_stream=False)
    with Cluster(parsed.connection) as cluster:
        plan = plan_batch(cluster, parsed, JULY_4_MS)
        rules = DecodeRules(
            columns=("value",), oldest_ms=plan.oldest_ms, newest_ms=plan.newest_ms,
            read_committed=parsed.read_committed,
        )  # fmt: skip
        found = [
            int(value)
            for one in plan.ranges
            for batch in RangeReader(
                cluster,
                one,
                replace(rules, stop=plan.pruned.stops.get(one)),
                fetch_bytes=1 << 20,
                fail_on_data_loss=True,
            ).batches()
            for value in batch.column(0).to_pylist()
        ]
        return found, plan


def check_windows(options: dict[str, str], topic: str) -> None:
    """Strict windows and plain ends against brute force, on whatever broker."""
    log = Transactions(options, topic)
    written = list(disordered(30))
    for times, is_committed in written:
        log.write(times, commit=is_committed)
    seen = {
        "read_uncommitted": [when for times, _ in written for when in times],
        "read_committed": [when for times, good in written if good for when in times],
    }
    chance = random.Random(11)
    for _ in range(12):
        start = JULY_4_MS + chance.randrange(600) * 60_000
        end = start + chance.randrange(1, 120) * 60_000
        window = {"startingTimestamp": str(start), "endingTimestamp": str(end)}
        for level, rows in seen.items():
            named = {"subscribe": topic, "kafka.isolation.level": level, **window}
            expected = [when for when in rows if start <= when < end]
            for bound in ({}, {"maxLateness": f"{LATENESS_MS}ms"}):
                assert counted(options, **named, timeWindow="strict", **bound) == expected
            first = next((at for at, when in enumerate(rows) if when >= start), len(rows))
            last = next((at for at, when in enumerate(rows) if when >= end), len(rows))
            loose = {"startingOffsetsByTimestampStrategy": "latest"}
            assert counted(options, **named, **loose) == rows[first:last]


@pytest.mark.core
def test_transactions_of_2013_lose_no_row_by_their_markers(broker: Broker) -> None:
    check_windows(broker.options, broker.topic(1))


@pytest.mark.jvm
def test_nor_do_they_on_apache_kafka(tmp_path: Path) -> None:
    try:
        peer = KafkaPeer(tmp_path / "kafka", heap="512m")
        peer.start()
    except (InstallFailed, MissingTool) as problem:
        pytest.skip(str(problem))
    try:
        options = {"kafka.bootstrap.servers": peer.bootstrap}
        keep = [ConfigText(name="retention.ms", value="-1")]
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1, configs=keep)
        with Cluster(parse_sink_options({**options, "topic": "t"}).connection) as cluster:
            request = CreateTopicsRequest(timeout_ms=30_000, topics=[topic])
            assert not cluster.call(request).topics[0].error_code
        check_windows(options, "t")
    finally:
        peer.stop()


@pytest.mark.core
@pytest.mark.parametrize("with_transactions", [False, True])
def test_a_window_reads_no_further_than_its_last_late_record(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, with_transactions: bool
) -> None:
    """By the counts that the broker has of the segments in which windows end; against brute force.

    Also where some segments have the markers and records of transactions, which have no counts.
    """
    monkeypatch.setattr(offsets, "_PRUNE_ABOVE", 0)
    topic = broker.topic(1, segment_bytes="20000")
    parsed = parse_sink_options({**broker.options, "topic": topic, "batchBytes": "1k"})
    chance = random.Random(3)
    times = []
    for number in range(6000):
        late = chance.randrange(300_000) if chance.random() < 0.003 else chance.randrange(3000)
        times.append(JULY_4_MS + number * 1000 - late)
    with Cluster(parsed.connection) as cluster:
        producer = TaskProducer(cluster, parsed)
        for number, when in enumerate(times):
            producer.add(topic, 0, when, None, b"%d" % when)
            if with_transactions and number in (3000, 4500):
                producer.flush()
                Transactions(broker.options, topic).write([when], commit=number == 3000)
        producer.flush()
    rows = counted(broker.options, subscribe=topic)
    assert len(rows) == len(times) + (2 if with_transactions else 0)
    early = 0
    for _ in range(25):
        start = JULY_4_MS + chance.randrange(6_000_000)
        end = start + chance.randrange(1, 600_000)
        named = {"subscribe": topic, "startingTimestamp": str(start), "endingTimestamp": str(end)}
        found, plan = read_planned(broker.options, **named, timeWindow="strict")
        assert found == [when for when in rows if start <= when < end]
        early += bool(plan.pruned.stops)
    # A lookup finds the first marker, which is of today: later windows know no first young record.
    assert early > 3


def test_statistics_skip_segments_of_transactions(broker: Broker) -> None:
    topic = broker.topic(1, segment_bytes="3000")
    log = Transactions(broker.options, topic)
    written = [times for times, _ in disordered(30)]
    for times in written:
        log.write(times, commit=True)
    start = JULY_4_MS + 9 * HOUR_MS
    named = {"subscribe": topic, "timeWindow": "strict", "segments.statistics": broker.metrics}
    parsed = parse_source_options(
        {**broker.options, **named, "startingTimestamp": str(start)}, is_stream=False
    )
    with broker.cluster() as cluster:
        pruned = plan_batch(cluster, parsed, JULY_4_MS).pruned
    assert pruned.offsets > 400
    found = counted(broker.options, **named, startingTimestamp=str(start))
    assert found == [when for times in written for when in times if when >= start]


@pytest.mark.core
@pytest.mark.parametrize("lake", ["parquet", "delta", "iceberg"])
def test_times_that_are_no_date_are_archived_and_restored_as_they_were(
    spark: SparkSession, broker: Broker, read: Any, tmp_path: Path, lake: str
) -> None:
    """One record of the year 10000 once stopped an archive for good."""
    wide = {"message_timestamp_after_max_ms": str(2**63 - 1)}
    topic, again = broker.topic(1, **wide), broker.topic(1, **wide)
    for number, when in enumerate(ODD_TIMES):
        broker.produce(topic, 0, 1, start_ms=when, first=number, step_ms=0)
    settings = ArchiveSettings(
        options={**broker.options, "subscribe": topic},
        target="lake.odd" if lake == "iceberg" else str(tmp_path / "lake"),
        state_dir=str(tmp_path / "state"),
        lake=lake,
    )
    assert archive(spark, settings).report["rows"] == len(ODD_TIMES)
    folder = tmp_path / ("state/warehouse/lake/odd" if lake == "iceberg" else "lake")
    days = {path.name for path in folder.glob("event_date=*")}
    assert days == {
        "event_date=__HIVE_DEFAULT_PARTITION__", "event_date=1949-01-01", "event_date=0001-01-01",
        "event_date=1969-12-31", "event_date=1970-01-01", "event_date=2013-07-04",
        "event_date=9999-12-31",
    }  # fmt: skip
    source = RestoreSettings(
        options=broker.options, source=str(folder), state_dir=settings.state_dir, topic=again
    )
    assert restore(spark, source).report["rows"] == len(ODD_TIMES)
    micros = ("offset", "value", "unix_micros(timestamp) as t")
    rows = read(again).selectExpr(*micros).orderBy("offset").collect()
    assert [row["t"] for row in rows] == [when * 1000 for when in ODD_TIMES]
    assert values(read(again)) == [f"v{number}" for number in range(len(ODD_TIMES))]
    if lake == "delta":
        import deltalake

        table = deltalake.DeltaTable(settings.target)
        assert table.to_pyarrow_table(columns=["offset"]).num_rows == len(ODD_TIMES)
    # Once more, so that a plan after such a commit is made too.
    broker.produce(topic, 0, 1, start_ms=YEAR_10000_MS, first=99)
    assert archive(spark, replace(settings)).report["rows"] == 1


def test_1949_is_a_time(spark: SparkSession, broker: Broker, read: Any) -> None:
    topic = broker.topic(1)
    for number, when in enumerate((YEAR_1949_MS - 1, YEAR_1949_MS, JULY_4_MS)):
        broker.produce(topic, 0, 1, start_ms=when, first=number)
    assert values(read(topic, startingTimestamp="1949-01-01")) == ["v1", "v2"]
    window = {"startingTimestamp": "1949-01-01", "endingTimestamp": "1950-01-01"}
    assert values(read(topic, timeWindow="strict", **window)) == ["v1"]
    options = {**broker.options, "subscribe": topic}
    assert values(where(spark, options, "timestamp < '1949-06-01T00:00:00Z'")) == ["v0", "v1"]
    assert values(where(spark, options, "'1949' <= timestamp")) == ["v1", "v2"]
