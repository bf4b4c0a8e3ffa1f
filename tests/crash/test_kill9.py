"""kill -9 of a real broker under load: every acknowledged record is there after the restart.

librdkafka produces with acks=all, once idempotent and once plain, over two partitions; the process
is killed at a random moment of each cycle. After each kill the directory is audited as it lies, and
after each restart all records acknowledged in the cycle before are read back through the wire with
the offsets they were acknowledged with. At the end everything is read once more from the start.

`KILL9_CYCLES=50` sets the number of cycles. What this cannot show is power loss: a killed process
leaves the page cache behind. `tests.crash.campaign` is for that.
"""

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from storage.files import RealFiles
from storage.fsck import Severity, audit
from tests.support.broker import BrokerProcess

CYCLES = int(os.environ.get("KILL9_CYCLES", "4"))
TOPIC = "kills"
PARTITIONS = 2
SEED = 20261121

Acked = dict[tuple[int, int], bytes]


class Load:
    """Two producers that send as fast as they are answered, and what they were told."""

    def __init__(self, port: int, cycle: int) -> None:
        common = {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "acks": "all",
            "linger.ms": 1,
            "message.timeout.ms": 10_000,
            "log_level": 0,
        }
        self.acked: Acked = {}
        self._cycle = cycle
        self._serial = 0
        self._producers = [
            Producer({**common, "enable.idempotence": True}),
            Producer({**common, "enable.idempotence": False}),
        ]

    def run(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for number, producer in enumerate(self._producers):
                for _ in range(20):
                    self._serial += 1
                    value = b"%d/%d/%d " % (self._cycle, number, self._serial) + b"x" * 80
                    producer.produce(
                        TOPIC,
                        value,
                        partition=self._serial % PARTITIONS,
                        on_delivery=self._delivered,
                    )
                # Bounds what fifty cycles have to keep in memory; the broker could take more.
                producer.poll(0.002)

    def collect(self) -> None:
        """Take the reports that were on their way, give up the rest."""
        for producer in self._producers:
            producer.poll(0)
            producer.purge()
            producer.poll(0)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.acked[message.partition(), message.offset()] = message.value()


def read(port: int, starts: dict[int, int]) -> Acked:
    """Everything from these offsets to the ends of the partitions."""
    consumer = Consumer(
        {"bootstrap.servers": f"127.0.0.1:{port}", "group.id": "reader", "log_level": 0}
    )
    found: Acked = {}
    try:
        ends = {
            partition: consumer.get_watermark_offsets(TopicPartition(TOPIC, partition), timeout=10)[
                1
            ]
            for partition in starts
        }
        wanted = [
            TopicPartition(TOPIC, partition, start)
            for partition, start in starts.items()
            if start < ends[partition]
        ]
        consumer.assign(wanted)
        missing = {tp.partition for tp in wanted}
        deadline = time.monotonic() + 30
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


def check(found: Acked, acked: Acked) -> None:
    lost = {where: value for where, value in acked.items() if found.get(where) != value}
    assert not lost, f"{len(lost)} of {len(acked)} acknowledged records lost: {list(lost)[:3]}"


@pytest.mark.timeout(60 + 10 * CYCLES)
def test_every_acknowledged_record_survives_kill_9(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    everything: Acked = {}
    last: Acked = {}
    for cycle in range(CYCLES + 1):
        broker = BrokerProcess(tmp_path)
        try:
            port = broker.wait_ready()
            if cycle == 0:
                create_topic(port)
            else:
                starts = {
                    partition: min(
                        (offset for number, offset in last if number == partition),
                        default=OFFSET_BEGINNING,
                    )
                    for partition in range(PARTITIONS)
                }
                check(read(port, starts), last)
            if cycle == CYCLES:
                check(read(port, dict.fromkeys(range(PARTITIONS), OFFSET_BEGINNING)), everything)
                assert broker.stop() == 0
                break
            load = Load(port, cycle)
            load.run(rng.uniform(0.05, 0.4))
        finally:
            if broker.process.poll() is None:
                broker.stop(signal.SIGKILL)
        load.collect()
        last = load.acked
        everything |= last
        errors = [f for f in audit(data_directory(tmp_path), RealFiles()) if is_error(f)]
        assert errors == []
    assert len(everything) > 100 * CYCLES
    assert audit(data_directory(tmp_path), RealFiles()) == []
    print(f"\n{CYCLES} kills, {len(everything)} acknowledged records, 0 lost")


def create_topic(port: int) -> None:
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0})
    topic = NewTopic(
        TOPIC,
        num_partitions=PARTITIONS,
        replication_factor=1,
        config={"segment.bytes": "1048576"},
    )
    admin.create_topics([topic])[TOPIC].result(10)


def is_error(finding: Any) -> bool:
    return bool(finding.severity is Severity.ERROR)


def data_directory(tmp_path: Path) -> str:
    return str(next(path.parent for path in tmp_path.rglob("meta.properties")))
