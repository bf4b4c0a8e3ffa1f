"""The number of workers changes between starts: no record is lost, or the start says what to do."""

import asyncio
import signal
from pathlib import Path

from protocol.api.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from protocol.error_codes import ErrorCode
from tests.integration.workers.support import connect, kill, leaders_of
from tests.support.broker import BrokerProcess, batch, broker_process
from tests.support.cli import tidelog
from tests.support.requests import create_topic, fetch, produce, values_of

PARTITIONS = 3


async def _append(broker: BrokerProcess, topic: str, value: str) -> dict[int, int]:
    """Write to every partition, at its leader; the leaders."""
    client = await connect(broker.ports[0])
    leaders = await leaders_of(client, topic)
    await client.close()
    for partition, leader in leaders.items():
        client = await connect(broker.ports[leader - 1])
        answer = await produce(client, topic, batch(value), partition=partition)
        assert answer.error_code == ErrorCode.NONE
        await client.close()
    return leaders


async def _values(broker: BrokerProcess, topic: str) -> list[list[bytes | None]]:
    client = await connect(broker.ports[0])
    leaders = await leaders_of(client, topic)
    await client.close()
    found = []
    for partition, leader in sorted(leaders.items()):
        client = await connect(broker.ports[leader - 1])
        found.append(values_of(await fetch(client, topic, {partition: 0})))
        await client.close()
    return found


async def test_more_and_fewer_workers(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with broker_process(data) as broker:
        client = await connect(broker.ports[0])
        await create_topic(client, "old", PARTITIONS)
        await client.close()
        await _append(broker, "old", "1")
        assert broker.stop() == 0
    with broker_process(data, workers="2") as broker:
        assert set((await _append(broker, "old", "2")).values()) == {1}, "old ones stay"
        client = await connect(broker.ports[1])
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name="old", count=PARTITIONS + 2, assignments=None)],
            timeout_ms=30_000,
        )
        (grown,) = (await client.request(request, 3)).results
        assert grown.error_code == ErrorCode.NONE, grown.error_message
        await create_topic(client, "new", PARTITIONS)
        await client.close()
        assert set((await _append(broker, "old", "3")).values()) == {1, 2}
        assert set((await _append(broker, "new", "1")).values()) == {1, 2}
        assert broker.stop() == 0
    with broker_process(data, workers="3") as broker:
        client = await connect(broker.ports[2])
        await create_topic(client, "newest", PARTITIONS)
        await client.close()
        assert set((await _append(broker, "newest", "1")).values()) == {1, 2, 3}
        assert broker.stop() == 0
    with broker_process(data) as broker:
        expected = [[b"1", b"2", b"3"]] * PARTITIONS + [[b"3"]] * 2
        assert await _values(broker, "old") == expected
        assert await _values(broker, "new") == [[b"1"]] * PARTITIONS
        assert await _values(broker, "newest") == [[b"1"]] * PARTITIONS
        assert set((await _append(broker, "new", "2")).values()) == {1}
        assert broker.stop() == 0
    assert not [path for path in data.iterdir() if path.name.endswith("-stray")]
    assert tidelog("fsck", str(data)).returncode == 0


async def test_fewer_workers_after_a_crash_are_refused(tmp_path: Path) -> None:
    data = tmp_path / "data"
    broker = BrokerProcess(data, workers="2")
    broker.wait_ready()
    client = await connect(broker.ports[0])
    await create_topic(client, "t", 2)
    await client.close()
    await _append(broker, "t", "1")
    broker.process.send_signal(signal.SIGSTOP)  # the parent starts none again
    kill(data, 2)
    kill(data, 1)
    broker.process.kill()
    await asyncio.to_thread(broker.process.communicate, timeout=30)
    refused = BrokerProcess(data)
    _, err = refused.process.communicate(timeout=30)
    assert refused.process.returncode == 1
    assert "worker 2" in err
    assert "start with workers=2 or more, stop it, then start with workers=1" in err
    with broker_process(data, workers="2") as broker:
        assert await _values(broker, "t") == [[b"1"], [b"1"]]
        assert broker.stop() == 0
    with broker_process(data) as broker:
        assert await _values(broker, "t") == [[b"1"], [b"1"]]
