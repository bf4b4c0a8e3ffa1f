"""How a command learns where the broker is and how the connection is secured."""

import io
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from cli.broker_options import BrokerOptions, broker_options
from cli.exit_codes import ExitCode
from cli.main import run
from client.core.options import NOT_SECURED, Security


@click.command()
@broker_options
def show(*, broker: BrokerOptions) -> None:
    """Print what the command got."""
    seen.append(broker)


seen: list[BrokerOptions] = []


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    path = tmp_path / "own.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-keyout",
         tmp_path / "key.pem", "-out", path, "-subj", "/CN=me"],
        check=True, capture_output=True,
    )  # fmt: skip
    return path


@pytest.fixture
def password(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.write_text("s3cret \n")
    return path


def given(*words: str) -> BrokerOptions:
    result = CliRunner().invoke(show, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return seen.pop()


def test_without_options_nothing_is_secured(monkeypatch: pytest.MonkeyPatch) -> None:
    assert given() == {"bootstrap": "127.0.0.1:9092", "security": NOT_SECURED}
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "h:1")
    assert given()["bootstrap"] == "h:1"


def test_tls_and_a_user(certificate: Path, password: Path) -> None:
    key = certificate.with_name("key.pem")
    own = given("--tls-cert", str(certificate), "--tls-key", str(key))["security"]
    assert own == Security(tls=True, certificate_file=str(certificate), key_file=str(key))
    assert given("--tls")["security"] == Security(tls=True)
    words = ("--tls-ca", str(certificate), "--user", "ann", "--password-file", str(password))
    assert given(*words)["security"] == Security(
        tls=True,
        ca_file=str(certificate),
        mechanism="SCRAM-SHA-512",
        username="ann",
        password="s3cret ",
    )
    plain = given(*words[2:], "--sasl-mechanism", "PLAIN")["security"]
    assert (plain.protocol, plain.mechanism) == ("SASL_PLAINTEXT", "PLAIN")


def test_a_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "token"
    path.write_text("a.b.c")
    expected = Security(mechanism="OAUTHBEARER", token_file=str(path))
    assert given("--token-file", str(path))["security"] == expected
    monkeypatch.setenv("TIDELOG_TOKEN_FILE", str(path))
    assert given("--tls")["security"].protocol == "SASL_SSL"


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["--user", "ann"], 2, "--user and --password-file need each other"),
        (["--password-file", "{here}/password"], 2, "--user and --password-file need each other"),
        (["--tls-key", "{here}/key.pem"], 2, "--tls-key needs --tls-cert"),
        (["--tls-ca", "{here}/password"], 2, "--tls-ca {here}/password: .*; give a PEM file"),
        (["--tls-cert", "{here}/own.pem"], 2, "--tls-cert {here}/own.pem: .*; give a PEM file"),
        (["--tls-ca", "{here}/none"], 4, "{here}/none: No such file or directory"),
        (["--user", "a", "--password-file", "{here}/none"], 4, "{here}/none: No such file"),
        (["--token-file", "{here}/none"], 4, "{here}/none: No such file"),
        (
            ["--token-file", "{here}/password", "--sasl-mechanism", "PLAIN"],
            2,
            "--token-file names the user and the mechanism: leave --user",
        ),
        (["--sasl-mechanism", "GSSAPI"], 2, "'GSSAPI' is not one of"),
    ],
)
def test_mistakes_name_the_option_and_the_cure(
    certificate: Path,
    password: Path,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    code: int,
    sentence: str,
) -> None:
    here = str(certificate.parent)
    arguments = [word.format(here=here) for word in words]
    assert run(["topic", "list", *arguments]) == code
    message = capsys.readouterr().err
    assert re.search(sentence.format(here=here), message), message


@pytest.mark.parametrize(
    "words",
    [
        ["topic", "create", "t"], ["topic", "list"], ["topic", "describe", "t"],
        ["topic", "alter", "t", "--set", "a=b"], ["topic", "partitions", "t", "2"],
        ["topic", "delete", "t", "--yes"], ["produce", "t"], ["consume", "t"], ["offsets", "t"],
        ["group", "list"], ["group", "describe", "g"], ["group", "delete", "g", "--yes"],
        ["group", "reset", "g", "--to-time", "today"],
    ],
)  # fmt: skip
def test_every_command_that_connects_takes_them(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*words, "--user", "ann"]) == 2
    assert "--user and --password-file need each other" in capsys.readouterr().err


class Terminal(io.StringIO):
    """What a person types."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("words", [["topic", "delete", "t"], ["group", "delete", "g"]])
def test_a_no_deletes_nothing_and_is_no_interruption(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    assert run([*words, "-b", "127.0.0.1:1"]) == ExitCode.FAILED
    assert "tidelog: nothing was deleted\n" in capsys.readouterr().err
    monkeypatch.setattr(sys, "stdin", Terminal(""))  # Ctrl-C, Ctrl-D
    assert run([*words, "-b", "127.0.0.1:1"]) == ExitCode.INTERRUPTED
