"""Transaction version 2 (KIP-890): partitions join by being written to, epochs change per end."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from protocol.api.end_txn import EndTxnRequest
from protocol.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from protocol.error_codes import ErrorCode
from tests.integration.transactions.test_wire import Session
from tests.support.broker import ConnectionClosed, batch, running_broker

NONE = ErrorCode.NONE


def produce_request(
    session: Session,
    value: str,
    *,
    partitions: tuple[int, ...] = (0,),
    sequence: int = 0,
    epoch: int | None = None,
    topic_id: bytes | None = None,
) -> ProduceRequest:
    records = batch(
        value,
        timestamp=time.time_ns() // 1_000_000,
        producer_id=session.producer_id,
        producer_epoch=session.epoch if epoch is None else epoch,
        base_sequence=sequence,
        is_transactional=True,
    )
    data = [PartitionProduceData(index=index, records=records) for index in partitions]
    topic = TopicProduceData(name="t", partition_data=data)
    if topic_id is not None:
        topic = TopicProduceData(topic_id=topic_id, partition_data=data)
    return ProduceRequest(transactional_id="x", acks=-1, timeout_ms=5000, topic_data=[topic])


def codes(response: Any) -> list[int]:
    return [p.error_code for topic in response.responses for p in topic.partition_responses]


async def write(session: Session, value: str, version: int = 12, **fields: Any) -> list[int]:
    request = produce_request(session, value, **fields)
    return codes(await session.client.request(request, version))


async def end(
    session: Session, *, is_commit: bool = True, epoch: int | None = None
) -> tuple[int, int, int]:
    """(error, producer id, epoch); the session goes on with the identity it is given."""
    request = EndTxnRequest(
        transactional_id="x",
        producer_id=session.producer_id,
        producer_epoch=session.epoch if epoch is None else epoch,
        committed=is_commit,
    )
    answer = await session.client.request(request, 5)
    if answer.error_code == NONE:
        session.producer_id, session.epoch = answer.producer_id, answer.producer_epoch
    return answer.error_code, answer.producer_id, answer.producer_epoch


async def test_a_transaction_needs_no_request_before_its_first_records(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        session = await Session.open(broker)
        await session.init()
        assert await write(session, "a", partitions=(0, 1)) == [NONE, NONE]
        assert await session.read() == []
        assert (await end(session))[0] == NONE
        assert session.epoch == 1
        assert (await session.read(), await session.read(1)) == (["a"], ["a"])
        assert await write(session, "b") == [NONE], "sequences begin again with the epoch"
        assert (await end(session, is_commit=False))[0] == NONE
        assert session.epoch == 2
        assert await session.read() == ["a"]


async def test_failed_append_of_joined_records_closes_one_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_broker(tmp_path) as broker:
        session = await Session.open(broker)
        await session.init()

        def fail(*_: object, **__: object) -> None:
            raise AssertionError("a bug")

        with monkeypatch.context() as patch:
            patch.setattr("broker.handlers.produce._Appends._try_at_once", fail)
            with pytest.raises(ConnectionClosed):
                await write(session, "a")
        session.client = await broker.client()
        assert await write(session, "b") == [NONE]
        assert (await end(session))[0] == NONE
        assert await session.read() == ["b"]


async def test_records_may_name_their_topic_by_id(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        session = await Session.open(broker)
        await session.init()
        topic = broker.broker.topics.find("t")
        assert topic is not None
        assert await write(session, "a", version=13, topic_id=topic.topic_id) == [NONE]
        unknown = await write(session, "a", version=13, topic_id=bytes(15) + b"x")
        assert unknown == [ErrorCode.UNKNOWN_TOPIC_ID]


async def test_batches_that_follow_at_once_keep_their_order(tmp_path: Path) -> None:
    """The first one waits for the transaction log; the others are in the socket already."""
    async with running_broker(tmp_path) as broker:
        session = await Session.open(broker)
        await session.init()
        for sequence in range(5):
            request = produce_request(session, str(sequence), sequence=sequence)
            session.client.send(request, 12)
        session.client.send(produce_request(session, "p", partitions=(1,)), 12)
        answers = [codes(await session.client.receive()) for _ in range(6)]
        assert answers == [[NONE]] * 6
        await end(session)
        assert await session.read() == ["0", "1", "2", "3", "4"]
        assert await session.read(1) == ["p"]


async def test_a_late_batch_of_the_last_transaction_is_refused(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        session = await Session.open(broker)
        await session.init()
        await write(session, "a")
        await end(session)
        late = await write(session, "late", sequence=1, epoch=0)
        assert late == [ErrorCode.INVALID_PRODUCER_EPOCH]
        await write(session, "b")
        late = await write(session, "late", sequence=1, epoch=0)
        assert late == [ErrorCode.INVALID_PRODUCER_EPOCH]
        await end(session)
        assert await session.read() == ["a", "b"]


async def test_a_late_end_does_not_end_the_next_transaction(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        session = await Session.open(broker)
        await session.init()
        await write(session, "a")
        first = await end(session)
        again = await end(session, epoch=0)
        assert again == first, "the answer was lost: the same answer"
        await write(session, "b")
        late, _, _ = await end(session, epoch=0)
        assert late == ErrorCode.PRODUCER_FENCED
        assert await session.read() == ["a"]
        await end(session, is_commit=False)
        assert await session.read() == ["a"]


async def test_the_answer_of_an_end_survives_a_restart(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        session = await Session.open(broker)
        await session.init()
        await write(session, "a")
        first = await end(session)
    async with running_broker(tmp_path) as broker:
        session.client = await broker.client()
        assert await end(session, epoch=0) == first
        assert await write(session, "b") == [NONE]
        await end(session)
        assert await session.read() == ["a", "b"]


async def test_nothing_can_be_aborted_but_not_committed(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        session = await Session.open(broker)
        await session.init()
        assert (await end(session))[0] == ErrorCode.INVALID_TXN_STATE
        assert await end(session, is_commit=False) == (NONE, session.producer_id, 1)
        assert await end(session, is_commit=False) == (NONE, session.producer_id, 2)
        assert (await end(session))[0] == ErrorCode.INVALID_TXN_STATE


async def test_offsets_join_the_transaction_by_being_committed(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        session = await Session.open(broker)
        await session.init()
        partition = TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=9, committed_metadata=""
        )

        async def commit(epoch: int) -> int:
            request = TxnOffsetCommitRequest(
                transactional_id="x",
                group_id="g",
                producer_id=session.producer_id,
                producer_epoch=epoch,
                topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[partition])],
            )
            answer = await session.client.request(request, 5)
            code: int = answer.topics[0].partitions[0].error_code
            return code

        assert await commit(0) == NONE
        assert await session.offset() == (NONE, -1)
        await end(session)
        assert await session.offset() == (NONE, 9)
        assert await commit(0) == ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize("version", [7, 10, 11])
async def test_older_requests_still_have_to_add_their_partitions(
    tmp_path: Path, version: int
) -> None:
    async with running_broker(tmp_path) as broker:
        session = await Session.open(broker)
        await session.init()
        refused = ErrorCode.TRANSACTION_ABORTABLE if version >= 11 else ErrorCode.INVALID_TXN_STATE
        assert await write(session, "a", version=version) == [refused]
        assert await session.add(0) == [NONE]
        assert await write(session, "a", version=version) == [NONE]
        assert await session.end() == NONE


async def test_strangers_are_not_admitted(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        session = await Session.open(broker)
        await session.init()
        session.producer_id += 1
        assert await write(session, "a") == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
        session.producer_id -= 1
        assert await write(session, "a", epoch=7) == [ErrorCode.INVALID_PRODUCER_EPOCH]
        assert await write(session, "a", partitions=(0, 9)) == [
            NONE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
