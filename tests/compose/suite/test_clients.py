"""Clients in one container against the broker in another, by the broker's service name."""

import json
import subprocess
import time
import uuid
from pathlib import Path

from tidelog import Admin, Consumer, Producer

RECORDS = 500


def _name(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


async def test_the_bundled_client_produces_searches_by_time_and_consumes(bootstrap: str) -> None:
    topic = _name("bundled")
    start_ms = 1_700_000_000_000
    async with Admin(bootstrap) as admin:
        await admin.create_topic(topic, partitions=3)
    async with Producer(bootstrap) as producer:
        for index in range(RECORDS):
            await producer.send(
                topic, b"%d" % index, partition=index % 3, timestamp_ms=start_ms + 1000 * index
            )
    async with Consumer(
        topic, bootstrap=bootstrap, group_id=_name("group"), start="earliest"
    ) as consumer:
        seen = set()
        async for record in consumer:
            assert record.timestamp_ms == start_ms + 1000 * int(record.value or b"")
            seen.add(int(record.value or b""))
            if len(seen) == RECORDS:
                break
    assert seen == set(range(RECORDS))


def test_the_cli_answers_what_was_at_a_time(bootstrap: str) -> None:
    topic = _name("cli")

    def tidelog(*words: str, stdin: str = "") -> str:
        done = subprocess.run(
            ["tidelog", *words, "--bootstrap", bootstrap],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    tidelog("topic", "create", topic)
    tidelog("produce", topic, "--timestamp", "2026-01-01T10:00:00Z", stdin="a\n")
    tidelog("produce", topic, "--timestamp", "2026-01-01T10:03:17Z", stdin="b\n")
    answer = tidelog("offsets", topic, "--at", "2026-01-01T10:03:17Z", "--json")
    assert '"offset": 1' in answer or '"offset":1' in answer
    assert topic in tidelog("topic", "list")


def test_kcat_produces_and_consumes(bootstrap: str) -> None:
    topic = _name("kcat")
    lines = "".join(f"{index}\n" for index in range(RECORDS))
    subprocess.run(
        ["kcat", "-b", bootstrap, "-P", "-t", topic, "-z", "lz4"],
        input=lines,
        text=True,
        check=True,
        timeout=60,
    )
    consumed = subprocess.run(
        ["kcat", "-b", bootstrap, "-C", "-t", topic, "-o", "beginning", "-e", "-q"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert consumed.stdout == lines


def test_the_java_client_produces_and_consumes(bootstrap: str) -> None:
    """Apache Kafka's own tools, from the jars that the compose test mounts."""
    jars = Path("/jars")
    assert list(jars.glob("kafka-clients-*.jar")), "the compose test mounts the jars at /jars"
    topic = _name("java")
    base = ["java", "-Dlog4j2.level=OFF", "-cp", "/jars/*"]
    produced = subprocess.run(
        [
            *base,
            "org.apache.kafka.tools.VerifiableProducer",
            *("--bootstrap-server", bootstrap, "--topic", topic, "--max-messages", str(RECORDS)),
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    summary = json.loads(produced.stdout.splitlines()[-1])
    assert summary["acked"] == RECORDS
    consumed = subprocess.run(
        [
            *base,
            "org.apache.kafka.tools.VerifiableConsumer",
            *("--bootstrap-server", bootstrap, "--topic", topic, "--group-id", _name("group")),
            *("--max-messages", str(RECORDS), "--reset-policy", "earliest"),
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    counts = [
        event["count"]
        for event in map(json.loads, consumed.stdout.splitlines())
        if event["name"] == "records_consumed"
    ]
    assert sum(counts) == RECORDS


def test_confluent_and_kafka_python_meet_in_a_topic(bootstrap: str) -> None:
    from confluent_kafka import Producer as ConfluentProducer
    from kafka import KafkaConsumer

    topic = _name("mixed")
    producer = ConfluentProducer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for index in range(RECORDS):
        producer.produce(topic, b"%d" % index)
    assert producer.flush(30) == 0
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=_name("group"),
        auto_offset_reset="earliest",
        consumer_timeout_ms=20_000,
    )
    seen = []
    deadline = time.monotonic() + 30
    for record in consumer:
        seen.append(int(record.value))
        if len(seen) == RECORDS or time.monotonic() > deadline:
            break
    consumer.close()
    assert seen == list(range(RECORDS))
