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

The statistics come from one of three places: the `segment-manifest` next to the files of
`segments.path`, `GET /segments` on the broker's metrics port, or the journal of the bucket that
`segments.remote` names (`bucket`). The metrics port is the one of `segments.statistics`, else the
one that the broker names, if that is reached from here and answers to everyone. All are hints.
Statistics that are missing, damaged, about another topic or about a segment that has changed prune
nothing, and the result of the query is the same.

Invariant: a range is only left out if every record in it is known to be outside the window. The
ends of the ranges are looked up before the statistics, so records appended in between are after
them.

Source: the file's format is `storage.segment.manifest`'s.
"""

import contextlib
import http.client
import json
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from client.core.options import NOT_SECURED, Security
from client.core.tls import basic_authorization, tls_context
from client.errors import ClientError
from pipeline.net.cluster import Cluster
from pipeline.options.options import SourceOptions, TopicPartition
from pipeline.plan.splits import OffsetRange, join_ranges
from protocol.records.checksums import crc32c
from protocol.records.layout import INT64_MAX, INT64_MIN

MANIFEST: Final = "segment-manifest"
_HEADING: Final = b"tidelog segment manifest 1"
_TIMEOUT_S: Final = 5.0
_SHORT_TIMEOUT_S: Final = 1.0
"""Of a port that the user has not named: a query does not wait long for a hint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentTimes:
    """The times (ms) of the records with offsets `[base_offset, next_offset)`.

    Attributes:
        oldest_ms: none is older; INT64_MIN where unknown.
        youngest_ms: none is younger.
    """

    base_offset: int
    next_offset: int
    oldest_ms: int
    youngest_ms: int

    def misses(self, oldest_ms: int, newest_ms: int) -> bool:
        """Whether no record can be in `[oldest_ms, newest_ms)`."""
        return self.oldest_ms >= newest_ms or self.youngest_ms < oldest_ms


Times = Callable[[Iterable[TopicPartition]], Mapping[TopicPartition, list[SegmentTimes]]]
"""The known segments of partitions."""


@dataclass(slots=True, kw_only=True)
class Pruned:
    """The reads that statistics have spared a plan: for people and tests, no code depends on it.

    Attributes:
        known: segments whose times were known.
        skipped: how many of them are not read at all.
        offsets: how many offsets of the ranges are not read.
        problem: why there were no statistics, where the options name them.
    """

    known: int = 0
    skipped: int = 0
    offsets: int = 0
    problem: str = ""
    by_partition: dict[TopicPartition, int] = field(default_factory=dict)


def prune(
    options: SourceOptions,
    ranges: Sequence[OffsetRange],
    oldest_ms: int,
    newest_ms: int,
    times: Times | None = None,
) -> tuple[list[OffsetRange], Pruned]:
    """`ranges` without offsets that cannot be in `[oldest_ms, newest_ms)`, and a report of that.

    `times` gives the known segments where the options name no statistics.
    """
    pruned = Pruned()
    if oldest_ms == INT64_MIN and newest_ms == INT64_MAX:
        return list(ranges), pruned
    known = _statistics(options, ranges, pruned, times)
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
        spared = one.size - sum(piece.size for piece in rest)
        if spared:
            pruned.offsets += spared
            pruned.by_partition[one.topic_partition] = spared
        kept += join_ranges(rest)
    return kept, pruned


def _statistics(
    options: SourceOptions, ranges: Sequence[OffsetRange], pruned: Pruned, times: Times | None
) -> dict[TopicPartition, list[SegmentTimes]]:
    """The known segments of each partition; none where no statistics are available."""
    known: dict[TopicPartition, list[SegmentTimes]] = {}
    if options.segments_statistics:
        try:
            for topic in sorted({one.topic for one in ranges}):
                security = options.connection.security
                known |= _from_broker(options.segments_statistics, topic, security, security)
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
    cluster: Cluster, security: Security, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, list[SegmentTimes]]:
    """The segments by the metrics port that the broker names; none if that gives no answer.

    No user is named there: a password goes to the places that the user has chosen.
    """
    found: dict[TopicPartition, list[SegmentTimes]] = {}
    try:
        url = cluster.metrics_url()
        for topic in sorted({topic for topic, _ in partitions}):
            # Another broker may listen at an address that is only right on the broker's machine.
            topic_id = cluster.topic_id(topic) or "unknown"
            found |= _from_broker(url, topic, security, NOT_SECURED, topic_id=topic_id)
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
    address: str, topic: str, security: Security, user: Security, *, topic_id: str = ""
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
    asked = {"topic": topic}
    while True:
        query = urllib.parse.urlencode(asked)
        request = urllib.request.Request(f"{url.scheme}://{url.netloc}/segments?{query}")
        if authorization is not None:
            request.add_unredirected_header("Authorization", authorization)
        with opener.open(request, timeout=timeout_s) as answer:
            document = json.load(answer)
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
            (topic, part["partition"]): [_times_of(one) for one in part["segments"]]
            for part in document["partitions"]
        }
    except (KeyError, TypeError) as error:
        raise ValueError(f"the answer of /segments is not understood: {error!r}") from error


def _times_of(one: Mapping[str, Any]) -> SegmentTimes:
    return SegmentTimes(
        base_offset=one["base_offset"],
        next_offset=one["next_offset"],
        oldest_ms=INT64_MIN if one["min_timestamp"] is None else one["min_timestamp"],
        youngest_ms=min(
            INT64_MAX if known is None else known
            for known in (one["max_timestamp"], one.get("data_max_timestamp"))
        ),
    )


def _without(one: OffsetRange, segment: SegmentTimes) -> list[OffsetRange]:
    """The parts of `one` on both sides of `segment`."""
    below = OffsetRange(one.topic, one.partition, one.start, min(one.end, segment.base_offset))
    above = OffsetRange(one.topic, one.partition, max(one.start, segment.next_offset), one.end)
    return [part for part in (below, above) if part.size > 0]
