"""A decision is written once and read ever after."""

import os
from pathlib import Path

import pytest

from pipeline.errors import JournalConflict
from pipeline.plan.journal import Journal


def test_the_first_writer_wins_and_both_learn_it(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "new" / "place")
    assert journal.put("start", {"a": 1}) == {"a": 1}
    assert journal.put("start", {"a": 2}) == {"a": 1}
    assert Journal(tmp_path / "new" / "place").get("start") == {"a": 1}


def test_nothing_but_documents_is_left(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.put("plans/1", [1])
    journal.put("plans/1", [2])
    journal.put("plans/2", [3])
    assert set(os.listdir(tmp_path / "plans")) == {"1.json", "2.json"}
    assert list(journal.names("plans")) == ["1", "2"]


def test_a_torn_document_is_an_error_and_not_a_missing_one(tmp_path: Path) -> None:
    (tmp_path / "start.json").write_text('{"a":')
    with pytest.raises(JournalConflict, match=r"start\.json cannot be read"):
        Journal(tmp_path).find("start")


def test_absence_is_none(tmp_path: Path) -> None:
    assert Journal(tmp_path / "nowhere").find("start") is None
    assert list(Journal(tmp_path / "nowhere").names("plans")) == []


def test_a_file_url_is_a_path(tmp_path: Path) -> None:
    Journal(f"file://{tmp_path}").put("x", 1)
    assert (tmp_path / "x.json").exists()
