"""Facts about a topic's segments, as JSON on the operators' port: time ranges, and what keeps them.

    GET /segments?topic=flights&partition=0            without partition: all of them
    GET /segments?topic=flights&limit=1000&after=0:9000

A reader of a time range skips the segments that cannot hold any of it: those whose
`data_max_timestamp` is below its start, or whose `min_timestamp` is at or above its end. Readers
with access to the files have the same numbers in `segment-manifest`; this is for readers over the
network. Kafka's protocol has no request for it (docs/adr/0014).

    {"topic": "flights", "topic_id": "5a0f12cd...", "now_ms": 1372809600000, "next": null,
     "unanswered": [],
     "partitions": [
        {"partition": 0, "log_start_offset": 0, "high_watermark": 9120, "log_end_offset": 9120,
         "segments": [
            {"base_offset": 0, "next_offset": 9000, "size_bytes": 1048301, "records": 9000,
             "min_timestamp": 1372636800000, "max_timestamp": 1372723199000,
             "data_max_timestamp": 1372723199000, "active": false, "appended_ms": 1372723199512,
             "goes_at_ms": 1373327999001, "reason": "older than retention.ms",
             "kept_by": "RETENTION", "why": "its records are younger than retention.ms",
             "held_by": null, "future": null}, ...],
         "deleted": [{"base_offset": 0, "size_bytes": 1048301, "unlinked_at_ms": 1372809660000}]}]}

With `partition` its keys are at the top level, next to "topic". `topic_id` is hexadecimal: by it a
reader knows that this is the topic that it reads (null while workers differ). Timestamps are ms.
`min_timestamp` is -1 when a record has no time, `max_timestamp` when none has. `max_timestamp`
includes the markers of transactions, as lookups by time do. `data_max_timestamp` does not: it
bounds the records that readers see. `min_timestamp`, `data_max_timestamp` and `records` are null
while they are not known. The last segment is the active one and may grow: its numbers hold for
the records below `next_offset`. `appended_ms` is when a segment was last appended to, -1 for never.

With `before=MS` a segment that may have records on both sides of that time has one key more:
`"before": {"ms": 1372640400000, "records": 812}`. So many of its records are older than `ms`, which
is the first time from MS on for which that is known exactly (records without a time count as
older). It is null where no such time is known, and where the segment has not one record for each
of its offsets. A reader that has met so many may leave the rest of the segment
(`storage.segment.time_counts`).

`goes_at_ms` to `future` are those of /retention (`broker.operator.retention`), as of `now_ms`.
`deleted` segments are out of the log; their files wait for `file.delete.delay.ms`.

An answer has at most `limit` segments (1000). `next` is what to give as `after` for the following
ones, null after the last. `unanswered` names the workers that did not answer, of several
(`broker.operator.worker_queries`); their partitions are not in the answer.

Read next: `storage.segment.manifest`, `broker.operator.http`.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from broker.operator import queries
from broker.operator.queries import Asked, Document, TopicQuery
from broker.operator.retention import RetentionFacts
from protocol.records.layout import INT64_MAX
from storage.log.segment_stats import counts_in_memory
from storage.segment.facts import UNKNOWN, UNKNOWN_MAXIMUM, UNKNOWN_MINIMUM
from storage.segment.time_counts import TimeCounts, count_before, read_counts

if TYPE_CHECKING:
    from broker.threads import Pool
    from broker.topics.registry import TopicRegistry
    from storage.log.log import Log
    from storage.segment.segment import Segment

LIMIT: Final = 1000
LIMIT_MAX: Final = 10_000

_PARAMETERS: Final = ("topic", "partition", "limit", "after", "before")
_START: Final = (-1, -1)


class SegmentList(TopicQuery):
    """Answers to /segments. Loop thread only; forecasts are made in `threads`."""

    parameters = _PARAMETERS

    def __init__(self, topics: "TopicRegistry", threads: "Pool", now_ms: Callable[[], int]) -> None:
        """List the segments of `topics`; `now_ms` is the time by which retention deletes."""
        self._topics = topics
        self._threads = threads
        self._now_ms = now_ms

    async def part(self, asked: Asked) -> Document:
        """As in `TopicQuery`."""
        partition = queries.number(asked, "partition", queries.PARTITION_MAX)
        room = _limit(asked)
        after = _place(asked["after"]) if "after" in asked else _START
        before_ms = queries.number(asked, "before", queries.TIME_MS_MAX, least=1)
        logs = self._topics.kept_logs(asked["topic"], partition)
        # Of the topic whose logs these are; it may be deleted while the fates are computed.
        topic = self._topics.find(asked["topic"])
        topic_id = None if topic is None else topic.topic_id.hex()
        now_ms = self._now_ms()
        partitions: list[Document] = []
        is_cut = False
        for log in logs:
            if log.partition < after[0]:
                continue
            rest = [
                number
                for number, segment in enumerate(log.segments)
                if (log.partition, segment.base_offset) > after
            ]
            page = rest[:room]
            if page or partition is not None:
                partitions.append(await self._partition(log, page, now_ms, before_ms))
            room -= len(page)
            if len(page) < len(rest):
                is_cut = True
                break
        return {
            "topic_id": topic_id, "now_ms": now_ms, "is_cut": is_cut, "partitions": partitions,
        }  # fmt: skip

    def whole(
        self, asked: Asked, parts: Sequence[Document], unanswered: Sequence[Document]
    ) -> Document:
        """As in `TopicQuery`."""
        room = _limit(asked)
        partitions: list[Document] = []
        is_cut = any(part["is_cut"] for part in parts)
        for one in queries.by_partition(parts):
            segments = one["segments"][:room]
            is_cut = is_cut or len(segments) < len(one["segments"])
            room -= len(segments)
            if segments or "partition" in asked:
                partitions.append({**one, "segments": segments})
        ids = {part["topic_id"] for part in parts}
        shown: Document = {
            "topic": asked["topic"],
            "topic_id": ids.pop() if len(ids) == 1 else None,
            "now_ms": min(part["now_ms"] for part in parts),
            "next": _last(partitions) if is_cut else None,
            "unanswered": unanswered,
        }
        if "partition" not in asked:
            return {**shown, "partitions": partitions}
        return {**shown, **partitions[0]}

    async def _partition(
        self, log: "Log", page: Sequence[int], now_ms: int, before_ms: int | None
    ) -> Document:
        """The segments of one log with these numbers."""
        segments = list(log.segments)
        facts = RetentionFacts.of(log, log.config)
        shown = [_segment(segments[number], segments[number] is segments[-1]) for number in page]
        counting: dict[int, Callable[[], Document | None]] = {}
        if before_ms is not None:
            counting = {
                number: _counting(segments[number], before_ms)
                for number in page
                if segments[number].min_timestamp < before_ms <= segments[number].max_timestamp
            }
        document = {
            "partition": log.partition,
            "log_start_offset": log.log_start_offset,
            "high_watermark": log.high_watermark,
            "log_end_offset": log.log_end_offset,
            "segments": shown,
            "deleted": [
                {"base_offset": one.base_offset, "size_bytes": one.size_bytes,
                 "unlinked_at_ms": one.due_ms}
                for one in log.changes.deleted_segments()
            ],
        }  # fmt: skip
        # In a thread: a log of 10,000 segments takes tens of milliseconds.
        fates, counted = await self._threads.run(
            lambda: (_fates(facts, now_ms), {n: count() for n, count in counting.items()})
        )
        for number, one in zip(page, shown, strict=True):
            one.update(fates[number])
            if number in counted:
                one["before"] = counted[number]
        return document


def _counting(segment: "Segment", before_ms: int) -> Callable[[], Document | None]:
    """What finds how many records of `segment` are older, as it is now; for any thread."""
    records = segment.next_offset - segment.base_offset
    counts = counts_in_memory(segment)
    if counts is not None and not counts.needs_file:
        counts.load()
        here = _before(count_before(counts.buckets, counts.stretches, records, before_ms))
        return lambda: here
    files, path, coverage = segment.files, segment.path(TimeCounts.SUFFIX), segment.coverage()

    def read() -> Document | None:
        stored = read_counts(files, path)
        if stored is None or stored[2] != coverage:
            return None
        return _before(count_before(stored[0], stored[1], records, before_ms))

    return read


def _before(found: tuple[int, int] | None) -> Document | None:
    return None if found is None else {"ms": found[0], "records": found[1]}


def _limit(asked: Asked) -> int:
    return queries.number(asked, "limit", LIMIT_MAX, least=1) or LIMIT


def _fates(facts: RetentionFacts, now_ms: int) -> list[Document]:
    return facts.describe(facts.fates(now_ms))


def _place(text: str) -> tuple[int, int]:
    """Partition and base offset after which to continue. Raises BadQuery."""
    partition, colon, base = text.partition(":")
    parts = {"after": partition, "after=PARTITION": base}
    if not colon:
        raise queries.BadQuery(f"after={text[:40]} is not PARTITION:BASE_OFFSET, as in `next`")
    return (
        queries.number(parts, "after", queries.PARTITION_MAX) or 0,
        queries.number(parts, "after=PARTITION", INT64_MAX) or 0,
    )


def _last(partitions: Sequence[Document]) -> str | None:
    """The last segment that an answer has, as `next`."""
    for one in reversed(partitions):
        if one["segments"]:
            return f"{one['partition']}:{one['segments'][-1]['base_offset']}"
    return None


def _segment(segment: "Segment", is_active: bool) -> Document:
    is_known = segment.min_timestamp != UNKNOWN_MINIMUM and not segment.is_empty
    is_unbounded = segment.data_max_timestamp == UNKNOWN_MAXIMUM
    return {
        "base_offset": segment.base_offset,
        "next_offset": segment.next_offset,
        "size_bytes": segment.size,
        "records": None if segment.records == UNKNOWN else segment.records,
        "min_timestamp": segment.min_timestamp if is_known else None,
        "max_timestamp": segment.max_timestamp,
        "data_max_timestamp": None if is_unbounded else segment.data_max_timestamp,
        "active": is_active,
        "appended_ms": segment.appended_ms,
    }
