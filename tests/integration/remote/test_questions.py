"""Questions about a tiered topic beyond Fetch: counts by time, time windows."""

import asyncio
import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from protocol.api.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from protocol.records.scan import scan_entries
from tests.integration.remote.test_tiered import fill, logs_in, tier, tiered_broker
from tests.support.broker import RawClient, RunningBroker, batch
from tests.support.requests import create_topic, fetch, list_offset, produce, records_of

HOUR_MS = 3_600_000
START_MS = 1_699_996_400_000  # 2023-11-14T21:13:20Z
WINDOW = "t.__t__20231114T211320Z__20231114T214320Z"
RECORDS = 60


async def ask(running: RunningBroker, question: str) -> Any:
    def get() -> Any:
        url = f"http://127.0.0.1:{running.ready.metrics_port}/{question}?topic=t"
        with urllib.request.urlopen(url, timeout=20) as answer:
            return json.load(answer)

    return await asyncio.to_thread(get)


async def test_a_start_within_a_remote_segment_leaves_that_one_uncounted(tmp_path: Path) -> None:
    async with tiered_broker(tmp_path, metrics_listener="127.0.0.1:0") as (running, client, clock):
        await fill(client, clock)
        await tier(running, clock)
        found = await ask(running, "histogram")
        assert (found["records"], found["is_complete"]) == (10, True)
        start = DeleteRecordsPartition(partition_index=0, offset=3)
        topic = DeleteRecordsTopic(name="t", partitions=[start])
        await client.request(DeleteRecordsRequest(topics=[topic], timeout_ms=1_000), 2)
        found = await ask(running, "histogram")
        assert (found["records"], found["is_complete"]) == (6, False)
        (missing,) = found["missing"]
        assert (missing["base_offset"], missing["next_offset"]) == (2, 4)
        assert missing["why"].startswith("in the object store only")


async def test_what_the_object_store_has_fills_no_disk(tmp_path: Path) -> None:
    """The topic grows for ever, its local part does not."""
    async with tiered_broker(tmp_path, metrics_listener="127.0.0.1:0") as (running, client, clock):
        await fill(client, clock, retention_ms="-1")
        await tier(running, clock)
        found = await ask(running, "retention")
        (partition,) = found["partitions"]
        assert found["settings"]["retention.ms"] == -1
        assert partition["bytes_per_day"] > 0
        assert found["disk"]["full_at_ms"] is None


async def read_window(client: RawClient, version: int) -> list[int]:
    """The offsets of all records of the window, read as a consumer does."""
    found: list[int] = []
    offset, end = 0, 1
    while offset < end:
        data = await fetch(client, WINDOW, offset, max_wait_ms=5_000, version=version)
        assert data.error_code == 0
        found += [record.offset for record in records_of(data) if record.offset >= offset]
        entries = list(scan_entries(data.records or b""))
        end = data.high_watermark
        assert entries or offset == end
        offset = entries[-1].next_offset if entries else end
    return found


@pytest.mark.parametrize("size", [100, 60_000])
async def test_a_window_over_objects_alone(tmp_path: Path, size: int) -> None:
    """Few records of each object are in the window, and none of some."""
    async with tiered_broker(tmp_path, time_windows_enable="true") as (running, client, clock):
        await create_topic(
            client,
            "t",
            segment_bytes=str(size * 3),
            remote_storage_enable="true",
            local_retention_ms="1000",
            file_delete_delay_ms="0",
        )
        for number in range(RECORDS):
            outside_ms = -1_000 if number % 2 else HOUR_MS // 2
            time_ms = START_MS + (number * 1_000 if number % 20 == 9 else outside_ms)
            value = str(number).encode() + b"x" * size
            await produce(client, "t", batch(value, timestamp=time_ms))
        await tier(running, clock)
        assert len(logs_in(tmp_path)) == 1
        assert await read_window(client, 12) == [9, 29, 49]
        assert await read_window(client, 4) == [9, 29, 49]
        for time_ms, wanted in ((START_MS, 9), (START_MS + 9_001, 29), (START_MS + 49_001, -1)):
            answer = await list_offset(client, WINDOW, time_ms)
            assert (answer.error_code, answer.offset) == (0, wanted)
        largest = await list_offset(client, WINDOW, -3)
        assert (largest.error_code, largest.offset) == (0, 49)
