"""lateness: the disorder of a topic while it grows, and the watermark and maxLateness it needs.

Every run is a round: it takes the records that came since the round before, and adds them to the
counts in the state directory. A round is written once, so a run that dies is repeated from the same
offsets, and of two runs at once one ends (`Fenced`). Two kinds of lateness are counted, because two
settings depend on them:

* `maxLateness`, of this source: how much older a record is than one before it in its partition. The
  largest one of all rounds is the proposal; a margin is the user's to add.
* `withWatermark`, of Spark: how much older a record is than the youngest one of all partitions at
  the end of the round before, because Spark moves its watermark so, batch by batch. The proposal is
  the smallest bound that the wanted share of the records keeps. With the interval of the query's
  trigger as that of the rounds, it is what that query would have dropped.

Times in the future move Spark's watermark as they move the youngest time here; they are counted.

Source: Spark `EventTimeWatermark`, "Handling late data and watermarking".
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.errors import BadOptions, DataLoss
from pipeline.jobs.outcome import Outcome, Progress, planned, silent
from pipeline.jobs.plan import parse_job_options
from pipeline.jobs.skew import youngest_before
from pipeline.jobs.spreading import run_tasks
from pipeline.net.cluster import EARLIEST, LATEST, Cluster
from pipeline.options.options import SourceOptions, TopicPartition
from pipeline.plan.journal import Journal
from pipeline.plan.offsets import resolve_starts
from pipeline.plan.segments import read_range
from pipeline.plan.splits import OffsetRange
from pipeline.records.batches import DecodeRules
from protocol.records.lateness import LATENESS_MS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_UNFIT: Final = (
    "timeWindow", "endingTimestamp", "endingOffsets", "endingOffsetsByTimestamp", "columns",
    "archive", "narrowTo",
)  # fmt: skip
"""Options of the source that end the reading or choose among rows and columns."""
_NONE_MS: Final = -1
"""The youngest time before the first record."""
_UNITS: Final = ((86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute"), (1000, "second"))


@dataclass(frozen=True, slots=True, kw_only=True)
class LatenessSettings:
    """The topics to watch.

    Attributes:
        options: those of the source; the start counts in the first round alone.
        state_dir: a directory for this job only, kept between runs.
        share: the share of records that the proposed watermark keeps, above 0 and up to 1.
        future_ms: a time is in the future when it is so far ahead of now.
        dry_run: report the offsets, read no record.
    """

    options: Mapping[str, str]
    state_dir: str
    share: float = 0.999
    future_ms: int = 3_600_000
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class _Counts:
    """What one partition adds in one round. Picklable."""

    youngest_ms: int = _NONE_MS
    records: int = 0
    future: int = 0
    largest_step_back_ms: int = 0
    histogram: tuple[int, ...] = (0,) * (len(LATENESS_MS) + 1)


def lateness(
    spark: SparkSession, settings: LatenessSettings, progress: Progress = silent
) -> Outcome:
    """One round: count the new records, keep the counts, and give the proposals so far.

    Raises:
        BadOptions: settings that cannot be carried out.
        DataLoss: records between two rounds are missing, and `failOnDataLoss` is on; or a topic
            was created again.
        Fenced: another run has written the round meanwhile.
    """
    if not 0 < settings.share <= 1:
        raise BadOptions(f"share {settings.share}: give a number above 0 and up to 1")
    options = parse_job_options(
        settings.options, {"onMalformedTimestamp": "clamp"}, unfit=_UNFIT,
        why="here: every round takes all new rows",
    )  # fmt: skip
    journal = Journal(settings.state_dir)
    names = list(journal.names("rounds"))
    last: Mapping[str, Any] = journal.get(f"rounds/{names[-1]}") if names else {}
    with Cluster(options.connection) as cluster:
        progress("plan")
        partitions = cluster.partitions(options.choice)
        topic_ids = {topic: cluster.topic_id(topic) for topic, _ in partitions}
        _check_topics(topic_ids, last)
        ranges = _new_ranges(cluster, options, partitions, last)
    wanted = [one for one in ranges if one.size > 0]
    if settings.dry_run or (not wanted and last):
        return _planned(wanted)
    progress("read")
    before = {(topic, index): when for topic, index, when in last.get("youngest_ms", ())}
    reached_ms = max(before.values(), default=_NONE_MS)
    newest_ms = time.time_ns() // 1_000_000 + settings.future_ms

    def work(one: OffsetRange) -> _Counts:
        youngest_ms = before.get(one.topic_partition, _NONE_MS)
        return observe(_times(options, one), youngest_ms, reached_ms, newest_ms)

    found = run_tasks(spark, work, wanted)
    number = len(names)
    document = _added(last, number, topic_ids, ranges, dict(zip(wanted, found, strict=True)))
    journal.decide(f"rounds/{number:08d}", document, f"has written round {number} of this job")
    return _proposed(document, settings.share)


def _check_topics(topic_ids: Mapping[str, str], last: Mapping[str, Any]) -> None:
    for topic, known in last.get("topic_ids", {}).items():
        if topic_ids.get(topic, known) != known:
            raise DataLoss(
                f"topic {topic} was deleted and created again: its counts are those of other "
                "records. Watch the new one with a state directory of its own"
            )


def _new_ranges(
    cluster: Cluster,
    options: SourceOptions,
    partitions: Iterable[TopicPartition],
    last: Mapping[str, Any],
) -> list[OffsetRange]:
    """The offsets of every partition since the round before; a new partition from its beginning."""
    partitions = list(partitions)
    reached = {(topic, index): end for topic, index, end in last.get("reached", ())}
    if not last:
        now_ms = time.time_ns() // 1_000_000
        reached = dict(resolve_starts(cluster, options, partitions, now_ms))
    first = cluster.list_offsets(dict.fromkeys(partitions, EARLIEST))
    ends = cluster.list_offsets(
        dict.fromkeys(partitions, LATEST), read_committed=options.read_committed
    )
    ranges = []
    for tp in partitions:
        start = reached.get(tp, 0)
        if first[tp].offset > start and last and tp in reached and options.fail_on_data_loss:
            raise DataLoss(
                f"{tp[0]}-{tp[1]}: the last round ended at offset {start} and the log now starts "
                f"at {first[tp].offset}. Set failOnDataLoss=false to continue, or run more often"
            )
        start = max(start, first[tp].offset)
        ranges.append(OffsetRange(*tp, start, max(start, ends[tp].offset)))
    return ranges


def _times(options: SourceOptions, one: OffsetRange) -> Iterable[pa.RecordBatch]:
    """The times of one partition in the order of its offsets; runs in a worker."""
    rules = DecodeRules(
        columns=("timestamp",), read_committed=options.read_committed,
        verify_checksums=options.verify_checksums, on_malformed="clamp",
    )  # fmt: skip
    with Cluster(options.connection) as cluster:
        yield from read_range(cluster, options, one, rules)


def observe(
    batches: Iterable[pa.RecordBatch], youngest_ms: int, reached_ms: int, newest_ms: int
) -> _Counts:
    """The counts of a partition's new records, which are in the order of their offsets.

    Args:
        batches: a column of times in us; records without a time (negative) are left out.
        youngest_ms: the youngest time of the partition before, -1 if there is none.
        reached_ms: that of all partitions at the end of the round before, -1 in the first.
        newest_ms: later times are in the future.
    """
    records = future = largest = 0
    histogram = [0] * (len(LATENESS_MS) + 1)
    for batch in batches:
        micros = batch.column("timestamp").cast(pa.int64())
        times = pc.divide(micros.filter(pc.greater_equal(micros, 0)), 1000)
        if not len(times):
            continue
        before = youngest_before(times, youngest_ms)
        largest = max(largest, pc.max(pc.subtract(before, times)).as_py())
        youngest_ms = max(youngest_ms, pc.max(times).as_py())
        records += len(times)
        future += pc.sum(pc.greater(times, newest_ms)).as_py()
        behind = pc.max_element_wise(pc.subtract(reached_ms, times), 0)
        below = 0
        for place, bound in enumerate(LATENESS_MS):
            within = pc.sum(pc.less_equal(behind, bound)).as_py()
            histogram[place] += within - below
            below = within
        histogram[-1] += len(times) - below
    return _Counts(youngest_ms, records, future, largest, tuple(histogram))


def _added(
    last: Mapping[str, Any],
    number: int,
    topic_ids: Mapping[str, str],
    ranges: Iterable[OffsetRange],
    found: Mapping[OffsetRange, _Counts],
) -> dict[str, Any]:
    """The counts of all rounds so far, as the journal keeps them."""
    youngest = {(topic, index): when for topic, index, when in last.get("youngest_ms", ())}
    youngest |= {one.topic_partition: counts.youngest_ms for one, counts in found.items()}
    reached = {(topic, index): end for topic, index, end in last.get("reached", ())}
    reached |= {one.topic_partition: one.end for one in ranges}
    histogram = last.get("histogram", _Counts().histogram)
    for counts in found.values():
        histogram = [old + new for old, new in zip(histogram, counts.histogram, strict=True)]
    return {
        "number": number,
        "topic_ids": {**last.get("topic_ids", {}), **topic_ids},
        "reached": [[*tp, end] for tp, end in sorted(reached.items())],
        "youngest_ms": [[*tp, when] for tp, when in sorted(youngest.items())],
        "records": last.get("records", 0) + sum(one.records for one in found.values()),
        "future": last.get("future", 0) + sum(one.future for one in found.values()),
        "max_lateness_ms": max(
            [last.get("max_lateness_ms", 0), *(one.largest_step_back_ms for one in found.values())]
        ),
        "histogram": list(histogram),
    }


def _planned(ranges: Sequence[OffsetRange]) -> Outcome:
    return planned(
        (
            {"topic": one.topic, "partition": one.partition, "read": f"{one.start}-{one.end}"}
            for one in ranges
        ),
        f"would read {len(ranges)} partitions",
        "no new records",
    )


def _proposed(document: Mapping[str, Any], share: float) -> Outcome:
    """The proposals that the counts lead to."""
    histogram, records = document["histogram"], document["records"]
    kept = 0
    watermark_ms: int | None = None
    for bound, count in zip(LATENESS_MS, histogram, strict=False):
        kept += count
        if kept >= share * records:
            watermark_ms = bound
            break
    largest_ms = document["max_lateness_ms"]
    watermark = "none" if watermark_ms is None else duration(watermark_ms)
    proposed = (
        f"withWatermark('timestamp', '{watermark}') keeps {kept / max(records, 1):.4%}"
        if watermark_ms is not None
        else f"no watermark of up to {duration(LATENESS_MS[-1])} keeps {share:.4%}"
    )
    return Outcome(
        sentence=f"{records:,} records in {document['number'] + 1} rounds, {document['future']:,} "
        f"in the future: maxLateness={largest_ms}ms holds for all; {proposed}",
        report={
            "round": document["number"], "records": records, "future": document["future"],
            "max_lateness_ms": largest_ms, "watermark": watermark, "watermark_ms": watermark_ms,
            "kept": kept, "histogram": histogram,
        },
        rows=tuple(
            {"late_up_to": name, "records": count}
            for name, count in zip((*map(duration, LATENESS_MS), "more"), histogram, strict=True)
        ),
    )  # fmt: skip


def duration(milliseconds: int) -> str:
    """A duration as Spark reads it, in the largest unit that it is a multiple of."""
    for size, unit in _UNITS:
        if milliseconds and milliseconds % size == 0:
            count = milliseconds // size
            return f"{count} {unit}{'s' * (count != 1)}"
    return f"{milliseconds} milliseconds" if milliseconds else "0 seconds"
