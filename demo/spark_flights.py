"""The flights through Spark: streamed in, archived by day, queried, restored, and one day by time.

`make spark-demo` starts a broker of its own and a local Spark (with a Java of its own where the
machine has none), and takes the 336,776 flights of `demo.flights` this way::

    table --> topic flights --stream--> topic landed --archive--> Parquet by event date
                                                                       |  query, restore twice
                                        topic again  <-----------------+

At the end all three topics are equal row for row, timestamps included, although the restore was run
twice, and 4 July is read alone, by time. Nothing is left behind.
"""

import argparse
import contextlib
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from client.errors import BrokerRefused, ClientError
from demo.flight_data import DataMissing, Flight, load_flights
from demo.stage import PARTITIONS, Disagreement, console, own_broker, step
from pipeline.errors import PipelineError
from pipeline.jobs.archive import ArchiveSettings, archive
from pipeline.jobs.restore import RestoreSettings, restore
from pipeline.jobs.skew import SkewSettings, skew
from pipeline.net.cluster import Cluster
from pipeline.net.producing import TaskProducer
from pipeline.options.options import parse_sink_options
from pipeline.spark.session import session
from protocol.api.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.structs import ConfigText

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

ORIGIN, LANDED, AGAIN = "flights", "landed", "again"
DAY = ("2013-07-04", "2013-07-05")
DAY_MS = (1_372_896_000_000, 1_372_982_400_000)
COMPARED = ("partition", "offset", "key", "value", "timestamp")
ROWS_PER_TRIGGER = 90_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the demo; 0 when everything was equal."""
    parser = argparse.ArgumentParser(prog="python -m demo.spark_flights", description=__doc__)
    parser.add_argument("--every", type=int, default=1, help="take every n-th flight only")
    options = parser.parse_args(arguments)
    started = time.perf_counter()
    try:
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidelog-lake-")))
            bootstrap = stack.enter_context(own_broker())
            with step("start Spark") as done:
                spark = session("local[2]", settings={"spark.driver.memory": "1g"})
                stack.callback(spark.stop)
                done(f"Spark {spark.version}")
            with step("read the flights") as done:
                flights = load_flights()[:: options.every]
                done(f"{len(flights):,} flights")
            tell_story(spark, bootstrap, flights, folder)
    except (DataMissing, Disagreement, PipelineError, ClientError, RuntimeError) as problem:
        console.print(f"[bold red]✗[/] {problem}")
        return 1
    console.print(f"\n[bold]Done in {time.perf_counter() - started:.1f} s.[/]")
    return 0


def tell_story(
    spark: "SparkSession", bootstrap: str, flights: Sequence[Flight], folder: Path
) -> None:
    """All of it, with the lake and all states below `folder`.

    Raises:
        Disagreement: two ways to the same rows gave different ones.
    """
    options = {"kafka.bootstrap.servers": bootstrap}
    with step("produce with their own times") as done:
        produce(options, flights)
        done(f"{ORIGIN}, {PARTITIONS} partitions")
    with step("stream into a second topic") as done:
        batches = stream(spark, options, folder)
        done(f"{LANDED}, {batches} micro-batches")
    with step("archive by event date") as done:
        settings = ArchiveSettings(
            options={**options, "subscribe": LANDED},
            target=str(folder / "lake"),
            state_dir=str(folder / "state"),
        )
        report = archive(spark, settings).report
        done(f"{report['rows']:,} rows in {report['files']:,} Parquet files")
    lake = spark.read.parquet(settings.target)
    truth = sum(DAY_MS[0] <= flight.departed_ms < DAY_MS[1] for flight in flights)
    with step("query the lake: 4 July, UTC") as done:
        agree("4 July in the lake", lake.where(f"event_date = '{DAY[0]}'").count(), truth)
        done(f"{truth:,} departures")
    with step("restore, twice under one name") as done:
        for _ in range(2):
            restore(
                spark,
                RestoreSettings(
                    options=options, source=settings.target, state_dir=settings.state_dir,
                    topic=AGAIN, name="flights-demo",
                ),
            )  # fmt: skip
        done(f"{AGAIN}, exactly once")
    with step("compare three topics") as done:
        first, *others = (rows(spark, options, topic) for topic in (ORIGIN, LANDED, AGAIN))
        agree(f"rows of {ORIGIN}", first.num_rows, len(flights))
        if not all(other.equals(first) for other in others):
            raise Disagreement("the topics differ")
        done(f"{first.num_rows:,} rows equal, times included")
    with step("read 4 July alone, by time") as done:
        window = {"startingTimestamp": DAY[0], "endingTimestamp": DAY[1], "timeWindow": "strict"}
        agree("4 July by time", load(spark, {**options, **window}, AGAIN).count(), truth)
        asked = {**options, **window, "subscribe": AGAIN}
        planned = skew(spark, SkewSettings(options=asked, dry_run=True)).report
        done(f"{truth:,} rows, {planned['offsets']:,} of {planned['of']:,} read")


def agree(what: str, found: int, truth: int) -> None:
    """Nothing when the numbers are equal.

    Raises:
        Disagreement: they are not.
    """
    if found != truth:
        raise Disagreement(f"{what}: {found:,}, and the table has {truth:,}")


def produce(options: dict[str, str], flights: Sequence[Flight]) -> None:
    """Make the three topics, kept for ever, and put the flights into the first one in turn."""
    parsed = parse_sink_options({**options, "topic": ORIGIN})
    keep = [ConfigText(name="retention.ms", value="-1")]
    topics = [
        CreatableTopic(name=name, num_partitions=PARTITIONS, replication_factor=1, configs=keep)
        for name in (ORIGIN, LANDED, AGAIN)
    ]
    with Cluster(parsed.connection) as cluster:
        request = CreateTopicsRequest(timeout_ms=20_000, topics=topics)
        for answer in cluster.call(request).topics:
            if answer.error_code:
                detail = answer.error_message
                raise BrokerRefused(f"topic {answer.name}", answer.error_code, detail=detail)
        producer = TaskProducer(cluster, parsed)
        for number, one in enumerate(flights):
            producer.add(ORIGIN, number % PARTITIONS, one.departed_ms, one.tail_number, one.value)
        producer.flush()


def stream(spark: "SparkSession", options: dict[str, str], folder: Path) -> int:
    """Copy what is there, in micro-batches; how many it took."""
    query = (
        spark.readStream.format("tidelog")
        .options(**options, subscribe=ORIGIN, startingOffsets="earliest")
        .options(maxOffsetsPerTrigger=str(ROWS_PER_TRIGGER), journalDir=str(folder / "journal"))
        .load()
        .select("key", "value", "timestamp", "partition")
        .writeStream.format("tidelog")
        .options(**options, topic=LANDED, checkpointLocation=str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return sum(1 for progress in query.recentProgress if progress["numInputRows"])


def load(spark: "SparkSession", options: dict[str, str], topic: str) -> "DataFrame":
    """What committed readers see of a topic."""
    committed = {"kafka.isolation.level": "read_committed", "subscribe": topic}
    return spark.read.format("tidelog").options(**options, **committed).load()


def rows(spark: "SparkSession", options: dict[str, str], topic: str) -> "pa.Table":
    """The rows of a topic in order, as one Arrow table."""
    frame: Any = load(spark, options, topic).select(*COMPARED)
    return frame.toArrow().sort_by([("partition", "ascending"), ("offset", "ascending")])


if __name__ == "__main__":
    sys.exit(main())
