"""One relation over a topic and its archive: which offsets come from which side.

The archive's commits decide. They are read before the broker is asked for offsets, so an offset
that the snapshot does not cover is on the broker, unless retention has deleted it since. Retention
may follow closely after the archive job; hence the order of looks:

    1. the commits known so far          [0, 5000) is in the lake
    2. the log's start on the broker     6000: a batch was committed and its records deleted since
    3. the commits again                 [0, 7000) is in the lake
    4. no gap: [0, 7000) from files, the rest from the broker

The broker's answers about places and times have the same flaw: what it has deleted since the
snapshot is in none of them. So a plan is made again with newer commits if the log now starts after
the end of the snapshot with which the plan began, also where step 3 has read newer commits on the
way (`at_one_moment`). A task reads from the lake what is deleted between the plan and its reading
(`reading`). A gap that stays is data loss, and so is a batch that stays unfinished after its
records have left the topic.

Offsets below the archive's start, and those that an earlier loss left out of it, are read from the
broker as far as it has them.

Each side is pruned by itself: files by the times in the commits, offsets by the broker's index.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from pipeline.errors import DataLoss, PipelineError
from pipeline.net.cluster import EARLIEST, Cluster
from pipeline.options.options import SourceOptions, TopicPartition
from pipeline.plan.archived import Archive, FilePart, pack_files
from pipeline.plan.lake_files import describe_gaps, describe_unfinished
from pipeline.plan.splits import MIB, OffsetRange

_T = TypeVar("_T")
_SMALLEST_TARGET_BYTES: Final = 4 * MIB
_TASKS_WANTED: Final = 8


def open_archive(cluster: Cluster, options: SourceOptions, topics: Iterable[str]) -> Archive | None:
    """The archive that the options name, checked against the cluster; None if they name none.

    Raises as `Archive` and `Archive.check`.
    """
    if not options.archive:
        return None
    archive = Archive(options.archive)
    archive.check(cluster, topics, read_committed=options.read_committed)
    return archive


def at_one_moment(
    cluster: Cluster,
    archive: Archive | None,
    partitions: Sequence[TopicPartition],
    look: Callable[[], _T],
    *,
    fail_on_data_loss: bool,
) -> _T:
    """The result of `look`, which asks the archive and the broker; again if records moved between.

    Raises:
        DataLoss: the archive job has not finished a batch whose records have left the topic, and
            `fail_on_data_loss` is set.

    Raises as `look`, too.
    """
    while archive is not None:
        commits = archive.commits
        ends = {tp: archive.end_offset(tp) for tp in partitions}
        try:
            found = look()
        except PipelineError:
            if not _catch_up(cluster, archive, commits, ends, fails=fail_on_data_loss):
                raise
        else:
            if not _catch_up(cluster, archive, commits, ends, fails=fail_on_data_loss):
                return found
    return look()


def _catch_up(
    cluster: Cluster,
    archive: Archive,
    commits: int,
    ends: Mapping[TopicPartition, int],
    *,
    fails: bool,
) -> bool:
    """Whether records have left the broker for the lake since the archive had so many `commits`.

    `ends` are those of the archive then. It knows more now, perhaps because the look itself has
    read newer commits, and whatever the broker was asked before is to be asked again.
    """
    first = cluster.list_offsets(dict.fromkeys(ends, EARLIEST))
    moved = [OffsetRange(*tp, end, first[tp].offset) for tp, end in ends.items()]
    moved = [one for one in moved if one.size > 0]
    if not moved:
        return False
    if archive.commits > commits or archive.follow(moved):
        return True
    if fails and (unfinished := archive.unfinished(moved)):
        # A start by time was looked up without them.
        raise DataLoss(describe_unfinished(unfinished))
    return False


def divide(
    cluster: Cluster,
    archive: Archive,
    ranges: Sequence[OffsetRange],
    *,
    fail_on_data_loss: bool,
) -> tuple[list[OffsetRange], list[OffsetRange]]:
    """The parts of `ranges` to read from the lake, and those to read from the broker.

    Raises:
        DataLoss: neither side has some of them, and `fail_on_data_loss` is set.
    """
    while True:
        inside, outside = archive.split(ranges)
        tps = {one.topic_partition for one in outside}
        first = cluster.list_offsets(dict.fromkeys(tps, EARLIEST))
        gaps, kept = [], []
        for one in outside:
            start = min(max(one.start, first[one.topic_partition].offset), one.end)
            gaps.append(OffsetRange(one.topic, one.partition, one.start, start))
            kept.append(OffsetRange(one.topic, one.partition, start, one.end))
        gaps = [one for one in gaps if one.size > 0]
        if not gaps or not archive.follow(gaps):
            break
    if gaps and fail_on_data_loss:
        raise DataLoss(describe_gaps(gaps))
    return inside, [one for one in kept if one.size > 0]


def file_tasks(
    options: SourceOptions,
    archive: Archive,
    ranges: Sequence[OffsetRange],
    oldest_ms: int,
    newest_ms: int,
) -> list[tuple[FilePart, ...]]:
    """Tasks for the files that may hold records of `ranges` in `[oldest_ms, newest_ms)`.

    A task's size is `targetBytesPerTask` of compressed bytes, less where few files are read.
    """
    parts = list(archive.parts(ranges, oldest_ms, newest_ms))
    share = sum(part.size_bytes for part in parts) // _TASKS_WANTED
    target = min(options.target_bytes_per_task, max(share, _SMALLEST_TARGET_BYTES))
    return pack_files(parts, target)
