"""When retention will delete each segment, what keeps it until then, and when the disk is full.

Owns the future of `storage.log.retention`, as pure functions of the same few numbers per segment:
no file is read, no record is counted. Without further appends the fates are exact: retention that
runs at `goes_at_ms` or later deletes the segment, retention that runs before does not. The broker
runs it every `log.retention.check.interval.ms`.

| kept by         | why the segment is still there                                                 |
|-----------------|--------------------------------------------------------------------------------|
| READ_ONLY       | the log takes no changes: it is offline, or follows another broker's bucket    |
| POLICY          | `cleanup.policy` is compact alone                                              |
| UNLIMITED       | `retention.ms` is -1, and the log is below `retention.bytes`                   |
| EMPTY           | it has no records                                                              |
| HIGH_WATERMARK  | some of it, or of an older segment, is not durable yet                         |
| FUTURE          | its newest timestamp is ahead of the clock                                     |
| OLDER           | segments go oldest first, and an older one (`held_by`) has to stay             |
| ACTIVE          | it holds expired records beside newer ones, and is still written to            |
| NEWER_RECORDS   | it holds expired records beside newer ones, because it spans so much time      |
| RETENTION       | nothing in it has expired                                                      |

Of a tiered log the fates are those of the whole log, and the disk is a matter of its local part and
the local limits: the caller gives them to `forecast` in place of the log's.

The disk is a matter of rates. A log grows by what its segments gained during the last week; its new
records live for `retention.ms`, and it stays below `retention.bytes` and one segment.

Read next: `storage.log.retention`, `broker.operator.retention`.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple

from storage.log.retention import DeletionReason, RetentionRules, SegmentAge, plan_retention
from values.dataclasses import dataclass

RATE_WINDOW_MS: Final = 7 * 86_400_000
"""How far back appends count for the rate of a log."""

_NEVER: Final = 2**63 - 1


class Keeper(Enum):
    """Why a segment is still there; the module's table explains."""

    READ_ONLY = "the log takes no changes: it is offline, or follows another broker's bucket"
    POLICY = "cleanup.policy deletes nothing by age or size"
    UNLIMITED = "retention.ms is -1 and retention.bytes is not exceeded"
    EMPTY = "it has no records"
    HIGH_WATERMARK = "not durable yet"
    FUTURE = "its newest timestamp is ahead of the clock"
    OLDER = "an older segment stays"
    ACTIVE = "newer records in it, and it is still written to"
    NEWER_RECORDS = "newer records in it"
    RETENTION = "its records are younger than retention.ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFate:
    """The future of a segment.

    Attributes:
        base_offset: which segment.
        goes_at_ms: when retention may delete it, not before now; None for never by today's rules.
        reason: the rule that deletes it then.
        keeper: what keeps it until then; None when it goes now.
        held_by: the base offset of the older segment that keeps it, for OLDER.
    """

    base_offset: int
    goes_at_ms: int | None
    reason: DeletionReason | None
    keeper: Keeper | None
    held_by: int | None = None


class Growth(NamedTuple):
    """How the size of a log will change.

    Attributes:
        bytes_per_ms: the rate of appends.
        leaving: when existing segments go, and how many bytes each frees.
        lifetime_ms: how long new records stay, None for ever.
        room_bytes: how much it may grow until `retention.bytes` stops it, None for no limit.
    """

    bytes_per_ms: float
    leaving: Sequence[tuple[int, int]]
    lifetime_ms: int | None
    room_bytes: int | None


def forecast(
    segments: Sequence[SegmentAge],
    minima: Sequence[int | None],
    rules: RetentionRules,
    *,
    log_start_offset: int,
    high_watermark: int,
    now_ms: int,
) -> list[SegmentFate]:
    """The fate of each of `segments`, which are all segments of a log, oldest first.

    `minima` are their smallest timestamps, None where unknown.
    """
    plan = plan_retention(
        segments,
        rules,
        log_start_offset=log_start_offset,
        high_watermark=high_watermark,
        now_ms=now_ms,
    )
    fates = [
        SegmentFate(base_offset=segment.base_offset, goes_at_ms=now_ms, reason=reason, keeper=None)
        for segment, reason in zip(segments, plan.reasons, strict=False)
    ]
    latest_ms, holder, blocker = now_ms, None, None
    for index in range(len(fates), len(segments)):
        segment = segments[index]
        blocker = blocker or _blocker(segment, rules, high_watermark)
        if blocker is not None:
            fates.append(
                SegmentFate(
                    base_offset=segment.base_offset, goes_at_ms=None, reason=None, keeper=blocker
                )
            )
            continue
        own_ms = _expiry_ms(segments, index, rules, latest_ms)
        is_held = holder is not None and own_ms <= latest_ms
        if not is_held:
            latest_ms, holder = own_ms, segment.base_offset
        keeper = (
            Keeper.OLDER
            if is_held
            else _keeper(segment, minima[index], rules, now_ms, index == len(segments) - 1)
        )
        fates.append(
            SegmentFate(
                base_offset=segment.base_offset,
                goes_at_ms=latest_ms,
                reason=DeletionReason.TIME,
                keeper=keeper,
                held_by=holder if is_held else None,
            )
        )
    return fates


def _blocker(segment: SegmentAge, rules: RetentionRules, high_watermark: int) -> Keeper | None:
    """What keeps `segment` and all newer ones for as long as nothing else changes."""
    if rules.is_read_only:
        return Keeper.READ_ONLY
    if not rules.deletes:
        return Keeper.POLICY
    if rules.retention_ms < 0:
        return Keeper.UNLIMITED
    if segment.base_offset == segment.next_base:
        return Keeper.EMPTY
    return Keeper.HIGH_WATERMARK if segment.next_base > high_watermark else None


def _keeper(
    segment: SegmentAge, minimum: int | None, rules: RetentionRules, now_ms: int, is_active: bool
) -> Keeper:
    newest = segment.largest_timestamp
    if rules.clamps_future:
        newest = min(newest, segment.appended_ms)
    if newest > now_ms:
        return Keeper.FUTURE
    if minimum is None or minimum < 0 or now_ms - minimum <= rules.retention_ms:
        return Keeper.RETENTION
    return Keeper.ACTIVE if is_active else Keeper.NEWER_RECORDS


def _expiry_ms(
    segments: Sequence[SegmentAge], index: int, rules: RetentionRules, from_ms: int
) -> int:
    """The earliest time, `from_ms` at least, at which `rules.ages_ms` lets a segment go by age."""
    segment = segments[index]
    newest = segment.largest_timestamp
    if rules.clamps_future:
        newest = min(newest, segment.appended_ms)
    by_newest_ms = max(from_ms, newest + rules.retention_ms + 1)
    if newest <= from_ms or not (rules.stamps or newest == segment.appended_ms):
        return by_newest_ms
    # Until the clock has passed `newest`, the first later append that is not ahead of it counts.
    until_ms, earliest_ms = newest, _NEVER
    for later in segments[index:]:
        if until_ms <= from_ms:
            break
        if later.base_offset != later.next_base and later.appended_ms < until_ms:
            at_ms = max(from_ms, later.appended_ms + rules.retention_ms + 1)
            if at_ms < until_ms:
                earliest_ms = min(earliest_ms, at_ms)
            until_ms = later.appended_ms
    return min(by_newest_ms, earliest_ms)


def append_rate(segments: Sequence[SegmentAge], now_ms: int) -> float | None:
    """Bytes per ms appended to a log in the last `RATE_WINDOW_MS`; None with too few segments.

    Known are the time of each segment's last append and its size, so what is newer than such a time
    is known exactly.
    """
    filled = [one for one in segments if one.base_offset != one.next_base]
    if len(filled) < 3:
        return None
    before = [one for one in filled[:-2] if one.appended_ms <= now_ms - RATE_WINDOW_MS]
    first = before[-1] if before else filled[0]
    passed_ms = now_ms - first.appended_ms
    if passed_ms <= 0:
        return None
    gained = sum(one.size_bytes for one in filled if one.base_offset > first.base_offset)
    return gained / passed_ms


def growth(
    segments: Sequence[SegmentAge],
    fates: Sequence[SegmentFate],
    rules: RetentionRules,
    *,
    bytes_per_ms: float,
    segment_bytes: int,
) -> Growth:
    """How a log with these fates grows; `segment_bytes` is how large its segments become."""
    leaving = [
        (fate.goes_at_ms, segment.size_bytes)
        for segment, fate in zip(segments, fates, strict=True)
        if fate.goes_at_ms is not None
    ]
    lifetime_ms = rules.retention_ms if rules.deletes and rules.retention_ms >= 0 else None
    room_bytes = None
    if rules.deletes and rules.retention_bytes >= 0:
        size = sum(segment.size_bytes for segment in segments)
        room_bytes = max(0, rules.retention_bytes + segment_bytes - size)
        if lifetime_ms is not None and bytes_per_ms * lifetime_ms <= room_bytes:
            room_bytes = None  # Its records expire before the size matters.
    return Growth(
        bytes_per_ms=bytes_per_ms,
        leaving=leaving,
        lifetime_ms=lifetime_ms,
        room_bytes=room_bytes,
    )


def disk_full_at(logs: Sequence[Growth], *, free_bytes: int, now_ms: int) -> int | None:
    """When the logs will have grown by more than `free_bytes`; None for never at these rates."""
    if free_bytes <= 0:
        return now_ms
    levels: dict[int, float] = {}
    slopes: dict[int, float] = {now_ms: 0.0}
    for log in logs:
        slopes[now_ms] += log.bytes_per_ms
        end_ms = None if log.lifetime_ms is None else now_ms + log.lifetime_ms
        if log.room_bytes is not None and log.bytes_per_ms > 0:
            # It grows to its limit, and what expires meanwhile makes room for what comes.
            end_ms = now_ms + int(log.room_bytes / log.bytes_per_ms)
        else:
            for at_ms, size_bytes in log.leaving:
                levels[at_ms] = levels.get(at_ms, 0.0) - size_bytes
        if end_ms is not None:
            slopes[end_ms] = slopes.get(end_ms, 0.0) - log.bytes_per_ms
    level = slope = 0.0
    before_ms = now_ms
    for at_ms in sorted({*levels, *slopes}):
        reached = level + slope * (at_ms - before_ms)
        if reached > free_bytes:
            return before_ms + int((free_bytes - level) / slope)
        level = reached + levels.get(at_ms, 0.0)
        slope += slopes.get(at_ms, 0.0)
        before_ms = at_ms
    if slope <= 1e-9:
        return None
    at_ms = before_ms + int((free_bytes - level) / slope)
    return at_ms if at_ms < _NEVER else None
