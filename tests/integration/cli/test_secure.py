"""`serve --secure` and what it leaves: files, a user, a second start, and clients' settings."""

import json
import os
import pty
import re
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import dropwhile
from pathlib import Path
from typing import Any

import pytest

from broker.net.addresses import ReadyInfo
from cli.exit_codes import ExitCode
from cli.failures import CommandFailed
from cli.server import authority
from cli.server.authority import ensure_server_certificate
from cli.server.secure import how_to_connect_with_own_files
from config import load
from storage.disk.files import RealFiles
from tests.support.certificates import authority as authority_of_tests
from tests.support.certificates import openssl, signed
from tests.support.cli import environment, tidelog
from tidelog.testing import running_broker


@contextmanager
def secured(
    directory: Path, *words: str, listen: str = "127.0.0.1:0", option: str = "--secure"
) -> Iterator[tuple[str, list[str], Path]]:
    """A broker started with --secure: its address, its first lines, and its standard error."""
    errors = directory.with_name("stderr")
    with errors.open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tidelog", "serve", option, "--data-dir", str(directory),
             *(("--listen", listen) if listen else ()),
             "--set", "metrics.listener=127.0.0.1:0", *words],
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
                # Further listeners have lines of their own after the first.
                after = dropwhile(lambda line: line.startswith("  "), process.stdout)
                lines = [ready, next(after), process.stdout.readline()]
                if "--command-config" in lines[2]:
                    lines.append(process.stdout.readline())
                yield ready.split()[4], lines, errors
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=30) == 0
            if process.stdout is not None:
                process.stdout.close()


def as_printed(line: str, place: Path, *more: str) -> "subprocess.CompletedProcess[str]":
    """A command as the broker prints it, run in another directory."""
    place.mkdir(exist_ok=True)
    command = " ".join((line.strip(), *more))
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-c", command], cwd=place, env=environment(None) | {"PATH": path},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def password_in(data: Path) -> str:
    found = re.search(r'password="(.+)"', (data / "client.properties").read_text())
    assert found is not None
    return found[1]


def test_a_first_start_and_a_second(tmp_path: Path) -> None:
    data = tmp_path / "data"
    properties = data / "client.properties"
    with secured(data) as (address, lines, errors):
        assert lines[2].split()[:4] == ["tidelog", "topic", "list", "-b"]
        assert lines[2].split()[4:] == [address, "--command-config", str(properties)]
        assert lines[3].split()[0] == "kafka-topics.sh"
        made = f"Made the user admin; the password is in {properties}, which only you can read.\n"
        assert errors.read_text() == made
        assert 'username="admin"' in properties.read_text()
        assert password_in(data) not in "".join(lines)
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


def test_the_clock_of_tests_goes_with_it(tmp_path: Path) -> None:
    """The user and the certificate are made before the clock is looked at."""
    data = tmp_path / "data"
    for _ in range(2):
        with secured(data, "--clock", "settable") as (address, lines, _errors):
            listed = as_printed(lines[2], tmp_path / "elsewhere")
            assert listed.returncode == 0, (address, listed.stderr)
    assert (data / "settable-clock").exists()


def test_the_doctor_finds_nothing_bad_while_it_runs(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with secured(data) as (address, _, _):
        words = ("doctor", "--secure", "--data-dir", str(data), "--listen", address, "--json")
        done = tidelog(*words, "--set", "metrics.listener=127.0.0.1:0")
        found = {one["check"]: one for one in json.loads(done.stdout)["findings"]}
        assert (done.returncode, found["port of SASL_SSL"]["verdict"]) == (0, "good"), done.stdout
        assert "is running on this data directory" in found["port of SASL_SSL"]["seen"]
        elsewhere = tidelog(*words[:3], str(tmp_path / "other"), *words[4:])
        assert elsewhere.returncode == ExitCode.FAILED


def test_variables_stand_for_the_options(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with secured(data) as (address, _, _):
        secret = tmp_path / "password"
        secret.write_text(password_in(data))
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
    assert done.returncode == ExitCode.USAGE
    assert sorted(path.name for path in data.iterdir() if not path.name.startswith(".")) == [
        "server.txt"
    ]


def test_secure_and_insecure_contradict_each_other() -> None:
    done = tidelog("serve", "--secure", "--insecure")
    assert (done.returncode, "contradict each other" in done.stderr) == (2, True)


def test_a_password_is_shown_on_a_terminal_alone(tmp_path: Path) -> None:
    data = tmp_path / "data"
    terminal, its_end = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "tidelog", "serve", "--secure", "--data-dir", str(data),
         "--listen", "127.0.0.1:0", "--set", "metrics.listener=127.0.0.1:0"],
        stdout=subprocess.PIPE, stderr=its_end, text=True, env=environment(None),
    )  # fmt: skip
    os.close(its_end)
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("Tidelog is ready")
        shown = os.read(terminal, 4096).decode()
        assert f"Made the user admin with the password {password_in(data)}" in shown
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0
        os.close(terminal)
        if process.stdout is not None:
            process.stdout.close()


@pytest.mark.parametrize("option", ["--secure", "--tls-self-signed"])
@pytest.mark.parametrize("directory", ["data", "my data's"])
def test_the_printed_command_works_as_it_is_printed(
    tmp_path: Path, directory: str, option: str
) -> None:
    # Every address for those who may log in; TLS without users is for this machine alone.
    listen = "0.0.0.0:0" if option == "--secure" else "127.0.0.1:0"
    with secured(tmp_path / directory, listen=listen, option=option) as (_, lines, _):
        made = as_printed(lines[2].replace(" list ", " create t "), tmp_path / "elsewhere")
        assert made.returncode == 0, made.stderr
        done = as_printed(lines[2], tmp_path / "elsewhere")
    assert (done.returncode, "t" in done.stdout.split()) == (0, True), done.stderr


def test_a_relative_directory_is_found_from_elsewhere(tmp_path: Path) -> None:
    there = os.getcwd()
    os.chdir(tmp_path)
    try:
        with secured(Path("data")) as (_, lines, _):
            done = as_printed(lines[2], tmp_path / "elsewhere")
    finally:
        os.chdir(there)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("source", ["--set", "--config"])
def test_listeners_that_have_tls_and_users_are_kept(tmp_path: Path, source: str) -> None:
    listeners = "INNER://127.0.0.1:0,OUTER://localhost:0"
    pairs = {
        "listeners": listeners,
        "listener.security.protocol.map": "INNER:SSL,OUTER:SASL_SSL",
        "super.users": "User:ops;User:admin",
    }
    file = tmp_path / "server.properties"
    file.write_text("".join(f"{name}={text}\n" for name, text in pairs.items()))
    words = [word for pair in pairs.items() for word in ("--set", "=".join(pair))]
    if source == "--config":
        words = ["--config", str(file)]
    with secured(tmp_path / "data", *words, listen="") as (_, lines, _):
        assert " -b localhost:" in lines[2]
        done = as_printed(lines[2], tmp_path)
        assert done.returncode == 0, done.stderr
        question = "acl test --user ops --op alter --cluster"
        shown = as_printed(lines[2].replace("topic list", question), tmp_path)
    assert shown.stdout == "allowed: User:ops is a super user\n", shown.stderr


@pytest.mark.parametrize(
    ("pair", "sentence"),
    [
        ("listeners=PLAINTEXT://127.0.0.1:0", "write SASL_SSL://127.0.0.1:0"),
        ("listeners=SASL_PLAINTEXT://0.0.0.0:0", "write SASL_SSL://0.0.0.0:0"),
        ("listeners=SSL://127.0.0.1:0", "--secure needs a listener with SASL_SSL"),
        ("authorizer.class.name=", "--secure needs an authorizer"),
        ("super.users=User:ops", "add User:admin"),
        ("insecure.allow=true", "contradict each other"),
        ("sasl.enabled.mechanisms=SCRAM-SHA-256", "makes the user admin for SCRAM-SHA-512"),
    ],
)
@pytest.mark.parametrize("source", ["command line", "server.properties", "environment"])
def test_what_contradicts_secure_is_refused(
    tmp_path: Path, pair: str, sentence: str, source: str
) -> None:
    name, _, text = pair.partition("=")
    words = ["--set", pair]
    variables: dict[str, Any] = {}
    if source == "server.properties":
        file = tmp_path / source
        file.write_text(f"{pair}\n")
        words = ["--config", str(file)]
    elif source == "environment":
        words, variables = [], {f"TIDELOG_{name.upper().replace('.', '_')}": text}
    data = tmp_path / "data"
    done = tidelog("serve", "--secure", "--data-dir", str(data), *words, **variables)
    assert done.returncode == ExitCode.CONFIG, done.stderr
    assert done.stderr.startswith(f"tidelog: {name} = {text!r} (")
    assert source in done.stderr
    assert sentence in done.stderr
    assert not data.exists()


def test_the_files_with_a_former_password_are_named(tmp_path: Path) -> None:
    data, secret = tmp_path / "data", tmp_path / "secret"
    properties = data / "client.properties"
    secret.write_text("another\n")
    note = f"{properties} still has the former password of admin: write the new one there\n"
    with secured(data) as (_, lines, _):
        words = ["user", "passwd", "admin", "--password-file", str(secret), *lines[2].split()[3:]]
        done = tidelog(*words)
        assert (done.returncode, note in done.stderr) == (0, True), done.stderr
        assert as_printed(lines[2], tmp_path).returncode == 1
        former = password_in(data)
        properties.write_text(properties.read_text().replace(former, "another"))
        assert as_printed(lines[2], tmp_path).returncode == 0
        added = tidelog("user", "add", "ann", "--generate", *lines[2].split()[3:])
        assert added.returncode == 0, added.stderr
        done = tidelog("user", "passwd", "ann", "--generate", *lines[2].split()[3:])
        assert (done.returncode, "former password" in done.stderr) == (0, False), done.stderr
    words = ["user", "passwd", "admin", "--password-file", str(secret), "--data-dir", str(data)]
    assert note in tidelog(*words).stderr


def test_an_administrator_who_was_removed_stays_removed(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with secured(data) as (_, lines, _):
        done = as_printed(lines[2].replace("topic list", "user remove admin"), tmp_path)
        assert done.returncode == 0, done.stderr
    for _ in range(2):
        with secured(data) as (address, lines, errors):
            assert errors.read_text() == ""
            ca = data / "ca.pem"
            assert lines[2].split() == [
                *("tidelog", "topic", "list", "-b", address, "--tls-ca", str(ca)),
                *("--user", "NAME", "--password-file", "FILE"),
            ]
        assert json.loads(tidelog("user", "list", "--json", "--data-dir", str(data)).stdout) == []


def test_a_certificate_of_ones_own_is_shown(tmp_path: Path) -> None:
    ca = authority_of_tests(tmp_path, "own-ca")
    pem = signed(tmp_path, ca, "server")
    data = tmp_path / "data"
    with secured(data, "--set", f"ssl.keystore.location={pem}") as (_, lines, _):
        trusting = as_printed(lines[2], tmp_path, "--tls-ca", str(ca))
        assert trusting.returncode == 0, trusting.stderr
        assert as_printed(lines[2], tmp_path).returncode != 0  # the system's authorities
    assert not (data / "ca.pem").exists()


def test_settings_of_ones_own_print_how_to_connect_too(tmp_path: Path) -> None:
    """Before, the hints of a broker without security, which could not work."""
    ca = authority_of_tests(tmp_path)
    pem = signed(tmp_path, ca, "server")
    data, secret = tmp_path / "data", tmp_path / "secret"
    secret.write_text("a secret\n")
    words = ("user", "add", "ann", "--password-file", str(secret), "--data-dir", str(data))
    assert tidelog(*words).returncode == 0
    settings = ("listeners=SASL_SSL://0.0.0.0:0", f"ssl.keystore.location={pem}")
    given = [word for one in settings for word in ("--set", one)]
    with secured(data, *given, listen="", option="--log-level=info") as (_, lines, _):
        line = lines[2].replace("FILE", str(ca), 1).replace("FILE", str(secret))
        done = as_printed(line.replace("NAME", "ann"), tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (("listeners=SSL://127.0.0.1:9092",), "--tls-ca FILE"),
        (
            ("listeners=SSL://127.0.0.1:9092", "listener.name.ssl.ssl.client.auth=required"),
            "--tls-ca FILE --tls-cert FILE",
        ),
        (
            ("listeners=SASL_PLAINTEXT://127.0.0.1:9092", "sasl.enabled.mechanisms=SCRAM-SHA-256"),
            "--user NAME --password-file FILE --sasl-mechanism SCRAM-SHA-256",
        ),
        (
            ("listeners=SASL_PLAINTEXT://127.0.0.1:9092", "sasl.enabled.mechanisms=OAUTHBEARER"),
            "--token-file FILE",
        ),
    ],
)
def test_what_is_printed_fits_the_listener(settings: tuple[str, ...], words: str) -> None:
    ready = ReadyInfo(
        host="127.0.0.1", port=9092, metrics_port=None, node_id=1, cluster_id="c",
        data_dir="data", ports={"SSL": 9092, "SASL_PLAINTEXT": 9092},
    )  # fmt: skip
    oauth = ("issuer=i", "audience=a")
    config = load(
        command_line=dict(
            setting.split("=", 1)
            for setting in (
                *settings,
                "ssl.keystore.location=server.pem",
                "ssl.truststore.location=ca.pem",
                "sasl.oauthbearer.jwks.endpoint.url=https://localhost/jwks",
                *(f"sasl.oauthbearer.expected.{one}" for one in oauth),
            )
        )
    )
    line = how_to_connect_with_own_files(config, ready)
    assert line == f"tidelog topic list -b 127.0.0.1:9092 {words}"


def test_the_certificate_has_the_advertised_host(tmp_path: Path) -> None:
    data = tmp_path / "data"
    advertised = "advertised.listeners=SASL_SSL://broker.example:19092"
    with secured(data, "--set", advertised) as (_, lines, _):
        assert "DNS:broker.example" in subject_names(data / "server.pem")
        assert " -b broker.example:19092 " in lines[2]


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
