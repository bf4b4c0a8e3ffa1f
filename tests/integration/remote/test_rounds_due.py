"""When a round of shipping is due: what an upload sends next is not sent twice."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from broker.jobs.bucket import METADATA_MS, OBJECTS_MS, UPLOADS_AHEAD, BucketWriter
from tests.integration.remote.test_store_down import append
from tests.integration.remote.test_tiered import tiered_broker
from tests.support.broker import RawClient, RunningBroker
from tests.support.clock import FrozenClock
from tests.support.requests import create_topic
from tests.support.simulated_store import SimulatedStore

SEGMENT_BYTES = 4_000
FLUSH_BYTES = 5_000
FLUSH_MS = 60_000
TOPIC = {
    "segment_bytes": str(SEGMENT_BYTES),
    "remote_storage_enable": "true",
    "remote_flush_bytes": str(FLUSH_BYTES),
    "remote_flush_ms": str(FLUSH_MS),
}


class Bench:
    """A broker with a topic, and how many entries its bucket has."""

    def __init__(self, running: RunningBroker, client: RawClient, clock: FrozenClock) -> None:
        self.running, self.client, self.clock = running, client, clock
        self.log = running.broker.data_dir.topics["t"].logs[0]
        assert isinstance(running.broker.bucket, BucketWriter)
        self.bucket = running.broker.bucket

    async def append_segments(self, count: int) -> None:
        """Append until there are `count` more segments."""
        wanted = len(self.log.segments) + count
        while len(self.log.segments) < wanted:
            await append(self.client, self.clock, self.log.log_end_offset)

    async def entries(self, job: str = "bucket") -> int:
        """Run the job; how many entries the bucket has then."""
        await self.running.broker.jobs.run_now(job)
        return self.running.broker.metrics.remote.entries


@asynccontextmanager
async def bench(data_dir: Path, **settings: str) -> AsyncIterator[Bench]:
    async with tiered_broker(data_dir, SimulatedStore()) as (running, client, clock):
        await create_topic(client, "t", 1, **TOPIC | settings)
        found = Bench(running, client, clock)
        await append(client, clock, 0)  # The first record begins a leader epoch.
        assert await found.bucket.ship()
        yield found


async def test_closed_segments_wait_for_their_upload(tmp_path: Path) -> None:
    async with bench(tmp_path / "data") as it:
        before = await it.entries()
        await it.append_segments(3)
        assert it.log.segments.first.size * 3 > FLUSH_BYTES
        assert await it.entries() == before
        await it.entries("tiering")
        assert it.running.broker.metrics.remote.uploaded == 3
        await append(it.client, it.clock, it.log.log_end_offset)
        it.clock.advance(METADATA_MS)
        assert await it.entries() == before, "the objects wait for the records of the tail"
        it.clock.advance(OBJECTS_MS)
        assert await it.entries() == before + 1
        assert it.bucket.shipped_end(it.log) == it.log.log_end_offset


async def test_objects_of_a_log_without_other_records_do_not_wait(tmp_path: Path) -> None:
    async with bench(tmp_path / "data") as it:
        await it.append_segments(2)
        assert await it.bucket.ship()
        before = await it.entries("tiering")
        assert it.running.broker.metrics.remote.uploaded == 2
        it.clock.advance(METADATA_MS)
        assert await it.entries() == before + 1


async def test_the_bound_holds_for_the_open_segment(tmp_path: Path) -> None:
    async with bench(tmp_path / "data", segment_bytes="1000000") as it:
        before = await it.entries()
        shipped = it.log.segments.active.size
        while it.log.segments.active.size - shipped < FLUSH_BYTES:
            assert await it.entries() == before
            await append(it.client, it.clock, it.log.log_end_offset)
        assert await it.entries() == before + 1


async def test_the_bound_holds_where_uploads_pause(tmp_path: Path) -> None:
    async with bench(tmp_path / "data", remote_log_copy_disable="true") as it:
        before = await it.entries()
        await it.append_segments(2)
        assert await it.entries() == before + 1


async def test_uploads_that_fall_behind_get_help(tmp_path: Path) -> None:
    async with bench(tmp_path / "data") as it:
        before = await it.entries()
        await it.append_segments(UPLOADS_AHEAD * FLUSH_BYTES // SEGMENT_BYTES)
        assert await it.entries() == before
        await it.append_segments(4)
        assert await it.entries() == before + 1
        assert it.bucket.shipped_end(it.log) == it.log.log_end_offset
