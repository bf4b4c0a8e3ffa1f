"""What the page of a whole run says, from small documents made by hand."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks import pictures, start, targets, whole, workers
from benchmarks.harness import report


def result(*values: float, cpu: float = 1.0) -> report.Document:
    return {"values": list(values), "cpu_seconds": [cpu] * len(values), "problem": ""}


def cell(title: str, *, rate: bool = True, **results: report.Document) -> report.Document:
    named = {name.replace("_", "-"): found for name, found in results.items()}
    return {"title": title, "unit": "", "higher_is_better": rate, "results": named}


def documents(**changed: float) -> dict[str, report.Document]:
    """A run that reaches every target, but for what is changed."""
    figures = {"limit": 85, "slow": 150, "p99": 40, "two": 160, "cost": 10.5, "ack": 100} | changed
    compared = {
        "kind": "compare",
        "when": "2026-01-01 00:00",
        "machine": {"disk": "ext4 on vda", "Apache Kafka": "4.3.1"},
        "titles": {"kafka": "Apache Kafka", "tidelog": "Tidelog", "limit": "bare"},
        "memory": {
            name: {"idle_mb": 50.0, "peak_mb": peak, "cpu_seconds": 9.0}
            for name, peak in (("kafka", 1300.0), ("tidelog", 65.0), ("limit", 30.0))
        },
        "cells": [
            cell(
                "raw requests of 16 KB",
                kafka=result(40),
                tidelog=result(figures["limit"], cpu=0.3),
                limit=result(100, cpu=0.25),
            ),
            cell(
                "produce 1 KB",
                kafka=result(100),
                tidelog=result(figures["slow"], cpu=0.3),
            ),
            cell(
                "p99 of produce at 10,000/s, 1 KB",
                rate=False,
                kafka=result(50, 50),
                tidelog=result(30, figures["p99"], cpu=0.3),
            ),
        ],
    }
    started = {
        "kind": "start",
        "when": "2026-01-01 00:00",
        "titles": {"kafka": "Apache Kafka", "tidelog-synced": "Tidelog"},
        "starts": {
            "new": {
                name: [{"ready_ms": ack, "first_ack_ms": ack, "cpu_ms": ack, "idle_mb": 50.0}]
                for name, ack in (("kafka", 2000), ("tidelog-synced", figures["ack"]))
            }
        },
    }
    costs = {"Produce": {"1": [10.0], "2": [figures["cost"]]}}
    of_workers = {
        "kind": "workers",
        "when": "2026-01-01 00:00",
        "costs": dict.fromkeys(workers.WAYS, costs),
        "rates": {"1": [100e6], "2": [figures["two"] * 1e6]},
    }
    found: dict[str, report.Document] = {
        "compare": compared, "start": started, "workers": of_workers,
    }  # fmt: skip
    for document in found.values():
        document["load"] = [0.5, 1.0, 1.0]
    return found


def verdicts(found: dict[str, report.Document]) -> dict[str, tuple[str, str]]:
    """(result, verdict) by figure."""
    rows = [line.strip("| ").split(" | ") for line in targets.table(found).splitlines()]
    return {row[0]: (row[2], row[3]) for row in rows if len(row) == 4}


def test_a_run_that_reaches_its_targets_misses_none() -> None:
    said = targets.table(documents())
    assert "**missed**" not in said
    assert ", 0 missed, 5 not measured." in said, "the synced mode was not measured"


@pytest.mark.parametrize(
    ("changed", "figure", "shown"),
    [
        ({"limit": 79}, "raw requests of 16 KB beside the bare loop, page cache", "0.79"),
        ({"slow": 90}, "loads below Kafka, page cache", "produce 1 KB 0.90"),
        ({"slow": 10}, "rates beside Kafka's, geometric mean, page cache", "0.46"),
        ({"p99": 51}, "p99 of produce at 10,000/s, 1 KB, page cache", "in 1 of 2 rounds"),
        ({"two": 149}, "two workers beside one, raw produce", "1.49"),
        ({"ack": 300}, "start to the first acknowledged record beside Kafka's", "0.15"),
    ],
)
def test_a_missed_target_is_named_with_what_misses_it(
    changed: dict[str, float], figure: str, shown: str
) -> None:
    found, verdict = verdicts(documents(**changed))[figure]
    assert verdict == "**missed**"
    assert shown in found


def test_more_cpu_with_two_workers_is_missed_in_each_way() -> None:
    found = verdicts(documents(cost=12))
    missed = {figure for figure, (_, verdict) in found.items() if verdict == "**missed**"}
    assert missed == {
        f"CPU for a request with two workers beside one, {way}, the dearest kind"
        for way in workers.WAYS
    }


def test_a_run_without_kafka_says_what_is_not_measured() -> None:
    found = documents()
    for one in found["compare"]["cells"]:
        del one["results"]["kafka"]
    del found["start"]
    said = verdicts(found)
    assert said["loads below Kafka, page cache"] == ("-", "not measured")
    figure = "start to the first acknowledged record beside Kafka's"
    assert said[figure] == ("-", "not measured")


def test_the_page_gets_every_section_and_both_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "benchmarks.md"
    names = ("targets", "compare", "start", "workers")
    page.write_text("".join(f"<!-- begin {n} -->old<!-- end {n} -->\n" for n in names))
    monkeypatch.setattr(report.replace_section, "__defaults__", (page,))
    monkeypatch.setattr(report, "PICTURE", tmp_path / "cells.svg")
    monkeypatch.setattr(whole, "README_PICTURE", tmp_path / "summary.svg")
    whole.write_documents(documents())
    text = page.read_text()
    assert "old" not in text
    assert "160 (1.60)" in text, "the rate of two workers, and how many times one's"
    assert "100 (100) ms" in text
    for name in ("cells.svg", "summary.svg"):
        ElementTree.parse(tmp_path / name)


def test_a_page_without_the_section_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("nothing")
    with pytest.raises(ValueError, match="has no section start: add <!-- begin start -->"):
        report.replace_section("start", "text", page)


def test_the_summary_shows_what_was_measured_only() -> None:
    drawn = pictures.summary(documents())
    assert "start to first record" in drawn
    assert "consuming" not in drawn
    assert "prefers-color-scheme: dark" in drawn


def test_the_median_of_a_start_that_was_not_measured_is_none() -> None:
    started: Any = documents()["start"]
    assert start.median(started, "new", "kafka", "first_ack_ms") == 2000
    assert start.median(started, "used", "kafka", "first_ack_ms") is None


@pytest.mark.parametrize("cut", ["no comparison", "no round that counts"])
def test_a_run_that_was_cut_short_leaves_the_page_as_it_is(
    cut: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def write(_: object) -> None:
        pytest.fail("the published figures were replaced")

    monkeypatch.setattr(whole, "write_documents", write)
    found = documents()
    if cut == "no comparison":
        del found["compare"]
    else:
        for one in found["compare"]["cells"]:
            for broker in one["results"].values():
                broker["values"] = []
    source = tmp_path / "run.json"
    source.write_text(json.dumps(found))
    assert whole.main(["--from", str(source)]) == 1
    assert "stays as it is" in capsys.readouterr().err


def test_a_time_without_a_round_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        whole.main(["--minutes", "0"])
    assert "0 is too short for one round of all loads: give 10 or more" in capsys.readouterr().err
