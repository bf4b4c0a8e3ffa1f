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

from client.admin import Admin
from client.types import TopicPartition
from tidelog.testing import RunningBroker, Seed, running_broker
from tidelog.testing.topics import run


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


def test_an_address_that_is_taken_is_named(console: tuple[subprocess.Popen[str], str]) -> None:
    _, address = console
    words = ["console", "--listen", address]
    done = subprocess.run(
        [sys.executable, "-m", "tidelog", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    assert f"--listen {address} is not possible: Address already in use; give" in done.stderr


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
        assert next_event(response) == (
            "start",
            {"partitions": 1, "left_out": 0, "cursor": {"0": 1}},
        )
        broker.write("live", "wanted 1", "other", "wanted 2")
        rows: list[str] = []
        while len(rows) < 2:
            name, document = next_event(response)
            assert name == "records"
            rows += [row["value"] for row in document["rows"]]
        assert rows == ["wanted 1", "wanted 2"]


def next_event(response: http.client.HTTPResponse) -> tuple[str, dict]:  # type: ignore[type-arg]
    """The next event; comments before it are passed, as a browser does."""
    while (line := response.readline()) == b":\n":
        assert response.readline() == b"\n"
    name = line.decode().removeprefix("event: ").strip()
    data = response.readline().decode().removeprefix("data: ")
    assert response.readline() == b"\n"
    return name, json.loads(data)


@pytest.mark.parametrize(
    ("question", "word"),
    [
        ("live/tail?f=(((", "the filter ends"),
        ("live/tail?cursor=x", "cursor=x"),
        ("live/tail?p=7", "has no partition 7: it has 0 to 0"),
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


def test_a_tail_has_its_place_before_the_first_record(
    broker: RunningBroker, console: tuple[subprocess.Popen[str], str]
) -> None:
    """A tail that ends at once continues with what came in between."""
    broker.create_topic("quiet", ["old"])
    with asked(console[1], "quiet/tail") as response:
        name, document = next_event(response)
    assert name == "start"
    broker.write("quiet", "meanwhile")
    cursor = ",".join(f"{number}:{offset}" for number, offset in document["cursor"].items())
    assert values_of(console[1], f"quiet/tail?cursor={cursor}", 1) == ["meanwhile"]


def test_only_what_is_deleted_is_passed(
    broker: RunningBroker, console: tuple[subprocess.Popen[str], str]
) -> None:
    """A partition that lost its first records moves, the others stay where they were."""
    broker.create_topic("cut", partitions=2)
    both = [Seed(str(n), partition=partition) for partition in (0, 1) for n in range(3)]
    broker.write("cut", *both)
    run(lambda: delete_records(broker, {TopicPartition("cut", 0): 2}))
    with asked(console[1], "cut/tail?cursor=0:0,1:0") as response:
        assert next_event(response)[0] == "start"
        name, document = next_event(response)
        assert (name, document) == ("gap", {"passed": 2, "cursor": {"0": 2, "1": 0}})
    assert values_of(console[1], "cut/tail?cursor=0:0,1:0", 4) == ["0", "1", "2", "2"]


def test_a_partition_younger_than_the_cursor_is_read_from_its_start(
    broker: RunningBroker, console: tuple[subprocess.Popen[str], str]
) -> None:
    broker.create_topic("wider", partitions=2)
    broker.write("wider", Seed("first", partition=0), Seed("new", partition=1))
    assert values_of(console[1], "wider/tail?cursor=0:1", 1) == ["new"]


async def delete_records(broker: RunningBroker, before: dict[TopicPartition, int]) -> None:
    async with Admin(broker.bootstrap) as admin:
        await admin.delete_records(before)


def values_of(address: str, question: str, count: int) -> list[str]:
    """The values of the first records of a tail, sorted."""
    values: list[str] = []
    with asked(address, question) as response:
        while len(values) < count:
            name, document = next_event(response)
            assert name != "failed", document
            values += [row["value"] for row in document.get("rows", ())]
    return sorted(values)


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
