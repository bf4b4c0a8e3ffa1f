"""The audit of a `.counts` file: do its counts fit the log that it covers?

Owns the judgement of the buckets, as one of `storage.audit.auxiliary`. It shares no code with
`storage.segment.time_counts`, because the same mistake in both would not show. The rules:

* the buckets begin at multiples of the width, rise, and are at most 256;
* those with records lie within the times of the log;
* with the records of the stretches, of those without time and of the markers they make up all
  records of the log, if the audit has counted these and no stretch has an unknown number.

The file is never synced, so a crash may leave any part of it, and the engine ignores what it cannot
read. Such a file is no finding, nor is one that covers another state of the log.
"""

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct, unpack_from
from typing import Any, Final

from protocol.records.checksums import crc32c
from storage.audit.findings import IndexProblem, SegmentSummary
from values.dataclasses import dataclass

_HEAD: Final = Struct(">4sIqIIqqqqq")
_PAIR_SIZE: Final = 12
_PART: Final = Struct(">qqqqq")
_SUM: Final = Struct(">I")
_MOST: Final = 256
_SECOND_MS: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class CountsFile:
    """The parsed bytes. `covered` is (log size, next offset, largest timestamp)."""

    width_ms: int
    without_time: int
    markers: int
    covered: tuple[int, int, int]
    pairs: Sequence[tuple[int, int]]
    parts: Sequence[tuple[int, int, int, int, int]]

    def describe(self) -> tuple[dict[str, Any], str]:
        """The header, for programs and for people."""
        size, next_offset, newest = self.covered
        open_bytes = sum(end - position for position, end, *_ in self.parts)
        facts = {
            "width_ms": self.width_ms,
            "without_time": self.without_time,
            "markers": self.markers,
            "not_counted_bytes": open_bytes,
            "covers": self.covered,
        }
        left = f", {open_bytes:,} bytes not counted yet" if open_bytes else ""
        return facts, (
            f"buckets of {self.width_ms:,} ms, {self.without_time} records without time, "
            f"{self.markers} markers{left}; for a log of {size:,} bytes up to offset "
            f"{next_offset}, newest {newest}"
        )

    def find_problems(self, segment: SegmentSummary) -> Iterator[IndexProblem]:
        """The faults of the file of a segment whose log was read."""
        if self.covered != (segment.size, segment.next_offset, segment.max_timestamp):
            return
        for slot, (_, problem) in enumerate(self.verdicts(segment.base_offset, ())):
            if problem is not None:
                position = _HEAD.size + slot * 8
                yield IndexProblem(position, "a bucket in order", problem)
        filled = [start for start, count in self.pairs if count]
        if filled and filled[-1] > segment.max_timestamp:
            found = f"records from {filled[-1]} on"
            yield IndexProblem(_HEAD.size, f"none above {segment.max_timestamp}", found)
        counted = sum(count for _, count in self.pairs) + self.without_time + self.markers
        is_known = segment.records > 0 and all(part[-1] >= 0 for part in self.parts)
        if is_known and counted + sum(part[-1] for part in self.parts) != segment.records:
            yield IndexProblem(_HEAD.size, f"{segment.records} records", f"{counted} counted")

    def verdicts(
        self, _base_offset: int, _maxima: Iterable[tuple[int, int]]
    ) -> Iterator[tuple[dict[str, int], str | None]]:
        """The buckets, each with its fault."""
        before = -1
        for slot, (start, count) in enumerate(self.pairs):
            problem = None
            if start % self.width_ms:
                problem = f"{start} is not a multiple of {self.width_ms}"
            elif start <= before:
                problem = f"{start} comes after {before}"
            elif slot >= _MOST:
                problem = f"there are more than {_MOST} buckets"
            before = start
            yield {"time": start, "records": count}, problem


def read_counts(content: bytes) -> CountsFile | IndexProblem:
    """The content of a file, or the reason why it cannot be read."""

    def refused(expected: str, found: str) -> IndexProblem:
        return IndexProblem(0, expected, found, is_usual=True)

    if len(content) < _HEAD.size + _SUM.size:
        return refused(f"{_HEAD.size + _SUM.size} bytes at least", f"{len(content)} bytes")
    (crc,) = _SUM.unpack_from(content, len(content) - _SUM.size)
    if crc != crc32c(content[: -_SUM.size]):
        return refused("the right checksum", "another checksum")
    magic, version, width_ms, pairs, parts, without_time, markers, *covered = _HEAD.unpack_from(
        content
    )
    middle = _HEAD.size + pairs * _PAIR_SIZE
    end = middle + parts * _PART.size
    if magic != b"TLTC" or version != 1 or width_ms < _SECOND_MS:
        return refused("a header", f"{magic!r}, version {version}, width {width_ms}")
    if end + _SUM.size != len(content):
        return refused(f"{end + _SUM.size} bytes", f"{len(content)} bytes")
    size, next_offset, newest = covered
    return CountsFile(
        width_ms=width_ms,
        without_time=without_time,
        markers=markers,
        covered=(size, next_offset, newest),
        pairs=list(
            zip(
                unpack_from(f">{pairs}q", content, _HEAD.size),
                unpack_from(f">{pairs}I", content, _HEAD.size + 8 * pairs),
                strict=True,
            )
        ),
        parts=[
            (position, stop, oldest, latest, records)
            for position, stop, oldest, latest, records in _PART.iter_unpack(content[middle:end])
        ],
    )
