# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: embedsignature=True
# mypy: disable-error-code="untyped-decorator,valid-type,no-any-return"
"""The loops that write magic 2 records, the mirror of `record_loops`.

The third compiled module. It appends to a bytearray that the caller owns and knows only bytes and
numbers: what a delta counts from, which offset comes next and how text becomes bytes are
`builder`'s business. The layout is drawn in `record_loops`.

`encode_record` takes one record as objects. `encode_rows` takes many out of columns, which are laid
out as Arrow has them: where the entries end, a bitmap of those that are not null, the bytes.

Source: Kafka `DefaultRecord.writeTo`. Read next: `builder`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

try:
    import cython
except ImportError:  # A wheel built without a compiler, on a machine without Cython.
    from protocol.records import cython_shim as cython

if cython.compiled:
    from cython.cimports.libc.string import memcpy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from protocol.records.checksums import Buffer

COMPILED: bool = bool(cython.compiled)
"""Whether this module was compiled to machine code."""


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _zigzag(value: cython.longlong) -> cython.ulonglong:
    """The unsigned number that a signed one is written as."""
    raw: cython.ulonglong
    if value < 0:
        raw = -(value + 1)
        return raw * 2 + 1
    raw = value
    return raw * 2


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _varint_size(value: cython.longlong) -> cython.longlong:
    """Bytes that `value` takes as a zig-zag varint or varlong."""
    raw: cython.ulonglong = _zigzag(value)
    size: cython.longlong = 1
    while raw >= 0x80:
        raw >>= 7
        size += 1
    return size


@cython.cfunc
@cython.exceptval(-1)
def _put_varint(out: bytearray, value: cython.longlong) -> cython.int:
    """Append `value` as a zig-zag varint; returns 0."""
    raw: cython.ulonglong = _zigzag(value)
    byte: cython.int
    while raw >= 0x80:
        byte = (raw & 0x7F) | 0x80
        out.append(byte)
        raw >>= 7
    byte = raw
    out.append(byte)
    return 0


@cython.cfunc
@cython.exceptval(-1)
def _nullable_size(value: Buffer | None) -> cython.longlong:
    """Bytes that a nullable value takes with its length."""
    size: cython.longlong
    if value is None:
        return 1
    size = len(value)
    return size + _varint_size(size)


@cython.cfunc
@cython.exceptval(-1)
def _put_nullable(out: bytearray, value: Buffer | None) -> cython.int:
    """Append a nullable value with its length; returns 0."""
    if value is None:
        _put_varint(out, -1)
        return 0
    _put_varint(out, len(value))
    out += value
    return 0


def encode_record(
    out: bytearray,
    offset_delta: cython.longlong,
    timestamp_delta: cython.longlong,
    key: Buffer | None,
    value: Buffer | None,
    headers: Sequence[tuple[bytes, Buffer | None]],
) -> None:
    """Append one magic 2 record to `out`; header keys are UTF-8 bytes."""
    size: cython.longlong = (
        1
        + _varint_size(timestamp_delta)
        + _varint_size(offset_delta)
        + _nullable_size(key)
        + _nullable_size(value)
        + _varint_size(len(headers))
    )
    for name, content in headers:
        size += _nullable_size(name) + _nullable_size(content)
    _put_varint(out, size)
    out.append(0)
    _put_varint(out, timestamp_delta)
    _put_varint(out, offset_delta)
    _put_nullable(out, key)
    _put_nullable(out, value)
    _put_varint(out, len(headers))
    for name, content in headers:
        _put_nullable(out, name)
        _put_nullable(out, content)


Column = tuple[Any, Any, int, Any]
"""Ends (i32, one more than entries), bitmap or None, position of entry 0 in the bitmap, bytes."""

HeaderColumn = tuple[Column, Column, Column]
"""Where the headers of each record end, counted in headers, with no bytes; names; contents."""


@cython.final
@cython.cclass
class _Cells:
    """The entries of a column: which are null, and where the bytes of the others are."""

    ends: cython.const[cython.int][::1]
    bitmap: cython.const[cython.uchar][::1]
    view: cython.const[cython.uchar][::1]
    data: cython.p_const_uchar
    first: cython.longlong
    is_given: cython.bint
    has_nulls: cython.bint

    def __init__(self, column: Column | None) -> None:
        """Read from `column`; without one every entry is null."""
        self.is_given = column is not None
        self.has_nulls = False
        if column is None:
            return
        self.ends = column[0]
        self.has_nulls = column[1] is not None
        if column[1] is not None:
            self.bitmap = column[1]
        self.first = column[2]
        self.view = column[3]
        if not cython.compiled:
            self.data = column[3]
        elif len(column[3]):
            self.data = cython.address(self.view[0])

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-2)
    def size(self, row: cython.longlong) -> cython.longlong:
        """Bytes of an entry, -1 for null."""
        bit: cython.longlong
        if not self.is_given:
            return -1
        if self.has_nulls:
            bit = self.first + row
            if not self.bitmap[bit >> 3] >> (bit & 7) & 1:
                return -1
        return self.ends[row + 1] - self.ends[row]


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _sized(size: cython.longlong) -> cython.longlong:
    """Bytes that an entry of `size` takes with its length."""
    return 1 if size < 0 else size + _varint_size(size)


@cython.cfunc
@cython.inline
@cython.exceptval(-1)
def _write_varint(
    out: cython.p_uchar, at: cython.Py_ssize_t, value: cython.longlong
) -> cython.Py_ssize_t:
    """Write `value` as a zig-zag varint; the position after it."""
    raw: cython.ulonglong = _zigzag(value)
    while raw >= 0x80:
        out[at] = (raw & 0x7F) | 0x80
        raw >>= 7
        at += 1
    out[at] = raw
    return at + 1


@cython.cfunc
@cython.inline
@cython.exceptval(-1)
def _write_entry(
    out: cython.p_uchar, at: cython.Py_ssize_t, cells: _Cells, row: cython.longlong
) -> cython.Py_ssize_t:
    """Write an entry with its length; the position after it."""
    size: cython.longlong = cells.size(row)
    start: cython.longlong
    at = _write_varint(out, at, size)
    if size <= 0:
        return at
    start = cells.ends[row]
    if cython.compiled:
        memcpy(out + at, cells.data + start, size)
    else:
        out[at : at + size] = cells.data[start : start + size]
    return at + size


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _floor_ms(micros: cython.longlong) -> cython.longlong:
    """Whole milliseconds, rounded down."""
    return micros // 1000 if micros >= 0 else -((999 - micros) // 1000)


@cython.cfunc
@cython.exceptval(check=False)
def _mixed(digest: cython.ulonglong, cells: _Cells, row: cython.longlong) -> cython.ulonglong:
    """`digest` with the length and the bytes of an entry mixed in; null differs from empty."""
    mask: cython.ulonglong = 0xFFFF_FFFF_FFFF_FFFF
    factor: cython.ulonglong = 0x9E37_79B9_7F4A_7C15
    size: cython.longlong = cells.size(row)
    word: cython.ulonglong
    at: cython.longlong
    digest = (digest ^ (size + 1)) * factor & mask
    if size <= 0:
        return digest
    at = cells.ends[row]
    while size > 0:
        word = 0
        if cython.compiled:
            memcpy(cython.address(word), cells.data + at, 8 if size > 8 else size)
        else:
            word = int.from_bytes(cells.data[at : at + min(size, 8)], "little")
        digest = (digest ^ word) * factor & mask
        digest ^= digest >> 32
        at += 8
        size -= 8
    return digest


@cython.cfunc
@cython.exceptval(check=False)
def _murmur2(
    data: cython.p_const_uchar, at: cython.longlong, size: cython.longlong
) -> cython.ulonglong:
    """The 32-bit murmur2 hash of the `size` bytes at `at`, with Kafka's seed."""
    mask: cython.ulonglong = 0xFFFF_FFFF
    factor: cython.ulonglong = 0x5BD1_E995
    state: cython.ulonglong = 0x9747_B28C ^ size
    word: cython.ulonglong
    byte: cython.ulonglong
    place: cython.int
    while size > 0:
        word = 0
        for place in range(4 if size > 4 else size):
            byte = data[at + place]
            word |= byte << (8 * place)
        if size < 4:
            state = (state ^ word) * factor & mask
        else:
            word = word * factor & mask
            word = (word ^ (word >> 24)) * factor & mask
            state = (state * factor & mask) ^ word
        at += 4
        size -= 4
    state = (state ^ (state >> 13)) * factor & mask
    return state ^ (state >> 15)


def murmur2(key: bytes) -> int:
    """The 32-bit murmur2 hash of `key`, unsigned, with Kafka's seed.

    Source: Kafka `Utils.murmur2`.
    """
    return _murmur2(key, 0, len(key))


def choose_partitions(
    keys: Column | None, rows: cython.longlong, partitions: cython.longlong, out: memoryview
) -> None:
    """Write into `out` (i32) which of `partitions` each of the first `rows` keys belongs to, as
    every Kafka client chooses it; -1 for a null key, and for all without keys.

    Source: Kafka `Utils.murmur2`, `BuiltInPartitioner.partitionForKey`.
    """
    cells: _Cells = _Cells(keys)
    chosen: cython.int[::1] = out
    row: cython.longlong
    start: cython.longlong
    hashed: cython.ulonglong
    for row in range(rows):
        if cells.size(row) < 0:
            chosen[row] = -1
        else:
            start = cells.ends[row]
            hashed = _murmur2(cells.data, start, cells.ends[row + 1] - start)
            chosen[row] = (hashed & 0x7FFF_FFFF) % partitions


@cython.final
@cython.cclass
class _Rows:
    """The columns of many records, read row by row."""

    keys: _Cells
    values: _Cells
    lists: _Cells
    names: _Cells
    contents: _Cells

    def __init__(
        self, keys: Column | None, values: Column | None, headers: HeaderColumn | None
    ) -> None:
        """Read from these columns; one that is missing is null in every row."""
        self.keys = _Cells(keys)
        self.values = _Cells(values)
        self.lists = _Cells(headers[0] if headers is not None else None)
        self.names = _Cells(headers[1] if headers is not None else None)
        self.contents = _Cells(headers[2] if headers is not None else None)

    @cython.cfunc
    @cython.exceptval(-1)
    def size(
        self, row: cython.longlong, delta: cython.longlong, time_delta: cython.longlong
    ) -> cython.longlong:
        """Bytes of the record of a row, without those of its length."""
        count: cython.longlong = self.lists.size(row)
        at: cython.longlong
        name: cython.longlong
        size: cython.longlong = 1 + _varint_size(delta) + _varint_size(time_delta)
        size += _sized(self.keys.size(row)) + _sized(self.values.size(row))
        if count <= 0:
            return size + 1
        size += _varint_size(count)
        at = self.lists.ends[row]
        while count > 0:
            name = self.names.size(at)
            size += _sized(name if name > 0 else 0) + _sized(self.contents.size(at))
            at += 1
            count -= 1
        return size

    @cython.cfunc
    @cython.exceptval(-1)
    def write(
        self,
        out: cython.p_uchar,
        at: cython.Py_ssize_t,
        row: cython.longlong,
        delta: cython.longlong,
        time_delta: cython.longlong,
    ) -> cython.Py_ssize_t:
        """Write the record of a row with its length; the position after it."""
        count: cython.longlong = self.lists.size(row)
        one: cython.longlong
        at = _write_varint(out, at, self.size(row, delta, time_delta))
        out[at] = 0
        at = _write_varint(out, at + 1, time_delta)
        at = _write_varint(out, at, delta)
        at = _write_entry(out, at, self.keys, row)
        at = _write_entry(out, at, self.values, row)
        if count <= 0:
            return _write_varint(out, at, 0)
        at = _write_varint(out, at, count)
        one = self.lists.ends[row]
        while count > 0:
            if self.names.size(one) > 0:
                at = _write_entry(out, at, self.names, one)
            else:
                # A null name is an empty one: the protocol has no null there.
                at = _write_varint(out, at, 0)
            at = _write_entry(out, at, self.contents, one)
            one += 1
            count -= 1
        return at


def encode_rows(
    out: bytearray,
    rows: Buffer,
    start: cython.longlong,
    batch: tuple[int, int, int],
    micros: Buffer,
    keys: Column | None,
    values: Column | None,
    headers: HeaderColumn | None,
    digests: cython.bint,
) -> tuple[int, int, int]:
    """Append the records of `rows` (i32, from position `start` on) to `out` until it is full.

    `batch` are the number of records before these, the base timestamp, and the size at which a
    batch is full; the record that fills it is still taken. `micros` (i64) are the times, rounded
    down to ms.

    Returns (rows taken, largest timestamp, sum of the rows' digests modulo 2^64). A digest depends
    on key and value alone; without `digests` the sum is 0.
    """
    indices: cython.const[cython.int][::1] = rows
    times: cython.const[cython.longlong][::1] = micros
    columns: _Rows = _Rows(keys, values, headers)
    delta: cython.longlong = batch[0]
    base: cython.longlong = batch[1]
    full: cython.longlong = batch[2]
    used: cython.Py_ssize_t = len(out)
    needed: cython.longlong = used
    end: cython.longlong = start
    count: cython.longlong = len(indices)
    row: cython.longlong
    when: cython.longlong
    size: cython.longlong
    newest: cython.longlong = base
    mask: cython.ulonglong = 0xFFFF_FFFF_FFFF_FFFF
    total: cython.ulonglong = 0
    while end < count and needed < full:
        row = indices[end]
        size = columns.size(row, delta + end - start, _floor_ms(times[row]) - base)
        needed += size + _varint_size(size)
        end += 1
    out += bytes(needed - used)
    view: cython.uchar[::1] = memoryview(out)
    if cython.compiled:
        target: cython.p_uchar = cython.address(view[0])
    else:
        target = view
    at: cython.Py_ssize_t = used
    position: cython.longlong
    for position in range(start, end):
        row = indices[position]
        when = _floor_ms(times[row])
        at = columns.write(target, at, row, delta + position - start, when - base)
        if when > newest:
            newest = when
        if digests:
            total = total + _mixed(_mixed(1, columns.keys, row), columns.values, row) & mask
    if not cython.compiled:
        view.release()
    return end - start, newest, total
