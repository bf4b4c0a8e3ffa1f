"""Groups are not only consumers': Connect workers, schema registries and others use them too.

To the coordinator a type is a name and its members' metadata are bytes. What differs by type is
little: offsets of a consumer group at work may be deleted topic by topic, and only consumers'
groups can be moved to the consumer protocol. Also here: unknown groups, and deleted ones.
"""

from __future__ import annotations

from typing import Any

import pytest

from protocol.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from protocol.api.delete_groups import DeleteGroupsRequest
from protocol.api.describe_groups import DescribeGroupsRequest
from protocol.api.heartbeat import HeartbeatRequest
from protocol.api.join_group import JoinGroupRequest
from protocol.api.leave_group import LeaveGroupRequest
from protocol.api.list_groups import ListGroupsRequest
from protocol.api.metadata import MetadataRequest, MetadataRequestTopic
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
from tests.support.broker import RawClient
from tests.support.requests import create_topic

TYPES = ("consumer", "connect", "sr", "stream")
PROTOCOLS = {"consumer": "range", "connect": "sessioned", "sr": "v0", "stream": "any"}
ABOUT_CONSUMERS = bytes.fromhex("0001 00000001 0001 75 ffffffff 00000000")
METADATA = {
    "consumer": ABOUT_CONSUMERS,
    "connect": bytes.fromhex("0001 0003 ff00fe"),
    "sr": b'{"host":"h","port":8081,"master_eligibility":true}',
    "stream": b"",
}
ASSIGNMENT = bytes.fromhex("0000 deadbeef")


class Member:
    """The one member of a group of some type."""

    def __init__(self, client: RawClient, group_type: str) -> None:
        self.client = client
        self.type = group_type
        self.group_id = f"of-{group_type}"
        self.member_id = ""
        self.generation_id = -1

    async def join(self) -> Any:
        answer = await self.client.request(
            JoinGroupRequest(
                group_id=self.group_id,
                session_timeout_ms=10_000,
                rebalance_timeout_ms=10_000,
                protocol_type=self.type,
                protocols=[
                    ProtocolMetadata(name=PROTOCOLS[self.type], metadata=METADATA[self.type])
                ],
            ),
            3,
        )
        assert answer.error_code == ErrorCode.NONE
        self.member_id, self.generation_id = answer.member_id, answer.generation_id
        return answer

    async def sync(self) -> Any:
        given = SyncGroupRequestAssignment(member_id=self.member_id, assignment=ASSIGNMENT)
        return await self.client.request(
            SyncGroupRequest(
                group_id=self.group_id,
                generation_id=self.generation_id,
                member_id=self.member_id,
                protocol_type=self.type,
                protocol_name=PROTOCOLS[self.type],
                assignments=[given],
            ),
            5,
        )

    async def commit(self, offset: int) -> int:
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        answer = await self.client.request(
            OffsetCommitRequest(
                group_id=self.group_id,
                member_id=self.member_id,
                generation_id_or_member_epoch=self.generation_id,
                topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])],
            ),
            7,
        )
        code: int = answer.topics[0].partitions[0].error_code
        return code

    async def leave(self) -> int:
        request = LeaveGroupRequest(group_id=self.group_id, member_id=self.member_id)
        code: int = (await self.client.request(request, 2)).error_code
        return code


async def described(client: RawClient, group_id: str, version: int) -> Any:
    (group,) = (await client.request(DescribeGroupsRequest(groups=[group_id]), version)).groups
    return group


async def offset_of(client: RawClient, group_id: str, version: int) -> tuple[int, int]:
    """(error, offset), however the version asks."""
    if version >= 8:
        topic = OffsetFetchRequestTopics(name="t", partition_indexes=[0])
        if version >= 10:
            topic.topic_id = await _topic_id(client)
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group_id, topics=[topic])]
        )
        (group,) = (await client.request(request, version)).groups
        (partition,) = group.topics[0].partitions
        return group.error_code or partition.error_code, partition.committed_offset
    asked = [PartitionIndexes(name="t", partition_indexes=[0])]
    request = OffsetFetchRequest(group_id=group_id, topics=asked)
    answer = await client.request(request, version)
    (partition,) = answer.topics[0].partitions
    top = answer.error_code if version >= 2 else 0
    return top or partition.error_code, partition.committed_offset


async def _topic_id(client: RawClient) -> bytes:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    topic_id: bytes = (await client.request(request, 12)).topics[0].topic_id
    return topic_id


@pytest.fixture
async def topic(client: RawClient) -> None:
    """The topic whose offsets are committed; consumers in these tests read another one."""
    await create_topic(client, "t")


@pytest.mark.usefixtures("topic")
@pytest.mark.parametrize("group_type", TYPES)
async def test_a_group_of_any_type_lives_its_whole_life(client: RawClient, group_type: str) -> None:
    member = Member(client, group_type)
    joined = await member.join()
    assert [bytes(each.metadata) for each in joined.members] == [METADATA[group_type]]
    synced = await member.sync()
    assert (synced.protocol_type, synced.protocol_name) == (group_type, PROTOCOLS[group_type])
    assert bytes(synced.assignment) == ASSIGNMENT
    beat = HeartbeatRequest(
        group_id=member.group_id, generation_id=member.generation_id, member_id=member.member_id
    )
    assert (await client.request(beat, 4)).error_code == ErrorCode.NONE
    assert await member.commit(7) == ErrorCode.NONE
    listed = (await client.request(ListGroupsRequest(), 5)).groups
    assert [(g.group_id, g.protocol_type, g.group_state, g.group_type) for g in listed] == [
        (member.group_id, group_type, "Stable", "classic")
    ]
    assert await member.leave() == ErrorCode.NONE
    assert await offset_of(client, member.group_id, 7) == (ErrorCode.NONE, 7)
    deleted = await client.request(DeleteGroupsRequest(groups_names=[member.group_id]), 2)
    assert deleted.results[0].error_code == ErrorCode.NONE
    assert await offset_of(client, member.group_id, 7) == (ErrorCode.NONE, -1)


@pytest.mark.usefixtures("topic")
@pytest.mark.parametrize("group_type", TYPES)
async def test_metadata_and_assignments_are_shown_as_they_came(
    client: RawClient, group_type: str
) -> None:
    member = Member(client, group_type)
    await member.join()
    await member.sync()
    for version in range(SUPPORTED[ApiKey.DESCRIBE_GROUPS].max + 1):
        group = await described(client, member.group_id, version)
        assert (group.error_code, group.group_state) == (ErrorCode.NONE, "Stable")
        assert (group.protocol_type, group.protocol_data) == (group_type, PROTOCOLS[group_type])
        (shown,) = group.members
        assert bytes(shown.member_metadata) == METADATA[group_type]
        assert bytes(shown.member_assignment) == ASSIGNMENT


@pytest.mark.usefixtures("topic")
@pytest.mark.parametrize("group_type", TYPES)
async def test_only_consumers_at_work_have_offsets_deleted(
    client: RawClient, group_type: str
) -> None:
    member = Member(client, group_type)
    await member.join()
    await member.sync()
    await member.commit(7)
    partition = PartitionIndex(partition_index=0)
    request = OffsetDeleteRequest(
        group_id=member.group_id,
        topics=[OffsetDeleteRequestTopic(name="t", partitions=[partition])],
    )
    expected = ErrorCode.NONE if group_type == "consumer" else ErrorCode.NON_EMPTY_GROUP
    assert (await client.request(request, 0)).error_code == expected


@pytest.mark.usefixtures("topic")
@pytest.mark.parametrize("group_type", TYPES)
async def test_only_consumers_have_members_of_the_consumer_protocol(
    client: RawClient, group_type: str
) -> None:
    member = Member(client, group_type)
    await member.join()
    request = ConsumerGroupHeartbeatRequest(
        group_id=member.group_id,
        member_id="new",
        rebalance_timeout_ms=1_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    expected = ErrorCode.NONE if group_type == "consumer" else ErrorCode.GROUP_ID_NOT_FOUND
    assert (await client.request(request, 1)).error_code == expected


@pytest.mark.parametrize("group_type", TYPES)
async def test_types_do_not_mix(client: RawClient, group_type: str) -> None:
    await Member(client, group_type).join()
    other = next(each for each in TYPES if each != group_type)
    answer = await client.request(
        JoinGroupRequest(
            group_id=f"of-{group_type}",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type=other,
            protocols=[ProtocolMetadata(name=PROTOCOLS[group_type], metadata=b"")],
        ),
        3,
    )
    assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.usefixtures("topic")
@pytest.mark.parametrize("version", range(SUPPORTED[ApiKey.OFFSET_FETCH].max + 1))
async def test_an_unknown_group_has_no_offsets_and_no_error(
    client: RawClient, version: int
) -> None:
    """Clients start with it: an error here and a new group never begins to read."""
    assert await offset_of(client, "nobody", version) == (ErrorCode.NONE, -1)
    assert (await client.request(ListGroupsRequest(), 5)).groups == [], "asking makes no group"


@pytest.mark.usefixtures("topic")
@pytest.mark.parametrize("version", range(SUPPORTED[ApiKey.DESCRIBE_GROUPS].max + 1))
async def test_a_group_that_is_gone_is_dead(client: RawClient, version: int) -> None:
    member = Member(client, "consumer")
    await member.join()
    await member.leave()
    assert (await described(client, member.group_id, version)).group_state == "Empty"
    await client.request(DeleteGroupsRequest(groups_names=[member.group_id]), 2)
    for group_id in (member.group_id, "never-was"):
        group = await described(client, group_id, version)
        expected = ErrorCode.NONE if version < 6 else ErrorCode.GROUP_ID_NOT_FOUND
        assert (group.group_state, group.error_code) == ("Dead", expected)
        assert (group.protocol_type, group.protocol_data, group.members) == ("", "", [])
