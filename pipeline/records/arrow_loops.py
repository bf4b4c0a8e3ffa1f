# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: embedsignature=True
# mypy: disable-error-code="untyped-decorator,valid-type,no-any-return,index,operator"
"""The loop that turns magic 2 records into Arrow columns, copying each byte once.

Written in Cython's pure Python mode like the loops of `protocol.records`: compiled it costs tens
of nanoseconds per record and makes no Python object for it; uncompiled (a zip on an executor, a
machine without a compiler) the same file runs as it stands, slower, with equal results.

It owns the loop and the bounds, not decisions: runs of records, limits and output buffers come in,
counts go out. Output buffers belong to the caller and must be large enough: `rows` entries for
the fixed columns and one more for ends, as many bytes for keys and for values as the runs have,
and half as many entries for headers (a header takes at least two bytes). Validity bitmaps come
in as all ones and lose bits, so that the usual row costs them nothing.

    cursor[0] rows written       cursor[3] headers written     cursor[6] rows whose time did not
    cursor[1] bytes of keys      cursor[4] bytes of their keys           fit into microseconds
    cursor[2] bytes of values    cursor[5] bytes of their values

Invariant: no read before its bound check, and every number stays inside 64 bits.

Source: Kafka `DefaultRecord.readFrom`; the record is drawn in `protocol.records.record_loops`;
Arrow columnar format, variable-size binary layout. Read next: `pipeline.records.batches`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.errors import CorruptData

try:
    import cython
except ImportError:  # Plain Python on a machine without Cython.
    from protocol.records import cython_shim as cython

if cython.compiled:
    from cython.cimports.libc.string import memcpy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from protocol.records.checksums import Buffer

COMPILED: bool = bool(cython.compiled)
"""Whether this module was compiled to machine code."""

WANT_KEY = 1
WANT_VALUE = 2
WANT_HEADERS = 4

# Timestamps that Spark can hold: 64-bit microseconds.
_MICROS_MS_MAX = 9_223_372_036_854_775


@cython.cfunc
@cython.inline
@cython.exceptval(-1)
def _varint(
    data: cython.p_const_uchar, position: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.longlong:
    """A zig-zag varint of at most 5 bytes, packed with its size: `value << 3 | bytes read`."""
    raw: cython.ulonglong = 0
    mask: cython.ulonglong = 0xFFFFFFFF
    shift: cython.int = 0
    byte: cython.ulonglong
    size: cython.longlong = 0
    value: cython.longlong
    while position < end and size < 5:
        byte = data[position]
        position += 1
        size += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            raw &= mask
            value = raw >> 1
            if raw & 1:
                value = -value - 1
            return value * 8 + size
        shift += 7
    raise CorruptData("a varint of a record is longer than its place")


@cython.cfunc
@cython.inline
@cython.exceptval(-1)
def _varlong_end(
    data: cython.p_const_uchar, position: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """The position behind a varlong of at most 10 bytes."""
    start: cython.Py_ssize_t = position
    while position < end and position - start < 10:
        if data[position] < 0x80:
            return position + 1
        position += 1
    raise CorruptData("a timestamp of a record is longer than its place")


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _varlong(
    data: cython.p_const_uchar, position: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.longlong:
    """The zig-zag varlong in `[position, end)`, already delimited."""
    raw: cython.ulonglong = 0
    mask: cython.ulonglong = 0xFFFFFFFFFFFFFFFF
    shift: cython.int = 0
    byte: cython.ulonglong
    value: cython.longlong
    while position < end:
        byte = data[position]
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
@cython.exceptval(-1)
def _copy(
    target: cython.p_uchar,
    at: cython.longlong,
    data: cython.p_const_uchar,
    position: cython.Py_ssize_t,
    size: cython.longlong,
) -> cython.int:
    """Copy `size` bytes; returns 0."""
    if cython.compiled:
        memcpy(target + at, data + position, size)
    else:
        target[at : at + size] = data[position : position + size]
    return 0


@cython.cfunc
@cython.inline
@cython.exceptval(-1)
def _clear_bit(bitmap: cython.p_uchar, index: cython.longlong) -> cython.int:
    """Mark entry `index` as null; returns 0."""
    at: cython.longlong = index >> 3
    bit: cython.int = 1 << (index & 7)
    byte: cython.int = bitmap[at]
    bitmap[at] = byte & (0xFF ^ bit)
    return 0


@cython.cfunc
@cython.inline
@cython.exceptval(-1)
def _fitting(size: cython.longlong, position: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.int:  # noqa: E501  # fmt: skip
    """Refuse a length that runs past its record; returns 0."""
    if size > end - position:
        raise CorruptData("a key, value or header runs past its record")
    return 0


def fill_rows(  # noqa: C901 - one loop: a call for each step would cost more than the step
    buffer: Buffer,
    runs: Sequence[tuple[int, int, int, int, int, int]],
    limits: tuple[int, int, int, int],
    wanted: cython.int,
    cursor_out: memoryview,
    fixed: tuple[memoryview, memoryview, memoryview],
    key_out: tuple[memoryview, memoryview, memoryview],
    value_out: tuple[memoryview, memoryview, memoryview],
    header_out: tuple[memoryview, memoryview, memoryview, memoryview, memoryview, memoryview, memoryview],  # noqa: E501
) -> None:  # fmt: skip
    """Append the records of `runs` that lie inside `limits` to the columns; moves the cursor.

    A run is (start, end, records, base offset, base timestamp, append timestamp): uncompressed
    records in `buffer[start:end]`; an append timestamp other than -1 stands for every record's
    own. `limits` are (first offset, end offset, oldest ms, newest ms); only the end is exclusive.
    `fixed` is (offsets i64, micros i64, micros bitmap); `key_out` and `value_out` are (ends i32,
    bitmap, bytes); `header_out` is (list ends i32, list bitmap, key ends i32, keys, value ends
    i32, value bitmap, values).

    Raises:
        CorruptData: a length, varint or count contradicts the bytes.
    """
    if cython.compiled:
        source_view: cython.const[cython.uchar][::1] = buffer
        data: cython.p_const_uchar = cython.address(source_view[0])
        cursor: cython.longlong[::1] = cursor_out
        offsets: cython.longlong[::1] = fixed[0]
        micros: cython.longlong[::1] = fixed[1]
        micros_valid_view: cython.uchar[::1] = fixed[2]
        micros_valid: cython.p_uchar = cython.address(micros_valid_view[0])
        key_ends: cython.int[::1] = key_out[0]
        key_valid_view: cython.uchar[::1] = key_out[1]
        key_valid: cython.p_uchar = cython.address(key_valid_view[0])
        key_view: cython.uchar[::1] = key_out[2]
        keys: cython.p_uchar = cython.address(key_view[0])
        value_ends: cython.int[::1] = value_out[0]
        value_valid_view: cython.uchar[::1] = value_out[1]
        value_valid: cython.p_uchar = cython.address(value_valid_view[0])
        value_view: cython.uchar[::1] = value_out[2]
        values: cython.p_uchar = cython.address(value_view[0])
        list_ends: cython.int[::1] = header_out[0]
        list_valid_view: cython.uchar[::1] = header_out[1]
        list_valid: cython.p_uchar = cython.address(list_valid_view[0])
        name_ends: cython.int[::1] = header_out[2]
        name_view: cython.uchar[::1] = header_out[3]
        names: cython.p_uchar = cython.address(name_view[0])
        content_ends: cython.int[::1] = header_out[4]
        content_valid_view: cython.uchar[::1] = header_out[5]
        content_valid: cython.p_uchar = cython.address(content_valid_view[0])
        content_view: cython.uchar[::1] = header_out[6]
        contents: cython.p_uchar = cython.address(content_view[0])
    else:
        data, cursor = buffer, cursor_out
        offsets, micros, micros_valid = fixed
        key_ends, key_valid, keys = key_out
        value_ends, value_valid, values = value_out
        list_ends, list_valid, name_ends, names, content_ends, content_valid, contents = header_out
    first_offset: cython.longlong = limits[0]
    end_offset: cython.longlong = limits[1]
    oldest: cython.longlong = limits[2]
    newest: cython.longlong = limits[3]
    micros_ms_max: cython.longlong = 9_223_372_036_854_775
    row: cython.longlong = cursor[0]
    key_at: cython.longlong = cursor[1]
    value_at: cython.longlong = cursor[2]
    header: cython.longlong = cursor[3]
    name_at: cython.longlong = cursor[4]
    content_at: cython.longlong = cursor[5]
    misfits: cython.longlong = cursor[6]
    position: cython.Py_ssize_t
    end: cython.Py_ssize_t
    body_end: cython.Py_ssize_t
    next_position: cython.Py_ssize_t
    count: cython.longlong
    base_offset: cython.longlong
    base_timestamp: cython.longlong
    append_timestamp: cython.longlong
    packed: cython.longlong
    size: cython.longlong
    timestamp: cython.longlong
    offset: cython.longlong
    headers: cython.longlong
    key_start: cython.Py_ssize_t
    value_start: cython.Py_ssize_t
    key_size: cython.longlong
    value_size: cython.longlong
    for run in runs:
        position = run[0]
        end = run[1]
        count = run[2]
        base_offset = run[3]
        base_timestamp = run[4]
        append_timestamp = run[5]
        while count > 0:
            count -= 1
            packed = _varint(data, position, end)
            size = packed >> 3
            position += packed & 7
            if size < 6 or size > end - position:
                raise CorruptData(f"a record of {size} bytes does not fit its batch")
            body_end = position + size
            position += 1
            next_position = _varlong_end(data, position, body_end)
            timestamp = append_timestamp
            if append_timestamp == -1:
                timestamp = _wrapping_sum(base_timestamp, _varlong(data, position, next_position))
            packed = _varint(data, next_position, body_end)
            offset = _wrapping_sum(base_offset, packed >> 3)
            position = next_position + (packed & 7)
            if (
                offset < first_offset
                or offset >= end_offset
                or timestamp < oldest
                or timestamp > newest
            ):
                position = body_end
                continue
            packed = _varint(data, position, body_end)
            key_size = packed >> 3
            key_start = position + (packed & 7)
            _fitting(key_size, key_start, body_end)
            position = key_start + (key_size if key_size > 0 else 0)
            packed = _varint(data, position, body_end)
            value_size = packed >> 3
            value_start = position + (packed & 7)
            _fitting(value_size, value_start, body_end)
            position = value_start + (value_size if value_size > 0 else 0)
            offsets[row] = offset
            if timestamp > micros_ms_max or timestamp < -micros_ms_max:
                misfits += 1
                _clear_bit(micros_valid, row)
                micros[row] = (micros_ms_max if timestamp > 0 else -micros_ms_max) * 1000
            else:
                micros[row] = timestamp * 1000
            if wanted & 1:
                if key_size < 0:
                    _clear_bit(key_valid, row)
                elif key_size > 0:
                    _copy(keys, key_at, data, key_start, key_size)
                    key_at += key_size
                key_ends[row + 1] = key_at
            if wanted & 2:
                if value_size < 0:
                    _clear_bit(value_valid, row)
                elif value_size > 0:
                    _copy(values, value_at, data, value_start, value_size)
                    value_at += value_size
                value_ends[row + 1] = value_at
            if wanted & 4:
                packed = _varint(data, position, body_end)
                headers = packed >> 3
                position += packed & 7
                if headers < 0 or headers > body_end - position:
                    raise CorruptData(f"a record claims {headers} headers")
                if headers == 0:
                    _clear_bit(list_valid, row)
                while headers > 0:
                    headers -= 1
                    packed = _varint(data, position, body_end)
                    size = packed >> 3
                    position += packed & 7
                    if size < 0:
                        raise CorruptData("a header key is null")
                    _fitting(size, position, body_end)
                    _copy(names, name_at, data, position, size)
                    name_at += size
                    position += size
                    name_ends[header + 1] = name_at
                    packed = _varint(data, position, body_end)
                    size = packed >> 3
                    position += packed & 7
                    _fitting(size, position, body_end)
                    if size < 0:
                        _clear_bit(content_valid, header)
                    else:
                        _copy(contents, content_at, data, position, size)
                        content_at += size
                        position += size
                    content_ends[header + 1] = content_at
                    header += 1
                list_ends[row + 1] = header
            row += 1
            position = body_end
        if position != end:
            raise CorruptData(f"{end - position} bytes remain behind the records of a batch")
    cursor[0] = row
    cursor[1] = key_at
    cursor[2] = value_at
    cursor[3] = header
    cursor[4] = name_at
    cursor[5] = content_at
    cursor[6] = misfits
