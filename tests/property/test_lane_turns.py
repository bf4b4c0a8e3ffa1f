"""Requests that waited for a turn, and those that need a look at the disk, take the lane, too."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from broker.replies import turns
from broker.space import LOOK_EVERY_BYTES, LOW_CREDIT_BYTES, SpaceGuard
from storage.log.log import Log
from tests.property import test_produce_lane as produce_side
from tests.support.clock import FrozenClock

REQUESTS = 9


@pytest.fixture(autouse=True)
def _short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each request is the last of its slice."""
    monkeypatch.setattr(turns, "SLICE_NS", 0)
    monkeypatch.setattr(turns, "SHORT_SLICE_NS", 0)


async def _side(directory: Path, policy: str, flavour: str) -> produce_side.Side:
    """A broker whose segments of the topic "plain" have begun, with a connection to it."""
    clock = FrozenClock(wall_ms=produce_side.NOW_MS)
    broker = await produce_side._start(directory, policy, clock, False, flavour)
    side = produce_side.Side(broker, produce_side.LANES[flavour])
    values = [b"v"] * produce_side.PARTITIONS
    side.read(produce_side.produced(produce_side.Client(0), values))
    await side.settle()
    side.written()
    side.general = 0
    return side


@pytest.mark.parametrize("flavour", produce_side.LANES)
@pytest.mark.parametrize("policy", ["os", "batch"])
async def test_the_lane_serves_what_waited_for_a_turn(
    tmp_path: Path, flavour: str, policy: str
) -> None:
    side = await _side(tmp_path, policy, flavour)
    client = produce_side.Client(0)
    try:
        frames = [produce_side.produced(client, [b"v"], acks=-1) for _ in range(REQUESTS)]
        frames[5] = produce_side.produced(client, [b"v"], acks=-1, version=2)
        side.read(b"".join(frames))
        assert side.connection.is_busy, "the rest of the read waits for its turns"
        await side.settle()
        ids = [1, 2, 3, 4, 5, REQUESTS + 1, 7, 8, 9]
        assert list(produce_side.correlation_ids(side.written()[0])) == ids
        assert side.general == 1, "the general way served only what is not usual"
        assert side.broker.topics.led_log("plain", 0).log_end_offset == 1 + REQUESTS
        assert side.broker.connections.memory_bytes == 0
    finally:
        side.connection.connection_lost(None)
        await side.broker.stop()


@pytest.mark.parametrize("flavour", produce_side.LANES)
async def test_an_error_in_a_turn_costs_one_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flavour: str
) -> None:
    side = await _side(tmp_path, "os", flavour)
    client = produce_side.Client(0)
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, found: reported.append(found))
    failing, broken = side.connection, side.transport
    log = side.broker.topics.led_log("plain", 1)
    show_end = Log.show_end

    def fail_for_one(shown: Log) -> int:
        if shown is log:
            raise AssertionError("planted")
        return int(show_end(shown))

    try:
        one, both = ([b"v"], [b"v"] * 2)
        frames = [produce_side.produced(client, values) for values in (one, one, one, both, one)]
        side.read(b"".join(frames))
        side.connect()
        neighbour = side.transport
        side.read(b"".join(produce_side.produced(client, one) for _ in range(5)))
        with monkeypatch.context() as planted:
            planted.setattr(Log, "show_end", fail_for_one)
            await side.settle()
        assert "planted" in str(reported[0]["exception"])
        assert broken.closed
        assert not failing._backlog
        assert not neighbour.closed
        assert list(produce_side.correlation_ids(bytes(neighbour.written))) == [6, 7, 8, 9, 10]
        assert log.offline is not None
    finally:
        failing.connection_lost(None)
        side.connection.connection_lost(None)
        await side.broker.stop()


@pytest.mark.parametrize("flavour", produce_side.LANES)
async def test_the_lane_looks_at_the_disk_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flavour: str
) -> None:
    side = await _side(tmp_path, "os", flavour)
    client = produce_side.Client(0)
    space = side.broker.space
    try:
        for credit in (LOW_CREDIT_BYTES, 0):
            space.credit = credit
            side.read(produce_side.produced(client, [b"v" * 300]))
            await side.settle()
            assert side.general == 0
        assert LOW_CREDIT_BYTES < space.credit < LOOK_EVERY_BYTES
        space.credit = 0
        with monkeypatch.context() as full:
            full.setattr(SpaceGuard, "left_bytes", lambda _: 0)
            side.read(produce_side.produced(client, [b"v"]))
            await side.settle()
        assert side.general == 1, "the general way refuses, and says why"
        assert side.broker.topics.led_log("plain", 0).log_end_offset == 3
    finally:
        side.connection.connection_lost(None)
        await side.broker.stop()


@pytest.mark.parametrize("flavour", produce_side.LANES)
async def test_a_connection_leaves_whatever_has_ended_it(tmp_path: Path, flavour: str) -> None:
    """A loop passes on what a callback of the protocol has raised, of whatever kind."""
    side = await _side(tmp_path, "os", flavour)
    try:
        side.connection.connection_lost(KeyboardInterrupt())
        assert len(side.broker.connections) == 0
    finally:
        await side.broker.stop()
