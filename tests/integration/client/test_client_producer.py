"""The bundled producer against our broker."""

import asyncio
from pathlib import Path

import pytest

from client.admin import Admin
from client.consumer import Consumer
from client.errors import BrokerRefused, BrokerUnreachable, InvalidUse
from client.partitioner import partition_for_key
from client.producer import Producer
from client.types import ConsumerRecord, TopicPartition
from protocol.error_codes import ErrorCode
from protocol.records.layout import TimestampType
from tests.support.broker import RunningBroker, running_broker

NOON_MS = 1_372_953_600_000


async def read_all(broker: RunningBroker, topic: str, count: int) -> list[ConsumerRecord]:
    """The first `count` records of a topic, by partition and offset."""
    records: list[ConsumerRecord] = []
    async with Consumer(topic, bootstrap=broker.bootstrap, start="earliest") as consumer:
        async with asyncio.timeout(20):
            async for record in consumer:
                records.append(record)
                if len(records) == count:
                    break
    return sorted(records)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_everything_given_comes_back(broker: RunningBroker, codec: str) -> None:
    async with Producer(broker.bootstrap, compression=codec, batch_bytes=2000) as producer:
        for n in range(500):
            await producer.send(
                "t",
                f"value {n}".encode(),
                key=b"k",
                timestamp_ms=NOON_MS + n,
                headers=[("h", str(n).encode()), ("null", None)],
            )
    records = await read_all(broker, "t", 500)
    assert [record.offset for record in records] == list(range(500))
    last = records[-1]
    assert (last.key, last.value, last.timestamp_ms) == (b"k", b"value 499", NOON_MS + 499)
    assert last.timestamp_type is TimestampType.CREATE_TIME
    assert list(last.headers) == [("h", b"499"), ("null", None)]


@pytest.mark.parametrize("acks", ["all", "1", 1])
async def test_a_delivery_tells_where_a_record_is(broker: RunningBroker, acks: str | int) -> None:
    async with Producer(broker.bootstrap, acks=acks) as producer:
        first = await producer.send_and_wait("t", b"a", timestamp_ms=NOON_MS)
        second = await producer.send_and_wait("t", b"b", timestamp_ms=NOON_MS)
    assert (first.offset, second.offset) == (0, 1)
    assert (first.topic, first.partition, first.timestamp_ms) == ("t", 0, NOON_MS)


async def test_acks_0_arrives_without_an_offset(broker: RunningBroker) -> None:
    async with Producer(broker.bootstrap, acks=0) as producer:
        assert (await producer.send_and_wait("t", b"a")).offset == -1
    assert [record.value for record in await read_all(broker, "t", 1)] == [b"a"]


async def test_keys_choose_the_partition_as_in_java(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path, num_partitions="5") as broker,
        Producer(broker.bootstrap) as producer,
    ):
        for n in range(50):
            key = f"key-{n}".encode()
            placed = await producer.send_and_wait("t", b"", key=key)
            assert placed.partition == partition_for_key(key, 5)


async def test_a_null_value_is_a_null_value(broker: RunningBroker) -> None:
    async with Producer(broker.bootstrap) as producer:
        await producer.send("t", None, key=b"gone")
    assert [record.value for record in await read_all(broker, "t", 1)] == [None]


async def test_the_brokers_time_is_returned_where_it_stamps(tmp_path: Path) -> None:
    async with running_broker(tmp_path, log_message_timestamp_type="LogAppendTime") as broker:
        async with Producer(broker.bootstrap) as producer:
            placed = await producer.send_and_wait("t", b"a", timestamp_ms=NOON_MS)
        assert placed.timestamp_type is TimestampType.LOG_APPEND_TIME
        assert placed.timestamp_ms > NOON_MS
        [record] = await read_all(broker, "t", 1)
    assert record.timestamp_ms == placed.timestamp_ms


async def test_a_refused_record_says_why_and_the_next_ones_go_on(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path, log_message_timestamp_before_max_ms="1000") as broker,
        Producer(broker.bootstrap) as producer,
    ):
        old = await producer.send("t", b"old", timestamp_ms=NOON_MS)
        with pytest.raises(BrokerRefused, match=r"t-0: INVALID_TIMESTAMP.*milliseconds"):
            await old
        assert (await producer.send_and_wait("t", b"new")).offset == 0


async def test_flush_reports_a_failure_that_was_not_awaited(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path, message_max_bytes="1000") as broker,
        Producer(broker.bootstrap) as producer,
    ):
        await producer.send("t", b"x" * 5000)
        with pytest.raises(BrokerRefused) as caught:
            await producer.flush()
        await producer.flush()
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


async def test_memory_is_bounded_and_sending_waits_for_room(broker: RunningBroker) -> None:
    async with Producer(broker.bootstrap, buffer_bytes=3000, batch_bytes=1000) as producer:
        for _ in range(200):
            await producer.send("t", b"x" * 100)
            assert producer._buffered_bytes <= 3000
    assert len(await read_all(broker, "t", 200)) == 200


async def test_a_timestamp_in_seconds_is_refused_before_it_is_sent(broker: RunningBroker) -> None:
    async with Producer(broker.bootstrap) as producer:
        with pytest.raises(InvalidUse, match=r"looks like seconds.*write 1372953600000"):
            await producer.send("t", b"a", timestamp_ms=NOON_MS // 1000)


async def test_a_bad_partition_is_refused_with_the_range(broker: RunningBroker) -> None:
    async with Producer(broker.bootstrap) as producer:
        with pytest.raises(InvalidUse, match="t has no partition 3: it has 0 to 0"):
            await producer.send("t", b"a", partition=3)


async def test_a_partition_that_was_added_is_written_to_at_once(broker: RunningBroker) -> None:
    async with Producer(broker.bootstrap) as producer, Admin(broker.bootstrap) as admin:
        await producer.send_and_wait("t", b"a", partition=0)
        await admin.create_partitions("t", 3)
        assert (await producer.send_and_wait("t", b"b", partition=2)).partition == 2


async def test_a_port_without_listener_is_reported_at_once() -> None:
    with pytest.raises(
        BrokerUnreachable, match=r"127.0.0.1:1 \(PLAINTEXT\): nothing listens there"
    ):
        async with Producer("127.0.0.1:1"):
            pass


@pytest.mark.parametrize(
    "options", [{"acks": 2}, {"compression": "rar"}, {"acks": 1, "idempotent": True}]
)
def test_impossible_options_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(InvalidUse):
        Producer("h:1", **options)  # type: ignore[arg-type]


async def test_a_broker_that_restarts_loses_and_repeats_nothing(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as first:
        port = first.port
        producer = Producer(first.bootstrap, linger_ms=0, batch_bytes=200)
        await producer.start()
        for n in range(50):
            await producer.send("t", str(n).encode())
    for n in range(50, 100):
        await producer.send("t", str(n).encode())
    async with running_broker(tmp_path, listeners=f"PLAINTEXT://127.0.0.1:{port}") as second:
        await producer.close()
        records = await read_all(second, "t", 100)
    assert [int(record.value or b"") for record in records] == list(range(100))
    assert {record.topic_partition for record in records} == {TopicPartition("t", 0)}
