"""The same question put to the broker by different clients.

Each function takes a `Question` and returns, for each partition, the first offset whose record
has a timestamp at or after the asked one, or None. They are as short as the client's own
documentation would write them.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.compat import harness
from tests.compat.matrix import CLIENTS
from tests.support.toolchains import InstallFailed, MissingTool

Answer = dict[int, int | None]

WARNINGS = 4
"""The `log_level` of librdkafka from which on it writes between the lines of the demo."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Where to ask and what: the first record at or after `at_ms` in every partition."""

    bootstrap: str
    topic: str
    partitions: int
    at_ms: int
    at_text: str


class CannotAsk(Exception):
    """This machine lacks what the client needs; the message says what."""


def ask_tidelog(question: Question) -> Answer:
    """`tidelog offsets TOPIC --at TIME --json`, the command a person would type."""
    program = Path(sys.executable).parent / "tidelog"
    at = ["--at", question.at_text, "--json", "--bootstrap", question.bootstrap]
    done = subprocess.run(
        [str(program), "offsets", question.topic, *at],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    if done.returncode != 0:
        raise CannotAsk(done.stderr.strip().rpartition("\n")[2])
    document = json.loads(done.stdout)
    rows = document["partitions"] if isinstance(document, dict) else document
    return {row["partition"]: row["offset"] for row in rows}


def read_between(question: Question, end_ms: int) -> list[dict[str, object]]:
    """`tidelog consume TOPIC --from TIME --until TIME`: the records of a span of time."""
    program = Path(sys.executable).parent / "tidelog"
    span = ["--from", question.at_text, "--until", str(end_ms), "--exit-at-end", "--json"]
    done = subprocess.run(
        [str(program), "consume", question.topic, *span, "--bootstrap", question.bootstrap],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip().rpartition("\n")[2])
    return [json.loads(line) for line in done.stdout.splitlines()]


def ask_confluent(question: Question) -> Answer:
    """confluent-kafka, which is librdkafka."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {"bootstrap.servers": question.bootstrap, "group.id": "flights-demo", "log_level": WARNINGS}
    )
    asked = [
        TopicPartition(question.topic, partition, question.at_ms)
        for partition in range(question.partitions)
    ]
    found = consumer.offsets_for_times(asked, timeout=20)
    consumer.close()
    return {part.partition: part.offset if part.offset >= 0 else None for part in found}


def ask_kafka_python(question: Question) -> Answer:
    """kafka-python."""
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=question.bootstrap)
    asked = {
        TopicPartition(question.topic, partition): question.at_ms
        for partition in range(question.partitions)
    }
    found = consumer.offsets_for_times(asked)
    consumer.close()
    return {part.partition: hit.offset if hit else None for part, hit in found.items()}


def ask_aiokafka(question: Question) -> Answer:
    """aiokafka."""
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async def ask() -> Answer:
        consumer = AIOKafkaConsumer(bootstrap_servers=question.bootstrap)
        await consumer.start()
        try:
            asked = {
                TopicPartition(question.topic, partition): question.at_ms
                for partition in range(question.partitions)
            }
            found = await consumer.offsets_for_times(asked)
        finally:
            await consumer.stop()
        return {part.partition: hit.offset if hit else None for part, hit in found.items()}

    return asyncio.run(ask())


def ask_java(question: Question) -> Answer:
    """Apache Kafka's Java client, where a JDK and Maven are there to get it."""
    client = next(client for client in CLIENTS if client.name.startswith("Java 4"))
    try:
        result = harness.run(
            client,
            "times",
            bootstrap=question.bootstrap,
            topic=question.topic,
            partitions=question.partitions,
            timestamps=question.at_ms,
        )
    except (MissingTool, InstallFailed) as missing:
        raise CannotAsk(str(missing)) from None
    return {int(key): offset for key, offset in result["found"][str(question.at_ms)].items()}


ANSWERERS: tuple[tuple[str, Callable[[Question], Answer]], ...] = (
    ("tidelog offsets", ask_tidelog),
    ("confluent-kafka", ask_confluent),
    ("kafka-python", ask_kafka_python),
    ("aiokafka", ask_aiokafka),
    ("Java client", ask_java),
)
