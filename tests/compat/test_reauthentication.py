"""Real clients log in again while they write, before their session ends (KIP-368).

`REAUTHENTICATION_S=600` makes them write for that long.
"""

import asyncio
import os
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from cli.security.offline_users import add_user
from tests.support.broker import RawClient, RunningBroker, running_broker
from tests.support.kafka_peer import tool_command
from tests.support.logins import log_in_scram
from tests.support.requests import create_topic, list_offset

USER, PASSWORD, TOPIC = "ann", "secret", "t"
MECHANISM = "SCRAM-SHA-512"
LIFETIME_MS = 3_000
SECONDS = int(os.environ.get("REAUTHENTICATION_S", "10"))
RECORDS_PER_S = 100

pytestmark = [pytest.mark.slow, pytest.mark.timeout(SECONDS + 170)]


def librdkafka(bootstrap: str, _: Path) -> int:
    """Write with one producer; how many records it has delivered."""
    errors: list[Any] = []
    delivered = 0

    def reported(error: object, _: object) -> None:
        nonlocal delivered
        assert error is None, error
        delivered += 1

    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": MECHANISM,
            "sasl.username": USER,
            "sasl.password": PASSWORD,
            "error_cb": errors.append,
        }
    )
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        producer.produce(TOPIC, b"value", on_delivery=reported)
        producer.poll(1 / RECORDS_PER_S)
    assert producer.flush(30) == 0
    assert errors == []
    return delivered


def java(bootstrap: str, folder: Path) -> int:
    """Write with Kafka's own tool; how many records it has sent."""
    properties = folder / "client.properties"
    properties.write_text(
        "security.protocol=SASL_PLAINTEXT\n"
        f"sasl.mechanism={MECHANISM}\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{USER}" password="{PASSWORD}";\n'
    )
    count = 2 * SECONDS * RECORDS_PER_S  # it catches up what its start has missed
    command = tool_command(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", TOPIC, "--num-records", str(count), "--record-size", "100"),
        *("--throughput", str(RECORDS_PER_S), "--bootstrap-server", bootstrap),
        *("--command-config", str(properties)),
    )
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=SECONDS + 120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Exception" not in done.stdout + done.stderr, done.stdout + done.stderr
    assert f"{count} records sent" in done.stdout
    return count


@pytest.fixture
async def secured(tmp_path: Path) -> AsyncIterator[RunningBroker]:
    directory = tmp_path / "data"
    add_user(str(directory), USER, PASSWORD, MECHANISM, 4096)
    settings: dict[str, Any] = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl_enabled_mechanisms": MECHANISM,
        "connections_max_reauth_ms": str(LIFETIME_MS),
    }
    async with running_broker(directory, **settings) as running:
        yield running


@pytest.mark.parametrize("write", [librdkafka, pytest.param(java, marks=pytest.mark.jvm)])
async def test_a_client_that_writes_logs_in_again_and_loses_nothing(
    secured: RunningBroker, tmp_path: Path, write: Callable[[str, Path], int]
) -> None:
    client = await RawClient.connect(secured.host, secured.port)
    assert (await log_in_scram(client, USER, PASSWORD)).error_code == 0
    await create_topic(client, TOPIC)
    await client.close()
    bootstrap = f"{secured.host}:{secured.port}"
    sent = await asyncio.to_thread(write, bootstrap, tmp_path)
    metrics = secured.broker.metrics
    again = {result: n for (_, _, result), n in metrics.reauthentications.items()}
    assert set(again) == {"ok"}
    # Each a little before the session's end; its first seconds a client needs to start.
    assert again["ok"] >= SECONDS * 1000 // LIFETIME_MS - 1 >= 2
    assert sum(metrics.sessions_expired.values()) == 0
    assert sum(distribution.total for distribution in metrics.reauthentication_ns.values()) > 0
    client = await RawClient.connect(secured.host, secured.port)
    assert (await log_in_scram(client, USER, PASSWORD)).error_code == 0
    assert (await list_offset(client, TOPIC, -1)).offset == sent
    await client.close()
