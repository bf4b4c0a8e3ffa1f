"""What the page of clients says of a run, and that the published one agrees with the matrix."""

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.compat import report
from tests.compat.matrix import CLIENTS

pytestmark = pytest.mark.core

NAMES = list(report.SCENARIOS)


def rows(page: str) -> dict[str, list[str]]:
    """The cells of each client's row, by its name."""
    table = page.partition("## What they sent")[0]
    split = (
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in table.splitlines()
        if "|" in line
    )
    return {cells[0]: cells[2:] for cells in split}


def ended(nodeid: str, outcome: str, when: str = "call", **fields: Any) -> pytest.TestReport:
    """A report of pytest's."""
    is_it = {name: name == outcome for name in ("passed", "failed", "skipped")}
    return cast(
        pytest.TestReport,
        SimpleNamespace(nodeid=nodeid, when=when, outcome=outcome, **is_it, **fields),
    )


def test_a_cell_says_whether_it_passed_or_why_it_was_not_run() -> None:
    outcomes = {
        ("no-kafka 3.4.4", "produce"): ["yes", "yes"],
        ("no-kafka 3.4.4", "consume"): ["yes", "no"],
        ("sarama 1.61", "produce"): ["skipped"],
    }
    found = rows(report.render(outcomes, {}, "revision abc"))
    scala = found["Java and Scala 0.8.2.2"]
    assert found["no-kafka 3.4.4"][:-1] == ["yes", "no", "not run", "not run", "not run", ""]
    assert found["no-kafka 3.4.4"][-1] == "none, gzip; not run: snappy"
    assert (found["sarama 1.61"][0], found["sarama 1.61"][1]) == ("skipped", "not run")
    assert (scala[NAMES.index("times")], scala[NAMES.index("transact")]) == ("not run", "")


def test_a_case_that_is_skipped_has_not_failed() -> None:
    collector = report.Collector()
    case = "tests/compat/test_clients.py::test_{}[sarama 1.61]"
    collector.pytest_runtest_logreport(ended(case.format("member"), "skipped"))
    collector.pytest_runtest_logreport(ended(case.format("times"), "skipped", wasxfail="later"))
    collector.pytest_runtest_logreport(ended(case.format("admin"), "failed"))
    assert dict(collector.outcomes) == {
        ("sarama 1.61", "member"): ["skipped"],
        ("sarama 1.61", "times"): ["not yet"],
        ("sarama 1.61", "admin"): ["no"],
    }
    assert collector.failed == [case.format("admin")]


def test_the_revision_is_asked_before_the_run_and_after_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    page = tmp_path / "page.md"
    values = iter(["aaa with uncommitted changes", "run", "bbb"])
    monkeypatch.setattr(report, "PAGE", page)
    monkeypatch.setattr("sys.argv", ["report"])
    monkeypatch.delenv("COMPAT_BROKER", raising=False)
    monkeypatch.setattr(report, "revision", lambda: next(values))
    monkeypatch.setattr("tests.compat.recorder.start", lambda: SimpleNamespace(versions={}))

    def run(*_: object, **__: object) -> int:
        assert next(values) == "run", "the revision was asked before"
        return 0

    monkeypatch.setattr("pytest.main", run)
    assert report.main() == 0
    assert (
        "begun on revision aaa with uncommitted changes, ended on bbb, 0 cases" in page.read_text()
    )
    assert report.describe_tree("aaa", "aaa") == "revision aaa"


def test_the_revision_tells_of_changes_that_are_in_no_commit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def git(*words: str) -> str:
        who = ("-c", "user.name=n", "-c", "user.email=e@example.org")
        command = ["git", *who, *words]
        return subprocess.run(
            command, cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout.strip()

    monkeypatch.setattr(report, "PAGE", tmp_path / "page.md")
    git("init", "-q")
    (tmp_path / "broker.py").write_text("1")
    git("add", "broker.py")
    git("commit", "-q", "-m", "one")
    git("tag", "v1")
    commit = git("rev-parse", "--short", "HEAD")
    assert report.revision() == commit
    (tmp_path / "broker.py").write_text("2")
    assert report.revision() == f"{commit} with uncommitted changes"


def test_the_published_cells_are_empty_where_the_matrix_has_nothing() -> None:
    found = rows(report.PAGE.read_text())
    for client in CLIENTS:
        expected = [
            "run" if name in client.scenarios else "not run" if name in client.not_run else ""
            for name in NAMES
        ]
        cells = found[client.name]
        states = [cell if cell in ("", "not run") else "run" for cell in cells[:-1]]
        assert states == expected, client.name
        assert cells[-1] == report._codecs(client)
