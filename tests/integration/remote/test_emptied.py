"""A broker whose bucket is emptied while a checkpoint, a lease or a standby is on its way."""

import asyncio
import threading
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from broker.jobs.bucket import CHECK_MS
from storage.bucket import journal as journals
from storage.bucket.journal import CHECKPOINT_PREFIX, JOURNAL_PREFIX
from storage.disk.files import Bytes
from storage.errors import BucketEmptied
from tests.integration.remote.test_lease import LEASE_MS, WAIT_MS, begin, machine
from tests.integration.remote.test_store_down import append
from tests.integration.remote.test_tiered import tiered_broker
from tests.support.requests import create_topic
from tests.support.simulated_store import SimulatedStore, StoreFault


class SlowCheckpoints(SimulatedStore):
    """PUTs of checkpoints wait until they are `released`."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.released = threading.Event(), threading.Event()

    def put_new(self, key: str, *parts: Bytes) -> None:
        if key.startswith(CHECKPOINT_PREFIX):
            self.begun.set()
            assert self.released.wait(20)
        super().put_new(key, *parts)


async def test_no_journal_is_begun_while_a_checkpoint_of_the_former_one_is_on_its_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would come into the emptied bucket, and readers would begin there."""
    store = SlowCheckpoints()
    async with tiered_broker(tmp_path / "data", store) as (running, client, clock):
        bucket = running.broker.bucket
        assert bucket is not None
        await create_topic(client, "t", 1, remote_storage_enable="true")
        await append(client, clock, 0)
        assert await bucket.ship()
        # From here on, so that the checkpoint names records.
        monkeypatch.setattr(journals, "CHECKPOINT_ENTRIES", 1)
        clock.advance(2_000)
        await append(client, clock, 1)
        assert await bucket.ship()
        assert await asyncio.to_thread(store.begun.wait, 10)
        store.objects.clear()
        clock.advance(CHECK_MS)
        assert not await bucket.ship()
        again = asyncio.ensure_future(bucket.ship())
        await asyncio.sleep(0.1)
        assert store.objects == {}
        store.released.set()
        assert not await again
        assert bucket.is_emptied
        # As an operator does, who has read why.
        store.objects.clear()
        assert await bucket.ship()
        assert any(key.startswith(JOURNAL_PREFIX) for key in store.objects)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> SimulatedStore:
    """The store of all brokers of a test."""
    shared = SimulatedStore()
    monkeypatch.setattr("broker.jobs.standby.open_store", lambda url, cluster: shared)
    return shared


async def test_looks_at_the_bucket_do_not_hold_up_the_renewal_of_the_lease(
    tmp_path: Path, store: SimulatedStore
) -> None:
    """The store answers no look in time, and takes entries."""
    async with machine(tmp_path / "first", store) as owner:
        await begin(owner)
        for _ in range(4):
            owner.clock.advance(LEASE_MS // 2)
            store.operations.clear()
            store.faults = {"HEAD": [None, StoreFault.REFUSED]}
            await owner.broker.jobs.run_now("bucket")
            kinds = [one.partition(" ")[0] for one in store.operations]
            assert kinds == ["PUT", "HEAD", "GET", "HEAD"]
            assert await owner.error_of_a_record() == 0
            owner.clock.advance(1_000)


async def test_a_standby_does_not_take_over_an_emptied_bucket(
    tmp_path: Path, store: SimulatedStore
) -> None:
    """The owner may have begun it once more: both would write there."""
    async with AsyncExitStack() as stack:
        owner = await stack.enter_async_context(machine(tmp_path / "first", store))
        await begin(owner)
        standby = await stack.enter_async_context(machine(tmp_path / "second", store, standby=True))
        objects = dict(store.objects)
        store.objects.clear()
        await standby.pass_time(3 * WAIT_MS)
        assert not standby.has_taken_over()
        assert standby.broker.standby is not None
        with pytest.raises(BucketEmptied):
            await standby.broker.standby.promote()
        assert store.objects == {}
        store.objects.update(objects)
        await standby.pass_time(2 * WAIT_MS)
        assert standby.has_taken_over()
