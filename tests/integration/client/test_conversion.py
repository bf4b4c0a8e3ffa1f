"""Serializers and deserializers: with and without a registry, and what a bad value costs."""

import asyncio
from typing import Any

import pytest

from tests.support.broker import RunningBroker
from tests.support.schema_registry import FakeRegistry, fake_registry
from tidelog import (
    Admin,
    BadSchema,
    BadValue,
    ClientError,
    Consumer,
    ConsumerRecord,
    InvalidType,
    InvalidUse,
    NoSuchSchema,
    Producer,
    RegistryUnreachable,
    TopicPartition,
)
from tidelog.serde import (
    AvroSerializer,
    JsonSerializer,
    ProtobufSerializer,
    SchemaDeserializer,
    json_deserializer,
    json_serializer,
    text_deserializer,
    text_serializer,
)

FLIGHT = {
    "type": "record",
    "name": "Flight",
    "fields": [{"name": "tail", "type": "string"}, {"name": "delay", "type": "int"}],
}
LATER = {**FLIGHT, "fields": [*FLIGHT["fields"], {"name": "gate", "type": "int", "default": 7}]}


async def take(consumer: Consumer[Any, Any], count: int) -> list[ConsumerRecord[Any, Any]]:
    records: list[ConsumerRecord[Any, Any]] = []
    async with asyncio.timeout(60):
        while len(records) < count:
            for found in (await consumer.getmany(max_records=count - len(records))).values():
                records += found
    return records


async def test_text_and_json(broker: RunningBroker) -> None:
    async with Producer(
        broker.bootstrap, key_serializer=text_serializer, value_serializer=json_serializer
    ) as producer:
        await producer.send("t", {"delay": 5, "to": "Zürich"}, key="N1")
        await producer.send("t", None, key="N1")
        with pytest.raises(BadValue, match="the key cannot be serialized: TypeError: 5 is int"):
            await producer.send("t", {}, key=5)  # type: ignore[arg-type]
        with pytest.raises(BadValue, match="the value cannot be serialized"):
            await producer.send("t", {"delay": float("nan")})
        with pytest.raises(BadValue, match="not JSON serializable"):
            await producer.send("t", object())
    async with Consumer(
        "t",
        bootstrap=broker.bootstrap,
        start="earliest",
        key_deserializer=text_deserializer,
        value_deserializer=json_deserializer,
    ) as consumer:
        first, second = await take(consumer, 2)
    assert (first.key, first.value) == ("N1", {"delay": 5, "to": "Zürich"})
    assert (second.key, second.value) == ("N1", None)


async def test_a_serializer_that_returns_no_bytes_is_named(broker: RunningBroker) -> None:
    async with Producer(broker.bootstrap, value_serializer=str) as producer:  # type: ignore[arg-type]
        with pytest.raises(InvalidType, match="value"):
            await producer.send("t", 5)  # type: ignore[arg-type]
    with pytest.raises(InvalidType, match="value_serializer='json' cannot be called"):
        Producer(broker.bootstrap, value_serializer="json")  # type: ignore[arg-type]
    with pytest.raises(InvalidType, match="key_deserializer=5 cannot be called"):
        Consumer("t", bootstrap=broker.bootstrap, key_deserializer=5)  # type: ignore[arg-type]


async def bad_in_the_middle(broker: RunningBroker) -> None:
    async with Producer(broker.bootstrap) as producer:
        for value in (b"0", b"1", b"no number", b"3", b"4"):
            await producer.send("t", value)


async def test_a_poll_ends_before_a_bad_value_and_the_next_one_names_it(
    broker: RunningBroker,
) -> None:
    await bad_in_the_middle(broker)
    async with Consumer(
        "t", bootstrap=broker.bootstrap, start="earliest", value_deserializer=int
    ) as consumer:
        assert [record.value for record in await take(consumer, 2)] == [0, 1]
        with pytest.raises(BadValue, match="offset 2 of t-0 cannot be deserialized") as caught:
            await take(consumer, 1)
        assert caught.value.record is not None
        assert caught.value.record.value == b"no number"
        assert isinstance(caught.value, ClientError)
        assert consumer.position(TopicPartition("t", 0)) == 3
        assert [record.value for record in await take(consumer, 2)] == [3, 4]


async def test_a_loop_over_records_continues_after_a_bad_value(broker: RunningBroker) -> None:
    await bad_in_the_middle(broker)
    good: list[int | None] = []
    bad: list[ConsumerRecord | None] = []
    async with Consumer(
        "t", bootstrap=broker.bootstrap, start="earliest", value_deserializer=int
    ) as consumer:
        async with asyncio.timeout(60):
            while len(good) < 4:
                try:
                    good.append((await anext(consumer)).value)
                except BadValue as error:
                    bad.append(error.record)
    assert good == [0, 1, 3, 4]
    assert [record.offset for record in bad if record is not None] == [2]


async def test_a_bad_value_counts_as_read_for_auto_commit(broker: RunningBroker) -> None:
    await bad_in_the_middle(broker)
    async with Consumer(
        "t", bootstrap=broker.bootstrap, group_id="g", start="earliest", value_deserializer=int
    ) as consumer:
        assert len(await take(consumer, 2)) == 2
        with pytest.raises(BadValue):
            await take(consumer, 1)
    async with Consumer(
        "t", bootstrap=broker.bootstrap, group_id="g", start="earliest"
    ) as consumer:
        assert [record.offset for record in await take(consumer, 2)] == [3, 4]


async def test_several_partitions_lose_nothing_to_a_bad_value(broker: RunningBroker) -> None:
    async with Admin(broker.bootstrap) as admin:
        await admin.create_topic("many", partitions=3)
    async with Producer(broker.bootstrap) as producer:
        for n in range(60):
            value = b"bad" if n in (0, 20, 31, 59) else b"%d" % n
            await producer.send("many", value, partition=n % 3)
    good: list[int | None] = []
    bad = 0
    async with Consumer(
        "many", bootstrap=broker.bootstrap, start="earliest", value_deserializer=int
    ) as consumer:
        async with asyncio.timeout(60):
            while len(good) + bad < 60:
                try:
                    for records in (await consumer.getmany(max_records=7)).values():
                        good += [record.value for record in records]
                except BadValue:
                    bad += 1
    assert bad == 4
    assert sorted(n for n in good if n is not None) == [
        n for n in range(60) if n not in (0, 20, 31, 59)
    ]


async def test_avro_with_a_registry(broker: RunningBroker) -> None:
    with fake_registry() as registry:
        writer = AvroSerializer(registry.url, "t-value", FLIGHT)
        async with Producer(broker.bootstrap, value_serializer=writer) as producer:
            for delay in (5, 6):
                await producer.send("t", {"tail": "N1", "delay": delay})
            with pytest.raises(BadValue, match="the value cannot be serialized"):
                await producer.send("t", {"tail": 5})
        reader = SchemaDeserializer(registry.url, schema=LATER)
        async with Consumer(
            "t", bootstrap=broker.bootstrap, start="earliest", value_deserializer=reader
        ) as consumer:
            found = [record.value for record in await take(consumer, 2)]
        assert found == [{"tail": "N1", "delay": delay, "gate": 7} for delay in (5, 6)]
        asked = [one for one in registry.asked if "/schemas/ids/" in one]
        assert len(asked) == 1


async def test_the_latest_schema_of_a_subject_is_used(broker: RunningBroker) -> None:
    with fake_registry() as registry:
        writer = AvroSerializer(registry.url, "t-value")
        async with Producer(broker.bootstrap, value_serializer=writer) as producer:
            with pytest.raises(NoSuchSchema):
                await producer.send("t", {"tail": "N1", "delay": 1})
            registry.register("t-value", FLIGHT)
            await producer.send("t", {"tail": "N1", "delay": 1})
            with pytest.raises(BadSchema, match="t-value is AVRO, not JSON"):
                JsonSerializer(registry.url, "t-value")({})


async def test_json_and_protobuf_with_a_registry(broker: RunningBroker) -> None:
    from google.protobuf.wrappers_pb2 import Int32Value, StringValue

    with fake_registry() as registry:
        async with Producer(
            broker.bootstrap,
            key_serializer=JsonSerializer(registry.url, "t-key", {"type": "object"}),
            value_serializer=ProtobufSerializer(registry.url, "t-value", StringValue),
        ) as producer:
            await producer.send("t", StringValue(value="wind"), key={"id": 1})
            with pytest.raises(BadValue, match=r"it is a google.protobuf.Int32Value, not a"):
                await producer.send("t", Int32Value(value=5), key={"id": 1})
        for message_type in (None, StringValue):
            reader = SchemaDeserializer(registry.url, message_type=message_type)
            async with Consumer(
                "t",
                bootstrap=broker.bootstrap,
                start="earliest",
                key_deserializer=SchemaDeserializer(registry.url),
                value_deserializer=reader,
            ) as consumer:
                (record,) = await take(consumer, 1)
            assert record.key == {"id": 1}
            assert getattr(record.value, "value", None) == "wind"
        framed = ProtobufSerializer(registry.url, "t-value", StringValue)(StringValue(value="wind"))
        reader = SchemaDeserializer(registry.url, message_type=StringValue)
        assert type(reader(framed)) is StringValue
        for either in (reader, SchemaDeserializer(registry.url)):
            with pytest.raises(BadValue, match="DecodeError"):
                either(framed[:-1])


async def test_bytes_of_another_kind_are_bad_values(broker: RunningBroker) -> None:
    with fake_registry() as registry:
        async with Producer(broker.bootstrap) as producer:
            await producer.send("t", b"no frame")
            await producer.send("t", b"\0\0\0\0\x63body")
        reader = SchemaDeserializer(registry.url)
        async with Consumer(
            "t", bootstrap=broker.bootstrap, start="earliest", value_deserializer=reader
        ) as consumer:
            with pytest.raises(BadValue, match="it names no schema"):
                await take(consumer, 1)
            with pytest.raises(BadValue, match="Schema not found"):
                await take(consumer, 1)
            assert await consumer.getmany(timeout_ms=0) == {}


async def test_a_registry_that_is_away_loses_no_record(broker: RunningBroker) -> None:
    with fake_registry() as registry:
        registry.register("t-value", FLIGHT)
        async with Producer(
            broker.bootstrap, value_serializer=AvroSerializer(registry.url, "t-value")
        ) as producer:
            await producer.send("t", {"tail": "N1", "delay": 1})
            await producer.send("t", {"tail": "N1", "delay": 2})
        registry.fails_with = 503
        reader = SchemaDeserializer(registry.url)
        async with Consumer(
            "t", bootstrap=broker.bootstrap, start="earliest", value_deserializer=reader
        ) as consumer:
            for _ in range(2):
                with pytest.raises(RegistryUnreachable):
                    await take(consumer, 1)
            with pytest.raises(RegistryUnreachable):
                await anext(consumer)
            registry.fails_with = 0
            assert [(record.value or {})["delay"] for record in await take(consumer, 2)] == [1, 2]


class SlowRegistry(SchemaDeserializer):
    """Waits until the test lets it ask."""

    def prepare(self, value: Any) -> None:
        import time

        while not self.may_ask:
            time.sleep(0.01)
        super().prepare(value)

    may_ask = False


async def test_a_cancelled_poll_loses_no_record(broker: RunningBroker) -> None:
    with fake_registry() as registry:
        await one_flight(broker, registry)
        reader = SlowRegistry(registry.url)
        async with Consumer(
            "t", bootstrap=broker.bootstrap, start="earliest", value_deserializer=reader
        ) as consumer:
            polling = asyncio.create_task(consumer.getmany(timeout_ms=60_000))
            while consumer.position(TopicPartition("t", 0)) != 1:
                await asyncio.sleep(0.01)
            polling.cancel()
            with pytest.raises(asyncio.CancelledError):
                await polling
            assert consumer.position(TopicPartition("t", 0)) == 0
            reader.may_ask = True
            assert [(record.value or {})["delay"] for record in await take(consumer, 1)] == [1]


async def test_a_seek_while_the_registry_is_asked_counts(broker: RunningBroker) -> None:
    with fake_registry() as registry:
        await one_flight(broker, registry)
        reader = SlowRegistry(registry.url)
        async with Consumer(
            "t", bootstrap=broker.bootstrap, start="earliest", value_deserializer=reader
        ) as consumer:
            polling = asyncio.create_task(consumer.getmany(timeout_ms=1000))
            while consumer.position(TopicPartition("t", 0)) != 1:
                await asyncio.sleep(0.01)
            consumer.seek(TopicPartition("t", 0), 1)
            reader.may_ask = True
            assert await polling == {}
            assert consumer.position(TopicPartition("t", 0)) == 1


async def one_flight(broker: RunningBroker, registry: FakeRegistry) -> None:
    writer = AvroSerializer(registry.url, "t-value", FLIGHT)
    async with Producer(broker.bootstrap, value_serializer=writer) as producer:
        await producer.send("t", {"tail": "N1", "delay": 1})


def test_what_is_no_registry_or_schema_is_refused_at_once() -> None:
    with pytest.raises(InvalidUse, match="write http://"):
        SchemaDeserializer("registry:8081")
    with pytest.raises(InvalidType, match="registry=5"):
        SchemaDeserializer(5)  # type: ignore[arg-type]
    with pytest.raises(BadSchema):
        AvroSerializer("http://127.0.0.1:1", "s", {"type": "nonsense"})
    with pytest.raises(InvalidType, match="no generated class"):
        ProtobufSerializer("http://127.0.0.1:1", "s", dict)
    with pytest.raises(InvalidUse, match="subject is empty"):
        AvroSerializer("http://127.0.0.1:1", "", FLIGHT)
