"""Changes by a client without the right change nothing, however the request is put."""

import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from config.broker_keys import BROKER_KEYS
from config.values import format_value
from protocol.acl import CLUSTER_NAME, Acl, Operation, PatternType, Permission, ResourceType
from protocol.api.alter_configs import AlterConfigsRequest, AlterConfigsResource
from protocol.api.incremental_alter_configs import AlterableConfig as IncrementalSetting
from protocol.api.incremental_alter_configs import AlterConfigsResource as IncrementalResource
from protocol.api.incremental_alter_configs import IncrementalAlterConfigsRequest
from protocol.api.metadata import MetadataRequest
from protocol.error_codes import ErrorCode
from protocol.structs import ConfigText
from tests.support.broker import RawClient, RunningBroker, running_broker
from tests.support.requests import create_topic

BROKER = 4
STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[RunningBroker]:
    settings: dict[str, Any] = {"authorizer_class_name": STANDARD, "super_users": "User:admin"}
    async with running_broker(tmp_path / "data", **settings) as running:
        yield running


def rule(host: str, permission: Permission) -> Acl:
    return Acl(
        resource_type=ResourceType.CLUSTER,
        name=CLUSTER_NAME,
        pattern=PatternType.LITERAL,
        principal="User:ANONYMOUS",
        host=host,
        operation=Operation.CREATE,
        permission=permission,
    )


@pytest.mark.parametrize("times", [1, 2, 3])
async def test_a_resource_named_twice_needs_the_right_too(
    guarded: RunningBroker, times: int
) -> None:
    """The handler applies every copy, so the guard may let none of them through."""
    client = await guarded.client()
    setting = ConfigText(name="log.retention.ms", value="1000")
    resource = AlterConfigsResource(resource_type=BROKER, resource_name="", configs=[setting])
    answer = await client.request(AlterConfigsRequest(resources=[resource] * times), 2)
    codes = {each.error_code for each in answer.responses}
    assert codes == {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
    assert "log.retention.ms" not in guarded.broker.topics.broker_config.dynamic


FIXED = {name: key for name, key in BROKER_KEYS.items() if not key.dynamic}
OF_LISTENERS = (
    "listener.name.plaintext.ssl.client.auth",
    "listener.name.plaintext.sasl.jaas.config",
)


async def test_no_request_changes_what_only_the_start_decides(tmp_path: Path) -> None:
    """Not even one of a client who may do everything."""
    assert FIXED.keys() >= {
        "log.dirs", "listeners", "super.users", "authorizer.class.name", "insecure.allow",
        "sasl.enabled.mechanisms", "audit.log.file", "metrics.auth", "metrics.listener",
        "config.providers", "delegation.token.secret.key",
    }  # fmt: skip
    async with running_broker(tmp_path / "data") as running:
        client = await running.client()
        for name in (*FIXED, *OF_LISTENERS):
            value = format_value(FIXED[name].default) if name in FIXED else "required"
            change = IncrementalSetting(name=name, config_operation=0, value=value)
            for node in ("", "1"):
                resource = IncrementalResource(
                    resource_type=BROKER, resource_name=node, configs=[change]
                )
                request = IncrementalAlterConfigsRequest(resources=[resource])
                (answer,) = (await client.request(request, 1)).responses
                assert answer.error_code == ErrorCode.INVALID_REQUEST, (name, node)
        assert running.broker.topics.broker_config.dynamic == {}
        assert running.broker.topics.broker_overrides == {}


async def test_a_rule_for_a_host_counts_without_tls_and_sasl(
    guarded: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tidelog.audit")
    guarded.broker.security.add_acls([rule("*", Permission.ALLOW)])
    client = await guarded.client()
    await create_topic(client, "one")
    assert "User:ANONYMOUS at 127.0.0.1 created topic one" in caplog.text
    guarded.broker.security.add_acls([rule("127.0.0.1", Permission.DENY)])
    with pytest.raises(AssertionError):
        await create_topic(await guarded.client(), "two")
    assert await names(client) == []


async def names(client: RawClient) -> list[str]:
    """Topics that the client may see: none without a right on them."""
    return [topic.name for topic in (await client.request(MetadataRequest(topics=None), 9)).topics]
