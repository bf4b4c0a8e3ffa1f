"""Background jobs against a real directory: what retention deletes, and what a clock cannot."""

import threading
from pathlib import Path

import pytest

from storage.disk.files import RealFiles
from tests.support.broker import RunningBroker, batch, running_broker
from tests.support.clock import DAY_MS, FrozenClock
from tests.support.requests import create_topic, fetch, list_offset, produce, values_of


async def test_expired_segments_go(frozen: RunningBroker, clock: FrozenClock) -> None:
    assert len(frozen.broker.topics.led_log("t", 0).segments) == 5
    clock.advance(DAY_MS - 1)
    await frozen.broker.jobs.run_now("retention")
    assert len(frozen.broker.topics.led_log("t", 0).segments) == 5
    clock.advance(2)
    await frozen.broker.jobs.run_now("retention")
    client = await frozen.client()
    assert (await list_offset(client, "t", -2)).offset == 5
    assert values_of(await fetch(client, "t", 5)) == []
    assert sum(frozen.broker.metrics.segments_deleted.values()) == 5


async def test_checkpoints_are_written(frozen: RunningBroker) -> None:
    await frozen.broker.jobs.run_now("checkpoint")
    text = (Path(frozen.ready.data_dir) / "recovery-point-offset-checkpoint").read_text()
    assert "t 0 5" in text


async def test_deleted_topics_leave_the_disk(frozen: RunningBroker, clock: FrozenClock) -> None:
    await frozen.broker.topics.delete("t")
    root = Path(frozen.ready.data_dir)
    assert not (root / "t-0").exists()
    assert any("-delete" in path.name for path in root.iterdir())
    clock.advance(60_001)
    await frozen.broker.jobs.run_now("pending-files")
    assert not any("-delete" in path.name for path in root.iterdir())


async def test_flush_ms_makes_os_topics_durable(tmp_path: Path, clock: FrozenClock) -> None:
    async with running_broker(tmp_path / "os", clock=clock) as broker:
        client = await broker.client()
        await create_topic(client, "o", flush_policy="os", flush_ms="5000")
        log = broker.broker.topics.led_log("o", 0)
        await produce(client, "o", batch("a"))
        await broker.broker.group_commit.drain()  # the names of a new log's files are synced soon
        await produce(client, "o", batch("b"))
        await broker.broker.jobs.run_now("flush")
        await broker.broker.group_commit.drain()
        assert (log.high_watermark, log.durable_offset) == (2, 1)
        clock.advance(5000)
        await broker.broker.jobs.run_now("flush")
        await broker.broker.group_commit.drain()
        assert log.durable_offset == 2


async def test_a_record_from_the_future_that_holds_back_retention_is_reported_once(
    tmp_path: Path, clock: FrozenClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_broker(tmp_path / "data", clock=clock) as running:
        client = await running.client()
        never = str(2**63 - 1)
        await create_topic(client, "f", retention_ms="1000", message_timestamp_after_max_ms=never)
        await produce(client, "f", batch("ahead", timestamp=clock.wall_ms() + DAY_MS))
        for _ in range(3):
            clock.advance(5_000)
            await running.broker.jobs.run_now("retention")
        assert caplog.text.count("ahead of the clock") == 1
        assert running.broker.metrics.logs_held_by_future == 1
        clock.advance(2 * DAY_MS)
        await running.broker.jobs.run_now("retention")
        assert running.broker.metrics.logs_held_by_future == 0
        assert running.broker.topics.led_log("f", 0).log_start_offset == 1


async def test_retention_follows_a_topics_settings_at_run_time(
    frozen: RunningBroker, clock: FrozenClock
) -> None:
    clock.advance(DAY_MS // 2)
    await frozen.broker.jobs.run_now("retention")
    assert len(frozen.broker.topics.led_log("t", 0).segments) == 5
    frozen.broker.data_dir.set_topic_overrides("t", {"retention.ms": str(DAY_MS // 4)})
    await frozen.broker.jobs.run_now("retention")
    assert len(frozen.broker.topics.led_log("t", 0).segments) == 1
    assert frozen.broker.topics.led_log("t", 0).log_start_offset == 5


async def test_deleted_topics_are_removed_outside_of_the_event_loop(
    tmp_path: Path, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic of thousands of partitions would hold up every client."""
    seen: set[threading.Thread] = set()
    remove_tree = RealFiles.remove_tree

    def remove_tree_noted(files: RealFiles, path: str) -> None:
        seen.add(threading.current_thread())
        remove_tree(files, path)

    monkeypatch.setattr(RealFiles, "remove_tree", remove_tree_noted)
    async with running_broker(tmp_path / "data", clock=clock) as running:
        await create_topic(await running.client(), "gone", partitions=3)
        data_dir = running.broker.data_dir
        data_dir.delete_topic("gone", clock.wall_ms() - 60_000)
        await running.broker.jobs.run_now("pending-files")
        assert seen
        assert threading.current_thread() not in seen
        assert not list(Path(data_dir.path).glob("gone*"))
