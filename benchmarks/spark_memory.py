"""The memory of Spark's Python workers while one task reads, or copies, ever more records.

    python -m benchmarks.spark_memory            # 1, 10 and 100 million records; some minutes
    python -m benchmarks.spark_memory --smoke    # 20,000 and 40,000: whether it runs

A topic of two partitions has as many small records as the largest count. local[2] reads the first
ones of it into `noop`, then copies them into another topic, each partition in one task whatever
its size. Workers are used again, so each line has the most that the largest of them has held since
it was started: where memory grew with the records, the last lines would show it.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame

from benchmarks.spark import process_tree, running
from pipeline.net.producing import TaskProducer
from pipeline.options.options import parse_sink_options
from pipeline.spark.session import session
from tests.pipeline.conftest import START_MS, Broker

PARTITIONS = 2
VALUE_BYTES = 10
CHUNK = 100_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--millions", type=int, nargs="+", default=[1, 10, 100])
    parser.add_argument("--copy-up-to", type=int, default=100, metavar="MILLIONS")
    parser.add_argument("--smoke", action="store_true", help="few records")
    options = parser.parse_args()
    counts = [20_000, 40_000] if options.smoke else [one * 1_000_000 for one in options.millions]
    with tempfile.TemporaryDirectory(prefix="tidelog-spark-") as folder, running(folder) as broker:
        topic = broker.topic(PARTITIONS)
        fill(broker, topic, max(counts))
        spark = session("local[2]", settings={"spark.driver.memory": "2g"})
        target = broker.topic(PARTITIONS)

        def first(count: int) -> DataFrame:
            ends = {str(one): count // PARTITIONS for one in range(PARTITIONS)}
            reader = spark.read.format("tidelog").options(**broker.options, subscribe=topic)
            reader.option("endingOffsets", json.dumps({topic: ends}))
            return reader.option("targetBytesPerTask", "1000g").load()

        def read(count: int) -> None:
            first(count).write.format("noop").mode("overwrite").save()

        def copy(count: int) -> None:
            rows = first(count).select("key", "value", "timestamp", "partition")
            sink = rows.write.format("tidelog").options(**broker.options, topic=target)
            sink.mode("append").save()

        print(f"load {os.getloadavg()[0]:.1f}")
        print(f"{'':6} {'records':>12} {'wall s':>8} {'worker, most MiB':>17}")
        for count in counts:
            show("read", count, read)
        for count in counts:
            if count <= options.copy_up_to * 1_000_000:
                show("copy", count, copy)
        spark.stop()


def fill(broker: Broker, topic: str, records: int) -> None:
    """Records of ten bytes in order of time, in batches of 256 KiB."""
    parsed = parse_sink_options({**broker.options, "topic": topic})
    values = pa.array([os.urandom(VALUE_BYTES) for _ in range(CHUNK)], pa.binary())
    with broker.cluster() as cluster:
        producer = TaskProducer(cluster, parsed)
        step = min(CHUNK, records // PARTITIONS)
        for start in range(0, records, step):
            count = min(step, records - start)
            times = pa.array(range(START_MS + start, START_MS + start + count), pa.int64())
            columns = {
                "value": values.slice(0, count),
                "timestamp": pa.compute.multiply(times, 1000).cast(pa.timestamp("us", tz="UTC")),
                "partition": pa.array([start // step % PARTITIONS] * count, pa.int32()),
            }
            producer.add_batch(topic, pa.RecordBatch.from_pydict(columns))
        producer.flush()


def show(name: str, count: int, run: Callable[[int], None]) -> None:
    started = time.perf_counter()
    run(count)
    wall_s = time.perf_counter() - started
    print(f"{name:6} {count:12,} {wall_s:8.1f} {largest_worker_mib():17,}", flush=True)


def largest_worker_mib() -> int:
    """The most memory that one of Spark's Python workers has held."""
    most = 0
    for stat in process_tree():
        pid = int(stat[0].partition(" ")[0])
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if pid != os.getpid() and b"python" in words[0]:
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            most = max(most, *(int(line.split()[1]) for line in lines if line.startswith("VmHWM")))
    return most >> 10


if __name__ == "__main__":
    main()
