"""Every worker is a broker: any of them introduces clients to all, and each serves its own part."""

import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from protocol.api.describe_log_dirs import DescribeLogDirsRequest
from protocol.api.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.api.find_coordinator import FindCoordinatorRequest
from protocol.api.list_groups import ListGroupsRequest
from protocol.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.error_codes import ErrorCode
from tests.integration.workers.support import connect, leaders_of, metadata_of, wait_until
from tests.support.broker import BrokerProcess, batch, broker_process
from tests.support.requests import create_topic, fetch, list_offset, produce, values_of

PARTITIONS = 4


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    directory: Path = tmp_path_factory.mktemp("workers") / "data"
    settings = {"workers": "2", "num_partitions": "4", "metrics_listener": "127.0.0.1:0"}
    with broker_process(directory, **settings) as process:
        yield process


async def test_both_workers_give_the_same_metadata(broker: BrokerProcess) -> None:
    first, second = [await connect(port) for port in broker.ports]
    await create_topic(first, "same", PARTITIONS)
    answers = [await metadata_of(client, "same") for client in (first, second)]
    assert answers[0] == answers[1]
    assert [(one.node_id, one.port) for one in answers[0].brokers] == [
        (1, broker.ports[0]),
        (2, broker.ports[1]),
    ]
    assert answers[0].controller_id == 1
    assert set((await leaders_of(second, "same")).values()) == {1, 2}
    await first.close()
    await second.close()


async def test_a_refusal_names_the_current_leader(broker: BrokerProcess) -> None:
    """KIP-951: Produce from version 10 on, Fetch from version 16 on; before them nothing."""
    clients = {number: await connect(port) for number, port in enumerate(broker.ports, start=1)}
    topic_id = await create_topic(clients[1], "moved", PARTITIONS)
    leaders = {leader: index for index, leader in (await leaders_of(clients[1], "moved")).items()}
    for asked, leader in ((1, 2), (2, 1)):
        for message, versions in _to_one(topic_id, leaders[leader]):
            for version in versions:
                answer = await clients[asked].request(message, version)
                (found,) = answer.responses
                (refused,) = getattr(found, "partition_responses", None) or found.partitions
                where = (type(message).__name__, version, asked)
                assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER, where
                nodes = [(one.node_id, one.host, one.port) for one in answer.node_endpoints]
                if version == versions[0]:
                    assert (refused.current_leader, nodes) == (None, []), where
                    continue
                assert refused.current_leader.leader_id == leader, where
                if asked == 1:  # the other one knows no addresses, and says so
                    assert nodes == [(leader, "127.0.0.1", broker.ports[leader - 1])], where
                    assert refused.current_leader.leader_epoch >= 0, where
                else:
                    assert (refused.current_leader.leader_epoch, nodes) == (-1, []), where
    for client in clients.values():
        await client.close()


def _to_one(topic_id: bytes, partition: int) -> list[tuple[Any, range]]:
    """A Produce and a Fetch of one partition, and the versions to ask in."""
    data = PartitionProduceData(index=partition, records=batch("x"))
    topic = TopicProduceData(name="moved", topic_id=topic_id, partition_data=[data])
    produced = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[topic])
    part = FetchPartition(partition=partition, partition_max_bytes=1 << 20)
    wanted = FetchTopic(topic="moved", topic_id=topic_id, partitions=[part])
    fetched = FetchRequest(max_bytes=1 << 20, topics=[wanted])
    return [(produced, range(9, 14)), (fetched, range(15, 19))]


async def test_each_worker_serves_its_partitions_only(broker: BrokerProcess) -> None:
    clients = {number: await connect(port) for number, port in enumerate(broker.ports, start=1)}
    await create_topic(clients[2], "own", PARTITIONS)
    for partition, leader in (await leaders_of(clients[1], "own")).items():
        for number, client in clients.items():
            answer = await produce(client, "own", batch(f"{partition}"), partition=partition)
            expected = ErrorCode.NONE if number == leader else ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert answer.error_code == expected
        found = await fetch(clients[leader], "own", {partition: 0})
        assert values_of(found) == [str(partition).encode()]
        assert (await list_offset(clients[leader], "own", -1, partition=partition)).offset == 1
    for client in clients.values():
        await client.close()


async def test_a_topic_is_known_everywhere_when_its_creation_is_answered(
    broker: BrokerProcess,
) -> None:
    first, second = [await connect(port) for port in broker.ports]
    for number in range(20):
        name = f"known-{number}"
        await create_topic(first if number % 2 else second, name, 2)
        for partition, leader in (await leaders_of(first, name)).items():
            client = first if leader == 1 else second
            answer = await produce(client, name, batch("x"), partition=partition)
            assert answer.error_code == ErrorCode.NONE
    await first.close()
    await second.close()


async def test_worker_1_coordinates_and_the_others_say_so(broker: BrokerProcess) -> None:
    second = await connect(broker.ports[1])
    found = await second.request(FindCoordinatorRequest(key="g"), 3)
    assert (found.error_code, found.node_id, found.port) == (0, 1, broker.ports[0])
    groups = await second.request(ListGroupsRequest(), 4)
    assert (groups.error_code, groups.groups) == (ErrorCode.NONE, [])
    await create_topic(second, "dirs", PARTITIONS)
    (found,) = (await second.request(DescribeLogDirsRequest(topics=None), 4)).results
    kept = {topic.name: {one.partition_index for one in topic.partitions} for topic in found.topics}
    leaders = await leaders_of(second, "dirs")
    assert kept["dirs"] == {partition for partition, leader in leaders.items() if leader == 2}
    await second.close()


@pytest.mark.parametrize("bootstrap", [0, 1])
def test_librdkafka_produces_and_reads_in_a_group(broker: BrokerProcess, bootstrap: int) -> None:
    servers, topic = f"127.0.0.1:{broker.ports[bootstrap]}", f"librdkafka-{bootstrap}"
    settings = {"bootstrap.servers": servers, "enable.idempotence": True}
    admin = AdminClient({"bootstrap.servers": servers})
    new = NewTopic(topic, PARTITIONS, 1)
    admin.create_topics([new])[topic].result(30)
    producer = Producer(settings)
    wanted = {f"{number}".encode() for number in range(400)}
    for number, value in enumerate(sorted(wanted)):
        producer.produce(topic, value, partition=number % PARTITIONS)
    assert producer.flush(30) == 0
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    found: list[bytes] = []
    while len(found) < len(wanted):
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        found.append(message.value() or b"")
    consumer.commit(asynchronous=False)
    assert sorted(found) == sorted(wanted)
    consumer.close()
    producer.produce(topic, b"one more", partition=0)
    producer.produce(topic, b"one more", partition=1)
    assert producer.flush(30) == 0
    wait_until(lambda: _lags(broker, topic) == {"0": 1, "1": 1, "2": 0, "3": 0})


def _lags(broker: BrokerProcess, group: str) -> dict[str, int]:
    """The lag of a group by partition, as worker 1 shows it."""
    with urllib.request.urlopen(f"http://127.0.0.1:{broker.metrics_port}/metrics") as answer:
        text = answer.read().decode()
    pattern = rf'tidelog_group_lag_records{{group="{group}",partition="(\d+)",topic="[^"]*"}} (\d+)'
    return {partition: int(lag) for partition, lag in re.findall(pattern, text)}


@pytest.mark.parametrize("bootstrap", [0, 1])
async def test_aiokafka_creates_a_topic_by_writing_to_it(
    broker: BrokerProcess, bootstrap: int
) -> None:
    servers, topic = f"127.0.0.1:{broker.ports[bootstrap]}", f"aiokafka-{bootstrap}"
    async with AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True) as producer:
        for number in range(50):
            await producer.send_and_wait(topic, f"{number}".encode(), key=f"{number}".encode())
    consumer = AIOKafkaConsumer(
        topic, bootstrap_servers=servers, group_id=topic, auto_offset_reset="earliest"
    )
    async with consumer:
        found = [int((await consumer.getone()).value) for _ in range(50)]
        await consumer.commit()
    assert sorted(found) == list(range(50))
