"""``tidelog certs``: what it shows of the certificates that settings name."""

import json
from pathlib import Path

import pytest

from cli.exit_codes import ExitCode
from cli.main import run
from tests.support.certificates import authority, signed


def test_what_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pem = signed(tmp_path, authority(tmp_path), "server", addresses="DNS:kafka.example")
    words = [
        *("certs", "show", "--json"),
        *("--set", "listeners=TLS://127.0.0.1:0,SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0"),
        *("--set", "listener.security.protocol.map=TLS:SSL,SSL:SSL,PLAINTEXT:PLAINTEXT"),
        *("--set", f"listener.name.tls.ssl.keystore.location={pem}"),
        *("--set", f"ssl.keystore.location={tmp_path}/missing.pem"),
    ]
    assert run(words) == ExitCode.FAILED
    good, bad = json.loads(capsys.readouterr().out)
    assert (good["listener"], good["subject"]) == ("TLS", "CN=server")
    assert (good["names"], good["problem"]) == (["kafka.example"], "")
    assert good["days_left"] in (29, 30)
    assert len(good["fingerprint"]) == 64
    assert bad["listener"] == "SSL"
    assert "No such file" in bad["problem"]
    assert run([*words[:2], *words[3:]]) == ExitCode.FAILED
    assert "kafka.example" in capsys.readouterr().out


def test_what_is_shown_of_a_broker_without_tls_and_of_serve_secure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["certs", "show", "--set", "listeners=PLAINTEXT://127.0.0.1:0"]) == 0
    shown = capsys.readouterr()
    assert (shown.out, "no listener of these settings has TLS" in shown.err) == ("", True)
    signed(tmp_path, authority(tmp_path), "server", addresses="DNS:kafka.example")
    assert run(["certs", "show", "--json", "--secure", "--data-dir", str(tmp_path)]) == 0
    (one,) = json.loads(capsys.readouterr().out)
    assert (one["listener"], one["names"]) == ("SASL_SSL", ["kafka.example"])


def test_a_new_certificate_is_made_once_and_serves_its_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "tls"
    words = ["certs", "new", str(place), "--host", "a.example", "--host", "10.0.0.7"]
    assert run(words) == 0
    assert capsys.readouterr().out == f"ssl.keystore.location={place}/server.pem\n"
    files = {path.name: path.read_bytes() for path in place.iterdir()}
    assert set(files) == {"ca.pem", "ca.key", "server.pem"}
    assert {path.stat().st_mode & 0o777 for path in place.iterdir()} == {0o600}
    shown = ["certs", "show", "--json", "--set", "listeners=SSL://127.0.0.1:0"]
    assert run([*shown, "--set", f"ssl.keystore.location={place}/server.pem"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["names"] == ["a.example", "10.0.0.7"]
    assert run(words) == 0
    assert "the certificate that is there serves these names" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in place.iterdir()} == files
    assert run([*words, "--host", "b.example"]) == 0
    assert (place / "ca.pem").read_bytes() == files["ca.pem"]
    assert (place / "server.pem").read_bytes() != files["server.pem"]


@pytest.mark.parametrize("host", ["a,DNS:evil.example", "a b", "", "a\nb", "-a"])
def test_a_name_that_would_write_an_extension_is_refused(
    host: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["certs", "new", str(tmp_path / "tls"), f"--host={host}"]) == ExitCode.USAGE
    assert "write a host's name or an IP address" in capsys.readouterr().err
    assert not (tmp_path / "tls").exists()
