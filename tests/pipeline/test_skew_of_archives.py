"""Skew of an archive, and of topic and archive as one: the figures of the whole topic."""

import json
import random
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipeline.errors import BadOptions, DataLoss
from pipeline.jobs.archive import ArchiveSettings, archive
from pipeline.jobs.outcome import JobCode, Outcome
from pipeline.jobs.skew import LakeSkewSettings, SkewSettings, skew, skew_lake
from pipeline.launch import main
from pipeline.options.options import parse_source_options
from pipeline.plan.offsets import plan_batch
from pipeline.plan.segments import read_range
from pipeline.records.batches import DecodeRules
from protocol.records.lateness import Lateness, quantile
from tests.pipeline.conftest import QUERY_TIMEOUT_S, START_MS, Broker

HOUR_MS = 3_600_000
PARTITIONS = 3

Record = tuple[int, int, int, int]
"""Partition, offset, time in ms, timestamp type."""


def produce(broker: Broker, topic: str, luck: random.Random, ends: list[int]) -> None:
    """Batches from four days in any order, in two of three partitions."""
    for _ in range(24):
        partition = luck.randrange(PARTITIONS - 1)
        first, count = ends[partition], luck.randint(1, 60)
        step = luck.randrange(-900_000, 900_000)
        start = START_MS + luck.randrange(96) * HOUR_MS - first * step
        broker.produce(topic, partition, count, first=first, start_ms=start, step_ms=step)
        ends[partition] += count


def read_all(broker: Broker, topic: str) -> list[Record]:
    """The records of a topic, without a job."""
    options = parse_source_options({**broker.options, "subscribe": topic}, is_stream=False)
    rules = DecodeRules(columns=("partition", "offset", "timestamp", "timestampType"))
    with broker.cluster() as cluster:
        found: list[Record] = []
        for one in plan_batch(cluster, options, START_MS).ranges:
            for batch in read_range(cluster, options, one, rules):
                partitions, offsets, micros, kinds = (
                    column.cast("int64").to_pylist() for column in batch.columns
                )
                millis = [one // 1000 for one in micros]
                found += zip(partitions, offsets, millis, kinds, strict=True)
    return sorted(found)


def judged_one_by_one(records: list[Record]) -> list[tuple[int, ...]]:
    """By partition and hour: records, those that are late, by how much, quantiles, kinds, ends."""
    hours: dict[tuple[int, int], tuple[Lateness, list[int], list[int]]] = defaultdict(
        lambda: (Lateness(), [], [])
    )
    youngest: dict[int, int] = {}
    for partition, _, when, kind in records:
        late = max(youngest.get(partition, when) - when, 0)
        youngest[partition] = max(youngest.get(partition, when), when)
        counts, times, kinds = hours[partition, when // HOUR_MS]
        # An hour's own count of a record that is late by so much.
        counts.youngest_ms = when + late
        counts.add(when)
        times.append(when)
        kinds.append(kind)
    return [
        (
            partition, counts.records, counts.out_of_order, counts.largest_step_back_ms,
            quantile(counts.histogram, 0.5), quantile(counts.histogram, 0.99), sum(kinds),
            min(times), max(times),
        )
        for (partition, _), (counts, times, kinds) in sorted(hours.items())
    ]  # fmt: skip


def figures(outcome: Outcome) -> list[tuple[int, ...]]:
    return [
        (
            row["partition"], row["records"], row["out_of_order"], row["largest_step_back_ms"],
            row["late_p50_ms"], row["late_p99_ms"], row["log_append_time"],
            row["min_timestamp_ms"], row["max_timestamp_ms"],
        )
        for row in outcome.rows
    ]  # fmt: skip


def run_archive(spark: Any, broker: Broker, topic: str, folder: Path, **options: str) -> str:
    """One run of the archive job; its state directory."""
    state_dir = str(folder / "state")
    settings = ArchiveSettings(
        options={**broker.options, "subscribe": topic, **options},
        target=str(folder / "lake"), state_dir=state_dir,
    )  # fmt: skip
    assert archive(spark, settings).code == JobCode.DONE
    return state_dir


def wait_for_compaction(broker: Broker, topic: str, before: int) -> None:
    """Until some records are gone, and two looks find the same ones."""
    deadline = time.monotonic() + QUERY_TIMEOUT_S
    last, found = None, read_all(broker, topic)
    while last != found or len(found) == before:
        assert time.monotonic() < deadline, "nothing was compacted"
        time.sleep(2)
        last, found = found, read_all(broker, topic)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"message_timestamp_type": "LogAppendTime"},
        {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.01", "segment_bytes": "6000"},
    ],
    ids=["disorder", "log append time", "compaction"],
)
def test_an_archive_has_the_figures_of_its_topic(
    settings: dict[str, str], broker: Broker, tmp_path: Path, no_spark: Any
) -> None:
    """Two batches of the archive, each with a file for most days; one partition is empty.

    What compaction removes after it was archived is in the archive only, so that is one batch.
    """
    is_compacted = "cleanup_policy" in settings
    topic, luck, ends = broker.topic(PARTITIONS, **settings), random.Random(5), [0] * PARTITIONS
    for _ in range(1 if is_compacted else 2):
        produce(broker, topic, luck, ends)
        if is_compacted:
            wait_for_compaction(broker, topic, sum(ends))
        state_dir = run_archive(no_spark, broker, topic, tmp_path, maxRecordsPerPartition="300")
    options = {**broker.options, "subscribe": topic}
    outcome = skew(no_spark, SkewSettings(options=options))
    brute = judged_one_by_one(read_all(broker, topic))
    assert figures(outcome) == brute
    if "message_timestamp_type" in settings:
        assert sum(row["log_append_time"] for row in outcome.rows) == sum(ends)
    else:
        assert len(brute) > (10 if is_compacted else 50)
        assert outcome.report["out_of_order"] > 50
    assert outcome.report["max_lateness_ms"] == max(row[3] for row in brute)
    assert "note" not in outcome.report
    alone = skew_lake(no_spark, LakeSkewSettings(state_dir=state_dir))
    both = skew(no_spark, SkewSettings(options={**options, "archive": state_dir}))
    assert alone.rows == both.rows == outcome.rows
    for archived in (alone, both):
        assert "no append time of records with a create time" in archived.report["note"]
        assert archived.report["note"] in archived.sentence


@pytest.fixture
def grown(broker: Broker, tmp_path: Path, no_spark: Any) -> tuple[str, str, list[int]]:
    """A topic whose first half is archived, its archive's state, and the archive's ends."""
    topic, luck, ends = broker.topic(PARTITIONS), random.Random(6), [0] * PARTITIONS
    produce(broker, topic, luck, ends)
    state_dir = run_archive(no_spark, broker, topic, tmp_path)
    archived = list(ends)
    produce(broker, topic, luck, ends)
    return topic, state_dir, archived


def test_topic_and_archive_are_one_where_retention_has_deleted(
    broker: Broker, grown: tuple[str, str, list[int]], no_spark: Any
) -> None:
    """A record of the topic is late by one that only the lake has; windows keep their starts."""
    topic, state_dir, archived = grown
    options = {**broker.options, "subscribe": topic}
    windows: list[dict[str, str]] = [{}]
    luck = random.Random(9)
    for _ in range(12):
        oldest = START_MS + luck.randrange(80 * HOUR_MS)
        windows.append({
            "startingTimestamp": str(oldest), "endingTimestamp": str(oldest + 20 * HOUR_MS),
            "timeWindow": "strict",
        })  # fmt: skip
    windows.append({"endingTimestamp": str(START_MS + 20 * HOUR_MS), "timeWindow": "strict"})
    whole = [skew(no_spark, SkewSettings(options={**options, **window})) for window in windows]
    assert min(len(outcome.rows) for outcome in whole) > 4
    broker.delete_before(topic, 0, archived[0])
    broker.delete_before(topic, 1, archived[1] // 2)
    options["archive"] = state_dir
    for window, outcome in zip(windows, whole, strict=True):
        both = skew(no_spark, SkewSettings(options={**options, **window}))
        assert both.rows == outcome.rows, window
    broker.delete_before(topic, 1, archived[1] + 1)
    with pytest.raises(DataLoss, match=f"{topic}-1 {archived[1]} to {archived[1] + 1}"):
        skew(no_spark, SkewSettings(options=options))


def test_records_that_move_to_the_lake_before_a_task_reads_them_keep_their_order(
    broker: Broker,
    grown: tuple[str, str, list[int]],
    tmp_path: Path,
    no_spark: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The plan says broker; then the archive writes the records and retention deletes them."""
    topic, state_dir, _ = grown
    options = {**broker.options, "subscribe": topic}
    whole = skew(no_spark, SkewSettings(options=options))

    def run_late(_: Any, work: Callable[[Any], Any], tasks: Sequence[Any]) -> list[Any]:
        run_archive(no_spark, broker, topic, tmp_path)
        for partition, end in enumerate(broker.ends(topic)):
            broker.delete_before(topic, partition, max(end - 3, 0))
        return [work(task) for task in tasks]

    monkeypatch.setattr("pipeline.jobs.skew.run_tasks", run_late)
    both = skew(no_spark, SkewSettings(options={**options, "archive": state_dir}))
    assert both.rows == whole.rows


def test_an_archive_by_itself_is_judged_by_windows_and_topics(
    broker: Broker, tmp_path: Path, no_spark: Any
) -> None:
    """As its topic is; also when the lake was moved and no broker answers for it."""
    topic, luck, ends = broker.topic(PARTITIONS), random.Random(7), [0] * PARTITIONS
    other = broker.topic(1)
    produce(broker, topic, luck, ends)
    broker.produce(other, 0, 5)
    state_dir = run_archive(no_spark, broker, f"{topic},{other}", tmp_path)
    oldest, newest = START_MS + 30 * HOUR_MS + 1, START_MS + 60 * HOUR_MS
    window = {"startingTimestamp": str(oldest), "endingTimestamp": str(newest)}
    options = {**broker.options, "subscribe": topic, **window, "timeWindow": "strict"}
    outcome = skew(no_spark, SkewSettings(options=options))
    moved = tmp_path / "moved"
    (tmp_path / "lake").rename(moved)
    asked: dict[str, Any] = {"state_dir": state_dir, "topics": (topic,)}
    times: dict[str, Any] = {"oldest_ms": oldest, "newest_ms": newest, "source": str(moved)}
    found = skew_lake(no_spark, LakeSkewSettings(**times, **asked))
    assert len(found.rows) > 5
    assert found.rows == outcome.rows
    every = skew_lake(no_spark, LakeSkewSettings(source=str(moved), state_dir=state_dir))
    assert every.report["records"] == sum(ends) + 5
    with pytest.raises(DataLoss, match=r"lists .*\.parquet, and it is not there"):
        skew_lake(no_spark, LakeSkewSettings(**asked))
    with pytest.raises(BadOptions, match=f"topic nothing: the archive .* only of .*{topic}"):
        skew_lake(no_spark, LakeSkewSettings(state_dir=state_dir, topics=("nothing",)))
    asked |= {"source": str(moved), "output": str(tmp_path / "table")}
    for beyond in ({"oldest_ms": START_MS + 10**12}, {"newest_ms": START_MS - 10**12}):
        outcome = skew_lake(no_spark, LakeSkewSettings(**{**asked, **beyond}))
        assert (outcome.code, outcome.sentence) == (JobCode.NOTHING_TO_DO, "no records")


def test_an_archive_that_does_not_fit_is_refused(
    broker: Broker, grown: tuple[str, str, list[int]], tmp_path: Path, no_spark: Any
) -> None:
    topic, state_dir, _ = grown
    options = {**broker.options, "subscribe": topic}
    with pytest.raises(BadOptions, match=r"option archive='.*/lake is no state directory of an"):
        skew(no_spark, SkewSettings(options={**options, "archive": str(tmp_path / "lake")}))
    with pytest.raises(BadOptions, match=r"^--state-dir '.*/lake is no state directory of an"):
        skew_lake(no_spark, LakeSkewSettings(state_dir=str(tmp_path / "lake")))
    committed = {**options, "archive": state_dir, "kafka.isolation.level": "read_committed"}
    with pytest.raises(BadOptions, match="level to read_uncommitted"):
        skew(no_spark, SkewSettings(options=committed))


@pytest.mark.core
def test_the_command_judges_lake_and_topic_in_spark(
    spark: SparkSession,
    broker: Broker,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each part of a partition in another file, in tasks of Spark; the dry runs read nothing."""
    topic, luck, ends = broker.topic(PARTITIONS), random.Random(8), [0] * PARTITIONS
    produce(broker, topic, luck, ends)
    state_dir = run_archive(spark, broker, topic, tmp_path)

    def run(*words: str) -> Any:
        assert main(["skew", "--json", *words]) == 0
        return json.loads(capsys.readouterr().out)

    base = ["-b", broker.bootstrap, "--topic", topic]
    whole = run(*base)
    assert whole["records"] == sum(ends)
    broker.delete_before(topic, 0, ends[0])
    both = [*base, "--option", f"archive={state_dir}"]
    assert run(*both)["rows"] == whole["rows"]
    alone = run("--state-dir", state_dir, "--output", str(tmp_path / "table"))
    assert alone["rows"] == whole["rows"]
    written = spark.read.parquet(str(tmp_path / "table")).collect()
    assert [row.asDict() for row in sorted(written)] == sorted(
        alone["rows"], key=lambda row: tuple(row.values())
    )
    plan = run("--dry-run", *both)
    assert (plan["offsets"], plan["of"]) == (sum(ends), sum(ends))
    assert [row["from_lake"] for row in plan["partitions"]] == [
        f"0-{ends[0]}", f"0-{ends[1]}", "",
    ]  # fmt: skip
    plan = run("--dry-run", "--state-dir", state_dir)
    assert plan["offsets"] == sum(ends)
    assert [row["read"] for row in plan["partitions"]] == [f"0-{ends[0]}", f"0-{ends[1]}"]
    assert all(row["files"] > 1 for row in plan["partitions"])
