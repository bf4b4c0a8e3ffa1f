"""The doctor sees what would trouble a broker, and says what to do."""

import json
import socket
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.server.checkup import Finding, Verdict
from cli.server.doctor import command, examine
from config import load


def findings(**settings: str) -> dict[str, Finding]:
    config = load(command_line={name.replace("_", "."): text for name, text in settings.items()})
    return {finding.check: finding for finding in examine(config)}


def test_a_good_place_is_good(tmp_path: Path) -> None:
    seen = findings(log_dirs=str(tmp_path), listeners="PLAINTEXT://127.0.0.1:0")
    assert seen["data directory"].verdict is Verdict.GOOD
    assert seen["port of PLAINTEXT"].seen == "a free one will be picked"
    assert list(tmp_path.iterdir()) == []


def test_a_taken_port_is_in_the_way(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        seen = findings(log_dirs=str(tmp_path), listeners=f"PLAINTEXT://127.0.0.1:{port}")
    assert seen["port of PLAINTEXT"].verdict is Verdict.BAD
    assert f"127.0.0.1:{port} is taken" in seen["port of PLAINTEXT"].seen
    assert "choose another" in seen["port of PLAINTEXT"].cure


def test_only_a_metrics_port_that_was_asked_for_has_to_be_free(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        asked = findings(log_dirs=str(tmp_path), metrics_listener=address)
        assert asked["port of metrics"].verdict is Verdict.BAD


def test_patterns_that_will_be_refused_are_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "patterns of clients" not in findings(log_dirs=str(tmp_path))
    monkeypatch.setattr("cli.server.doctor.find_spec", lambda name: None)
    found = findings(log_dirs=str(tmp_path))["patterns of clients"]
    assert (found.verdict, found.seen) == (Verdict.WARN, "refused")
    assert "pip install google-re2" in found.cure


def test_a_file_in_place_of_the_directory_is_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    seen = findings(log_dirs=str(tmp_path / "file" / "data"))
    assert seen["data directory"].verdict is Verdict.BAD
    assert "disk space" not in seen


def test_a_directory_to_be_made_is_not_made(tmp_path: Path) -> None:
    seen = findings(log_dirs=str(tmp_path / "new"))
    assert seen["data directory"].seen.endswith("will be made")
    assert not (tmp_path / "new").exists()


def test_a_clock_that_was_never_set_is_in_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cli.server.doctor.time.time_ns", lambda: 1_000_000_000_000)
    assert findings(log_dirs=str(tmp_path))["clock"].verdict is Verdict.BAD


def test_plain_loops_are_worth_a_thought(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("protocol.records.record_loops.COMPILED", False)
    assert findings(log_dirs=str(tmp_path))["record loops"].verdict is Verdict.WARN


def test_stripped_checks_are_in_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Flags:
        optimize = 1
        verbose = 0

    monkeypatch.setattr(sys, "flags", Flags())
    assert findings(log_dirs=str(tmp_path))["python"].verdict is Verdict.BAD


def test_the_exit_code_tells_a_script(tmp_path: Path) -> None:
    runner = CliRunner()
    arguments = ["--data-dir", str(tmp_path), "--listen", "127.0.0.1:0", "--json"]
    good = runner.invoke(command, arguments, standalone_mode=False)
    assert json.loads(good.output)["good"] is True
    assert good.return_value == 0
    with socket.create_server(("127.0.0.1", 0)) as taken:
        arguments[3] = f"127.0.0.1:{taken.getsockname()[1]}"
        bad = runner.invoke(command, arguments, standalone_mode=False)
    assert json.loads(bad.output)["good"] is False
    assert bad.return_value == 1
