"""A producer or consumer of the newest librdkafka, as a process of its own.

`python -m benchmarks.harness.librdkafka_load produce|consume BOOTSTRAP TOPIC key=value ...` prints
one JSON line. Values are English-looking JSON, which compresses as log records do (about 4 to 1
with lz4); 1,000 different ones take turns. `step` gives record i the timestamp `base + i * step`.
"""

import json
import random
import sys
import time
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.harness import secured

_WORDS = [
    "accepted",
    "cache",
    "client",
    "closed",
    "connection",
    "disk",
    "error",
    "fetch",
    "flush",
    "group",
    "index",
    "leader",
    "log",
    "offset",
    "partition",
    "produce",
    "record",
    "request",
    "retry",
    "segment",
    "session",
    "slow",
    "sync",
    "time",
    "topic",
    "write",
]


def make_values(size: int, count: int = 1_000) -> list[bytes]:
    """`count` different values of exactly `size` bytes, the same in every run."""
    words = random.Random(7)
    values = []
    for number in range(count):
        head = {"id": number, "host": f"node-{words.randrange(64)}", "took_ms": words.random()}
        text = json.dumps(head)
        while len(text) < size:
            text += " " + words.choice(_WORDS)
        values.append(text[:size].encode())
    return values


def produce(bootstrap: str, topic: str, options: dict[str, str]) -> float:
    """Records per second from the first send to the last acknowledgement."""
    records = int(options["records"])
    values = make_values(int(options["size"]))
    base, step = int(options.get("base", "0")), int(options.get("step", "0"))
    failures: list[object] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "linger.ms": 5,
            "batch.size": 1_000_000,
            "compression.type": options.get("codec", "none"),
            "queue.buffering.max.messages": 500_000,
            "queue.buffering.max.kbytes": 262_144,
            "delivery.report.only.error": True,
            "error_cb": failures.append,
            **secured.librdkafka_settings(),
        }
    )

    def on_error(error: object, _: object) -> None:
        if error is not None:
            failures.append(error)

    started = time.perf_counter()
    for number in range(records):
        while True:
            try:
                timestamp = base + number * step
                producer.produce(
                    topic, values[number % 1_000], timestamp=timestamp, on_delivery=on_error
                )
                break
            except BufferError:
                producer.poll(0.01)
        if number % 10_000 == 0:
            producer.poll(0)
    left = producer.flush(120)
    elapsed = time.perf_counter() - started
    if failures or left:
        sys.exit(f"{len(failures)} failures, {left} records undelivered: {failures[:1]}")
    return records / elapsed


def consume(bootstrap: str, topic: str, options: dict[str, str]) -> float:
    """Records per second from the assignment to the last record."""
    records = int(options["records"])
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "benchmark",
            "enable.auto.commit": False,
            **secured.librdkafka_settings(),
            "fetch.queue.backoff.ms": 2,
            "queued.min.messages": 1_000_000,
        }
    )
    known: Any = consumer.list_topics(topic, timeout=20)
    partitions = known.topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    seen = 0
    started = time.perf_counter()
    deadline = started + 20
    while seen < records:
        batch = consumer.consume(10_000, 1.0)
        if batch:
            deadline = time.perf_counter() + 20
            seen += sum(message.error() is None for message in batch)
        elif time.perf_counter() > deadline:
            sys.exit(f"only {seen} of {records} records came")
    elapsed = time.perf_counter() - started
    consumer.close()
    return records / elapsed


def main() -> None:
    role, bootstrap, topic, *words = sys.argv[1:]
    options = dict(word.split("=", 1) for word in words)
    run = {"produce": produce, "consume": consume}[role]
    rate = run(bootstrap, topic, options)
    print(json.dumps({"records_per_second": round(rate)}))


if __name__ == "__main__":
    main()
