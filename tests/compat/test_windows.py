"""Time windows read by unmodified clients: what each gets is what a filter over everything keeps.

Every client of the matrix that knows batches without records (Fetch version 4, with which headers
came) subscribes to the name of a window, commits, ends, and continues as another process. Some of
them also read it assigned, without a group.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import pytest

from protocol.time_windows import window_name
from tests.compat import harness
from tests.compat.brokers import TidelogProcess
from tests.compat.matrix import CLIENTS, CORE, OLD_CODECS, Client
from tests.support import kafka_peer, toolchains
from tidelog.testing import Seed, running_broker

pytestmark = pytest.mark.timeout(600)

PARTITIONS = 3
COUNT = 240
ROUNDS = 2
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
    with _written(tmp_path_factory.mktemp("windows")) as found:
        assert len(found.records) == 80 * len(OLD_CODECS)
        yield found


@pytest.fixture(scope="module", params=["compacted", "cut by retention"])
def thinned(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Windowed]:
    """The same after compaction, or after retention has deleted the log's beginning.

    Each key comes twice per codec, and the last batches are in the segment that is written, which
    neither removes.
    """
    config = (
        {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
        if request.param == "compacted"
        else {"retention.bytes": "2000"}
    )
    with _written(tmp_path_factory.mktemp("thinned"), config) as found:
        assert 20 < len(found.records) < 80 * len(OLD_CODECS) * ROUNDS
        yield found


@contextmanager
def _written(folder: Path, config: Mapping[str, str] | None = None) -> Iterator[Windowed]:
    """A broker with the topic; a topic with `config` of its own has lost records to it."""
    rounds = ROUNDS if config else 1
    settings = {
        "time.windows.enable": "true",
        "log.segment.bytes": "8192" if config else "16384",
        "log.retention.ms": "-1",
        "log.retention.check.interval.ms": "500",
        "log.cleaner.backoff.ms": "500",
    }
    with TidelogProcess(folder / "data", settings=settings) as broker:
        topic = harness.unique("windowed")
        harness.create_topic(broker.bootstrap, topic, PARTITIONS, config)
        writer = next(client for client in CLIENTS if client.name == "confluent-kafka newest")
        for codec in OLD_CODECS * rounds:
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
        everything = _settled(broker.bootstrap, topic, rounds)
        yield Windowed(
            bootstrap=broker.bootstrap,
            topic=topic,
            window=window_name(topic, *SPAN_MS),
            records=[one for one in everything if SPAN_MS[0] <= one.timestamp < SPAN_MS[1]],
        )


def _settled(bootstrap: str, topic: str, rounds: int) -> list[harness.StoredRecord]:
    """The records of the topic, of which some go if they were written in several rounds."""
    found = harness.read_topic(bootstrap, topic, PARTITIONS)
    if rounds == 1:
        assert len(found) == COUNT * len(OLD_CODECS)
        return found
    deadline = time.monotonic() + READ_TIMEOUT_S
    unchanged = 0
    while unchanged < 2 or len(found) == COUNT * len(OLD_CODECS) * rounds:
        assert time.monotonic() < deadline, "nothing was compacted or deleted"
        time.sleep(3)
        before, found = found, harness.read_topic(bootstrap, topic, PARTITIONS)
        unchanged = unchanged + 1 if found == before else 0
    return found


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
    _read_in_two_parts(client, windowed)


@pytest.mark.core
@pytest.mark.parametrize(
    "client", [one for one in CLIENTS if one.name in CORE], ids=lambda one: one.name
)
def test_subscribed_after_compaction_or_retention(client: Client, thinned: Windowed) -> None:
    _read_in_two_parts(client, thinned)


def _read_in_two_parts(client: Client, windowed: Windowed) -> None:
    group = harness.unique("group")
    half = len(windowed.records) // 2
    seen = []
    for count in (half, len(windowed.records) - half):
        result = harness.run(
            client,
            "consume",
            bootstrap=windowed.bootstrap,
            topic=windowed.window,
            group=group,
            count=count,
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
    """The partitions at the same time: each reader ends only after a pause without records."""
    running = []
    for partition in range(PARTITIONS):
        command = kafka_peer.tool_command(
            CONSOLE_CONSUMER,
            *("--bootstrap-server", windowed.bootstrap, "--topic", windowed.window),
            *("--partition", str(partition), "--offset", "earliest", "--timeout-ms", "20000"),
            *("--formatter-property", "print.offset=true"),
            *("--formatter-property", "print.value=false"),
            heap="128m",
        )
        running.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    found: list[tuple[int, int]] = []
    for partition, process in enumerate(running):
        output, _ = process.communicate(timeout=180)
        lines = [line for line in output.splitlines() if line.startswith("Offset:")]
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


_PAUSED_READER = """
import json, sys
import kafka
bootstrap, topic, first = sys.argv[1:]
consumer = kafka.KafkaConsumer(
    bootstrap_servers=bootstrap, auto_offset_reset="none", consumer_timeout_ms=5000,
    max_poll_records=1, max_partition_fetch_bytes=1,
)
place = kafka.TopicPartition(topic, 0)
consumer.assign([place])
consumer.seek(place, int(first))
print(json.dumps([next(consumer).offset for _ in range(5)]), flush=True)
sys.stdin.readline()
later = [record.offset for record in consumer]
print(json.dumps([later, consumer.position(place), consumer.end_offsets([place])[place]]))
"""
"""kafka-python that may not begin again: an offset that is gone would be an error to it."""


@pytest.mark.core
def test_retention_passes_through_while_clients_read(tmp_path: Path) -> None:
    """Segments of the window go by the clock; kcat and a running kafka-python get what is left."""
    minute = 60_000
    topic = "aged"
    settings = {"time.windows.enable": "true"}
    with running_broker(tmp_path / "data", clock="settable", settings=settings) as broker:
        broker.clock.freeze(BASE_MS + 180 * minute)
        rules = {"segment.bytes": "300", "retention.ms": str(6 * 60 * minute)}
        broker.create_topic(topic, settings=rules)
        for number in range(60):
            # Every fifth record comes late, so that the window's ends are no ends of the log.
            late = 4 * minute if number % 5 == 0 else 0
            broker.write(
                topic, Seed(str(number), timestamp_ms=BASE_MS + 3 * number * minute - late)
            )
        low, high = BASE_MS + 30 * minute, BASE_MS + 150 * minute
        window = window_name(topic, low, high)

        def of_window() -> list[int]:
            """By brute force over the topic."""
            return [one.offset for one in broker.read(topic) if low <= one.timestamp_ms < high]

        def by_kcat(start: str) -> list[int]:
            kcat = toolchains.debian_program("kcat", "kcat")
            words = ["-q", "-b", broker.bootstrap, "-C", "-t", window, "-e", "-o", start]
            done = subprocess.run(
                [kcat, *words, "-f", "%o\n"],
                capture_output=True,
                check=True,
                timeout=READ_TIMEOUT_S,
            )
            return [int(line) for line in done.stdout.split()]

        before = of_window()
        assert by_kcat("beginning") == before
        words = [broker.bootstrap, window, str(before[0])]
        with subprocess.Popen(
            [sys.executable, "-c", _PAUSED_READER, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as reader:
            assert reader.stdout is not None
            assert json.loads(reader.stdout.readline()) == before[:5]
            moved = broker.clock.advance("4h30m")
            left = of_window()
            assert moved.segments_deleted > 5
            assert 5 < len(left) < len(before) - 10
            answer, _ = reader.communicate("\n", timeout=READ_TIMEOUT_S)
        later, position, end = json.loads(answer)
        # What it had fetched before is a record or two of what has gone.
        assert later[-len(left) :] == left
        assert later[: -len(left)] == before[5 : 5 + len(later) - len(left)]
        assert len(later) <= len(left) + 3
        assert position == end > left[-1]
        assert by_kcat("beginning") == left
        assert by_kcat(str(before[3])) == left, "an offset that has gone is served from the start"
