"""skew: how late, how disordered and how plausible the times of a topic are.

One row for each partition and hour of event time: the number of records, how many of them are older
than their predecessor, the largest step back, lateness as a histogram with its quantiles, times in
the future, and a guess whether the numbers are in milliseconds at all.

`protocol.records.lateness` says what late means. The workers compute it, one partition each, in
order of offsets; only counts come back.

Read next: `pipeline.plan.reading`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from client.times import UTC, find_unit_mistake, format_time
from pipeline.errors import BadOptions
from pipeline.jobs.outcome import JobCode, Outcome, Progress, silent
from pipeline.jobs.plan import describe_plan
from pipeline.jobs.spreading import run_tasks
from pipeline.net.cluster import Cluster
from pipeline.options.options import SourceOptions, parse_source_options
from pipeline.options.reader import spark_path
from pipeline.plan.offsets import plan_batch
from pipeline.plan.segments import read_range
from pipeline.plan.splits import OffsetRange
from pipeline.records.batches import DecodeRules
from protocol.records.lateness import LATENESS_MS, quantile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_HOUR_MS: Final = 3_600_000
_FAR: Final = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class SkewSettings:
    """The records to examine; a time is in the future when it is `future_ms` ahead of now."""

    options: Mapping[str, str]
    future_ms: int = _HOUR_MS
    output: str = ""
    dry_run: bool = False


def skew(spark: SparkSession, settings: SkewSettings, progress: Progress = silent) -> Outcome:
    """The table of disorder, also written to `output` (Parquet) if given.

    Raises:
        BadOptions: options of the source that cannot be carried out.
    """
    options = parse_source_options(
        {"onMalformedTimestamp": "clamp", **settings.options}, is_stream=False
    )
    if options.archive:
        raise BadOptions(["option archive means nothing to skew, which judges a topic's log"])
    now_ms = time.time_ns() // 1_000_000
    with Cluster(options.connection) as cluster:
        progress("plan")
        plan = plan_batch(cluster, options, now_ms)
        if settings.dry_run:
            return describe_plan(cluster, plan, cluster.partitions(options.choice))
    ranges = _joined(plan.ranges)
    if not ranges:
        return Outcome(code=JobCode.NOTHING_TO_DO, sentence="no records")
    progress("read")
    newest_ms = now_ms + settings.future_ms
    judged = run_tasks(spark, lambda one: judge_range(options, one, newest_ms), ranges)
    rows = [
        row
        for found in judged
        for row in found
        if row["max_timestamp_ms"] >= plan.oldest_ms and row["min_timestamp_ms"] < plan.newest_ms
    ]
    if settings.output:
        table = spark.createDataFrame(pa.Table.from_pylist(rows))
        table.write.mode("overwrite").parquet(spark_path(settings.output))
    doubtful = sum(row["future"] for row in rows)
    disordered = sum(row["out_of_order"] for row in rows)
    total = sum(row["records"] for row in rows)
    return Outcome(
        sentence=f"{total:,} records: {disordered:,} out of order, {doubtful:,} in the future",
        report={"records": total, "out_of_order": disordered, "future": doubtful, "rows": rows},
        rows=tuple(rows),
    )


def judge_range(options: SourceOptions, one: OffsetRange, newest_ms: int) -> list[dict[str, Any]]:
    """The rows of one partition; runs in a worker."""
    rules = DecodeRules(
        columns=("timestamp", "timestampType"), read_committed=options.read_committed,
        verify_checksums=options.verify_checksums, on_malformed="clamp",
    )  # fmt: skip
    with Cluster(options.connection) as cluster:
        batches = read_range(cluster, options, one, rules)
        return judge(one.topic, one.partition, batches, newest_ms)


def judge(
    topic: str, partition: int, batches: Iterable[pa.RecordBatch], newest_ms: int
) -> list[dict[str, Any]]:
    """One row for each hour of event time in `batches`, which are in order of offsets."""
    youngest = -1
    tables = []
    for batch in batches:
        times = pc.divide(batch.column("timestamp").cast(pa.int64()), 1000)
        before = _youngest_before(times, youngest)
        lateness = pc.max_element_wise(pc.subtract(before, times), 0)
        # Without an earlier record, no record is late.
        lateness = pc.if_else(pc.less(before, 0), 0, lateness)
        youngest = max(youngest, pc.max(times).as_py())
        tables.append(_counts(times, lateness, batch.column("timestampType"), newest_ms))
    if not tables:
        return []
    counts = pa.concat_tables(tables).group_by("hour")
    sums = [
        (name, "sum") for name in ("records", "out_of_order", "future", "append_time", *_BUCKETS)
    ]
    merged = counts.aggregate([*sums, ("min", "min"), ("max", "max"), ("latest", "max")])
    return [_row(topic, partition, row) for row in merged.sort_by("hour").to_pylist()]  # fmt: skip


_BUCKETS: Final = tuple(f"late_{index}" for index in range(len(LATENESS_MS) + 1))


def _youngest_before(times: pa.Array, youngest: int) -> pa.Array:
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
    grouped = pa.table(columns).group_by("hour")
    sums = ("records", "out_of_order", "future", "append_time", *_BUCKETS)
    found = grouped.aggregate(
        [*((name, "sum") for name in sums), ("min", "min"), ("max", "max"), ("latest", "max")]
    )
    renamed = {"min_min": "min", "max_max": "max", "latest_max": "latest"}
    names = [renamed.get(name, name.removesuffix("_sum")) for name in found.column_names]
    return found.rename_columns(names)


def _row(topic: str, partition: int, row: Mapping[str, Any]) -> dict[str, Any]:
    low, high = row["min_min"], row["max_max"]
    histogram = [row[f"{name}_sum"] for name in _BUCKETS]
    unit = find_unit_mistake(high) if high >= 0 else None
    return {
        "topic": topic,
        "partition": partition,
        "hour": format_time(row["hour"] * _HOUR_MS, UTC),
        "records": row["records_sum"],
        "min_timestamp_ms": low,
        "max_timestamp_ms": high,
        "out_of_order": row["out_of_order_sum"],
        "largest_step_back_ms": row["latest_max"],
        "late_p50_ms": quantile(histogram, 0.5),
        "late_p99_ms": quantile(histogram, 0.99),
        "future": row["future_sum"],
        "log_append_time": row["append_time_sum"],
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
