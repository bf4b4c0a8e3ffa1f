"""audit: what a topic and its archive both have, counted on both sides by partition and hour.

Records are counted by hour of their own time, with the bytes of their keys and values, over the
offsets that the archive's commits cover and the log still has. One side has no part in the other's
answer: the archive's files are read, not the counts in its commits, and the broker's records are
read over the wire. Hours that differ end the job with the code of damage.

Retention may delete records while they are counted. If the log's start has moved, the partition is
counted again from there. Compaction removes records that the archive keeps, so for a compacted
topic only records that the archive lacks are damage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from client.times import UTC, format_time
from pipeline.jobs.outcome import JobCode, Outcome, Progress, planned, silent
from pipeline.jobs.plan import parse_job_options
from pipeline.jobs.skew import Stretch
from pipeline.jobs.spreading import run_tasks
from pipeline.net.cluster import EARLIEST, Cluster
from pipeline.options.narrowing import NO_LOWER_TIME, NO_UPPER_TIME
from pipeline.options.options import SourceOptions, TopicPartition
from pipeline.plan.archived import Archive
from pipeline.plan.lake_files import read_part
from pipeline.plan.segments import read_range
from pipeline.plan.splits import OffsetRange
from pipeline.records.batches import DecodeRules

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_HOUR_US: Final = 3_600_000_000
_UNFIT: Final = (
    "timeWindow", "startingTimestamp", "endingTimestamp", "startingOffsets", "endingOffsets",
    "startingOffsetsByTimestamp", "endingOffsetsByTimestamp", "columns", "archive", "narrowTo",
)  # fmt: skip
"""Options of the source that choose among rows and columns, or add rows."""
_SHOWN: Final = 3

_Counts = dict[int, tuple[int, int]]
"""(records, bytes of keys and values) by hours since the epoch, negative ones as one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSettings:
    """The topic and the archive to compare.

    Attributes:
        options: `kafka.bootstrap.servers`, `subscribe`, other options of the source.
        state_dir: the archive's state directory.
        dry_run: report the offsets, read no record.
    """

    options: Mapping[str, str]
    state_dir: str
    dry_run: bool = False


def audit(spark: SparkSession, settings: AuditSettings, progress: Progress = silent) -> Outcome:
    """The counts of both sides, and whether they are the same.

    Raises:
        BadOptions: settings that cannot be carried out.
        DataLoss: a file that the archive lists is not there, or the topic was created again.
        JournalConflict: the archive is of another cluster.
    """
    options = parse_job_options(
        settings.options, {"onMalformedTimestamp": "clamp"}, unfit=_UNFIT,
        why="to an audit, which takes all rows",
    )  # fmt: skip
    archive = Archive(settings.state_dir, name="--state-dir ")
    with Cluster(options.connection) as cluster:
        progress("plan")
        partitions = cluster.partitions(options.choice)
        topics = {topic for topic, _ in partitions}
        archive.check(cluster, topics, read_committed=options.read_committed)
        common = _common(cluster, archive, partitions)
        if settings.dry_run or not common:
            return _planned(common)
        compacted = {
            topic for topic in topics
            if "compact" in (cluster.settings(topic).get("cleanup.policy") or "")
        }  # fmt: skip
        rows = []
        while common:
            progress("count")
            counted = _count(spark, options, archive, common)
            later = _common(cluster, archive, [one.topic_partition for one in common])
            moved = {one.topic_partition for one in set(common) - set(later)}
            rows += [row for row in counted if (row["topic"], row["partition"]) not in moved]
            common = [one for one in later if one.topic_partition in moved]
    return _outcome(rows, compacted)


def _common(
    cluster: Cluster, archive: Archive, partitions: Sequence[TopicPartition]
) -> list[OffsetRange]:
    """The offsets that the commits cover and the log still has, by partition."""
    first = cluster.list_offsets(dict.fromkeys(partitions, EARLIEST))
    cut = [
        replace(one, start=max(one.start, first[one.topic_partition].offset))
        for one in archive.ranges()
        if one.topic_partition in first
    ]
    return [one for one in cut if one.size > 0]


def _planned(common: Sequence[OffsetRange]) -> Outcome:
    offsets = sum(one.size for one in common)
    return planned(
        (
            {"topic": one.topic, "partition": one.partition, "compare": f"{one.start}-{one.end}"}
            for one in common
        ),
        f"would compare {offsets:,} offsets of {len(common)} ranges",
        "topic and archive have no offset in common",
        offsets=offsets,
    )


def _count(
    spark: SparkSession, options: SourceOptions, archive: Archive, common: Sequence[OffsetRange]
) -> list[dict[str, Any]]:
    """One row for each partition and hour that either side has."""
    files = [tuple(archive.parts([one], NO_LOWER_TIME, NO_UPPER_TIME)) for one in common]
    tasks = [Stretch(one, parts) for one, parts in zip(common, files, strict=True)]
    tasks += [Stretch(one) for one in common]
    # What is missing is counted as missing, and no error of the reader.
    reading = replace(options, fail_on_data_loss=False)
    found = run_tasks(spark, lambda task: count_by_hour(_read(reading, task)), tasks)
    sides: dict[tuple[str, int, int], dict[str, tuple[int, int]]] = {}
    for task, counts in zip(tasks, found, strict=True):
        side = "topic" if task.files is None else "archive"
        for hour, (records, size) in counts.items():
            row = sides.setdefault((task.wanted.topic, task.wanted.partition, hour), {})
            known = row.get(side, (0, 0))
            row[side] = known[0] + records, known[1] + size
    return [_row(*place, row) for place, row in sorted(sides.items())]


def _row(
    topic: str, partition: int, hour: int, sides: Mapping[str, tuple[int, int]]
) -> dict[str, Any]:
    in_archive, in_topic = sides.get("archive", (0, 0)), sides.get("topic", (0, 0))
    return {
        "topic": topic,
        "partition": partition,
        "hour": format_time(hour * _HOUR_US // 1000, UTC),
        "archive_records": in_archive[0],
        "topic_records": in_topic[0],
        "archive_bytes": in_archive[1],
        "topic_bytes": in_topic[1],
        "same": in_archive == in_topic,
    }


def _read(options: SourceOptions, task: Stretch) -> Iterator[pa.RecordBatch]:
    """The records of one task; runs in a worker. A file that is not there is an error."""
    rules = DecodeRules(
        columns=("key", "value", "timestamp"), read_committed=options.read_committed,
        verify_checksums=options.verify_checksums, on_malformed="clamp",
    )  # fmt: skip
    if task.files is not None:
        for part in task.files:
            yield from read_part(part, rules, fail_on_data_loss=True)
        return
    with Cluster(options.connection) as cluster:
        yield from read_range(cluster, options, task.wanted, rules)


def count_by_hour(batches: Iterable[pa.RecordBatch]) -> _Counts:
    """Records, and bytes of keys and values, by hour of the records' times (us)."""
    counts: _Counts = {}
    for batch in batches:
        micros = batch.column("timestamp").cast(pa.int64())
        sizes = [
            pc.fill_null(pc.binary_length(batch.column(name)), 0).cast(pa.int64())
            for name in ("key", "value")
        ]
        table = pa.table(
            {
                "hour": pc.if_else(pc.less(micros, 0), -1, pc.divide(micros, _HOUR_US)),
                "bytes": pc.add(*sizes),
            }
        )
        grouped = table.group_by("hour").aggregate([("bytes", "count"), ("bytes", "sum")])
        for row in grouped.to_pylist():
            known = counts.get(row["hour"], (0, 0))
            counts[row["hour"]] = known[0] + row["bytes_count"], known[1] + row["bytes_sum"]
    return counts


def _outcome(rows: Sequence[Mapping[str, Any]], compacted: set[str]) -> Outcome:
    different = [row for row in rows if not row["same"]]
    damaged = [
        row for row in different
        if row["topic"] not in compacted or row["topic_records"] > row["archive_records"]
    ]  # fmt: skip
    records = sum(row["topic_records"] for row in rows)
    sentence = f"{len(rows):,} hours with {records:,} records of the topic: "
    if damaged:
        shown = "; ".join(
            f"{row['topic']}-{row['partition']} {row['hour']}: {row['archive_records']:,} in the "
            f"archive, {row['topic_records']:,} in the topic"
            for row in damaged[:_SHOWN]
        )
        sentence += f"{len(damaged):,} hours differ ({shown})"
    elif different:
        sentence += f"{len(different):,} hours have fewer records in a compacted topic"
    else:
        sentence += "the archive has the same"
    return Outcome(
        code=JobCode.DAMAGED if damaged else JobCode.DONE,
        sentence=sentence,
        report={
            "hours": len(rows), "records": records, "different": len(different),
            "damaged": len(damaged), "rows": tuple(rows),
        },
        rows=tuple(different or rows),
    )  # fmt: skip
