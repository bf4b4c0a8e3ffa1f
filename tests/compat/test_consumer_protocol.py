"""The consumer group protocol (KIP-848) with clients that have it: Java 4.3, 3.9, librdkafka.

The clients choose it with `group.protocol=consumer`. Java's are run as console consumers.
"""

import subprocess
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupType, Producer
from confluent_kafka.admin import AdminClient

from tests.compat import harness
from tests.compat.brokers import TidelogProcess
from tests.support import kafka_peer

pytestmark = pytest.mark.timeout(200)

WAIT_S = 40
COUNT = 100
PARTITIONS = 4
CONSOLE = "org.apache.kafka.tools.consumer.ConsoleConsumer"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker whose members notice a rebalance quickly."""
    directory = tmp_path_factory.mktemp("consumers") / "data"
    settings = {f"group.consumer.{name}heartbeat.interval.ms": "500" for name in ("min.", "")}
    with TidelogProcess(directory, settings=settings) as broker:
        yield broker.bootstrap


@pytest.fixture
def topic(address: str) -> str:
    """A topic with records in every partition."""
    name = harness.unique("consumers")
    harness.create_topic(address, name, PARTITIONS)
    producer = Producer({"bootstrap.servers": address})
    for number in range(COUNT):
        producer.produce(name, str(number), partition=number % PARTITIONS)
    assert producer.flush(20) == 0
    return name


def member(address: str, group: str, *topics: str, **settings: str) -> Consumer:
    options = {name.replace("_", "."): value for name, value in settings.items()}
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **options,
        }
    )
    consumer.subscribe(list(topics))
    return consumer


def poll_until(is_done: Callable[[], bool], *consumers: Consumer) -> list[str]:
    """Values read by the consumers until it is done."""
    values = []
    deadline = time.monotonic() + WAIT_S
    while not is_done():
        assert time.monotonic() < deadline
        for consumer in consumers:
            for message in consumer.consume(100, timeout=0.1):
                assert message.error() is None, message.error()
                values.append((message.value() or b"").decode())
    return values


def owned(consumer: Consumer) -> set[int]:
    return {each.partition for each in consumer.assignment()}


def test_librdkafka_members_share_and_take_over(address: str, topic: str) -> None:
    group = harness.unique("group")
    first = member(address, group, topic)
    values: list[str] = []
    while len(values) < COUNT:
        values += poll_until(lambda: True, first)
        values += [(m.value() or b"").decode() for m in first.consume(100, timeout=0.5)]
    assert sorted(map(int, values)) == list(range(COUNT))
    first.commit(asynchronous=False)
    second = member(address, group, topic, client_id="second")
    poll_until(lambda: len(owned(first)) == 2 and len(owned(second)) == 2, first, second)
    assert owned(first) | owned(second) == set(range(PARTITIONS))
    admin = AdminClient({"bootstrap.servers": address})
    described = admin.describe_consumer_groups([group])[group].result()
    assert described.type is ConsumerGroupType.CONSUMER
    assert described.state is ConsumerGroupState.STABLE
    assert {each.client_id for each in described.members} == {"rdkafka", "second"}
    first.close()
    assert poll_until(lambda: len(owned(second)) == PARTITIONS, second) == []
    second.close()


def test_librdkafka_reads_topics_that_match_a_pattern(address: str, topic: str) -> None:
    consumer = member(address, harness.unique("group"), f"^{topic}-.*")
    poll_until(lambda: True, consumer)
    harness.create_topic(address, f"{topic}-late", 1)
    poll_until(
        lambda: {each.topic for each in consumer.assignment()} == {f"{topic}-late"}, consumer
    )
    consumer.close()


def test_a_static_member_of_librdkafka_keeps_its_place(address: str, topic: str) -> None:
    group = harness.unique("group")
    stays = member(address, group, topic, group_instance_id="a")
    goes = member(address, group, topic, group_instance_id="b")
    poll_until(lambda: len(owned(stays)) == 2 and len(owned(goes)) == 2, stays, goes)
    kept = owned(goes)
    goes.close()
    poll_until(lambda: True, stays)
    assert len(owned(stays)) == 2
    back = member(address, group, topic, group_instance_id="b")
    poll_until(lambda: len(owned(back)) == 2, stays, back)
    assert owned(back) == kept
    stays.close()
    back.close()


@pytest.mark.parametrize(
    ("version", "flag"),
    [(kafka_peer.NEWEST, "--command-property"), ("3.9.1", "--consumer-property")],
)
def test_java_reads_all_and_its_offsets_stay(
    address: str, topic: str, version: str, flag: str
) -> None:
    group = harness.unique("java")
    options = [
        *("--bootstrap-server", address, "--topic", topic, "--group", group),
        *(flag, "group.protocol=consumer", flag, "auto.offset.reset=earliest"),
        *("--max-messages", str(COUNT), "--timeout-ms", "30000"),
    ]
    command = kafka_peer.tool_command(CONSOLE, *options, version=version, heap="128m")
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert sorted(map(int, done.stdout.split())) == list(range(COUNT)), done.stderr[-2000:]
    with_its_place = member(address, group, topic)
    poll_until(lambda: len(owned(with_its_place)) == PARTITIONS, with_its_place)
    committed = with_its_place.committed(with_its_place.assignment(), timeout=10)
    assert sum(each.offset for each in committed) == COUNT
    with_its_place.close()
