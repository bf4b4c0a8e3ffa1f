"""Faults of single requests, as the clients of other projects meet them."""

import asyncio
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError, TopicAuthorizationFailedError
from confluent_kafka import KafkaError as ConfluentError
from confluent_kafka import Producer

from broker.net.dispatch import Dispatcher
from protocol.api.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.error_codes import ErrorCode
from tests.support.broker import RawClient, batch
from tidelog.testing import RunningBroker, in_process_broker, running_broker

LATE_MS = 700


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with running_broker(clock="settable") as running:
        yield running


@pytest.fixture(autouse=True)
def healed(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "broker" in request.fixturenames:
        request.getfixturevalue("broker").faults.heal()


@pytest.fixture
def topic(broker: RunningBroker, request: pytest.FixtureRequest) -> str:
    return broker.create_topic(request.node.name.replace("[", ".").replace("]", "")[-200:])


def values(broker: RunningBroker, topic: str) -> list[bytes | None]:
    return [record.value for record in broker.read(topic)]


def delivered(broker: RunningBroker, topic: str, **settings: Any) -> list[Any]:
    """The errors of one record by librdkafka: [None] when it was delivered."""
    errors: list[Any] = []
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "log_level": 0,
            "error_cb": lambda _: None,
            "reconnect.backoff.ms": 10,
            "retry.backoff.ms": 10,
            **settings,
        }
    )
    producer.produce(topic, b"v", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(60) == 0
    return errors


def test_a_producer_tries_again_after_a_change_of_leader(broker: RunningBroker, topic: str) -> None:
    broker.faults.fail("PRODUCE", "NOT_LEADER_OR_FOLLOWER", topic=topic, times=2)
    assert delivered(broker, topic) == [None]
    assert values(broker, topic) == [b"v"]
    assert broker.faults.left() == []


def test_an_error_for_good_reaches_the_caller(broker: RunningBroker, topic: str) -> None:
    broker.faults.fail("Produce", "topic_authorization_failed", topic=topic)
    (error,) = delivered(broker, topic)
    assert error.code() == ConfluentError.TOPIC_AUTHORIZATION_FAILED
    assert values(broker, topic) == []


@pytest.mark.parametrize(("is_idempotent", "stored"), [(True, 1), (False, 2)])
def test_a_lost_answer_is_a_duplicate_without_idempotence(
    broker: RunningBroker, topic: str, is_idempotent: bool, stored: int
) -> None:
    broker.faults.drop("PRODUCE", served=True, topic=topic)
    assert delivered(broker, topic, **{"enable.idempotence": is_idempotent}) == [None]
    assert len(values(broker, topic)) == stored


def test_a_connection_that_ends_before_the_request_is_served(
    broker: RunningBroker, topic: str
) -> None:
    broker.faults.drop("PRODUCE", topic=topic, times=2)
    assert delivered(broker, topic, **{"enable.idempotence": False}) == [None]
    assert values(broker, topic) == [b"v"]


async def test_aiokafka_waits_for_a_late_answer(broker: RunningBroker, topic: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
        await producer.send_and_wait(topic, b"v")
        broker.faults.delay("PRODUCE", LATE_MS, topic=topic)
        begun_s = time.monotonic()
        await producer.send_and_wait(topic, b"w")
        assert time.monotonic() - begun_s >= LATE_MS / 1000
        assert broker.faults.left() == []


async def test_aiokafka_gives_a_refusal_to_its_caller(broker: RunningBroker, topic: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
        broker.faults.fail("PRODUCE", "TOPIC_AUTHORIZATION_FAILED", topic=topic)
        with pytest.raises(TopicAuthorizationFailedError):
            await producer.send_and_wait(topic, b"lost")
        await producer.send_and_wait(topic, b"kept")
    assert values(broker, topic) == [b"kept"]


async def test_a_consumer_that_is_out_of_range_begins_again(
    broker: RunningBroker, topic: str
) -> None:
    broker.write(topic, "a", "b")
    async with AIOKafkaConsumer(
        topic, bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest"
    ) as consumer:
        seen = [(await asyncio.wait_for(consumer.getone(), 30)).offset for _ in range(2)]
        broker.faults.fail("FETCH", "OFFSET_OUT_OF_RANGE", topic=topic)
        seen += [(await asyncio.wait_for(consumer.getone(), 30)).offset for _ in range(2)]
    assert seen == [0, 1, 0, 1]


async def test_a_commit_of_one_group_fails(broker: RunningBroker, topic: str) -> None:
    broker.write(topic, "a")
    broker.faults.fail("OffsetCommit", "OFFSET_METADATA_TOO_LARGE", group="g1")
    for group, fails in (("g2", False), ("g1", True), ("g1", False)):
        async with AIOKafkaConsumer(
            topic,
            bootstrap_servers=broker.bootstrap,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        ) as consumer:
            record = await asyncio.wait_for(consumer.getone(), 30)
            commit = consumer.commit({TopicPartition(topic, 0): record.offset + 1})
            if fails:
                with pytest.raises(KafkaError):
                    await commit
                await consumer.seek_to_beginning()
            else:
                await commit
    assert broker.faults.left() == []


def test_other_topics_other_clients_and_other_requests_meet_nothing(
    broker: RunningBroker, topic: str
) -> None:
    broker.faults.fail("PRODUCE", "INVALID_RECORD", topic="another")
    broker.faults.fail("PRODUCE", "INVALID_RECORD", client_id="another")
    broker.faults.delay("END_TXN", "1m", times=None)
    assert delivered(broker, topic) == [None]
    left = broker.faults.left()
    assert [(fault.request, fault.action, fault.left, fault.met) for fault in left] == [
        ("PRODUCE", "fail", 1, 0),
        ("PRODUCE", "fail", 1, 0),
        ("END_TXN", "delay", None, 0),
    ]
    broker.faults.heal()
    assert broker.faults.left() == []


def test_a_restart_forgets_faults() -> None:
    with running_broker(clock="settable") as broker:
        broker.faults.drop("METADATA", times=None)
        broker.restart()
        assert broker.faults.left() == []
        assert broker.read(broker.create_topic("t", ["v"]))[0].value == b"v"


def test_the_commands_of_the_page_make_faults_and_heal_them(broker: RunningBroker) -> None:
    page = (Path(__file__).parents[3] / "docs" / "testing.md").read_text()
    commands = [line.strip() for line in page.splitlines() if line.startswith("    curl ")]
    port = f"127.0.0.1:{broker.metrics_port}"
    counts = []
    for command in commands:
        text = command.replace("127.0.0.1:9464", port).replace("curl ", "curl -sf ", 1)
        done = subprocess.run(["bash", "-c", text], capture_output=True, timeout=60, check=True)
        counts.append(len(json.loads(done.stdout)["faults"]))
    assert counts == [1, 2, 3, 0, 0]


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (lambda it: it.fail("PRODUCED", "NONE"), "'PRODUCED' is no API of this broker: did you"),
        (lambda it: it.fail("PRODUCE", "NOT_LEADER"), "did you mean NOT_LEADER_OR_FOLLOWER"),
        (lambda it: it.fail("PRODUCE", "NONE"), "error=NONE is no error of Kafka's protocol"),
        (lambda it: it.fail("DESCRIBE_CONFIGS", "INVALID_RECORD"), "delay or drop it"),
        (lambda it: it.delay("FETCH", "0s"), "delay_ms=0 is not a number from 1 to 600000"),
        (lambda it: it.delay("FETCH", "11m"), "delay_ms=660000 is not a number from 1 to 600000"),
        (lambda it: it.drop("FETCH", times=0), "times=0 is not a number from 1 to 1000000, or all"),
        (lambda it: it.drop("HEARTBEAT", topic="t"), "HEARTBEAT cannot depend on a topic"),
        (lambda it: it.drop("PRODUCE", group="g"), "PRODUCE is no request of a group"),
    ],
)
def test_what_cannot_be_is_refused(broker: RunningBroker, command: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        command(broker.faults)
    assert broker.faults.left() == []


def test_a_broker_of_production_takes_no_faults() -> None:
    with (
        running_broker() as broker,
        pytest.raises(ValueError, match=r'start it with running_broker\(clock="settable"\)'),
    ):
        broker.faults.drop("PRODUCE")


def produce_to(*topics: str, acks: int = -1) -> ProduceRequest:
    parts = [PartitionProduceData(index=0, records=batch("v"))]
    return ProduceRequest(
        acks=acks,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name=name, partition_data=parts) for name in topics],
    )


async def test_only_the_topic_of_a_fault_is_refused() -> None:
    async with in_process_broker() as broker:
        for name in ("a", "b"):
            await broker.create_topic(name)
        broker.faults.fail("PRODUCE", "NOT_ENOUGH_REPLICAS", topic="b")
        host, _, port = broker.bootstrap.rpartition(":")
        client = await RawClient.connect(host, int(port))
        answer = await client.request(produce_to("a", "b"), 9)
        found = {it.name: it.partition_responses[0].error_code for it in answer.responses}
        assert found == {"a": ErrorCode.NONE, "b": ErrorCode.NOT_ENOUGH_REPLICAS}
        assert [len(await broker.read(name)) for name in ("a", "b")] == [1, 0]
        for is_served in (False, True):
            if is_served:
                broker.faults.drop("PRODUCE", served=True)
            else:
                broker.faults.fail("PRODUCE", "NOT_ENOUGH_REPLICAS")
            await client.close()
            client = await RawClient.connect(host, int(port))
            client.send(produce_to("a", acks=0), 9)
            assert await client.is_closed_by_broker()
            assert broker.faults.left() == []
        await client.close()


async def test_a_fetch_session_goes_on_after_an_error() -> None:
    """Java names its partitions once; the later fetches of its session name none."""
    async with in_process_broker() as broker:
        await broker.create_topic("a", ["v"])
        host, _, port = broker.bootstrap.rpartition(":")
        client = await RawClient.connect(host, int(port))

        async def fetched(session_id: int, epoch: int, offset: int | None) -> Any:
            parts = [
                FetchPartition(partition=0, fetch_offset=offset or 0, partition_max_bytes=1000)
            ]
            topics = [] if offset is None else [FetchTopic(topic="a", partitions=parts)]
            request = FetchRequest(session_id=session_id, session_epoch=epoch, topics=topics)
            request.max_wait_ms = 20_000 if epoch == 1 else 0
            answer = await client.request(request, 12)
            assert answer.error_code == 0
            return answer

        session_id = (await fetched(0, 0, 1)).session_id
        broker.faults.fail("FETCH", "NOT_LEADER_OR_FOLLOWER", topic="a")
        answer = await fetched(session_id, 1, None)
        found = [(it.topic, it.partitions[0].error_code) for it in answer.responses]
        assert found == [("a", ErrorCode.NOT_LEADER_OR_FOLLOWER)]
        answer = await fetched(session_id, 2, 0)
        assert [len(it.partitions[0].records) > 0 for it in answer.responses] == [True]
        await client.close()


async def test_requests_take_the_lane_while_there_are_no_faults(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only while there are some does a usual Produce pass the dispatcher, where faults are met."""
    seen = []
    dispatch = Dispatcher.dispatch

    def counted(self: Dispatcher, frame: Any, requester: Any) -> Any:
        seen.append(int.from_bytes(frame[:2], "big"))
        return dispatch(self, frame, requester)

    monkeypatch.setattr(Dispatcher, "dispatch", counted)
    async with in_process_broker() as broker:
        await broker.create_topic("a")
        host, _, port = broker.bootstrap.rpartition(":")
        client = await RawClient.connect(host, int(port))

        async def error_code() -> int:
            seen.clear()
            answer = await client.request(produce_to("a"), 9)
            return int(answer.responses[0].partition_responses[0].error_code)

        await error_code()
        assert (await error_code(), seen) == (0, [])
        broker.faults.fail("PRODUCE", "NOT_ENOUGH_REPLICAS", topic="a")
        assert (await error_code(), seen) == (ErrorCode.NOT_ENOUGH_REPLICAS, [0])
        assert (await error_code(), seen) == (0, [])
        broker.faults.drop("END_TXN")
        assert (await error_code(), seen) == (0, [0])
        broker.faults.heal()
        assert (await error_code(), seen) == (0, [])
        await client.close()
