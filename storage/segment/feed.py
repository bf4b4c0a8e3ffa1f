# cython: language_level=3
# mypy: disable-error-code="untyped-decorator,valid-type,no-any-return"
"""How a batch that was written to a segment changes its numbers and feeds its indexes.

The rule is drawn in `storage.segment.segment`. It is here because two ways of appending follow it,
the general one and the lane (`storage.log.lane`), and so that it runs compiled where extensions
were built.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.segment.manifest import UNKNOWN

try:
    import cython
except ImportError:  # A wheel built without a compiler, on a machine without Cython.
    from protocol.records import cython_shim as cython

if TYPE_CHECKING:
    from storage.segment.segment import Segment

COMPILED: bool = bool(cython.compiled)
"""Whether this module was compiled to machine code."""


def feed_batch(
    segment: Segment,
    position: int,
    size: int,
    last_offset: int,
    timestamp: int,
    records_count: int,
    index_interval: int,
) -> bool:
    """Count and index a batch of `size` bytes at `position`; whether the indexes got entries.

    `timestamp` is its largest (ms), or NO_TIMESTAMP.
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
            index.note_batch(timestamp, last_offset)
    segment.bytes_since_index = since_index + size
    if segment.records != UNKNOWN:
        segment.records += records_count
    segment.next_offset = last_offset + 1
    return is_indexed
