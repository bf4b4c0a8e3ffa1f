"""A producer or consumer of one Python client, as a process of its own.

`python -m benchmarks.harness.client_loads CLIENT produce|consume BOOTSTRAP TOPIC RECORDS SIZE`
prints one JSON line with records per second and the client's CPU in seconds. All clients wait for
all acknowledgements of batches of 64 KiB that linger for 5 ms, and read without a group.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final

BATCH_BYTES: Final = 65_536
LINGER_MS: Final = 5
PATIENCE_S: Final = 60
AT_ONCE: Final = 10_000

Load = Callable[[str, str, int, bytes], Coroutine[Any, Any, None]]


async def _tidelog_produce(bootstrap: str, topic: str, records: int, value: bytes) -> None:
    from client.producer import Producer

    async with Producer(
        bootstrap=bootstrap, batch_bytes=BATCH_BYTES, linger_ms=LINGER_MS
    ) as producer:
        for _ in range(records):
            await producer.send(topic, value)
        await producer.flush()


async def _tidelog_consume(bootstrap: str, topic: str, records: int, value: bytes) -> None:
    from client.consumer import Consumer

    async with Consumer(bootstrap=bootstrap, start="earliest") as consumer:
        consumer.assign(await consumer.partitions(topic))
        while records > 0:
            found = await consumer.getmany(timeout_ms=1000 * PATIENCE_S, max_records=AT_ONCE)
            records -= _counted(found)


async def _aiokafka_produce(bootstrap: str, topic: str, records: int, value: bytes) -> None:
    from aiokafka import AIOKafkaProducer

    options = {"max_batch_size": BATCH_BYTES, "linger_ms": LINGER_MS, "acks": "all"}
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, **options) as producer:
        for _ in range(records):
            await producer.send(topic, value)
        await producer.flush()


async def _aiokafka_consume(bootstrap: str, topic: str, records: int, value: bytes) -> None:
    from aiokafka import AIOKafkaConsumer

    options = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
    async with AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, **options) as consumer:
        while records > 0:
            found = await consumer.getmany(timeout_ms=1000 * PATIENCE_S, max_records=AT_ONCE)
            records -= _counted(found)


def _counted(found: dict[Any, list[Any]]) -> int:
    count = sum(map(len, found.values()))
    if not count:
        sys.exit(f"no record came for {PATIENCE_S} s")
    return count


async def _confluent_produce(bootstrap: str, topic: str, records: int, value: bytes) -> None:
    from confluent_kafka import Producer

    options = {"batch.size": BATCH_BYTES, "linger.ms": LINGER_MS, "acks": "all"}
    producer = Producer({"bootstrap.servers": bootstrap, **options})
    failures: list[object] = []

    def delivered(error: object, _: object) -> None:
        if error is not None:
            failures.append(error)

    for _ in range(records):
        while True:
            try:
                producer.produce(topic, value, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.01)
    left = producer.flush(PATIENCE_S)
    if left or failures:
        sys.exit(f"{left} records undelivered, {len(failures)} failures: {failures[:1]}")


async def _confluent_consume(bootstrap: str, topic: str, records: int, value: bytes) -> None:
    from confluent_kafka import Consumer, TopicPartition

    # Its defaults pause for a second once 100,000 records wait, which a fast broker reaches.
    queue = {"queued.min.messages": 1_000_000, "fetch.queue.backoff.ms": 2}
    options = {"group.id": "benchmark", "enable.auto.commit": False, **queue}
    consumer = Consumer({"bootstrap.servers": bootstrap, **options})
    known: Any = consumer.list_topics(topic, timeout=PATIENCE_S)
    consumer.assign([TopicPartition(topic, n, 0) for n in known.topics[topic].partitions])
    while records > 0:
        # It waits until it has as many as it is asked for.
        records -= _counted({"": consumer.consume(min(AT_ONCE, records), PATIENCE_S)})
    consumer.close()


LOADS: Final[dict[tuple[str, str], Load]] = {
    ("tidelog", "produce"): _tidelog_produce,
    ("tidelog", "consume"): _tidelog_consume,
    ("aiokafka", "produce"): _aiokafka_produce,
    ("aiokafka", "consume"): _aiokafka_consume,
    ("confluent-kafka", "produce"): _confluent_produce,
    ("confluent-kafka", "consume"): _confluent_consume,
}


def main() -> None:
    """Runs one load, from the first connection on."""
    client, role, bootstrap, topic, records, size = sys.argv[1:]
    load = LOADS[client, role]
    before, started = os.times(), time.perf_counter()
    asyncio.run(load(bootstrap, topic, int(records), os.urandom(int(size))))
    elapsed, after = time.perf_counter() - started, os.times()
    cpu_s = after.user + after.system - before.user - before.system
    print(json.dumps({"rate": int(records) / elapsed, "cpu_s": cpu_s}))


if __name__ == "__main__":
    main()
