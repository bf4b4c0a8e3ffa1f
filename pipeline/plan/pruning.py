"""Ranges of offsets that cannot hold a record of a time window, and therefore are not read.

Tidelog keeps the smallest and the largest timestamp of every segment. A start in time is an offset
lookup on any broker; an end is not, because older records may follow a younger one. The smallest
timestamps show where none does:

    segment        0      1      2      3      4
    smallest      08:00  09:00  08:50  10:05  10:58        window [09:10, 10:00)
    largest       09:04  09:40  10:10  11:00  12:00
                  before   read   read  after  after

The largest is that of the records that readers see. The markers of transactions carry the time at
which they were written, and count for neither end (releases that do not report this prune less).

Of a segment in which a window ends, its rest is read for late records. A metrics port counts the
records before the window's end there, or before a time soon after it. The segment's first part has
all of them that are not late, as many as it has offsets: no record before the first one that is
young enough is younger. So the rest has a known number of them, often none, and need not be read
beyond the last one (`Pruned.stops`):

    first at or after 10:00 at offset 130, and 135 records before 10:01: stop after five of these

    offset     100 ... 129  130    131    132    133    134    135    136    137 ... 199
    time       .. < 10:00   10:00  09:58  10:02  10:00  10:00  10:03  09:59  10:05  ...
    counted                 1      2             3      4             5      not read

The statistics come from one of three places: the `segment-manifest` next to the files of
`segments.path`, `GET /segments` on the broker's metrics port, or the journal of the bucket that
`segments.remote` names (`bucket`). The metrics port is the one of `segments.statistics`, else the
one that the broker names, if that is reached from here and answers to everyone. All are hints.
Statistics that are missing, damaged, about another topic or about a segment that has changed prune
nothing, and the result of the query is the same.

Invariant: a range is only left out if every record in it is known to be outside the window. The
ends of the ranges are looked up before the statistics, so records appended in between are after
them, and those that are counted besides only have more read. So are the first young offsets: a log
that begins in a segment at the statistics may have lost a younger one, and is not counted.

Source: the file's format is `storage.segment.manifest`'s.
"""

import contextlib
import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from client.core.options import NOT_SECURED, Security
from client.core.tls import basic_authorization, tls_context
from client.errors import ClientError
from pipeline.net.cluster import Cluster
from pipeline.options.options import SourceOptions, TopicPartition
from pipeline.plan.splits import OffsetRange, Stop, join_ranges
from protocol.records.checksums import crc32c
from protocol.records.layout import INT64_MAX, INT64_MIN

MANIFEST: Final = "segment-manifest"
_HEADING: Final = b"tidelog segment manifest 1"
_TIMEOUT_S: Final = 5.0
_SHORT_TIMEOUT_S: Final = 1.0
"""Of a port that the user has not named: a query does not wait long for a hint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """How many records of a segment, which has one for each offset, are older than `ms`."""

    ms: int
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentTimes:
    """The times (ms) of the records with offsets `[base_offset, next_offset)`.

    Attributes:
        oldest_ms: none is older; INT64_MIN where unknown.
        youngest_ms: none is younger.
        counted: for a time at or after the end of a window within these times, if it is known.
    """

    base_offset: int
    next_offset: int
    oldest_ms: int
    youngest_ms: int
    counted: Counted | None = None

    def misses(self, oldest_ms: int, newest_ms: int) -> bool:
        """Whether no record can be in `[oldest_ms, newest_ms)`."""
        return self.oldest_ms >= newest_ms or self.youngest_ms < oldest_ms


Times = Callable[[Iterable[TopicPartition]], Mapping[TopicPartition, list[SegmentTimes]]]
"""The known segments of partitions."""


@dataclass(slots=True, kw_only=True)
class Pruned:
    """The reads that statistics have spared a plan; but for `stops` it is for people and tests.

    Attributes:
        known: segments whose times were known.
        skipped: how many of them are not read at all.
        offsets: how many offsets of the ranges are not read.
        problem: why there were no statistics, where the options name them.
        stops: ranges of the plan that probably end early, and when.
    """

    known: int = 0
    skipped: int = 0
    offsets: int = 0
    problem: str = ""
    stops: dict[OffsetRange, Stop] = field(default_factory=dict)
    by_partition: dict[TopicPartition, int] = field(default_factory=dict)


def prune(
    options: SourceOptions,
    ranges: Sequence[OffsetRange],
    oldest_ms: int,
    newest_ms: int,
    times: Times | None = None,
    firsts: Mapping[TopicPartition, int] | None = None,
) -> tuple[list[OffsetRange], Pruned]:
    """`ranges` without offsets that cannot be in `[oldest_ms, newest_ms)`, and a report of that.

    `times` gives the known segments where the options name no statistics. With `firsts`, the first
    offsets at or after `newest_ms`, looked up before, ranges that may end early are cut off.
    """
    pruned = Pruned()
    if oldest_ms == INT64_MIN and newest_ms == INT64_MAX:
        return list(ranges), pruned
    known = _statistics(options, ranges, pruned, times, newest_ms if firsts else None)
    kept = []
    for one in ranges:
        rest = [one]
        for segment in known.get(one.topic_partition, ()):
            if segment.base_offset >= one.end or segment.next_offset <= one.start:
                continue
            pruned.known += 1
            if segment.misses(oldest_ms, newest_ms):
                rest = [piece for part in rest for piece in _without(part, segment)]
                pruned.skipped += 1
        first = (firsts or {}).get(one.topic_partition, -1)
        pieces = [
            part
            for piece in join_ranges(rest)
            for part in _cut(piece, known.get(one.topic_partition, ()), first, pruned.stops)
        ]
        spared = one.size - sum(piece.size for piece in pieces)
        if spared:
            pruned.offsets += spared
            pruned.by_partition[one.topic_partition] = spared
        kept += pieces
    return kept, pruned


def _cut(
    one: OffsetRange, segments: Iterable[SegmentTimes], first: int, stops: dict[OffsetRange, Stop]
) -> Iterator[OffsetRange]:
    """`one` in parts: the rest of a segment after the offset `first` has a stop, or is left out
    when it has nothing to count.
    """
    start = one.start
    for segment in sorted(segments, key=lambda segment: segment.base_offset):
        begin = max(segment.base_offset, first, start)
        end = min(segment.next_offset, one.end)
        if first < 0 or segment.counted is None or begin >= end:
            continue
        ahead = min(max(first, segment.base_offset), segment.next_offset) - segment.base_offset
        left = segment.counted.records - ahead
        # Most of it has to be read: rather in tasks side by side. Less than nothing is no count.
        if not 0 <= left <= (end - begin) // 2:
            continue
        if start < begin:
            yield OffsetRange(one.topic, one.partition, start, begin)
        if left:
            rest = OffsetRange(one.topic, one.partition, begin, end)
            stops[rest] = (segment.counted.ms, left)
            yield rest
        start = end
    if start < one.end:
        yield OffsetRange(one.topic, one.partition, start, one.end)


def _statistics(
    options: SourceOptions,
    ranges: Sequence[OffsetRange],
    pruned: Pruned,
    times: Times | None,
    before_ms: int | None,
) -> dict[TopicPartition, list[SegmentTimes]]:
    """The known segments of each partition; none where no statistics are available."""
    known: dict[TopicPartition, list[SegmentTimes]] = {}
    if options.segments_statistics:
        try:
            for topic in sorted({one.topic for one in ranges}):
                security = options.connection.security
                known |= _from_broker(
                    options.segments_statistics, topic, security, security, before_ms=before_ms
                )
        except (OSError, ValueError) as error:
            pruned.problem = f"{options.segments_statistics}: {error}"
    elif times is not None:
        known |= times({one.topic_partition for one in ranges})
    elif options.segments_path:
        folder = Path(options.segments_path)
        for topic, index in {one.topic_partition for one in ranges}:
            known[topic, index] = list(from_manifest(folder / f"{topic}-{index}"))
    return known


def from_named_port(
    cluster: Cluster,
    security: Security,
    partitions: Iterable[TopicPartition],
    *,
    before_ms: int | None = None,
) -> dict[TopicPartition, list[SegmentTimes]]:
    """The segments by the metrics port that the broker names; none if that gives no answer.

    No user is named there: a password goes to the places that the user has chosen. Segments have
    counts of the records before `before_ms`.
    """
    found: dict[TopicPartition, list[SegmentTimes]] = {}
    try:
        url = cluster.metrics_url()
        for topic in sorted({topic for topic, _ in partitions}):
            # Another broker may listen at an address that is only right on the broker's machine.
            topic_id = cluster.topic_id(topic) or "unknown"
            found |= _from_broker(
                url, topic, security, NOT_SECURED, topic_id=topic_id, before_ms=before_ms
            )
    except (ClientError, OSError, ValueError, http.client.HTTPException):
        return {}
    return found


def from_manifest(folder: Path) -> Iterator[SegmentTimes]:
    """The closed segments of a partition's directory, as far as its manifest still fits them."""
    sizes = {}
    for path in folder.glob("*.log"):
        with contextlib.suppress(FileNotFoundError, ValueError):
            sizes[int(path.stem)] = path.stat().st_size
    bases = sorted(sizes)
    following = dict(pairwise(bases))
    for base, facts in _facts(folder).items():
        # A rewritten segment has another size; one that was merged has another neighbour.
        if (
            facts.get("size_bytes") == sizes.get(base, -1)
            and facts.get("next_offset") == following.get(base, -1)
            and "max_timestamp" in facts
        ):
            yield SegmentTimes(
                base_offset=base,
                next_offset=facts["next_offset"],
                oldest_ms=facts.get("min_timestamp", INT64_MIN),
                youngest_ms=min(facts["max_timestamp"], facts.get("data_max_timestamp", INT64_MAX)),
            )


def listed_in(folder: Path) -> frozenset[int]:
    """The segments (by base offset) with a line in the manifest, current or outdated."""
    return frozenset(_facts(folder))


def _facts(folder: Path) -> dict[int, dict[str, int]]:
    """The last valid line of each segment, by its base offset; none without a manifest."""
    try:
        content = (folder / MANIFEST).read_bytes()
    except OSError:
        return {}
    heading, _, rest = content.partition(b"\n")
    found: dict[int, dict[str, int]] = {}
    if heading != _HEADING:
        return found
    for line in rest.split(b"\n"):
        body, _, checksum = line.rpartition(b" ")
        if f"{crc32c(body):08x}".encode() != checksum:
            break
        kind, *pairs = body.decode().split(" ")
        if kind == "segment":
            values = {name: int(value) for name, value in (pair.split("=") for pair in pairs)}
            found[values["base_offset"]] = values
    return found


def _from_broker(
    address: str,
    topic: str,
    security: Security,
    user: Security,
    *,
    topic_id: str = "",
    before_ms: int | None = None,
) -> dict[TopicPartition, list[SegmentTimes]]:
    """The segments of `topic` by a broker's metrics port; raises OSError or ValueError.

    `user` is named there, in clear on loopback only. With `topic_id` (hexadecimal) the answer must
    be of that topic, and come soon.
    """
    timeout_s = _SHORT_TIMEOUT_S if topic_id else _TIMEOUT_S
    url = urllib.parse.urlsplit(address if "://" in address else f"http://{address}")
    tls = url.scheme == "https"
    # The broker's neighbour, like its port for clients: never by way of a proxy of the environment.
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
    if tls:
        handlers.append(
            urllib.request.HTTPSHandler(context=tls_context(replace(security, tls=True)))
        )
    authorization = basic_authorization(user, url.hostname or "", tls=tls)
    opener = urllib.request.build_opener(*handlers)
    known: dict[TopicPartition, list[SegmentTimes]] = {}
    asked = {"topic": topic} if before_ms is None else {"topic": topic, "before": str(before_ms)}
    while True:
        query = urllib.parse.urlencode(asked)
        request = urllib.request.Request(f"{url.scheme}://{url.netloc}/segments?{query}")
        if authorization is not None:
            request.add_unredirected_header("Authorization", authorization)
        try:
            with opener.open(request, timeout=timeout_s) as answer:
                document = json.load(answer)
        except urllib.error.HTTPError as error:
            # Brokers of earlier releases do not know `before`.
            if error.code != HTTPStatus.BAD_REQUEST or not asked.pop("before", ""):
                raise
            continue
        if not isinstance(document, dict):
            raise ValueError(f"{address} is no metrics port of a broker")
        if topic_id and document.get("topic_id") != topic_id:
            raise ValueError(f"{address} answers for another topic {topic}")
        for partition, segments in parse_segments(topic, document).items():
            known.setdefault(partition, []).extend(segments)
        # Brokers of earlier releases answer with all segments, and without this.
        following = document.get("next")
        if following is None:
            return known
        asked["after"] = str(following)


def parse_segments(topic: str, document: Any) -> dict[TopicPartition, list[SegmentTimes]]:
    """The segments in the JSON of `GET /segments`; raises ValueError for any other form."""
    try:
        return {
            (topic, part["partition"]): [
                _times_of(one, part.get("log_start_offset", INT64_MAX)) for one in part["segments"]
            ]
            for part in document["partitions"]
        }
    except (KeyError, TypeError) as error:
        raise ValueError(f"the answer of /segments is not understood: {error!r}") from error


def _times_of(one: Mapping[str, Any], log_start_offset: int) -> SegmentTimes:
    counted = one.get("before") if log_start_offset <= one["base_offset"] else None
    return SegmentTimes(
        base_offset=one["base_offset"],
        next_offset=one["next_offset"],
        oldest_ms=INT64_MIN if one["min_timestamp"] is None else one["min_timestamp"],
        youngest_ms=min(
            INT64_MAX if known is None else known
            for known in (one["max_timestamp"], one.get("data_max_timestamp"))
        ),
        counted=counted and Counted(ms=counted["ms"], records=counted["records"]),
    )


def _without(one: OffsetRange, segment: SegmentTimes) -> list[OffsetRange]:
    """The parts of `one` on both sides of `segment`."""
    below = OffsetRange(one.topic, one.partition, one.start, min(one.end, segment.base_offset))
    above = OffsetRange(one.topic, one.partition, max(one.start, segment.next_offset), one.end)
    return [part for part in (below, above) if part.size > 0]
