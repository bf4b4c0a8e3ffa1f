"""Changes by a client without the right change nothing, however the request is put."""

import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from protocol.acl import CLUSTER_NAME, Acl, Operation, PatternType, Permission, ResourceType
from protocol.api.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from protocol.api.metadata import MetadataRequest
from protocol.error_codes import ErrorCode
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
    setting = AlterableConfig(name="log.retention.ms", value="1000")
    resource = AlterConfigsResource(resource_type=BROKER, resource_name="", configs=[setting])
    answer = await client.request(AlterConfigsRequest(resources=[resource] * times), 2)
    codes = {each.error_code for each in answer.responses}
    assert codes == {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
    assert "log.retention.ms" not in guarded.broker.topics.broker_config.dynamic


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
