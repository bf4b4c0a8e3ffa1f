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
from protocol.records.checksums import crc32c
from protocol.records.compression import decompress
from protocol.records.entry import Entry
from protocol.records.layout import (
    ATTRIBUTES_AT,
    BATCH_OVERHEAD,
    CODEC_MASK,
    ENTRY_PREFIX,
    HEADER,
    INT64_MAX,
    INT64_MIN,
    LOG_OVERHEAD,
    MAGIC_V2,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    RECORDS_AT,
    TRANSACTIONAL_BIT,
    Codec,
    TimestampType,
)
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

_UNUSUAL_BITS: Final = 0xFFFF & ~(CODEC_MASK | TRANSACTIONAL_BIT)
_CODECS: Final = tuple(Codec)
_TYPE_IGNORED: Final = 0


class PlainBatch:
    """The header of a batch that `accepts` has accepted; used again for the next one.

    Attributes:
        start: where the batch begins in the buffer, and `size` its bytes.
        records_count: how many records it has; their offsets are without gaps.
        max_timestamp: the largest timestamp of its records, and `min_timestamp` the smallest (ms).
        last_offset: of its last record, once it is stamped.
        attributes, base_timestamp, producer_id, producer_epoch, base_sequence: from the header.
    """

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
    ) -> bool:
        """Whether the `size` bytes at `start` of `view` are a plain batch; `walk` walks in `view`.

        The request's version knows the codecs below `codecs_end`. Raises the errors of `opening`.
        """
        count: cython.longlong
        codec: cython.int
        attributes: cython.int
        if not _admits(rules, size):
            return False
        (
            base_offset, size_field, _, magic, crc, attributes, last_offset_delta, base_timestamp,
            max_timestamp, producer_id, producer_epoch, base_sequence, count,
        ) = HEADER.unpack_from(view, start)  # fmt: skip
        if (
            size_field + LOG_OVERHEAD != size
            or magic != MAGIC_V2
            or base_offset != 0
            or attributes & _UNUSUAL_BITS
            or last_offset_delta != count - 1
            or count <= 0
            or (producer_id > NO_PRODUCER_ID and base_sequence < 0)
            or crc32c(view[start + ATTRIBUTES_AT : start + size]) != crc
        ):
            return False
        codec = attributes & CODEC_MASK
        if codec >= codecs_end or (rules.codec is not None and rules.codec != codec):
            return False
        oldest_ms = now_ms - rules.timestamp_before_max_ms
        newest_ms = now_ms + rules.timestamp_after_max_ms
        try:
            if codec:
                records = view[start + RECORDS_AT : start + size]
                walk = _decompressed(_CODECS[codec], records, base_timestamp, rules, opening)
            else:
                walk.begin(start + RECORDS_AT, start + size, 0, base_timestamp)
            faults = walk.check(
                count,
                oldest_ms if oldest_ms > INT64_MIN else INT64_MIN,
                newest_ms if newest_ms < INT64_MAX else INT64_MAX,
                _TYPE_IGNORED,
                rules.compacted,
            )
        except RecordsError:
            return False
        if faults is not None or not walk.sequential or walk.max_timestamp != max_timestamp:
            return False
        self.start = start
        self.size = size
        self.size_field = size_field
        self.records_count = count
        self.attributes = attributes
        self.base_timestamp = base_timestamp
        self.max_timestamp = max_timestamp
        self.min_timestamp = walk.min_timestamp
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        return True

    def stamp(self, view: memoryview, next_offset: cython.longlong, leader_epoch: int) -> None:
        """Write the offset of the first record and the leader epoch into `view`."""
        self.last_offset = next_offset + self.records_count - 1
        ENTRY_PREFIX.pack_into(
            view, self.start, next_offset, self.size_field, leader_epoch, MAGIC_V2
        )


def _admits(rules: AppendRules, size: int) -> bool:
    """Whether the log keeps a producer's bytes and timestamps, and the size is in its bounds."""
    return (
        BATCH_OVERHEAD <= size <= rules.max_message_bytes
        and size <= rules.segment_bytes
        and rules.timestamp_type is TimestampType.CREATE_TIME
    )


def _decompressed(
    codec: Codec, records: memoryview, base_timestamp: int, rules: AppendRules, opening: Opening
) -> RecordWalk:
    """A walk that begins at the first of the records, decompressed."""
    payload = opening.open(
        rules.decompressed_bytes_max,
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
    if size < BATCH_OVERHEAD:
        return None
    batch = PlainBatch()
    if not batch.accepts(RecordWalk(view), view, 0, size, rules, now_ms, opening, codecs_end):
        return None
    batch.stamp(view, next_offset, leader_epoch)
    last_offset = batch.last_offset
    # The tuple itself: the constructor of a named tuple is another call.
    entry = tuple.__new__(Entry, (
        0, size, MAGIC_V2, next_offset, last_offset, batch.max_timestamp, batch.attributes,
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
