"""A standby that takes over by itself: its owner is gone, is stopped, or cannot reach its store.

Each broker has a clock of its own that moves on request, so a stopped broker is one whose jobs do
not run while the clock of the other moves.
"""

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest

from broker.errors import StartError
from broker.node import Broker
from config import ConfigErrors, load
from protocol.error_codes import ErrorCode
from storage.bucket.journal import BucketJournal, read_state
from storage.disk.files import Bytes
from storage.disk.steps import Steps, run_steps
from tests.integration.remote.test_restore import fill, read
from tests.support.broker import (
    BrokerProcess,
    ConnectionClosed,
    RawClient,
    RunningBroker,
    batch,
    broker_settings,
    served,
)
from tests.support.clock import DAY_MS, FrozenClock
from tests.support.requests import create_topic, produce
from tests.support.simulated_store import SimulatedStore
from tests.support.zombies import client_of, numbers_at, write

LEASE_MS = 12_000
WAIT_MS = LEASE_MS + LEASE_MS // 4
CLUSTER = "AAAAAAAAAAAAAAAAAAAAAA"
SHIPPED = {"remote_storage_enable": "true", "retention_ms": "-1"}


class Machine:
    """A broker over the shared store, with a clock of its own."""

    def __init__(self, running: RunningBroker, client: RawClient, clock: FrozenClock) -> None:
        self.running, self.client, self.clock = running, client, clock
        self.broker = running.broker

    async def pass_time(self, span_ms: int) -> None:
        """Let time pass as in a process that runs: the job has its turns, timers fire."""
        job = "bucket" if self.broker.bucket is not None else "standby"
        while span_ms > 0:
            self.clock.advance(min(span_ms, 1_000))
            span_ms -= 1_000
            await self.broker.jobs.run_now(job)

    def move_clock_only(self, span_ms: int) -> None:
        """Let time pass as for a process that was stopped: no timer fires, no job has a turn."""
        self.broker.group_commit.when_held = lambda: None
        self.clock._move_to(self.clock.monotonic_ms() + span_ms)

    async def error_of_a_record(self) -> int:
        return (await produce(self.client, "t", batch("x"))).error_code

    def has_taken_over(self) -> bool:
        assert self.broker.standby is not None
        return self.broker.standby.promoted.is_set()


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> SimulatedStore:
    """The store of all brokers of a test."""
    shared = SimulatedStore()
    monkeypatch.setattr("broker.jobs.standby.open_store", lambda url, cluster: shared)
    return shared


@asynccontextmanager
async def machine(
    directory: Path, store: SimulatedStore, *, standby: bool = False, lease_ms: int = LEASE_MS
) -> AsyncIterator[Machine]:
    clock = FrozenClock()
    clock.jump_wall(1_000_000)
    settings = {
        "remote_storage_url": "memory:",
        "remote_lease_ms": str(lease_ms),
        "remote_standby_enable": "true" if standby else "false",
        "cluster_id": CLUSTER,
    }
    config = load(command_line=broker_settings(directory, settings))
    async with served(Broker(config, clock=clock, store=store)) as running:
        yield Machine(running, await running.client(), clock)


async def begin(owner: Machine, records: int = 3) -> None:
    await create_topic(owner.client, "t", 1, **SHIPPED)
    await fill(owner.client, range(records))
    assert owner.broker.bucket is not None
    assert await owner.broker.bucket.ship()


async def test_a_standby_takes_over_when_the_owner_is_gone(
    tmp_path: Path, store: SimulatedStore
) -> None:
    async with AsyncExitStack() as stack:
        owner = await stack.enter_async_context(machine(tmp_path / "first", store))
        await begin(owner)
        standby = await stack.enter_async_context(machine(tmp_path / "second", store, standby=True))
        await standby.pass_time(WAIT_MS - 1_000)
        assert not standby.has_taken_over()
        assert read_state(store).owner_id == owner.broker.data_dir.directory_id
        await standby.pass_time(2_000)
        assert standby.has_taken_over()
        state = read_state(store)
        assert (state.owner_id, state.epoch) == (standby.broker.data_dir.directory_id, 2)
        assert state.lease_ms == LEASE_MS
    async with machine(tmp_path / "second", store, standby=True) as promoted:
        assert promoted.broker.standby is None
        assert await read(promoted.client, 3) == [0, 1, 2]
        await fill(promoted.client, range(3, 6))
        # Its own lease runs from the first moment on.
        await promoted.pass_time(3 * LEASE_MS)
        assert await promoted.error_of_a_record() == ErrorCode.NONE


async def test_an_owner_that_has_nothing_to_write_keeps_the_bucket(
    tmp_path: Path, store: SimulatedStore
) -> None:
    """Also while wall clocks jump by years; entries are as few as the lease needs."""
    async with owner_and_standby(tmp_path, store) as (owner, standby):
        before = read_state(store).number
        for jump_days in (0, 4_000, -9_000, 1):
            owner.clock.jump_wall(jump_days * DAY_MS)
            standby.clock.jump_wall(-2 * jump_days * DAY_MS)
            for _ in range(20):
                await owner.pass_time(1_000)
                await standby.pass_time(1_000)
            assert not standby.has_taken_over()
            assert not owner.broker.metrics.remote.is_suspended
            assert await owner.error_of_a_record() == ErrorCode.NONE
        assert read_state(store).owner_id == owner.broker.data_dir.directory_id
        # 80 s, an entry in each 4 s, and up to two for the records of each round.
        assert read_state(store).number - before <= 20 + 8 + 4


@asynccontextmanager
async def machine_after(
    owner: Machine, directory: Path, store: SimulatedStore
) -> AsyncIterator[Machine]:
    """A standby of an owner that has a topic."""
    await begin(owner)
    async with machine(directory, store, standby=True) as standby:
        yield standby


@asynccontextmanager
async def owner_and_standby(
    tmp_path: Path, store: SimulatedStore
) -> AsyncIterator[tuple[Machine, Machine]]:
    """An owner that has a topic, and its standby."""
    async with (
        machine(tmp_path / "first", store) as owner,
        machine_after(owner, tmp_path / "second", store) as standby,
    ):
        yield owner, standby


async def test_an_owner_that_was_stopped_for_a_while_accepts_nothing(
    tmp_path: Path, store: SimulatedStore
) -> None:
    async with owner_and_standby(tmp_path, store) as (owner, standby):
        await standby.pass_time(WAIT_MS + 1_000)
        assert standby.has_taken_over()
        # Its timers fire, before any of its jobs has run.
        owner.clock.advance(WAIT_MS + 1_000)
        assert owner.broker.metrics.remote.is_suspended
        assert await owner.error_of_a_record() == ErrorCode.KAFKA_STORAGE_ERROR
        with pytest.raises(AssertionError, match=r"remote\.lease\.ms=12000"):
            await create_topic(owner.client, "late")
        assert owner.broker.bucket is not None
        assert not owner.broker.bucket.is_owner
        await owner.pass_time(5_000)
        assert owner.broker.metrics.remote.is_fenced
        assert await owner.error_of_a_record() == ErrorCode.KAFKA_STORAGE_ERROR
        assert await read(owner.client, 3) == [0, 1, 2]


async def test_a_sync_that_ends_after_the_lease_is_not_acknowledged(
    tmp_path: Path, store: SimulatedStore
) -> None:
    """A process that was stopped in the middle of it continues before its timers run."""
    async with owner_and_standby(tmp_path, store) as (owner, standby):
        await create_topic(owner.client, "local")
        await standby.pass_time(WAIT_MS + 1_000)
        assert standby.has_taken_over()
        owner.move_clock_only(WAIT_MS + 1_000)
        answers = []
        for topic in ("t", "local"):
            client = await owner.running.client()
            answers.append(asyncio.create_task(produce(client, topic, batch("late"))))
        while len(owner.broker.group_commit.held) < 2:
            await asyncio.sleep(0.001)
        assert not any(answer.done() for answer in answers)
        await owner.broker.jobs.run_now("bucket")
        for answer in answers:
            assert (await answer).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert await read(owner.client, 3) == [0, 1, 2]


async def test_a_sync_that_ends_after_the_lease_waits_for_the_next_entry(
    tmp_path: Path, store: SimulatedStore
) -> None:
    """No other broker has taken over: the requests are answered when the lease is renewed."""
    async with machine(tmp_path / "first", store) as owner:
        await begin(owner)
        await create_topic(owner.client, "local")
        owner.move_clock_only(WAIT_MS)
        waiting = asyncio.create_task(produce(owner.client, "local", batch("late")))
        while not owner.broker.group_commit.held:
            await asyncio.sleep(0.001)
        await owner.broker.jobs.run_now("bucket")
        assert (await waiting).error_code == ErrorCode.NONE
        assert not owner.broker.metrics.remote.is_suspended


async def test_a_store_that_is_down_for_longer_than_the_lease(
    tmp_path: Path, store: SimulatedStore
) -> None:
    """The owner refuses appends meanwhile and continues; the standby does not take over."""
    async with owner_and_standby(tmp_path, store) as (owner, standby):
        await standby.pass_time(1_000)
        store.is_down = True
        for second in range(120):
            await owner.pass_time(1_000)
            await standby.pass_time(1_000)
            assert owner.broker.metrics.remote.is_suspended == (second >= 11)
        assert await owner.error_of_a_record() == ErrorCode.KAFKA_STORAGE_ERROR
        assert await read(owner.client, 3) == [0, 1, 2]
        store.is_down = False
        # The standby comes first: it has seen nothing for two minutes, and could not.
        await standby.pass_time(11_000)
        assert not standby.has_taken_over()
        await owner.pass_time(3_000)
        assert await owner.error_of_a_record() == ErrorCode.NONE
        await standby.pass_time(3_000)
        assert not standby.has_taken_over()
        assert not owner.broker.metrics.remote.is_suspended
        state = read_state(store)
        assert (state.owner_id, state.epoch) == (owner.broker.data_dir.directory_id, 1)


async def test_an_owner_that_died_while_the_store_was_down(
    tmp_path: Path, store: SimulatedStore
) -> None:
    async with owner_and_standby(tmp_path, store) as (_, standby):
        await standby.pass_time(1_000)
        store.is_down = True
        await standby.pass_time(60_000)
        store.is_down = False
        await standby.pass_time(WAIT_MS - 2_000)
        assert not standby.has_taken_over()
        await standby.pass_time(14_000)
        assert standby.has_taken_over()


async def test_of_two_standbys_one_takes_over(
    tmp_path: Path, store: SimulatedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one has seen the lease end, and its entry comes a moment after the other's."""
    async with (
        machine(tmp_path / "first", store) as owner,
        machine_after(owner, tmp_path / "second", store) as second,
        machine(tmp_path / "third", store, standby=True) as third,
    ):
        await second.pass_time(WAIT_MS - 1_000)
        await third.pass_time(WAIT_MS - 1_000)
        take_over = BucketJournal.take_over
        second.clock.advance(2_000)

        def beaten(journal: BucketJournal, check: object) -> Steps[int]:
            monkeypatch.undo()
            other = BucketJournal(store, "z" * 22, journal._random, lease_ms=LEASE_MS)
            run_steps(other.read())
            run_steps(other.take_over())
            return (yield from take_over(journal, check))  # type: ignore[arg-type]

        monkeypatch.setattr(BucketJournal, "take_over", beaten)
        await second.broker.jobs.run_now("standby")
        await third.pass_time(2_000)
        assert (second.has_taken_over(), third.has_taken_over()) == (False, False)
        state = read_state(store)
        assert (state.owner_id, state.epoch) == ("z" * 22, 2)
        # That one never serves: its lease ends as well, and again one of the two has it.
        await third.pass_time(WAIT_MS + 2_000)
        await second.pass_time(WAIT_MS - 2_000)
        assert (second.has_taken_over(), third.has_taken_over()) == (False, True)
        assert read_state(store).epoch == 3


async def test_a_take_over_that_an_error_has_ended_is_completed(
    tmp_path: Path, store: SimulatedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entry is in the bucket, and the standby lost its answer."""
    async with owner_and_standby(tmp_path, store) as (_, standby):
        put_new = store.put_new

        def lost(key: str, *parts: Bytes) -> None:
            store.put_new = put_new  # type: ignore[method-assign]
            put_new(key, *parts)
            store.is_down = True
            read_state(store)

        store.put_new = lost  # type: ignore[method-assign]
        await standby.pass_time(WAIT_MS + 1_000)
        assert not standby.has_taken_over()
        store.is_down = False
        await standby.pass_time(14_000)
        assert standby.has_taken_over()
        state = read_state(store)
        assert state.owner_id == standby.broker.data_dir.directory_id


async def test_a_former_owner_does_not_start(tmp_path: Path, store: SimulatedStore) -> None:
    """It would accept records until it had read the bucket."""
    async with owner_and_standby(tmp_path, store) as (_, standby):
        await standby.pass_time(WAIT_MS + 1_000)
        assert standby.has_taken_over()
    with pytest.raises(StartError, match=r"taken the bucket over.*--standby"):
        async with machine(tmp_path / "first", store):
            pass
    store.is_down = True
    with pytest.raises(StartError, match="the store does not answer"):
        async with machine(tmp_path / "first", store):
            pass


async def test_without_a_lease_there_is_no_take_over(tmp_path: Path, store: SimulatedStore) -> None:
    """Neither from an owner that has promised nothing, nor by a standby that was not asked to."""
    async with machine(tmp_path / "first", store, lease_ms=0) as owner:
        await begin(owner)
        async with machine(tmp_path / "second", store, standby=True) as standby:
            await standby.pass_time(10 * WAIT_MS)
            assert not standby.has_taken_over()
            assert standby.broker.standby is not None
            reading = standby.broker.standby.reading()
            assert (reading["lease_ms"], reading["lease_left_ms"]) == (0, None)
    async with (
        machine(tmp_path / "first", store),
        machine(tmp_path / "third", store, standby=True, lease_ms=0) as standby,
    ):
        await standby.pass_time(3 * WAIT_MS)
        assert not standby.has_taken_over()
        assert standby.broker.standby is not None
        reading = standby.broker.standby.reading()
        assert (reading["lease_ms"], reading["lease_left_ms"]) == (LEASE_MS, 0)
        assert reading["promotes_itself"] is False


def test_settings_of_a_lease_are_checked(tmp_path: Path) -> None:
    url = {"remote_storage_url": "memory:"}
    for settings, sentence in (
        ({"remote_lease_ms": "100", **url}, "0 for none, or 3000 and more"),
        ({"remote_lease_ms": "-1", **url}, "remote.lease.ms"),
        ({"remote_lease_ms": "5000"}, "set remote.storage.url"),
    ):
        with pytest.raises(ConfigErrors, match=sentence):
            load(command_line=broker_settings(tmp_path, settings))
    for number in ("0", "3000", "3600000"):
        load(command_line=broker_settings(tmp_path, {"remote_lease_ms": number, **url}))


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("waits_for_store", [True, False])
async def test_a_zombie_beside_a_standby_that_took_over_by_itself(
    tmp_path: Path, waits_for_store: bool
) -> None:
    """Two processes: the owner is stopped, the standby takes over, the owner continues.

    Clients write to both all the time. What the new owner has is a beginning of what the first one
    acknowledged, all of it if topics wait for the bucket, then its own records; each once.
    """
    settings = {"remote_storage_url": f"file://{tmp_path}/bucket", "remote_lease_ms": "12000"}
    brokers = [BrokerProcess(tmp_path / "first", **settings)]
    try:
        first = brokers[0]
        port = await asyncio.to_thread(first.wait_ready)
        async with client_of(port) as client:
            acks = {"remote_acks_enable": "true"} if waits_for_store else {}
            await create_topic(client, "t", 1, **SHIPPED, remote_flush_ms="100", **acks)
        acknowledged: list[int] = []
        await write(port, range(40), acknowledged)
        assert len(acknowledged) == 40
        second = BrokerProcess(tmp_path / "second", remote_standby_enable="true", **settings)
        brokers.append(second)
        other = await asyncio.to_thread(second.wait_ready)
        writing = asyncio.create_task(write(port, range(40, 100_000), acknowledged))
        await asyncio.sleep(0.5)
        first.process.send_signal(signal.SIGSTOP)
        fresh: list[int] = []
        deadline_s = time.monotonic() + 120
        while not fresh:
            assert time.monotonic() < deadline_s, "the standby does not take over"
            await asyncio.sleep(0.2)
            try:
                await write(other, range(200_000, 200_020), fresh)
            except (OSError, ConnectionClosed):
                continue  # it starts again as the owner
        with suppress(TimeoutError):
            await writing
        # These requests wait in the socket: the former owner reads them before its timers run.
        late: list[int] = []
        zombie = asyncio.create_task(write(port, range(300_000, 300_010), late))
        await asyncio.sleep(0.5)
        first.process.send_signal(signal.SIGCONT)
        await zombie
        await write(port, range(300_010, 300_020), late)
        assert late == []
        begin_at = fresh[-1] + 1
        await write(other, range(begin_at, begin_at + 20), fresh)
        async with client_of(other) as reader:
            found = await numbers_at(reader)
        begun = [number for number in found if number < 200_000]
        assert begun == list(range(len(begun)))
        assert found[len(begun) :] == fresh
        if waits_for_store:
            assert set(acknowledged) <= set(begun)
        assert len(begun) >= 40
    finally:
        for process in brokers:
            process.process.send_signal(signal.SIGCONT)
            process.stop(signal.SIGKILL)
