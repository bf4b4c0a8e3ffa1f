"""When a segment is closed: time-semantics cases 18, 22 and 40 to 47."""

import errno

import pytest

from storage.errors import RecordListTooLarge
from storage.log.retention import delete_expired
from storage.segment.rolling import RollReason, RollRules, find_roll_reason
from tests.support.clock import DAY_MS
from tests.support.logs import (
    LogHarness,
    add,
    add_at_end,
    batch,
    config,
    messages,
    new_segment,
    produced,
)
from tests.support.simulated_disk import Fault

RULES = RollRules(segment_bytes=1000, segment_ms=100, segment_jitter_ms=0, index_bytes=10_485_760)


def reason(segment: object, **append: int) -> RollReason | None:
    facts = {"size_bytes": 70, "last_offset": 1, "max_timestamp": 1000, "now_ms": 1000} | append
    return find_roll_reason(segment, RULES, **facts)  # type: ignore[arg-type]


def test_case_40_exact_fit_does_not_roll() -> None:
    segment = new_segment()
    add_at_end(segment, 1000, size=600)
    assert reason(segment, size_bytes=400) is None
    assert reason(segment, size_bytes=401) is RollReason.SIZE


def test_case_41_time_is_counted_from_the_first_batch() -> None:
    segment = new_segment()
    add_at_end(segment, 1000)
    assert reason(segment, max_timestamp=1100) is None
    assert reason(segment, max_timestamp=1101) is RollReason.TIME


def test_case_41_the_new_segment_holds_the_late_record() -> None:
    log = LogHarness(segment_ms=100)
    for timestamp in (1000, 1100, 1101):
        log.append(timestamp)
    assert log.bases() == [0, 2]
    assert log.log.segments.active.max_timestamp == 1101


def test_case_42_the_wall_clock_does_not_count_when_there_are_timestamps() -> None:
    segment = new_segment()
    add_at_end(segment, 1000)
    assert reason(segment, max_timestamp=1050, now_ms=1000 + 10 * DAY_MS) is None


def test_case_43_without_first_timestamp_the_clock_since_opening_counts() -> None:
    segment = new_segment(now_ms=5000)
    add(segment, messages(-1, magic=0))
    assert reason(segment, max_timestamp=99_999, now_ms=5100) is None
    assert reason(segment, max_timestamp=-1, now_ms=5101) is RollReason.TIME


def test_case_43_restart_resets_that_clock() -> None:
    log = LogHarness(segment_ms=100)
    log.append(-1)
    log.now_ms += 90
    log.reopen()
    log.now_ms += 90
    log.append(-1)
    assert log.bases() == [0]
    log.now_ms += 11
    log.append(-1)
    assert log.bases() == [0, 2]


def test_case_44_idle_segment_is_not_closed_but_may_be_deleted() -> None:
    log = LogHarness(segment_ms=100, retention_ms=1000)
    log.append(1000)
    log.now_ms += 900
    assert delete_expired(log.log, log.now_ms) == []
    assert log.bases() == [0]
    log.now_ms += 1000
    assert len(delete_expired(log.log, log.now_ms)) == 1
    assert log.bases() == [1]


def test_case_45_future_first_record_keeps_the_segment_open() -> None:
    log = LogHarness(segment_ms=100, message_timestamp_after_max_ms=20 * 365 * DAY_MS)
    log.append(log.now_ms + 10 * 365 * DAY_MS)
    for _ in range(3):
        log.now_ms += 1000
        log.append(log.now_ms)
    assert log.bases() == [0]


@pytest.mark.parametrize("type_", ["LogAppendTime", "CreateTime"])
def test_a_clock_that_was_ahead_for_one_append_keeps_no_stamped_segment_open(type_: str) -> None:
    log = LogHarness(segment_ms=1000, message_timestamp_type=type_)
    log.now_ms += 3650 * DAY_MS
    log.append(log.now_ms)
    log.now_ms -= 3650 * DAY_MS
    for _ in range(4):
        log.append(log.now_ms)
        log.now_ms += 600
    assert len(log.bases()) == (2 if type_ == "LogAppendTime" else 1)


def test_case_46_empty_record_set_never_rolls() -> None:
    log = LogHarness(segment_ms=1)
    log.append(1000)
    log.now_ms += 1000
    result = log.log.append(memoryview(bytearray()), now_ms=log.now_ms, produce_version=2)
    assert (result.first_offset, result.records_count) == (-1, 0)
    assert log.bases() == [0]


def test_case_47_duplicate_may_still_roll() -> None:
    first = produced(1000, producer_id=7, sequence=0)
    log = LogHarness(segment_bytes=len(first) + 10)
    assert log.write(first).first_offset == 0
    again = log.write(first)
    assert (again.is_duplicate, again.first_offset, again.last_offset) == (True, 0, 0)
    assert again.log_append_time_ms == 1000
    assert log.bases() == [0, 1]
    assert log.log.log_end_offset == 1


def test_case_18_full_time_index_rolls_each_append() -> None:
    log = LogHarness(segment_index_bytes=24, index_interval_bytes=0)
    # 24 bytes are two slots, one of them reserved: full with the first entry.
    for timestamp in (1, 2, 3, 4, 5):
        log.append(timestamp)
    assert log.bases() == [0, 2, 4]


def test_case_22_offset_that_does_not_fit_rolls() -> None:
    segment = new_segment()
    assert reason(segment, last_offset=2**31 - 1) is None
    assert reason(segment, last_offset=2**31) is RollReason.OFFSET


def test_full_offset_index_rolls() -> None:
    segment = new_segment()
    for timestamp in (9, 8, 7):
        add_at_end(segment, timestamp, size=80)
    rules = RollRules(segment_bytes=1000, segment_ms=100, segment_jitter_ms=0, index_bytes=24)
    facts = {"size_bytes": 70, "last_offset": 4, "max_timestamp": 9, "now_ms": 0}
    assert find_roll_reason(segment, rules, **facts) is RollReason.INDEX
    rules = RollRules(segment_bytes=1000, segment_ms=100, segment_jitter_ms=0, index_bytes=16)
    assert find_roll_reason(segment, rules, **facts) is RollReason.INDEX


def test_jitter_shortens_the_time() -> None:
    segment = new_segment()
    add_at_end(segment, 1000)
    segment.roll_jitter_ms = 30
    assert reason(segment, max_timestamp=1070) is None
    assert reason(segment, max_timestamp=1071) is RollReason.TIME


def test_jitter_is_drawn_for_each_segment_below_the_setting() -> None:
    log = LogHarness(segment_ms=1_000_000, segment_jitter_ms=1000)
    drawn = set()
    for timestamp in range(20):
        drawn.add(log.log.segments.active.roll_jitter_ms)
        log.append(timestamp)
        log.log.roll(log.now_ms)
    assert len(drawn) > 5
    assert all(0 <= jitter < 1000 for jitter in drawn)


def test_older_incoming_timestamps_never_roll_by_time() -> None:
    segment = new_segment()
    add_at_end(segment, 1_000_000)
    assert reason(segment, max_timestamp=-1, now_ms=10**15) is None


def test_compaction_lag_bounds_the_time() -> None:
    rules = RollRules.from_config(
        config(cleanup_policy="compact", max_compaction_lag_ms=50, segment_ms=100)
    )
    assert rules.segment_ms == 50
    assert RollRules.from_config(config(max_compaction_lag_ms=50, segment_ms=100)).segment_ms == 100


def test_append_larger_than_a_segment_is_refused() -> None:
    log = LogHarness(segment_bytes=200)
    with pytest.raises(RecordListTooLarge):
        log.write(batch(1, size=201))
    assert log.append(1, size=200).first_offset == 0
    assert log.append(1, size=200).first_offset == 1
    assert log.bases() == [0, 1]


def test_an_empty_active_segment_is_not_rolled() -> None:
    """Kafka replaces its files; a failure in between would leave a log writing to deleted ones."""
    log = LogHarness()
    log.append(5)
    log.log.roll(log.now_ms)
    names = log.names()
    log.files.fault = Fault(at=0, errno=errno.EROFS, for_ever=True)
    log.log.roll(log.now_ms)
    log.files.fault = None
    assert (log.bases(), log.names()) == ([0, 1], names)
    assert log.append(6).first_offset == 1
    log.crash()
    assert [record.timestamp for record in log.records()] == [5, 6]


def test_changed_settings_count_from_the_next_append() -> None:
    log = LogHarness(segment_ms=1_000_000)
    log.append(1000)
    log.append(5000)
    log.configure(segment_ms=100)
    log.append(5001)
    assert log.bases() == [0, 2]
