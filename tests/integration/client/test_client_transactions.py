"""Transactions of the bundled producer against our broker: all or nothing, one producer per id."""

import asyncio

import pytest

from client.admin import Admin
from client.consumer import Consumer
from client.core.offsets import Isolation
from client.errors import BrokerRefused, InvalidUse
from client.producer import Producer
from client.types import OffsetAndTimestamp, TopicPartition
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


async def abort(producer: Producer, value: bytes, timestamp_ms: int | None = None) -> None:
    async with producer.transaction():
        await producer.send("t", value, timestamp_ms=timestamp_ms)
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


HOUR_MS = 3_600_000
JULY_4_MS = 1_372_896_000_000


async def test_a_time_never_means_a_marker(broker: RunningBroker) -> None:
    """The broker's clock is in the markers, so the first one is younger than all of 2013."""
    async with Producer(broker.bootstrap, transactional_id="x") as producer:
        for hour in range(3):
            async with producer.transaction():
                await producer.send("t", b"%d" % hour, timestamp_ms=JULY_4_MS + hour * HOUR_MS)
        with pytest.raises(RuntimeError):
            await abort(producer, b"never", JULY_4_MS + 9 * HOUR_MS)
    async with Admin(broker.bootstrap) as admin:
        for hour, offset in ((0, 0), (1, 2), (2, 4), (3, 6)):
            when = JULY_4_MS + hour * HOUR_MS
            assert (await offset_at(admin, when)).offset == offset
            # On the wire a marker counts, as in Kafka.
            plain = (await admin.list_offsets({TP: when}))[TP]
            assert plain is not None
            assert plain.offset == (0 if hour == 0 else 1)
        assert (await admin.offsets_for_time("t", JULY_4_MS + 10 * HOUR_MS))[TP] is None
        hidden = await admin.first_records(
            {TP: JULY_4_MS + 3 * HOUR_MS}, isolation=Isolation.READ_COMMITTED
        )
        assert hidden == {TP: None}
    async with Consumer("t", bootstrap=broker.bootstrap, start=JULY_4_MS + HOUR_MS) as consumer:
        assert (await anext(aiter(consumer))).value == b"1"
        await consumer.seek_to_time(JULY_4_MS + 2 * HOUR_MS)
        assert (await anext(aiter(consumer))).value == b"2"


async def offset_at(admin: Admin, when: int) -> OffsetAndTimestamp:
    found = (await admin.offsets_for_time("t", when))[TP]
    assert found is not None
    return found
