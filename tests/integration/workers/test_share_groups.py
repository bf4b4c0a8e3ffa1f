"""Share groups of a broker of several workers.

Worker 1 keeps the groups and the stored states; the worker that leads a partition delivers its
records, and writes what becomes of them to worker 1. The invariants are those of one process, also
while a worker is killed.
"""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from protocol.api.api_versions import ApiVersionsRequest
from protocol.api.delete_groups import DeleteGroupsRequest
from protocol.api.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from protocol.api_keys import ApiKey
from protocol.error_codes import ErrorCode
from tests.integration.groups.test_share_groups import alter, state_of
from tests.integration.workers.support import (
    connect,
    kill,
    leaders_of,
    wait_for_restart,
)
from tests.support.broker import BrokerProcess, RawClient, batch, broker_process
from tests.support.requests import create_topic, produce
from tests.support.share_group import Got, ShareMember, got, set_group

ACCEPT, RELEASE = (1,), (2,)
SETTINGS = {"workers": "2", "metrics_listener": "127.0.0.1:0"}


class Scene:
    """Topic `t` of two partitions, one for each worker, and group `g`."""

    def __init__(self, broker: BrokerProcess, data: Path, stack: AsyncExitStack) -> None:
        self.broker = broker
        self.data = data
        self._stack = stack
        self.topic_id = b""
        self.partition = {1: 0, 2: 1}

    async def client(self, worker: int) -> RawClient:
        """A connection to a worker."""
        client = await connect(self.broker.ports[worker - 1])
        self._stack.push_async_callback(client.close)
        return client

    async def begin(self) -> None:
        """Create the topic; let the group begin at the first record."""
        client = await self.client(1)
        self.topic_id = await create_topic(client, "t", 2)
        leaders = await leaders_of(client, "t")
        self.partition = {leader: partition for partition, leader in leaders.items()}
        await set_group(client, "g", share_auto_offset_reset="earliest")

    async def produce(self, worker: int, *values: str) -> None:
        """Append one batch to the partition of a worker."""
        client = await self.client(worker)
        answer = await produce(client, "t", batch(*values), partition=self.partition[worker])
        assert answer.error_code == 0, answer

    async def member(self, worker: int, name: str) -> ShareMember:
        """A member that has joined by way of a worker, and fetches there."""
        member = ShareMember(await self.client(worker), "g", self.topic_id, name=name)
        joined = await member.heartbeat("t", epoch=0)
        assert joined.error_code == 0, joined.error_message
        return member

    async def fetch(self, member: ShareMember, worker: int, **fields: Any) -> Got:
        """What a fetch brings of the partition of a worker."""
        partition = self.partition[worker]
        fields.setdefault("max_wait_ms", 2_000)
        answer = await member.fetch_whole(partition, **fields)
        assert answer.error_code == 0, answer
        return got(answer, partition)

    async def acked(
        self, member: ShareMember, worker: int, first: int, last: int, types: tuple[int, ...]
    ) -> int:
        """Acknowledge; the error of the partition."""
        ack = (first, last, types)
        return await member.acked(ack, partition=self.partition[worker])

    async def restart(self, worker: int) -> None:
        """Kill a worker; return when it accepts clients again."""
        former = kill(self.data, worker)
        wait_for_restart(self.data, worker, former)
        client = await connect(self.broker.ports[worker - 1])
        await leaders_of(client, "t")
        await client.close()


@asynccontextmanager
async def scene(tmp_path: Path, **settings: str) -> AsyncIterator[Scene]:
    data = tmp_path / "data"
    with broker_process(data, **SETTINGS, **settings) as broker:
        async with AsyncExitStack() as stack:
            made = Scene(broker, data, stack)
            await made.begin()
            yield made


async def lags(client: RawClient) -> list[int]:
    """How many records are left in each partition; -1 where none was fetched."""
    return [lag for _, lag in await state_of(client)]


async def eventually(
    found: Callable[[], Coroutine[Any, Any, Got]], is_good: Callable[[Got], bool]
) -> Got:
    """Repeat a fetch until it brings what is wanted."""
    async with asyncio.timeout(30):
        while not is_good(answer := await found()):
            await asyncio.sleep(0.05)
    return answer


async def test_the_apis_are_served_by_both(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        lists = []
        for worker in (1, 2):
            client = await at.client(worker)
            answer = await client.request(
                ApiVersionsRequest(client_software_name="test", client_software_version="1"), 3
            )
            assert "share.version" in {each.name for each in answer.finalized_features}
            lists.append({each.api_key for each in answer.api_keys})
            subscription = await client.request(GetTelemetrySubscriptionsRequest(), 0)
            assert subscription.error_code == 0
        assert lists[0] == lists[1]
        assert {ApiKey.SHARE_FETCH, ApiKey.PUSH_TELEMETRY} <= lists[1]


async def test_each_worker_delivers_its_partition(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        for worker in (1, 2):
            await at.produce(worker, "a", "b", "c")
        for worker, other in ((1, 2), (2, 1)):
            member = await at.member(worker, f"member-{worker}")
            found = await at.fetch(member, worker)
            assert found.acquired == [(0, 2, 1)], worker
            assert list(found.values.values()) == [b"a", b"b", b"c"]
            assert await at.acked(member, worker, 0, 1, ACCEPT) == 0
            refused = await at.fetch(member, other)
            assert refused.error == ErrorCode.NOT_LEADER_OR_FOLLOWER
        # From either worker, and for both: where the group stands, and what is left.
        for worker in (1, 2):
            assert await lags(await at.client(worker)) == [1, 1]


async def test_a_refusal_names_the_leader(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        members = {worker: await at.member(worker, f"member-{worker}") for worker in (1, 2)}
        for worker, other in ((1, 2), (2, 1)):
            index = at.partition[other]
            answer = await members[worker].fetch_whole(index, max_wait_ms=0)
            part = answer.responses[0].partitions[0]
            assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert part.current_leader.leader_id == other
            if worker == 1:  # the other one knows no addresses, and says so
                (node,) = answer.node_endpoints
                where = (node.node_id, node.host, node.port)
                assert where == (other, "127.0.0.1", at.broker.ports[other - 1])
                assert part.current_leader.leader_epoch >= 0
            else:
                assert answer.node_endpoints == []
                assert part.current_leader.leader_epoch == -1


async def test_the_lag_of_both_is_shown_by_worker_1(tmp_path: Path) -> None:
    def shown(port: int) -> list[str]:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            text = answer.read().decode()
        return [line for line in text.splitlines() if line.startswith("tidelog_share_")]

    async with scene(tmp_path) as at:
        for worker in (1, 2):
            await at.produce(worker, "a", "b", "c")
            member = await at.member(worker, f"member-{worker}")
            assert (await at.fetch(member, worker)).acquired == [(0, 2, 1)]
            assert await at.acked(member, worker, 0, 0, ACCEPT) == 0
        first, second = at.broker.metrics_ports
        wanted = {
            f'tidelog_share_lag_records{{group="g",partition="{index}",topic="t"}} 2.0'
            for index in (0, 1)
        }
        async with asyncio.timeout(30):  # the other worker is asked for the next scrape
            while not wanted <= set(await asyncio.to_thread(shown, first)):
                await asyncio.sleep(0.1)
        for port, worker in ((first, 1), (second, 2)):
            (line,) = [
                line
                for line in await asyncio.to_thread(shown, port)
                if line.startswith("tidelog_share_in_flight_records{")
            ]
            assert f'partition="{at.partition[worker]}"' in line


async def test_a_lock_and_a_limit_hold_at_another_worker(tmp_path: Path) -> None:
    async with scene(tmp_path, group_share_min_record_lock_duration_ms="1000") as at:
        client = await at.client(1)
        limits = {"share_record_lock_duration_ms": "1000", "share_delivery_count_limit": "2"}
        await set_group(client, "g", **limits)
        await at.produce(2, "a")
        one, two = await at.member(2, "one"), await at.member(2, "two")
        assert (await at.fetch(one, 2)).acquired == [(0, 0, 1)]
        assert (await at.fetch(two, 2, max_wait_ms=0)).acquired == []
        assert (await at.fetch(two, 2, max_wait_ms=20_000)).acquired == [(0, 0, 2)]
        assert await at.acked(one, 2, 0, 0, ACCEPT) == ErrorCode.INVALID_RECORD_STATE
        assert await at.acked(two, 2, 0, 0, RELEASE) == 0
        assert (await at.fetch(two, 2, max_wait_ms=0)).acquired == [], "the limit is 2"
        assert sorted(await lags(client)) == [-1, 0]


async def test_what_was_answered_survives_the_death_of_the_leader(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        await at.produce(2, "a", "b", "c", "d")
        member = await at.member(2, "one")
        assert (await at.fetch(member, 2)).acquired == [(0, 3, 1)]
        assert await at.acked(member, 2, 0, 0, ACCEPT) == 0
        assert await at.acked(member, 2, 2, 2, RELEASE) == 0
        await at.restart(2)
        member = await at.member(2, "one")
        found = await eventually(lambda: at.fetch(member, 2), lambda found: bool(found.acquired))
        # Those that were only acquired come as if they had not been; the released one counts.
        assert found.acquired == [(1, 1, 1), (2, 2, 2), (3, 3, 1)]
        assert await at.acked(member, 2, 1, 3, ACCEPT) == 0
        assert sorted(await lags(await at.client(2))) == [-1, 0]


async def test_a_lock_survives_the_death_of_worker_1(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        await at.produce(2, "a", "b")
        one, two = await at.member(2, "one"), await at.member(2, "two")
        assert (await at.fetch(one, 2)).acquired == [(0, 1, 1)]
        assert await at.acked(one, 2, 0, 0, ACCEPT) == 0
        await at.restart(1)
        assert (await at.fetch(two, 2, max_wait_ms=0)).acquired == []
        assert await at.acked(one, 2, 1, 1, ACCEPT) == 0
        assert sorted(await lags(await at.client(2))) == [-1, 0]


async def test_an_acknowledgement_without_worker_1_is_refused(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        await at.produce(2, "a")
        member = await at.member(2, "one")
        assert (await at.fetch(member, 2)).acquired == [(0, 0, 1)]
        former = kill(at.data, 1)
        error = await at.acked(member, 2, 0, 0, ACCEPT)
        assert error in (ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        wait_for_restart(at.data, 1, former)
        if error:
            async with asyncio.timeout(30):
                while await at.acked(member, 2, 0, 0, ACCEPT):
                    await asyncio.sleep(0.05)
        assert (await at.fetch(member, 2, max_wait_ms=0)).acquired == []


async def test_a_group_that_is_deleted_or_set_begins_again_everywhere(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        client = await at.client(1)
        await at.produce(2, "a", "b", "c")
        member = await at.member(2, "one")
        assert (await at.fetch(member, 2)).acquired == [(0, 2, 1)]
        assert (await member.heartbeat(epoch=-1)).error_code == 0
        altered = await alter(client, "g", 1, at.partition[2])
        assert altered.error_code == 0, altered
        assert await at.acked(member, 2, 0, 0, ACCEPT) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (await at.fetch(member, 2)).acquired == [(1, 2, 1)]
        deleted = await client.request(DeleteGroupsRequest(groups_names=["g"]), 2)
        assert deleted.results[0].error_code == 0, deleted
        assert await at.acked(member, 2, 1, 1, ACCEPT) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        refused = await at.fetch(member, 2)
        assert refused.error == ErrorCode.UNKNOWN_SERVER_ERROR, "the group reads no topic"
        again = await at.member(2, "two")
        assert (await at.fetch(again, 2)).acquired == [(0, 2, 1)]
