"""Requests that name very much are walked in steps, and large reads take turns.

Handlers are driven by hand, so what is asserted are steps and answers, never times.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import GeneratorType
from typing import Any

import pytest

from broker.handlers import handler_of
from broker.handlers.create_topics import TOPICS_AT_ONCE
from broker.replies.pending import Pending
from broker.replies.turns import NEXT_TURN, ROUND_READ_BYTES
from broker.requests.context import Context, RequestContext
from protocol.api.add_partitions_to_txn import AddPartitionsToTxnRequest
from protocol.api.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.api.delete_groups import DeleteGroupsRequest
from protocol.api.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from protocol.api.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.api.elect_leaders import ElectLeadersRequest
from protocol.api.end_txn import EndTxnRequest
from protocol.api.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from protocol.api.init_producer_id import InitProducerIdRequest
from protocol.api.leave_group import LeaveGroupRequest, MemberIdentity
from protocol.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from protocol.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.api.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestTopic
from protocol.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from protocol.api.write_txn_markers import WritableTxnMarker, WriteTxnMarkersRequest
from protocol.declare.primitives import message_spec
from protocol.error_codes import ErrorCode
from protocol.records.builder import build_batch
from protocol.records.layout import Codec
from protocol.records.record import Record
from protocol.structs import NamedIndexes, PartitionIndex, PartitionIndexes, TopicIndexes
from storage.disk.steps import OffLoop
from storage.log.log import Log
from tests.support.broker import RunningBroker, batch, running_broker
from tests.support.requests import create_topic, produce_request, values_of

TOPIC = "t"
MANY = 8_000
STEPS_MIN = MANY // 1_024
"""So that no step handles more than a thousand of them."""

READ_UNKNOWN = 9
"""An isolation level that does not exist."""

INDEXES = range(5, 5 + MANY)
"""Partitions that do not exist."""


def _produced(acks: int) -> ProduceRequest:
    data = [PartitionProduceData(index=index, records=b"") for index in INDEXES]
    topics = [TopicProduceData(name=TOPIC, partition_data=data)]
    return ProduceRequest(acks=acks, timeout_ms=1, topic_data=topics)


def _fetched(isolation_level: int = 0) -> FetchRequest:
    asked = [FetchPartition(partition=index, partition_max_bytes=1) for index in INDEXES]
    return FetchRequest(
        max_bytes=1_000,
        session_epoch=-1,
        isolation_level=isolation_level,
        topics=[FetchTopic(topic=TOPIC, partitions=asked)],
    )


def _looked_up() -> ListOffsetsRequest:
    asked = [ListOffsetsPartition(partition_index=index, timestamp=1) for index in INDEXES]
    topics = [ListOffsetsTopic(name=TOPIC, partitions=asked)]
    return ListOffsetsRequest(replica_id=-1, isolation_level=READ_UNKNOWN, topics=topics)


def _elected() -> ElectLeadersRequest:
    asked = [TopicIndexes(topic=TOPIC, partitions=list(INDEXES))]
    return ElectLeadersRequest(election_type=7, timeout_ms=1, topic_partitions=asked)


def _committed() -> OffsetCommitRequest:
    asked = [OffsetCommitRequestPartition(partition_index=index) for index in INDEXES]
    topics = [OffsetCommitRequestTopic(name=TOPIC, partitions=asked)]
    return OffsetCommitRequest(group_id="g", topics=topics)


def _txn_committed() -> TxnOffsetCommitRequest:
    asked = [TxnOffsetCommitRequestPartition(partition_index=index) for index in INDEXES]
    topics = [TxnOffsetCommitRequestTopic(name=TOPIC, partitions=asked)]
    return TxnOffsetCommitRequest(transactional_id="x", group_id="g", topics=topics)


def _added() -> AddPartitionsToTxnRequest:
    topics = [NamedIndexes(name=TOPIC, partitions=list(INDEXES))]
    return AddPartitionsToTxnRequest(v3_and_below_topics=topics)


def _offsets_deleted() -> OffsetDeleteRequest:
    asked = [PartitionIndex(partition_index=index) for index in INDEXES]
    topics = [OffsetDeleteRequestTopic(name=TOPIC, partitions=asked)]
    return OffsetDeleteRequest(group_id="g", topics=topics)


def _marked() -> WriteTxnMarkersRequest:
    topics = [PartitionIndexes(name=TOPIC, partition_indexes=list(INDEXES))]
    return WriteTxnMarkersRequest(
        markers=[WritableTxnMarker(producer_id=1, producer_epoch=1, topics=topics)]
    )


def _left() -> LeaveGroupRequest:
    members = [MemberIdentity(member_id=f"m{index}") for index in INDEXES]
    return LeaveGroupRequest(group_id="g", members=members)


def _records_deleted() -> DeleteRecordsRequest:
    asked = [DeleteRecordsPartition(partition_index=index) for index in INDEXES]
    return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=TOPIC, partitions=asked)])


WALKS: dict[str, tuple[Callable[[], Any], int]] = {
    # The request, and its version.
    "Produce": (lambda: _produced(1), 11),
    "Produce, refused": (lambda: _produced(7), 11),
    "Fetch": (_fetched, 12),
    "Fetch, refused": (lambda: _fetched(READ_UNKNOWN), 12),
    "ListOffsets, refused": (_looked_up, 7),
    "ElectLeaders, refused": (_elected, 2),
    "OffsetCommit": (_committed, 8),
    "TxnOffsetCommit": (_txn_committed, 3),
    "AddPartitionsToTxn": (_added, 3),
    "OffsetDelete": (_offsets_deleted, 0),
    "DeleteGroups": (lambda: DeleteGroupsRequest(groups_names=[f"{n}" for n in INDEXES]), 2),
    "DeleteRecords": (_records_deleted, 2),
    "WriteTxnMarkers": (_marked, 1),
    "LeaveGroup": (_left, 4),
}


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[RunningBroker]:
    async with running_broker(tmp_path) as broker:
        await create_topic(await broker.client(), TOPIC)
        yield broker


def context_of(broker: RunningBroker) -> Context:
    return next(iter(broker.broker._dispatchers.values())).context


def call(broker: RunningBroker, message: Any, version: int) -> Any:
    """What the handler returns at once: a reply or steps."""
    key = message_spec(type(message)).api_key
    request = RequestContext(key, version, 1, "test", "127.0.0.1", 1)
    return handler_of(key)(context_of(broker), request, message)


async def durable(running: RunningBroker, log: Log, next_offset: int) -> None:
    """Wait until the records below `next_offset` are on disk."""
    done: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    context_of(running).group_commit.when_durable(log, next_offset, done.set_result)
    await done


def run(steps: Any) -> tuple[Any, list[Any]]:
    """The reply, and what was yielded on the way."""
    yielded: list[Any] = []
    while True:
        try:
            step = next(steps)
        except StopIteration as stop:
            return stop.value, yielded
        yielded.append(step)
        if step is not None:
            step.run()


@pytest.mark.parametrize("name", WALKS)
async def test_list_of_a_client_is_walked_in_steps(running: RunningBroker, name: str) -> None:
    make, version = WALKS[name]
    one = OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
    topics = [OffsetCommitRequestTopic(name=TOPIC, partitions=[one])]
    client = await running.client()
    await client.request(OffsetCommitRequest(group_id="g", topics=topics), 8)
    steps = call(running, make(), version)
    assert type(steps) is GeneratorType
    reply, yielded = run(steps)
    assert len(yielded) >= STEPS_MIN
    if isinstance(reply, Pending):
        assert reply.settled
        reply = reply.result()
    assert _answers(reply) == MANY


def _answers(reply: Any) -> int:
    """How many objects with an error code of their own the reply has."""
    if isinstance(reply, list):
        return sum(map(_answers, reply))
    slots = getattr(type(reply), "__slots__", ())
    inner = sum(_answers(getattr(reply, slot)) for slot in slots)
    return inner or int(any(slot.endswith("error_code") for slot in slots))


def _objects(value: Any) -> int:
    """How many objects are freed with an answer."""
    parts = (
        value
        if isinstance(value, list)
        else [getattr(value, slot) for slot in getattr(type(value), "__slots__", ())]
    )
    return 1 + sum(map(_objects, parts))


async def test_described_settings_are_bytes_and_no_graph(running: RunningBroker) -> None:
    """Freeing hundreds of thousands of objects at once would hold the loop."""
    topics = [DescribeConfigsResource(resource_type=2, resource_name=TOPIC)] + [
        DescribeConfigsResource(resource_type=32, resource_name=f"{index}") for index in INDEXES
    ]
    everything = {"include_synonyms": True, "include_documentation": True}
    reply, yielded = run(call(running, DescribeConfigsRequest(resources=topics, **everything), 4))
    assert len(yielded) == len(reply.results) == len(topics)
    assert _objects(reply) < 2 * len(topics)


@pytest.mark.parametrize("name", ["topic", "no topic!"])
async def test_creations_that_change_nothing_give_way_to_others(
    running: RunningBroker, name: str
) -> None:
    """Whether all of them are only checked or all are refused."""
    many = 500
    topics = [
        CreatableTopic(name=f"{name}{number}", num_partitions=1, replication_factor=1)
        for number in range(many)
    ]
    message = CreateTopicsRequest(topics=topics, timeout_ms=1, validate_only=True)
    creating = call(running, message, 7)
    turns = 0
    while True:
        try:
            creating.send(None)
        except StopIteration as stop:
            reply = stop.value
            break
        turns += 1
    assert turns == many // TOPICS_AT_ONCE
    assert len(reply.topics) == many
    assert _objects(reply) < 60 * many
    shared = {id(each) for topic in reply.topics for each in topic.configs or ()}
    assert len(shared) < 100, "what topics inherit is there once"


async def test_small_requests_need_no_steps(running: RunningBroker) -> None:
    """They cost no more than before there were turns."""
    records = memoryview(bytearray(batch("a", timestamp=7)))
    produced = call(running, produce_request(TOPIC, records, acks=1), 11)
    assert produced.responses[0].partition_responses[0].base_offset == 0
    await durable(running, running.broker.topics.led_log(TOPIC, 0), 1)
    assert _look_up(call(running, _lookup(7), 7)).offset == 0


# --- one change although the checks take turns --------------------------------------------------


async def test_offsets_of_a_topic_deleted_between_steps_are_refused(
    running: RunningBroker,
) -> None:
    await create_topic(await running.client(), "gone")
    kept = OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
    message = _committed()
    message.topics.insert(0, OffsetCommitRequestTopic(name="gone", partitions=[kept]))
    message.topics.append(OffsetCommitRequestTopic(name=TOPIC, partitions=[kept]))
    steps = call(running, message, 8)
    assert next(steps) is None
    await running.broker.topics.delete("gone")
    reply, _ = run(steps)
    while not reply.settled:
        await asyncio.sleep(0.001)
    gone, _, stored = (topic.partitions[0].error_code for topic in reply.result().topics)
    assert (gone, stored) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE)
    assert list(context_of(running).groups.offsets.table.of_group("g")) == [(TOPIC, 0)]


async def test_partition_named_often_is_committed_and_deleted_once(running: RunningBroker) -> None:
    """The last offset counts, and there is one record of it."""
    client = await running.client()
    asked = [
        OffsetCommitRequestPartition(partition_index=0, committed_offset=number)
        for number in range(3_000)
    ]
    topics = [OffsetCommitRequestTopic(name=TOPIC, partitions=asked)]
    response = await client.request(OffsetCommitRequest(group_id="g", topics=topics), 8)
    assert {each.error_code for each in response.topics[0].partitions} == {0}
    assert len(response.topics[0].partitions) == 3_000
    ((tp, stored),) = context_of(running).groups.offsets.table.of_group("g").items()
    assert (tp, stored.offset) == ((TOPIC, 0), 2_999)
    log = running.broker.topics.led_log(*context_of(running).groups.offsets_partition("g"))
    assert log.log_end_offset <= 2, "the offset, and perhaps the group"
    before = log.log_end_offset
    named = [PartitionIndex(partition_index=0)] * 3_000
    deleted = [OffsetDeleteRequestTopic(name=TOPIC, partitions=named)]
    await client.request(OffsetDeleteRequest(group_id="g", topics=deleted), 0)
    assert log.log_end_offset == before + 1


async def test_commit_that_ends_between_the_steps_of_a_fetch(running: RunningBroker) -> None:
    """The record was acknowledged before the fetch came: the answer has it, without waiting."""
    await create_topic(await running.client(), "wide", 20)
    records = memoryview(bytearray(batch("a")))
    call(running, produce_request("wide", records, acks=1), 11)
    asked = [FetchPartition(partition=index, partition_max_bytes=1_000) for index in range(20)]
    topics = [FetchTopic(topic="wide", partitions=asked)]
    steps = call(running, FetchRequest(max_bytes=10_000, session_epoch=-1, topics=topics), 12)
    assert next(steps) is None, "the first partitions are read, the others are not"
    log = running.broker.topics.led_log("wide", 0)
    assert log.high_watermark == 0, "not on disk when it was read"
    await durable(running, log, 1)
    reply, _ = run(steps)
    assert isinstance(reply, FetchResponse)
    assert values_of(reply.responses[0].partitions[0]) == [b"a"]


async def test_transaction_that_ends_while_its_batch_is_examined_aside(
    running: RunningBroker,
) -> None:
    client = await running.client()
    init = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000)
    producer = await client.request(init, 4)
    who: dict[str, Any] = {
        "v3_and_below_transactional_id": "x",
        "v3_and_below_producer_id": producer.producer_id,
        "v3_and_below_producer_epoch": producer.producer_epoch,
    }
    topics = [NamedIndexes(name=TOPIC, partitions=[0])]
    await client.request(AddPartitionsToTxnRequest(v3_and_below_topics=topics, **who), 3)
    large = batch(
        bytes(9_000_000),
        codec=Codec.ZSTD,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=0,
        is_transactional=True,
    )
    message = produce_request(TOPIC, memoryview(bytearray(large)))
    message.transactional_id = "x"
    steps = call(running, message, 11)
    aside = next(steps)
    assert isinstance(aside, OffLoop)
    aside.run()
    end = EndTxnRequest(
        transactional_id="x",
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        committed=False,
    )
    assert (await client.request(end, 3)).error_code == 0
    log = running.broker.topics.led_log(TOPIC, 0)
    for _ in range(500):
        if log.log_end_offset:
            break
        await asyncio.sleep(0.01)
    reply, _ = run(steps)
    assert reply.responses[0].partition_responses[0].error_code != ErrorCode.NONE
    assert log.log_end_offset == 1, "the marker alone"


# --- large reads --------------------------------------------------------------------------------


def _large_fetch() -> FetchRequest:
    asked = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 30)]
    topics = [FetchTopic(topic=TOPIC, partitions=asked)]
    return FetchRequest(max_bytes=1 << 30, session_epoch=-1, topics=topics)


async def _store(running: RunningBroker, size: int) -> None:
    client = await running.client()
    await client.request(produce_request(TOPIC, batch(bytes(size))), 11)


async def test_large_read_of_a_full_round_waits_for_the_next(running: RunningBroker) -> None:
    await _store(running, 900_000)
    turns = context_of(running).turns
    turns.count_read(ROUND_READ_BYTES)
    reply, yielded = run(call(running, _large_fetch(), 12))
    assert NEXT_TURN in yielded
    assert len(reply.responses[0].partitions[0].records) > 900_000
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not turns.is_round_full
    assert NEXT_TURN not in run(call(running, _large_fetch(), 12))[1]


async def test_small_read_of_a_full_round_is_answered_at_once(running: RunningBroker) -> None:
    await _store(running, 100)
    context_of(running).turns.count_read(ROUND_READ_BYTES)
    reply, yielded = run(call(running, _large_fetch(), 12))
    assert yielded == []
    assert len(values_of(reply.responses[0].partitions[0])) == 1


async def test_large_reads_fill_the_round(running: RunningBroker) -> None:
    await _store(running, 900_000)
    for _ in range(ROUND_READ_BYTES // 900_000 + 1):
        run(call(running, _large_fetch(), 12))
    assert context_of(running).turns.is_round_full


# --- a time in a large batch --------------------------------------------------------------------


def _lookup(timestamp: int, count: int = 1) -> ListOffsetsRequest:
    asked = [ListOffsetsPartition(partition_index=0, timestamp=timestamp)] * count
    return ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=TOPIC, partitions=asked)]
    )


def _look_up(reply: Any) -> ListOffsetsPartitionResponse:
    found: ListOffsetsPartitionResponse = reply.topics[0].partitions[0]
    return found


def _times(*times: int, codec: Codec = Codec.GZIP, size: int = 2_000_000) -> bytes:
    return bytes(
        build_batch(
            [
                Record(offset=number, timestamp=time, key=None, value=bytes(size), headers=())
                for number, time in enumerate(times)
            ],
            codec=codec,
        )
    )


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [(5, (0, 10)), (10, (0, 10)), (15, (1, 20)), (30, (2, 30)), (31, (-1, -1)), (-3, (2, 30))],
)
@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD])
async def test_time_in_a_large_batch_is_searched_aside(
    running: RunningBroker, codec: Codec, timestamp: int, expected: tuple[int, int]
) -> None:
    client = await running.client()
    await client.request(produce_request(TOPIC, _times(10, 20, 30, codec=codec)), 11)
    steps = call(running, _lookup(timestamp), 7)
    is_aside = expected[0] >= 0
    if is_aside:
        steps, yielded = run(steps)
        assert any(isinstance(step, OffLoop) for step in yielded)
    found = _look_up(steps)
    assert (found.offset, found.timestamp) == expected


async def test_log_that_changes_while_a_batch_is_searched(running: RunningBroker) -> None:
    """The answer is that of the log as it is when the answer is made."""
    client = await running.client()
    await client.request(produce_request(TOPIC, _times(10, 20, 30)), 11)
    steps = call(running, _lookup(5), 7)
    aside = next(steps)
    aside.run()
    running.broker.topics.led_log(TOPIC, 0).delete_before(2)
    reply, _ = run(steps)
    assert _look_up(reply).offset == 2


async def test_small_batch_is_searched_at_once(running: RunningBroker) -> None:
    client = await running.client()
    await client.request(produce_request(TOPIC, _times(10, 20, size=1_000)), 11)
    assert _look_up(call(running, _lookup(15), 7)).offset == 1
