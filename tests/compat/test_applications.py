"""Kafka Streams with exactly_once_v2 on top of the broker.

It uses what no client test does together: internal topics that are created and compacted, a group
of type "stream", transactions with offsets, changelogs read back, admin calls at every start. Run
by `make compat`; the jars come from Maven Central.
"""

import subprocess
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.compat import harness
from tests.compat.brokers import TidelogProcess
from tests.compat.programs import HEAP, Tail, jars, running, wait_for
from tests.compat.test_kafka_tools import STREAMS_GROUPS, run
from tests.compat.test_share_tools import DUMP
from tests.support import kafka_peer, toolchains

pytestmark = pytest.mark.timeout(400)

SOURCES = Path(__file__).parent / "applications"
PARTITIONS = 2


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker of its own, as a user would start it."""
    with TidelogProcess(tmp_path_factory.mktemp("applications") / "data") as broker:
        yield broker.bootstrap


def write(address: str, topic: str, lines: list[str]) -> None:
    producer = Producer({"bootstrap.servers": address})
    for number, line in enumerate(lines):
        producer.produce(topic, line, partition=number % PARTITIONS)
    assert producer.flush(30) == 0


@pytest.mark.parametrize("protocol", ["classic", "streams"])
def test_streams_counts_words_exactly_once_over_a_crash(
    address: str, tmp_path: Path, protocol: str
) -> None:
    streams = jars("kafka-streams")
    classes = toolchains.java_classes([SOURCES / "WordCount.java"], streams)
    source, counts = harness.unique("lines"), harness.unique("counts")
    for topic in (source, counts):
        harness.create_topic(address, topic, PARTITIONS)
    command = [
        *(toolchains.java(), HEAP, "-cp", f"{classes}:{streams}/*", "WordCount"),
        *(address, source, counts, harness.unique("app"), str(tmp_path / "state"), protocol),
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


def test_a_streams_group_survives_the_death_of_the_broker(tmp_path: Path) -> None:
    """Two instances count words while the broker is killed with SIGKILL, three times."""
    streams = jars("kafka-streams")
    classes = toolchains.java_classes([SOURCES / "WordCount.java"], streams)
    settings = {"group.streams.num.standby.replicas": "1"}
    with TidelogProcess(tmp_path / "data", settings=settings) as broker:
        broker.port = broker.ready["port"]
        address = broker.bootstrap
        for topic in ("lines", "counts"):
            harness.create_topic(address, topic, PARTITIONS)

        def command(name: str) -> list[str]:
            return [
                *(toolchains.java(), HEAP, "-cp", f"{classes}:{streams}/*", "WordCount"),
                *(address, "lines", "counts", "app", str(tmp_path / name), "streams"),
            ]

        lines = [f"word{number % 7} all" for number in range(400)]
        tail = Tail(address, "counts")

        def has(until: int) -> bool:
            tail.poll()
            newest = {key: int(value) for key, value in tail.records}
            return newest == Counter(word for line in lines[:until] for word in line.split())

        logs = tmp_path / "one.log", tmp_path / "two.log"
        with running(command("one"), logs[0]) as one, running(command("two"), logs[1]) as two:
            write(address, "lines", lines[:100])
            wait_for(lambda: has(100), one, logs[0])
            for begin in (100, 200, 300):
                write(address, "lines", lines[begin : begin + 50])
                broker.kill()
                broker.start()
                write(address, "lines", lines[begin + 50 : begin + 100])
                wait_for(partial(has, begin + 100), one, logs[0])
            assert two.poll() is None, logs[1].read_text()[-2000:]
            _show(address)
        tail.close()
    _decode(tmp_path / "data")
    seen: dict[str | None, int] = {}
    for key, value in tail.records:
        assert int(value) > seen.get(key, 0), f"{key} was counted back"
        seen[key] = int(value)


def _show(address: str) -> None:
    """Kafka's tool lists and describes the group."""
    where = ("--bootstrap-server", address)
    assert "app" in run(STREAMS_GROUPS, *where, "--list", "--state", "Stable")
    named = (*where, "--group", "app", "--describe")
    assert "Stable" in run(STREAMS_GROUPS, *named, "--state")
    members = run(STREAMS_GROUPS, *named, "--members", "--verbose")
    assert "STANDBY" in members.upper()
    offsets = run(STREAMS_GROUPS, *named)
    assert "app-KSTREAM-AGGREGATE-STATE-STORE" in offsets or "repartition" in offsets, offsets


def _decode(data: Path) -> None:
    """Kafka's tool reads the records of the group in our files."""
    files = ",".join(str(file) for file in sorted((data / "__consumer_offsets-0").glob("*.log")))
    command = kafka_peer.tool_command(DUMP, "--offsets-decoder", "--files", files)
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    for kind in (17, 19, 20, 21, 22, 23):
        assert f'{{"type":"{kind}",' in done.stdout, kind
