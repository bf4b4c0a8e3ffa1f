"""``tidelog tier`` over a directory whose segments are in a folder."""

import json
import os
from pathlib import Path

import pytest

from cli.exit_codes import ExitCode
from tests.support.broker import batch, running_broker
from tests.support.cli import tidelog
from tests.support.clock import FrozenClock
from tests.support.requests import create_topic, produce

DAY_S = 86_400


@pytest.fixture
async def tiered(tmp_path: Path) -> tuple[Path, str, Path]:
    """A stopped directory, the address of its store, and the folder of its objects."""
    url = f"file://{tmp_path}/bucket"
    clock = FrozenClock()
    directory = tmp_path / "data"
    async with running_broker(directory, clock=clock, remote_storage_url=url) as running:
        client = await running.client()
        await create_topic(
            client, "t", segment_bytes="400", remote_storage_enable="true", local_retention_ms="0"
        )
        for number in range(7):
            await produce(client, "t", batch("x" * 150, timestamp=clock.wall_ms() + number))
        await running.broker.jobs.run_now("tiering")
        assert running.broker.bucket is not None
        assert await running.broker.bucket.ship()
        clock.jump_wall(5_000)
        await running.broker.jobs.run_now("retention")
    (first, *_) = (tmp_path / "bucket").rglob("*.segment")
    return directory, url, first.parent


def test_status_and_gc(tiered: tuple[Path, str, Path]) -> None:
    directory, url, folder = tiered
    objects = sorted(folder.iterdir())
    done = tidelog("tier", "status", str(directory), "--json")
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    (part,) = document["partitions"]
    assert (part["name"], part["objects"], part["remote_only"]) == (
        "t-0",
        len(objects),
        len(objects),
    )
    assert document["monthly_cost"] == pytest.approx(part["bytes"] / 1e9 * 0.023)
    done = tidelog("tier", "status", str(directory), "--price", "1e6")
    assert "t-0" in done.stdout
    assert f"about {part['bytes'] / 1e3:.2f} a month, at 1e+06 for a GB" in done.stdout
    done = tidelog("tier", "status", str(directory), "--url", url)
    assert done.returncode == 0
    assert "0 missing, 0 older than a day that nothing names" in done.stdout
    assert tidelog("fsck", str(directory)).returncode == 0

    orphan = folder / objects[0].name.replace("-0-", "-9-")
    orphan.write_bytes(b"cut off")
    beside = folder / f"{objects[0].name}#1"
    beside.write_bytes(b"cut off by a crash")
    assert "0 objects" in tidelog("tier", "gc", str(directory), "--url", url).stdout
    old_s = orphan.stat().st_mtime - 2 * DAY_S
    for path in (orphan, beside, *objects):
        os.utime(path, (old_s, old_s))
    listed = tidelog("tier", "gc", str(directory), "--url", url)
    assert orphan.name in listed.stdout
    assert beside.name in listed.stdout
    assert "2 objects" in listed.stdout
    assert orphan.exists()
    assert beside.exists()
    done = tidelog("tier", "gc", str(directory), "--url", url, "--delete", "--json")
    assert json.loads(done.stdout)["deleted"] is True
    assert sorted(folder.iterdir()) == objects

    objects[0].unlink()
    done = tidelog("tier", "status", str(directory), "--url", url)
    assert done.returncode == ExitCode.DAMAGED
    assert "missing: " in done.stdout


async def test_status_shows_what_waits_although_nothing_is_there(tmp_path: Path) -> None:
    """As with a bucket that does not exist."""
    directory, url = tmp_path / "data", f"file://{tmp_path}/bucket"
    async with running_broker(directory, remote_storage_url=url) as running:
        client = await running.client()
        for name, enabled in (("t", "true"), ("local", "false")):
            await create_topic(client, name, segment_bytes="400", remote_storage_enable=enabled)
            for _ in range(3):
                await produce(client, name, batch("x" * 250))
        done = tidelog("tier", "status", str(directory), "--json")
    (part,) = json.loads(done.stdout)["partitions"]
    assert (part["name"], part["objects"]) == ("t-0", 0)
    assert part["waiting_bytes"] > 600, "both closed ones"


def test_garbage_is_not_collected_from_the_directory_of_a_former_owner(
    tiered: tuple[Path, str, Path], tmp_path: Path
) -> None:
    """It names nothing of what the new owner has uploaded."""
    directory, url, folder = tiered
    done = tidelog("restore", url, "--data-dir", str(tmp_path / "second"), "--take-over")
    assert done.returncode == 0, done.stderr
    objects = sorted(folder.iterdir())
    for path in objects:
        os.utime(path, (1, 1))
    for options in ([], ["--delete"]):
        done = tidelog("tier", "gc", str(directory), "--url", url, *options)
        assert done.returncode == ExitCode.FENCED
        assert "(epoch 2)" in done.stderr
        assert "name the directory of the owner" in done.stderr
    assert "0 objects" in tidelog("tier", "gc", str(tmp_path / "second"), "--url", url).stdout
    assert sorted(folder.iterdir()) == objects


def test_a_lost_manifest_or_a_hole_makes_nothing_garbage(
    tiered: tuple[Path, str, Path], tmp_path: Path
) -> None:
    directory, url, folder = tiered
    objects = sorted(folder.iterdir())
    for path in objects:
        os.utime(path, (1, 1))
    (directory / "t-0" / "segment-manifest").unlink()
    done = tidelog("tier", "gc", str(directory), "--url", url, "--delete")
    assert "0 objects" in done.stdout
    entries = sorted((tmp_path / "bucket").rglob("journal/*"))
    entries[-2].unlink()
    done = tidelog("tier", "gc", str(directory), "--url", url, "--delete")
    assert done.returncode == ExitCode.DAMAGED
    assert "the journal of the bucket has a hole" in done.stderr
    assert sorted(folder.iterdir()) == objects


def test_what_the_command_refuses(tiered: tuple[Path, str, Path], tmp_path: Path) -> None:
    directory, _, _ = tiered
    done = tidelog("tier", "gc", str(directory), "--url", "ftp://x/y")
    assert done.returncode == ExitCode.USAGE
    assert "begins with" in done.stderr
    empty = tmp_path / "empty"
    empty.mkdir()
    done = tidelog("tier", "gc", str(empty), "--url", "memory:")
    assert done.returncode == ExitCode.NOT_FOUND
    (tmp_path / "file").write_text("no folder")
    done = tidelog("tier", "gc", str(directory), "--url", f"file://{tmp_path}/file")
    assert done.returncode in (ExitCode.USAGE, ExitCode.UNREACHABLE)
