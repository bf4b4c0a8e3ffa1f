"""A second machine follows the bucket, serves reads, and takes over; with a zombie."""

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.errors import DataDirUnusable, StartError
from broker.operator.port_access import Viewer
from broker.operator.standby import StandbyControl
from broker.security.service import Security
from broker.security.session import Session
from cli.exit_codes import ExitCode
from client.admin import Admin
from client.types import TopicPartition
from protocol.error_codes import ErrorCode
from storage.bucket import differences, journal
from storage.bucket.follower import BucketFollower, Grown, Part
from storage.bucket.journal import BucketJournal
from storage.bucket.map import BucketState, JournalEntry
from storage.bucket.replica import NotNext
from storage.bucket.restore import MappedLog, write_log
from storage.bucket.standby_directory import read_mark, take_over
from storage.disk.files import RealFiles
from storage.disk.steps import Steps, run_steps
from storage.errors import (
    LogOffline,
    ObjectDamaged,
    ObjectMissing,
    StorageError,
    StoreFailed,
)
from storage.log.log import Log
from storage.remote.engine import open_store
from storage.remote.object_store import ObjectStore
from storage.segment.facts import RemoteObject
from tests.integration.remote.test_restore import TIERED, broker, fill, read
from tests.integration.security.test_dynamic_certificates import alter, fingerprint, shown
from tests.support.broker import RawClient, RunningBroker, batch, running_broker
from tests.support.certificates import authority, signed
from tests.support.cli import tidelog
from tests.support.clock import FrozenClock
from tests.support.requests import create_topic, fetch, list_offset, produce, values_of
from tests.support.simulated_store import SimulatedStore
from tests.support.zombies import zombie_cycle

ZOMBIES = int(os.environ.get("ZOMBIES", "1"))


@asynccontextmanager
async def standby(directory: Path, url: str) -> AsyncIterator[tuple[RunningBroker, RawClient]]:
    clock = FrozenClock()
    clock.jump_wall(1_000_000)
    settings = {"remote_storage_url": url, "remote_standby_enable": "true"}
    async with running_broker(directory, clock=clock, **settings) as running:
        yield running, await running.client()


async def ship(running: RunningBroker) -> None:
    await running.broker.jobs.run_now("tiering")
    assert running.broker.bucket is not None
    assert await running.broker.bucket.ship()


async def follow(running: RunningBroker) -> None:
    await running.broker.jobs.run_now("standby")
    assert running.broker.metrics.remote.errors["follow"] == 0


async def test_a_standby_reads_what_the_owner_has_shipped(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/bucket"
    async with broker(tmp_path / "first", url) as (owner, client):
        await create_topic(client, "t", 1, **TIERED, local_retention_ms="0", retention_ms="-1")
        await fill(client, range(15))
        await ship(owner)
        async with standby(tmp_path / "second", url) as (running, reader):
            assert await read(reader, 15) == list(range(15))
            await fill(client, range(15, 33))
            await create_topic(client, "late", remote_storage_enable="true", max_message_bytes="77")
            async with Admin(f"127.0.0.1:{owner.ready.port}") as admin:
                await admin.alter_group_offsets("g", {TopicPartition("t", 0): 17})
            await ship(owner)
            await follow(running)
            assert await read(reader, 33) == list(range(33))
            assert (await list_offset(reader, "t", -1)).offset == 33
            for number in (3, 14, 15, 16, 27, 32):
                assert (await list_offset(reader, "t", 1_000 + number)).offset == number
            topics = running.broker.data_dir.topics
            assert topics["late"].overrides["max.message.bytes"] == "77"
            async with Admin(f"127.0.0.1:{running.ready.port}") as admin:
                offsets = await admin.group_offsets("g")
                assert offsets[TopicPartition("t", 0)].offset == 17
                assert "g" in [group.group_id for group in await admin.groups()]
            # The files here are those of the owner, so the same objects stand for them.
            ours = topics["t"].logs[0].manifest.remote
            assert ours == owner.broker.data_dir.topics["t"].logs[0].manifest.remote
            assert len(ours) > 5
            await running.broker.jobs.run_now("retention")
            assert topics["t"].logs[0].segments.first.is_remote
            assert await read(reader, 33) == list(range(33))


async def test_a_fetch_that_waits_gets_what_is_shipped(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/bucket"
    async with broker(tmp_path / "first", url) as (owner, client):
        await create_topic(client, "t", 1, remote_storage_enable="true", remote_acks_enable="true")
        await fill(client, range(2))
        async with standby(tmp_path / "second", url) as (running, reader):
            waiting = asyncio.create_task(fetch(reader, "t", 2, max_wait_ms=8_000, min_bytes=1))
            await fill(client, range(2, 4))
            await ship(owner)
            began_s = time.monotonic()
            await follow(running)
            assert len(values_of(await waiting)) == 2
            assert time.monotonic() - began_s < 6


async def test_a_fetch_that_waits_reads_the_log_that_was_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"file://{tmp_path}/bucket"
    async with broker(tmp_path / "first", url) as (owner, client):
        await create_topic(client, "t", 1, remote_storage_enable="true")
        await fill(client, range(2))
        await ship(owner)
        async with standby(tmp_path / "second", url) as (running, reader):
            assert not values_of(await fetch(reader, "t", 2))
            await fill(client, range(2, 4))
            await ship(owner)

            def other_bytes(*_: object) -> Steps[int]:
                raise NotNext("as after a compaction")

            with monkeypatch.context() as patch:
                patch.setattr(BucketFollower, "_append", other_bytes)
                await follow(running)
            assert len(values_of(await fetch(reader, "t", 2))) == 2
            waiting = asyncio.create_task(fetch(reader, "t", 4, max_wait_ms=20_000))
            await fill(client, range(4, 6))
            await ship(owner)
            await follow(running)
            assert len(values_of(await asyncio.wait_for(waiting, 9))) == 2


async def test_a_standby_refuses_writes(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/bucket"
    async with broker(tmp_path / "first", url) as (owner, client):
        await create_topic(client, "t", 1, remote_storage_enable="true")
        await fill(client, range(2))
        await ship(owner)
        async with standby(tmp_path / "second", url) as (running, reader):
            answer = await produce(reader, "t", batch("x"))
            assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert "tidelog promote" in (answer.error_message or "")
            at = f"127.0.0.1:{running.ready.port}"
            done = await asyncio.to_thread(tidelog, "topic", "create", "new", "-b", at)
            assert done.returncode == ExitCode.FAILED
            assert "standby" in done.stderr
            done = await asyncio.to_thread(tidelog, "topic", "delete", "t", "--yes", "-b", at)
            assert done.returncode == ExitCode.FAILED
            assert "standby" in done.stderr
            assert await read(reader, 2) == [0, 1]


async def test_a_consumer_of_a_group_reads_at_a_standby(tmp_path: Path) -> None:
    """It begins at the owner's committed offset; its own commits are refused."""
    url = f"file://{tmp_path}/bucket"
    async with broker(tmp_path / "first", url) as (owner, client):
        await create_topic(client, "t", 1, remote_storage_enable="true")
        await fill(client, range(9))
        async with Admin(f"127.0.0.1:{owner.ready.port}") as admin:
            await admin.alter_group_offsets("g", {TopicPartition("t", 0): 4})
        await ship(owner)
    settings = {"remote_storage_url": url, "remote_standby_enable": "true"}
    async with running_broker(tmp_path / "second", clock=None, **settings) as running:
        at = f"127.0.0.1:{running.ready.port}"
        done = await asyncio.to_thread(
            tidelog, "consume", "t", "--group", "g", "--max", "5", "-b", at, "--format", "{offset}"
        )
        assert done.stdout.split() == ["4", "5", "6", "7", "8"], done.stderr
        async with Admin(at) as admin:
            assert (await admin.group_offsets("g"))[TopicPartition("t", 0)].offset == 4


async def test_what_was_read_before_the_store_failed_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two entries the second cannot be fetched at first; then the standby is promoted."""
    url, second = f"file://{tmp_path}/bucket", tmp_path / "second"
    async with broker(tmp_path / "first", url) as (owner, client):
        await create_topic(client, "t", 1, remote_storage_enable="true")
        await ship(owner)
        async with standby(second, url) as (running, reader):
            for number in range(2):
                await fill(client, range(number, number + 1))
                await ship(owner)
            read_entry, calls = journal._read_entry, iter([True, False])

            def failing(store: ObjectStore, number: int) -> tuple[bool, JournalEntry | None]:
                if next(calls, True):
                    return read_entry(store, number)
                raise StoreFailed("the store does not answer")

            monkeypatch.setattr(journal, "_read_entry", failing)
            await running.broker.jobs.run_now("standby")
            assert running.broker.metrics.remote.errors["follow"] == 1
            running.broker.standby._pause._until_ms = 0  # type: ignore[union-attr]
            await running.broker.jobs.run_now("standby")
            assert await read(reader, 2) == [0, 1]


def test_a_client_without_the_right_does_not_see_whom_a_standby_follows() -> None:
    async def promote() -> int:
        raise AssertionError

    control = StandbyControl(lambda: {"owner": "secret"}, promote)
    security = cast("Security", None)  # not asked about unknown clients
    status, answer = control.show("", Viewer(security, Session()))
    assert (status, b"secret" in answer) == (403, False)
    status, answer = control.show("", Viewer(security, Session(), sees_all=True))
    assert (status, json.loads(answer)) == (200, {"owner": "secret"})


async def test_a_log_that_is_offline_is_not_promoted(tmp_path: Path) -> None:
    """It does not follow any more: as the owner it would give the offsets of the bucket again."""
    url, second = f"file://{tmp_path}/bucket", tmp_path / "second"
    async with broker(tmp_path / "first", url) as (owner, client):
        await create_topic(client, "t", 1, remote_storage_enable="true")
        await fill(client, range(2))
        await ship(owner)
        async with standby(second, url) as (running, _):
            with pytest.raises(LogOffline):
                running.broker.data_dir.topics["t"].logs[0].go_offline(OSError(5, "broken"))
            await fill(client, range(2, 4))
            await ship(owner)
            assert running.broker.standby is not None
            with pytest.raises(StorageError, match="start the standby again"):
                await running.broker.standby.promote()
            assert not running.broker.standby.promoted.is_set()
        await fill(client, range(4, 5))
        await ship(owner)
        async with standby(second, url) as (running, reader):
            assert running.broker.standby is not None
            assert await read(reader, 5) == list(range(5))


async def test_two_standbys_are_not_promoted_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the entry of one and its last step the other takes the bucket over."""
    url, second = f"file://{tmp_path}/bucket", tmp_path / "second"
    async with broker(tmp_path / "first", url) as (owner, client):
        await create_topic(client, "t", 1, remote_storage_enable="true")
        await fill(client, range(2))
        await ship(owner)
        async with (
            standby(second, url) as (running, reader),
            standby(tmp_path / "third", url) as (
                other,
                _,
            ),
        ):
            assert running.broker.standby is not None
            assert other.broker.standby is not None
            mark = read_mark(str(tmp_path / "third"), RealFiles())
            assert mark is not None
            take = BucketJournal.take_over

            def beaten(journal: BucketJournal, check: Callable[[BucketState], None]) -> Steps[int]:
                epoch = yield from take(journal, check)
                monkeypatch.undo()
                take_over(open_store(url, mark.cluster_id), mark)
                return epoch

            monkeypatch.setattr(BucketJournal, "take_over", beaten)
            with pytest.raises(StoreFailed, match="in the meantime, epoch 3"):
                await running.broker.standby.promote()
            assert not running.broker.standby.promoted.is_set()
            assert await read(reader, 2) == [0, 1]


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", range(ZOMBIES))
async def test_a_zombie_writes_nothing_that_a_reader_sees(tmp_path: Path, seed: int) -> None:
    await zombie_cycle(tmp_path, f"file://{tmp_path}/bucket", seed=seed)


async def test_a_promotion_finds_what_the_owner_has_just_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its reads of the map and of the records, the owner merges them and deletes these."""
    url, count = f"file://{tmp_path}/bucket", differences.MERGED_AT_ONCE + 1
    async with broker(tmp_path / "first", url) as (owner, client):
        await create_topic(client, "t", 1, remote_storage_enable="true", retention_ms="-1")
        await ship(owner)
        async with standby(tmp_path / "second", url) as (running, reader):
            for number in range(count - 1):
                await fill(client, range(number, number + 1))
                await ship(owner)
            await fill(client, range(count - 1, count))
            assert owner.broker.bucket is not None
            shipper, owners = owner.broker.bucket._shipper, owner.broker.bucket._journal
            catch_up = BucketFollower.catch_up
            replaced: list[int] = []
            missed: list[ObjectMissing] = []

            def late(follower: BucketFollower, part: Part) -> Steps[Grown | None]:
                if not replaced:
                    run_steps(shipper.ship())
                    run_steps(owners.checkpoint())
                    # The second one deletes what the first one has replaced.
                    run_steps(owners.append(lambda _: {}))
                    replaced.append(run_steps(owners.checkpoint()))
                try:
                    return (yield from catch_up(follower, part))
                except ObjectMissing as error:
                    missed.append(error)
                    raise

            monkeypatch.setattr(BucketFollower, "catch_up", late)
            assert running.broker.standby is not None
            assert await running.broker.standby.promote() == 2
            assert replaced[0] > 10
            assert len(missed) == 1
            assert await read(reader, count) == list(range(count))


async def test_a_stopped_standby_is_promoted_by_its_directory(tmp_path: Path) -> None:
    url, second = f"file://{tmp_path}/bucket", tmp_path / "second"
    async with broker(tmp_path / "first", url) as (owner, client):
        await create_topic(client, "t", 1, **TIERED, retention_ms="-1")
        await fill(client, range(15))
        await ship(owner)
        async with standby(second, url) as (running, reader):
            assert await read(reader, 15) == list(range(15))
        await fill(client, range(15, 18))
        await ship(owner)
        with pytest.raises(DataDirUnusable, match="standby"):
            async with broker(second, url):
                pass
        done = await asyncio.to_thread(tidelog, "promote", str(second))
        assert (done.returncode, done.stderr) == (0, "")
        assert "epoch 2" in done.stdout
        await fill(client, range(18, 19))
        assert owner.broker.bucket is not None
        assert not await owner.broker.bucket.ship()
        assert (await produce(client, "t", batch("refused"))).error_code
        # With --standby as well: it owns the bucket, and is served.
        async with standby(second, url) as (running, reader):
            assert running.broker.standby is None
            assert await read(reader, 18) == list(range(18))
            await fill(reader, range(18, 25))
            await ship(running)
    again = await asyncio.to_thread(tidelog, "promote", str(second))
    assert again.returncode == ExitCode.NOT_FOUND
    with pytest.raises(StartError, match="has records of its own"):
        async with standby(tmp_path / "first", url):
            pass


async def test_a_stopped_standby_leaves_a_bucket_with_a_hole_alone(tmp_path: Path) -> None:
    """Its directory would be made again from the older state, and it may have the only copies."""
    url, second = f"file://{tmp_path}/bucket", tmp_path / "second"
    async with broker(tmp_path / "first", url) as (owner, client):
        await create_topic(client, "t", 1, **TIERED)
        for number in range(3):
            await fill(client, range(number, number + 1))
            await ship(owner)
        async with standby(second, url) as (_, reader):
            assert await read(reader, 3) == [0, 1, 2]
    entries = sorted((tmp_path / "bucket").rglob("journal/*"))
    entries[-3].unlink()
    done = await asyncio.to_thread(tidelog, "promote", str(second))
    assert done.returncode == ExitCode.FAILED
    assert entries[-3].name in done.stderr
    assert not entries[-3].exists()
    with pytest.raises(StartError, match=entries[-3].name):
        async with standby(second, url):
            pass
    assert next((second / "t-0").glob("*.log")).stat().st_size > 0
    assert read_mark(str(second), RealFiles()) is not None


async def test_a_promotion_that_a_crash_ended_is_completed(tmp_path: Path) -> None:
    """The owner's entry is in the bucket, and nothing was stored here yet."""
    url, second = f"file://{tmp_path}/bucket", tmp_path / "second"
    async with broker(tmp_path / "first", url) as (owner, client):
        await create_topic(client, "t", 1, **TIERED, retention_ms="-1")
        await fill(client, range(9))
        await ship(owner)
        async with standby(second, url):
            await fill(client, range(9, 12))
            await ship(owner)
        mark = read_mark(str(second), RealFiles())
        assert mark is not None
        take_over(open_store(url, mark.cluster_id), mark)
        async with standby(second, url) as (running, reader):
            assert running.broker.standby is None
            assert await read(reader, 12) == list(range(12))
            await fill(reader, range(12, 15))


async def test_a_standby_starts_again_from_the_bucket(tmp_path: Path) -> None:
    url, second = f"file://{tmp_path}/bucket", tmp_path / "second"
    async with broker(tmp_path / "first", url) as (owner, client):
        await create_topic(client, "t", 1, **TIERED, retention_ms="-1")
        await fill(client, range(9))
        await ship(owner)
        async with standby(second, url):
            pass
        await fill(client, range(9, 30))
        await ship(owner)
        async with standby(second, url) as (_, reader):
            assert await read(reader, 30) == list(range(30))


async def test_a_log_that_the_owner_has_compacted_is_made_again(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/bucket"
    settings = {"offsets_topic_segment_bytes": "1024", "log_cleaner_min_cleanable_ratio": "0"}
    settings |= {"remote_storage_url": url, "offsets_topic_num_partitions": "1"}
    async with running_broker(tmp_path / "first", clock=None, **settings) as owner:
        client = await owner.client()
        await create_topic(client, "t", 1, remote_storage_enable="true")
        await fill(client, range(60))
        async with Admin(f"127.0.0.1:{owner.ready.port}") as admin:
            for number in range(3):
                await admin.alter_group_offsets("g", {TopicPartition("t", 0): number})
            await ship(owner)
            settings["remote_standby_enable"] = "true"
            async with (
                running_broker(tmp_path / "second", clock=None, **settings) as running,
                Admin(f"127.0.0.1:{running.ready.port}") as here,
            ):
                ours, theirs = offsets_log(running), offsets_log(owner)
                for number in range(3, 40):
                    await admin.alter_group_offsets("g", {TopicPartition("t", 0): number})
                    if number % 10 != 9:
                        continue
                    await owner.broker.jobs.run_now("cleaner")
                    await ship(owner)
                    before = ours()
                    await follow(running)
                    assert ours().log_end_offset == theirs().log_end_offset
                    assert number < 19 or ours() is not before, "it was made again"
                    assert (await here.group_offsets("g"))[TopicPartition("t", 0)].offset == number


async def test_a_log_that_could_not_be_made_again_is_made_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store fails after the former files were removed, and another log is not held up."""
    url = f"file://{tmp_path}/bucket"
    async with broker(tmp_path / "first", url) as (owner, client):
        for name in ("t", "u"):
            await create_topic(client, name, 1, remote_storage_enable="true")
        await fill(client, range(3))
        await ship(owner)
        async with standby(tmp_path / "second", url) as (running, reader):
            following = running.broker.standby
            assert following is not None
            await fill(client, range(3, 5))
            assert (await produce(client, "u", batch("other"))).error_code == 0
            await ship(owner)
            append = BucketFollower._append

            def other_bytes(self: BucketFollower, log: Log, mapped: MappedLog) -> Steps[int]:
                if log.topic == "t":
                    raise NotNext("as after a compaction")
                return (yield from append(self, log, mapped))

            def failing(*args: object, **_: object) -> int:
                monkeypatch.setattr("storage.bucket.standby_directory.write_log", write_log)
                raise ObjectDamaged("a wrong byte on the way")

            monkeypatch.setattr(BucketFollower, "_append", other_bytes)
            monkeypatch.setattr("storage.bucket.standby_directory.write_log", failing)
            await running.broker.jobs.run_now("standby")
            assert running.broker.metrics.remote.errors["follow"] == 1
            assert len(values_of(await fetch(reader, "u", 0))) == 1
            monkeypatch.setattr(BucketFollower, "_append", append)
            following._pause._until_ms = 0
            await running.broker.jobs.run_now("standby")
            assert await read(reader, 5) == list(range(5))


async def test_an_object_of_a_compacted_segment_does_not_continue_a_longer_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The standby has the begin of the segment as it was before: it looked like damage for ever."""
    url = f"file://{tmp_path}/bucket"
    async with broker(tmp_path / "first", url) as (owner, client):
        await create_topic(client, "t", 1, remote_storage_enable="true")
        await fill(client, range(3))
        await ship(owner)
        async with standby(tmp_path / "second", url) as (running, _):
            log = running.broker.data_dir.topics["t"].logs[0]
            size = log.segments.active.size
            content = log.segments.active.log.pread(size, 0)
            where = cast(
                "RemoteObject", SimpleNamespace(key="k", log_bytes=2 * size, base_offset=0)
            )
            assert running.broker.standby is not None
            follower = running.broker.standby._follower
            for content_there in (content[1:] + bytes(size + 1), bytes(2 * size)):
                store = SimulatedStore()
                store.put_new("k", content_there)
                monkeypatch.setattr(follower, "_store", store)
                with pytest.raises(NotNext, match="other bytes"):
                    run_steps(follower._append_object(log, where))
            assert log.segments.active.size == size


def offsets_log(running: RunningBroker) -> Callable[[], Log]:
    return lambda: running.broker.data_dir.topics["__consumer_offsets"].logs[0]


async def test_a_standby_that_is_far_behind_catches_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entries that it wants, and the segments of records, were deleted meanwhile."""
    monkeypatch.setattr("storage.bucket.journal.CHECKPOINT_ENTRIES", 2)
    monkeypatch.setattr("broker.jobs.standby.THOROUGH_MS", 0)
    url = f"file://{tmp_path}/bucket"
    async with broker(tmp_path / "first", url) as (owner, client):
        await create_topic(client, "t", 1, **TIERED, retention_ms="-1")
        await create_topic(client, "gone", 1, remote_storage_enable="true")
        await fill(client, range(5))
        await ship(owner)
        async with standby(tmp_path / "second", url) as (running, reader):
            for begin in range(5, 50, 5):
                await fill(client, range(begin, begin + 5))
                await ship(owner)
            async with Admin(f"127.0.0.1:{owner.ready.port}") as admin:
                await admin.delete_records({TopicPartition("t", 0): 33})
                await admin.delete_topic("gone")
            await owner.broker.jobs.run_now("retention")
            await ship(owner)
            await follow(running)
            assert (await list_offset(reader, "t", -2)).offset == 33
            assert (await list_offset(reader, "t", -1)).offset == 50
            data = await fetch(reader, "t", 33, max_wait_ms=5_000)
            assert values_of(data)[0] == b"33" + b"x" * 150
            assert "gone" not in running.broker.data_dir.topics


async def test_pieces_that_end_inside_a_batch_are_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.bucket.shipping.ENTRY_BYTES", 1000)
    monkeypatch.setattr("storage.bucket.shipping.SLICE_BYTES", 333)
    monkeypatch.setattr("storage.bucket.differences.MERGED_BYTES", 900)
    monkeypatch.setattr("storage.bucket.follower.SLICE_BYTES", 100)
    url = f"file://{tmp_path}/bucket"
    async with broker(tmp_path / "first", url) as (owner, client):
        await create_topic(client, "t", 1, remote_storage_enable="true")
        await fill(client, range(3))
        await ship(owner)
        async with standby(tmp_path / "second", url) as (running, reader):
            log = running.broker.data_dir.topics["t"].logs[0]
            for begin in range(3, 60, 19):
                await fill(client, range(begin, begin + 19))
                await ship(owner)
                await follow(running)
            assert await read(reader, 60) == list(range(60))
            assert running.broker.data_dir.topics["t"].logs[0] is log


async def test_a_promoted_standby_uses_its_own_key_store(tmp_path: Path) -> None:
    """The owner's was set at run time, to a file that only the lost machine had."""
    signer = authority(tmp_path)
    for name in ("one", "two", "mine"):
        signed(tmp_path, signer, name, subject="/CN=server")
    url = f"file://{tmp_path}/bucket"
    settings: dict[str, Any] = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
        "remote_storage_url": url,
    }
    own = {**settings, "ssl_keystore_location": str(tmp_path / "one.pem")}
    async with running_broker(tmp_path / "first", **own) as owner:
        location = "listener.name.ssl.ssl.keystore.location"
        assert await alter(owner, {location: str(tmp_path / "two.pem")}) == (0, "")
        await ship(owner)
    (tmp_path / "two.pem").unlink()
    second = tmp_path / "second"
    mine = {**settings, "ssl_keystore_location": str(tmp_path / "mine.pem")}
    async with running_broker(second, **mine, remote_standby_enable="true") as running:
        assert running.broker.standby is not None
        await running.broker.standby.promote()
    async with running_broker(second, **mine) as running:
        assert running.broker.topics.broker_overrides == {}
        assert await shown(running) == fingerprint(tmp_path / "mine.pem")
