"""The bundled admin client against our broker."""

import pytest

from client.admin import Admin
from client.consumer import Consumer
from client.errors import BrokerRefused, InvalidTime
from client.producer import Producer
from client.types import TopicPartition
from protocol.error_codes import ErrorCode
from tests.support.broker import RunningBroker

NOON_MS = 1_372_953_600_000
TP = TopicPartition("t", 0)


async def fill(broker: RunningBroker, *timestamps_ms: int) -> None:
    async with Producer(broker.bootstrap) as producer:
        for timestamp_ms in timestamps_ms:
            await producer.send("t", b"v", timestamp_ms=timestamp_ms)


async def test_a_topic_is_created_described_grown_and_deleted(broker: RunningBroker) -> None:
    async with Admin(broker.bootstrap) as admin:
        await admin.create_topic("t", partitions=2, configs={"retention.ms": "-1"})
        assert list((await admin.topics())["t"].partitions) == [0, 1]
        entry = (await admin.topic_configs("t"))["retention.ms"]
        assert (entry.value, entry.source.is_default) == ("-1", False)
        await admin.create_partitions("t", 3)
        assert list((await admin.describe_topic("t")).partitions) == [0, 1, 2]
        await admin.delete_topic("t")
        assert await admin.topics() == {}
        with pytest.raises(BrokerRefused, match="topic t: UNKNOWN_TOPIC_OR_PARTITION"):
            await admin.describe_topic("t")


async def test_validating_changes_nothing(broker: RunningBroker) -> None:
    async with Admin(broker.bootstrap) as admin:
        await admin.create_topic("t", validate_only=True)
        assert await admin.topics() == {}


@pytest.mark.parametrize(
    ("name", "options", "code"),
    [
        ("a b", {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("t", {"partitions": 0}, ErrorCode.INVALID_PARTITIONS),
        ("t", {"replication_factor": 3}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ("t", {"configs": {"retention": "1"}}, ErrorCode.INVALID_CONFIG),
    ],
)
async def test_what_is_refused_has_its_code(
    broker: RunningBroker, name: str, options: dict[str, object], code: ErrorCode
) -> None:
    async with Admin(broker.bootstrap) as admin:
        with pytest.raises(BrokerRefused) as caught:
            await admin.create_topic(name, **options)  # type: ignore[arg-type]
    assert caught.value.code is code
    assert caught.value.broker == broker.bootstrap


async def test_settings_change_and_go_back_to_their_default(broker: RunningBroker) -> None:
    async with Admin(broker.bootstrap) as admin:
        await admin.create_topic("t")
        await admin.alter_topic_configs("t", {"retention.ms": "1000", "segment.bytes": "2000000"})
        assert (await admin.topic_configs("t"))["segment.bytes"].value == "2000000"
        await admin.alter_topic_configs("t", {"segment.bytes": None})
        configs = await admin.topic_configs("t")
        assert configs["segment.bytes"].source.is_default
        assert configs["retention.ms"].value == "1000"


async def test_offsets_are_found_by_time_and_at_the_ends(broker: RunningBroker) -> None:
    await fill(broker, NOON_MS, NOON_MS + 5000, NOON_MS + 2000)
    async with Admin(broker.bootstrap) as admin:
        hit = (await admin.offsets_for_time("t", "2013-07-04T16:00:01Z"))[TP]
        assert hit is not None
        assert (hit.offset, hit.timestamp_ms) == (1, NOON_MS + 5000)
        assert await admin.offsets_for_time("t", "now") == {TP: None}
        newest = (await admin.newest_records("t"))[TP]
        assert newest is not None
        assert (newest.offset, newest.timestamp_ms) == (1, NOON_MS + 5000)
        assert await admin.earliest_offsets("t") == {TP: 0}
        assert await admin.latest_offsets("t") == {TP: 3}


async def test_a_time_in_microseconds_is_refused(broker: RunningBroker) -> None:
    async with Admin(broker.bootstrap) as admin:
        with pytest.raises(InvalidTime, match="looks like microseconds"):
            await admin.offsets_for_time("t", NOON_MS * 1000)


async def test_records_are_deleted_up_to_an_offset(broker: RunningBroker) -> None:
    await fill(broker, *[NOON_MS] * 5)
    async with Admin(broker.bootstrap) as admin:
        assert await admin.delete_records({TP: 3}) == {TP: 3}
        assert await admin.earliest_offsets("t") == {TP: 3}


async def test_groups_are_listed_described_moved_and_deleted(broker: RunningBroker) -> None:
    await fill(broker, *[NOON_MS] * 5)
    async with Admin(broker.bootstrap) as admin:
        async with Consumer(
            "t", bootstrap=broker.bootstrap, group_id="g", start="earliest"
        ) as consumer:
            await consumer.getmany(timeout_ms=5000)
            [listed] = await admin.groups()
            assert (listed.group_id, listed.state) == ("g", "Stable")
            info = await admin.describe_group("g")
            assert [member.partitions for member in info.members] == [(TP,)]
            assert info.members[0].client_id == "tidelog-consumer"
            with pytest.raises(BrokerRefused, match="stop the members"):
                await admin.delete_group("g")
        await admin.alter_group_offsets("g", {TP: 2})
        assert (await admin.group_offsets("g"))[TP].offset == 2
        await admin.delete_group("g")
        with pytest.raises(BrokerRefused, match="GROUP_ID_NOT_FOUND"):
            await admin.describe_group("g")


async def test_the_cluster_tells_its_id_and_brokers(broker: RunningBroker) -> None:
    async with Admin(broker.bootstrap) as admin:
        info = await admin.cluster()
        [one] = await admin.brokers()
    assert info.cluster_id == broker.ready.cluster_id
    assert (one.node_id, one.address) == (info.controller_id, broker.bootstrap)


async def test_sizes_are_those_on_disk(broker: RunningBroker) -> None:
    await fill(broker, NOON_MS)
    async with Admin(broker.bootstrap) as admin:
        assert (await admin.sizes())[TP] > 60
