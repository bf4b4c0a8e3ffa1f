"""The asyncio client and the command line against Apache Kafka's secured listeners.

`tests.unit.client.test_faces` has the same against a few lines that play the broker, and
`tests.pipeline.test_security` has Spark's side.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from client.admin import Admin
from client.consumer import Consumer
from client.core.options import PASSWORD_MECHANISMS, Security
from client.errors import BrokerRefused, BrokerUnreachable
from client.producer import Producer
from tests.support.kafka_peer import KafkaPeer
from tests.support.secured_kafka import PASSWORD, USER, Keys, make_keys, secured_kafka

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return make_keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="module")
def kafka(keys: Keys, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaPeer]:
    with secured_kafka(tmp_path_factory.mktemp("kafka"), keys) as peer:
        asyncio.run(_make_topic(peer))
        yield peer


async def _make_topic(peer: KafkaPeer) -> None:
    async with Admin(peer.bootstrap) as admin:
        await admin.create_topic("events", partitions=1, replication_factor=1)


def listener(peer: KafkaPeer, protocol: str) -> str:
    return f"127.0.0.1:{peer.listeners[protocol]}"


def security(keys: Keys, protocol: str, mechanism: str = "", **fields: Any) -> Security:
    if protocol.endswith("SSL"):
        fields = {"tls": True, "ca_file": str(keys.authority), **fields}
    if mechanism:
        fields = {"mechanism": mechanism, "username": USER, "password": PASSWORD, **fields}
    return Security(**fields)


@pytest.mark.parametrize("mechanism", PASSWORD_MECHANISMS)
@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
async def test_apache_kafka_accepts_the_user_and_no_other(
    kafka: KafkaPeer, keys: Keys, protocol: str, mechanism: str
) -> None:
    bootstrap = listener(kafka, protocol)
    async with Admin(bootstrap, security=security(keys, protocol, mechanism)) as admin:
        assert "events" in await admin.topics()
    stranger = security(keys, protocol, mechanism, password="wrong")
    with pytest.raises(BrokerRefused, match=f"authenticating as '{USER}'") as caught:
        async with Admin(bootstrap, security=stranger):
            pass
    assert "wrong" not in str(caught.value)


@pytest.mark.parametrize(
    ("protocol", "mechanism"), [("SSL", ""), ("SASL_SSL", "SCRAM-SHA-512")], ids=["tls", "both"]
)
async def test_a_transaction_and_a_group_over_a_secured_listener(
    kafka: KafkaPeer, keys: Keys, protocol: str, mechanism: str
) -> None:
    """Every role of a connection: metadata, coordinators, fetches, joins."""
    bootstrap, own = listener(kafka, protocol), security(keys, protocol, mechanism)
    if protocol == "SSL":
        own = security(keys, protocol, certificate_file=str(keys.client))
    name = f"t-{protocol.lower().replace('_', '-')}"
    async with Admin(bootstrap, security=own) as admin:
        await admin.create_topic(name, partitions=2, replication_factor=1)
    producer = Producer(bootstrap, security=own, transactional_id=name)
    async with producer, producer.transaction():
        for number in range(100):
            await producer.send(name, b"v%d" % number, partition=number % 2)
    consumer = Consumer(
        name, bootstrap=bootstrap, group_id=name, start="earliest",
        isolation="read_committed", security=own,
    )  # fmt: skip
    values = set()
    async with consumer, asyncio.timeout(60):
        async for record in consumer:
            values.add(record.value)
            if len(values) == 100:
                break
    assert values == {b"v%d" % number for number in range(100)}


async def test_a_broker_that_no_authority_signed_is_not_trusted(
    kafka: KafkaPeer, keys: Keys
) -> None:
    with pytest.raises(BrokerUnreachable, match="CERTIFICATE_VERIFY_FAILED"):
        async with Admin(listener(kafka, "SSL"), security=Security(tls=True)):
            pass


def tidelog(*words: str, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tidelog", *words],
        capture_output=True, text=True, timeout=120, check=False, input=text,
        cwd=Path(__file__).parents[2],
    )  # fmt: skip


def test_the_command_line_reads_and_writes_over_tls_as_a_user(
    kafka: KafkaPeer, keys: Keys, tmp_path: Path
) -> None:
    password = tmp_path / "password"
    password.write_text(f"{PASSWORD}\n")
    reach = [
        "-b", listener(kafka, "SASL_SSL"), "--tls-ca", str(keys.authority), "--user", USER,
        "--password-file", str(password), "--sasl-mechanism", "SCRAM-SHA-256",
    ]  # fmt: skip
    assert tidelog("topic", "create", "cli", "-p", "1", *reach).returncode == 0
    produced = tidelog("produce", "cli", *reach, text="a\nb\n")
    assert produced.returncode == 0, produced.stderr
    consumed = tidelog("consume", "cli", "--from", "earliest", "-e", "--json", *reach)
    assert consumed.returncode == 0, consumed.stderr
    assert [json.loads(line)["value"] for line in consumed.stdout.splitlines()] == ["a", "b"]
    password.write_text("wrong\n")
    refused = tidelog("offsets", "cli", *reach)
    assert refused.returncode == 1
    assert "SASL_AUTHENTICATION_FAILED" in refused.stderr
    assert "wrong" not in refused.stderr
