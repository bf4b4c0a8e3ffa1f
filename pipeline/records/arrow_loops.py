# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: embedsignature=True
# mypy: disable-error-code="untyped-decorator,valid-type,no-any-return,index,operator"
"""The loop that turns magic 2 records into Arrow columns, copying each byte once.

Written in Cython's pure Python mode like the loops of `protocol.records`: compiled it costs tens
of nanoseconds per record and makes no Python object for it; uncompiled (a zip on an executor, a
machine without a compiler) the same file runs as it stands, slower, with equal results.

It owns the loop, not decisions: runs of records, limits and output buffers come in, counts go out.
`record_loops.RecordWalk` reads the records and checks every bound. Output buffers belong to the
caller and must be large enough: `rows` entries for the fixed columns and one more for ends, as many
bytes for keys and for values as the runs have, and half as many entries for headers (a header takes
at least two bytes). Validity bitmaps come in as all ones and lose bits, so that the usual row costs
them nothing.

Source: Kafka `DefaultRecord.readFrom`; the record is drawn in `protocol.records.record_loops`;
Arrow columnar format, variable-size binary layout. Read next: `pipeline.records.batches`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

try:
    import cython
except ImportError:  # Plain Python on a machine without Cython.
    from protocol.records import cython_shim as cython

if cython.compiled:
    from cython.cimports.libc.string import memcpy
    from cython.cimports.protocol.records.record_loops import RecordWalk
else:
    from protocol.records.record_loops import RecordWalk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from protocol.records.checksums import Buffer

COMPILED: bool = bool(cython.compiled)
"""Whether this module was compiled to machine code."""

WANT_KEY = 1
WANT_VALUE = 2
WANT_HEADERS = 4

# Timestamps that Spark can hold: 64-bit microseconds.
MICROS_MS_MAX = 9_223_372_036_854_775


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
@cython.exceptval(check=False)
def _fitting(timestamp: cython.longlong) -> cython.longlong:
    """The nearest time in ms that 64-bit microseconds can hold."""
    largest: cython.longlong = 9_223_372_036_854_775
    if timestamp > largest:
        return largest
    return -largest if timestamp < -largest else timestamp


@cython.final
@cython.cclass
class _Column:
    """A binary column: where each entry ends, which are not null, their bytes; and how many."""

    ends: cython.int[::1]
    valid_view: cython.uchar[::1]
    valid: cython.p_uchar
    bytes_view: cython.uchar[::1]
    bytes: cython.p_uchar
    count: cython.longlong
    size: cython.longlong

    def __init__(self, room: tuple[memoryview, memoryview, memoryview]) -> None:
        """Fill `room`: ends, validity bitmap, bytes."""
        self.count = 0
        self.size = 0
        self.ends = room[0]
        if cython.compiled:
            self.valid_view = room[1]
            self.valid = cython.address(self.valid_view[0])
            self.bytes_view = room[2]
            self.bytes = cython.address(self.bytes_view[0])
        else:
            self.valid = room[1]
            self.bytes = room[2]

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1)
    def put(
        self, data: cython.p_const_uchar, position: cython.Py_ssize_t, size: cython.longlong
    ) -> cython.int:
        """Add the `size` bytes at `position`, or null for a negative size; returns 0."""
        if size < 0:
            _clear_bit(self.valid, self.count)
        elif size > 0:
            if cython.compiled:
                memcpy(self.bytes + self.size, data + position, size)
            else:
                self.bytes[self.size : self.size + size] = data[position : position + size]
            self.size += size
        self.count += 1
        self.ends[self.count] = self.size
        return 0


@cython.cfunc
@cython.exceptval(-1)
def _put_headers(
    walk: RecordWalk, data: cython.p_const_uchar, names: _Column, contents: _Column
) -> cython.int:
    """Add the headers of the record that `walk` is at; returns their number."""
    count: cython.int = walk.read_headers_count()
    left: cython.int = count
    while left > 0:
        walk.read_header()
        names.put(data, walk.key_at, walk.key_size)
        contents.put(data, walk.value_at, walk.value_size)
        left -= 1
    return count


def fill_rows(
    buffer: Buffer,
    runs: Sequence[tuple[int, int, int, int, int, int]],
    limits: tuple[int, int, int, int, int],
    wanted: cython.int,
    fixed: tuple[memoryview, memoryview, memoryview],
    key_out: tuple[memoryview, memoryview, memoryview],
    value_out: tuple[memoryview, memoryview, memoryview],
    header_out: tuple[memoryview, memoryview],
    name_out: tuple[memoryview, memoryview, memoryview],
    content_out: tuple[memoryview, memoryview, memoryview],
) -> tuple[int, int, int, int, int, int, int, int]:
    """Write the records of `runs` that lie inside `limits` into the columns.

    A run is (start, end, records, base offset, base timestamp, append timestamp): uncompressed
    records in `buffer[start:end]`; an append timestamp other than -1 stands for every record's
    own. `limits` are (first offset, end offset, oldest ms, newest ms, counted ms); only the end is
    exclusive. Records of these offsets that are older than the last one are counted, written or
    not.
    `fixed` is (offsets i64, micros i64, micros bitmap), `header_out` (list ends i32, list bitmap);
    the others are (ends i32, bitmap, bytes).

    Returns (rows, bytes of keys, bytes of values, headers, bytes of their names, bytes of their
    values, rows whose time did not fit into microseconds, records before the counted time).

    Raises:
        InvalidRecords: a length, varint or count contradicts the bytes.
    """
    walk: RecordWalk = RecordWalk(buffer)
    offsets: cython.longlong[::1] = fixed[0]
    micros: cython.longlong[::1] = fixed[1]
    list_ends: cython.int[::1] = header_out[0]
    if cython.compiled:
        micros_valid_view: cython.uchar[::1] = fixed[2]
        micros_valid: cython.p_uchar = cython.address(micros_valid_view[0])
        list_valid_view: cython.uchar[::1] = header_out[1]
        list_valid: cython.p_uchar = cython.address(list_valid_view[0])
        data: cython.p_const_uchar = walk.data
    else:
        micros_valid, list_valid, data = fixed[2], header_out[1], buffer
    keys: _Column = _Column(key_out)
    values: _Column = _Column(value_out)
    names: _Column = _Column(name_out)
    contents: _Column = _Column(content_out)
    first_offset: cython.longlong = limits[0]
    end_offset: cython.longlong = limits[1]
    oldest: cython.longlong = limits[2]
    newest: cython.longlong = limits[3]
    counted_ms: cython.longlong = limits[4]
    counted: cython.longlong = 0
    row: cython.longlong = 0
    misfits: cython.longlong = 0
    count: cython.longlong
    append_timestamp: cython.longlong
    timestamp: cython.longlong
    fitting: cython.longlong
    is_inside: cython.bint
    for run in runs:
        walk.begin(run[0], run[1], run[3], run[4])
        count, append_timestamp = run[2], run[5]
        while count > 0:
            count -= 1
            walk.read_head()
            timestamp = walk.timestamp if append_timestamp == -1 else append_timestamp
            is_inside = first_offset <= walk.offset < end_offset
            counted += is_inside and timestamp < counted_ms
            if not (is_inside and oldest <= timestamp <= newest):
                continue
            walk.read_pair()
            offsets[row] = walk.offset
            fitting = _fitting(timestamp)
            if fitting != timestamp:
                misfits += 1
                _clear_bit(micros_valid, row)
            micros[row] = fitting * 1000
            if wanted & 1:
                keys.put(data, walk.key_at, walk.key_size)
            if wanted & 2:
                values.put(data, walk.value_at, walk.value_size)
            if wanted & 4:
                if _put_headers(walk, data, names, contents) == 0:
                    _clear_bit(list_valid, row)
                list_ends[row + 1] = names.count
            row += 1
        walk.expect_end(run[2])
    return row, keys.size, values.size, names.count, names.size, contents.size, misfits, counted
