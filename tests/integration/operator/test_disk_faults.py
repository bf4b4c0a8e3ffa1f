"""A disk that fails or fills: which client gets which error, and that nothing is retried."""

import asyncio
import errno
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from broker.handlers import produce as produce_handler
from broker.net import durable_answer
from protocol.error_codes import ErrorCode
from tests.support.broker import RunningBroker, batch
from tests.support.requests import create_topic, fetch, produce, produce_request, values_of


class FaultySync:
    """`os.fdatasync` that fails for files whose path contains `victim`, once switched on."""

    def __init__(self, victim: str) -> None:
        self.victim = victim
        self.is_on = False
        self.failures = 0

    def __call__(self, fd: int) -> None:
        if self.is_on and self.victim in os.readlink(f"/proc/self/fd/{fd}"):
            self.failures += 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.fixture
def sync(monkeypatch: pytest.MonkeyPatch) -> FaultySync:
    faulty = FaultySync("/bad-0/")
    monkeypatch.setattr(os, "fdatasync", faulty)
    return faulty


async def test_failed_sync_takes_its_log_offline(
    broker: RunningBroker, sync: FaultySync, caplog: pytest.LogCaptureFixture
) -> None:
    client = await broker.client()
    await create_topic(client, "bad")
    await create_topic(client, "good")
    assert (await produce(client, "bad", batch("durable"))).error_code == ErrorCode.NONE
    sync.is_on = True
    for value in ("lost", "refused"):
        answer = await produce(client, "bad", batch(value))
        assert (answer.error_code, answer.base_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    assert sync.failures == 1, "a failed sync is not tried again"
    assert (await produce(client, "good", batch("a"))).error_code == ErrorCode.NONE
    data = await fetch(client, "bad")
    assert (values_of(data), data.high_watermark) == ([b"durable"], 1)
    assert sum("bad-0: syncing to disk failed" in line for line in caplog.messages) == 1
    assert broker.broker.metrics.commits.sync_failures == 1


async def test_every_request_that_waits_for_the_sync_gets_the_error(
    broker: RunningBroker, sync: FaultySync
) -> None:
    clients = [await broker.client() for _ in range(5)]
    await create_topic(clients[0], "bad")
    await produce(clients[0], "bad", batch("durable"))
    sync.is_on = True
    for client in clients:
        client.send(produce_request("bad", batch("x")), 9)
    for client in clients:
        answer = (await client.receive()).responses[0].partition_responses[0]
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR


async def test_full_disk_refuses_and_recovers_by_itself(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    client = await broker.client()
    await create_topic(client, "t")
    await produce(client, "t", batch("a"))
    real = os.pwrite

    def full(fd: int, data: Any, position: int) -> int:
        if "/t-0/" in os.readlink(f"/proc/self/fd/{fd}"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, data, position)

    monkeypatch.setattr(os, "pwrite", full)
    for _ in range(3):
        answer = await produce(client, "t", batch("b"))
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    monkeypatch.setattr(os, "pwrite", real)
    assert (await produce(client, "t", batch("c"))).base_offset == 1
    assert values_of(await fetch(client, "t")) == [b"a", b"c"]
    lines = [line for line in caplog.messages if line.startswith("t-0: appends")]
    assert len(lines) == 2
    assert "No space left" in lines[0]
    assert "succeed again" in lines[1]


async def test_slow_disk_times_out_a_request_of_the_lane(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await broker.client()
    await create_topic(client, "t")
    await produce(client, "t", batch("a"))
    gate = threading.Event()
    monkeypatch.setattr(os, "fdatasync", lambda _: gate.wait(10))
    monkeypatch.setattr(durable_answer, "PATIENCE_MS", 20)
    request = produce_request("t", batch("b"))
    request.timeout_ms = 50
    client.send(request, 9)
    while broker.broker.metrics.batches_appended < 2:
        await asyncio.sleep(0)
    broker.broker.connections.sweep()
    assert not client.has_received, "the time is not over yet"
    for _ in range(2):
        broker.broker.connections.sweep()
    answer = (await client.receive()).responses[0].partition_responses[0]
    assert (answer.error_code, answer.base_offset) == (ErrorCode.REQUEST_TIMED_OUT, 1)
    gate.set()
    assert (await produce(client, "t", batch("c"))).base_offset == 2
    assert values_of(await fetch(client, "t")) == [b"a", b"b", b"c"]


async def test_slow_disk_times_the_request_out_and_not_the_record(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await broker.client()
    await create_topic(client, "t")
    gate = threading.Event()
    monkeypatch.setattr(os, "fdatasync", lambda _: gate.wait(10))
    monkeypatch.setattr(produce_handler, "PATIENCE_MS", 20)
    request = produce_request("t", batch("a"))
    request.timeout_ms = 50
    answer = (await client.request(request, 9)).responses[0].partition_responses[0]
    assert (answer.error_code, answer.base_offset) == (ErrorCode.REQUEST_TIMED_OUT, 0)
    gate.set()
    assert (await produce(client, "t", batch("b"))).base_offset == 1
    assert values_of(await fetch(client, "t")) == [b"a", b"b"]


@pytest.mark.parametrize("fault", ["damage", "bad sector"])
async def test_the_operator_learns_of_reads_that_fail(
    broker: RunningBroker,
    fault: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = await broker.client()
    await create_topic(client, "t")
    for value in "abc":
        await produce(client, "t", batch(value))
    (path,) = (Path(broker.ready.data_dir) / "t-0").glob("*.log")
    if fault == "damage":
        path.write_bytes(bytes(path.stat().st_size))
    else:

        def fails(fd: int, size: int, position: int) -> bytes:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        monkeypatch.setattr(os, "pread", fails)
    for _ in range(2):
        assert (await fetch(client, "t", 1)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    monkeypatch.undo()
    place = str(path if fault == "damage" else path.parent)
    assert broker.broker.metrics.failed_reads == {place: 2}
    (line,) = [line for line in caplog.messages if "fsck" in line]
    assert place in line
