"""What is around the process: the container's health check, the compose files, the unit."""

import re
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
READY = ROOT / "deploy" / "docker" / "ready"


@contextmanager
def answering(status: bytes) -> Iterator[int]:
    """A port on which one connection is taken and answered with an HTTP status."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(20)

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                if status:
                    assert connection.recv(1000).startswith(b"GET /readyz ")
                    connection.sendall(b"HTTP/1.1 " + status + b"\r\n\r\n")

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        thread.join()


def check(**variables: str) -> int:
    return subprocess.run(["bash", READY], env=variables, check=False, timeout=20).returncode


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "", "[::]"])
def test_the_health_check_asks_the_metrics_port_that_is_set(host: str) -> None:
    """It used to ask port 9464 whatever was set."""
    with answering(b"200 OK") as port:
        assert check(TIDELOG_METRICS_LISTENER=f"{host}:{port}") == 0
    with answering(b"503 Service Unavailable") as port:
        assert check(TIDELOG_METRICS_LISTENER=f"{host}:{port}") == 1
    assert check(TIDELOG_METRICS_LISTENER=f"{host}:{port}") == 1


def test_without_a_metrics_port_the_health_check_connects_to_the_first_listener() -> None:
    with answering(b"") as port:
        listeners = f"INSIDE://0.0.0.0:{port},OUTSIDE://0.0.0.0:1"
        assert check(TIDELOG_METRICS_LISTENER="", TIDELOG_LISTENERS=listeners) == 0
    assert check(TIDELOG_METRICS_LISTENER="", TIDELOG_LISTENERS=listeners) == 1


def test_all_that_the_image_copies_is_sent_to_its_build() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    copied = {
        source.partition("/")[0]
        for names in re.findall(r"^COPY (?!--)(.+) \S+$", text, re.MULTILINE)
        for source in names.split()
    }
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    sent = {line[1:] for line in lines if line.startswith("!")}
    assert "broker" in copied
    assert copied <= sent


def test_both_stages_of_the_image_are_pinned_by_one_argument() -> None:
    """docs/install.md names it: `--build-arg PYTHON_IMAGE=python@sha256:...`."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert re.findall(r"^FROM (\S+)", text, re.M) == ["${PYTHON_IMAGE}"] * 2
    default = re.findall(r"^ARG PYTHON_IMAGE=(\S+)$", text, re.M)
    assert len(default) == 1
    assert text.index("ARG PYTHON_IMAGE") < text.index("FROM ")
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    assert "--build-arg PYTHON_IMAGE=python@sha256:" in page
    assert f"imagetools inspect {default[0]}`" in page


def test_the_image_has_the_health_check() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert re.search(r"^COPY deploy/docker/ready (\S+)$", text, re.M)
    target = re.findall(r"^COPY deploy/docker/ready (\S+)$", text, re.M)[0]
    assert f'CMD ["bash", "{target}"]' in text


@pytest.mark.parametrize("name", ["docker-compose.yml", "docker-compose.test.yml"])
def test_what_needs_the_broker_waits_until_it_is_healthy(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert "- broker\n" not in text
    waits = re.findall(r"depends_on:\n +broker:\n +condition: (\S+)", text)
    assert waits
    assert set(waits) == {"service_healthy"}


def test_the_unit_reloads_by_sighup_and_does_not_retry_what_needs_a_human() -> None:
    text = (ROOT / "deploy" / "systemd" / "tidelog.service").read_text(encoding="utf-8")
    assert "ExecReload=/bin/kill -HUP $MAINPID" in text
    assert "RestartPreventExitStatus=2 4 5" in text
