"""The second half of an append whose records were examined in another thread."""

from typing import Any

import pytest

from protocol.records.builder import build_batch
from protocol.records.layout import INT64_MAX, Codec
from protocol.records.record import Record
from storage.append.opening import AT_ONCE_BYTES, Opening
from storage.append.plan import Examined, examine_append
from storage.errors import InvalidRecord, LogOffline, OutOfOrderSequence, TooMuchAtOnce
from tests.support.logs import LogHarness, batch, marker, produced
from tests.support.simulated_disk import Operation
from tests.unit.storage.log.test_log import fail_next

STAMPED: dict[str, Any] = {"message_timestamp_type": "LogAppendTime", "index_interval_bytes": 0}
SLACK_MS = 60_000


def examine(log: LogHarness, data: bytes | bytearray) -> Examined:
    records = memoryview(bytearray(data))
    return examine_append(
        records, rules=log.log.append_rules, now_ms=log.now_ms, opening=Opening(INT64_MAX)
    )


def append_in_halves(log: LogHarness, data: bytes | bytearray, **options: Any) -> Any:
    return log.log.append_examined(examine(log, data), now_ms=log.now_ms, **options)


@pytest.mark.parametrize("settings", [{}, STAMPED])
def test_both_halves_do_what_an_append_does(settings: dict[str, Any]) -> None:
    whole, halves = LogHarness(**settings), LogHarness(**settings)
    for log in (whole, halves):
        log.log.leader_epoch += 1
    for now_ms in (100_000, 100_000 - SLACK_MS, 99_999 - SLACK_MS, 200_000):
        whole.now_ms = halves.now_ms = now_ms
        data = batch(10, 20, now_ms)
        result = append_in_halves(halves, data)
        assert result == whole.append(*(10, 20, now_ms), flush=False)
    stored = [log.files.read_all(log.log.segments.active.log.path) for log in (whole, halves)]
    assert stored[0] == stored[1]
    assert whole.log.newest_append_ms == halves.log.newest_append_ms == 200_000


@pytest.mark.parametrize(("slack_ms", "stamp_ms"), [(9, 4_990), (10, 5_000)])
def test_the_slack_of_the_clock_is_that_of_an_append(slack_ms: int, stamp_ms: int) -> None:
    log = LogHarness(**STAMPED)
    log.now_ms = 5_000
    log.append(1)
    log.now_ms -= 10
    result = append_in_halves(log, batch(1), stamp_slack_ms=slack_ms)
    assert result.log_append_time_ms == stamp_ms


def test_a_segment_is_rolled_by_the_time_of_the_append() -> None:
    log = LogHarness(segment_ms=10)
    append_in_halves(log, batch(log.now_ms))
    log.now_ms += 100
    append_in_halves(log, batch(log.now_ms))
    assert log.bases() == [0, 1]


def test_records_of_other_rules_are_not_appended() -> None:
    log = LogHarness()
    examined = examine(log, batch(1))
    log.configure(max_message_bytes=1_000)
    assert log.log.append_examined(examined, now_ms=log.now_ms) is None
    assert log.log.log_end_offset == 0


def test_the_producer_is_that_of_a_client() -> None:
    log = LogHarness()
    log.write(produced(1, producer_id=7, sequence=0))
    with pytest.raises(OutOfOrderSequence):
        append_in_halves(log, produced(2, producer_id=7, sequence=5))


def test_a_log_that_is_offline_takes_nothing() -> None:
    log = LogHarness()
    examined = examine(log, batch(2))
    log.append(1, flush=False)
    fail_next(log.files, Operation.SYNC)
    with pytest.raises(LogOffline):
        log.log.flush()
    with pytest.raises(LogOffline):
        log.log.append_examined(examined, now_ms=1)


def test_a_log_hands_the_budget_of_the_request_on() -> None:
    log = LogHarness(max_message_bytes=1 << 30, segment_bytes=1 << 30)
    big = build_batch([Record(0, 1, None, bytes(AT_ONCE_BYTES + 1))], codec=Codec.GZIP)
    records = memoryview(bytearray(big))
    with pytest.raises(TooMuchAtOnce):
        log.log.append(records, now_ms=1, opening=Opening(INT64_MAX))
    assert log.log.append(records, now_ms=1).records_count == 1


def test_a_client_appends_no_markers() -> None:
    log = LogHarness()
    control = marker(commit=True, producer_id=7, timestamp_ms=1)
    with pytest.raises(InvalidRecord):
        log.write(control)


def test_each_result_has_the_start_of_the_log() -> None:
    log = LogHarness()
    first = produced(1, 2, 3, producer_id=7, sequence=0)
    assert log.write(first).log_start_offset == 0
    log.log.delete_before(2)
    later = produced(4, producer_id=7, sequence=3)
    for data in (later, later):
        assert log.write(data).log_start_offset == 2
    assert log.log.append(memoryview(b""), now_ms=1).log_start_offset == 2
