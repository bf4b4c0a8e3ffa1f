# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: embedsignature=True
# mypy: disable-error-code="untyped-decorator,valid-type,no-any-return"
"""The loop of recovery: everything it has to know of a stretch of log, in one pass.

`entry_loops.check_entries` makes an object per entry; with small batches those objects, not the
bytes, are what recovery would wait for. Here only what is worth telling comes out: index points,
the entries of producers, the sums. The checksums of small batches are computed in the loop too, by
tables, since a call per batch costs more than its bytes.

It reads the fields that it needs by itself: C functions cannot be shared between modules that also
have to run uncompiled. What counts as an entry is `entry_loops`'s definition, and a test holds the
two against each other.

Source: Kafka `LogSegment.recover`. Read next: `entry_loops`, `storage.segment.scan`.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

try:
    import cython
except ImportError:  # A wheel built without a compiler, on a machine without Cython.
    from protocol.records import cython_shim as cython

if TYPE_CHECKING:
    from collections.abc import Callable

    from protocol.records.checksums import Buffer

COMPILED: bool = bool(cython.compiled)
"""Whether this module was compiled to machine code."""

# Why `digest_entries` stopped: as `check_entries`, or because offsets do not rise or do not fit.
STOP_END = 0
STOP_INCOMPLETE = 1
STOP_CORRUPT = 2
STOP_DISORDER = 3


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _int32(data: cython.p_const_uchar, position: cython.Py_ssize_t) -> cython.longlong:
    """The big-endian i32 at `position`."""
    first: cython.longlong = data[position]
    second: cython.longlong = data[position + 1]
    third: cython.longlong = data[position + 2]
    if first >= 0x80:
        first -= 0x100
    return first * 0x1000000 + (second << 16 | third << 8 | data[position + 3])


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _uint32(data: cython.p_const_uchar, position: cython.Py_ssize_t) -> cython.longlong:
    """The big-endian u32 at `position`."""
    value: cython.longlong = _int32(data, position)
    span: cython.longlong = 0x100000000
    return value + span if value < 0 else value


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _int64(data: cython.p_const_uchar, position: cython.Py_ssize_t) -> cython.longlong:
    """The big-endian i64 at `position`."""
    high: cython.longlong = _int32(data, position)
    return high * 0x10000 * 0x10000 + _uint32(data, position + 4)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _entry_size(
    data: cython.p_const_uchar, position: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.longlong:
    """Bytes of the entry; -1 when it is cut off by `end`, -2 when it is impossible."""
    size: cython.longlong
    magic: cython.int
    if end - position < 17:
        return -1
    size = _int32(data, position + 8)
    magic = data[position + 16]
    if size < 14 or magic > 2 or (magic == 1 and size < 22) or (magic == 2 and size < 49):
        return -2
    return -1 if size > end - position - 12 else size + 12


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _last_offset(data: cython.p_const_uchar, position: cython.Py_ssize_t) -> cython.longlong:
    """The last offset of an entry whose size was checked."""
    offset: cython.longlong = _int64(data, position)
    largest: cython.longlong = 0x7FFFFFFF00000000
    if data[position + 16] != 2 or offset < 0 or offset > largest:
        return offset
    return offset + _int32(data, position + 23)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _newest_record(data: cython.p_const_uchar, position: cython.Py_ssize_t) -> cython.longlong:
    """The max timestamp that the entry's head claims; -1 in magic 0 and in a batch without any."""
    magic: cython.int = data[position + 16]
    if magic == 2:
        return _int64(data, position + 35) if _int32(data, position + 57) else -1
    return _int64(data, position + 18) if magic == 1 else -1


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _records(data: cython.p_const_uchar, position: cython.Py_ssize_t) -> cython.longlong:
    """How many records an entry's head counts; so negative for a wrapper that every sum is."""
    uncounted: cython.longlong = -0x1000000000000
    if data[position + 16] == 2:
        return _int32(data, position + 57)
    return uncounted if data[position + 17] & 7 else 1


def _crc32c_tables() -> array[int]:
    """Eight tables of 256 numbers: CRC-32C of a byte that is followed by 0 to 7 zero bytes."""
    tables = array("I", bytes(4 * 8 * 256))
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        tables[byte] = crc
    for slot in range(256, 8 * 256):
        before = tables[slot - 256]
        tables[slot] = before >> 8 ^ tables[before & 0xFF]
    return tables


_TABLES = _crc32c_tables()

if cython.compiled:
    # The array lives as long as the module, so its address may be kept.
    _tables_at = cython.declare(cython.size_t, _TABLES.buffer_info()[0])


@cython.cfunc
@cython.exceptval(check=False)
def _small_crc32c(
    data: cython.p_const_uchar,
    position: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
) -> cython.longlong:
    """CRC-32C of a short stretch, eight bytes at a time. Only called when compiled."""
    tables: cython.p_const_uint = cython.cast(cython.p_const_uint, _tables_at)
    crc: cython.uint = 0xFFFFFFFF
    while end - position >= 8:
        crc ^= (
            data[position]
            | data[position + 1] << 8
            | data[position + 2] << 16
            | cython.cast(cython.uint, data[position + 3]) << 24
        )
        crc = (
            tables[1792 + (crc & 0xFF)]
            ^ tables[1536 + (crc >> 8 & 0xFF)]
            ^ tables[1280 + (crc >> 16 & 0xFF)]
            ^ tables[1024 + (crc >> 24)]
            ^ tables[768 + data[position + 4]]
            ^ tables[512 + data[position + 5]]
            ^ tables[256 + data[position + 6]]
            ^ tables[data[position + 7]]
        )
        position += 8
    while position < end:
        crc = crc >> 8 ^ tables[(crc ^ data[position]) & 0xFF]
        position += 1
    return crc ^ 0xFFFFFFFF


@cython.cfunc
def _is_sound(
    whole: memoryview,
    data: cython.p_const_uchar,
    position: cython.Py_ssize_t,
    size: cython.longlong,
    crc32c: Callable[[memoryview], int] | None,
    crc32: Callable[[memoryview], int] | None,
) -> cython.bint:
    """Whether the checksum of an entry is right, or nobody asks."""
    if data[position + 16] != 2:
        return crc32 is None or (
            crc32(whole[position + 16 : position + size]) == _uint32(data, position + 12)
        )
    if crc32c is None:
        return True
    # Up to here the tables are faster than a call of the checksum function.
    if cython.compiled and size <= 2048:
        return _small_crc32c(data, position + 21, position + size) == _uint32(data, position + 17)
    return crc32c(whole[position + 21 : position + size]) == _uint32(data, position + 17)


def digest_entries(
    buffer: Buffer,
    end: cython.Py_ssize_t,
    crc32c: Callable[[memoryview], int] | None,
    crc32: Callable[[memoryview], int] | None,
    next_offset: cython.longlong,
    offset_max: cython.longlong,
    max_timestamp: cython.longlong,
    max_offset: cython.longlong,
    since_index: cython.longlong,
    index_interval: cython.longlong,
    epoch: cython.longlong,
) -> tuple[list[tuple[int, int, int, int]], list[int], int, int, int, int, int, int, int]:
    """What recovery has to know of the entries in `[0, end)`, without an object per entry.

    Returns (index points, positions of notable entries, position, STOP_*, next offset, max
    timestamp, its offset, bytes since the last index point, records). The records are -1 when an
    old wrapper is among the entries, whose head does not count them. An index point is (last
    offset, position, max timestamp so far, last offset of the batch that has it), made where more
    than `index_interval` bytes were passed since the one before. Notable are the entries of
    producers, and the first of each leader epoch above `epoch`. Entries are checked as
    `entry_loops.check_entries` does; last offsets have to rise from `next_offset` to `offset_max`.
    """
    if cython.compiled:
        view: cython.const[cython.uchar][::1] = buffer
        data: cython.p_const_uchar = cython.address(view[0])
    else:
        data = buffer
    whole: memoryview = memoryview(buffer)
    points: list[tuple[int, int, int, int]] = []
    notable: list[int] = []
    position: cython.Py_ssize_t = 0
    size: cython.longlong
    last: cython.longlong
    timestamp: cython.longlong
    records: cython.longlong = 0
    stop: cython.int = 0
    while position < end:
        size = _entry_size(data, position, end)
        if size < 0:
            stop = STOP_INCOMPLETE if size == -1 else STOP_CORRUPT
            break
        if not _is_sound(whole, data, position, size, crc32c, crc32):
            stop = STOP_CORRUPT
            break
        last = _last_offset(data, position)
        if last < next_offset or last > offset_max:
            stop = STOP_DISORDER
            break
        timestamp = _newest_record(data, position)
        if timestamp > max_timestamp:
            max_timestamp = timestamp
            max_offset = last
        if since_index > index_interval:
            points.append((last, position, max_timestamp, max_offset))
            since_index = 0
        since_index += size
        records += _records(data, position)
        if data[position + 16] == 2 and (
            _int32(data, position + 12) > epoch or _int64(data, position + 43) >= 0
        ):
            notable.append(position)
            epoch = max(epoch, _int32(data, position + 12))
        next_offset = last + 1
        position += size
    return (
        points, notable, position, stop, next_offset, max_timestamp, max_offset, since_index,
        records if records >= 0 else -1,
    )  # fmt: skip
