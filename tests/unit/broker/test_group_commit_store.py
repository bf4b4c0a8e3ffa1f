"""Group commit of logs whose acks wait for an object store (`remote.acks.enable`)."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from storage.errors import LogOffline, StorageError, StoreFailed
from tests.unit.broker.test_group_commit import (
    Bench,
    FakeLog,
    FakeTicket,
    no_callback_fails,  # noqa: F401 - a fixture for all tests
)

FENCED = LogOffline("/nowhere/t-0", "another broker owns the bucket")
DOWN = StoreFailed("the store does not answer")


class StoredTicket(FakeTicket):
    """A sync whose end is for the store to know."""

    def __init__(self, log: FakeLog) -> None:
        super().__init__(log)
        self.end = SimpleNamespace(offset=log.log_end_offset)
        self.error = log.error


class StoredLog(FakeLog):
    """A log whose acks wait for the store."""

    TICKET = StoredTicket

    def __init__(self) -> None:
        super().__init__()
        self.waits_for_store = True
        self.unsynced = SimpleNamespace(end=self._end)
        self.ended: list[int] = []

    def begin_flush(self) -> FakeTicket | None:
        if self.error is not None and self.offline is not None:
            raise self.error
        return super().begin_flush()

    def _end(self, ticket: FakeTicket) -> None:
        assert ticket is self.ticket
        self.ticket = None
        self.ended.append(ticket.end_offset)


class StoreBench(Bench):
    """A group commit and the store's part in it."""

    def __init__(self) -> None:
        super().__init__()
        self.commits.waits_for_store = lambda log: getattr(log, "waits_for_store", False)

    @property
    def held(self) -> dict[Any, int]:
        return self.commits.held

    def stored(self, log: FakeLog, error: StorageError | None = None) -> None:
        self.commits.stored(cast(Any, log), error)

    def recovered(self, log: FakeLog) -> None:
        self.commits.recovered(cast(Any, log))

    async def until_held(self, log: FakeLog, end: int) -> None:
        while self.held.get(log) != end:
            await asyncio.sleep(0.001)


async def test_acks_wait_until_the_store_has_what_was_synced() -> None:
    bench, log, held = StoreBench(), StoredLog(), []
    bench.commits.when_held = lambda: held.append(dict(bench.held))
    bench.append(log, "a")
    await bench.until_held(log, 1)
    bench.append(log, "b")
    await asyncio.sleep(0.01)
    assert (bench.acks, log.syncs) == ([], []), "one sync at a time, and the store has none"
    bench.stored(log)
    assert (bench.acks, log.syncs) == (["a"], [1])
    await bench.until_held(log, 2)
    bench.stored(log)
    assert (bench.acks, log.syncs) == (["a", "b"], [1, 2])
    assert held == [{log: 1}, {log: 2}]
    await bench.stop()


async def test_no_other_log_waits_for_the_store() -> None:
    bench, log, other = StoreBench(), StoredLog(), FakeLog()
    bench.append(log, "a")
    bench.append(other, "b")
    await bench.until_held(log, 1)
    while bench.acks != ["b"]:
        await asyncio.sleep(0.001)
    assert bench.held == {log: 1}
    bench.stored(log)
    await bench.stop()
    assert bench.acks == ["b", "a"]


async def test_a_failed_sync_is_not_for_the_store() -> None:
    bench, log = StoreBench(), StoredLog()
    log.error = LogOffline(log.path, "no space")
    bench.append(log, "a")
    await bench.stop()
    assert bench.acks == [("a", log.error)]
    assert bench.held == {}


async def test_a_store_that_fails_costs_the_acks_and_not_the_records() -> None:
    bench, log = StoreBench(), StoredLog()
    bench.append(log, "a")
    await bench.until_held(log, 1)
    bench.stored(log, DOWN)
    assert bench.acks == [("a", DOWN)]
    assert (log.syncs, log.ended) == ([1], []), "they are on disk, and visible"
    bench.append(log, "b")
    await bench.until_held(log, 2)
    bench.stored(log)
    assert bench.acks == [("a", DOWN), "b"]
    await bench.stop()


@pytest.mark.parametrize("has_more", [False, True])
async def test_what_only_a_fenced_broker_has_stays_invisible(has_more: bool) -> None:
    bench, log = StoreBench(), StoredLog()
    bench.append(log, "a")
    await bench.until_held(log, 1)
    if has_more:
        bench.append(log, "b")
        bench.commits.acknowledge(cast(Any, log), 2)
        assert bench.commits.acknowledged_end(cast(Any, log)) == 2
    log.offline = FENCED
    bench.stored(log, FENCED)
    assert bench.acks == [("a", FENCED), ("b", FENCED)][: 1 + has_more]
    assert (log.syncs, log.ended) == ([], [1])
    assert bench.held == {}
    assert bench.commits.acknowledged_end(cast(Any, log)) == 0
    await bench.stop()
    assert (log.syncs, bench.metrics.sync_failures) == ([], 0)


async def test_recovered_records_are_acked_when_the_store_has_them() -> None:
    """A batch that is resent after a crash is durable here, and perhaps not there."""
    bench, log, other = StoreBench(), StoredLog(), StoredLog()
    for each in (log, other):
        each.log_end_offset = each.durable_offset = 3
    bench.recovered(log)
    bench.wait(log, "resent", 3)
    bench.wait(other, "other", 3)
    assert bench.acks == ["other"]
    assert bench.held == {log: 3}
    bench.append(log, "new")
    await bench.until_held(log, 4)
    assert bench.acks == ["other"]
    bench.stored(log)
    assert bench.acks == ["other", "resent", "new"]
    bench.wait(log, "again", 3)
    assert bench.acks[-1] == "again"
    await bench.stop()


async def test_recovered_records_need_no_new_ones_to_be_acked() -> None:
    bench, log = StoreBench(), StoredLog()
    log.log_end_offset = log.durable_offset = 3
    bench.recovered(log)
    bench.wait(log, "resent", 3)
    bench.stored(log)
    assert (bench.acks, bench.held) == (["resent"], {})
    await bench.stop()


@pytest.mark.parametrize("is_fenced", [False, True])
async def test_recovered_records_that_the_store_does_not_get(is_fenced: bool) -> None:
    """The next wait is for the store as well, unless this broker will never write to it."""
    bench, log = StoreBench(), StoredLog()
    log.log_end_offset = log.durable_offset = 3
    bench.recovered(log)
    bench.wait(log, "resent", 3)
    if is_fenced:
        log.offline = FENCED
    bench.stored(log, DOWN)
    assert bench.acks == [("resent", DOWN)]
    assert bench.held == ({} if is_fenced else {log: 3})


async def test_a_log_without_records_has_nothing_to_recover() -> None:
    bench, log = StoreBench(), StoredLog()
    log.log_start_offset = log.log_end_offset = log.durable_offset = 3
    bench.recovered(log)
    bench.wait(log, "nothing", 3)
    assert (bench.acks, bench.held) == (["nothing"], {})


async def test_a_deleted_log_waits_for_no_store() -> None:
    bench, log, other = StoreBench(), StoredLog(), StoredLog()
    other.log_end_offset = other.durable_offset = 3
    bench.recovered(other)
    bench.append(log, "a")
    await bench.until_held(log, 1)
    for each in (log, other):
        bench.commits.log_closed(cast(Any, each))
    assert bench.held == {}
    await asyncio.wait_for(bench.stop(), 10)
    assert [name for name, _ in bench.acks] == ["a"]


async def test_a_drain_waits_for_the_store_without_a_turn_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench, log, slow = StoreBench(), StoredLog(), FakeLog()
    pumps: list[object] = []
    slow.gate.clear()
    bench.append(log, "a")
    bench.append(slow, "b")
    await bench.until_held(log, 1)
    drain = asyncio.ensure_future(bench.commits.drain())
    pump = bench.commits._pump
    monkeypatch.setattr(bench.commits, "_pump", lambda: pumps.append(pump()))
    await asyncio.sleep(0.02)
    slow.gate.set()
    while bench.acks != ["b"]:
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.02)
    assert len(pumps) < 5
    assert not drain.done()
    bench.stored(log)
    await drain
    await bench.stop()


@pytest.mark.parametrize("is_under_way", [False, True])
async def test_a_log_that_was_offline_before_says_nothing_of_the_disk(
    caplog: pytest.LogCaptureFixture, is_under_way: bool
) -> None:
    bench, log = StoreBench(), StoredLog()
    log.waits_for_store = False
    log.gate.clear()
    bench.append(log, "a")
    if is_under_way:
        while not log.running:
            await asyncio.sleep(0.001)
    log.offline = log.error = FENCED
    log.gate.set()
    await bench.stop()
    assert bench.acks == [("a", FENCED)]
    assert (caplog.text, bench.metrics.sync_failures) == ("", 0)
