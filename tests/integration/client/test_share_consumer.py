"""The bundled share consumer against our broker: both faces, acknowledgements, lost locks."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from broker.groups.share.stored_state import ShareKey
from client.admin import Admin
from client.blocking.share_consumer import BlockingShareConsumer
from client.errors import BrokerRefused, BrokerUnreachable, ClientError, InvalidType, InvalidUse
from client.producer import Producer
from client.share_consumer import ShareConsumer
from client.types import ConsumerRecord, TopicPartition
from protocol.error_codes import ErrorCode
from tests.support.broker import RunningBroker, running_broker
from tests.support.clock import FrozenClock
from tests.support.share_group import set_group

LOCK_MS = 30_000
NO_WAIT: dict[str, Any] = {"fetch_max_wait_ms": 0}
TP = TopicPartition("t", 0)


@pytest.fixture
async def shared(tmp_path: Path) -> AsyncIterator[RunningBroker]:
    """A broker with a group that begins at the first record."""
    async with running_broker(tmp_path / "data") as running:
        await set_group(await running.client(), "g", share_auto_offset_reset="earliest")
        yield running


@pytest.fixture
async def timed(tmp_path: Path, clock: FrozenClock) -> AsyncIterator[RunningBroker]:
    """The same by a clock of the test's own, by which fetches do not wait: see `NO_WAIT`."""
    async with running_broker(tmp_path / "data", clock=clock) as running:
        await set_group(await running.client(), "g", share_auto_offset_reset="earliest")
        yield running


async def fill(broker: RunningBroker, *values: str, partitions: int = 1) -> None:
    """The values, dealt out to the partitions in turn, in one batch each."""
    async with Admin(broker.bootstrap) as admin:
        # The clock of this broker is behind the one of its producers.
        configs = {"message.timestamp.after.max.ms": str(2**62)}
        await admin.create_topic("t", partitions=partitions, configs=configs)
    async with Producer(broker.bootstrap) as producer:
        for number, value in enumerate(values):
            await producer.send("t", value.encode(), partition=number % partitions)


def values(records: list[ConsumerRecord]) -> str:
    return "".join((record.value or b"").decode() for record in records)


async def take(consumer: ShareConsumer, count: int = 1) -> list[ConsumerRecord]:
    """Records of one poll or more, until there are `count`."""
    records: list[ConsumerRecord] = []
    async with asyncio.timeout(20):
        while len(records) < count:
            records += await consumer.getmany(timeout_ms=200)
    return records


def lag(broker: RunningBroker, partition: int = 0) -> int:
    """How many records the group has not done, by its stored state."""
    topics, shares = broker.broker.topics, broker.broker.groups.shares
    topic = topics.find("t")
    assert topic is not None
    end = topics.led_log("t", partition).high_watermark
    return shares.offset(ShareKey("g", topic.topic_id, partition), end).lag


async def test_members_share_the_records_and_a_poll_accepts_the_last_ones(
    shared: RunningBroker,
) -> None:
    await fill(shared, *"abcdefgh", partitions=2)
    options: dict[str, Any] = {"group_id": "g", "bootstrap": shared.bootstrap}
    async with ShareConsumer("t", **options) as one, ShareConsumer("t", **options) as two:
        found = await take(one, 8)
        assert sorted(values(found)) == list("abcdefgh")
        assert {record.delivery_count for record in found} == {1}
        assert await two.getmany(timeout_ms=100) == []
        assert await one.getmany(timeout_ms=0) == []
        assert lag(shared, 0) == lag(shared, 1) == 0
    assert shared.broker.groups.share_groups["g"].is_empty


async def test_explicit_acknowledgements(shared: RunningBroker) -> None:
    await fill(shared, *"abcd")
    async with ShareConsumer(
        "t", group_id="g", bootstrap=shared.bootstrap, acknowledgement="explicit"
    ) as consumer:
        a, b, c, d = await take(consumer)
        consumer.acknowledge(a)
        consumer.acknowledge(b, "release")
        consumer.acknowledge(c, "reject")
        with pytest.raises(InvalidUse, match="1 records are in hand"):
            await consumer.getmany()
        with pytest.raises(InvalidUse, match="choose accept, release, reject"):
            consumer.acknowledge(d, "renew")
        with pytest.raises(InvalidType, match="3 is not a record: give one that this consumer"):
            consumer.acknowledge(3)  # type: ignore[arg-type]
        consumer.acknowledge(d)
        with pytest.raises(InvalidUse, match="offset 3 of t-0 is not in hand"):
            consumer.acknowledge(d)
        (again,) = await take(consumer)
        assert (again.value, again.delivery_count) == (b"b", 2)
        consumer.acknowledge(again)
        await consumer.commit()
        assert lag(shared) == 0


async def test_a_lock_is_renewed_or_expires(timed: RunningBroker, clock: FrozenClock) -> None:
    await fill(timed, *"ab")
    lost: list[tuple[TopicPartition, list[int], ClientError]] = []
    async with ShareConsumer(
        "t",
        group_id="g",
        bootstrap=timed.bootstrap,
        **NO_WAIT,
        acknowledgement="explicit",
        on_refused=lambda *refused: lost.append(refused),
    ) as consumer:
        a, b = await take(consumer)
        clock.advance(LOCK_MS - 1000)
        await consumer.renew(a)
        clock.advance(2000)
        consumer.acknowledge(a)
        await consumer.commit()
        assert lag(timed) == 1
        consumer.acknowledge(b)
        with pytest.raises(BrokerRefused) as refused:
            await consumer.commit()
        assert refused.value.code is ErrorCode.INVALID_RECORD_STATE
        ((partition, offsets, error),) = lost
        assert (partition, offsets, error) == (TP, [1], refused.value)
        (again,) = await take(consumer)
        assert (again.offset, again.delivery_count) == (1, 2)
        clock.advance(LOCK_MS + 1)
        with pytest.raises(BrokerRefused):
            await consumer.renew(again)


async def test_a_wrong_acknowledgement_with_the_next_poll_is_reported(
    timed: RunningBroker, clock: FrozenClock
) -> None:
    await fill(timed, "a")
    lost: list[list[int]] = []
    async with ShareConsumer(
        "t",
        group_id="g",
        bootstrap=timed.bootstrap,
        **NO_WAIT,
        on_refused=lambda _, offsets, __: lost.append(offsets),
    ) as consumer:
        await take(consumer)
        clock.advance(LOCK_MS + 1)
        assert values(await take(consumer)) == "a"
        assert lost == [[0]]


async def test_iteration_accepts_one_record_at_a_time(shared: RunningBroker) -> None:
    await fill(shared, *"abcd")
    options: dict[str, Any] = {"group_id": "g", "bootstrap": shared.bootstrap}
    async with ShareConsumer("t", **options) as consumer:
        seen = []
        async for record in consumer:
            seen.append(record)
            if len(seen) == 2:
                break
    assert values(seen) == "ab"
    # What iteration did not reach was given back.
    assert lag(shared) == 2

    async def failing() -> None:
        async with ShareConsumer("t", **options) as consumer:
            async for record in consumer:
                assert record.value == b"c"
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await failing()
    assert lag(shared) == 2
    async with ShareConsumer("t", **options) as consumer:
        assert [record.delivery_count for record in await take(consumer, 2)] == [3, 3]
        await consumer.commit()
        assert lag(shared) == 0


async def test_a_lost_connection_loses_no_record(shared: RunningBroker) -> None:
    await fill(shared, *"abc")
    lost: list[ClientError] = []
    async with ShareConsumer(
        "t",
        group_id="g",
        bootstrap=shared.bootstrap,
        acknowledgement="explicit",
        on_refused=lambda _, __, error: lost.append(error),
    ) as consumer:
        a, b, c = await take(consumer)
        consumer.acknowledge(a)
        for connection in list(shared.broker.connections):
            connection.close("a test ends it")
        consumer.acknowledge(b)
        consumer.acknowledge(c, "release")
        found = await take(consumer, 3)
        assert [record.delivery_count for record in found] == [2, 2, 2]
        assert [type(error) for error in lost] == [BrokerUnreachable]
        with pytest.raises(InvalidUse, match="3 records are in hand"):
            await consumer.getmany()


async def test_a_poll_that_is_given_up_keeps_no_record_locked(shared: RunningBroker) -> None:
    await fill(shared)
    options: dict[str, Any] = {"group_id": "g", "bootstrap": shared.bootstrap}
    async with ShareConsumer("t", **options, fetch_max_wait_ms=5000) as consumer:
        await consumer.getmany(timeout_ms=0)
        poll = asyncio.create_task(consumer.getmany(timeout_ms=10_000))
        await asyncio.sleep(0.1)
        poll.cancel()
        async with Producer(shared.bootstrap) as producer:
            await producer.send("t", b"a")
        async with ShareConsumer("t", **options) as other:
            assert values(await take(other)) == "a"


async def test_a_member_that_was_forgotten_joins_again(
    timed: RunningBroker, clock: FrozenClock
) -> None:
    await fill(timed, "a")
    async with ShareConsumer("t", group_id="g", bootstrap=timed.bootstrap, **NO_WAIT) as consumer:
        await take(consumer)
        clock.advance(60_000)
        assert timed.broker.groups.share_groups["g"].is_empty
        consumer._reader.membership.due = 0.0
        assert values(await take(consumer)) == "a"
        assert not timed.broker.groups.share_groups["g"].is_empty


async def test_markers_of_transactions_are_gaps(shared: RunningBroker) -> None:
    await fill(shared)
    async with Producer(shared.bootstrap, transactional_id="x") as producer:
        async with producer.transaction():
            await producer.send("t", b"a")
        async with producer.transaction():
            await producer.send("t", b"b")
    async with ShareConsumer("t", group_id="g", bootstrap=shared.bootstrap) as consumer:
        found = await take(consumer, 2)
        assert [record.offset for record in found] == [0, 2]
        await consumer.commit()
    assert lag(shared) == 0


async def test_a_topic_that_is_made_again_is_read(timed: RunningBroker, clock: FrozenClock) -> None:
    await fill(timed, "a")
    async with ShareConsumer("t", group_id="g", bootstrap=timed.bootstrap, **NO_WAIT) as consumer:
        assert values(await take(consumer)) == "a"
        async with Admin(timed.bootstrap) as admin:
            await admin.delete_topic("t")
        await fill(timed, "b")
        async with asyncio.timeout(20):
            while not (found := await consumer.getmany(timeout_ms=50)):
                clock.advance(1000)
                consumer._reader.membership.due = 0.0
        assert values(found) == "b"


@pytest.mark.parametrize("strict", [True, False])
async def test_strict_limits(shared: RunningBroker, strict: bool) -> None:
    await fill(shared, *"abcd")
    async with ShareConsumer(
        "t", group_id="g", bootstrap=shared.bootstrap, max_records=3, strict=strict
    ) as consumer:
        assert values(await take(consumer)) == ("abc" if strict else "abcd")


async def test_what_cannot_be_meant_is_refused(shared: RunningBroker) -> None:
    await fill(shared)
    wrong: list[tuple[Callable[[], ShareConsumer], str]] = [
        (lambda: ShareConsumer("t", group_id=""), "group_id is empty"),
        (lambda: ShareConsumer(["t"], group_id="g"), r"ShareConsumer\(.t.\)"),  # type: ignore[arg-type]
        (lambda: ShareConsumer("t", group_id="g", acknowledgement="x"), "implicit, explicit"),
        (lambda: ShareConsumer("t", group_id="g", max_records=0), "max_records=0"),
    ]
    for make, text in wrong:
        with pytest.raises(InvalidUse, match=text):
            make()
    consumer = ShareConsumer("nothing", group_id="g", bootstrap=shared.bootstrap)
    with pytest.raises(InvalidUse, match="not started"):
        await consumer.getmany()
    with pytest.raises(BrokerRefused, match="UNKNOWN_TOPIC_OR_PARTITION"):
        await consumer.start()
    with pytest.raises(InvalidUse, match="make another one"):
        await consumer.start()


async def test_a_lost_connection_in_a_thread(shared: RunningBroker) -> None:
    await fill(shared, "a")
    loop = asyncio.get_running_loop()
    lost: list[ClientError] = []

    async def close_connections() -> None:
        for connection in list(shared.broker.connections):
            connection.close("a test ends it")

    def work() -> int:
        with BlockingShareConsumer(
            "t",
            group_id="g",
            bootstrap=shared.bootstrap,
            on_refused=lambda _, __, error: lost.append(error),
        ) as consumer:
            next(consumer)
            asyncio.run_coroutine_threadsafe(close_connections(), loop).result()
            return next(consumer).delivery_count

    assert await asyncio.to_thread(work) == 2
    assert [type(error) for error in lost] == [BrokerUnreachable]
    assert lag(shared) == 0


async def test_the_face_for_threads(shared: RunningBroker) -> None:
    await fill(shared, *"abcd")

    def work() -> list[str]:
        seen = []
        options: dict[str, Any] = {"group_id": "g", "bootstrap": shared.bootstrap}
        with BlockingShareConsumer("t", **options, acknowledgement="explicit") as consumer:
            records = consumer.getmany(timeout_ms=5000)
            seen.append(values(records))
            consumer.renew(*records)
            for record in records:
                consumer.acknowledge(record, "release" if record.offset == 3 else "accept")
            consumer.commit()
        with BlockingShareConsumer("t", **options) as consumer:
            for record in consumer:
                seen.append(values([record]))
                break
        with pytest.raises(InvalidUse, match="not open"):
            consumer.getmany()
        return seen

    assert await asyncio.to_thread(work) == ["abcd", "d"]
    assert lag(shared) == 0


async def test_a_poll_keeps_its_time_when_the_broker_is_gone(tmp_path: Path) -> None:
    """It waited for a minute, for the answer to a heartbeat."""
    async with contextlib.AsyncExitStack() as stack:
        running = await stack.enter_async_context(running_broker(tmp_path / "data"))
        await fill(running, "1")
        consumer = ShareConsumer("t", group_id="g", bootstrap=running.bootstrap)
        await consumer.start()
        blocking = BlockingShareConsumer("t", group_id="g", bootstrap=running.bootstrap)
        await asyncio.to_thread(blocking.__enter__)
        await consumer.getmany(timeout_ms=200)
        await stack.aclose()
        for cluster in (consumer._cluster, blocking._cluster):
            # As after a minute without an answer.
            cluster.forget_topic("t")
        for _ in range(2):
            async with asyncio.timeout(15):
                assert await consumer.getmany(timeout_ms=2000) == []
                assert await asyncio.to_thread(blocking.getmany, timeout_ms=2000) == []
        async with asyncio.timeout(15):
            await asyncio.to_thread(blocking.__exit__, None, None, None)
            await consumer.close()
