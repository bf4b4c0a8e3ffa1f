"""Compaction by a running broker: topics of clients, and the broker's own."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from client.consumer import Consumer
from client.producer import Producer
from tests.support.broker import RunningBroker, running_broker
from tests.support.requests import create_topic

ROUNDS = 30


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[RunningBroker]:
    async with running_broker(tmp_path / "data") as running:
        client = await running.client()
        await create_topic(
            client,
            "ledger",
            cleanup_policy="compact",
            segment_bytes="3000",
            min_cleanable_dirty_ratio="0.01",
        )
        yield running


async def fill(broker: RunningBroker) -> None:
    async with Producer(broker.bootstrap, linger_ms=0) as producer:
        for number in range(ROUNDS):
            for key in range(5):
                await producer.send("ledger", b"%d" % number * 50, key=b"key-%d" % key)
            await producer.flush()


async def test_a_consumer_from_the_start_gets_the_last_values_and_little_else(
    broker: RunningBroker,
) -> None:
    await fill(broker)
    log = broker.broker.topics.led_log("ledger", 0)
    before = log.size_bytes
    await broker.broker.jobs.run_now("cleaner")
    assert log.size_bytes < before / 3
    assert broker.broker.metrics.compactions == 1
    assert broker.broker.metrics.records_compacted > 100
    found: dict[bytes | None, bytes | None] = {}
    async with Consumer("ledger", bootstrap=broker.bootstrap, start="earliest") as consumer:
        async for message in consumer:
            found[message.key] = message.value
            if message.offset == log.high_watermark - 1:
                break
    assert found == {b"key-%d" % key: b"%d" % (ROUNDS - 1) * 50 for key in range(5)}


async def test_the_loop_serves_while_a_round_runs(broker: RunningBroker) -> None:
    await fill(broker)
    jobs, metrics = broker.broker.jobs, broker.broker.metrics
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    await jobs.run_now("cleaner")
    task.cancel()
    assert turns > 2
    assert metrics.compactions == 1
    assert metrics.cleaner_slice_max_ms < 20
    await jobs.run_now("cleaner")
    assert metrics.compactions == 1


async def test_committed_offsets_survive_the_compaction_of_their_topic(
    tmp_path: Path,
) -> None:
    async with running_broker(tmp_path / "data", offsets_topic_segment_bytes="2000") as broker:
        client = await broker.client()
        await create_topic(client, "t")
        async with Producer(broker.bootstrap) as producer:
            for number in range(ROUNDS):
                await producer.send("t", b"%d" % number)
        async with Consumer(
            "t", bootstrap=broker.bootstrap, group_id="g", start="earliest"
        ) as consumer:
            async for message in consumer:
                await consumer.commit()
                if message.offset == ROUNDS - 1:
                    break
        log = broker.broker.topics.led_log("__consumer_offsets", 0)
        assert len(log.segments) > 1
        before = log.size_bytes
        await broker.broker.jobs.run_now("cleaner")
        assert log.size_bytes < before
    async with running_broker(tmp_path / "data", offsets_topic_segment_bytes="2000") as broker:
        async with Producer(broker.bootstrap) as producer:
            await producer.send("t", b"new")
        async with Consumer("t", bootstrap=broker.bootstrap, group_id="g") as consumer:
            async for message in consumer:
                assert message.value == b"new"
                break
