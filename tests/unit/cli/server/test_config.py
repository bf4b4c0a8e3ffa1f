"""Checking and listing settings."""

import json
from pathlib import Path

import pytest

from cli.exit_codes import ExitCode
from cli.main import run


def test_a_good_file_is_said_to_be_good(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=3\nnum.io.threads=8\n")
    assert run(["config", "check", str(file)]) == 0
    shown = capsys.readouterr()
    assert "nothing is wrong" in shown.out
    assert "num.io.threads" in shown.err


def test_all_problems_are_in_the_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "broker.toml"
    file.write_text('"num.partitons" = 3\n"node.id" = -1\n')
    assert run(["config", "check", "--json", str(file)]) == ExitCode.CONFIG
    document = json.loads(capsys.readouterr().out)
    assert [problem["key"] for problem in document["problems"]] == ["num.partitons", "node.id"]


def test_settings_are_listed_with_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "list", "auto.create", "--json"]) == 0
    [setting] = json.loads(capsys.readouterr().out)
    assert (setting["name"], setting["default"]) == ("auto.create.topics.enable", "true")


def test_a_word_in_no_setting_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "list", "xyzzy"]) == ExitCode.NOT_FOUND
    assert "no setting has 'xyzzy'" in capsys.readouterr().err
