# cython: language_level=3
# mypy: disable-error-code="untyped-decorator,valid-type,no-any-return"
"""The fields of a request inside a buffer, as the lanes read them without a decoder.

Every function stays below `end`. Packed values save an object for each pair: a number times 8, plus
how many bytes it took. *Odd* is a value that is rare or wrong: the general way decodes the request
and finds what it is. Like `protocol.records.record_loops` it runs compiled and plain.
"""

from __future__ import annotations

from typing import Final

try:
    import cython
except ImportError:  # A wheel built without a compiler, on a machine without Cython.
    from protocol.records import cython_shim as cython

COMPILED: bool = bool(cython.compiled)
"""Whether this module was compiled to machine code."""

HEADER_BYTES_MIN: Final = 10
"""API key, version, correlation id and the size of the client id."""

_HEADER_BYTES_MIN: Final = HEADER_BYTES_MIN
_TOPIC_ID_BYTES: Final = 16


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def int16(data: cython.p_const_uchar, position: cython.Py_ssize_t) -> cython.int:
    """The signed integer of two bytes at `position`, in network order."""
    value: cython.int = data[position] << 8 | data[position + 1]
    return value - 0x10000 if value >= 0x8000 else value


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def int32(data: cython.p_const_uchar, position: cython.Py_ssize_t) -> cython.longlong:
    """The same of four bytes."""
    high: cython.longlong = int16(data, position)
    low: cython.longlong = data[position + 2] << 8 | data[position + 3]
    return high * 0x10000 + low


@cython.cfunc
@cython.exceptval(check=False)
def int64(data: cython.p_const_uchar, position: cython.Py_ssize_t) -> cython.longlong:
    """The same of eight bytes."""
    high: cython.longlong = int32(data, position)
    low: cython.longlong = int32(data, position + 4)
    return high * 0x10000 * 0x10000 + (low & 0xFFFFFFFF)


@cython.cfunc
@cython.exceptval(check=False)
def size_at(
    data: cython.p_const_uchar,
    position: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    is_flexible: cython.bint,
) -> cython.longlong:
    """The size of an array or of records, packed as `size * 8 + bytes read`; below 0 if odd.

    Odd is a size that is null, cut off, above 2^28 or written longer than necessary: bytes of the
    request become bytes of the answer.
    """
    raw: cython.longlong = 0
    factor: cython.longlong = 1
    count: cython.int = 0
    byte: cython.longlong
    if not is_flexible:
        return -1 if end - position < 4 else int32(data, position) * 8 + 4
    while position < end and count < 4:
        byte = data[position]
        position += 1
        count += 1
        raw += (byte & 0x7F) * factor
        factor *= 0x80
        if byte < 0x80:
            return -1 if byte == 0 else (raw - 1) * 8 + count
    return -1


@cython.cfunc
@cython.exceptval(check=False)
def topic_end(
    data: cython.p_const_uchar,
    position: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    has_id: cython.bint,
    is_flexible: cython.bint,
) -> cython.longlong:
    """Where the name or the id of a topic ends, packed with the bytes before it; below 0 if odd."""
    packed: cython.longlong
    if has_id:
        packed = _TOPIC_ID_BYTES * 8
    elif is_flexible:
        packed = size_at(data, position, end, True)
    else:
        packed = -1 if end - position < 2 else int16(data, position) * 8 + 2
    if packed < 0 or (packed >> 3) + (packed & 7) > end - position:
        return -1
    return (position + (packed >> 3) + (packed & 7)) * 8 + (packed & 7)


@cython.cfunc
@cython.exceptval(check=False)
def body_at(
    data: cython.p_const_uchar,
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    is_flexible: cython.bint,
) -> cython.Py_ssize_t:
    """Where the body of the request in `[start, end)` begins; -1 for an odd header.

    That is one with tags, or a client id that may be no text. The request has `HEADER_BYTES_MIN`
    bytes at least. `end` may be before the end of the frame, to leave room for a body.
    """
    position: cython.Py_ssize_t = start + _HEADER_BYTES_MIN
    size: cython.int = int16(data, position - 2)
    position = text_end(data, position, end, size)
    return position if position < 0 else tags_end(data, position, end, is_flexible)


@cython.cfunc
@cython.exceptval(check=False)
def text_end(
    data: cython.p_const_uchar,
    position: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    size: cython.longlong,
) -> cython.Py_ssize_t:
    """Where the text of `size` bytes ends, below 0 for null; -1 if it is cut off or not ASCII."""
    if size > end - position:
        return -1
    while size > 0:
        if data[position] >= 0x80:
            return -1
        position += 1
        size -= 1
    return position


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def tags_end(
    data: cython.p_const_uchar,
    position: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    is_flexible: cython.bint,
) -> cython.Py_ssize_t:
    """Where the empty tags at `position` end; -1 for others."""
    if not is_flexible:
        return position
    return position + 1 if position < end and data[position] == 0 else -1
