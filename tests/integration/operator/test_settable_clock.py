"""A broker with a settable clock: what follows it, what does not, who may set it."""

import asyncio
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from broker.clocks.settable_clock import SettableClock
from broker.errors import DataDirUnusable
from cli.exit_codes import ExitCode
from cli.main import run
from client.admin import Admin
from client.consumer import Consumer
from client.errors import ClientError, InvalidUse, UnsupportedByBroker
from client.producer import Producer
from client.types import TopicPartition
from tests.support.broker import RunningBroker, batch, running_broker
from tests.support.clock import DAY_MS
from tests.support.requests import create_topic, fetch, list_offset, produce, values_of

HOUR_MS = 3_600_000
MINUTE_MS = 60_000
NEW_YEAR_MS = 1_767_225_600_000


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[RunningBroker]:
    async with settable_broker(tmp_path / "data") as broker:
        yield broker


def settable_broker(directory: Path, *, moves_sessions: bool = False, **settings: str) -> Any:
    clock = SettableClock(moves_sessions=moves_sessions)
    return running_broker(directory, clock=clock, metrics_listener="127.0.0.1:0", **settings)


async def move(running: RunningBroker, **changes: float) -> dict[str, Any]:
    async with Admin(running.bootstrap) as admin:
        return await admin.clock(changes)


def member(running: RunningBroker) -> Consumer:
    return Consumer("t", bootstrap=running.bootstrap, group_id="g", start="earliest")


def segments(running: RunningBroker, topic: str = "t") -> int:
    return len(running.broker.topics.led_log(topic, 0).segments)


def is_distrusted(running: RunningBroker) -> bool:
    return bool(running.broker.metrics.wall_clock_distrusted)


async def fill(running: RunningBroker, **configs: Any) -> None:
    """A topic of five segments, whose records have the broker's time."""
    client = await running.client()
    await create_topic(client, "t", segment_bytes="100", **configs)
    for value in "abcde":
        answer = await produce(client, "t", batch(value, timestamp=running.broker.clock.wall_ms()))
        assert answer.error_code == 0


async def test_after_seven_days_the_records_are_gone(running: RunningBroker) -> None:
    await fill(running, retention_ms=str(7 * DAY_MS))
    assert (await move(running, advance_ms=7 * DAY_MS - MINUTE_MS))["segments_deleted"] == 0
    assert segments(running) == 5
    moved = await move(running, advance_ms=HOUR_MS)
    assert moved["segments_deleted"] == 5
    assert (await list_offset(await running.client(), "t", -2)).offset == 5


async def test_setting_it_ahead_is_trusted_and_a_jump_is_not(running: RunningBroker) -> None:
    await fill(running, retention_ms=str(DAY_MS))
    await move(running, jump_ms=2 * DAY_MS)
    await move(running, advance_ms=6 * MINUTE_MS)
    assert is_distrusted(running)
    assert segments(running) == 5
    await move(running, jump_ms=-2 * DAY_MS)
    assert not is_distrusted(running)
    here_ms = running.broker.clock.wall_ms()
    assert (await move(running, set_ms=here_ms + 2 * DAY_MS))["segments_deleted"] == 5
    assert not running.broker.metrics.wall_clock_distrusted


async def test_log_append_time_follows_it_in_both_directions(running: RunningBroker) -> None:
    client = await running.client()
    await create_topic(client, "t", message_timestamp_type="LogAppendTime")
    for year in (1, 2, 1):
        await move(running, rate=0, set_ms=NEW_YEAR_MS + year * 365 * DAY_MS)
        answer = await produce(client, "t", batch("x"))
        assert answer.log_append_time_ms == NEW_YEAR_MS + year * 365 * DAY_MS


async def test_the_bound_of_timestamps_follows_it(running: RunningBroker) -> None:
    client = await running.client()
    await create_topic(client, "t")
    await move(running, rate=0, set_ms=NEW_YEAR_MS)
    for timestamp, error_code in ((NEW_YEAR_MS + HOUR_MS, 0), (NEW_YEAR_MS + HOUR_MS + 1, 32)):
        answer = await produce(client, "t", batch("x", timestamp=timestamp))
        assert answer.error_code == error_code


async def test_a_frozen_broker_still_answers_long_polls(running: RunningBroker) -> None:
    client = await running.client()
    await create_topic(client, "t")
    await move(running, rate=0)
    data = await asyncio.wait_for(fetch(client, "t", 0, max_wait_ms=50), 10)
    assert values_of(data) == []


async def test_a_frozen_broker_keeps_members_and_commits(running: RunningBroker) -> None:
    await fill(running)
    await move(running, rate=0)
    async with Consumer(
        "t", bootstrap=running.bootstrap, group_id="g", start="earliest"
    ) as consumer:
        await anext(consumer)
        await move(running, advance_ms=8 * HOUR_MS)
        await consumer.commit()
        assert running.broker.groups.classic_groups["g"].members


async def test_offsets_of_empty_groups_expire(running: RunningBroker) -> None:
    await fill(running)
    async with Admin(running.bootstrap) as admin:
        await admin.alter_group_offsets("g", {TopicPartition("t", 0): 2})
        assert (await admin.clock({"advance_ms": 6 * DAY_MS}))["groups_expired"] == 0
        assert await admin.group_offsets("g")
        assert (await admin.clock({"advance_ms": 2 * DAY_MS}))["groups_expired"] == 1
        assert not await admin.group_offsets("g")


async def test_a_transaction_times_out(running: RunningBroker) -> None:
    await fill(running)
    log = running.broker.topics.led_log("t", 0)
    ends: list[tuple[int, int]] = []

    async def wait_too_long() -> None:
        producer = Producer(bootstrap=running.bootstrap, transactional_id="tx")
        async with producer, producer.transaction():
            await producer.send_and_wait("t", b"x")
            ends.append((log.last_stable_offset, log.high_watermark))
            await move(running, advance_ms=16 * MINUTE_MS)
            ends.append((log.last_stable_offset, log.high_watermark))

    with pytest.raises(ClientError):
        await wait_too_long()
    assert ends == [(5, 6), (7, 7)]


async def test_idle_producer_ids_expire(running: RunningBroker) -> None:
    client = await running.client()
    await create_topic(client, "t")
    now_ms = running.broker.clock.wall_ms()
    known = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    await produce(client, "t", batch("x", timestamp=now_ms, **known))
    state = running.broker.topics.led_log("t", 0).producers.state
    assert len(state) == 1
    await move(running, advance_ms=2 * DAY_MS)
    assert len(state) == 0


async def test_files_that_were_renamed_away_are_unlinked(running: RunningBroker) -> None:
    await fill(running, retention_ms=str(DAY_MS))
    await move(running, advance_ms=2 * DAY_MS)
    directory = Path(running.ready.data_dir) / "t-0"
    assert list(directory.glob("*.deleted"))
    await move(running, advance_ms=2 * MINUTE_MS)
    assert not list(directory.glob("*.deleted"))


async def test_sessions_follow_it_when_asked(tmp_path: Path) -> None:
    async with settable_broker(tmp_path / "data", moves_sessions=True) as running:
        await fill(running)
        async with member(running) as consumer:
            await anext(consumer)
            await move(running, rate=0, advance_ms=HOUR_MS)
            group = running.broker.groups.classic_groups.get("g")
            assert group is None or not group.members


async def test_a_restarted_broker_continues_from_its_time_and_trusts_it(tmp_path: Path) -> None:
    late_ms = NEW_YEAR_MS + 400 * DAY_MS
    async with settable_broker(tmp_path / "data") as running:
        await fill(running, message_timestamp_type="LogAppendTime", retention_ms=str(9 * DAY_MS))
        await move(running, rate=0, set_ms=late_ms)
        await produce(await running.client(), "t", batch("late"))
        await move(running, advance_ms=8 * DAY_MS)
    async with settable_broker(tmp_path / "data") as running:
        assert running.broker.clock.wall_ms() == late_ms + 8 * DAY_MS
        assert running.broker.topics.led_log("t", 0).newest_append_ms == late_ms
        assert not running.broker.metrics.wall_clock_distrusted
        assert (await move(running, advance_ms=2 * DAY_MS))["segments_deleted"] == 1


async def test_a_directory_of_made_up_times_is_not_exported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with settable_broker(tmp_path / "data"):
        pass
    words = ["export-kraft", str(tmp_path / "data"), str(tmp_path / "kafka")]
    assert await asyncio.to_thread(run, words) == ExitCode.FAILED
    assert "settable clock" in capsys.readouterr().err
    assert not (tmp_path / "kafka").exists()


async def test_a_directory_with_real_records_is_refused(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "data") as running:
        await create_topic(await running.client(), "t")
    with pytest.raises(DataDirUnusable, match="made with the system's clock"):
        async with settable_broker(tmp_path / "data"):
            pass


async def test_without_the_option_there_is_no_clock_to_set(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "data", metrics_listener="127.0.0.1:0") as running:
        for changes in ({}, {"advance_ms": 1}):
            with pytest.raises(UnsupportedByBroker, match="--clock settable"):
                await move(running, **changes)
        assert not (Path(running.ready.data_dir) / "settable-clock").exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"advance_ms": -1},
        {"advance_ms": 11 * 365 * DAY_MS},
        {"set_ms": 1_000},
        {"rate": -1},
        {"rate": float("nan")},
        {"speed": 1},
    ],
)
async def test_a_change_out_of_range_changes_nothing(
    running: RunningBroker, changes: dict[str, float]
) -> None:
    await move(running, rate=0)
    before = await move(running)
    with pytest.raises(InvalidUse, match=next(iter(changes))):
        await move(running, jump_ms=5, **changes)
    assert await move(running) == before


async def test_a_change_is_in_the_audit_log(
    running: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "tidelog.audit")
    await move(running)
    with pytest.raises(InvalidUse):
        await move(running, advance_ms=-1)
    assert not caplog.messages
    await move(running, advance_ms=5)
    (line,) = caplog.messages
    assert line == "User:ANONYMOUS at 127.0.0.1 sent the command /clock?advance_ms=5"


@pytest.mark.parametrize("path", ["/clock?advance_ms=1000", "/faults?drop=PRODUCE"])
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"X-Tidelog-Clock": "set", "Host": "evil.example:80"},
        {"X-Tidelog-Command": "test", "Host": "evil.example:80"},
        {"Origin": "http://x"},
    ],
)
async def test_a_page_in_a_browser_cannot_send_commands(
    running: RunningBroker, headers: dict[str, str], path: str
) -> None:
    url = f"http://127.0.0.1:{running.ready.metrics_port}{path}"
    asked = urllib.request.Request(url, data=b"", headers=headers, method="POST")

    def post() -> None:
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(asked, timeout=5)
        with refused.value as answer:
            assert answer.code == 403
            assert answer.read()

    elapsed_ms = running.broker.clock.monotonic_ms()
    await asyncio.to_thread(post)
    assert running.broker.clock.monotonic_ms() - elapsed_ms < 100_000


@pytest.mark.parametrize("header", ["X-Tidelog-Command", "X-Tidelog-Clock"])
async def test_a_command_has_one_of_two_headers(running: RunningBroker, header: str) -> None:
    url = f"http://127.0.0.1:{running.ready.metrics_port}/clock?advance_ms=1000"
    asked = urllib.request.Request(url, data=b"", headers={header: "set"}, method="POST")
    with await asyncio.to_thread(urllib.request.urlopen, asked, timeout=5) as answer:
        assert answer.status == 200
