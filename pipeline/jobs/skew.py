"""skew: how late, how disordered and how plausible the times of a topic or of its archive are.

One row for each partition and hour of event time: the number of records, how many of them are older
than their predecessor, the largest step back, lateness as a histogram with its quantiles, times in
the future, and a guess whether the numbers are in milliseconds at all.

`protocol.records.lateness` says what late means. The workers compute it, one partition each, in
order of offsets; only counts come back. Three sources give the same figures for the same records:

    skew        a topic          the broker, or the files of its segments
    skew        archive=STATE    what the lake has from its files, the rest from the broker
    skew_lake   an archive       its files alone, without a broker

A file of the lake holds one event date, so the files of a partition are merged by offset. An
archive has the timestamp and the timestamp type of each record. When a record with a create time
was appended, or the create time of a record that the broker stamped, is in no file.

Read next: `pipeline.plan.reading`, `pipeline.plan.lake_files`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from client.times import UTC, find_unit_mistake, format_time
from pipeline.errors import BadOptions
from pipeline.jobs.outcome import JobCode, Outcome, Progress, silent
from pipeline.jobs.plan import describe_plan, parse_job_options, stretches
from pipeline.jobs.restore import committed_path
from pipeline.jobs.spreading import run_tasks
from pipeline.net.cluster import Cluster
from pipeline.options.narrowing import NO_LOWER_TIME, NO_UPPER_TIME
from pipeline.options.options import Boundary, SourceOptions
from pipeline.options.reader import spark_path
from pipeline.plan.archived import ALONE, Archive, FilePart
from pipeline.plan.folders import folder_of
from pipeline.plan.lake_files import first_offsets, read_in_order
from pipeline.plan.offsets import ReadPlan, plan_batch
from pipeline.plan.segments import read_range
from pipeline.plan.splits import OffsetRange
from pipeline.plan.union import divide, open_archive
from pipeline.records.batches import DecodeRules
from protocol.records.lateness import LATENESS_MS, quantile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_HOUR_MS: Final = 3_600_000
_FAR: Final = 2**62
_LATEST: Final = Boundary(option="endingOffsets", place="latest")
_NO_APPEND_TIMES: Final = (
    "an archive has no append time of records with a create time, and no create time of records "
    "with a log append time: each was judged by its timestamp and offset"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SkewSettings:
    """The records to examine; a time is in the future when it is `future_ms` ahead of now."""

    options: Mapping[str, str]
    future_ms: int = _HOUR_MS
    output: str = ""
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeSkewSettings:
    """The archive to examine by itself.

    Attributes:
        state_dir: the archive's state directory, which lists its files.
        source: the directory of the lake where it is now; empty where it was written.
        topics: only records of these archived topics; empty for all.
        oldest_ms: from this event time on; None for all.
        newest_ms: before this event time; None for all.
        future_ms: a time is in the future when it is so far ahead of now.
        output: where the table is written as Parquet; empty for nowhere.
        dry_run: report the offsets and files, read no record.
    """

    state_dir: str
    source: str = ""
    topics: tuple[str, ...] = ()
    oldest_ms: int | None = None
    newest_ms: int | None = None
    future_ms: int = _HOUR_MS
    output: str = ""
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Stretch:
    """Neighbouring offsets of one partition from one side: from `files`, or the broker's if None.

    Picklable: numbers and names.
    """

    wanted: OffsetRange
    files: tuple[FilePart, ...] | None = None


def skew(spark: SparkSession, settings: SkewSettings, progress: Progress = silent) -> Outcome:
    """The table of disorder of topics, also written to `output` (Parquet) if given.

    With the option `archive` it is that of the topics and their archive as one.

    Raises:
        BadOptions: options of the source that cannot be carried out.
        DataLoss: records are on neither side, and `failOnDataLoss` is on.
    """
    options = parse_job_options(settings.options, {"onMalformedTimestamp": "clamp"})
    now_ms = time.time_ns() // 1_000_000
    with Cluster(options.connection) as cluster:
        progress("plan")
        plan = plan_batch(cluster, options, now_ms)
        if settings.dry_run:
            return describe_plan(cluster, plan, cluster.partitions(options.choice))
        ranges = _joined(_ranges_of(plan))
        if options.archive:
            ranges = _from_first_records(cluster, options, ranges, now_ms)
            tasks = _of_both_sides(cluster, options, ranges)
        else:
            tasks = [(Stretch(one),) for one in ranges]
    return _judged(spark, settings, options, tasks, (plan.oldest_ms, plan.newest_ms), progress)


def skew_lake(
    spark: SparkSession, settings: LakeSkewSettings, progress: Progress = silent
) -> Outcome:
    """The table of disorder of an archive by itself, as `skew` gives it; no broker is asked.

    Raises:
        BadOptions: `state_dir` is not the state directory of an archive, or the archive has no
            record of one of the topics.
        DataLoss: a file that the archive lists is not there, or has another size.
    """
    progress("plan")
    archive, ranges = open_lake(settings.state_dir, settings.source, settings.topics)
    oldest_ms = NO_LOWER_TIME if settings.oldest_ms is None else settings.oldest_ms
    newest_ms = NO_UPPER_TIME if settings.newest_ms is None else settings.newest_ms
    if settings.oldest_ms is not None:
        times = dict.fromkeys((one.topic_partition for one in ranges), oldest_ms)
        ranges = _starting_at(ranges, first_offsets(archive, ALONE, times))
    tasks = tasks_of_lake(archive, ranges)
    if settings.dry_run:
        return describe_lake(tasks)
    return _judged(spark, settings, ALONE, tasks, (oldest_ms, newest_ms), progress)


def open_lake(
    state_dir: str, source: str, topics: Sequence[str]
) -> tuple[Archive, list[OffsetRange]]:
    """The archive of `state_dir`, below `source` if given, and its offsets of `topics` (or all).

    Raises as `skew_lake`.
    """
    archive = Archive(state_dir, name="--state-dir ")
    if source:
        folder = folder_of(source)
        archive.files = [replace(file, path=committed_path(folder, file)) for file in archive.files]
    ranges = archive.ranges()
    if not topics:
        return archive, ranges
    known = {one.topic for one in ranges}
    if missing := sorted(set(topics) - known):
        raise BadOptions(
            *[
                f"topic {name}: the archive {state_dir!r} has no record of it, only "
                f"of {', '.join(sorted(known)) or 'no topic'}"
                for name in missing
            ]
        )
    return archive, [one for one in ranges if one.topic in topics]


def tasks_of_lake(archive: Archive, ranges: Sequence[OffsetRange]) -> list[tuple[Stretch, ...]]:
    """One task for each partition of `ranges`, in the order of offsets."""
    return [_of_lake(archive, one, ranges) for one in _joined(ranges)]


def _judged(
    spark: SparkSession,
    settings: SkewSettings | LakeSkewSettings,
    options: SourceOptions,
    tasks: list[tuple[Stretch, ...]],
    window: tuple[int, int],
    progress: Progress,
) -> Outcome:
    """The outcome for `tasks`, one for each partition, and for the hours of `window`."""
    progress("read")
    newest_ms = time.time_ns() // 1_000_000 + settings.future_ms
    judged = run_tasks(spark, lambda task: judge_partition(options, task, newest_ms), tasks)
    rows = [
        row
        for found in judged
        for row in found
        if row["max_timestamp_ms"] >= window[0] and row["min_timestamp_ms"] < window[1]
    ]
    if not rows:
        return Outcome(code=JobCode.NOTHING_TO_DO, sentence="no records")
    if settings.output:
        table = spark.createDataFrame(pa.Table.from_pylist(rows))
        table.write.mode("overwrite").parquet(spark_path(settings.output))
    doubtful = sum(row["future"] for row in rows)
    disordered = sum(row["out_of_order"] for row in rows)
    total = sum(row["records"] for row in rows)
    lateness_ms = max(row["largest_step_back_ms"] for row in rows)
    sentence = (
        f"{total:,} records: {disordered:,} out of order, {doubtful:,} in the future; "
        f"maxLateness={lateness_ms}ms holds for them"
    )
    report = {
        "records": total, "out_of_order": disordered, "future": doubtful,
        "max_lateness_ms": lateness_ms, "rows": rows,
    }  # fmt: skip
    if any(one.files is not None for task in tasks for one in task):
        sentence += f"; {_NO_APPEND_TIMES}"
        report["note"] = _NO_APPEND_TIMES
    return Outcome(sentence=sentence, report=report, rows=tuple(rows))


def judge_partition(
    options: SourceOptions, task: tuple[Stretch, ...], newest_ms: int
) -> list[dict[str, Any]]:
    """The rows of one partition; runs in a worker."""
    one = task[0].wanted
    return judge(one.topic, one.partition, _read(options, task), newest_ms)


def _read(options: SourceOptions, task: Iterable[Stretch]) -> Iterator[pa.RecordBatch]:
    """The records of `task` in the order of their offsets."""
    rules = DecodeRules(
        columns=("timestamp", "timestampType"), read_committed=options.read_committed,
        verify_checksums=options.verify_checksums, on_malformed="clamp",
    )  # fmt: skip
    with ExitStack() as stack:
        cluster: Cluster | None = None
        for stretch in task:
            if stretch.files is not None:
                yield from read_in_order(
                    stretch.files, rules, fail_on_data_loss=options.fail_on_data_loss
                )
                continue
            cluster = cluster or stack.enter_context(Cluster(options.connection))
            yield from read_range(cluster, options, stretch.wanted, rules)


def _ranges_of(plan: ReadPlan) -> list[OffsetRange]:
    """The offsets that a plan reads on both sides."""
    return [*plan.ranges, *plan.archived]


def _from_first_records(
    cluster: Cluster, options: SourceOptions, ranges: list[OffsetRange], now_ms: int
) -> list[OffsetRange]:
    """`ranges` from the first records of a strict window on, as a topic alone is read.

    A plan over an archive may begin earlier: at the first record of a file that has one of them.
    """
    if not options.strict_window:
        return ranges
    exact = replace(options, strict_window=False, starting_strategy="latest", ending=_LATEST)
    found = _joined(_ranges_of(plan_batch(cluster, exact, now_ms)))
    return _starting_at(ranges, {one.topic_partition: one.start for one in found})


def _starting_at(
    ranges: Iterable[OffsetRange], starts: Mapping[tuple[str, int], int]
) -> list[OffsetRange]:
    """The parts of `ranges` from `starts` on; nothing of partitions without one."""
    cut = [
        replace(one, start=max(one.start, starts.get(one.topic_partition, one.end)))
        for one in ranges
    ]
    return [one for one in cut if one.size > 0]


def _of_both_sides(
    cluster: Cluster, options: SourceOptions, ranges: list[OffsetRange]
) -> list[tuple[Stretch, ...]]:
    """One task for each of `ranges`; raises as `divide`."""
    archive = open_archive(cluster, options, {one.topic for one in ranges})
    assert archive is not None, "the options name one"
    inside, outside = divide(cluster, archive, ranges, fail_on_data_loss=options.fail_on_data_loss)
    tasks = []
    for one in ranges:
        task = [*_of_lake(archive, one, inside)]
        task += [Stretch(part) for part in outside if part.topic_partition == one.topic_partition]
        tasks.append(tuple(sorted(task, key=lambda stretch: stretch.wanted)))
    return [task for task in tasks if task]


def _of_lake(
    archive: Archive, one: OffsetRange, inside: Iterable[OffsetRange]
) -> tuple[Stretch, ...]:
    """Those of `inside` that are of the partition of `one`, with their files."""
    return tuple(
        Stretch(part, tuple(archive.parts([part], NO_LOWER_TIME, NO_UPPER_TIME)))
        for part in inside
        if part.topic_partition == one.topic_partition
    )


def describe_lake(tasks: Iterable[tuple[Stretch, ...]]) -> Outcome:
    """The offsets and files that would be read: the end of a dry run."""
    rows = tuple(
        {
            "topic": task[0].wanted.topic,
            "partition": task[0].wanted.partition,
            "read": stretches(one.wanted for one in task),
            "offsets": sum(one.wanted.size for one in task),
            "files": len({file.path for one in task for file in one.files or ()}),
        }
        for task in tasks
    )
    offsets = sum(int(str(row["offsets"])) for row in rows)
    return Outcome(
        code=JobCode.DONE if offsets else JobCode.NOTHING_TO_DO,
        sentence=f"would read {offsets:,} offsets of the archive "
        f"in {len(rows)} task{'s' * (len(rows) != 1)}",
        report={"offsets": offsets, "tasks": len(rows), "partitions": rows},
        rows=rows,
    )


def judge(
    topic: str, partition: int, batches: Iterable[pa.RecordBatch], newest_ms: int
) -> list[dict[str, Any]]:
    """One row for each hour of event time in `batches`, which are in order of offsets."""
    youngest = -1
    tables = []
    for batch in batches:
        times = pc.divide(batch.column("timestamp").cast(pa.int64()), 1000)
        before = youngest_before(times, youngest)
        lateness = pc.max_element_wise(pc.subtract(before, times), 0)
        # Without an earlier record, no record is late.
        lateness = pc.if_else(pc.less(before, 0), 0, lateness)
        youngest = max(youngest, pc.max(times).as_py())
        tables.append(_counts(times, lateness, batch.column("timestampType"), newest_ms))
    if not tables:
        return []
    merged = _by_hour(pa.concat_tables(tables)).sort_by("hour")
    return [_row(topic, partition, row) for row in merged.to_pylist()]


_BUCKETS: Final = tuple(f"late_{index}" for index in range(len(LATENESS_MS) + 1))


def youngest_before(times: pa.Array, youngest: int) -> pa.Array:
    """For each record the largest time before it, starting from `youngest`."""
    shifted = pa.concat_arrays([pa.array([youngest], pa.int64()), times[:-1]])
    return pc.cumulative_max(shifted)


def _counts(times: pa.Array, lateness: pa.Array, kinds: pa.Array, newest_ms: int) -> pa.Table:
    one = pa.repeat(pa.scalar(1, pa.int64()), len(times))
    columns = {
        "hour": pc.if_else(pc.less(times, 0), -1, pc.divide(times, _HOUR_MS)),
        "records": one,
        "out_of_order": pc.greater(lateness, 0).cast(pa.int64()),
        "future": pc.greater(times, newest_ms).cast(pa.int64()),
        "append_time": pc.equal(kinds, 1).cast(pa.int64()),
        "min": times,
        "max": times,
        "latest": lateness,
    }
    low = -1
    for name, high in zip(_BUCKETS, (*LATENESS_MS, _FAR), strict=True):
        inside = pc.and_(pc.greater(lateness, low), pc.less_equal(lateness, high))
        columns[name] = inside.cast(pa.int64())
        low = high
    return _by_hour(pa.table(columns))


def _by_hour(table: pa.Table) -> pa.Table:
    """Rows of `_counts` as one for each hour."""
    sums = ("records", "out_of_order", "future", "append_time", *_BUCKETS)
    found = table.group_by("hour").aggregate(
        [*((name, "sum") for name in sums), ("min", "min"), ("max", "max"), ("latest", "max")]
    )
    return found.rename_columns([name.rpartition("_")[0] or name for name in found.column_names])


def _row(topic: str, partition: int, row: Mapping[str, Any]) -> dict[str, Any]:
    low, high = row["min"], row["max"]
    histogram = [row[name] for name in _BUCKETS]
    unit = find_unit_mistake(high) if high >= 0 else None
    return {
        "topic": topic,
        "partition": partition,
        "hour": format_time(row["hour"] * _HOUR_MS, UTC),
        "records": row["records"],
        "min_timestamp_ms": low,
        "max_timestamp_ms": high,
        "out_of_order": row["out_of_order"],
        "largest_step_back_ms": row["latest"],
        "late_p50_ms": quantile(histogram, 0.5),
        "late_p99_ms": quantile(histogram, 0.99),
        "future": row["future"],
        "log_append_time": row["append_time"],
        "unit": "ms" if unit is None else unit,
    }


def _joined(ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
    """One range for each partition: disorder across a cut would not be seen."""
    joined: dict[tuple[str, int], OffsetRange] = {}
    for one in sorted(ranges):
        known = joined.get(one.topic_partition)
        start = one.start if known is None else known.start
        joined[one.topic_partition] = OffsetRange(one.topic, one.partition, start, one.end)
    return list(joined.values())
