# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: embedsignature=True
# mypy: disable-error-code="untyped-decorator,valid-type,no-any-return"
"""The loops that read magic 2 records; one of the four `*_loops` that we compile.

Written in Cython's pure Python mode. Compiled, a loop costs nanoseconds per record and makes no
Python object for it; uncompiled, the same file runs as it stands, slower, with equal results
(a test runs both against each other). `COMPILED` tells which one is loaded.

It owns loops, not decisions: positions, limits and flags come in as numbers, numbers go out. It
knows nothing of codecs (blobs arrive decompressed), of topics or of files. All buffers are
borrowed and only read. Positions are bytes from the start of the buffer; `end` is exclusive and
must not lie behind the buffer's end; timestamps are ms.

Two rules keep both ways of running equal: every number stays inside 64 bits by construction (a
sum that Java would wrap is wrapped here explicitly), and no read happens before its bound check.
Literals wider than 32 bits are assigned to typed locals first: inside an expression Cython would
make Python objects of them.

The record that the loops walk, behind the 61 bytes of a batch header (varints are zig-zag)::

    length varint | attributes i8 | timestamp delta varlong | offset delta varint
    key length varint | key | value length varint | value | header count varint | headers

Source: Kafka `DefaultRecord.readFrom`, `DefaultRecordBatch` (iterator), `ByteUtils`.
Read next: `entry_loops` (entry headers, magic 0 and 1), `encode_loops` (writing), `record`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.errors import InvalidRecords

try:
    import cython
except ImportError:  # A wheel built without a compiler, on a machine without Cython.
    from protocol.records import cython_shim as cython

if TYPE_CHECKING:
    from protocol.records.checksums import Buffer

COMPILED: bool = bool(cython.compiled)
"""Whether this module was compiled to machine code."""

# What is wrong with a record, as `check_records` reports it.
FAULT_NO_KEY = 1
FAULT_TIMESTAMP_RANGE = 2
FAULT_TIMESTAMP_TYPE = 3

# How a set timestamp-type bit is to be judged.
TYPE_IGNORED = 0
TYPE_FORBIDDEN = 1


# --- numbers inside a buffer --------------------------------------------------------------------


@cython.cfunc
@cython.inline
@cython.exceptval(-1)
def _varint(
    data: cython.p_const_uchar, position: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.longlong:
    """A zig-zag varint of at most 5 bytes, packed with its size: `value << 3 | bytes read`.

    No packed result is -1, since that would mean 7 bytes read; so -1 can signal the exception.
    """
    raw: cython.ulonglong = 0
    mask: cython.ulonglong = 0xFFFFFFFF
    shift: cython.int = 0
    byte: cython.ulonglong
    size: cython.longlong = 0
    value: cython.longlong
    while position < end:
        byte = data[position]
        position += 1
        size += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            raw &= mask
            value = raw >> 1
            if raw & 1:
                value = -value - 1
            # Not a shift: shifting a negative number left is undefined in C.
            return value * 8 + size
        shift += 7
        if size == 5:
            raise InvalidRecords("a varint has more than 5 bytes")
    raise InvalidRecords("a varint runs past its record")


@cython.cfunc
@cython.inline
@cython.exceptval(-1)
def _varlong_end(
    data: cython.p_const_uchar, position: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """The position behind a varlong of at most 10 bytes."""
    start: cython.Py_ssize_t = position
    while position < end:
        if data[position] < 0x80:
            return position + 1
        position += 1
        if position - start == 10:
            raise InvalidRecords("a varlong has more than 10 bytes")
    raise InvalidRecords("a varlong runs past its record")


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _varlong(
    data: cython.p_const_uchar, position: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.longlong:
    """The zig-zag varlong in `[position, end)`, which `_varlong_end` has already delimited."""
    raw: cython.ulonglong = 0
    mask: cython.ulonglong = 0xFFFFFFFFFFFFFFFF
    shift: cython.int = 0
    byte: cython.ulonglong
    value: cython.longlong
    while position < end:
        byte = data[position]
        # The tenth byte has room for one bit; masking keeps Python's integers at C's width.
        raw |= ((byte & 0x7F) << shift) & mask
        shift += 7
        position += 1
    value = raw >> 1
    if raw & 1:
        value = -value - 1
    return value


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _wrapping_sum(left: cython.longlong, right: cython.longlong) -> cython.longlong:
    """`left + right` modulo 2^64 as a signed number, which is what Java adds."""
    largest: cython.longlong = 0x7FFFFFFFFFFFFFFF
    if left >= 0 and right > largest - left:
        return (left - largest - 1) + (right - largest - 1)
    if left < 0 and right < -largest - 1 - left:
        return (left + largest + 1) + (right + largest + 1)
    return left + right


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _fault(
    timestamp: cython.longlong,
    oldest: cython.longlong,
    newest: cython.longlong,
    type_rule: cython.int,
) -> cython.int:
    """The timestamp fault of one record, or 0.

    A record without a timestamp passes the window.
    """
    if type_rule != 0:
        return 3
    if timestamp == -1:
        return 0
    return 2 if timestamp < oldest or timestamp > newest else 0


# --- magic 2 records ----------------------------------------------------------------------------


@cython.cfunc
@cython.inline
@cython.exceptval(-1)
def _skip_bytes(
    data: cython.p_const_uchar, position: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """The position behind a varint length and its bytes; a negative length means null."""
    packed: cython.longlong = _varint(data, position, end)
    size: cython.longlong = packed >> 3
    position += packed & 7
    if size <= 0:
        return position
    if size > end - position:
        raise InvalidRecords("a key, value or header runs past its record")
    return position + size


@cython.cfunc
@cython.exceptval(-1)
def _skip_headers(
    data: cython.p_const_uchar, position: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """The position behind the header count and the headers."""
    packed: cython.longlong = _varint(data, position, end)
    count: cython.longlong = packed >> 3
    position += packed & 7
    if count < 0 or count > end - position:
        raise InvalidRecords(f"a record claims {count} headers in {end - position} bytes")
    while count > 0:
        if _varint(data, position, end) < 0:
            raise InvalidRecords("a header key is null")
        position = _skip_bytes(data, position, end)
        position = _skip_bytes(data, position, end)
        count -= 1
    return position


@cython.cfunc
@cython.inline
@cython.exceptval(-1)
def _body_end(
    data: cython.p_const_uchar, position: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.longlong:
    """The end of a record's body packed with the size of its length: `end << 3 | bytes read`."""
    packed: cython.longlong = _varint(data, position, end)
    length: cython.longlong = packed >> 3
    size: cython.longlong = packed & 7
    if length < 1 or length > end - position - size:
        raise InvalidRecords(f"a record of {length} bytes does not fit its batch")
    return (position + size + length) * 8 + size


@cython.cfunc
@cython.exceptval(-1)
def _expect_consumed(
    position: cython.Py_ssize_t, end: cython.Py_ssize_t, count: cython.longlong
) -> cython.int:
    """Refuse bytes that no record of the batch claims; returns 0."""
    if position != end:
        raise InvalidRecords(f"{end - position} bytes remain behind the {count} records of a batch")
    return 0


def timestamp_fault(timestamp: int, oldest: int, newest: int, type_rule: int) -> int:
    """The FAULT_TIMESTAMP_* of one record, or 0; `_fault` for callers outside this module."""
    return _fault(timestamp, oldest, newest, type_rule)


def check_records(
    buffer: Buffer,
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    count: cython.longlong,
    base_timestamp: cython.longlong,
    oldest: cython.longlong,
    newest: cython.longlong,
    type_rule: cython.int,
    keys_required: cython.bint,
) -> tuple[int, int, bool, list[tuple[int, int, int]] | None, int]:
    """Walk the `count` records in `[start, end)` and report what an append has to know.

    Returns (max timestamp, offset delta of the first record that has it, are the offset deltas
    0, 1, 2, ..., faults, min timestamp). The maximum starts at -1, so a batch without timestamps
    yields (-1, -1, ...); the minimum is that of all records, 2^63-1 when there are none. Faults are
    (index, FAULT_*, timestamp), at most one per record and in order; None when there are none.
    `oldest` and `newest` are inclusive bounds for all timestamps but -1.

    Raises:
        InvalidRecords: the structure is broken: a length, varint or header count contradicts the
            bytes, or they hold fewer or more than `count` records.
    """
    if cython.compiled:
        view: cython.const[cython.uchar][::1] = buffer
        data: cython.p_const_uchar = cython.address(view[0])
    else:
        data = buffer
    position: cython.Py_ssize_t = start
    index: cython.longlong = 0
    packed: cython.longlong
    body_end: cython.Py_ssize_t
    timestamp_end: cython.Py_ssize_t
    timestamp: cython.longlong
    offset_delta: cython.longlong
    max_timestamp: cython.longlong = -1
    max_delta: cython.longlong = -1
    min_timestamp: cython.longlong = 0x7FFFFFFFFFFFFFFF
    sequential: cython.bint = True
    fault: cython.int
    has_key: cython.bint
    faults: list[tuple[int, int, int]] | None = None
    while index < count:
        packed = _body_end(data, position, end)
        body_end = packed >> 3
        position += (packed & 7) + 1
        timestamp_end = _varlong_end(data, position, body_end)
        timestamp = _wrapping_sum(base_timestamp, _varlong(data, position, timestamp_end))
        packed = _varint(data, timestamp_end, body_end)
        offset_delta = packed >> 3
        position = timestamp_end + (packed & 7)
        has_key = _varint(data, position, body_end) >= 0
        position = _skip_bytes(data, position, body_end)
        position = _skip_bytes(data, position, body_end)
        position = _skip_headers(data, position, body_end)
        _expect_consumed(position, body_end, 1)
        if offset_delta != index:
            sequential = False
        if timestamp > max_timestamp:
            max_timestamp = timestamp
            max_delta = offset_delta
        if timestamp < min_timestamp:
            min_timestamp = timestamp
        fault = 1 if keys_required and not has_key else 0
        fault = fault or _fault(timestamp, oldest, newest, type_rule)
        if fault != 0:
            faults = faults or []
            faults.append((index, fault, timestamp))
        index += 1
        if index & 0x3FFF == 0:
            # A batch may hold millions: a thread that waits for the interpreter lock gets it here.
            with cython.nogil:
                pass
    _expect_consumed(position, end, count)
    return max_timestamp, max_delta, sequential, faults, min_timestamp


def find_timestamp(
    buffer: Buffer,
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    count: cython.longlong,
    base_offset: cython.longlong,
    base_timestamp: cython.longlong,
    timestamp: cython.longlong,
    first_offset: cython.longlong,
) -> tuple[int, int]:
    """(timestamp, offset) of the first record with a timestamp >= `timestamp` (ms) and an offset
    >= `first_offset`, or (-1, -1) when none of the `count` records in `[start, end)` has both.

    The records are trusted to be well-formed behind the hit; up to it they are checked.

    Raises:
        InvalidRecords: a record before the hit is broken.
    """
    if cython.compiled:
        view: cython.const[cython.uchar][::1] = buffer
        data: cython.p_const_uchar = cython.address(view[0])
    else:
        data = buffer
    position: cython.Py_ssize_t = start
    packed: cython.longlong
    body_end: cython.Py_ssize_t
    timestamp_end: cython.Py_ssize_t
    found: cython.longlong
    offset: cython.longlong
    while count > 0:
        packed = _body_end(data, position, end)
        body_end = packed >> 3
        position += (packed & 7) + 1
        timestamp_end = _varlong_end(data, position, body_end)
        found = _wrapping_sum(base_timestamp, _varlong(data, position, timestamp_end))
        if found >= timestamp:
            offset = base_offset + (_varint(data, timestamp_end, body_end) >> 3)
            if offset >= first_offset:
                return found, offset
        position = body_end
        count -= 1
    return -1, -1


# --- records as values --------------------------------------------------------------------------


@cython.cfunc
def _nullable_bytes(
    whole: memoryview, data: cython.p_const_uchar, position: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
) -> bytes | None:  # fmt: skip
    """A copy of the bytes behind the varint length at `position`; None for a negative length."""
    packed: cython.longlong = _varint(data, position, end)
    size: cython.longlong = packed >> 3
    if size < 0:
        return None
    position += packed & 7
    if size > end - position:
        raise InvalidRecords("a key, value or header runs past its record")
    return bytes(whole[position : position + size])


@cython.cfunc
def _headers(
    whole: memoryview, data: cython.p_const_uchar, position: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
) -> tuple[tuple[str, bytes | None], ...]:  # fmt: skip
    """The headers behind the count at `position`, which must fill the bytes up to `end`."""
    stop: cython.Py_ssize_t = _skip_headers(data, position, end)
    _expect_consumed(stop, end, 1)
    packed: cython.longlong = _varint(data, position, end)
    count: cython.longlong = packed >> 3
    if count == 0:
        return ()
    position += packed & 7
    headers = []
    while count > 0:
        key = _nullable_bytes(whole, data, position, end)
        position = _skip_bytes(data, position, end)
        value = _nullable_bytes(whole, data, position, end)
        position = _skip_bytes(data, position, end)
        headers.append(((key or b"").decode("utf-8", "surrogateescape"), value))
        count -= 1
    return tuple(headers)


def decode_records(
    buffer: Buffer,
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    count: cython.longlong,
    base_offset: cython.longlong,
    base_timestamp: cython.longlong,
    append_timestamp: cython.longlong,
    stamped: cython.bint,
) -> list[tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]]:
    """The `count` records in `[start, end)` as the fields of `record.Record`, copied.

    With `stamped` every record has `append_timestamp` (ms), whatever its delta says.

    Raises:
        InvalidRecords: as `check_records`.
    """
    if cython.compiled:
        view: cython.const[cython.uchar][::1] = buffer
        data: cython.p_const_uchar = cython.address(view[0])
    else:
        data = buffer
    whole: memoryview = memoryview(buffer)
    position: cython.Py_ssize_t = start
    index: cython.longlong = 0
    packed: cython.longlong
    body_end: cython.Py_ssize_t
    timestamp_end: cython.Py_ssize_t
    timestamp: cython.longlong
    offset: cython.longlong
    records = []
    while index < count:
        packed = _body_end(data, position, end)
        body_end = packed >> 3
        position += (packed & 7) + 1
        timestamp_end = _varlong_end(data, position, body_end)
        timestamp = _wrapping_sum(base_timestamp, _varlong(data, position, timestamp_end))
        packed = _varint(data, timestamp_end, body_end)
        offset = _wrapping_sum(base_offset, packed >> 3)
        position = timestamp_end + (packed & 7)
        key = _nullable_bytes(whole, data, position, body_end)
        position = _skip_bytes(data, position, body_end)
        value = _nullable_bytes(whole, data, position, body_end)
        position = _skip_bytes(data, position, body_end)
        headers = _headers(whole, data, position, body_end)
        records.append((offset, append_timestamp if stamped else timestamp, key, value, headers))
        position = body_end
        index += 1
    _expect_consumed(position, end, count)
    return records


def outline_records(
    buffer: Buffer,
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    count: cython.longlong,
    base_offset: cython.longlong,
    base_timestamp: cython.longlong,
) -> list[tuple[int, int, int, int, bytes | None, bool]]:
    """(start, end, offset, timestamp, key, has a value) of the next `count` records.

    For compaction: of a record only the key is copied. The last end is where to go on.

    Raises:
        InvalidRecords: as `check_records`, but bytes behind the records are not looked at.
    """
    if cython.compiled:
        view: cython.const[cython.uchar][::1] = buffer
        data: cython.p_const_uchar = cython.address(view[0])
    else:
        data = buffer
    whole: memoryview = memoryview(buffer)
    first: cython.Py_ssize_t = start
    position: cython.Py_ssize_t
    packed: cython.longlong
    body_end: cython.Py_ssize_t
    timestamp_end: cython.Py_ssize_t
    timestamp: cython.longlong
    offset: cython.longlong
    has_value: cython.bint
    outlines = []
    while count > 0:
        packed = _body_end(data, first, end)
        body_end = packed >> 3
        position = first + (packed & 7) + 1
        timestamp_end = _varlong_end(data, position, body_end)
        timestamp = _wrapping_sum(base_timestamp, _varlong(data, position, timestamp_end))
        packed = _varint(data, timestamp_end, body_end)
        offset = _wrapping_sum(base_offset, packed >> 3)
        position = timestamp_end + (packed & 7)
        key = _nullable_bytes(whole, data, position, body_end)
        position = _skip_bytes(data, position, body_end)
        has_value = _varint(data, position, body_end) >= 0
        outlines.append((first, body_end, offset, timestamp, key, has_value))
        first = body_end
        count -= 1
    return outlines
