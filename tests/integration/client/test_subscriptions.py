"""Which topics a consumer reads: by pattern, and changed while it reads."""

import asyncio
from typing import Any

import pytest

from tests.support.broker import RunningBroker
from tidelog import (
    Admin,
    BrokerRefused,
    Consumer,
    InvalidType,
    InvalidUse,
    Producer,
    TopicPartition,
)

SOON_MS = 50
"""How often metadata is due here, so that new topics are found at once."""


async def produce(broker: RunningBroker, *topics: str) -> None:
    async with Producer(broker.bootstrap) as producer:
        for topic in topics:
            await producer.send_and_wait(topic, topic.encode())


async def topics_read(consumer: Consumer[Any, Any], *wanted: str) -> set[str]:
    """The topics of records until all that are wanted were among them.

    After a rebalance a group repeats what was handed out by the last poll before it.
    """
    found: set[str] = set()
    async with asyncio.timeout(60):
        while not found.issuperset(wanted):
            found |= {tp.topic for tp in await consumer.getmany()}
    return found


async def polled_for_ever(consumer: Consumer[Any, Any]) -> None:
    async with asyncio.timeout(60):
        while True:
            await consumer.getmany()


async def assigned(consumer: Consumer[Any, Any], *topics: str) -> None:
    async with asyncio.timeout(60):
        while consumer.assignment() != {TopicPartition(topic, 0) for topic in topics}:
            await consumer.getmany(timeout_ms=20)


@pytest.mark.parametrize("group_id", [None, "g"])
async def test_a_pattern_reads_what_matches_and_finds_new_topics(
    broker: RunningBroker, group_id: str | None
) -> None:
    await produce(broker, "flights-a", "flights-b", "my-flights-a", "flights")
    async with Consumer(
        pattern="flights-.*",
        bootstrap=broker.bootstrap,
        group_id=group_id,
        start="earliest",
        metadata_max_age_ms=SOON_MS,
        heartbeat_interval_ms=SOON_MS,
    ) as consumer:
        first = {"flights-a", "flights-b"}
        assert await topics_read(consumer, *first) == first
        await produce(broker, "flights-c", "flightsd")
        assert await topics_read(consumer, "flights-c") <= {*first, "flights-c"}
        await assigned(consumer, "flights-a", "flights-b", "flights-c")


async def test_a_group_may_begin_before_its_first_topic(broker: RunningBroker) -> None:
    async with Consumer(
        pattern="[a-c]",
        bootstrap=broker.bootstrap,
        group_id="g",
        start="earliest",
        metadata_max_age_ms=SOON_MS,
        heartbeat_interval_ms=SOON_MS,
    ) as consumer:
        assert await consumer.getmany(timeout_ms=200) == {}
        await produce(broker, "a", "d")
        assert await topics_read(consumer, "a") == {"a"}


async def test_internal_topics_do_not_match(broker: RunningBroker) -> None:
    await produce(broker, "a")
    async with Consumer("a", bootstrap=broker.bootstrap, group_id="g", start="earliest") as member:
        await topics_read(member, "a")
        await member.commit()
    async with Consumer(pattern=".*", bootstrap=broker.bootstrap) as consumer:
        assert consumer.assignment() == {TopicPartition("a", 0)}


@pytest.mark.parametrize("group_id", [None, "g"])
async def test_topics_may_be_changed_while_reading(
    broker: RunningBroker, group_id: str | None
) -> None:
    await produce(broker, "a", "b", "c")
    async with Consumer(
        "a", bootstrap=broker.bootstrap, group_id=group_id, start="earliest"
    ) as consumer:
        assert await topics_read(consumer, "a") == {"a"}
        await consumer.subscribe("b")
        assert await topics_read(consumer, "b") <= {"a", "b"}
        await assigned(consumer, "b")
        await consumer.subscribe(pattern="[bc]")
        assert await topics_read(consumer, "c") <= {"b", "c"}
        await assigned(consumer, "b", "c")
        with pytest.raises(BrokerRefused, match="UNKNOWN_TOPIC"):
            await consumer.subscribe("missing")
        await assigned(consumer, "b", "c")


@pytest.mark.parametrize("group_protocol", ["classic", "consumer"])
async def test_a_group_survives_the_deletion_of_a_topic_that_it_reads(
    broker: RunningBroker, group_protocol: str
) -> None:
    """Polls raised UNKNOWN_TOPIC_OR_PARTITION until the next round; Kafka's consumer logs it."""
    await produce(broker, "a", "b")
    async with (
        Consumer(
            "a",
            "b",
            bootstrap=broker.bootstrap,
            group_id="g",
            group_protocol=group_protocol,
            heartbeat_interval_ms=1500 if group_protocol == "classic" else None,
            start="earliest",
        ) as consumer,
        Admin(broker.bootstrap) as admin,
    ):
        assert await topics_read(consumer, "a", "b") == {"a", "b"}
        await admin.delete_topic("b")
        for _ in range(3):
            # The partition that stays is read meanwhile, also where the other one is known still.
            await produce(broker, "a")
            assert await topics_read(consumer, "a") == {"a"}
        await assigned(consumer, "a")


@pytest.mark.parametrize("pattern", [None, "[ab]"])
async def test_without_a_group_a_deleted_topic_is_an_error_unless_a_pattern_named_it(
    broker: RunningBroker, pattern: str | None
) -> None:
    await produce(broker, "a", "b")
    async with (
        Consumer(
            *(() if pattern else ("a", "b")),
            pattern=pattern,
            bootstrap=broker.bootstrap,
            start="earliest",
            metadata_max_age_ms=2000,
        ) as consumer,
        Admin(broker.bootstrap) as admin,
    ):
        assert await topics_read(consumer, "a", "b") == {"a", "b"}
        await admin.delete_topic("b")
        if pattern is None:
            with pytest.raises(BrokerRefused, match="topic b: UNKNOWN_TOPIC"):
                await polled_for_ever(consumer)
        # Either way the other one is read.
        await produce(broker, "a")
        assert await topics_read(consumer, "a") == {"a"}
        if pattern is not None:
            await assigned(consumer, "a")


async def test_a_group_without_topics_may_subscribe_later(broker: RunningBroker) -> None:
    await produce(broker, "a")
    async with Consumer(bootstrap=broker.bootstrap, group_id="g", start="earliest") as consumer:
        await consumer.subscribe("a")
        assert await topics_read(consumer, "a") == {"a"}


def test_what_is_no_subscription_is_refused() -> None:
    with pytest.raises(InvalidUse, match=r"pattern='\(' is refused: missing"):
        Consumer(pattern="(")
    with pytest.raises(InvalidUse, match="pattern='a' and topics b: give one of the two"):
        Consumer("b", pattern="a")
    with pytest.raises(InvalidType, match="pattern=5"):
        Consumer(pattern=5)  # type: ignore[arg-type]
    with pytest.raises(InvalidUse, match="pattern is empty"):
        Consumer(pattern="")
    with pytest.raises(InvalidUse, match="metadata_max_age_ms"):
        Consumer("a", metadata_max_age_ms=0)
    with pytest.raises(InvalidUse, match="give both on_statistics and statistics_interval_ms"):
        Consumer("a", statistics_interval_ms=5)
    with pytest.raises(InvalidType, match="on_assigned=5 cannot be called"):
        Consumer("a", on_assigned=5)  # type: ignore[arg-type]


async def test_nothing_to_subscribe_to_is_refused(broker: RunningBroker) -> None:
    async with Consumer(bootstrap=broker.bootstrap) as consumer:
        with pytest.raises(InvalidUse, match="nothing is given to read"):
            await consumer.subscribe()
