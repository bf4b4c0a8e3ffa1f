"""Ranges of remote segments: shared, bounded, refused for a moment after an error."""

import asyncio
from collections.abc import Iterator

import pytest

from broker.metrics import RemoteMetrics
from broker.remote import reads
from broker.remote.reads import RemoteReads, repeated
from broker.threads import Pool
from storage.errors import StoreFailed
from storage.segment.facts import RemoteObject
from storage.segment.remote.log import RemoteBytesNeeded, RemoteLogFile
from storage.segment.remote.range_check import CheckedRange
from tests.support.clock import FrozenClock
from tests.support.simulated_store import SimulatedStore, StoreFault

SIZE = 100_000


class UncheckedFile(RemoteLogFile):
    """One whose bytes are no batches."""

    def check(self, start: int, data: bytes, landmarks: object) -> CheckedRange:
        """Nothing is checked."""
        return CheckedRange(None, len(data))


def remote_file(store: SimulatedStore, nonce: int, size: int = SIZE) -> RemoteLogFile:
    where = RemoteObject(
        base_offset=0, next_offset=1, log_bytes=size, object_bytes=size, crc=0, epoch=0,
        nonce=nonce, topic_id=7, partition=0,
    )  # fmt: skip
    store.create(where.key, bytes([nonce % 251]) * size)
    return UncheckedFile(f"/data/t-0/{nonce}.log", where)


class Bench:
    def __init__(self) -> None:
        self.store = SimulatedStore()
        self.clock = FrozenClock()
        self.metrics = RemoteMetrics()
        self.pool = Pool("downloads", 4)
        self.reads = RemoteReads(self.store, self.pool, self.clock, self.metrics)


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.pool.close()


async def test_a_read_is_repeated_with_its_bytes(bench: Bench) -> None:
    file = remote_file(bench.store, 3)
    assert await repeated(bench.reads, lambda: file.pread(10, 50)) == b"\3" * 10
    assert file.pread(1_000, 60) == b"\3" * 1_000
    assert bench.metrics.fetched == bench.store.count("GET") == 1


async def test_one_get_serves_all_that_need_the_range(bench: Bench) -> None:
    file = remote_file(bench.store, 3)
    both = await asyncio.gather(
        *(repeated(bench.reads, lambda: file.pread(10, 50)) for _ in range(20))
    )
    assert both == [b"\3" * 10] * 20
    assert bench.store.count("GET") == 1


async def test_without_a_store_the_need_is_the_error() -> None:
    store = SimulatedStore()
    file = remote_file(store, 3)
    with pytest.raises(RemoteBytesNeeded):
        await repeated(None, lambda: file.pread(10, 50))


async def test_an_error_refuses_the_segment_for_a_moment(bench: Bench) -> None:
    file, other = remote_file(bench.store, 3), remote_file(bench.store, 4)
    bench.store.faults["GET"] = [StoreFault.REFUSED]
    with pytest.raises(StoreFailed):
        await repeated(bench.reads, lambda: file.pread(10, 50))
    with pytest.raises(StoreFailed):
        await repeated(bench.reads, lambda: file.pread(10, 50))
    assert bench.store.count("GET") == bench.metrics.errors["fetch"] == 1
    assert await repeated(bench.reads, lambda: other.pread(1, 0)) == b"\4"
    bench.clock.advance(reads.REFUSED_MS)
    assert await repeated(bench.reads, lambda: file.pread(1, 0)) == b"\3"


async def test_the_memory_of_ranges_is_bounded(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reads, "KEPT_BYTES", 3 * SIZE)
    files = [remote_file(bench.store, nonce) for nonce in range(6)]
    for file in files:
        needs = RemoteBytesNeeded(file, 0, SIZE)
        await bench.reads.fetch(needs)
    for file in files[:3]:
        with pytest.raises(RemoteBytesNeeded):
            file.pread(1, 0)
    for file in files[3:]:
        assert len(file.pread(SIZE, 0)) == SIZE


async def test_an_unexpected_error_is_one_of_the_store(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(key: str, start: int, end: int) -> bytes:
        raise RuntimeError("a bug of the library")

    monkeypatch.setattr(bench.store, "get", broken)
    file = remote_file(bench.store, 3)
    with pytest.raises(StoreFailed, match="a bug of the library"):
        await repeated(bench.reads, lambda: file.pread(1, 0))
