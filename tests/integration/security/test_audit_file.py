"""The audit log of a running broker as a file: every kind of event, and rotation by SIGHUP."""

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

from cli.security.offline_users import add_user
from protocol.api.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from protocol.api.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from protocol.api.delete_groups import DeleteGroupsRequest
from protocol.api.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from protocol.api.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from protocol.api.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.api.list_groups import ListGroupsRequest
from protocol.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.api.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestTopic
from protocol.api.write_txn_markers import WritableTxnMarker, WriteTxnMarkersRequest
from protocol.structs import PartitionIndex, PartitionIndexes
from tests.integration.workers.support import wait_until
from tests.support.broker import BrokerProcess, RawClient, broker_process
from tests.support.logins import log_in_scram
from tests.support.requests import create_topic

SETTINGS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
}


def events(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


async def logged_in(port: int, name: str) -> RawClient:
    client = await RawClient.connect("127.0.0.1", port)
    answer = await log_in_scram(client, name, "secret")
    assert answer.error_code == 0, answer
    return client


async def change_everything(admin: RawClient) -> None:
    """One change of every kind that the tests of users, rules and settings do not make."""
    await create_topic(admin, "t", partitions=1)
    grown = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="t", count=2, assignments=None)], timeout_ms=9_000
    )
    assert (await admin.request(grown, 3)).results[0].error_code == 0
    commit = OffsetCommitRequest(
        group_id="g",
        topics=[
            OffsetCommitRequestTopic(
                name="t",
                partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=0)],
            )
        ],
    )
    assert (await admin.request(commit, 8)).topics[0].partitions[0].error_code == 0
    forgotten = OffsetDeleteRequest(
        group_id="g",
        topics=[OffsetDeleteRequestTopic(name="t", partitions=[PartitionIndex(partition_index=0)])],
    )
    assert (await admin.request(forgotten, 0)).error_code == 0
    assert (await admin.request(commit, 8)).topics[0].partitions[0].error_code == 0
    deleted = await admin.request(DeleteGroupsRequest(groups_names=["g", "unknown"]), 2)
    assert [result.error_code for result in deleted.results] == [0, 69]
    trimmed = DeleteRecordsRequest(
        topics=[
            DeleteRecordsTopic(
                name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=0)]
            )
        ],
        timeout_ms=9_000,
    )
    assert (await admin.request(trimmed, 2)).topics[0].partitions[0].error_code == 0
    marker = WritableTxnMarker(
        producer_id=77,
        producer_epoch=1,
        transaction_result=False,
        topics=[PartitionIndexes(name="t", partition_indexes=[1])],
        coordinator_epoch=0,
    )
    await admin.request(WriteTxnMarkersRequest(markers=[marker]), 1)
    await change_share_group(admin)
    gone = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=9_000)
    assert (await admin.request(gone, 6)).responses[0].error_code == 0


async def change_share_group(admin: RawClient) -> None:
    begin = AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=0)
    begun = AlterShareGroupOffsetsRequestTopic(topic_name="t", partitions=[begin])
    request = AlterShareGroupOffsetsRequest(group_id="shared", topics=[begun])
    assert (await admin.request(request, 0)).responses[0].partitions[0].error_code == 0
    forgotten = [DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in ("t", "unknown")]
    answer = await admin.request(
        DeleteShareGroupOffsetsRequest(group_id="shared", topics=forgotten), 0
    )
    assert [topic.error_code for topic in answer.responses] == [0, 3]


CHANGES = [
    ("CREATE_TOPICS", "created topic t"),
    ("CREATE_PARTITIONS", "grew topic t to 2 partitions"),
    ("OFFSET_DELETE", "deleted committed offsets of group 'g' in topics t"),
    ("DELETE_GROUPS", "deleted group 'g'"),
    ("DELETE_RECORDS", "deleted the records of t-0 before 0"),
    ("WRITE_TXN_MARKERS", "aborted the transaction of producer 77 in t-1"),
    ("ALTER_SHARE_GROUP_OFFSETS", "set the start of share group 'shared' in topics t"),
    ("DELETE_SHARE_GROUP_OFFSETS", "deleted offsets of share group 'shared' in topics t"),
    ("DELETE_TOPICS", "deleted topic t"),
]


def test_every_kind_of_event_is_in_the_file(tmp_path: Path) -> None:
    data, path = tmp_path / "data", tmp_path / "audit.jsonl"
    for name in ("admin", "eve"):
        add_user(str(data), name, "secret", "SCRAM-SHA-512", 4096)
    broker = BrokerProcess(data, **SETTINGS, **{"audit.log.file": str(path)})

    async def use(port: int) -> None:
        admin, eve = await logged_in(port, "admin"), await logged_in(port, "eve")
        await change_everything(admin)
        deletion = DeleteGroupsRequest(groups_names=["secret-group"])
        assert (await eve.request(deletion, 2)).results[0].error_code == 30
        assert not (await eve.request(ListGroupsRequest(), 5)).groups
        stranger = await RawClient.connect("127.0.0.1", port)
        assert (await log_in_scram(stranger, "eve", "wrong")).error_code == 58
        for client in (admin, eve, stranger):
            await client.close()

    try:
        port = broker.wait_ready()
        asyncio.run(use(port))
        wait_until(lambda: path.read_text().count("login failed") == 1)
        moved = path.rename(tmp_path / "audit.1")
        broker.process.send_signal(signal.SIGHUP)
        wait_until(path.exists)
        asyncio.run(use(port))
    finally:
        assert broker.stop() == 0
    for file in (moved, path):
        found = events(file)
        logins = [it["principal"] for it in found if it["event"] == "login"]
        assert logins == ["User:admin", "User:eve"]
        assert {it["client_id"] for it in found if it["event"].startswith("login")} == {"test"}
        changes = [it for it in found if it["event"] == "changed"]
        assert [(it["api"], it["what"]) for it in changes] == CHANGES
        assert {(it["principal"], it["client_id"]) for it in changes} == {("User:admin", "test")}
    # Folded in the second file.
    (refused,) = (it for it in events(moved) if it["event"] == "refused")
    assert (refused["principal"], refused["resource"]) == ("User:eve", "secret-group")
    no_rule = "no rule matches the resource (allow.everyone.if.no.acl.found = false)"
    assert (refused["rule"], refused["connection"]) == (no_rule, 2)
    (failed,) = (it for it in events(moved) if it["event"] == "login failed")
    assert (failed["user"], failed["reason"]) == ("eve", "credentials")
    assert "secret" not in moved.read_text().replace("secret-group", "")


def test_workers_share_the_file(tmp_path: Path) -> None:
    data, path = tmp_path / "data", tmp_path / "audit.jsonl"
    for name in ("admin", "eve"):
        add_user(str(data), name, "secret", "SCRAM-SHA-512", 4096)
    settings = {**SETTINGS, "audit.log.file": str(path), "workers": "2"}
    with broker_process(data, **settings) as broker:

        async def use(port: int) -> None:
            admin = await logged_in(port, "admin")
            for number in range(20):
                await create_topic(admin, f"t-{port}-{number}")
            await admin.close()
            eve = await logged_in(port, "eve")
            deletion = DeleteGroupsRequest(groups_names=[f"g-{port}"])
            assert (await eve.request(deletion, 2)).results[0].error_code == 30
            await eve.close()

        async def use_both() -> None:
            await asyncio.gather(*map(use, broker.ports))

        asyncio.run(use_both())
        assert len(broker.ports) == 2
    found = events(path)
    logins = [it["principal"] for it in found if it["event"] == "login"]
    assert sorted(logins) == ["User:admin"] * 2 + ["User:eve"] * 2
    refused = [it for it in found if it["event"] == "refused"]
    assert sorted(it["resource"] for it in refused) == sorted(f"g-{port}" for port in broker.ports)
    assert {it["client_id"] for it in refused} == {"test"}
    made = sorted(it["what"] for it in found if it["event"] == "changed")
    names = [f"t-{port}-{number}" for port in broker.ports for number in range(20)]
    assert made == sorted(f"created topic {name}" for name in names)


def test_a_start_without_its_audit_log_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "audit.jsonl"
    broker = BrokerProcess(tmp_path / "data", **{"audit.log.file": str(path)})
    _, error = broker.process.communicate(timeout=30)
    assert broker.process.returncode != 0
    assert f"audit.log.file: cannot write {path}" in error
