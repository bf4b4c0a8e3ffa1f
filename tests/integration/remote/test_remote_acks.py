"""`remote.acks.enable`: acknowledged and visible when the bucket has it; also two brokers."""

import asyncio
import signal
import threading
from pathlib import Path
from random import Random
from typing import Any

import pytest

from protocol.error_codes import ErrorCode
from storage.bucket import journal
from storage.bucket.journal import BucketJournal, read_state
from storage.disk.steps import run_steps
from storage.errors import Fenced, LogOffline
from tests.integration.remote.test_tiered import tiered_broker
from tests.support.broker import RawClient, batch, broker_process
from tests.support.cli import tidelog
from tests.support.clock import FrozenClock
from tests.support.requests import create_topic, fetch, list_offset, produce, values_of
from tests.support.simulated_store import SimulatedStore

REMOTE = {"remote_storage_enable": "true", "remote_acks_enable": "true"}


async def test_records_wait_for_the_store(tmp_path: Path) -> None:
    store = SimulatedStore()
    async with tiered_broker(tmp_path / "data", store) as (running, client, clock):
        await create_topic(client, "t", 1, **REMOTE)
        await create_topic(client, "local")
        assert running.broker.bucket is not None
        assert await running.broker.bucket.ship()
        store.is_down = True
        waiting = asyncio.create_task(produce(client, "t", batch("a")))
        other = await running.client()
        assert (await produce(other, "local", batch("b"))).error_code == 0
        while not running.broker.group_commit.held:
            await asyncio.sleep(0.001)
        assert values_of(await fetch(other, "t", 0)) == []
        assert not waiting.done()
        store.is_down = False
        clock.advance(1_000)
        assert await running.broker.bucket.ship()
        assert (await waiting).error_code == 0
        assert values_of(await fetch(other, "t", 0)) == [b"a"]
        assert (await list_offset(other, "t", -1)).offset == 1


async def test_a_stop_does_not_wait_for_a_store_that_is_down(tmp_path: Path) -> None:
    store = SimulatedStore()
    async with tiered_broker(tmp_path / "data", store) as (running, client, _):
        await create_topic(client, "t", 1, **REMOTE)
        assert await running.broker.bucket.ship()  # type: ignore[union-attr]
        store.is_down = True
        waiting = asyncio.create_task(produce(client, "t", batch("a")))
        while not running.broker.group_commit.held:
            await asyncio.sleep(0.001)
    waiting.cancel()
    store.is_down = False
    async with tiered_broker(tmp_path / "data", store) as (running, client, _):
        assert await running.broker.bucket.ship()  # type: ignore[union-attr]
        assert values_of(await fetch(client, "t", 0)) == [b"a"]


async def test_without_a_store_the_disk_acknowledges(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its URL was taken from the settings: nothing waits for it, and a stop neither."""
    store = SimulatedStore()
    async with tiered_broker(tmp_path / "data", store) as (running, client, _):
        await create_topic(client, "t", 1, **REMOTE)
    async with tiered_broker(tmp_path / "data", remote_storage_url="") as (running, client, _):
        assert "t: remote.acks.enable has no effect" in caplog.text
        answer = await asyncio.wait_for(produce(client, "t", batch("a")), 60)
        assert answer.error_code == 0
        assert not running.broker.group_commit.held


async def test_a_batch_that_is_resent_after_a_crash_waits_for_the_store(tmp_path: Path) -> None:
    """It is on disk, so it is a duplicate; the bucket does not have it."""
    store = SimulatedStore()
    now_ms = FrozenClock().wall_ms()
    records = batch("a", timestamp=now_ms, producer_id=7, producer_epoch=0, base_sequence=0)
    async with tiered_broker(tmp_path / "data", store) as (running, client, _):
        await create_topic(client, "t", 1, **REMOTE)
        assert await running.broker.bucket.ship()  # type: ignore[union-attr]
        store.is_down = True
        waiting = asyncio.create_task(produce(client, "t", records))
        while not running.broker.group_commit.held:
            await asyncio.sleep(0.001)
    waiting.cancel()
    async with tiered_broker(tmp_path / "data", store) as (running, client, clock):
        bucket = running.broker.bucket
        assert bucket is not None
        again = asyncio.create_task(produce(client, "t", records))
        await asyncio.wait([again], timeout=0.2)
        assert not again.done()
        store.is_down = False
        clock.advance(2_000)
        assert await bucket.ship()
        assert ((await again).error_code, again.result().base_offset) == (0, 0)
        state = read_state(store)
        assert [key.kind for key, _ in state.keys("tail")] == ["tail"]
        assert not running.broker.group_commit.held


async def test_a_stop_does_not_wait_for_a_log_that_went_offline(tmp_path: Path) -> None:
    store = SimulatedStore()
    async with tiered_broker(tmp_path / "data", store) as (running, client, _):
        await create_topic(client, "t", 1, **REMOTE)
        assert await running.broker.bucket.ship()  # type: ignore[union-attr]
        store.is_down = True
        waiting = asyncio.create_task(produce(client, "t", batch("a")))
        while not running.broker.group_commit.held:
            await asyncio.sleep(0.001)
        log = running.broker.topics.led_log("t", 0)
        assert log is not None
        log.offline = log.refusal = LogOffline(log.path, "the disk failed")
        store.is_down = False
        await asyncio.wait_for(running.broker.bucket.finish(), 10)  # type: ignore[union-attr]
        assert (await waiting).error_code == ErrorCode.KAFKA_STORAGE_ERROR


async def test_a_stopped_owner_that_continues_acknowledges_nothing(tmp_path: Path) -> None:
    """The owner is stopped, another takes the bucket over and appends, the owner continues."""
    url = f"file://{tmp_path}/bucket"
    settings = {"remote_storage_url": url, "log_initial_task_delay_ms": "0"}
    acknowledged: list[bytes] = []
    refused: list[bytes] = []

    async def write(client: RawClient, value: bytes) -> None:
        answer = await produce(client, "t", batch(value.decode()))
        (refused if answer.error_code else acknowledged).append(value)

    with broker_process(tmp_path / "first", **settings) as first:
        client = await RawClient.connect("127.0.0.1", first.port)
        # The records are of 1970.
        await create_topic(client, "t", 1, retention_ms="-1", **REMOTE)
        for number in range(20):
            await write(client, b"first-%d" % number)
        assert refused == []
        first.process.send_signal(signal.SIGSTOP)
        done = tidelog("restore", url, "--data-dir", str(tmp_path / "second"), "--take-over")
        assert done.returncode == 0, done.stderr
        with broker_process(tmp_path / "second", **settings) as second:
            other = await RawClient.connect("127.0.0.1", second.port)
            for number in range(10):
                await write(other, b"second-%d" % number)
            first.process.send_signal(signal.SIGCONT)
            for number in range(10):
                await write(client, b"zombie-%d" % number)
            for number in range(10, 20):
                await write(other, b"second-%d" % number)
            found: list[bytes | None] = []
            while len(found) < len(acknowledged):
                data = await fetch(other, "t", len(found), max_wait_ms=5_000)
                assert data.error_code == ErrorCode.NONE
                found += values_of(data)
            await other.close()
        await client.close()
        first.stop(signal.SIGKILL)
    assert refused == [b"zombie-%d" % number for number in range(10)]
    assert found == acknowledged


async def test_what_a_fenced_broker_has_not_shipped_stays_invisible(tmp_path: Path) -> None:
    store = SimulatedStore()
    async with tiered_broker(tmp_path / "data", store) as (running, client, clock):
        await create_topic(client, "t", 1, **REMOTE)
        bucket = running.broker.bucket
        assert bucket is not None
        assert await bucket.ship()
        store.is_down = True
        assert (await produce(client, "t", batch("z"), acks=1)).error_code == 0
        waiting = asyncio.create_task(produce(client, "t", batch("a")))
        while not running.broker.group_commit.held:
            await asyncio.sleep(0.001)
        store.is_down = False
        other = BucketJournal(store, "b" * 22, Random(1))
        run_steps(other.read())
        run_steps(other.take_over())
        clock.advance(1_000)
        assert not await bucket.ship()
        assert (await waiting).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        # No reader waits for what stays invisible.
        log = running.broker.topics.led_log("t", 0)
        assert running.broker.group_commit.acknowledged_end(log) == 0
        reader = await running.client()
        data = await fetch(reader, "t", 0)
        assert (values_of(data), data.high_watermark) == ([], 0)
        assert (await produce(client, "t", batch("b"))).error_code == ErrorCode.KAFKA_STORAGE_ERROR


async def test_a_sync_that_ends_after_the_fence_is_answered(tmp_path: Path) -> None:
    store = SimulatedStore()
    async with tiered_broker(tmp_path / "data", store) as (running, client, _):
        await create_topic(client, "t", 1, **REMOTE)
        bucket = running.broker.bucket
        assert bucket is not None
        assert await bucket.ship()
        finish = running.broker.group_commit._finish
        fenced = asyncio.Event()

        def late(*arguments: Any) -> None:
            bucket._stop(Fenced("b" * 22, 2))
            fenced.set()
            finish(*arguments)

        running.broker.group_commit._finish = late  # type: ignore[assignment, method-assign]
        answer = await asyncio.wait_for(produce(client, "t", batch("a")), 20)
        assert fenced.is_set()
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR


async def test_a_fenced_broker_has_no_new_topics_and_does_not_blame_the_disk(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A topic that is made after the fence would take records that nothing ships."""
    store = SimulatedStore()
    async with tiered_broker(tmp_path / "data", store) as (running, client, clock):
        await create_topic(client, "t")
        bucket = running.broker.bucket
        assert bucket is not None
        assert await bucket.ship()
        other = BucketJournal(store, "b" * 22, Random(1))
        run_steps(other.read())
        run_steps(other.take_over())
        log = running.broker.topics.led_log("t", 0)
        log.append(memoryview(batch("a")), now_ms=1_000)
        running.broker.group_commit.appended(log, 100)
        clock.advance(1_000)
        bucket._stop(Fenced("b" * 22, 2))
        await running.broker.group_commit.drain()
        assert running.broker.metrics.commits.sync_failures == 0
        assert not any("check the disk" in record.getMessage() for record in caplog.records)
        with pytest.raises(AssertionError, match="has taken the bucket over"):
            await create_topic(client, "late")
        assert [log.topic for log in running.broker.topics.logs() if log.topic == "late"] == []


async def test_answers_do_not_wait_for_deletions_of_old_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of many entries, one by one, take longer than a client waits."""
    monkeypatch.setattr(journal, "CHECKPOINT_ENTRIES", 2)
    store = SimulatedStore()
    is_deleting, may_continue = threading.Event(), threading.Event()

    def wait(kind: str) -> None:
        if kind == "DELETE":
            is_deleting.set()
            assert may_continue.wait(120)

    async with tiered_broker(tmp_path / "data", store) as (running, client, clock):
        await create_topic(client, "t", 1, **REMOTE)
        bucket = running.broker.bucket
        assert bucket is not None
        store.before = wait
        answered = 0
        try:
            while not is_deleting.is_set() or answered < 20:
                waiting = asyncio.create_task(produce(client, "t", batch("a" * 2_000)))
                while not running.broker.group_commit.held and not waiting.done():
                    await asyncio.sleep(0.001)
                clock.advance(1_000)
                assert await asyncio.wait_for(bucket.ship(), 30)
                assert (await waiting).error_code == 0
                answered += 1
        finally:
            may_continue.set()
    assert read_state(store).owner["released"]
