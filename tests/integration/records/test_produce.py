"""Produce: what is stored, when it is acknowledged, and how each refusal looks on the wire."""

import asyncio
from pathlib import Path

import pytest

from protocol.api.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from protocol.error_codes import ErrorCode
from protocol.records.builder import build_message_set
from protocol.records.layout import Codec
from protocol.records.record import Record
from tests.support.broker import RawClient, RunningBroker, batch, running_broker
from tests.support.requests import (
    FETCH_VERSION,
    create_topic,
    fetch,
    fetch_request,
    produce,
    produce_request,
    values_of,
)


@pytest.mark.parametrize("version", range(3, 12))
@pytest.mark.parametrize("acks", [-1, 1])
async def test_batch_is_stored_and_acknowledged(client: RawClient, version: int, acks: int) -> None:
    await create_topic(client, "t")
    answer = await produce(client, "t", batch("a", "b"), version=version, acks=acks)
    assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 0)
    assert answer.log_append_time_ms == -1
    answer = await produce(client, "t", batch("c"), version=version, acks=-1)
    assert answer.base_offset == 2
    assert values_of(await fetch(client, "t")) == [b"a", b"b", b"c"]


@pytest.mark.parametrize(("version", "magic"), [(0, 0), (1, 0), (2, 0), (2, 1)])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
async def test_old_message_sets_are_stored_as_v2(
    client: RawClient, version: int, magic: int, codec: Codec
) -> None:
    await create_topic(client, "t")
    records = [Record(i, 5, b"k", f"v{i}".encode(), ()) for i in range(3)]
    answer = await produce(client, "t", build_message_set(records, magic, codec), version=version)
    assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 0)
    data = await fetch(client, "t")
    assert values_of(data) == [b"v0", b"v1", b"v2"]
    assert data.records is not None
    assert data.records[16] == 2


async def test_acks_0_has_no_answer(client: RawClient) -> None:
    await create_topic(client, "t")
    client.send(produce_request("t", batch("a"), acks=0), 9)
    client.forget_last()
    answer = await produce(client, "t", batch("b"))
    assert answer.base_offset == 1


async def test_acks_0_closes_on_error(broker: RunningBroker) -> None:
    client = await broker.client()
    client.send(produce_request("missing", batch("a"), acks=0), 9)
    assert await client.is_closed_by_broker()


@pytest.mark.parametrize("acks", [2, -2, 100])
async def test_unknown_acks_are_refused(client: RawClient, acks: int) -> None:
    await create_topic(client, "t")
    answer = await produce(client, "t", batch("a"), acks=acks)
    assert (answer.error_code, answer.base_offset) == (ErrorCode.INVALID_REQUIRED_ACKS, -1)
    assert values_of(await fetch(client, "t")) == []


@pytest.mark.parametrize(("topic", "partition"), [("missing", 0), ("t", 1), ("t", -1)])
async def test_unknown_partition_is_refused(client: RawClient, topic: str, partition: int) -> None:
    await create_topic(client, "t")
    answer = await produce(client, topic, batch("a"), partition=partition)
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (answer.base_offset, answer.log_append_time_ms, answer.log_start_offset) == (-1, -1, -1)


async def test_internal_topic_is_refused(client: RawClient) -> None:
    answer = await produce(client, "__consumer_offsets", batch("a"))
    assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_partitions_stand_alone(client: RawClient) -> None:
    await create_topic(client, "t", partitions=3)
    corrupt = bytearray(batch("b"))
    corrupt[-1] ^= 1
    request = ProduceRequest(
        acks=-1,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(
                name="t",
                partition_data=[
                    PartitionProduceData(index=0, records=batch("a")),
                    PartitionProduceData(index=1, records=bytes(corrupt)),
                    PartitionProduceData(index=2, records=batch("c")),
                ],
            )
        ],
    )
    response = await client.request(request, 9)
    answers = response.responses[0].partition_responses
    assert [(a.index, a.error_code) for a in answers] == [(0, 0), (1, 2), (2, 0)]


@pytest.mark.parametrize("version", [8, 11])
async def test_every_bad_timestamp_is_named(client: RawClient, version: int) -> None:
    await create_topic(client, "t", message_timestamp_before_max_ms="1000")
    answer = await produce(client, "t", batch("a", "b", timestamp=5), version=version)
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in answer.record_errors] == [0, 1]
    assert answer.error_message
    assert answer.log_start_offset == 0


async def test_log_append_time_is_answered(client: RawClient, broker: RunningBroker) -> None:
    await create_topic(client, "t", message_timestamp_type="LogAppendTime")
    before_ms = broker.broker.clock.wall_ms()
    answer = await produce(client, "t", batch("a", timestamp=5))
    assert before_ms <= answer.log_append_time_ms <= broker.broker.clock.wall_ms()


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (None, ErrorCode.INVALID_RECORD),
        (b"", ErrorCode.INVALID_RECORD),
        (batch("a") + batch("b"), ErrorCode.INVALID_RECORD),
        (batch("a", base_offset=5), ErrorCode.INVALID_RECORD),
        (batch("a", is_control=True), ErrorCode.INVALID_RECORD),
        (build_message_set([Record(0, 5, None, b"v", ())], 1), ErrorCode.INVALID_RECORD),
        (batch(b"x" * 1_048_577), ErrorCode.MESSAGE_TOO_LARGE),
    ],
    ids=["null", "empty", "two batches", "base offset", "control", "magic 1", "too large"],
)
async def test_wrong_structure_is_refused(
    client: RawClient, records: bytes | None, code: ErrorCode
) -> None:
    await create_topic(client, "t")
    answer = await produce(client, "t", records)
    assert answer.error_code == code
    assert answer.record_errors == []
    assert values_of(await fetch(client, "t")) == []


async def test_zstd_before_version_7_is_refused(client: RawClient) -> None:
    await create_topic(client, "t")
    records = batch("a", codec=Codec.ZSTD)
    assert (await produce(client, "t", records, version=6)).error_code == 76
    assert (await produce(client, "t", records, version=7)).error_code == 0


async def test_resent_idempotent_batch_gets_its_first_offset(client: RawClient) -> None:
    await create_topic(client, "t")
    fields = {"producer_id": 7, "producer_epoch": 0}
    first = batch("a", "b", base_sequence=0, **fields)
    assert (await produce(client, "t", first)).base_offset == 0
    assert (await produce(client, "t", batch("c", base_sequence=2, **fields))).base_offset == 2
    again = await produce(client, "t", first)
    assert (again.error_code, again.base_offset) == (ErrorCode.NONE, 0)
    gap = await produce(client, "t", batch("d", base_sequence=9, **fields))
    assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert values_of(await fetch(client, "t")) == [b"a", b"b", b"c"]


async def test_pipelined_requests_are_answered_in_order(client: RawClient) -> None:
    await create_topic(client, "t")
    for index in range(50):
        client.send(produce_request("t", batch(str(index))), 9)
    offsets = [
        (await client.receive()).responses[0].partition_responses[0].base_offset for _ in range(50)
    ]
    assert offsets == list(range(50))


async def test_acks_of_many_connections_share_syncs(broker: RunningBroker) -> None:
    client = await broker.client()
    await create_topic(client, "t")
    clients = [await broker.client() for _ in range(20)]
    await asyncio.gather(*(produce(c, "t", batch("x")) for c in clients for _ in range(1)))
    commits = broker.broker.metrics.commits
    assert commits.acks_completed >= 20
    assert sum(commits.latency_ns.counts) < 20 + 10


async def test_what_ends_with_an_append_does_not_disturb_its_answers(
    broker: RunningBroker,
) -> None:
    """Another client's Fetch ends with the append, and the Produce after it runs at once."""
    writer, other = await broker.client(), await broker.client()
    for topic, policy in (("synced", "batch"), ("cached", "os")):
        await create_topic(writer, topic, flush_policy=policy)
        await produce(writer, topic, batch("first"))
    other.send(fetch_request("cached", 1, max_wait_ms=9_000), FETCH_VERSION)
    while not len(broker.broker.fetch_waiters):
        await asyncio.sleep(0.01)
    other.send(produce_request("cached", batch("other's")), 9)
    await asyncio.sleep(0.1)
    for topic in ("synced", "cached"):
        writer.send(produce_request(topic, batch("second")), 9)
    for _ in range(2):
        (answer,) = (await writer.receive()).responses[0].partition_responses
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 1)
    assert values_of((await other.receive()).responses[0].partitions[0])[0] == b"second"
    (answer,) = (await other.receive()).responses[0].partition_responses
    assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 2)


async def test_acknowledged_batch_is_visible(client: RawClient) -> None:
    await create_topic(client, "t")
    await produce(client, "t", batch("a"))
    assert (await fetch(client, "t")).high_watermark == 1


@pytest.mark.parametrize("policy", ["batch", "os"])
async def test_acknowledged_batch_survives_a_restart(tmp_path: Path, policy: str) -> None:
    async with running_broker(tmp_path) as first:
        client = await first.client()
        await create_topic(client, "t", flush_policy=policy)
        await produce(client, "t", batch("a", "b"))
    async with running_broker(tmp_path) as second:
        client = await second.client()
        assert values_of(await fetch(client, "t")) == [b"a", b"b"]
        assert (await produce(client, "t", batch("c"))).base_offset == 2
