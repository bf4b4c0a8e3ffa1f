"""retention: what a topic would have kept of its archive under other settings.

The archive's records are put into a log again, in thought: segments roll and retention deletes them
as the broker would have done it, with `retention.ms`, `retention.bytes`, `segment.bytes` and
`segment.ms` of each trial. No broker is asked. For each trial and partition:

    segments          how many the log has at the end
    records, bytes    what is in them
    deleted           records that are gone at the end
    peak_bytes        the most that the log held, with the active segment
    oldest            the time of the oldest record that is left
    shortest_history  the shortest time for which, at any moment, all records were still there

Two things are no part of an archive, and have a model. The clock: a record came at the youngest
time up to it in its partition. Times later than the end of the simulation move no clock, but keep
their segments as they do on a broker. The size on disk: a record has the bytes of its key, value
and headers and those of its own lengths, without compression and without the headers of batches.

Retention is looked at where a segment ends. A broker looks every few minutes, so its log may be
larger by what came in between.

Source: KIP-33; Kafka `UnifiedLog.deleteOldSegments`, `LogSegment.shouldRoll`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from client.times import MS_PER_DAY, UTC, format_duration, format_time
from pipeline.errors import BadOptions
from pipeline.jobs.outcome import JobCode, Outcome, Progress, silent
from pipeline.jobs.skew import Stretch, describe_lake, open_lake, tasks_of_lake
from pipeline.jobs.spreading import run_tasks
from pipeline.options.reader import OptionReader
from pipeline.plan.archived import Archive
from pipeline.plan.lake_files import read_in_order
from pipeline.records.batches import HEADERS, DecodeRules
from protocol.records.layout import INT64_MAX, INT64_MIN, NO_TIMESTAMP

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_UNLIMITED: Final = -1
_NAMES: Final = ("retention.ms", "retention.bytes", "segment.bytes", "segment.ms")
_FIGURES: Final = ("segments", "records", "bytes", "deleted", "peak_bytes")
_LENGTHS_BYTES: Final = 8
"""Of a record in format v2: its attributes, its deltas and the lengths of its parts, in varints."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The settings of a topic to try, with Kafka's defaults; -1 is no limit."""

    retention_ms: int = 7 * MS_PER_DAY
    retention_bytes: int = _UNLIMITED
    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * MS_PER_DAY

    def __str__(self) -> str:
        """As the user may write it."""
        numbers = (self.retention_ms, self.retention_bytes, self.segment_bytes, self.segment_ms)
        return ",".join(f"{name}={number}" for name, number in zip(_NAMES, numbers, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionSettings:
    """The archive, and the settings to try on it.

    Attributes:
        state_dir: the archive's state directory, which lists its files.
        trials: the settings to try.
        source: the directory of the lake where it is now; empty where it was written.
        topics: only these archived topics; empty for all.
        at_ms: the moment of the figures; None for the youngest time in the archive.
        dry_run: report the offsets and files, read no record.
    """

    state_dir: str
    trials: Sequence[Trial]
    source: str = ""
    topics: tuple[str, ...] = ()
    at_ms: int | None = None
    dry_run: bool = False


@dataclass(slots=True)
class Segment:
    """A segment of the log in thought. `clock_ms` is the clock at its last record. Picklable."""

    first_ms: int
    records: int = 0
    bytes: int = 0
    oldest_ms: int = INT64_MAX
    newest_ms: int = INT64_MIN
    clock_ms: int = INT64_MIN


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What one trial leaves of one partition; see the top."""

    segments: int
    records: int
    bytes: int
    deleted: int
    peak_bytes: int
    oldest_ms: int | None
    shortest_history_ms: int | None


def retention(
    spark: SparkSession, settings: RetentionSettings, progress: Progress = silent
) -> Outcome:
    """What each trial would have kept.

    Raises:
        BadOptions: `state_dir` is not the state directory of an archive, or the archive has no
            record of one of the topics.
        DataLoss: a file that the archive lists is not there, or has another size.
    """
    progress("plan")
    archive, ranges = open_lake(settings.state_dir, settings.source, settings.topics)
    tasks = tasks_of_lake(archive, ranges)
    if settings.dry_run:
        return describe_lake(tasks)
    if not tasks:
        return Outcome(code=JobCode.NOTHING_TO_DO, sentence="no records")
    progress("read")
    at_ms, trials = _moment(archive, settings.at_ms), tuple(settings.trials)

    def work(task: tuple[Stretch, ...]) -> list[Kept]:
        return _try_all(_records(task), trials, at_ms)

    found = run_tasks(spark, work, tasks)
    partitions = tuple(
        {"try": str(trial), "topic": task[0].wanted.topic, "partition": task[0].wanted.partition,
         **_row(kept)}
        for task, all_kept in zip(tasks, found, strict=True)
        for trial, kept in zip(trials, all_kept, strict=True)
    )  # fmt: skip
    rows = tuple(
        {"try": str(trial), **_row(_sum(one[number] for one in found))}
        for number, trial in enumerate(trials)
    )
    sentence = f"at {format_time(at_ms, UTC)}, by the times of the records and their bytes as sent"
    report = {"at_ms": at_ms, "trials": rows, "partitions": partitions}
    return Outcome(sentence=sentence, report=report, rows=rows)


def parse_trial(text: str) -> Trial:
    """`retention.ms=7d,segment.bytes=64m` as a trial.

    Raises:
        BadOptions: with every problem.
    """
    given = dict[str, str]()
    for part in text.split(","):
        name, _, value = part.partition("=")
        given[name.strip()] = value.strip()
    problems = [
        f"--try {text!r}: {name or 'an empty name'} is not tried; known are {', '.join(_NAMES)}"
        for name in given
        if name not in _NAMES
    ]
    # No limit is written as a number below all others.
    unlimited = {name for name in _NAMES[:2] if given.get(name) == str(_UNLIMITED)}
    reader = OptionReader({name: one for name, one in given.items() if name not in unlimited})
    defaults = Trial()
    trial = Trial(
        retention_ms=reader.duration("retention.ms", defaults.retention_ms),
        retention_bytes=reader.size("retention.bytes", defaults.retention_bytes),
        segment_bytes=reader.size("segment.bytes", defaults.segment_bytes),
        segment_ms=reader.duration("segment.ms", defaults.segment_ms),
    )
    if problems or reader.problems:
        raise BadOptions(*problems, *(f"--try {text!r}: {one}" for one in reader.problems))
    return replace(trial, **{name.replace(".", "_"): _UNLIMITED for name in unlimited})


def _moment(archive: Archive, at_ms: int | None) -> int:
    """The end of the simulation: the youngest archived time that is not ahead of now."""
    now_ms = time.time_ns() // 1_000_000
    if at_ms is not None:
        return at_ms
    youngest = [when for file in archive.files for _, when in file.youngest if when <= now_ms]
    return max(youngest, default=now_ms)


def _records(task: Iterable[Stretch]) -> Iterator[pa.RecordBatch]:
    """The records of one partition in the order of their offsets; runs in a worker."""
    rules = DecodeRules(columns=("timestamp", "key", "value", HEADERS), on_malformed="clamp")
    for stretch in task:
        yield from read_in_order(stretch.files or (), rules, fail_on_data_loss=True)


def _try_all(batches: Iterable[pa.RecordBatch], trials: Sequence[Trial], at_ms: int) -> list[Kept]:
    """What each trial leaves of the records of one partition."""
    rollers = {(one.segment_bytes, one.segment_ms): Roller(one, at_ms) for one in trials}
    for batch in batches:
        times = pc.divide(batch.column("timestamp").cast(pa.int64()), 1000)
        sizes = _sizes(batch)
        for roller in rollers.values():
            roller.add(times, sizes)
    logs = {limits: roller.segments for limits, roller in rollers.items()}
    return [simulate(logs[one.segment_bytes, one.segment_ms], one, at_ms) for one in trials]


def _sizes(batch: pa.RecordBatch) -> pa.Array:
    """The bytes of each record."""
    sizes = pc.add(_lengths(batch.column("key")), _lengths(batch.column("value")))
    headers = batch.column(HEADERS)
    if headers.null_count < len(headers):
        flat, parents = headers.flatten(), pc.list_parent_indices(headers)
        inside = pc.add(_lengths(flat.field("key")), _lengths(flat.field("value")))
        table = pa.table({"record": parents.cast(pa.int64()), "bytes": inside})
        summed = table.group_by("record").aggregate([("bytes", "sum")])
        spread = pc.index_in(
            pa.array(range(len(headers)), pa.int64()),
            value_set=summed.column("record").combine_chunks(),
        )
        those = summed.column("bytes_sum").combine_chunks().take(spread)
        sizes = pc.add(sizes, pc.fill_null(those, 0))
    return pc.add(sizes, _LENGTHS_BYTES)


def _lengths(column: pa.Array) -> pa.Array:
    return pc.fill_null(pc.binary_length(column), 0).cast(pa.int64())


class Roller:
    """Cuts the records of a partition into segments as the broker rolls them."""

    def __init__(self, trial: Trial, at_ms: int) -> None:
        """Start without a segment; `at_ms` is where the clock ends."""
        self._bytes, self._ms, self._at_ms = trial.segment_bytes, trial.segment_ms, at_ms
        self._clock_ms = INT64_MIN
        self.segments: list[Segment] = []

    def add(self, times: pa.Array, sizes: pa.Array) -> None:
        """Append records: their times (ms, -1 for none) and sizes, in the order of offsets."""
        before = pa.array([self._clock_ms], pa.int64())
        # Times ahead of the end, and none, move no clock.
        moving = pc.if_else(
            pc.or_(pc.greater(times, self._at_ms), pc.equal(times, NO_TIMESTAMP)), INT64_MIN, times
        )
        clocks = pc.cumulative_max(pa.concat_arrays([before, moving]))[1:]
        self._clock_ms = clocks[-1].as_py()
        times = pc.if_else(pc.equal(times, NO_TIMESTAMP), clocks, times)
        at = 0
        while at < len(times):
            at += self._fill(times[at:], sizes[at:], clocks[at:])

    def _fill(self, times: pa.Array, sizes: pa.Array, clocks: pa.Array) -> int:
        """Put as many records into the last segment as it takes, or one into a new one."""
        last = self.segments[-1] if self.segments else None
        count = 0 if last is None else self._fitting(last, times, sizes)
        if last is None or not count:
            last = Segment(first_ms=times[0].as_py())
            self.segments.append(last)
            count = max(self._fitting(last, times, sizes), 1)
        times, sizes = times[:count], sizes[:count]
        ends = pc.min_max(times)
        last.records += count
        last.bytes += pc.sum(sizes).as_py()
        last.oldest_ms = min(last.oldest_ms, ends["min"].as_py())
        last.newest_ms = max(last.newest_ms, ends["max"].as_py())
        last.clock_ms = clocks[count - 1].as_py()
        return count

    def _fitting(self, last: Segment, times: pa.Array, sizes: pa.Array) -> int:
        """How many of the records come before the segment has to be closed."""
        too_large = pc.greater(pc.cumulative_sum(sizes), self._bytes - last.bytes)
        too_late = pc.greater(pc.subtract(times, last.first_ms), self._ms)
        first = pc.index(pc.or_(too_large, too_late), True).as_py()
        return len(times) if first < 0 else int(first)


def simulate(segments: Sequence[Segment], trial: Trial, at_ms: int) -> Kept:
    """What retention leaves of `segments` at `at_ms`, when it looks at the end of each of them."""
    kept: deque[Segment] = deque()
    size = peak = deleted = 0
    newest_deleted, shortest = INT64_MIN, None
    moments = [(segment, segment.clock_ms) for segment in segments]
    for segment, clock_ms in [*moments, (None, at_ms)]:
        if segment is not None:
            kept.append(segment)
            size += segment.bytes
        peak = max(peak, size)
        gone = _surplus(kept, trial, size, clock_ms)
        for _ in range(gone):
            first = kept.popleft()
            size -= first.bytes
            deleted += first.records
            newest_deleted = max(newest_deleted, min(first.newest_ms, clock_ms))
        if gone:
            history_ms = clock_ms - newest_deleted
            shortest = history_ms if shortest is None else min(shortest, history_ms)
    return Kept(
        segments=len(kept), records=sum(one.records for one in kept), bytes=size, deleted=deleted,
        peak_bytes=peak, oldest_ms=min((one.oldest_ms for one in kept), default=None),
        shortest_history_ms=shortest,
    )  # fmt: skip


def _surplus(kept: Iterable[Segment], trial: Trial, size: int, clock_ms: int) -> int:
    """How many of the oldest segments go: those beyond the size first, then those of age."""
    count = 0
    by_size = trial.retention_bytes != _UNLIMITED
    for one in kept:
        by_size = by_size and size - one.bytes >= trial.retention_bytes
        if not by_size and not 0 <= trial.retention_ms < clock_ms - one.newest_ms:
            break
        size -= one.bytes
        count += 1
    return count


def _sum(parts: Iterable[Kept]) -> Kept:
    """The partitions of a trial together."""
    all_ = list(parts)
    return Kept(
        **{name: sum(getattr(one, name) for one in all_) for name in _FIGURES},
        oldest_ms=min((one.oldest_ms for one in all_ if one.oldest_ms is not None), default=None),
        shortest_history_ms=min(
            (one.shortest_history_ms for one in all_ if one.shortest_history_ms is not None),
            default=None,
        ),
    )


def _row(kept: Kept) -> dict[str, Any]:
    oldest, shortest = kept.oldest_ms, kept.shortest_history_ms
    return {
        **{name: getattr(kept, name) for name in _FIGURES},
        "oldest": "" if oldest is None else format_time(oldest, UTC),
        "shortest_history": "" if shortest is None else format_duration(shortest),
    }
