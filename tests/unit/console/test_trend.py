"""The trend of a lag in words and numbers."""

import sys

import pytest

from console.data.groups import SAMPLES_KEPT, SERIES_MAX, Sample, Series, slope_of, trend_of


def samples(*rows: tuple[int, int, int, int]) -> list[Sample]:
    """(records, lag in s, committed, end) every ten seconds."""
    return [
        Sample(10_000 * index, records, 1000 * lag_s, committed, end)
        for index, (records, lag_s, committed, end) in enumerate(rows)
    ]


def test_a_stopped_consumer_falls_behind_by_a_second_each_second() -> None:
    found = trend_of(samples(*((100 * i, 10 * i, 50, 50 + 100 * i) for i in range(1, 6))))
    assert found.slope == pytest.approx(1.0)
    assert found.catch_up_s is None
    assert "stopped" in found.sentence


def test_a_slow_consumer_is_slower_than_the_producers() -> None:
    found = trend_of(samples(*((50 * i, 5 * i, 50 * i, 100 * i) for i in range(1, 6))))
    assert "slower" in found.sentence


def test_a_catching_consumer_says_when() -> None:
    found = trend_of(samples(*((1000 - 100 * i, 100 - 10 * i, 200 * i, 100 * i) for i in range(6))))
    assert found.slope is not None
    assert found.slope < 0
    assert found.catch_up_s == pytest.approx(500 / 10)
    assert "shrinks" in found.sentence


def test_a_stopped_producer_is_not_a_stopped_consumer() -> None:
    found = trend_of(samples(*((10, 10 * i, 50, 60) for i in range(1, 6))))
    assert "nothing new" in found.sentence


def test_few_samples_and_small_slopes_say_nothing_loud() -> None:
    assert trend_of(samples((5, 1, 0, 5))).slope is None
    assert "steady" in trend_of(samples(*((9, 7, 10 * i, 10 * i) for i in range(5)))).sentence
    assert "everything" in trend_of(samples(*((0, 0, i, i) for i in range(5)))).sentence


def test_the_line_is_the_one_of_least_squares() -> None:
    assert slope_of([0, 1, 2, 3], [1, 3, 5, 7]) == pytest.approx(2.0)
    assert slope_of([0, 1, 2], [0, 3, 0]) == pytest.approx(0.0)
    assert slope_of([5, 5], [1, 9]) == 0.0


def test_a_series_keeps_its_newest_samples_in_little_memory() -> None:
    series = Series()
    assert (series.samples(), series.newest_ms) == ([], None)
    all_of_them = [Sample(n, 2**40 + n, n, 2**41, 2**42) for n in range(2 * SAMPLES_KEPT)]
    for sample in all_of_them:
        series.add(sample)
    assert series.samples() == all_of_them[SAMPLES_KEPT:]
    assert series.newest_ms == 2 * SAMPLES_KEPT - 1
    series.drop_after(2 * SAMPLES_KEPT - 3)
    assert series.samples() == all_of_them[SAMPLES_KEPT:-2]
    assert SERIES_MAX * sys.getsizeof(series._numbers) < 40e6
