"""What a test can do to a broker: seed it, restart it, kill it, pause it, break its disk."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from client.admin import Admin
from client.errors import BrokerUnreachable, ClientError
from client.producer import Producer
from client.types import TopicInfo
from tests.support.clock import DAY_MS
from tidelog.testing import (
    BrokerDidNotStart,
    RunningBroker,
    Seed,
    in_process_broker,
    running_broker,
)

NEW_YEAR_MS = 1_767_225_600_000


def test_a_topic_is_seeded_with_keys_times_and_partitions() -> None:
    with running_broker() as broker:
        values: list[str | bytes | Seed] = [
            Seed("a", key="k", timestamp_ms=NEW_YEAR_MS, partition=1, headers=(("h", b"1"),)),
            Seed(None, key=b"k", partition=0),
            b"c",
        ]
        broker.create_topic("t", values, partitions=2, settings={"retention.ms": "-1"})
        first = next(one for one in broker.read("t") if one.partition == 1)
        assert (first.value, first.key, first.timestamp_ms) == (b"a", b"k", NEW_YEAR_MS)
        assert first.headers == (("h", b"1"),)
        assert len(broker.read("t")) == 3


def test_a_restart_and_a_kill_keep_port_and_records() -> None:
    with running_broker(clock="settable") as broker:
        broker.clock.freeze("2026-01-01T00:00Z")
        broker.create_topic("t", ["a"])
        for end in (broker.stop, broker.kill, lambda: None):
            end()
            port = broker.port
            broker.restart()
            assert broker.port == port
            assert broker.clock.now_ms == NEW_YEAR_MS
            assert [(one.value, one.timestamp_ms) for one in broker.read("t")] == [
                (b"a", NEW_YEAR_MS)
            ]


async def topics_of(broker: RunningBroker, timeout_ms: int = 30_000) -> dict[str, TopicInfo]:
    async with Admin(
        broker.bootstrap, request_timeout_ms=timeout_ms, timeout_ms=timeout_ms
    ) as admin:
        return await admin.topics()


def test_a_paused_broker_answers_later() -> None:
    with running_broker() as broker:
        with broker.paused(), pytest.raises(BrokerUnreachable):
            asyncio.run(topics_of(broker, 300))
        assert asyncio.run(topics_of(broker)) == {}


def test_the_clock_takes_every_form_of_time() -> None:
    with running_broker(clock="settable") as broker:
        clock = broker.clock
        with clock.frozen(datetime(2026, 1, 1, tzinfo=UTC)):
            assert clock.now_ms == NEW_YEAR_MS
            assert clock.advance(timedelta(hours=1)).wall_ms == NEW_YEAR_MS + 3_600_000
            assert clock.advance(1).wall_ms == NEW_YEAR_MS + 3_600_001
            assert clock.jump("-1h").wall_ms == NEW_YEAR_MS + 1
            assert clock.set(NEW_YEAR_MS + DAY_MS).wall_ms == NEW_YEAR_MS + DAY_MS
            assert clock.read().rate == 0
        assert clock.read().rate == 1
        with pytest.raises(ValueError, match=r"not a number from 0 .*jump_ms moves"):
            clock.advance("-1d")


def test_a_clock_that_is_none_is_refused() -> None:
    clock: Any = "lunar"
    sentence = """clock = 'lunar': give "system" or "settable\""""
    with pytest.raises(ValueError, match=sentence), running_broker(clock=clock):
        pass


def test_a_broker_that_cannot_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "stranger").touch()
    with (
        pytest.raises(BrokerDidNotStart, match="no data directory"),
        running_broker(tmp_path, clock="settable"),
    ):
        pass


async def test_a_broker_in_the_loop_restarts_on_its_records(tmp_path: Path) -> None:
    for round_number in (1, 2):
        async with in_process_broker(tmp_path / "data") as broker:
            if round_number == 1:
                await broker.create_topic("t", ["a"], settings={"retention.ms": str(DAY_MS)})
            assert len(await broker.read("t")) == 1
            moved = await broker.clock.advance("11h")
            assert moved.segments_deleted == 0
    async with in_process_broker(tmp_path / "data") as broker:
        assert (await broker.clock.advance("3h")).segments_deleted == 1


@pytest.mark.parametrize("fault", ["full", "unwritable"])
async def test_appends_fail_until_the_disk_is_healed(fault: str) -> None:
    async with in_process_broker() as broker:
        await broker.create_topic("t")
        async with Producer(broker.bootstrap, delivery_timeout_ms=500) as producer:
            broker.disk.fail(fault)  # type: ignore[arg-type]
            with pytest.raises(ClientError):
                await producer.send_and_wait("t", b"lost")
            broker.disk.heal()
        await broker.write("t", "kept")
        assert [one.value for one in await broker.read("t")] == [b"kept"]


async def test_a_partition_whose_sync_failed_stays_offline(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path / "data") as broker:
        await broker.create_topic("t", ["kept"])
        async with Producer(broker.bootstrap, delivery_timeout_ms=500) as producer:
            broker.disk.fail("unsyncable")
            with pytest.raises(ClientError):
                await producer.send_and_wait("t", b"lost")
            broker.disk.heal()
            with pytest.raises(ClientError):
                await producer.send_and_wait("t", b"lost")
    async with in_process_broker(tmp_path / "data") as broker:
        assert (await broker.read("t"))[0].value == b"kept"
