"""Transactions over partitions of both workers, also while each of them is killed.

A read_committed reader sees a transaction in both partitions or in none, everything that was
answered as committed, and nothing that was aborted.
"""

import asyncio
import threading
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from protocol.error_codes import ErrorCode
from tests.integration.transactions.test_wire import Session
from tests.integration.workers.support import connect, kill, leaders_of, wait_for_restart
from tests.support.broker import BrokerProcess, batch, broker_process
from tests.support.requests import create_topic, fetch, list_offset, produce, values_of

PARTITIONS = (0, 1)
READ_COMMITTED = 1


async def _committed(broker: BrokerProcess, partition: int, leader: int) -> list[bytes]:
    """What a read_committed reader sees, once no transaction is open."""
    client = await connect(broker.ports[leader - 1])
    try:
        async with asyncio.timeout(60):
            while True:
                answers = [
                    await list_offset(client, "t", -1, partition=partition, isolation_level=level)
                    for level in (0, READ_COMMITTED)
                ]
                if len({answer.offset for answer in answers}) == 1:
                    break
                await asyncio.sleep(0.1)
        found = await asyncio.to_thread(
            _read, broker.ports[leader - 1], partition, answers[0].offset
        )
    finally:
        await client.close()
    return found


def _read(port: int, partition: int, end: int) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "group.id": "unused",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition("t", partition, 0)])
    found: list[bytes] = []
    while True:
        message = consumer.poll(30)
        assert message is not None, f"nothing comes before offset {end}"
        if message.error() is not None:
            break
        found.append(message.value() or b"")
    consumer.close()
    return found


class Transacting(threading.Thread):
    """A producer of librdkafka that commits and aborts by turns, whatever happens."""

    def __init__(self, broker: BrokerProcess, name: str) -> None:
        super().__init__()
        self.servers = ",".join(f"127.0.0.1:{port}" for port in broker.ports)
        self.id = name
        self.outcomes: dict[bytes, bool] = {}
        self.begun = 0
        self.committed = 0
        self.is_stopping = False
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.is_stopping:
                self._use_one()
        except BaseException as error:
            self.failure = error
            raise

    def _use_one(self) -> None:
        """One producer, until it fails for good."""
        producer = Producer({"bootstrap.servers": self.servers, "transactional.id": self.id})
        try:
            producer.init_transactions(30)
            while not self.is_stopping:
                self._transact(producer)
        except KafkaException:
            return

    def _transact(self, producer: Producer) -> None:
        value = f"{self.id}-{self.begun}".encode()
        is_commit = self.begun % 3 != 2
        self.begun += 1
        producer.begin_transaction()
        for partition in PARTITIONS:
            producer.produce("t", value, partition=partition)
        if not is_commit:
            producer.flush(30)
            producer.abort_transaction(30)
            self.outcomes[value] = False
            return
        try:
            producer.commit_transaction(30)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            producer.abort_transaction(30)
            self.outcomes[value] = False
        else:
            self.outcomes[value] = True
            self.committed += 1


async def _until_each_commits(producers: list[Transacting]) -> None:
    """Wait until every producer has committed two transactions from now on."""
    before = [one.committed for one in producers]
    async with asyncio.timeout(120):
        while any(one.committed < then + 2 for one, then in zip(producers, before, strict=True)):
            assert not any(one.failure for one in producers)
            await asyncio.sleep(0.05)


async def test_transactions_survive_kills_of_each_worker(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with broker_process(data, workers="2") as broker:
        client = await connect(broker.ports[0])
        await create_topic(client, "t", len(PARTITIONS))
        leaders = await leaders_of(client, "t")
        await client.close()
        assert set(leaders.values()) == {1, 2}
        producers = [Transacting(broker, f"x{number}") for number in range(2)]
        for producer in producers:
            producer.start()
        for killed in (2, 1, 2, 1):
            await _until_each_commits(producers)
            former = kill(data, killed)
            await asyncio.to_thread(wait_for_restart, data, killed, former)
        await _until_each_commits(producers)
        for producer in producers:
            producer.is_stopping = True
        for producer in producers:
            await asyncio.to_thread(producer.join, 120)
            assert producer.failure is None
        found = [await _committed(broker, one, leaders[one]) for one in PARTITIONS]
        assert sorted(found[0]) == sorted(found[1]), "a transaction is in one partition only"
        assert len(found[0]) == len(set(found[0])), "a record is there twice"
        seen = set(found[0])
        outcomes = {value: done for one in producers for value, done in one.outcomes.items()}
        assert {value for value, done in outcomes.items() if done} <= seen
        assert not {value for value, done in outcomes.items() if not done} & seen


async def test_a_batch_of_no_transaction_is_refused_by_the_other_worker(tmp_path: Path) -> None:
    """Worker 2 asks worker 1, so a partition that was not added stays closed, and an ended one."""
    with broker_process(tmp_path / "data", workers="2") as broker:
        first, second = [await connect(port) for port in broker.ports]
        await create_topic(first, "t", 2)
        (theirs,) = [one for one, leader in (await leaders_of(first, "t")).items() if leader == 2]
        coordinated, writing = Session(first), Session(second)
        assert await coordinated.init() == ErrorCode.NONE
        writing.producer_id, writing.epoch = coordinated.producer_id, coordinated.epoch

        async def write(**fields: int) -> int:
            error, _ = await writing.produce("v", partition=theirs, is_transactional=True, **fields)
            return error

        assert await write(sequence=0) == ErrorCode.INVALID_TXN_STATE
        assert await coordinated.add(theirs) == [ErrorCode.NONE]
        assert await write(sequence=0) == ErrorCode.NONE
        assert await write(sequence=1, epoch=writing.epoch + 1) != ErrorCode.NONE
        assert await write(sequence=1) == ErrorCode.NONE
        assert await coordinated.end() == ErrorCode.NONE
        assert await write(sequence=2) == ErrorCode.INVALID_TXN_STATE
        found = values_of(await fetch(second, "t", {theirs: 0}, isolation_level=READ_COMMITTED))
        assert found[:2] == [b"v", b"v"]
        plain = await produce(second, "t", batch("plain"), partition=theirs)
        assert plain.error_code == ErrorCode.NONE
        await first.close()
        await second.close()
