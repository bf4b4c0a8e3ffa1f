"""Buckets of the timeline: edges, counts by lookups, counts of the broker."""

import random
from bisect import bisect_left
from itertools import accumulate, pairwise

from client.types import TopicPartition
from console.data.timeline import (
    EDGES_MAX,
    EDGES_MIN,
    LOOKUPS_MAX,
    bars_of,
    count_edges,
    counts_of,
    edges_between,
    joined,
    spread,
)


def test_the_budget_of_lookups_holds_for_every_number_of_partitions() -> None:
    for partitions in range(1, 81):
        edges = count_edges(partitions) + 2
        assert edges * partitions <= LOOKUPS_MAX or edges == EDGES_MIN + 2
    assert count_edges(1) == EDGES_MAX
    assert count_edges(80) == EDGES_MIN
    assert count_edges(4, 12) == 12


def test_edges_rise_and_hit_both_ends() -> None:
    assert edges_between(0, 100, 4) == [0, 25, 50, 75, 100]
    assert edges_between(5, 7, 240) == [5, 6, 7]
    edges = edges_between(1_600_000_000_000, 1_600_000_123_457, 240)
    assert (edges[0], edges[-1]) == (1_600_000_000_000, 1_600_000_123_457)
    assert all(before < after for before, after in pairwise(edges))


def test_bars_by_lookups_add_up_to_the_whole_log_whatever_the_times() -> None:
    """Random logs with disorder and futures: nothing is lost, the running maximum rules."""
    rnd = random.Random(3)
    for _ in range(10_000):
        start = rnd.randrange(50)
        times = [rnd.randrange(1000) for _ in range(rnd.randrange(40))]
        end = start + len(times)
        edges = edges_between(rnd.randrange(500), rnd.randrange(500, 1100), rnd.randrange(1, 30))
        found = [
            next((start + i for i, time in enumerate(times) if time >= edge), None)
            for edge in edges
        ]
        before, bars, after = counts_of(found, start, end)
        assert before + sum(bars) + after == len(times)
        assert min([before, after, *bars]) >= 0
        newest = list(accumulate(times, max))
        expected = [bisect_left(newest, edge) for edge in edges]
        assert bars == [high - low for low, high in pairwise(expected)]


def test_answers_outside_the_log_are_cut_to_it() -> None:
    """Between the requests the log grew, or retention deleted its start."""
    assert counts_of([3, 12, None], 5, 10) == (0, [5, 0], 0)
    assert counts_of([None, None], 5, 10) == (5, [0], 0)
    assert counts_of([7, 6, 9], 5, 10) == (2, [0, 2], 1)


def test_partitions_are_evenly_spread() -> None:
    partitions = [TopicPartition("t", number) for number in range(1000)]
    found = spread(partitions, 80)
    assert len(found) == len(set(found)) == 80
    assert found[0].partition == 0
    assert found[-1].partition > 980
    assert spread(partitions[:3], 80) == partitions[:3]


def page(width: int, start: int, end: int, buckets: list[list[int]], **more: object) -> dict:  # type: ignore[type-arg]
    counted = sum(count for _, count in buckets)
    return {
        "width_ms": width,
        "from_ms": start,
        "to_ms": end,
        "buckets": buckets,
        "before": 1,
        "after": 2,
        "without_time": 3,
        "records": counted + 6,
        "missing_bytes": 0,
        "next": None,
        **more,
    }


def test_the_brokers_counts_become_bars_with_their_gaps() -> None:
    found = bars_of(page(1000, 5000, 9000, [[5000, 4], [8000, 1]]))
    assert found["edges"] == [5000, 6000, 7000, 8000, 9000]
    assert found["bars"] == [4, 0, 0, 1]
    assert (found["before"], found["after"], found["without_time"]) == (1, 2, 3)


def test_neighbouring_bars_are_joined() -> None:
    """A window of which the counts are finer than what is drawn."""
    found = bars_of(page(1000, 0, 7000, [[0, 1], [1000, 2], [2000, 4], [6000, 8]]))
    few = joined(found, 3)
    assert few["edges"] == [0, 3000, 6000, 7000]
    assert few["bars"] == [7, 0, 8]
    assert joined(found, 7)["bars"] == found["bars"]


def test_only_chosen_partitions_count() -> None:
    split = [
        page(1000, 0, 2000, [[0, 1]]) | {"partition": 0},
        page(1000, 0, 2000, [[1000, 5]]) | {"partition": 1},
    ]
    whole = page(1000, 0, 2000, [[0, 1], [1000, 5]], partitions=split)
    assert bars_of(whole, frozenset((1,)))["bars"] == [0, 5]
    assert bars_of(whole)["bars"] == [1, 5]
    assert len(bars_of(whole)["split"]) == 2
