"""diff: what a topic said of its keys at one time, and what it says at a later one.

As of a time T a topic is a table: of each key the record with the highest offset among those whose
timestamp is before T. A null value deletes the key, as in a compacted topic; records without a key
are no part of it. Keys are compared within a partition, because offsets of two partitions have no
order. A key is in the result if the two tables differ in it:

    added     it is in the later table only
    removed   it is in the earlier table only
    changed   it is in both, with other values

A record that came late counts by its timestamp: with an older one than T it is a part of the table
as of T, whenever it came. The source reads the topic, so its options apply, such as `archive` for
what retention has deleted, or `readFrom`; what neither side has any more is in no table.

Source: `time-travel` joins of tables; Kafka, log compaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from client.times import UTC, format_time
from pipeline.errors import BadOptions
from pipeline.jobs.outcome import Outcome, Progress, silent
from pipeline.jobs.plan import describe_plan
from pipeline.net.cluster import Cluster
from pipeline.options.options import SourceOptions, parse_source_options
from pipeline.options.reader import spark_path
from pipeline.plan.offsets import plan_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_UNFIT: Final = (
    "timeWindow", "startingTimestamp", "endingTimestamp", "startingOffsets", "endingOffsets",
    "startingOffsetsByTimestamp", "endingOffsetsByTimestamp", "columns", "narrowTo",
    "includeHeaders",
)  # fmt: skip
"""Options of the source that choose among rows and columns."""
_COLUMNS: Final = "key,value,topic,partition,offset,timestamp"
_KINDS: Final = ("added", "removed", "changed")
_SHOWN: Final = 50
_SHOWN_CHARACTERS: Final = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffSettings:
    """The topics to compare with themselves.

    Attributes:
        options: `kafka.bootstrap.servers`, `subscribe`, other options of the source.
        earlier_ms: the earlier time; records before it make the earlier table.
        later_ms: the later time.
        output: where the differences are written as Parquet; empty for nowhere.
        dry_run: report the offsets, read no record.
    """

    options: Mapping[str, str]
    earlier_ms: int
    later_ms: int
    output: str = ""
    dry_run: bool = False


def diff(spark: SparkSession, settings: DiffSettings, progress: Progress = silent) -> Outcome:
    """How many keys differ, and the first of them; all of them in `output` if given.

    Raises:
        BadOptions: settings that cannot be carried out.
        DataLoss: records are on neither side, and `failOnDataLoss` is on.
    """
    options = _parsed(settings)
    with Cluster(options.connection) as cluster:
        progress("plan")
        partitions = cluster.partitions(options.choice)
        if settings.dry_run:
            return describe_plan(
                cluster, plan_batch(cluster, options, settings.later_ms), partitions
            )
    progress("read")
    found = differences(spark, settings).persist()
    try:
        if settings.output:
            found.write.mode("overwrite").parquet(spark_path(settings.output))
        counted = {
            row["difference"]: row["count"] for row in found.groupBy("difference").count().collect()
        }
        rows = tuple(
            map(_shown, found.orderBy("topic", "partition", "key").limit(_SHOWN).collect())
        )
    finally:
        found.unpersist()
    counts = {kind: counted.get(kind, 0) for kind in _KINDS}
    times = f"{_text(settings.earlier_ms)} and {_text(settings.later_ms)}"
    numbers = ", ".join(f"{count:,} {kind}" for kind, count in counts.items())
    sentence = f"keys that differ between {times}: {numbers}"
    if sum(counts.values()) > len(rows) and not settings.output:
        sentence += f"; the first {len(rows)} are shown (--output DIR has all)"
    return Outcome(sentence=sentence, report={**counts, "rows": rows}, rows=rows)


def differences(spark: SparkSession, settings: DiffSettings) -> DataFrame:
    """One row for each key that differs: `topic`, `partition`, `key`, `difference`, both records.

    `earlier` and `later` are structs of `offset`, `timestamp` and `value`, null where the key has
    no record; the record of a deleted key has a null value.

    Raises:
        BadOptions: settings that cannot be carried out.
    """
    from pyspark.sql import functions as F

    _parsed(settings)
    frame = spark.read.format("tidelog").options(**_options(settings)).load()
    record = F.struct("offset", "timestamp", "value")
    is_early = F.col("timestamp") < F.timestamp_millis(F.lit(settings.earlier_ms).cast("bigint"))
    tables = frame.where("key IS NOT NULL").groupBy("topic", "partition", "key").agg(
        F.max_by(record, F.when(is_early, F.col("offset"))).alias("earlier"),
        F.max_by(record, F.col("offset")).alias("later"),
    )  # fmt: skip
    before, after = F.col("earlier.value"), F.col("later.value")
    difference = (
        F.when(before.isNull() & after.isNotNull(), "added")
        .when(before.isNotNull() & after.isNull(), "removed")
        .when(before != after, "changed")
    )
    columns = ("topic", "partition", "key", "difference", "earlier", "later")
    return (
        tables.withColumn("difference", difference).where("difference IS NOT NULL").select(*columns)
    )


def _parsed(settings: DiffSettings) -> SourceOptions:
    given = {name.lower() for name in settings.options}
    problems = [
        f"option {name} means nothing to a diff, which compares all records before two times"
        for name in _UNFIT
        if name.lower() in given
    ]
    if settings.earlier_ms >= settings.later_ms:
        problems.append(
            f"--from {_text(settings.earlier_ms)} is not before --to {_text(settings.later_ms)}: "
            "give the earlier time first"
        )
    if problems:
        raise BadOptions(*problems)
    return parse_source_options(_options(settings), is_stream=False)


def _options(settings: DiffSettings) -> dict[str, str]:
    return {
        "onMalformedTimestamp": "clamp",
        **settings.options,
        "columns": _COLUMNS,
        "timeWindow": "strict",
        "endingTimestamp": _text(settings.later_ms),
    }


def _text(when_ms: int) -> str:
    return format_time(when_ms, UTC)


def _shown(row: Any) -> dict[str, Any]:
    """A row for people: bytes as text, cut."""
    return {
        "topic": row["topic"],
        "partition": row["partition"],
        "key": _readable(row["key"]),
        "difference": row["difference"],
        "earlier": _readable(row["earlier"] and row["earlier"]["value"]),
        "later": _readable(row["later"] and row["later"]["value"]),
    }


def _readable(value: bytes | None) -> str:
    if value is None:
        return ""
    text = bytes(value).decode("utf-8", "backslashreplace")
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
