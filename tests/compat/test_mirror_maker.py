"""Kafka's MirrorMaker 2 between two brokers: records, topics' settings, offsets of groups.

It runs as `connect-mirror-maker` does, in one process. Run by `make compat`; the jars come from
Maven Central.
"""

from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]

from tests.compat import harness
from tests.compat.brokers import TidelogProcess
from tests.compat.programs import HEAP, Tail, jars, running, wait_for
from tests.compat.test_connect import write_properties
from tests.support import toolchains

pytestmark = pytest.mark.timeout(400)

PROGRAM = "org.apache.kafka.connect.mirror.MirrorMaker"
RECORDS = 200
COMMITTED = 120
INTERNAL = ("offset-syncs", "checkpoints", "heartbeats")


def fill(address: str) -> None:
    """A topic of two partitions, and a group that has read a part of it."""
    harness.create_topic(address, "tides", 2, {"retention.ms": "123456789"})
    producer = Producer({"bootstrap.servers": address})
    for number in range(RECORDS):
        producer.produce("tides", f"v{number}", partition=number % 2)
    assert producer.flush(30) == 0
    settings = {"bootstrap.servers": address, "group.id": "pilots", "enable.auto.commit": False}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest"})
    consumer.subscribe(["tides"])
    read = 0
    while read < COMMITTED:
        message = consumer.poll(5)
        assert message is not None
        assert message.error() is None
        read += 1
    consumer.commit(asynchronous=False)
    consumer.close()


def test_topics_and_groups_are_mirrored(tmp_path: Path) -> None:
    with TidelogProcess(tmp_path / "a") as first, TidelogProcess(tmp_path / "b") as second:
        fill(first.bootstrap)
        settings = {
            "clusters": "here,there",
            "here.bootstrap.servers": first.bootstrap,
            "there.bootstrap.servers": second.bootstrap,
            "here->there.enabled": "true",
            "here->there.topics": "tides",
            "here->there.groups": "pilots",
            "there->here.enabled": "false",
            "replication.factor": 1,
            **{f"{name}.topic.replication.factor": 1 for name in INTERNAL},
            **{f"{name}.storage.replication.factor": 1 for name in ("config", "offset", "status")},
            "sync.group.offsets.enabled": "true",
            "sync.group.offsets.interval.seconds": 1,
            "emit.checkpoints.interval.seconds": 1,
            "offset.lag.max": 0,
            "offset.flush.interval.ms": 500,
        }
        properties = write_properties(tmp_path / "mirror.properties", settings)
        mirror = jars("connect-mirror", "connect-runtime")
        command = [toolchains.java(), HEAP, "-cp", f"{mirror}/*", PROGRAM, properties]
        log = tmp_path / "mirror.log"
        with running(command, log) as process:
            there = AdminClient({"bootstrap.servers": second.bootstrap})
            wait_for(lambda: "here.tides" in there.list_topics(timeout=10).topics, process, log)
            tail = Tail(second.bootstrap, "here.tides")

            def is_whole() -> bool:
                tail.poll()
                return len(tail.records) >= RECORDS

            wait_for(is_whole, process, log)
            wait_for(lambda: 0 < committed(second.bootstrap) <= COMMITTED, process, log)
        tail.close()
        assert sorted(value for _, value in tail.records) == sorted(
            f"v{number}" for number in range(RECORDS)
        )
        resource = ConfigResource(ConfigResource.Type.TOPIC, "here.tides")
        found = there.describe_configs([resource])[resource].result(30)
        assert found["retention.ms"].value == "123456789"


def committed(address: str) -> int:
    """How many records the mirrored group has read."""
    settings = {"bootstrap.servers": address, "group.id": "pilots"}
    consumer = Consumer(settings)
    partitions = [TopicPartition("here.tides", number) for number in range(2)]
    found = consumer.committed(partitions, timeout=10)
    consumer.close()
    return sum(max(0, each.offset) for each in found)
