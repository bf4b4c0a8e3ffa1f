"""From ranges of offsets to tasks, and from limits to the offsets of one micro-batch.

Pure arithmetic: sizes and options in, ranges out. A task costs Spark about 50 ms of overhead, so
large ranges are cut near a byte target and many small ones share a task.

Source: Spark `KafkaOffsetRangeCalculator` (minPartitions, maxRecordsPerPartition) and
`KafkaMicroBatchStream.rateLimit` (shares of a limit).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pipeline.options.options import SourceOptions, TopicPartition

MIB: Final = 1 << 20
_SMALLEST_TARGET_BYTES: Final = 16 * MIB
_TASKS_WANTED: Final = 8
"""About how many tasks a topic of middle size is cut into by default."""
PACK_ABOVE: Final = 64
"""Above so many ranges, all small ones share tasks."""
_SHARED_BYTES: Final = 4 * MIB
"""What a task reads in the time that it costs: ranges of less share tasks however few they are."""


Stop = tuple[int, int]
"""(ms, records): no record of a range is wanted after so many that are older than the time."""


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """The offsets `[start, end)` of one partition."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        """How many offsets, which is at least the number of records."""
        return self.end - self.start

    @property
    def topic_partition(self) -> TopicPartition:
        """Of which partition."""
        return self.topic, self.partition


def join_ranges(parts: Iterable[OffsetRange]) -> list[OffsetRange]:
    """`parts` in order, neighbours as one."""
    joined: list[OffsetRange] = []
    for part in sorted(parts):
        last = joined[-1] if joined else None
        if last and last.topic_partition == part.topic_partition and last.end == part.start:
            part = OffsetRange(part.topic, part.partition, joined.pop().start, part.end)
        joined.append(part)
    return joined


def cut_ranges(
    ranges: Iterable[OffsetRange],
    *,
    min_partitions: int | None = None,
    max_records: int | None = None,
) -> list[OffsetRange]:
    """`ranges` without empty ones, cut so that none exceeds `max_records` and there are about
    `min_partitions`; a range is never cut for the second reason unless it is a large share.
    """
    pieces = [piece for one in ranges if one.size > 0 for piece in _at_most(one, max_records)]
    if min_partitions is None or len(pieces) >= min_partitions:
        return pieces
    total = sum(piece.size for piece in pieces)
    small = {piece for piece in pieces if _share(piece.size, total, min_partitions) == 1}
    rest = sum(piece.size for piece in pieces if piece not in small)
    left = max(min_partitions - len(small), 1)
    return [
        part
        for piece in pieces
        for part in _divide(piece, 1 if piece in small else _share(piece.size, rest, left))
    ]


def cut_by_bytes(
    ranges: Sequence[OffsetRange],
    bytes_per_offset: Mapping[TopicPartition, float],
    target_bytes: int,
) -> list[OffsetRange]:
    """`ranges` cut so that each part holds about `target_bytes` or less, by the estimates given.

    The target shrinks for topics of middle size, down to 16 MiB, so that several tasks have work;
    a range without an estimate stays whole.
    """
    sizes = {one: one.size * bytes_per_offset.get(one.topic_partition, 0.0) for one in ranges}
    middle = int(sum(sizes.values())) // _TASKS_WANTED
    target = min(target_bytes, max(middle, min(_SMALLEST_TARGET_BYTES, target_bytes)))
    return [
        part for one in ranges for part in _divide(one, max(1, round(sizes[one] / max(target, 1))))
    ]


def pack(
    ranges: Sequence[OffsetRange],
    bytes_per_offset: Mapping[TopicPartition, float],
    target_bytes: int,
    above: int = PACK_ABOVE,
    likely: Mapping[OffsetRange, int] | None = None,
) -> list[tuple[OffsetRange, ...]]:
    """Tasks of neighbouring ranges: of 4 MiB together, or of `target_bytes` above `above` ranges.

    A larger range is a task of its own, and so is one without an estimate among few. Of those in
    `likely` so many offsets are probably read.
    """
    most = target_bytes if len(ranges) > above else min(_SHARED_BYTES, target_bytes)
    counts = [min((likely or {}).get(one, one.size), one.size) for one in ranges]
    sizes = [
        count * bytes_per_offset.get(one.topic_partition, target_bytes / count)
        for one, count in zip(ranges, counts, strict=True)
    ]
    # Even tasks: they run side by side, and the largest is the last to end.
    small = sum(size for size in sizes if size < most)
    room = small / max(-(-small // most), 1)
    tasks: list[tuple[OffsetRange, ...]] = []
    current: list[OffsetRange] = []
    filled = 0.0
    for one, size in zip(ranges, sizes, strict=True):
        if current and (size >= room or filled + size / 2 > room):
            tasks.append(tuple(current))
            current, filled = [], 0.0
        current.append(one)
        filled += size
    return [*tasks, tuple(current)] if current else tasks


def arrange(
    options: SourceOptions,
    ranges: Sequence[OffsetRange],
    estimate: Callable[[Sequence[OffsetRange]], Mapping[TopicPartition, float]],
    pack_above: int = PACK_ABOVE,
    likely: Mapping[OffsetRange, int] | None = None,
) -> list[tuple[OffsetRange, ...]]:
    """`ranges` cut and packed into tasks by the options, else by the bytes of `estimate`.

    Without such options small ranges share tasks, as `pack` says; those in `likely` are not cut.
    """
    cut = cut_ranges(
        ranges,
        min_partitions=options.min_partitions,
        max_records=options.max_records_per_partition,
    )
    if options.min_partitions or options.max_records_per_partition:
        return [(one,) for one in cut]
    bytes_per_offset = estimate(cut)
    target_bytes = options.target_bytes_per_task
    if likely:
        others = [one for one in cut if one not in likely]
        by_bytes = cut_by_bytes(others, bytes_per_offset, target_bytes)
        by_bytes = sorted([*by_bytes, *(one for one in cut if one in likely)])
    else:
        by_bytes = cut_by_bytes(cut, bytes_per_offset, target_bytes)
    return pack(by_bytes, bytes_per_offset, target_bytes, pack_above, likely)


def limit_ends(
    starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], limit: int
) -> dict[TopicPartition, int]:
    """Ends for a batch of about `limit` offsets, shared out by how much each partition has.

    A partition with anything to read gets at least one offset, so that none starves; the sum may
    therefore exceed `limit` by the number of partitions.
    """
    sizes = {tp: end - starts[tp] for tp, end in ends.items() if end > starts[tp]}
    total = sum(sizes.values())
    limited = dict(ends)
    for tp, size in sizes.items():
        share = max(limit * size // total, 1)
        limited[tp] = min(ends[tp], starts[tp] + share)
    return limited


def _at_most(one: OffsetRange, max_records: int | None) -> list[OffsetRange]:
    if max_records is None or one.size <= max_records:
        return [one]
    return _divide(one, -(-one.size // max_records))


def _share(size: int, total: int, parts: int) -> int:
    # Half up, as Java rounds; Python's round would take 2.5 to 2.
    return max(int(size / total * parts + 0.5), 1) if total else 1


def _divide(one: OffsetRange, parts: int) -> list[OffsetRange]:
    """`parts` neighbouring ranges of nearly equal size; fewer when there are fewer offsets."""
    cut = []
    start = one.start
    for left in range(min(parts, max(one.size, 1)), 0, -1):
        end = start + (one.end - start) // left
        cut.append(OffsetRange(one.topic, one.partition, start, end))
        start = end
    return cut
