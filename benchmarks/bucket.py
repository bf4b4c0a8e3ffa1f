"""Spark from the bucket beside Spark through the broker: the same rows, the ratio of times.

    python -m benchmarks.bucket            # 4,500,000 records of 100 bytes; some minutes
    python -m benchmarks.bucket --smoke    # 50,000 records: whether it runs, not how fast

A tiered topic of four partitions is filled, as in `benchmarks.spark`, and its closed segments are
uploaded. local[2] then reads it into `noop` by turns: through the broker, which has all segments on
its disk, and with `readFrom=remote`. The bucket is a folder, or with `--url` what that names, for
example `s3://bucket/prefix` of a server that the environment describes. Each line is the median of
its rounds: wall seconds, CPU seconds of Spark (driver, JVM, Python workers), CPU seconds of the
broker. Before that the rows of both ways are compared, by count and by a sum of hashes of all
columns.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from benchmarks.spark import (
    PARTITIONS,
    SEGMENT_BYTES,
    VALUE_BYTES,
    cpu_clock,
    fill,
)
from pipeline.spark.session import session
from storage.bucket.journal import read_state
from storage.remote.engine import list_clusters, open_store
from tests.pipeline.conftest import Broker

UPLOAD_S = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one run took."""

    wall_s: float
    spark_cpu_s: float
    broker_cpu_s: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=4_500_000)
    parser.add_argument("--segment-bytes", type=int, default=SEGMENT_BYTES)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--smoke", action="store_true", help="few records, one run each")
    parser.add_argument("--url", default="", help="the bucket; a folder by default")
    options = parser.parse_args()
    records = 50_000 if options.smoke else options.records
    segment_bytes = 1 << 20 if options.smoke else options.segment_bytes
    rounds = 1 if options.smoke else options.rounds
    with tempfile.TemporaryDirectory(prefix="tidelog-bucket-") as folder:
        url = options.url or f"file://{folder}/bucket"
        broker = Broker(Path(folder) / "data", f"remote.storage.url={url}")
        try:
            topic = broker.topic(
                PARTITIONS, segment_bytes=str(segment_bytes), remote_storage_enable="true"
            )
            fill(broker, topic, records)
            share = upload(broker, topic, url)
            with cpu_clock() as cpu_s:
                spark = session("local[2]", settings={"spark.driver.memory": "2g"})
                check(spark, broker, topic, url, records)
                show(measure(spark, broker, topic, url, rounds, cpu_s), records, share)
                spark.stop()
        finally:
            broker.stop()


def upload(broker: Broker, topic: str, url: str) -> float:
    """Wait for the last closed segment; which share of the records is in objects then."""
    deadline = time.monotonic() + UPLOAD_S
    closed = {
        (index, int(log.stem))
        for index in range(PARTITIONS)
        for log in sorted((broker.directory / f"{topic}-{index}").glob("*.log"))[:-1]
    }
    while True:
        state = read_state(open_store(url, list_clusters(url)[0])) if list_clusters(url) else None
        there = set() if state is None else {
            (key.partition, key.base_offset) for key, _ in state.keys("segment")
        }  # fmt: skip
        if closed <= there:
            break
        assert time.monotonic() < deadline, f"not uploaded within {UPLOAD_S} s"
        time.sleep(0.5)
    opened = [
        int(max((broker.directory / f"{topic}-{index}").glob("*.log")).stem)
        for index in range(PARTITIONS)
    ]
    return sum(opened) / sum(broker.ends(topic))


def frame(spark: SparkSession, broker: Broker, topic: str, url: str) -> DataFrame:
    """The topic, from the bucket `url`, or through the broker where that is empty."""
    reader = spark.read.format("tidelog").options(**broker.options, subscribe=topic)
    if url:
        reader = reader.options(**{"readFrom": "remote", "segments.remote": url})
    return reader.load()


def check(spark: SparkSession, broker: Broker, topic: str, url: str, records: int) -> None:
    found = []
    for where in ("", url):
        rows = frame(spark, broker, topic, where)
        hashed = rows.selectExpr("count(1)", "sum(CAST(xxhash64(*) AS DECIMAL(38,0)))")
        found.append(tuple(hashed.collect()[0]))
    assert found[0] == found[1], f"other rows: {found}"
    assert found[0][0] == records, f"{found[0][0]} rows of {records}"


def measure(
    spark: SparkSession,
    broker: Broker,
    topic: str,
    url: str,
    rounds: int,
    cpu_s: Callable[[], float],
) -> dict[str, Cost]:
    runs = {"through the broker": "", "from the bucket": url}
    found: dict[str, list[Cost]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, where in runs.items():
            before = cpu_s(), broker_cpu_s(broker), time.perf_counter()
            frame(spark, broker, topic, where).write.format("noop").mode("overwrite").save()
            found[name].append(
                Cost(
                    wall_s=time.perf_counter() - before[2],
                    spark_cpu_s=cpu_s() - before[0],
                    broker_cpu_s=broker_cpu_s(broker) - before[1],
                )
            )
    return {
        name: Cost(
            **{
                figure: statistics.median(getattr(cost, figure) for cost in costs)
                for figure in asdict(costs[0])
            }
        )
        for name, costs in found.items()
    }


def broker_cpu_s(broker: Broker) -> float:
    """CPU seconds of the broker so far."""
    stat = Path(f"/proc/{broker.process.pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")


def show(table: dict[str, Cost], records: int, share: float) -> None:
    print(
        f"{records:,} records of {VALUE_BYTES} B, {share:.0%} in objects, the same rows, local[2], "
        f"load {os.getloadavg()[0]:.1f}"
    )
    print(f"{'':20} {'wall s':>8} {'Spark CPU s':>12} {'broker CPU s':>13}")
    for name, cost in table.items():
        print(f"{name:20} {cost.wall_s:8.2f} {cost.spark_cpu_s:12.2f} {cost.broker_cpu_s:13.2f}")
    through, stored = table.values()
    print(
        f"bucket / broker: time {stored.wall_s / through.wall_s:.2f}, "
        f"Spark's CPU {stored.spark_cpu_s / max(through.spark_cpu_s, 0.01):.2f}, "
        f"the broker's CPU {stored.broker_cpu_s / max(through.broker_cpu_s, 0.01):.2f}"
    )
    print(json.dumps({name: asdict(cost) for name, cost in table.items()}))


if __name__ == "__main__":
    main()
