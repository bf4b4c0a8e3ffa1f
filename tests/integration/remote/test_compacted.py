"""A compacted topic in a store: the jobs of a broker, its standby and its restore."""

from pathlib import Path

from client.admin import Admin
from client.types import TopicPartition
from protocol.records.builder import build_batch
from protocol.records.record import Record
from protocol.records.scan import iter_records, scan_entries
from storage.segment.facts import RemoteObject
from tests.integration.remote.test_restore import broker
from tests.integration.remote.test_standby import follow, ship, standby
from tests.support.broker import RawClient, RunningBroker
from tests.support.cli import tidelog
from tests.support.requests import create_topic, fetch, list_offset, produce

SETTINGS = {
    "cleanup_policy": "compact",
    "min_cleanable_dirty_ratio": "0",
    "segment_bytes": "600",
    "remote_storage_enable": "true",
    "local_retention_bytes": "0",
    "file_delete_delay_ms": "0",
}


async def put(client: RawClient, numbers: range) -> None:
    for number in numbers:
        record = Record(0, 1_000 + number, b"key-%d" % (number % 7), b"%d" % number * 60)
        answer = await produce(client, "t", bytes(build_batch([record])))
        assert answer.error_code == 0


async def newest(client: RawClient) -> dict[bytes, int]:
    """The offset of the last record of each key."""
    found: dict[bytes, int] = {}
    end = (await list_offset(client, "t", -1)).offset
    offset = 0
    while offset < end:
        data = await fetch(client, "t", offset, max_wait_ms=5_000)
        assert data.error_code == 0
        for entry in scan_entries(data.records or b""):
            for record in iter_records(data.records or b"", entry.position):
                found[bytes(record.key or b"")] = record.offset
            offset = entry.next_offset
    return found


def wanted(end: int) -> dict[bytes, int]:
    return {b"key-%d" % (number % 7): number for number in range(end)}


def objects(running: RunningBroker) -> set[RemoteObject]:
    return set(running.broker.data_dir.topics["t"].logs[0].manifest.remote.values())


async def clean(running: RunningBroker) -> None:
    """Each job once or twice, as they come by turns."""
    for job in ("tiering", "cleaner", "tiering", "tiering", "retention", "tiering"):
        await running.broker.jobs.run_now(job)
        assert running.broker.bucket is not None
        assert await running.broker.bucket.ship()
    assert running.broker.metrics.remote.errors.total() == 0


async def test_rewriting_replaces_objects_for_all_machines(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/bucket"
    async with broker(tmp_path / "first", url) as (owner, client):
        await create_topic(client, "t", 1, **SETTINGS)
        await put(client, range(40))
        await clean(owner)
        before = objects(owner)
        assert before
        assert owner.broker.data_dir.topics["t"].logs[0].segments.first.is_remote
        assert await newest(client) == wanted(40)
        async with standby(tmp_path / "second", url) as (running, reader):
            assert await newest(reader) == wanted(40)
            await put(client, range(40, 80))
            await clean(owner)
            assert before - objects(owner)
            stored = {path.name for path in (tmp_path / "bucket").rglob("*.segment")}
            assert stored == {one.key.rpartition("/")[2] for one in objects(owner)}
            await follow(running)
            assert objects(running) == objects(owner)
            for machine in (client, reader):
                assert await newest(machine) == wanted(80)
                assert (await list_offset(machine, "t", 1_075)).offset == 75
            async with Admin(f"127.0.0.1:{owner.ready.port}") as admin:
                await admin.alter_group_offsets("g", {TopicPartition("t", 0): 77})
            await put(client, range(80, 85))
            await ship(owner)
            await follow(running)
            assert await newest(reader) == wanted(85)
    second = tmp_path / "restored"
    done = tidelog("restore", url, "--data-dir", str(second))
    assert done.returncode == 0, done.stderr
    done = tidelog("fsck", str(second), "--remote", url)
    assert done.returncode == 0, done.stdout
    async with broker(second, url) as (running, client):
        assert await newest(client) == wanted(85)
        await put(client, range(85, 120))
        await clean(running)
        assert await newest(client) == wanted(120)
