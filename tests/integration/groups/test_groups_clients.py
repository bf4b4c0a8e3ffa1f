"""Groups with real clients: two members share the work, a broker restart changes nothing.

The broker runs in this process; the clients that block run in threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.broker import RunningBroker, running_broker

PARTITIONS = 4
RECORDS = 200


@contextlib.asynccontextmanager
async def _same_address(directory: Path, port: int) -> AsyncIterator[RunningBroker]:
    async with running_broker(directory, listeners=f"PLAINTEXT://127.0.0.1:{port}") as broker:
        yield broker


def _until(what: Callable[[], bool], *, within_s: float = 20.0) -> None:
    deadline_s = time.monotonic() + within_s
    while not what():
        assert time.monotonic() < deadline_s, "took too long"


def _quiet(_: Any) -> None:
    """librdkafka reports every lost connection; here they are wanted."""


def _confluent(bootstrap: str, **settings: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "log_level": 0,
        "error_cb": _quiet,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 200,
        **settings,
    }


class TwoConsumers:
    """Two librdkafka members of one group that survive the broker."""

    def __init__(self, bootstrap: str, **settings: Any) -> None:
        admin = AdminClient(_confluent(bootstrap))
        admin.create_topics([NewTopic("t", PARTITIONS, 1)])["t"].result()
        self.producer = Producer(_confluent(bootstrap, **{"enable.idempotence": True}))
        self.members = [
            Consumer(
                _confluent(
                    bootstrap,
                    **{
                        "group.id": "g",
                        "auto.offset.reset": "earliest",
                        "enable.auto.commit": False,
                        "session.timeout.ms": 6000,
                        "heartbeat.interval.ms": 200,
                        **settings,
                    },
                )
            )
            for _ in range(2)
        ]
        self.seen: list[str] = []
        self.rebalances = 0

    def begin(self) -> None:
        self.produce("first")
        for member in self.members:
            member.subscribe(["t"], on_assign=self._note)
            _until(lambda member=member: self._poll() or bool(member.assignment()))  # type: ignore[misc]
        _until(lambda: self._poll() or self._is_shared())
        self.read_all("first")

    def _note(self, *_: Any) -> None:
        self.rebalances += 1

    def _is_shared(self) -> bool:
        return sorted(len(member.assignment()) for member in self.members) == [2, 2]

    def _poll(self) -> bool:
        for member in self.members:
            message = member.poll(0.02)
            if message is not None and not message.error():
                self.seen.append((message.value() or b"").decode())
        return False

    def produce(self, prefix: str) -> None:
        for i in range(RECORDS):
            self.producer.produce("t", f"{prefix}-{i}", str(i))
        assert self.producer.flush(20) == 0

    def read_all(self, prefix: str) -> None:
        wanted = {f"{prefix}-{i}" for i in range(RECORDS)}
        _until(lambda: self._poll() or wanted <= set(self.seen))

    def go_on(self) -> None:
        before = self.rebalances
        self.produce("second")
        self.read_all("second")
        self.commit()
        assert self.rebalances == before, "a restart is no reason to rebalance"
        assert self._is_shared()
        assert sum(value.startswith("second") for value in self.seen) == RECORDS

    def commit(self) -> None:
        for member in self.members:
            member.commit(asynchronous=False)

    def committed(self) -> int:
        asked = [TopicPartition("t", partition) for partition in range(PARTITIONS)]
        return sum(each.offset for each in self.members[0].committed(asked, timeout=10))

    def close(self) -> None:
        for member in self.members:
            member.close()


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
async def test_do_two_librdkafka_members_go_on_after_a_restart(
    tmp_path: Path, strategy: str
) -> None:
    async with running_broker(tmp_path) as broker:
        port = broker.port
        two = await asyncio.to_thread(
            TwoConsumers, broker.bootstrap, **{"partition.assignment.strategy": strategy}
        )
        await asyncio.to_thread(two.begin)
        await asyncio.to_thread(two.commit)
        assert await asyncio.to_thread(two.committed) == RECORDS
    async with _same_address(tmp_path, port) as broker:
        await asyncio.to_thread(two.go_on)
        assert await asyncio.to_thread(two.committed) == 2 * RECORDS
        await asyncio.to_thread(two.close)
        group = broker.broker.groups.classic_groups["g"]
        assert (group.state.value, len(group.members)) == ("Empty", 0)


async def test_is_a_static_librdkafka_member_back_without_a_rebalance(tmp_path: Path) -> None:
    def run(bootstrap: str) -> list[int]:
        generations = []
        for _ in range(2):
            member = Consumer(
                _confluent(
                    bootstrap,
                    **{"group.id": "g", "group.instance.id": "i", "session.timeout.ms": 6000},
                )
            )
            member.subscribe(["t"])
            _until(lambda member=member: member.poll(0.05) is None and bool(member.assignment()))  # type: ignore[misc]
            generations.append(groups["g"].generation_id)
            member.close()
        return generations

    async with running_broker(tmp_path) as broker:
        await broker.broker.topics.create("t", 1)
        groups = broker.broker.groups.classic_groups
        first, second = await asyncio.to_thread(run, broker.bootstrap)
        assert second == first


async def test_do_two_aiokafka_members_share(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await broker.broker.topics.create("t", PARTITIONS)
        members = [
            AIOKafkaConsumer(
                "t",
                bootstrap_servers=broker.bootstrap,
                group_id="g",
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                heartbeat_interval_ms=200,
                metadata_max_age_ms=1000,
            )
            for _ in range(2)
        ]
        for member in members:
            await member.start()
        try:
            async with asyncio.timeout(20):
                while sorted(len(member.assignment()) for member in members) != [2, 2]:
                    await asyncio.gather(*(member.getmany(timeout_ms=50) for member in members))
            async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
                for partition in range(PARTITIONS):
                    await producer.send_and_wait("t", b"v", partition=partition)
            read: list[int] = []
            async with asyncio.timeout(20):
                while len(read) < PARTITIONS:
                    for member in members:
                        for tp, records in (await member.getmany(timeout_ms=50)).items():
                            read += [tp.partition] * len(records)
            assert sorted(read) == list(range(PARTITIONS))
            for member in members:
                await member.commit()
        finally:
            for member in members:
                await member.stop()
        offsets = broker.broker.groups.offsets.table.of_group("g")
        assert {tp: committed.offset for tp, committed in offsets.items()} == {
            ("t", partition): 1 for partition in range(PARTITIONS)
        }
