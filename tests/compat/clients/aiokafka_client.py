"""aiokafka, 0.7.2 and newest (see README.md)."""

# mypy: ignore-errors
# It runs under other interpreters and with other releases of its library than mypy sees.

from __future__ import annotations

import asyncio
import time

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener
from aiokafka.abc import AbstractTokenProvider
from contract import Arguments, emit, main, text, wants_more

try:
    from aiokafka import TopicPartition
except ImportError:  # aiokafka before 0.8 borrowed it
    from kafka import TopicPartition


def _security(arguments: Arguments) -> dict:
    options = arguments.python_security
    if "token" in arguments:

        class TokenFile(AbstractTokenProvider):
            async def token(self) -> str:
                return arguments.token()

        options["sasl_oauth_token_provider"] = TokenFile()
    return options


async def produce(arguments: Arguments) -> None:
    codec = None if arguments.codec == "none" else arguments.codec
    producer = AIOKafkaProducer(
        bootstrap_servers=arguments["bootstrap"],
        acks="all",
        compression_type=codec,
        linger_ms=20,
        **_security(arguments),
    )
    await producer.start()
    try:
        futures = []
        for i in range(arguments.count):
            partition, timestamp, key, value, headers = arguments.record(i)
            futures.append(
                await producer.send(
                    arguments["topic"],
                    value,
                    key,
                    partition=partition,
                    timestamp_ms=timestamp,
                    headers=headers,
                )
            )
        await asyncio.wait_for(asyncio.gather(*futures), arguments.timeout_s)
    finally:
        await producer.stop()
    emit(acked=len(futures))


class _Listener(ConsumerRebalanceListener):
    async def on_partitions_revoked(self, revoked: set) -> None:
        """Nothing is committed on the way out: the judge reads what was delivered."""

    async def on_partitions_assigned(self, assigned: set) -> None:
        emit(assigned=sorted(part.partition for part in assigned))


def _consumer(arguments: Arguments) -> AIOKafkaConsumer:
    options = {}
    if "isolation" in arguments:
        options["isolation_level"] = arguments["isolation"]
    return AIOKafkaConsumer(
        bootstrap_servers=arguments["bootstrap"],
        group_id=arguments.get("group"),
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=6000,
        heartbeat_interval_ms=1000,
        metadata_max_age_ms=2000,
        **_security(arguments),
        **options,
    )


async def consume(arguments: Arguments) -> None:
    consumer = _consumer(arguments)
    consumer.subscribe([arguments["topic"]], listener=_Listener())
    await consumer.start()
    records = []
    positions = {}
    started = time.monotonic()
    try:
        while wants_more(arguments, len(records), started):
            limit = 500 if "stop" in arguments else arguments.count - len(records)
            for part, batch in (await consumer.getmany(timeout_ms=200, max_records=limit)).items():
                positions[part] = batch[-1].offset + 1
                records += [_row(record) for record in batch]
        held = {part: offset for part, offset in positions.items() if part in consumer.assignment()}
        if held:
            await consumer.commit(held)
    finally:
        await consumer.stop()
    emit(records=records)


def _row(record: object) -> list:
    place = [record.partition, record.offset, record.timestamp]
    return [*place, text(record.key), text(record.value)]


async def times(arguments: Arguments) -> None:
    consumer = _consumer(arguments)
    await consumer.start()
    found = {}
    try:
        for timestamp in arguments.timestamps:
            asked = {
                TopicPartition(arguments["topic"], partition): timestamp
                for partition in range(arguments.partitions)
            }
            answers = await consumer.offsets_for_times(asked)
            found[timestamp] = {
                part.partition: answer.offset if answer is not None else None
                for part, answer in answers.items()
            }
    finally:
        await consumer.stop()
    emit(found=found)


async def admin(arguments: Arguments) -> None:
    from aiokafka.admin import AIOKafkaAdminClient, NewTopic
    from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

    client = AIOKafkaAdminClient(bootstrap_servers=arguments["bootstrap"])
    await client.start()
    topic = arguments["topic"]
    try:
        await client.create_topics(
            [NewTopic(topic, 3, 1, topic_configs={"retention.ms": "3600000"})]
        )
        described = await client.describe_topics([topic])
        answers = await client.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
        entries = {entry[0]: entry[1] for entry in answers[0].resources[0][4]}
        await client.delete_topics([topic])
        gone = False
        for _ in range(50):
            gone = topic not in await client.list_topics()
            if gone:
                break
            await asyncio.sleep(0.1)
    finally:
        await client.close()
    emit(partitions=len(described[0]["partitions"]), config=entries["retention.ms"], deleted=gone)


async def transact(arguments: Arguments) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=arguments["bootstrap"], transactional_id=arguments["id"]
    )
    await producer.start()
    try:
        for prefix, first in (("committed", 0), ("aborted", 0), ("committed", 10)):
            await producer.begin_transaction()
            for i in range(first, first + 10):
                value = f"{prefix}-{i}".encode()
                await producer.send_and_wait(
                    arguments["topic"], value, partition=i % arguments.partitions
                )
            if prefix == "committed":
                await producer.commit_transaction()
            else:
                await producer.abort_transaction()
    finally:
        await producer.stop()
    emit(committed=20, aborted=10)


def _run(scenario: object) -> object:
    return lambda arguments: asyncio.run(scenario(arguments))


if __name__ == "__main__":
    main(
        {
            "produce": _run(produce),
            "consume": _run(consume),
            "member": _run(consume),
            "times": _run(times),
            "admin": _run(admin),
            "transact": _run(transact),
        }
    )
