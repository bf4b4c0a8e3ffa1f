"""What is known of segments, over HTTP and after a crash."""

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from broker.clocks.settable_clock import SettableClock
from client.admin import Admin
from tests.support.broker import RunningBroker, batch, running_broker
from tests.support.requests import create_topic, produce

NOW_MS = 1_767_225_600_000


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


async def test_both_ends_of_every_segments_times_are_shown(served: RunningBroker) -> None:
    document = await ask(served, "topic=t&partition=0")
    assert (document["topic"], document["partition"]) == ("t", 0)
    assert [
        (one["base_offset"], one["next_offset"], one["min_timestamp"], one["max_timestamp"])
        for one in document["segments"]
    ] == [(0, 1, 300, 300), (1, 2, 100, 100), (2, 3, 200, 200)]
    assert [one["active"] for one in document["segments"]] == [False, False, True]
    assert all(one["records"] == 1 and one["size_bytes"] > 61 for one in document["segments"])


async def test_all_partitions_are_in_one_answer(served: RunningBroker) -> None:
    document = await ask(served, "topic=t")
    assert [(one["partition"], len(one["segments"])) for one in document["partitions"]] == [
        (0, 3),
        (1, 1),
    ]
    assert document["partitions"][1]["segments"] == [
        {
            "base_offset": 0,
            "next_offset": 0,
            "size_bytes": 0,
            "records": 0,
            "min_timestamp": None,
            "max_timestamp": -1,
            "data_max_timestamp": -1,
            "active": True,
            "appended_ms": -1,
            "goes_at_ms": None,
            "reason": None,
            "kept_by": "EMPTY",
            "why": "it has no records",
            "held_by": None,
            "future": None,
        }
    ]


async def test_segments_come_in_pages(served: RunningBroker) -> None:
    found, query = [], "topic=t&limit=1"
    while True:
        page = await ask(served, query)
        found += [
            (one["partition"], segment["base_offset"])
            for one in page["partitions"]
            for segment in one["segments"]
        ]
        if page["next"] is None:
            break
        assert page["next"] == f"{found[-1][0]}:{found[-1][1]}"
        query = f"topic=t&limit=1&after={page['next']}"
    assert found == [(0, 0), (0, 1), (0, 2), (1, 0)]
    one = await ask(served, "topic=t&partition=0&limit=2")
    assert ([s["base_offset"] for s in one["segments"]], one["next"]) == ([0, 1], "0:1")
    rest = await ask(served, "topic=t&partition=0&after=0:1")
    assert ([s["base_offset"] for s in rest["segments"]], rest["next"]) == ([2], None)


async def test_each_segment_says_when_it_goes_and_what_keeps_it(tmp_path: Path) -> None:
    """The same as the forecast; what is deleted waits for its files to be unlinked."""
    clock = SettableClock()
    async with running_broker(
        tmp_path / "data", clock=clock, metrics_listener="127.0.0.1:0"
    ) as running:
        client = await running.client()
        await create_topic(
            client, "t", segment_bytes="100", retention_ms="3600000",
            message_timestamp_after_max_ms=str(2**50),
        )  # fmt: skip
        async with Admin(running.bootstrap) as admin:
            await admin.clock({"rate": 0, "set_ms": NOW_MS})
            for ahead_ms in (-1000, 0, 7_200_000, 1000):
                await produce(client, "t", batch("x", timestamp=NOW_MS + ahead_ms))
            found = await ask(running, "topic=t&partition=0")
            forecast = await admin.forecast_retention("t")
            keys = ("goes_at_ms", "reason", "kept_by", "why", "held_by", "future")
            for mine, theirs in zip(
                found["segments"], forecast["partitions"][0]["segments"], strict=True
            ):
                assert {key: mine[key] for key in keys} == {key: theirs[key] for key in keys}
            assert [one["kept_by"] for one in found["segments"]] == [
                "RETENTION", "RETENTION", "FUTURE", "OLDER",
            ]  # fmt: skip
            assert found["segments"][2]["future"] == {
                "offset": 2, "timestamp_ms": NOW_MS + 7_200_000,
            }  # fmt: skip
            assert found["segments"][3]["held_by"] == 2
            assert {one["appended_ms"] for one in found["segments"]} == {NOW_MS}
            assert (found["now_ms"], found["high_watermark"], found["deleted"]) == (NOW_MS, 4, [])
            await admin.clock({"advance_ms": 3_660_000})
        gone = await ask(running, "topic=t&partition=0")
        assert [one["base_offset"] for one in gone["segments"]] == [2, 3]
        assert gone["log_start_offset"] == 2
        deleted = gone["deleted"]
        assert [one["base_offset"] for one in deleted] == [0, 1]
        assert all(one["size_bytes"] > 61 for one in deleted)
        assert all(gone["now_ms"] < one["unlinked_at_ms"] for one in deleted)


async def test_a_segment_says_how_many_records_are_before_a_time(tmp_path: Path) -> None:
    """From memory and from the files of closed segments, by the times that readers see."""
    clock = SettableClock()
    async with running_broker(
        tmp_path / "data", clock=clock, metrics_listener="127.0.0.1:0"
    ) as running:
        client = await running.client()
        await create_topic(client, "t", segment_bytes="300", retention_ms="-1")
        for first in (100_000, 50_000, 150_000, 90_000, 10_000, 170_000, 140_000):
            await produce(client, "t", batch("a", "b", timestamp=first))
        found = (await ask(running, "topic=t&before=120000"))["partitions"][0]["segments"]
        assert len(found) > 2
        assert [one.get("before") for one in found] == [
            {"ms": 120_000, "records": 2 * count} if count else None
            for count in _below(found, [100, 50, 150, 90, 10, 170, 140], 120)
        ]
        assert all("before" not in one for one in (await ask(running, "topic=t"))["partitions"])
        await create_topic(client, "s", message_timestamp_type="LogAppendTime")
        async with Admin(running.bootstrap) as admin:
            for number in range(3):
                await admin.clock({"rate": 0, "set_ms": NOW_MS + number * 10_000})
                await produce(client, "s", batch("a", timestamp=NOW_MS - number * 100_000))
        (one,) = (await ask(running, f"topic=s&partition=0&before={NOW_MS + 5000}"))["segments"]
        assert one["before"] == {"ms": NOW_MS + 5000, "records": 1}


def _below(segments: list[dict[str, Any]], seconds: list[int], bound: int) -> list[int]:
    """How many batches of each segment are before a time that the segment reaches over."""
    found = []
    for one in segments:
        here = seconds[one["base_offset"] // 2 : one["next_offset"] // 2]
        count = sum(second < bound for second in here)
        found.append(count if 0 < count < len(here) else 0)
    return found


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("topic=u", 404),
        ("topic=t&partition=9", 404),
        ("partition=0", 400),
        ("topic=t&limit=0", 400),
        ("topic=t&limit=10001", 400),
        ("topic=t&after=0", 400),
        ("topic=t&after=0:x", 400),
        ("topic=t&partition=-1", 400),
        ("topic=t&limits=1", 400),
        ("topic=t&before=0", 400),
    ],
)
async def test_a_question_that_cannot_be_answered_is_refused(
    served: RunningBroker, query: str, status: int
) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        await ask(served, query)
    assert refused.value.code == status
    assert json.load(refused.value)["error"]
    refused.value.close()
