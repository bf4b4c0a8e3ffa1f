"""The metrics port: every figure has a type and a help, and the figures move."""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
from prometheus_client.parser import text_string_to_metric_families

from broker.operator.http import MetricsServer
from broker.space import Space, SpaceGuard
from client.admin import Admin
from client.producer import Producer
from client.types import TopicPartition
from tests.support.broker import RawClient, RunningBroker, batch, running_broker
from tests.support.certificates import authority, signed
from tests.support.cli import tidelog
from tests.support.requests import create_topic, fetch, produce


@pytest.fixture
async def measured(tmp_path: Path) -> AsyncIterator[RunningBroker]:
    async with running_broker(tmp_path / "data", metrics_listener="127.0.0.1:0") as running:
        yield running


async def get(broker: RunningBroker, path: str, method: str = "GET") -> tuple[int, bytes]:
    assert broker.ready.metrics_port is not None
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.ready.metrics_port)
    writer.write(
        f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
    )
    answer = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    await writer.wait_closed()
    status, _, body = answer.partition(b"\r\n\r\n")
    return int(status.split()[1]), body


async def samples(broker: RunningBroker) -> dict[tuple[str, ...], float]:
    """Sample name and label values -> value."""
    _, body = await get(broker, "/metrics")
    return {
        (sample.name, *(sample.labels[key] for key in sorted(sample.labels))): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }


async def test_every_family_has_help_and_type(measured: RunningBroker) -> None:
    _, body = await get(measured, "/metrics")
    families = list(text_string_to_metric_families(body.decode()))
    assert len(families) > 25
    assert [family.name for family in families if not family.documentation] == []
    assert [family.name for family in families if family.type in ("unknown", "untyped")] == []


async def test_traffic_is_counted(measured: RunningBroker) -> None:
    client = await measured.client()
    await create_topic(client, "t")
    await produce(client, "t", batch("a", "b"))
    await fetch(client, "t")
    found = await samples(measured)
    assert found["tidelog_records_appended_total",] == 2
    assert found["tidelog_batches_appended_total",] == 1
    assert found["tidelog_fetched_bytes_total",] == found["tidelog_appended_bytes_total",] > 60
    assert found["tidelog_request_seconds_count", "produce"] == 1
    assert found["tidelog_sync_acks_total",] == 1
    assert found["tidelog_connections",] == 1
    assert found["tidelog_partition_high_watermark", "0", "t"] == 2
    assert found["tidelog_partition_durable_offset", "0", "t"] == 2
    assert found["tidelog_partition_segments", "0", "t"] == 1


async def test_an_api_that_no_client_uses_has_no_histogram(measured: RunningBroker) -> None:
    client = await measured.client()
    await create_topic(client, "t")
    found = await samples(measured)
    apis = {name[1] for name in found if name[0] == "tidelog_request_seconds_count"}
    assert "create_topics" in apis
    assert not apis & {"produce", "fetch", "share_fetch"}
    assert found["tidelog_request_failures_total", "produce"] == 0


async def test_open_files_are_counted(measured: RunningBroker) -> None:
    before = await samples(measured)
    clients = [await measured.client() for _ in range(5)]
    after = await samples(measured)
    # The clients are in this process too: each connection has two ends here.
    assert after["process_open_fds",] - before["process_open_fds",] >= 2 * len(clients)
    assert after["process_open_fds",] < after["process_max_fds",]


async def test_refusals_are_counted_by_error(measured: RunningBroker) -> None:
    client = await measured.client()
    await create_topic(client, "t")
    await produce(client, "t", b"not a batch at all, but long enough to look at: ............")
    found = await samples(measured)
    assert sum(v for k, v in found.items() if k[0] == "tidelog_appends_rejected_total") == 1


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/healthz", 200), ("GET", "/readyz", 200), ("HEAD", "/metrics", 200),
     ("GET", "/nothing", 404), ("POST", "/metrics", 405)],
)  # fmt: skip
async def test_paths(measured: RunningBroker, method: str, path: str, status: int) -> None:
    assert (await get(measured, path, method))[0] == status


async def test_offline_partition_is_unhealthy(
    measured: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await measured.client()
    await create_topic(client, "t")
    log = measured.broker.topics.led_log("t", 0)
    monkeypatch.setattr(type(log), "offline_reason", property(lambda _: "the disk is gone"))
    status, body = await get(measured, "/healthz")
    assert (status, b"the disk is gone" in body) == (503, True)


async def test_scrape_of_many_partitions_is_quick(measured: RunningBroker) -> None:
    client = await measured.client()
    await create_topic(client, "t", partitions=200)
    started = asyncio.get_running_loop().time()
    await get(measured, "/metrics")
    assert asyncio.get_running_loop().time() - started < 1


async def test_groups_lag_in_records_and_in_seconds(measured: RunningBroker) -> None:
    """The age is that of the first record not committed, found inside its batch."""
    now_ms = time.time_ns() // 1_000_000
    async with Admin(measured.bootstrap) as admin:
        await admin.create_topic("t", partitions=2)
    async with Producer(measured.bootstrap, linger_ms=50, compression="lz4") as producer:
        for age_s in (900, 600, 300):
            stamp_ms = now_ms - 1000 * age_s
            await producer.send("t", b"x", partition=0, timestamp_ms=stamp_ms)
    zero, one = TopicPartition("t", 0), TopicPartition("t", 1)
    async with Admin(measured.bootstrap) as admin:
        await admin.alter_group_offsets("late", {zero: 1, one: 0})
        found = await samples(measured)
        assert found["tidelog_group_lag_records", "late", "0", "t"] == 2
        assert 600 <= found["tidelog_group_lag_seconds", "late", "0", "t"] < 630
        assert found["tidelog_group_lag_records", "late", "1", "t"] == 0
        assert found["tidelog_group_lag_seconds", "late", "1", "t"] == 0
        await admin.alter_group_offsets("late", {zero: 3})
    found = await samples(measured)
    assert found["tidelog_group_lag_records", "late", "0", "t"] == 0


async def test_a_groups_lag_has_a_slope_after_three_samples(measured: RunningBroker) -> None:
    """A group at a standstill falls behind by a second per second, and scrapes add nothing."""
    now_ms = time.time_ns() // 1_000_000
    late = TopicPartition("t", 0)
    lag = measured.broker.group_lag
    async with Admin(measured.bootstrap) as admin:
        await admin.create_topic("t", partitions=1)
        async with Producer(measured.bootstrap) as producer:
            for _ in range(2):
                await producer.send("t", b"x", partition=0, timestamp_ms=now_ms - 60_000)
        await admin.alter_group_offsets("late", {late: 0})
        clock = SimpleNamespace(now_ms=now_ms)
        lag._wall_ms = lambda: clock.now_ms
        name = ("tidelog_group_lag_seconds_slope", "late", "0", "t")
        for elapsed_ms in (0, 15_000, 30_000):
            assert name not in await samples(measured)
            clock.now_ms = now_ms + elapsed_ms
            assert list(lag.sample(elapsed_ms)) == [None]
        assert (await samples(measured))[name] == pytest.approx(1)
        found = (await admin.group_lags("late"))[late]
        assert found.seconds == 90
        assert found.slope == pytest.approx(1)
        assert await admin.group_lags("other") == {}
        shown = await asyncio.to_thread(
            tidelog, "group", "describe", "late", "-b", measured.bootstrap
        )
        assert "grows 1.00 s/s" in shown.stdout
        await admin.alter_group_offsets("late", {late: 2})
        for elapsed_ms in (45_000, 60_000):
            list(lag.sample(elapsed_ms))
        assert (await samples(measured))[name] < 0
        for elapsed_ms in range(75_000, 400_000, 15_000):
            list(lag.sample(elapsed_ms))
        assert (await samples(measured))[name] == 0


async def test_a_groups_lag_in_seconds_is_a_records_and_no_markers(
    measured: RunningBroker,
) -> None:
    """A marker has the broker's clock: a group before it was never late, whatever followed."""
    now_ms = time.time_ns() // 1_000_000
    tp = TopicPartition("t", 0)
    async with Admin(measured.bootstrap) as admin:
        await admin.create_topic("t", partitions=1)
        async with Producer(measured.bootstrap, transactional_id="x") as producer:
            async with producer.transaction():
                await producer.send("t", b"x", timestamp_ms=now_ms - 900_000)
            await admin.alter_group_offsets("late", {tp: 1})
            found = await samples(measured)
            assert found["tidelog_group_lag_seconds", "late", "0", "t"] == 0
            async with producer.transaction():
                await producer.send("t", b"x", timestamp_ms=now_ms - 600_000)
        found = await samples(measured)
        assert 600 <= found["tidelog_group_lag_seconds", "late", "0", "t"] < 630


async def test_scrape_of_many_partitions_lets_others_have_their_turn(
    measured: RunningBroker,
) -> None:
    client = await measured.client()
    await create_topic(client, "many", 500)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    task = asyncio.create_task(others())
    await asyncio.sleep(0)
    before = turns
    pieces = MetricsServer(
        lambda _: (turns.to_bytes(4, "big") for _ in range(5)),
        Mock(),
        healthy=lambda _: None,
        ready=lambda _: None,
        queries={},
        commands={},
        load=AsyncMock(),
    )
    assert len(await pieces._exposition(shows_names=True)) == 20
    assert turns - before >= 5
    task.cancel()
    found = await samples(measured)
    assert found["tidelog_partition_segments", "499", "many"] == 1


async def test_handshakes_are_counted_and_timed_from_the_first_byte(tmp_path: Path) -> None:
    signer = authority(tmp_path)
    context = ssl.create_default_context(cafile=str(signer))
    context.check_hostname = False
    settings: dict[str, Any] = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl_keystore_location": str(signed(tmp_path, signer, "server")),
        "metrics_listener": "127.0.0.1:0",
    }
    async with running_broker(tmp_path / "data", **settings) as running:
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        await asyncio.sleep(0.3)
        began = time.perf_counter()
        await writer.start_tls(context)
        client = RawClient(reader, writer)
        await create_topic(client, "t")
        elapsed_s = time.perf_counter() - began
        await client.close()
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        writer.write(b"no hello")
        await reader.read()
        writer.close()
        found = await samples(running)
    assert found["tidelog_tls_handshakes_total", "SSL", "ok"] == 1
    assert found["tidelog_tls_handshakes_total", "SSL", "failed"] == 1
    assert found["tidelog_tls_handshake_seconds_count", "SSL"] == 1
    assert 0 < found["tidelog_tls_handshake_seconds_sum", "SSL"] <= elapsed_s
    assert found["tidelog_tls_handshake_seconds_bucket", "+Inf", "SSL"] == 1


async def test_the_disk_and_the_build_are_shown(measured: RunningBroker) -> None:
    now = await samples(measured)
    size, free, appendable = (
        now[(f"tidelog_disk_{name}_bytes",)] for name in ("size", "free", "appendable")
    )
    assert size > free > appendable >= 0
    (build,) = (key for key in now if key[0] == "tidelog_build_info")
    assert now[build] == 1
    assert build[1] in ("compiled", "python")  # labels are sorted: loops, python, version


async def test_a_disk_without_space_for_records_shows_zero(
    measured: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SpaceGuard, "look", lambda self: Space(size=10, free=1, appendable=-1))
    assert (await samples(measured))[("tidelog_disk_appendable_bytes",)] == 0
