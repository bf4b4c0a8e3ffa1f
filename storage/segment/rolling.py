"""When a log starts a new segment: a pure decision, taken before each append.

| the segment is closed before the append when                                        | reason   |
|-------------------------------------------------------------------------------------|----------|
| the append would make it larger than `segment.bytes` (an exact fit does not)        | SIZE     |
| it is not empty, and more time has passed than `segment.ms` minus its jitter        | TIME     |
| one of its indexes is full (`segment.index.bytes`)                                  | INDEX    |
| an offset would not fit into 31 bits above its base                                 | OFFSET   |

*Time passed* is measured by the records' own clock: the newest timestamp of the append minus that
of the segment's first batch. Two kinds of segment are measured by the broker's clock since the
segment was opened. One is a segment whose first batch has no timestamp. The other is a segment
whose first batch the broker itself has stamped with a time in the future: a clock that was ahead
for a moment would otherwise keep the segment open until then. There is no timer: an idle segment
stays open. With a compacted topic `max.compaction.lag.ms` bounds the time too.

Source: KIP-33 and its release notes; Kafka `LogSegment.shouldRoll`.
"""

from enum import Enum
from functools import lru_cache

from config import TopicConfig
from storage.segment.segment import Segment
from values.dataclasses import dataclass


class RollReason(Enum):
    """Why a new segment starts."""

    SIZE = "segment.bytes"
    TIME = "segment.ms"
    INDEX = "segment.index.bytes"
    OFFSET = "offset range"


@dataclass(frozen=True, slots=True, kw_only=True)
class RollRules:
    """The settings of a topic that decide about rolling."""

    segment_bytes: int
    segment_ms: int
    segment_jitter_ms: int
    index_bytes: int
    stamps: bool = False

    @classmethod
    @lru_cache(maxsize=64)
    def from_config(cls, config: TopicConfig) -> "RollRules":
        """The rules of a topic; its logs share them."""
        segment_ms = config.segment_ms
        if config.is_compacted:
            segment_ms = min(segment_ms, config.max_compaction_lag_ms)
        return cls(
            segment_bytes=config.segment_bytes,
            segment_ms=segment_ms,
            segment_jitter_ms=config.segment_jitter_ms,
            index_bytes=config.segment_index_bytes,
            stamps=config.message_timestamp_type == "LogAppendTime",
        )


def find_roll_reason(
    segment: Segment,
    rules: RollRules,
    *,
    size_bytes: int,
    last_offset: int,
    max_timestamp: int,
    now_ms: int,
) -> RollReason | None:
    """Why `segment` must not take the append described by the four numbers, or None."""
    size = segment.log.size
    if size > rules.segment_bytes - size_bytes:
        return RollReason.SIZE
    if size > 0:
        first = segment.first_timestamp
        waited_ms = max_timestamp - first
        if first < 0 or (rules.stamps and waited_ms < 0):
            waited_ms = segment.open_for_ms(now_ms)
        if waited_ms > rules.segment_ms - segment.roll_jitter_ms:
            return RollReason.TIME
    index_bytes = rules.index_bytes
    if segment.offset_index.is_full(index_bytes) or segment.time_index.is_full(index_bytes):
        return RollReason.INDEX
    for index in segment.auxiliary:
        if index.is_full(index_bytes):
            return RollReason.INDEX
    return None if segment.fits(last_offset) else RollReason.OFFSET
