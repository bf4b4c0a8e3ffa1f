"""Runs client programs and says what must have come out.

`run` drives one scenario to its end; `Member` is a group member that keeps running until it is
stopped. `read_topic` is the independent reader (the newest librdkafka, assigned and without
a group) whose view of a topic the clients are compared with.
"""

import json
import os
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.compat import recorder
from tests.compat.matrix import Client
from tests.support.toolchains import MissingTool

RUN_TIMEOUT_S = 90
READ_TIMEOUT_S = 30


class ClientFailed(AssertionError):
    """A client program ended with an error; the message carries the end of its output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRecord:
    """A record as the independent reader saw it; headers as (name, value) pairs."""

    partition: int
    offset: int
    timestamp: int
    key: str | None
    value: str
    headers: tuple[tuple[str, bytes], ...]


def unique(prefix: str) -> str:
    """A name that no earlier run has used."""
    return f"{prefix}-{uuid.uuid4().hex[:10]}"


def command_line(client: Client, scenario: str, arguments: Mapping[str, object]) -> list[str]:
    """What to start; ends the test as skipped where an optional client's tool is missing."""
    pairs = [f"{key}={value}" for key, value in arguments.items()]
    try:
        return [*client.command(), scenario, *pairs]
    except MissingTool as missing:
        if client.optional:
            pytest.skip(str(missing))
        raise


def run(client: Client, scenario: str, **arguments: object) -> dict[str, Any]:
    """The result that the client printed for a scenario.

    Raises:
        ClientFailed: it ended with an error, or ran for more than RUN_TIMEOUT_S.
    """
    command = command_line(client, scenario, arguments)
    environment = {**os.environ, **client.environment()}
    try:
        with recorder.attributing(client.name):
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=RUN_TIMEOUT_S,
                env=environment,
                check=False,
            )
    except subprocess.TimeoutExpired as late:
        output = (late.stderr or b"")[-1500:]
        raise ClientFailed(f"{client.name}: {scenario} did not end: {output!r}") from None
    if done.returncode != 0:
        tail = (done.stdout[-500:] + done.stderr[-20_000:]).strip()
        raise ClientFailed(f"{client.name}: {scenario} ended with {done.returncode}: {tail}")
    documents = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not documents:
        raise ClientFailed(f"{client.name}: {scenario} printed no result: {done.stderr[-1500:]}")
    result: dict[str, Any] = json.loads(documents[-1])
    return result


class Member:
    """A group member in the background; `assigned` follows what its client last reported."""

    def __init__(self, client: Client, folder: Path, **arguments: object) -> None:
        self._client_name = client.name
        self._stop_file = folder / unique("stop")
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - lives as long as the process
        self.assigned: list[int] | None = None
        self.records: list[list[Any]] | None = None
        self._process = subprocess.Popen(
            command_line(client, "member", {**arguments, "stop": self._stop_file}),
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env={**os.environ, **client.environment()},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._attribution = ExitStack()

    def __enter__(self) -> Self:
        self._attribution.enter_context(recorder.attributing(self._client_name))
        return self

    def __exit__(self, *_: object) -> None:
        self._attribution.close()
        self._process.kill()
        self._process.wait()
        self._reader.join(5)
        self._errors.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout:
            for line in self._process.stdout:
                document = json.loads(line) if line.startswith("{") else {}
                self.assigned = document.get("assigned", self.assigned)
                self.records = document.get("records", self.records)

    def stop(self) -> list[list[Any]]:
        """The records that the member saw, after it has left its group."""
        self._stop_file.touch()
        self._process.wait(30)
        self._reader.join(5)
        if self.records is None:
            self._errors.seek(0)
            raise ClientFailed(f"the member reported no records: {self._errors.read()[-1500:]}")
        return self.records


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = 40) -> None:
    """Polls a condition; an AssertionError says `what` did not happen in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen within {timeout_s} s"
        time.sleep(0.05)


def create_topic(
    bootstrap: str, topic: str, partitions: int, config: Mapping[str, str] | None = None
) -> None:
    """A new topic, visible in the metadata when this returns."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    new = NewTopic(
        topic, num_partitions=partitions, replication_factor=1, config=dict(config or {})
    )
    admin.create_topics([new])[topic].result(20)

    def visible() -> bool:
        found = admin.list_topics(timeout=10).topics.get(topic)
        return found is not None and len(found.partitions) == partitions

    wait_until(visible, f"topic {topic} becoming visible")


def read_topic(bootstrap: str, topic: str, partitions: int) -> list[StoredRecord]:
    """Every record of a topic, aborted ones included, in order of partition and offset."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": unique("reader"),
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_uncommitted",
            "log_level": 2,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, p, 0) for p in range(partitions)])
    records = []
    at_end: set[int] = set()
    deadline = time.monotonic() + READ_TIMEOUT_S
    while len(at_end) < partitions:
        assert time.monotonic() < deadline, f"{topic} could not be read: {sorted(at_end)} ended"
        message: Any = consumer.poll(0.5)
        if message is None:
            continue
        error = message.error()
        if error is None:
            records.append(_stored(message))
        elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
            at_end.add(message.partition())
        else:
            raise AssertionError(f"reading {topic}: {error}")
    consumer.close()
    return sorted(records, key=lambda record: (record.partition, record.offset))


def _stored(message: Any) -> StoredRecord:
    key = message.key()
    return StoredRecord(
        partition=message.partition(),
        offset=message.offset(),
        timestamp=message.timestamp()[1],
        key=None if key is None else key.decode(),
        value=message.value().decode(),
        headers=tuple((name, value) for name, value in message.headers() or ()),
    )


def expected_records(count: int, partitions: int, base: int) -> list[tuple[int, int, str, str]]:
    """(partition, timestamp, key, value) of what the scenario `produce` sends, in sending order."""
    return [
        (i % partitions, base + i * 37 % count * 1000, f"key-{i}", f"value-{i}-{'x' * 64}")
        for i in range(count)
    ]


def brute_force(
    records: Sequence[StoredRecord], partitions: int, timestamps: Sequence[int]
) -> dict[str, dict[str, int | None]]:
    """What offsetsForTimes must answer: the first offset with a timestamp at or after the asked."""
    found: dict[str, dict[str, int | None]] = {}
    for timestamp in timestamps:
        found[str(timestamp)] = {
            str(partition): next(
                (
                    record.offset
                    for record in records
                    if record.partition == partition and record.timestamp >= timestamp
                ),
                None,
            )
            for partition in range(partitions)
        }
    return found
