"""Each worker is killed while records are produced with acks=all: it restarts and recovers alone.

Every acknowledged record is there once; the other worker serves its partitions meanwhile.
"""

import asyncio
from pathlib import Path

import pytest

from protocol.error_codes import ErrorCode
from tests.integration.workers.support import (
    connect,
    kill,
    leaders_of,
    pid_of,
    wait_for_restart,
)
from tests.support.broker import BrokerProcess, ConnectionClosed, batch, broker_process
from tests.support.requests import create_topic, fetch, list_offset, produce, values_of

PARTITIONS = 4


class Writer:
    """Writes to one partition, one record at a time, and knows what was acknowledged."""

    def __init__(self, port: int, partition: int) -> None:
        self.port = port
        self.partition = partition
        self.acknowledged: list[bytes] = []
        self.is_stopping = False

    async def run(self) -> None:
        number = 0
        while not self.is_stopping:
            client = await connect(self.port)
            try:
                while not self.is_stopping:
                    value = f"{self.partition}-{number}".encode()
                    number += 1
                    answer = await produce(client, "t", batch(value), partition=self.partition)
                    assert answer.error_code == ErrorCode.NONE
                    self.acknowledged.append(value)
            except (ConnectionClosed, OSError, TimeoutError):
                continue
            finally:
                await client.close()


async def everything_in(port: int, partition: int) -> list[bytes | None]:
    client = await connect(port)
    end = (await list_offset(client, "t", -1, partition=partition)).offset
    found: list[bytes | None] = []
    while len(found) < end:
        found += values_of(await fetch(client, "t", {partition: len(found)}))
    await client.close()
    return found


@pytest.mark.parametrize("killed", [1, 2])
async def test_acknowledged_records_survive(tmp_path: Path, killed: int) -> None:
    data = tmp_path / "data"
    with broker_process(data, workers="2") as broker:
        client = await connect(broker.ports[0])
        await create_topic(client, "t", PARTITIONS)
        leaders = await leaders_of(client, "t")
        await client.close()
        writers = [
            Writer(broker.ports[leader - 1], partition) for partition, leader in leaders.items()
        ]
        tasks = [asyncio.create_task(writer.run()) for writer in writers]
        other = 3 - killed
        for _ in range(2):
            await asyncio.sleep(0.5)
            alive = pid_of(data, other)
            former = kill(data, killed)
            await asyncio.to_thread(wait_for_restart, data, killed, former)
            assert pid_of(data, other) == alive, "only the killed worker restarts"
        before = {writer.partition: len(writer.acknowledged) for writer in writers}
        await _all_go_on(writers, before)
        for writer in writers:
            writer.is_stopping = True
        await asyncio.gather(*tasks)
        for writer in writers:
            found = await everything_in(writer.port, writer.partition)
            missing = set(writer.acknowledged) - set(found)
            assert not missing, f"acknowledged and lost: {sorted(missing)[:3]}"
            assert len(found) == len(set(found)), "a record is there twice"
        assert broker.stop() == 0


async def _all_go_on(writers: list[Writer], before: dict[int, int]) -> None:
    async with asyncio.timeout(30):
        while any(len(one.acknowledged) <= before[one.partition] for one in writers):
            await asyncio.sleep(0.02)


async def test_a_worker_serves_while_the_first_is_away(tmp_path: Path) -> None:
    """Requests for its partitions are answered; others wait until worker 1 is back."""
    data = tmp_path / "data"
    with broker_process(data, workers="2") as broker:
        client = await connect(broker.ports[1])
        await create_topic(client, "t", 2)
        (mine,) = [one for one, leader in (await leaders_of(client, "t")).items() if leader == 2]
        former = kill(data, 1)
        answer = await produce(client, "t", batch("x"), partition=mine)
        assert answer.error_code == ErrorCode.NONE
        await create_topic(client, "later", 2)
        assert pid_of(data, 1) != former
        assert set((await leaders_of(client, "later")).values()) == {1, 2}
        await client.close()


async def test_topics_change_while_a_worker_restarts(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with broker_process(data, workers="2") as broker:
        client = await connect(broker.ports[0])
        former = kill(data, 2)
        await create_topic(client, "t", 2)
        await asyncio.to_thread(wait_for_restart, data, 2, former)
        second = await connect(broker.ports[1])
        (theirs,) = [one for one, leader in (await leaders_of(client, "t")).items() if leader == 2]
        answer = await produce(second, "t", batch("x"), partition=theirs)
        assert answer.error_code == ErrorCode.NONE
        await client.close()
        await second.close()


async def test_the_workers_stop_when_the_parent_dies(tmp_path: Path) -> None:
    data = tmp_path / "data"
    broker = BrokerProcess(data, workers="2")
    broker.wait_ready()
    broker.process.kill()
    broker.process.communicate(timeout=30)  # until the workers have closed their output too
    assert (data / ".kafka_cleanshutdown").exists()
    assert (data / "worker.2" / ".kafka_cleanshutdown").exists()
