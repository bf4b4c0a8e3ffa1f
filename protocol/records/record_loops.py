# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: embedsignature=True
# mypy: disable-error-code="untyped-decorator,valid-type,no-any-return"
"""The loops that read magic 2 records, and the walk that all of them share.

Written in Cython's pure Python mode. Compiled, a loop costs nanoseconds per record and makes no
Python object for it; uncompiled, the same file runs as it stands, slower, with equal results
(a test runs both against each other). `COMPILED` shows which one is loaded.

It owns loops, not decisions: positions, limits and flags come in as numbers, numbers go out. It
knows nothing of codecs (blobs arrive decompressed), of topics or of files. All buffers are
borrowed and only read. Positions are bytes from the start of the buffer; `end` is exclusive and
must not lie after the buffer's end; timestamps are ms.

Two rules keep both ways of running equal: every number stays inside 64 bits by construction (a
sum that Java would wrap is wrapped here explicitly), and no read happens before its bound check.
Literals wider than 32 bits are assigned to typed locals first: inside an expression Cython would
make Python objects of them.

The record that the loops walk, after the 61 bytes of a batch header (varints are zig-zag)::

    length varint | attributes i8 | timestamp delta varlong | offset delta varint
    key length varint | key | value length varint | value | header count varint | headers

`RecordWalk` reads it for every loop, also for those of other modules: `record_loops.pxd` declares
in C what they share, and a module imports it from `cython.cimports` when it is compiled.

Source: Kafka `DefaultRecord.readFrom`, `DefaultRecordBatch` (iterator), `ByteUtils`.
Read next: `entry_loops` (entry headers, magic 0 and 1), `encode_loops` (writing), `record`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from protocol.errors import InvalidRecords
from protocol.records import layout

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

# Of a record, its length, attributes, deltas and key length: four times three bytes and one.
_NEAR_BYTES: Final = 13

# Of a batch. The second byte of the attributes has the codec; older formats have one byte.
_HEAD_BYTES: Final = layout.LOG_OVERHEAD
_SIZE_AT: Final = layout.SIZE_AT
_MAGIC_AT: Final = layout.MAGIC_AT
_MAGIC_V2: Final = layout.MAGIC_V2
_CODEC_MASK: Final = layout.CODEC_MASK
_CODEC_AT: Final = layout.ATTRIBUTES_AT + 1
_LEGACY_CODEC_AT: Final = layout.MAGIC_AT + 1


# --- numbers inside a buffer --------------------------------------------------------------------


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _short_varint(
    data: cython.p_const_uchar, position: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.longlong:
    """A zig-zag varint of one or two bytes, as nearly all are, packed as `_varint`; otherwise 0."""
    raw: cython.longlong
    if position < end:
        raw = data[position]
        if raw < 0x80:
            # A set lowest bit inverts the others: -0 is 0, and -1 has all bits set.
            return (raw >> 1 ^ -(raw & 1)) * 8 + 1
        if end - position > 1 and data[position + 1] < 0x80:
            raw += 0x80 * data[position + 1] - 0x80
            return (raw >> 1 ^ -(raw & 1)) * 8 + 2
    return 0


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _near_varint(data: cython.p_const_uchar, position: cython.Py_ssize_t) -> cython.longlong:
    """A zig-zag varint of at most three bytes, packed as `_varint`; otherwise 0.

    The three bytes at `position` are in the buffer.
    """
    raw: cython.longlong = data[position]
    if raw < 0x80:
        return (raw >> 1 ^ -(raw & 1)) * 8 + 1
    raw += 0x80 * data[position + 1] - 0x80
    if raw < 0x4000:
        return (raw >> 1 ^ -(raw & 1)) * 8 + 2
    raw += 0x4000 * data[position + 2] - 0x4000
    if raw < 0x200000:
        return (raw >> 1 ^ -(raw & 1)) * 8 + 3
    return 0


@cython.cfunc
@cython.inline
@cython.exceptval(-1)
def _varint(
    data: cython.p_const_uchar, position: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.longlong:
    """A zig-zag varint of at most 5 bytes, packed with its size: `value << 3 | bytes read`.

    No packed result is -1, since that would mean 7 bytes read; so -1 can signal the exception.
    """
    packed: cython.longlong = _short_varint(data, position, end)
    return packed if packed != 0 else _long_varint(data, position, end)


@cython.cfunc
@cython.exceptval(-1)
def _long_varint(
    data: cython.p_const_uchar, position: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.longlong:
    """`_varint` of any size."""
    raw: cython.ulonglong = 0
    mask: cython.ulonglong = 0xFFFFFFFF
    shift: cython.int = 0
    byte: cython.ulonglong
    value: cython.longlong
    while position < end:
        byte = data[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            value = _signed(raw & mask)
            # Not a shift: shifting a negative number left is undefined in C.
            return value * 8 + shift // 7
        if shift == 35:
            raise InvalidRecords("a varint has more than 5 bytes")
    raise InvalidRecords("a varint runs past its record")


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _signed(raw: cython.ulonglong) -> cython.longlong:
    """The number that zig-zag writes as `raw`."""
    value: cython.longlong = raw >> 1
    return -value - 1 if raw & 1 else value


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
def _field_end(
    position: cython.Py_ssize_t, size: cython.longlong, end: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """The position after the `size` bytes at `position`; a negative size means null."""
    if size <= 0:
        return position
    if size > end - position:
        raise InvalidRecords("a key, value or header runs past its record")
    return position + size


def timestamp_fault(
    timestamp: cython.longlong,
    oldest: cython.longlong,
    newest: cython.longlong,
    type_rule: cython.int,
) -> cython.int:
    """The FAULT_TIMESTAMP_* of one record, or 0; one without timestamp passes the window."""
    if type_rule != 0:
        return 3
    if timestamp == -1:
        return 0
    return 2 if timestamp < oldest or timestamp > newest else 0


# --- magic 2 records ----------------------------------------------------------------------------


class RecordWalk:
    """The records of a batch, one after the other, as positions and numbers.

    Call `begin` once for each batch, then for each record `read_head` and, as far as they are
    needed, `read_pair`, `read_headers_count` and `read_header` in this order. All `read_*` raise
    InvalidRecords for bytes that contradict themselves.

    Attributes:
        start: where the record begins; `end` is where the next one does.
        position: where reading continues inside the record.
        offset: the record's, and `timestamp` its own time in ms; both wrap as Java's sums do.
        key_at: where the key, or the name of a header, begins; `key_size` is below 0 for null.
        value_at: where the value, or that of a header, begins; `value_size` is below 0 for null.
        max_timestamp: what `check` has found, as are `max_delta`, `min_timestamp` and `sequential`.
    """

    def __init__(self, buffer: Buffer) -> None:
        """Walk in `buffer`, which must not change meanwhile."""
        if cython.compiled:
            self.view = buffer
            self.data = cython.address(self.view[0])
        else:
            self.data = buffer

    def has_codec(self, codec: cython.int, end: cython.Py_ssize_t) -> cython.bint:
        """Whether one of the whole batches in the first `end` bytes is compressed by `codec`."""
        data: cython.p_const_uchar = self.data
        position: cython.Py_ssize_t = 0
        size: cython.longlong
        number: cython.Py_ssize_t
        while end - position > _CODEC_AT:
            is_v2: cython.bint = data[position + _MAGIC_AT] == _MAGIC_V2
            attributes: cython.int = data[position + (_CODEC_AT if is_v2 else _LEGACY_CODEC_AT)]
            if attributes & _CODEC_MASK == codec:
                return True
            size = 0
            for number in range(position + _SIZE_AT, position + _HEAD_BYTES):
                size = size << 8 | data[number]
            position += size + _HEAD_BYTES
        return False

    def begin(
        self,
        start: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        base_offset: cython.longlong,
        base_timestamp: cython.longlong,
    ) -> cython.int:
        """Prepare to read the records in `[start, end)`; returns 0."""
        self.limit = end
        self.base_offset = base_offset
        self.base_timestamp = base_timestamp
        self.end = start
        return 0

    def read_head(self) -> cython.int:
        """Move to the next record and read its length, time and offset; returns 0."""
        position: cython.Py_ssize_t = self.end
        packed: cython.longlong = _varint(self.data, position, self.limit)
        length: cython.longlong = packed >> 3
        self.start = position
        position += packed & 7
        if length < 1 or length > self.limit - position:
            raise InvalidRecords(f"a record of {length} bytes does not fit its batch")
        self.end = position + length
        # After the attributes, which have no meaning yet.
        packed = _short_varint(self.data, position + 1, self.end)
        if packed != 0:
            self.timestamp = _wrapping_sum(self.base_timestamp, packed >> 3)
            position += 1 + (packed & 7)
        else:
            position = self.read_varlong(position + 1)
        packed = _varint(self.data, position, self.end)
        self.offset = _wrapping_sum(self.base_offset, packed >> 3)
        self.position = position + (packed & 7)
        return 0

    def read_varlong(self, position: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Read a timestamp delta of at most 10 bytes at `position`; returns where it ends."""
        raw: cython.ulonglong = 0
        mask: cython.ulonglong = 0xFFFFFFFFFFFFFFFF
        shift: cython.int = 0
        byte: cython.ulonglong
        while position < self.end:
            byte = self.data[position]
            position += 1
            # The tenth byte has room for one bit; masking keeps Python's integers at C's width.
            raw |= ((byte & 0x7F) << shift) & mask
            shift += 7
            if byte < 0x80:
                self.timestamp = _wrapping_sum(self.base_timestamp, _signed(raw))
                return position
            if shift == 70:
                raise InvalidRecords("a varlong has more than 10 bytes")
        raise InvalidRecords("a varlong runs past its record")

    def read_pair(self) -> cython.int:
        """Read the lengths of a key and a value, and pass both; returns 0."""
        end: cython.Py_ssize_t = self.end
        packed: cython.longlong = _varint(self.data, self.position, end)
        self.key_size = packed >> 3
        self.key_at = self.position + (packed & 7)
        position: cython.Py_ssize_t = _field_end(self.key_at, self.key_size, end)
        packed = _varint(self.data, position, end)
        self.value_size = packed >> 3
        self.value_at = position + (packed & 7)
        self.position = _field_end(self.value_at, self.value_size, end)
        return 0

    def read_headers_count(self) -> cython.int:
        """The number of headers that follow."""
        packed: cython.longlong = _varint(self.data, self.position, self.end)
        count: cython.int = packed >> 3
        self.position += packed & 7
        if count < 0 or count > self.end - self.position:
            raise InvalidRecords(
                f"a record claims {count} headers in {self.end - self.position} bytes"
            )
        return count

    def read_header(self) -> cython.int:
        """Read one header as `read_pair` does, with its name as the key; returns 0."""
        self.read_pair()
        if self.key_size < 0:
            raise InvalidRecords("a header key is null")
        return 0

    def skip_headers(self) -> cython.int:
        """Pass all headers, which must end with the record; returns 0."""
        if self.position == self.end - 1 and self.data[self.position] == 0:
            return 0
        count: cython.int = self.read_headers_count()
        while count > 0:
            self.read_header()
            count -= 1
        return self.expect_record_end()

    def expect_record_end(self) -> cython.int:
        """Refuse bytes of the record that nothing in it claims; returns 0."""
        if self.position != self.end:
            raise InvalidRecords(f"{self.end - self.position} bytes remain after a record's fields")
        return 0

    def expect_end(self, count: cython.longlong) -> cython.int:
        """Refuse bytes after the last of `count` records; returns 0."""
        if self.end != self.limit:
            raise InvalidRecords(
                f"{self.limit - self.end} bytes remain after the {count} records of a batch"
            )
        return 0

    def read_near(self) -> cython.bint:
        """Read the next record whole; False, with nothing changed, if it takes more to read it.

        True for nearly every record: it has no headers, and its numbers take at most three bytes.
        """
        data: cython.p_const_uchar = self.data
        limit: cython.Py_ssize_t = self.limit
        position: cython.Py_ssize_t = self.end
        if limit - position < _NEAR_BYTES:
            return False
        packed: cython.longlong = _near_varint(data, position)
        length: cython.longlong = packed >> 3
        position += packed & 7
        if packed == 0 or length < 1 or length > limit - position:
            return False
        end: cython.Py_ssize_t = position + length
        delta: cython.longlong = _near_varint(data, position + 1)
        position += 1 + (delta & 7)
        number: cython.longlong = _near_varint(data, position)
        position += number & 7
        packed = _near_varint(data, position)
        position += packed & 7
        # A number of more bytes is 0, so what follows it is read at the wrong place.
        if delta == 0 or number == 0 or packed == 0:
            return False
        key_size: cython.longlong = packed >> 3
        if key_size > 0:
            if key_size > end - position:
                return False
            position += key_size
        if limit - position < 3:
            return False
        packed = _near_varint(data, position)
        position += packed & 7
        length = packed >> 3
        if packed == 0 or length > end - position:
            return False
        if length > 0:
            position += length
        if position != end - 1 or data[position] != 0:
            return False
        self.timestamp = _wrapping_sum(self.base_timestamp, delta >> 3)
        self.offset = _wrapping_sum(self.base_offset, number >> 3)
        self.key_size = key_size
        self.end = end
        return True

    def check(
        self,
        count: cython.longlong,
        oldest: cython.longlong,
        newest: cython.longlong,
        type_rule: cython.int,
        keys_required: cython.bint,
    ) -> list[tuple[int, int, int]] | None:
        """Walk the `count` records from `begin` on; the faults, and the totals in the attributes.

        See `check_records`.
        """
        index: cython.longlong = 0
        timestamp: cython.longlong
        max_timestamp: cython.longlong = -1
        max_delta: cython.longlong = -1
        min_timestamp: cython.longlong = 0x7FFFFFFFFFFFFFFF
        sequential: cython.bint = True
        fault: cython.int
        faults: list[tuple[int, int, int]] | None = None
        while index < count:
            if not self.read_near():
                self.read_head()
                self.read_pair()
                self.skip_headers()
            fault = 1 if keys_required and self.key_size < 0 else 0
            timestamp = self.timestamp
            if self.offset != index:
                sequential = False
            if timestamp > max_timestamp:
                max_timestamp = timestamp
                max_delta = self.offset
            if timestamp < min_timestamp:
                min_timestamp = timestamp
            fault = fault or timestamp_fault(timestamp, oldest, newest, type_rule)
            if fault != 0:
                faults = faults or []
                faults.append((index, fault, timestamp))
            index += 1
            if index & 0x3FFF == 0:
                # A batch may hold millions: a thread that waits for the interpreter lock gets it.
                with cython.nogil:
                    pass
        self.expect_end(count)
        self.max_timestamp = max_timestamp
        self.max_delta = max_delta
        self.min_timestamp = min_timestamp
        self.sequential = sequential
        return faults


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
    walk: RecordWalk = RecordWalk(buffer)
    walk.begin(start, end, 0, base_timestamp)
    faults = walk.check(count, oldest, newest, type_rule, keys_required)
    return walk.max_timestamp, walk.max_delta, bool(walk.sequential), faults, walk.min_timestamp


def count_times(
    buffer: Buffer,
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    count: cython.longlong,
    base_offset: cython.longlong,
    base_timestamp: cython.longlong,
    width: cython.longlong,
    end_offset: cython.longlong,
    counts: dict[int, int],
) -> int:
    """Count the records in `[start, end)` below `end_offset` by time into `counts`.

    A key is the start of a bucket of `width` ms, or -1 for records without timestamp. Returns the
    smallest timestamp of all `count` records, 2^63-1 without records.

    Raises:
        InvalidRecords: as `check_records`, but only the heads of records are checked.
    """
    walk: RecordWalk = RecordWalk(buffer)
    index: cython.longlong = 0
    timestamp: cython.longlong
    bucket: cython.longlong = -1
    run: cython.longlong = 0
    is_same: cython.bint
    min_timestamp: cython.longlong = 0x7FFFFFFFFFFFFFFF
    walk.begin(start, end, base_offset, base_timestamp)
    while index < count:
        walk.read_head()
        timestamp = walk.timestamp
        if timestamp < min_timestamp:
            min_timestamp = timestamp
        if walk.offset < end_offset:
            if bucket >= 0:
                is_same = timestamp >= bucket and timestamp - bucket < width
            else:
                is_same = timestamp < 0
            if not is_same:
                if run != 0:
                    counts[bucket] = counts.get(bucket, 0) + run
                run = 0
                bucket = timestamp - timestamp % width if timestamp >= 0 else -1
            run += 1
        index += 1
        if index & 0x3FFF == 0:
            with cython.nogil:
                pass
    if run != 0:
        counts[bucket] = counts.get(bucket, 0) + run
    walk.expect_end(count)
    return min_timestamp


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

    The records are trusted to be well-formed after the hit; up to it their heads are checked.

    Raises:
        InvalidRecords: a record before the hit is broken.
    """
    walk: RecordWalk = RecordWalk(buffer)
    walk.begin(start, end, base_offset, base_timestamp)
    while count > 0:
        walk.read_head()
        if walk.timestamp >= timestamp and walk.offset >= first_offset:
            return walk.timestamp, walk.offset
        count -= 1
    return -1, -1


# --- records as values --------------------------------------------------------------------------


@cython.cfunc
def _copied(whole: memoryview, position: cython.Py_ssize_t, size: cython.longlong) -> bytes | None:
    """A copy of the `size` bytes at `position`; None for a negative size."""
    return None if size < 0 else bytes(whole[position : position + size])


@cython.cfunc
def _headers(walk: RecordWalk, whole: memoryview) -> tuple[tuple[str, bytes | None], ...]:
    """The headers of the record that `walk` is at, copied."""
    count: cython.int = walk.read_headers_count()
    if count == 0:
        return ()
    headers = []
    while count > 0:
        walk.read_header()
        name = bytes(whole[walk.key_at : walk.key_at + walk.key_size])
        content = _copied(whole, walk.value_at, walk.value_size)
        headers.append((name.decode("utf-8", "surrogateescape"), content))
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
    walk: RecordWalk = RecordWalk(buffer)
    whole: memoryview = memoryview(buffer)
    index: cython.longlong = 0
    records = []
    walk.begin(start, end, base_offset, base_timestamp)
    while index < count:
        walk.read_head()
        walk.read_pair()
        key = _copied(whole, walk.key_at, walk.key_size)
        value = _copied(whole, walk.value_at, walk.value_size)
        headers = _headers(walk, whole)
        walk.expect_record_end()
        timestamp = append_timestamp if stamped else walk.timestamp
        records.append((walk.offset, timestamp, key, value, headers))
        index += 1
    walk.expect_end(count)
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

    For compaction: of a record only the key is copied. The last end is where to continue.

    Raises:
        InvalidRecords: as `check_records`, but bytes after the records are not looked at.
    """
    walk: RecordWalk = RecordWalk(buffer)
    whole: memoryview = memoryview(buffer)
    has_value: cython.bint
    outlines = []
    walk.begin(start, end, base_offset, base_timestamp)
    while count > 0:
        walk.read_head()
        walk.read_pair()
        key = _copied(whole, walk.key_at, walk.key_size)
        has_value = walk.value_size >= 0
        outlines.append((walk.start, walk.end, walk.offset, walk.timestamp, key, has_value))
        count -= 1
    return outlines
