"""The forecast of retention against what retention then deletes, on random logs."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.operator.retention import RetentionFacts
from storage.errors import FollowsBucket
from storage.log.forecast import Keeper, SegmentFate, forecast
from storage.log.retention import (
    DeletionReason,
    RetentionRules,
    SegmentAge,
    ages_of,
    delete_expired,
    plan_retention,
    rules_of,
)
from tests.support.logs import LogHarness
from tests.support.tiered import TieredHarness

NOW = 40  # Small, so that the times of segments meet.
TIMES = st.integers(0, 2 * NOW)
REAL_NOW = 10_000
REAL_TIMES = st.integers(0, 2 * REAL_NOW)
RULES = st.builds(
    RetentionRules,
    retention_ms=st.integers(-1, NOW),
    retention_bytes=st.integers(-1, 60),
    deletes=st.sampled_from([True, True, True, False]),
    clamps_future=st.booleans(),
    stamps=st.booleans(),
)


@st.composite
def logs(draw: st.DrawFn) -> list[SegmentAge]:
    """Segments with any times: late, in the future, without time, stamped by a wrong clock."""
    segments: list[SegmentAge] = []
    base = 0
    for _ in range(draw(st.integers(1, 7))):
        appended_ms = draw(TIMES)
        size = draw(st.integers(1, 5))
        segments.append(
            SegmentAge(
                base_offset=base,
                next_base=base + size,
                size_bytes=draw(st.integers(1, 20)),
                largest_timestamp=draw(st.one_of(TIMES, st.just(appended_ms))),
                appended_ms=appended_ms,
            )
        )
        base += size
    if draw(st.booleans()):
        segments.append(
            SegmentAge(
                base_offset=base,
                next_base=base,
                size_bytes=0,
                largest_timestamp=-1,
                appended_ms=-1,
            )
        )
    return segments


def times_to_try(
    segments: list[SegmentAge], rules: RetentionRules, fates: list[SegmentFate], more: list[int]
) -> list[int]:
    """Each forecast time, each at which an age may change, the ms before them, and some others."""
    edges = [fate.goes_at_ms for fate in fates if fate.goes_at_ms is not None]
    for one in segments:
        for time_ms in (one.appended_ms, one.largest_timestamp):
            edges += [time_ms, time_ms + rules.retention_ms + 1]
    times = {NOW, *more, *edges, *(at - 1 for at in edges)}
    return sorted(time_ms for time_ms in times if time_ms >= NOW)


@settings(max_examples=1500, deadline=None)
@given(
    segments=logs(),
    rules=RULES,
    start_share=st.floats(0, 1),
    high_share=st.one_of(st.just(1.0), st.floats(0, 1)),
    more=st.lists(st.integers(NOW, 5 * NOW), max_size=5),
)
def test_segments_go_when_the_forecast_says(
    segments: list[SegmentAge],
    rules: RetentionRules,
    start_share: float,
    high_share: float,
    more: list[int],
) -> None:
    high_watermark = int(segments[-1].next_base * high_share)
    start = int(high_watermark * start_share)
    bounds = {"log_start_offset": start, "high_watermark": high_watermark}
    fates = forecast(segments, [None] * len(segments), rules, now_ms=NOW, **bounds)
    assert [fate.base_offset for fate in fates] == [one.base_offset for one in segments]
    left = list(segments)
    for now_ms in times_to_try(segments, rules, fates, more):
        for reason in plan_retention(left, rules, now_ms=now_ms, **bounds).reasons:
            gone = left.pop(0)
            fate = next(one for one in fates if one.base_offset == gone.base_offset)
            assert fate.goes_at_ms is not None
            assert fate.goes_at_ms <= now_ms
            assert fate.reason is reason
            if not left:
                break
        due = {f.base_offset for f in fates if f.goes_at_ms is not None and f.goes_at_ms <= now_ms}
        assert not due & {one.base_offset for one in left}
        if not left:
            break
    for fate in fates:
        assert (fate.goes_at_ms == NOW) or fate.keeper is not None or fate.goes_at_ms is None
        assert (fate.held_by is not None) == (fate.keeper is Keeper.OLDER)
        assert (fate.goes_at_ms is None) == (fate.reason is None)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    appends=st.lists(
        st.tuples(st.lists(REAL_TIMES, min_size=1, max_size=3), st.integers(0, 500), st.booleans()),
        min_size=1,
        max_size=8,
    ),
    retention_ms=st.integers(0, REAL_NOW),
    retention_bytes=st.one_of(st.just(-1), st.integers(0, 600)),
    clamps=st.booleans(),
    stamps=st.booleans(),
)
def test_a_real_log_loses_its_segments_when_the_forecast_says(
    appends: list[tuple[list[int], int, bool]],
    retention_ms: int,
    retention_bytes: int,
    clamps: bool,
    stamps: bool,
) -> None:
    log = LogHarness(
        retention_ms=retention_ms,
        retention_bytes=retention_bytes,
        retention_clamp_future=str(clamps).lower(),
        message_timestamp_type="LogAppendTime" if stamps else "CreateTime",
        message_timestamp_after_max_ms=10 * REAL_NOW,
    )
    for timestamps, passed_ms, rolls in appends:
        log.now_ms += passed_ms
        log.append(*timestamps)
        if rolls:
            log.log.roll(log.now_ms)
    now_ms = log.now_ms = max(REAL_NOW, log.now_ms)
    ages = ages_of(log.log)
    fates = forecast(
        ages,
        [None] * len(ages),
        rules_of(log.log, log.log.config),
        log_start_offset=log.log.log_start_offset,
        high_watermark=log.log.high_watermark,
        now_ms=now_ms,
    )
    assert delete_expired_at(log, now_ms) == foreseen(fates, now_ms)
    for at_ms in sorted({f.goes_at_ms for f in fates if f.goes_at_ms is not None}):
        if at_ms > now_ms:
            assert delete_expired_at(log, at_ms - 1) == []
            assert delete_expired_at(log, at_ms) == foreseen(fates, at_ms)
    never = [fate.base_offset for fate in fates if fate.goes_at_ms is None]
    assert delete_expired_at(log, 2**60) == []
    assert [base for base in log.bases() if base in never] == never


def test_a_log_that_takes_no_changes_keeps_what_has_expired() -> None:
    log = LogHarness(retention_ms=0)
    for time_ms in (1, 2, 3):
        log.append(time_ms)
        log.log.roll(log.now_ms)
    log.log.refusal = FollowsBucket()
    fates = RetentionFacts.of(log.log, log.log.config).fates(REAL_NOW)
    assert {fate.keeper for fate in fates} == {Keeper.READ_ONLY}
    assert [fate.goes_at_ms for fate in fates] == [None] * 4
    assert delete_expired_at(log, 2**60) == []


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    appends=st.lists(
        st.tuples(st.lists(REAL_TIMES, min_size=1, max_size=3), st.integers(0, 500)),
        min_size=3,
        max_size=12,
    ),
    local_ms=st.integers(0, REAL_NOW),
    local_bytes=st.one_of(st.just(-1), st.integers(0, 1500)),
    clamps=st.booleans(),
)
def test_a_tiered_log_loses_its_local_copies_when_the_forecast_says(
    appends: list[tuple[list[int], int]], local_ms: int, local_bytes: int, clamps: bool
) -> None:
    log = TieredHarness(
        retention_ms=-1,
        local_retention_ms=local_ms,
        local_retention_bytes=local_bytes,
        retention_clamp_future=str(clamps).lower(),
        message_timestamp_after_max_ms=10 * REAL_NOW,
    )
    for timestamps, passed_ms in appends:
        log.now_ms += passed_ms
        log.append(*timestamps, size=180)
    log.upload()
    now_ms = log.now_ms = max(REAL_NOW, log.now_ms)
    fates = local_fates(log, now_ms)
    times = sorted({fate.goes_at_ms for fate in fates if fate.goes_at_ms is not None})
    for at_ms in times:
        if at_ms > now_ms:
            log.now_ms = at_ms - 1
            assert log.drop_local() == []
        log.now_ms = at_ms
        assert log.drop_local() == [one.base_offset for one in fates if one.goes_at_ms == at_ms]
        # What is left has the same future as before.
        left = [one.goes_at_ms for one in local_fates(log, at_ms)]
        assert left == [one.goes_at_ms for one in fates if (one.goes_at_ms or 2**60) > at_ms]
    log.now_ms = 2**60
    assert log.drop_local() == []


def local_fates(log: TieredHarness, now_ms: int) -> list[SegmentFate]:
    """Those of the local copies but the segment that is written, which has no object."""
    return RetentionFacts.of(log.log, log.log.config).of_disk.fates(now_ms)[:-1]


def delete_expired_at(log: LogHarness, now_ms: int) -> list[tuple[int, DeletionReason]]:
    return [(gone.base_offset, gone.reason) for gone in delete_expired(log.log, now_ms)]


def foreseen(fates: list[SegmentFate], at_ms: int) -> list[tuple[int, DeletionReason | None]]:
    return [(fate.base_offset, fate.reason) for fate in fates if fate.goes_at_ms == at_ms]
