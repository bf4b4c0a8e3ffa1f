"""Lateness against the youngest record before, and its histogram."""

import pytest

from protocol.records.lateness import LATENESS_MS, Lateness, quantile


def counted(*times: int) -> tuple[Lateness, list[int]]:
    found = Lateness()
    return found, [found.add(time) for time in times]


def test_a_record_is_late_by_its_distance_to_the_youngest_before() -> None:
    found, lateness = counted(10, 30, 20, 30, 5, 31)
    assert lateness == [0, 0, 10, 0, 25, 0]
    assert (found.records, found.out_of_order) == (6, 2)
    assert (found.largest_step_back_ms, found.youngest_ms) == (25, 31)


def test_bounds_of_the_histogram_are_inclusive() -> None:
    base = 10**9
    for number, bound in enumerate(LATENESS_MS):
        found, _ = counted(base, base - bound)
        assert found.histogram[number] == (2 if number == 0 else 1)
        found, _ = counted(base, base - bound - 1)
        assert found.histogram[number + 1] == 1


@pytest.mark.parametrize(("share", "bound"), [(0.5, 0), (0.9, 0), (0.95, 60_000), (1.0, -1)])
def test_a_quantile_is_a_bound_of_the_histogram(share: float, bound: int) -> None:
    assert quantile([90, 0, 9, 0, 0, 0, 0, 0, 1], share) == bound
