"""A real client under quotas: it is slowed down, loses nothing, and reports its delays."""

import json
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer

from tests.support.cli import ok
from tidelog.testing import RunningBroker, running_broker

BYTES = 100_000
RATE = 100_000


@pytest.fixture
def server() -> Iterator[RunningBroker]:
    settings = {"quota.window.num": "2"}
    with running_broker(settings=settings) as running:
        yield running


def test_a_producer_and_a_consumer_are_slowed_down(server: RunningBroker) -> None:
    limits = ("--producer-byte-rate", str(RATE), "--consumer-byte-rate", str(RATE))
    ok("quota", "set", "--client-id", "slow", *limits, server=server)
    throttled: list[float] = []
    statistics: list[int] = []

    def on_statistics(text: str) -> None:
        brokers = json.loads(text)["brokers"].values()
        statistics.append(max((broker["throttle"]["max"] for broker in brokers), default=0))

    producer = Producer(
        {
            "bootstrap.servers": server.bootstrap,
            "client.id": "slow",
            "linger.ms": 0,
            "batch.num.messages": 1,
            "statistics.interval.ms": 100,
            "stats_cb": on_statistics,
            "throttle_cb": lambda event: throttled.append(event.throttle_time),
        }
    )
    started = time.monotonic()
    for number in range(4):
        producer.produce("t", value=bytes([number]) * BYTES)
    assert producer.flush(60) == 0
    # Four times the rate, less the two windows that pass at once.
    assert time.monotonic() - started > 1
    producer.poll(1)
    assert max(statistics) > 0 or throttled

    consumer = Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "client.id": "slow",
            "group.id": "g",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["t"])
    got: list[bytes] = []
    end = time.monotonic() + 60
    while len(got) < 4 and time.monotonic() < end:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            got.append(bytes(message.value() or b""))
    consumer.close()
    assert [value[0] for value in got] == [0, 1, 2, 3]
