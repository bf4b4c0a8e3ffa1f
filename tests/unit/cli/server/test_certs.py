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
