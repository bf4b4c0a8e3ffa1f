"""A tiered topic over the wire: uploads, local retention, reads of both parts, failing stores."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from broker.jobs import tiering
from broker.node import Broker
from broker.remote import reads
from broker.space import SpaceGuard
from config import load
from protocol.api.delete_topics import DeleteTopicsRequest
from protocol.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from protocol.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from protocol.error_codes import ErrorCode
from storage.errors import StoreFailed
from tests.support.broker import (
    RawClient,
    RunningBroker,
    batch,
    broker_settings,
    running_broker,
    served,
)
from tests.support.clock import FrozenClock
from tests.support.requests import (
    create_topic,
    fetch,
    fetch_request,
    list_offset,
    produce,
    values_of,
)
from tests.support.simulated_store import SimulatedStore, SimulatedUpload, StoreFault

EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, PENDING = -2, -4, -5, -6
BATCHES = 10


@asynccontextmanager
async def tiered_broker(
    directory: Path, store: SimulatedStore | None = None, **settings: str
) -> AsyncIterator[tuple[RunningBroker, RawClient, FrozenClock]]:
    clock = FrozenClock()
    settings = {"remote_storage_url": "memory:", **settings}
    config = load(command_line=broker_settings(directory, settings))
    async with served(Broker(config, clock=clock, store=store)) as running:
        yield running, await running.client(), clock


async def fill(client: RawClient, clock: FrozenClock, **settings: str) -> bytes:
    """Ten batches of one record, two per segment; the values are the offsets."""
    topic_id = await create_topic(
        client,
        "t",
        1,
        **{
            "segment_bytes": "400",
            "remote_storage_enable": "true",
            "local_retention_ms": "1000",
            "file_delete_delay_ms": "0",
            **settings,
        },
    )
    for number in range(BATCHES):
        value = f"{number}".encode() + b"x" * 99
        await produce(client, "t", batch(value, timestamp=clock.wall_ms() + number))
    return topic_id


async def append(client: RawClient, clock: FrozenClock, topic: str, *counts: int) -> None:
    """So many batches to partition 0, 1, and so on; each fills a segment of 400 bytes."""
    for partition, count in enumerate(counts):
        for _ in range(count):
            records = batch("x" * 250, timestamp=clock.wall_ms())
            await produce(client, topic, records, partition=partition)


async def tier(running: RunningBroker, clock: FrozenClock) -> None:
    """Upload, name the objects in the bucket's journal, then let local retention pass."""
    await running.broker.jobs.run_now("tiering")
    assert running.broker.bucket is not None
    assert await running.broker.bucket.ship()
    clock.jump_wall(5_000)
    await running.broker.jobs.run_now("retention")
    await running.broker.jobs.run_now("pending-files")


def logs_in(directory: Path) -> list[str]:
    return sorted(path.name for path in (directory / "t-0").glob("*.log"))


async def read_all(client: RawClient, **fields: int) -> list[int]:
    """The numbers in all values, read as a consumer does."""
    found: list[int] = []
    while len(found) < BATCHES:
        data = await fetch(client, "t", len(found), max_wait_ms=5_000, **fields)
        assert data.error_code == 0
        found += [int((value or b"").rstrip(b"x")) for value in values_of(data)]
    return found


@pytest.mark.parametrize("kind", ["memory", "folder"])
async def test_both_parts_read_as_one(tmp_path: Path, kind: str) -> None:
    url = "memory:" if kind == "memory" else f"file://{tmp_path}/bucket"
    directory = tmp_path / "data"
    async with tiered_broker(directory, remote_storage_url=url) as (running, client, clock):
        await fill(client, clock)
        assert (await list_offset(client, "t", LATEST_TIERED)).offset == -1
        assert (await list_offset(client, "t", PENDING, version=11)).offset == 0
        await tier(running, clock)
        assert len(logs_in(directory)) == 1
        assert await read_all(client) == list(range(BATCHES))
        assert await read_all(client, partition_max_bytes=100) == list(range(BATCHES))
        assert (await list_offset(client, "t", EARLIEST)).offset == 0
        assert (await list_offset(client, "t", EARLIEST_LOCAL)).offset == 8
        tiered = await list_offset(client, "t", LATEST_TIERED)
        assert (tiered.offset, tiered.timestamp, tiered.leader_epoch) == (7, -1, 0)
        assert (await list_offset(client, "t", PENDING, version=11)).offset == 8
        began = clock.wall_ms() - 5_000
        for number in range(BATCHES):
            found = await list_offset(client, "t", began + number)
            assert (found.offset, found.timestamp) == (number, began + number)
        if kind == "memory":
            return
    async with tiered_broker(directory, remote_storage_url=url) as (running, client, clock):
        assert await read_all(client) == list(range(BATCHES))


async def test_deleting_a_topic_deletes_its_objects(tmp_path: Path) -> None:
    store = SimulatedStore()
    directory = tmp_path / "data"
    async with tiered_broker(directory, store) as (running, client, clock):
        await fill(client, clock)
        await tier(running, clock)
        assert len(store.segments) == 4
        store.is_down = True
        await client.request(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1_000), 5)
        await running.broker.jobs.run_now("tiering")
        await running.broker.jobs.run_now("pending-files")
        assert len(list(directory.glob("*-delete"))) == 1
    store.is_down = False
    async with tiered_broker(directory, store) as (running, client, clock):
        await running.broker.jobs.run_now("tiering")
        assert store.segments == {}
        await running.broker.jobs.run_now("pending-files")
        assert list(directory.glob("*-delete")) == []


async def test_a_store_that_is_down_costs_a_retriable_error_and_no_append(tmp_path: Path) -> None:
    store = SimulatedStore()
    async with tiered_broker(tmp_path / "data", store) as (running, client, clock):
        await fill(client, clock)
        await tier(running, clock)
        store.is_down = True
        data = await fetch(client, "t", 0, max_wait_ms=5_000)
        assert data.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        found = await list_offset(client, "t", clock.wall_ms() - 5_000)
        assert found.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await produce(client, "t", batch("10" * 50))).error_code == 0
        assert (await produce(client, "t", batch("11" * 50))).error_code == 0
        assert (await produce(client, "t", batch("12" * 50))).error_code == 0
        await running.broker.jobs.run_now("tiering")
        remote = running.broker.metrics.remote
        assert remote.backlog_bytes > 0
        assert remote.errors["upload"] == 1
        assert (await fetch(client, "t", 9)).error_code == 0
        store.is_down = False
        clock.advance(reads.REFUSED_MS + 1)
        assert await read_all(client) == list(range(BATCHES))
        clock.advance(60_000)
        await running.broker.jobs.run_now("tiering")
        assert remote.backlog_bytes == 0


class TearingStore(SimulatedStore):
    """A store of which some answers, or all, have another byte at `position` of the object."""

    position, tears = -1, 0

    def get(self, key: str, start: int, end: int) -> bytes:
        data = super().get(key, start, end)
        at = self.position - start
        if self.tears and key.endswith(".segment") and 0 <= at < len(data):
            self.tears -= 1
            data = data[:at] + bytes([data[at] ^ 0x40]) + data[at + 1 :]
        return data


@pytest.mark.parametrize(
    "position", [0, 6, 7, 8, 100, 178], ids=["first", "offset", "low", "size", "value", "second"]
)
async def test_a_wrong_answer_of_the_store_is_asked_for_again(
    tmp_path: Path, position: int
) -> None:
    """It was kept, and every consumer got it until the broker was restarted."""
    store = TearingStore()
    async with tiered_broker(tmp_path / "data", store) as (running, client, clock):
        await fill(client, clock)
        await tier(running, clock)
        began, before = clock.wall_ms() - 5_000, store.count("GET")
        store.position, store.tears = position, 1
        assert await read_all(client) == list(range(BATCHES))
        assert store.tears == 0
        assert running.broker.metrics.remote.errors["fetch"] == 1
        assert store.count("GET") == before + 4 + 1
        for number in range(BATCHES):
            assert (await list_offset(client, "t", began + number)).offset == number


async def test_what_is_wrong_in_the_store_is_served_if_readers_notice_it(tmp_path: Path) -> None:
    """As from a disk: a wrong checksum. Offsets that readers would follow are an error."""
    store = TearingStore()
    async with tiered_broker(tmp_path / "data", store) as (running, client, clock):
        await fill(client, clock)
        await tier(running, clock)
        store.position, store.tears = 100, 1000
        data = await fetch(client, "t", 0, max_wait_ms=5_000)
        assert data.error_code == 0
        assert b"x8x" in (values_of(data)[0] or b""), "a letter with another bit"
        assert running.broker.metrics.remote.errors["fetch"] == 1
    async with tiered_broker(tmp_path / "data", store) as (running, client, clock):
        store.position = 6
        data = await fetch(client, "t", 0, max_wait_ms=5_000)
        assert data.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        store.tears = 0
        clock.advance(reads.REFUSED_MS + 1)
        assert await read_all(client) == list(range(BATCHES))


async def test_a_store_that_stays_silent_holds_up_nothing_else(tmp_path: Path) -> None:
    store = SimulatedStore()
    hangs = threading.Event()
    store.before = lambda kind: None if kind != "GET" or not waits else _wait(hangs)
    waits = False
    async with tiered_broker(tmp_path / "data", store) as (running, client, clock):
        await fill(client, clock)
        await create_topic(client, "local")
        await tier(running, clock)
        waits = True
        waiting = await running.client()
        waiting.send(fetch_request("t", 0, max_wait_ms=5_000), 12)
        while not running.broker.remote or not running.broker.remote._waiting:
            await asyncio.sleep(0.001)
        assert (await produce(client, "local", batch("a"))).error_code == 0
        assert values_of(await fetch(client, "local")) == [b"a"]
        assert values_of(await fetch(client, "t", 9))[0] is not None
        clock.advance(reads.DEADLINE_MS + 1)
        answer = await waiting.receive()
        partition = answer.responses[0].partitions[0]
        assert partition.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        hangs.set()


def _wait(event: threading.Event) -> None:
    event.wait(30)


async def test_other_partitions_do_not_wait_for_the_store(tmp_path: Path) -> None:
    store = SimulatedStore()
    async with tiered_broker(tmp_path / "data", store) as (running, client, clock):
        await fill(client, clock)
        await create_topic(client, "local")
        await tier(running, clock)
        await produce(client, "local", batch("a"))
        request = fetch_request("local", 0, max_wait_ms=5_000)
        request.topics += fetch_request("t", 0).topics
        answer = await client.request(request, 12)
        parts = {one.topic: one.partitions[0] for one in answer.responses}
        assert values_of(parts["local"]) == [b"a"]
        assert (len(parts["t"].records), parts["t"].error_code) == (0, 0)
        assert parts["t"].high_watermark == BATCHES
        # The range is on its way, for the next fetch.
        while running.broker.metrics.remote.fetched == 0:
            await asyncio.sleep(0.001)
        gets = store.count("GET")
        assert len(values_of(await fetch(client, "t", 0))) == 2
        assert store.count("GET") == gets


async def test_old_clients_read_the_remote_part(tmp_path: Path) -> None:
    async with tiered_broker(tmp_path / "data") as (running, client, clock):
        await fill(client, clock)
        await tier(running, clock)
        data = await fetch(client, "t", 0, version=1, max_wait_ms=5_000)
        assert len(values_of(data)) == 2


async def test_settings_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    async def alter(client: RawClient, name: str, value: str) -> str | None:
        request = IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=2,
                    resource_name="t",
                    configs=[AlterableConfig(name=name, config_operation=0, value=value)],
                )
            ]
        )
        answer = (await client.request(request, 1)).responses[0]
        return answer.error_message if answer.error_code else None

    async with tiered_broker(tmp_path / "data") as (_, client, clock):
        await fill(client, clock)
        assert "object store only" in str(await alter(client, "remote.storage.enable", "false"))
        assert "retention.ms" in str(await alter(client, "local.retention.ms", "-1"))
        assert await alter(client, "cleanup.policy", "compact") is None
        assert await alter(client, "local.retention.ms", "-1") is None
        assert await alter(client, "remote.log.copy.disable", "true") is None
    async with running_broker(tmp_path / "other") as running:
        client = await running.client()
        await create_topic(client, "t")
        problem = await alter(client, "remote.storage.enable", "true")
        assert "remote.storage.url" in str(problem)


async def test_without_a_url_the_remote_part_is_refused(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    async with tiered_broker(directory, SimulatedStore()) as (running, client, clock):
        await fill(client, clock)
        await tier(running, clock)
    async with running_broker(directory) as running:
        client = await running.client()
        data = await fetch(client, "t", 0)
        assert data.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await fetch(client, "t", 8)).error_code == 0


async def test_all_partitions_of_a_lookup_ask_the_store_at_once(tmp_path: Path) -> None:
    store = SimulatedStore()
    together = threading.Barrier(3, timeout=10)
    waits = False

    def before(kind: str) -> None:
        if waits and kind == "GET":
            # Three GETs have to be under way, or none goes on.
            together.wait()

    store.before = before
    async with tiered_broker(tmp_path / "data", store) as (running, client, clock):
        settings = {"segment_bytes": "400", "remote_storage_enable": "true"}
        await create_topic(
            client, "t", 3, **settings, local_retention_ms="1000", file_delete_delay_ms="0"
        )
        began = clock.wall_ms()
        for partition in range(3):
            for number in range(6):
                records = batch("x" * 150, timestamp=began + number)
                await produce(client, "t", records, partition=partition)
        await tier(running, clock)
        waits = True
        request = ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsTopic(
                    name="t",
                    partitions=[
                        ListOffsetsPartition(partition_index=number, timestamp=began + 1)
                        for number in range(3)
                    ],
                )
            ],
        )
        answer = (await client.request(request, 7)).topics[0].partitions
        assert [(one.error_code, one.offset) for one in answer] == [(0, 1)] * 3
        waits = False


async def test_an_upload_that_hangs_shows_in_the_backlog_and_holds_up_nothing(
    tmp_path: Path,
) -> None:
    store = SimulatedStore()
    hangs = threading.Event()
    store.before = lambda kind: _wait(hangs) if kind == "PUT" else None
    async with tiered_broker(tmp_path / "data", store) as (running, client, clock):
        await fill(client, clock)
        upload = asyncio.create_task(running.broker.jobs.run_now("tiering"))
        remote = running.broker.metrics.remote
        while remote.backlog_bytes == 0:
            await asyncio.sleep(0.001)
        for _ in range(10):
            assert (await produce(client, "t", batch("more"))).error_code == 0
        assert await read_all(client) == list(range(BATCHES))
        assert not upload.done()
        hangs.set()
        await upload
        await running.broker.jobs.run_now("tiering")
        assert remote.backlog_bytes == 0


async def test_a_full_disk_makes_local_copies_go_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "data"
    async with tiered_broker(directory, SimulatedStore()) as (running, client, clock):
        await fill(client, clock, local_retention_ms="-2", file_delete_delay_ms="60000")
        await running.broker.jobs.run_now("tiering")
        assert len(logs_in(directory)) == 5
        monkeypatch.setattr(SpaceGuard, "left_bytes", lambda self: 1_000)
        await running.broker.jobs.run_now("tiering")
        assert len(logs_in(directory)) == 5, "the bucket's journal does not name them yet"
        assert running.broker.bucket is not None
        assert await running.broker.bucket.ship()
        await running.broker.jobs.run_now("tiering")
        assert len(logs_in(directory)) == 1
        assert list((directory / "t-0").glob("*.deleted")) == []
        assert await read_all(client) == list(range(BATCHES))


async def test_room_is_made_while_an_upload_is_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of a large segment, at a bounded rate, takes minutes."""
    store, directory = SimulatedStore(), tmp_path / "data"
    hangs = threading.Event()
    async with tiered_broker(directory, store) as (running, client, clock):
        await fill(client, clock, local_retention_ms="-2", file_delete_delay_ms="60000")
        await running.broker.jobs.run_now("tiering")
        assert running.broker.bucket is not None
        assert await running.broker.bucket.ship()
        for _ in range(2):
            await produce(client, "t", batch("x" * 150, timestamp=clock.wall_ms()))
        store.before = lambda kind: _wait(hangs) if kind == "PUT" else None
        upload = asyncio.create_task(running.broker.jobs.run_now("tiering"))
        monkeypatch.setattr(SpaceGuard, "left_bytes", lambda self: 1_000)
        try:
            await running.broker.jobs.run_now("tiering-watch")
            assert logs_in(directory)[0] == f"{8:020d}.log", "what is uploaded has gone"
            assert not upload.done()
        finally:
            hangs.set()
        await upload


async def test_a_log_with_many_segments_takes_turns_with_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that grows faster than the store takes has always a next one."""
    monkeypatch.setattr(tiering, "TURN_MS", 0)
    store = SimulatedStore()
    async with tiered_broker(tmp_path / "data", store) as (running, client, clock):
        await create_topic(client, "t", 2, segment_bytes="400", remote_storage_enable="true")
        await append(client, clock, "t", 6, 3)
        await running.broker.jobs.run_now("tiering")
        order = [key.split("/")[1] for key in store.segments]
        assert order == ["0", "1", "0", "1", "0", "0", "0"]


async def test_retention_deletes_objects_after_a_failed_try(tmp_path: Path) -> None:
    store = SimulatedStore()
    async with tiered_broker(tmp_path / "data", store) as (running, client, clock):
        await fill(client, clock, retention_ms="60000")
        await tier(running, clock)
        assert len(store.segments) == 4
        # A step of the clock is believed after a while only.
        clock.advance(running.broker.config.log_clock_trust_delay_ms)
        await running.broker.jobs.run_now("retention")
        store.faults["DELETE"] = [StoreFault.REFUSED]
        await running.broker.jobs.run_now("tiering")
        assert (await list_offset(client, "t", EARLIEST)).offset == BATCHES
        assert len(store.segments) == 4
        clock.advance(60_000)
        await running.broker.jobs.run_now("tiering")
        assert store.segments == {}


async def test_a_bucket_that_refuses_deletions_gets_uploads(tmp_path: Path) -> None:
    """As one does whose objects must not be deleted before a date."""
    store = SimulatedStore()
    async with tiered_broker(tmp_path / "data", store) as (running, client, clock):
        await fill(client, clock, retention_ms="60000")
        await tier(running, clock)
        clock.advance(running.broker.config.log_clock_trust_delay_ms)
        await running.broker.jobs.run_now("retention")
        store.faults["DELETE"] = [StoreFault.REFUSED] * 20
        before = set(store.segments)
        await append(client, clock, "t", 4)
        for _ in range(2):
            await running.broker.jobs.run_now("tiering")
        assert len(store.segments.keys() - before) >= 3
        assert running.broker.metrics.remote.errors["delete"] == 1, "the next try has to wait"


class RefusingStore(SimulatedStore):
    """A store that takes no object with these words in its name: at first those of partition 0."""

    refused = "/0/"

    def begin_put(self, key: str, size: int) -> SimulatedUpload:
        if self.refused in key:
            raise StoreFailed(f"PUT {key}: refused")
        return super().begin_put(key, size)


async def test_a_log_that_fails_holds_up_no_other(tmp_path: Path) -> None:
    store = RefusingStore()
    async with tiered_broker(tmp_path / "data", store) as (running, client, clock):
        await create_topic(client, "t", 3, segment_bytes="400", remote_storage_enable="true")
        await append(client, clock, "t", 3, 3, 3)
        logs = running.broker.data_dir.topics["t"].logs
        for _ in range(2):
            await running.broker.jobs.run_now("tiering")
            clock.advance(60_000)
        assert [len(log.manifest.remote) for log in logs] == [0, 2, 2]


async def test_many_logs_that_fail_hold_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of a topic that the store refuses; more than may fail in a round."""
    monkeypatch.setattr(tiering, "FAILURES_AT_ONCE", 4)
    store = RefusingStore()
    async with tiered_broker(tmp_path / "data", store) as (running, client, clock):
        for topic, partitions in (("refused", 2 * tiering.FAILURES_AT_ONCE + 1), ("t", 1)):
            topic_id = await create_topic(
                client, topic, partitions, segment_bytes="400", remote_storage_enable="true"
            )
            if topic == "refused":
                store.refused = topic_id.hex()
            await append(client, clock, topic, *[3] * partitions)
        (log,) = running.broker.data_dir.topics["t"].logs
        for _ in range(8):
            await running.broker.jobs.run_now("tiering")
            clock.advance(1_000)
        assert len(log.manifest.remote) == 2


async def test_logs_that_fail_after_a_timeout_hold_up_the_round_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store may be down: as many timeouts as there are logs would take hours."""
    monkeypatch.setattr(tiering, "FAILING_MS", 0)
    store = RefusingStore()
    async with tiered_broker(tmp_path / "data", store) as (running, client, clock):
        topic_id = await create_topic(
            client, "t", 4, segment_bytes="400", remote_storage_enable="true"
        )
        store.refused = topic_id.hex()
        await append(client, clock, "t", *[3] * 4)
        await running.broker.jobs.run_now("tiering")
        assert running.broker.metrics.remote.errors["upload"] == 1


async def test_a_log_that_fails_costs_the_turns_of_the_others_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked again after 1, 2, 4 seconds, and the others go on in between."""
    monkeypatch.setattr(tiering, "TURN_MS", 0)
    store = RefusingStore()
    async with tiered_broker(tmp_path / "data", store) as (running, client, clock):
        await create_topic(client, "t", 2, segment_bytes="400", remote_storage_enable="true")
        await append(client, clock, "t", 3, 9)
        for _ in range(3):
            await running.broker.jobs.run_now("tiering")
            clock.advance(1_000)
        logs = running.broker.data_dir.topics["t"].logs
        assert [len(log.manifest.remote) for log in logs] == [0, 8]
        assert running.broker.metrics.remote.errors["upload"] == 2
