"""A real broker whose system calls fail: errors while it serves, death while it starts.

`SYSCALL_KILLS=1000` kills at every changing call of a start instead of at a sample of them.
"""

import asyncio
import os
import random
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from config import load
from protocol.error_codes import ErrorCode
from storage.audit.fsck import audit_directory
from storage.directory.data_dir import DataDir
from storage.disk.files import RealFiles
from tests.crash.strace import attach, start_traced, why_unavailable
from tests.support.broker import BrokerProcess, RawClient, batch, broker_process, broker_settings
from tests.support.requests import create_topic, fetch, produce, values_of

KILLS = int(os.environ.get("SYSCALL_KILLS", "4"))
DISK_BYTES = 24 << 20
NOW_MS = 1_700_000_000_000

pytestmark = pytest.mark.timeout(120 + 20 * KILLS)

needs_strace = pytest.mark.skipif(why_unavailable() is not None, reason=why_unavailable() or "")


@asynccontextmanager
async def talking(broker: BrokerProcess) -> AsyncIterator[RawClient]:
    client = await RawClient.connect("127.0.0.1", broker.port)
    yield client
    await client.close()


async def append(client: RawClient, topic: str, value: str) -> ErrorCode:
    return ErrorCode((await produce(client, topic, batch(value))).error_code)


async def read(client: RawClient, topic: str) -> list[bytes | None]:
    """Every value; one fetch gives no more than the rest of a segment."""
    values: list[bytes | None] = []
    while found := values_of(
        await fetch(client, topic, len(values), partition_max_bytes=DISK_BYTES)
    ):
        values += found
    return values


@needs_strace
async def test_failed_sync_ends_a_log_until_the_restart(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with broker_process(data) as broker:
        async with talking(broker) as client:
            for topic in ("bad", "good"):
                await create_topic(client, topic)
                assert await append(client, topic, "first") == ErrorCode.NONE
            log = str(data / "bad-0" / f"{0:020d}.log")
            with attach(broker.process.pid, "fdatasync:error=EIO:when=3", log):
                codes = [await append(client, "bad", str(number)) for number in range(6)]
                assert await append(client, "good", "second") == ErrorCode.NONE
            assert codes == [ErrorCode.NONE] * 2 + [ErrorCode.KAFKA_STORAGE_ERROR] * 4
            # The error is injected once: one retry would have found that all is well.
            assert await append(client, "bad", "late") == ErrorCode.KAFKA_STORAGE_ERROR
            assert await read(client, "bad") == [b"first", b"0", b"1"]
        broker.stop(signal.SIGKILL)
    with broker_process(data) as broker:
        async with talking(broker) as client:
            assert (await read(client, "bad"))[:3] == [b"first", b"0", b"1"]
            assert await append(client, "bad", "again") == ErrorCode.NONE
            assert await read(client, "good") == [b"first", b"second"]
        assert broker.stop() == 0
    assert audit_directory(str(data), RealFiles()).findings == []


@needs_strace
@pytest.mark.parametrize("error", ["EIO", "ENOSPC", "EDQUOT", "EFBIG", "EROFS"])
async def test_failed_write_refuses_one_batch(tmp_path: Path, error: str) -> None:
    data = tmp_path / "data"
    with broker_process(data) as broker:
        async with talking(broker) as client:
            await create_topic(client, "t")
            assert await append(client, "t", "first") == ErrorCode.NONE
            log = str(data / "t-0" / f"{0:020d}.log")
            with attach(broker.process.pid, f"pwrite64:error={error}:when=2", log):
                codes = [await append(client, "t", str(number)) for number in range(4)]
            assert codes == [
                ErrorCode.NONE,
                ErrorCode.KAFKA_STORAGE_ERROR,
                ErrorCode.NONE,
                ErrorCode.NONE,
            ]
            assert await read(client, "t") == [b"first", b"0", b"2", b"3"]
        assert broker.stop() == 0
    assert audit_directory(str(data), RealFiles()).findings == []


@needs_strace
@pytest.mark.slow
async def test_start_killed_at_any_call_is_followed_by_a_whole_one(tmp_path: Path) -> None:
    """After a clean stop and after a crash, with what both leave to be tidied up."""
    crashed, stopped = tmp_path / "crashed", tmp_path / "stopped"
    await _fill(crashed, stops=False)
    await _fill(stopped, stops=True)
    rng = random.Random(5)
    for before in (crashed, stopped):
        ends = _ends(shutil.copytree(before, tmp_path / "expected" / before.name))
        calls = start_traced(*_copy(before, tmp_path / f"{before.name}-count"), kill_at=None).calls
        assert len(calls) > 10
        print(f"{before.name}: {len(calls)} changing calls in a start")
        for number in sorted(rng.sample(range(len(calls)), min(KILLS, len(calls)))):
            kill_at = calls[number], calls[: number + 1].count(calls[number])
            target, settings = _copy(before, tmp_path / f"{before.name}-{number}")
            assert not start_traced(target, settings, kill_at=kill_at).was_ready
            assert _ends(target) == ends, f"killed at {kill_at}, call {number} of {len(calls)}"
            assert audit_directory(str(target), RealFiles()).findings == [], kill_at


async def _fill(directory: Path, *, stops: bool) -> None:
    """Topics, segments, deleted topics, a tail that was not flushed."""
    with broker_process(directory) as broker:
        async with talking(broker) as client:
            await create_topic(client, "a", segment_bytes="1000", flush_policy="os")
            await create_topic(client, "b", 2)
            await create_topic(client, "gone")
            for number in range(60):
                for topic in ("a", "b"):
                    assert await append(client, topic, f"{number} {'x' * 90}") == ErrorCode.NONE
        broker.stop(signal.SIGTERM if stops else signal.SIGKILL)


def _copy(source: Path, target: Path) -> tuple[Path, list[str]]:
    data = target / "data"
    target.mkdir()
    shutil.copytree(source, data)
    return data, [f"{key}={value}" for key, value in broker_settings(data, {}).items()]


def _ends(directory: Path) -> dict[str, tuple[int, int]]:
    """Start and end of every log, after an orderly start and stop in this process."""
    config = load(command_line=broker_settings(directory, {}))
    data_dir = DataDir.open(str(directory), files=RealFiles(), broker_config=config, now_ms=NOW_MS)
    ends = {
        f"{topic.name}-{log.partition}": (log.log_start_offset, log.log_end_offset)
        for topic in data_dir.topics.values()
        for log in topic.logs
    }
    data_dir.close(NOW_MS)
    return ends


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MiB with nothing on it."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    path = tmp_path / "small"
    path.mkdir()
    options = f"size={DISK_BYTES}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)], check=True)
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


async def test_full_disk_refuses_appends_until_there_is_space(small_disk: Path) -> None:
    filler = small_disk / "filler"
    filler.write_bytes(bytes(DISK_BYTES // 2))
    data = small_disk / "data"
    kept: list[bytes | None] = []
    with broker_process(data) as broker:
        async with talking(broker) as client:
            await create_topic(client, "t", segment_bytes="4194304")
            for number in range(100):
                value = f"{number} {'x' * 300_000}"
                code = await append(client, "t", value)
                if code != ErrorCode.NONE:
                    break
                kept.append(value.encode())
            assert code == ErrorCode.KAFKA_STORAGE_ERROR
            assert 10 < len(kept) < 50
            for _ in range(3):
                assert await append(client, "t", "y" * 300_000) == ErrorCode.KAFKA_STORAGE_ERROR
            assert await read(client, "t") == kept, "reads go on"
            filler.unlink()
            assert await append(client, "t", "space") == ErrorCode.NONE, "without a restart"
            assert await read(client, "t") == [*kept, b"space"]
        assert broker.stop() == 0
    assert audit_directory(str(data), RealFiles()).findings == []
    with broker_process(data) as broker:
        async with talking(broker) as client:
            assert await read(client, "t") == [*kept, b"space"]


async def test_retention_empties_a_full_disk(small_disk: Path) -> None:
    """The reserve is for those who make space: without it retention fails for want of space."""
    data = small_disk / "data"
    settings = {"log_retention_check_interval_ms": "500", "log_initial_task_delay_ms": "4000"}
    with broker_process(data, **settings) as broker:
        async with talking(broker) as client:
            await create_topic(
                client,
                "t",
                retention_bytes="4000000",
                segment_bytes="1048576",
                file_delete_delay_ms="100",
            )
            while await append(client, "t", "x" * 300_000) == ErrorCode.NONE:
                pass
            free = os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize
            assert DISK_BYTES // 20 - 300_000 < free < DISK_BYTES // 20 + 600_000
            async with asyncio.timeout(30):
                while await append(client, "t", "space") != ErrorCode.NONE:
                    await asyncio.sleep(0.1)
        assert broker.stop() == 0
    assert audit_directory(str(data), RealFiles()).findings == []
