# cython: language_level=3
# mypy: disable-error-code="untyped-decorator,valid-type,no-any-return"
"""How a batch that was written to a segment changes its numbers and feeds its indexes.

The rules are drawn in `storage.segment.segment` and `storage.segment.rolling`. They are here
because two ways of appending follow them, the general one and the lane (`storage.log.lane`), and so
that they run compiled where extensions were built. `Segment` imports this module, so its type is
not named here.
"""

from __future__ import annotations

from typing import Any

from protocol.records.layout import INT32_MAX
from storage.segment.manifest import UNKNOWN
from storage.segment.offset_index import ENTRY_SIZE as OFFSET_ENTRY_SIZE
from storage.segment.time_index import ENTRY_SIZE as TIME_ENTRY_SIZE

try:
    import cython
except ImportError:  # A wheel built without a compiler, on a machine without Cython.
    from protocol.records import cython_shim as cython

COMPILED: bool = bool(cython.compiled)
"""Whether this module was compiled to machine code."""


def feed_batch(
    segment: Any,
    position: int,
    size: int,
    last_offset: int,
    timestamp: int,
    records_count: int,
    index_interval: int,
    batch: Any,
    min_timestamp: int,
) -> bool:
    """Count and index a batch of `size` bytes at `position`; whether the indexes got entries.

    `timestamp` is its largest (ms), or NO_TIMESTAMP. Auxiliary indexes get the `batch` itself, an
    `AppendedBatch`, and `min_timestamp`; see `AuxiliaryIndex.note_batch`.
    """
    is_indexed: cython.bint = False
    if timestamp > segment.max_timestamp:
        segment.max_timestamp = timestamp
        segment.max_timestamp_offset = last_offset
    since_index = segment.bytes_since_index
    if since_index > index_interval:
        segment.offset_index.append(last_offset, position)
        segment.time_index.maybe_append(segment.max_timestamp, segment.max_timestamp_offset)
        since_index = 0
        is_indexed = True
    if segment.auxiliary:
        for index in segment.auxiliary:
            if is_indexed:
                index.note_entry(segment.max_timestamp, segment.max_timestamp_offset)
            index.note_batch(batch, position, min_timestamp)
    segment.bytes_since_index = since_index + size
    if segment.records != UNKNOWN:
        segment.records += records_count
    segment.next_offset = last_offset + 1
    return is_indexed


def surely_fits(segment: Any, rules: Any, size: int, last_offset: int, max_timestamp: int) -> bool:
    """Whether a batch may be appended without a look at `storage.segment.rolling`.

    False may mean that a segment has to be started, or that it takes more to decide.
    """
    size_before = segment.log.size
    if size_before == 0 or size_before > rules.segment_bytes - size:
        return False
    first_timestamp = segment._first_timestamp
    if first_timestamp is None or first_timestamp < 0:
        return False
    for index in segment.auxiliary:
        if index.is_full(rules.index_bytes):
            return False
    return (
        max_timestamp - first_timestamp <= rules.segment_ms - segment.roll_jitter_ms
        and _count(segment.offset_index) < rules.index_bytes // OFFSET_ENTRY_SIZE
        and _count(segment.time_index) < rules.index_bytes // TIME_ENTRY_SIZE - 1
        and last_offset - segment.base_offset <= INT32_MAX
    )


def _count(index: Any) -> int:
    return index._written + len(index._first)
