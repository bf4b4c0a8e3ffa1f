"""A change of the rules counts for the next request of a connection that is open."""

from pathlib import Path
from typing import Any

import pytest

from protocol.acl import Acl, Operation, PatternType, Permission, ResourceType
from protocol.api import alter_share_group_offsets as alter
from protocol.api import delete_share_group_offsets as delete
from protocol.error_codes import ErrorCode
from tests.integration.security.test_metrics_port import STANDARD
from tests.integration.security.test_sasl import SETTINGS, add_users, log_in
from tests.support.broker import batch, running_broker
from tests.support.requests import create_topic, fetch, produce

DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def rule(operation: Operation, permission: Permission, name: str = "t") -> Acl:
    pattern = PatternType.LITERAL
    return Acl(ResourceType.TOPIC, name, pattern, "User:alice", "*", operation, permission)


@pytest.mark.parametrize("changes_by", ["taken away", "forbidden", "forbidden everywhere"])
async def test_a_change_counts_for_the_next_request(tmp_path: Path, changes_by: str) -> None:
    """Also for the requests that the lane for usual Produce requests has served before."""
    settings: dict[str, Any] = SETTINGS | {
        "authorizer_class_name": STANDARD,
        "super_users": "User:bob",
    }
    rights = [rule(operation, Permission.ALLOW) for operation in (Operation.WRITE, Operation.READ)]
    async with running_broker(tmp_path / "data", **settings) as running:
        add_users(running)
        security = running.broker.security
        admin, client = await running.client(), await running.client()
        await log_in(admin, "bob")
        await log_in(client)
        await create_topic(admin, "t")
        for _ in range(2):
            security.add_acls(rights)
            assert security.access is not None
            before = security.access.allowed
            for _ in range(3):
                assert (await produce(client, "t", batch("x"))).error_code == 0
                assert (await fetch(client, "t")).error_code == 0
            assert security.access.allowed == before + 6  # in the lane as well
            if changes_by == "taken away":
                security.remove_acls(rights)
            else:
                everywhere = "*" if changes_by == "forbidden everywhere" else "t"
                forbidden = [rule(Operation.ALL, Permission.DENY, everywhere)]
                security.add_acls(forbidden)
            assert (await produce(client, "t", batch("x"))).error_code == DENIED
            assert (await fetch(client, "t")).error_code == DENIED
            if changes_by != "taken away":
                security.remove_acls(forbidden)
        assert (await fetch(admin, "t")).high_watermark == 6


async def test_offsets_of_a_share_group_do_not_show_whether_a_topic_exists(tmp_path: Path) -> None:
    settings: dict[str, Any] = SETTINGS | {
        "authorizer_class_name": STANDARD,
        "super_users": "User:bob",
    }
    of_group = [
        rule(operation, Permission.ALLOW, "g")._replace(resource_type=ResourceType.GROUP)
        for operation in (Operation.READ, Operation.DELETE)
    ]
    async with running_broker(tmp_path / "data", **settings) as running:
        add_users(running)
        running.broker.security.add_acls(of_group)
        admin, client = await running.client(), await running.client()
        await log_in(admin, "bob")
        await log_in(client)
        await create_topic(admin, "t")
        part = alter.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=0)
        answers = []
        for who in (admin, client):
            change = alter.AlterShareGroupOffsetsRequest(
                group_id="g",
                topics=[
                    alter.AlterShareGroupOffsetsRequestTopic(topic_name=name, partitions=[part])
                    for name in ("t", "missing")
                ],
            )
            answers.append((await who.request(change, 0)).responses)
        removal = delete.DeleteShareGroupOffsetsRequest(
            group_id="g",
            topics=[
                delete.DeleteShareGroupOffsetsRequestTopic(topic_name=name)
                for name in ("t", "missing")
            ],
        )
        answers.append((await client.request(removal, 0)).responses)
    assert [topic.topic_id != bytes(16) for topic in answers[0]] == [True, False]
    for responses in answers[1:]:
        assert [topic.topic_id for topic in responses] == [bytes(16)] * 2
        codes = {
            row.error_code for topic in responses for row in getattr(topic, "partitions", [topic])
        }
        assert codes == {DENIED}
