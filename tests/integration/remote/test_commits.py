"""`remote.acks.enable` on the broker's own topics: commits wait for the bucket."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from broker.jobs.bucket import BucketWriter
from protocol.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from protocol.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.error_codes import ErrorCode
from storage.bucket.journal import read_state
from tests.integration.remote.test_tiered import tiered_broker
from tests.integration.transactions.test_wire import Session
from tests.support.broker import RawClient, RunningBroker
from tests.support.clock import FrozenClock
from tests.support.simulated_store import SimulatedStore

TOPIC = 2


async def let_wait(client: RawClient, topic: str) -> int:
    """Set it; the error."""
    setting = AlterableConfig(name="remote.acks.enable", config_operation=0, value="true")
    resource = AlterConfigsResource(resource_type=TOPIC, resource_name=topic, configs=[setting])
    answer = await client.request(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    return int(answer.responses[0].error_code)


async def commit(client: RawClient, offset: int) -> int:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
    request = OffsetCommitRequest(
        group_id="g", member_id="", generation_id_or_member_epoch=-1, topics=[topic]
    )
    answer = await client.request(request, 7)
    return int(answer.topics[0].partitions[0].error_code)


def tails(store: SimulatedStore) -> dict[str, object]:
    state = read_state(store)
    return {str(key): value for key, value in state.keys("tail")}


async def outcome_after_the_store(
    running: RunningBroker,
    store: SimulatedStore,
    clock: FrozenClock,
    request: Coroutine[Any, Any, Any],
) -> Any:
    """The answer, which does not come before the bucket has the records."""
    bucket = running.broker.bucket
    assert isinstance(bucket, BucketWriter)
    assert await bucket.ship()
    before = tails(store)
    store.is_down = True
    waiting = asyncio.ensure_future(request)
    while not running.broker.group_commit.held:
        assert not waiting.done(), "answered while the store is down"
        await asyncio.sleep(0.001)
    assert not await bucket.ship()
    assert not waiting.done()
    store.is_down = False
    clock.advance(1_000)
    while not waiting.done():
        # The end of a transaction writes more than one record, one after the other.
        await bucket.ship()
        await asyncio.sleep(0.001)
    assert tails(store) != before
    return await waiting


@pytest.mark.parametrize("waits_in", ["OffsetCommit", "TxnOffsetCommit", "EndTxn"])
async def test_a_commit_waits_for_the_bucket(tmp_path: Path, waits_in: str) -> None:
    store = SimulatedStore()
    async with tiered_broker(tmp_path / "data", store) as (running, client, clock):
        session = await Session.open(running)
        assert await session.init() == ErrorCode.NONE
        if waits_in == "EndTxn":
            assert await session.commit_offset(4) == (0, 0)
            assert await let_wait(client, "__transaction_state") == ErrorCode.NONE
            request: Any = session.end()
        else:
            assert await let_wait(client, "__consumer_offsets") == ErrorCode.NONE
            request = commit(client, 7) if waits_in == "OffsetCommit" else session.commit_offset(4)
        answer = await outcome_after_the_store(running, store, clock, request)
        assert answer in (ErrorCode.NONE, (0, 0))
    # A start has the records to hold, and answers at once what it can.
    async with tiered_broker(tmp_path / "data", store) as (running, client, _):
        assert running.broker.bucket is not None
        assert await running.broker.bucket.ship()
        assert not running.broker.group_commit.held


async def test_without_the_setting_a_commit_does_not_wait(tmp_path: Path) -> None:
    store = SimulatedStore()
    async with tiered_broker(tmp_path / "data", store) as (running, client, _):
        await Session.open(running)
        store.is_down = True
        assert await commit(client, 7) == ErrorCode.NONE
        store.is_down = False


async def test_a_policy_that_does_not_sync_is_refused(tmp_path: Path) -> None:
    """Commits would be answered before they are even on disk."""
    async with tiered_broker(tmp_path / "data", log_flush_policy="os") as (_, client, _):
        assert await let_wait(client, "__consumer_offsets") == ErrorCode.INVALID_CONFIG
