"""The audit log at DEBUG: what clients may do, beside what they may not; and who logged in."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from protocol.acl import Acl, Operation, PatternType, Permission, ResourceType
from tests.integration.security.test_sasl import add_users
from tests.support.broker import RunningBroker, batch, running_broker
from tests.support.logins import log_in_scram
from tests.support.requests import create_topic, produce

SETTINGS: dict[str, Any] = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super_users": "User:bob",
}


def lines(caplog: pytest.LogCaptureFixture, word: str) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.name == "tidelog.audit" and word in record.getMessage()
    ]


async def write_twice(running: RunningBroker) -> None:
    """Writes of alice, the second of which the lane for usual requests would serve."""
    rule = Acl(
        ResourceType.TOPIC, "t", PatternType.LITERAL, "User:alice", "*", Operation.WRITE,
        Permission.ALLOW,
    )  # fmt: skip
    running.broker.security.add_acls([rule])
    client = await running.client()
    assert (await log_in_scram(client, "alice", "secret")).error_code == 0
    for _ in range(2):
        assert (await produce(client, "t", batch("x"))).error_code == 0


@pytest.mark.parametrize("level", [logging.DEBUG, logging.INFO])
async def test_rights_that_are_there_are_noted_at_debug_alone(
    level: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(level, "tidelog.audit")
    async with running_broker(tmp_path / "data", **SETTINGS) as running:
        add_users(running)
        admin = await running.client()
        assert (await log_in_scram(admin, "bob", "other")).error_code == 0
        await create_topic(admin, "t")
        await write_twice(running)
        running.broker.security.audit.write_folded()
    allowed = lines(caplog, " may WRITE ")
    if level == logging.INFO:
        assert allowed == []
    else:
        first = "User:alice at 127.0.0.1 may WRITE the topic 't' (PRODUCE)"
        assert allowed == [first, first], "the second one was served without a note"
    assert lines(caplog, "authenticated as User:alice with SCRAM-SHA-512")[0].endswith(
        "(client id 'test')"
    )


async def test_a_folded_refusal_names_the_rule_that_refused(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    settings = {**SETTINGS, "audit_log_file": str(path)}
    deny, earlier = (
        Acl(ResourceType.TOPIC, "t", pattern, "User:alice", "*", Operation.WRITE, permission)
        for pattern, permission in (
            (PatternType.LITERAL, Permission.DENY),
            (PatternType.PREFIXED, Permission.ALLOW),
        )
    )
    async with running_broker(tmp_path / "data", **settings) as running:
        add_users(running)
        security = running.broker.security
        client = await running.client()
        assert (await log_in_scram(client, "alice", "secret")).error_code == 0
        for _ in range(2):
            assert (await produce(client, "t", batch("x"))).error_code == 29
        security.add_acls([deny])
        assert (await produce(client, "t", batch("x"))).error_code == 29
        security.remove_acls([deny])
        security.add_acls([earlier])
    found = [json.loads(line) for line in path.read_text().splitlines()]
    refused = [(it["more_before"], it["rule"]) for it in found if it["event"] == "refused"]
    no_rule = "no rule matches the resource (allow.everyone.if.no.acl.found = false)"
    assert refused == [(0, no_rule), (1, str(deny))]
