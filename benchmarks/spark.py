"""Our Spark source beside Spark's own connector: one broker, one session, both sides in turn.

    python -m benchmarks.spark            # 4,500,000 records of 100 bytes; some minutes
    python -m benchmarks.spark --smoke    # 50,000 records: whether it runs, not how fast

Both sides read the same topic of four partitions on local[2] into `noop`, ours with default
options, the connector with `kafka.max.poll.records=10000`: with its default it requests both ends
of the partition every 500 records. Both sinks write rows that Spark generates into new topics. The
slices of 1 % of the time lie in the middle: between two offsets found by time, as Kafka's source
has it, and strict, where older records after the window count too: shortened by the user's
`maxLateness`, by the times of segments that the broker gives, and by neither.
The connector comes from Maven Central (`tests.pipeline.connector.conftest`); without it only
our side is measured. The lines run by turns, every second round in the opposite order, and each is
the median of its rounds, after one round that does not count: the JVM compiles what it has run
often. CPU seconds are those of the driver, the JVM and all Python workers, not the broker's. Many
workers end before they can be asked, and PySpark's daemon waits for none, so only a control group
(cgroup 2, as root) counts all of them. Memory is what these hold at the end of a line's last run;
the JVM gives little back, so the first line that needs much shows it.
Compare ratios, not absolute numbers: the machine matters.
"""

import argparse
import contextlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.harness import machine
from pipeline.jobs.archive import ArchiveSettings, archive
from pipeline.net.producing import TaskProducer
from pipeline.options.options import parse_sink_options
from pipeline.records import arrow_loops
from pipeline.spark.session import by_partition, session, where
from tests.pipeline.conftest import START_MS, Broker

PARTITIONS = 4
VALUE_BYTES = 100
STEP_MS = 10
SEGMENT_BYTES = 16 << 20
SLICE = {"timeWindow": "strict", "maxLateness": "1m"}
CONNECTOR = {"kafka.max.poll.records": "10000"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one run took."""

    wall_s: float
    cpu_s: float
    memory_mib: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """Which lines are measured: of how many records, how often, whose names have an `only`.

    Rounds below 0 do not count. `cpu_s` gives what all processes but the broker's have used so far.
    """

    records: int
    rounds: int
    first: int
    only: tuple[str, ...]
    cpu_s: Callable[[], float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=4_500_000)
    parser.add_argument("--smoke", action="store_true", help="few records, one run each")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--only", action="append", default=[], metavar="TEXT",
        help="lines that contain this; may be repeated",
    )  # fmt: skip
    options = parser.parse_args()
    records = 50_000 if options.smoke else options.records
    rounds = 1 if options.smoke else options.rounds
    if not options.smoke:
        machine.touch_memory()
    with (
        tempfile.TemporaryDirectory(prefix="tidelog-spark-") as folder,
        running(folder) as broker,
        cpu_clock() as cpu_s,
    ):
        spark, has_connector = start_session()
        topic = broker.topic(PARTITIONS, segment_bytes=str(SEGMENT_BYTES))
        fill(broker, topic, records)
        lines = Lines(
            records=records,
            rounds=rounds,
            first=0 if options.smoke else -1,
            only=tuple(options.only),
            cpu_s=cpu_s,
        )
        table = measure(spark, broker, topic, lines, folder, has_connector=has_connector)
        show(table, records)
        spark.stop()


@contextlib.contextmanager
def running(folder: str) -> Iterator[Broker]:
    broker = Broker(Path(folder) / "data")
    try:
        yield broker
    finally:
        broker.stop()


def start_session() -> tuple[SparkSession, bool]:
    """A session with the connector's JARs where they can be had."""
    from tests.pipeline.connector.conftest import fetch_jars

    settings = {"spark.driver.memory": "2g"}
    try:
        settings["spark.jars"] = ",".join(map(str, fetch_jars()))
    except BaseException as error:  # noqa: BLE001 - pytest's skip is no Exception
        print(f"without Spark's own connector: {error}", file=sys.stderr)
    return session("local[2]", settings=settings), "spark.jars" in settings


def fill(broker: Broker, topic: str, records: int) -> None:
    """Records in order of time, batches of about 64 KiB, as a busy producer leaves them."""
    parsed = parse_sink_options({**broker.options, "topic": topic, "batchBytes": "64k"})
    value = os.urandom(VALUE_BYTES)
    with broker.cluster() as cluster:
        producer = TaskProducer(cluster, parsed)
        for number in range(records):
            producer.add(
                topic, number % PARTITIONS, START_MS + number * STEP_MS, b"k%07d" % number, value
            )
        producer.flush()


def measure(
    spark: SparkSession,
    broker: Broker,
    topic: str,
    lines: Lines,
    folder: str,
    *,
    has_connector: bool,
) -> dict[str, Cost]:
    def scan(kind: str, **options: str) -> Callable[[int], None]:
        more = CONNECTOR if kind == "kafka" else {}

        def run(_: int) -> None:
            frame = spark.read.format(kind).options(**broker.options, **more, **options)
            frame.option("subscribe", topic).load().write.format("noop").mode("overwrite").save()

        return run

    first_ms = START_MS + lines.records * STEP_MS // 2
    last_ms = first_ms + lines.records * STEP_MS // 100
    window = {"startingTimestamp": str(first_ms), "endingTimestamp": str(last_ms)}

    def filtered(_: int) -> None:
        options = {**broker.options, "subscribe": topic, "maxLateness": "1m"}
        condition = "timestamp >= timestamp_millis({}) and timestamp < timestamp_millis({})"
        rows = where(spark, options, condition.format(first_ms, last_ms))
        rows.write.format("noop").mode("overwrite").save()

    def ours_archive(number: int) -> None:
        settings = ArchiveSettings(
            options={**broker.options, "subscribe": topic},
            target=f"{folder}/lake{number}",
            state_dir=f"{folder}/state{number}",
        )
        archive(spark, settings)

    def write(kind: str, *, delivery: str = "") -> Callable[[int], None]:
        def run(_: int) -> None:
            copy = broker.topic(PARTITIONS)
            rows = spark.range(lines.records, numPartitions=PARTITIONS)
            value = f"cast(rpad(string(id), {VALUE_BYTES}, 'x') as binary) value"
            frame = rows.selectExpr("cast(string(id) as binary) key", value)
            more = {}
            if delivery:
                frame = by_partition(frame, broker.bootstrap, copy)
                more = {"delivery": delivery, "transactionalIdPrefix": copy}
            sink = frame.write.format(kind).options(**broker.options, **more, topic=copy)
            sink.mode("append").save()

        return run

    def theirs_archive(number: int) -> None:
        frame = spark.read.format("kafka").options(**broker.options, **CONNECTOR)
        frame = frame.option("subscribe", topic)
        dated = (
            frame.option("includeHeaders", "true")
            .load()
            .selectExpr("*", "to_date(timestamp) as event_date")
        )
        writer = dated.write.option("compression", "zstd").partitionBy("event_date")
        writer.parquet(f"{folder}/theirs{number}")

    runs: dict[str, Callable[[int], None]] = {
        "read, ours": scan("tidelog"),
        "read, ours, 3 columns": scan("tidelog", columns="partition,offset,timestamp"),
        "read, connector": scan("kafka"),
        "1 % between two times": scan("tidelog", **window),
        "1 % strict, maxLateness": scan("tidelog", **window, **SLICE),
        "1 % strict": scan("tidelog", **window, timeWindow="strict"),
        "1 % strict, to the end": scan(
            "tidelog", **window, timeWindow="strict", **{"segments.statistics": "127.0.0.1:1"}
        ),
        "1 % by condition, maxLateness": filtered,
        "1 % between two times, connector": scan("kafka", **window),
        "write, ours": write("tidelog"),
        "write, ours, exactly once": write("tidelog", delivery="exactly-once"),
        "write, connector": write("kafka"),
        "archive, ours": ours_archive,
        "archive, connector + writer": theirs_archive,
    }
    runs = {
        name: run
        for name, run in runs.items()
        if (not lines.only or any(text in name for text in lines.only))
        and (has_connector or "connector" not in name)
    }
    found: dict[str, list[Cost]] = {name: [] for name in runs}
    for number in range(lines.first, lines.rounds):
        names = list(runs)
        for name in names if number % 2 == 0 else reversed(names):
            cost = costed(partial(runs[name], number), lines.cpu_s)
            print(
                f"... {name}: {cost.wall_s:.2f} s, CPU {cost.cpu_s:.2f} s, {cost.memory_mib} MiB"
                + (" (does not count)" if number < 0 else ""),
                file=sys.stderr,
            )
            if number >= 0:
                found[name].append(cost)
    return {name: median(costs) for name, costs in found.items()}


def median(costs: list[Cost]) -> Cost:
    """The median of each figure, and the memory after the last run."""
    return Cost(
        wall_s=statistics.median(cost.wall_s for cost in costs),
        cpu_s=statistics.median(cost.cpu_s for cost in costs),
        memory_mib=costs[-1].memory_mib,
    )


def costed(run: Callable[[], None], cpu_s: Callable[[], float]) -> Cost:
    used_s, started = cpu_s(), time.perf_counter()
    run()
    wall_s = time.perf_counter() - started
    return Cost(wall_s=wall_s, cpu_s=cpu_s() - used_s, memory_mib=tree_mib())


@contextlib.contextmanager
def cpu_clock() -> Iterator[Callable[[], float]]:
    """CPU seconds so far of this process and all that it starts meanwhile, as a call.

    It asks a control group, which counts ended processes too; without the right to make one it
    adds up those that there are, without the broker.
    """
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    root = next((Path(where) for _, where, kind, *_ in mounts if kind == "cgroup2"), None)
    if root is None or not os.access(root / "cgroup.procs", os.W_OK):
        print("no control group: the CPU of workers that ended is missing", file=sys.stderr)
        yield tree_cpu_s
        return
    group = root / f"tidelog-spark-{os.getpid()}"
    group.mkdir()
    (group / "cgroup.procs").write_text(str(os.getpid()))
    try:
        yield partial(group_cpu_s, group)
    finally:
        # The JVM outlives its session.
        for pid in (group / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):
                (root / "cgroup.procs").write_text(pid)
        group.rmdir()


def group_cpu_s(group: Path) -> float:
    """CPU seconds of a control group so far, those of ended processes included."""
    stat = dict(line.split() for line in (group / "cpu.stat").read_text().splitlines())
    return int(stat["usage_usec"]) / 1e6


def process_tree() -> list[list[str]]:
    """/proc/PID/stat, from the state on, of this process and all below it but the broker."""
    stats = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            name, _, rest = path.read_text().rpartition(") ")
            stats[int(path.parent.name)] = [name, *rest.split()]
    kept = {os.getpid()}
    grew = True
    while grew:
        below = {pid for pid, stat in stats.items() if int(stat[2]) in kept and not is_broker(pid)}
        grew = not below <= kept
        kept |= below
    return [stats[pid] for pid in kept if pid in stats]


def is_broker(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return b"log.dirs=" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def tree_cpu_s() -> float:
    """CPU seconds so far, also of ended children for which their parent has waited."""
    ticks = sum(sum(map(int, stat[12:16])) for stat in process_tree())
    return ticks / os.sysconf("SC_CLK_TCK")


def tree_mib() -> int:
    """Resident memory now; pages that processes share are counted in each."""
    pages = sum(int(stat[22]) for stat in process_tree())
    return pages * os.sysconf("SC_PAGE_SIZE") >> 20


def comparisons(table: dict[str, Cost]) -> list[tuple[str, str, float | None, float | None]]:
    """What is divided by what, and how much time and CPU it may take of it."""
    slices = [name for name in table if name.startswith("1 %") and "connector" not in name]
    return [
        ("read, ours", "read, connector", 0.5, 0.7),
        *((name, "read, ours", 1 / 8, None) for name in slices),
        ("write, ours", "write, connector", 1.0, 1.0),
        ("write, ours, exactly once", "write, connector", 1.5, None),
        ("archive, ours", "archive, connector + writer", None, None),
    ]


def show(table: dict[str, Cost], records: int) -> None:
    load = os.getloadavg()[0]
    loops = "compiled" if arrow_loops.COMPILED else "plain Python"
    print(f"{records:,} records of {VALUE_BYTES} B, local[2], loops {loops}, load {load:.1f}")
    print(f"{'':34} {'wall s':>8} {'CPU s':>8} {'Mrec/s':>8} {'MiB':>7}")
    for name, cost in table.items():
        rate = records / cost.wall_s / 1e6
        print(f"{name:34} {cost.wall_s:8.2f} {cost.cpu_s:8.2f} {rate:8.2f} {cost.memory_mib:7,}")
    for name, other, *bounds in comparisons(table):
        if name in table and other in table:
            ratios = (
                table[name].wall_s / table[other].wall_s,
                table[name].cpu_s / max(table[other].cpu_s, 0.01),
            )
            for figure, ratio, bound in zip(("time", "CPU"), ratios, bounds, strict=True):
                goal = "" if bound is None else f" (goal {bound:.3g})"
                print(f"{name} / {other}: {figure} {ratio:.2f}{goal}")
    print(json.dumps({name: asdict(cost) for name, cost in table.items()}))


if __name__ == "__main__":
    main()
