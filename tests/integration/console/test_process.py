"""``tidelog console`` as a process: its URL, a live tail over HTTP, its end."""

import http.client
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from urllib.parse import urlsplit

import pytest

from tidelog.testing import RunningBroker, running_broker


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with running_broker() as running:
        yield running


@pytest.fixture(scope="module")
def live(broker: RunningBroker) -> str:
    """A topic to follow."""
    broker.create_topic("live", ["before"])
    return "live"


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
    connection = http.client.HTTPConnection(address, timeout=60)
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
    broker: RunningBroker, live: str, console: tuple[subprocess.Popen[str], str]
) -> None:
    with asked(console[1], f"{live}/tail?f=value+~+wanted") as response:
        assert response.getheader("content-type", "").startswith("text/event-stream")
        assert next_event(response) == ("start", {"partitions": 1, "left_out": 0})
        broker.write("live", "wanted 1", "other", "wanted 2")
        rows: list[str] = []
        while len(rows) < 2:
            name, document = next_event(response)
            assert name == "records"
            rows += [row["value"] for row in document["rows"]]
        assert rows == ["wanted 1", "wanted 2"]


def next_event(response: http.client.HTTPResponse) -> tuple[str, dict]:  # type: ignore[type-arg]
    name = response.readline().decode().removeprefix("event: ").strip()
    data = response.readline().decode().removeprefix("data: ")
    assert response.readline() == b"\n"
    return name, json.loads(data)


@pytest.mark.parametrize(
    ("question", "word"),
    [
        ("live/tail?f=(((", "the filter ends"),
        ("live/tail?cursor=x", "cursor=x"),
        ("live/tail?p=7", "has none of these partitions"),
        ("missing/tail", "missing"),
    ],
)
def test_a_tail_that_cannot_begin_says_why_and_that_another_try_is_vain(
    console: tuple[subprocess.Popen[str], str], live: str, question: str, word: str
) -> None:
    with asked(console[1], question) as response:
        name, document = next_event(response)
        assert (name, document["again"]) == ("failed", False)
        assert word in document["error"]
        assert response.read() == b""


def test_a_tail_continues_at_its_cursor(
    broker: RunningBroker, console: tuple[subprocess.Popen[str], str]
) -> None:
    broker.create_topic("continued", ["a", "b", "c"])
    with asked(console[1], "continued/tail?cursor=0:1") as response:
        assert next_event(response)[0] == "start"
        name, document = next_event(response)
        assert name == "records"
        assert [row["value"] for row in document["rows"]] == ["b", "c"]
        assert document["cursor"] == {"0": 3}
    # Beyond the end, where a log that was lost and made again may be, it begins at the end.
    with asked(console[1], "continued/tail?cursor=0:999") as response:
        assert next_event(response)[0] == "start"
        assert next_event(response) == ("records", {"rows": [], "skipped": 0, "cursor": {"0": 3}})


def test_a_tail_without_a_broker_asks_for_another_try() -> None:
    words = ["console", "--bootstrap", "127.0.0.1:1", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(
        [sys.executable, "-m", "tidelog", *words], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        address = urlsplit(process.stdout.readline().strip()).netloc
        with asked(address, "live/tail") as response:
            name, document = next_event(response)
        process.kill()
    assert (name, document["again"]) == ("failed", True)
    assert "cannot connect to 127.0.0.1:1" in document["error"]


@contextmanager
def asked(address: str, question: str) -> Iterator[http.client.HTTPResponse]:
    """The answer to a question about a topic, whose events are still to come."""
    connection = http.client.HTTPConnection(address, timeout=60)
    with closing(connection):
        connection.request("GET", f"/api/topics/{question}")
        with connection.getresponse() as response:
            assert response.status == 200
            yield response
