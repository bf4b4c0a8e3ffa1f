"""Brokers whose clock is wrong for a while: what they delete, what they stamp, what they report."""

from pathlib import Path

import pytest

from tests.support.broker import RunningBroker, batch, running_broker
from tests.support.clock import DAY_MS, FrozenClock
from tests.support.requests import create_topic, list_offset, produce

YEAR_MS = 365 * DAY_MS
HOUR_MS = 3_600_000
HOLD_MS = 600_000
STAMPED = "LogAppendTime"


def segments(broker: RunningBroker) -> int:
    return len(broker.broker.topics.led_log("t", 0).segments)


async def retain(broker: RunningBroker) -> None:
    await broker.broker.jobs.run_now("retention")


async def stamp(broker: RunningBroker, topic: str) -> int:
    """The LogAppendTime of a record appended now."""
    answer = await produce(await broker.client(), topic, batch("x"))
    assert answer.error_code == 0
    return answer.log_append_time_ms


@pytest.mark.parametrize("years", [10, -10])
async def test_a_clock_that_jumps_for_a_while_deletes_nothing(
    frozen: RunningBroker, clock: FrozenClock, years: int, caplog: pytest.LogCaptureFixture
) -> None:
    metrics = frozen.broker.metrics
    clock.jump_wall(years * YEAR_MS)
    for _ in range(9):
        clock.advance(HOLD_MS // 10)
        await retain(frozen)
    assert metrics.wall_clock_distrusted == (years > 0)
    clock.jump_wall(-years * YEAR_MS)
    for _ in range(20):
        await retain(frozen)
        clock.advance(HOLD_MS // 10)
    assert segments(frozen) == 5
    assert (metrics.wall_clock_jumps, metrics.wall_clock_distrusted) == (2, False)
    assert caplog.text.count("is not trusted") == 1
    assert caplog.text.count("everything follows it") == 1


async def test_retention_follows_a_clock_that_was_corrected(
    tmp_path: Path, clock: FrozenClock
) -> None:
    """A board without a battery clock: it starts in the past, on an empty directory."""
    clock.jump_wall(-400 * DAY_MS)
    async with running_broker(tmp_path / "data", clock=clock) as running:
        client = await running.client()
        await create_topic(client, "t", retention_ms="1000")
        clock.advance(5_000)
        clock.jump_wall(400 * DAY_MS)
        await produce(client, "t", batch("a", timestamp=clock.wall_ms()))
        clock.advance(HOLD_MS // 2)
        await retain(running)
        log = running.broker.topics.led_log("t", 0)
        assert log.log_start_offset == 0
        assert running.broker.metrics.wall_clock_distrusted
        clock.advance(HOLD_MS)
        await retain(running)
        assert log.log_start_offset == 1
        assert not running.broker.metrics.wall_clock_distrusted


async def test_retention_follows_the_time_after_a_suspend(
    frozen: RunningBroker, clock: FrozenClock
) -> None:
    clock.jump_wall(25 * HOUR_MS)
    await retain(frozen)
    assert segments(frozen) == 5
    clock.advance(HOLD_MS // 2)
    await retain(frozen)
    assert segments(frozen) == 5
    clock.advance(HOLD_MS)
    await retain(frozen)
    assert frozen.broker.topics.led_log("t", 0).log_start_offset == 5


async def test_the_delay_is_a_setting(tmp_path: Path, clock: FrozenClock) -> None:
    async with running_broker(
        tmp_path / "data", clock=clock, log_clock_trust_delay_ms="0"
    ) as running:
        client = await running.client()
        await create_topic(client, "t", retention_ms="1000")
        await produce(client, "t", batch("a", timestamp=clock.wall_ms()))
        clock.jump_wall(YEAR_MS)
        await retain(running)
        assert running.broker.topics.led_log("t", 0).log_start_offset == 1


@pytest.mark.parametrize("restarts", [False, True])
async def test_one_append_in_the_future_binds_no_later_stamp(
    tmp_path: Path, clock: FrozenClock, restarts: bool
) -> None:
    async with running_broker(tmp_path / "data", clock=clock) as running:
        await create_topic(
            await running.client(), "s", retention_ms=str(HOUR_MS), message_timestamp_type=STAMPED
        )
        clock.jump_wall(10 * YEAR_MS)
        assert await stamp(running, "s") == clock.wall_ms()
        clock.jump_wall(-10 * YEAR_MS)
        if not restarts:
            assert await stamp(running, "s") == clock.wall_ms()
    async with running_broker(tmp_path / "data", clock=clock) as running:
        if restarts:
            # Which of the two times is wrong is not known yet: the stamp stays, but not for ever.
            assert await stamp(running, "s") == clock.wall_ms() + 10 * YEAR_MS
            assert running.broker.metrics.wall_clock_distrusted
            clock.advance(HOLD_MS + 2_000)
            assert not running.broker.metrics.wall_clock_distrusted
        now_ms = clock.wall_ms()
        assert await stamp(running, "s") == now_ms
        client = await running.client()
        # The index stays true: the first record at or after now is the one from the future.
        assert (await list_offset(client, "s", now_ms)).offset == 0
        assert (await list_offset(client, "s", now_ms + 1)).offset == 0
        clock.advance(HOUR_MS + 2_000)
        await retain(running)
        log = running.broker.topics.led_log("s", 0)
        assert log.log_start_offset == log.log_end_offset
        assert await stamp(running, "s") == clock.wall_ms()
        client = await running.client()
        assert (await list_offset(client, "s", now_ms)).timestamp == clock.wall_ms()


async def test_a_board_that_starts_in_the_past_stamps_nothing_below_what_is_stored(
    tmp_path: Path, clock: FrozenClock
) -> None:
    async with running_broker(tmp_path / "data", clock=clock) as running:
        await create_topic(
            await running.client(), "s", retention_ms=str(DAY_MS), message_timestamp_type=STAMPED
        )
        before_ms = await stamp(running, "s")
    clock.jump_wall(-400 * DAY_MS)
    async with running_broker(tmp_path / "data", clock=clock) as running:
        assert await stamp(running, "s") == before_ms
        clock.advance(HOLD_MS // 2)
        assert await stamp(running, "s") == before_ms
        clock.jump_wall(400 * DAY_MS + HOUR_MS)
        clock.advance(2_000)
        assert await stamp(running, "s") == clock.wall_ms()
        assert not running.broker.metrics.wall_clock_distrusted
        await retain(running)
        assert running.broker.topics.led_log("s", 0).log_start_offset == 0


async def test_a_start_far_ahead_deletes_nothing_before_it_has_stood(
    tmp_path: Path, clock: FrozenClock
) -> None:
    async with running_broker(tmp_path / "data", clock=clock) as running:
        client = await running.client()
        await create_topic(client, "t", retention_ms=str(DAY_MS))
        await produce(client, "t", batch("a", timestamp=clock.wall_ms()))
    clock.jump_wall(10 * YEAR_MS)
    async with running_broker(tmp_path / "data", clock=clock) as running:
        log = running.broker.topics.led_log("t", 0)
        await retain(running)
        assert log.log_start_offset == 0
        clock.advance(HOLD_MS + 2_000)
        await retain(running)
        assert log.log_start_offset == 1


async def test_idle_producer_ids_are_forgotten_while_the_broker_runs(
    tmp_path: Path, clock: FrozenClock
) -> None:
    async with running_broker(
        tmp_path / "data", clock=clock, producer_id_expiration_ms="60000"
    ) as running:
        client = await running.client()
        await create_topic(client, "p")
        for number in range(20):
            answer = await produce(
                client,
                "p",
                batch(
                    "v",
                    timestamp=clock.wall_ms(),
                    producer_id=number,
                    producer_epoch=0,
                    base_sequence=0,
                ),
            )
            assert answer.error_code == 0
        state = running.broker.topics.led_log("p", 0).producers.state
        await running.broker.jobs.run_now("producer-ids")
        assert len(state) == 20
        snapshots = running.broker.topics.led_log("p", 0).producers.snapshots
        # The job runs by itself.
        clock.advance(2 * HOLD_MS)
        task = running.broker.jobs["producer-ids"].task
        assert task is not None
        await task
        assert len(state) == 0
        running.broker.topics.led_log("p", 0).roll(clock.wall_ms())
        assert Path(snapshots.path(snapshots.offsets[-1])).stat().st_size == 10


async def test_an_open_transaction_keeps_its_producer_id(
    tmp_path: Path, clock: FrozenClock
) -> None:
    async with running_broker(
        tmp_path / "data", clock=clock, producer_id_expiration_ms="60000"
    ) as running:
        await create_topic(await running.client(), "p")
        log = running.broker.topics.led_log("p", 0)
        data = batch("v", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
        log.append(memoryview(bytearray(data)), now_ms=clock.wall_ms())
        clock.advance(2 * HOLD_MS)
        assert log.producers.state.find(7) is not None
