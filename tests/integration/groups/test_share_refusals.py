"""Share groups when things go wrong: a disk that refuses, members at once, odd requests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from protocol.api.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from protocol.api.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from protocol.error_codes import ErrorCode
from tests.support.broker import RunningBroker, batch, running_broker
from tests.support.requests import create_topic, produce
from tests.support.share_group import ShareMember, set_group

ACCEPT = (1,)


async def joined(running: RunningBroker, count: int) -> ShareMember:
    """A member of a group that begins at the first of `count` records."""
    client = await running.client()
    await set_group(client, "g", share_auto_offset_reset="earliest")
    topic_id = await create_topic(client, "t")
    await produce(client, "t", batch(*map(str, range(count))))
    member = ShareMember(client, "g", topic_id)
    assert (await member.heartbeat("t")).error_code == 0
    return member


async def returned(running: RunningBroker, topic_id: bytes) -> ShareMember:
    """Another member of the group, on a connection of its own."""
    member = ShareMember(await running.client(), "g", topic_id, name="member-2")
    assert (await member.heartbeat("t")).error_code == 0
    return member


@contextmanager
def states_refused(running: RunningBroker) -> Iterator[None]:
    """No record of a share state can be appended, as on a full disk."""

    def refuse(partition: int, records: Any, when_done: Any, **_: Any) -> None:
        when_done(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    topic = running.broker.groups.shares.states._topic
    with patch.object(topic, "append", refuse):
        yield


async def test_first_members_that_come_at_once(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as running:
        client = await running.client()
        topic_id = await create_topic(client, "t")
        members = [
            ShareMember(await running.client(), f"g{number}", topic_id) for number in range(8)
        ]
        answers = await asyncio.gather(*(member.heartbeat("t") for member in members))
        assert {answer.error_code for answer in answers} == {0}


async def test_a_refused_acceptance_is_not_remembered(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as running:
        member = await joined(running, 4)
        await member.fetch()
        with states_refused(running):
            error = await member.acked((0, 1, ACCEPT))
        assert error == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await member.acked((3, 3, ACCEPT)) == 0
        await member.client.close()
        again = await returned(running, member.topic_id)
        found = await again.fetch(max_wait_ms=5000)
        assert found.acquired == [(0, 2, 2)]


async def test_a_refused_acceptance_is_in_no_later_snapshot(tmp_path: Path) -> None:
    async with running_broker(
        tmp_path, share_coordinator_snapshot_update_records_per_snapshot="1"
    ) as running:
        member = await joined(running, 4)
        await member.fetch()
        with states_refused(running):
            assert await member.acked((0, 1, ACCEPT)) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        for offset in (2, 3):
            assert await member.acked((offset, offset, ACCEPT)) == 0
    async with running_broker(tmp_path) as running:
        again = await returned(running, member.topic_id)
        assert [each[:2] for each in (await again.fetch()).acquired] == [(0, 1)]


async def test_acceptances_after_a_refused_snapshot_survive_a_restart(tmp_path: Path) -> None:
    async with running_broker(
        tmp_path, share_coordinator_snapshot_update_records_per_snapshot="2"
    ) as running:
        member = await joined(running, 8)
        await member.fetch()
        assert await member.acked((1, 1, ACCEPT)) == 0
        with states_refused(running):
            assert await member.acked((2, 2, ACCEPT)) == ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert await member.acked((2, 2, ACCEPT)) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        for offset in range(3, 8):
            assert await member.acked((offset, offset, ACCEPT)) == 0
            running.broker.groups.shares.states.prune()
    async with running_broker(tmp_path) as running:
        again = await returned(running, member.topic_id)
        assert [each[:2] for each in (await again.fetch()).acquired] == [(0, 0), (2, 2)]


async def test_the_lag_counts_no_deleted_records(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as running:
        member = await joined(running, 10)
        await member.fetch(max_records=1, share_acquire_mode=1)
        part = DeleteRecordsPartition(partition_index=0, offset=8)
        topic = DeleteRecordsTopic(name="t", partitions=[part])
        await member.client.request(DeleteRecordsRequest(topics=[topic], timeout_ms=1000), 2)
        assert (await member.fetch(max_records=1, share_acquire_mode=1)).acquired == [(8, 8, 1)]
        asked = DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=None)
        answer = await member.client.request(DescribeShareGroupOffsetsRequest(groups=[asked]), 1)
        (found,) = answer.groups[0].topics[0].partitions
        assert (found.start_offset, found.lag) == (8, 2)


async def test_an_unknown_acquire_mode_is_refused(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as running:
        member = await joined(running, 1)
        answer = await member.fetch_whole(0, share_acquire_mode=2)
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        assert "share_acquire_mode is 2" in answer.error_message
