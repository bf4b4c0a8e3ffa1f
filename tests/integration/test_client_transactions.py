"""Transactions of the bundled producer against our broker: all or nothing, one producer per id."""

import asyncio

import pytest

from client.admin import Admin
from client.consumer import Consumer
from client.errors import BrokerRefused, InvalidUse
from client.producer import Producer
from client.types import TopicPartition
from protocol.error_codes import ErrorCode
from tests.support.broker import RunningBroker

TP = TopicPartition("t", 0)


async def committed(broker: RunningBroker, count: int) -> list[bytes | None]:
    """The first `count` records that a reader of committed records sees, and that no more come."""
    values: list[bytes | None] = []
    async with (
        Consumer(
            "t", bootstrap=broker.bootstrap, start="earliest", isolation="read_committed"
        ) as consumer,
        asyncio.timeout(20),
    ):
        while len(values) < count:
            for records in (await consumer.getmany()).values():
                values += [record.value for record in records]
        assert await consumer.getmany(timeout_ms=100) == {}
    return values


async def abort(producer: Producer, value: bytes) -> None:
    async with producer.transaction():
        await producer.send("t", value)
        await producer.flush()
        raise RuntimeError("changed my mind")


async def test_only_committed_records_are_seen(broker: RunningBroker) -> None:
    async with Producer(broker.bootstrap, transactional_id="x") as producer:
        async with producer.transaction():
            await producer.send("t", b"first")
        with pytest.raises(RuntimeError):
            await abort(producer, b"never")
        async with producer.transaction():
            await producer.send("t", b"second")
    assert await committed(broker, 2) == [b"first", b"second"]


async def test_positions_of_a_group_are_part_of_it(broker: RunningBroker) -> None:
    async with (
        Producer(broker.bootstrap, transactional_id="x") as producer,
        producer.transaction(),
    ):
        await producer.send("t", b"v")
        await producer.send_offsets({TP: 7}, "g")
    async with Admin(broker.bootstrap) as admin:
        assert (await admin.group_offsets("g"))[TP].offset == 7


async def test_a_second_producer_fences_the_first(broker: RunningBroker) -> None:
    async with Producer(broker.bootstrap, transactional_id="x") as zombie:
        async with zombie.transaction():
            await zombie.send("t", b"before")
        async with Producer(broker.bootstrap, transactional_id="x") as successor:
            with pytest.raises(BrokerRefused) as caught:
                async with zombie.transaction():
                    await zombie.send("t", b"after")
            async with successor.transaction():
                await successor.send("t", b"mine")
    assert caught.value.code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
    assert await committed(broker, 2) == [b"before", b"mine"]


async def test_sending_outside_of_a_transaction_is_refused(broker: RunningBroker) -> None:
    async with Producer(broker.bootstrap, transactional_id="x") as producer:
        with pytest.raises(InvalidUse, match="no transaction is open"):
            await producer.send("t", b"v")


async def test_a_transaction_needs_an_id(broker: RunningBroker) -> None:
    async with Producer(broker.bootstrap) as producer:
        with pytest.raises(InvalidUse, match="transactional_id"):
            async with producer.transaction():
                pass
