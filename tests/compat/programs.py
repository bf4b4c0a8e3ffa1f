"""Whole programs beside a test: started, watched, asked over HTTP, killed.

What the tests of applications share. It knows no application; the jars it finds are Apache
Kafka's, and `Tail` reads what an application has written as any consumer would.
"""

import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer

from tests.compat import harness
from tests.support import kafka_peer, toolchains

WAIT_S = 90
HTTP_TIMEOUT_S = 30
HEAP = "-Xmx192m"
_PAUSE_S = 0.1


def jars(*artifacts: str) -> Path:
    """The newest release of these artifacts of Apache Kafka, and no logging."""
    coordinates = (f"org.apache.kafka:{name}:{kafka_peer.NEWEST}" for name in artifacts)
    return toolchains.maven_jars(*coordinates, "org.slf4j:slf4j-nop:1.7.36")


@contextmanager
def running(
    command: list[str], log: Path, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A program that works until it is killed, as a crash would, or its input ends.

    `environment` None is ours.
    """
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()
            assert process.stdin is not None
            process.stdin.close()


def wait_for(is_there: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    """Come back when it is there; fail when the program ends or takes too long."""
    deadline = time.monotonic() + WAIT_S
    while not is_there():
        if process.poll() is not None or time.monotonic() > deadline:
            text = log.read_text(errors="replace")[-3000:]
            assert process.poll() is None, f"ended with {process.returncode}: {text}"
            raise AssertionError(f"not there after {WAIT_S} s: {text}")
        time.sleep(_PAUSE_S)


def ask(
    method: str, url: str, document: object = None, content_type: str = "application/json"
) -> tuple[int, Any]:
    """Status and answer of an HTTP request, JSON or text; (0, None) while no process listens."""
    body = None if document is None else json.dumps(document).encode()
    request = urllib.request.Request(url, data=body, method=method)
    request.add_header("Content-Type", content_type)
    try:
        with urllib.request.urlopen(request, timeout=HTTP_TIMEOUT_S) as response:
            return response.status, _document(response.read())
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, _document(refused.read())
    except (urllib.error.URLError, ConnectionError):
        return 0, None


def _document(text: bytes) -> Any:
    try:
        return json.loads(text) if text else None
    except json.JSONDecodeError:
        return text.decode(errors="replace")


class Tail:
    """Everything committed in a topic from its beginning, record by record."""

    def __init__(self, address: str, topic: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": harness.unique("tail"),
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "log_level": 2,
            }
        )
        self._consumer.subscribe([topic])
        self.records: list[tuple[str | None, str]] = []

    def poll(self) -> None:
        """Takes over what has arrived."""
        for message in self._consumer.consume(500, timeout=0.5):
            error = message.error()
            assert error is None, error
            key, value = message.key(), message.value()
            assert isinstance(value, bytes)
            self.records.append((key.decode() if isinstance(key, bytes) else None, value.decode()))

    def close(self) -> None:
        """Leaves the group."""
        self._consumer.close()
