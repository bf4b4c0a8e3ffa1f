"""The recipes of docs/security.md run as they are written, with another port."""

import base64
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.certificates import authority, signed
from tests.support.cli import ROOT, environment
from tests.support.identity_provider import identity_provider
from tests.support.kafka_peer import free_ports

COMMANDS = re.compile(r"^ {4}(.+)$", re.M)
ENVIRONMENT = {"TIDELOG_METRICS_LISTENER": "127.0.0.1:0"}
PATH = f"PATH={Path(sys.executable).parent}:$PATH; "


def recipe(heading: str) -> tuple[str, list[str]]:
    """What starts the broker, and the commands after that."""
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    section = page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = COMMANDS.findall(section)
    serves = [at for at, line in enumerate(lines) if line.startswith("tidelog serve --")]
    after = serves[0] + 1 if serves else 0
    return "\n".join(lines[:after]), lines[after:]


@contextmanager
def serving(
    recipe: str, place: Path, variables: Mapping[str, str] | None = None, *, port: int | None = None
) -> Iterator[str]:
    """The broker of a recipe, on a free port instead of 9092 unless it gets one; that port."""
    script, given = recipe, str(port or free_ports(1)[0])
    if port is None:
        script = recipe.replace("0.0.0.0:9092", f"127.0.0.1:{given}")
        assert given in script
    broker = subprocess.Popen(
        ["bash", "-c", PATH + script.replace("tidelog serve", "exec tidelog serve")],
        cwd=place, env=environment(None) | ENVIRONMENT | dict(variables or {}), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        assert broker.stdout is not None
        assert any(line.startswith("Tidelog is ready") for line in broker.stdout)
        yield given
    finally:
        broker.send_signal(signal.SIGTERM)
        assert broker.wait(timeout=30) == 0
        assert broker.stdout is not None
        broker.stdout.close()


def run(
    commands: list[str], port: str, place: Path, variables: Mapping[str, str] | None = None
) -> str:
    done = subprocess.run(
        ["bash", "-e", "-c", PATH + "\n".join(commands).replace("9092", port)],
        cwd=place, env=environment(None) | ENVIRONMENT | dict(variables or {}),
        capture_output=True, text=True, check=False, timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_recipe_of_the_metrics_port(tmp_path: Path) -> None:
    serve, asks = recipe("The metrics port")
    ports = [str(port) for port in free_ports(2)]

    def here(text: str) -> str:
        for written, own in (("0.0.0.0", "127.0.0.1"), ("9092", ports[0]), ("9464", ports[1])):
            assert written in text or written == "0.0.0.0", text
            text = text.replace(written, own)
        return text

    broker = subprocess.Popen(
        ["bash", "-c", f"{PATH} exec {here(serve)}"], cwd=tmp_path, env=environment(None),
        text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        assert broker.stdout is not None
        assert broker.stdout.readline().startswith("Tidelog is ready")
        *before, last = here("\n".join(asks)).split("\n")
        commands = "\n".join([*before, "! " + last.replace("prometheus:", "stranger:"), last])
        done = subprocess.run(
            ["bash", "-e", "-c", f"set -o pipefail; {PATH}{commands}"],
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


def laptop() -> list[str]:
    """The commands in their order; two of them serve."""
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    lines = COMMANDS.findall(page.partition("\n## A laptop\n")[2].partition("\n## ")[0])
    assert lines[:2] == ["tidelog serve", "tidelog serve --tls-self-signed"]
    return lines


@pytest.mark.slow
def test_the_recipe_of_a_laptop_with_tls(tmp_path: Path) -> None:
    _, serve, *clients = laptop()
    assert len(clients) == 2
    (port,) = free_ports(1)
    # The port by a variable, as the recipe has none.
    with serving(serve, tmp_path, {"TIDELOG_LISTENERS": f"SSL://127.0.0.1:{port}"}, port=port):
        shown = run(clients, str(port), tmp_path, {"KAFKA_BOOTSTRAP_SERVERS": f"localhost:{port}"})
        assert "hello" in shown


@pytest.mark.slow
def test_the_recipe_of_delegation_tokens(tmp_path: Path) -> None:
    serve, clients = recipe("Delegation tokens")
    assert len(clients) == 2
    assert serve.startswith("(umask 077; openssl")
    with serving(serve, tmp_path) as port:
        token_id, secret = run(clients, port, tmp_path).split()
        assert len(base64.b64decode(secret)) == 64
        (row,) = json.loads(run([clients[0], "tidelog token list --json"], port, tmp_path))
    assert (row["id"], row["owner"], row["renewers"]) == (
        token_id, "User:admin", ["User:scheduler"],
    )  # fmt: skip


@pytest.mark.slow
def test_the_recipe_of_a_laptop(tmp_path: Path) -> None:
    serve = laptop()[0]
    (port,) = free_ports(1)
    # By variables, as the recipe has no port; and as every address, which it must refuse.
    for host, starts in (("0.0.0.0", False), ("127.0.0.1", True)):
        broker = subprocess.Popen(
            ["bash", "-c", f"{PATH} exec {serve}"], cwd=tmp_path, text=True,
            env=environment(None) | ENVIRONMENT | {"TIDELOG_LISTENERS": f"PLAINTEXT://{host}:{port}"},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        if starts:
            assert broker.stdout is not None
            assert broker.stdout.readline().startswith("Tidelog is ready")
            assert "hello" in run(["echo hello | tidelog produce t -b 127.0.0.1:9092",
                                   "tidelog consume t --from earliest --max 1 -b 127.0.0.1:9092"],
                                  str(port), tmp_path)  # fmt: skip
            broker.send_signal(signal.SIGTERM)
        _, error = broker.communicate(timeout=60)
        assert (broker.returncode == 0) is starts
        assert starts or "--insecure" in error


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_recipes_of_a_service_and_of_an_edge_box(tmp_path: Path) -> None:
    serve, service = recipe("A small service")
    _, edge = recipe("An edge box")
    assert (len(service), len(edge)) == (8, 7)
    with serving(serve, tmp_path) as port:
        output = run([*service, *edge], port, tmp_path)
    assert "allowed: " in output
    assert "telemetry.pump7" in output


@pytest.mark.slow
def test_the_recipe_of_a_container(tmp_path: Path) -> None:
    serve, client = recipe("A container")
    assert len(client) == 2
    with serving(serve, tmp_path) as port:
        run(client, port, tmp_path)


@pytest.mark.slow
def test_the_recipe_of_an_identity_provider(tmp_path: Path) -> None:
    serve, clients = recipe("Tokens of an identity provider")
    assert len(clients) == 4
    issuer = "https://identity.example.com"
    trusted = authority(tmp_path, "provider-ca")
    with identity_provider(signed(tmp_path, trusted, "provider")) as provider:
        token = provider.keys[0].token(sub="ann", iss=issuer)
        (tmp_path / "ann.token").write_text(token)
        serve = serve.replace(f"{issuer}/jwks", provider.jwks_url)
        with serving(serve, tmp_path, {"SSL_CERT_FILE": str(trusted)}) as port:
            run(clients, port, tmp_path)
