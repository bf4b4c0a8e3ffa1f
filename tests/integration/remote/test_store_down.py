"""Ten minutes without the object store, and one that loses each answer: all arrives, once."""

from pathlib import Path
from random import Random

from broker.jobs.bucket import CHECK_MS
from storage.bucket.audit import audit_bucket
from storage.bucket.journal import BucketJournal, read_state
from storage.bucket.restore import restore
from storage.disk.checkpoints import format_uuid
from storage.disk.files import RealFiles
from storage.disk.steps import run_steps
from tests.integration.remote.test_tiered import tiered_broker
from tests.support.broker import RawClient, RunningBroker, batch
from tests.support.clock import FrozenClock
from tests.support.requests import create_topic, fetch, produce, values_of
from tests.support.simulated_store import SimulatedStore, StoreFault

SECONDS = 600
JOBS = ("bucket", "tiering", "retention", "pending-files")
TOPIC = {
    "segment_bytes": "4000",
    "retention_ms": "-1",
    "remote_storage_enable": "true",
    "local_retention_ms": "1000",
    "file_delete_delay_ms": "0",
}


async def run_jobs(running: RunningBroker) -> None:
    for job in JOBS:
        await running.broker.jobs.run_now(job)


async def append(client: RawClient, clock: FrozenClock, number: int) -> None:
    record = batch(f"{number}".encode() + b"x" * 400, timestamp=clock.wall_ms())
    answer = await produce(client, "t", record)
    assert (answer.error_code, answer.base_offset) == (0, number)


async def numbers(client: RawClient, count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        data = await fetch(client, "t", len(found), max_wait_ms=5_000)
        assert data.error_code == 0
        found += [int((value or b"").rstrip(b"x")) for value in values_of(data)]
    return found


async def test_a_store_that_was_never_reached_shows_in_the_metrics(tmp_path: Path) -> None:
    """Such as a bucket that does not exist: no segment is closed yet, so none waits."""
    store = SimulatedStore()
    store.is_down = True
    async with tiered_broker(tmp_path / "data", store) as (running, client, clock):
        await create_topic(client, "t", 1, **TOPIC)
        await append(client, clock, 0)
        await running.broker.jobs.run_now("bucket")
        remote = running.broker.metrics.remote
        assert remote.backlog_bytes == 0
        assert remote.tail_bytes > 400
        assert remote.errors["ship"] == 1
        store.is_down = False
        clock.advance(60_000)
        await running.broker.jobs.run_now("bucket")
        assert remote.tail_bytes == 0


async def test_ten_minutes_without_the_store(tmp_path: Path) -> None:
    store = SimulatedStore()
    async with tiered_broker(tmp_path / "data", store) as (running, client, clock):
        remote = running.broker.metrics.remote
        await create_topic(client, "t", 1, **TOPIC)
        for number in range(20):
            await append(client, clock, number)
        assert running.broker.bucket is not None
        assert await running.broker.bucket.ship()
        clock.advance(2_000)
        await run_jobs(running)
        assert (remote.backlog_bytes, remote.uploaded) == (0, 2)

        store.is_down = True
        before = len(store.operations)
        seen: list[tuple[int, int, int]] = []
        for number in range(20, 20 + SECONDS):
            clock.advance(1_000)
            await append(client, clock, number)
            if number % 10 == 0:
                await run_jobs(running)
                seen.append((remote.backlog_bytes, remote.backlog_ms, remote.tail_bytes))
        for column in zip(*seen, strict=True):
            assert list(column) == sorted(column), "it grows all the time"
        assert remote.backlog_bytes > SECONDS * 400 - 10_000
        assert remote.tail_bytes > remote.backlog_bytes - 20_000
        assert remote.backlog_ms > (SECONDS - 60) * 1_000
        # A store that is down is asked less and less often.
        assert 10 < len(store.operations) - before < 150
        log = running.broker.data_dir.topics["t"].logs[0]
        assert log.segments.first_local.base_offset < 20, "what only this disk has stays here"

        store.is_down = False
        clock.advance(60_000)
        assert await running.broker.bucket.ship()
        await run_jobs(running)
        clock.advance(2_000)
        await run_jobs(running)
        assert (remote.backlog_bytes, remote.backlog_ms) == (0, 0)
        assert log.segments.first_local is log.segments.active
        assert await running.broker.bucket.ship()
        assert remote.tail_bytes == 0
        assert await numbers(client, 20 + SECONDS) == list(range(20 + SECONDS))
        cluster = running.broker.data_dir.cluster_id

    await check_restored(tmp_path / "second", store, cluster, 20 + SECONDS)


async def check_restored(second: Path, store: SimulatedStore, cluster: str, count: int) -> None:
    """A machine that has only the bucket has all of it as well."""
    second.mkdir()
    directory_id = bytes(range(16))
    journal = BucketJournal(store, format_uuid(directory_id), Random(2))
    run_steps(journal.read())
    run_steps(journal.take_over())
    restore(
        journal.state,
        store,
        str(second),
        RealFiles(),
        cluster_id=cluster,
        directory_id=directory_id,
    )
    async with tiered_broker(second, store) as (_, client, _):
        assert await numbers(client, count) == list(range(count))


async def test_a_bucket_that_is_emptied_gets_nothing_and_local_copies_stay(tmp_path: Path) -> None:
    store = SimulatedStore()
    async with tiered_broker(tmp_path / "data", store) as (running, client, clock):
        bucket = running.broker.bucket
        assert bucket is not None
        await create_topic(client, "t", 1, **TOPIC | {"local_retention_ms": "100000"})
        for number in range(30):
            clock.advance(1_000)
            await append(client, clock, number)
        for job in ("bucket", "tiering"):
            await running.broker.jobs.run_now(job)
        assert await bucket.ship()
        log = running.broker.data_dir.topics["t"].logs[0]
        assert running.broker.metrics.remote.uploaded > 2
        first, objects = log.segments.first_local.base_offset, dict(store.objects)
        store.objects.clear()
        clock.advance(CHECK_MS)
        assert not await bucket.ship()
        assert (bucket.is_emptied, bucket.is_owner) == (True, False)
        clock.advance(200_000)
        await run_jobs(running)
        assert store.objects == {}
        assert log.segments.first_local.base_offset == first
        store.objects.update(objects)
        clock.advance(60_000)
        assert await bucket.ship()
        assert not bucket.is_emptied
        await run_jobs(running)
        await run_jobs(running)
        assert log.segments.first_local.base_offset > first
        assert await numbers(client, 30) == list(range(30))


class Forgetful(SimulatedStore):
    """Each PUT is done, and no answer to it arrives."""

    def _begin(self, kind: str, key: str) -> StoreFault | None:
        fault = super()._begin(kind, key)
        return StoreFault.LOST if kind == "PUT" else fault


async def test_the_answer_to_every_put_is_lost(tmp_path: Path) -> None:
    """All of it arrives, once; no object is left that nothing names."""
    store, count = Forgetful(), 100
    async with tiered_broker(tmp_path / "data", store) as (running, client, clock):
        remote = running.broker.metrics.remote
        await create_topic(client, "t", 1, **TOPIC)
        for number in range(count):
            clock.advance(1_000)
            await append(client, clock, number)
            if number % 10 == 9:
                clock.advance(60_000)
                await run_jobs(running)
        assert running.broker.bucket is not None
        for _ in range(3):
            clock.advance(60_000)
            await run_jobs(running)
            await running.broker.bucket.ship()
        assert (remote.backlog_bytes, remote.tail_bytes) == (0, 0)
        assert remote.uploaded > 5
        assert await numbers(client, count) == list(range(count))
        log = running.broker.data_dir.topics["t"].logs[0]
        assert store.segments.keys() == {where.key for where in log.manifest.remote.values()}
        report = audit_bucket(read_state(store), store)
        assert (report.problems, report.orphans) == ([], [])
        cluster = running.broker.data_dir.cluster_id
    await check_restored(tmp_path / "second", store, cluster, count)
