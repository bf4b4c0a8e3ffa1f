"""How fast connections are accepted: a listener waits, an address is held, before any handshake."""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from protocol.api.api_versions import ApiVersionsRequest
from protocol.api.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from protocol.error_codes import ErrorCode
from tests.integration.security.test_quotas import alter
from tests.support.broker import ConnectionClosed, RawClient, RunningBroker, running_broker
from tests.support.certificates import authority, signed
from tests.support.clock import FrozenClock
from tests.support.kafka_peer import free_ports

BROKER = 4
WINDOW_S = 1.0
HELLO = ApiVersionsRequest()


@pytest.fixture
async def two(tmp_path: Path, clock: FrozenClock) -> AsyncIterator[tuple[RunningBroker, int]]:
    """A broker whose clock stands still, with two listeners, and the port of the second."""
    (other,) = free_ports(1)
    async with running_broker(
        tmp_path / "data",
        clock=clock,
        **{
            "listeners": f"PLAINTEXT://127.0.0.1:0,OTHER://127.0.0.1:{other}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT",
            "quota.window.num": "2",
        },
    ) as running:
        yield running, other


async def set_rate(client: RawClient, name: str, value: str) -> tuple[int, str | None]:
    change = AlterableConfig(name=name, config_operation=0, value=value)
    answer = await client.request(
        IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(resource_type=BROKER, resource_name="1", configs=[change])
            ]
        ),
        1,
    )
    return answer.responses[0].error_code, answer.responses[0].error_message


async def seconds_to_serve(port: int) -> float:
    begun = time.monotonic()
    client = await RawClient.connect("127.0.0.1", port)
    await client.request(HELLO, 0)
    await client.close()
    return time.monotonic() - begun


def delays(running: RunningBroker) -> int:
    found = running.broker.metrics.throttle_ms.get("accept")
    return 0 if found is None else sum(found.counts)


async def test_the_whole_broker_waits(two: tuple[RunningBroker, int]) -> None:
    running, other = two
    admin = await running.client()
    assert (await set_rate(admin, "max.connection.creation.rate", "1"))[0] == 0
    assert await seconds_to_serve(running.port) < WINDOW_S
    assert await seconds_to_serve(running.port) >= WINDOW_S
    # The other listener's connections count too, and it waits by itself.
    assert await seconds_to_serve(other) >= WINDOW_S
    assert delays(running) == 2
    await set_rate(admin, "max.connection.creation.rate", "1000")
    await seconds_to_serve(running.port)
    assert delays(running) == 2


async def test_one_listener_waits(two: tuple[RunningBroker, int]) -> None:
    running, other = two
    admin = await running.client()
    name = "listener.name.other.max.connection.creation.rate"
    assert (await set_rate(admin, name, "1"))[0] == 0
    for _ in range(3):
        await seconds_to_serve(running.port)
    assert delays(running) == 0
    await seconds_to_serve(other)
    assert await seconds_to_serve(other) >= WINDOW_S
    assert delays(running) == 1
    asked = DescribeConfigsResource(
        resource_type=BROKER, resource_name="1", configuration_keys=[name]
    )
    answer = await admin.request(DescribeConfigsRequest(resources=[asked]), 4)
    (shown,) = answer.results[0].configs
    assert (shown.name, shown.value, shown.read_only) == (name, "1", False)


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("max.connection.creation.rate", "0", "too small"),
        ("listener.name.other.max.connection.creation.rate", "0", "too small"),
        ("listener.name.other.max.connection.creation.rate", "x", "not a whole number"),
        ("listener.name.third.max.connection.creation.rate", "1", "no such broker setting"),
        ("listener.name.other.ssl.client.auth", "none", "cannot change while"),
    ],
)
async def test_bad_rates_are_refused(
    two: tuple[RunningBroker, int], name: str, value: str, complaint: str
) -> None:
    code, message = await set_rate(await two[0].client(), name, value)
    assert code == ErrorCode.INVALID_REQUEST
    assert message is not None
    assert complaint in message


async def is_served(port: int, source: str = "127.0.0.1") -> bool:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
    client = RawClient(reader, writer)
    try:
        return bool((await client.request(HELLO, 0)).api_keys)
    except ConnectionClosed:
        return False
    finally:
        await client.close()


async def test_limits_of_connections_change_at_run_time(two: tuple[RunningBroker, int]) -> None:
    running, other = two
    admin = await running.client()
    of_other = "listener.name.other.max.connections"
    assert (await set_rate(admin, of_other, "1"))[0] == 0
    kept = await RawClient.connect("127.0.0.1", other)
    await kept.request(HELLO, 0)
    assert not await is_served(other)
    assert await is_served(running.port), "the limit of one listener alone"
    assert (await set_rate(admin, of_other, "2"))[0] == 0
    assert await is_served(other)
    await kept.close()
    assert (await set_rate(admin, "max.connections", "1"))[0] == 0
    assert not await is_served(running.port)
    assert (await set_rate(admin, "max.connections", "50"))[0] == 0
    assert (await set_rate(admin, "max.connections.per.ip", "1"))[0] == 0
    assert not await is_served(running.port)
    assert await is_served(running.port, "127.0.0.2")
    overrides = "127.0.0.1:2, [2001:db8::1]:0,127.0.0.2:0"
    assert (await set_rate(admin, "max.connections.per.ip.overrides", overrides))[0] == 0
    assert await is_served(running.port)
    assert not await is_served(running.port, "127.0.0.2")
    assert (await set_rate(admin, "max.connections.per.ip", "0"))[0] == 0
    assert await is_served(running.port)
    assert not await is_served(running.port, "127.0.0.3")


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("max.connections.per.ip", "0", "admits no one"),
        ("max.connections.per.ip.overrides", "localhost:5", "'localhost:5' is not ADDRESS:NUMBER"),
        ("max.connections.per.ip.overrides", "10.0.0.1", "is not ADDRESS:NUMBER"),
        ("max.connections.per.ip.overrides", "10.0.0.1:-1", "is below 0"),
        ("listener.name.other.max.connections", "0", "too small"),
    ],
)
async def test_bad_limits_are_refused(
    two: tuple[RunningBroker, int], name: str, value: str, complaint: str
) -> None:
    code, message = await set_rate(await two[0].client(), name, value)
    assert code == ErrorCode.INVALID_REQUEST
    assert complaint in (message or "")


async def test_a_stop_does_not_wait_for_a_delay(two: tuple[RunningBroker, int]) -> None:
    running, _ = two
    admin = await running.client()
    await set_rate(admin, "max.connection.creation.rate", "1")
    waiting = [await asyncio.open_connection("127.0.0.1", running.port) for _ in range(3)]
    await running.broker.stop()
    for reader, writer in waiting:
        async with asyncio.timeout(10):
            with suppress(ConnectionResetError):
                await reader.read()
        writer.close()


async def test_an_address_is_held_before_the_handshake(tmp_path: Path) -> None:
    clock = FrozenClock(wall_ms=int(time.time() * 1000) + 1000)
    signed(tmp_path, authority(tmp_path), "server")
    trusting = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    settings = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.location": str(tmp_path / "server.pem"),
        "quota.window.num": "3",
        "max.connection.creation.rate": "1000",
    }
    async with running_broker(tmp_path / "data", clock=clock, **settings) as running:
        admin = await running.client(trusting)
        await alter(admin, {"ip": "127.0.0.1"}, connection_creation_rate=1.0)
        handshakes = running.broker.metrics.handshakes
        for _ in range(2):
            await (await running.client(trusting)).request(HELLO, 0)
        assert handshakes["SSL", "ok"] == 3
        begun = time.monotonic()
        with pytest.raises((OSError, EOFError)):
            await running.client(trusting)
        assert time.monotonic() - begun >= WINDOW_S / 2
        assert handshakes == {("SSL", "ok"): 3}
        assert len(running.broker.connections) == 3
        held = running.broker.metrics.throttle_ms["connection"]
        assert sum(held.counts) == 1
