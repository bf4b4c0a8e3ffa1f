"""Whole applications on top of the broker: Kafka Streams with exactly_once_v2, Kafka Connect.

They use what no client test does together: internal topics that are created, grown and compacted,
groups of other types than "consumer", transactions with offsets, changelogs read back, admin calls
at every start. Run by `make compat`; their jars come from Maven Central.
"""

import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from tests.compat import harness
from tests.compat.brokers import TidelogProcess
from tests.support import kafka_peer, toolchains

pytestmark = pytest.mark.timeout(400)

SOURCES = Path(__file__).parent / "applications"
WAIT_S = 90
PARTITIONS = 2
HEAP = "-Xmx192m"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker of its own, as a user would start it."""
    with TidelogProcess(tmp_path_factory.mktemp("applications") / "data") as broker:
        yield broker.bootstrap


def jars(*artifacts: str) -> Path:
    """The newest release of these artifacts of Apache Kafka, and no logging."""
    coordinates = (f"org.apache.kafka:{name}:{kafka_peer.NEWEST}" for name in artifacts)
    return toolchains.maven_jars(*coordinates, "org.slf4j:slf4j-nop:1.7.36")


@contextmanager
def running(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A program that works until it is killed, as a crash would, or its input ends."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT
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
        text = f"{log.read_text(errors='replace')[-3000:]}"
        assert process.poll() is None, f"ended with {process.returncode}: {text}"
        assert time.monotonic() < deadline, f"not there after {WAIT_S} s: {text}"


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
            }
        )
        self._consumer.subscribe([topic])
        self.records: list[tuple[str | None, str]] = []

    def poll(self) -> None:
        for message in self._consumer.consume(500, timeout=0.5):
            error = message.error()
            assert error is None, error
            key, value = message.key(), message.value()
            assert isinstance(value, bytes)
            self.records.append((key.decode() if isinstance(key, bytes) else None, value.decode()))

    def close(self) -> None:
        self._consumer.close()


def write(address: str, topic: str, lines: list[str]) -> None:
    producer = Producer({"bootstrap.servers": address})
    for number, line in enumerate(lines):
        producer.produce(topic, line, partition=number % PARTITIONS)
    assert producer.flush(30) == 0


def test_streams_counts_words_exactly_once_over_a_crash(address: str, tmp_path: Path) -> None:
    streams = jars("kafka-streams")
    classes = toolchains.java_classes([SOURCES / "WordCount.java"], streams)
    source, counts = harness.unique("lines"), harness.unique("counts")
    for topic in (source, counts):
        harness.create_topic(address, topic, PARTITIONS)
    command = [
        *(toolchains.java(), HEAP, "-cp", f"{classes}:{streams}/*", "WordCount"),
        *(address, source, counts, harness.unique("app"), str(tmp_path / "state")),
    ]
    lines = [f"word{number % 7} word{number % 3} all" for number in range(400)]
    tail = Tail(address, counts)
    log = tmp_path / "streams.log"

    def newest() -> dict[str | None, int]:
        tail.poll()
        return {key: int(value) for key, value in tail.records}

    def expected(until: int) -> Counter[str]:
        return Counter(word for line in lines[:until] for word in line.split())

    write(address, source, lines[:200])
    with running(command, log) as process:
        wait_for(lambda: newest() == expected(200), process, log)
        write(address, source, lines[200:300])
        wait_for(lambda: newest().get("all", 0) > 200, process, log)
    write(address, source, lines[300:])
    with running(command, log) as process:
        wait_for(lambda: newest() == expected(400), process, log)
    tail.close()
    seen: dict[str | None, int] = {}
    for key, value in tail.records:
        assert int(value) > seen.get(key, 0), f"{key} was counted back"
        seen[key] = int(value)


def test_connect_copies_a_file_through_a_topic(address: str, tmp_path: Path) -> None:
    connect = jars("connect-runtime", "connect-file")
    topic = harness.unique("connect")
    source, sink, log = (tmp_path / name for name in ("in.txt", "out.txt", "connect.log"))
    text = "".join(f"line {number}\n" for number in range(500))
    source.write_text(text)
    properties = {
        "worker": {
            "bootstrap.servers": address,
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "offset.storage.file.filename": str(tmp_path / "offsets"),
            "offset.flush.interval.ms": "500",
            "listeners": "http://127.0.0.1:0",
        },
        "source": {
            "name": "source",
            "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
            "tasks.max": "1",
            "file": str(source),
            "topic": topic,
        },
        "sink": {
            "name": "sink",
            "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
            "tasks.max": "1",
            "file": str(sink),
            "topics": topic,
        },
    }
    files = []
    for name, settings in properties.items():
        path = tmp_path / f"{name}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        files.append(str(path))
    command = [
        *(toolchains.java(), HEAP, "-cp", f"{connect}/*"),
        *("org.apache.kafka.connect.cli.ConnectStandalone", *files),
    ]
    with running(command, log) as process:
        wait_for(lambda: _copied(sink) == text, process, log)
        with source.open("a") as file:
            file.write("one more\n")
        wait_for(lambda: _copied(sink) == f"{text}one more\n", process, log)


def _copied(path: Path) -> str:
    time.sleep(0.2)
    return path.read_text() if path.exists() else ""
