"""Time windows read by unmodified clients: what each gets is what a filter over everything keeps.

Every client of the matrix that knows batches without records (Fetch version 4, with which headers
came) subscribes to the name of a window, commits, ends, and continues as another process. Some of
them also read it assigned, without a group.
"""

import asyncio
import json
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import aiokafka
import confluent_kafka
import pytest

from protocol.time_windows import window_name
from tests.compat import harness
from tests.compat.brokers import TidelogProcess
from tests.compat.matrix import CLIENTS, CORE, OLD_CODECS, Client
from tests.support import kafka_peer, toolchains

pytestmark = pytest.mark.timeout(600)

PARTITIONS = 3
COUNT = 240
BASE_MS = 1_793_527_200_000
SPAN_MS = (BASE_MS + 80_000, BASE_MS + 160_000)
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
READ_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Windowed:
    """A topic of disordered records in batches of all codecs, a window of it, and its records."""

    bootstrap: str
    topic: str
    window: str
    records: list[harness.StoredRecord]

    def pairs(self) -> list[tuple[int, int]]:
        return [(record.partition, record.offset) for record in self.records]


@pytest.fixture(scope="module")
def windowed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Windowed]:
    """A quarter of the records per codec: every batch lies across an edge of the window."""
    folder = tmp_path_factory.mktemp("windows")
    settings = {
        "time.windows.enable": "true",
        "log.segment.bytes": "16384",
        "log.retention.ms": "-1",
    }
    with TidelogProcess(folder / "data", settings=settings) as broker:
        topic = harness.unique("windowed")
        harness.create_topic(broker.bootstrap, topic, PARTITIONS)
        writer = next(client for client in CLIENTS if client.name == "confluent-kafka newest")
        for codec in OLD_CODECS:
            harness.run(
                writer,
                "produce",
                bootstrap=broker.bootstrap,
                topic=topic,
                count=COUNT,
                partitions=PARTITIONS,
                codec=codec,
                base=BASE_MS,
            )
        everything = harness.read_topic(broker.bootstrap, topic, PARTITIONS)
        assert len(everything) == COUNT * len(OLD_CODECS)
        kept = [record for record in everything if SPAN_MS[0] <= record.timestamp < SPAN_MS[1]]
        assert len(kept) == 80 * len(OLD_CODECS)
        yield Windowed(
            bootstrap=broker.bootstrap,
            topic=topic,
            window=window_name(topic, *SPAN_MS),
            records=kept,
        )


def _clients() -> list[object]:
    return [
        pytest.param(
            client, id=client.name, marks=[pytest.mark.core] if client.name in CORE else []
        )
        for client in CLIENTS
        if "consume" in client.scenarios and client.headers and set(OLD_CODECS) <= {*client.codecs}
    ]


@pytest.mark.parametrize("client", _clients())
def test_subscribed(client: Client, windowed: Windowed) -> None:
    """Half of the window, a commit, and a second process that reads the rest."""
    group = harness.unique("group")
    seen = []
    for _ in range(2):
        result = harness.run(
            client,
            "consume",
            bootstrap=windowed.bootstrap,
            topic=windowed.window,
            group=group,
            count=len(windowed.records) // 2,
        )
        seen += result["records"]
    expected = [
        [r.partition, r.offset, r.timestamp if client.reads_timestamps else None, r.key, r.value]
        for r in windowed.records
    ]
    assert sorted(seen, key=lambda record: record[:2]) == expected


def _by_aiokafka(windowed: Windowed) -> list[tuple[int, int]]:
    async def read() -> list[tuple[int, int]]:
        async with aiokafka.AIOKafkaConsumer(
            bootstrap_servers=windowed.bootstrap, auto_offset_reset="earliest"
        ) as consumer:
            places = [aiokafka.TopicPartition(windowed.window, p) for p in range(PARTITIONS)]
            consumer.assign(places)
            ends = await consumer.end_offsets(places)
            found = []
            async with asyncio.timeout(READ_TIMEOUT_S):
                for place in places:
                    while await consumer.position(place) < ends[place]:
                        batches = await consumer.getmany(timeout_ms=200)
                        found += [(r.partition, r.offset) for rs in batches.values() for r in rs]
            return found

    return asyncio.run(read())


_KAFKA_PYTHON = """
import json, sys
import kafka
bootstrap, topic, partitions = sys.argv[1:]
consumer = kafka.KafkaConsumer(
    bootstrap_servers=bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=5000
)
places = [kafka.TopicPartition(topic, p) for p in range(int(partitions))]
consumer.assign(places)
found = [(record.partition, record.offset) for record in consumer]
ends = consumer.end_offsets(places)
assert [consumer.position(place) for place in places] == [ends[place] for place in places]
consumer.close()
print(json.dumps(found))
"""


def _by_kafka_python(windowed: Windowed) -> list[tuple[int, int]]:
    """Under the interpreter that has its codecs."""
    client = next(client for client in CLIENTS if client.name == "kafka-python 3")
    command = [client.command()[0], "-c", _KAFKA_PYTHON]
    done = subprocess.run(
        [*command, windowed.bootstrap, windowed.window, str(PARTITIONS)],
        capture_output=True,
        check=True,
        timeout=READ_TIMEOUT_S,
    )
    return [tuple(place) for place in json.loads(done.stdout)]


def _by_librdkafka(windowed: Windowed) -> list[tuple[int, int]]:
    records = harness.read_topic(windowed.bootstrap, windowed.window, PARTITIONS)
    assert records == windowed.records
    return [(record.partition, record.offset) for record in records]


def _by_kcat(windowed: Windowed) -> list[tuple[int, int]]:
    kcat = toolchains.debian_program("kcat", "kcat")
    command = [kcat, "-q", "-b", windowed.bootstrap, "-C", "-t", windowed.window, "-e"]
    output = subprocess.run(
        [*command, "-o", "beginning", "-f", "[%p,%o]\n"],
        capture_output=True,
        check=True,
        timeout=READ_TIMEOUT_S,
    ).stdout
    return [tuple(json.loads(line)) for line in output.splitlines()]


def _by_console_consumer(windowed: Windowed) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for partition in range(PARTITIONS):
        command = kafka_peer.tool_command(
            CONSOLE_CONSUMER,
            *("--bootstrap-server", windowed.bootstrap, "--topic", windowed.window),
            *("--partition", str(partition), "--offset", "earliest", "--timeout-ms", "5000"),
            *(
                "--formatter-property",
                "print.offset=true",
                "--formatter-property",
                "print.value=false",
            ),
            heap="128m",
        )
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        lines = [line for line in done.stdout.splitlines() if line.startswith("Offset:")]
        found += [(partition, int(line.removeprefix("Offset:").split()[0])) for line in lines]
    return found


@pytest.mark.parametrize(
    "read",
    [_by_aiokafka, _by_kafka_python, _by_librdkafka, _by_kcat, _by_console_consumer],
    ids=lambda read: read.__name__.removeprefix("_by_"),
)
def test_assigned(read: Callable[[Windowed], list[tuple[int, int]]], windowed: Windowed) -> None:
    assert sorted(read(windowed)) == windowed.pairs()


def _consumer(windowed: Windowed, group: str) -> Any:
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": windowed.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )


def test_lag_is_counted_to_the_end_of_the_window(windowed: Windowed) -> None:
    consumer = _consumer(windowed, harness.unique("group"))
    place = confluent_kafka.TopicPartition(windowed.window, 0)
    low, high = consumer.get_watermark_offsets(place, timeout=20)
    offsets = [record.offset for record in windowed.records if record.partition == 0]
    assert low == offsets[0]
    assert offsets[-1] < high
    consumer.commit(
        offsets=[confluent_kafka.TopicPartition(windowed.window, 0, high)], asynchronous=False
    )
    (committed,) = consumer.committed([place], timeout=20)
    assert committed.offset == high
    # The topic's own offsets are untouched.
    (of_topic,) = consumer.committed(
        [confluent_kafka.TopicPartition(windowed.topic, 0)], timeout=20
    )
    assert of_topic.offset == confluent_kafka.OFFSET_INVALID
    consumer.close()


def test_a_pattern_means_topics_only(windowed: Windowed) -> None:
    """A subscriber by pattern would read twice if it got windows."""
    consumer = _consumer(windowed, harness.unique("group"))
    consumer.subscribe([f"^{windowed.topic}.*"])
    topics = set()
    count = 0
    while count < COUNT * len(OLD_CODECS):
        message = consumer.poll(READ_TIMEOUT_S)
        assert message is not None, f"{count} records came"
        assert message.error() is None
        topics.add(message.topic())
        count += 1
    consumer.close()
    assert topics == {windowed.topic}


def test_produce_is_refused_at_once(windowed: Windowed) -> None:
    refusals: list[Any] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": windowed.bootstrap})
    producer.produce(windowed.window, b"x", on_delivery=lambda error, _: refusals.append(error))
    assert producer.flush(20) == 0
    assert [error.code() for error in refusals] == [confluent_kafka.KafkaError.TOPIC_EXCEPTION]
