"""Histories over partitions of several workers, each of which is killed in turn.

Idempotent producers of librdkafka append unique values; readers and the members of a group read
meanwhile. The history of all clients is compared with what is there in the end:

* every acknowledged value is there, once, at the offset that was acknowledged; no value twice;
* the values of a producer in a partition are in the order in which it sent them;
* no client has read what is not there in the end, at the offset where it was read;
* the group has skipped nothing: what it has committed covers only what its members have read.

`HISTORY_KILLS=40` sets how often a worker is killed.
"""

import asyncio
import itertools
import os
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from tests.integration.workers.support import connect, kill, leaders_of, wait_for_restart
from tests.support.broker import BrokerProcess, broker_process
from tests.support.requests import create_topic

WORKERS = 3
PARTITIONS = 6
KILLS = int(os.environ.get("HISTORY_KILLS", "6"))
QUIET_S = 60.0

Place = tuple[int, int]
"""Partition and offset."""


class Appending(threading.Thread):
    """Appends unique values to all partitions by turns, until it is stopped."""

    def __init__(self, servers: str, number: int) -> None:
        super().__init__(daemon=True)
        self.servers, self.number = servers, number
        self.acknowledged: dict[bytes, Place] = {}
        self.is_stopping = False
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            serials = itertools.count()
            while not self.is_stopping:
                self._use_one(serials)
        except BaseException as error:
            self.failure = error
            raise

    def _use_one(self, serials: "itertools.count[int]") -> None:
        """One producer, until a fatal error ends it."""
        fatal: list[KafkaError] = []
        producer = Producer(
            {
                "bootstrap.servers": self.servers,
                "enable.idempotence": True,
                "linger.ms": 1,
                "error_cb": lambda error: fatal.append(error) if error.fatal() else None,
                "log_level": 0,
            }
        )
        while not self.is_stopping and not fatal:
            if len(producer) < 1000:
                serial = next(serials)
                value = f"{self.number}/{serial}".encode()
                producer.produce(
                    "t", value, partition=serial % PARTITIONS, on_delivery=self._delivered
                )
            producer.poll(0.001)
        producer.flush(QUIET_S)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged[message.value() or b""] = _place(message)


class Reading(threading.Thread):
    """Reads all partitions from the beginning, in sessions that end when a second has passed."""

    def __init__(self, servers: str) -> None:
        super().__init__(daemon=True)
        self.servers = servers
        self.sessions: list[list[tuple[Place, bytes]]] = []
        self.is_stopping = False

    def run(self) -> None:
        while not self.is_stopping:
            consumer = Consumer(_consuming(self.servers, "unused"))
            consumer.assign(
                [TopicPartition("t", number, OFFSET_BEGINNING) for number in range(PARTITIONS)]
            )
            session: list[tuple[Place, bytes]] = []
            end_s = time.monotonic() + 1.0
            while time.monotonic() < end_s:
                session += [
                    (_place(message), message.value() or b"")
                    for message in consumer.consume(500, 0.1)
                    if message.error() is None
                ]
            consumer.close()
            self.sessions.append(session)


class Member(threading.Thread):
    """A member of a group, which commits what it has read."""

    def __init__(self, servers: str) -> None:
        super().__init__(daemon=True)
        self.servers = servers
        self.read: dict[Place, bytes] = {}
        self.is_stopping = False

    def run(self) -> None:
        consumer = Consumer(_consuming(self.servers, "members"))
        consumer.subscribe(["t"])
        while not self.is_stopping:
            found = [one for one in consumer.consume(500, 0.1) if one.error() is None]
            self.read.update((_place(one), one.value() or b"") for one in found)
            if found:
                try:
                    consumer.commit(asynchronous=False)
                except KafkaException:  # worker 1 restarts, or another member has the partition now
                    continue
        consumer.close()


def _place(message: Message) -> Place:
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return partition, offset


def _consuming(servers: str, group: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": servers,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": 6000,
        "log_level": 0,
    }


def _everything(servers: str) -> dict[Place, bytes]:
    """What is there in the end."""
    consumer = Consumer(_consuming(servers, "unused") | {"enable.partition.eof": True})
    partitions = [TopicPartition("t", number, OFFSET_BEGINNING) for number in range(PARTITIONS)]
    consumer.assign(partitions)
    found: dict[Place, bytes] = {}
    ended: set[int | None] = set()
    while len(ended) < PARTITIONS:
        message = consumer.poll(QUIET_S)
        assert message is not None, f"only partitions {ended} were read to their ends"
        error = message.error()
        if error is None:
            found[_place(message)] = message.value() or b""
        elif error.code() == KafkaError._PARTITION_EOF:
            ended.add(message.partition())
    consumer.close()
    return found


def _committed(servers: str) -> dict[int, int]:
    consumer = Consumer(_consuming(servers, "members"))
    asked = [TopicPartition("t", number) for number in range(PARTITIONS)]
    answer = consumer.committed(asked, timeout=QUIET_S)
    found = {one.partition: max(0, one.offset) for one in answer}
    consumer.close()
    return found


@pytest.mark.timeout(180 + 10 * KILLS)
async def test_histories_hold_while_each_worker_is_killed(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with broker_process(data, workers=str(WORKERS)) as broker:
        client = await connect(broker.ports[0])
        await create_topic(client, "t", PARTITIONS)
        leaders = await leaders_of(client, "t")
        assert set(leaders.values()) == set(range(1, WORKERS + 1))
        await client.close()
        servers = ",".join(f"127.0.0.1:{port}" for port in broker.ports)
        producers = [Appending(servers, number) for number in range(3)]
        readers = [Reading(servers) for _ in range(2)]
        members = [Member(servers) for _ in range(2)]
        threads: list[Appending | Reading | Member] = [*producers, *readers, *members]
        for thread in threads:
            thread.start()
        for number in range(KILLS):
            await _next_acknowledgements(producers)
            killed = number % WORKERS + 1
            former = kill(data, killed)
            await asyncio.to_thread(wait_for_restart, data, killed, former)
        await _next_acknowledgements(producers)
        for thread in threads:
            thread.is_stopping = True
        for thread in threads:
            await asyncio.to_thread(thread.join, 2 * QUIET_S)
            assert not thread.is_alive(), thread
        assert [producer.failure for producer in producers] == [None] * len(producers)
        history = History(
            there=await asyncio.to_thread(_everything, servers),
            acknowledged={value: at for one in producers for value, at in one.acknowledged.items()},
            sessions=[session for one in readers for session in one.sessions],
            read={place: value for one in members for place, value in one.read.items()},
            committed=await asyncio.to_thread(_committed, servers),
        )
        assert min(len(history.acknowledged), len(history.read), len(history.sessions)) > 0
        _check(history)
        _no_worker_has_logged_a_bug(broker)


async def _next_acknowledgements(producers: list[Appending]) -> None:
    """Wait until each producer has written to all partitions again."""
    before = [len(one.acknowledged) for one in producers]
    async with asyncio.timeout(QUIET_S):
        while any(
            {place[0] for place in list(one.acknowledged.values())[count:]}
            != set(range(PARTITIONS))
            for one, count in zip(producers, before, strict=True)
        ):
            await asyncio.sleep(0.1)


@dataclass
class History:
    """What all clients know in the end.

    Attributes:
        there: what a last reader finds.
        acknowledged: the values that producers know to be there.
        sessions: what readers that begin at offset 0 have read, in order.
        read: what members of the group have read.
        committed: the offsets of the group, by partition.
    """

    there: dict[Place, bytes]
    acknowledged: dict[bytes, Place]
    sessions: list[list[tuple[Place, bytes]]]
    read: dict[Place, bytes]
    committed: dict[int, int]


def _check(history: History) -> None:
    there = history.there
    values = list(there.values())
    assert len(values) == len(set(values)), "a value is there twice"
    for value, place in history.acknowledged.items():
        assert there.get(place) == value, f"{value!r} was acknowledged at {place}"
    last: dict[tuple[int, int], int] = {}
    for (partition, _), value in sorted(there.items()):
        number, serial = map(int, value.split(b"/"))
        assert serial > last.get((partition, number), -1), f"{value!r} is out of order"
        last[partition, number] = serial
    for session in history.sessions:
        positions: dict[int, int] = {}
        for place, value in session:
            assert there.get(place) == value, f"{value!r} was read at {place}"
            expected = positions.get(place[0], 0)
            assert place[1] == expected, f"a reader skipped from {expected} to {place}"
            positions[place[0]] = place[1] + 1
    for place, value in history.read.items():
        assert there.get(place) == value, f"{value!r} was read at {place}"
    for partition, offset in history.committed.items():
        skipped = [at for at in range(offset) if (partition, at) not in history.read]
        assert not skipped, f"the group has skipped {skipped[:3]} of partition {partition}"


def _no_worker_has_logged_a_bug(broker: BrokerProcess) -> None:
    broker.process.terminate()
    _, log = broker.process.communicate(timeout=QUIET_S)
    assert "Traceback" not in log, log[log.index("Traceback") - 500 :][:3000]


@pytest.mark.parametrize(
    ("fault", "changes"),
    [
        ("twice", {"there": {(0, 0): b"1/0", (0, 1): b"1/1", (0, 2): b"1/1"}}),
        ("acknowledged", {"acknowledged": {b"1/2": (0, 2)}}),
        ("acknowledged", {"acknowledged": {b"1/1": (0, 0)}}),
        ("out of order", {"there": {(0, 0): b"1/1", (0, 1): b"1/0"}, "acknowledged": {}}),
        ("was read", {"sessions": [[((0, 0), b"1/0"), ((0, 1), b"1/5")]]}),
        ("skipped from", {"sessions": [[((0, 1), b"1/1")]]}),
        ("was read", {"read": {(0, 2): b"1/2"}}),
        ("group has skipped", {"read": {(0, 1): b"1/1"}}),
    ],
)
def test_the_check_finds_each_fault(fault: str, changes: dict[str, Any]) -> None:
    good = {(0, 0): b"1/0", (0, 1): b"1/1"}
    history = History(
        there=good,
        acknowledged={b"1/1": (0, 1)},
        sessions=[list(good.items())],
        read=dict(good),
        committed={0: 2},
    )
    _check(history)
    with pytest.raises(AssertionError, match=fault):
        _check(replace(history, **changes))
