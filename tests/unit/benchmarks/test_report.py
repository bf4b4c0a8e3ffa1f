"""What the tables of a comparison say, from small documents made by hand."""

import pytest

from benchmarks import pictures
from benchmarks.harness import report

PAIR = ("kafka", "tidelog")


def result(*values: float, cpu: float = 0.5, problem: str = "") -> report.Document:
    """What one broker did in a cell; each round took it `cpu` seconds."""
    return {"values": list(values), "cpu_seconds": [cpu] * len(values), "problem": problem}


def cell(
    title: str, kafka: report.Document, tidelog: report.Document, *, rate: bool = True
) -> report.Document:
    """A cell of the two, of a rate or of a latency."""
    return {
        "title": title,
        "unit": "records/s" if rate else "ms",
        "higher_is_better": rate,
        "results": {"kafka": kafka, "tidelog": tidelog},
    }


def document(*cells: report.Document, watched: bool = True) -> report.Document:
    """A run of these cells; not `watched` is one that was cut short in its first pass."""
    memory = {"idle_mb": 50.0, **({"peak_mb": 60.0, "cpu_seconds": 9.0} if watched else {})}
    return {
        "kind": "compare",
        "when": "2026-01-01 00:00",
        "machine": {"disk": "ext4 on vda"},
        "titles": {"kafka": "Apache Kafka", "tidelog": "Tidelog"},
        "memory": {name: dict(memory) for name in PAIR},
        "cells": list(cells),
    }


def line(text: str, begin: str) -> str:
    """The line of a table whose first cell begins like this."""
    (found,) = [row for row in text.splitlines() if row.startswith(f"| {begin}")]
    return found


@pytest.mark.parametrize(("kafka", "tidelog"), [(1, 0), (0, 1), (0, 0)])
def test_a_latency_below_the_tools_resolution_has_no_ratio(kafka: float, tidelog: float) -> None:
    run = document(cell("p99 end to end", result(kafka), result(tidelog), rate=False))
    assert not dict(report.ratios(run, *PAIR))
    assert "| - |" in line(report.comparison(run), "p99")
    assert pictures.cells(run).endswith("</svg>\n")


def test_ratios_are_above_one_where_tidelog_is_better() -> None:
    run = document(
        cell("produce", result(100), result(150)),
        cell("p99", result(10), result(4), rate=False),
    )
    assert dict(report.ratios(run, *PAIR)) == {"produce": 1.5, "p99": 2.5}


def test_a_rate_of_nothing_has_no_ratio() -> None:
    run = document(cell("produce", result(0), result(150)), cell("consume", result(9), result(0)))
    assert not dict(report.ratios(run, *PAIR))


def test_latencies_stay_out_of_every_mean() -> None:
    run = document(
        cell("produce", result(100), result(200)),
        cell("raw requests of 16 KB", result(100), result(800)),
        cell("p99 of produce", result(100), result(1), rate=False),
    )
    assert "**4.00**" in line(report.comparison(run), "geometric mean, all rates")
    assert "**2.00**" in line(report.comparison(run), "geometric mean, produce")
    assert "**2.00**" in line(report.comparison(run), "geometric mean, rates of clients")
    assert "geometric mean of the rates 4.00" in pictures.cells(run)


def test_a_run_of_latencies_only_has_no_mean() -> None:
    run = document(cell("p99", result(10), result(5), rate=False))
    assert "geometric mean" not in report.comparison(run)
    assert "geometric mean" not in pictures.cells(run)


def test_cpu_is_the_sum_of_the_cells_medians_beside_the_whole_run() -> None:
    slow = {"values": [1, 1, 1], "cpu_seconds": [1.0, 2.0, 9.0], "problem": ""}
    run = document(
        cell("produce", slow, result(1, cpu=0.25)), cell("consume", result(1), result(1, cpu=0.5))
    )
    assert report.cpu_sum(run, "kafka") == 2.5
    assert line(report.comparison(run), "Tidelog").endswith("| 60 MB | 0.8 s | 9.0 s |")


def test_cpu_of_a_cell_that_only_one_of_a_pair_got_through_is_in_neither_sum() -> None:
    run = document(
        cell("produce", result(1), result(1)),
        cell("consume", result(1), result(problem="LoadFailed: no")),
    )
    assert report.cpu_sum(run, "kafka") == report.cpu_sum(run, "tidelog") == 0.5


def test_a_run_cut_short_in_its_first_pass_still_has_tables() -> None:
    run = document(cell("produce", result(), result()), watched=False)
    text = report.comparison(run)
    assert line(text, "Tidelog") == "| Tidelog | 50 MB | - | - | - |"
    assert "medians of 0 rounds" in text


def test_a_cell_that_failed_in_a_later_round_is_marked() -> None:
    run = document(cell("produce", result(100), result(150, problem="LoadFailed: later")))
    text = report.comparison(run)
    assert "| 150 records/s \N{DAGGER} |" in line(text, "produce")
    assert text.endswith("failed in a later round: the median of those before it.")


def test_a_cell_that_failed_at_once_says_so_and_needs_no_mark() -> None:
    run = document(cell("produce", result(100), result(problem="LoadFailed: no")))
    text = report.comparison(run)
    assert "| failed |" in line(text, "produce")
    assert "\N{DAGGER}" not in text


@pytest.mark.parametrize(
    ("values", "said"),
    [((1,), "1 round"), ((1, 2, 3), "3 rounds")],
)
def test_rounds_are_one_number_where_all_cells_have_as_many(
    values: tuple[float, ...], said: str
) -> None:
    assert report.rounds(document(cell("a", result(*values), result(*values)))) == said


def test_rounds_are_a_range_where_cells_differ() -> None:
    run = document(cell("a", result(1, 2, 3), result(1, 2)), cell("b", result(), result(1, 2, 3)))
    assert report.rounds(run) == "2 to 3 rounds"
