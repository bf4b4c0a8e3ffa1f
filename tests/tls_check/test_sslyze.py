"""`make tls-check`: sslyze, with an OpenSSL of its own, finds nothing to object to in our TLS.

It scans every kind of TLS listener. What it reports is judged here one by one, and its comparison
with Mozilla's profile "intermediate" has to agree but for what `EXPLAINED` lists.
"""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.server.authority import ensure_server_certificate
from storage.disk.files import RealFiles
from tests.support.broker import broker_process
from tests.support.kafka_peer import free_ports

SSLYZE = os.environ.get("SSLYZE", str(Path(__file__).parents[2] / ".venv-tls/bin/sslyze"))
"""The program; `make tls-check` installs it apart from our own packages."""

EXPLAINED = {
    # sslyze means the authorities of browsers; that ours is valid for our own is checked apart.
    "certificate_path_validation",
    # 825 days, the most that clients of any system take: `--secure` renews only when it starts.
    "maximum_certificate_lifespan",
    # secp521r1 and X448, stronger than the profile asks: Python 3.11 cannot choose the groups.
    "tls_curves",
}

SUITES = {
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
}
CURVES = {"X25519", "X448", "secp256r1", "secp384r1", "secp521r1"}
LISTENERS = ("SSL", "SASL_SSL", "SSL with certificates", "metrics")

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tls")
    # As `tidelog serve --secure` makes them, which are judged here too.
    ensure_server_certificate(str(directory), ["localhost", "127.0.0.1"], RealFiles())
    return directory


@pytest.fixture(scope="module")
def ports(place: Path) -> Iterator[dict[str, int]]:
    """The ports of a running broker, one for each of `LISTENERS`."""
    numbers = dict(zip(LISTENERS, free_ports(len(LISTENERS)), strict=True))
    names = ("SSL", "SASL_SSL", "MUTUAL")
    listeners = [
        f"{name}://127.0.0.1:{port}" for name, port in zip(names, numbers.values(), strict=False)
    ]
    settings = {
        "listeners": ",".join(listeners),
        "listener.security.protocol.map": "SSL:SSL,SASL_SSL:SASL_SSL,MUTUAL:SSL",
        "ssl.keystore.location": str(place / "server.pem"),
        "listener.name.mutual.ssl.client.auth": "requested",
        "listener.name.mutual.ssl.truststore.location": str(place / "ca.pem"),
        "metrics.listener": f"127.0.0.1:{numbers['metrics']}",
        "metrics.listener.security": "tls",
    }
    with broker_process(place / "data", **settings):
        yield numbers


def scan(port: int, place: Path) -> tuple[dict[str, Any], str]:
    """The results of every scan, and the comparison with Mozilla's profile."""
    assert os.access(SSLYZE, os.X_OK), f"{SSLYZE} is missing: run `make tls-check`"
    report = place / f"{port}.json"
    done = subprocess.run(
        [SSLYZE, "--mozilla_config=intermediate", "--sni=localhost", "--resum",
         f"--certinfo_ca_file={place / 'ca.pem'}", f"--json_out={report}", f"127.0.0.1:{port}"],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    (result,) = json.loads(report.read_text())["server_scan_results"]
    assert result["scan_status"] == "COMPLETED", done.stderr
    return result["scan_result"], done.stdout


@pytest.mark.parametrize("listener", LISTENERS)
def test_nothing_to_object_to(listener: str, ports: dict[str, int], place: Path) -> None:
    scanned, said = scan(ports[listener], place)

    def result(name: str) -> dict[str, Any]:
        assert scanned[name]["status"] == "COMPLETED", (name, scanned[name])
        found: dict[str, Any] = scanned[name]["result"]
        return found

    def suites(version: str) -> set[str]:
        accepted = result(f"{version}_cipher_suites")["accepted_cipher_suites"]
        return {one["cipher_suite"]["name"] for one in accepted}

    for version in ("ssl_2_0", "ssl_3_0", "tls_1_0", "tls_1_1"):
        assert suites(version) == set(), version
    assert suites("tls_1_2") == SUITES
    assert len(suites("tls_1_3")) == 3
    assert {one["name"] for one in result("elliptic_curves")["supported_curves"]} <= CURVES
    assert not result("heartbleed")["is_vulnerable_to_heartbleed"]
    assert not result("openssl_ccs_injection")["is_vulnerable_to_ccs_injection"]
    assert result("robot")["robot_result"].startswith("NOT_VULNERABLE")
    assert not result("tls_compression")["supports_compression"]
    assert result("tls_fallback_scsv")["supports_fallback_scsv"]
    assert result("tls_extended_master_secret")["supports_ems_extension"]
    assert not result("session_renegotiation")["is_vulnerable_to_client_renegotiation_dos"]
    assert result("session_renegotiation")["supports_secure_renegotiation"]
    assert result("session_resumption")["tls_ticket_resumption_result"] == "FULLY_SUPPORTED"
    (deployed,) = result("certificate_info")["certificate_deployments"]
    assert deployed["received_chain_has_valid_order"]
    (trusted,) = (
        one for one in deployed["path_validation_results"] if "ca.pem" in one["trust_store"]["path"]
    )
    assert trusted["was_validation_successful"], trusted["validation_error"]

    objections = dict(re.findall(r"^ +\* (\w+): (.+)$", said, re.MULTILINE))
    assert set(objections) <= EXPLAINED
    assert set(re.findall(r"'(\w+)'", objections.get("tls_curves", ""))) <= CURVES
    assert "intermediate" in said.lower()


@pytest.mark.parametrize("listener", LISTENERS[:2])
def test_no_early_data(listener: str, ports: dict[str, int], place: Path) -> None:
    """Early data can be replayed; sslyze's own scan of it ends in an error here."""
    done = subprocess.run(
        ["openssl", "s_client", "-connect", f"127.0.0.1:{ports[listener]}", "-tls1_3",
         "-CAfile", str(place / "ca.pem"), "-ign_eof"],
        input=b"\0\0\0\1x", capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    text = done.stdout.decode(errors="replace")
    assert set(re.findall(r"Max Early Data: (\d+)", text)) == {"0"}
    assert "Secure Renegotiation IS" in text
