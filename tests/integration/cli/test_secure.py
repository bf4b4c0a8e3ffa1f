"""`serve --secure` and what it leaves: files, a user, a second start, and clients' settings."""

import json
import os
import signal
import socket
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
from cli.server import authority
from cli.server.authority import ensure_server_certificate
from storage.disk.files import RealFiles
from tests.support.certificates import openssl
from tests.support.cli import environment, tidelog
from tidelog.testing import running_broker


@contextmanager
def secured(directory: Path, *words: str) -> Iterator[tuple[str, list[str], Path]]:
    """A broker started with --secure: its address, its first lines, and its standard error."""
    errors = directory.with_name("stderr")
    with errors.open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tidelog", "serve", "--secure", "--data-dir", str(directory),
             "--listen", "127.0.0.1:0", "--set", "metrics.listener=127.0.0.1:0", *words],
            stdout=subprocess.PIPE, stderr=log, text=True, env=environment(None),
        )  # fmt: skip
        try:
            assert process.stdout is not None
            ready = process.stdout.readline()
            assert ready, errors.read_text()
            if "--json" in words:
                facts = json.loads(ready)
                yield f"{facts['host']}:{facts['port']}", [ready], errors
            else:
                lines = [ready, *(process.stdout.readline() for _ in range(3))]
                yield ready.split()[4], lines, errors
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=30) == 0
            if process.stdout is not None:
                process.stdout.close()


def test_a_first_start_and_a_second(tmp_path: Path) -> None:
    data = tmp_path / "data"
    properties = data / "client.properties"
    with secured(data) as (address, lines, errors):
        assert lines[2].split()[:4] == ["tidelog", "topic", "list", "-b"]
        assert lines[2].split()[4:] == [address, "--command-config", str(properties)]
        assert lines[3].split()[0] == "kafka-topics.sh"
        password = errors.read_text().splitlines()[0].split()[-1]
        assert f'username="admin" password="{password}";' in properties.read_text()
        for name in ("client.properties", "ca.key", "server.pem"):
            assert stat.S_IMODE((data / name).stat().st_mode) == 0o600, name
        words = [*lines[2].split()[1:]]
        assert tidelog("topic", "create", "t", *words[2:]).returncode == 0
        done = tidelog(*words)
        assert (done.returncode, "t" in done.stdout) == (0, True), done.stderr
        refused = tidelog("topic", "list", "-b", address, "--tls-ca", str(data / "ca.pem"))
        assert refused.returncode != 0
    before = {name: (data / name).read_bytes() for name in os.listdir(data) if "." in name[1:]}
    with secured(data, "--json") as (address, _, errors):
        assert errors.read_text() == ""
        done = tidelog("topic", "list", "-b", address, "--command-config", str(properties))
        assert (done.returncode, "t" in done.stdout) == (0, True), done.stderr
    for name in ("ca.pem", "ca.key", "server.pem", "client.properties"):
        assert (data / name).read_bytes() == before[name]


def test_variables_stand_for_the_options(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with secured(data) as (address, _, errors):
        secret = tmp_path / "password"
        secret.write_text(errors.read_text().splitlines()[0].split()[-1])
        ways: tuple[dict[str, Any], ...] = (
            {"TIDELOG_COMMAND_CONFIG": str(data / "client.properties")},
            {"TIDELOG_USER": "admin", "TIDELOG_PASSWORD_FILE": str(secret)},
        )
        for variables in ways:
            done = tidelog(
                "topic", "list", "-b", address, "--tls-ca", str(data / "ca.pem"), **variables
            )
            assert done.returncode == 0, done.stderr
        ways[1]["TIDELOG_USER"] = "eve"
        done = tidelog("topic", "list", "-b", address, "--tls-ca", str(data / "ca.pem"), **ways[1])
        assert done.returncode == 1
        assert "check the user name and the password" in done.stderr


def test_a_directory_of_another_program_gets_nothing(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "server.txt").write_text("mine")
    done = tidelog("serve", "--secure", "--data-dir", str(data), "--listen", "127.0.0.1:0")
    assert done.returncode == 1
    assert sorted(path.name for path in data.iterdir() if not path.name.startswith(".")) == [
        "server.txt"
    ]


def test_secure_and_insecure_contradict_each_other() -> None:
    done = tidelog("serve", "--secure", "--insecure")
    assert (done.returncode, "contradict each other" in done.stderr) == (2, True)


def subject_names(pem: Path) -> str:
    return openssl("x509", "-in", str(pem), "-noout", "-ext", "subjectAltName").decode()


def test_a_certificate_is_made_once_and_again_for_other_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, files = str(tmp_path), RealFiles()
    names = ["localhost", "127.0.0.1"]
    assert ensure_server_certificate(directory, names, files)
    made = (tmp_path / "ca.pem").read_bytes()
    assert not ensure_server_certificate(directory, names, files)
    assert ensure_server_certificate(directory, [*names, "10.1.2.3", "broker.example"], files)
    assert "IP Address:10.1.2.3" in subject_names(tmp_path / "server.pem")
    assert not ensure_server_certificate(directory, ["broker.example"], files)
    assert (tmp_path / "ca.pem").read_bytes() == made
    # It ends in less than 30 days: a new one, of the same authority.
    monkeypatch.setattr(authority, "SERVER_DAYS", 29)
    (tmp_path / "server.pem").unlink()
    assert ensure_server_certificate(directory, names, files)
    monkeypatch.undo()
    assert ensure_server_certificate(directory, names, files)
    assert not ensure_server_certificate(directory, names, files)


@pytest.mark.parametrize("lost", ["ca.pem", "ca.key", "server.pem"])
def test_what_a_crash_left_out_is_completed(tmp_path: Path, lost: str) -> None:
    directory, files = str(tmp_path), RealFiles()
    ensure_server_certificate(directory, ["localhost"], files)
    (tmp_path / lost).unlink()
    assert ensure_server_certificate(directory, ["localhost"], files)
    assert not ensure_server_certificate(directory, ["localhost"], files)
    openssl("verify", "-CAfile", str(tmp_path / "ca.pem"), str(tmp_path / "server.pem"))


def test_without_the_program_the_cure_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CommandFailed, match=r"install it, or set ssl\.keystore\.location"):
        ensure_server_certificate(str(tmp_path), ["localhost"], RealFiles())


def test_the_certificate_names_this_host(tmp_path: Path) -> None:
    with secured(tmp_path / "data"):
        names = subject_names(tmp_path / "data" / "server.pem")
    assert f"DNS:{socket.gethostname()}" in names
    assert "DNS:localhost, IP Address:127.0.0.1" in names


def test_tls_without_users_and_certificates_that_are_read_again(tmp_path: Path) -> None:
    data = tmp_path / "data"
    errors = tmp_path / "stderr"
    words = [sys.executable, "-m", "tidelog", "serve", "--tls-self-signed", "--data-dir"]
    words += [str(data), "--listen", "127.0.0.1:0", "--set", "metrics.listener=127.0.0.1:0"]
    words += ["--set", "metrics.listener.security=tls"]
    with errors.open("w") as log:
        process = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=log, text=True, env=environment(None)
        )
    try:
        assert process.stdout is not None
        ready = process.stdout.readline()
        assert ready, errors.read_text()
        address = ready.split()[4]
        lines = [process.stdout.readline() for _ in range(3)]
        command = lines[1].split()
        assert command[-1] == f"{data}/client-tls.properties"
        assert tidelog("topic", "create", "t", *command[3:]).returncode == 0
        assert tidelog("topic", "list", "-b", address).returncode != 0
        reload = ("certs", "reload", "-b", address, *command[5:])
        done = tidelog(*reload)
        assert (done.returncode, done.stderr) == (
            0,
            "the broker has read the certificates of SSL, METRICS again\n",
        )
        journal = (data / "metadata.journal").read_text()
        assert "ssl.keystore.location" not in journal
        server = data / "server.pem"
        good = server.read_bytes()
        server.write_text("nonsense")
        done = tidelog(*reload)
        assert done.returncode == ExitCode.FAILED
        assert "server.pem" in done.stderr
        assert tidelog("topic", "list", *command[3:]).returncode == 0  # with the former one
        server.write_bytes(good)
        done = tidelog(*reload, "--listener", "ssl")
        assert (done.returncode, "of SSL again" in done.stderr) == (0, True)
        done = tidelog(*reload, "--listener", "nosuch")
        assert done.returncode == ExitCode.NOT_FOUND
        assert "no listener nosuch with TLS" in done.stderr
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0
        if process.stdout is not None:
            process.stdout.close()


def test_a_broker_without_tls_has_no_certificates_to_read(tmp_path: Path) -> None:
    with running_broker(tmp_path / "data") as server:
        done = tidelog("certs", "reload", server=server)
    assert done.returncode == ExitCode.NOT_FOUND
    assert "the broker has no listener with TLS" in done.stderr
