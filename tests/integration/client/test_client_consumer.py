"""The bundled consumer against our broker: positions, times, groups."""

import asyncio
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from client.admin import Admin
from client.consumer import Consumer
from client.errors import BrokerRefused, InvalidTime, InvalidUse
from client.producer import Producer
from client.types import ConsumerRecord, OffsetAndMetadata, TopicPartition
from tests.support.broker import RunningBroker, running_broker

NOON_MS = 1_372_953_600_000
MINUTE_MS = 60_000
TP = TopicPartition("t", 0)


async def fill(broker: RunningBroker, count: int, topic: str = "t", partitions: int = 1) -> None:
    """`count` records, a minute apart, dealt out to the partitions in turn."""
    async with Admin(broker.bootstrap) as admin:
        await admin.create_topic(topic, partitions=partitions)
    async with Producer(broker.bootstrap, batch_bytes=300) as producer:
        for n in range(count):
            await producer.send(
                topic,
                str(n).encode(),
                partition=n % partitions,
                timestamp_ms=NOON_MS + n * MINUTE_MS,
            )


async def take(consumer: Consumer, count: int) -> list[ConsumerRecord]:
    records: list[ConsumerRecord] = []
    async with asyncio.timeout(20):
        while len(records) < count:
            for found in (await consumer.getmany(max_records=count - len(records))).values():
                records += found
    return records


def values(records: list[ConsumerRecord]) -> list[int]:
    return [int(record.value or b"") for record in records]


async def test_all_partitions_are_read_without_a_group(broker: RunningBroker) -> None:
    await fill(broker, 40, partitions=4)
    async with Consumer("t", bootstrap=broker.bootstrap, start="earliest") as consumer:
        assert sorted(values(await take(consumer, 40))) == list(range(40))
        assert consumer.assignment() == {TopicPartition("t", n) for n in range(4)}
        assert await consumer.getmany(timeout_ms=0) == {}


async def test_latest_reads_only_what_comes_later(broker: RunningBroker) -> None:
    await fill(broker, 3)
    async with Consumer("t", bootstrap=broker.bootstrap) as consumer:
        assert await consumer.getmany(timeout_ms=100) == {}
        async with Producer(broker.bootstrap) as producer:
            await producer.send("t", b"99")
        assert values(await take(consumer, 1)) == [99]


async def test_reading_may_start_at_a_time(broker: RunningBroker) -> None:
    await fill(broker, 20)
    start = "2013-07-04T16:07:30Z"
    async with Consumer("t", bootstrap=broker.bootstrap, start=start) as consumer:
        assert values(await take(consumer, 2)) == [8, 9]


async def test_a_time_in_seconds_is_refused(broker: RunningBroker) -> None:
    with pytest.raises(InvalidTime, match="looks like seconds"):
        Consumer("t", bootstrap=broker.bootstrap, start=NOON_MS // 1000)


async def test_seek_goes_anywhere(broker: RunningBroker) -> None:
    await fill(broker, 20)
    async with Consumer("t", bootstrap=broker.bootstrap, start="earliest") as consumer:
        assert values(await take(consumer, 5)) == [0, 1, 2, 3, 4]
        consumer.seek(TP, 17)
        assert values(await take(consumer, 2)) == [17, 18]
        await consumer.seek_to_beginning()
        assert values(await take(consumer, 1)) == [0]
        found = await consumer.seek_to_time(NOON_MS + 11 * MINUTE_MS, TP)
        assert found[TP] is not None
        assert values(await take(consumer, 1)) == [11]
        await consumer.seek_to_end(TP)
        assert consumer.position(TP) == 20


async def test_a_time_after_all_records_goes_to_the_end(broker: RunningBroker) -> None:
    await fill(broker, 3)
    async with Consumer("t", bootstrap=broker.bootstrap, start="earliest") as consumer:
        assert await consumer.seek_to_time("now") == {TP: None}
        assert consumer.position(TP) == 3


async def test_offsets_are_found_by_time_and_at_the_ends(broker: RunningBroker) -> None:
    await fill(broker, 10)
    async with Consumer(bootstrap=broker.bootstrap) as consumer:
        found = await consumer.offsets_for_times({TP: NOON_MS + 1})
        hit = found[TP]
        assert hit is not None
        assert (hit.offset, hit.timestamp_ms) == (1, NOON_MS + MINUTE_MS)
        assert await consumer.offsets_for_times({TP: NOON_MS * 2}) == {TP: None}
        assert await consumer.beginning_offsets([TP]) == {TP: 0}
        assert await consumer.end_offsets([TP]) == {TP: 10}


async def test_paused_partitions_hand_out_nothing_until_resumed(broker: RunningBroker) -> None:
    await fill(broker, 20, partitions=2)
    other = TopicPartition("t", 1)
    async with Consumer("t", bootstrap=broker.bootstrap, start="earliest") as consumer:
        consumer.pause(TP)
        assert {record.partition for record in await take(consumer, 10)} == {1}
        assert TP not in await consumer.getmany(timeout_ms=100)
        consumer.resume()
        assert {record.partition for record in await take(consumer, 10)} == {0}
        assert consumer.lag(other) == 0


async def test_assign_reads_exactly_what_is_named(broker: RunningBroker) -> None:
    await fill(broker, 20, partitions=2)
    async with Consumer(bootstrap=broker.bootstrap, start="earliest") as consumer:
        consumer.assign([TopicPartition("t", 1)])
        assert {record.partition for record in await take(consumer, 10)} == {1}
        with pytest.raises(InvalidUse, match="t-0 is not assigned"):
            consumer.seek(TP, 0)


async def test_an_offset_outside_the_log_follows_the_start_policy(broker: RunningBroker) -> None:
    await fill(broker, 5)
    async with Consumer(bootstrap=broker.bootstrap, start="earliest") as consumer:
        consumer.assign([TP])
        consumer.seek(TP, 1000)
        assert values(await take(consumer, 1)) == [0]


async def test_an_offset_outside_the_log_is_an_error_with_start_none(broker: RunningBroker) -> None:
    await fill(broker, 5)
    async with Consumer(bootstrap=broker.bootstrap, start="none") as consumer:
        consumer.assign([TP])
        consumer.seek(TP, 1000)
        with pytest.raises(BrokerRefused, match="start='none'"):
            await take(consumer, 1)


async def test_a_missing_topic_is_reported_at_once(broker: RunningBroker) -> None:
    with pytest.raises(BrokerRefused, match="topic nope: UNKNOWN_TOPIC_OR_PARTITION"):
        async with Consumer("nope", bootstrap=broker.bootstrap):
            pass


async def test_a_record_larger_than_a_fetch_still_comes(broker: RunningBroker) -> None:
    async with Producer(broker.bootstrap) as producer:
        await producer.send("t", b"x" * 200_000)
    async with Consumer(
        "t", bootstrap=broker.bootstrap, start="earliest", partition_max_bytes=1000
    ) as consumer:
        [record] = await take(consumer, 1)
    assert len(record.value or b"") == 200_000


# Groups.


async def test_a_group_continues_where_it_committed(broker: RunningBroker) -> None:
    await fill(broker, 10)
    for expected in ([0, 1, 2], [3, 4, 5]):
        async with Consumer(
            "t", bootstrap=broker.bootstrap, group_id="g", start="earliest", auto_commit=False
        ) as consumer:
            assert values(await take(consumer, 3)) == expected
            await consumer.commit()
    async with Consumer(bootstrap=broker.bootstrap, group_id="g") as observer:
        assert (await observer.committed(TP))[TP].offset == 6


async def test_leaving_the_block_commits_what_was_handed_out(broker: RunningBroker) -> None:
    await fill(broker, 10)
    async with Consumer(
        "t", bootstrap=broker.bootstrap, group_id="g", start="earliest"
    ) as consumer:
        await take(consumer, 4)
    async with Admin(broker.bootstrap) as admin:
        assert await admin.group_offsets("g") == {TP: OffsetAndMetadata(4, "", 0)}


async def test_an_error_in_the_block_commits_only_up_to_the_latest_poll(
    broker: RunningBroker,
) -> None:
    await fill(broker, 10)

    async def fail_while_working() -> None:
        async with Consumer(
            "t", bootstrap=broker.bootstrap, group_id="g", start="earliest"
        ) as consumer:
            await take(consumer, 4)
            await take(consumer, 2)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        await fail_while_working()
    async with Admin(broker.bootstrap) as admin:
        assert (await admin.group_offsets("g"))[TP].offset == 4


async def test_commits_may_carry_a_note(broker: RunningBroker) -> None:
    await fill(broker, 10)
    async with Consumer(bootstrap=broker.bootstrap, group_id="g") as consumer:
        await consumer.commit({TP: OffsetAndMetadata(7, "checked")})
        assert await consumer.committed() == {TP: OffsetAndMetadata(7, "checked", -1)}


async def test_without_a_group_there_are_no_commits(broker: RunningBroker) -> None:
    async with Consumer(bootstrap=broker.bootstrap) as consumer:
        with pytest.raises(InvalidUse, match="group_id"):
            await consumer.commit()


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "cooperative-sticky"])
async def test_two_members_share_and_one_takes_over(broker: RunningBroker, assignor: str) -> None:
    await fill(broker, 40, partitions=4)
    shares: dict[str, frozenset[TopicPartition]] = {}

    def member(name: str) -> Consumer:
        return Consumer(
            "t",
            bootstrap=broker.bootstrap,
            group_id="g",
            start="earliest",
            assignors=[assignor],
            heartbeat_interval_ms=50,
            on_assigned=lambda share: shares.__setitem__(name, share),
        )

    async def until(*sizes: int) -> None:
        async with asyncio.timeout(20):
            while sorted(map(len, shares.values())) != sorted(sizes):
                for consumer in alive:
                    await consumer.getmany(timeout_ms=20)

    first, second = member("first"), member("second")
    alive = [first]
    async with first:
        await until(4)
        async with second:
            alive.append(second)
            await until(2, 2)
            assert not shares["first"] & shares["second"]
        alive.remove(second)
        del shares["second"]
        await until(4)


async def test_a_static_member_keeps_its_share_over_a_restart(broker: RunningBroker) -> None:
    await fill(broker, 10)
    generations = []
    for _ in range(2):
        async with Consumer(
            "t",
            bootstrap=broker.bootstrap,
            group_id="g",
            group_instance_id="one",
            start="earliest",
        ) as consumer:
            await take(consumer, 3)
            member = consumer._group.member
            assert member is not None
            generations.append(member.metadata.generation)
    assert generations[0] == generations[1]


async def test_a_consumer_that_is_not_polled_leaves_and_comes_back(broker: RunningBroker) -> None:
    await fill(broker, 10)
    revoked: list[frozenset[TopicPartition]] = []
    async with Consumer(
        "t",
        bootstrap=broker.bootstrap,
        group_id="g",
        start="earliest",
        heartbeat_interval_ms=50,
        max_poll_interval_ms=2_000,
        on_revoked=revoked.append,
    ) as consumer:
        await take(consumer, 2)
        async with asyncio.timeout(60):
            while consumer.assignment():
                await asyncio.sleep(0.05)
        assert revoked == [frozenset({TP})]
        assert values(await take(consumer, 2)) == [0, 1]


async def test_a_consumer_survives_a_restart_of_the_broker(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as first:
        port = first.port
        await fill(first, 5)
        consumer = Consumer("t", bootstrap=first.bootstrap, start="earliest")
        await consumer.start()
        assert values(await take(consumer, 5)) == [0, 1, 2, 3, 4]
    async with running_broker(tmp_path, listeners=f"PLAINTEXT://127.0.0.1:{port}") as second:
        async with Producer(second.bootstrap) as producer:
            await producer.send("t", b"5")
        assert values(await take(consumer, 1)) == [5]
        await consumer.close()


async def test_a_window_has_exactly_the_records_of_its_span_and_ends(broker: RunningBroker) -> None:
    minutes = [5, 50, 10, 61, 20, 70, 30, 0, 60, 12]
    async with Admin(broker.bootstrap) as admin:
        await admin.create_topic("t", partitions=2)
    async with Producer(broker.bootstrap, batch_bytes=300) as producer:
        for number, minute in enumerate(minutes):
            stamp = NOON_MS + minute * MINUTE_MS
            value = str(minute).encode()
            await producer.send("t", value, partition=number % 2, timestamp_ms=stamp)
    start = datetime.fromtimestamp(NOON_MS / 1000, timezone.utc)  # noqa: UP017
    async with Consumer("t", bootstrap=broker.bootstrap) as consumer, asyncio.timeout(20):
        for _ in range(2):
            window = consumer.between(start + timedelta(minutes=10), start + timedelta(minutes=60))
            found = [record async for record in window]
            assert sorted(values(found)) == [10, 12, 20, 30, 50]
        assert [r async for r in consumer.between("2001-01-01T00:00Z", "2001-01-02T00:00Z")] == []


async def test_a_window_that_is_not_over_follows_until_it_is(broker: RunningBroker) -> None:
    now = datetime.now(timezone.utc)  # noqa: UP017
    async with Admin(broker.bootstrap) as admin:
        configs = {"message.timestamp.type": "LogAppendTime"}
        await admin.create_topic("t", partitions=1, configs=configs)
    async with (
        Consumer("t", bootstrap=broker.bootstrap) as consumer,
        Producer(broker.bootstrap) as producer,
        asyncio.timeout(20),
    ):
        window = consumer.between(now, now + timedelta(seconds=3))
        first = asyncio.ensure_future(anext(window))
        await asyncio.sleep(0.2)
        await (await producer.send("t", b"1"))
        assert (await first).value == b"1"
        assert [record async for record in window] == []
        assert datetime.now(timezone.utc) >= now + timedelta(seconds=3)  # noqa: UP017
        await (await producer.send("t", b"2"))
        again = consumer.between(now, now + timedelta(seconds=3))
        assert values([record async for record in again]) == [1]
        # A partition that ended early is read on afterwards.
        await (await producer.send("t", b"3"))
        assert values(await take(consumer, 1)) == [3]


async def test_windows_that_cannot_be_are_refused_at_once(broker: RunningBroker) -> None:
    await fill(broker, 1)
    async with Consumer("t", bootstrap=broker.bootstrap) as consumer:
        with pytest.raises(InvalidTime, match="is not after the start"):
            consumer.between(NOON_MS, NOON_MS)
        with pytest.raises(InvalidTime, match="looks like seconds"):
            consumer.between(1_372_953_600, NOON_MS)
    with pytest.raises(InvalidUse, match="not started, or closed"):
        consumer.between(NOON_MS, NOON_MS + 1)
    async with Consumer("t", bootstrap=broker.bootstrap, group_id="g") as consumer:
        with pytest.raises(InvalidUse, match="without group_id"):
            consumer.between(NOON_MS, NOON_MS + 1)
