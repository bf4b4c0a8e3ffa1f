"""kill -9 of a real broker while members of streams groups join, continue, commit and leave.

Its offsets topic rolls often and is compacted all the time, and tombstones go at once: each restart
loads groups from what compaction has left. What was answered holds after the restart: a member is
in the epoch of its last answer, one that has left is gone, a deleted group is not found, a
committed offset is there. What was not answered may hold or not.

`KILL9_CYCLES=50` sets the number of kills, `KILL9_SEED` what happens between them.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from protocol import streams
from protocol.api import streams_group_heartbeat as api
from protocol.api.delete_groups import DeleteGroupsRequest
from protocol.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from protocol.api.streams_group_describe import StreamsGroupDescribeRequest
from protocol.error_codes import ErrorCode
from tests.support.broker import BrokerProcess, ConnectionClosed, RawClient
from tests.support.requests import create_topic, records_of

CYCLES: Final = int(os.environ.get("KILL9_CYCLES", "4"))
SEED: Final = int(os.environ.get("KILL9_SEED", "20261124"))
GROUPS: Final = 3
MEMBERS: Final = 3
PARTITIONS: Final = 4
TOPIC: Final = "lines"
SETTINGS: Final = {
    "group_streams_initial_rebalance_delay_ms": "0",
    "group_streams_assignment_interval_ms": "0",
    "group_streams_num_standby_replicas": "1",
    "offsets_topic_segment_bytes": "4096",
    "log_initial_task_delay_ms": "0",
    "log_cleaner_backoff_ms": "50",
    "log_cleaner_min_cleanable_ratio": "0.1",
    "log_cleaner_delete_retention_ms": "1",
}
TOPOLOGY: Final = streams.Topology(
    epoch=0,
    subtopologies=[
        streams.Subtopology(
            subtopology_id="0",
            source_topics=[TOPIC],
            state_changelog_topics=[
                streams.TopicInfo(
                    name="store",
                    topic_configs=[streams.KeyValue(key="cleanup.policy", value="compact")],
                )
            ],
        )
    ],
)
_GONE: Final = (ConnectionClosed, OSError, TimeoutError)


@dataclass
class Member:
    """What one member was answered. `is_known` is False while an answer is due."""

    name: str
    epoch: int = 0
    """0 is not in the group."""

    owned: dict[str, list[api.TaskIds]] = field(default_factory=dict)
    is_known: bool = True


@dataclass
class Group:
    """What was answered about one group."""

    name: str
    members: list[Member]
    offset: int = -1
    is_offset_known: bool = True
    deletions: int = 0

    @property
    def is_settled(self) -> bool:
        """Whether no request about its existence is without an answer."""
        return self.is_offset_known and all(each.is_known for each in self.members)


async def beat(client: RawClient, group: Group, member: Member, epoch: int) -> None:
    """One heartbeat; it joins in epoch 0 and leaves in epoch -1."""
    fields: dict[str, Any] = dict(member.owned)
    if epoch == 0:
        fields = {each: [] for each in ("active_tasks", "standby_tasks", "warmup_tasks")}
        fields |= {"topology": TOPOLOGY, "process_id": member.name, "rebalance_timeout_ms": 30_000}
    member.is_known = False
    answer = await client.request(
        api.StreamsGroupHeartbeatRequest(
            group_id=group.name, member_id=member.name, member_epoch=epoch, **fields
        ),
        0,
    )
    assert answer.error_code == 0, (group.name, member, epoch, answer)
    member.is_known = True
    member.epoch = max(answer.member_epoch, 0)
    if answer.active_tasks is not None:
        member.owned = {
            "active_tasks": answer.active_tasks,
            "standby_tasks": answer.standby_tasks or [],
            "warmup_tasks": [],
        }
    if epoch < 0:
        member.owned = {}


async def commit(client: RawClient, group: Group, member: Member) -> None:
    """Commit the next offset."""
    part = OffsetCommitRequestPartition(partition_index=0, committed_offset=group.offset + 1)
    group.is_offset_known = False
    answer = await client.request(
        OffsetCommitRequest(
            group_id=group.name,
            member_id=member.name,
            generation_id_or_member_epoch=member.epoch,
            topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[part])],
        ),
        9,
    )
    assert answer.topics[0].partitions[0].error_code == 0, (group.name, member, answer)
    group.is_offset_known = True
    group.offset += 1


async def delete(client: RawClient, group: Group) -> None:
    """Delete an empty group."""
    group.is_offset_known = False
    answer = await client.request(DeleteGroupsRequest(groups_names=[group.name]), 2)
    assert answer.results[0].error_code in (0, ErrorCode.GROUP_ID_NOT_FOUND), answer
    group.is_offset_known = True
    group.offset = -1
    group.deletions += 1


async def use(client: RawClient, group: Group, rng: random.Random) -> None:
    """Use a group at random until the broker is gone."""
    while True:
        member = rng.choice(group.members)
        if not member.epoch:
            await beat(client, group, member, 0)
        elif rng.random() < 0.5:
            await beat(client, group, member, member.epoch)
        elif rng.random() < 0.7:
            await commit(client, group, member)
        else:
            await beat(client, group, member, -1)
            if not any(each.epoch for each in group.members):
                await delete(client, group)


async def check(client: RawClient, group: Group) -> None:
    """Compare a group with what was answered; continue with what is there."""
    asked = StreamsGroupDescribeRequest(group_ids=[group.name])
    described = (await client.request(asked, 0)).groups[0]
    fetch = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group.name, topics=None)])
    topics = (await client.request(fetch, 9)).groups[0].topics
    offset = max((part.committed_offset for each in topics for part in each.partitions), default=-1)
    epochs = {each.member_id: each.member_epoch for each in described.members}
    for member in group.members:
        found = epochs.pop(member.name, 0)
        assert not member.is_known or found == member.epoch, (group.name, member, found)
        member.is_known, member.epoch = True, found
        if not found:
            member.owned = {}
    assert epochs == {}
    if group.is_settled:
        assert offset == group.offset, group.name
        if group.offset < 0 and not any(each.epoch for each in group.members) and group.deletions:
            assert described.error_code == ErrorCode.GROUP_ID_NOT_FOUND, described
    group.is_offset_known, group.offset = True, offset


async def live(
    broker: BrokerProcess, groups: list[Group], rng: random.Random, *, use_s: float
) -> None:
    """One life of the broker: check what it knows, then use it until it is killed."""
    clients = [await RawClient.connect("127.0.0.1", broker.port) for _ in groups]
    with suppress(AssertionError):  # from the second life on the topic is there
        await create_topic(clients[0], TOPIC, PARTITIONS)
    for client, group in zip(clients, groups, strict=True):
        await check(client, group)
    if use_s:
        asyncio.get_running_loop().call_later(use_s, broker.process.kill)
        work = [use(client, group, rng) for client, group in zip(clients, groups, strict=True)]
        for outcome in await asyncio.gather(*work, return_exceptions=True):
            if not isinstance(outcome, _GONE):
                assert isinstance(outcome, BaseException)
                raise outcome
    for client in clients:
        with suppress(*_GONE):
            await client.close()


@pytest.mark.timeout(60 + 10 * CYCLES)
def test_what_a_streams_group_was_answered_holds(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    groups = [
        Group(f"app-{number}", [Member(f"member-{index}") for index in range(MEMBERS)])
        for number in range(GROUPS)
    ]
    for cycle in range(CYCLES + 1):
        broker = BrokerProcess(tmp_path, **SETTINGS)
        try:
            broker.wait_ready()
            use_s = 0 if cycle == CYCLES else rng.uniform(0.3, 1.5)
            asyncio.run(live(broker, groups, rng, use_s=use_s))
        finally:
            if broker.process.poll() is None:
                broker.stop(signal.SIGKILL)
            else:
                broker.process.communicate()
    files = sorted((tmp_path / "__consumer_offsets-0").glob("*.log"))
    offsets = [record.offset for file in files for record in records_of(file.read_bytes())]
    assert len(offsets) < offsets[-1] + 1, "nothing was compacted"
    print(
        f"\n{CYCLES} kills, {offsets[-1] + 1} records stored, {len(offsets)} left by compaction, "
        f"{sum(each.deletions for each in groups)} deletions"
    )
