"""The block of docs/security.md with Kafka's own tool, run as it is written but for places."""

import re
import shlex
import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from cli.server.authority import AUTHORITY, SERVER, ensure_server_certificate
from storage.disk.files import RealFiles
from tests.integration.cli.test_secure import secured
from tests.support.certificates import der_of
from tests.support.cli import ROOT
from tests.support.kafka_peer import tool_command


@pytest.mark.jvm
@pytest.mark.timeout(300)
def test_kafkas_tool_sets_the_store_of_a_listener(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    found = re.search(r"^ {4}kafka-configs\.sh(?:.*\\\n)*.*\n", page, re.M)
    assert found is not None
    words = shlex.join(tool_command("kafka.admin.ConfigCommand", heap="96m"))
    tool = tmp_path / "kafka-configs.sh"
    tool.write_text(f'exec {words} "$@"\n')
    renewed = tmp_path / "renewed"
    with secured(tmp_path / "data") as (address, _, _):
        renewed.mkdir()
        for name in (AUTHORITY, "ca.key"):
            shutil.copy(tmp_path / "data" / name, renewed / name)
        names = re.findall(r"(?:DNS|IP Address):([^,\s]+)", _names(tmp_path / "data" / SERVER))
        ensure_server_certificate(str(renewed), names, RealFiles())
        script = found[0].replace("kafka-configs.sh", f"bash {tool}")
        for written, own in (
            ("HOST:9092", address),
            ("/etc/tidelog/new.pem", f"{renewed}/{SERVER}"),
        ):
            assert written in script
            script = script.replace(written, own)
        assert _served(address) != der_of(renewed / SERVER)
        done = subprocess.run(
            ["bash", "-e", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=200,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        assert _served(address) == der_of(renewed / SERVER)


def _names(pem: Path) -> str:
    command = ["openssl", "x509", "-in", str(pem), "-noout", "-ext", "subjectAltName"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _served(address: str) -> bytes:
    host, _, port = address.rpartition(":")
    return ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate((host, int(port))))
