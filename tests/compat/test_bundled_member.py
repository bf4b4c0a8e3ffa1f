"""The bundled client as a member of Apache Kafka's groups, by the consumer protocol (KIP-848).

What it does with Tidelog is `tests/integration/client/test_consumer_protocol.py`; here the
coordinator is the one that the protocol was written for.
"""

import asyncio
import dataclasses
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer as Librdkafka

from protocol.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.compat import harness
from tests.support.broker import RawClient
from tests.support.kafka_peer import KafkaPeer
from tests.support.members import PARTITIONS, Reader, member, produce, until
from tidelog import (
    Admin,
    BrokerRefused,
    Producer,
    ShareConsumer,
    TopicPartition,
    UnsupportedByBroker,
)

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.timeout(240)]

SETTINGS = {
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.assignment.interval.ms": "100",
    "group.consumer.min.assignment.interval.ms": "100",
}


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Kafka whose members beat often and are soon missed."""
    with KafkaPeer(
        tmp_path_factory.mktemp("kafka") / "data", settings=SETTINGS, heap="512m"
    ) as peer:
        yield peer.bootstrap


@asynccontextmanager
async def topic(kafka: str, partitions: int = PARTITIONS) -> AsyncIterator[str]:
    name = harness.unique("bundled")
    async with Admin(kafka) as admin:
        await asyncio.to_thread(harness.create_topic, kafka, name, partitions)
        yield name
        await admin.delete_topic(name)


async def until_owned(count: int, *readers: Reader) -> None:
    await until(lambda: all(len(reader.owned) == count for reader in readers))


async def beat_as(kafka: str, member_id: str, group_id: str, epoch: int) -> None:
    """Speak in a member's name."""
    host, _, port = kafka.rpartition(":")
    client = await RawClient.connect(host, int(port))
    request = ConsumerGroupHeartbeatRequest(
        group_id=group_id, member_id=member_id, member_epoch=epoch
    )
    assert (await client.request(request, 1)).error_code == 0
    await client.close()


async def test_two_members_share_and_lose_and_double_nothing(kafka: str) -> None:
    async with topic(kafka) as name:
        group = harness.unique("group")
        await produce(kafka, 0, 200, name)
        async with Reader(kafka, name, group_id=group) as first:
            await until(lambda: len(first.values) == 200)
            async with Reader(kafka, name, group_id=group) as second:
                await until_owned(2, first, second)
                assert first.owned | second.owned == set(range(PARTITIONS))
                revoked = [share for what, share in first.heard if what == "revoked"]
                assert revoked == [frozenset(second.owned)]
                await produce(kafka, 200, 400, name)
                await until(lambda: len(first.values) + len(second.values) == 400)
            await until_owned(PARTITIONS, first)
            await produce(kafka, 400, 500, name)
            await until(lambda: len(first.values) + len(second.values) == 500)
        assert Counter(first.values + second.values) == Counter(range(500))
        assert not [what for what, _ in first.heard + second.heard if what == "lost"]
        async with Admin(kafka) as admin:
            found = await admin.group_offsets(group)
            assert [position.offset for position in found.values()] == [125] * PARTITIONS


async def test_a_static_member_returns_and_a_fenced_one_joins_again(kafka: str) -> None:
    async with topic(kafka) as name:
        group = harness.unique("group")
        async with Reader(kafka, name, group_id=group, group_instance_id="a") as stays:
            await until_owned(PARTITIONS, stays)
            async with Reader(kafka, name, group_id=group, group_instance_id="b") as goes:
                await until_owned(2, goes, stays)
                async with member(kafka, name, group_id=group, group_instance_id="b") as late:
                    with pytest.raises(BrokerRefused, match="UNRELEASED_INSTANCE_ID"):
                        await late.getmany(timeout_ms=5000)
                share = goes.owned
            before = list(stays.heard)
            async with Reader(kafka, name, group_id=group, group_instance_id="b") as again:
                await until(lambda: again.owned == share)
                assert stays.heard == before
            # One that does not return in time loses its place.
            await until_owned(PARTITIONS, stays)
        async with Reader(kafka, name, group_id=group) as reader:
            await until_owned(PARTITIONS, reader)
            await beat_as(kafka, reader.consumer.group_metadata().member_id, group, -1)
            # Kafka gives a new member nothing, until it has assigned.
            await until(lambda: len([share for _, share in reader.heard if share]) >= 3)
            whole = frozenset(range(PARTITIONS))
            assert [(what, share) for what, share in reader.heard if share] == [
                ("assigned", whole),
                ("lost", whole),
                ("assigned", whole),
            ]


async def test_a_pattern_is_matched_by_kafka(kafka: str) -> None:
    async with (
        topic(kafka, 1) as name,
        Reader(kafka, pattern=f"{name}|{name}-l[a-z]+", group_id=name) as reader,
    ):
        await until(lambda: {tp.topic for tp in reader.consumer.assignment()} == {name})
        async with Admin(kafka) as admin:
            await asyncio.to_thread(harness.create_topic, kafka, f"{name}-late", 1)
            await produce(kafka, 7, 8, f"{name}-late")
            await until(lambda: reader.values == [7])
            await reader.consumer.subscribe(f"{name}-late")
            await until(
                lambda: {tp.topic for tp in reader.consumer.assignment()} == {f"{name}-late"}
            )
            await admin.delete_topic(f"{name}-late")


async def test_offsets_of_a_transaction_carry_the_member(kafka: str) -> None:
    async with topic(kafka) as name:
        first = TopicPartition(name, 0)
        async with (
            Producer(kafka, transactional_id=name) as producer,
            Reader(kafka, name, group_id=name) as reader,
        ):
            await until_owned(PARTITIONS, reader)
            now = reader.consumer.group_metadata()
            async with producer.transaction():
                await producer.send_offsets({first: 1}, now)
            async with asyncio.timeout(30):  # Kafka's answer comes before its markers
                while not (found := await reader.consumer.committed(first)):
                    await asyncio.sleep(0.05)
            assert found[first].offset == 1
            past = dataclasses.replace(now, generation=now.generation + 7)
            with pytest.raises(BrokerRefused, match=r"ILLEGAL_GENERATION|STALE_MEMBER_EPOCH"):
                async with producer.transaction():
                    await producer.send_offsets({first: 3}, past)
            assert (await reader.consumer.committed(first))[first].offset == 1


async def test_a_group_is_shared_with_librdkafka(kafka: str) -> None:
    async with topic(kafka) as name:
        await produce(kafka, 0, 100, name)
        theirs: list[int] = []
        settings = {
            "bootstrap.servers": kafka,
            "group.id": name,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        other = Librdkafka(settings)

        def read_theirs() -> None:
            for message in other.consume(100, timeout=0.05):
                assert message.error() is None, message.error()
                theirs.append(int(message.value() or b""))

        async with Reader(kafka, name, group_id=name) as reader:
            await until(lambda: len(reader.values) == 100)
            other.subscribe([name])
            async with asyncio.timeout(60):
                while len(reader.owned) != 2 or len(other.assignment()) != 2:
                    await asyncio.to_thread(read_theirs)
                    await asyncio.sleep(0.02)
            await produce(kafka, 100, 200, name)
            async with asyncio.timeout(60):
                while len(reader.values) + len(theirs) < 200:
                    await asyncio.to_thread(read_theirs)
            other.close()
            await until_owned(PARTITIONS, reader)
        assert Counter(reader.values + theirs) == Counter(range(200))


async def test_the_command_line_reads_a_backlog_to_its_end(kafka: str) -> None:
    async with topic(kafka) as name:
        await produce(kafka, 0, 20, name)
        program = Path(sys.executable).parent / "tidelog"
        words = ("-g", name, "--group-protocol", "consumer", "-f", "earliest", "-e")
        command = [program, "consume", name, *words, "--format", "{value}", "-b", kafka]
        for expected in (list(range(20)), []):
            run = partial(subprocess.run, command, capture_output=True, timeout=60, check=False)
            done = await asyncio.to_thread(run)
            assert done.returncode == 0, done.stderr
            assert sorted(map(int, done.stdout.split())) == expected


async def test_what_kafka_refuses_is_said_with_the_cure(kafka: str) -> None:
    async with topic(kafka) as name:
        async with ShareConsumer(name, bootstrap=kafka, group_id=f"{name}-s") as consumer:
            await consumer.getmany(timeout_ms=3000)
            async with member(kafka, name, group_id=f"{name}-s") as stranger:
                with pytest.raises(BrokerRefused, match="give another group_id"):
                    await stranger.getmany(timeout_ms=20_000)
        async with member(kafka, name, group_id=name, group_remote_assignor="magic") as one:
            with pytest.raises(BrokerRefused, match="UNSUPPORTED_ASSIGNOR"):
                await one.getmany(timeout_ms=20_000)


async def test_an_older_kafka_is_told_apart_with_the_cure(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("older") / "data"
    cure = pytest.raises(UnsupportedByBroker, match="give group_protocol='classic'")
    with KafkaPeer(folder, version="3.9.1", heap="512m") as older, cure:
        await member(older.bootstrap, "t", wait_for_topics=True).start()
