# cython: language_level=3, boundscheck=False, wraparound=False
# mypy: disable-error-code="untyped-decorator,valid-type,no-any-return"
"""What `segment-manifest` says of a segment: facts, its object, and how their lines are read.

A start of ten thousand remote segments reads twenty thousand lines and keeps an object for each, so
this runs compiled, and plain, like `protocol.records.record_loops`. Compiled, the numbers are those
of C.

A line that this release wrote differs from others of its kind only in its numbers, so it is read
against a form: the text of the line with `NUMBER` in the place of each number. Plain, a regular
expression reads the numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from functools import cache
from operator import attrgetter
from typing import Final

from protocol.records.checksums import crc32c
from protocol.records.layout import INT64_MAX, INT64_MIN

try:
    import cython
except ImportError:  # A wheel built without a compiler, on a machine without Cython.
    from protocol.records import cython_shim as cython

COMPILED: bool = bool(cython.compiled)
"""Whether this module was compiled to machine code."""

UNKNOWN: Final = -1
UNKNOWN_MINIMUM: Final = INT64_MIN
"""The smallest timestamp of records without statistics: it prunes nothing."""

UNKNOWN_MAXIMUM: Final = INT64_MAX
"""The same for the largest timestamp of records without the markers among them."""

OBJECT_SUFFIX: Final = ".segment"

SEGMENT: Final = "segment"
REMOTE: Final = "remote"
"""The kinds of lines about them."""

NUMBER: Final = b"#"

_CHECKSUM_BYTES: Final = 9
"""A space and eight hexadecimal digits."""

_SAFE_DIGITS: Final = 18
"""Numbers of more digits may not fit into 63 bits."""


@dataclass(frozen=True)
class SegmentFacts:
    """Facts about a closed segment.

    Attributes:
        base_offset: the offset that names it.
        next_offset: one above the last offset in it.
        size_bytes: size of the `.log`; so do the three index sizes.
        max_timestamp: the largest timestamp, or NO_TIMESTAMP.
        max_timestamp_offset: last offset of the first batch that has it.
        first_timestamp: max timestamp of the first batch, for rolling by time.
        appended_ms: the broker's clock at the last append; used where timestamps are absent.
        records: how many records it holds, or UNKNOWN.
        offset_index_crc: CRC-32C of the `.index`; likewise `time_index_crc`.
        min_timestamp: the smallest timestamp of its records as readers see them, so NO_TIMESTAMP if
            one has none; 2^63-1 when it holds no record; UNKNOWN_MINIMUM when it was not collected.
        data_max_timestamp: no record that a reader sees is newer. The markers of transactions,
            which have the broker's time, do not count. NO_TIMESTAMP when there is none;
            UNKNOWN_MAXIMUM when it was not collected, and then `max_timestamp` bounds it.
    """

    base_offset: int
    next_offset: int
    size_bytes: int
    max_timestamp: int
    max_timestamp_offset: int
    first_timestamp: int
    appended_ms: int
    records: int
    offset_index_bytes: int
    time_index_bytes: int
    txn_index_bytes: int
    offset_index_crc: int
    time_index_crc: int
    min_timestamp: int = UNKNOWN_MINIMUM
    data_max_timestamp: int = UNKNOWN_MAXIMUM

    def __reduce__(self) -> tuple[type, tuple[int, ...]]:
        """For tasks of Spark, whose workers may have this module compiled or not."""
        return SegmentFacts, _values_of_facts(self)


@dataclass(frozen=True)
class RemoteObject:
    """One object, as the manifest names it.

    Attributes:
        base_offset: the offset that names the segment.
        next_offset: one above the last offset in it.
        log_bytes: size of the `.log`, the first part of the object.
        object_bytes: size of the whole object.
        crc: CRC-32C of the whole object.
        epoch: the leader epoch in which it was uploaded.
        nonce: the random number of the attempt.
        topic_id: the 16 bytes of the topic's id as an integer.
        partition: the number of the partition.
    """

    base_offset: int
    next_offset: int
    log_bytes: int
    object_bytes: int
    crc: int
    epoch: int
    nonce: int
    topic_id: int
    partition: int

    @property
    def key(self) -> str:
        """The name of the object in its store."""
        return (
            f"{self.topic_id:032x}/{self.partition}/"
            f"{self.base_offset:020d}-{self.epoch}-{self.nonce:016x}{OBJECT_SUFFIX}"
        )

    def __reduce__(self) -> tuple[type, tuple[int, ...]]:
        """For tasks of Spark, whose workers may have this module compiled or not."""
        return RemoteObject, _values_of_object(self)


FACTS_FIELDS: Final = tuple(field.name for field in fields(SegmentFacts))
OBJECT_FIELDS: Final = tuple(field.name for field in fields(RemoteObject))

_values_of_facts: Callable[[SegmentFacts], tuple[int, ...]] = attrgetter(*FACTS_FIELDS)
_values_of_object: Callable[[RemoteObject], tuple[int, ...]] = attrgetter(*OBJECT_FIELDS)


def _format_of(names: Iterable[str], number: str) -> str:
    return "".join(f" {name}={number}" for name in names)


_FACTS_FORMAT: Final = SEGMENT + _format_of(FACTS_FIELDS, "%s")
_OBJECT_FORMAT: Final = _format_of(OBJECT_FIELDS, "%s")
_FACTS_FORM: Final = (SEGMENT + _format_of(FACTS_FIELDS, NUMBER.decode())).encode()
_OBJECT_FORM: Final = (REMOTE + _format_of(OBJECT_FIELDS, NUMBER.decode())).encode()


def facts_line(facts: SegmentFacts) -> str:
    """The line about a segment, without its checksum."""
    return _FACTS_FORMAT % _values_of_facts(facts)


def object_line(kind: str, where: RemoteObject) -> str:
    """The line about an object, without its checksum."""
    return kind + _OBJECT_FORMAT % _values_of_object(where)


def read_lines(
    content: bytes,
    at: cython.Py_ssize_t,
    facts: dict[int, SegmentFacts],
    remote: dict[int, RemoteObject],
    take_other: Callable[[str], None],
) -> int:
    """Read the lines from position `at` on, up to one whose checksum is wrong; how many there are.

    What they say is put into `facts` and `remote`, by base offset; `take_other` gets the text of
    each line of another kind, or with other fields, without its checksum.
    """
    # By positions: a copy of a content of megabytes takes as long as thousands of lines.
    size: cython.Py_ssize_t = len(content)
    count: cython.Py_ssize_t = 0
    while at < size:
        end: cython.Py_ssize_t = content.find(b"\n", at)
        if end < 0:
            end = size
        body = content[at : max(at, end - _CHECKSUM_BYTES)]
        if b" %08x" % crc32c(body) != content[at + len(body) : end]:
            break
        numbers = numbers_in(body, _FACTS_FORM)
        if numbers is not None:
            known = SegmentFacts(*numbers)
            facts[known.base_offset] = known
        else:
            numbers = numbers_in(body, _OBJECT_FORM)
            if numbers is not None:
                where = RemoteObject(*numbers)
                remote[where.base_offset] = where
            else:
                take_other(body.decode())
        at = end + 1
        count += 1
    return count


@cython.ccall
def numbers_in(line: bytes, form: bytes) -> list[int] | None:
    """The numbers in a line, in order, or None if its text is not that of the form."""
    if not COMPILED:
        found = _pattern(form).fullmatch(line)
        return None if found is None else list(map(int, found.groups()))
    return step_through(line, form)


@cache
def _pattern(form: bytes) -> re.Pattern[bytes]:
    return re.compile(b"(-?[0-9]+)".join(map(re.escape, form.split(NUMBER))))


@cython.ccall
def step_through(line: bytes, form: bytes) -> list[int] | None:
    """As `numbers_in`, by one pass over the bytes: the compiled way."""
    numbers: list[int] = []
    end: cython.Py_ssize_t = len(line)
    at: cython.Py_ssize_t = 0
    place: cython.Py_ssize_t
    for place in range(len(form)):
        if form[place] != 35:  # NUMBER
            if at == end or line[at] != form[place]:
                return None
            at += 1
            continue
        start: cython.Py_ssize_t = at
        is_negative: cython.bint = at < end and line[at] == 45  # A minus sign.
        at += is_negative
        first: cython.Py_ssize_t = at
        value: cython.longlong = 0
        while at < end and 48 <= line[at] <= 57:
            if at - first < _SAFE_DIGITS:
                value = 10 * value + line[at] - 48
            at += 1
        if at == first:
            return None
        if at - first > _SAFE_DIGITS:
            numbers.append(int(line[start:at]))
        else:
            numbers.append(-value if is_negative else value)
    return numbers if at == end else None
