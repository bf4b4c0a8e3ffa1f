"""translate-offsets: a group's position in one cluster as the same time in another.

For moving readers to a cluster that holds the same records at other offsets. For each partition,
the job takes the time of the next record the group would read, less an overlap, and looks it up in
the other cluster. The overlap must cover how late records can be: then all records from that time
on are read again, and none is left out. Where a group has read everything, it continues at the
other cluster's first record younger than its youngest, less the overlap.

Refused: a target topic that stamps records itself, since its times mean something else; a partition
whose next record has no time. The job commits only on request.

Source: KIP-382 (MirrorMaker uses markers instead).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from client.core.options import ClusterOptions
from client.times import UTC, format_time
from pipeline.errors import BadOptions, DataLoss
from pipeline.jobs.outcome import JobCode, Outcome, Progress, silent
from pipeline.net.cluster import EARLIEST, LATEST, Cluster
from pipeline.options.options import TopicPartition, parse_connection
from pipeline.options.reader import OptionReader
from pipeline.plan.by_time import first_bounds, youngest_ms
from pipeline.plan.reading import RangeReader
from pipeline.plan.splits import OffsetRange
from pipeline.records.batches import DecodeRules
from protocol.records.layout import NO_TIMESTAMP

_FETCH_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslateSettings:
    """From which cluster to which; `overlap_ms` is how late records can be."""

    options: Mapping[str, str]
    target_options: Mapping[str, str]
    groups: Sequence[str]
    overlap_ms: int = 60_000
    commit: bool = False


def translate(settings: TranslateSettings, progress: Progress = silent) -> Outcome:
    """One row for each group and partition; committed in the target on request.

    Raises:
        BadOptions: a target topic stamps records itself, or has fewer partitions.
        BrokerRefused: a group has members in the target, or is denied.
    """
    rows: list[dict[str, Any]] = []
    with (
        Cluster(_connection_of(settings.options)) as origin,
        Cluster(_connection_of(settings.target_options)) as target,
    ):
        for group in settings.groups:
            progress(f"translate {group}")
            found = {tp: mark.offset for tp, mark in origin.committed(group).items()}
            _check_topics(target, found)
            times = {tp: _time_of(origin, tp, offset) for tp, offset in found.items()}
            places = _places(target, times, settings.overlap_ms)
            if settings.commit and places:
                target.commit(group, places, "translated by time")
            rows += [_row(group, tp, found[tp], times[tp], places.get(tp)) for tp in sorted(found)]
    if not rows:
        return Outcome(code=JobCode.NOTHING_TO_DO, sentence="the groups have committed nothing")
    missing = sum(row["target_offset"] is None for row in rows)
    verb = "committed" if settings.commit else "would commit"
    return Outcome(
        code=JobCode.DAMAGED if missing else JobCode.DONE,
        sentence=f"{verb} {len(rows) - missing} offsets, {missing} have no time to go by",
        report={"rows": rows, "committed": settings.commit},
        rows=tuple(rows),
    )


def _connection_of(options: Mapping[str, str]) -> ClusterOptions:
    reader = OptionReader(options)
    connection = parse_connection(reader)
    reader.raise_problems()
    return connection


def _check_topics(target: Cluster, offsets: Mapping[TopicPartition, int]) -> None:
    topics = target.topics({topic for topic, _ in offsets}) if offsets else {}
    problems = []
    for topic in sorted({topic for topic, _ in offsets}):
        if topic not in topics:
            problems.append(f"topic {topic} does not exist in the target cluster: create it")
            continue
        highest = max(index for name, index in offsets if name == topic)
        if highest not in topics[topic].partitions:
            problems.append(
                f"topic {topic} has {len(topics[topic].partitions)} partitions in the target and "
                f"the group reads partition {highest}: records of a key would be elsewhere"
            )
        if target.settings(topic).get("message.timestamp.type") == "LogAppendTime":
            problems.append(
                f"topic {topic} has message.timestamp.type=LogAppendTime in the target: its times "
                "are not those of the records"
            )
    if problems:
        raise BadOptions(*problems)


def _time_of(origin: Cluster, tp: TopicPartition, offset: int) -> int | None:
    """The time of the next record, or 1 ms after the youngest one when all are read."""
    end = origin.list_offsets({tp: LATEST})[tp].offset
    when = _timestamp_at(origin, tp, offset, end) if offset < end else None
    if when is not None:
        return when
    # All records are read, or only markers are left.
    first = origin.list_offsets({tp: EARLIEST})[tp].offset
    youngest = youngest_ms(origin, tp, first, end)
    return None if youngest is None or youngest == NO_TIMESTAMP else youngest + 1


def _timestamp_at(cluster: Cluster, tp: TopicPartition, offset: int, end: int) -> int | None:
    """The time (ms) of the first record at or after `offset`, None if there is none below `end`."""
    rules = DecodeRules(columns=("offset", "timestamp"), on_malformed="clamp")
    reader = RangeReader(
        cluster, OffsetRange(*tp, offset, end), rules, fetch_bytes=_FETCH_BYTES,
        fail_on_data_loss=True,
    )  # fmt: skip
    try:
        for batch in reader.batches():
            return int(batch.column("timestamp").cast(pa.int64())[0].as_py()) // 1000
    except DataLoss:
        return None
    return None


def _places(
    target: Cluster, times: Mapping[TopicPartition, int | None], overlap_ms: int
) -> dict[TopicPartition, int]:
    known = {
        tp: when - overlap_ms
        for tp, when in times.items()
        if when is not None and when != NO_TIMESTAMP
    }
    # The ends first: a record that comes in between must not be before the new position.
    ends = target.list_offsets(dict.fromkeys(known, LATEST))
    found = first_bounds(target, known, read_committed=False)
    # No record that young: the target ends before it, and all later records are new.
    return {tp: bound if bound >= 0 else ends[tp].offset for tp, bound in found.items()}


def _row(
    group: str, tp: TopicPartition, offset: int, when: int | None, place: int | None
) -> dict[str, Any]:
    return {
        "group": group,
        "topic": tp[0],
        "partition": tp[1],
        "offset": offset,
        "time": None if when is None else format_time(when, UTC),
        "target_offset": place,
    }
