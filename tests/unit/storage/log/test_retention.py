"""Which segments go, and why: time-semantics cases 48 to 56, and the pure decision itself."""

import pytest

from storage.disk.steps import run_steps
from storage.errors import OffsetOutOfRange, PolicyViolation, StorageFailed
from storage.log.retention import (
    UNLIMITED,
    DeletedSegment,
    DeletionReason,
    RetentionPlan,
    RetentionRules,
    SegmentAge,
    delete_expired,
    plan_retention,
)
from tests.support.clock import DAY_MS
from tests.support.logs import LogHarness, messages
from tests.support.simulated_disk import Fault, Operation

NOW = 1_000_000


def plan(
    *largest: int,
    size: int = 10,
    retention_ms: int = UNLIMITED,
    retention_bytes: int = UNLIMITED,
    deletes: bool = True,
    start: int = 0,
    high_watermark: int | None = None,
    clamps_future: bool = False,
) -> RetentionPlan:
    """A plan for segments of ten records each, with these largest timestamps.

    They were last appended to 10,000 ms ago.
    """
    ages = [
        SegmentAge(
            base_offset=10 * index,
            next_base=10 * index + 10,
            size_bytes=size,
            largest_timestamp=timestamp,
            appended_ms=NOW - 10_000,
        )
        for index, timestamp in enumerate(largest)
    ]
    return plan_retention(
        ages,
        RetentionRules(
            retention_ms=retention_ms,
            retention_bytes=retention_bytes,
            deletes=deletes,
            clamps_future=clamps_future,
        ),
        log_start_offset=start,
        high_watermark=10 * len(ages) if high_watermark is None else high_watermark,
        now_ms=NOW,
    )


def test_case_48_all_old_leaves_one_empty_segment_at_the_end() -> None:
    log = LogHarness(retention_ms=10_000)
    for _ in range(3):
        log.append(10)
        log.log.roll(log.now_ms)
    log.append(10)
    log.now_ms = NOW
    deleted = delete_expired(log.log, log.now_ms)
    assert [gone.reason for gone in deleted] == [DeletionReason.TIME] * 4
    assert log.bases() == [4]
    assert log.log.segments.active.created_ms == NOW
    assert log.log.log_start_offset == log.log.log_end_offset == 4
    assert log.append(5).first_offset == 4


def test_case_49_first_survivor_protects_what_follows_it() -> None:
    old, new = NOW - 5000, NOW
    assert plan(old, new, old, retention_ms=1000).reasons == (DeletionReason.TIME,)


def test_case_50_exactly_retention_ms_old_is_kept() -> None:
    assert plan(NOW - 1000, NOW, retention_ms=1000).reasons == ()
    assert plan(NOW - 1001, NOW, retention_ms=1000).reasons == (DeletionReason.TIME,)
    assert plan(NOW - 1, NOW, retention_ms=0).reasons == (DeletionReason.TIME,)


@pytest.mark.parametrize(("limit", "gone"), [(100, 1), (150, 0), (0, 3), (99, 1), (50, 2)])
def test_case_51_size_never_falls_below_the_limit(limit: int, gone: int) -> None:
    result = plan(1, 2, 3, size=50, retention_bytes=limit)
    assert result.reasons == (DeletionReason.SIZE,) * gone


def test_case_51_everything_by_size_rolls_the_active_segment() -> None:
    log = LogHarness(retention_bytes=0)
    for timestamp in (1, 2, 3):
        log.append(timestamp)
    assert len(delete_expired(log.log, log.now_ms)) == 1
    assert log.bases() == [3]
    assert delete_expired(log.log, log.now_ms) == []


def test_case_52_segment_without_timestamps_ages_by_its_append_time() -> None:
    log = LogHarness(retention_ms=1000)
    log.log.abandon()
    log.files.now_ms = 5000
    log.files.unlink(f"{log.path}/00000000000000000000.log")
    log.place(0, messages(-1, -1, magic=0))
    log.open(is_clean=True)
    # First start: the file's time is all there is. It is remembered, and a copy may lose it.
    assert log.log.segments.first.largest_timestamp == 5000
    log.log.close(5500)
    log.files.now_ms = 9000
    for name in log.names():
        log.files.replace_atomically(f"{log.path}/{name}", log.files.read_all(f"{log.path}/{name}"))
    log.open(is_clean=True)
    assert log.log.segments.first.largest_timestamp == 5000
    assert delete_expired(log.log, 6000) == []
    assert len(delete_expired(log.log, 6001)) == 1


def test_case_53_future_timestamp_at_the_head_blocks_time_but_not_size() -> None:
    future = NOW + 10 * DAY_MS
    blocked = plan(future, 1, 2, retention_ms=1000)
    assert blocked.reasons == ()
    assert blocked.held_by_future == 0
    assert plan(future, 1, 2, retention_ms=-1).held_by_future is None
    assert plan(NOW + 1, retention_ms=10_000).held_by_future is None
    assert plan(NOW + 1, retention_ms=0).held_by_future == 0
    assert plan(NOW, retention_ms=0).held_by_future is None, "not ahead"
    assert plan(future, NOW, NOW, retention_ms=1000, retention_bytes=20).reasons == (
        DeletionReason.SIZE,
    )


def test_clamped_future_counts_from_the_last_append() -> None:
    future = NOW + 10 * DAY_MS
    gone = plan(future, 1, future, retention_ms=9_999, clamps_future=True)
    assert gone.reasons == (DeletionReason.TIME,) * 3
    kept = plan(future, 1, retention_ms=10_000, clamps_future=True)
    assert (kept.reasons, kept.held_by_future) == ((), None)
    assert plan(NOW - 20_000, retention_ms=15_000, clamps_future=True).reasons


def test_clamping_is_a_setting_of_the_topic() -> None:
    log = LogHarness(retention_ms=100, message_timestamp_after_max_ms=10 * DAY_MS)
    log.append(log.now_ms + DAY_MS)
    log.log.roll(log.now_ms)
    log.append(log.now_ms)
    log.now_ms += 101
    assert delete_expired(log.log, log.now_ms) == []
    assert log.log.held_by_future == 0
    log.configure(retention_clamp_future="true")
    assert len(delete_expired(log.log, log.now_ms)) == 2
    assert log.log.held_by_future is None


def stamped_plan(*appended: tuple[int, int], stamps: bool = True, retention_ms: int = 100) -> int:
    """How many segments of these largest timestamps and append times go, both relative to NOW."""
    ages = [
        SegmentAge(
            base_offset=10 * index,
            next_base=10 * index + 10,
            size_bytes=10,
            largest_timestamp=NOW + largest,
            appended_ms=NOW + appended_ms,
        )
        for index, (largest, appended_ms) in enumerate(appended)
    ]
    rules = RetentionRules(
        retention_ms=retention_ms,
        retention_bytes=UNLIMITED,
        deletes=True,
        clamps_future=False,
        stamps=stamps,
    )
    found = plan_retention(
        ages, rules, log_start_offset=0, high_watermark=10 * len(ages), now_ms=NOW
    )
    return len(found.reasons)


AHEAD = 10**9


def test_a_stamp_of_a_clock_that_was_ahead_goes_with_its_neighbours() -> None:
    assert stamped_plan((AHEAD, -200), (-50, -50)) == 1
    assert stamped_plan((AHEAD, AHEAD), (-150, -150), (-50, -50)) == 2
    assert stamped_plan((AHEAD, AHEAD), (-50, -50)) == 0
    assert stamped_plan((-150, -150), (AHEAD, AHEAD), (-50, -50)) == 1
    # Nothing was appended since: it cannot be known how old it is.
    assert stamped_plan((-150, -150), (AHEAD, AHEAD)) == 1
    assert stamped_plan((AHEAD, AHEAD), retention_ms=0) == 0
    assert stamped_plan((0, -200)) == 0, "a stamp of this moment is not ahead"


def test_stamps_that_stayed_when_the_clock_was_set_back_age_by_their_appends() -> None:
    log = LogHarness(message_timestamp_type="LogAppendTime", retention_ms=100)
    log.now_ms = 50_000
    log.append(1)
    log.log.roll(log.now_ms)
    log.now_ms = 10_000
    log.append(1)
    assert log.log.segments.active.max_timestamp == 50_000
    log.now_ms = 10_101
    assert len(delete_expired(log.log, log.now_ms)) == 2


def test_a_producers_timestamp_ahead_is_kept_until_then() -> None:
    assert stamped_plan((AHEAD, -200), (-150, -150), stamps=False) == 0


def test_records_without_timestamps_go_with_their_neighbours_too() -> None:
    assert stamped_plan((AHEAD, AHEAD), (-150, -150), stamps=False) == 2


def test_case_54_compacted_topics_delete_nothing_by_time_or_size() -> None:
    assert plan(1, 2, retention_ms=0, retention_bytes=0, deletes=False).reasons == ()
    log = LogHarness(cleanup_policy="compact")
    log.append(1, key=b"k")
    with pytest.raises(PolicyViolation):
        log.log.delete_before(1)


def test_case_54_start_is_honoured_under_any_policy() -> None:
    assert plan(1, 2, deletes=False, start=10).reasons == (DeletionReason.START,)


def test_case_55_delete_before_takes_effect_at_once_and_files_go_later() -> None:
    log = LogHarness()
    for timestamp in range(15):
        log.append(timestamp)
        if timestamp % 5 == 4:
            log.log.roll(log.now_ms)
    log.log.delete_before(6)
    assert log.log.log_start_offset == 6
    assert log.bases() == [0, 5, 10, 15]
    assert [gone.base_offset for gone in delete_expired(log.log, log.now_ms)] == [0]
    assert log.bases() == [5, 10, 15]
    assert log.log.log_start_offset == 6
    assert [record.offset for record in log.records()] == list(range(6, 15))


def test_case_56_files_are_renamed_at_once_and_unlinked_after_the_delay() -> None:
    log = LogHarness(retention_bytes=0, file_delete_delay_ms=60_000)
    log.append(1)
    delete_expired(log.log, log.now_ms)
    renamed = [name for name in log.names() if name.endswith(".deleted")]
    assert "00000000000000000000.log.deleted" in renamed
    assert run_steps(log.log.delete_pending_files(log.now_ms + 59_999)) == 0
    assert run_steps(log.log.delete_pending_files(log.now_ms + 60_000)) == len(renamed)
    assert not any(name.endswith(".deleted") for name in log.names())


def test_case_56_crash_in_between_is_cleaned_up_at_start() -> None:
    log = LogHarness(retention_bytes=0)
    log.append(1)
    delete_expired(log.log, log.now_ms)
    log.crash()
    assert not any(name.endswith(".deleted") for name in log.names())
    assert (log.log.log_start_offset, log.log.log_end_offset) == (1, 1)


def test_nothing_at_or_above_the_high_watermark_goes() -> None:
    assert plan(1, 1, 1, retention_ms=10, high_watermark=15).reasons == (DeletionReason.TIME,)
    assert plan(1, 1, 1, retention_bytes=0, high_watermark=9).reasons == ()


def test_rules_are_tried_in_order_and_add_up() -> None:
    result = plan(1, 1, 1, NOW, start=10, retention_bytes=20, retention_ms=100)
    assert result.reasons == (DeletionReason.START, DeletionReason.SIZE, DeletionReason.TIME)


def test_active_segment_is_not_below_the_start() -> None:
    assert plan(1, start=10).reasons == ()


def test_what_went_is_reported_with_its_size_and_time() -> None:
    log = LogHarness(retention_ms=1_000)
    log.append(10, 30, 20)
    size = log.log.segments.first.size
    log.log.roll(log.now_ms)
    log.append(5_000)
    deleted = delete_expired(log.log, 2_000)
    assert deleted == [DeletedSegment(0, size, 30, DeletionReason.TIME)]


def test_snapshots_of_producers_go_with_their_segments() -> None:
    log = LogHarness(retention_ms=1_000)
    for timestamp in (1, 2, 5_000):
        log.append(timestamp)
        log.log.roll(log.now_ms)
    delete_expired(log.log, 2_000)
    snapshots = [name for name in log.names() if name.endswith(".snapshot")]
    assert snapshots == [f"{offset:020d}.snapshot" for offset in (2, 3)]


def test_a_start_that_cannot_be_stored_keeps_the_files() -> None:
    log = LogHarness(retention_ms=1_000)
    log.append(1)
    log.log.roll(log.now_ms)
    log.append(5_000)
    log.files.fault = Fault(at=0, errno=5, kinds=frozenset({Operation.SYNC}))
    with pytest.raises(StorageFailed, match=f"delete failed on {log.path}: "):
        delete_expired(log.log, 2_000)
    log.files.fault = None
    assert (log.log.log_start_offset, log.bases()) == (0, [0, 1])
    assert len(delete_expired(log.log, 2_000)) == 1


def test_files_that_cannot_be_renamed_are_named() -> None:
    log = LogHarness(retention_ms=1_000)
    log.append(1)
    log.log.roll(log.now_ms)
    log.append(5_000)
    log.files.fault = Fault(at=0, errno=5, kinds=frozenset({Operation.RENAME}), for_ever=True)
    with pytest.raises(StorageFailed, match=f"delete failed on {log.path}: "):
        delete_expired(log.log, 2_000)
    log.files.fault = None
    assert log.log.log_start_offset == 1


def test_empty_active_segment_stays() -> None:
    log = LogHarness(retention_ms=0, retention_bytes=0)
    assert delete_expired(log.log, NOW) == []
    assert log.bases() == [0]


@pytest.mark.parametrize("offset", [-1, 3])
def test_delete_before_outside_of_the_visible_log_is_refused(offset: int) -> None:
    log = LogHarness()
    log.append(1)
    log.append(2)
    log.append(3, flush=False)
    with pytest.raises(OffsetOutOfRange, match=f"{offset}.*0.*2"):
        log.log.delete_before(offset)
    log.log.delete_before(2)
    log.log.delete_before(1)
    assert log.log.log_start_offset == 2


def test_deleted_start_outlives_a_crash_without_checkpoint() -> None:
    log = LogHarness()
    for timestamp in range(5):
        log.append(timestamp)
    log.log.delete_before(3)
    log.crash()
    assert log.log.log_start_offset == 3


def test_wall_clock_before_the_timestamps_reports_who_holds() -> None:
    log = LogHarness(retention_ms=10)
    log.append(log.now_ms + 500)
    held = []
    for wait_ms in (10, 1, 500):
        log.now_ms += wait_ms
        delete_expired(log.log, log.now_ms)
        held.append(log.log.held_by_future)
    assert held == [None, 0, None], "only what retention would take by its age in the log"
    assert log.log.log_start_offset == 1
