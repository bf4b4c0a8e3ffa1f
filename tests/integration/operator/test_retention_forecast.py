"""The forecast over HTTP against a broker whose clock then passes each foreseen time."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from broker.clocks.settable_clock import SettableClock
from client.admin import Admin
from client.errors import InvalidUse
from tests.support.broker import RunningBroker, batch, running_broker
from tests.support.cli import tidelog
from tests.support.clock import DAY_MS
from tests.support.requests import create_topic, produce
from tidelog.testing.process import TEST_SETTINGS

HOUR_MS = 3_600_000
START_MS = 1_767_225_600_000
CHECK_MS = 1_100  # the interval between checks, with its jitter


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[RunningBroker]:
    settings = {name.replace(".", "_"): value for name, value in TEST_SETTINGS.items()}
    async with running_broker(tmp_path / "data", clock=SettableClock(), **settings) as broker:
        async with Admin(broker.bootstrap) as admin:
            await admin.clock({"rate": 0, "set_ms": START_MS})
        yield broker


async def ask(running: RunningBroker, topic: str = "t", **asked: str) -> dict[str, Any]:
    settings = {name.replace("_", "."): value for name, value in asked.items()}
    async with Admin(running.bootstrap) as admin:
        return await admin.forecast_retention(topic, settings)


async def fill(running: RunningBroker, *hours: float, **configs: Any) -> None:
    """A topic with a segment for each record; the records' times are in hours from the start."""
    client = await running.client()
    configs = {
        "segment_bytes": "100",
        "message_timestamp_after_max_ms": str(99 * DAY_MS),
        **configs,
    }
    await create_topic(client, "t", **configs)
    for hour in hours:
        answer = await produce(client, "t", batch("x", timestamp=START_MS + int(hour * HOUR_MS)))
        assert answer.error_code == 0


def fates(document: dict[str, Any]) -> list[tuple[float | None, str | None]]:
    """When each segment of partition 0 goes, in hours from the start, and what keeps it."""
    return [
        (
            None if one["goes_at_ms"] is None else (one["goes_at_ms"] - START_MS - 1) / HOUR_MS,
            one["kept_by"],
        )
        for one in document["partitions"][0]["segments"]
    ]


async def pass_by(running: RunningBroker, document: dict[str, Any]) -> None:
    """Let time pass to each foreseen deletion, and see that it comes then and not before."""
    log = running.broker.topics.led_log("t", 0)
    times: dict[int, list[int]] = {}
    for one in document["partitions"][0]["segments"]:
        if one["goes_at_ms"] is not None:
            times.setdefault(one["goes_at_ms"], []).append(one["base_offset"])
    async with Admin(running.bootstrap) as admin:
        for at_ms, bases in sorted(times.items()):
            if at_ms > running.broker.clock.wall_ms() + CHECK_MS:
                await admin.clock({"set_ms": at_ms - CHECK_MS})
                await admin.clock({"set_ms": at_ms - 1})
                assert log.segments.first.base_offset == bases[0]
            moved = await admin.clock({"set_ms": max(at_ms, running.broker.clock.wall_ms())})
            if not moved["segments_deleted"]:
                moved = await admin.clock({"advance_ms": CHECK_MS})
            assert moved["segments_deleted"] == len(bases)


@pytest.mark.parametrize(
    ("hours", "configs", "expected"),
    [
        # In order: each after its own time.
        ([-3, -2, -1], {}, [(7, "RETENTION"), (8, "RETENTION"), (9, "RETENTION")]),
        # One record ahead of the clock keeps everything after it.
        ([-3, 20, -1], {}, [(7, "RETENTION"), (30, "FUTURE"), (30, "OLDER")]),
        # The same with the clamp: no timestamp counts as newer than its append.
        (
            [-3, 20, -1],
            {"retention_clamp_future": "true"},
            [(7, "RETENTION"), (10, "RETENTION"), (10, "OLDER")],
        ),
        # Already expired, and after one that is not.
        ([-11, -5, -12], {}, [(0, None), (5, "RETENTION"), (5, "OLDER")]),
        # The size counts at once, whatever the age.
        ([-3, -2, -1], {"retention_bytes": "130"}, [(0, None), (8, "RETENTION"), (9, "RETENTION")]),
        ([], {"cleanup_policy": "compact"}, [(None, "POLICY")]),
        ([], {}, [(None, "EMPTY")]),
        ([-3, -2], {"retention_ms": "-1"}, [(None, "UNLIMITED"), (None, "UNLIMITED")]),
    ],
)
async def test_segments_go_when_foreseen(
    running: RunningBroker,
    hours: list[float],
    configs: dict[str, str],
    expected: list[tuple[float | None, str | None]],
) -> None:
    await fill(running, *hours, **{"retention_ms": str(10 * HOUR_MS), **configs})
    document = await ask(running)
    found = fates(document)
    # A segment that may go now goes at once, not a millisecond after an hour.
    assert [(None if at is None else round(at, 3), kept) for at, kept in found] == [
        (at, kept) for at, kept in expected
    ]
    await pass_by(running, document)


async def test_expired_records_beside_newer_ones_are_named(running: RunningBroker) -> None:
    client = await running.client()
    await create_topic(client, "t", retention_ms=str(10 * HOUR_MS), segment_bytes="200")
    for hour in (-30, -1, -29, -2):
        await produce(client, "t", batch("x" * 30, timestamp=START_MS + hour * HOUR_MS))
    assert fates(await ask(running)) == [(9, "NEWER_RECORDS"), (9, "OLDER")]
    log = running.broker.topics.led_log("t", 0)
    assert len(log.segments) == 2


async def test_other_settings_are_tried_without_being_set(running: RunningBroker) -> None:
    await fill(running, -3, -2, retention_ms=str(10 * HOUR_MS))
    tried = await ask(running, retention_ms=str(2 * HOUR_MS), retention_bytes="10000000")
    assert tried["settings"]["retention.ms"] == 2 * HOUR_MS
    assert [kept for _, kept in fates(tried)] == [None, "RETENTION"]
    assert fates(await ask(running))[0] == (7, "RETENTION")


async def test_a_setting_that_is_none_is_refused(running: RunningBroker) -> None:
    await fill(running, -3)
    for wrong in ({"retention_ms": "soon"}, {"retention_days": "7"}, {"at": "-1"}):
        with pytest.raises(InvalidUse, match=next(iter(wrong)).replace("_", ".")):
            await ask(running, **wrong)


async def test_the_disk_is_full_when_the_rate_says(running: RunningBroker) -> None:
    await fill(running, retention_ms="-1")
    client = await running.client()
    async with Admin(running.bootstrap) as admin:
        for _ in range(5):
            await produce(client, "t", batch("x" * 20, timestamp=START_MS))
            await admin.clock({"advance_ms": HOUR_MS})
    document = await ask(running)
    per_day = document["partitions"][0]["bytes_per_day"]
    log = running.broker.topics.led_log("t", 0)
    # Four of the five segments came after the last append of the first, which is five hours ago.
    assert per_day == round(sum(one.size for one in list(log.segments)[1:]) / 5 * 24)
    disk = document["disk"]
    foreseen_ms = disk["full_at_ms"] - document["now_ms"]
    assert foreseen_ms == pytest.approx(disk["free_bytes"] / per_day * DAY_MS, rel=0.01)
    assert (await ask(running, retention_ms=str(DAY_MS)))["disk"]["full_at_ms"] is None


async def test_the_command_shows_it(running: RunningBroker) -> None:
    await fill(running, -3, 20, -1, retention_ms=str(10 * HOUR_MS))

    def run(*words: str) -> str:
        done = tidelog("retention", "t", "-b", running.bootstrap, *words)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    shown = await asyncio.to_thread(run)
    assert "retention.ms=36000000 (10h)" in shown
    assert "retention.clamp.future=true frees it" in shown
    assert "segment 1 before it stays" in shown
    assert "in 1d 6h" in shown
    assert "deletes 0 segments (0 B)" in shown
    tried = await asyncio.to_thread(run, "--set", "retention.ms=1000")
    assert "deletes 1 segment (" in tried
    document = json.loads(await asyncio.to_thread(run, "--json", "-p", "0"))
    assert [one["partition"] for one in document["partitions"]] == [0]
