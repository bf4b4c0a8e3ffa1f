"""A topic that the console's user may describe but not read: the refusal, and nothing half done."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from client.admin import Admin
from client.producer import Producer
from protocol.acl import Acl, Operation, PatternType, Permission, ResourceType
from tests.integration.console.conftest import Browser
from tidelog.testing import InProcessBroker, in_process_broker

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
    "allow.everyone.if.no.acl.found": "true",
}


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[InProcessBroker]:
    """Has a topic with a record; the first rule for it takes away all other rights."""
    async with in_process_broker(tmp_path / "data", settings=SETTINGS) as running:
        async with Producer(running.bootstrap) as producer:
            await producer.send("t", b"hidden")
        rule = Acl(
            resource_type=ResourceType.TOPIC,
            name="t",
            pattern=PatternType.LITERAL,
            principal="User:*",
            host="*",
            operation=Operation.DESCRIBE,
            permission=Permission.ALLOW,
        )
        async with Admin(running.bootstrap) as admin:
            await admin.add_rules([rule])
        yield running


@pytest.mark.parametrize("question", ["records", "export", "skew-sample", "raw", "record"])
async def test_records_that_may_not_be_read_are_refused(browser: Browser, question: str) -> None:
    where = {"partition": 0, "offset": 0} if question in ("raw", "record") else {}
    refused = await browser.ask(f"/topics/t/{question}", 403, **where)
    assert "TOPIC_AUTHORIZATION_FAILED" in refused["error"]


async def test_an_export_as_csv_is_refused_before_its_first_line(browser: Browser) -> None:
    refused = await browser.ask("/topics/t/export", 403, format="csv")
    assert "an admin can grant it" in refused["error"]
