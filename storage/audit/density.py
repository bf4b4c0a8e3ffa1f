"""The audit of a density file: does a lookup that starts from it find the right record?

Owns the judgement of its entries against the running maxima of a log, as one of
`storage.audit.auxiliary`. It shares no code with `storage.segment.density`, because the same
mistake in both would not show. Coarser entries than necessary are no fault; faults are violations
of these rules:

| variant              | each entry (t, o)                                                         |
|----------------------|---------------------------------------------------------------------------|
| `interval`, `minute` | t rises; no batch that ends before o has a timestamp of t or later        |
| `minute-map`         | t is the start of a minute, listed once; when it is the newest so far, no |
|                      | batch before o is of a minute after the newest before; the newest minute  |
|                      | of all is listed                                                          |

The engine does not trust a file without seal, or whose seal names another log: that is legal, and
only a warning. Every other fault is damage.
"""

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from typing import Any, Final, NamedTuple

from protocol.records.checksums import crc32c
from protocol.records.layout import NO_TIMESTAMP
from storage.audit.findings import IndexProblem, SegmentSummary
from values.dataclasses import dataclass

MS_PER_MINUTE: Final = 60_000
MINUTE_MAP: Final = "minute-map"
VARIANT_NAMES: Final = {1: "interval", 2: "minute", 3: MINUTE_MAP}

_HEADER: Final = Struct(">4sbbhqq")
_ENTRY: Final = Struct(">qi")
_SEAL: Final = Struct(">4sIqqqI")
_CHECKSUM: Final = Struct(">I")
_ENTRIES_AT: Final = _HEADER.size + _CHECKSUM.size
_SEAL_SIZE: Final = _SEAL.size + _CHECKSUM.size


class JudgedEntry(NamedTuple):
    """An entry with its absolute offset, and its fault, or None."""

    timestamp: int
    offset: int
    problem: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DensityFile:
    """The parsed bytes. `covered` is (log size, next offset, largest timestamp), or None."""

    size: int
    variant: str
    interval_ms: int
    carried_ms: int
    entries: Sequence[tuple[int, int]]
    covered: tuple[int, int, int] | None

    def describe(self) -> tuple[dict[str, Any], str]:
        """Header and seal, for programs and for people."""
        carried = "" if self.carried_ms < 0 else f", the log before it reaches {self.carried_ms}"
        sealed = "no seal: a broker has it in use, or rebuilds it when needed"
        if self.covered is not None:
            size, next_offset, newest = self.covered
            sealed = (
                f"sealed for a log of {size:,} bytes up to offset {next_offset}, newest {newest}"
            )
        facts = {
            "variant": self.variant,
            "interval_ms": self.interval_ms,
            "carried_ms": self.carried_ms,
            "sealed_for": self.covered,
        }
        return facts, f"{self.variant}, buckets of {self.interval_ms:,} ms{carried}; {sealed}"

    def find_problems(self, segment: SegmentSummary) -> Iterator[IndexProblem]:
        """The faults of the file of a segment whose log was read."""
        log = (segment.size, segment.next_offset, segment.max_timestamp)
        if self.covered != log:
            found = "no seal" if self.covered is None else f"a seal of {self.covered}"
            yield IndexProblem(self.size, f"a seal of {log}", found, is_legal=True)
            return
        judged = self.judge(segment.base_offset, segment.maxima.items())
        for slot, entry in enumerate(judged):
            if entry.problem is not None:
                position = _ENTRIES_AT + slot * _ENTRY.size
                yield IndexProblem(position, "an entry to start a lookup from", entry.problem)
        if self.variant == MINUTE_MAP:
            newest = max((time for time, _ in self.entries), default=-MS_PER_MINUTE)
            if segment.max_timestamp >= newest + MS_PER_MINUTE:
                yield IndexProblem(self.size, f"the minute of {segment.max_timestamp}", "none such")

    def verdicts(
        self, base_offset: int, maxima: Iterable[tuple[int, int]]
    ) -> Iterator[tuple[dict[str, int], str | None]]:
        """The entries as they are shown, each with its fault; arguments as of `judge`."""
        for entry in self.judge(base_offset, maxima):
            yield {"time": entry.timestamp, "offset": entry.offset}, entry.problem

    def judge(self, base_offset: int, maxima: Iterable[tuple[int, int]]) -> Iterator[JudgedEntry]:
        """The entries, each with its fault.

        `maxima` are (last offset of a batch, largest timestamp up to there) of the log, in order;
        batches that raise nothing may be left out.
        """
        judge = _judge_minute if self.variant == MINUTE_MAP else _judge_rising
        upcoming = iter(maxima)
        following = next(upcoming, None)
        newest_before = peak = NO_TIMESTAMP
        last_offset = base_offset
        seen: set[int] = set()
        for timestamp, relative in self.entries:
            offset = base_offset + relative
            while following is not None and following[0] < offset:
                newest_before = following[1]
                following = next(upcoming, None)
            problem = judge(timestamp, peak, newest_before)
            if timestamp in seen:
                problem = f"{timestamp} is there twice"
            if offset < last_offset:
                problem = f"offset {offset} comes after {last_offset}"
            yield JudgedEntry(timestamp, offset, problem)
            seen.add(timestamp)
            peak, last_offset = max(peak, timestamp), offset


def read_density(content: bytes) -> DensityFile | IndexProblem:
    """The content of a file, or the reason why it cannot be read."""
    if len(content) < _ENTRIES_AT:
        return IndexProblem(0, f"a header of {_ENTRIES_AT} bytes", f"{len(content)} bytes")
    magic, version, number, _, interval_ms, carried_ms = _HEADER.unpack_from(content)
    if magic != b"TLDX" or version != 1 or number not in VARIANT_NAMES:
        return IndexProblem(0, "a header", f"{magic!r}, version {version}, variant {number}")
    if not _is_summed(content[:_ENTRIES_AT]):
        return IndexProblem(0, "a header with the right checksum", "another checksum")
    body, seal = content[_ENTRIES_AT:], content[_ENTRIES_AT:][-_SEAL_SIZE:]
    covered = None
    if len(seal) == _SEAL_SIZE and seal.startswith(b"TLDS"):
        body = body[:-_SEAL_SIZE]
        end = _ENTRIES_AT + len(body)
        _, count, size, next_offset, newest, crc = _SEAL.unpack_from(seal)
        if not _is_summed(seal):
            return IndexProblem(end, "a seal with the right checksum", "another checksum")
        if count * _ENTRY.size != len(body) or crc != crc32c(content[:end]):
            return IndexProblem(end, "the entries that were sealed", "others, by their checksum")
        covered = (size, next_offset, newest)
    whole = len(body) - len(body) % _ENTRY.size
    return DensityFile(
        size=len(content),
        variant=VARIANT_NAMES[number],
        interval_ms=interval_ms,
        carried_ms=carried_ms,
        entries=[(time, relative) for time, relative in _ENTRY.iter_unpack(body[:whole])],
        covered=covered,
    )


def _judge_rising(timestamp: int, peak: int, newest_before: int) -> str | None:
    if timestamp <= peak:
        return f"timestamp {timestamp} is not above {peak} before it"
    if newest_before >= timestamp:
        return f"timestamp {timestamp}, but a batch before its offset has {newest_before}"
    return None


def _judge_minute(minute: int, peak: int, newest_before: int) -> str | None:
    if minute < 0 or minute % MS_PER_MINUTE:
        return f"{minute} is not the start of a minute"
    is_peak = minute > peak
    if is_peak and newest_before >= (peak + MS_PER_MINUTE if peak >= 0 else 0):
        return f"a batch before its offset has {newest_before}, whose minute was not listed"
    return None


def _is_summed(part: bytes) -> bool:
    """Whether the last four bytes are the CRC-32C of those before."""
    (crc,) = _CHECKSUM.unpack_from(part, len(part) - _CHECKSUM.size)
    return bool(crc == crc32c(part[: -_CHECKSUM.size]))
