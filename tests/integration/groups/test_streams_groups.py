"""Groups of Kafka Streams over the wire: topics, restarts, offsets, conversion, metrics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from protocol import streams
from protocol.api import streams_group_heartbeat as api
from protocol.api.delete_groups import DeleteGroupsRequest
from protocol.api.join_group import JoinGroupRequest
from protocol.api.list_groups import ListGroupsRequest
from protocol.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from protocol.api.streams_group_describe import DescribedGroup, StreamsGroupDescribeRequest
from protocol.error_codes import ErrorCode
from protocol.structs import ProtocolMetadata
from tests.integration.operator.test_metrics import samples
from tests.support.broker import RawClient, running_broker
from tests.support.requests import create_topic

AT_ONCE: dict[str, Any] = {
    "group_streams_initial_rebalance_delay_ms": "0",
    "group_streams_assignment_interval_ms": "0",
}


def topology(store: str = "") -> streams.Topology:
    """One subtopology that reads `t`, with a changelog or without."""
    settings = [streams.KeyValue(key="cleanup.policy", value="compact")]
    changelogs = [streams.TopicInfo(name=store, topic_configs=settings)] if store else []
    sub = streams.Subtopology(
        subtopology_id="0", source_topics=["t"], state_changelog_topics=changelogs
    )
    return streams.Topology(epoch=0, subtopologies=[sub])


async def beat(client: RawClient, epoch: int, **fields: Any) -> Any:
    """A heartbeat of member `m` of group `g`."""
    base: dict[str, Any] = {"group_id": "g", "member_id": "m", "member_epoch": epoch}
    return await client.request(api.StreamsGroupHeartbeatRequest(**(base | fields)), 0)


async def join(client: RawClient, wanted: streams.Topology | None = None) -> Any:
    """Join with a topology."""
    none: dict[str, Any] = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
    wanted = wanted or topology()
    return await beat(client, 0, rebalance_timeout_ms=1000, topology=wanted, process_id="p", **none)


async def described(client: RawClient) -> DescribedGroup:
    """Group `g`."""
    answer = await client.request(StreamsGroupDescribeRequest(group_ids=["g"]), 0)
    group: DescribedGroup = answer.groups[0]
    return group


async def commit(client: RawClient, member: str, epoch: int) -> int:
    """Commit an offset; the error."""
    part = OffsetCommitRequestPartition(partition_index=0, committed_offset=7)
    topic = OffsetCommitRequestTopic(name="t", partitions=[part])
    request = OffsetCommitRequest(
        group_id="g", member_id=member, generation_id_or_member_epoch=epoch, topics=[topic]
    )
    code: int = (await client.request(request, 9)).topics[0].partitions[0].error_code
    return code


async def committed(client: RawClient) -> list[int]:
    """The offsets that the group has."""
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    topics = (await client.request(request, 9)).groups[0].topics
    return [part.committed_offset for topic in topics for part in topic.partitions]


async def test_internal_topics_are_created_with_their_settings(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "data", **AT_ONCE) as running:
        client = await running.client()
        await create_topic(client, "t", 3)
        answer = await join(client, topology("app-changelog"))
        assert [status.status_code for status in answer.status] == [3]
        assert answer.active_tasks == []
        answer = await beat(client, answer.member_epoch)
        assert answer.status == []
        assert answer.active_tasks == [api.TaskIds(subtopology_id="0", partitions=[0, 1, 2])]
        created = running.broker.topics.find("app-changelog")
        assert created is not None
        assert len(created.partitions) == 3
        assert created.overrides == {"cleanup.policy": "compact"}


async def test_what_keeps_a_topic_from_being_created_is_named(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "data", **AT_ONCE) as running:
        client = await running.client()
        await create_topic(client, "t")
        wanted = topology("app-changelog")
        info = wanted.subtopologies[0].state_changelog_topics[0]
        info.replication_factor = 3
        status = (await join(client, wanted)).status[0]
        assert "Creation failed: app-changelog (replication factor 3" in status.status_detail


async def test_a_group_survives_a_restart(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "data", **AT_ONCE) as running:
        client = await running.client()
        await create_topic(client, "t", 2)
        epoch = (await join(client)).member_epoch
        assert await commit(client, "m", epoch) == ErrorCode.NONE
        before = await described(client)
    async with running_broker(tmp_path / "data", **AT_ONCE) as running:
        client = await running.client()
        assert await described(client) == before
        answer = await beat(client, epoch)
        assert (answer.error_code, answer.member_epoch, answer.active_tasks) == (0, epoch, None)
        assert (await described(client)).group_state == "Stable"
        assert await committed(client) == [7]
        assert (await beat(client, -1)).error_code == 0
        assert (await described(client)).group_state == "Empty"


async def test_a_deleted_group_leaves_nothing(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "data", **AT_ONCE) as running:
        client = await running.client()
        await create_topic(client, "t")
        await commit(client, "m", (await join(client)).member_epoch)
        delete = DeleteGroupsRequest(groups_names=["g"])
        answer = await client.request(delete, 2)
        assert answer.results[0].error_code == ErrorCode.NON_EMPTY_GROUP
        await beat(client, -1)
        assert (await client.request(delete, 2)).results[0].error_code == ErrorCode.NONE
    async with running_broker(tmp_path / "data", **AT_ONCE) as running:
        client = await running.client()
        assert (await described(client)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert await committed(client) == []


async def test_an_empty_group_changes_its_protocol_and_keeps_its_offsets(tmp_path: Path) -> None:
    classic = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[ProtocolMetadata(name="range", metadata=b"")],
    )
    async with running_broker(
        tmp_path / "data", group_initial_rebalance_delay_ms="0", **AT_ONCE
    ) as running:
        client = await running.client()
        await create_topic(client, "t")
        assert await commit(client, "", -1) == ErrorCode.NONE
        assert (await join(client)).error_code == ErrorCode.NONE
        refused = await client.request(classic, 5)
        assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        await beat(client, -1)
        asked = await client.request(classic, 5)
        assert asked.error_code == ErrorCode.MEMBER_ID_REQUIRED
        classic.member_id = asked.member_id
        assert (await client.request(classic, 5)).error_code == ErrorCode.NONE
        assert (await join(client)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    async with running_broker(tmp_path / "data", **AT_ONCE) as running:
        client = await running.client()
        listed = (await client.request(ListGroupsRequest(), 5)).groups
        assert [(group.group_id, group.group_type) for group in listed] == [("g", "classic")]
        assert await committed(client) == [7]


async def test_figures_of_streams_groups(tmp_path: Path) -> None:
    async with running_broker(
        tmp_path / "data", metrics_listener="127.0.0.1:0", **AT_ONCE
    ) as running:
        client = await running.client()
        await create_topic(client, "t")
        await join(client)
        found = await samples(running)
        assert found["tidelog_streams_groups", "Stable"] == 1
        assert found["tidelog_streams_rebalances_total",] == 1
