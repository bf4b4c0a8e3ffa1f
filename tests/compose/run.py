"""Runs the integration tests in containers: `make compose-test`.

Builds the broker's image and the test image, starts `docker-compose.test.yml`, runs the suite in
the test service against the broker service, then kills the broker's container under load (`docker
kill`), starts it again and checks that every acknowledged record is there. The whole dialogue is
kept in `build/compose-test.log`. Needs a Docker engine and Compose (v1.29 or v2); says so when they
are missing.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.toolchains import maven_jars

ROOT = Path(__file__).resolve().parents[2]
LOG = ROOT / "build" / "compose-test.log"
PROJECT = "tidelog-test"
KAFKA_TOOLS = ("org.apache.kafka:kafka-tools:4.3.1", "org.slf4j:slf4j-nop:1.7.36")
KILL_ROUNDS = 3


class Stage(Exception):
    """A step that failed; the message names it and the log."""


def _say(text: str) -> None:
    sys.stdout.write(f"compose-test: {text}\n")
    sys.stdout.flush()


def _run(title: str, *command: str, check: bool = True, **environment: str) -> str:
    _say(title)
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    with LOG.open("a", encoding="utf-8") as log:
        log.write(f"$ {' '.join(command)}\n{done.stdout}\n[exit {done.returncode}]\n\n")
    if check and done.returncode:
        tail = "\n".join(done.stdout.splitlines()[-40:])
        raise Stage(f"{title}: exit {done.returncode}; all of it is in {LOG}\n{tail}")
    return done.stdout


def _compose() -> list[str]:
    plugin = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False)
    if plugin.returncode == 0:
        base = ["docker", "compose"]
    elif shutil.which("docker-compose"):
        base = ["docker-compose"]
    else:
        raise Stage("Compose is not installed (Debian: apt-get install docker-compose)")
    return [*base, "-p", PROJECT, "-f", "docker-compose.test.yml"]


def _require_engine() -> None:
    if shutil.which("docker") is None:
        raise Stage("docker is not installed (Debian: apt-get install docker.io docker-compose)")
    if subprocess.run(["docker", "info"], capture_output=True, check=False).returncode:
        raise Stage("no Docker engine answers; start one, or set DOCKER_HOST")


def _build() -> None:
    # The host's network, because a build on a machine behind a proxy reaches registries only so.
    network = ("--network", "host")
    _run("build the broker's image", "docker", "build", *network, "-t", "tidelog:latest", ".")
    dockerfile = ("-f", "tests/compose/Dockerfile")
    _run(
        "build the test image",
        "docker",
        "build",
        *network,
        *dockerfile,
        "-t",
        "tidelog-test:latest",
        ".",
    )
    base = _size("python:3.11-slim-bookworm")
    ours = _size("tidelog:latest") - base
    _say(f"the image adds {ours / 1e6:.0f} MB to its base")
    if ours > 150e6:
        raise Stage("the image is more than 150 MB larger than its base")


def _size(image: str) -> int:
    return int(subprocess.check_output(["docker", "image", "inspect", "-f", "{{.Size}}", image]))


def _survives_kills(compose: list[str], jars: str) -> None:
    """Kill the broker's container under load, start it again, and count what was acknowledged."""
    for round_number in range(KILL_ROUNDS):
        name = f"crash-{round_number}"
        load = (*compose, "run", "--rm", "-T", "test", "python", "-m", "crash_load")
        process = subprocess.Popen(
            [*load, "produce", name],
            cwd=ROOT,
            env={**os.environ, "TIDELOG_TEST_JARS": jars},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("acked 2000"):
                break
        container = _run("find the broker", *compose, "ps", "-q", "broker").split()[-1]
        _run(f"docker kill, round {round_number + 1}", "docker", "kill", container)
        acked = json.loads(process.stdout.read().splitlines()[-1])["acked"]
        process.wait(60)
        _run("start the broker again", *compose, "up", "-d", "broker", TIDELOG_TEST_JARS=jars)
        output = _run("read back", *load, "check", name, str(max(acked)), TIDELOG_TEST_JARS=jars)
        found = set(json.loads(output.splitlines()[-1])["found"])
        lost = set(acked) - found
        if lost or not acked:
            raise Stage(f"{len(lost)} of {len(acked)} acknowledged records are missing")
        _say(f"killed after {len(acked)} acknowledged records: all there")


def main() -> int:
    """The whole run; 0 when everything held."""
    LOG.parent.mkdir(exist_ok=True)
    LOG.write_text("")
    compose: list[str] = []
    try:
        _require_engine()
        compose = _compose()
        jars = str(maven_jars(*KAFKA_TOOLS))
        _build()
        _run("start clean", *compose, "down", "-v", TIDELOG_TEST_JARS=jars)
        _run("start the broker", *compose, "up", "-d", "broker", TIDELOG_TEST_JARS=jars)
        suite = _run("run the suite", *compose, "run", "--rm", "-T", "test", TIDELOG_TEST_JARS=jars)
        _say(suite.splitlines()[-1])
        _survives_kills(compose, jars)
    except Stage as failure:
        _say(str(failure))
        if compose:
            _run("logs", *compose, "logs", "--no-color", "broker", check=False)
        return 1
    finally:
        if compose:
            _run("stop", *compose, "down", "-v", check=False)
    _say(f"all held; the log is {LOG.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
