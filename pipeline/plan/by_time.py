"""From a time to a record that a reader sees, which ListOffsets alone cannot find.

A transaction ends with a marker in the log, stamped by the broker's clock when it was written, and
ListOffsets counts it like a record, here as in Kafka. Where records have times of their own, say of
2013, the first marker is younger than all of them: "the first record at or after noon" is answered
with the first marker, and the youngest record of all is the last one. The same holds for records of
aborted transactions, which readers of committed records do not see. Here a time always means
records that the reader sees. The broker's answer is a bound (no record before it is as young) and
is checked first. Where there is no visible record at it, the search continues after it:

* `first_offsets` is exact. It reads on to the first record, or skips segments with known
  statistics; the records it reads would be read anyway, or are before a start.
* `bounds_of` takes any record that is young enough, and looks for an early one at some twenty
  positions. Where it finds none, the end stays unchanged: more is read, no record is lost.

Times before 1970 cannot be looked up (Kafka gives negative numbers other meanings): for them the
bound is the start of the partition.

Source: Kafka `LogSegment.findOffsetByTimestamp`, KIP-98 (markers).
"""

from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from client.errors import BrokerRefused
from pipeline.net.cluster import EARLIEST, LATEST, MAX_TIMESTAMP, Cluster, Fetched
from pipeline.options.options import SourceOptions, TopicPartition
from pipeline.plan.pruning import prune
from pipeline.plan.reading import RangeReader
from pipeline.plan.segments import read_range
from pipeline.plan.splits import OffsetRange
from pipeline.records.batches import DecodeRules, PartitionDecoder
from protocol.error_codes import ErrorCode
from protocol.records.layout import INT64_MAX

_PROBE_BYTES: Final = 64 * 1024
_PROBES_MAX: Final = 24
_TOGETHER: Final = 16
"""Partitions that are asked at once: as many answers may wait in memory."""
_NEAR_OFFSETS: Final = 1000
"""Reading so many offsets more is cheaper than another look."""

NOTHING: Final = -1


def first_bounds(
    cluster: Cluster, times: Mapping[TopicPartition, int], *, read_committed: bool
) -> dict[TopicPartition, int]:
    """Offsets before which no record is at or after its time (ms); NOTHING where none is at all.

    Sound offsets to start from. Raises as `Cluster.list_offsets`.
    """
    found = cluster.list_offsets(
        {tp: when if when >= 0 else EARLIEST for tp, when in times.items()},
        read_committed=read_committed,
    )
    return {tp: answer.offset for tp, answer in found.items()}


def first_offsets(
    cluster: Cluster, options: SourceOptions, times: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The offset of the first record at or after each time (ms); NOTHING where there is none.

    Raises as `segments.read_range`.
    """
    bounds = first_bounds(cluster, times, read_committed=options.read_committed)
    found = {tp: bound for tp, bound in bounds.items() if bound < 0}
    there = [(tp, bound) for tp, bound in bounds.items() if bound >= 0]
    for first in range(0, len(there), _TOGETHER):
        some = dict(there[first : first + _TOGETHER])
        answers = cluster.fetch_each(
            some, max_bytes=_PROBE_BYTES, read_committed=options.read_committed
        )
        for tp, bound in some.items():
            one, rules = OffsetRange(*tp, bound, bound + 1), _rules(options, times[tp])
            is_record = _first_row(cluster, one, rules, answers.get(tp)) is not None
            found[tp] = bound if is_record else NOTHING
    doubtful = [tp for tp, bound in bounds.items() if bound >= 0 > found[tp]]
    ends = cluster.list_offsets(
        dict.fromkeys(doubtful, LATEST), read_committed=options.read_committed
    )
    for tp in doubtful:
        rest = OffsetRange(*tp, bounds[tp], max(ends[tp].offset, bounds[tp]))
        found[tp] = _search(cluster, options, rest, times[tp])
    return found


def bounds_of(
    cluster: Cluster, options: SourceOptions, ranges: Sequence[OffsetRange], when_ms: int
) -> list[int]:
    """For each range the offset of a record at or after `when_ms`, an early one; else its end.

    Raises as `Cluster.list_offsets`.
    """
    found = first_bounds(
        cluster,
        {one.topic_partition: when_ms for one in ranges},
        read_committed=options.read_committed,
    )
    ends = []
    for one in ranges:
        bound = found[one.topic_partition]
        if NOTHING < bound < one.end:
            ends.append(_early_bound(cluster, options, one, max(bound, one.start), when_ms))
        else:
            ends.append(one.end)
    return ends


def youngest_ms(cluster: Cluster, tp: TopicPartition, start: int, end: int) -> int | None:
    """The largest timestamp (ms) of a partition's records; None if it is not known.

    Where the broker calls a marker the youngest, that of the records in `[start, end)`, which are
    read for it.

    Raises as `RangeReader.batches`.
    """
    found = cluster.list_offsets({tp: MAX_TIMESTAMP})[tp]
    if found.offset < 0 or is_record(cluster, tp, found.offset):
        return found.timestamp_ms if found.offset >= 0 else None
    rules = DecodeRules(columns=("timestamp",), on_malformed="clamp", verify_checksums=False)
    reader = RangeReader(
        cluster, OffsetRange(*tp, start, end), rules, fetch_bytes=8 << 20, fail_on_data_loss=False
    )
    largest = [pc.max(one.column("timestamp").cast(pa.int64())).as_py() for one in reader.batches()]
    return max(largest) // 1000 if largest else None


def is_record(cluster: Cluster, tp: TopicPartition, offset: int) -> bool:
    """Whether there is a record at `offset`, and not a marker."""
    rules = DecodeRules(columns=("offset",), verify_checksums=False)
    return _first_row(cluster, OffsetRange(*tp, offset, offset + 1), rules) is not None


def _search(cluster: Cluster, options: SourceOptions, one: OffsetRange, when_ms: int) -> int:
    """The first offset in `one` at or after `when_ms`, or NOTHING; reads up to it."""
    rules = _rules(options, when_ms)
    # Statistics rule out segments that cannot be young enough.
    for piece in sorted(prune(options, [one], when_ms, INT64_MAX)[0]):
        for batch in read_range(cluster, options, piece, rules):
            return int(batch.column("offset")[0].as_py())
    return NOTHING


def _early_bound(
    cluster: Cluster, options: SourceOptions, one: OffsetRange, lowest: int, when_ms: int
) -> int:
    """The offset of a record of `one`, from `lowest` on, at or after `when_ms`; else its end.

    A binary search that assumes rising times. They need not rise: any record found is young enough,
    which is all that a bound needs.
    """
    best = high = one.end
    low, place = lowest, lowest
    rules = _rules(options, when_ms)
    for _ in range(_PROBES_MAX):
        asked = OffsetRange(one.topic, one.partition, place, high)
        found = _first_row(cluster, asked, rules)
        if found is None:
            low = place
        else:
            best, high = min(best, found), place
        if high - low <= _NEAR_OFFSETS:
            break
        place = (low + high) // 2
    return best


def _rules(options: SourceOptions, when_ms: int) -> DecodeRules:
    return DecodeRules(
        columns=("offset",),
        oldest_ms=when_ms,
        read_committed=options.read_committed,
        verify_checksums=False,
    )


def _first_row(
    cluster: Cluster, one: OffsetRange, rules: DecodeRules, fetched: Fetched | None = None
) -> int | None:
    """The first offset of `one` by the rules within one small fetch from its start."""
    try:
        fetched = fetched or cluster.fetch(
            one.topic_partition,
            one.start,
            max_bytes=_PROBE_BYTES,
            read_committed=rules.read_committed,
        )
    except BrokerRefused as error:
        if error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return None
        raise
    decoder = PartitionDecoder(one.topic, one.partition, one.start, one.end, rules)
    for batch in decoder.feed(fetched.records, fetched.aborted):
        return int(batch.column("offset")[0].as_py())
    return None
