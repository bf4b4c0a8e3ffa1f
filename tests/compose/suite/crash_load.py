"""Load for the kill test: `produce TOPIC` writes numbers until the broker goes away and prints
which were acknowledged; `check TOPIC LAST` prints which numbers the topic holds."""

import json
import os
import sys

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

BOOTSTRAP = os.environ["TIDELOG_BOOTSTRAP"]


def produce(topic: str) -> None:
    """Write until a delivery fails, which happens a second after the broker is gone."""
    acked: list[int] = []
    failed: list[int] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        number = int(message.value() or b"")
        (failed if error else acked).append(number)
        if not error and len(acked) % 1000 == 0:
            print(f"acked {len(acked)}", flush=True)

    producer = Producer(
        {
            "bootstrap.servers": BOOTSTRAP,
            "acks": "all",
            "message.timeout.ms": 3000,
            "linger.ms": 1,
            "log_level": 0,
        }
    )
    number = 0
    while not failed:
        try:
            producer.produce(topic, b"%d" % number, on_delivery=delivered)
            number += 1
        except BufferError:
            producer.poll(0.01)
        producer.poll(0)
    producer.purge()
    producer.poll(1)
    print(json.dumps({"acked": acked}), flush=True)


def check(topic: str) -> None:
    """Read the whole topic."""
    consumer = Consumer(
        {"bootstrap.servers": BOOTSTRAP, "group.id": "check", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    while True:
        message = consumer.poll(20)
        if message is None or message.error():
            break
        found.append(int(message.value() or b""))
    consumer.close()
    print(json.dumps({"found": found}), flush=True)


if __name__ == "__main__":
    produce(sys.argv[2]) if sys.argv[1] == "produce" else check(sys.argv[2])
