"""Writing, by the cases of Spark's own `KafkaSinkSuite`, and exactly once under failures."""

import os
import random
import socket
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PythonException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from client.partitioner import partition_for_key
from pipeline.errors import BadOptions, Fenced, JournalConflict
from pipeline.net.producing import MARK_PREFIX, Mark, TaskProducer
from pipeline.options.options import parse_sink_options
from pipeline.plan.reading import RangeReader
from pipeline.plan.splits import OffsetRange
from pipeline.records.batches import DecodeRules
from pipeline.spark.session import by_partition
from pipeline.spark.sink import Batch, _write_once
from tests.pipeline.conftest import START_MS, Broker, finish, values

FAILURES = (AnalysisException, PythonException)


def write(frame: DataFrame, broker: Broker, **options: str) -> None:
    frame.write.format("tidelog").mode("append").options(**broker.options, **options).save()


def untyped(function: Callable[[Any], Any], kind: str) -> Any:
    """A plain UDF; hints on the function would make Spark look for a vectorised one."""
    return F.udf(lambda value: function(value), kind, useArrow=False)


@pytest.fixture
def rows(spark: SparkSession) -> DataFrame:
    """40 rows: v0-v39, partition n % 2, a second apart."""
    return spark.range(40).selectExpr(
        "concat('v', id) as value",
        "concat('k', id % 5) as key",
        "cast(id % 2 as int) as partition",
        f"timestamp_millis({START_MS} + id * 1000) as timestamp",
    )


@pytest.mark.core
def test_time_key_headers_and_partition_are_kept(
    spark: SparkSession, broker: Broker, read: Any
) -> None:
    """Spark's own sink drops `timestamp` without a word."""
    origin, copy = broker.topic(3), broker.topic(3)
    for partition in range(3):
        broker.produce(origin, partition, 20, first=20 * partition, headers=((b"h", None),))
    frame = read(origin, includeHeaders="true")
    write(frame, broker, topic=copy)
    back = read(copy, includeHeaders="true")
    assert back.drop("topic").exceptAll(frame.drop("topic")).count() == 0
    assert back.count() == 60


def test_topic_column_and_option(rows: DataFrame, broker: Broker, read: Any) -> None:
    first, second = broker.topic(2), broker.topic(2)
    write(rows.withColumn("topic", F.lit(first)), broker)
    assert read(first).count() == 40
    # The option wins over the column.
    write(rows.withColumn("topic", F.lit(first)), broker, topic=second)
    assert (read(first).count(), read(second).count()) == (40, 40)


def test_a_row_without_partition_goes_by_its_key(
    rows: DataFrame, broker: Broker, read: Any
) -> None:
    topic = broker.topic(3)
    write(rows.drop("partition"), broker, topic=topic)
    spread = read(topic).groupBy("key").agg(F.countDistinct("partition").alias("n")).collect()
    assert {row["n"] for row in spread} == {1}


@pytest.mark.core
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda frame: frame.drop("value"), "column value is missing"),
        (lambda frame: frame.withColumn("valeu", F.lit(1)), "'valeu' has no place in a record"),
        (lambda frame: frame.withColumn("value", F.lit(1)), "column value is int: cast it"),
        (lambda frame: frame.withColumn("partition", F.lit("1")), "column partition is string"),
    ],
)
def test_columns_that_are_no_record_are_refused_before_any_task(
    rows: DataFrame, broker: Broker, change: Callable[[DataFrame], DataFrame], message: str
) -> None:
    with pytest.raises(FAILURES, match=message):
        write(change(rows), broker, topic="t")


def test_overwrite_is_refused(rows: DataFrame, broker: Broker) -> None:
    writer = rows.write.format("tidelog").mode("overwrite").options(**broker.options, topic="t")
    with pytest.raises(FAILURES, match="can only be appended to"):
        writer.save()


@pytest.mark.core
def test_a_named_write_is_done_once_however_often_it_is_repeated(
    rows: DataFrame, broker: Broker, read: Any
) -> None:
    topic = broker.topic(2)
    for _ in range(3):
        spread = by_partition(rows, broker.bootstrap, topic)
        write(spread, broker, topic=topic, delivery="exactly-once", transactionalIdPrefix=topic)
    assert read(topic, kafka__isolation__level="read_committed").count() == 40


@pytest.mark.core
def test_keys_go_where_every_client_sends_them_without_a_python_worker(
    spark: SparkSession, broker: Broker
) -> None:
    """All lengths up to 40 bytes, and bytes with their highest bit set."""
    topic, luck = broker.topic(7), random.Random(7)
    keys = [luck.randbytes(length) for length in range(41) for _ in range(4)]
    keys += [b"\xff" * length for length in range(1, 10)]
    rows = [(bytearray(key), bytearray(b"v")) for key in keys] + [(None, bytearray(keys[-1]))]
    frame = spark.createDataFrame(rows, "key binary, value binary")
    spread = by_partition(frame, broker.bootstrap, topic)
    assert "EvalPython" not in str(spread._jdf.queryExecution().executedPlan())
    found = {
        bytes(row["value"] if row["key"] is None else row["key"]): row["partition"]
        for row in spread.collect()
    }
    assert found == {key: partition_for_key(key, 7) for key in keys}


def test_rows_without_key_and_value_have_a_partition_too(
    spark: SparkSession, broker: Broker
) -> None:
    topic = broker.topic(3)
    frame = spark.sql("select cast(null as string) as key, cast(null as string) as value")
    row: Any = by_partition(frame, broker.bootstrap, topic).first()
    assert row["partition"] in range(3)


@pytest.mark.core
def test_rows_of_one_partition_in_two_tasks_are_refused(rows: DataFrame, broker: Broker) -> None:
    topic = broker.topic(2)
    spread = rows.withColumn("partition", F.lit(0)).repartition(2)
    with pytest.raises(FAILURES, match="by_partition"):
        write(spread, broker, topic=topic, delivery="exactly-once", transactionalIdPrefix=topic)


def write_task(broker: Broker, topic: str, run: str, task: int, *numbers: int, **more: str) -> int:
    """What one task of one attempt at batch 0 does, without Spark around it; rows left out."""
    options = {**broker.options, "topic": topic, "delivery": "exactly-once", **more}
    parsed = parse_sink_options({**options, "transactionalIdPrefix": topic})
    columns = {"value": [b"v%d" % number for number in numbers]}
    partition = pa.array([0] * len(numbers), pa.int32())
    rows = pa.RecordBatch.from_pydict({**columns, "partition": partition})
    with broker.cluster() as cluster:
        batch = Batch(query="q", number=0, run=run, task=task)
        return _write_once(cluster, parsed, batch, iter([rows])).repeated


@pytest.mark.core
def test_rows_that_a_refused_spread_left_out_are_not_taken_for_written_later(
    broker: Broker,
) -> None:
    """Rows 0-9 in one task and 10-19 in another; then the batch is repeated by another driver."""
    topic = broker.topic(1)
    assert write_task(broker, topic, "first", 0, *range(10)) == 0
    with pytest.raises(JournalConflict, match="come from tasks 0 and 1"):
        write_task(broker, topic, "first", 1, *range(10, 20))
    assert write_task(broker, topic, "second", 0, *reversed(range(10))) == 10
    with pytest.raises(JournalConflict, match=r"wrote 10 rows .* repeats with 10 that are not"):
        write_task(broker, topic, "second", 1, *range(10, 20))
    with pytest.raises(JournalConflict, match=r"wrote 10 rows .* repeats with 20"):
        write_task(broker, topic, "second", 0, *range(20))
    assert write_task(broker, topic, "third", 0, *range(20), verifyRepeats="false") == 20


@pytest.mark.core
def test_tasks_of_a_process_share_an_identity_unless_one_fails(broker: Broker) -> None:
    topic = broker.topic(1)
    options = parse_sink_options({**broker.options, "topic": topic, "kafka.client.id": topic})
    seen = []
    for number in range(4):
        with broker.cluster() as cluster:
            producer = TaskProducer(cluster, options)
            seen.append(producer._identity.producer_id)
            producer.add(topic, 0, START_MS, None, b"v%d" % number)
            # The third one dies before its last word.
            if number == 2:
                producer.flush()
            else:
                producer.retire()
    assert seen[0] == seen[1] == seen[2] != seen[3]
    assert broker.ends(topic) == [4]


@pytest.mark.core
def test_marks_are_no_lag(broker: Broker) -> None:
    topic = broker.topic(1)
    write_task(broker, topic, "only", 0, *range(50))
    group = f"{topic}-{topic}-0"
    with broker.cluster() as cluster:
        assert list(cluster.committed(group)) == [(topic, 0)]
    with urllib.request.urlopen(f"http://{broker.metrics}/metrics") as answer:
        assert group not in answer.read().decode()


def test_a_transaction_that_took_too_long_says_so(broker: Broker) -> None:
    topic = broker.topic(1)
    options = {**broker.options, "topic": topic, "kafka.transaction.timeout.ms": "300"}
    with broker.cluster() as cluster:
        producer = TaskProducer(cluster, parse_sink_options(options), transactional_id=topic)
        producer.add(topic, 0, START_MS, None, b"v")
        producer.flush()
        deadline = time.monotonic() + 60
        while broker.ends(topic, read_committed=True)[0] == 0:
            assert time.monotonic() < deadline, "the broker did not end the transaction"
            time.sleep(0.2)
        with pytest.raises(Fenced, match="was open for longer than 300 ms"):
            producer.commit(Mark(group=topic, topic=topic, offset=1, metadata=MARK_PREFIX))


@pytest.mark.core
def test_a_task_killed_amid_its_rows_leaves_nothing_twice(
    spark: SparkSession, broker: Broker, read: Any, tmp_path: Path
) -> None:
    """The worker process dies with rows already sent; the retry fences and aborts them."""
    topic = broker.topic(2)
    once = str(tmp_path / "died")

    def die_once(number: int) -> str:
        if number == 1501 and not os.path.exists(once):
            open(once, "w").close()
            os._exit(1)
        return f"v{number}"

    frame = spark.range(2000).select(
        untyped(die_once, "string")("id").alias("value"),
        (F.col("id") % 2).cast("int").alias("partition"),
    )
    spread = frame.repartition(F.col("partition"))
    write(
        spread, broker, topic=topic, batchBytes="1k", delivery="exactly-once",
        transactionalIdPrefix=topic,
    )  # fmt: skip
    assert os.path.exists(once)
    found = values(read(topic, kafka__isolation__level="read_committed"))
    assert sorted(found) == sorted(f"v{number}" for number in range(2000))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_twenty_deaths_of_the_driver_leave_every_row_once(
    spark: SparkSession, broker: Broker, read: Any, tmp_path: Path
) -> None:
    """The query dies in turn before its first row, amid its rows, and after its last one.

    Before and amid: the rows themselves raise, so the batch is planned and its transactions are
    open or not begun. After: what Spark stores last, the batch's commit, is taken away.
    """
    origin, copy = broker.topic(2), broker.topic(2)
    checkpoint = tmp_path / "checkpoint"
    fuse = tmp_path / "fuse"
    path = str(fuse)

    def touchy(value: bytes) -> bytes:
        if os.path.exists(path):
            with open(path) as file:
                if int(bytes(value)[1:]) % 10 >= int(file.read()):
                    raise RuntimeError("the fuse blew")
        return bytes(value)

    def run() -> None:
        query = (
            spark.readStream.format("tidelog")
            .options(**broker.options, subscribe=origin, startingOffsets="earliest")
            .option("journalDir", str(tmp_path / "journal"))
            .load()
            .select("key", untyped(touchy, "binary")("value").alias("value"), "partition")
            .writeStream.format("tidelog")
            .options(**broker.options, topic=copy, delivery="exactly-once", batchBytes="64")
            .options(transactionalIdPrefix=copy, checkpointLocation=str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        finish(query)

    for death in range(20):
        for partition in range(2):
            broker.produce(origin, partition, 10, first=(2 * death + partition) * 10)
        if death % 3 < 2:
            fuse.write_text("0" if death % 3 == 0 else "6")
            with pytest.raises(StreamingQueryException, match="the fuse blew"):
                run()
            fuse.unlink()
            continue
        run()
        last = max(int(file.name) for file in (checkpoint / "commits").glob("[0-9]*"))
        for name in (str(last), f".{last}.crc"):
            (checkpoint / "commits" / name).unlink(missing_ok=True)
    run()
    found = values(read(copy, kafka__isolation__level="read_committed"))
    assert sorted(found) == sorted(f"v{number}" for number in range(400))


def test_a_new_checkpoint_needs_a_new_prefix(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    origin, copy = broker.topic(1), broker.topic(1)
    broker.produce(origin, 0, 5)

    def run(name: str) -> None:
        query = (
            spark.readStream.format("tidelog")
            .options(**broker.options, subscribe=origin, startingOffsets="earliest")
            .option("journalDir", str(tmp_path / name / "journal"))
            .load()
            .select("value", "partition")
            .writeStream.format("tidelog")
            .options(**broker.options, topic=copy, delivery="exactly-once")
            .options(transactionalIdPrefix=copy, checkpointLocation=str(tmp_path / name / "c"))
            .trigger(availableNow=True)
            .start()
        )
        finish(query)

    run("first")
    with pytest.raises(StreamingQueryException, match="was used by another query"):
        run("second")


@pytest.mark.core
@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_a_partition_that_the_topic_has_not_got_is_refused_at_once(
    rows: DataFrame, broker: Broker, delivery: str
) -> None:
    """It was once retried for a while, and then there was "no leader"."""
    topic = broker.topic(2)
    frame = rows.withColumn("partition", F.lit(99)).coalesce(1)
    sink = {"topic": topic, "delivery": delivery, "transactionalIdPrefix": topic}
    message = f"column partition=99: topic {topic} has 2 partitions, so 0 to 1 are allowed"
    with pytest.raises(FAILURES, match=message):
        write(frame, broker, **sink)
    with pytest.raises(FAILURES, match="column partition=-1"):
        write(rows.withColumn("partition", F.lit(-1)), broker, topic=topic)


def test_a_null_among_headers_is_refused_by_name(rows: DataFrame, broker: Broker) -> None:
    kind = "array<struct<key:string,value:binary>>"
    frame = rows.withColumn("headers", F.expr(f"cast(array(null) as {kind})"))
    with pytest.raises(FAILURES, match="column headers holds an array with a null element"):
        write(frame, broker, topic=broker.topic(2))
    frame = rows.withColumn("headers", F.expr(f"cast(array(struct(null, value)) as {kind})"))
    with pytest.raises(FAILURES, match="column headers holds a header whose key is null"):
        write(frame, broker, topic=broker.topic(2))


@pytest.mark.core
def test_a_batch_that_died_before_partitions_were_added_is_ended_as_it_began(
    rows: DataFrame, broker: Broker, read: Any
) -> None:
    """Keys fall elsewhere then; it was a conflict without a way out."""
    topic = broker.topic(2)
    keyed = rows.drop("partition")
    sink = {"topic": topic, "delivery": "exactly-once", "transactionalIdPrefix": topic}
    spread = by_partition(keyed, broker.bootstrap, topic)
    # One of two transactions was committed when the driver died.
    write(spread.where("partition = 0"), broker, **sink)
    begun = read(topic).count()
    assert 0 < begun < 40
    broker.add_partitions(topic, 7)
    with pytest.raises(FAILURES, match=r"had 2 partitions then and has 7 now.*partitions=2"):
        write(by_partition(keyed, broker.bootstrap, topic), broker, **sink)
    assert read(topic, kafka__isolation__level="read_committed").count() == begun
    write(by_partition(keyed, broker.bootstrap, topic, partitions=2), broker, **sink)
    committed = read(topic, kafka__isolation__level="read_committed")
    assert sorted(values(committed)) == sorted(f"v{number}" for number in range(40))
    with pytest.raises(BadOptions, match=r"partitions=8: topic .* has 7, so 1 to 7 are allowed"):
        by_partition(keyed, broker.bootstrap, topic, partitions=8)


@pytest.mark.core
def test_batches_under_way_on_a_connection_that_breaks_come_once_and_in_order(
    broker: Broker,
) -> None:
    topic = broker.topic(1)
    options = parse_sink_options({**broker.options, "topic": topic, "batchBytes": "100"})
    numbers = [b"%04d" % number for number in range(1000)]
    most = 0
    with broker.cluster() as cluster:
        producer = TaskProducer(cluster, options)
        for start in range(0, 1000, 50):
            column = pa.array(numbers[start : start + 50], pa.binary())
            producer.add_batch(topic, pa.RecordBatch.from_arrays([column], names=["value"]))
            most = max(most, len(producer._under_way))
            answer = producer._under_way[-1][2]
            if start % 200 == 100 and answer is not None:
                answer._connection._socket.shutdown(socket.SHUT_RDWR)
        producer.flush()
        wanted, rules = OffsetRange(topic, 0, 0, 1000), DecodeRules(columns=("value",))
        reader = RangeReader(cluster, wanted, rules, fetch_bytes=1 << 20, fail_on_data_loss=True)
        found = [value.as_py() for batch in reader.batches() for value in batch.column(0)]
    assert most > 1
    assert found == numbers
    assert broker.ends(topic) == [1000]
