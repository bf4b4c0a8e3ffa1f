"""Transactions while the broker is killed with SIGKILL again and again.

Three producers write the same values to two partitions in each transaction and end it one way or
the other. Whatever the kills interrupt, a read_committed reader must see a transaction in both
partitions or in none, everything that was answered as committed, and nothing that was answered as
aborted; and no partition may be left waiting for a transaction without an end.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from pathlib import Path

import pytest

from broker.topics.registry import TRANSACTION_STATE
from protocol.error_codes import ErrorCode
from tests.integration.transactions.test_wire import Session
from tests.support.broker import BrokerProcess, ConnectionClosed, RawClient, running_broker

KILLS = 6
PRODUCERS = 3
PARTITIONS = (0, 1)


class Worker:
    """A producer that never gives up, and the answers about each of its transactions."""

    def __init__(self, number: int) -> None:
        self.name = f"x{number}"
        self.number = number
        self.outcomes: dict[str, bool] = {}
        self.begun = 0
        self.port = 0
        self.is_stopping = False

    async def run(self) -> None:
        choices = random.Random(self.number)
        while not self.is_stopping:
            try:
                client = await RawClient.connect("127.0.0.1", self.port)
            except OSError:
                await asyncio.sleep(0.02)
                continue
            try:
                await self._use(Session(client, self.name), choices)
            except (ConnectionClosed, OSError, TimeoutError):
                continue
            finally:
                await client.close()

    async def _use(self, session: Session, choices: random.Random) -> None:
        while (error := await session.init(self.name)) != ErrorCode.NONE:
            assert error == ErrorCode.CONCURRENT_TRANSACTIONS
            await asyncio.sleep(0.01)
        session.sequences = dict.fromkeys(PARTITIONS, 0)
        while not self.is_stopping:
            value = f"{self.name}-{self.begun}"
            self.begun += 1
            is_commit = choices.random() < 0.7
            assert await session.add(*PARTITIONS) == [ErrorCode.NONE] * 2
            for partition in PARTITIONS:
                sequence = session.sequences[partition]
                written = await session.produce(
                    value, partition=partition, sequence=sequence, is_transactional=True
                )
                assert written[0] == ErrorCode.NONE
                session.sequences[partition] += 1
            if await session.end(is_commit=is_commit) == ErrorCode.NONE:
                self.outcomes[value] = is_commit


def _start(directory: Path, workers: list[Worker]) -> BrokerProcess:
    broker = BrokerProcess(directory, auto_create_topics_enable="false")
    port = broker.wait_ready()
    for worker in workers:
        worker.port = port
    return broker


@pytest.mark.slow
async def test_is_every_transaction_whole_whatever_was_killed(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as running:
        await running.broker.topics.create("t", 2)
    workers = [Worker(number) for number in range(PRODUCERS)]
    moments = random.Random(4)
    tasks: list[asyncio.Task[None]] = []
    for _ in range(KILLS):
        broker = await asyncio.to_thread(_start, tmp_path, workers)
        tasks = tasks or [asyncio.create_task(worker.run()) for worker in workers]
        await asyncio.sleep(moments.uniform(0.2, 0.8))
        await asyncio.to_thread(broker.stop, signal.SIGKILL)
    for worker in workers:
        worker.is_stopping = True
    await asyncio.gather(*tasks)
    committed = {v for w in workers for v, is_commit in w.outcomes.items() if is_commit}
    aborted = {v for w in workers for v, is_commit in w.outcomes.items() if not is_commit}
    assert len(committed) > KILLS
    async with running_broker(tmp_path) as running:
        session = Session(await running.client())
        for worker in workers:  # what a kill left open is aborted by the next producer
            deadline_s = time.monotonic() + 10
            while await session.init(worker.name) != ErrorCode.NONE:
                assert time.monotonic() < deadline_s
        seen = [await session.read(partition) for partition in PARTITIONS]
        for partition in PARTITIONS:
            log = running.broker.topics.led_log("t", partition)
            assert log.last_stable_offset == log.high_watermark
        assert running.broker.topics.led_log(TRANSACTION_STATE, 0).log_end_offset > 0
    assert set(seen[0]) == set(seen[1]), "a transaction is whole or not there"
    assert all(len(values) == len(set(values)) for values in seen), "nothing twice"
    assert committed <= set(seen[0])
    assert not aborted & set(seen[0])
