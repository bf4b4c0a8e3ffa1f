"""Transactions that take too long, and writes that belong to no transaction or another's.

The answers are Apache Kafka 4.3.1's, except where a test says so.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from broker.transactions.state import TxnState
from protocol.api.add_offsets_to_txn import AddOffsetsToTxnRequest
from protocol.api.add_partitions_to_txn import AddPartitionsToTxnRequest
from protocol.api.end_txn import EndTxnRequest
from protocol.api.init_producer_id import InitProducerIdRequest
from protocol.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from protocol.api.write_txn_markers import WritableTxnMarker, WriteTxnMarkersRequest
from protocol.error_codes import ErrorCode
from protocol.structs import NamedIndexes, PartitionIndexes
from tests.integration.groups.test_groups_consumer import beat, join
from tests.integration.transactions.test_v2 import end, write
from tests.integration.transactions.test_wire import Session
from tests.support.broker import RunningBroker, batch, running_broker

NONE = ErrorCode.NONE
FENCED = ErrorCode.PRODUCER_FENCED
OLD_EPOCH = ErrorCode.INVALID_PRODUCER_EPOCH
STRANGER = ErrorCode.INVALID_PRODUCER_ID_MAPPING
NOT_OPEN = ErrorCode.INVALID_TXN_STATE
ABORTABLE = ErrorCode.TRANSACTION_ABORTABLE
EMPTY_ID = ErrorCode.INVALID_REQUEST
NO_ID = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


async def begin(session: Session, timeout_ms: int = 60_000) -> None:
    request = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=timeout_ms)
    answer = await session.client.request(request, 5)
    assert answer.error_code == NONE
    session.producer_id, session.epoch = answer.producer_id, answer.producer_epoch


async def time_out(broker: RunningBroker) -> None:
    """Wait until the coordinator has aborted the transaction of 1 ms."""
    transactions = broker.broker.transactions
    while True:
        found = transactions.find("x")
        assert found is not None
        if found.state is TxnState.COMPLETE_ABORT:
            return
        await asyncio.sleep(0.01)
        transactions.tick()


async def reclaim(session: Session, epoch: int, version: int = 5) -> tuple[int, int]:
    """InitProducerId of a producer that names what it has: (error, epoch)."""
    request = InitProducerIdRequest(
        transactional_id="x",
        transaction_timeout_ms=60_000,
        producer_id=session.producer_id,
        producer_epoch=epoch,
    )
    answer = await session.client.request(request, version)
    if answer.error_code == NONE:
        assert answer.producer_id == session.producer_id
        session.epoch = answer.producer_epoch
    return answer.error_code, answer.producer_epoch


async def txn_commit(
    session: Session, version: int, name: str = "x", topic: str = "t", **fields: Any
) -> list[list[int]]:
    partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=3)
    facts: dict[str, Any] = {
        "transactional_id": name,
        "group_id": "g",
        "producer_id": session.producer_id,
        "producer_epoch": session.epoch,
        "topics": [TxnOffsetCommitRequestTopic(name=topic, partitions=[partition])],
    }
    answer = await session.client.request(TxnOffsetCommitRequest(**facts | fields), version)
    return [[each.error_code for each in found.partitions] for found in answer.topics]


# -- transactions that take too long ---------------------------------------------------------------


async def test_a_producer_aborts_what_timed_out_and_continues(broker: RunningBroker) -> None:
    session = await Session.open(broker)
    await begin(session, timeout_ms=1)
    first = session.epoch
    assert await write(session, "too late") == [NONE]
    await time_out(broker)
    assert await write(session, "later", sequence=1) == [OLD_EPOCH]
    assert await txn_commit(session, 5) == [[OLD_EPOCH]]
    assert await session.add(1) == [FENCED]
    assert await end(session, is_commit=True) == (NOT_OPEN, -1, -1)
    assert await session.end(is_commit=False, version=4) == FENCED, "an old client cannot know"
    for _ in range(2):
        again = await end(session, is_commit=False, epoch=first)
        assert again == (NONE, session.producer_id, first + 1)
    assert await write(session, "next") == [NONE]
    assert await end(session) == (NONE, session.producer_id, first + 2)
    assert await session.read() == ["next"]


@pytest.mark.parametrize("version", [3, 4, 5])
async def test_a_producer_asks_for_an_epoch_after_what_timed_out(
    broker: RunningBroker, version: int
) -> None:
    session = await Session.open(broker)
    await begin(session, timeout_ms=1)
    first = session.epoch
    assert await write(session, "too late") == [NONE]
    await time_out(broker)
    for _ in range(2):
        assert await reclaim(session, first, version) == (NONE, first + 1)
    assert await write(session, "next") == [NONE]
    assert await end(session) == (NONE, session.producer_id, first + 2)
    assert await session.read() == ["next"]


@pytest.mark.parametrize("version", [4, 5])
async def test_a_restart_forgets_nothing_of_what_timed_out(tmp_path: Path, version: int) -> None:
    async with running_broker(tmp_path) as broker:
        session = await Session.open(broker)
        await begin(session, timeout_ms=1)
        first = session.epoch
        assert await write(session, "too late") == [NONE]
        await time_out(broker)
    async with running_broker(tmp_path) as broker:
        session.client = await broker.client()
        if version == 5:
            again = await end(session, is_commit=False)
            assert again == (NONE, session.producer_id, first + 1)
        else:
            assert await reclaim(session, first, version) == (NONE, first + 1)
        assert await write(session, "next") == [NONE]
        assert (await end(session))[0] == NONE
        assert await session.read() == ["next"]


async def test_a_producer_is_fenced_once_another_one_has_come(broker: RunningBroker) -> None:
    old, new = await Session.open(broker), await Session.open(broker, creating=False)
    await begin(old, timeout_ms=1)
    assert await write(old, "too late") == [NONE]
    await time_out(broker)
    await begin(new)
    assert new.epoch == old.epoch + 2
    assert await end(old, is_commit=False) == (FENCED, -1, -1)
    assert await reclaim(old, old.epoch) == (FENCED, -1)
    assert await write(new, "next") == [NONE]
    assert await write(old, "late", sequence=1) == [OLD_EPOCH]
    assert (await end(new))[0] == NONE
    assert await end(old, is_commit=False) == (FENCED, -1, -1)
    assert await new.read() == ["next"]


# -- whose transaction a batch belongs to ----------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "refused"), [(None, NO_ID), ("", EMPTY_ID), ("nosuch", STRANGER), ("y", STRANGER)]
)
@pytest.mark.parametrize("version", [3, 8, 11, 12])
async def test_a_batch_belongs_to_the_id_of_its_request(
    broker: RunningBroker, version: int, name: str | None, refused: ErrorCode
) -> None:
    """Kafka asks once for each transaction; here every batch of an open one is compared."""
    session = await Session.open(broker)
    other = await Session.open(broker, creating=False)
    await other.init("y")
    await begin(session)
    assert await session.add(0) == [NONE]
    records = own_batch(session)
    assert await produce(session, version, name, records) == [refused]
    assert await produce(session, version, name, records, topic="nosuch") == [
        refused if name is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    ]
    assert await produce(session, version, "x", records) == [NONE]
    assert await produce(session, version, name, own_batch(session, sequence=1)) == [refused]
    assert await session.end() == NONE
    assert await session.read() == ["v"]


def own_batch(session: Session, *, sequence: int = 0, **fields: Any) -> bytes:
    facts: dict[str, Any] = {
        "timestamp": time.time_ns() // 1_000_000,
        "producer_id": session.producer_id,
        "producer_epoch": session.epoch,
        "base_sequence": sequence,
        "is_transactional": True,
    }
    return batch("v", **facts | fields)


async def produce(
    session: Session,
    version: int,
    name: str | None,
    *batches: bytes,
    topic: str = "t",
    acks: int = -1,
) -> list[int]:
    """The error codes of batches for partition 0, 1 and so on."""
    data = [PartitionProduceData(index=i, records=records) for i, records in enumerate(batches)]
    request = ProduceRequest(
        transactional_id=name,
        acks=acks,
        timeout_ms=5000,
        topic_data=[TopicProduceData(name=topic, partition_data=data)],
    )
    answer = await session.client.request(request, version)
    return [each.error_code for found in answer.responses for each in found.partition_responses]


@pytest.mark.parametrize("version", [9, 12])
async def test_a_request_is_for_one_producer(broker: RunningBroker, version: int) -> None:
    session, other = await Session.open(broker), await Session.open(broker, creating=False)
    await begin(session)
    await other.init("y")
    other.name = "y"
    assert await session.add(0) == [NONE]
    assert await other.add(1) == [NONE]
    both = (own_batch(session), own_batch(other))
    assert await produce(session, version, "x", *both) == [STRANGER, STRANGER]
    mixed = (own_batch(session), batch("plain", timestamp=time.time_ns() // 1_000_000))
    assert await produce(session, version, None, *mixed) == [NO_ID, NO_ID]
    assert await produce(session, version, "nosuch", *mixed) == [STRANGER, NONE]
    assert await produce(session, version, "x", *mixed) == [NONE, NONE]
    await session.end()
    await other.end()
    assert await session.read() == ["v"]
    assert await session.read(1) == ["plain", "plain"]


@pytest.mark.parametrize("version", [11, 12])
async def test_a_batch_without_a_producer_id_is_in_no_transaction(
    broker: RunningBroker, version: int
) -> None:
    """Kafka stores it, outside of every transaction."""
    session = await Session.open(broker)
    await begin(session)
    records = own_batch(session, producer_id=-1, producer_epoch=-1)
    assert await produce(session, version, "x", records) == [STRANGER]


async def test_a_write_that_is_not_acknowledged_by_all_joins_too(broker: RunningBroker) -> None:
    session = await Session.open(broker)
    await begin(session)
    assert await produce(session, 12, "x", own_batch(session), acks=1) == [NONE]
    data = PartitionProduceData(index=1, records=own_batch(session))
    topic = TopicProduceData(name="t", partition_data=[data])
    request = ProduceRequest(transactional_id="x", acks=0, timeout_ms=5000, topic_data=[topic])
    session.client.send(request, 12)
    session.client.forget_last()
    while (error := (await end(session))[0]) != NONE:
        assert error == ErrorCode.CONCURRENT_TRANSACTIONS, "the partition is being added"
    assert (await session.read(), await session.read(1)) == (["v"], ["v"])
    session.client.send(request, 12)  # of the transaction that is over
    session.client.forget_last()
    assert await session.client.is_closed_by_broker()


@pytest.mark.parametrize("name", [None, "nosuch"])
@pytest.mark.parametrize("version", [8, 12])
async def test_a_refused_write_that_has_no_answer_ends_the_connection(
    broker: RunningBroker, version: int, name: str | None
) -> None:
    session = await Session.open(broker)
    await begin(session)
    data = PartitionProduceData(index=0, records=own_batch(session))
    topic = TopicProduceData(name="t", partition_data=[data])
    request = ProduceRequest(transactional_id=name, acks=0, timeout_ms=5000, topic_data=[topic])
    session.client.send(request, version)
    session.client.forget_last()
    assert await session.client.is_closed_by_broker()


async def test_a_write_to_nowhere_begins_no_transaction(broker: RunningBroker) -> None:
    session = await Session.open(broker)
    await begin(session)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await produce(session, 12, "x", own_batch(session), topic="nosuch") == [unknown]
    found = broker.broker.transactions.find("x")
    assert found is not None
    assert found.state is TxnState.EMPTY
    plain = batch("v", timestamp=time.time_ns() // 1_000_000)
    batches = (plain, plain, own_batch(session))
    assert await produce(session, 12, "x", *batches) == [NONE, NONE, unknown]
    assert (await end(session))[0] == NOT_OPEN


# -- requests of the coordinator -------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 2, 3, 4, 5])
async def test_offsets_belong_to_the_id_of_their_request(
    broker: RunningBroker, version: int
) -> None:
    session, other = await Session.open(broker), await Session.open(broker, creating=False)
    await begin(session)
    await other.init("y")
    refused = {"nosuch": STRANGER, "y": STRANGER, "": EMPTY_ID}
    for _ in ("before the group is added", "after that"):
        for name, error in refused.items():
            assert await txn_commit(session, version, name) == [[error]], name
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await txn_commit(session, version, "nosuch", topic="nosuch") == [[unknown]]
        assert await txn_commit(session, version, group_id="") == [[ErrorCode.INVALID_GROUP_ID]]
        stranger = await txn_commit(session, version, producer_id=session.producer_id + 99)
        assert stranger == [[STRANGER]]
        old = await txn_commit(session, version, producer_epoch=session.epoch - 1)
        assert old == [[OLD_EPOCH]]
        empty = TxnOffsetCommitRequestTopic(name="t", partitions=[])
        assert await txn_commit(session, version, topics=[empty]) == []
        added = await session.client.request(group_request(session), 3)
        assert added.error_code == NONE
    assert await txn_commit(session, version) == [[NONE]]
    assert await session.end() == NONE
    assert await session.offset() == (NONE, 3)
    late = {3: NOT_OPEN, 4: ABORTABLE, 5: NONE}.get(version, NOT_OPEN)
    assert await txn_commit(session, version) == [[late]]


def group_request(session: Session, **fields: Any) -> AddOffsetsToTxnRequest:
    facts: dict[str, Any] = {
        "transactional_id": "x",
        "producer_id": session.producer_id,
        "producer_epoch": session.epoch,
        "group_id": "g",
    }
    return AddOffsetsToTxnRequest(**facts | fields)


async def test_offsets_of_kept_partitions_may_come_in_an_epoch_that_is_over(
    broker: RunningBroker,
) -> None:
    session = await Session.open(broker)
    await begin(session)
    await join(session.client)
    await join(session.client, "m2")
    topic_id = (await beat(session.client, "m1", 1)).assignment.topic_partitions[0].topic_id
    member = broker.broker.groups.consumer_groups["g"].members["m1"]
    ((_, kept),) = member.current.assigned
    assert topic_id == next(iter(member.current.assigned))[0]
    facts: dict[str, Any] = {"member_id": "m1"}
    moved = {"topic_partitions": [], "rebalance_timeout_ms": 60_000}
    assert (await beat(session.client, "m1", 1, **moved)).member_epoch == 2

    async def at(epoch: int, index: int) -> list[list[int]]:
        partition = TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=3)
        topic = TxnOffsetCommitRequestTopic(name="t", partitions=[partition])
        return await txn_commit(session, 5, generation_id=epoch, topics=[topic], **facts)

    assert await at(1, kept) == [[NONE]]
    assert await at(1, 1 - kept) == [[ErrorCode.ILLEGAL_GENERATION]]
    assert await at(3, kept) == [[ErrorCode.ILLEGAL_GENERATION]]


async def test_an_empty_transactional_id_is_an_invalid_request(broker: RunningBroker) -> None:
    session = await Session.open(broker)
    await begin(session)
    for version in (0, 4, 5):
        ending = EndTxnRequest(
            transactional_id="", producer_id=session.producer_id, producer_epoch=0, committed=True
        )
        assert (await session.client.request(ending, version)).error_code == EMPTY_ID
    topic = NamedIndexes(name="t", partitions=[0])
    adding = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="",
        v3_and_below_producer_id=session.producer_id,
        v3_and_below_producer_epoch=session.epoch,
        v3_and_below_topics=[topic],
    )
    (added,) = (await session.client.request(adding, 3)).results_by_topic_v3_and_below
    assert [each.partition_error_code for each in added.results_by_partition] == [EMPTY_ID]
    for fields in ({"transactional_id": ""}, {"transactional_id": "", "group_id": ""}):
        answer = await session.client.request(group_request(session, **fields), 4)
        assert answer.error_code == EMPTY_ID
    nameless = await session.client.request(group_request(session, group_id=""), 4)
    assert nameless.error_code == NONE, "a group without a name is one like others"
    for name in ("y", None):
        half = InitProducerIdRequest(
            transactional_id=name, transaction_timeout_ms=1000, producer_id=5, producer_epoch=-1
        )
        assert (await session.client.request(half, 4)).error_code == EMPTY_ID


# -- markers that an operator asks for -------------------------------------------------------------


def marker(session: Session, *partitions: int, **fields: Any) -> WritableTxnMarker:
    facts: dict[str, Any] = {
        "producer_id": session.producer_id,
        "producer_epoch": session.epoch,
        "transaction_result": False,
        "topics": [PartitionIndexes(name="t", partition_indexes=list(partitions))],
    }
    return WritableTxnMarker(**facts | fields)


async def mark(
    session: Session, *markers: WritableTxnMarker, version: int = 1
) -> list[tuple[int, list[int]]]:
    """(producer id, error codes) of each result."""
    answer = await session.client.request(WriteTxnMarkersRequest(markers=list(markers)), version)
    return [
        (each.producer_id, [p.error_code for topic in each.topics for p in topic.partitions])
        for each in answer.markers
    ]


def log_end(broker: RunningBroker, partition: int = 0) -> int:
    return broker.broker.topics.led_log("t", partition).log_end_offset


@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        ("producer_id", -1, ErrorCode.UNKNOWN_SERVER_ERROR),
        ("producer_id", -5, ErrorCode.UNKNOWN_SERVER_ERROR),
        ("producer_epoch", -1, ErrorCode.UNKNOWN_SERVER_ERROR),
        ("producer_epoch", -5, OLD_EPOCH),
        ("transaction_version", -1, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
async def test_no_producer_has_a_negative_id(
    broker: RunningBroker, field: str, value: int, error: ErrorCode
) -> None:
    session = await Session.open(broker)
    await begin(session)
    negative = marker(session, 0, 1, **{field: value})
    assert await mark(session, negative, version=2) == [(negative.producer_id, [error] * 2)]
    assert (log_end(broker), log_end(broker, 1)) == (0, 0)


async def test_a_marker_of_transactions_with_own_epochs_has_to_be_newer(
    broker: RunningBroker,
) -> None:
    session = await Session.open(broker)
    await begin(session)
    me, epoch = session.producer_id, session.epoch

    async def written(epoch: int, version: int) -> list[tuple[int, list[int]]]:
        request = marker(session, 0, producer_epoch=epoch, transaction_version=version)
        return await mark(session, request, version=2)

    assert await written(epoch, 2) == [(me, [NONE])], "the log knows no epoch of the producer"
    assert await written(epoch, 1) == [(me, [NONE])]
    assert await written(epoch, 2) == [(me, [OLD_EPOCH])]
    assert await written(epoch, 3) == [(me, [OLD_EPOCH])]
    assert await written(epoch + 1, 2) == [(me, [NONE])]
    assert log_end(broker) == 3


async def test_an_old_coordinator_is_fenced(broker: RunningBroker) -> None:
    session = await Session.open(broker)
    await begin(session)
    me = session.producer_id
    assert await mark(session, marker(session, 0, coordinator_epoch=5)) == [(me, [NONE])]
    fenced = [(me, [ErrorCode.TRANSACTION_COORDINATOR_FENCED])]
    assert await mark(session, marker(session, 0, coordinator_epoch=4)) == fenced
    assert log_end(broker) == 1


async def test_a_marker_is_written_once_for_each_partition(broker: RunningBroker) -> None:
    session = await Session.open(broker)
    await begin(session)
    me = session.producer_id
    topic = PartitionIndexes(name="t", partition_indexes=[1, 1])
    twice = marker(session, topics=[topic, topic])
    assert await mark(session, twice) == [(me, [NONE])]
    assert log_end(broker, 1) == 1
    assert await mark(session, marker(session, 1, 7), marker(session, 0)) == [
        (me, [NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NONE])
    ]
    assert await mark(session, marker(session), marker(session, topics=[])) == []
