"""One table over topic and archive: every row once, while the archive and retention run."""

import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable

from pipeline.errors import BadOptions, DataLoss
from pipeline.jobs import archive as archive_job
from pipeline.jobs.archive import ArchiveSettings, archive
from pipeline.options.narrowing import Narrowing
from pipeline.options.options import SourceOptions, parse_source_options
from pipeline.plan import archived, offsets
from pipeline.plan.journal import Journal
from pipeline.plan.offsets import plan_batch
from pipeline.spark.micro_batches import MicroBatchReader
from pipeline.spark.task import Columns, read_task, tasks_of
from tests.pipeline.conftest import START_MS, Broker, finish, offsets_json

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
PARTITIONS = 3
COLUMNS = ("partition", "offset", "timestamp", "value")

Row = tuple[int, int, int, bytes]
"""Partition, offset, time in ms, value."""


def read_rows(broker: Broker, options: SourceOptions) -> list[Row]:
    """The rows of one batch query without Spark; a condition's evaluation is the caller's part."""
    with broker.cluster() as cluster:
        plan = plan_batch(cluster, options, START_MS)
    rows: list[Row] = []
    for task in tasks_of(plan.files, plan.tasks, plan.oldest_ms, plan.newest_ms):
        for batch in read_task(options, Columns(COLUMNS), task):
            micros = batch.column("timestamp").cast("int64").to_pylist()
            rows += zip(
                batch.column("partition").to_pylist(),
                batch.column("offset").to_pylist(),
                [one // 1000 for one in micros],
                batch.column("value").to_pylist(),
                strict=True,
            )
    return rows


@dataclass
class World:
    """A topic that grows, an archive job that follows it and dies, retention right after it.

    `luck` decides about the archive, `arrivals` about the records: they may run at the same time.
    """

    broker: Broker
    topic: str
    folder: Path
    luck: random.Random
    arrivals: random.Random = field(default_factory=lambda: random.Random(17))
    isolation: str = "read_uncommitted"
    rows: list[Row] = field(default_factory=list)
    """The records that the broker has acknowledged."""
    offered: list[Row] = field(default_factory=list)
    """Those, and the ones that are under way."""
    ends: list[int] = field(default_factory=lambda: [0] * PARTITIONS)
    deaths: int = 0
    batches: int = 0

    @property
    def state_dir(self) -> str:
        return str(self.folder / "state")

    def options(self, **named: str) -> SourceOptions:
        asked = {**self.settings().options, "archive": self.state_dir}
        given = {name.replace("__", "."): value for name, value in named.items()}
        return parse_source_options({**asked, **given}, is_stream=False)

    def settings(self, **named: Any) -> ArchiveSettings:
        return ArchiveSettings(
            options={
                **self.broker.options, "subscribe": self.topic,
                "kafka.isolation.level": self.isolation,
            },
            target=str(self.folder / "lake"), state_dir=self.state_dir, **named,
        )  # fmt: skip

    def produce(self) -> None:
        """Append some records to one partition, of the first three days in any order.

        Where readers see committed records only: in transactions, of which some are aborted.
        """
        luck = self.arrivals
        partition, count = luck.randrange(PARTITIONS), luck.randint(1, 40)
        start, step = START_MS + luck.randrange(3 * DAY_MS), luck.randrange(-500, 30_000)
        first = self.ends[partition]
        in_transaction = self.isolation == "read_committed"
        aborted = in_transaction and luck.random() < 0.3
        times = {number: start + (number - first) * step for number in range(first, first + count)}
        rows = [(partition, number, when, b"v%d" % number) for number, when in times.items()]
        self.offered += () if aborted else rows
        self.broker.produce(
            self.topic, partition, count, start_ms=start - first * step, step_ms=step, first=first,
            transactional_id=f"{self.topic}-{partition}" if in_transaction else None, abort=aborted,
        )  # fmt: skip
        self.rows += () if aborted else rows
        self.ends[partition] += count + in_transaction

    def archive(self, *, may_die: bool = False) -> None:
        """One run; retention deletes what it has written, often before the commit."""
        doomed = self.luck.choice(("plan", "write", "commit", "", "", "")) if may_die else ""

        def progress(step: str) -> None:
            if step == "commit" and self.luck.random() < 0.5:
                self.expire(archive_job._pending(Journal(self.state_dir)))
            if step == doomed:
                self.deaths += 1
                raise InterruptedError(step)

        session: Any = None
        try:
            archive(session, self.settings(), progress)
            self.batches += 1
        except InterruptedError:
            pass

    def archive_with_deaths(self) -> None:
        """Runs up to the first that does not die: readers wait for the commit of an open plan."""
        before = -1
        while before != self.deaths:
            before = self.deaths
            self.archive(may_die=True)

    def expire(self, plan: Any) -> None:
        """Delete what `plan` covers, or a part of it, from the broker."""
        for one in plan.ranges:
            if self.luck.random() < 0.7:
                offset = self.luck.randint(one.start, one.end)
                self.broker.delete_before(self.topic, one.partition, offset)


@pytest.fixture
def world(request: Any, broker: Broker, tmp_path: Path, no_spark: None) -> World:
    made = World(broker, broker.topic(PARTITIONS), tmp_path, random.Random(18))
    made.isolation = getattr(request, "param", made.isolation)
    made.produce()
    made.archive()
    return made


def check_window(world: World, luck: random.Random) -> int:
    """One random window, asked for in one of three ways; how many rows it has."""
    oldest = START_MS + luck.randrange(-HOUR_MS, 3 * DAY_MS)
    newest = oldest + luck.choice((1000, HOUR_MS, DAY_MS, 4 * DAY_MS))
    before = list(world.rows)
    asked = {"startingTimestamp": str(oldest), "startingOffsetsByTimestampStrategy": "latest"}
    way = luck.choice(("strict", "filter", "start"))
    if way == "strict":
        options = world.options(**asked, endingTimestamp=str(newest), timeWindow="strict")
        found = read_rows(world.broker, options)
    elif way == "filter":
        # Spark evaluates the condition too, and the source may return more.
        limits = Narrowing(oldest_ms=oldest, newest_ms=newest).to_option()
        found = read_rows(world.broker, world.options(narrowTo=limits))
        found = [row for row in found if oldest <= row[2] < newest]
    else:
        found = read_rows(world.broker, world.options(**asked))
        starts = {p: [r[1] for r in before if r[0] == p and r[2] >= oldest] for p in range(3)}
        before = [r for r in before if starts[r[0]] and r[1] >= min(starts[r[0]])]
        # Later records may be the first that are young enough.
        found = [r for r in found if starts[r[0]]]
        assert all(r[1] >= min(starts[r[0]]) for r in found)
        oldest, newest = -1, 1 << 62
    after = {row for row in world.offered if oldest <= row[2] < newest}
    assert len(found) == len(set(found)), "a row came twice"
    missing = {row for row in before if oldest <= row[2] < newest} - set(found)
    assert not missing, (way, oldest, newest, sorted(missing)[:5])
    assert set(found) <= after, (way, sorted(set(found) - after)[:5])
    return len(found)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("world", "windows"),
    [("read_uncommitted", 1000), ("read_committed", 200)],
    indirect=["world"],
)
def test_random_windows_equal_a_model_while_archive_and_retention_run(
    world: World, windows: int
) -> None:
    """The number of archive runs depends on that of windows, not on the speed of the machine."""
    luck = random.Random(19)
    rows = []
    with ThreadPoolExecutor(2) as pool:
        growing, archiving = pool.submit(world.produce), pool.submit(world.archive_with_deaths)
        for number in range(windows):
            if number % 5 == 0:
                growing.result()
                growing = pool.submit(world.produce)
            if number % 10 == 0:
                archiving.result()
                archiving = pool.submit(world.archive_with_deaths)
            rows.append(check_window(world, luck))
        growing.result()
        archiving.result()
    assert world.deaths >= windows // 50
    assert world.batches >= windows // 50
    assert sum(rows) > windows
    first = [one.offset for one in firsts(world).values()]
    assert min(first) > 0, "retention has deleted nothing"


def firsts(world: World) -> Any:
    from pipeline.net.cluster import EARLIEST

    partitions = [(world.topic, index) for index in range(PARTITIONS)]
    with world.broker.cluster() as cluster:
        return cluster.list_offsets(dict.fromkeys(partitions, EARLIEST))


def archived_days(world: World) -> None:
    """Three days in the lake and gone from the broker, and a fourth one on the broker."""
    for day in range(4):
        for partition in range(PARTITIONS):
            first = world.ends[partition]
            start = START_MS + day * DAY_MS - first * 1000
            world.broker.produce(world.topic, partition, 10, start_ms=start, first=first)
            world.ends[partition] += 10
        if day == 2:
            world.archive()
            for partition in range(PARTITIONS):
                world.broker.delete_before(world.topic, partition, world.ends[partition])


@pytest.fixture
def days(broker: Broker, tmp_path: Path, no_spark: None) -> World:
    luck = random.Random(1)
    luck.random = lambda: 1.0  # type: ignore[method-assign]
    made = World(broker, broker.topic(PARTITIONS), tmp_path, luck)
    archived_days(made)
    return made


def test_a_window_is_pruned_on_both_sides(days: World) -> None:
    """One day's files and no offset of the broker, or the broker alone."""

    def planned(day: int) -> tuple[set[str], int]:
        span = Narrowing(oldest_ms=START_MS + day * DAY_MS, newest_ms=START_MS + (day + 1) * DAY_MS)
        with days.broker.cluster() as cluster:
            options = days.options(maxLateness="0", narrowTo=span.to_option())
            plan = plan_batch(cluster, options, START_MS)
        names = {Path(part.path).parent.name for task in plan.files for part in task}
        return names, sum(one.size for one in plan.ranges)

    # START_MS is 22:13 of its day, and every day has ten seconds from there.
    assert planned(0) == ({"event_date=2023-11-14"}, 0)
    assert planned(1) == ({"event_date=2023-11-15"}, 0)
    assert planned(3) == (set(), 30)


def test_what_neither_side_has_is_data_loss_or_left_out(days: World) -> None:
    days.broker.delete_before(days.topic, 1, 35)
    with pytest.raises(DataLoss, match=f"{days.topic}-1 30 to 35: retention removed"):
        read_rows(days.broker, days.options())
    found = read_rows(days.broker, days.options(failOnDataLoss="false"))
    assert sorted(row[1] for row in found if row[0] == 1) == [*range(30), *range(35, 40)]
    assert len(found) == 115


def test_a_task_reads_from_the_lake_what_is_deleted_after_its_plan(days: World) -> None:
    """The plan says broker; then the archive writes the records and retention deletes them."""
    options = days.options()
    with days.broker.cluster() as cluster:
        plan = plan_batch(cluster, options, START_MS)
    assert sum(one.size for one in plan.ranges) == 30
    days.archive()
    for partition in range(PARTITIONS):
        days.broker.delete_before(days.topic, partition, 37)
    tasks = tasks_of(plan.files, plan.tasks, plan.oldest_ms, plan.newest_ms)
    batches = [batch for task in tasks for batch in read_task(options, Columns(("offset",)), task)]
    offsets = [number for batch in batches for number in batch.column(0).to_pylist()]
    assert sorted(offsets) == sorted([*range(40)] * PARTITIONS)


def test_records_that_move_to_the_lake_while_a_plan_is_made_are_in_it(
    days: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker no longer has what the snapshot does not have yet: no answer of it shows them."""
    real = offsets.resolve_starts
    moved: list[bool] = []

    def resolve_starts(*arguments: Any) -> Any:
        if not moved:
            moved.append(True)
            days.archive()
            for partition in range(PARTITIONS):
                days.broker.delete_before(days.topic, partition, 40)
        return real(*arguments)

    monkeypatch.setattr(offsets, "resolve_starts", resolve_starts)
    fourth = str(START_MS + 3 * DAY_MS)
    found = read_rows(days.broker, days.options(startingTimestamp=fourth))
    assert sorted(row[1] for row in found) == sorted([*range(30, 40)] * PARTITIONS)


@pytest.mark.parametrize("way", ["offsets", "strict"])
def test_records_that_move_are_in_a_plan_that_reads_commits_on_the_way(
    days: World, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """The broker is asked for a start too late; a gap elsewhere then has newer commits read."""
    real = offsets.resolve_starts
    moved: list[bool] = []

    def resolve_starts(*arguments: Any) -> Any:
        if moved:
            return real(*arguments)
        moved.append(True)
        days.archive()
        days.broker.delete_before(days.topic, 0, 35)
        starts = real(*arguments)
        days.broker.delete_before(days.topic, 1, 35)
        return starts

    monkeypatch.setattr(offsets, "resolve_starts", resolve_starts)
    fourth = str(START_MS + 3 * DAY_MS)
    found = read_rows(days.broker, days.options(startingTimestamp=fourth, timeWindow=way))
    assert sorted(row[1] for row in found) == sorted([*range(30, 40)] * PARTITIONS)


@pytest.mark.parametrize("way", ["offsets", "strict"])
def test_a_batch_that_stays_unfinished_is_data_loss(
    days: World, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """The broker's answer to a start by time shows no gap where neither side has the records."""
    monkeypatch.setattr(archived, "_COMMIT_TIMEOUT_S", 0.0)

    def dies(step: str) -> None:
        if step == "commit":
            raise InterruptedError(step)

    session: Any = None
    with pytest.raises(InterruptedError):
        archive(session, days.settings(), dies)
    options = {"startingTimestamp": str(START_MS + 3 * DAY_MS), "timeWindow": way}
    assert len(read_rows(days.broker, days.options(**options))) == 10 * PARTITIONS
    for partition in range(PARTITIONS):
        days.broker.delete_before(days.topic, partition, 35)
    shown = f"{days.topic}-0 30 to 35.*not finished"
    with pytest.raises(DataLoss, match=shown):
        read_rows(days.broker, days.options(**options))
    found = read_rows(days.broker, days.options(**options, failOnDataLoss="false"))
    assert sorted(row[1] for row in found) == sorted([*range(35, 40)] * PARTITIONS)
    days.archive()
    found = read_rows(days.broker, days.options(**options))
    assert sorted(row[1] for row in found) == sorted([*range(30, 40)] * PARTITIONS)


def test_a_start_and_an_end_in_time_are_looked_up_on_both_sides(days: World) -> None:
    """Kafka's meaning: from the first offset at or after one time to that of another."""

    def spanned(start_ms: int, end_ms: int) -> list[int]:
        asked = {"startingTimestamp": str(start_ms), "endingTimestamp": str(end_ms)}
        rows = read_rows(days.broker, days.options(**asked))
        return sorted(row[1] for row in rows if row[0] == 0)

    assert spanned(START_MS + 5000, START_MS + DAY_MS + 5000) == [*range(5, 15)]
    late = START_MS + 3 * DAY_MS + 2000
    assert spanned(START_MS + 2 * DAY_MS, late) == [*range(20, 32)]
    assert spanned(late, late + DAY_MS) == [*range(32, 40)]
    by_offset = days.options(startingOffsets=offsets_json(days.topic, p0=7, p1=40, p2=40))
    assert sorted(row[1] for row in read_rows(days.broker, by_offset)) == [*range(7, 40)]


def test_an_archive_that_does_not_fit_is_refused(days: World, tmp_path: Path) -> None:
    with pytest.raises(BadOptions, match=r"option archive='.*/lake': .* is no state directory"):
        read_rows(days.broker, days.options(archive=str(tmp_path / "lake")))
    with pytest.raises(BadOptions, match=r"written with kafka\.isolation\.level=read_uncommitted"):
        read_rows(days.broker, days.options(kafka__isolation__level="read_committed"))
    days.isolation = "read_committed"
    with pytest.raises(BadOptions, match="this archive was begun with read_uncommitted"):
        days.archive()
    days.isolation = "read_uncommitted"
    named = {**days.broker.options, "subscribe": days.topic, "archive": days.state_dir}
    named |= {"startingOffsets": "earliest", "journalDir": str(tmp_path / "journal")}
    options = parse_source_options({**named, "failOnDataLoss": "false"}, is_stream=True)
    live = MicroBatchReader(options, Columns(("offset",)))
    start = live.initialOffset()
    end = live.latestOffset(start, ReadAllAvailable())
    assert live.partitions(start, end)
    days.broker.delete_topic(days.topic)
    days.broker.topic(PARTITIONS, days.topic)
    message = f"topic {days.topic} was deleted and created again"
    with pytest.raises(DataLoss, match=message):
        read_rows(days.broker, days.options())
    with pytest.raises(DataLoss, match=message):
        live.partitions(start, end)
    live.stop()


@pytest.mark.core
@pytest.mark.parametrize("lake", ["parquet", "delta", "iceberg"])
def test_one_where_answers_for_topic_and_lake(
    spark: SparkSession, broker: Broker, tmp_path: Path, lake: str
) -> None:
    """SQL over four days, of which the first three are in the lake only."""
    world = World(broker, broker.topic(PARTITIONS), tmp_path, random.Random(1))
    target = "ns.flights" if lake == "iceberg" else str(tmp_path / "lake")
    settings = replace(world.settings(lake=lake), target=target)
    for day in range(4):
        for partition in range(PARTITIONS):
            first = 10 * day
            start = START_MS + day * DAY_MS - first * 1000
            broker.produce(world.topic, partition, 10, start_ms=start, first=first)
        if day == 2:
            archive(spark, settings)
            for partition in range(PARTITIONS):
                broker.delete_before(world.topic, partition, 30)
    frame = spark.read.format("tidelog").options(**settings.options, archive=world.state_dir)
    frame.load().createOrReplaceTempView("flights")
    between = "timestamp BETWEEN '2023-11-16 00:00' AND '2023-11-17 22:13:22'"
    columns = "partition, offset, cast(value AS string)"
    found = spark.sql(f"SELECT {columns} FROM flights WHERE {between}")
    expected = [(p, n, f"v{n}") for p in range(PARTITIONS) for n in range(20, 33)]
    assert sorted(map(tuple, found.collect())) == expected
    whole = frame.option("includeHeaders", "true").load()
    assert whole.count() == 120
    assert whole.select("offset").distinct().count() == 40
    assert {row[0] for row in whole.select("topic").distinct().collect()} == {world.topic}


def test_a_stream_continues_from_the_lake_into_the_topic(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    """Runs of a stream, of which each finds its next records somewhere else."""
    world = World(broker, broker.topic(PARTITIONS), tmp_path, random.Random(1))
    base = world.settings().options
    stream = spark.readStream.format("tidelog").options(
        **base, archive=world.state_dir, startingOffsets="earliest", maxOffsetsPerTrigger="20",
        journalDir=str(tmp_path / "journal"),
    )  # fmt: skip

    def run() -> list[tuple[int, int]]:
        writer = stream.load().select("partition", "offset").writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.option("path", str(tmp_path / "out")).trigger(availableNow=True).start()
        finish(query)
        return sorted(map(tuple, spark.read.parquet(str(tmp_path / "out")).collect()))

    def produce() -> None:
        for partition in range(PARTITIONS):
            broker.produce(world.topic, partition, 20, first=world.ends[partition])
            world.ends[partition] += 20

    def settle() -> None:
        archive(spark, world.settings())
        for partition in range(PARTITIONS):
            broker.delete_before(world.topic, partition, world.ends[partition])

    produce()
    settle()
    produce()
    for _ in range(2):
        assert run() == [(p, n) for p in range(PARTITIONS) for n in range(world.ends[p])]
        produce()
        settle()
        produce()
    assert run() == [(p, n) for p in range(PARTITIONS) for n in range(world.ends[p])]
