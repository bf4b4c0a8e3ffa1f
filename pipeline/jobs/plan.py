"""The options by which a job reads, and the offsets it would read: a dry run's end.

`archive --dry-run` and `skew --dry-run` end here; no record is read. It shows why one day may take
as long as a year: offsets before the window cost nothing on any broker; offsets after it do, unless
the statistics of segments (`readFrom=hybrid`, `segments.statistics`) or `maxLateness` show that
none of them is early.
"""

from collections.abc import Iterable, Mapping, Sequence

from pipeline.errors import BadOptions
from pipeline.jobs.outcome import JobCode, Outcome
from pipeline.net.cluster import EARLIEST, LATEST, Cluster
from pipeline.options.options import SourceOptions, TopicPartition, parse_source_options
from pipeline.plan.offsets import ReadPlan
from pipeline.plan.splits import OffsetRange, join_ranges


def parse_job_options(
    options: Mapping[str, str],
    defaults: Mapping[str, str],
    *,
    unfit: Sequence[str] = (),
    why: str = "",
) -> SourceOptions:
    """The options of the source that a job reads a topic by, without Spark's own reader.

    `unfit` are names that mean nothing to the job, and `why` is the reason.

    Raises:
        BadOptions: one of `unfit` is given, or `readFrom=remote`, which is for Spark's own queries;
            or as `parse_source_options`.
    """
    given = {name.lower() for name in options}
    if wrong := [name for name in unfit if name.lower() in given]:
        raise BadOptions(*[f"option {name} means nothing {why}" for name in wrong])
    parsed = parse_source_options({**defaults, **options}, is_stream=False)
    if parsed.read_from == "remote":
        raise BadOptions(
            "option readFrom=remote is for format('tidelog') alone: a job reads from the "
            "broker; leave it and segments.remote out"
        )
    return parsed


def describe_plan(
    cluster: Cluster, found: ReadPlan, partitions: Sequence[TopicPartition], verb: str = "read"
) -> Outcome:
    """`found` for people and programs, next to the partitions' own ranges.

    Raises as `Cluster.list_offsets`.
    """
    first = cluster.list_offsets(dict.fromkeys(partitions, EARLIEST))
    last = cluster.list_offsets(dict.fromkeys(partitions, LATEST))
    by_partition = _by_partition(found.ranges, partitions)
    archived = _by_partition(found.archived, partitions)
    # The log begins where the archive does.
    starts = {
        tp: min([first[tp].offset, *(one.start for one in archived[tp])]) for tp in partitions
    }
    rows = tuple(
        {
            "topic": topic,
            "partition": index,
            "first": starts[topic, index],
            "end": last[topic, index].offset,
            "read": stretches(ranges),
            **({"from_lake": stretches(archived[topic, index])} if found.files else {}),
            "offsets": sum(one.size for one in (*ranges, *archived[topic, index])),
            "pruned": found.pruned.by_partition.get((topic, index), 0),
        }
        for (topic, index), ranges in by_partition.items()
    )
    offsets = sum(one.size for one in (*found.ranges, *found.archived))
    total = sum(last[tp].offset - starts[tp] for tp in partitions)
    return Outcome(
        code=JobCode.DONE if offsets else JobCode.NOTHING_TO_DO,
        sentence=_sentence(found, verb, offsets, total),
        report={
            "offsets": offsets,
            "of": total,
            "tasks": len(found.tasks) + len(found.files),
            "segments_known": found.pruned.known,
            "segments_pruned": found.pruned.skipped,
            "offsets_pruned": found.pruned.offsets,
            "partitions": rows,
        },
        rows=rows,
    )


def _sentence(found: ReadPlan, verb: str, offsets: int, total: int) -> str:
    tasks = len(found.tasks) + len(found.files)
    said = f"would {verb} {offsets:,} of {total:,} offsets in {tasks} task{'s' * (tasks != 1)}"
    pruned = found.pruned
    if pruned.problem:
        return f"{said}; no statistics of segments: {pruned.problem}"
    if pruned.known:
        said += (
            f"; the times of {pruned.known} segments were known, {pruned.skipped} of them pruned "
            f"({pruned.offsets:,} offsets)"
        )
    if pruned.stops:
        offsets = sum(one.size for one in pruned.stops)
        said += f"; of {offsets:,} offsets only those up to the last late record are read"
    return said


def _by_partition(
    ranges: Iterable[OffsetRange], partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, list[OffsetRange]]:
    found: dict[TopicPartition, list[OffsetRange]] = {tp: [] for tp in partitions}
    for one in ranges:
        found[one.topic_partition].append(one)
    return found


def stretches(ranges: Iterable[OffsetRange]) -> str:
    """Ranges of one partition as text, `0-10, 15-20`; neighbours as one."""
    return ", ".join(f"{one.start}-{one.end}" for one in join_ranges(ranges))
