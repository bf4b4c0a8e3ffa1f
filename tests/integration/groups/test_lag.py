"""How far groups are behind, measured in steps while clients go on."""

from pathlib import Path

from broker.groups.offsets.lag import GroupLag
from protocol.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.support.broker import running_broker
from tests.support.requests import create_topic


def commit(group: str, topic: str, partition: int) -> OffsetCommitRequest:
    committed = OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=0, committed_metadata=None
    )
    topics = [OffsetCommitRequestTopic(name=topic, partitions=[committed])]
    return OffsetCommitRequest(group_id=group, topics=topics)


async def test_groups_commit_between_the_steps_of_a_sample(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "data") as running:
        client = await running.client()
        await create_topic(client, "t", 3)
        for group in ("g", "h"):
            await client.request(commit(group, "t", 0), 7)
        inside = running.broker
        lag = GroupLag(inside.topics, inside.groups.offsets.table, inside.clock.wall_ms)
        steps = lag.sample(0)
        next(steps)
        for group in ("g", "h", "new"):
            await client.request(commit(group, "t", 1), 7)
        assert sum(1 for _ in steps) == 1
        assert sum(1 for _ in lag.sample(1)) == 3
