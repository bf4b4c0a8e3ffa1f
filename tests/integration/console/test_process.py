"""``tidelog console`` as a process: its URL, a live tail over HTTP, its end."""

import http.client
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from tidelog.testing import RunningBroker, running_broker


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with running_broker() as running:
        yield running


@pytest.fixture
def console(broker: RunningBroker) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process and ``host:port`` of its URL."""
    words = ["console", "--bootstrap", broker.bootstrap, "--listen", "127.0.0.1:0"]
    with subprocess.Popen(
        [sys.executable, "-m", "tidelog", *words], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        url = urlsplit(process.stdout.readline().strip())
        assert url.scheme == "http"
        yield process, url.netloc
        process.kill()


def test_it_serves_at_the_url_that_it_prints(
    console: tuple[subprocess.Popen[str], str],
) -> None:
    process, address = console
    connection = http.client.HTTPConnection(address, timeout=30)
    connection.request("GET", "/topics")
    response = connection.getresponse()
    assert response.status == 200
    assert b"/static/main.js" in response.read()
    connection.request("GET", "/static/main.js", headers={"Accept-Encoding": "gzip"})
    response = connection.getresponse()
    assert response.getheader("content-encoding") == "gzip"
    response.read()
    connection.close()
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) in (0, -signal.SIGTERM)


def test_the_tail_sends_what_is_appended(
    broker: RunningBroker, console: tuple[subprocess.Popen[str], str]
) -> None:
    broker.create_topic("live", ["before"])
    connection = http.client.HTTPConnection(console[1], timeout=30)
    connection.request("GET", "/api/topics/live/tail?f=value+~+wanted")
    response = connection.getresponse()
    assert response.getheader("content-type", "").startswith("text/event-stream")
    assert next_event(response) == ("start", {"partitions": 1, "left_out": 0})
    broker.write("live", "wanted 1", "other", "wanted 2")
    rows: list[str] = []
    while len(rows) < 2:
        name, document = next_event(response)
        assert name == "records"
        rows += [row["value"] for row in document["rows"]]
    assert rows == ["wanted 1", "wanted 2"]
    connection.close()


def next_event(response: http.client.HTTPResponse) -> tuple[str, dict]:  # type: ignore[type-arg]
    name = response.readline().decode().removeprefix("event: ").strip()
    data = response.readline().decode().removeprefix("data: ")
    assert response.readline() == b"\n"
    return name, json.loads(data)
