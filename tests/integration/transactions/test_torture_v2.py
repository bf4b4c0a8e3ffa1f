"""Transactions of version 2 (KIP-890) whose producer, or whose broker, dies at every step.

A transaction writes its number to two partitions, commits it as an offset, and ends. It is stopped
right after each of its requests was sent, or answered. Then another producer takes over the
transactional id, or the producer continues as a client would: it sends again what was not answered.
Whatever happened, a transaction is whole or not there, what was answered as committed is there,
offsets agree with the records, and what arrives late from the dead one has no effect.

`TXN_TORTURE_ROUNDS=20` runs the kills of the broker that many times over, with other delays.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
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
from tests.support.broker import BrokerProcess, RawClient, batch, running_broker

NONE = ErrorCode.NONE
PARTITIONS = (0, 1)
ROUNDS = int(os.environ.get("TXN_TORTURE_ROUNDS", "1"))
PATIENCE_S = 20
REQUESTS = ("produce 0", "produce 1", "offsets", "end")
STEPS = [f"{request} {how}" for request in REQUESTS for how in ("sent", "answered")]
LATE = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)


@dataclass
class Books:
    """The answers that producers got about their transactions, by number."""

    committed: set[int] = field(default_factory=set)
    aborted: set[int] = field(default_factory=set)
    begun: int = 0


class Producer:
    """One transactional id, request by request."""

    def __init__(self, client: RawClient, books: Books) -> None:
        self.session = Session(client)
        self.books = books
        self.number = 0
        self.is_commit = True

    async def take_over(self) -> None:
        """Become the one producer of the id; what was open is aborted."""
        deadline_s = time.monotonic() + PATIENCE_S
        while (error := await self.session.init()) != NONE:
            assert error == ErrorCode.CONCURRENT_TRANSACTIONS
            assert time.monotonic() < deadline_s

    def begin(self, *, is_commit: bool) -> None:
        self.books.begun += 1
        self.number, self.is_commit = self.books.begun, is_commit

    def requests(self) -> Iterator[tuple[Any, int]]:
        """The transaction's requests in order, with their versions."""
        session = self.session
        for partition in PARTITIONS:
            records = batch(
                str(self.number),
                timestamp=time.time_ns() // 1_000_000,
                producer_id=session.producer_id,
                producer_epoch=session.epoch,
                base_sequence=0,
                is_transactional=True,
            )
            data = [PartitionProduceData(index=partition, records=records)]
            topics = [TopicProduceData(name="t", partition_data=data)]
            yield (
                ProduceRequest(transactional_id="x", acks=-1, timeout_ms=5000, topic_data=topics),
                12,
            )
        offset = TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=self.number, committed_metadata=""
        )
        yield (
            TxnOffsetCommitRequest(
                transactional_id="x",
                group_id="g",
                producer_id=session.producer_id,
                producer_epoch=session.epoch,
                topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[offset])],
            ),
            5,
        )
        yield (
            EndTxnRequest(
                transactional_id="x",
                producer_id=session.producer_id,
                producer_epoch=session.epoch,
                committed=self.is_commit,
            ),
            5,
        )

    async def run(self, *, stop_at: int = len(STEPS), first: int = 0) -> int:
        """Go through the requests from `first` on; stops at a step; the request stopped at."""
        for index, (message, version) in enumerate(self.requests()):
            if index < first:
                continue
            if stop_at == 2 * index:
                self.session.client.send(message, version)
                return index
            await self._ask(message, version)
            if stop_at == 2 * index + 1:
                return index + 1
        return len(REQUESTS)

    async def _ask(self, message: Any, version: int) -> None:
        """One request, sent again while the broker is busy with another decision."""
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            answer = await self.session.client.request(message, version)
            error = _code(answer)
            if error == NONE:
                break
            assert error == ErrorCode.CONCURRENT_TRANSACTIONS, (message, ErrorCode(error).name)
            assert time.monotonic() < deadline_s
        if isinstance(message, EndTxnRequest):
            kept = self.books.committed if self.is_commit else self.books.aborted
            kept.add(self.number)
            self.session.producer_id = answer.producer_id
            self.session.epoch = answer.producer_epoch


def _code(answer: Any) -> int:
    if hasattr(answer, "responses"):
        return int(answer.responses[0].partition_responses[0].error_code)
    if hasattr(answer, "topics"):
        return int(answer.topics[0].partitions[0].error_code)
    return int(answer.error_code)


async def check(client: RawClient, books: Books) -> list[int]:
    """Judge what read_committed sees; the transactions it sees."""
    session = Session(client)
    seen = [[int(value) for value in await session.read(partition)] for partition in PARTITIONS]
    assert seen[0] == seen[1], "a transaction is whole or not there"
    assert len(set(seen[0])) == len(seen[0]), "nothing twice"
    assert books.committed <= set(seen[0]), "what was answered as committed is there"
    assert not books.aborted & set(seen[0])
    error, offset = await session.offset(require_stable=True)
    assert (error, offset) == (NONE, max(seen[0], default=-1)), "offsets agree with the records"
    return seen[0]


@pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("stop_at", range(len(STEPS)), ids=STEPS)
async def test_a_producer_that_dies_leaves_nothing(
    tmp_path: Path, stop_at: int, is_commit: bool
) -> None:
    books = Books()
    async with running_broker(tmp_path) as running:
        await running.broker.topics.create("t", 2)
        dead = Producer(await running.client(), books)
        await dead.take_over()
        dead.begin(is_commit=True)
        late = [*dead.requests()]
        await dead.run()
        dead.begin(is_commit=is_commit)
        late += dead.requests()
        await dead.run(stop_at=stop_at)
        await dead.session.client.close()
        heir = Producer(await running.client(), books)
        await heir.take_over()
        await check(await running.client(), books)
        heir.begin(is_commit=True)
        await heir.run(stop_at=3)
        ghost = await running.client()
        assert len(late) == 2 * len(REQUESTS)
        for message, version in late:
            assert _code(await ghost.request(message, version)) in LATE
        await heir.run(first=2)
        seen = await check(await running.client(), books)
        assert heir.number == seen[-1]
        log = running.broker.topics.led_log("t", 0)
        assert log.last_stable_offset == log.high_watermark


@pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("stop_at", range(1, len(STEPS), 2), ids=STEPS[1::2])
async def test_what_comes_late_of_a_finished_transaction_does_nothing_to_the_next(
    tmp_path: Path, stop_at: int, is_commit: bool
) -> None:
    """The producer is alive and at work in its next epoch, whose transaction goes on unharmed."""
    books = Books()
    async with running_broker(tmp_path) as running:
        await running.broker.topics.create("t", 2)
        producer = Producer(await running.client(), books)
        await producer.take_over()
        producer.begin(is_commit=is_commit)
        late = [*producer.requests()]
        await producer.run()
        producer.begin(is_commit=True)
        stopped = await producer.run(stop_at=stop_at)
        ghost = await running.client()
        for message, version in late:
            assert _code(await ghost.request(message, version)) in LATE
        if stopped < len(REQUESTS):
            await producer.run(first=stopped)
        seen = await check(ghost, books)
        assert seen == ([1, 2] if is_commit else [2])


async def _reconnect(producer: Producer, directory: Path) -> BrokerProcess:
    broker = BrokerProcess(directory, auto_create_topics_enable="false")
    port = await asyncio.to_thread(broker.wait_ready)
    producer.session.client = await RawClient.connect("127.0.0.1", port)
    return broker


@pytest.mark.slow
@pytest.mark.timeout(600 + 60 * ROUNDS)
async def test_a_broker_that_dies_at_every_step_loses_nothing(tmp_path: Path) -> None:
    """Even rounds go on where they were, as a client does; odd ones are taken over."""
    books = Books()
    delays = random.Random(ROUNDS)
    async with running_broker(tmp_path) as running:
        await running.broker.topics.create("t", 2)
    producer = Producer(None, books)  # type: ignore[arg-type]  # connected below
    broker = await _reconnect(producer, tmp_path)
    await producer.take_over()
    kills = 0
    for number in range(ROUNDS):
        for stop_at in range(len(STEPS)):
            is_resumed = (number + stop_at // 2) % 2 == 0
            producer.begin(is_commit=(number + stop_at) % 4 != 3)
            stopped = await producer.run(stop_at=stop_at)
            if stop_at % 2 == 0:  # sent: let the broker come some way, another one each time
                await asyncio.sleep(delays.uniform(0, 0.01))
            await asyncio.to_thread(broker.stop, signal.SIGKILL)
            kills += 1
            await producer.session.client.close()
            broker = await _reconnect(producer, tmp_path)
            if is_resumed:
                await producer.run(first=stopped)
            else:
                late = [*producer.requests()][-1]
                await producer.take_over()
                if stopped < len(REQUESTS):
                    assert _code(await producer.session.client.request(*late)) in LATE
            await check(producer.session.client, books)
    seen = await check(producer.session.client, books)
    await producer.session.client.close()
    await asyncio.to_thread(broker.stop, signal.SIGKILL)
    assert kills == ROUNDS * len(STEPS)
    print(
        f"{kills} kills, {books.begun} transactions, {len(books.committed)} answered as committed, "
        f"{len(books.aborted)} as aborted, {len(seen)} seen"
    )
