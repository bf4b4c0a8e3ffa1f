"""What is known of segments, over HTTP and after a crash."""

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.broker import RunningBroker, batch, running_broker
from tests.support.requests import create_topic, produce


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[RunningBroker]:
    async with running_broker(tmp_path / "data", metrics_listener="127.0.0.1:0") as running:
        client = await running.client()
        await create_topic(client, "t", partitions=2, segment_bytes="100")
        for time in (300, 100, 200):
            await produce(client, "t", batch(str(time), timestamp=time))
        yield running


async def ask(running: RunningBroker, query: str) -> Any:
    def get() -> Any:
        url = f"http://127.0.0.1:{running.ready.metrics_port}/segments?{query}"
        with urllib.request.urlopen(url, timeout=5) as answer:
            return json.load(answer)

    return await asyncio.to_thread(get)


async def test_both_ends_of_every_segments_times_are_told(served: RunningBroker) -> None:
    told = await ask(served, "topic=t&partition=0")
    assert (told["topic"], told["partition"]) == ("t", 0)
    assert [
        (one["base_offset"], one["next_offset"], one["min_timestamp"], one["max_timestamp"])
        for one in told["segments"]
    ] == [(0, 1, 300, 300), (1, 2, 100, 100), (2, 3, 200, 200)]
    assert [one["active"] for one in told["segments"]] == [False, False, True]
    assert all(one["records"] == 1 and one["size_bytes"] > 61 for one in told["segments"])


async def test_all_partitions_are_told_in_one_answer(served: RunningBroker) -> None:
    told = await ask(served, "topic=t")
    assert [(one["partition"], len(one["segments"])) for one in told["partitions"]] == [
        (0, 3),
        (1, 1),
    ]
    assert told["partitions"][1]["segments"] == [
        {
            "base_offset": 0,
            "next_offset": 0,
            "size_bytes": 0,
            "records": 0,
            "min_timestamp": None,
            "max_timestamp": -1,
            "data_max_timestamp": -1,
            "active": True,
        }
    ]


@pytest.mark.parametrize(
    ("query", "status"), [("topic=u", 404), ("topic=t&partition=9", 404), ("partition=0", 400)]
)
async def test_a_question_that_cannot_be_answered_is_refused(
    served: RunningBroker, query: str, status: int
) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        await ask(served, query)
    assert refused.value.code == status
    assert json.load(refused.value)["error"]
    refused.value.close()
