"""The shortcut of nearly all appends: one sound magic 2 batch that keeps all its bytes.

`plan_plain` reads the header once and either plans the append or returns None, having changed
nothing: it never refuses. Every other append goes through `storage.append.plan`, which names the
fault and knows the order in which faults count. These are a fault, another magic, several entries,
a control batch, a topic that stamps or recompresses, and a header whose max timestamp is not the
true one. A property test compares the two: a plan made here equals the plan made there.

It costs half as much as the general way for a batch of 16 KB and a quarter for a small one; see
docs/performance.md.
"""

from typing import Final

from protocol.errors import RecordsError
from protocol.records import record_loops
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

_USUAL_BITS: Final = CODEC_MASK | TRANSACTIONAL_BIT
_CODECS: Final = tuple(Codec)


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
    if (
        not BATCH_OVERHEAD <= size <= rules.max_message_bytes
        or size > rules.segment_bytes
        or rules.timestamp_type is not TimestampType.CREATE_TIME
    ):
        return None
    (
        base_offset, size_field, _, magic, crc, attributes, last_offset_delta, base_timestamp,
        max_timestamp, producer_id, producer_epoch, base_sequence, count,
    ) = HEADER.unpack_from(view)  # fmt: skip
    if (
        size_field + LOG_OVERHEAD != size
        or magic != MAGIC_V2
        or base_offset != 0
        or attributes & ~_USUAL_BITS
        or last_offset_delta != count - 1
        or count <= 0
        or (producer_id > NO_PRODUCER_ID and base_sequence < 0)
        or crc32c(view[ATTRIBUTES_AT:]) != crc
    ):
        return None
    codec = attributes & CODEC_MASK
    if codec >= codecs_end or (rules.codec is not None and rules.codec != codec):
        return None
    try:
        clear, start, end = view, RECORDS_AT, size
        if codec:
            payload = opening.open(
                rules.decompressed_bytes_max,
                lambda max_bytes, max_pieces: decompress(
                    _CODECS[codec], view[RECORDS_AT:], max_bytes=max_bytes, max_pieces=max_pieces
                ),
            )
            clear, start, end = memoryview(payload), 0, len(payload)
        oldest_ms = now_ms - rules.timestamp_before_max_ms
        newest_ms = now_ms + rules.timestamp_after_max_ms
        true_max, _, is_sequential, faults, true_min = record_loops.check_records(
            clear, start, end, count, base_timestamp,
            oldest_ms if oldest_ms > INT64_MIN else INT64_MIN,
            newest_ms if newest_ms < INT64_MAX else INT64_MAX,
            record_loops.TYPE_IGNORED, rules.compacted,
        )  # fmt: skip
    except RecordsError:
        return None
    if faults is not None or not is_sequential or true_max != max_timestamp:
        return None
    ENTRY_PREFIX.pack_into(view, 0, next_offset, size_field, leader_epoch, MAGIC_V2)
    last_offset = next_offset + last_offset_delta
    # The tuple itself: the constructor of a named tuple is another call.
    batch = tuple.__new__(Entry, (
        0, size, MAGIC_V2, next_offset, last_offset, true_max, attributes, leader_epoch,
        base_timestamp, producer_id, producer_epoch, base_sequence, count,
    ))  # fmt: skip
    return AppendPlan(
        view, (batch,), next_offset, last_offset, true_max, NO_TIMESTAMP, count, true_min
    )
