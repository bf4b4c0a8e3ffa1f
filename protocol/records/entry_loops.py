# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: embedsignature=True
# mypy: disable-error-code="untyped-decorator,valid-type,no-any-return"
"""The loops over entry headers of any magic, and over magic 0 and 1 messages.

`record_loops` explains how it runs compiled and plain. A reader of a log asks it where whole
entries end, which entry holds an offset or reaches a timestamp, and, in recovery, whether the bytes
of each entry are what was written. The append asks it to walk the inner messages of a magic 0 or 1
wrapper.

It owns no decisions and no I/O. Buffers are borrowed and only read; positions are bytes from the
buffer's start, `end` is exclusive and must not lie after the buffer's end; timestamps are ms.

`check_entries` makes an object per entry. With small batches those objects, not the bytes, are what
recovery would wait for: `digest_entries` returns only index points, the entries of producers, and
sums. Checksums of small batches are computed in the loop, by tables: a call for each costs more
than its bytes.

An entry is *incomplete* when the bytes end before it does (a reader stops there quietly) and
*impossible* when its size field is below that of an empty entry of its magic or its magic is
unknown. A zero-filled tail is impossible, not incomplete: its size field says 0.

Source: Kafka `FileLogInputStream`, `ByteBufferLogInputStream`, `AbstractLegacyRecordBatch`,
`LogSegment.recover`.
Read next: `scan`, which gives these numbers names.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from protocol.errors import CorruptRecords

try:
    import cython
except ImportError:  # A wheel built without a compiler, on a machine without Cython.
    from protocol.records import cython_shim as cython

if cython.compiled:
    from cython.cimports.protocol.records.record_loops import timestamp_fault
else:
    from protocol.records.record_loops import timestamp_fault

if TYPE_CHECKING:
    from collections.abc import Callable

    from protocol.records.checksums import Buffer

COMPILED: bool = bool(cython.compiled)
"""Whether this module was compiled to machine code."""

# What is wrong with an inner message, beside the FAULT_* of `record_loops`.
FAULT_MAGIC = 4
FAULT_NESTED = 5

# Why `check_entries` stopped.
STOP_END = 0
STOP_INCOMPLETE = 1
STOP_CORRUPT = 2
STOP_DISORDER = 3  # `digest_entries` only: offsets do not rise, or do not fit


# --- numbers inside a buffer --------------------------------------------------------------------


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _int32(data: cython.p_const_uchar, position: cython.Py_ssize_t) -> cython.longlong:
    """The big-endian i32 at `position`."""
    # Each byte is widened before it is shifted: in C a byte alone would shift as a 32-bit int. The
    # first one carries the sign, so its multiple is added, not shifted in.
    first: cython.longlong = data[position]
    second: cython.longlong = data[position + 1]
    third: cython.longlong = data[position + 2]
    if first >= 0x80:
        first -= 0x100
    return first * 0x1000000 + (second << 16 | third << 8 | data[position + 3])


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
def _uint32(data: cython.p_const_uchar, position: cython.Py_ssize_t) -> cython.longlong:
    """The big-endian u32 at `position`."""
    value: cython.longlong = _int32(data, position)
    span: cython.longlong = 0x100000000
    return value + span if value < 0 else value


@cython.cfunc
@cython.inline
@cython.exceptval(-3)
def _entry_size(
    data: cython.p_const_uchar, position: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.longlong:
    """Bytes of the entry at `position`, header included.

    -1 when the bytes end before the entry does, -2 when no entry can look like this: a size below
    that of an empty entry of its magic, or an unknown magic.
    """
    size: cython.longlong
    magic: cython.int
    if end - position < 17:
        return -1
    size = _int32(data, position + 8)
    magic = data[position + 16]
    if size < 14 or magic > 2 or (magic == 1 and size < 22) or (magic == 2 and size < 49):
        return -2
    if size > end - position - 12:
        return -1
    return size + 12


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _last_offset(data: cython.p_const_uchar, position: cython.Py_ssize_t) -> cython.longlong:
    """The last offset of the entry at `position`, whose size has been checked."""
    offset: cython.longlong = _int64(data, position)
    delta: cython.longlong
    largest: cython.longlong = 0x7FFFFFFF00000000
    if data[position + 16] != 2:
        return offset
    delta = _int32(data, position + 23)
    # No log gets here; a forged header must not overflow, which C leaves undefined.
    return offset if offset < 0 or offset > largest else offset + delta


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _max_timestamp(data: cython.p_const_uchar, position: cython.Py_ssize_t) -> cython.longlong:
    """The header's max timestamp of the entry at `position`; -1 for magic 0."""
    magic: cython.int = data[position + 16]
    if magic == 2:
        return _int64(data, position + 35)
    return _int64(data, position + 18) if magic == 1 else -1


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _newest_record(data: cython.p_const_uchar, position: cython.Py_ssize_t) -> cython.longlong:
    """`_max_timestamp`, but -1 for a batch that compaction left without records."""
    if data[position + 16] == 2 and _int32(data, position + 57) == 0:
        return -1
    return _max_timestamp(data, position)


def whole_entries(
    buffer: Buffer,
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    limit: cython.Py_ssize_t,
    min_one: cython.bint,
) -> tuple[int, int, int]:
    """(end position, last offset, entries) of the whole entries that fit in `limit` bytes.

    With `min_one` the first entry is taken whatever its size, if it is complete in `[start, end)`.
    Nothing taken: (start, -1, 0). Stops quietly at an incomplete or impossible entry.
    """
    if cython.compiled:
        view: cython.const[cython.uchar][::1] = buffer
        data: cython.p_const_uchar = cython.address(view[0])
    else:
        data = buffer
    position: cython.Py_ssize_t = start
    last_offset: cython.longlong = -1
    entries: cython.longlong = 0
    size: cython.longlong
    while True:
        size = _entry_size(data, position, end)
        if size < 0 or (position - start + size > limit and not (min_one and entries == 0)):
            return position, last_offset, entries
        last_offset = _last_offset(data, position)
        position += size
        entries += 1


def find_entry(
    buffer: Buffer,
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    offset: cython.longlong,
    timestamp: cython.longlong,
) -> tuple[int, int]:
    """(position, size) of the first entry whose last offset is >= `offset` and whose header's max
    timestamp is >= `timestamp` (ms; pass the least i64 when time does not matter). A batch without
    records has no timestamp.

    Size 0: none of the complete entries in `[start, end)` qualifies, and position is where the
    next read must begin. Size -1: an impossible entry lies at position.
    """
    if cython.compiled:
        view: cython.const[cython.uchar][::1] = buffer
        data: cython.p_const_uchar = cython.address(view[0])
    else:
        data = buffer
    position: cython.Py_ssize_t = start
    size: cython.longlong
    while True:
        size = _entry_size(data, position, end)
        if size < 0:
            return position, size + 1
        if _last_offset(data, position) >= offset and _newest_record(data, position) >= timestamp:
            return position, size
        position += size


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


if cython.compiled:
    _TABLES = _crc32c_tables()
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
    """Whether the checksum of an entry is right, or need not be."""
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


def entry_head(
    buffer: Buffer, position: cython.Py_ssize_t, file_position: cython.longlong
) -> tuple[int, ...]:
    """The fields of `entry.Entry` from a head at `position` that was read for a search.

    The bytes may end after the head: 61, or fewer in a shorter message. A batch without records has
    no timestamp, as in `find_entry`.
    """
    if cython.compiled:
        view: cython.const[cython.uchar][::1] = buffer
        data: cython.p_const_uchar = cython.address(view[0])
    else:
        data = buffer
    return _entry_header(data, position, file_position, _newest_record(data, position))


@cython.cfunc
def _entry_header(
    data: cython.p_const_uchar,
    position: cython.Py_ssize_t,
    reported: cython.longlong,
    max_timestamp: cython.longlong,
) -> tuple[int, ...]:
    """The fields of `entry.Entry`, in its order, for an entry that lies at `reported`."""
    offset: cython.longlong = _int64(data, position)
    size: cython.longlong = _int32(data, position + 8) + 12
    if data[position + 16] != 2:
        return (
            reported, size, data[position + 16], offset, offset, max_timestamp,
            data[position + 17], -1, -1, -1, -1, -1, -1,
        )  # fmt: skip
    return (
        reported,
        size,
        2,
        offset,
        _last_offset(data, position),
        max_timestamp,
        # Only the low byte of the attributes has a meaning.
        data[position + 22],
        _int32(data, position + 12),
        _int64(data, position + 27),
        _int64(data, position + 43),
        (_int32(data, position + 49) & 0xFFFF ^ 0x8000) - 0x8000,
        _int32(data, position + 53),
        _int32(data, position + 57),
    )


def check_entries(
    buffer: Buffer,
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    crc32c: Callable[[memoryview], int] | None,
    crc32: Callable[[memoryview], int] | None,
) -> tuple[list[tuple[int, ...]], int, int]:
    """(headers, position, STOP_*): the entries of any magic in `[start, end)`, CRC-checked.

    The walk stops at `position`: the end of the bytes (STOP_END), an entry that is not complete
    (STOP_INCOMPLETE), or one that is impossible or whose CRC is wrong (STOP_CORRUPT). With None
    for the checksum functions nothing is checksummed.
    """
    if cython.compiled:
        view: cython.const[cython.uchar][::1] = buffer
        data: cython.p_const_uchar = cython.address(view[0])
    else:
        data = buffer
    whole: memoryview = memoryview(buffer)
    headers: list[tuple[int, ...]] = []
    position: cython.Py_ssize_t = start
    size: cython.longlong
    while position < end:
        size = _entry_size(data, position, end)
        if size < 0:
            return headers, position, STOP_INCOMPLETE if size == -1 else STOP_CORRUPT
        if not _is_sound(whole, data, position, size, crc32c, crc32):
            return headers, position, STOP_CORRUPT
        headers.append(_entry_header(data, position, position, _max_timestamp(data, position)))
        position += size
    return headers, position, STOP_END


# --- recovery: a stretch of log in one pass -----------------------------------------------------


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _records(data: cython.p_const_uchar, position: cython.Py_ssize_t) -> cython.longlong:
    """How many records an entry's head counts; so negative for a wrapper that every sum is."""
    uncounted: cython.longlong = -0x1000000000000
    if data[position + 16] == 2:
        return _int32(data, position + 57)
    return uncounted if data[position + 17] & 7 else 1


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
    `check_entries` does; last offsets have to rise from `next_offset` to `offset_max`.
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


# --- magic 0 and 1 message sets -----------------------------------------------------------------


@cython.cfunc
@cython.exceptval(-1)
def _message_key_size_at(
    data: cython.p_const_uchar, position: cython.Py_ssize_t, size: cython.longlong
) -> cython.Py_ssize_t:
    """Where the key length of the magic 0 or 1 message at `position` lies.

    Raises:
        CorruptRecords: key and value do not fill the message exactly.
    """
    end: cython.Py_ssize_t = position + size
    key_at: cython.Py_ssize_t = position + (26 if data[position + 16] == 1 else 18)
    key_size: cython.longlong = _int32(data, key_at)
    value_at: cython.longlong = key_at + 4 + (key_size if key_size > 0 else 0)
    value_size: cython.longlong
    if value_at > end - 4:
        raise CorruptRecords("a message's key runs past its end")
    value_size = _int32(data, value_at)
    if value_at + 4 + (value_size if value_size > 0 else 0) != end:
        raise CorruptRecords("a message's value does not end where the message does")
    return key_at


@cython.cfunc
@cython.exceptval(-1)
def _inner_size(
    data: cython.p_const_uchar, position: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.longlong:
    """Bytes of the message at `position` of a message set that must be complete.

    Raises:
        CorruptRecords: the message is cut short or impossible.
    """
    size: cython.longlong = _entry_size(data, position, end)
    if size < 0:
        raise CorruptRecords("a message set holds an incomplete or impossible message")
    return size


def check_messages(
    buffer: Buffer,
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    magic: cython.int,
    oldest: cython.longlong,
    newest: cython.longlong,
    type_rule: cython.int,
    keys_required: cython.bint,
    wrapper_timestamp: cython.longlong,
    stamped: cython.bint,
    crc32: Callable[[memoryview], int],
) -> tuple[int, int, list[tuple[int, int, int]] | None, int]:
    """Walk the inner messages of a decompressed magic 0 or 1 wrapper, as `check_records` does.

    Returns (messages, max timestamp, faults, min timestamp). With `stamped` each message has
    `wrapper_timestamp` instead of its own.

    Raises:
        CorruptRecords: a message is incomplete, contradicts its sizes, or its CRC is wrong.
    """
    if cython.compiled:
        view: cython.const[cython.uchar][::1] = buffer
        data: cython.p_const_uchar = cython.address(view[0])
    else:
        data = buffer
    whole: memoryview = memoryview(buffer)
    position: cython.Py_ssize_t = start
    index: cython.longlong = 0
    max_timestamp: cython.longlong = -1
    min_timestamp: cython.longlong = 0x7FFFFFFFFFFFFFFF
    faults: list[tuple[int, int, int]] | None = None
    size: cython.longlong
    timestamp: cython.longlong
    fault: cython.int
    crc: cython.longlong
    while position < end:
        size = _inner_size(data, position, end)
        timestamp = wrapper_timestamp if stamped else _max_timestamp(data, position)
        fault = 4 if data[position + 16] != magic else 0
        if fault == 0:
            crc = _uint32(data, position + 12)
            if crc32(whole[position + 16 : position + size]) != crc:
                raise CorruptRecords(f"inner message {index} has a wrong CRC-32")
            fault = _message_fault(data, position, size, keys_required)
            fault = fault or timestamp_fault(timestamp, oldest, newest, type_rule)
        if fault != 0:
            faults = faults or []
            faults.append((index, fault, timestamp))
        if timestamp > max_timestamp:
            max_timestamp = timestamp
        if timestamp < min_timestamp:
            min_timestamp = timestamp
        position += size
        index += 1
    return index, max_timestamp, faults, min_timestamp


@cython.cfunc
@cython.exceptval(-1)
def _message_fault(
    data: cython.p_const_uchar,
    position: cython.Py_ssize_t,
    size: cython.longlong,
    keys_required: cython.bint,
) -> cython.int:
    """The structural fault of an inner message, or 0."""
    key_at: cython.Py_ssize_t = _message_key_size_at(data, position, size)
    if data[position + 17] & 7:
        return 5
    if keys_required and _int32(data, key_at) < 0:
        return 1
    return 0


def message_positions(
    buffer: Buffer, start: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> list[tuple[int, int, int, int, int]]:
    """(position, size, offset, timestamp, key size position) of each magic 0 or 1 message.

    For a message set that must be complete: the value of a wrapper, or trusted log bytes.

    Raises:
        CorruptRecords: a message is incomplete or contradicts its sizes, or has magic 2.
    """
    if cython.compiled:
        view: cython.const[cython.uchar][::1] = buffer
        data: cython.p_const_uchar = cython.address(view[0])
    else:
        data = buffer
    position: cython.Py_ssize_t = start
    size: cython.longlong
    messages: list[tuple[int, int, int, int, int]] = []
    while position < end:
        size = _inner_size(data, position, end)
        if data[position + 16] == 2:
            raise CorruptRecords("a message set holds a magic 2 batch")
        messages.append(
            (
                position,
                size,
                _int64(data, position),
                _max_timestamp(data, position),
                _message_key_size_at(data, position, size),
            )
        )
        position += size
    return messages
