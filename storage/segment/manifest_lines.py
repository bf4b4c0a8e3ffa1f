# cython: language_level=3, boundscheck=False, wraparound=False
# mypy: disable-error-code="untyped-decorator,valid-type,no-any-return"
"""The lines of `segment-manifest`; a start of ten thousand segments reads twenty thousand of them.

A line that this release wrote differs from others of its kind only in its numbers, so it is read
against a form: the text of the line with `NUMBER` in the place of each number. Like
`protocol.records.record_loops` this runs compiled and plain; plain, a regular expression reads the
numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, Final

from protocol.records.checksums import crc32c

try:
    import cython
except ImportError:  # A wheel built without a compiler, on a machine without Cython.
    from protocol.records import cython_shim as cython

COMPILED: bool = bool(cython.compiled)
"""Whether this module was compiled to machine code."""

NUMBER: Final = b"#"

_CHECKSUM_BYTES: Final = 9
"""A space and eight hexadecimal digits."""

_SAFE_DIGITS: Final = 18
"""Numbers of more digits may not fit into 63 bits."""


def read_lines(
    content: bytes,
    at: cython.Py_ssize_t,
    forms: Sequence[tuple[str, bytes, Callable[..., Any]]],
    read_other: Callable[[str], tuple[str, Any]],
) -> Iterator[tuple[str, Any]]:
    """Kind and value of each line from position `at` on, up to one whose checksum is wrong.

    `forms` has a kind, the form of its lines, and what makes a value of their numbers; `read_other`
    gets the text of each other line, without the checksum.
    """
    # By positions: a copy of a content of megabytes takes as long as thousands of lines.
    size: cython.Py_ssize_t = len(content)
    while at < size:
        end: cython.Py_ssize_t = content.find(b"\n", at)
        if end < 0:
            end = size
        body = content[at : max(at, end - _CHECKSUM_BYTES)]
        if b" %08x" % crc32c(body) != content[at + len(body) : end]:
            return
        for kind, form, make in forms:
            numbers = numbers_in(body, form)
            if numbers is not None:
                yield kind, make(*numbers)
                break
        else:
            yield read_other(body.decode())
        at = end + 1


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
