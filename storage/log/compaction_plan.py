"""The part of a compacted log to clean, and when: pure decisions over a few numbers per segment.

A compacted log has three parts:

    log start        first dirty            uncleanable          log end
    |---- clean -----|------- dirty --------|---- kept as is ----|

*Clean* records have been compared with everything up to `first_dirty`. *Dirty* ones have not. The
end is kept as it is: the active segment, everything at or above the last stable offset (its
transactions are open) or not yet durable, and records younger than `min.compaction.lag.ms`.

| a log is cleaned when                                                              |
|------------------------------------------------------------------------------------|
| dirty bytes / (clean + dirty bytes) > `min.cleanable.dirty.ratio`, or              |
| a dirty closed segment began more than `max.compaction.lag.ms` ago                 |

Cleaned segments are small, so adjacent ones are rewritten into one: groups whose sizes, index sizes
and offsets together still fit into one segment.

Source: Kafka `LogCleanerManager`, `Cleaner.groupSegmentsBySize`. Read next:
`storage.log.compaction`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from config import TopicConfig
from protocol.records.layout import INT32_MAX
from storage.segment.segment import Segment

_NEVER_MS: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleanable:
    """The part of a log that can be cleaned now.

    Attributes:
        first_dirty: offset up to which (exclusive) the log is clean.
        end: offset up to which (exclusive) it may be cleaned; the base of a segment.
        clean_bytes, dirty_bytes: sizes of the two parts.
        is_overdue: `max.compaction.lag.ms` has passed for a dirty record.
        min_ratio: `min.cleanable.dirty.ratio` of the topic.
    """

    first_dirty: int
    end: int
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool
    min_ratio: float

    @property
    def ratio(self) -> float:
        """The share of dirty bytes, 0 to 1."""
        return self.dirty_bytes / max(1, self.clean_bytes + self.dirty_bytes)

    @property
    def is_due(self) -> bool:
        """Whether the log should be cleaned now."""
        return self.dirty_bytes > 0 and (self.is_overdue or self.ratio > self.min_ratio)


def find_cleanable(
    segments: Sequence[Segment],
    config: TopicConfig,
    *,
    first_dirty: int,
    bound: int,
    now_ms: int,
) -> Cleanable:
    """Find the part that can be cleaned in `segments`, which are all of a log's, oldest first.

    `bound` is the lesser of last stable offset and durable offset.
    """
    closed = segments[:-1]
    ends = [segment.base_offset for segment in segments[1:]]
    end = segments[0].base_offset
    clean_bytes = dirty_bytes = 0
    oldest_ms = _NEVER_MS
    lag_ms = config.min_compaction_lag_ms
    for segment, next_base in zip(closed, ends, strict=True):
        if next_base > bound or (lag_ms > 0 and segment.largest_timestamp > now_ms - lag_ms):
            break
        end = next_base
        if next_base <= first_dirty:
            clean_bytes += segment.size
        else:
            dirty_bytes += segment.size
    for segment, next_base in zip(closed, ends, strict=True):
        if next_base > first_dirty and segment.first_timestamp > 0:
            oldest_ms = min(oldest_ms, segment.first_timestamp)
    return Cleanable(
        first_dirty=first_dirty,
        end=end,
        clean_bytes=clean_bytes,
        dirty_bytes=dirty_bytes,
        is_overdue=now_ms - oldest_ms > config.max_compaction_lag_ms,
        min_ratio=config.min_cleanable_dirty_ratio,
    )


def group_segments(segments: Sequence[Segment], config: TopicConfig) -> list[list[Segment]]:
    """`segments` (closed, adjacent) in groups that fit into one segment each."""
    groups: list[list[Segment]] = []
    sizes = [0, 0, 0]
    limits = (config.segment_bytes, config.segment_index_bytes, config.segment_index_bytes)
    for segment in segments:
        added = [segment.size, segment.offset_index.size_bytes, segment.time_index.size_bytes]
        joined = [size + more for size, more in zip(sizes, added, strict=True)]
        fits = (
            bool(groups)
            and all(size <= limit for size, limit in zip(joined, limits, strict=True))
            and segment.next_offset - 1 - groups[-1][0].base_offset <= INT32_MAX
        )
        if fits:
            groups[-1].append(segment)
            sizes = joined
        else:
            groups.append([segment])
            sizes = added
    return groups
