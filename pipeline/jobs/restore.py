"""restore: an archive back into a topic, every record with its own time, key and headers.

Reads the files that the archive's journal lists (or a plain directory), by a window of event time,
and writes their records in the order of the old offsets. Under the name of the job it writes
exactly once: an interrupted run is simply started again.

Two settings would silently undo a restore, so they are refused unless forced: a topic that stamps
records itself (LogAppendTime), and a retention that would delete the restored records at once.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from client.times import UTC, format_time
from pipeline.errors import BadOptions, DataLoss
from pipeline.jobs.outcome import JobCode, Outcome, Progress, silent
from pipeline.net.cluster import Cluster
from pipeline.net.producing import MARK_PREFIX
from pipeline.options.narrowing import NO_LOWER_TIME, NO_UPPER_TIME
from pipeline.options.options import SinkOptions, TopicChoice, parse_sink_options
from pipeline.options.reader import is_address, is_store, local_path, spark_path
from pipeline.plan.archived import ALONE, Archive, WrittenFile
from pipeline.plan.folders import Folder, folder_of
from pipeline.spark.session import by_partition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreSettings:
    """The source, the target and the selection of records.

    Attributes:
        options: `kafka.bootstrap.servers` and other `kafka.*` options.
        source: the archive's directory.
        topic: the topic to write to, which exists.
        name: names this restore for exactly-once; empty writes at least once.
        state_dir: the archive's state directory; empty reads every file in `source`.
        oldest_ms: from this event time on; None for all.
        newest_ms: before this event time; None for all.
        from_topic: only records of this archived topic; empty for all.
        keep_partitions: into the partition they came from; else by key.
        rows_per_second: at most so many rows a second in each task; 0 for no limit.
        force: restore even if the topic's settings would undo it.
        dry_run: count and report, write nothing.
    """

    options: Mapping[str, str]
    source: str
    topic: str
    name: str = ""
    state_dir: str = ""
    oldest_ms: int | None = None
    newest_ms: int | None = None
    from_topic: str = ""
    keep_partitions: bool = True
    rows_per_second: int = 0
    force: bool = False
    dry_run: bool = False


def restore(spark: SparkSession, settings: RestoreSettings, progress: Progress = silent) -> Outcome:
    """Write the chosen records.

    Raises:
        BadOptions: settings that cannot be carried out, or a topic that would spoil the records.
    """
    from pyspark.sql import functions as F

    sink = {**settings.options, "topic": settings.topic}
    if settings.name:
        sink |= {"delivery": "exactly-once", "transactionalIdPrefix": settings.name}
    options = parse_sink_options(sink)
    progress("read")
    frame = _chosen(spark, settings)
    facts = frame.agg(
        F.count("*").alias("rows"),
        F.unix_millis(F.min("timestamp")).alias("oldest_ms"),
        F.max("partition").alias("highest"),
    ).first()
    assert facts is not None
    if not facts["rows"]:
        return Outcome(code=JobCode.NOTHING_TO_DO, sentence="no record is in the window")
    oldest_ms = facts["oldest_ms"]
    with Cluster(options.connection) as cluster:
        problems = find_spoilers(cluster.settings(settings.topic), oldest_ms, _now_ms())
        tasks = len(cluster.partitions(TopicChoice(names=(settings.topic,))))
    if problems and not settings.force:
        raise BadOptions(*[f"topic {settings.topic}: {one} (or --force)" for one in problems])
    if settings.keep_partitions and facts["highest"] >= tasks:
        raise BadOptions(
            f"topic {settings.topic} has {tasks} partitions, and the archive has records of "
            f"partition {facts['highest']}: add partitions until it has "
            f"{facts['highest'] + 1}, or let the keys decide (--by-key)"
        )
    if settings.name and settings.rows_per_second:
        _check_duration(facts["rows"], tasks, settings.rows_per_second, options)
    if settings.dry_run:
        rows = _by_partition(frame)
        return Outcome(
            sentence=f"would restore {facts['rows']:,} records to {settings.topic}",
            report={"rows": facts["rows"], "oldest_ms": oldest_ms, "partitions": rows},
            rows=rows,
        )
    progress("write")
    if not settings.keep_partitions:
        frame = frame.withColumn("partition", F.lit(None).cast("int"))
    bootstrap = settings.options["kafka.bootstrap.servers"]
    frame = frame.withColumnRenamed("partition", "was").withColumn("partition", F.col("was"))
    before = _marks(options, tasks)
    # An interrupted restore ends as it began, also where partitions were added meanwhile.
    count = next((mark["partitions"] for mark in before if "partitions" in mark), None)
    spread = by_partition(frame, bootstrap, settings.topic, settings.options, partitions=count)
    spread = spread.sortWithinPartitions("was", "offset")
    if settings.rows_per_second:
        sink["maxRowsPerSecond"] = str(settings.rows_per_second)
    columns = ("key", "value", "headers", "timestamp", "partition")
    spread.select(*columns).write.format("tidelog").mode("append").options(**sink).save()
    if before and len(before) == len(_marks(options, tasks)):
        return Outcome(
            code=JobCode.NOTHING_TO_DO,
            sentence=f"restore {settings.name} was done before: nothing was written",
            report={"rows": 0, "oldest_ms": oldest_ms},
        )
    return Outcome(
        sentence=f"restored {facts['rows']:,} records to {settings.topic}",
        report={"rows": facts["rows"], "oldest_ms": oldest_ms},
    )  # fmt: skip


def _by_partition(frame: DataFrame) -> tuple[dict[str, Any], ...]:
    """The part of each archived partition that a restore would read: the end of a dry run."""
    from pyspark.sql import functions as F

    found = frame.groupBy("topic", "partition").agg(
        F.min("offset").alias("first"), F.max("offset").alias("last"), F.count("*").alias("records")
    )
    return tuple(
        {
            "topic": row["topic"],
            "partition": row["partition"],
            "read": f"{row['first']}-{row['last'] + 1}",
            "records": row["records"],
        }
        for row in found.orderBy("topic", "partition").collect()
    )


def _marks(options: SinkOptions, partitions: int) -> list[dict[str, Any]]:
    """The marks that partitions have under the name of this restore."""
    if options.delivery != "exactly-once":
        return []
    prefix = f"{options.transactional_id_prefix}-{options.topic}"
    with Cluster(options.connection) as cluster:
        found = [cluster.committed(f"{prefix}-{index}") for index in range(partitions)]
    texts = [mark.metadata for marks in found for mark in marks.values()]
    return [
        json.loads(text.removeprefix(MARK_PREFIX)) for text in texts if text.startswith(MARK_PREFIX)
    ]


def _check_duration(rows: int, tasks: int, rate: int, options: SinkOptions) -> None:
    """Refuse a restore too slow for one transaction per partition, which a name requires.

    Raises:
        BadOptions: even evenly spread rows take longer than a transaction may be open.
    """
    timeout_ms = options.transaction_timeout_ms
    needed_ms = rows * 1000 // (rate * tasks)
    if needed_ms > timeout_ms:
        raise BadOptions(
            f"--rate {rate}: {rows:,} rows take {needed_ms // 60_000} min and more, and a "
            f"named restore is one transaction, open for {timeout_ms // 60_000} min at most: "
            "raise the rate, restore by windows (--from, --to) under a name each, or set "
            "--option kafka.transaction.timeout.ms"
        )


def _chosen(spark: SparkSession, settings: RestoreSettings) -> DataFrame:
    from pyspark.sql import functions as F

    frame = read_archive(spark, settings.source, settings.state_dir)
    if settings.from_topic:
        frame = frame.where(F.col("topic") == settings.from_topic)
    if settings.oldest_ms is not None:
        frame = frame.where(F.col("timestamp") >= F.timestamp_millis(F.lit(settings.oldest_ms)))
    if settings.newest_ms is not None:
        frame = frame.where(F.col("timestamp") < F.timestamp_millis(F.lit(settings.newest_ms)))
    return frame


def read_archive(spark: SparkSession, source: str, state_dir: str = "") -> DataFrame:
    """The records of an archive; with its state directory exactly the committed files.

    Files are looked for below `source`, so a lake that was moved is read where it is now.

    Raises:
        BadOptions: no file was archived there.
        DataLoss: a committed file is not below `source`, or has another size.
    """
    if not state_dir:
        _check_archived(source)
        return spark.read.parquet(spark_path(source))
    folder = folder_of(source)
    archive = Archive(state_dir, name="--state-dir ")
    files = archive.files
    if not files:
        raise BadOptions(f"state directory {state_dir} lists no archived file")
    paths = [committed_path(folder, file) for file in files]
    if is_store(source):
        archive.files = [replace(file, path=path) for file, path in zip(files, paths, strict=True)]
        parts = archive.parts(archive.ranges(), NO_LOWER_TIME, NO_UPPER_TIME)
        # Needs Spark, which a dry run does without.
        from pipeline.spark.files import frame_of_files

        return frame_of_files(spark, ALONE, list(parts))
    # The file system is named: executors and drivers may have another one as their default.
    named = [f"file://{path}" for path in paths]
    return spark.read.option("basePath", f"file://{folder.address}").parquet(*named)


def _check_archived(source: str) -> None:
    """Whether a directory holds an archive; of other addresses Spark knows more. BadOptions."""
    if is_address(source) and not source.startswith("file:"):
        return
    folder = local_path(source)
    if next(folder.glob("event_date=*"), None) is None:
        what = "holds no event_date=... directories" if folder.exists() else "does not exist"
        raise BadOptions(
            f"source {source!r}: {folder} {what}; give the directory that was the archive's target"
        )


def committed_path(folder: Folder, file: WrittenFile) -> str:
    """Where a committed file is below `folder`.

    Raises:
        DataLoss: it is not there, or has another size.
    """
    name = "/".join(file.path.split("/")[-2:])
    path, size = folder.path(name), folder.size(name)
    if size != file.size_bytes:
        seen = "not there" if size is None else f"of {size} bytes"
        raise DataLoss(
            f"the archive lists {path} with {file.rows} records in {file.size_bytes} bytes, and it "
            f"is {seen}: give the directory that was the archive's target, or bring the file back "
            "(without the state directory whatever is there is restored)"
        )
    return path


def find_spoilers(configs: Mapping[str, Any], oldest_ms: int, now_ms: int) -> list[str]:
    """Why records as old as `oldest_ms` would not stay as they are in a topic so configured."""
    problems = []
    if configs.get("message.timestamp.type") == "LogAppendTime":
        problems.append(
            "message.timestamp.type=LogAppendTime would replace the records' own times; set it to "
            "CreateTime"
        )
    retention_ms = int(configs.get("retention.ms") or -1)
    deletes = "delete" in configs.get("cleanup.policy", "delete")
    if deletes and retention_ms >= 0 and oldest_ms < now_ms - retention_ms:
        problems.append(
            f"retention.ms={retention_ms} would delete records from "
            f"{format_time(max(oldest_ms, 0), UTC)} at once; raise it, or set it to -1"
        )
    return problems


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
