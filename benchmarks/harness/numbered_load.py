"""A producer of numbered records that notes what was acknowledged when, as a process of its own.

`python -m benchmarks.harness.numbered_load BOOTSTRAP TOPIC PARTITIONS VALUE_BYTES BYTES_PER_S`
sends with acks=all and in order until SIGTERM; 0 bytes per second: as fast as it goes. Number n
goes to partition n % PARTITIONS of a new topic, where it gets the offset n // PARTITIONS. One line
of JSON says when it starts, the next one what it has noted when it ends; what is not acknowledged
by then is dropped. Times are those of time.monotonic, which all processes of a machine share.
"""

import json
import os
import signal
import sys
import time
from typing import Any

from confluent_kafka import Producer

NOTED_RECORDS = 64
"""The acknowledgement of every so many records of a partition is noted."""

NUMBER_BYTES = 8
LATE_S = 0.3
"""How long acknowledgements that have arrived may take to be noted in the end."""


def value_of(number: int, size: int) -> bytes:
    """The value of a record, of at least `NUMBER_BYTES`: its number, and padding."""
    return number.to_bytes(NUMBER_BYTES, "big") + b"x" * (size - NUMBER_BYTES)


class Load:
    """The producer, how much it has sent, and the notes."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, size: int, rate: float) -> None:
        self._topic = topic
        self._partitions = partitions
        self._size = size
        self._rate = rate
        self._sent = 0
        self.stopping = False
        self.failures: list[str] = []
        self.notes: list[tuple[float, int, int]] = []
        """(time, partition, end of what is acknowledged)."""

        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,  # keeps the order when requests are sent again
                "linger.ms": 5,
                "batch.size": 1_000_000,
                "queue.buffering.max.messages": 500_000,
                "queue.buffering.max.kbytes": 65_536,
                "log_level": 2,
            }
        )
        self._producer.list_topics(topic, timeout=20)

    def run(self) -> None:
        """Send until it should stop."""
        started_s = time.monotonic()
        print(json.dumps({"started_s": started_s}), flush=True)
        while not self.stopping:
            due = most = self._sent + NOTED_RECORDS
            if self._rate:
                due = min(most, int((time.monotonic() - started_s) * self._rate / self._size))
            may_go_on = self._send(due) and due == most
            self._producer.poll(0 if may_go_on else 0.002)
        deadline_s = time.monotonic() + LATE_S
        while time.monotonic() < deadline_s:
            self._producer.poll(0.01)

    def _send(self, due: int) -> bool:
        """Send up to a number; False if the queue is full."""
        while self._sent < due:
            place, partition = divmod(self._sent, self._partitions)
            more: dict[str, Any] = {}
            if (place + 1) % NOTED_RECORDS == 0:
                more["on_delivery"] = self._note
            try:
                value = value_of(self._sent, self._size)
                self._producer.produce(self._topic, value, partition=partition, **more)
            except BufferError:
                return False
            self._sent += 1
        return True

    def _note(self, error: object, message: Any) -> None:
        if error is not None:
            self.failures.append(str(error))
        else:
            self.notes.append((time.monotonic(), message.partition(), message.offset() + 1))


def main() -> None:
    bootstrap, topic, partitions, size, rate = sys.argv[1:]
    load = Load(bootstrap, topic, int(partitions), int(size), float(rate))

    def stop(*_: object) -> None:
        load.stopping = True

    signal.signal(signal.SIGTERM, stop)
    load.run()
    print(json.dumps({"failures": load.failures, "notes": load.notes}), flush=True)
    os._exit(0)  # an ordinary end waits for a broker that is gone


if __name__ == "__main__":
    main()
