"""Groups and offsets over the wire, in every version, without a client's opinions."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from broker.groups.classic.values import GroupState
from protocol.api.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.api.delete_groups import DeleteGroupsRequest
from protocol.api.delete_topics import DeleteTopicsRequest
from protocol.api.describe_groups import DescribeGroupsRequest
from protocol.api.find_coordinator import FindCoordinatorRequest
from protocol.api.heartbeat import HeartbeatRequest
from protocol.api.join_group import JoinGroupRequest, JoinGroupResponse
from protocol.api.leave_group import LeaveGroupRequest, MemberIdentity
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
from protocol.api_keys import SUPPORTED, ApiKey
from protocol.error_codes import ErrorCode
from protocol.structs import PartitionIndex, PartitionIndexes, ProtocolMetadata
from tests.support.broker import RawClient, RunningBroker, running_broker

NONE = ErrorCode.NONE
SUBSCRIBED_TO_T = bytes.fromhex("0001 00000001 0001 74 ffffffff 00000000")


def versions(key: ApiKey) -> range:
    supported = SUPPORTED[key]
    return range(supported.min, supported.max + 1)


async def _with_topic(broker: RunningBroker, name: str = "t", partitions: int = 2) -> RawClient:
    client = await broker.client()
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    response = await client.request(CreateTopicsRequest(topics=[topic], timeout_ms=5000), 2)
    assert response.topics[0].error_code == NONE
    return client


async def _join(client: RawClient, version: int, **fields: Any) -> JoinGroupResponse:
    facts: dict[str, Any] = {
        "group_id": "g",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 60_000,
        "protocol_type": "consumer",
        "protocols": [ProtocolMetadata(name="range", metadata=SUBSCRIBED_TO_T)],
    }
    answer = await client.request(JoinGroupRequest(**(facts | fields)), version)
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        assert version >= 4
        return await _join(client, version, **(fields | {"member_id": answer.member_id}))
    assert isinstance(answer, JoinGroupResponse)
    return answer


async def _sync(client: RawClient, version: int, joined: JoinGroupResponse) -> Any:
    return await client.request(
        SyncGroupRequest(
            group_id="g",
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[
                SyncGroupRequestAssignment(member_id=each.member_id, assignment=b"a")
                for each in joined.members
            ],
        ),
        version,
    )


def _commit(offset: int, topic: str = "t", partition: int = 0, **fields: Any) -> Any:
    asked = OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_metadata="note"
    )
    topics = [OffsetCommitRequestTopic(name=topic, partitions=[asked])]
    return OffsetCommitRequest(**({"group_id": "g", "topics": topics} | fields))


async def _fetched(client: RawClient, group_id: str = "g") -> dict[tuple[str, int], int]:
    response = await client.request(OffsetFetchRequest(group_id=group_id, topics=None), 5)
    return {
        (topic.name, partition.partition_index): partition.committed_offset
        for topic in response.topics
        for partition in topic.partitions
    }


@pytest.mark.parametrize("version", versions(ApiKey.JOIN_GROUP))
async def test_does_a_member_live_through_every_version(tmp_path: Path, version: int) -> None:
    """Join, sync, heartbeat, commit and leave at versions that belong to one era."""

    def at(key: ApiKey) -> int:
        return min(version, SUPPORTED[key].max)

    async with running_broker(tmp_path) as broker:
        client = await _with_topic(broker)
        joined = await _join(client, version)
        assert joined.error_code == NONE
        assert joined.leader == joined.member_id
        assert joined.protocol_name == "range"
        assert joined.protocol_type == ("consumer" if version >= 7 else None)
        assert [each.metadata for each in joined.members] == [SUBSCRIBED_TO_T]
        synced = await _sync(client, at(ApiKey.SYNC_GROUP), joined)
        assert (synced.error_code, bytes(synced.assignment)) == (NONE, b"a")
        me = {"group_id": "g", "member_id": joined.member_id}
        beat = HeartbeatRequest(generation_id=joined.generation_id, **me)
        assert (await client.request(beat, at(ApiKey.HEARTBEAT))).error_code == NONE
        commit = _commit(
            7, generation_id_or_member_epoch=joined.generation_id, member_id=joined.member_id
        )
        committed = await client.request(commit, max(1, min(version, 9)))
        assert committed.topics[0].partitions[0].error_code == NONE
        leave = LeaveGroupRequest(members=[MemberIdentity(member_id=joined.member_id)], **me)
        left = await client.request(leave, at(ApiKey.LEAVE_GROUP))
        assert left.error_code == NONE
        assert [each.error_code for each in left.members] == ([NONE] if version >= 3 else [])
        beaten = await client.request(beat, at(ApiKey.HEARTBEAT))
        assert beaten.error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", versions(ApiKey.JOIN_GROUP))
async def test_is_a_refused_join_well_formed(tmp_path: Path, version: int) -> None:
    async with running_broker(tmp_path) as broker:
        client = await broker.client()
        refused = await _join(client, version, member_id="stranger")
        assert refused.error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert refused.member_id == "stranger"
        assert refused.protocol_name == (None if version >= 7 else "")
        assert refused.generation_id == -1


@pytest.mark.parametrize("version", versions(ApiKey.SYNC_GROUP))
async def test_is_a_refused_sync_well_formed(tmp_path: Path, version: int) -> None:
    async with running_broker(tmp_path) as broker:
        client = await broker.client()
        request = SyncGroupRequest(group_id="g", generation_id=1, member_id="m")
        request.protocol_type = request.protocol_name = "x"
        refused = await client.request(request, version)
        assert refused.error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert bytes(refused.assignment) == b""


async def test_does_a_follower_get_the_leaders_choice(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        first, second = await broker.client(), await broker.client()
        leader = await _join(first, 5)
        await _sync(first, 3, leader)
        second.send(_join_request(""), 3)
        follower_waits = second.receive()
        leader = await _join(first, 5, member_id=leader.member_id)
        follower = await follower_waits
        assert (follower.generation_id, follower.members) == (leader.generation_id, [])
        assert {each.member_id for each in leader.members} == {
            leader.member_id,
            follower.member_id,
        }
        assert bytes((await _sync(first, 3, leader)).assignment) == b"a"
        assert bytes((await _sync(second, 3, follower)).assignment) == b"a"


def _join_request(member_id: str) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[ProtocolMetadata(name="range", metadata=SUBSCRIBED_TO_T)],
    )


async def test_does_a_lost_connection_end_a_membership(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        first, second = await broker.client(), await broker.client()
        joined = await _join(first, 5)
        await _sync(first, 3, joined)
        await first.close()
        beat = HeartbeatRequest(
            group_id="g", generation_id=joined.generation_id, member_id=joined.member_id
        )
        assert (await second.request(beat, 3)).error_code == NONE


async def test_does_a_parked_join_hold_up_the_stop(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        first, second = await broker.client(), await broker.client()
        joined = await _join(first, 5)
        await _sync(first, 3, joined)
        second.send(_join_request(""), 3)
        waiting = asyncio.create_task(second.receive())
        while broker.broker.groups.classic_groups["g"].state is not GroupState.PREPARING_REBALANCE:
            await asyncio.sleep(0.01)
        started_s = time.perf_counter()
        await broker.broker.stop()
        assert time.perf_counter() - started_s < 2
        assert (await waiting).error_code == ErrorCode.NOT_COORDINATOR


# -- offsets ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(10))
async def test_are_offsets_committed_in_every_version(tmp_path: Path, version: int) -> None:
    async with running_broker(tmp_path) as broker:
        client = await _with_topic(broker)
        response = await client.request(_commit(42), version)
        assert response.topics[0].partitions[0].error_code == NONE
        assert await _fetched(client) == {("t", 0): 42}
        response = await client.request(_commit(1, partition=9), version)
        error = response.topics[0].partitions[0].error_code
        assert error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        response = await client.request(_commit(1, topic="nope"), version)
        error = response.topics[0].partitions[0].error_code
        assert error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await _fetched(client) == {("t", 0): 42}


async def test_are_offsets_committed_and_fetched_by_topic_id(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        client = await _with_topic(broker)
        found = broker.broker.topics.find("t")
        assert found is not None
        for topic_id, error in ((found.topic_id, NONE), (b"x" * 16, ErrorCode.UNKNOWN_TOPIC_ID)):
            commit = _commit(42)
            commit.topics[0].topic_id = topic_id
            response = await client.request(commit, 10)
            assert response.topics[0].topic_id == topic_id
            assert response.topics[0].partitions[0].error_code == error
            group = OffsetFetchRequestGroup(
                group_id="g",
                topics=[OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=[0])],
            )
            fetched = await client.request(OffsetFetchRequest(groups=[group]), 10)
            partition = fetched.groups[0].topics[0].partitions[0]
            assert fetched.groups[0].topics[0].topic_id == topic_id
            assert partition.error_code == error
            assert partition.committed_offset == (42 if error == NONE else -1)
        everything = OffsetFetchRequestGroup(group_id="g", topics=None)
        fetched = await client.request(OffsetFetchRequest(groups=[everything]), 10)
        assert fetched.groups[0].topics[0].topic_id == found.topic_id


@pytest.mark.parametrize("version", range(8))
async def test_are_offsets_fetched_in_every_version(tmp_path: Path, version: int) -> None:
    async with running_broker(tmp_path) as broker:
        client = await _with_topic(broker)
        await client.request(_commit(42), 6)
        asked = [PartitionIndexes(name="t", partition_indexes=[0, 1])]
        response = await client.request(OffsetFetchRequest(group_id="g", topics=asked), version)
        found = [
            (each.partition_index, each.committed_offset, each.metadata, each.error_code)
            for each in response.topics[0].partitions
        ]
        assert found == [(0, 42, "note", NONE), (1, -1, "", NONE)]
        assert response.error_code == NONE


@pytest.mark.parametrize("version", [8, 9])
async def test_are_offsets_of_many_groups_fetched(tmp_path: Path, version: int) -> None:
    async with running_broker(tmp_path) as broker:
        client = await _with_topic(broker)
        await client.request(_commit(42), 6)
        asked = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
        groups = [
            OffsetFetchRequestGroup(group_id="g", topics=asked),
            OffsetFetchRequestGroup(group_id="nobody", topics=asked),
            OffsetFetchRequestGroup(group_id="g", topics=None),
        ]
        response = await client.request(OffsetFetchRequest(groups=groups), version)
        offsets = [
            [each.committed_offset for topic in group.topics for each in topic.partitions]
            for group in response.groups
        ]
        assert offsets == [[42], [-1], [42]]
        assert [group.error_code for group in response.groups] == [NONE] * 3


async def test_is_metadata_that_is_too_large_refused_alone(tmp_path: Path) -> None:
    async with running_broker(tmp_path, offset_metadata_max_bytes="10") as broker:
        client = await _with_topic(broker)
        commit = _commit(1)
        commit.topics[0].partitions.append(
            OffsetCommitRequestPartition(
                partition_index=1, committed_offset=2, committed_metadata="é" * 6
            )
        )
        response = await client.request(commit, 6)
        errors = [each.error_code for each in response.topics[0].partitions]
        assert errors == [NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE]
        assert await _fetched(client) == {("t", 0): 1}


async def test_is_null_metadata_stored_as_nothing(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        client = await _with_topic(broker)
        commit = _commit(1)
        commit.topics[0].partitions[0].committed_metadata = None
        await client.request(commit, 6)
        response = await client.request(OffsetFetchRequest(group_id="g", topics=None), 5)
        assert response.topics[0].partitions[0].metadata == ""


async def test_may_a_stranger_commit_for_a_living_group(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        client = await _with_topic(broker)
        joined = await _join(client, 5)
        await _sync(client, 3, joined)
        strangers: list[tuple[dict[str, Any], ErrorCode]] = [
            ({}, ErrorCode.UNKNOWN_MEMBER_ID),
            (
                {"member_id": joined.member_id, "generation_id_or_member_epoch": 99},
                ErrorCode.ILLEGAL_GENERATION,
            ),
            (
                {"member_id": "x", "generation_id_or_member_epoch": 1},
                ErrorCode.UNKNOWN_MEMBER_ID,
            ),
        ]
        for fields, error in strangers:
            response = await client.request(_commit(5, **fields), 7)
            assert response.topics[0].partitions[0].error_code == error
        assert await _fetched(client) == {}


async def test_are_members_and_offsets_there_after_a_restart(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        client = await _with_topic(broker)
        joined = await _join(client, 5)
        await _sync(client, 3, joined)
        me: dict[str, Any] = {
            "generation_id_or_member_epoch": joined.generation_id,
            "member_id": joined.member_id,
        }
        await client.request(_commit(42, **me), 7)
    async with running_broker(tmp_path) as broker:
        client = await broker.client()
        beat = HeartbeatRequest(
            group_id="g", generation_id=joined.generation_id, member_id=joined.member_id
        )
        assert (await client.request(beat, 3)).error_code == NONE
        assert await _fetched(client) == {("t", 0): 42}
        described = await client.request(DescribeGroupsRequest(groups=["g"]), 5)
        assert described.groups[0].group_state == "Stable"
        assert bytes(described.groups[0].members[0].member_assignment) == b"a"


async def test_do_offsets_go_with_their_topic(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        client = await _with_topic(broker)
        await client.request(_commit(42), 6)
        await client.request(DeleteTopicsRequest(topic_names=["t"], timeout_ms=5000), 1)
        async with asyncio.timeout(5):
            while await _fetched(client):
                await asyncio.sleep(0.01)


# -- administration --------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(ApiKey.FIND_COORDINATOR))
async def test_is_this_broker_the_coordinator(tmp_path: Path, version: int) -> None:
    async with running_broker(tmp_path) as broker:
        client = await broker.client()
        request = FindCoordinatorRequest(key="g", key_type=0, coordinator_keys=["g", "h"])
        response = await client.request(request, version)
        found = response.coordinators if version >= 4 else [response]
        assert {(each.error_code, each.port) for each in found} == {(NONE, broker.port)}
        if version >= 4:
            assert [each.key for each in found] == ["g", "h"]


@pytest.mark.parametrize(("version", "key_type"), [(1, 2), (4, 2), (5, 2), (6, 3)])
async def test_is_another_kind_of_coordinator_refused(
    tmp_path: Path, version: int, key_type: int
) -> None:
    async with running_broker(tmp_path) as broker:
        client = await broker.client()
        request = FindCoordinatorRequest(key="s", key_type=key_type, coordinator_keys=["s"])
        response = await client.request(request, version)
        found = response.coordinators[0] if version >= 4 else response
        assert (found.error_code, found.node_id) == (ErrorCode.INVALID_REQUEST, -1)
        assert str(key_type) in found.error_message


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_GROUPS))
async def test_are_groups_described_in_every_version(tmp_path: Path, version: int) -> None:
    async with running_broker(tmp_path) as broker:
        client = await broker.client()
        joined = await _join(client, 5, group_instance_id="i")
        asked = DescribeGroupsRequest(groups=["g", "nobody"], include_authorized_operations=True)
        before, nobody = (await client.request(asked, version)).groups
        assert before.group_state == "CompletingRebalance"
        assert (before.protocol_data, bytes(before.members[0].member_metadata)) == ("", b"")
        await _sync(client, 3, joined)
        described = (await client.request(asked, version)).groups[0]
        assert (described.group_state, described.protocol_type) == ("Stable", "consumer")
        assert described.protocol_data == "range"
        (member,) = described.members
        assert member.member_id == joined.member_id
        assert (member.client_id, member.client_host) == ("test", "/127.0.0.1")
        assert bytes(member.member_metadata) == SUBSCRIBED_TO_T
        assert bytes(member.member_assignment) == b"a"
        if version >= 3:
            assert described.authorized_operations == 0xD48
        if version >= 4:
            assert member.group_instance_id == "i"
        assert nobody.group_state == "Dead"
        assert nobody.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else NONE)


@pytest.mark.parametrize("version", versions(ApiKey.LIST_GROUPS))
async def test_are_groups_listed_in_every_version(tmp_path: Path, version: int) -> None:
    async with running_broker(tmp_path) as broker:
        client = await _with_topic(broker)
        await client.request(_commit(1, group_id="simple"), 6)
        await _sync(client, 3, await _join(client, 5))
        response = await client.request(ListGroupsRequest(), version)
        listed = {(each.group_id, each.protocol_type) for each in response.groups}
        assert listed == {("simple", ""), ("g", "consumer")}
        if version >= 4:
            only = await client.request(ListGroupsRequest(states_filter=["stABLE"]), version)
            assert [each.group_id for each in only.groups] == ["g"]
            assert only.groups[0].group_state == "Stable"
        if version >= 5:
            only = await client.request(ListGroupsRequest(types_filter=["consumer"]), version)
            assert only.groups == []


@pytest.mark.parametrize("version", versions(ApiKey.DELETE_GROUPS))
async def test_are_groups_deleted_in_every_version(tmp_path: Path, version: int) -> None:
    async with running_broker(tmp_path) as broker:
        client = await _with_topic(broker)
        await client.request(_commit(1, group_id="idle"), 6)
        await _join(client, 5)
        response = await client.request(
            DeleteGroupsRequest(groups_names=["idle", "g", "nobody"]), version
        )
        assert [each.error_code for each in response.results] == [
            NONE,
            ErrorCode.NON_EMPTY_GROUP,
            ErrorCode.GROUP_ID_NOT_FOUND,
        ]
        assert await _fetched(client, "idle") == {}
        assert (await client.request(DeleteGroupsRequest(), version)).results == []


async def test_are_offsets_deleted(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        client = await _with_topic(broker)
        await _with_topic(broker, "other", 1)
        await client.request(_commit(1), 6)
        await client.request(_commit(2, topic="other"), 6)
        joined = await _join(client, 5)
        await _sync(client, 3, joined)

        def asked(name: str, partition: int) -> OffsetDeleteRequestTopic:
            return OffsetDeleteRequestTopic(
                name=name, partitions=[PartitionIndex(partition_index=partition)]
            )

        topics = [asked("t", 0), asked("other", 0), asked("other", 7)]
        response = await client.request(OffsetDeleteRequest(group_id="g", topics=topics), 0)
        assert response.error_code == NONE
        assert [each.partitions[0].error_code for each in response.topics] == [
            ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
            NONE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert await _fetched(client) == {("t", 0): 1}
        response = await client.request(OffsetDeleteRequest(group_id="no", topics=topics), 0)
        assert response.error_code == ErrorCode.GROUP_ID_NOT_FOUND
