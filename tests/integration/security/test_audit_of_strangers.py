"""What strangers repeat at will leaves few lines in the audit log, and each of them is counted."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from broker.security.audit import KINDS_MAX
from protocol.api.metadata import MetadataRequest
from protocol.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.integration.security.test_quotas import alter
from tests.integration.security.test_sasl import add_users, log_in
from tests.support.broker import (
    ConnectionClosed,
    RawClient,
    RunningBroker,
    batch,
    running_broker,
)
from tests.support.certificates import authority, signed
from tests.support.requests import create_topic


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


@pytest.fixture
def settings(tmp_path: Path, file: Path) -> dict[str, str]:
    pem = signed(tmp_path, authority(tmp_path), "server")
    return {
        "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "ssl_keystore_location": str(pem),
        "sasl_enabled_mechanisms": "PLAIN",
        "connection_failed_authentication_delay_ms": "0",
        "audit_log_file": str(file),
        "max_connections_per_ip": "20",
    }


@pytest.fixture
async def running(tmp_path: Path, settings: dict[str, Any]) -> AsyncIterator[RunningBroker]:
    async with running_broker(tmp_path / "data", **settings) as running:
        yield running


def events(file: Path, name: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in file.read_text().splitlines()]
    return [one for one in found if one["event"] == name]


async def all_counted(file: Path, name: str, expected: int) -> list[dict[str, Any]]:
    """The lines of an event, once they speak of so many events."""
    async with asyncio.timeout(30):
        while True:
            found = events(file, name)
            if sum(1 + one["more_before"] for one in found) == expected:
                return found
            await asyncio.sleep(0.05)


async def test_handshakes_that_fail(running: RunningBroker, file: Path) -> None:
    port, count = running.ready.ports["SSL"], 400
    loop = asyncio.get_running_loop()
    began = loop.time()
    for _ in range(count // 10):
        strangers = [await asyncio.open_connection("127.0.0.1", port) for _ in range(10)]
        for _, writer in strangers:
            writer.write(b"\0" * 64)
        for reader, writer in strangers:
            with suppress(ConnectionError):
                assert await reader.read() == b""
            writer.close()
    found = await all_counted(file, "handshake failed", count)
    assert len(found) <= loop.time() - began + 3, "one in a second, and the last one"
    assert {(one["host"], one["listener"]) for one in found} == {("127.0.0.1", "SSL")}
    assert "WRONG_VERSION_NUMBER" in found[0]["reason"]


async def test_connections_over_a_limit(running: RunningBroker, file: Path) -> None:
    kept = [await running.client() for _ in range(20)]
    count = 200
    for number in range(count):
        name = ("PLAINTEXT", "SSL")[number % 2]
        reader, writer = await asyncio.open_connection("127.0.0.1", running.ready.ports[name])
        with suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()
    found = await all_counted(file, "connection refused", count)
    assert len(found) < count // 4
    assert found[0]["limit"] == "max.connections.per.ip = 20 are open"
    assert found[0]["listener"] == "PLAINTEXT"
    assert (await kept[0].request(MetadataRequest(topics=[]), 12)).brokers


async def test_passwords_that_are_guessed(running: RunningBroker, file: Path) -> None:
    add_users(running)
    port = running.ready.ports["SASL_PLAINTEXT"]
    guesses = 0
    while guesses < 60:
        client = await RawClient.connect("127.0.0.1", port)
        with suppress(ConnectionClosed):  # 20 of those before are not closed yet
            assert (await log_in(client, "alice", "wrong")).error_code
            guesses += 1
        await client.close()
    running.broker.security.audit.write_folded()
    found = await all_counted(file, "login failed", 60)
    assert len(found) < 10
    assert {one["user"] for one in found} == {"alice"}


async def test_clients_over_their_quotas(running: RunningBroker, file: Path) -> None:
    """However many names a client gives itself: each is measured, and few of them are named."""
    client = await running.client()
    await create_topic(client, "t", partitions=1)
    await alter(client, {"client-id": None}, producer_byte_rate=1.0)
    produce = ProduceRequest(
        acks=-1,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(
                name="t", partition_data=[PartitionProduceData(index=0, records=batch(b"x" * 100))]
            )
        ],
    )
    count = KINDS_MAX + 50
    for number in range(count):
        stranger = await running.client()
        answer = await stranger.request(produce, 7, f"client\n{number}")
        assert answer.throttle_time_ms > 0
        await stranger.close()
    running.broker.security.audit.write_folded()
    found = await all_counted(file, "throttled", count)
    assert len(found) == KINDS_MAX + 2
    first = found[0]
    del first["time"]
    assert (first["entity"], first["key"], first["bound"]) == (
        {"client-id": "client\n0"},
        "producer_byte_rate",
        1.0,
    )
    assert first["rate"] > 1.0
    assert first["delay_ms"] > 1000


async def test_certificates_that_are_replaced_and_kept(
    running: RunningBroker, file: Path, tmp_path: Path
) -> None:
    async def written(name: str) -> dict[str, Any]:
        async with asyncio.timeout(10):
            while not events(file, name):
                await asyncio.sleep(0.02)
        (found,) = events(file, name)
        return found

    await running.broker.certificates.reload_all()
    same = await written("certificate read again")
    assert events(file, "certificate replaced") == []
    following = signed(tmp_path, tmp_path / "ca.pem", "next", subject="/CN=server")
    (tmp_path / "server.pem").write_bytes(following.read_bytes())
    await running.broker.certificates.run()
    replaced = await written("certificate replaced")
    assert replaced["fingerprint"] != same["fingerprint"]
    assert (replaced["listener"], replaced["subject"]) == ("SSL", "CN=server")
    assert len(replaced["fingerprint"]) == 64
    assert replaced["not_after"].endswith("Z")
    (tmp_path / "server.pem").write_text("no PEM")
    await running.broker.certificates.run()
    kept = await written("certificate kept")
    assert kept["fingerprint"] == replaced["fingerprint"]
    assert "it has no PEM key" in kept["reason"]
    context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    client = await RawClient.connect("127.0.0.1", running.ready.ports["SSL"], context)
    assert (await client.request(MetadataRequest(topics=[]), 12)).brokers
    await client.close()
