"""Records per span of time: the bars above a topic's records.

Two sources. A Tidelog counts exactly (`/histogram`). Elsewhere lookups by time count: a lookup
answers with the first record at or after a time *in log order*, so the difference of two lookups
counts records by the running maximum of their times. Records that arrived late are in the bar of
the record before which they should have come, and everything after a timestamp that is ahead of
the clock is in no bar; both are said with numbers. The bars and the two ends always add up to the
whole log.

Read next: docs/time.md, docs/adr/0027.
"""

import asyncio
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from client.aio.explain import count_by_time
from client.core.offsets import EARLIEST, LATEST, MAX_TIMESTAMP
from client.errors import ClientError, InvalidUse, UnsupportedByBroker
from client.times import TIMESTAMP_MS_MAX
from client.types import OffsetAndTimestamp, TopicPartition
from console.data.hub import Hub
from protocol.time_windows import NO_END_MS, TimeWindow

LOOKUPS_MAX: Final = 1000
"""Lookups by time for one drawing."""
EDGES_MIN: Final = 12
EDGES_MAX: Final = 240
PARTITIONS_MAX: Final = 80
"""Above so many, evenly spread ones stand for all."""
IN_FLIGHT: Final = 32
SPLIT_MAX: Final = 16
"""With at most so many partitions each has bars of its own."""

DAY_HOURS: Final = 24

_DAY_BYTES: Final = 1024 * 1024
"""So much of a log that is not counted yet is read for the small drawing of a day."""

_COUNTED_MAX: Final = 1000
"""Partitions of one answer of the broker's counts."""
_BARS_MAX: Final = 1000
"""Bars of one answer of the broker's counts."""


@dataclass(frozen=True, slots=True)
class Ends:
    """The offsets of a log, and the times of its first and newest record (None: empty)."""

    start: int
    end: int
    first_ms: int | None
    newest_ms: int | None


def count_edges(partitions: int, wanted: int = EDGES_MAX) -> int:
    """How many bars the budget of lookups allows."""
    allowed = LOOKUPS_MAX // max(1, partitions) - 2
    return max(EDGES_MIN, min(allowed, EDGES_MAX, wanted))


def edges_between(from_ms: int, to_ms: int, count: int) -> list[int]:
    """`count` + 1 rising times from `from_ms` to `to_ms`, fewer where milliseconds run out."""
    count = max(1, min(count, to_ms - from_ms))
    width = to_ms - from_ms
    return [from_ms + width * index // count for index in range(count + 1)]


def spread(partitions: Sequence[TopicPartition], limit: int) -> list[TopicPartition]:
    """At most `limit` of the partitions, evenly spread."""
    if len(partitions) <= limit:
        return list(partitions)
    return [partitions[index * len(partitions) // limit] for index in range(limit)]


def counts_of(
    offsets: Sequence[int | None], start: int, end: int
) -> tuple[int, list[int], int]:
    """(records before the span, in each bar, after it) from the offsets found at the edges.

    None is "no record at or after"; answers outside the log come from its growth or retention in
    between. The three add up to `end` - `start`.
    """
    reached = start
    clipped = []
    for offset in offsets:
        reached = max(reached, end if offset is None else min(offset, end))
        clipped.append(reached)
    bars = [after - before for before, after in zip(clipped, clipped[1:], strict=False)]
    return clipped[0] - start, bars, end - clipped[-1]


async def find_ends(hub: Hub, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Ends]:
    """The ends of logs and the times there, by four requests."""
    admin = hub.admin
    starts, ends, firsts = await asyncio.gather(
        admin.list_offsets(dict.fromkeys(partitions, EARLIEST)),
        admin.list_offsets(dict.fromkeys(partitions, LATEST)),
        admin.list_offsets(dict.fromkeys(partitions, 0)),
    )
    newest: Mapping[TopicPartition, OffsetAndTimestamp | None]
    try:
        newest = await admin.list_offsets(dict.fromkeys(partitions, MAX_TIMESTAMP))
    except UnsupportedByBroker:
        newest = await _newest_by_reading(hub, partitions, ends)
    found = {}
    for partition in partitions:
        start, end = starts.get(partition), ends.get(partition)
        first, last = firsts.get(partition), newest.get(partition)
        found[partition] = Ends(
            start=start.offset if start else 0,
            end=end.offset if end else 0,
            first_ms=first.timestamp_ms if first else None,
            newest_ms=last.timestamp_ms if last else None,
        )
    return found


async def _newest_by_reading(
    hub: Hub,
    partitions: Sequence[TopicPartition],
    ends: Mapping[TopicPartition, OffsetAndTimestamp | None],
) -> dict[TopicPartition, OffsetAndTimestamp | None]:
    """The last record of each log, for brokers before 3.0, which do not look for the newest."""
    offsets = {
        partition: end.offset - 1
        for partition in partitions
        if (end := ends.get(partition)) is not None and end.offset > 0
    }
    if not offsets:
        return {}
    try:
        read = await hub.admin.read_records(offsets)
    except ClientError:
        return {}
    return {
        partition: OffsetAndTimestamp(one.records[-1].offset, one.records[-1].timestamp_ms, -1)
        for partition, one in read.items()
        if one.records
    }


async def draw(
    hub: Hub,
    topic: str,
    *,
    from_ms: int | None,
    to_ms: int | None,
    chosen: frozenset[int] | None = None,
    buckets: int = EDGES_MAX,
    has_sizes: bool = False,
) -> dict[str, Any]:
    """The timeline of a topic: exact where the broker counts, else by lookups.

    Without bounds the span is that of the topic: where the broker counts, from its oldest time to
    its newest one, wherever in the log they are, so that every record is in a bar; by lookups from
    the first record to the newest one that is not ahead of the clock. With `has_sizes`,
    ``record_bytes`` has the mean size of a record on disk, of all partitions (-1) and of each.

    Raises:
        NotThere: a chosen partition does not exist.
    """
    everything = await hub.partitions(topic, chosen)
    partitions = spread(everything, PARTITIONS_MAX)
    now_ms = await hub.now_ms()
    ends = await find_ends(hub, partitions)
    window = await hub.window_of(topic)
    answer: dict[str, Any] = {
        "topic": topic,
        "now_ms": now_ms,
        "partitions": len(everything),
        "partitions_drawn": len(partitions),
        "first_ms": min((e.first_ms for e in ends.values() if e.first_ms is not None), default=None),
        "newest_ms": max(
            (e.newest_ms for e in ends.values() if e.newest_ms is not None), default=None
        ),
        "records": sum(one.end - one.start for one in ends.values()),
        "record_bytes": await _record_bytes(hub, ends, window) if has_sizes else {},
    } | await _settings(hub, topic)
    first_ms, last_ms = _span(ends, now_ms)
    if window is not None:
        # Its first record need not be its oldest one, nor its last one its newest.
        first_ms = window.start_ms
        last_ms = max(last_ms, first_ms + 1) if window.end_ms == NO_END_MS else window.end_ms
    # From a time on: up to the present, not to a timestamp far ahead of it.
    low_ms = first_ms if from_ms is None else from_ms
    high_ms = min(max(last_ms if to_ms is None else to_ms, low_ms + 1), TIMESTAMP_MS_MAX)
    if (await hub.kind()).has_metrics_port:
        asked = Asked(topic, from_ms, to_ms, chosen, buckets, len(everything))
        if from_ms is not None:
            asked = replace(asked, from_ms=low_ms, to_ms=high_ms)
        if window is None:
            counted = await _by_counts(hub, asked)
        else:
            counted = await _window_by_counts(hub, asked, window)
        if counted is not None:
            return answer | {"partitions_drawn": len(everything)} | counted
    edges = edges_between(low_ms, high_ms, count_edges(len(partitions), buckets))
    return answer | await _by_lookups(hub, partitions, ends, edges, now_ms)


async def _settings(hub: Hub, topic: str) -> dict[str, Any]:
    """The age from which records are deleted (None: none are), and whether the broker stamps them.

    Both are None where the settings may not be asked for.
    """
    try:
        configs = await hub.admin.topic_configs(topic)
        age_ms = int(configs["retention.ms"].value or -1)
        stamps = configs["message.timestamp.type"].value
    except (ClientError, KeyError, ValueError):
        return {"retention_ms": None, "is_stamped": None}
    is_deleted = age_ms >= 0 and "delete" in (configs["cleanup.policy"].value or "")
    return {
        "retention_ms": age_ms if is_deleted else None,
        "is_stamped": stamps == "LogAppendTime",
    }


async def _record_bytes(
    hub: Hub, ends: Mapping[TopicPartition, Ends], window: TimeWindow | None
) -> dict[int, float]:
    """The mean bytes on disk of a record by partition, -1 for all of them; without empty ones.

    A window has no files of its own: its records count as large as those of its topic.
    """
    if window is not None:
        ends = await find_ends(hub, [TopicPartition(window.topic, tp.partition) for tp in ends])
    sizes = await hub.admin.sizes()
    counts = {tp: one.end - one.start for tp, one in ends.items() if one.end > one.start}
    found = {tp.partition: sizes.get(tp, 0) / count for tp, count in counts.items()}
    if counts:
        found[-1] = sum(sizes.get(tp, 0) for tp in counts) / sum(counts.values())
    return found


async def draw_day(hub: Hub, topic: str, now_ms: int, lookups: int) -> list[int]:
    """Records by hour of the last 24 hours, for a small drawing without a scale.

    By the broker's counts where it has them almost without reading logs, else by at most `lookups`
    in some of the partitions.
    """
    partitions = await hub.partitions(topic)
    from_ms = now_ms - DAY_HOURS * 3_600_000
    if len(partitions) <= _COUNTED_MAX and (await hub.kind()).has_metrics_port:
        asked: dict[str, object] = {"topic": topic, "from": from_ms, "to": now_ms}
        # One more than hours: bars begin at full hours.
        asked |= {"buckets": DAY_HOURS + 1, "bytes": _DAY_BYTES, "limit": _COUNTED_MAX}
        with suppress(UnsupportedByBroker, InvalidUse):
            page = await hub.ask_tidelog("/histogram", asked)
            if not page.get("unanswered") and not page["missing_bytes"]:
                return list(bars_of(page)["bars"])
    edges = edges_between(from_ms, now_ms, max(1, min(DAY_HOURS, lookups - 2)))
    drawn = spread(partitions, max(1, lookups // (len(edges) + 1)))
    ends = await hub.admin.list_offsets(dict.fromkeys(drawn, LATEST))
    found = await _offsets_at(hub, drawn, edges)
    bars = [0] * (len(edges) - 1)
    for tp in drawn:
        end = hit.offset if (hit := ends.get(tp)) else 0
        offsets = [at.get(tp) for at in found]
        start = end if offsets[0] is None else offsets[0]
        _, counts, _ = counts_of(offsets, start, end)
        bars = [total + count for total, count in zip(bars, counts, strict=True)]
    return bars


def _span(ends: Mapping[TopicPartition, Ends], now_ms: int) -> tuple[int, int]:
    """From the first record in a log to the newest one; to the present where that one is ahead."""
    firsts = [one.first_ms for one in ends.values() if one.first_ms is not None]
    newest = [one.newest_ms for one in ends.values() if one.newest_ms is not None]
    if not firsts:
        return now_ms - 3_600_000, now_ms
    first_ms, last_ms = min(firsts), max(newest, default=now_ms)
    # What a log with a timestamp ahead has besides, nothing tells.
    return first_ms, (now_ms if first_ms <= now_ms < last_ms else last_ms) + 1


@dataclass(frozen=True, slots=True)
class Asked:
    """What the broker is to count; None as a bound is that of the topic's records."""

    topic: str
    from_ms: int | None
    to_ms: int | None
    chosen: frozenset[int] | None
    buckets: int
    partitions: int


async def _by_counts(hub: Hub, asked: Asked) -> dict[str, Any] | None:
    """The broker's own counts; None where it has none, or not those of all its workers."""
    question: dict[str, object] = {
        "topic": asked.topic,
        "from": asked.from_ms,
        "to": asked.to_ms,
        "buckets": asked.buckets,
    }
    chosen = asked.chosen
    if chosen is not None and len(chosen) == 1:
        question["partition"] = min(chosen)
    elif chosen is not None or 1 < asked.partitions <= SPLIT_MAX:
        question["split"] = "true"
    try:
        found = await count_by_time(partial(hub.ask_tidelog, "/histogram"), question)
    except (UnsupportedByBroker, InvalidUse):
        return None
    return None if found.get("unanswered") else bars_of(found, chosen)


async def _window_by_counts(hub: Hub, asked: Asked, window: TimeWindow) -> dict[str, Any] | None:
    """The counts of a window: those of its topic, where its ends are between two of their bars.

    None where they are not, as at a time that is no whole second, or where the topic's counts are
    coarser.
    """
    start_ms, end_ms = window.start_ms, window.end_ms
    low_ms = max(start_ms, start_ms if asked.from_ms is None else asked.from_ms)
    high_ms = end_ms if asked.to_ms is None else min(end_ms, asked.to_ms)
    if low_ms >= high_ms:
        return None
    of_topic = replace(
        asked, topic=window.topic, from_ms=low_ms, to_ms=None if high_ms == NO_END_MS else high_ms
    )
    found = await _by_counts(hub, of_topic)
    if found is not None and not _is_within(found, start_ms, end_ms):
        found = await _by_counts(hub, replace(of_topic, buckets=_BARS_MAX))
    if found is None or not _is_within(found, start_ms, end_ms):
        return None
    # What the topic has before and after the window is in the counts, but not in the window.
    before = after = 0
    if found["before"] or (found["after"] and end_ms != NO_END_MS):
        whole = replace(
            of_topic,
            from_ms=start_ms,
            to_ms=None if end_ms == NO_END_MS else end_ms,
            buckets=_BARS_MAX,
        )
        around = found if (low_ms, high_ms) == (start_ms, end_ms) else await _by_counts(hub, whole)
        if around is None or not _is_within(around, start_ms, end_ms):
            return None
        before = around["before"]
        after = 0 if end_ms == NO_END_MS else around["after"]
    found = joined(found, asked.buckets)
    found["before"] = max(0, found["before"] - before)
    found["after"] = max(0, found["after"] - after)
    found["without_time"] = 0
    found["records"] = sum(found["bars"]) + found["before"] + found["after"]
    return found


def _is_within(found: Mapping[str, Any], start_ms: int, end_ms: int) -> bool:
    return bool(start_ms <= found["edges"][0] and found["edges"][-1] <= end_ms)


def joined(found: Mapping[str, Any], count: int) -> dict[str, Any]:
    """The same with at most `count` bars, each of several neighbours; the last may be narrower."""
    edges = found["edges"]
    step = -(-(len(edges) - 1) // count)

    def sums(bars: Sequence[int]) -> list[int]:
        return [sum(bars[at : at + step]) for at in range(0, len(bars), step)]

    split = [{**one, "bars": sums(one["bars"])} for one in found["split"]]
    kept = edges[:-1:step] + edges[-1:]
    return {**found, "edges": kept, "bars": sums(found["bars"]), "split": split}


def bars_of(
    found: Mapping[str, Any], chosen: frozenset[int] | None = None
) -> dict[str, Any]:
    """The bars of a document of /histogram.

    With `chosen` only these partitions count, where it is split by partition.
    """
    width = found["width_ms"]
    edges = list(range(found["from_ms"], found["to_ms"] + width, width))
    inner = [one for one in found.get("partitions", ()) if _is_chosen(one, chosen)]
    split = [
        {"partition": one["partition"], "bars": _dense(one["buckets"], edges, width)}
        for one in inner
    ]
    parts: list[Mapping[str, Any]] = inner if "partitions" in found else [found]
    bars = [0] * (len(edges) - 1)
    for part in parts:
        counts = _dense(part["buckets"], edges, width)
        bars = [total + count for total, count in zip(bars, counts, strict=True)]
    return {
        "source": "counts",
        "lookups": 0,
        "edges": edges,
        "bars": bars,
        "before": sum(part["before"] for part in parts),
        "after": sum(part["after"] for part in parts),
        "without_time": sum(part["without_time"] for part in parts),
        "ahead": 0,
        "missing_bytes": found["missing_bytes"],
        "split": split if 1 < len(split) <= SPLIT_MAX else [],
        "records": sum(part["records"] for part in parts),
    }


def _is_chosen(part: Mapping[str, Any], chosen: frozenset[int] | None) -> bool:
    return chosen is None or part["partition"] in chosen


def _dense(buckets: Sequence[Sequence[int]], edges: Sequence[int], width: int) -> list[int]:
    """A count for every bar, of buckets that name only those with records."""
    bars = [0] * (len(edges) - 1)
    for start_ms, count in buckets:
        bars[(start_ms - edges[0]) // width] += count
    return bars


async def _by_lookups(
    hub: Hub,
    partitions: Sequence[TopicPartition],
    ends: Mapping[TopicPartition, Ends],
    edges: Sequence[int],
    now_ms: int,
) -> dict[str, Any]:
    at_now = bisect_left(edges, now_ms + 1)
    times = [*edges[:at_now], now_ms + 1, *edges[at_now:]]
    found = await _offsets_at(hub, partitions, times)
    before = after = ahead = 0
    bars = [0] * (len(edges) - 1)
    split = []
    for partition in partitions:
        one = ends[partition]
        offsets = [at.get(partition) for at in found]
        now_offset = offsets.pop(at_now)
        early, counts, late = counts_of(offsets, one.start, one.end)
        before, after = before + early, after + late
        bars = [total + count for total, count in zip(bars, counts, strict=True)]
        ahead += 0 if now_offset is None else max(0, one.end - max(now_offset, one.start))
        split.append({"partition": partition.partition, "bars": counts})
    return {
        "source": "lookups",
        "lookups": len(times) * len(partitions),
        "edges": list(edges),
        "bars": bars,
        "before": before,
        "after": after,
        "ahead": ahead,
        "split": split if 1 < len(split) <= SPLIT_MAX else [],
    }


async def _offsets_at(
    hub: Hub, partitions: Sequence[TopicPartition], times: Sequence[int]
) -> list[dict[TopicPartition, int]]:
    """For each time the offset of the first record at or after it, by partition."""
    turns = asyncio.Semaphore(max(1, IN_FLIGHT // max(1, len(partitions))))

    async def at(time_ms: int) -> dict[TopicPartition, int]:
        async with turns:
            hits = await hub.admin.list_offsets(dict.fromkeys(partitions, max(0, time_ms)))
        return {partition: hit.offset for partition, hit in hits.items() if hit is not None}

    return await asyncio.gather(*(at(time_ms) for time_ms in times))
