"""Groups of the consumer protocol (KIP-848): join, offsets, restart, change of sides."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from client.admin import Admin
from protocol.api.consumer_group_describe import ConsumerGroupDescribeRequest
from protocol.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from protocol.api.delete_groups import DeleteGroupsRequest
from protocol.api.describe_groups import DescribeGroupsRequest
from protocol.api.heartbeat import HeartbeatRequest
from protocol.api.join_group import JoinGroupRequest
from protocol.api.leave_group import LeaveGroupRequest
from protocol.api.list_groups import ListGroupsRequest
from protocol.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.api.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestTopic
from protocol.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from protocol.api.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from protocol.error_codes import ErrorCode
from protocol.structs import PartitionIndex, ProtocolMetadata
from tests.support.broker import RawClient, running_broker
from tests.support.clock import FrozenClock
from tests.support.requests import create_topic


async def beat(client: RawClient, member_id: str, epoch: int, **fields: Any) -> Any:
    message = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id=member_id, member_epoch=epoch, **fields
    )
    return await client.request(message, 1)


async def join(client: RawClient, member_id: str = "m1", **fields: Any) -> Any:
    given: dict[str, Any] = {
        "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": ["t"],
        "topic_partitions": [],
    }
    return await beat(client, member_id, 0, **given | fields)


async def commit(
    client: RawClient, member_id: str, epoch: int, offset: int = 5, version: int = 9
) -> int:
    message = OffsetCommitRequest(
        group_id="g",
        member_id=member_id,
        generation_id_or_member_epoch=epoch,
        topics=[
            OffsetCommitRequestTopic(
                name="t",
                partitions=[
                    OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
                ],
            )
        ],
    )
    response = await client.request(message, version)
    code: int = response.topics[0].partitions[0].error_code
    return code


async def fetch(client: RawClient, member_id: str | None, epoch: int) -> tuple[int, list[int]]:
    message = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(
                group_id="g",
                member_id=member_id,
                member_epoch=epoch,
                topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[0])],
            )
        ]
    )
    (group,) = (await client.request(message, 9)).groups
    return group.error_code, [p.committed_offset for t in group.topics for p in t.partitions]


async def listed(client: RawClient, **filters: Any) -> list[tuple[str, str, str]]:
    response = await client.request(ListGroupsRequest(**filters), 5)
    return [(g.group_id, g.group_state, g.group_type) for g in response.groups]


async def classic_join(client: RawClient) -> Any:
    return await client.request(
        JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=[ProtocolMetadata(name="range", metadata=b"")],
        ),
        3,
    )


async def test_a_member_is_given_its_partitions_with_the_first_answer(client: RawClient) -> None:
    topic_id = await create_topic(client, "t", 3)
    answer = await join(client)
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (0, "m1", 1)
    assert answer.heartbeat_interval_ms == 5_000
    (given,) = answer.assignment.topic_partitions
    assert (given.topic_id, given.partitions) == (topic_id, [0, 1, 2])
    assert (await beat(client, "m1", 1)).assignment is None
    described = await client.request(ConsumerGroupDescribeRequest(group_ids=["g", "x"]), 1)
    group, unknown = described.groups
    assert (group.group_state, group.assignor_name, group.group_epoch) == ("Stable", "uniform", 1)
    (member,) = group.members
    assert (member.member_type, member.client_host) == (1, "/127.0.0.1")
    assert member.assignment.topic_partitions[0].topic_name == "t"
    assert member.assignment == member.target_assignment
    assert unknown.error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_members_that_fall_silent_are_removed_and_the_log_names_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "tidelog.broker.groups")
    clock = FrozenClock()
    async with running_broker(tmp_path, clock=clock) as broker:
        client = await broker.client()
        await create_topic(client, "t", 1)
        await join(client)
        clock.advance(45_001)
        assert (await beat(client, "m1", 1)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert "group g: member 'm1' of client" in caplog.text
        await client.request(DeleteGroupsRequest(groups_names=["g"]), 1)
        joined = asyncio.create_task(classic_join(client))
        while not joined.done():
            await asyncio.sleep(0.01)
            clock.advance(100)
        member_id = (await joined).member_id
        clock.advance(10_001)
        assert f"group g: member {member_id!r} of client" in caplog.text
        assert await listed(client) == [("g", "Empty", "classic")]


async def test_an_id_is_made_for_a_member_of_version_0(client: RawClient) -> None:
    await create_topic(client, "t")
    message = ConsumerGroupHeartbeatRequest(
        group_id="g",
        rebalance_timeout_ms=1_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    assert (await client.request(message, 0)).member_id
    assert (await client.request(message, 1)).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    "fields",
    [
        {"rebalance_timeout_ms": -1},
        {"topic_partitions": None},
        {"subscribed_topic_names": None},
        {"instance_id": ""},
        {"rack_id": ""},
    ],
)
async def test_a_join_that_leaves_something_out_is_refused(
    client: RawClient, fields: dict[str, Any]
) -> None:
    answer = await join(client, **fields)
    assert (answer.error_code, bool(answer.error_message)) == (ErrorCode.INVALID_REQUEST, True)
    assert await listed(client) == []


async def test_strangers_make_no_group(client: RawClient) -> None:
    assert (await beat(client, "m1", 3)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert (await beat(client, "m1", -1)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert (await beat(client, "m1", -3)).error_code == ErrorCode.INVALID_REQUEST
    assert await listed(client) == []


async def test_offsets_are_committed_and_fetched_in_the_members_epoch(client: RawClient) -> None:
    await create_topic(client, "t")
    await join(client)
    assert await commit(client, "m1", 1) == ErrorCode.NONE
    assert await commit(client, "m1", 2) == ErrorCode.STALE_MEMBER_EPOCH
    assert await commit(client, "m1", 1, version=8) == ErrorCode.UNSUPPORTED_VERSION
    assert await commit(client, "m2", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert await commit(client, "", -1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert await fetch(client, "m1", 1) == (ErrorCode.NONE, [5])
    assert await fetch(client, None, -1) == (ErrorCode.NONE, [5])
    assert await fetch(client, "m1", 9) == (ErrorCode.STALE_MEMBER_EPOCH, [])
    assert await fetch(client, "m2", 1) == (ErrorCode.UNKNOWN_MEMBER_ID, [])
    await beat(client, "m1", -1)
    assert await commit(client, "", -1, offset=0) == ErrorCode.NONE, "a reset from outside"


async def test_groups_of_both_types_are_listed_with_their_types(client: RawClient) -> None:
    await create_topic(client, "t")
    await join(client)
    assert await listed(client) == [("g", "Stable", "consumer")]
    assert await listed(client, types_filter=["Classic"]) == []
    assert await listed(client, types_filter=["Consumer"], states_filter=["stable"]) != []
    (classic,) = (await client.request(DescribeGroupsRequest(groups=["g"]), 6)).groups
    assert classic.error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_a_group_in_use_is_not_deleted_nor_are_its_offsets(client: RawClient) -> None:
    await create_topic(client, "t")
    await join(client)
    await commit(client, "m1", 1)

    async def delete() -> int:
        response = await client.request(DeleteGroupsRequest(groups_names=["g"]), 2)
        code: int = response.results[0].error_code
        return code

    offsets = OffsetDeleteRequest(
        group_id="g",
        topics=[OffsetDeleteRequestTopic(name="t", partitions=[PartitionIndex(partition_index=0)])],
    )
    deleted = await client.request(offsets, 0)
    subscribed = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert deleted.topics[0].partitions[0].error_code == subscribed
    assert await delete() == ErrorCode.NON_EMPTY_GROUP
    await beat(client, "m1", -1)
    assert await delete() == ErrorCode.NONE
    assert await listed(client) == []
    assert await fetch(client, None, -1) == (ErrorCode.NONE, [-1])


async def test_a_restart_finds_members_epochs_and_offsets(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "data") as running:
        client = await running.client()
        await create_topic(client, "t", 2)
        await join(client)
        await commit(client, "m1", 1, offset=7)
    async with running_broker(tmp_path / "data") as running:
        client = await running.client()
        answer = await beat(client, "m1", 1)
        assert (answer.error_code, answer.member_epoch, answer.assignment) == (0, 1, None)
        assert await fetch(client, "m1", 1) == (ErrorCode.NONE, [7])
        await beat(client, "m1", -1)
        await client.request(DeleteGroupsRequest(groups_names=["g"]), 2)
    async with running_broker(tmp_path / "data") as running:
        assert await listed(await running.client()) == []


async def test_an_empty_group_changes_sides_and_keeps_its_offsets(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "data", group_initial_rebalance_delay_ms="0") as running:
        client = await running.client()
        await create_topic(client, "t")
        member = (await classic_join(client)).member_id
        refused = await join(client)
        assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        await client.request(LeaveGroupRequest(group_id="g", member_id=member), 0)
        assert await commit(client, "", -1, offset=3) == ErrorCode.NONE
        assert (await join(client)).error_code == ErrorCode.NONE
        assert await listed(client) == [("g", "Stable", "consumer")]
        assert await fetch(client, "m1", 1) == (ErrorCode.NONE, [3])
        mixed = await classic_join(client)
        assert mixed.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    async with running_broker(tmp_path / "data", group_initial_rebalance_delay_ms="0") as running:
        client = await running.client()
        assert await listed(client) == [("g", "Stable", "consumer")]
        await beat(client, "m1", -1)
        assert (await classic_join(client)).error_code == ErrorCode.NONE
        assert [(kind, name) for name, _, kind in await listed(client)] == [("classic", "g")]
        assert await fetch(client, None, -1) == (ErrorCode.NONE, [3])
    async with running_broker(tmp_path / "data") as running:
        groups = await listed(await running.client())
        assert [(kind, name) for name, _, kind in groups] == [("classic", "g")]


async def test_our_own_admin_client_describes_it_like_any_group(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "data") as running:
        client = await running.client()
        await create_topic(client, "t", 2)
        await join(client)
        async with Admin(running.bootstrap) as admin:
            info = await admin.describe_group("g")
            (listing,) = await admin.groups()
        (member,) = info.members
        assert (info.state, info.assignor, listing.group_type) == ("Stable", "uniform", "consumer")
        assert [(tp.topic, tp.partition) for tp in member.partitions] == [("t", 0), ("t", 1)]


SUBSCRIBED_TO_T = bytes.fromhex("0001 00000001 0001 74 ffffffff 00000000")
ALL_OF_T = bytes.fromhex("0001 00000001 0001 74 00000002 00000000 00000001 ffffffff")
FIRST_OF_T = bytes.fromhex("0001 00000001 0001 74 00000001 00000000 ffffffff")
ID_REQUIRED_SINCE = 4


async def old_join(client: RawClient, version: int, member_id: str = "") -> Any:
    answer = await client.request(
        JoinGroupRequest(
            group_id="g",
            member_id=member_id,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=[ProtocolMetadata(name="range", metadata=SUBSCRIBED_TO_T)],
        ),
        version,
    )
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        assert version >= ID_REQUIRED_SINCE
        return await old_join(client, version, answer.member_id)
    assert answer.error_code == ErrorCode.NONE
    return answer


async def old_sync(client: RawClient, joined: Any, **assignments: bytes) -> tuple[int, bytes]:
    answer = await client.request(
        SyncGroupRequest(
            group_id="g",
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[
                SyncGroupRequestAssignment(member_id=joined.member_id, assignment=assignment)
                for assignment in assignments.values()
            ],
        ),
        5,
    )
    return answer.error_code, bytes(answer.assignment)


async def old_beat(client: RawClient, joined: Any) -> int:
    request = HeartbeatRequest(
        group_id="g", generation_id=joined.generation_id, member_id=joined.member_id
    )
    code: int = (await client.request(request, 4)).error_code
    return code


@pytest.mark.parametrize("version", range(10))
async def test_an_old_member_continues_while_its_group_is_moved_over_and_back(
    client: RawClient, version: int
) -> None:
    await create_topic(client, "t", 2)
    old = await old_join(client, version)
    assert await old_sync(client, old, mine=ALL_OF_T) == (ErrorCode.NONE, ALL_OF_T)
    new = await join(client, "new")
    assert (new.error_code, new.assignment.topic_partitions) == (ErrorCode.NONE, [])
    assert await old_beat(client, old) == ErrorCode.REBALANCE_IN_PROGRESS
    assert await commit(client, old.member_id, old.generation_id, version=2) == ErrorCode.NONE
    old = await old_join(client, version, old.member_id)
    assert (old.generation_id, old.leader, old.members) == (new.member_epoch, "", [])
    assert await old_sync(client, old) == (ErrorCode.NONE, FIRST_OF_T)
    assert await old_beat(client, old) == ErrorCode.NONE
    reply = await beat(client, "new", new.member_epoch)
    assert [each.partitions for each in reply.assignment.topic_partitions] == [[1]]
    assert await listed(client) == [("g", "Stable", "consumer")]
    (group,) = (await client.request(ConsumerGroupDescribeRequest(group_ids=["g"]), 1)).groups
    types = {member.member_id: member.member_type for member in group.members}
    assert types == {old.member_id: 0, "new": 1}
    (classic,) = (await client.request(DescribeGroupsRequest(groups=["g"]), 6)).groups
    assert classic.error_message == "Group g is not a classic group."
    assert (await beat(client, "new", -1)).error_code == ErrorCode.NONE
    assert await old_beat(client, old) == ErrorCode.REBALANCE_IN_PROGRESS
    old = await old_join(client, version, old.member_id)
    assert old.leader == old.member_id, "the group is a classic one again"
    assert await old_sync(client, old, mine=ALL_OF_T) == (ErrorCode.NONE, ALL_OF_T)
    assert await listed(client) == [("g", "Stable", "classic")]
