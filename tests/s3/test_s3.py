"""Tiered storage with a real S3 server: the engine's promises, a broker that loses its store."""

import asyncio
import os
import random
import shutil
import signal
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from broker.metrics import RemoteMetrics
from protocol.error_codes import ErrorCode
from storage.audit.remote import Comparison, compare, read_journal, read_partitions
from storage.bucket.journal import BucketJournal, read_state
from storage.disk.files import RealFiles
from storage.disk.steps import run_steps
from storage.errors import Fenced, ObjectExists, ObjectMissing, StoreFailed
from storage.remote import engine
from storage.remote.engine import PART_BYTES, list_clusters, open_store
from storage.segment.facts import OBJECT_SUFFIX
from tests.s3.server import BUCKET, READY_S, S3Server, find_versitygw, s3_server
from tests.support.broker import RawClient, batch, broker_process, running_broker
from tests.support.cli import tidelog
from tests.support.clock import FrozenClock
from tests.support.requests import create_topic, fetch, list_offset, produce, values_of

URL = f"s3://{BUCKET}/history"
KILLS = int(os.environ.get("S3_KILLS", "4"))
TIMEOUT_S = 120 + 60 * KILLS
DOWN_S = float(os.environ.get("S3_DOWN_S", "2"))
APPEND_EVERY_S = 0.01

_PROGRAM = find_versitygw()
pytestmark = pytest.mark.skipif(_PROGRAM is None, reason="make test-s3 installs versitygw")


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    assert _PROGRAM is not None
    with s3_server(_PROGRAM, tmp_path) as started:
        for name, value in started.environment.items():
            monkeypatch.setenv(name, value)
        yield started


def put(store: object, key: str, data: bytes) -> None:
    upload = store.begin_put(key, len(data))  # type: ignore[attr-defined]
    for start in range(0, len(data), 1 << 20):
        upload.write(data[start : start + (1 << 20)])
    upload.finish()


async def read_back(client: RawClient, count: int) -> int:
    """Read the numbers of topic t from 0 on, at least `count`; how many there were."""
    found = 0
    while found < count:
        data = await fetch(client, "t", found, max_wait_ms=5_000)
        assert data.error_code == 0
        for value in values_of(data):
            assert (value or b"").rstrip(b"x") == b"%d" % found
            found += 1
    return found


def test_the_engine_keeps_its_promises(server: S3Server) -> None:
    store = open_store(URL, "cluster")
    for size in (1, 100_000, PART_BYTES + 1, 3 * PART_BYTES):
        data = random.Random(size).randbytes(size)
        put(store, f"{size}", data)
        assert store.size_of(f"{size}") == size
        assert store.get(f"{size}", 0, size) == data
        assert store.get(f"{size}", size // 2, size // 2 + 1) == data[size // 2 : size // 2 + 1]
    with pytest.raises(ObjectExists):
        put(store, "1", b"other")
    assert store.get("1", 0, 1) == random.Random(1).randbytes(1)
    with pytest.raises(ObjectMissing):
        store.get("nowhere", 0, 1)
    with pytest.raises(StoreFailed):
        store.get("1", 0, 10)
    assert store.size_of("nowhere") is None
    assert sorted(one.size for one in store.list_objects()) == sorted(
        (1, 100_000, PART_BYTES + 1, 3 * PART_BYTES)
    )
    assert list(open_store(URL, "other").list_objects()) == []
    store.delete("1")
    store.delete("1")
    assert store.size_of("1") is None
    server.stop()
    with pytest.raises(StoreFailed):
        store.get("100000", 0, 1)


def test_an_error_says_what_the_server_refused(
    server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store("s3://nowhere/prefix", "cluster")
    # No object of a missing bucket counts as deleted, or as missing.
    with pytest.raises(StoreFailed, match=r"NoSuchBucket.*create the bucket") as caught:
        store.get("1", 0, 1)
    assert not isinstance(caught.value, ObjectMissing)
    with pytest.raises(StoreFailed, match="NoSuchBucket"):
        store.put_new("1", b"1")
    with pytest.raises(StoreFailed, match="NoSuchBucket"):
        store.delete("1")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "other")
    with pytest.raises(StoreFailed, match=r"SignatureDoesNotMatch.*credentials") as caught:
        list(open_store(URL, "cluster").list_objects())
    assert "StringToSign" not in str(caught.value)


async def test_a_broker_over_s3(server: S3Server, tmp_path: Path) -> None:
    clock = FrozenClock()
    directory = tmp_path / "data"
    numbers = list(range(30))
    async with running_broker(directory, clock=clock, remote_storage_url=URL) as running:
        client = await running.client()
        await create_topic(
            client,
            "t",
            segment_bytes="2000",
            remote_storage_enable="true",
            local_retention_ms="1000",
            file_delete_delay_ms="0",
        )
        for number in numbers:
            value = f"{number}".encode() + b"x" * 400
            await produce(client, "t", batch(value, timestamp=clock.wall_ms() + number))
        await running.broker.jobs.run_now("tiering")
        assert running.broker.bucket is not None
        assert await running.broker.bucket.ship()
        began = clock.wall_ms()
        clock.jump_wall(5_000)
        await running.broker.jobs.run_now("retention")
        await running.broker.jobs.run_now("pending-files")
        assert len(list((directory / "t-0").glob("*.log"))) == 1
        found: list[int] = []
        while len(found) < len(numbers):
            data = await fetch(client, "t", len(found), max_wait_ms=5_000)
            assert data.error_code == 0
            found += [int((value or b"").rstrip(b"x")) for value in values_of(data)]
        assert found == numbers
        for number in numbers:
            assert (await list_offset(client, "t", began + number)).offset == number
    async with running_broker(directory, clock=clock, remote_storage_url=URL) as running:
        client = await running.client()
        server.stop()
        data = await fetch(client, "t", 0, max_wait_ms=5_000)
        assert data.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await produce(client, "t", batch("more"))).error_code == 0
        server.start()
        clock.advance(60_000)
        assert len(values_of(await fetch(client, "t", 0, max_wait_ms=5_000))) > 0


@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT_S)
async def test_kill_9_while_uploading(server: S3Server, tmp_path: Path) -> None:
    """Every acknowledged record is there after each kill, in either place."""
    directory = tmp_path / "data"
    rng = random.Random(1)
    acknowledged = 0
    settings = {
        "remote_storage_url": URL,
        "log_retention_check_interval_ms": "200",
        "log_initial_task_delay_ms": "0",
    }
    for cycle in range(KILLS):
        with broker_process(directory, **settings) as process:
            client = await RawClient.connect("127.0.0.1", process.port)
            if cycle == 0:
                await create_topic(
                    client,
                    "t",
                    segment_bytes="20000",
                    remote_storage_enable="true",
                    local_retention_ms="0",
                    file_delete_delay_ms="0",
                    retention_ms="-1",
                )
            for _ in range(rng.randrange(150, 400)):
                answer = await produce(client, "t", batch(f"{acknowledged}" + "x" * 900))
                assert answer.error_code == 0
                acknowledged += 1
            # Uploads run every second.
            await asyncio.sleep(2 * rng.random())
            process.stop(signal.SIGKILL)
            await client.close()
    with broker_process(directory, **settings) as process:
        async with asyncio.timeout(60):
            while len(list((directory / "t-0").glob("*.log"))) > 2:
                await asyncio.sleep(0.1)
        client = await RawClient.connect("127.0.0.1", process.port)
        await read_back(client, acknowledged)
        await client.close()
    assert len(list(open_store(URL, _cluster_id(directory)).list_objects())) > 10
    _collect_garbage(directory)


@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT_S)
async def test_a_lost_machine_loses_nothing_that_was_acknowledged(
    server: S3Server, tmp_path: Path
) -> None:
    """Each cycle kills the broker, removes its directory, and restores from the bucket."""
    rng = random.Random(2)
    settings = {"remote_storage_url": URL, "log_initial_task_delay_ms": "0"}
    acknowledged = 0
    directory = tmp_path / "data-0"
    for cycle in range(KILLS):
        with broker_process(directory, **settings) as process:
            client = await RawClient.connect("127.0.0.1", process.port)
            if cycle == 0:
                await create_topic(
                    client,
                    "t",
                    segment_bytes="20000",
                    remote_storage_enable="true",
                    remote_acks_enable="true",
                    retention_ms="-1",
                )
            found = await read_back(client, acknowledged)
            # A record without an answer may have come through as well.
            acknowledged = found
            for _ in range(rng.randrange(10, 40)):
                answer = await produce(client, "t", batch(f"{acknowledged}" + "x" * 900))
                assert (answer.error_code, answer.base_offset) == (0, acknowledged)
                acknowledged += 1
            await asyncio.sleep(2 * rng.random())
            process.stop(signal.SIGKILL)
            await client.close()
        shutil.rmtree(directory)
        directory = tmp_path / f"data-{cycle + 1}"
        done = tidelog("restore", URL, "--data-dir", str(directory), "--take-over")
        assert done.returncode == 0, done.stderr
        assert tidelog("fsck", str(directory), "--remote", URL).returncode == 0
    _collect_garbage(directory)


@pytest.mark.timeout(300 + 2 * DOWN_S)
async def test_appends_go_on_while_the_server_is_down(server: S3Server, tmp_path: Path) -> None:
    """The backlog shows it; afterwards the bucket gets everything, and a restore has it."""
    directory = tmp_path / "data"
    settings = {"remote_storage_url": URL, "log_initial_task_delay_ms": "0"}
    async with running_broker(directory, clock=None, **settings) as running:
        client = await running.client()
        await create_topic(
            client, "t", segment_bytes="20000", remote_storage_enable="true", retention_ms="-1"
        )
        remote, bucket = running.broker.metrics.remote, running.broker.bucket
        assert bucket is not None
        async with asyncio.timeout(READY_S):
            # A broker that has not taken the bucket over uploads nothing, so no upload is refused.
            while not bucket.is_owner:
                await asyncio.sleep(0.01)
        count, times, seen = 0, [], []
        until_s = time.monotonic()
        # At least so long, and until both of its writers have noticed.
        while count < 120 or time.monotonic() < until_s or not _have_failed(remote):
            if count == 20:
                server.stop()
                until_s = time.monotonic() + DOWN_S
            sent_s = time.perf_counter()
            answer = await produce(client, "t", batch(f"{count}" + "x" * 900))
            times.append(time.perf_counter() - sent_s)
            assert (answer.error_code, answer.base_offset) == (0, count)
            count += 1
            if count > 20:
                seen.append(remote.backlog_bytes)
                await asyncio.sleep(APPEND_EVERY_S)
        assert seen == sorted(seen), "it grows all the time"
        assert seen[-1] > (count - 60) * 900
        waited = remote.backlog_bytes, remote.tail_bytes, remote.backlog_ms / 1e3
        server.start()
        started_s = time.monotonic()
        async with asyncio.timeout(120 + DOWN_S):
            while remote.backlog_bytes or remote.tail_bytes:
                await asyncio.sleep(0.05)
        times.sort()
        print(
            f"{count} appends, p50 {times[count // 2] * 1e3:.2f} ms, p99 "
            f"{times[count * 99 // 100] * 1e3:.2f} ms, largest {times[-1] * 1e3:.1f} ms; "
            f"{waited[0]:,} bytes of segments waited, {waited[1]:,} of the tail, for up to "
            f"{waited[2]:.0f} s; refused "
            f"{remote.errors['upload']} uploads and {remote.errors['ship']} entries; there after "
            f"{time.monotonic() - started_s:.1f} s"
        )
    shutil.rmtree(directory)
    done = tidelog("restore", URL, "--data-dir", str(tmp_path / "second"))
    assert done.returncode == 0, done.stderr
    async with running_broker(tmp_path / "second", clock=None, **settings) as running:
        client = await running.client()
        await read_back(client, count)


async def test_a_server_that_accepts_and_stays_silent(
    server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each request has a deadline; appends and local reads do not notice."""
    monkeypatch.setattr(engine, "REQUEST_TIMEOUT", timedelta(seconds=1))
    settings = {"remote_storage_url": URL, "log_initial_task_delay_ms": "0"}
    async with running_broker(tmp_path / "data", clock=None, **settings) as running:
        client = await running.client()
        await create_topic(
            client, "t", segment_bytes="20000", remote_storage_enable="true", retention_ms="-1"
        )
        remote, count, longest_s = running.broker.metrics.remote, 0, 0.0
        async with asyncio.timeout(60):
            while not remote.uploaded or count < 60:
                await produce(client, "t", batch(f"{count}" + "x" * 900))
                count += 1
        assert server.process is not None
        server.process.send_signal(signal.SIGSTOP)
        async with asyncio.timeout(60):
            while not _have_failed(remote):
                sent_s = time.monotonic()
                answer = await produce(client, "t", batch(f"{count}" + "x" * 900))
                assert (answer.error_code, answer.base_offset) == (0, count)
                count += 1
                assert values_of(await fetch(client, "t", count - 1))
                longest_s = max(longest_s, time.monotonic() - sent_s)
                await asyncio.sleep(APPEND_EVERY_S)
        assert longest_s < 1, "a request of a client has waited for the store"
        assert remote.backlog_bytes > 20_000
        server.process.send_signal(signal.SIGCONT)
        async with asyncio.timeout(60):
            while remote.backlog_bytes or remote.tail_bytes:
                await asyncio.sleep(0.05)
        await read_back(client, count)


def _have_failed(remote: RemoteMetrics) -> bool:
    return bool(remote.errors["upload"] and remote.errors["ship"])


def test_the_journal_over_s3(server: S3Server) -> None:
    """The condition of a real server: one owner, whose entries come back."""
    store = open_store(URL, "cluster")
    first = BucketJournal(store, "a" * 22, random.Random(1))
    run_steps(first.read())
    run_steps(first.take_over())
    assert run_steps(first.append(lambda _: {"meta/a/b": 1}, [b"rec", b"ords"])) == 1
    second = BucketJournal(store, "b" * 22, random.Random(2))
    run_steps(second.read())
    assert run_steps(second.take_over()) == 2
    with pytest.raises(Fenced):
        run_steps(first.append(lambda _: {"meta/a/b": 2}))
    run_steps(second.checkpoint())
    assert read_state(store).documents == second.state.documents
    assert list_clusters(URL) == ["cluster"]


def _collect_garbage(directory: Path) -> None:
    """Nothing that is named is gone; what the kills have cut off is known, and goes."""
    store = open_store(URL, _cluster_id(directory))
    before = _compared(directory)
    for one in before.garbage:
        store.delete(one.key)
    after = _compared(directory)
    assert (before.missing, after.missing, after.garbage) == ([], [], [])
    parts = read_partitions(str(directory), RealFiles())
    named = {one.key for part in parts for one in part.objects}
    keys = {one.key for one in store.list_objects() if one.key.endswith(OBJECT_SUFFIX)}
    assert keys == named
    print(f"{len(named)} objects are named; {len(before.garbage)} were garbage")


def _compared(directory: Path) -> Comparison:
    """The bucket against a stopped directory, in which no upload is under way."""
    return compare(
        read_partitions(str(directory), RealFiles()),
        open_store(URL, _cluster_id(directory)).list_objects(),
        journal=read_journal(str(directory), RealFiles()),
        now_ms=time.time_ns() // 1_000_000,
        older_than_ms=0,
    )


def _cluster_id(directory: Path) -> str:
    text = (directory / "meta.properties").read_text()
    return next(line[11:] for line in text.splitlines() if line.startswith("cluster.id="))
