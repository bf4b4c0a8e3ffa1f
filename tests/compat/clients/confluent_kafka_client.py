"""librdkafka through confluent-kafka, any version from 0.11.6 on (see README.md)."""

# mypy: ignore-errors
# It runs under other interpreters and with other releases of its library than mypy sees.

from __future__ import annotations

import os
import sys
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from contract import Arguments, emit, main, text, wants_more


def produce(arguments: Arguments) -> None:
    producer = Producer(
        {
            "bootstrap.servers": arguments["bootstrap"],
            "compression.codec": arguments.codec,
            "linger.ms": 20,
            "request.required.acks": -1,
            **arguments.librdkafka_security,
            **arguments.librdkafka_token,
        }
    )
    failures = []
    delivered = []

    def on_delivery(error: object, message: object) -> None:
        (failures if error else delivered).append(error or message)

    for i in range(arguments.count):
        partition, timestamp, key, value, headers = arguments.record(i)
        producer.produce(
            arguments["topic"],
            value,
            key,
            partition=partition,
            timestamp=timestamp,
            headers=headers,
            on_delivery=on_delivery,
        )
    left = producer.flush(arguments.timeout_s)
    if failures or left:
        sys.exit(f"delivery failed: {failures[0] if failures else left}")
    emit(acked=len(delivered))


def _consumer(arguments: Arguments) -> Consumer:
    config = {
        "bootstrap.servers": arguments["bootstrap"],
        "group.id": arguments.get("group", "times"),
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": 6000,
        **arguments.librdkafka_security,
        **arguments.librdkafka_token,
    }
    if "isolation" in arguments:
        config["isolation.level"] = arguments["isolation"]
    if "protocol" in arguments:
        config["group.protocol"] = arguments["protocol"]
        del config["session.timeout.ms"]
    return Consumer(config)


def consume(arguments: Arguments) -> None:
    consumer = _consumer(arguments)
    records = []
    positions = {}

    def on_assign(_: object, partitions: list) -> None:
        emit(assigned=sorted(part.partition for part in partitions))

    consumer.subscribe([arguments["topic"]], on_assign=on_assign)
    started = time.monotonic()
    while wants_more(arguments, len(records), started):
        message = consumer.poll(0.2)
        if message is None:
            continue
        if message.error():
            if message.error().code() == KafkaError._PARTITION_EOF:
                continue
            sys.exit(str(message.error()))
        positions[message.partition()] = message.offset() + 1
        kind, timestamp = message.timestamp()
        records.append(
            [
                message.partition(),
                message.offset(),
                timestamp if kind else None,
                text(message.key()),
                text(message.value()),
            ]
        )
    if positions:
        offsets = [TopicPartition(arguments["topic"], p, o) for p, o in positions.items()]
        consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()
    emit(records=records)


def times(arguments: Arguments) -> None:
    consumer = _consumer(arguments)
    found = {}
    for timestamp in arguments.timestamps:
        asked = [
            TopicPartition(arguments["topic"], partition, timestamp)
            for partition in range(arguments.partitions)
        ]
        answers = consumer.offsets_for_times(asked, timeout=10)
        found[timestamp] = {
            part.partition: part.offset if part.offset >= 0 else None for part in answers
        }
    consumer.close()
    emit(found=found)


def admin(arguments: Arguments) -> None:
    from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

    client = AdminClient({"bootstrap.servers": arguments["bootstrap"]})
    topic = arguments["topic"]
    new = NewTopic(
        topic, num_partitions=3, replication_factor=1, config={"retention.ms": "3600000"}
    )
    client.create_topics([new], operation_timeout=10)[topic].result(20)
    partitions = _await_partitions(client, topic)
    resource = ConfigResource("topic", topic)
    config = client.describe_configs([resource])[resource].result(20)
    client.delete_topics([topic])[topic].result(20)
    gone = _await_gone(client, topic)
    emit(partitions=partitions, config=config["retention.ms"].value, deleted=gone)


def _await_partitions(client: object, topic: str) -> int:
    for _ in range(50):
        metadata = client.list_topics(timeout=10).topics.get(topic)
        if metadata is not None and metadata.partitions:
            return len(metadata.partitions)
        time.sleep(0.1)
    return 0


def _await_gone(client: object, topic: str) -> bool:
    for _ in range(50):
        if topic not in client.list_topics(timeout=10).topics:
            return True
        time.sleep(0.1)
    return False


def transact(arguments: Arguments) -> None:
    producer = Producer(
        {"bootstrap.servers": arguments["bootstrap"], "transactional.id": arguments["id"]}
    )
    producer.init_transactions(20)
    for prefix, first, finish in (
        ("committed", 0, producer.commit_transaction),
        ("aborted", 0, producer.abort_transaction),
        ("committed", 10, producer.commit_transaction),
    ):
        producer.begin_transaction()
        for i in range(first, first + 10):
            value = f"{prefix}-{i}"
            producer.produce(arguments["topic"], value, partition=i % arguments.partitions)
        producer.flush(20)
        finish(20)
    emit(committed=20, aborted=10)


def late(arguments: Arguments) -> None:
    producer = late_producer(arguments)
    producer.begin_transaction()
    producer.produce(arguments["topic"], "late")
    producer.flush(20)
    emit(written=True)
    while not os.path.exists(arguments["go"]):
        producer.poll(0.02)
    ended = "done"
    try:
        if arguments["end"] == "commit":
            producer.commit_transaction(20)
        else:
            producer.abort_transaction(20)
    except KafkaException as error:
        ended = error.args[0].name()
    survives = True
    try:
        write_next(producer, arguments["topic"])
    except KafkaException:
        survives = False
        write_next(late_producer(arguments), arguments["topic"])
    emit(ended=ended, survives=survives)


def late_producer(arguments: Arguments) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": arguments["bootstrap"],
            "transactional.id": arguments["id"],
            "transaction.timeout.ms": int(arguments["timeout_ms"]),
        }
    )
    producer.init_transactions(20)
    return producer


def write_next(producer: Producer, topic: str) -> None:
    producer.begin_transaction()
    producer.produce(topic, "next")
    producer.commit_transaction(20)


if __name__ == "__main__":
    main(
        {
            "produce": produce,
            "consume": consume,
            "member": consume,
            "times": times,
            "admin": admin,
            "transact": transact,
            "late": late,
        }
    )
