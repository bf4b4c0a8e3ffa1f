"""Transactions of Java's newest producer while it and the broker are killed with SIGKILL.

Two producers in one process write each transaction to two partitions and commit an offset in it.
Whatever the kills interrupt: a read_committed reader sees a transaction in both partitions or in
none, every answer about a commit or an abort holds, and nothing is read
twice; the offset of each group is that of its last transaction; and no partition is left waiting.

`TXN_TORTURE_KILLS=50` kills more often. The same request by request: `tests/integration/
test_transactions_torture_v2.py`.
"""

import os
import random
import signal
import subprocess
import threading
import time
from collections import defaultdict
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.compat import harness
from tests.support import kafka_peer, toolchains
from tests.support.broker import BrokerProcess

KILLS = int(os.environ.get("TXN_TORTURE_KILLS", "4"))
PRODUCERS = 2
PARTITIONS = 2
MANY = 1_000_000
SOURCE = Path(__file__).parent / "applications" / "Transactions.java"

pytestmark = pytest.mark.timeout(200 + 20 * KILLS)


class Outcomes:
    """What the producers have printed so far, of all their lives."""

    def __init__(self) -> None:
        self.committed: set[str] = set()
        self.aborted: set[str] = set()
        self.trouble: list[str] = []

    def take(self, line: str) -> None:
        word, _, value = line.strip().partition(" ")
        if word == "#":
            self.trouble.append(value)
        elif word:
            {"committed": self.committed, "aborted": self.aborted}[word].add(value)

    def __len__(self) -> int:
        return len(self.committed) + len(self.aborted)


class Producers:
    """The Java process; killed, it is started again with later numbers."""

    def __init__(self, address: str, topic: str, outcomes: Outcomes) -> None:
        jars = toolchains.maven_jars(
            f"org.apache.kafka:kafka-clients:{kafka_peer.NEWEST}", "org.slf4j:slf4j-nop:1.7.36"
        )
        classes = toolchains.java_classes([SOURCE], jars)
        heap = ("-Xmx96m", "-XX:+UseSerialGC")
        self._command = [toolchains.java(), *heap, "-cp", f"{classes}:{jars}/*", "Transactions"]
        self._arguments = [address, topic, str(PRODUCERS)]
        self._outcomes = outcomes
        self._lives = 0

    def start(self, count: int = MANY) -> None:
        first = self._lives * MANY
        self._lives += 1
        self.process = subprocess.Popen(
            [*self._command, *self._arguments, str(first), str(count)],
            stdout=subprocess.PIPE,
            text=True,
        )
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def kill(self) -> None:
        self.process.kill()
        self.wait()

    def wait(self) -> None:
        assert self.process.wait(60) in (0, -signal.SIGKILL)
        self._thread.join(10)

    def _listen(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout:
            for line in self.process.stdout:
                if line.endswith("\n"):
                    self._outcomes.take(line)


def start_broker(directory: Path, port: int) -> BrokerProcess:
    listeners = f"PLAINTEXT://127.0.0.1:{port}"
    broker = BrokerProcess(directory, listeners=listeners, auto_create_topics_enable="false")
    broker.wait_ready()
    return broker


def wait_for_news(outcomes: Outcomes, seconds: float) -> None:
    """Let transactions go on for a while, and until at least one more has ended."""
    count = len(outcomes)
    time.sleep(seconds)
    deadline = time.monotonic() + 60
    while len(outcomes) == count:
        assert time.monotonic() < deadline, outcomes.trouble[-5:]
        time.sleep(0.01)


def read_committed(address: str, topic: str, partition: int) -> list[str]:
    """What a reader of finished transactions sees; it reaches the end, so none is open."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": harness.unique("reader"),
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    _, high_watermark = consumer.get_watermark_offsets(TopicPartition(topic, partition))
    values: list[str] = []
    deadline = time.monotonic() + 60
    while True:
        assert time.monotonic() < deadline
        message = consumer.poll(1)
        if message is None:
            continue
        error = message.error()
        if error is None:
            values.append((message.value() or b"").decode())
            continue
        assert error.code() == KafkaError._PARTITION_EOF, error
        assert message.offset() == high_watermark, "nothing is left open"
        consumer.close()
        return values


def committed_offset(address: str, group: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": address, "group.id": group})
    (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=20)
    consumer.close()
    offset: int = found.offset
    return offset


def test_is_every_transaction_whole_after_any_kill(tmp_path: Path) -> None:
    (port,) = kafka_peer.free_ports(1)
    address, topic = f"127.0.0.1:{port}", "t"
    outcomes, moments = Outcomes(), random.Random(KILLS)
    broker = start_broker(tmp_path, port)
    harness.create_topic(address, topic, PARTITIONS)
    producers = Producers(address, topic, outcomes)
    producers.start()
    for number in range(2 * KILLS):
        wait_for_news(outcomes, moments.uniform(0.1, 1.5))
        if number % 2:
            producers.kill()
            producers.start()
        else:
            broker.stop(signal.SIGKILL)
            broker = start_broker(tmp_path, port)
    wait_for_news(outcomes, 0.2)
    producers.kill()
    producers.start(count=0)
    producers.wait()
    seen = [read_committed(address, topic, partition) for partition in range(PARTITIONS)]
    last: dict[str, int] = defaultdict(lambda: -1001)
    for value in seen[0]:
        name, _, transaction = value.partition("-")
        last[name] = max(last[name], int(transaction))
    for name in map(str, range(PRODUCERS)):
        assert committed_offset(address, f"group-{name}", topic) == last[name]
    broker.stop(signal.SIGTERM)
    assert set(seen[0]) == set(seen[1]), "a transaction is whole or not there"
    assert all(len(values) == len(set(values)) for values in seen), "nothing twice"
    assert outcomes.committed <= set(seen[0])
    assert not outcomes.aborted & set(seen[0])
    print(
        f"{KILLS} kills of the broker, {KILLS + 1} of the producers: {len(outcomes.committed)} "
        f"committed, {len(outcomes.aborted)} aborted, {len(seen[0])} seen; "
        f"{len(outcomes.trouble)} times a producer had to be replaced"
    )
