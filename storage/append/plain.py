# cython: language_level=3
# mypy: disable-error-code="untyped-decorator,valid-type,no-any-return"
"""The shortcut of nearly all appends: one sound magic 2 batch that keeps all its bytes.

`PlainBatch.accepts` reads the header once and either accepts the batch or has changed nothing: it
never refuses. Every other append goes through `storage.append.plan`, which names the fault and
knows the order in which faults count. These are a fault, another magic, several entries, a control
batch, a topic that stamps or recompresses, and a header whose max timestamp is not the true one.

Two callers use it: `plan_plain` for the general way of appends, and the lane (`storage.log.lane`).
A property test compares it with the general way: a plan made here equals the plan made there.

Like `protocol.records.record_loops` it runs compiled and plain. It costs half as much as the
general way for a batch of 16 KB and a quarter for a small one; see docs/performance.md.
"""

from __future__ import annotations

from typing import Final

from protocol.errors import RecordsError
from protocol.records import layout
from protocol.records.checksums import crc32c
from protocol.records.compression import decompress
from protocol.records.entry import Entry
from protocol.records.layout import NO_TIMESTAMP, Codec, TimestampType
from storage.append.opening import Opening
from storage.append.rules import AppendRules
from storage.append.values import AppendPlan

try:
    import cython
except ImportError:  # A wheel built without a compiler, on a machine without Cython.
    from protocol.records import cython_shim as cython

if cython.compiled:
    from cython.cimports.protocol.records.record_loops import RecordWalk
else:
    from protocol.records.record_loops import RecordWalk

COMPILED: bool = bool(cython.compiled)
"""Whether this module was compiled to machine code."""

# Numbers of C when they are compiled, by the .pxd.
_BATCH_OVERHEAD: Final = layout.BATCH_OVERHEAD
_LOG_OVERHEAD: Final = layout.LOG_OVERHEAD
_SIZE_AT: Final = layout.SIZE_AT
_LEADER_EPOCH_AT: Final = layout.LEADER_EPOCH_AT
_MAGIC_AT: Final = layout.MAGIC_AT
_CRC_AT: Final = layout.CRC_AT
_ATTRIBUTES_AT: Final = layout.ATTRIBUTES_AT
_LAST_OFFSET_DELTA_AT: Final = layout.LAST_OFFSET_DELTA_AT
_BASE_TIMESTAMP_AT: Final = layout.BASE_TIMESTAMP_AT
_MAX_TIMESTAMP_AT: Final = layout.MAX_TIMESTAMP_AT
_PRODUCER_ID_AT: Final = layout.PRODUCER_ID_AT
_PRODUCER_EPOCH_AT: Final = layout.PRODUCER_EPOCH_AT
_BASE_SEQUENCE_AT: Final = layout.BASE_SEQUENCE_AT
_RECORDS_COUNT_AT: Final = layout.RECORDS_COUNT_AT
_RECORDS_AT: Final = layout.RECORDS_AT
_MAGIC_V2: Final = layout.MAGIC_V2
_NO_PRODUCER_ID: Final = layout.NO_PRODUCER_ID
_CODEC_MASK: Final = layout.CODEC_MASK
_UNUSUAL_BITS: Final = 0xFFFF & ~(layout.CODEC_MASK | layout.TRANSACTIONAL_BIT)
_INT64_MAX: Final = layout.INT64_MAX
_TYPE_IGNORED: Final = 0
_CODECS: Final = tuple(Codec)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _number(
    data: cython.p_const_uchar, position: cython.Py_ssize_t, size: cython.int
) -> cython.longlong:
    """The signed integer in the `size` bytes at `position`."""
    value: cython.longlong = data[position]
    index: cython.int = 1
    if value >= 0x80:
        value -= 0x100
    while index < size:
        value = value * 0x100 + data[position + index]
        index += 1
    return value


@cython.ccall
@cython.exceptval(check=False)
def store(
    data: cython.p_uchar,
    position: cython.Py_ssize_t,
    value: cython.longlong,
    size: cython.int,
) -> cython.void:
    """Write `value` as a signed integer into the `size` bytes at `position`."""
    while size > 0:
        size -= 1
        data[position + size] = value & 0xFF
        value >>= 8


class PlainBatch:
    """The header of a batch that `accepts` has accepted; used again for the next one.

    Attributes:
        start: where the batch begins in the buffer, and `size` its bytes.
        records_count: how many records it has; their offsets are without gaps.
        max_timestamp: the largest timestamp of its records, and `min_timestamp` the smallest (ms).
        last_offset: of its last record, once it is stamped.
        attributes, base_timestamp, producer_id, producer_epoch, base_sequence: from the header.
    """

    def __init__(self) -> None:
        """Nothing is accepted."""
        self._rules: AppendRules | None = None

    def _learn(self, rules: AppendRules) -> cython.int:
        """Note what `rules` say about a plain batch."""
        self._is_plain = rules.timestamp_type is TimestampType.CREATE_TIME
        self._size_max = min(rules.max_message_bytes, rules.segment_bytes)
        self._before_max_ms = rules.timestamp_before_max_ms
        self._after_max_ms = rules.timestamp_after_max_ms
        self._decompressed_max = rules.decompressed_bytes_max
        self._codec = -1 if rules.codec is None else rules.codec
        self._keys_required = rules.compacted
        self._rules = rules
        return 0

    def accepts(
        self,
        walk: RecordWalk,
        view: memoryview,
        start: cython.Py_ssize_t,
        size: cython.Py_ssize_t,
        rules: AppendRules,
        now_ms: cython.longlong,
        opening: Opening,
        codecs_end: cython.int,
    ) -> cython.bint:
        """Whether the `size` bytes at `start` of `view` are a plain batch; `walk` walks in `view`.

        The request's version knows the codecs below `codecs_end`. Raises the errors of `opening`.
        """
        data: cython.p_const_uchar = walk.data if cython.compiled else view
        count: cython.longlong
        codec: cython.int
        attributes: cython.int
        base_timestamp: cython.longlong
        producer_id: cython.longlong
        base_sequence: cython.int
        checksum: cython.longlong
        if rules is not self._rules:
            self._learn(rules)
        # No sum below is made for a clock before 1970.
        if not self._is_plain or not _BATCH_OVERHEAD <= size <= self._size_max or now_ms < 0:
            return False
        count = _number(data, start + _RECORDS_COUNT_AT, 4)
        attributes = _number(data, start + _ATTRIBUTES_AT, 2)
        producer_id = _number(data, start + _PRODUCER_ID_AT, 8)
        base_sequence = _number(data, start + _BASE_SEQUENCE_AT, 4)
        if (
            _number(data, start + _SIZE_AT, 4) + _LOG_OVERHEAD != size
            or data[start + _MAGIC_AT] != _MAGIC_V2
            or _number(data, start, 8) != 0
            or attributes & _UNUSUAL_BITS
            or _number(data, start + _LAST_OFFSET_DELTA_AT, 4) != count - 1
            or count <= 0
            or (producer_id > _NO_PRODUCER_ID and base_sequence < 0)
        ):
            return False
        checksum = crc32c(view[start + _ATTRIBUTES_AT : start + size])
        if checksum != _number(data, start + _CRC_AT, 4) & 0xFFFFFFFF:
            return False
        codec = attributes & _CODEC_MASK
        if codec >= codecs_end or (self._codec >= 0 and self._codec != codec):
            return False
        base_timestamp = _number(data, start + _BASE_TIMESTAMP_AT, 8)
        try:
            walk.begin(start + _RECORDS_AT, start + size, 0, base_timestamp)
            if codec:
                records = view[start + _RECORDS_AT : start + size]
                max_bytes = self._decompressed_max
                walk = _decompressed(_CODECS[codec], records, base_timestamp, max_bytes, opening)
            if self._has_faults(walk, count, now_ms):
                return False
        except RecordsError:
            return False
        if walk.max_timestamp != _number(data, start + _MAX_TIMESTAMP_AT, 8):
            return False
        self.start = start
        self.size = size
        self.records_count = count
        self.attributes = attributes
        self.base_timestamp = base_timestamp
        self.max_timestamp = walk.max_timestamp
        self.min_timestamp = walk.min_timestamp
        self.producer_id = producer_id
        self.producer_epoch = _number(data, start + _PRODUCER_EPOCH_AT, 2)
        self.base_sequence = base_sequence
        return True

    def _has_faults(
        self, walk: RecordWalk, count: cython.longlong, now_ms: cython.longlong
    ) -> cython.bint:
        """Whether a record breaks a rule, or offsets have gaps. Raises RecordsError."""
        newest_ms: cython.longlong = _INT64_MAX
        if self._after_max_ms <= _INT64_MAX - now_ms:
            newest_ms = now_ms + self._after_max_ms
        faults = walk.check(
            count, now_ms - self._before_max_ms, newest_ms, _TYPE_IGNORED, self._keys_required
        )
        return faults is not None or not walk.sequential

    def stamp(
        self,
        walk: RecordWalk,
        view: memoryview,
        next_offset: cython.longlong,
        leader_epoch: cython.longlong,
    ) -> cython.int:
        """Write the offset of the first record and the leader epoch into `view`; returns 0.

        `walk` is that of `accepts`.
        """
        data: cython.p_uchar = cython.cast(cython.p_uchar, walk.data) if cython.compiled else view
        self.last_offset = next_offset + self.records_count - 1
        store(data, self.start, next_offset, 8)
        store(data, self.start + _LEADER_EPOCH_AT, leader_epoch, 4)
        return 0


def _decompressed(
    codec: Codec, records: memoryview, base_timestamp: int, bytes_max: int, opening: Opening
) -> RecordWalk:
    """A walk that begins at the first of the records, decompressed."""
    payload = opening.open(
        bytes_max,
        lambda max_bytes, max_pieces: decompress(
            codec, records, max_bytes=max_bytes, max_pieces=max_pieces
        ),
    )
    walk = RecordWalk(payload)
    walk.begin(0, len(payload), 0, base_timestamp)
    return walk


def plan_plain(
    view: memoryview,
    rules: AppendRules,
    now_ms: int,
    next_offset: int,
    leader_epoch: int,
    opening: Opening,
    codecs_end: int = len(Codec),
) -> AppendPlan | None:
    """The plan for `view` (writable, stamped in place), or None when it is anything but plain.

    The request's version knows the codecs below `codecs_end`. Raises the errors of `opening`.
    """
    size = len(view)
    if size < _BATCH_OVERHEAD:
        return None
    batch = PlainBatch()
    walk = RecordWalk(view)
    if not batch.accepts(walk, view, 0, size, rules, now_ms, opening, codecs_end):
        return None
    batch.stamp(walk, view, next_offset, leader_epoch)
    last_offset = batch.last_offset
    # The tuple itself: the constructor of a named tuple is another call.
    entry = tuple.__new__(Entry, (
        0, size, _MAGIC_V2, next_offset, last_offset, batch.max_timestamp, batch.attributes,
        leader_epoch, batch.base_timestamp, batch.producer_id, batch.producer_epoch,
        batch.base_sequence, batch.records_count,
    ))  # fmt: skip
    return AppendPlan(
        view,
        (entry,),
        next_offset,
        last_offset,
        batch.max_timestamp,
        NO_TIMESTAMP,
        batch.records_count,
        batch.min_timestamp,
    )
