"""Stored states of share groups: the requests about them (KIP-932), and their end with the topic.

What the answers should be was asked of Apache Kafka 4.3.1; `tests/requests_differential` compares
longer conversations.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from broker.groups.share_states import PRUNE_INTERVAL_MS
from protocol.api import delete_share_group_state as deleting
from protocol.api import initialize_share_group_state as initializing
from protocol.api import read_share_group_state as reading
from protocol.api import read_share_group_state_summary as summing
from protocol.api import write_share_group_state as writing
from protocol.api.delete_topics import DeleteTopicsRequest
from protocol.api.unregister_broker import UnregisterBrokerRequest
from protocol.error_codes import ErrorCode
from protocol.structs import StatesToRead, StateToRead
from storage.directory.data_dir import Topic
from storage.disk.steps import Steps, run_steps
from tests.integration.groups.test_share_groups import alter, state_of
from tests.support.broker import RawClient, RunningBroker, batch, running_broker
from tests.support.clock import FrozenClock
from tests.support.requests import create_topic, produce
from tests.support.share_group import ShareMember, set_group, state_to_write

ACCEPT = (1,)


class Stored:
    """Requests about the states of group `g` in topic `t`; each returns the partition's part."""

    def __init__(self, client: RawClient, topic_id: bytes) -> None:
        self.client = client
        self.topic_id = topic_id

    async def _ask(self, request: Any, topic: Any, part: Any, version: int) -> Any:
        asked = topic(topic_id=self.topic_id, partitions=[part])
        answer = await self.client.request(request(group_id="g", topics=[asked]), version)
        ((found,),) = (result.partitions for result in answer.results)
        return found

    async def initialize(self, state_epoch: int, start: int = -1, partition: int = 0) -> int:
        part = initializing.PartitionData(
            partition=partition, state_epoch=state_epoch, start_offset=start
        )
        request = initializing.InitializeShareGroupStateRequest
        found = await self._ask(request, initializing.InitializeStateData, part, 0)
        code: int = found.error_code
        return code

    async def read(self, leader_epoch: int = -1, partition: int = 0) -> Any:
        part = StateToRead(partition=partition, leader_epoch=leader_epoch)
        request = reading.ReadShareGroupStateRequest
        return await self._ask(request, StatesToRead, part, 0)

    async def write(
        self, *batches: Sequence[int], partition: int = 0, version: int = 1, **fields: int
    ) -> int:
        part = state_to_write(batches, partition=partition, **fields)
        request = writing.WriteShareGroupStateRequest
        found = await self._ask(request, writing.WriteStateData, part, version)
        code: int = found.error_code
        return code

    async def delete(self, partition: int = 0) -> int:
        part = deleting.PartitionData(partition=partition)
        request = deleting.DeleteShareGroupStateRequest
        found = await self._ask(request, deleting.DeleteStateData, part, 0)
        code: int = found.error_code
        return code

    async def summary(self, partition: int = 0, version: int = 1) -> tuple[int, ...]:
        """Error, state epoch, leader epoch, start and the number of records done."""
        part = StateToRead(partition=partition)
        request = summing.ReadShareGroupStateSummaryRequest
        found = await self._ask(request, StatesToRead, part, version)
        epochs = (found.error_code, found.state_epoch, found.leader_epoch)
        return (*epochs, found.start_offset, found.delivery_complete_count)


@pytest.fixture
async def shared(tmp_path: Path, clock: FrozenClock) -> AsyncIterator[RunningBroker]:
    async with running_broker(tmp_path / "data", clock=clock) as running:
        yield running


async def begun(running: RunningBroker, *values: str) -> Stored:
    """Topic `t`, and a broker that keeps states: another group has one member."""
    client = await running.client()
    topic_id = await create_topic(client, "t", 2)
    if values:
        await produce(client, "t", batch(*values))
    other = ShareMember(client, "other", topic_id)
    assert (await other.heartbeat("t")).error_code == 0
    return Stored(client, topic_id)


def ranges(found: Any) -> list[tuple[int, int, int, int]]:
    """The ranges of an answer as plain numbers."""
    return [
        (each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
        for each in found.state_batches
    ]


async def test_a_state_is_begun_written_read_and_deleted(shared: RunningBroker) -> None:
    stored = await begun(shared)
    assert await stored.summary() == (0, 0, 0, -1, -1), "as one at its beginning"
    assert await stored.initialize(3, start=10) == 0
    assert await stored.summary() == (0, 3, 0, 10, 0)
    assert await stored.write((10, 14, 2, 1), (15, 19, 0, 1), start=10, done=5) == 0
    found = await stored.read()
    assert (found.error_code, found.state_epoch, found.start_offset) == (0, 3, 10)
    assert ranges(found) == [(10, 14, 2, 1), (15, 19, 0, 1)]
    assert await stored.write((15, 15, 4, 2), start=12, done=4, version=1) == 0
    assert ranges(await stored.read()) == [(12, 14, 2, 1), (15, 15, 4, 2), (16, 19, 0, 1)]
    assert await stored.summary() == (0, 3, 0, 12, 4)
    assert await stored.summary(version=0) == (0, 3, 0, 12, -1)
    assert await stored.write(version=0) == 0
    assert await stored.summary() == (0, 3, 0, 12, -1), "a writer of version 0 counts nothing"
    assert await stored.delete() == 0
    assert await stored.summary() == (0, 0, 0, -1, -1)
    assert await stored.delete() == 0, "of one that does not exist"


async def test_refusals_in_the_order_of_kafka(shared: RunningBroker) -> None:
    stored = await begun(shared)
    unknown = Stored(stored.client, bytes(range(16)))
    invalid, missing = ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await stored.write() == invalid, "not initialized"
    assert (await stored.read()).error_code == invalid
    assert await unknown.write() == invalid, "that comes before the topic"
    for answer in (unknown.initialize(1), unknown.delete(), stored.initialize(1, partition=9)):
        assert await answer == missing
    assert (await unknown.summary())[0] == missing
    for partition in (-1, -7):
        assert await stored.initialize(1, partition=partition) == invalid
        assert await stored.delete(partition) == invalid
        assert (await stored.summary(partition))[0] == invalid
    assert await stored.initialize(5) == 0
    assert (await stored.read(leader_epoch=4)).error_code == 0
    fenced_leader, fenced_state = ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH
    assert await stored.write(leader_epoch=3, state_epoch=4) == fenced_leader
    assert await stored.write(leader_epoch=4, state_epoch=4) == fenced_state
    assert await stored.write(leader_epoch=9, state_epoch=9) == 0
    assert (await stored.read(leader_epoch=3)).error_code == fenced_leader
    assert await stored.initialize(4) == fenced_state
    assert await stored.summary() == (0, 5, 4, -1, -1)


async def test_a_leader_epoch_fences_also_after_a_new_beginning(shared: RunningBroker) -> None:
    stored = await begun(shared)
    assert await stored.initialize(5) == 0
    assert (await stored.read(leader_epoch=4)).error_code == 0
    assert await stored.initialize(-1, start=2) == 0, "-1 is not checked"
    assert await stored.summary() == (0, -1, 0, 2, 0)
    assert await stored.write(leader_epoch=3) == ErrorCode.FENCED_LEADER_EPOCH
    assert await stored.write(state_epoch=4) == ErrorCode.FENCED_STATE_EPOCH
    assert await stored.initialize(4) == ErrorCode.FENCED_STATE_EPOCH


@pytest.mark.parametrize(
    "wrong",
    [(5, 4, 0, 1), (-1, 4, 0, 1), (0, 4, 1, 1), (0, 4, 3, 1), (0, 4, 5, 1), (0, 4, 0, -1)],
)
async def test_ranges_that_no_broker_stores_are_refused(
    shared: RunningBroker, wrong: Sequence[int]
) -> None:
    stored = await begun(shared)
    assert await stored.initialize(1, start=0) == 0
    assert await stored.write((0, 0, 2, 1), wrong) == ErrorCode.INVALID_REQUEST
    assert ranges(await stored.read()) == []
    assert await stored.write(start=-2) == ErrorCode.INVALID_REQUEST
    assert await stored.write(done=-2) == ErrorCode.INVALID_REQUEST
    assert await stored.initialize(2, start=-2) == ErrorCode.INVALID_REQUEST
    assert await stored.summary() == (0, 1, 0, 0, 0)


async def test_requests_without_a_group_or_partitions_get_nothing(shared: RunningBroker) -> None:
    stored = await begun(shared)
    client, topic_id = stored.client, stored.topic_id
    part = deleting.PartitionData(partition=0)
    whole = deleting.DeleteStateData(topic_id=topic_id, partitions=[part])
    blank = deleting.DeleteStateData(topic_id=topic_id)
    for group, topics in (("", [whole]), ("g", []), ("g", [whole, blank])):
        request = deleting.DeleteShareGroupStateRequest(group_id=group, topics=topics)
        assert (await client.request(request, 0)).results == []
    twice = deleting.DeleteShareGroupStateRequest(group_id="g", topics=[whole, whole])
    (result,) = (await client.request(twice, 0)).results
    assert [each.partition for each in result.partitions] == [0], "answered once"


async def test_the_first_request_creates_the_topic_of_the_states(shared: RunningBroker) -> None:
    client = await shared.client()
    stored = Stored(client, await create_topic(client, "t"))
    assert not shared.broker.groups.shares.states.is_open
    assert await stored.initialize(1, start=4) == 0
    assert await stored.summary() == (0, 1, 0, 4, 0)


async def test_states_of_requests_survive_a_restart(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as running:
        stored = await begun(running, *"abcde")
        assert await stored.initialize(5, start=1) == 0
        assert (await stored.read(leader_epoch=4)).error_code == 0
        assert await stored.write((1, 2, 2, 1), start=1, done=2) == 0
        topic_id = stored.topic_id
    async with running_broker(tmp_path) as running:
        stored = Stored(await running.client(), topic_id)
        assert await stored.summary() == (0, 5, 4, 1, 2)
        assert ranges(await stored.read()) == [(1, 2, 2, 1)]
        assert await stored.write(leader_epoch=3) == ErrorCode.FENCED_LEADER_EPOCH
        assert await stored.write(state_epoch=4) == ErrorCode.FENCED_STATE_EPOCH


async def test_a_group_goes_on_from_a_written_state(shared: RunningBroker) -> None:
    stored = await begun(shared, *"abcde")
    await set_group(stored.client, "g", share_auto_offset_reset="earliest")
    member = ShareMember(stored.client, "g", stored.topic_id, name="member-1")
    await member.heartbeat("t")
    assert await stored.write((1, 2, 2, 1), start=1, done=2) == 0
    assert (await stored.read(leader_epoch=7)).error_code == 0
    assert (await member.fetch()).acquired == [(3, 4, 1)]
    assert (await stored.summary())[2] == 0, "the leader epoch of the partition is stored"
    assert await stored.write(leader_epoch=6) == ErrorCode.FENCED_LEADER_EPOCH
    assert await stored.initialize(9, start=0) == 0
    assert await member.acked((3, 4, ACCEPT)) == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_no_broker_is_unregistered(shared: RunningBroker) -> None:
    client = await shared.client()
    for broker_id, code in ((1, 42), (0, 102), (2, 102), (-1, 102)):
        answer = await client.request(UnregisterBrokerRequest(broker_id=broker_id), 0)
        assert (answer.error_code, bool(answer.error_message)) == (code, True)


# -- the end of a topic ----------------------------------------------------------------------------


async def deleted(client: RawClient) -> None:
    """Delete topic `t`."""
    gone = DeleteTopicsRequest(topic_names=["t"], timeout_ms=10_000)
    answer = await client.request(gone, 5)
    assert answer.responses[0].error_code == 0


async def until_forgotten(running: RunningBroker, topic_id: bytes) -> None:
    """Wait until no state of the topic is left."""
    states = running.broker.groups.shares.states
    async with asyncio.timeout(30):
        while any(key.topic_id == topic_id for key in states):
            await asyncio.sleep(0.01)


async def test_states_that_no_group_knows_end_with_their_topic(shared: RunningBroker) -> None:
    """As a crash leaves them between AlterShareGroupOffsets' two records, or a request alone."""
    stored = await begun(shared)
    assert await stored.initialize(1, start=0) == 0
    assert "g" not in shared.broker.groups.share_groups
    await deleted(stored.client)
    await until_forgotten(shared, stored.topic_id)


async def test_altered_offsets_end_with_their_topic(shared: RunningBroker) -> None:
    stored = await begun(shared)
    assert (await alter(stored.client, "g", 3)).error_code == 0
    assert [start for start, _ in await state_of(stored.client)] == [3]
    await deleted(stored.client)
    await until_forgotten(shared, stored.topic_id)
    assert shared.broker.groups.share_groups["g"].initialized == {}


async def test_states_whose_topic_was_deleted_before_a_crash_are_forgotten(
    tmp_path: Path, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crashed(_: object, __: Topic) -> Steps[None]:
        yield None

    data = tmp_path / "data"
    with monkeypatch.context() as patched:
        patched.setattr(
            "broker.groups.share_coordinator.ShareGroupCoordinator.topic_deleted", crashed
        )
        async with running_broker(data, clock=clock) as running:
            stored = await begun(running)
            assert (await alter(stored.client, "g", 3)).error_code == 0
            await deleted(stored.client)
            topic_id = stored.topic_id
    async with running_broker(data, clock=clock) as running:
        groups = running.broker.groups
        assert {key.topic_id for key in groups.shares.states} == {topic_id}
        clock.advance(PRUNE_INTERVAL_MS + 1)
        run_steps(groups.shares.tick())
        await until_forgotten(running, topic_id)
        assert groups.share_groups["g"].initialized == {}
