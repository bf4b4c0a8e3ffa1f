"""Retention in thought: rolling record by record, and the broker's own decisions about segments."""

import random
from collections.abc import Sequence

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa

from pipeline.errors import BadOptions
from pipeline.jobs.retention import (
    Kept,
    Roller,
    Segment,
    Trial,
    _sizes,
    parse_trial,
    simulate,
)
from storage.log.retention import RetentionRules, SegmentAge, plan_retention

HOUR_MS = 3_600_000
START_MS = 1_700_000_000_000


def random_log(luck: random.Random, count: int) -> list[tuple[int, int]]:
    """(time in ms, bytes): mostly in order, some late, some far ahead, some without a time."""
    now_ms, records = START_MS, []
    for _ in range(count):
        now_ms += luck.randrange(HOUR_MS // 4)
        kind = luck.random()
        when_ms = now_ms
        if kind < 0.2:
            when_ms -= luck.randrange(20 * HOUR_MS)
        elif kind < 0.22:
            when_ms += 1000 * HOUR_MS
        elif kind < 0.25:
            when_ms = -1
        records.append((when_ms, luck.randrange(1, 200)))
    return records


def rolled_one_by_one(
    records: Sequence[tuple[int, int]], trial: Trial, at_ms: int
) -> list[Segment]:
    """The segments by a loop over the records."""
    segments: list[Segment] = []
    clock_ms = -(1 << 63)
    for time_ms, size in records:
        if time_ms not in {-1} and time_ms <= at_ms:
            clock_ms = max(clock_ms, time_ms)
        when_ms = clock_ms if time_ms == -1 else time_ms
        last = segments[-1] if segments else None
        if (
            last is None
            or last.bytes + size > trial.segment_bytes
            or when_ms - last.first_ms > trial.segment_ms
        ):
            last = Segment(first_ms=when_ms)
            segments.append(last)
        last.records += 1
        last.bytes += size
        last.oldest_ms = min(last.oldest_ms, when_ms)
        last.newest_ms = max(last.newest_ms, when_ms)
        last.clock_ms = clock_ms
    return segments


def kept_by_the_broker(segments: Sequence[Segment], trial: Trial, at_ms: int) -> Kept:
    """What `storage.log.retention` leaves when it is asked at the end of each segment."""
    rules = RetentionRules(
        retention_ms=trial.retention_ms, retention_bytes=trial.retention_bytes, deletes=True,
        clamps_future=False,
    )  # fmt: skip
    kept: list[Segment] = []
    peak = deleted = 0
    shortest = None
    youngest_gone = -(1 << 63)
    moments = [(one, one.clock_ms) for one in segments]
    for segment, now_ms in [*moments, (None, at_ms)]:
        kept += [] if segment is None else [segment]
        peak = max(peak, sum(one.bytes for one in kept))
        if not kept:
            continue
        ends = [0]
        for one in kept:
            ends.append(ends[-1] + one.records)
        ages = [
            SegmentAge(
                base_offset=ends[place], next_base=ends[place + 1], size_bytes=one.bytes,
                largest_timestamp=one.newest_ms, appended_ms=one.clock_ms,
            )
            for place, one in enumerate(kept)
        ]  # fmt: skip
        plan = plan_retention(
            ages, rules, log_start_offset=0, high_watermark=ends[-1], now_ms=now_ms
        )
        count = len(plan.reasons)
        for one in kept[:count]:
            deleted += one.records
            youngest_gone = max(youngest_gone, min(one.newest_ms, now_ms))
        if count:
            history = now_ms - youngest_gone
            shortest = history if shortest is None else min(shortest, history)
        del kept[:count]
    return Kept(
        segments=len(kept), records=sum(one.records for one in kept),
        bytes=sum(one.bytes for one in kept), deleted=deleted, peak_bytes=peak,
        oldest_ms=min((one.oldest_ms for one in kept), default=None), shortest_history_ms=shortest,
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(20))
def test_segments_and_what_is_kept_equal_the_brokers(seed: int) -> None:
    luck = random.Random(seed)
    records = random_log(luck, 400)
    at_ms = max(when for when, _ in records if when < START_MS + 900 * HOUR_MS)
    gone = 0
    for _ in range(8):
        trial = Trial(
            retention_ms=luck.choice([-1, 0, HOUR_MS, 9 * HOUR_MS, 60 * HOUR_MS]),
            retention_bytes=luck.choice([-1, 0, 500, 5000, 1 << 30]),
            segment_bytes=luck.choice([150, 1000, 10_000]),
            segment_ms=luck.choice([HOUR_MS, 10 * HOUR_MS, 10_000 * HOUR_MS]),
        )
        roller = Roller(trial, at_ms)
        rest = list(records)
        while rest:
            count = luck.randrange(1, 120)
            times, sizes = zip(*rest[:count], strict=True)
            roller.add(pa.array(times, pa.int64()), pa.array(sizes, pa.int64()))
            del rest[:count]
        assert roller.segments == rolled_one_by_one(records, trial, at_ms)
        kept = simulate(roller.segments, trial, at_ms)
        assert kept == kept_by_the_broker(roller.segments, trial, at_ms)
        assert kept.records + kept.deleted == len(records)
        gone += kept.deleted
    assert gone


def test_a_record_has_the_bytes_of_its_key_value_and_headers() -> None:
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    batch = pa.RecordBatch.from_pydict(
        {
            "key": pa.array([b"kk", None, b"", b"k"], pa.binary()),
            "value": pa.array([b"vvv", b"v", None, b""], pa.binary()),
            "headers": pa.array(
                [None, [{"key": "hh", "value": b"x"}, {"key": "h", "value": None}], [], None],
                pa.list_(header),
            ),
        }
    )
    least = _sizes(batch)[2].as_py()
    assert [size - least for size in _sizes(batch).to_pylist()] == [5, 5, 0, 1]


def test_trials_are_read_and_what_is_wrong_is_named() -> None:
    trial = parse_trial("retention.ms=30d, segment.bytes=64m,retention.bytes=-1")
    assert trial == Trial(retention_ms=30 * 24 * HOUR_MS, segment_bytes=64 << 20)
    assert parse_trial(str(trial)) == trial
    with pytest.raises(BadOptions) as refused:
        parse_trial("retention.ms=soon,retention=7d,segment.bytes=-1")
    assert len(refused.value.problems) == 3
    assert all("--try" in problem for problem in refused.value.problems)
