"""How fast logs grow and when they fill the disk, against a simulation in small steps."""

from random import Random

import pytest

from storage.log.forecast import (
    RATE_WINDOW_MS,
    Growth,
    Keeper,
    append_rate,
    disk_full_at,
    forecast,
    growth,
)
from storage.log.retention import UNLIMITED, RetentionRules, SegmentAge
from tests.support.clock import DAY_MS

NOW = 100 * DAY_MS


def ages(*segments: tuple[int, int]) -> list[SegmentAge]:
    """Segments by the days before now of their last append, and their sizes."""
    return [
        SegmentAge(
            base_offset=number,
            next_base=number + 1,
            size_bytes=size,
            largest_timestamp=NOW - days * DAY_MS,
            appended_ms=NOW - days * DAY_MS,
        )
        for number, (days, size) in enumerate(segments)
    ]


def rules(retention_days: float = 10, retention_bytes: int = UNLIMITED) -> RetentionRules:
    return RetentionRules(
        retention_ms=int(retention_days * DAY_MS),
        retention_bytes=retention_bytes,
        deletes=True,
        clamps_future=False,
    )


def test_the_rate_is_what_came_after_the_last_append_of_an_older_segment() -> None:
    assert append_rate(ages((3, 999), (2, 100), (1, 200)), NOW) == 300 / (3 * DAY_MS)
    week = RATE_WINDOW_MS // DAY_MS
    old = ages((90, 999), (week, 999), (2, 100), (1, 250))
    assert append_rate(old, NOW) == 350 / RATE_WINDOW_MS


def test_too_few_segments_have_no_rate() -> None:
    assert append_rate(ages((3, 100), (1, 100)), NOW) is None
    assert append_rate(ages((0, 100), (0, 100), (0, 100)), NOW) is None


def test_an_older_segment_is_named_as_the_holder() -> None:
    late = ages((1, 10), (20, 10), (0, 10))
    fates = forecast(
        late, [None, None, None], rules(), log_start_offset=0, high_watermark=3, now_ms=NOW
    )
    assert [(fate.keeper, fate.held_by) for fate in fates] == [
        (Keeper.RETENTION, None),
        (Keeper.OLDER, 0),
        (Keeper.RETENTION, None),
    ]
    assert fates[0].goes_at_ms == fates[1].goes_at_ms == NOW + 9 * DAY_MS + 1


def test_what_is_not_durable_stays_without_a_time() -> None:
    old = ages((20, 10), (20, 10), (20, 10))
    fates = forecast(old, [None] * 3, rules(), log_start_offset=0, high_watermark=1, now_ms=NOW)
    assert [fate.goes_at_ms for fate in fates] == [NOW, None, None]
    assert fates[1].keeper is fates[2].keeper is Keeper.HIGH_WATERMARK


def test_a_size_limit_counts_only_where_it_comes_before_the_age() -> None:
    segments = ages((3, 100), (2, 100), (1, 100))
    fates = forecast(
        segments, [None] * 3, rules(), log_start_offset=0, high_watermark=3, now_ms=NOW
    )
    slow = growth(segments, fates, rules(10, 900), bytes_per_ms=1 / DAY_MS, segment_bytes=50)
    fast = growth(segments, fates, rules(10, 900), bytes_per_ms=99 / DAY_MS, segment_bytes=50)
    assert (slow.room_bytes, fast.room_bytes) == (None, 650)


def simulated(logs: list[Growth], free_bytes: int, end_ms: int) -> int | None:
    """The first ms at which the logs have grown by more than `free_bytes`."""
    for passed_ms in range(end_ms):
        total = 0.0
        for log in logs:
            lifetime_ms = passed_ms if log.lifetime_ms is None else log.lifetime_ms
            if log.room_bytes is not None and log.bytes_per_ms > 0:
                total += min(log.bytes_per_ms * passed_ms, log.room_bytes)
                continue
            total += log.bytes_per_ms * min(passed_ms, lifetime_ms)
            total -= sum(size for at_ms, size in log.leaving if at_ms - NOW < passed_ms)
        if total > free_bytes:
            return NOW + passed_ms
    return None


@pytest.mark.parametrize("seed", range(40))
def test_the_disk_is_full_when_a_simulation_says(seed: int) -> None:
    chance = Random(seed)
    logs = [
        Growth(
            bytes_per_ms=chance.choice([0, 1, 2, 5]),
            leaving=[
                (NOW + chance.randrange(1, 500), chance.randrange(300))
                for _ in range(chance.randrange(4))
            ],
            lifetime_ms=chance.choice([None, chance.randrange(1, 600)]),
            room_bytes=chance.choice([None, None, chance.randrange(2000)]),
        )
        for _ in range(chance.randrange(1, 4))
    ]
    free_bytes = chance.randrange(1, 4000)
    expected = simulated(logs, free_bytes, 3000)
    found = disk_full_at(logs, free_bytes=free_bytes, now_ms=NOW)
    if expected is None:
        assert found is None or found >= NOW + 2999
    else:
        assert found is not None
        assert abs(found - expected) <= 1


def test_a_disk_without_room_is_full_now() -> None:
    assert disk_full_at([], free_bytes=0, now_ms=NOW) == NOW
    assert disk_full_at([], free_bytes=1, now_ms=NOW) is None
