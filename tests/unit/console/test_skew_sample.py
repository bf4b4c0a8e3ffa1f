"""Which offsets a sample of times reads."""

from itertools import pairwise

import pytest

from console.data.skew import sampled_offsets


@pytest.mark.parametrize(("start", "end"), [(0, 10_000), (7, 12), (3, 5), (2**40, 2**40 + 999)])
def test_a_sample_is_evenly_spread_from_the_first_offset_to_the_last(start: int, end: int) -> None:
    found = sampled_offsets(start, end, 20)
    assert (found[0], found[-1], len(found)) == (start, end - 1, min(20, end - start))
    steps = [after - before for before, after in pairwise(found)]
    assert 1 <= min(steps) <= max(steps) <= min(steps) + 1


def test_a_sample_of_a_short_log_is_all_of_it() -> None:
    assert sampled_offsets(5, 5, 20) == []
    assert sampled_offsets(5, 6, 20) == [5]
    assert sampled_offsets(5, 8, 20) == [5, 6, 7]
