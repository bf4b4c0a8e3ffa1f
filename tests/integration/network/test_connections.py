"""Connections: bad frames, limits, order, back-pressure; a broken peer never hurts another."""

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.net import connection
from broker.net.dispatch import Answered
from broker.net.limits import PROGRESS_WINDOW_TICKS, STALL_TICKS, WRITE_BUFFER_HIGH_BYTES
from protocol.api.api_versions import ApiVersionsRequest
from protocol.api_keys import ApiKey
from protocol.declare.primitives import Buffer
from tests.support.broker import RawClient, RunningBroker, batch, running_broker
from tests.support.requests import (
    create_topic,
    fetch,
    fetch_request,
    metadata_request,
    produce,
    produce_request,
    values_of,
)

HELLO = ApiVersionsRequest(client_software_name="x", client_software_version="1")


@pytest.fixture
async def bystander(broker: RunningBroker) -> AsyncIterator[RawClient]:
    """Another connection, which must work as before when the test is over."""
    client = await broker.client()
    await client.request(HELLO, 3)
    yield client
    assert (await client.request(HELLO, 3)).error_code == 0


@pytest.mark.parametrize(
    "frame",
    [
        b"\xff\xff\xff\xff",
        b"\x7f\xff\xff\xff",
        bytes.fromhex("16030100c5010000c1"),  # a TLS hello
        b"GET / HTTP/1.1\r\n\r\n",
        (7).to_bytes(4, "big") + bytes(7),
        (8).to_bytes(4, "big") + bytes.fromhex("0003 0000 00000001".replace(" ", "")),
        (12).to_bytes(4, "big") + bytes.fromhex("0003000000000001 0005 6162".replace(" ", "")),
        (14).to_bytes(4, "big") + bytes.fromhex("0003000c00000001ffff00ffffffff0f"[:28]),
        (18).to_bytes(4, "big") + bytes.fromhex("0003000000000001ffff7fffffff") + bytes(4),
    ],
    ids=["negative size", "huge size", "tls", "http", "short header", "no client id",
         "client id cut", "lying tags", "lying array"],
)  # fmt: skip
async def test_malformed_frame_closes_only_its_connection(
    client: RawClient, bystander: RawClient, frame: bytes
) -> None:
    client.send_raw(frame)
    assert await client.is_closed_by_broker()


async def test_bytes_after_a_complete_request_are_ignored(client: RawClient) -> None:
    """As Kafka does: a few clients pad."""
    frame = bytes.fromhex("0003000000000001ffff") + bytes(4) + b"more"
    client.send_raw(len(frame).to_bytes(4, "big") + frame)
    assert (await client.receive_frame())[:4] == (1).to_bytes(4, "big")


async def test_corrupt_batch_leaves_the_log_alone(client: RawClient, bystander: RawClient) -> None:
    await create_topic(client, "t")
    await produce(client, "t", batch("a"))
    corrupt = bytearray(batch("b"))
    corrupt[30] ^= 0xFF
    assert (await produce(client, "t", bytes(corrupt))).error_code == 2
    data = await fetch(client, "t")
    assert (values_of(data), data.high_watermark) == ([b"a"], 1)


async def test_reason_of_closing_is_logged_with_the_peer(
    client: RawClient, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"):
        client.send_raw(b"\xff\xff\xff\xff")
        assert await client.is_closed_by_broker()
    (line,) = [r.getMessage() for r in caplog.records if "closing" in r.getMessage()]
    assert "127.0.0.1:" in line
    assert "outside" in line


async def test_frame_in_single_bytes_is_served(client: RawClient) -> None:
    frame = bytes.fromhex("0012000000000007ffff")
    for byte in len(frame).to_bytes(4, "big") + frame:
        client.send_raw(bytes([byte]))
        await asyncio.sleep(0.001)
    assert (await client.receive_frame())[:4] == (7).to_bytes(4, "big")


async def test_answers_keep_the_order_of_requests(broker: RunningBroker) -> None:
    """A Produce that waits, a long poll, and requests that could be answered at once."""
    client = await broker.client()
    await create_topic(client, "t")
    client.send(produce_request("t", batch("a")), 9)
    client.send(HELLO, 3)
    client.send(produce_request("t", batch("b")), 9)
    client.send(fetch_request("t", 2, max_wait_ms=150), 12)
    client.send(metadata_request(["t"]), 12)
    client.send(produce_request("t", batch("c")), 9)
    first = (await client.receive()).responses[0].partition_responses[0]
    assert (await client.receive()).api_keys
    second = (await client.receive()).responses[0].partition_responses[0]
    polled = (await client.receive()).responses[0].partitions[0]
    assert (await client.receive()).topics[0].name == "t"
    third = (await client.receive()).responses[0].partition_responses[0]
    assert (first.base_offset, second.base_offset, third.base_offset) == (0, 1, 2)
    assert values_of(polled) == [], "the Produce after a long poll waits for it"


async def test_requests_after_a_long_poll_wait_for_it(broker: RunningBroker) -> None:
    client = await broker.client()
    await create_topic(client, "t")
    client.send(fetch_request("t", max_wait_ms=30_000), 12)
    for _ in range(100):
        client.send(metadata_request(["t"]), 12)
    await asyncio.sleep(0.05)
    await produce(await broker.client(), "t", batch("a"))
    assert values_of((await client.receive()).responses[0].partitions[0]) == [b"a"]
    for _ in range(100):
        assert (await client.receive()).topics[0].name == "t"


async def test_old_clients_ask_before_they_are_answered(client: RawClient) -> None:
    """kafka-python 1.4 sends Metadata v0 right after ApiVersions v0."""
    client.send(HELLO, 0)
    client.send(metadata_request([]), 0)
    assert (await client.receive()).api_keys
    assert (await client.receive()).brokers


class TestLimits:
    """What one peer may take."""

    async def test_frame_above_the_limit_is_refused(self, tmp_path: Path) -> None:
        async with running_broker(tmp_path, socket_request_max_bytes="1000") as broker:
            client = await broker.client()
            client.send_raw((1001).to_bytes(4, "big"))
            assert await client.is_closed_by_broker()

    async def test_connections_in_all(self, tmp_path: Path) -> None:
        async with running_broker(tmp_path, max_connections="2") as broker:
            clients = [await broker.client() for _ in range(2)]
            for client in clients:
                await client.request(HELLO, 3)
            third = await broker.client()
            assert await third.is_closed_by_broker()
            await clients[0].close()
            await asyncio.sleep(0.05)
            assert (await (await broker.client()).request(HELLO, 3)).error_code == 0
            assert broker.broker.connections.refused == 1

    async def test_connections_of_one_address(self, tmp_path: Path) -> None:
        async with running_broker(tmp_path, max_connections_per_ip="1") as broker:
            await (await broker.client()).request(HELLO, 3)
            assert await (await broker.client()).is_closed_by_broker()

    async def test_idle_connection_is_closed(self, tmp_path: Path) -> None:
        async with running_broker(tmp_path, connections_max_idle_ms="3000") as broker:
            client = await broker.client()
            await client.request(HELLO, 3)
            for _ in range(4):
                broker.broker.connections.sweep()
            assert await client.is_closed_by_broker()

    async def test_waiting_connection_is_not_idle(self, tmp_path: Path) -> None:
        async with running_broker(tmp_path, connections_max_idle_ms="3000") as broker:
            client = await broker.client()
            await create_topic(client, "t")
            client.send(fetch_request("t", max_wait_ms=200), 12)
            await asyncio.sleep(0.05)
            for _ in range(10):
                broker.broker.connections.sweep()
            assert (await client.receive()).responses

    async def test_trickling_frame_is_cut(self, broker: RunningBroker) -> None:
        client = await broker.client()
        client.send_raw((100_000).to_bytes(4, "big") + b"slow")
        await asyncio.sleep(0.05)
        for _ in range(PROGRESS_WINDOW_TICKS + 1):
            broker.broker.connections.sweep()
        assert await client.is_closed_by_broker()

    async def test_claim_costs_no_memory(self, broker: RunningBroker) -> None:
        for _ in range(50):
            client = await broker.client()
            client.send_raw((100_000_000).to_bytes(4, "big") + b"x")
        await asyncio.sleep(0.1)
        assert broker.broker.connections.memory_bytes <= 50 * 64 * 1024

    async def test_memory_budget_stops_large_frames_and_not_small_ones(
        self, tmp_path: Path
    ) -> None:
        async with running_broker(tmp_path, queued_max_request_bytes="1048576") as broker:
            connections = broker.broker.connections
            greedy = [await broker.client() for _ in range(4)]
            for client in greedy:
                client.send_raw((50_000_000).to_bytes(4, "big") + bytes(4_000_000))
            await asyncio.sleep(0.2)
            assert connections.memory_bytes < 6 * 1_048_576
            small = await broker.client()
            assert (await small.request(HELLO, 3)).error_code == 0
            for _ in range(PROGRESS_WINDOW_TICKS + 1):
                connections.sweep()
            assert await greedy[0].is_closed_by_broker()
            await asyncio.sleep(0.05)
            assert connections.memory_bytes <= 1_048_576

    async def test_without_a_budget_large_frames_are_read(self, tmp_path: Path) -> None:
        async with running_broker(tmp_path, queued_max_request_bytes="-1") as broker:
            greedy = [await broker.client() for _ in range(4)]
            for client in greedy:
                client.send_raw((50_000_000).to_bytes(4, "big") + bytes(4_000_000))
            await asyncio.sleep(0.2)
            assert broker.broker.connections.memory_bytes >= 4 * 4_000_000

    async def test_frames_after_a_long_poll_count_as_request_memory(self, tmp_path: Path) -> None:
        async with running_broker(tmp_path, queued_max_request_bytes="6000000") as broker:
            connections = broker.broker.connections
            pollers = [await broker.client() for _ in range(3)]
            await create_topic(pollers[0], "t")
            for client in pollers:
                client.send(fetch_request("t", max_wait_ms=30_000), 12)
                client.send_raw((4_000_000).to_bytes(4, "big") + bytes(4_000_000))
                await asyncio.sleep(0.1)
            finished = [c for c in connections if c.is_busy and not c.unfinished_bytes]
            assert [c.held_bytes for c in finished] == [4_000_000]
            assert 4_000_000 < connections.memory_bytes < 10_000_000
            await produce(await broker.client(), "t", batch("a"))
            for client in pollers:
                await client.receive()
                # The frame reads as a Produce of nothing with acks=0, which has no answer.
                assert (await client.request(HELLO, 3)).error_code == 0
            assert connections.memory_bytes == 0

    async def test_started_frames_give_their_memory_back(self, broker: RunningBroker) -> None:
        client = await broker.client()
        other = await broker.client()
        await create_topic(client, "t", max_message_bytes="20000000")
        client.send(fetch_request("t", max_wait_ms=30_000), 12)
        client.send(produce_request("t", batch(b"x" * 4_000_000)), 9)
        await asyncio.sleep(0.2)
        assert broker.broker.connections.memory_bytes > 4_000_000
        await produce(other, "t", batch("a"))
        await client.receive()
        assert (await client.receive()).responses
        assert broker.broker.connections.memory_bytes == 0

    async def test_answers_after_a_waiting_produce_are_few_when_large(
        self, broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        client = await broker.client()
        await create_topic(client, "t", max_message_bytes="20000000")
        await create_topic(client, "u")
        await produce(client, "t", batch(b"x" * 3_000_000))
        waiting: list[int] = []

        def waits(parts: list[Buffer]) -> Answered:
            waiting.append(sum(map(len, parts)))
            return Answered(parts)

        monkeypatch.setattr(connection, "Answered", waits)
        client.send(produce_request("u", batch("a")), 9)
        for _ in range(10):
            client.send(fetch_request("t", partition_max_bytes=10_000_000), 12)
        assert (await client.receive()).responses[0].partition_responses[0].error_code == 0
        for _ in range(10):
            assert len(values_of((await client.receive()).responses[0].partitions[0])) == 1
        assert 3_000_000 < sum(waiting) < 4_000_000, "one answer, not ten"

    async def test_reader_that_stalls_is_cut(self, broker: RunningBroker) -> None:
        client = await broker.client()
        await create_topic(client, "t", max_message_bytes="20000000")
        await produce(client, "t", batch(b"x" * 9_000_000))
        slow = socket.create_connection((broker.host, broker.port))
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        fetcher = RawClient(*await asyncio.open_connection(sock=slow, limit=1024))
        for _ in range(3):
            fetcher.send(fetch_request("t", partition_max_bytes=10_000_000), 12)
        await asyncio.sleep(0.3)
        stalled = [c for c in broker.broker.connections if c._write_paused]
        assert len(stalled) == 1
        assert stalled[0]._transport is not None
        unsent = stalled[0]._transport.get_write_buffer_size()
        assert WRITE_BUFFER_HIGH_BYTES < unsent < 10_000_000, "one answer, not three"
        for _ in range(STALL_TICKS + 2):
            broker.broker.connections.sweep()
        await asyncio.sleep(0.05)
        assert stalled[0] not in list(broker.broker.connections)
        await fetcher.close()


async def test_bug_in_a_handler_costs_one_request(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    client = await broker.client()
    await create_topic(client, "t")

    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a bug")

    log = broker.broker.topics.led_log("t", 0)
    monkeypatch.setattr(log, "read", fail)
    response = await client.request(fetch_request("t"), 12)
    assert (response.error_code, response.responses) == (-1, [])
    assert "a bug" in caplog.text
    assert broker.broker.metrics.api(ApiKey.FETCH).failures == 1
    assert (await client.request(HELLO, 3)).error_code == 0


async def test_a_thousand_clients_connect_while_the_loop_is_busy(broker: RunningBroker) -> None:
    """Nothing here awaits, so nothing is accepted: the kernel has to keep all of them.

    One that finds no room would try again a second later.
    """
    peers = [socket.socket() for _ in range(1_000)]
    try:
        for peer in peers:
            peer.setblocking(False)
            peer.connect_ex((broker.host, broker.port))
        assert len({peer for peer in peers if _is_established(peer)}) == len(peers)
    finally:
        for peer in peers:
            peer.close()


def _is_established(peer: socket.socket) -> bool:
    try:
        peer.getpeername()
    except OSError:
        return False
    return True
