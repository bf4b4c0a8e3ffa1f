"""How many records a topic has in each span of time, as JSON on the operators' port.

    GET /histogram?topic=flights
    GET /histogram?topic=flights&partition=0&from=1372636800000&to=1372723200000&buckets=96

The counts are exact, by the records' own times, however late they came: `storage.log.histogram`.
`buckets` is the most bars wanted (240). Their width is one of 1 s, 5 s, 15 s, 1 min, 5 min, 15 min,
1 h, 3 h, 12 h, 1 d, 7 d, 14 d and so on, and they begin at its multiples, so the first and the last
may reach beyond `from` and `to`. Without `from` and `to` they reach from the oldest record to the
newest one, wherever in the log they are. `width_ms` is above `wanted_width_ms` where the counts of
a segment are coarser. `width` is the least width wanted. A bar without records is left out.

    {"topic": "flights", "from_ms": 1372636800000, "to_ms": 1372723200000, "width_ms": 900000,
     "wanted_width_ms": 900000, "buckets": [[1372636800000, 812], [1372637700000, 790], ...],
     "before": 0, "after": 12, "without_time": 0, "records": 9012, "markers": 3,
     "is_complete": true, "missing": [], "missing_segments": 0, "missing_bytes": 0,
     "unanswered": [], "bytes_read": 0, "next": null}

`records` is the sum of all bars, of those before and after them, and of those without a time.
Markers of transactions are no records. What an append could not count is read from the log, at most
`bytes` (64 MiB) for one answer; what is still not counted is listed in `missing` (the first 100
segments), and is in none of the sums: the next question continues there. Nothing is read from an
object store: a segment that is only there, and was not counted before, stays missing.
`unanswered` is as in /segments; what those workers keep is not counted.

    {"partition": 0, "base_offset": 0, "next_offset": 9000, "bytes": 1048301,
     "min_timestamp": null, "max_timestamp": 1372723199000, "why": "not counted yet"}

A topic is answered in pages of `limit` partitions (100): `next` is what to give as `after` for the
next page, and pages add up. `split=true` adds the figures of each partition under "partitions".
Answers are computed one at a time.

Read next: `storage.segment.time_counts`, `broker.operator.http`.
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from broker.operator import queries
from broker.operator.queries import Asked, Document, TopicQuery
from protocol.records.layout import INT64_MAX
from storage.log.histogram import (
    Histogram,
    MissingPart,
    PartitionCounts,
    TimeHistogram,
    Window,
    span_of,
)
from storage.segment.facts import UNKNOWN_MINIMUM

if TYPE_CHECKING:
    from broker.threads import Pool
    from broker.topics.registry import TopicRegistry
    from storage.log.log import Log

BARS: Final = 240
BARS_MAX: Final = 1000
BYTES: Final = 64 * 1024 * 1024
BYTES_MAX: Final = 1024 * 1024 * 1024
PARTITIONS: Final = 100
PARTITIONS_MAX: Final = 1000
MISSING_SHOWN: Final = 100

_PARAMETERS: Final = (
    "topic", "partition", "from", "to", "buckets", "bytes", "split", "limit", "after", "width",
)  # fmt: skip
_SUMMED: Final = (
    "before", "after", "without_time", "records", "markers", "missing_segments", "missing_bytes",
    "bytes_read",
)  # fmt: skip

_NO_MINIMA: Final = (UNKNOWN_MINIMUM, INT64_MAX)


class HistogramAnswers(TopicQuery):
    """Answers to /histogram. Loop thread only; records are counted in `threads`."""

    parameters = _PARAMETERS

    def __init__(self, topics: "TopicRegistry", threads: "Pool") -> None:
        self._topics = topics
        self._threads = threads
        self._histogram = TimeHistogram()
        self._one_at_a_time = asyncio.Lock()

    async def part(self, asked: Asked) -> Document:
        """As in `TopicQuery`."""
        from_ms = queries.number(asked, "from", queries.TIME_MS_MAX)
        to_ms = queries.number(asked, "to", queries.TIME_MS_MAX)
        bars = queries.number(asked, "buckets", BARS_MAX, least=1)
        bytes_max = queries.number(asked, "bytes", BYTES_MAX)
        least_ms = queries.number(asked, "width", queries.TIME_MS_MAX)
        is_split = queries.flag(asked, "split")
        logs, share, following = self._page(asked)
        span = span_of(logs)
        if from_ms is not None and to_ms is not None and from_ms >= to_ms:
            raise queries.BadQuery(
                f"from={from_ms} is not before to={to_ms}; from is inclusive, to is exclusive"
            )
        if to_ms == 0:
            raise queries.BadQuery("to=0 is out of range: give 1 or more; to is exclusive")
        bytes_max = BYTES if bytes_max is None else bytes_max
        async with self._one_at_a_time:
            while True:
                start_ms, end_ms = _bounds(span or (0, 1), from_ms, to_ms)
                window = Window(
                    from_ms=start_ms, to_ms=end_ms, bars=bars or BARS, least_ms=least_ms or 0
                )
                found = await self._threads.drive(
                    self._histogram.count(logs, window, bytes_max=int(bytes_max * share))
                )
                oldest_ms = found.oldest_before_ms
                if from_ms is not None or oldest_ms is None:
                    break
                # The oldest time of a segment was not known, but its counts are.
                span = (oldest_ms, end_ms if span is None else span[1])
        shown = _document(window, found)
        shown["span"] = span
        shown["next"] = following
        if is_split:
            shown["partitions"] = [_partition(one) for one in found.partitions]
        return shown

    def again(self, asked: Asked, parts: Sequence[Document]) -> Asked | None:
        """As in `TopicQuery`: the same bars everywhere."""
        if len({(one["from_ms"], one["to_ms"], one["width_ms"]) for one in parts}) == 1:
            return None
        spans = [one["span"] for one in parts if one["span"] is not None]
        bounds = {}
        if spans:
            whole = (min(start for start, _ in spans), max(end for _, end in spans))
            given = [int(asked[name]) if asked.get(name) else None for name in ("from", "to")]
            bounds = dict(zip(("from", "to"), map(str, _bounds(whole, *given)), strict=True))
        return {**bounds, **asked, "width": str(max(one["width_ms"] for one in parts))}

    def whole(
        self, asked: Asked, parts: Sequence[Document], unanswered: Sequence[Document]
    ) -> Document:
        """As in `TopicQuery`."""
        bars: dict[int, int] = {}
        width_ms = max(part["width_ms"] for part in parts)
        for part in parts:
            for start, count in part["buckets"]:
                start -= start % width_ms
                bars[start] = bars.get(start, 0) + count
        missing = [one for part in parts for one in part["missing"]]
        shown = {
            "topic": asked["topic"],
            "from_ms": min(part["from_ms"] for part in parts),
            "to_ms": max(part["to_ms"] for part in parts),
            "width_ms": width_ms,
            "wanted_width_ms": max(part["wanted_width_ms"] for part in parts),
            "buckets": sorted(bars.items()),
            **{name: sum(part[name] for part in parts) for name in _SUMMED},
            "missing": missing[:MISSING_SHOWN],
            "is_complete": not (missing or unanswered),
            "unanswered": unanswered,
            "next": parts[0]["next"],
        }
        if queries.flag(asked, "split"):
            shown["partitions"] = queries.by_partition(parts)
        return shown

    def _page(self, asked: Asked) -> tuple[list["Log"], float, int | None]:
        """The logs of one page that are kept here, their share of the page, and the partition after
        which the next page begins.
        """
        topic = asked["topic"]
        partition = queries.number(asked, "partition", queries.PARTITION_MAX)
        limit = queries.number(asked, "limit", PARTITIONS_MAX, least=1) or PARTITIONS
        after = queries.number(asked, "after", queries.PARTITION_MAX)
        logs = self._topics.kept_logs(topic, partition)
        if partition is not None:
            return logs, 1.0, None
        known = self._topics.find(topic)
        assert known is not None, "kept_logs has found it"
        rest = range(0 if after is None else after + 1, len(known.partitions))
        page = rest[:limit]
        here = [log for log in logs if log.partition in page]
        return here, len(here) / max(1, len(page)), page[-1] if len(rest) > limit else None


def _bounds(span: tuple[int, int], from_ms: int | None, to_ms: int | None) -> tuple[int, int]:
    """The window: a bound that is not given is that of the records, or gives way to the other."""
    start_ms, end_ms = span
    if from_ms is None:
        from_ms = start_ms if to_ms is None else min(start_ms, to_ms - 1)
    return from_ms, max(end_ms, from_ms + 1) if to_ms is None else to_ms


def _document(window: Window, found: Histogram) -> Document:
    bars: dict[int, int] = {}
    for one in found.partitions:
        for start, count in one.bars.items():
            bars[start] = bars.get(start, 0) + count
    return {
        "from_ms": found.bars.start,
        "to_ms": found.bars.stop,
        "width_ms": found.bars.step,
        "wanted_width_ms": window.width_ms(),
        "buckets": sorted(bars.items()),
        "before": sum(one.before for one in found.partitions),
        "after": sum(one.after for one in found.partitions),
        "without_time": sum(one.without_time for one in found.partitions),
        "records": sum(one.records for one in found.partitions),
        "markers": sum(one.markers for one in found.partitions),
        "missing": [_missing(one) for one in found.missing[:MISSING_SHOWN]],
        "missing_segments": len(found.missing),
        "missing_bytes": sum(one.size_bytes for one in found.missing),
        "bytes_read": found.bytes_read,
    }


def _partition(one: PartitionCounts) -> Document:
    return {
        "partition": one.partition,
        "from_offset": one.from_offset,
        "to_offset": one.to_offset,
        "buckets": sorted(one.bars.items()),
        "before": one.before,
        "after": one.after,
        "without_time": one.without_time,
        "records": one.records,
        "markers": one.markers,
    }


def _missing(one: MissingPart) -> Document:
    return {
        "partition": one.partition,
        "base_offset": one.base_offset,
        "next_offset": one.next_offset,
        "bytes": one.size_bytes,
        "min_timestamp": None if one.min_timestamp in _NO_MINIMA else one.min_timestamp,
        "max_timestamp": one.max_timestamp,
        "why": one.why,
    }
