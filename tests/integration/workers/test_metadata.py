"""What worker 1 decides holds in every worker: deletions, settings, quotas, rules, users."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from protocol.api.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.error_codes import ErrorCode
from tests.integration.workers.support import connect, directory_of, kill, leaders_of
from tests.support.broker import BrokerProcess, batch, broker_process
from tests.support.cli import tidelog
from tests.support.requests import create_topic, produce


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with broker_process(tmp_path / "data", workers="2") as process:
        yield process


async def _delete(port: int, name: str) -> int:
    client = await connect(port)
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=30_000)
    (answer,) = (await client.request(request, 6)).responses
    await client.close()
    return int(answer.error_code)


async def test_deleted_topics_are_gone_everywhere(broker: BrokerProcess, tmp_path: Path) -> None:
    first, second = [await connect(port) for port in broker.ports]
    for _ in range(3):  # a name is free again at once
        await create_topic(second, "t", 4)
        for partition, leader in (await leaders_of(first, "t")).items():
            client = first if leader == 1 else second
            assert (await produce(client, "t", batch("x"), partition=partition)).error_code == 0
        assert await _delete(broker.ports[1], "t") == ErrorCode.NONE
        for partition in range(4):
            answer = await produce(second, "t", batch("x"), partition=partition)
            assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for worker in (1, 2):
        names = [path.name for path in directory_of(tmp_path / "data", worker).iterdir()]
        kept = [name for name in names if name.startswith("t-") and not name.endswith("-delete")]
        assert kept == []
    await first.close()
    await second.close()


async def test_a_topic_deleted_while_a_worker_restarts(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    client = await connect(broker.ports[0])
    await create_topic(client, "t", 4)
    kill(tmp_path / "data", 2)
    assert await _delete(broker.ports[0], "t") == ErrorCode.NONE
    deadline_s = time.monotonic() + 30
    theirs = directory_of(tmp_path / "data", 2)
    while [one for one in theirs.glob("t-*") if not one.name.endswith("-delete")]:
        assert time.monotonic() < deadline_s, "worker 2 keeps the deleted partitions"
        await asyncio.sleep(0.05)
    assert not list(theirs.glob("*-stray"))
    await client.close()


def _set(admin: AdminClient, resource: ConfigResource, name: str, value: str) -> None:
    resource.add_incremental_config(
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    )
    admin.incremental_alter_configs([resource])[resource].result(30)


@pytest.mark.parametrize("bootstrap", [0, 1])
async def test_settings_hold_in_every_worker(broker: BrokerProcess, bootstrap: int) -> None:
    """A limit of the topic, set through either worker, is enforced by both."""
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{broker.ports[bootstrap]}"})
    await asyncio.to_thread(admin.create_topics([NewTopic("t", 2, 1)])["t"].result, 30)
    resource = ConfigResource(ResourceType.TOPIC, "t")
    await asyncio.to_thread(_set, admin, resource, "max.message.bytes", "100")
    clients = [await connect(port) for port in broker.ports]
    for partition, leader in (await leaders_of(clients[0], "t")).items():
        answer = await produce(clients[leader - 1], "t", batch("x" * 200), partition=partition)
        assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE
    for client in clients:
        await client.close()


async def test_settings_of_each_worker_are_described(broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{broker.ports[1]}"})
    for node_id in ("1", "2"):
        resource = ConfigResource(ResourceType.BROKER, node_id)
        found = await asyncio.to_thread(admin.describe_configs([resource])[resource].result, 30)
        assert found["workers"].value == "2"


def test_rules_and_users_hold_in_every_worker(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for user in ("admin", "writer"):
        password = tmp_path / f"{user}.txt"
        password.write_text(user)
        options = ("--data-dir", str(data), "--password-file", str(password))
        made = tidelog("user", "add", user, "--mechanism", "SCRAM-SHA-256", *options)
        assert made.returncode == 0, made.stderr
    security = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl_enabled_mechanisms": "SCRAM-SHA-256",
        "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super_users": "User:admin",
    }
    with broker_process(data, workers="2", **security) as broker:

        def login(user: str) -> dict[str, str | int | float | bool]:
            return {
                "bootstrap.servers": f"127.0.0.1:{broker.ports[1]}",
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "SCRAM-SHA-256",
                "sasl.username": user,
                "sasl.password": user,
            }

        admin = AdminClient(login("admin"))
        admin.create_topics([NewTopic("t", 2, 1)])["t"].result(30)
        stranger = AdminClient(login("writer"))
        with pytest.raises(KafkaException) as refused:
            stranger.create_topics([NewTopic("u", 2, 1)])["u"].result(30)
        assert refused.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        assert not _write_everywhere(login("writer"))
        rule = AclBinding(
            ResourceType.TOPIC,
            "t",
            ResourcePatternType.LITERAL,
            "User:writer",
            "*",
            AclOperation.WRITE,
            AclPermissionType.ALLOW,
        )
        admin.create_acls([rule])[rule].result(30)
        deadline_s = time.monotonic() + 30
        while not _write_everywhere(login("writer")):
            assert time.monotonic() < deadline_s, "the rule does not hold everywhere"


def _write_everywhere(login: dict[str, str | int | float | bool]) -> bool:
    """Whether this client may write to the partitions of both workers."""
    failures: list[object] = []
    producer = Producer({**login, "message.timeout.ms": 5000})
    for partition in range(2):
        producer.produce(
            "t",
            b"x",
            partition=partition,
            on_delivery=lambda error, _: failures.append(error) if error is not None else None,
        )
    producer.flush(30)
    return not failures
