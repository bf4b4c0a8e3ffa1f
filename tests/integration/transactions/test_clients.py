"""Transactions with real clients: consume, transform, produce, exactly once, over restarts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as ConfluentTopicPartition

from tests.support.broker import running_broker


def _settings(bootstrap: str, **settings: Any) -> dict[str, Any]:
    return {"bootstrap.servers": bootstrap, "log_level": 0, **settings}


def _read(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[str]:
    """Everything in partition 0 up to the end that this isolation level sees."""
    consumer = Consumer(
        _settings(
            bootstrap,
            **{
                "group.id": "reader",
                "enable.auto.commit": False,
                "isolation.level": isolation,
                "enable.partition.eof": True,
            },
        )
    )
    consumer.assign([ConfluentTopicPartition(topic, 0, 0)])
    values = []
    while (message := consumer.poll(10)) is not None:
        if message.error():
            break
        values.append((message.value() or b"").decode())
    consumer.close()
    return values


def _transactional(bootstrap: str) -> Producer:
    producer = Producer(_settings(bootstrap, **{"transactional.id": "x"}))
    producer.init_transactions(20)
    return producer


async def test_does_librdkafka_commit_and_abort(tmp_path: Path) -> None:
    def run(bootstrap: str) -> None:
        producer = _transactional(bootstrap)
        for number in range(6):
            producer.begin_transaction()
            producer.produce("t", f"{number}", partition=0)
            producer.flush(10)
            if number % 2:
                producer.abort_transaction(20)
            else:
                producer.commit_transaction(20)

    async with running_broker(tmp_path) as broker:
        await broker.broker.topics.create("t", 1)
        await asyncio.to_thread(run, broker.bootstrap)
        assert await asyncio.to_thread(_read, broker.bootstrap, "t") == ["0", "2", "4"]
        everything = await asyncio.to_thread(_read, broker.bootstrap, "t", "read_uncommitted")
        assert everything == ["0", "1", "2", "3", "4", "5"]


async def test_does_librdkafka_consume_transform_and_produce_exactly_once(tmp_path: Path) -> None:
    """Every second attempt is aborted after its offsets were sent; the next one does it again."""

    def run(bootstrap: str) -> None:
        feeder = Producer(_settings(bootstrap))
        for number in range(20):
            feeder.produce("in", str(number), partition=0)
        feeder.flush(10)
        producer = _transactional(bootstrap)
        attempts = done = 0
        while done < 20:
            consumer = Consumer(
                _settings(
                    bootstrap,
                    **{
                        "group.id": "g",
                        "enable.auto.commit": False,
                        "auto.offset.reset": "earliest",
                        "isolation.level": "read_committed",
                    },
                )
            )
            consumer.subscribe(["in"])
            producer.begin_transaction()
            for message in consumer.consume(5, timeout=10):
                producer.produce("out", b"<%b>" % (message.value() or b""), partition=0)
            producer.send_offsets_to_transaction(
                consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), 10
            )
            attempts += 1
            if attempts % 2:
                producer.abort_transaction(20)
            else:
                producer.commit_transaction(20)
                done += 5
            consumer.close()

    async with running_broker(tmp_path) as broker:
        await broker.broker.topics.create("in", 1)
        await broker.broker.topics.create("out", 1)
        await asyncio.to_thread(run, broker.bootstrap)
        expected = [f"<{number}>" for number in range(20)]
        assert await asyncio.to_thread(_read, broker.bootstrap, "out") == expected


async def test_is_a_second_librdkafka_producer_the_only_one(tmp_path: Path) -> None:
    def run(bootstrap: str) -> None:
        old = _transactional(bootstrap)
        old.begin_transaction()
        old.produce("t", "old", partition=0)
        old.flush(10)
        new = _transactional(bootstrap)
        new.begin_transaction()
        new.produce("t", "new", partition=0)
        new.commit_transaction(20)
        with pytest.raises(KafkaException, match="fenced"):
            old.commit_transaction(20)

    async with running_broker(tmp_path) as broker:
        await broker.broker.topics.create("t", 1)
        await asyncio.to_thread(run, broker.bootstrap)
        assert await asyncio.to_thread(_read, broker.bootstrap, "t") == ["new"]


async def test_does_a_librdkafka_transaction_span_a_restart(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        port = broker.port
        await broker.broker.topics.create("t", 1)
        producer = await asyncio.to_thread(_transactional, broker.bootstrap)
        producer.begin_transaction()
        producer.produce("t", "before", partition=0)
        assert await asyncio.to_thread(producer.flush, 10) == 0
    async with running_broker(tmp_path, listeners=f"PLAINTEXT://127.0.0.1:{port}") as broker:
        producer.produce("t", "after", partition=0)
        await asyncio.to_thread(producer.commit_transaction, 20)
        assert await asyncio.to_thread(_read, broker.bootstrap, "t") == ["before", "after"]


async def test_does_aiokafka_transform_exactly_once(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        for name in ("in", "out"):
            await broker.broker.topics.create(name, 1)
        async with AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap, transactional_id="x"
        ) as producer:
            async with producer.transaction():
                await producer.send_and_wait("out", b"1")
                await producer.send_offsets_to_transaction({TopicPartition("in", 0): 7}, "g")
            await producer.begin_transaction()
            await producer.send_and_wait("out", b"2")
            await producer.abort_transaction()
            async with producer.transaction():
                await producer.send_and_wait("out", b"3")
        consumer = AIOKafkaConsumer(
            bootstrap_servers=broker.bootstrap,
            isolation_level="read_committed",
            group_id="g",
            enable_auto_commit=False,
        )
        await consumer.start()
        try:
            partition = TopicPartition("out", 0)
            consumer.assign([partition])
            await consumer.seek_to_beginning()
            values: list[bytes | None] = []
            async with asyncio.timeout(20):
                while len(values) < 2:
                    values.append((await consumer.getone()).value)
            assert values == [b"1", b"3"]
            assert await consumer.committed(TopicPartition("in", 0)) == 7
        finally:
            await consumer.stop()
