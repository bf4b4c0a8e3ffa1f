"""Times mean records that the reader sees, whatever markers the broker counts."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyarrow")


from pipeline.jobs.translate import _time_of
from pipeline.options.options import SourceOptions, parse_source_options
from pipeline.plan.by_time import NOTHING, first_offsets, youngest_ms
from pipeline.plan.offsets import _end_by_lateness, resolve, window_of
from pipeline.plan.splits import OffsetRange
from protocol.records.layout import INT64_MIN
from tests.unit.pipeline.partition_double import TP, PartitionDouble

HOUR_MS = 3_600_000
JULY_4_MS = 1_372_896_000_000
YEAR_1949_MS = -662_688_000_000


def options(**named: str) -> SourceOptions:
    dotted = {name.replace("__", "."): value for name, value in named.items()}
    base = {"kafka.bootstrap.servers": "a:1", "subscribe": "t"}
    return parse_source_options({**base, **dotted}, is_stream=False)


def three_hours() -> PartitionDouble:
    """Three transactions of one record each: offsets 0, 2 and 4, an hour apart."""
    log = PartitionDouble()
    for hour in range(3):
        log.transact([[JULY_4_MS + hour * HOUR_MS]], 1, commit=True)
    return log


def test_a_marker_is_no_end_by_lateness() -> None:
    """It once ended the read after the first record: one row of three."""
    log = three_hours()
    whole = OffsetRange(*TP, 0, log.end)
    named = options(maxLateness="1h")
    ends = _end_by_lateness(log.cluster, named, [whole], JULY_4_MS + HOUR_MS)
    assert ends == [OffsetRange(*TP, 0, 4)]
    ends = _end_by_lateness(log.cluster, named, [whole], JULY_4_MS + 3 * HOUR_MS)
    assert ends == [whole]


def test_a_marker_is_no_start_and_no_end_in_time() -> None:
    log = three_hours()
    for hour, offset in ((0, 0), (1, 2), (2, 4)):
        text = str(JULY_4_MS + hour * HOUR_MS)
        asked = options(startingTimestamp=text, endingTimestamp=text)
        assert resolve(log.cluster, asked, asked.starting, [TP], 0) == {TP: offset}
        assert resolve(log.cluster, asked, asked.ending, [TP], 0) == {TP: offset}
    later = options(endingTimestamp=str(JULY_4_MS + 3 * HOUR_MS))
    assert resolve(log.cluster, later, later.ending, [TP], 0) == {TP: log.end}


def test_an_aborted_record_is_one_only_to_those_who_see_it() -> None:
    log = PartitionDouble()
    log.transact([[JULY_4_MS + HOUR_MS]], 1, commit=False)
    log.transact([[JULY_4_MS]], 1, commit=True)
    log.transact([[JULY_4_MS + HOUR_MS]], 1, commit=True)
    times = {TP: JULY_4_MS + HOUR_MS}
    assert first_offsets(log.cluster, options(), times) == {TP: 0}
    committed = options(kafka__isolation__level="read_committed")
    assert first_offsets(log.cluster, committed, times) == {TP: 4}
    assert first_offsets(log.cluster, committed, {TP: JULY_4_MS + 2 * HOUR_MS}) == {TP: NOTHING}


def test_a_translation_goes_by_the_youngest_record_and_not_by_a_marker() -> None:
    log = three_hours()
    assert youngest_ms(log.cluster, TP, 0, log.end) == JULY_4_MS + 2 * HOUR_MS
    assert _time_of(log.cluster, TP, log.end) == JULY_4_MS + 2 * HOUR_MS + 1


def test_times_before_1970_are_times() -> None:
    log = PartitionDouble()
    log.write([YEAR_1949_MS - 5, YEAR_1949_MS, -2, 7])
    asked = options(startingTimestamp="1949-01-01", endingTimestamp="1969-12-31T23:59:59.998Z")
    assert resolve(log.cluster, asked, asked.starting, [TP], 0) == {TP: 1}
    assert resolve(log.cluster, asked, asked.ending, [TP], 0) == {TP: 2}
    strict = options(startingTimestamp="1949-01-01", timeWindow="strict", maxLateness="0ms")
    assert window_of(strict, 0)[0] == YEAR_1949_MS
    assert resolve(log.cluster, strict, strict.starting, [TP], 0) == {TP: 0}
    ended = _end_by_lateness(log.cluster, strict, [OffsetRange(*TP, 0, 4)], YEAR_1949_MS)
    assert ended == [OffsetRange(*TP, 0, 1)]
    by_partition = options(startingOffsetsByTimestamp=f'{{"t":{{"0":{YEAR_1949_MS}}}}}')
    assert resolve(log.cluster, by_partition, by_partition.starting, [TP], 0) == {TP: 1}


def test_a_bound_among_many_markers_is_found_by_a_few_looks() -> None:
    log = PartitionDouble()
    for number in range(2000):
        log.transact([[JULY_4_MS + number * 1000 + at for at in range(20)]], 1, commit=True)
    whole = OffsetRange(*TP, 0, log.end)
    (ended,) = _end_by_lateness(
        log.cluster, options(maxLateness="1m"), [whole], JULY_4_MS + 100_000
    )
    assert 21 * 160 <= ended.end < 21 * 160 + 2000
    assert log.fetches < 30


Step = tuple[str, list[list[int]], int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["plain", "commit", "abort"]),
        st.lists(st.lists(st.integers(0, 400), min_size=1, max_size=5), min_size=1, max_size=3),
        st.integers(1, 3),
    ),
    max_size=12,
)


@settings(deadline=None, max_examples=300)
@given(
    steps=STEPS,
    oldest=st.integers(-1, 420),
    length=st.integers(0, 200),
    is_committed=st.booleans(),
    spare=st.integers(0, 50),
    shift=st.sampled_from([0, -200, JULY_4_MS]),
)
def test_no_lateness_that_is_true_ever_loses_a_row(
    steps: list[Step], oldest: int, length: int, is_committed: bool, spare: int, shift: int
) -> None:
    """Any disorder and transactions, the least lateness that is true: brute force agrees."""
    log = PartitionDouble()
    for kind, batches, producer in steps:
        moved = [[when + shift for when in times] for times in batches]
        if kind == "plain":
            for times in moved:
                log.write(times)
        else:
            log.transact(moved, producer, commit=kind == "commit")
    rows = log.rows(read_committed=is_committed)
    youngest, lateness = INT64_MIN, 0
    for _, when in rows:
        youngest = max(youngest, when)
        lateness = max(lateness, youngest - when)
    named: dict[str, Any] = {"maxLateness": f"{lateness + spare}ms"}
    if is_committed:
        named["kafka__isolation__level"] = "read_committed"
    chosen = options(**named)
    low, high = oldest + shift, oldest + length + shift
    whole = OffsetRange(*TP, 0, log.end)
    kept = _end_by_lateness(log.cluster, chosen, [whole], high)
    ends = [one.end for one in kept] or [0]
    wanted = [offset for offset, when in rows if low <= when < high]
    assert all(offset < ends[0] for offset in wanted)
    # And the exact question, against the same brute force.
    expected = next((offset for offset, when in rows if when >= low), NOTHING)
    assert first_offsets(log.cluster, chosen, {TP: low}) == {TP: expected}
