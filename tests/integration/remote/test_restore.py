"""A machine is lost, and another one is made from the bucket: over the wire and the command."""

import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cli.exit_codes import ExitCode
from client.admin import Admin
from client.types import TopicPartition
from tests.support.broker import RawClient, RunningBroker, batch, running_broker
from tests.support.cli import tidelog
from tests.support.clock import FrozenClock
from tests.support.requests import create_topic, fetch, list_offset, produce, values_of

TIERED = {"segment_bytes": "400", "remote_storage_enable": "true", "file_delete_delay_ms": "0"}


@asynccontextmanager
async def broker(directory: Path, url: str) -> AsyncIterator[tuple[RunningBroker, RawClient]]:
    clock = FrozenClock()
    clock.jump_wall(1_000_000)
    async with running_broker(directory, clock=clock, remote_storage_url=url) as running:
        yield running, await running.client()


async def fill(client: RawClient, numbers: range, topic: str = "t") -> None:
    for number in numbers:
        value = f"{number}".encode() + b"x" * 150
        answer = await produce(client, topic, batch(value, timestamp=1_000 + number))
        assert (answer.error_code, answer.base_offset) == (0, number)


async def read(client: RawClient, count: int, topic: str = "t") -> list[int]:
    found: list[int] = []
    while len(found) < count:
        data = await fetch(client, topic, len(found), max_wait_ms=5_000)
        assert data.error_code == 0
        found += [int((value or b"").rstrip(b"x")) for value in values_of(data)]
    return found


async def test_everything_comes_back(tmp_path: Path) -> None:
    """Segments, a tail, a topic without segments, settings and offsets, without a clean stop."""
    url = f"file://{tmp_path}/bucket"
    first, second = tmp_path / "first", tmp_path / "second"
    async with broker(first, url) as (running, client):
        topic_id = await create_topic(
            client, "t", 1, **TIERED, local_retention_ms="0", retention_ms="-1"
        )
        await create_topic(client, "tail", remote_storage_enable="true", max_message_bytes="7777")
        await create_topic(client, "local")
        await produce(client, "local", batch("gone"))
        await fill(client, range(15))
        await running.broker.jobs.run_now("tiering")
        await running.broker.jobs.run_now("retention")
        await fill(client, range(15, 20))
        await fill(client, range(3), "tail")
        async with Admin(f"127.0.0.1:{running.ready.port}") as admin:
            await admin.alter_group_offsets("g", {TopicPartition("t", 0): 17})
        assert running.broker.bucket is not None
        assert await running.broker.bucket.ship()
        topics = len(running.broker.data_dir.topics)
        # What comes now is lost with the machine.
        await fill(client, range(20, 22))
        shutil.copytree(tmp_path / "bucket", tmp_path / "kept")
    shutil.rmtree(tmp_path / "bucket")
    shutil.rmtree(first)
    (tmp_path / "kept").rename(tmp_path / "bucket")

    refused = tidelog("restore", url, "--data-dir", str(second))
    assert refused.returncode == ExitCode.FENCED
    assert "--take-over" in refused.stderr
    failed = tidelog("restore", url, "--data-dir", "/proc/none", "--take-over")
    assert failed.returncode == ExitCode.FAILED
    assert "remove /proc/none, and restore again" in failed.stderr, "the owner is fenced by then"
    done = tidelog("restore", url, "--data-dir", str(second), "--take-over", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert (report["topics"], report["epoch"], report["empty"]) == (topics, 3, ["local"])
    again = tidelog("restore", url, "--data-dir", str(second), "--take-over")
    assert again.returncode == ExitCode.USAGE
    assert "is not empty" in again.stderr

    async with broker(second, url) as (running, client):
        topic = running.broker.data_dir.topics["t"]
        assert topic.topic_id == topic_id
        assert topic.overrides["retention.ms"] == "-1"
        assert running.broker.data_dir.topics["tail"].overrides["max.message.bytes"] == "7777"
        assert await read(client, 20) == list(range(20))
        assert (await list_offset(client, "t", -1)).offset == 20
        assert (await list_offset(client, "t", 1_007)).offset == 7
        assert await read(client, 3, "tail") == [0, 1, 2]
        assert values_of(await fetch(client, "local", 0)) == []
        async with Admin(f"127.0.0.1:{running.ready.port}") as admin:
            offsets = await admin.group_offsets("g")
            assert offsets[TopicPartition("t", 0)].offset == 17
        await fill(client, range(20, 23))
        await running.broker.jobs.run_now("tiering")
        assert await running.broker.bucket.ship()  # type: ignore[union-attr]

    third = tmp_path / "third"
    done = tidelog("restore", url, "--data-dir", str(third))
    assert (done.returncode, done.stderr) == (0, "")
    async with broker(third, url) as (_, client):
        assert await read(client, 23) == list(range(23))


@pytest.mark.parametrize("arguments", [("--cluster-id", "nothing"), ()])
def test_an_empty_bucket_is_refused(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    (tmp_path / "bucket").mkdir()
    done = tidelog(
        "restore", f"file://{tmp_path}/bucket", "--data-dir", str(tmp_path / "d"), *arguments
    )
    assert done.returncode == ExitCode.NOT_FOUND
    assert not (tmp_path / "d").exists()


def test_a_bucket_without_a_journal_is_refused_and_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "bucket" / "cluster" / "0a" / "0"
    folder.mkdir(parents=True)
    (folder / "x.segment").write_bytes(b"x")
    url = f"file://{tmp_path}/bucket"
    done = tidelog("restore", url, "--data-dir", str(tmp_path / "d"))
    assert done.returncode == ExitCode.NOT_FOUND
    assert "no journal" in done.stderr
    assert [path.name for path in (tmp_path / "bucket").rglob("*") if path.is_file()] == [
        "x.segment"
    ]


async def test_a_broker_whose_bucket_was_taken_over_writes_nothing(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/bucket"
    async with broker(tmp_path / "first", url) as (running, client):
        await create_topic(client, "t", 1, **TIERED)
        await fill(client, range(5))
        bucket = running.broker.bucket
        assert bucket is not None
        assert await bucket.ship()
        done = tidelog("restore", url, "--data-dir", str(tmp_path / "second"), "--take-over")
        assert done.returncode == 0, done.stderr
        await fill(client, range(5, 6))
        assert not await bucket.ship()
        assert running.broker.metrics.remote.is_fenced
        answer = await produce(client, "t", batch("refused"))
        assert answer.error_code != 0
        assert await read(client, 6) == list(range(6))
    async with broker(tmp_path / "second", url) as (_, client):
        assert await read(client, 5) == list(range(5))
    async with broker(tmp_path / "first", url) as (running, client):
        assert not await running.broker.bucket.ship()  # type: ignore[union-attr]
        assert (await produce(client, "t", batch("refused"))).error_code != 0


@pytest.fixture
async def holed(tmp_path: Path) -> Path:
    """A bucket whose broker has ended, and which lacks an entry; the entry is `entry` beside it."""
    url = f"file://{tmp_path}/bucket"
    async with broker(tmp_path / "first", url) as (running, client):
        await create_topic(client, "t", 1, **TIERED)
        for number in range(4):
            await fill(client, range(number * 3, number * 3 + 3))
            assert await running.broker.bucket.ship()  # type: ignore[union-attr]
    entries = sorted((tmp_path / "bucket").rglob("journal/*"))
    entries[-3].rename(tmp_path / "entry")
    return entries[-3]


def contents(bucket: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in bucket.rglob("*") if path.is_file()}


async def test_a_hole_in_the_journal_is_named_and_not_written_into(
    holed: Path, tmp_path: Path
) -> None:
    """A restore would be older than what the bucket had, and its broker would fill the hole."""
    url, number = f"file://{tmp_path}/bucket", int(holed.name)
    before = contents(tmp_path / "bucket")
    hole = f"entry {number} is missing, entries {number + 1} to {number + 2} are left out"
    done = tidelog("restore", url, "--data-dir", str(tmp_path / "no"))
    assert done.returncode == ExitCode.DAMAGED
    assert hole in done.stderr
    assert f"state after entry {number - 1}, of 20" in done.stderr
    assert not (tmp_path / "no").exists()

    done = tidelog("restore", url, "--data-dir", str(tmp_path / "older"), "--despite-hole")
    assert done.returncode == 0, done.stderr
    assert hole in done.stdout
    assert contents(tmp_path / "bucket") == before
    async with broker(tmp_path / "older", url) as (running, client):
        assert await read(client, 6) == list(range(6))
        assert not await running.broker.bucket.ship()  # type: ignore[union-attr]
        assert (await produce(client, "t", batch("refused"))).error_code != 0
    assert contents(tmp_path / "bucket") == before

    (tmp_path / "entry").rename(holed)
    done = tidelog("restore", url, "--data-dir", str(tmp_path / "whole"))
    assert done.returncode == 0, done.stderr
    assert "has a hole" not in done.stdout
    async with broker(tmp_path / "whole", url) as (_, client):
        assert await read(client, 12) == list(range(12))


async def test_an_entry_with_records_that_is_missing_before_a_checkpoint(tmp_path: Path) -> None:
    """The map is whole. A restore would take the bucket over, and then fail half-way."""
    url = f"file://{tmp_path}/bucket"
    async with broker(tmp_path / "first", url) as (running, client):
        await create_topic(client, "t", 1, **{**TIERED, "segment_bytes": "100000"})
        bucket = running.broker.bucket
        assert bucket is not None
        for number in range(3):
            await fill(client, range(number, number + 1))
            assert await bucket.ship()
        state = bucket._journal.state
        entries = sorted(piece[0] for _, piece in state.keys("tail"))
        await bucket._threads.drive(bucket._journal.checkpoint())
    (lost,) = (tmp_path / "bucket").rglob(f"journal/{entries[1]:020d}")
    lost.rename(tmp_path / "entry")
    before = contents(tmp_path / "bucket")
    for options in ([], ["--despite-hole"]):
        done = tidelog("restore", url, "--data-dir", str(tmp_path / "no"), *options)
        assert done.returncode == ExitCode.DAMAGED
        assert f"lacks records: entry {entries[1]} is missing" in done.stderr
        assert contents(tmp_path / "bucket") == before
        assert not (tmp_path / "no").exists()
    (tmp_path / "entry").rename(lost)
    done = tidelog("restore", url, "--data-dir", str(tmp_path / "whole"))
    assert done.returncode == 0, done.stderr


async def test_a_damaged_entry_in_the_middle_is_a_hole(holed: Path, tmp_path: Path) -> None:
    url, number = f"file://{tmp_path}/bucket", int(holed.name)
    data = (tmp_path / "entry").read_bytes()
    holed.write_bytes(data[:-30] + bytes([data[-30] ^ 1]) + data[-29:])
    before = contents(tmp_path / "bucket")
    hole = f"entry {number} is damaged, entries {number + 1} to {number + 2} are left out"
    done = tidelog("restore", url, "--data-dir", str(tmp_path / "no"))
    assert done.returncode == ExitCode.DAMAGED
    assert f"the journal of the bucket has a hole: {hole}" in done.stderr
    assert "Bring back an earlier version of that object, or give --despite-hole" in done.stderr
    assert not (tmp_path / "no").exists()
    done = tidelog("fsck", str(tmp_path / "first"), "--remote", url)
    assert done.returncode == ExitCode.DAMAGED
    assert f"the journal has a hole: {hole}" in done.stdout
    done = tidelog("restore", url, "--data-dir", str(tmp_path / "older"), "--despite-hole")
    assert done.returncode == 0, done.stderr
    assert contents(tmp_path / "bucket") == before
    async with broker(tmp_path / "older", url) as (running, client):
        assert await read(client, 6) == list(range(6))
        assert not await running.broker.bucket.ship()  # type: ignore[union-attr]
        assert (await produce(client, "t", batch("refused"))).error_code != 0


async def test_a_damaged_checkpoint_is_named_and_costs_nothing(tmp_path: Path) -> None:
    url, bucket = f"file://{tmp_path}/bucket", tmp_path / "bucket"
    async with broker(tmp_path / "first", url) as (running, client):
        await create_topic(client, "t", 1, **TIERED)
        jobs = running.broker.bucket
        assert jobs is not None
        for number in range(3):
            await fill(client, range(number * 3, number * 3 + 3))
            assert await jobs.ship()
            await jobs._threads.drive(jobs._journal.checkpoint())
    former, newest = sorted(bucket.rglob("checkpoint/*"))
    data = newest.read_bytes()
    newest.write_bytes(data[:50] + bytes([data[50] ^ 1]) + data[51:])
    done = tidelog("fsck", str(tmp_path / "first"), "--remote", url)
    assert done.returncode == ExitCode.DAMAGED
    assert f"checkpoint/{newest.name} is damaged; a restore begins at another one" in done.stdout
    done = tidelog("restore", url, "--data-dir", str(tmp_path / "second"), "--take-over")
    assert done.returncode == 0, done.stderr
    async with broker(tmp_path / "second", url) as (_, client):
        assert await read(client, 9) == list(range(9))

    former.unlink()
    for entry in bucket.rglob("journal/*"):
        if int(entry.name) <= int(newest.name.partition("-")[0]):
            entry.unlink()
    done = tidelog("restore", url, "--data-dir", str(tmp_path / "no"), "--take-over")
    assert done.returncode == ExitCode.DAMAGED
    number = int(newest.name.partition("-")[0])
    assert f"the checkpoint after entry {number} is damaged" in done.stderr


async def test_an_audit_names_a_hole(holed: Path, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/bucket"
    done = tidelog("fsck", str(tmp_path / "first"), "--remote", url)
    assert done.returncode == ExitCode.DAMAGED
    assert f"the journal has a hole: entry {int(holed.name)} is missing" in done.stdout


async def test_a_journal_without_its_beginning_gives_nothing(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/bucket"
    async with broker(tmp_path / "first", url):
        pass
    min((tmp_path / "bucket").rglob("journal/*")).unlink()
    done = tidelog("restore", url, "--data-dir", str(tmp_path / "no"), "--despite-hole")
    assert done.returncode == ExitCode.DAMAGED
    assert "entry 0 is missing" in done.stderr
    assert not (tmp_path / "no").exists()


async def test_a_damaged_last_entry_is_named(holed: Path, tmp_path: Path) -> None:
    """Its records were acknowledged, and nothing in the bucket says that they are missing."""
    url = f"file://{tmp_path}/bucket"
    (tmp_path / "entry").rename(holed)
    last = max(holed.parent.iterdir())
    data = last.read_bytes()
    last.write_bytes(data[:-30] + bytes([data[-30] ^ 1]) + data[-29:])
    damage = f"the journal ends in damage: entry {int(last.name)} is damaged, with none after that"
    done = tidelog("fsck", str(tmp_path / "first"), "--remote", url)
    assert done.returncode == ExitCode.DAMAGED
    assert damage in done.stdout
    directory = str(tmp_path / "second")
    done = tidelog("restore", url, "--data-dir", directory, "--take-over")
    assert done.returncode == 0, done.stderr
    assert damage in done.stdout
    # The new owner has said that it is void.
    done = tidelog("fsck", directory, "--remote", url)
    assert done.returncode == 0, done.stdout
    directory = str(tmp_path / "third")
    done = tidelog("restore", url, "--data-dir", directory, "--take-over", "--json")
    assert json.loads(done.stdout)["damaged_entries"] == []
