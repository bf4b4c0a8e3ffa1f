"""Unmodified clients against a running broker; the full matrix of them is tests/compat."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.broker import broker_process

confluent_kafka = pytest.importorskip("confluent_kafka")
kafka = pytest.importorskip("kafka")

RECORDS = 500


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory: Path = tmp_path_factory.mktemp("data")
    with broker_process(directory, num_partitions="2") as broker:
        yield f"127.0.0.1:{broker.port}"


def produce_with_librdkafka(bootstrap: str, topic: str, **settings: object) -> None:
    failures: list[object] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, **settings})
    for index in range(RECORDS):
        producer.produce(
            topic,
            key=str(index),
            value=f"v{index}",
            timestamp=1_000_000 + index,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert producer.flush(20) == 0
    assert failures == []


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_librdkafka_consumes_what_it_produced(bootstrap: str, codec: str) -> None:
    topic = f"rd-{codec}"
    produce_with_librdkafka(bootstrap, topic, **{"compression.type": codec})
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"group-{codec}",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    values: set[bytes] = set()
    deadline = time.monotonic() + 30
    while len(values) < RECORDS and time.monotonic() < deadline:
        for message in consumer.consume(100, 0.5):
            assert message.error() is None
            values.add(message.value())
    consumer.commit(asynchronous=False)
    consumer.close()
    assert values == {f"v{index}".encode() for index in range(RECORDS)}


def test_librdkafka_is_idempotent(bootstrap: str) -> None:
    produce_with_librdkafka(bootstrap, "idempotent", **{"enable.idempotence": True})


def test_librdkafka_finds_offsets_by_time(bootstrap: str) -> None:
    produce_with_librdkafka(bootstrap, "by-time")
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "lookup"})
    asked = [
        confluent_kafka.TopicPartition("by-time", partition, 1_000_250) for partition in (0, 1)
    ]
    for found in consumer.offsets_for_times(asked, timeout=10):
        consumer.assign([found])
        message = consumer.poll(10)
        assert message is not None
        assert message.timestamp()[1] >= 1_000_250
    consumer.close()


def test_kafka_python_consumes_what_it_produced(bootstrap: str) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap)
    for index in range(RECORDS):
        producer.send("py", value=f"v{index}".encode())
    producer.flush(20)
    producer.close()
    consumer = kafka.KafkaConsumer(
        "py",
        bootstrap_servers=bootstrap,
        group_id="py",
        auto_offset_reset="earliest",
        consumer_timeout_ms=10_000,
    )
    values = set()
    for message in consumer:
        values.add(message.value)
        if len(values) == RECORDS:
            break
    consumer.close()
    assert len(values) == RECORDS


def test_admin_makes_and_deletes_topics(bootstrap: str) -> None:
    from confluent_kafka import admin as confluent_admin

    admin = confluent_admin.AdminClient({"bootstrap.servers": bootstrap})
    made = [confluent_admin.NewTopic("made", 3, 1)]  # type: ignore[attr-defined]
    for future in admin.create_topics(made).values():
        future.result(10)
    assert len(admin.list_topics("made", 10).topics["made"].partitions) == 3
    for future in admin.delete_topics(["made"]).values():
        future.result(10)
