"""Members of the consumer protocol (KIP-848): sharing, taking over, and what ends a membership."""

import asyncio
import contextlib
import dataclasses
import subprocess
import sys
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from client.core.membership.member import LEAVE_EPOCH
from protocol.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.support.broker import RunningBroker, broker_process, running_broker
from tests.support.members import PARTITIONS, Reader, member, produce, until
from tidelog import (
    Admin,
    BlockingConsumer,
    BlockingProducer,
    BrokerRefused,
    Consumer,
    InvalidType,
    InvalidUse,
    ListenerFailed,
    Producer,
    ShareConsumer,
    TopicPartition,
)

FAST: dict[str, Any] = {
    "group_consumer_min_session_timeout_ms": "100",
    "group_consumer_session_timeout_ms": "1500",
    "group_consumer_min_heartbeat_interval_ms": "10",
    "group_consumer_heartbeat_interval_ms": "100",
}


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[RunningBroker]:
    """A broker whose members beat often and are soon missed."""
    async with running_broker(tmp_path / "data", **FAST) as running:
        async with Admin(running.bootstrap) as admin:
            await admin.create_topic("t", partitions=PARTITIONS)
        yield running


async def test_two_members_share_and_lose_and_double_nothing(broker: RunningBroker) -> None:
    await produce(broker.bootstrap, 0, 200)
    async with Reader(broker.bootstrap) as first:
        await until(lambda: len(first.values) == 200)
        assert first.heard == [("assigned", frozenset(range(PARTITIONS)))]
        async with Reader(broker.bootstrap) as second:
            await until(lambda: len(first.owned) == len(second.owned) == 2)
            await until(lambda: len(first.heard) == 3)
            assert first.owned | second.owned == set(range(PARTITIONS))
            # What stays was never taken away: the rebalance is incremental.
            assert first.heard[1:] == [
                ("revoked", frozenset(second.owned)),
                ("assigned", frozenset(first.owned)),
            ]
            await produce(broker.bootstrap, 200, 400)
            await until(lambda: len(first.values) + len(second.values) == 400)
        await until(lambda: len(first.owned) == PARTITIONS)
        await produce(broker.bootstrap, 400, 500)
        await until(lambda: len(first.values) + len(second.values) == 500)
    assert Counter(first.values + second.values) == Counter(range(500))
    async with Admin(broker.bootstrap) as admin:
        committed = await admin.group_offsets("g")
        assert {
            tp.partition: position.offset for tp, position in committed.items()
        } == dict.fromkeys(range(PARTITIONS), 125)
        assert (await admin.describe_group("g")).members == ()


Start = Callable[[str], Awaitable[Process]]

MEMBER = """
import asyncio, sys
from tidelog import Consumer

async def main():
    async with Consumer("t", bootstrap=sys.argv[1], group_id="g", group_protocol="consumer",
                        group_instance_id=sys.argv[2] or None, start="earliest") as consumer:
        while True:
            await consumer.getmany(timeout_ms=50)
            if consumer.assignment():
                print(len(consumer.assignment()), flush=True)

asyncio.run(main())
"""


@pytest.fixture
async def other_process(
    broker: RunningBroker,
) -> AsyncIterator[Callable[[str], Awaitable[Process]]]:
    """Starts a member in another process, which has partitions when the call returns."""
    started: list[Process] = []

    async def start(instance_id: str) -> Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", MEMBER, broker.bootstrap, instance_id, stdout=subprocess.PIPE
        )
        started.append(process)
        assert process.stdout is not None
        async with asyncio.timeout(30):
            assert int(await process.stdout.readline()) > 0
        return process

    yield start
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def test_the_share_of_a_killed_member_goes_to_the_others(
    broker: RunningBroker, other_process: Start
) -> None:
    async with Reader(broker.bootstrap) as reader:
        await until(lambda: len(reader.owned) == PARTITIONS)
        killed = await other_process("")
        await until(lambda: len(reader.owned) == 2)
        killed.kill()
        await until(lambda: len(reader.owned) == PARTITIONS)
        await produce(broker.bootstrap, 0, 100)
        await until(lambda: len(reader.values) == 100)
    assert Counter(reader.values) == Counter(range(100))


async def test_a_static_member_returns_to_its_share_without_a_rebalance(
    broker: RunningBroker,
) -> None:
    async with Reader(broker.bootstrap, group_instance_id="a") as stays:
        await until(lambda: len(stays.owned) == PARTITIONS)
        async with Reader(broker.bootstrap, group_instance_id="b") as goes:
            await until(lambda: len(goes.owned) == len(stays.owned) == 2)
            share = goes.owned
        before = list(stays.heard)
        async with Reader(broker.bootstrap, group_instance_id="b") as again:
            await until(lambda: again.owned == share)
            assert stays.heard == before
        # One that does not return in time loses its place.
        await until(lambda: len(stays.owned) == PARTITIONS)


async def test_a_name_that_is_taken_is_refused_until_its_holder_is_gone(
    broker: RunningBroker, other_process: Start
) -> None:
    holder = await other_process("a")
    async with member(broker.bootstrap, "t", group_instance_id="a") as late:
        with pytest.raises(BrokerRefused, match=r"UNRELEASED_INSTANCE_ID.*one that was killed"):
            await late.getmany(timeout_ms=5000)
        holder.kill()
        async with asyncio.timeout(30):
            while len(late.assignment()) < PARTITIONS:
                with contextlib.suppress(BrokerRefused):
                    await late.getmany(timeout_ms=50)


async def test_a_pattern_is_matched_by_the_broker(broker: RunningBroker) -> None:
    await produce(broker.bootstrap, 0, 1, "flights-a")
    await produce(broker.bootstrap, 1, 2, "my-flights-a")
    async with member(broker.bootstrap, pattern="flights-.*|other") as consumer:
        found: set[str] = set()

        async def read(*wanted: str) -> None:
            async with asyncio.timeout(30):
                while not found.issuperset(wanted):
                    found.update(tp.topic for tp in await consumer.getmany(timeout_ms=50))

        await read("flights-a")
        # Found by a heartbeat, long before this client asks for metadata again.
        await produce(broker.bootstrap, 2, 3, "flights-b")
        await read("flights-b")
        assert found == {"flights-a", "flights-b"}
        await consumer.subscribe("t")
        async with asyncio.timeout(30):
            while {tp.topic for tp in consumer.assignment()} != {"t"}:
                await consumer.getmany(timeout_ms=20)
        await consumer.subscribe(pattern="my-.*")
        await read("my-flights-a")


async def test_topics_come_go_and_come_again(broker: RunningBroker) -> None:
    later = TopicPartition("later", 0)
    often: dict[str, Any] = {"auto_commit_interval_ms": 20}
    values: list[bytes] = []
    async with (
        Admin(broker.bootstrap) as admin,
        member(broker.bootstrap, "t", "later", wait_for_topics=True, **often) as consumer,
    ):

        async def read_until(is_so: Callable[[], bool]) -> None:
            async with asyncio.timeout(30):
                while not is_so():
                    # The poll may say that a topic is gone before the group has noticed it.
                    with contextlib.suppress(BrokerRefused):
                        for records in (await consumer.getmany(timeout_ms=20)).values():
                            values.extend(record.value or b"" for record in records)

        await read_until(lambda: len(consumer.assignment()) == PARTITIONS)
        for value in (b"0", b"4"):
            await admin.create_topic("later", partitions=1)
            await read_until(lambda: later in consumer.assignment())
            await produce(broker.bootstrap, int(value), int(value) + 1, "later")
            await read_until(partial(values.__contains__, value))
            await admin.delete_topic("later")
            await read_until(lambda: later not in consumer.assignment())
    assert values == [b"0", b"4"]


async def test_a_fenced_member_loses_its_share_and_joins_again(broker: RunningBroker) -> None:
    await produce(broker.bootstrap, 0, 40)
    async with Reader(broker.bootstrap) as reader:
        await until(lambda: len(reader.values) == 40)
        fenced = reader.consumer.group_metadata()
        client = await broker.client()
        await client.request(
            ConsumerGroupHeartbeatRequest(
                group_id="g", member_id=fenced.member_id, member_epoch=LEAVE_EPOCH
            ),
            1,
        )
        whole = frozenset(range(PARTITIONS))
        await until(lambda: len(reader.heard) >= 3)
        assert reader.heard == [("assigned", whole), ("lost", whole), ("assigned", whole)]
        assert reader.consumer.group_metadata().joins_count == 2
        await produce(broker.bootstrap, 40, 60)
        # Nothing was committed, so it begins at the start again: twice is better than never.
        await until(lambda: set(reader.values) == set(range(60)))


async def test_without_on_lost_the_other_listener_gets_what_is_lost(broker: RunningBroker) -> None:
    gone: list[frozenset[TopicPartition]] = []
    async with member(broker.bootstrap, "t", on_revoked=gone.append) as consumer:
        await until_assigned(consumer)
        client = await broker.client()
        member_id = consumer.group_metadata().member_id
        await client.request(
            ConsumerGroupHeartbeatRequest(
                group_id="g", member_id=member_id, member_epoch=LEAVE_EPOCH
            ),
            1,
        )
        async with asyncio.timeout(30):
            while not gone:
                await consumer.getmany(timeout_ms=20)
        assert gone == [frozenset(TopicPartition("t", n) for n in range(PARTITIONS))]


async def until_assigned(consumer: Consumer[Any, Any], count: int = PARTITIONS) -> None:
    async with asyncio.timeout(30):
        while len(consumer.assignment()) != count:
            await consumer.getmany(timeout_ms=20)


async def test_heartbeats_go_on_while_a_listener_takes_its_time(broker: RunningBroker) -> None:
    async def slow(_: frozenset[TopicPartition]) -> None:
        await asyncio.sleep(3)  # twice the session timeout

    lost: list[object] = []
    async with member(broker.bootstrap, "t", on_revoked=slow, on_lost=lost.append) as first:
        await until_assigned(first)
        async with member(broker.bootstrap, "t") as second:
            async with asyncio.timeout(30):
                while len(second.assignment()) != 2:
                    await first.getmany(timeout_ms=20)
                    await second.getmany(timeout_ms=20)
            assert len(first.assignment()) == 2
            assert lost == []


async def test_a_consumer_that_is_not_polled_leaves_and_returns(broker: RunningBroker) -> None:
    async with member(broker.bootstrap, "t", max_poll_interval_ms=500) as lazy:
        await until_assigned(lazy)
        async with Reader(broker.bootstrap) as busy:
            await until(lambda: len(busy.owned) == PARTITIONS)
            await until_assigned(lazy, 2)


async def test_a_listener_that_raises_keeps_no_partition(broker: RunningBroker) -> None:
    def fail(_: frozenset[TopicPartition]) -> None:
        raise ValueError("planted")

    async with member(broker.bootstrap, "t", on_revoked=fail) as first:
        await until_assigned(first)
        async with Reader(broker.bootstrap) as second:
            await until(lambda: len(second.owned) == 2)
            with pytest.raises(ListenerFailed, match="on_revoked raised ValueError: planted"):
                await first.getmany()


async def test_auto_commit_continues_where_the_last_member_was(broker: RunningBroker) -> None:
    await produce(broker.bootstrap, 0, 100)
    seen: list[bytes] = []
    for _ in range(4):
        async with member(broker.bootstrap, "t") as consumer:
            async with asyncio.timeout(30):
                while not (found := await consumer.getmany(timeout_ms=50, max_records=25)):
                    pass
            seen += [record.value or b"" for records in found.values() for record in records]
    assert Counter(seen) == Counter(str(number).encode() for number in range(100))


async def test_offsets_of_a_transaction_are_refused_from_a_member_of_the_past(
    broker: RunningBroker,
) -> None:
    await produce(broker.bootstrap, 0, 4)
    first = TopicPartition("t", 0)
    async with (
        Producer(broker.bootstrap, transactional_id="x") as producer,
        member(broker.bootstrap, "t", auto_commit=False) as consumer,
    ):
        await until_assigned(consumer)
        now = consumer.group_metadata()
        async with producer.transaction():
            await producer.send_offsets({first: 1}, now)
        assert (await consumer.committed(TopicPartition("t", 0)))[
            TopicPartition("t", 0)
        ].offset == 1
        past = dataclasses.replace(now, generation=now.generation + 7)
        with pytest.raises(BrokerRefused, match="ILLEGAL_GENERATION"):
            async with producer.transaction():
                await producer.send_offsets({first: 3}, past)
        assert (await consumer.committed(TopicPartition("t", 0)))[
            TopicPartition("t", 0)
        ].offset == 1


async def test_a_group_of_another_type_is_refused_with_the_cure(broker: RunningBroker) -> None:
    async with ShareConsumer("t", bootstrap=broker.bootstrap, group_id="shared") as consumer:
        await consumer.getmany(timeout_ms=100)
        async with member(broker.bootstrap, "t", group_id="shared") as stranger:
            for _ in range(2):  # every poll says it; none waits for ever
                with pytest.raises(
                    BrokerRefused,
                    match=r"GROUP_ID_NOT_FOUND.*not a consumer group.*give another group_id",
                ):
                    await stranger.getmany(timeout_ms=5000)


async def test_an_assignor_that_the_broker_lacks_is_refused(broker: RunningBroker) -> None:
    async with member(broker.bootstrap, "t", group_remote_assignor="magic") as consumer:
        with pytest.raises(BrokerRefused, match=r"UNSUPPORTED_ASSIGNOR.*group_remote_assignor"):
            await consumer.getmany(timeout_ms=5000)


async def test_the_assignor_is_chosen_by_the_members(broker: RunningBroker) -> None:
    async with member(broker.bootstrap, "t", group_remote_assignor="range") as consumer:
        await until_assigned(consumer)
        async with Admin(broker.bootstrap) as admin:
            assert (await admin.describe_group("g")).assignor == "range"


def test_what_does_not_fit_the_protocol_is_refused() -> None:
    for option, value, cure in (
        ("session_timeout_ms", 9000, "group.consumer.session.timeout.ms"),
        ("heartbeat_interval_ms", 9000, "group.consumer.heartbeat.interval.ms"),
        ("assignors", ("range",), "group_remote_assignor"),
    ):
        options: dict[str, Any] = {option: value}
        with pytest.raises(InvalidUse, match=f"{option}=.*the broker decides.*{cure}"):
            Consumer("a", group_id="g", group_protocol="consumer", **options)
    with pytest.raises(InvalidUse, match="needs a group_id"):
        Consumer("a", group_protocol="consumer")
    with pytest.raises(InvalidUse, match="no group_protocol 'new': choose classic, consumer"):
        Consumer("a", group_id="g", group_protocol="new")
    with pytest.raises(InvalidUse, match="needs group_protocol='consumer'"):
        Consumer("a", group_id="g", group_remote_assignor="range")
    with pytest.raises(InvalidType, match="on_lost=5 cannot be called"):
        Consumer("a", group_id="g", on_lost=5)  # type: ignore[arg-type]


def test_the_face_for_threads_has_it_too(tmp_path: Path) -> None:
    heard: list[str] = []
    with broker_process(tmp_path / "data") as running:
        bootstrap = f"127.0.0.1:{running.port}"
        with BlockingProducer(bootstrap) as producer:
            producer.send("t", b"v").result()
        with BlockingConsumer(
            "t",
            bootstrap=bootstrap,
            group_id="g",
            group_protocol="consumer",
            start="earliest",
            on_assigned=lambda _: heard.append("assigned"),
            on_revoked=lambda _: heard.append("revoked"),
            on_lost=lambda _: heard.append("lost"),
        ) as consumer:
            assert next(consumer).value == b"v"
            assert consumer.group_metadata().has_epoch
            consumer.commit()
    assert heard == ["assigned", "revoked"]
