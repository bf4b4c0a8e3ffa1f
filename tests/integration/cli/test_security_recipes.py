"""The recipes of docs/security.md run as they are written, with another port."""

import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cli import ROOT, environment
from tests.support.kafka_peer import free_ports

COMMANDS = re.compile(r"^ {4}(.+)$", re.M)


def recipe(heading: str) -> list[str]:
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    section = page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return COMMANDS.findall(section)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_recipe_of_the_metrics_port(tmp_path: Path) -> None:
    serve, *asks = recipe("The metrics port")
    ports = [str(port) for port in free_ports(2)]
    path = f"PATH={Path(sys.executable).parent}:$PATH; "

    def here(text: str) -> str:
        for written, own in (("0.0.0.0", "127.0.0.1"), ("9092", ports[0]), ("9464", ports[1])):
            assert written in text or written == "0.0.0.0", text
            text = text.replace(written, own)
        return text

    broker = subprocess.Popen(
        ["bash", "-c", f"{path} exec {here(serve)}"], cwd=tmp_path, env=environment(None),
        text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        assert broker.stdout is not None
        assert broker.stdout.readline().startswith("Tidelog is ready")
        *before, last = here("\n".join(asks)).split("\n")
        commands = "\n".join([*before, "! " + last.replace("prometheus:", "stranger:"), last])
        done = subprocess.run(
            ["bash", "-e", "-c", f"set -o pipefail; {path}{commands}"],
            cwd=tmp_path, env=environment(None), capture_output=True, text=True, check=False,
            timeout=200,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert "tidelog_request_seconds" in done.stdout
    finally:
        broker.send_signal(signal.SIGTERM)
        assert broker.wait(timeout=30) == 0
        assert broker.stdout is not None
        broker.stdout.close()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_recipes_of_a_service_and_of_an_edge_box(tmp_path: Path) -> None:
    serve, *service = recipe("A small service")
    edge = recipe("An edge box")
    assert serve.startswith("tidelog serve --secure")
    assert (len(service), len(edge)) == (8, 7)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    path = f"PATH={Path(sys.executable).parent}:$PATH; "
    serve = serve.replace("0.0.0.0:9092", f"127.0.0.1:{port}")
    assert port in serve
    variables = environment(None) | {"TIDELOG_METRICS_LISTENER": "127.0.0.1:0"}
    broker = subprocess.Popen(
        ["bash", "-c", f"{path} exec {serve}"], cwd=tmp_path, env=variables, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        assert broker.stdout is not None
        assert broker.stdout.readline().startswith("Tidelog is ready")
        done = subprocess.run(
            ["bash", "-e", "-c", path + "\n".join([*service, *edge]).replace("9092", port)],
            cwd=tmp_path, env=variables, capture_output=True, text=True, check=False, timeout=280,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert "allowed: " in done.stdout
        assert "telemetry.pump7" in done.stdout
    finally:
        broker.send_signal(signal.SIGTERM)
        assert broker.wait(timeout=30) == 0
        assert broker.stdout is not None
        broker.stdout.close()
