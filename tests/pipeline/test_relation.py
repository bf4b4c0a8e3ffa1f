"""Batch reading, by the cases of Spark's own `KafkaRelationSuite`, whose names the tests have."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import SparkSession
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructField, StructType

from pipeline.launch import main
from pipeline.net.producing import TaskProducer
from pipeline.options.options import parse_sink_options, parse_source_options
from pipeline.plan import offsets
from pipeline.plan.offsets import plan_batch
from pipeline.plan.pruning import Pruned
from pipeline.spark.session import where
from protocol.time_windows import window_name
from tests.pipeline.conftest import (
    START_MS,
    Broker,
    expected,
    offsets_json,
    values,
    window_equals_brute_force,
)
from tests.pipeline.test_union import read_rows

pytestmark = pytest.mark.core

MICROS_MAX = (2**63 - 1) // 1000 * 1000
FAILURES = (AnalysisException, PythonException)


def test_explicit_earliest_to_latest_offsets(topic: str, read: Any) -> None:
    frame = read(topic, startingOffsets="earliest", endingOffsets="latest")
    assert values(frame) == expected((0, 21))


def test_default_starting_and_ending_offsets(topic: str, read: Any) -> None:
    assert values(read(topic)) == expected((0, 21))


def test_default_starting_and_ending_offsets_with_headers(broker: Broker, read: Any) -> None:
    name = broker.topic(1)
    broker.produce(name, 0, 1, headers=((b"a", b"b"), (b"c", None)))
    broker.produce(name, 0, 1, first=1)
    rows = read(name, includeHeaders="true").orderBy("offset").collect()
    assert [tuple(header) for header in rows[0]["headers"]] == [("a", b"b"), ("c", None)]
    assert rows[1]["headers"] is None


def test_explicit_offsets(topic: str, read: Any) -> None:
    frame = read(
        topic,
        startingOffsets=offsets_json(topic, p0=-2, p1=4, p2=0),
        endingOffsets=offsets_json(topic, p0=3, p1=-1, p2=1),
    )
    assert values(frame) == expected((0, 3), (14, 20), (20, 21))


def test_a_topic_can_be_given_a_place_as_a_whole(topic: str, read: Any) -> None:
    assert values(read(topic, startingOffsets=json.dumps({topic: "earliest"}))) == expected((0, 21))


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


def test_reuse_same_dataframe_in_query(topic: str, read: Any) -> None:
    frame = read(topic).select("offset", "partition", "value")
    assert frame.union(frame).count() == 42


def test_late_binding_start_offsets(broker: Broker, read: Any) -> None:
    """A frame is planned when it is first used, and keeps that plan; a new frame is planned again.

    Differs from Spark's own source, whose frames plan at every action: Spark 4.3 caches the
    partitions of a Python source with the frame.
    """
    name = broker.topic(1)
    broker.produce(name, 0, 10)
    early = read(name)
    broker.produce(name, 0, 2, first=10)
    assert early.count() == 12
    broker.produce(name, 0, 1, first=12)
    assert early.count() == 12
    broker.delete_before(name, 0, 4)
    with pytest.raises(FAILURES, match="the partition now starts at 4"):
        early.collect()
    assert values(read(name)) == expected((4, 13))


def test_timestamp_provided_for_starting_and_ending(topic: str, read: Any) -> None:
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


def test_timestamp_provided_for_starting_offset_provided_for_ending(topic: str, read: Any) -> None:
    frame = read(
        topic,
        startingOffsetsByTimestamp=offsets_json(
            topic, p0=START_MS + 8000, p1=START_MS + 18_000, p2=START_MS
        ),
        endingOffsets="latest",
    )
    assert values(frame) == expected((8, 10), (18, 20), (20, 21))


def test_timestamp_provided_for_ending_offset_provided_for_starting(topic: str, read: Any) -> None:
    frame = read(
        topic,
        startingOffsets=offsets_json(topic, p0=1, p1=1, p2=1),
        endingOffsetsByTimestamp=offsets_json(
            topic, p0=START_MS + 3000, p1=START_MS + 12_000, p2=START_MS + 99_000
        ),
    )
    assert values(frame) == expected((1, 3), (11, 12))


def test_timestamp_provided_for_starting_ending_not_provided(topic: str, read: Any) -> None:
    frame = read(topic, startingTimestamp=str(START_MS + 9000))
    assert values(frame) == expected((9, 10), (10, 20), (20, 21))


def test_timestamp_provided_for_ending_starting_not_provided(topic: str, read: Any) -> None:
    frame = read(topic, endingTimestamp="2023-11-14T22:13:22Z")
    assert values(frame) == expected((0, 2))


def test_global_timestamp_provided_for_starting_and_ending(topic: str, read: Any) -> None:
    frame = read(
        topic, startingTimestamp=str(START_MS + 500), endingTimestamp=str(START_MS + 11_500)
    )
    assert values(frame) == expected((1, 10), (10, 12))


def test_no_matched_offset_for_timestamp_starting_offsets(topic: str, read: Any) -> None:
    """Every partition without a match is named, with its youngest record."""
    times = offsets_json(topic, p0=2**63 - 1, p1=START_MS, p2=START_MS + 60_000)
    with pytest.raises(FAILURES) as caught:
        read(topic, startingOffsetsByTimestamp=times).count()
    message = str(caught.value)
    assert "no offset matched in 2 of 3 partitions" in message
    assert f"{topic}-0" in message
    assert "youngest record is of 2023-11-14T22:13:40.000Z" in message
    assert "startingOffsetsByTimestampStrategy" in message


@pytest.mark.parametrize(("strategy", "rows"), [("latest", 10), ("earliest", 21)])
def test_a_strategy_decides_where_no_offset_matches(
    topic: str, read: Any, strategy: str, rows: int
) -> None:
    times = offsets_json(topic, p0=2**63 - 1, p1=START_MS, p2=START_MS + 60_000)
    frame = read(
        topic, startingOffsetsByTimestamp=times, startingOffsetsByTimestampStrategy=strategy
    )
    assert frame.count() == rows


def test_no_matched_offset_for_timestamp_ending_offsets(topic: str, read: Any) -> None:
    assert read(topic, endingTimestamp="2038-01-01T00:00Z").count() == 21


def test_preferences_on_offset_related_options(topic: str, read: Any) -> None:
    frame = read(
        topic,
        startingTimestamp=str(START_MS + 20_000),
        startingOffsetsByTimestamp=offsets_json(topic, p0=START_MS, p1=START_MS, p2=START_MS),
        startingOffsets="earliest",
        startingOffsetsByTimestampStrategy="latest",
    )
    assert values(frame) == expected((20, 21))


def test_topic_partition_for_start_and_end_must_match(topic: str, read: Any) -> None:
    with pytest.raises(FAILURES, match="says nothing about"):
        read(topic, startingOffsets=offsets_json(topic, p0=1, p1=1)).count()
    with pytest.raises(FAILURES, match=f"names {topic}-7, not subscribed to"):
        read(topic, endingOffsets=offsets_json(topic, p0=1, p1=1, p2=1, p7=1)).count()


def test_unresolved_start_offset_greater_than_end_offset(topic: str, read: Any) -> None:
    """ "latest" is behind an explicit end as soon as it is known where it is."""
    with pytest.raises(FAILURES, match=f"{topic}-0 would start at 10 and end at 3"):
        read(
            topic,
            startingOffsets=offsets_json(topic, p0=-1, p1=-1, p2=-1),
            endingOffsets=offsets_json(topic, p0=3, p1=10, p2=1),
        ).count()


def test_resolved_start_offset_greater_than_end_offset(topic: str, read: Any) -> None:
    with pytest.raises(FAILURES, match="startingOffsets is after option endingOffsets"):
        read(
            topic,
            startingOffsets=offsets_json(topic, p0=5, p1=0, p2=0),
            endingOffsets=offsets_json(topic, p0=3, p1=1, p2=1),
        ).count()


def test_start_offset_outside_the_log(topic: str, read: Any) -> None:
    outside = offsets_json(topic, p0=500, p1=0, p2=0)
    with pytest.raises(FAILURES, match="startingOffsets lie outside the log"):
        read(topic, startingOffsets=outside).count()
    assert read(topic, startingOffsets=outside, failOnDataLoss="false").count() == 11


def test_end_offset_outside_the_log(topic: str, read: Any) -> None:
    """Java's largest number too: tasks for as many offsets would have no end."""
    outside = offsets_json(topic, p0=2**63 - 1, p1=0, p2=0)
    with pytest.raises(FAILURES, match="endingOffsets lie outside the log"):
        read(topic, endingOffsets=outside).count()
    assert read(topic, endingOffsets=outside, failOnDataLoss="false").count() == 10


def test_an_end_before_the_log_is_lost_data_and_no_wrong_order(broker: Broker, read: Any) -> None:
    """There is no startingOffsets that one could correct."""
    name = broker.topic(1)
    broker.produce(name, 0, 5)
    broker.delete_before(name, 0, 2)
    before = offsets_json(name, p0=1)
    with pytest.raises(FAILURES, match=f"endingOffsets lie outside the log: {name}-0 ends at 1"):
        read(name, endingOffsets=before).count()
    assert read(name, endingOffsets=before, failOnDataLoss="false").count() == 0


def test_a_topic_that_is_named_twice_is_read_once(topic: str, read: Any) -> None:
    assert read(f"{topic}, {topic}").count() == read(topic).count() > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "t", "subscribePattern": "t"}, "found subscribe and subscribePattern"),
        ({}, "found none"),
        ({"assign": "{}"}, "write JSON such as"),
        ({"subscribe": "t", "startingTimestamp": "1372953600"}, "looks like seconds"),
        ({"subscribe": "t", "kafka.value.deserializer": "x"}, "values are bytes"),
    ],
)
def test_bad_batch_query_options(
    spark: SparkSession, broker: Broker, options: dict[str, str], message: str
) -> None:
    with pytest.raises(FAILURES, match=message):
        spark.read.format("tidelog").options(**broker.options, **options).load()


def test_spark_27494_null_keys_and_values(broker: Broker, read: Any) -> None:
    name = broker.topic(1)
    with broker.cluster() as cluster:
        options = parse_sink_options({**broker.options, "topic": name})
        producer = TaskProducer(cluster, options)
        for key, value in ((None, b"v"), (b"k", None), (None, None), (b"", b"")):
            producer.add(name, 0, START_MS, key, value)
        producer.flush()
    rows = read(name).orderBy("offset").collect()
    assert [(row["key"], row["value"]) for row in rows] == [
        (None, b"v"), (b"k", None), (None, None), (b"", b""),
    ]  # fmt: skip


def test_spark_56243_malformed_timestamps(broker: Broker, read: Any) -> None:
    """Nanoseconds by mistake: an error that names the cure, or null, or the largest time."""
    name = broker.topic(1, message_timestamp_after_max_ms=str(2**63 - 1))
    broker.produce(name, 0, 1)
    broker.produce(name, 0, 1, start_ms=START_MS * 1_000_000, first=1, step_ms=0)
    with pytest.raises(FAILURES, match="Set onMalformedTimestamp to null or clamp"):
        read(name).count()
    micros = "unix_micros(timestamp) as t"
    nulled = read(name, onMalformedTimestamp="null").orderBy("offset").selectExpr(micros)
    assert [row["t"] for row in nulled.collect()] == [START_MS * 1000, None]
    clamped = read(name, onMalformedTimestamp="clamp").orderBy("offset").selectExpr(micros)
    assert [row["t"] for row in clamped.collect()] == [START_MS * 1000, MICROS_MAX]


def test_fail_on_data_loss_false_returns_what_is_there_and_nothing_twice(
    broker: Broker, read: Any
) -> None:
    name = broker.topic(2)
    for partition in range(2):
        broker.produce(name, partition, 20, first=20 * partition)
    frame = read(
        name, startingOffsets=offsets_json(name, p0=0, p1=0),
        endingOffsets=offsets_json(name, p0=20, p1=20), failOnDataLoss="false",
    )  # fmt: skip
    assert values(frame) == expected((0, 40))
    broker.delete_before(name, 0, 15)
    assert values(frame) == expected((15, 40))


def test_read_kafka_transactional_messages_read_committed(broker: Broker, read: Any) -> None:
    name = broker.topic(1)
    broker.produce(name, 0, 5, transactional_id=f"{name}-a")
    broker.produce(name, 0, 5, first=5, transactional_id=f"{name}-b", abort=True)
    broker.produce(name, 0, 5, first=10, transactional_id=f"{name}-a")
    committed = read(name, kafka__isolation__level="read_committed")
    assert values(committed) == expected((0, 5), (10, 15))
    assert values(read(name)) == expected((0, 15))


def test_spark_30656_min_partitions(topic: str, read: Any) -> None:
    frame = read(topic, minPartitions="6")
    assert frame.rdd.getNumPartitions() >= 6
    assert values(frame) == expected((0, 21))
    assert read(topic, maxRecordsPerPartition="4").rdd.getNumPartitions() == 7


def test_assign_and_pattern_choose_partitions(topic: str, read: Any) -> None:
    assert values(read(assign=json.dumps({topic: [1]}))) == expected((10, 20))
    assert read(subscribePattern=topic[:-1] + ".").count() == 21


def test_a_task_leaves_its_worker_little_to_collect(
    spark: SparkSession, topic: str, read: Any
) -> None:
    def frozen(batches: Iterator[Any]) -> Iterator[Any]:
        import gc

        import pyarrow as pa

        for _ in batches:
            gc.collect()
            yield pa.RecordBatch.from_pydict(
                {"exempt": [gc.get_freeze_count()], "left": [len(gc.get_objects())]}
            )

    assert read(topic).count() == 21
    # Enough tasks for each idle worker to get one.
    tasks = spark.range(16, numPartitions=16)
    workers = tasks.mapInArrow(frozen, "exempt long, left long").collect()
    assert any(worker["exempt"] > worker["left"] for worker in workers), workers


def test_an_empty_topic_has_no_rows(broker: Broker, read: Any) -> None:
    assert read(broker.topic(2)).count() == 0


def test_a_strict_window_keeps_late_rows_and_drops_others(broker: Broker, read: Any) -> None:
    name = broker.topic(2)
    broker.produce(name, 0, 10)
    broker.produce(name, 0, 3, start_ms=START_MS + 60_000, first=10)
    broker.produce(name, 0, 2, start_ms=START_MS - 9500, first=13)
    bounds = {"startingTimestamp": "1700000003000", "endingTimestamp": "1700000006000"}
    strict = read(name, timeWindow="strict", **bounds)
    assert values(strict) == ["v3", "v4", "v5", "v13", "v14"]  # of 3.5 s and 4.5 s
    loose = read(name, startingOffsetsByTimestampStrategy="latest", **bounds)
    assert values(loose) == ["v3", "v4", "v5"]


@pytest.fixture(params=["true", "false"], ids=["pushdown", "noPushdown"])
def pushdown(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[str]:
    """Spark offers filters to Python sources, or does not."""
    name = "spark.sql.python.filterPushdown.enabled"
    before = spark.conf.get(name)
    spark.conf.set(name, request.param)
    yield request.param
    spark.conf.set(name, str(before))


@pytest.mark.usefixtures("pushdown")
def test_a_filter_of_one_query_takes_no_row_from_the_next(broker: Broker, read: Any) -> None:
    """Spark 4.3 keeps a plan with the frame: no query may narrow it, in whatever order."""
    name = broker.topic(1)
    broker.produce(name, 0, 20)
    frame = read(name)
    high, low = frame.where("offset >= 15"), frame.where("offset < 3")
    assert [high.count(), frame.count(), low.count(), high.count()] == [5, 20, 3, 5]
    assert high.union(low).count() == 8
    assert high.join(low.select(low.partition), "partition").count() == 15
    assert values(frame.where("timestamp < '2023-11-14T22:13:22Z'")) == expected((0, 2))
    assert values(frame) == expected((0, 20))


@pytest.mark.usefixtures("pushdown")
def test_a_condition_narrows_what_is_read_and_changes_no_answer(
    spark: SparkSession, broker: Broker, topic: str, read: Any
) -> None:
    """Each one as a filter of a whole frame, and by `where` with one task for each record."""
    options = {**broker.options, "subscribe": topic, "maxLateness": "0s"}
    options["maxRecordsPerPartition"] = "1"
    spans = "timestamp >= '2023-11-14T22:13:28Z' and timestamp < '2023-11-14T22:13:33Z'"
    conditions = {
        # An upper limit is read as if it were inclusive: one record more in a partition.
        spans: (expected((8, 10), (10, 13)), 6),
        "partition = 1 and offset between 2 and 4": (expected((12, 15)), 3),
        "partition in (0, 2) and 3 > offset": (expected((0, 3), (20, 21)), 5),
        "partition = 2": (expected((20, 21)), 1),
        "partition = 2 or offset = 3": (expected((3, 4), (13, 14), (20, 21)), 21),
        "offset = 3 and cast(value as string) = 'v13'": (expected((13, 14)), 2),
        "timestamp = timestamp_millis(1700000012000)": (expected((12, 13)), 1),
        f"topic = '{topic}x'": ([], 1),
        f"topic = '{topic}' and timestamp > date '2023-11-15'": ([], 1),
    }
    for condition, (wanted, tasks) in conditions.items():
        frame = where(spark, options, condition)
        assert (values(frame), frame.rdd.getNumPartitions()) == (wanted, tasks), condition
        assert values(read(topic).where(condition)) == wanted


def test_frames_of_two_conditions_share_nothing(
    spark: SparkSession, broker: Broker, topic: str
) -> None:
    options = {**broker.options, "subscribe": topic}
    late, early = where(spark, options, "offset >= 7"), where(spark, options, "offset < 2")
    assert late.union(early).union(late).count() == 6 + 5 + 6
    assert late.where("offset >= 9").count() == 2
    assert late.count() == 6
    pairs = late.select("partition").join(early.select("partition"), "partition")
    assert pairs.count() == 12


def test_a_time_without_a_zone_is_in_the_zone_of_the_session(
    spark: SparkSession, broker: Broker, topic: str
) -> None:
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        condition = "timestamp BETWEEN '2023-11-15 07:13:28' AND '2023-11-15 07:13:29'"
        frame = where(spark, {**broker.options, "subscribe": topic}, condition)
        assert values(frame) == expected((8, 10))
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(zone))


@pytest.mark.parametrize("how", ["hybrid", "wire"])
def test_statistics_prune_both_ends_of_a_window_and_lose_no_late_row(
    spark: SparkSession,
    broker: Broker,
    read: Any,
    capsys: pytest.CaptureFixture[str],
    how: str,
) -> None:
    """Segments of some 300 s each; one late record lies far after the window."""
    name = broker.topic(1, segment_bytes="9000")
    for first in range(0, 4000, 400):
        broker.produce(name, 0, 400, first=first, batchBytes="2k")
    broker.produce(name, 0, 1, start_ms=START_MS - 2_350_000, first=4000)
    window = {"startingTimestamp": str(START_MS + 1_600_000)}
    window["endingTimestamp"] = str(START_MS + 1_700_000)
    statistics = {"segments.statistics": broker.metrics}
    if how == "hybrid":
        statistics = {"readFrom": "hybrid", "segments.path": str(broker.directory)}
    dotless = {key.replace(".", "__"): value for key, value in statistics.items()}
    wanted = [*expected((1600, 1700)), "v4000"]
    assert values(read(name, timeWindow="strict", **window, **dotless)) == wanted
    condition = f"timestamp >= timestamp_millis({window['startingTimestamp']}) "
    condition += f"and timestamp < timestamp_millis({window['endingTimestamp']})"
    options = {**broker.options, **statistics, "subscribe": name}
    assert values(where(spark, options, condition)) == wanted
    arguments = [text for pair in statistics.items() for text in ("--option", "=".join(pair))]
    line = ["skew", "--dry-run", "-b", broker.bootstrap, "--topic", name, "--json", *arguments]
    line += ["--from", window["startingTimestamp"], "--to", window["endingTimestamp"]]
    assert main(line) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["of"] == 4001
    assert plan["offsets"] < 2000
    assert plan["segments_pruned"] >= 2


@pytest.mark.core
def test_a_strict_window_finds_the_times_of_segments_by_itself(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the port that the broker names; a short rest is read without asking."""
    name = broker.topic(1, segment_bytes="9000")
    for first in range(0, 4000, 400):
        broker.produce(name, 0, 400, first=first, batchBytes="2k")
    broker.produce(name, 0, 1, start_ms=START_MS - 2_350_000, first=4000)
    named = {
        "subscribe": name, "timeWindow": "strict",
        "startingTimestamp": str(START_MS + 1_600_000),
        "endingTimestamp": str(START_MS + 1_700_000),
    }  # fmt: skip
    options = parse_source_options({**broker.options, **named}, is_stream=False)
    wanted = [b"v%d" % number for number in (*range(1600, 1700), 4000)]

    def planned() -> Pruned:
        with broker.cluster() as cluster:
            return plan_batch(cluster, options, START_MS).pruned

    assert planned().known == 0
    monkeypatch.setattr(offsets, "_PRUNE_ABOVE", 0)
    assert planned().skipped >= 2
    assert planned().offsets > 1500
    assert sorted(row[3] for row in read_rows(broker, options)) == sorted(wanted)


def test_a_promised_lateness_ends_a_strict_window(broker: Broker, read: Any) -> None:
    name = broker.topic(1)
    broker.produce(name, 0, 100)
    broker.produce(name, 0, 1, start_ms=START_MS - 85_000, first=100)
    window = {"startingTimestamp": str(START_MS + 10_000), "timeWindow": "strict"}
    window["endingTimestamp"] = str(START_MS + 20_000)
    assert values(read(name, **window)) == [*expected((10, 20)), "v100"]
    assert values(read(name, maxLateness="100s", **window)) == [*expected((10, 20)), "v100"]
    # A promise that is not kept is the user's loss, and the gain that he asked for.
    assert values(read(name, maxLateness="30s", **window)) == expected((10, 20))


def test_a_schema_given_by_the_user_is_a_projection(
    spark: SparkSession, broker: Broker, topic: str, read: Any
) -> None:
    assert read(topic, columns="offset,timestamp").columns == ["offset", "timestamp"]
    source = spark.read.format("tidelog").options(**broker.options, subscribe=topic)
    frame = source.schema("partition int, offset long").load()
    assert frame.orderBy("partition", "offset").first() == (0, 0)
    with pytest.raises(FAILURES, match="cast it in the query"):
        source.schema("value string").load().count()


def test_columns_that_are_never_null_say_so(
    spark: SparkSession, broker: Broker, topic: str, read: Any
) -> None:
    def optional(frame: Any) -> set[str]:
        return {field.name for field in frame.schema.fields if field.nullable}

    assert optional(read(topic)) == {"key", "value"}
    assert optional(read(topic, onMalformedTimestamp="null")) == {"key", "value", "timestamp"}
    # What the user declares counts, as far as it is true.
    source = spark.read.format("tidelog").options(**broker.options, subscribe=topic)
    kinds = StructType(
        [StructField("partition", IntegerType(), False), StructField("offset", LongType())]
    )
    frame = source.schema(kinds).load()
    assert optional(frame) == {"offset"}
    assert frame.orderBy("partition", "offset").first() == (0, 0)
    with pytest.raises(FAILURES, match="column key is null in some records: declare it nullable"):
        source.schema(StructType([StructField("key", BinaryType(), False)])).load().count()


def test_sql_reads_a_view(spark: SparkSession, broker: Broker, topic: str) -> None:
    spark.sql(
        f"create or replace temporary view seen using tidelog options ("
        f"`kafka.bootstrap.servers` '{broker.bootstrap}', subscribe '{topic}')"
    )
    row = spark.sql("select count(*) as n, min(timestamp) as t from seen").first()
    assert row is not None
    assert row["n"] == 21


def test_kafka_column_types(read: Any, topic: str) -> None:
    assert read(topic, includeHeaders="true").dtypes == [
        ("key", "binary"), ("value", "binary"), ("topic", "string"), ("partition", "int"),
        ("offset", "bigint"), ("timestamp", "timestamp"), ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]  # fmt: skip


def test_closed_segments_from_files_and_the_tail_from_the_broker(broker: Broker, read: Any) -> None:
    name = broker.topic(1, segment_bytes="20000")
    for first in range(0, 4000, 400):
        broker.produce(name, 0, 400, first=first, batchBytes="4k")
    assert len(list((broker.directory / f"{name}-0").glob("*.log"))) > 3
    hybrid = {"readFrom": "hybrid", "segments__path": str(broker.directory)}
    assert values(read(name, **hybrid)) == expected((0, 4000))
    start = offsets_json(name, p0=1234)
    assert values(read(name, startingOffsets=start, **hybrid)) == expected((1234, 4000))
