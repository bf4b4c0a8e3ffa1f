"""The offsets a job would read in each partition, and those that time spares: a dry run's end.

`archive --dry-run` and `skew --dry-run` end here; no record is read. It shows why one day may take
as long as a year: offsets before the window cost nothing on any broker; offsets after it do, unless
the statistics of segments (`readFrom=hybrid`, `segments.statistics`) or `maxLateness` show that
none of them is early.
"""

from collections.abc import Sequence
from typing import Any

from pipeline.jobs.outcome import JobCode, Outcome
from pipeline.net.cluster import EARLIEST, LATEST, Cluster
from pipeline.options.options import TopicPartition
from pipeline.plan.offsets import ReadPlan
from pipeline.plan.splits import OffsetRange


def describe_plan(
    cluster: Cluster, found: ReadPlan, partitions: Sequence[TopicPartition], verb: str = "read"
) -> Outcome:
    """`found` for people and programs, next to the partitions' own ranges.

    Raises as `Cluster.list_offsets`.
    """
    first = cluster.list_offsets(dict.fromkeys(partitions, EARLIEST))
    last = cluster.list_offsets(dict.fromkeys(partitions, LATEST))
    by_partition: dict[TopicPartition, list[OffsetRange]] = {tp: [] for tp in partitions}
    for one in found.ranges:
        by_partition[one.topic_partition].append(one)
    rows = tuple(
        {
            "topic": topic,
            "partition": index,
            "first": first[topic, index].offset,
            "end": last[topic, index].offset,
            "read": ", ".join(f"{start}-{end}" for start, end in _stretches(ranges)),
            "offsets": sum(one.size for one in ranges),
            "pruned": found.pruned.by_partition.get((topic, index), 0),
        }
        for (topic, index), ranges in by_partition.items()
    )
    offsets = sum(one.size for one in found.ranges)
    total = sum(last[tp].offset - first[tp].offset for tp in partitions)
    return Outcome(
        code=JobCode.DONE if offsets else JobCode.NOTHING_TO_DO,
        sentence=_sentence(found, verb, offsets, total),
        report={
            "offsets": offsets,
            "of": total,
            "tasks": len(found.tasks),
            "segments_known": found.pruned.known,
            "segments_pruned": found.pruned.skipped,
            "offsets_pruned": found.pruned.offsets,
            "partitions": rows,
        },
        rows=rows,
    )


def _sentence(found: ReadPlan, verb: str, offsets: int, total: int) -> str:
    tasks = len(found.tasks)
    said = f"would {verb} {offsets:,} of {total:,} offsets in {tasks} task{'s' * (tasks != 1)}"
    pruned = found.pruned
    if pruned.problem:
        return f"{said}; no statistics of segments: {pruned.problem}"
    if pruned.known:
        said += (
            f"; the times of {pruned.known} segments were known, {pruned.skipped} of them pruned "
            f"({pruned.offsets:,} offsets)"
        )
    return said


def _stretches(ranges: list[OffsetRange]) -> list[tuple[int, int]]:
    """[start, end) of neighbouring ranges as one."""
    joined: list[Any] = []
    for one in sorted(ranges):
        if joined and joined[-1][1] == one.start:
            joined[-1] = (joined[-1][0], one.end)
        else:
            joined.append((one.start, one.end))
    return joined
