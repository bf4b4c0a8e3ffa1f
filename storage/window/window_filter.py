"""The records of one entry that lie in a time window: bytes in, bytes or nothing out.

| entry                                  | what is kept                                            |
|----------------------------------------|---------------------------------------------------------|
| its header decides: stamped by the     | all or nothing, without a look at the records           |
| broker, one record, or too old         |                                                         |
| all its records lie in the window      | itself, byte for byte                                   |
| none does                              | nothing                                                 |
| some do                                | the same batch with those records, at their offsets     |

A record without a timestamp lies in no window. The loops over records are those of appends and of
compaction (`protocol.records.record_loops`).
"""

from typing import Final

from protocol.records.batch import RecordBatch
from protocol.records.builder import build_empty_batch, build_message_set, rebuild_batch
from protocol.records.compression import compress
from protocol.records.entry import Entry
from protocol.records.layout import (
    INT64_MAX,
    INT64_MIN,
    MAGIC_V2,
    Codec,
    TimestampType,
)
from protocol.records.record import DECOMPRESSED_BYTES_MAX, record_bytes
from protocol.records.record_loops import TYPE_IGNORED, check_records, outline_records
from protocol.records.scan import iter_records
from storage.log.compaction_filter import joined_records

AT_ONCE_BYTES: Final = 256 * 1024
"""Bytes of records that are examined in the loop thread: about a millisecond."""

_OLD_AT_ONCE_BYTES: Final = 16 * 1024
"""The same for messages of magic 0 and 1, which become objects."""


def decide_by_header(
    entry: Entry, start_ms: int, end_ms: int, oldest_ms: int = INT64_MIN
) -> bool | None:
    """Whether all records of `entry` are in the window or none is; None if it must be opened.

    No record of the entry is older than `oldest_ms`.
    """
    newest_ms = entry.max_timestamp
    if newest_ms < start_ms or oldest_ms >= end_ms:
        return False
    if entry.magic == MAGIC_V2:
        if entry.records_count == 0:
            return False
        has_one_time = entry.records_count == 1
    else:
        has_one_time = entry.codec is Codec.NONE
    if has_one_time or entry.timestamp_type is TimestampType.LOG_APPEND_TIME:
        return newest_ms < end_ms
    return True if oldest_ms >= start_ms and newest_ms < end_ms else None


def may_begin_below(entry: Entry, offset: int) -> bool:
    """Whether the entry may have records below `offset`; the header of a wrapper does not say."""
    is_wrapper = entry.magic != MAGIC_V2 and entry.codec is not Codec.NONE
    return entry.base_offset < offset <= entry.last_offset or (is_wrapper and offset > 0)


def select_records(
    entry: Entry,
    data: memoryview,
    start_ms: int,
    end_ms: int,
    *,
    first_offset: int = 0,
    at_once: bool,
) -> memoryview | bytes | None:
    """The part of an entry that lies in the window: `data` itself if all of it does, or None.

    Records below `first_offset` are left out. Raises RecordsError; with `at_once`
    DecompressionLimitExceeded when that would take long.
    """
    if entry.magic != MAGIC_V2:
        return _select_old(entry, data, start_ms, end_ms, first_offset, at_once=at_once)
    batch = RecordBatch(data)
    is_stamped = entry.timestamp_type is TimestampType.LOG_APPEND_TIME
    if is_stamped:
        # The records' own times do not count, and the header has decided about its own.
        start_ms, end_ms = INT64_MIN, INT64_MAX
    count, base_ms = batch.records_count, batch.base_timestamp
    max_bytes = AT_ONCE_BYTES if at_once else DECOMPRESSED_BYTES_MAX
    clear, start, end = record_bytes(batch, max_bytes=max_bytes)
    newest_ms, _, _, _, oldest_ms = check_records(
        clear, start, end, count, base_ms, INT64_MIN, INT64_MAX, TYPE_IGNORED, False
    )
    if newest_ms < start_ms or oldest_ms >= end_ms:
        return None
    if oldest_ms >= start_ms and newest_ms < end_ms and batch.base_offset >= first_offset:
        return data
    outlines = outline_records(clear, start, end, count, batch.base_offset, base_ms)
    kept = [
        outline
        for outline in outlines
        if start_ms <= outline[3] < end_ms and outline[2] >= first_offset
    ]
    if not kept:
        return None
    payload = joined_records(clear, [(outline[0], outline[1]) for outline in kept])
    return rebuild_batch(
        batch,
        compress(batch.codec, payload, like=batch.payload) if batch.codec else payload,
        records_count=len(kept),
        max_timestamp=(batch.max_timestamp if is_stamped else max(outline[3] for outline in kept)),
        attributes=batch.attributes,
        base_timestamp=base_ms,
    )


def _select_old(
    entry: Entry,
    data: memoryview,
    start_ms: int,
    end_ms: int,
    first_offset: int,
    *,
    at_once: bool,
) -> memoryview | bytes | None:
    """The part of a wrapper of magic 1, and an empty batch for the offsets at its end."""
    max_bytes = _OLD_AT_ONCE_BYTES if at_once else DECOMPRESSED_BYTES_MAX
    records = list(iter_records(data, max_bytes=max_bytes))
    kept = [
        record
        for record in records
        if start_ms <= record.timestamp < end_ms and record.offset >= first_offset
    ]
    if len(kept) == len(records):
        return data
    if not kept:
        return None
    part = build_message_set(
        kept,
        entry.magic,
        entry.codec,
        timestamp_type=entry.timestamp_type,
        append_timestamp=entry.max_timestamp,
    )
    end = kept[-1].offset + 1
    return part if end == entry.next_offset else part + build_empty_batch(end, entry.next_offset)
