"""What Apache Kafka 4.3.1 answers to group requests with something odd in them, and we do too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from protocol.api.consumer_group_describe import ConsumerGroupDescribeRequest
from protocol.api.delete_groups import DeleteGroupsRequest
from protocol.api.describe_groups import DescribeGroupsRequest
from protocol.api.find_coordinator import FindCoordinatorRequest
from protocol.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.api.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestTopic
from protocol.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from protocol.api.sync_group import SyncGroupRequest
from protocol.error_codes import ErrorCode
from protocol.structs import PartitionIndex, TopicPartitions
from tests.integration.groups.test_groups_consumer import beat, join
from tests.support.broker import RawClient, running_broker
from tests.support.requests import create_topic

NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
STALE = ErrorCode.STALE_MEMBER_EPOCH
NO_OPERATIONS = -(2**31)
ALL_OPERATIONS = 3400
"""READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS and ALTER_CONFIGS, by the numbers of KIP-430."""


async def commit(
    client: RawClient,
    version: int,
    *partitions: int,
    name: str = "t",
    topic_id: bytes = bytes(16),
    metadata: str = "",
    **fields: Any,
) -> list[list[int]]:
    """The error codes, topic by topic."""
    asked = [
        OffsetCommitRequestPartition(
            partition_index=index, committed_offset=7, committed_metadata=metadata
        )
        for index in partitions
    ]
    topic = OffsetCommitRequestTopic(name=name, topic_id=topic_id, partitions=asked)
    request = OffsetCommitRequest(**{"group_id": "g", "topics": [topic]} | fields)
    answer = await client.request(request, version)
    return [[each.error_code for each in found.partitions] for found in answer.topics]


async def committed(client: RawClient, group_id: str = "g") -> dict[int, int]:
    answer = await client.request(OffsetFetchRequest(group_id=group_id, topics=None), 5)
    return {p.partition_index: p.committed_offset for t in answer.topics for p in t.partitions}


# -- offsets ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [2, 3, 4])
@pytest.mark.parametrize("retention_ms", [0, 2**62, 2**63 - 1, -2])
async def test_any_retention_of_an_offset_is_taken(
    client: RawClient, version: int, retention_ms: int
) -> None:
    await create_topic(client, "t")
    assert await commit(client, version, 0, retention_time_ms=retention_ms) == [[NONE]]
    assert await committed(client) == {0: 7}


async def test_a_retention_without_end_survives_a_restart_and_ends_never(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        client = await broker.client()
        await create_topic(client, "t")
        await commit(client, 4, 0, retention_time_ms=2**63 - 1)
    async with running_broker(tmp_path, offsets_retention_check_interval_ms="1") as broker:
        client = await broker.client()
        broker.broker.groups.tick()
        assert await committed(client) == {0: 7}


async def test_a_partition_that_does_not_exist_is_refused_before_the_member(
    client: RawClient,
) -> None:
    topic_id = await create_topic(client, "t", 2)
    await join(client)
    for version, other in ((2, ErrorCode.UNSUPPORTED_VERSION), (9, STALE)):
        facts: dict[str, Any] = {"member_id": "m1", "generation_id_or_member_epoch": 7}
        assert await commit(client, version, 0, 9, **facts) == [[other, UNKNOWN]]
        assert await commit(client, version, 0, name="nosuch", **facts) == [[UNKNOWN]]
    assert await commit(client, 10, 0, -1, 9, topic_id=topic_id, member_id="x") == [
        [ErrorCode.UNKNOWN_MEMBER_ID, UNKNOWN, UNKNOWN]
    ]
    unknown = await commit(client, 10, 0, topic_id=bytes(15) + b"x")
    assert unknown == [[ErrorCode.UNKNOWN_TOPIC_ID]]


async def test_a_member_is_refused_before_its_metadata(client: RawClient) -> None:
    await create_topic(client, "t")
    await join(client)
    facts: dict[str, Any] = {"member_id": "m1", "metadata": "x" * 5000}
    stale = await commit(client, 9, 0, generation_id_or_member_epoch=7, **facts)
    assert stale == [[STALE]]
    large = await commit(client, 9, 0, generation_id_or_member_epoch=1, **facts)
    assert large == [[ErrorCode.OFFSET_METADATA_TOO_LARGE]]


async def test_a_topic_without_partitions_is_left_out_of_the_answer(client: RawClient) -> None:
    await create_topic(client, "t")
    assert await commit(client, 8) == []
    await commit(client, 8, 0)
    empty = OffsetDeleteRequestTopic(name="t", partitions=[])
    answer = await client.request(OffsetDeleteRequest(group_id="g", topics=[empty]), 0)
    assert (answer.error_code, answer.topics) == (NONE, [])


async def test_offsets_of_kept_partitions_are_taken_in_an_epoch_that_is_over(
    client: RawClient,
) -> None:
    """KIP-1251: a commit that crosses the heartbeat with the next epoch is not lost."""
    topic_id = await create_topic(client, "t", 2)
    await join(client)
    await join(client, "m2")
    kept = (await beat(client, "m1", 1)).assignment.topic_partitions
    (index,) = kept[0].partitions
    owned = [TopicPartitions(topic_id=topic_id, partitions=[index])]
    moved = await beat(client, "m1", 1, topic_partitions=owned, rebalance_timeout_ms=60_000)
    assert moved.member_epoch == 2
    assert (await beat(client, "m2", 2)).assignment is not None

    async def at(member_id: str, epoch: int, *indexes: int) -> list[list[int]]:
        facts: dict[str, Any] = {"member_id": member_id}
        facts["generation_id_or_member_epoch"] = epoch
        return await commit(client, 9, *indexes, **facts)

    assert await at("m1", 1, index) == [[NONE]]
    assert await at("m1", 1, 1 - index) == [[STALE]], "it has been given up"
    assert await at("m1", 1, 0, 1) == [[STALE, STALE]], "all or none"
    assert await at("m1", 0, index) == [[STALE]], "it came with epoch 1"
    assert await at("m1", 3, index) == [[STALE]], "there has been no such epoch"
    assert await at("m2", 1, 1 - index) == [[STALE]], "it came with epoch 2"
    assert await at("m1", 2, 0, 1) == [[NONE, NONE]]
    assert await committed(client) == {0: 7, 1: 7}


@pytest.mark.parametrize("version", [9, 10])
async def test_whose_offsets_are_fetched(client: RawClient, version: int) -> None:
    await create_topic(client, "t")
    await join(client)

    async def fetch(member_id: str | None, epoch: int) -> int:
        group = OffsetFetchRequestGroup(
            group_id="g", member_id=member_id, member_epoch=epoch, topics=None
        )
        answer = await client.request(OffsetFetchRequest(groups=[group]), version)
        code: int = answer.groups[0].error_code
        return code

    assert await fetch(None, -1) == NONE, "an admin client"
    assert await fetch("m1", 1) == NONE
    assert await fetch("m1", -1) == STALE
    for member_id, epoch in (("", -1), ("", 1), ("x", 1), (None, 1)):
        assert await fetch(member_id, epoch) == ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_group_without_a_name_has_offsets_and_loses_them_with_itself(
    client: RawClient,
) -> None:
    await create_topic(client, "t")
    assert await commit(client, 8, 0, group_id="") == [[NONE]]
    partition = PartitionIndex(partition_index=0)
    topic = OffsetDeleteRequestTopic(name="t", partitions=[partition])
    answer = await client.request(OffsetDeleteRequest(group_id="", topics=[topic]), 0)
    assert (answer.error_code, answer.topics) == (ErrorCode.INVALID_GROUP_ID, [])
    assert await committed(client, "") == {0: 7}
    deleted = await client.request(DeleteGroupsRequest(groups_names=[""]), 2)
    assert [each.error_code for each in deleted.results] == [NONE]
    assert await committed(client, "") == {}


async def test_a_group_that_is_deleted_twice_in_a_request_is_answered_once(
    client: RawClient,
) -> None:
    await create_topic(client, "t")
    await commit(client, 8, 0)
    deleted = await client.request(DeleteGroupsRequest(groups_names=["g", "x", "g", "x"]), 2)
    assert [(each.group_id, each.error_code) for each in deleted.results] == [
        ("g", NONE),
        ("x", ErrorCode.GROUP_ID_NOT_FOUND),
    ]


# -- members ---------------------------------------------------------------------------------------


async def test_a_sync_has_to_name_the_protocol(client: RawClient) -> None:
    async def sync(version: int, group_id: str = "g", **names: Any) -> int:
        request = SyncGroupRequest(group_id=group_id, generation_id=1, member_id="m", **names)
        code: int = (await client.request(request, version)).error_code
        return code

    for names in ({}, {"protocol_type": "consumer"}, {"protocol_name": "range"}):
        assert await sync(5, **names) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL, names
        assert await sync(5, "", **names) == ErrorCode.INVALID_GROUP_ID, names
        assert await sync(4, **names) == ErrorCode.UNKNOWN_MEMBER_ID, names


async def test_a_refused_heartbeat_names_no_member(client: RawClient) -> None:
    await create_topic(client, "t")
    await join(client)
    for member_id, epoch, fields in (
        ("m1", 9, {}),
        ("x", 1, {}),
        ("m1", 1, {"server_assignor": "none"}),
        ("m1", 1, {"subscribed_topic_regex": "("}),
    ):
        refused = await beat(client, member_id, epoch, **fields)
        assert refused.error_code != NONE
        assert refused.member_id is None, refused
    assert (await beat(client, "m1", 1)).member_id == "m1"


async def test_a_pattern_means_internal_topics_too(client: RawClient) -> None:
    topic_id = await create_topic(client, "t")
    await commit(client, 8, 0, group_id="makes-the-topic-of-offsets")
    pattern: dict[str, Any] = {"subscribed_topic_names": None}
    pattern["subscribed_topic_regex"] = "t|__consumer_offs.*"
    given = (await join(client, **pattern)).assignment.topic_partitions
    assert len(given) == 2
    assert topic_id in [each.topic_id for each in given]


# -- what is shown ---------------------------------------------------------------------------------


async def test_what_may_be_done_with_a_group(client: RawClient) -> None:
    await create_topic(client, "t")
    await join(client)
    await commit(client, 8, 0, group_id="old")
    request = DescribeGroupsRequest(groups=["old", "x"], include_authorized_operations=True)
    for version, unknown in ((3, ALL_OPERATIONS), (5, ALL_OPERATIONS), (6, NO_OPERATIONS)):
        answer = await client.request(request, version)
        operations = [each.authorized_operations for each in answer.groups]
        assert operations == [ALL_OPERATIONS, unknown], version
    both = ConsumerGroupDescribeRequest(
        group_ids=["g", "old", "x", ""], include_authorized_operations=True
    )
    described = (await client.request(both, 1)).groups
    assert [each.authorized_operations for each in described] == [
        ALL_OPERATIONS,
        NO_OPERATIONS,
        NO_OPERATIONS,
        NO_OPERATIONS,
    ]
    assert described[0].members[0].subscribed_topic_regex == ""
    assert [(each.error_code, each.error_message) for each in described[1:]] == [
        (ErrorCode.GROUP_ID_NOT_FOUND, "Group old is not a consumer group."),
        (ErrorCode.GROUP_ID_NOT_FOUND, "Group x not found."),
        (ErrorCode.INVALID_GROUP_ID, None),
    ]


@pytest.mark.parametrize("version", [1, 2, 3, 4, 6])
async def test_a_coordinator_that_is_found_has_a_message_that_says_so(
    client: RawClient, version: int
) -> None:
    request = FindCoordinatorRequest(key="g", coordinator_keys=["g"], key_type=0)
    answer = await client.request(request, version)
    found, message = (answer.coordinators[0], "") if version >= 4 else (answer, "NONE")
    assert (found.error_code, found.error_message) == (NONE, message)
