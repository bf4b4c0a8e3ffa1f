"""Much work in few bytes: others are served meanwhile, and memory stays bounded.

What is asserted are answers that a bystander gets before the attacker has its last one, and bytes;
an attack that blocks the loop leaves it one or two, however fast the machine is.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from broker.net.limits import CLOSING_TICKS
from broker.node import Broker
from protocol.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.error_codes import ErrorCode
from protocol.records.layout import Codec
from tests.support import attacks
from tests.support.attacks import MIB, TOPIC
from tests.support.broker import RawClient, RunningBroker, batch, broker_process, running_broker
from tests.support.requests import (
    create_topic,
    fetch,
    list_offset,
    produce,
    produce_request,
    values_of,
)

ANSWERS_MEANWHILE = 8
PIPELINED = 11_000
"""What one read of a connection takes in."""

LONG: dict[str, tuple[Callable[[], bytes], int]] = {
    # The bytes, and how many answers they get.
    "pipelined": (partial(attacks.pipelined, PIPELINED), PIPELINED),
    "joins": (partial(attacks.joins, 5_000), 5_000),
    "known names": (partial(attacks.known_names, 90_000), 1),
    "unknown names": (partial(attacks.unknown_names, 90_000), 1),
    "groups": (partial(attacks.groups, 90_000), 1),
    "lookups": (partial(attacks.lookups, 30_000), 1),
    "fetched partitions": (partial(attacks.fetched_partitions, 30_000), 1),
    "produced partitions": (partial(attacks.produced_partitions, 30_000), 1),
    "bombs": (partial(attacks.bombs, 40), 1),
    "gzip members": (attacks.gzip_crumbs, 1),
    "snappy blocks": (attacks.snappy_crumbs, 1),
}


@asynccontextmanager
async def besieged(
    directory: Path, **settings: str
) -> AsyncIterator[tuple[RunningBroker, RawClient]]:
    """A broker with a batch in its topic, and a bystander's connection."""
    settings = {"auto_create_topics_enable": "false", **settings}
    async with running_broker(directory, clock=None, **settings) as broker:
        client = await broker.client()
        await create_topic(client, TOPIC)
        assert (await produce(client, TOPIC, batch("a", timestamp=7))).error_code == 0
        yield broker, client


async def converse(broker: RunningBroker, data: bytes, answers: int) -> None:
    """Send everything and read so many answers."""
    attacker = await broker.client()
    attacker.send_raw(data)
    for _ in range(answers):
        await attacker.receive_frame(timeout_s=120)


@pytest.mark.parametrize("name", LONG)
async def test_others_are_answered_while_one_is_served(tmp_path: Path, name: str) -> None:
    make, answers = LONG[name]
    data = make()
    async with besieged(tmp_path) as (broker, bystander):
        attack = asyncio.create_task(converse(broker, data, answers))
        await asyncio.sleep(0)
        answered = 0
        while not attack.done():
            assert (await list_offset(bystander, TOPIC, -2)).error_code == 0
            answered += 1
        await attack
        assert answered >= (ANSWERS_MEANWHILE if answers == 1 else 2 * ANSWERS_MEANWHILE)
        assert broker.broker.connections.memory_bytes == 0


@pytest.mark.parametrize("make", [attacks.tags, attacks.header_tags])
async def test_unknown_fields_are_not_decoded_one_by_one(
    tmp_path: Path, make: Callable[[], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    """Ten million of them; the refusal names how many there may be."""
    async with besieged(tmp_path) as (broker, _):
        attacker = await broker.client()
        with caplog.at_level("INFO"):
            attacker.send_raw(make())
            assert await attacker.is_closed_by_broker(60)
    assert "tag" in caplog.text
    assert "100000" in caplog.text or "1000 are accepted" in caplog.text


class TestDecompression:
    """Produce requests that are larger than they look."""

    async def test_budget_of_a_request_is_used_up_by_batches_that_are_refused_too(
        self, tmp_path: Path
    ) -> None:
        """64 MiB in all: two batches of 30 MiB fit, the others are refused without being opened."""
        async with besieged(tmp_path, queued_max_decompressed_bytes=str(64 * MIB)) as (broker, _):
            client = await broker.client()
            bomb = attacks.plain_batch(bytes(30 * MIB), Codec.ZSTD)
            await broker.broker.topics.create("many", 50)
            entries = [PartitionProduceData(index=index, records=bomb) for index in range(50)]
            topics = [TopicProduceData(name="many", partition_data=entries)]
            response = await client.request(
                ProduceRequest(acks=1, timeout_ms=30_000, topic_data=topics), 11
            )
            codes = [each.error_code for each in response.responses[0].partition_responses]
            assert codes == [0, 0] + [ErrorCode.MESSAGE_TOO_LARGE] * 48
            assert (await list_offset(client, "many", -1)).offset == 1

    async def test_large_batch_is_stored_before_what_follows_it(self, tmp_path: Path) -> None:
        """On one connection order is kept, although the first takes a way of its own."""
        async with besieged(tmp_path) as (_, client):
            large = attacks.plain_batch(b"x" * 9 * MIB, Codec.GZIP)
            client.send(produce_request(TOPIC, large), 11)
            for number in range(20):
                client.send(produce_request(TOPIC, batch(f"{number}")), 11)
            offsets = []
            for _ in range(21):
                (topic,) = (await client.receive()).responses
                offsets.append(topic.partition_responses[0].base_offset)
            assert offsets == list(range(1, 22))
            data = await fetch(client, TOPIC, 2)
            assert values_of(data) == [b"%d" % number for number in range(20)]

    async def test_topic_that_is_recompressed_keeps_the_order(self, tmp_path: Path) -> None:
        async with besieged(tmp_path) as (_, client):
            await create_topic(client, "packed", compression_type="gzip")
            values = [bytes([65 + number]) * 300_000 for number in range(8)]
            for value in values:
                client.send(produce_request("packed", batch(value)), 11)
            for number in range(8):
                (topic,) = (await client.receive()).responses
                assert topic.partition_responses[0].base_offset == number
            assert values_of(await fetch(client, "packed", 0)) == values

    async def test_acks_0_and_a_client_that_leaves(self, tmp_path: Path) -> None:
        """What is refused closes the connection, and a connection that is gone leaves nothing."""
        async with besieged(tmp_path, queued_max_decompressed_bytes=str(64 * MIB)) as (broker, _):
            client = await broker.client()
            too_large = attacks.plain_batch(bytes(65 * MIB), Codec.ZSTD)
            client.send(produce_request(TOPIC, too_large, acks=0), 11)
            assert await client.is_closed_by_broker()
            leaver = await broker.client()
            leaver.send_raw(attacks.bombs(20))
            await asyncio.sleep(0.05)
            await leaver.close()
            connections = broker.broker.connections
            for _ in range(200):
                if not connections.memory_bytes and len(connections) == 1:
                    break
                await asyncio.sleep(0.05)
            assert (connections.memory_bytes, len(connections)) == (0, 1)


async def test_fetches_of_old_clients_hold_up_no_other_client(tmp_path: Path) -> None:
    """Thirty megabytes that have to be taken apart and packed again, for a consumer of 0.10."""
    async with besieged(tmp_path) as (broker, bystander):
        large = attacks.plain_batch(b"x" * 30 * MIB, Codec.GZIP)
        assert (await produce(bystander, TOPIC, large)).error_code == 0
        consumer = await broker.client()
        old = asyncio.create_task(fetch(consumer, TOPIC, 1, version=2))
        answered = 0
        while not old.done():
            await list_offset(bystander, TOPIC, -2)
            answered += 1
        assert (await old).records
        assert answered >= ANSWERS_MEANWHILE


class TestAnswersThatNobodyReads:
    """`queued.max.response.bytes`."""

    LIMIT = 32 * MIB
    PEERS = 30

    async def test_memory_is_bounded_over_all_connections(self, tmp_path: Path) -> None:
        """Thirty peers ask for forty megabytes twenty times; a consumer beside them reads all."""
        settings = {"queued_max_response_bytes": str(self.LIMIT), "log_flush_policy": "os"}
        with broker_process(tmp_path, **settings) as process:
            client = await RawClient.connect("127.0.0.1", process.port)
            await create_topic(client, TOPIC)
            for _ in range(40):
                assert (await produce(client, TOPIC, batch(b"x" * 1_000_000))).error_code == 0
            before = _resident_bytes(process.process.pid)
            peers = []
            for _ in range(self.PEERS):
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", process.port, limit=1024
                )
                writer.write(attacks.greedy_fetches())
                peers.append((reader, writer))
            offset = 0
            while offset < 40:
                data = await fetch(client, TOPIC, offset, partition_max_bytes=50 * MIB)
                count = len(values_of(data))
                assert count >= 1, "a batch at least, whatever others leave unread"
                offset += count
            used = _resident_bytes(process.process.pid) - before
            for _, writer in peers:
                writer.transport.abort()
            await client.close()
        # A batch for each peer may come on top of the limit.
        assert used < self.LIMIT + self.PEERS * MIB + 64 * MIB, f"{used >> 20} MiB"

    async def test_who_leaves_most_unread_is_cut(self, tmp_path: Path) -> None:
        limit = MIB
        async with running_broker(tmp_path, queued_max_response_bytes=str(limit)) as broker:
            client = await broker.client()
            await create_topic(client, TOPIC, max_message_bytes="20000000")
            assert (await produce(client, TOPIC, batch(b"x" * 9_000_000))).error_code == 0
            greedy, _ = await _unread(broker.broker, broker.port, 3)
            answers = broker.broker.connections.answers
            for _ in range(100):
                if answers.cut >= 2:  # all three were answered; the last one is spared so far
                    break
                await asyncio.sleep(0.05)
            assert answers.cut >= 2
            assert answers.unread_bytes <= limit + 9_100_000
            assert len(values_of(await fetch(client, TOPIC, partition_max_bytes=1))) == 1
            for writer in greedy:
                writer.transport.abort()


async def test_a_peer_that_reads_nothing_does_not_keep_a_closed_connection(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        client = await broker.client()
        await create_topic(client, TOPIC, max_message_bytes="20000000")
        assert (await produce(client, TOPIC, batch(b"x" * 9_000_000))).error_code == 0
        connections = broker.broker.connections
        before = set(connections)
        ((greedy,), _) = await _unread(broker.broker, broker.port, 1)
        (connection,) = set(connections) - before
        for _ in range(100):
            if connection.unread_bytes:
                break
            await asyncio.sleep(0.05)
        connection.close("a bad frame")
        for _ in range(CLOSING_TICKS):
            assert connection in set(connections)
            connections.sweep()
        await asyncio.sleep(0.05)
        assert connection not in set(connections)
        greedy.transport.abort()


async def _unread(
    broker: Broker, port: int, count: int
) -> tuple[list[asyncio.StreamWriter], list[asyncio.StreamReader]]:
    """Peers that ask for everything and read nothing."""
    readers, writers = [], []
    for _ in range(count):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        writer.write(attacks.greedy_fetches())
        readers.append(reader)
        writers.append(writer)
    return writers, readers


def _resident_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024
