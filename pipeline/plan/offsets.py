"""From a user's options to offsets: the plan of one batch query.

Owns the meaning of starting and ending options against a real cluster, and of a strict window of
time. Queries `cluster`; reads no records.

Two facts decide the plan. The first offset whose record is not older than T is a sound start:
reading from it misses no record from T on. There is no such sound end, because older records may
follow it. Hence the option `timeWindow`:

| timeWindow | start                      | end                      | rows                       |
|------------|----------------------------|--------------------------|----------------------------|
| offsets    | first offset at or after T1| first at or after T2     | all between, as Kafka does |
| strict     | first offset at or after T1| the end of the partition | only those in [T1, T2)     |

With `strict` a partition without records from T1 on yields no rows, which is not an error. Two
options avoid reading to the end of the partition. One is the statistics that Tidelog keeps of
segments (`pruning`). The other is `maxLateness`, the user's assurance that no record is older than
another before it by more than this; then a record at or after T2 plus that lateness is a sound end.
Records are those that the reader sees, not the markers of transactions (`by_time`).

Source: Spark `KafkaOffsetReaderAdmin`.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from client.errors import UnsupportedByBroker
from client.times import UTC, format_time
from pipeline.errors import BadOptions, DataLoss, NoOffsetMatched
from pipeline.net.cluster import EARLIEST, LATEST, MAX_TIMESTAMP, Cluster, describe_partitions
from pipeline.options.narrowing import NO_LOWER_TIME, NO_UPPER_TIME, Narrowing
from pipeline.options.options import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    Boundary,
    SourceOptions,
    TopicPartition,
    time_of,
)
from pipeline.plan import lake_files
from pipeline.plan.archived import Archive, FilePart
from pipeline.plan.by_time import bounds_of, first_bounds, first_offsets, is_record
from pipeline.plan.objects import ObjectPart, object_tasks
from pipeline.plan.pruning import Pruned, Times, from_named_port, prune
from pipeline.plan.splits import PACK_ABOVE, OffsetRange, Stop, arrange
from pipeline.plan.union import at_one_moment, divide, file_tasks, open_archive

if TYPE_CHECKING:
    from pipeline.plan.bucket import Bucket

_PRUNE_ABOVE: Final = 20_000
"""Reading so few offsets is cheaper than a request for the times of segments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPlan:
    """The reads of one batch query: all later steps are functions of it.

    Attributes:
        tasks: ranges by task.
        oldest_ms: records older than this are dropped by the decoder.
        newest_ms: so are records of this time and later.
        cluster_id: the cluster of the offsets.
        pruned: the offsets that the statistics of segments have spared.
        files: files of an archive by task, which hold the records that `tasks` leave out.
        objects: parts of a bucket's objects by task, likewise.
    """

    tasks: tuple[tuple[OffsetRange, ...], ...]
    oldest_ms: int
    newest_ms: int
    cluster_id: str
    pruned: Pruned
    files: tuple[tuple[FilePart, ...], ...] = ()
    objects: tuple[tuple[ObjectPart, ...], ...] = ()

    @property
    def ranges(self) -> list[OffsetRange]:
        """All ranges, sorted."""
        return sorted(one for task in self.tasks for one in task)

    @property
    def archived(self) -> list[OffsetRange]:
        """The ranges whose records `files` may have, sorted."""
        return sorted({one for task in self.files for part in task for one in part.wanted})


def plan_batch(cluster: Cluster, options: SourceOptions, now_ms: int) -> ReadPlan:
    """The tasks of one batch query; relative times are resolved against `now_ms`, once.

    Raises:
        BadOptions: the options do not fit the topics, or start after their end.
        NoOffsetMatched: by the strategies.
        DataLoss: explicit offsets are outside the log, or of a batch of the archive that is not
            finished, and `failOnDataLoss` is on.
        BrokerRefused: a topic does not exist, or the broker denies it.

    Raises as `open_archive` and `bucket.Bucket` too, where the options name an archive or a bucket.
    """
    partitions = cluster.partitions(options.choice)
    # Before the broker's offsets: what the archive does not have at this moment is still there.
    archive = open_archive(cluster, options, {topic for topic, _ in partitions})
    bucket = open_bucket(cluster, options)
    plan = functools.partial(_plan, cluster, options, partitions, now_ms, archive, bucket)
    fails = options.fail_on_data_loss
    return at_one_moment(cluster, archive, partitions, plan, fail_on_data_loss=fails)


def _plan(
    cluster: Cluster,
    options: SourceOptions,
    partitions: Sequence[TopicPartition],
    now_ms: int,
    archive: Archive | None,
    bucket: "Bucket | None",
) -> ReadPlan:
    narrowing = options.narrowing
    starts = resolve_starts(cluster, options, partitions, now_ms, archive)
    latest = Boundary(option="endingOffsets", place="latest")
    ending = latest if options.strict_window else options.ending
    ends = _resolve_ends(cluster, options, ending, partitions, now_ms, archive)
    ranges = [
        OffsetRange(*tp, starts[tp], max(ends[tp], starts[tp]))
        for tp in partitions
        if narrowing.admits(tp)
    ]
    check_order(options, starts, ends)
    oldest, newest = window_of(options, now_ms)
    oldest, newest = max(oldest, narrowing.oldest_ms), min(newest, narrowing.newest_ms)
    ranges = _narrow_offsets(ranges, narrowing)
    files: list[tuple[FilePart, ...]] = []
    if archive is not None:
        inside, ranges = divide(
            cluster, archive, ranges, fail_on_data_loss=options.fail_on_data_loss
        )
        files = file_tasks(options, archive, inside, oldest, newest)
    ranges = _narrow_times(cluster, options, ranges, narrowing)
    ranges = _end_by_lateness(cluster, options, ranges, newest)
    firsts = _firsts_after(cluster, options, ranges, newest)
    times = _times_of(cluster, options, ranges, newest, bucket)
    ranges, pruned = prune(options, ranges, oldest, newest, times, firsts)
    objects: list[tuple[ObjectPart, ...]] = []
    if bucket is not None:
        parts, ranges = bucket.divide(cluster, options, ranges)
        objects = object_tasks(options, parts)
    return ReadPlan(
        tasks=tuple(plan_tasks(cluster, options, ranges, stops=pruned.stops)),
        oldest_ms=oldest,
        newest_ms=newest,
        cluster_id=cluster.cluster_id,
        pruned=pruned,
        files=tuple(files),
        objects=tuple(objects),
    )


def _times_of(
    cluster: Cluster,
    options: SourceOptions,
    ranges: Sequence[OffsetRange],
    newest_ms: int,
    bucket: "Bucket | None",
) -> Times | None:
    """Where the times of segments come from if the options do not say it: a bucket or the broker.

    The broker is asked where its offsets have no end in time, and reading on would take longer.
    """
    if bucket is not None:
        return functools.partial(bucket.times, cluster)
    if not _is_endless(options, ranges, newest_ms):
        return None
    before_ms = None if _cuts_by_user(options) else newest_ms
    return functools.partial(
        from_named_port, cluster, options.connection.security, before_ms=before_ms
    )


def _firsts_after(
    cluster: Cluster, options: SourceOptions, ranges: Sequence[OffsetRange], newest_ms: int
) -> dict[TopicPartition, int]:
    """Where the records from the end of a window on begin, if reading may end soon after them."""
    if newest_ms <= 0 or _cuts_by_user(options) or not _is_endless(options, ranges, newest_ms):
        return {}
    return first_bounds(
        cluster,
        {one.topic_partition: newest_ms for one in ranges},
        read_committed=options.read_committed,
    )


def _is_endless(options: SourceOptions, ranges: Sequence[OffsetRange], newest_ms: int) -> bool:
    """Whether records of a window may be anywhere in much that the broker has."""
    return (
        newest_ms != NO_UPPER_TIME
        and options.max_lateness_ms is None
        and options.read_from == "broker"
        and sum(one.size for one in ranges) > _PRUNE_ABOVE
    )


def _cuts_by_user(options: SourceOptions) -> bool:
    return bool(options.min_partitions or options.max_records_per_partition)


def open_bucket(cluster: Cluster, options: SourceOptions) -> "Bucket | None":
    """The bucket that the options name, as it is now; None if they name none.

    Raises as `bucket.Bucket`.
    """
    if options.read_from != "remote":
        return None
    # Only planning needs it; executors should not pay for the import.
    from pipeline.plan.bucket import Bucket

    return Bucket(options.segments_remote, cluster.cluster_id)


def plan_tasks(
    cluster: Cluster,
    options: SourceOptions,
    ranges: Sequence[OffsetRange],
    pack_above: int = PACK_ABOVE,
    stops: Mapping[OffsetRange, Stop] | None = None,
) -> list[tuple[OffsetRange, ...]]:
    """Tasks for `ranges` as `splits.arrange` makes them, with sizes that the brokers report.

    Those with one of the `stops` stay whole, and count for what is probably read of them.
    """
    likely = {one: 2 * records for one, (_, records) in (stops or {}).items()}
    estimate = functools.partial(bytes_per_offset, cluster)
    return arrange(options, ranges, estimate, pack_above, likely)


def bytes_per_offset(
    cluster: Cluster, ranges: Sequence[OffsetRange]
) -> dict[TopicPartition, float]:
    """Estimated bytes of an offset in each partition: its size over the offsets it holds."""
    sizes = cluster.sizes(one.topic_partition for one in ranges)
    asked = set(sizes)
    first = cluster.list_offsets(dict.fromkeys(asked, EARLIEST))
    last = cluster.list_offsets(dict.fromkeys(asked, LATEST))
    return {tp: sizes[tp] / max(last[tp].offset - first[tp].offset, 1) for tp in asked}


def resolve_starts(
    cluster: Cluster,
    options: SourceOptions,
    partitions: Sequence[TopicPartition],
    now_ms: int,
    archive: Archive | None = None,
) -> dict[TopicPartition, int]:
    """Where each partition starts; explicit offsets are checked against the log's range.

    With `archive` the log begins where the archive does. Raises as `plan_batch`.
    """
    starts = resolve(cluster, options, options.starting, partitions, now_ms, archive)
    if not options.starting.offsets:
        return starts
    return _inside(cluster, options, options.starting.option, starts, archive)


def _resolve_ends(
    cluster: Cluster,
    options: SourceOptions,
    ending: Boundary,
    partitions: Sequence[TopicPartition],
    now_ms: int,
    archive: Archive | None,
) -> dict[TopicPartition, int]:
    """Where each partition ends, explicit offsets inside the log. Raises as `plan_batch`."""
    ends = resolve(cluster, options, ending, partitions, now_ms, archive)
    if not ending.offsets:
        return ends
    return _inside(cluster, options, ending.option, ends, archive)


def _inside(
    cluster: Cluster,
    options: SourceOptions,
    option: str,
    offsets: Mapping[TopicPartition, int],
    archive: Archive | None,
) -> dict[TopicPartition, int]:
    """The offsets of `option`, the nearest that the log holds for those outside of it.

    Raises:
        DataLoss: an offset lies outside the log, and `failOnDataLoss` is on.
    """
    first = _at_place(cluster, options, "earliest", list(offsets), archive)
    last = _at_place(cluster, options, "latest", list(offsets))
    lost = sorted(tp for tp, offset in offsets.items() if not first[tp] <= offset <= last[tp])
    if lost and options.fail_on_data_loss:
        verb = "starts" if option.startswith("starting") else "ends"
        holds = "has committed offsets" if options.read_committed else "holds"
        shown = "; ".join(
            f"{tp[0]}-{tp[1]} {verb} at {offsets[tp]} and the log {holds} {first[tp]} to {last[tp]}"
            for tp in lost[:10]
        )
        raise DataLoss(
            f"{option} lie outside the log: {shown}. Correct them, or set "
            "failOnDataLoss=false to read what is there"
        )
    return {tp: min(max(offset, first[tp]), last[tp]) for tp, offset in offsets.items()}


def resolve(
    cluster: Cluster,
    options: SourceOptions,
    boundary: Boundary,
    partitions: Sequence[TopicPartition],
    now_ms: int,
    archive: Archive | None = None,
) -> dict[TopicPartition, int]:
    """The offset of `boundary` in each partition; raises as `plan_batch`."""
    if boundary.place:
        return _at_place(cluster, options, boundary.place, partitions, archive)
    if boundary.timestamp_text:
        when = time_of(boundary.timestamp_text, now_ms)
        return _at_times(cluster, options, boundary, dict.fromkeys(partitions, when), archive)
    if boundary.timestamps:
        _check_assigned(boundary.option, boundary.timestamps, partitions)
        return _at_times(cluster, options, boundary, boundary.timestamps, archive)
    offsets = dict(boundary.offsets)
    places = {EARLIEST_OFFSET: "earliest", LATEST_OFFSET: "latest"}
    named = {tp: boundary.topics[tp[0]] for tp in partitions if tp[0] in boundary.topics}
    _check_assigned(boundary.option, offsets | dict.fromkeys(named, 0), partitions)
    named |= {tp: places[offset] for tp, offset in offsets.items() if offset < 0}
    for place in ("earliest", "latest"):
        chosen = [tp for tp, word in named.items() if word == place]
        offsets |= _at_place(cluster, options, place, chosen, archive)
    return offsets


def window_of(options: SourceOptions, now_ms: int) -> tuple[int, int]:
    """The strict window in ms, its upper end exclusive; all times unless `timeWindow=strict`.

    Raises:
        BadOptions: the window would end before it starts.
    """
    if not options.strict_window:
        return NO_LOWER_TIME, NO_UPPER_TIME
    start, end = options.starting.timestamp_text, options.ending.timestamp_text
    oldest = time_of(start, now_ms) if start else NO_LOWER_TIME
    newest = time_of(end, now_ms) if end else NO_UPPER_TIME
    if newest < oldest:
        raise BadOptions(
            f"option endingTimestamp={end!r}: the window would end before it starts, at "
            f"startingTimestamp={start!r}: give a later end"
        )
    return oldest, newest


def check_order(
    options: SourceOptions,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> None:
    """Refuse starts after ends.

    Raises:
        BadOptions: with the partitions and both offsets.
    """
    wrong = sorted(tp for tp in starts if starts[tp] > ends[tp])
    if wrong:
        topic, index = wrong[0]
        raise BadOptions(
            f"option {options.starting.option} is after option {options.ending.option} in "
            f"{describe_partitions(wrong)}: {topic}-{index} would start at "
            f"{starts[topic, index]} and end at {ends[topic, index]}; exchange or correct them"
        )


def _at_place(
    cluster: Cluster,
    options: SourceOptions,
    place: str,
    partitions: Sequence[TopicPartition],
    archive: Archive | None = None,
) -> dict[TopicPartition, int]:
    when = EARLIEST if place == "earliest" else LATEST
    found = cluster.list_offsets(
        dict.fromkeys(partitions, when), read_committed=options.read_committed
    )
    offsets = {tp: answer.offset for tp, answer in found.items()}
    if archive is None or place != "earliest":
        return offsets
    archived = {tp: archive.first_offset(tp) for tp in offsets}
    return _earlier(offsets, {tp: first for tp, first in archived.items() if first is not None})


def _earlier(
    offsets: Mapping[TopicPartition, int], archived: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The smaller offset of both sides; a negative one and a missing one stand for nothing."""
    return {
        tp: min(archived.get(tp, offset), offset) if offset >= 0 else archived.get(tp, offset)
        for tp, offset in offsets.items()
    }


def _at_times(
    cluster: Cluster,
    options: SourceOptions,
    boundary: Boundary,
    times: Mapping[TopicPartition, int],
    archive: Archive | None,
) -> dict[TopicPartition, int]:
    is_start = boundary.option.startswith("starting")
    strategy = options.starting_strategy if is_start else options.ending_strategy
    if options.strict_window:
        strategy = "latest"
    # Before the times: a record that arrives in between is after the end that is known here.
    fallback = {}
    if strategy != "error":
        fallback = _at_place(cluster, options, strategy, list(times), archive)
    if options.strict_window:
        # The window drops older records: a bound is as good as the exact offset, and costs less.
        offsets = first_bounds(cluster, times, read_committed=options.read_committed)
    else:
        offsets = first_offsets(cluster, options, times)
    if archive is not None:
        archived = (
            lake_files.first_bounds(archive, times)
            if options.strict_window
            else lake_files.first_offsets(archive, options, times)
        )
        offsets = _earlier(offsets, archived)
    unmatched = sorted(tp for tp, offset in offsets.items() if offset < 0)
    if unmatched and strategy == "error":
        raise NoOffsetMatched(_explain_unmatched(cluster, boundary.option, times, unmatched))
    return offsets | {tp: fallback[tp] for tp in unmatched}


def _explain_unmatched(
    cluster: Cluster,
    option: str,
    times: Mapping[TopicPartition, int],
    unmatched: Sequence[TopicPartition],
) -> str:
    """The sentence for the error strategy: every partition, and how young its youngest is."""
    try:
        youngest = cluster.list_offsets(dict.fromkeys(unmatched, MAX_TIMESTAMP))
    except UnsupportedByBroker:
        youngest = {}
    parts = []
    for topic, index in unmatched:
        answer = youngest.get((topic, index))
        what = "the partition is empty"
        if answer is not None and answer.offset >= 0:
            what = "no record is that young"
            if is_record(cluster, (topic, index), answer.offset):
                what = f"its youngest record is of {format_time(answer.timestamp_ms, UTC)}"
        parts.append(f"{topic}-{index} from {format_time(times[topic, index], UTC)} on ({what})")
    side = "starting" if option.startswith("starting") else "ending"
    return (
        f"option {option}: no offset matched in {len(unmatched)} of {len(times)} partitions: "
        f"{'; '.join(parts)}. Choose an earlier time, or set {side}OffsetsByTimestampStrategy "
        f"to {'latest or earliest' if side == 'starting' else 'latest'} for partitions like these"
    )


def _check_assigned(
    option: str, given: Mapping[TopicPartition, int], partitions: Sequence[TopicPartition]
) -> None:
    """Every partition needs an entry, and no other may have one."""
    missing = set(partitions) - set(given)
    extra = set(given) - set(partitions)
    problems = []
    if missing:
        problems.append(f"option {option} says nothing about {describe_partitions(missing)}")
    if extra:
        problems.append(f"option {option} names {describe_partitions(extra)}, not subscribed to")
    if problems:
        cure = "give exactly the partitions that are read, or one value for all"
        raise BadOptions(*[f"{problem}: {cure}" for problem in problems])


def _narrow_offsets(ranges: Sequence[OffsetRange], narrowing: Narrowing) -> list[OffsetRange]:
    """`ranges` without the offsets that the limits on offsets exclude."""
    narrowed = [
        OffsetRange(
            one.topic,
            one.partition,
            min(max(one.start, narrowing.first_offset), one.end),
            max(min(one.end, narrowing.end_offset), one.start),
        )
        for one in ranges
    ]
    return [one for one in narrowed if one.size > 0]


def _narrow_times(
    cluster: Cluster,
    options: SourceOptions,
    ranges: Sequence[OffsetRange],
    narrowing: Narrowing,
) -> list[OffsetRange]:
    """`ranges` of the broker without the offsets that the limits on times exclude."""
    if narrowing.oldest_ms <= 0 or not ranges:
        return list(ranges)
    found = first_bounds(
        cluster,
        {one.topic_partition: narrowing.oldest_ms for one in ranges},
        read_committed=options.read_committed,
    )
    by_time = []
    for one in ranges:
        first = found[one.topic_partition]
        # No record is young enough: the whole range is older.
        start = one.end if first < 0 else min(max(one.start, first), one.end)
        by_time.append(OffsetRange(one.topic, one.partition, start, one.end))
    return [one for one in by_time if one.size > 0]


def _end_by_lateness(
    cluster: Cluster, options: SourceOptions, ranges: Sequence[OffsetRange], newest_ms: int
) -> list[OffsetRange]:
    """`ranges` without offsets too late to hold a record before `newest_ms`, by `maxLateness`.

    A record older than `newest_ms` is before the first one that is `maxLateness` younger, and so
    before any such record.
    """
    lateness_ms = options.max_lateness_ms
    if lateness_ms is None or newest_ms == NO_UPPER_TIME or not ranges:
        return list(ranges)
    ends = bounds_of(cluster, options, ranges, newest_ms + lateness_ms)
    ended = [
        OffsetRange(one.topic, one.partition, one.start, max(min(one.end, end), one.start))
        for one, end in zip(ranges, ends, strict=True)
    ]
    return [one for one in ended if one.size > 0]
