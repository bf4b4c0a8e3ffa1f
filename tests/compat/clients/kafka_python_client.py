"""kafka-python, any version from 1.4.7 to 3 (see README.md)."""

# mypy: ignore-errors
# It runs under other interpreters and with other releases of its library than mypy sees.

from __future__ import annotations

import time

import kafka
from contract import Arguments, emit, main, text, wants_more
from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.structs import OffsetAndMetadata

VERSION = tuple(int(part) for part in kafka.__version__.split(".")[:2])


def _security(arguments: Arguments) -> dict:
    options = arguments.python_security
    if "token" in arguments:
        try:
            from kafka.net.sasl.oauth import AbstractTokenProvider
        except ImportError:  # until 2.0
            from kafka.oauth import AbstractTokenProvider

        class TokenFile(AbstractTokenProvider):
            def token(self) -> str:
                return arguments.token()

        options["sasl_oauth_token_provider"] = TokenFile()
    return options


def produce(arguments: Arguments) -> None:
    codec = None if arguments.codec == "none" else arguments.codec
    producer = KafkaProducer(
        bootstrap_servers=arguments["bootstrap"],
        acks="all",
        compression_type=codec,
        linger_ms=20,
        **_security(arguments),
    )
    futures = []
    for i in range(arguments.count):
        partition, timestamp, key, value, headers = arguments.record(i)
        futures.append(
            producer.send(
                arguments["topic"],
                value=value,
                key=key,
                headers=headers,
                partition=partition,
                timestamp_ms=timestamp,
            )
        )
    producer.flush(arguments.timeout_s)
    for future in futures:
        future.get(timeout=1)
    producer.close(timeout=5)
    emit(acked=len(futures))


class _Listener(ConsumerRebalanceListener):
    def on_partitions_revoked(self, revoked: list) -> None:
        """Nothing is committed on the way out: the judge reads what was delivered."""

    def on_partitions_assigned(self, assigned: list) -> None:
        emit(assigned=sorted(part.partition for part in assigned))


def _consumer(arguments: Arguments, **options: object) -> KafkaConsumer:
    if "isolation" in arguments:
        options["isolation_level"] = arguments["isolation"]
    return KafkaConsumer(
        bootstrap_servers=arguments["bootstrap"],
        group_id=arguments.get("group"),
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=6000,
        heartbeat_interval_ms=1000,
        **_security(arguments),
        **options,
    )


def _committed(offset: int) -> OffsetAndMetadata:
    return OffsetAndMetadata(*((offset, "", -1)[: len(OffsetAndMetadata._fields)]))


def consume(arguments: Arguments) -> None:
    consumer = _consumer(arguments)
    consumer.subscribe([arguments["topic"]], listener=_Listener())
    records = []
    positions = {}
    started = time.monotonic()
    while wants_more(arguments, len(records), started):
        limit = 500 if "stop" in arguments else arguments.count - len(records)
        for part, batch in consumer.poll(timeout_ms=200, max_records=limit).items():
            positions[part] = _committed(batch[-1].offset + 1)
            for record in batch:
                known = record.timestamp if record.timestamp_type is not None else None
                records.append(
                    [part.partition, record.offset, known, text(record.key), text(record.value)]
                )
    if positions:
        consumer.commit(positions)
    consumer.close()
    emit(records=records)


def times(arguments: Arguments) -> None:
    consumer = _consumer(arguments)
    found = {}
    for timestamp in arguments.timestamps:
        asked = {
            TopicPartition(arguments["topic"], partition): timestamp
            for partition in range(arguments.partitions)
        }
        answers = consumer.offsets_for_times(asked)
        found[timestamp] = {
            part.partition: answer.offset if answer is not None else None
            for part, answer in answers.items()
        }
    consumer.close()
    emit(found=found)


def admin(arguments: Arguments) -> None:
    from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewTopic

    client = KafkaAdminClient(bootstrap_servers=arguments["bootstrap"])
    topic = arguments["topic"]
    settings = {"retention.ms": "3600000"}
    client.create_topics([NewTopic(topic, 3, 1, topic_configs=settings)])
    observer = KafkaConsumer(bootstrap_servers=arguments["bootstrap"])
    partitions = len(observer.partitions_for_topic(topic) or ())
    answer = client.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    config = _setting(answer, "retention.ms")
    client.delete_topics([topic])
    gone = False
    for _ in range(50):
        gone = topic not in observer.topics()
        if gone:
            break
        time.sleep(0.1)
    observer.close()
    client.close()
    emit(partitions=partitions, config=config, deleted=gone)


def _setting(answer: object, name: str) -> object:
    """The value of a setting in what describe_configs returns, which changed with version 3."""
    if VERSION >= (3, 0):
        return _find_value(answer, name)
    response = answer[0] if isinstance(answer, list) else answer
    for resource in response.resources:
        for entry in resource[4]:
            if entry[0] == name:
                return entry[1]
    return None


def _find_value(node: object, name: str) -> object:
    if isinstance(node, dict):
        if name in node:
            entry = node[name]
            return entry.get("value") if isinstance(entry, dict) else entry
        if node.get("name") == name:
            return node.get("value")
        node = list(node.values())
    if isinstance(node, (list, tuple)):
        for child in node:
            value = _find_value(child, name)
            if value is not None:
                return value
    return None


def transact(arguments: Arguments) -> None:
    producer = KafkaProducer(
        bootstrap_servers=arguments["bootstrap"], transactional_id=arguments["id"]
    )
    producer.init_transactions()
    for prefix, first, finish in (
        ("committed", 0, producer.commit_transaction),
        ("aborted", 0, producer.abort_transaction),
        ("committed", 10, producer.commit_transaction),
    ):
        producer.begin_transaction()
        for i in range(first, first + 10):
            value = f"{prefix}-{i}".encode()
            producer.send(arguments["topic"], value=value, partition=i % arguments.partitions)
        producer.flush()
        finish()
    producer.close(timeout=5)
    emit(committed=20, aborted=10)


if __name__ == "__main__":
    main(
        {
            "produce": produce,
            "consume": consume,
            "member": consume,
            "times": times,
            "admin": admin,
            "transact": transact,
        }
    )
