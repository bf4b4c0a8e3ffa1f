"""The segments that retention removes, and why; and their removal.

Owns the three rules of retention, a pure decision over a few numbers per segment, and their common
frame. Segments go oldest first, up to the first one that has to stay; never at or above the high
watermark; never an empty active segment.

| reason   | the segment may go when                                                              |
|----------|--------------------------------------------------------------------------------------|
| START    | the next segment begins at or below the log's start offset: nothing in it is visible |
| SIZE     | the log stays at `retention.bytes` or more without it                                |
| TIME     | now - its largest timestamp > `retention.ms`                                         |

The rules are tried in this order. When every segment of a log may go, the caller rolls the log
first, so that an empty segment keeps its offsets. With `cleanup.policy` compact alone, only START
applies.

A record with a timestamp in the future keeps its segment, and all newer ones, out of the TIME rule
until the clock has passed that timestamp. `held_by_future` names such a segment, so that the broker
can report it.

Under LogAppendTime, and where records have no timestamps, a future timestamp comes from the
broker's own clock, which was ahead for a while. Such a segment counts as old as the next append
whose time is not ahead, in it or in a newer segment. So it goes when its neighbours do.

Differs from Kafka: with `retention.clamp.future` no timestamp counts as newer than the last append
of its segment. In Kafka only tiered logs do something similar, by the file's modification time.

Source: KIP-33; Kafka `UnifiedLog.deleteOldSegments`.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final, NamedTuple

from config import TopicConfig
from storage.errors import storage_failure
from storage.log.log import Log
from storage.segment.swap import SwapFailed
from values.dataclasses import dataclass

UNLIMITED: Final = -1


class DeletionReason(Enum):
    """Why a segment goes."""

    START = "below the log start offset"
    SIZE = "beyond retention.bytes"
    TIME = "older than retention.ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentAge:
    """The facts about a segment that retention needs.

    Attributes:
        base_offset: its first offset.
        next_base: that of the next segment, or the log's end for the active one.
        size_bytes: of the `.log`.
        largest_timestamp: of its records (ms), or `appended_ms` when none has one.
        appended_ms: the broker's clock at its last append.
    """

    base_offset: int
    next_base: int
    size_bytes: int
    largest_timestamp: int
    appended_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRules:
    """The topic's settings; UNLIMITED switches a rule off.

    `deletes`: the policy contains delete. `clamps_future`: see above. `stamps`: the broker gives
    the timestamps. `is_read_only`: only what is below the log's start goes.
    """

    retention_ms: int
    retention_bytes: int
    deletes: bool
    clamps_future: bool
    stamps: bool = False
    is_read_only: bool = False

    def ages_ms(self, segments: Sequence[SegmentAge], now_ms: int) -> list[int]:
        """Age of the newest record of each segment in ms; negative when it is in the future."""
        ages: list[int] = []
        appended_ms = now_ms + 1
        for segment in reversed(segments):
            newest = segment.largest_timestamp
            if self.clamps_future:
                newest = min(newest, segment.appended_ms)
            if segment.appended_ms <= now_ms and segment.base_offset != segment.next_base:
                appended_ms = segment.appended_ms
            if newest > now_ms and (self.stamps or newest == segment.appended_ms):
                newest = min(newest, appended_ms)
            ages.append(now_ms - newest)
        return ages[::-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPlan:
    """The oldest `len(reasons)` segments may go, each for its reason.

    `held_by_future` is the base offset of the first segment that stays, when only a timestamp ahead
    of the clock keeps it; else None.
    """

    reasons: tuple[DeletionReason, ...]
    held_by_future: int | None = None


class DeletedSegment(NamedTuple):
    """A segment that retention removed, and why."""

    base_offset: int
    size_bytes: int
    largest_timestamp: int
    reason: DeletionReason


def delete_expired(log: Log, now_ms: int) -> list[DeletedSegment]:
    """Remove the segments of `log` that retention selects, oldest first, each with its reason.

    Their files are renamed at once and unlinked by `Log.delete_pending_files` later. When only a
    timestamp ahead of the clock keeps the oldest segment, `Log.held_by_future` is its base offset.
    Of a log that follows a bucket only what is below its start goes.

    Raises StorageFailed, LogOffline.
    """
    if log.offline_reason is not None:
        return []
    try:
        # The plan below counts the segments as they are; a swap that is under way would change
        # them.
        log.changes.settle_swap()
    except SwapFailed as error:
        log.go_offline(error)
    except OSError as error:
        raise storage_failure("delete", log.path, error) from error
    ages, rules = ages_of(log), rules_of(log, log.config)
    plan = plan_retention(
        ages,
        rules,
        log_start_offset=log.log_start_offset,
        high_watermark=log.high_watermark,
        now_ms=now_ms,
    )
    log.held_by_future = plan.held_by_future
    count = len(plan.reasons)
    if not count:
        return []
    if count == len(ages):
        log.roll(now_ms)
    assert log.segments[count].base_offset <= log.high_watermark, "visible records would go"
    # The start is durable before any file goes: a crash in between leaves no gap in the log.
    log.advance_log_start(log.segments[count].base_offset)
    try:
        log.changes.remove_oldest(count, due_ms=now_ms + log.config.file_delete_delay_ms)
        log.producers.snapshots.delete_before(log.segments.first.base_offset)
    except OSError as error:
        raise storage_failure("delete", log.path, error) from error
    assert log.segments.first.base_offset <= log.log_start_offset, "records in sight are removed"
    return [
        DeletedSegment(age.base_offset, age.size_bytes, age.largest_timestamp, reason)
        for age, reason in zip(ages, plan.reasons, strict=False)
    ]


def rules_of(log: Log, config: TopicConfig) -> RetentionRules:
    """The rules for `log` as if `config` were its topic's."""
    return RetentionRules(
        retention_ms=config.retention_ms,
        retention_bytes=config.retention_bytes,
        deletes=config.is_deleted_by_retention,
        clamps_future=config.retention_clamp_future,
        stamps=log.append_rules.stamps,
        is_read_only=log.refusal is not None,
    )


def ages_of(log: Log) -> list[SegmentAge]:
    """The facts that retention needs, oldest segment first."""
    segments = list(log.segments)
    ends = [segment.base_offset for segment in segments[1:]] + [log.log_end_offset]
    return [
        SegmentAge(
            base_offset=segment.base_offset,
            next_base=end,
            size_bytes=segment.size,
            largest_timestamp=segment.largest_timestamp,
            appended_ms=segment.appended_ms,
        )
        for segment, end in zip(segments, ends, strict=True)
    ]


def plan_retention(
    segments: Sequence[SegmentAge],
    rules: RetentionRules,
    *,
    log_start_offset: int,
    high_watermark: int,
    now_ms: int,
) -> RetentionPlan:
    """Plan which of `segments` to delete; they are all segments of a log, oldest first."""
    assert log_start_offset <= high_watermark, "the log starts where nothing is visible yet"
    reasons: list[DeletionReason] = []

    def take(reason: DeletionReason, may_go: Callable[[SegmentAge], bool]) -> None:
        for segment in segments[len(reasons) :]:
            is_empty = segment.base_offset == segment.next_base
            if is_empty or segment.next_base > high_watermark or not may_go(segment):
                return
            reasons.append(reason)

    last_base = segments[-1].base_offset
    take(
        DeletionReason.START,
        lambda segment: segment.base_offset != last_base and segment.next_base <= log_start_offset,
    )
    if not rules.deletes or rules.is_read_only:
        return RetentionPlan(reasons=tuple(reasons))
    if rules.retention_bytes >= 0:
        excess = sum(segment.size_bytes for segment in segments[len(reasons) :])
        excess -= rules.retention_bytes

        def is_surplus(segment: SegmentAge) -> bool:
            nonlocal excess
            if excess < segment.size_bytes:
                return False
            excess -= segment.size_bytes
            return True

        take(DeletionReason.SIZE, is_surplus)
    ages_ms = {
        segment.base_offset: age_ms
        for segment, age_ms in zip(segments, rules.ages_ms(segments, now_ms), strict=True)
    }
    if rules.retention_ms >= 0:
        take(
            DeletionReason.TIME,
            lambda segment: ages_ms[segment.base_offset] > rules.retention_ms,
        )
    first = next(iter(segments[len(reasons) :]), None)
    is_held = (
        first is not None
        and ages_ms[first.base_offset] < 0
        and 0 <= rules.retention_ms < now_ms - first.appended_ms
    )
    return RetentionPlan(
        reasons=tuple(reasons), held_by_future=first.base_offset if first and is_held else None
    )
