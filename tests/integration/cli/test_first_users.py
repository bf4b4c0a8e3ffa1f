"""Users that the environment makes at the first start, and their way to another directory."""

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cli.exit_codes import ExitCode
from cli.failures import CommandFailed
from cli.security.offline_users import add_user, remove_user, users
from cli.server.first_users import FILE_VARIABLE, VARIABLE, first_passwords, make
from config import load
from tests.support.cli import environment, tidelog

PASSWORD = "canary-4711:x"


@contextmanager
def served(directory: Path, variables: dict[str, str]) -> Iterator[tuple[str, Path, int]]:
    """A broker for users: its address, its standard error and its process."""
    errors = directory.with_name("stderr")
    with errors.open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tidelog", "serve", "--data-dir", str(directory),
             "--set", "listeners=SASL_PLAINTEXT://127.0.0.1:0", "--set", "metrics.listener=",
             "--log-level", "debug"],
            stdout=subprocess.PIPE, stderr=log, text=True, env=environment(None) | variables,
        )  # fmt: skip
        try:
            assert process.stdout is not None
            ready = process.stdout.readline()
            assert ready, errors.read_text()
            yield ready.split()[4], errors, process.pid
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=30) == 0
            if process.stdout is not None:
                process.stdout.close()


def lists_topics(address: str, name: str, password: Path) -> bool:
    done = tidelog("topic", "list", "-b", address, "--user", name, "--password-file", str(password))
    return done.returncode == 0


def test_a_user_of_the_environment_is_made_once_and_shown_nowhere(tmp_path: Path) -> None:
    data, password = tmp_path / "data", tmp_path / "password"
    password.write_text(PASSWORD)
    variables = {VARIABLE: f"ann:{PASSWORD}"}
    with served(data, variables) as (address, errors, _):
        assert lists_topics(address, "ann", password)
        assert "Made the first users by the environment: ann" in errors.read_text()
        assert PASSWORD not in errors.read_text()
    for path in data.rglob("*"):
        assert path.is_dir() or PASSWORD.encode() not in path.read_bytes(), path
    remove_user(str(data), "ann")
    add_user(str(data), "bob", PASSWORD, "SCRAM-SHA-512", 4096)
    with served(data, variables) as (address, errors, _):
        assert not lists_topics(address, "ann", password)
        assert lists_topics(address, "bob", password)
        assert "this is not the first start" in errors.read_text()


def test_users_that_were_all_removed_stay_removed(tmp_path: Path) -> None:
    config = load(command_line={"log.dirs": str(tmp_path / "data")})
    make({"ann": "x"}, config)
    assert list(users(config.data_dir)) == ["ann"]
    remove_user(config.data_dir, "ann")
    make({"ann": "x"}, config)
    assert not users(config.data_dir)


def test_a_start_that_died_before_its_users_is_completed(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    assert not users(data)  # which has made the directory, with an empty journal
    assert os.listdir(data)
    config = load(
        command_line={"log.dirs": data, "listeners": "SASL_PLAINTEXT://127.0.0.1:0"}
        | {"sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"}
    )
    make({"ann": "x", "bob": "y"}, config)
    assert users(data) == {
        name: [("SCRAM-SHA-256", 8192), ("SCRAM-SHA-512", 8192)] for name in ("ann", "bob")
    }


def test_a_file_names_several_and_both_variables_leave_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "users"
    file.write_text("ann:a:b\r\n\nbob:c\n")
    variables = {FILE_VARIABLE: str(file), "HOME": "/"}
    assert first_passwords(variables) == {"ann": "a:b", "bob": "c"}
    assert variables == {"HOME": "/"}
    assert first_passwords(variables) == {}


@pytest.mark.parametrize(
    ("variables", "complaint"),
    [
        ({VARIABLE: "canary"}, "entry 1 is not NAME:PASSWORD"),
        ({VARIABLE: ":canary"}, "entry 1 is not NAME:PASSWORD"),
        ({VARIABLE: "canary:"}, "entry 1 is not NAME:PASSWORD"),
        ({VARIABLE: "a:canary", FILE_VARIABLE: "/x"}, "are both set"),
        ({FILE_VARIABLE: "/nowhere"}, "cannot read /nowhere"),
        ({FILE_VARIABLE: "/dev/null"}, "not a regular file"),
    ],
)
def test_a_bad_variable_is_refused_without_its_value(
    variables: dict[str, str], complaint: str
) -> None:
    with pytest.raises(CommandFailed) as caught:
        first_passwords(variables)
    assert complaint in str(caught.value)
    assert "canary" not in str(caught.value)
    assert caught.value.code is ExitCode.CONFIG


def test_a_name_twice_and_an_empty_file_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "users"
    for text, complaint in (("a:x\na:canary\n", "a second time"), ("\n", "names no user")):
        file.write_text(text)
        with pytest.raises(CommandFailed, match=complaint) as caught:
            first_passwords({FILE_VARIABLE: str(file)})
        assert "canary" not in str(caught.value)


def test_logs_without_a_journal_are_no_empty_directory(tmp_path: Path) -> None:
    partition = tmp_path / "data" / "flights-0"
    partition.mkdir(parents=True)
    (partition / f"{0:020}.log").write_bytes(b"")
    config = load(command_line={"log.dirs": str(tmp_path / "data")})
    make({"ann": "x"}, config)
    assert "metadata.journal" not in os.listdir(tmp_path / "data")


def test_the_user_of_secure_is_not_named(tmp_path: Path) -> None:
    variables: dict[str, Any] = {VARIABLE: f"admin:{PASSWORD}"}
    words = ("serve", "--secure", "--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0")
    done = tidelog(*words, **variables)
    assert done.returncode == ExitCode.CONFIG
    assert "--secure makes the user admin itself" in done.stderr
    assert PASSWORD not in done.stderr


# --- export and import --------------------------------------------------------------------------


def test_users_move_with_their_passwords(tmp_path: Path) -> None:
    source, target, file = tmp_path / "a", tmp_path / "b", tmp_path / "users.json"
    password = tmp_path / "password"
    password.write_text(PASSWORD)
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        add_user(str(source), "ann", PASSWORD, mechanism, 4096)
    add_user(str(source), "jörg", PASSWORD, "SCRAM-SHA-512", 8192)
    with served(source, {}):  # a broker that has the directory open
        done = tidelog("user", "export", str(file), "--data-dir", str(source))
        assert (done.returncode, done.stderr) == (0, f"wrote 3 credentials to {file}\n")
        refused = tidelog("user", "import", str(file), "--data-dir", str(source))
        assert refused.returncode == ExitCode.FAILED
        assert "another broker is using the data directory" in refused.stderr
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert PASSWORD not in file.read_text()
    done = tidelog("user", "import", str(file), "--data-dir", str(target))
    assert (done.returncode, done.stderr) == (0, "took over ann, jörg\n")
    assert users(str(target)) == users(str(source))
    with served(target, {}) as (address, _, _):
        assert lists_topics(address, "ann", password)
    again = tidelog("user", "import", str(file), "--data-dir", str(target))
    assert again.returncode == ExitCode.FAILED
    assert "SCRAM-SHA-256/ann" in again.stderr
    assert "--replace" in again.stderr
    replaced = tidelog("user", "import", str(file), "--data-dir", str(target), "--replace")
    assert replaced.returncode == 0
    twice = tidelog("user", "export", str(file), "--data-dir", str(target))
    assert (twice.returncode, "name another file" in twice.stderr) == (ExitCode.USAGE, True)


def test_an_import_takes_over_all_or_nothing_and_shows_no_key(tmp_path: Path) -> None:
    source, target, file = str(tmp_path / "a"), tmp_path / "b", tmp_path / "users.json"
    add_user(source, "ann", PASSWORD, "SCRAM-SHA-512", 4096)
    assert tidelog("user", "export", str(file), "--data-dir", source).returncode == 0
    document = json.loads(file.read_text())
    (good,) = document["credentials"]
    for bad, complaint in (
        ({**good, "user": ""}, "entry 2"),
        ({**good, "mechanism": "SCRAM-SHA-1"}, "SCRAM-SHA-256"),
        ({**good, "user": "\ud800"}, "entry 2"),
        ({**good, "stored": "canary"}, "base64"),
        ({**good, "salt": "é"}, "base64"),
        ({**good, "stored": good["salt"]}, "64 bytes"),
        ({**good, "iterations": 16385}, "4096 to 16384"),
        ({**good, "password": "canary"}, "unknown field"),
        ({"user": "bob"}, "lacks user or mechanism"),
        (good, "there twice"),
        ("canary", "entry 2"),
    ):
        file.write_text(json.dumps({**document, "credentials": [good, bad]}))
        done = tidelog("user", "import", str(file), "--data-dir", str(target))
        assert done.returncode == ExitCode.FAILED, bad
        assert complaint in done.stderr, bad
        assert "canary" not in done.stderr
        assert good["stored"] not in done.stderr
        assert not target.exists() or not users(str(target))
    for text in ("{}", "no JSON", "[" * 100_000, json.dumps({**document, "tidelog-users": 2})):
        file.write_text(text)
        done = tidelog("user", "import", str(file), "--data-dir", str(target))
        assert (done.returncode, "is no export of users" in done.stderr) == (ExitCode.USAGE, True)
