"""Kafka Streams with exactly_once_v2 on top of the broker.

It uses what no client test does together: internal topics that are created and compacted, a group
of type "stream", transactions with offsets, changelogs read back, admin calls at every start. Run
by `make compat`; the jars come from Maven Central.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.compat import harness
from tests.compat.brokers import TidelogProcess
from tests.compat.programs import HEAP, Tail, jars, running, wait_for
from tests.support import toolchains

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
