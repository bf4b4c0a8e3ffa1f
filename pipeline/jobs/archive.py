"""archive: a topic into files by event date, incrementally, each record exactly once.

The first run writes the start of every partition into the journal. A start that moves ("latest", a
quarter of an hour ago) keeps its meaning of that run, also for partitions that had nothing to
archive. Partitions made later start at their beginning. Every run is a plan, written into the
journal before any task starts, and then a commit:

1. plan N lists the offsets; it begins at the last commit's end and ends at the broker's;
2. tasks write files whose names are functions of the plan, under a temporary name first; when the
   driver finds all of them, it lists them in the journal;
3. commit N names the files, in the journal and, for tables, in the table's own log, with N.

A run that finds plan N without commit N continues where that plan stopped. Unless all files are
listed, it writes them again under the same names, so there are no duplicates. It never touches
listed files, nor a table that has N already. So the driver may die anywhere. Of two concurrent runs
the first to write a document wins, and the other one ends (`Fenced`). Workers write the files
(Spark's own writer takes twice the time), with one event date in each. A record without a time, or
of a year that no date can hold, has the date null.

A day is complete when every partition has moved past its end by more than the grace. Then a marker
`_complete/DATE.json` appears (the commit names the days, and the next run writes the markers that
an interrupted run did not). Later records of that day are kept, and counted.

Source: Delta transaction identifiers; Iceberg snapshot properties.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final, cast

from client.times import MS_PER_DAY
from client.types import OffsetAndTimestamp
from pipeline.errors import BadOptions, DataLoss, JournalConflict, NotShared
from pipeline.jobs.files import (
    check_files,
    find_unshared,
    later,
    probing,
    sweep,
    write_ranges,
)
from pipeline.jobs.lake import LAKES, ParquetLake
from pipeline.jobs.outcome import JobCode, Outcome, Progress, silent
from pipeline.jobs.plan import describe_plan, parse_job_options
from pipeline.jobs.spreading import run_tasks
from pipeline.net.cluster import EARLIEST, Cluster
from pipeline.options.options import SourceOptions, TopicPartition
from pipeline.plan.archived import (
    ISOLATION,
    START,
    TOPIC_IDS,
    ArchivePlan,
    WrittenFile,
    isolation_level,
    parse_file,
)
from pipeline.plan.folders import file_at
from pipeline.plan.journal import Journal
from pipeline.plan.offsets import ReadPlan, plan_tasks, resolve, resolve_starts
from pipeline.plan.pruning import Pruned
from pipeline.plan.splits import OffsetRange
from protocol.records.layout import INT64_MAX, INT64_MIN, NO_TIMESTAMP

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_UNFIT: Final = ("timeWindow", "maxLateness", "columns", "segments.statistics", "archive")
"""Options of the source that choose among rows and columns, or add rows."""

_RUNNING: Final = "of this archive writes at the same time"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveSettings:
    """The topics to archive and the target; `options` are those of the source.

    Attributes:
        options: `kafka.bootstrap.servers`, `subscribe`, and where the first run starts.
        target: a directory (Parquet, Delta) or an Iceberg table's `namespace.name`.
        state_dir: a directory for this job only, kept between runs.
        lake: "parquet", "delta" or "iceberg".
        min_rows: fewer new offsets than this are left for the next run.
        grace_ms: how far every partition must be past a day's end to call the day complete.
        idle_ms: a partition without new records for so long does not hold a day back.
        dry_run: plan and report, change nothing.
    """

    options: Mapping[str, str]
    target: str
    state_dir: str
    lake: str = "parquet"
    min_rows: int = 1
    grace_ms: int = 3_600_000
    idle_ms: int = MS_PER_DAY
    dry_run: bool = False


def archive(spark: SparkSession, settings: ArchiveSettings, progress: Progress = silent) -> Outcome:
    """Archive the new records.

    Raises:
        BadOptions: settings that cannot be carried out.
        DataLoss: offsets between the last commit and now are missing.
        JournalConflict: the state directory belongs to another cluster or target.
        NotShared: the target is not the same directory for the driver and all executors.
        Fenced: another run has planned or committed the batch meanwhile.
    """
    options = parse_job_options(
        settings.options, {"includeHeaders": "true"}, unfit=_UNFIT,
        why="to an archive, which takes all rows",
    )  # fmt: skip
    if settings.lake not in LAKES:
        raise BadOptions(f"format {settings.lake!r} is unknown: write {', '.join(LAKES)}")
    lake = LAKES[settings.lake](settings.target, settings.state_dir)
    journal = Journal(settings.state_dir)
    with Cluster(options.connection) as cluster:
        progress("plan")
        partitions = cluster.partitions(options.choice)
        _check_owner(cluster, journal, settings, lake)
        known = _known_ids(cluster, journal, partitions, dry_run=settings.dry_run)
        pending = _pending(journal)
        _check_identity(cluster, known, partitions, pending)
        _check_isolation(journal, options, dry_run=settings.dry_run)
        if not settings.dry_run:
            _mark_days(lake, _last_commit(journal))
        plan = pending or _new_plan(cluster, options, settings, journal, lake.target, known)
        if plan is None:
            return Outcome(code=JobCode.NOTHING_TO_DO, sentence="no new records")
        if settings.dry_run:
            return _describe(cluster, options, plan)
    journal.decide(f"plans/{plan.number:08d}", plan.document(), _RUNNING)
    progress("write")
    listed = journal.find(f"files/{plan.number:08d}")
    if listed is None:
        written = _write(spark, options, lake, plan, journal)
        listed = journal.put(f"files/{plan.number:08d}", [asdict(file) for file in written])
    files = [parse_file(one) for one in listed]
    progress("commit")
    check_files(files)
    if files and not lake.has_batch(plan.number):
        lake.commit(plan.number, files)
    outcome = _finish(journal, settings, plan, files, lake)
    sweep(files, plan.digest)
    return outcome


def _describe(cluster: Cluster, options: SourceOptions, plan: ArchivePlan) -> Outcome:
    """The ranges that the run would archive, next to those of the partitions."""
    read = ReadPlan(
        tasks=plan.tasks, oldest_ms=INT64_MIN, newest_ms=INT64_MAX, cluster_id=plan.cluster_id,
        pruned=Pruned(),
    )  # fmt: skip
    # The plan of an interrupted run may have partitions that the options no longer select.
    planned = {one.topic_partition for one in plan.ranges}
    partitions = sorted(planned.union(cluster.partitions(options.choice)))
    plan_outcome = describe_plan(cluster, read, partitions, "archive")
    return replace(
        plan_outcome,
        sentence=f"{plan_outcome.sentence} as batch {plan.number}",
        report={"batch": plan.number, **plan_outcome.report},
    )


def _write(
    spark: SparkSession,
    options: SourceOptions,
    lake: ParquetLake,
    plan: ArchivePlan,
    journal: Journal,
) -> list[WrittenFile]:
    """Have the workers write the files of `plan`, and check that the driver sees them.

    Raises:
        NotShared: a worker writes elsewhere. The plan is given up, so that the next run may have
            another target.
    """
    folder, number, digest, topic_ids = lake.folder, plan.number, plan.digest, plan.topic_ids
    dated = lake.has_dated_files
    with probing(folder, digest) as probe:

        def work(ranges: tuple[OffsetRange, ...]) -> list[WrittenFile] | str:
            unshared = find_unshared(folder, probe)
            return unshared or write_ranges(
                options, ranges, folder, number, digest, topic_ids, dated=dated
            )

        found = run_tasks(spark, work, plan.tasks)
    files = sorted(file for one in found if isinstance(one, list) for file in one)
    try:
        if unshared := next((one for one in found if isinstance(one, str)), None):
            raise NotShared(unshared)
        check_files(files)
    except NotShared:
        for file in files:
            place, name = file_at(file.path)
            place.remove(name)
        journal.remove(f"plans/{number:08d}")
        raise
    return files


def _last_plan(journal: Journal) -> ArchivePlan | None:
    plans = list(journal.names("plans"))
    return ArchivePlan.parse(journal.get(f"plans/{plans[-1]}")) if plans else None


def _pending(journal: Journal) -> ArchivePlan | None:
    """The plan without a commit that a run before this one left, if any."""
    plan = _last_plan(journal)
    is_done = plan is None or journal.find(f"commits/{plan.number:08d}") is not None
    return None if is_done else plan


def _mark_days(lake: ParquetLake, last: Mapping[str, Any] | None) -> None:
    """Write the markers of days that the last commit completed, unless they exist."""
    if last is not None:
        for day in last.get("complete_days", ()):
            lake.mark_complete(day, last["number"])


def _last_commit(journal: Journal) -> dict[str, Any] | None:
    commits = list(journal.names("commits"))
    document: dict[str, Any] | None = journal.get(f"commits/{commits[-1]}") if commits else None
    return document


def _new_plan(
    cluster: Cluster,
    options: SourceOptions,
    settings: ArchiveSettings,
    journal: Journal,
    target: str,
    known_ids: Mapping[str, str],
) -> ArchivePlan | None:
    now_ms = time.time_ns() // 1_000_000
    partitions = cluster.partitions(options.choice)
    last = _last_commit(journal)
    reached = _first_starts(cluster, options, settings, journal, partitions)
    if last is not None:
        reached |= {(topic, index): end for topic, index, end in last["reached"]}
    earliest = cluster.list_offsets(dict.fromkeys(partitions, EARLIEST))
    if options.fail_on_data_loss:
        _check_loss(earliest, reached)
    starts = {tp: max(reached.get(tp, 0), earliest[tp].offset) for tp in partitions}
    ends = resolve(cluster, options, options.ending, partitions, now_ms)
    ranges = [OffsetRange(*tp, starts[tp], ends[tp]) for tp in partitions if ends[tp] > starts[tp]]
    if sum(one.size for one in ranges) < settings.min_rows:
        return None
    # Also of topics that have nothing new: a later run finds out that one was made again.
    topic_ids = {**known_ids, **{topic: cluster.topic_id(topic) for topic, _ in partitions}}
    return ArchivePlan(
        number=last["number"] + 1 if last is not None else 0,
        cluster_id=cluster.cluster_id,
        topic_ids=topic_ids,
        tasks=_tasks(cluster, options, ranges),
        target=target,
    )  # fmt: skip


def _tasks(
    cluster: Cluster, options: SourceOptions, ranges: Iterable[OffsetRange]
) -> tuple[tuple[OffsetRange, ...], ...]:
    """Tasks of one topic each, small partitions together: every task writes a file for each day."""
    by_topic: dict[str, list[OffsetRange]] = {}
    for one in ranges:
        by_topic.setdefault(one.topic, []).append(one)
    return tuple(
        task
        for alone in by_topic.values()
        for task in plan_tasks(cluster, options, alone, pack_above=1)
    )


def _first_starts(
    cluster: Cluster,
    options: SourceOptions,
    settings: ArchiveSettings,
    journal: Journal,
    partitions: Sequence[TopicPartition],
) -> dict[TopicPartition, int]:
    """Where each partition started when this archive first looked at it."""
    known = journal.find(START)
    if known is None:
        now_ms = time.time_ns() // 1_000_000
        starts = resolve_starts(cluster, options, partitions, now_ms)
        known = [[*tp, offset] for tp, offset in sorted(starts.items())]
        if not settings.dry_run:
            known = journal.put(START, known)
    return {(topic, index): offset for topic, index, offset in known}


def _check_loss(
    earliest: Mapping[TopicPartition, OffsetAndTimestamp], reached: Mapping[TopicPartition, int]
) -> None:
    """Whether retention overtook the archive."""
    for (topic, index), end in reached.items():
        found = earliest.get((topic, index))
        if found is not None and found.offset > end:
            raise DataLoss(
                f"{topic}-{index}: the archive reached offset {end} and the log now starts at "
                f"{found.offset}: retention removed {found.offset - end} offsets before they were "
                "archived. Set failOnDataLoss=false to continue, or run more often"
            )


def _check_owner(
    cluster: Cluster, journal: Journal, settings: ArchiveSettings, lake: ParquetLake
) -> None:
    """Check that the last plan in the state directory, if any, is one of this archive.

    Raises:
        JournalConflict: it is of another cluster or target.
    """
    plan = _last_plan(journal)
    if plan is None:
        return
    if lake.target_of(plan.target) != lake.target or plan.cluster_id != cluster.cluster_id:
        raise JournalConflict(
            f"state directory {settings.state_dir} holds the plan of another archive: cluster "
            f"{plan.cluster_id} and target {plan.target!r}, and this run has cluster "
            f"{cluster.cluster_id} and target {lake.target!r}. Give every archive a state "
            "directory of its own, or the target as it was"
        )


def _check_isolation(journal: Journal, options: SourceOptions, *, dry_run: bool) -> None:
    """Check that this run reads transactions as the first one did, for readers of the archive.

    Raises:
        BadOptions: `kafka.isolation.level` was another one.
    """
    level = isolation_level(read_committed=options.read_committed)
    kept = journal.find(ISOLATION)
    if kept is None and not dry_run:
        kept = journal.put(ISOLATION, level)
    if kept not in (None, level):
        raise BadOptions(
            f"option kafka.isolation.level={level}: this archive was begun with {kept}, and "
            "one archive holds one view of transactions; keep that level, or begin an archive "
            "with a target and a state directory of its own"
        )


def _known_ids(
    cluster: Cluster,
    journal: Journal,
    partitions: Iterable[TopicPartition],
    *,
    dry_run: bool,
) -> dict[str, str]:
    """The ids of the topics that this archive has had, by name.

    The first run writes those of all its topics. A state directory of an earlier release has those
    with records in its plans alone.
    """
    known: dict[str, str] | None = journal.find(TOPIC_IDS)
    if known is None:
        known = {topic: cluster.topic_id(topic) for topic, _ in partitions}
        for name in journal.names("plans"):
            known |= ArchivePlan.parse(journal.get(f"plans/{name}")).topic_ids
        if not dry_run:
            known = cast("dict[str, str]", journal.put(TOPIC_IDS, known))
    last = _last_plan(journal)
    return {**known, **(last.topic_ids if last is not None else {})}


def _check_identity(
    cluster: Cluster,
    known_ids: Mapping[str, str],
    partitions: Iterable[TopicPartition],
    pending: ArchivePlan | None,
) -> None:
    """Check that the topics to archive are those that were, not later ones of their names.

    Raises:
        DataLoss: one was deleted and created again.
    """
    topics = {topic for topic, _ in partitions}
    if pending is not None:
        topics |= {one.topic for one in pending.ranges}
    cluster.topics(topics)
    for topic in sorted(topics & known_ids.keys()):
        now = cluster.topic_id(topic)
        if now and now != known_ids[topic]:
            raise DataLoss(
                f"topic {topic} was deleted and created again: its old records are gone before "
                "they were archived. Archive the new one with a state directory of its own, and "
                "the others without it"
            )


def _finish(
    journal: Journal,
    settings: ArchiveSettings,
    plan: ArchivePlan,
    files: Sequence[WrittenFile],
    lake: ParquetLake,
) -> Outcome:
    """Write the commit, then the markers of days that it completed."""
    last = _last_commit(journal) or {"reached": [], "youngest": {}}
    reached = {(topic, index): end for topic, index, end in last["reached"]}
    reached |= {one.topic_partition: one.end for one in plan.ranges}
    youngest = youngest_by_partition(last["youngest"], files)
    seen_ms = dict(last.get("seen_ms", {}))
    now_ms = time.time_ns() // 1_000_000
    seen_ms |= {f"{one.topic}-{one.partition}": now_ms for one in plan.ranges}
    late = sum(file.rows for file in files if lake.is_complete(file.event_date))
    days = {file.event_date for file in files if file.event_date} | set(last.get("open_days", ()))
    idle = {tp for tp, when in seen_ms.items() if now_ms - when > settings.idle_ms}
    complete = complete_days(days, youngest, idle, settings.grace_ms)
    document = {
        "number": plan.number,
        "reached": [[*tp, end] for tp, end in sorted(reached.items())],
        "youngest": youngest,
        "seen_ms": seen_ms,
        "open_days": sorted(days - set(complete)),
        "complete_days": complete,
        "files": [asdict(file) for file in files],
    }
    journal.decide(f"commits/{plan.number:08d}", document, _RUNNING)
    _mark_days(lake, document)
    rows = sum(file.rows for file in files)
    return Outcome(
        sentence=f"archived {rows:,} records in {len(files)} files as batch {plan.number}",
        report={
            "batch": plan.number,
            "rows": rows,
            "files": len(files),
            "bytes": sum(file.size_bytes for file in files),
            "late_rows": late,
            "complete_days": complete,
        },
    )  # fmt: skip


def youngest_by_partition(known: Mapping[str, int], files: Iterable[WrittenFile]) -> dict[str, int]:
    """The largest timestamp (ms) archived of each partition."""
    youngest = dict(known)
    for file in files:
        for partition, timestamp_ms in file.youngest:
            name = f"{file.topic}-{partition}"
            youngest[name] = later(youngest.get(name, NO_TIMESTAMP), timestamp_ms)
    return youngest


def complete_days(
    days: Iterable[str], youngest: Mapping[str, int], idle: Iterable[str], grace_ms: int
) -> list[str]:
    """Those of `days` (ISO dates) that every partition has passed by more than the grace.

    `youngest` is the largest archived timestamp by partition; partitions in `idle` are not waited
    for, unless all are idle.
    """
    active = [when for name, when in youngest.items() if name not in set(idle)]
    reached = min(active or youngest.values(), default=-1) - grace_ms
    return sorted(day for day in days if _end_of(day) <= reached)


def _end_of(day: str) -> int:
    from datetime import UTC, datetime

    start = datetime.fromisoformat(day).replace(tzinfo=UTC)
    return int(start.timestamp()) * 1000 + MS_PER_DAY
