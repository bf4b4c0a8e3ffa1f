"""Load from librdkafka on a real broker, and its answers: acknowledged, seen, committed.

Used by everything that stops a real broker the hard way (`tests.crash.test_kill9`,
`tests.crash.power_cut`). They are compared after the restart with what `read` finds.
"""

import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

PARTITIONS = 2
SEGMENT_BYTES = 1_048_576
READ_TIMEOUT_S = 30.0

Records = dict[tuple[int, int], bytes]
"""(partition, offset) -> value."""


class Load:
    """Two producers, one idempotent, that send as fast as they are answered; a consumer on demand.

    `acked` and `seen` fill while it runs; `collect` ends it.
    """

    def __init__(
        self, port: int, topic: str, cycle: int, *, acks: str = "all", consumes: bool = False
    ) -> None:
        common = {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "acks": acks,
            "linger.ms": 1,
            "message.timeout.ms": 10_000,
            "log_level": 0,
        }
        self.topic = topic
        self.acked: Records = {}
        self.seen: Records = {}
        self._cycle = cycle
        self._serial = 0
        self._producers = [
            Producer({**common, "enable.idempotence": acks == "all"}),
            Producer({**common, "enable.idempotence": False}),
        ]
        self._consumer: Consumer | None = None
        if consumes:
            self._consumer = Consumer(
                {
                    "bootstrap.servers": f"127.0.0.1:{port}",
                    "group.id": f"watcher-{cycle}",
                    "enable.auto.commit": False,
                    "fetch.wait.max.ms": 10,
                    "log_level": 0,
                }
            )
            self._consumer.assign(
                [TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(PARTITIONS)]
            )

    def run(self, seconds: float) -> None:
        """Send, and read if asked to, for so long."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for number, producer in enumerate(self._producers):
                for _ in range(20):
                    self._serial += 1
                    value = b"%d/%d/%d " % (self._cycle, number, self._serial) + b"x" * 80
                    producer.produce(
                        self.topic,
                        value,
                        partition=self._serial % PARTITIONS,
                        on_delivery=self._delivered,
                    )
                # Bounds what fifty cycles have to keep in memory; the broker could take more.
                producer.poll(0.002)
            self._consume()

    def commit(self) -> int:
        """Commit a position of the consumer's group in partition 0; the offset committed."""
        assert self._consumer is not None
        offset = len(self.acked)
        self._consumer.commit(offsets=[TopicPartition(self.topic, 0, offset)], asynchronous=False)
        return offset

    def collect(self) -> None:
        """Take the reports that were on their way, give up the rest."""
        self._consume()
        for producer in self._producers:
            producer.poll(0)
            producer.purge()
            producer.poll(0)
        if self._consumer is not None:
            self._consumer.close()

    def _consume(self) -> None:
        if self._consumer is None:
            return
        for message in self._consumer.consume(1000, timeout=0):
            if message.error() is None:
                self.seen[message.partition() or 0, message.offset() or 0] = message.value() or b""

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.acked[message.partition(), message.offset()] = message.value()


def create_topic(port: int, name: str, **settings: str) -> None:
    """Create a topic with small segments; returns when the broker says that it is there."""
    config = {"segment.bytes": str(SEGMENT_BYTES)}
    config |= {key.replace("_", "."): value for key, value in settings.items()}
    topic = NewTopic(name, num_partitions=PARTITIONS, replication_factor=1, config=config)
    client = admin(port)
    client.create_topics([topic])[name].result(10)


def delete_topic(port: int, name: str) -> None:
    """Delete a topic; returns when the broker says that it is gone."""
    client = admin(port)
    client.delete_topics([name])[name].result(10)


def admin(port: int) -> AdminClient:
    """An administrator's connection; it ends, and so does what it asked, with the object."""
    return AdminClient({"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0})


def read(port: int, topic: str, starts: Mapping[int, int] | None = None) -> Records:
    """Everything from these offsets, or from the beginning, to the ends of the partitions."""
    if starts is None:
        starts = dict.fromkeys(range(PARTITIONS), OFFSET_BEGINNING)
    consumer = Consumer(
        {"bootstrap.servers": f"127.0.0.1:{port}", "group.id": "reader", "log_level": 0}
    )
    found: Records = {}
    try:
        ends = {
            partition: consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)[
                1
            ]
            for partition in starts
        }
        wanted = [
            TopicPartition(topic, partition, start)
            for partition, start in starts.items()
            if start < ends[partition]
        ]
        consumer.assign(wanted)
        missing = {tp.partition for tp in wanted if ends[tp.partition]}
        deadline = time.monotonic() + READ_TIMEOUT_S
        while missing and time.monotonic() < deadline:
            for message in consumer.consume(5000, timeout=0.2):
                assert message.error() is None, message.error()
                partition, offset = message.partition(), message.offset()
                assert partition is not None
                assert offset is not None
                found[partition, offset] = message.value() or b""
                if offset + 1 >= ends[partition]:
                    missing.discard(partition)
        assert not missing, "the partitions could not be read to their ends"
    finally:
        consumer.close()
    return found


def committed(port: int, group: str, topic: str) -> int:
    """The group's committed offset in partition 0; negative when there is none."""
    consumer = Consumer(
        {"bootstrap.servers": f"127.0.0.1:{port}", "group.id": group, "log_level": 0}
    )
    try:
        (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=10)
        return int(found.offset)
    finally:
        consumer.close()


def lost(found: Records, promised: Records) -> Records:
    """What was answered and is not found with the same value."""
    return {where: value for where, value in promised.items() if found.get(where) != value}
