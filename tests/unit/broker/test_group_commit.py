"""Group commit: who shares a sync, in which order acks come, what a failure does."""

import asyncio
import threading
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker import group_commit
from broker.fetch.waiters import FetchWaiter, FetchWaiters
from broker.group_commit import GroupCommit
from broker.metrics import CommitMetrics
from broker.threads import Pool
from storage.errors import DiskFull, LogOffline, StorageError
from tests.support.clock import FrozenClock


class FakeTicket:
    """A sync that waits for `gate` and then succeeds, or fails with the log's `error`."""

    def __init__(self, log: "FakeLog") -> None:
        self.log = log
        self.end_offset = log.log_end_offset

    def run(self) -> None:
        self.log.running += 1
        assert self.log.gate.wait(10)
        self.log.running -= 1


class FakeLog:
    """The part of a log that group commit sees."""

    TICKET = FakeTicket

    def __init__(self, policy: str = "batch", flush_messages: int = 2**63 - 1) -> None:
        self.has_unsynced_files = False
        self.topic, self.partition, self.path = "t", 0, "/nowhere/t-0"
        self.waits_for_disk = policy == "batch"
        self.offline: StorageError | None = None
        self.config = SimpleNamespace(flush_messages=flush_messages)
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.durable_offset = 0
        self.high_watermark = 0
        self.gate = threading.Event()
        self.gate.set()
        self.running = 0
        self.syncs: list[int] = []
        self.error: StorageError | None = None
        self.ticket: FakeTicket | None = None

    def wants_commit(self) -> bool:
        return self.has_flush_messages() or self.has_unsynced_files

    def has_flush_messages(self) -> bool:
        unsynced = self.log_end_offset - self.durable_offset
        return bool(unsynced >= self.config.flush_messages)

    def begin_flush(self) -> FakeTicket | None:
        if self.ticket is None and self.durable_offset < self.log_end_offset:
            self.ticket = self.TICKET(self)
            return self.ticket
        return None

    def complete_flush(self, ticket: FakeTicket) -> None:
        assert ticket is self.ticket
        self.ticket = None
        if self.error is not None:
            raise self.error
        self.syncs.append(ticket.end_offset)
        self.durable_offset = self.high_watermark = ticket.end_offset


class Bench:
    """A group commit with what it needs."""

    def __init__(self, threads: int = 8) -> None:
        self.waiters = FetchWaiters(FrozenClock())
        self.metrics = CommitMetrics()
        self.pool = Pool("sync", threads)
        self.commits = GroupCommit(self.waiters, self.metrics, self.pool)
        self.acks: list[Any] = []

    async def stop(self) -> None:
        await self.commits.drain()
        self.pool.close()

    def append(self, log: FakeLog, name: str, records: int = 1) -> None:
        log.log_end_offset += records
        self.commits.appended(cast(Any, log), 100)
        self.wait(log, name, log.log_end_offset)

    def wait(self, log: FakeLog, name: str, next_offset: int) -> None:
        def ack(error: StorageError | None) -> None:
            self.acks.append(name if error is None else (name, error))

        self.commits.when_durable(cast(Any, log), next_offset, ack)


@pytest.fixture(autouse=True)
async def no_callback_fails() -> AsyncIterator[None]:
    """The loop only logs what a callback raises."""
    failures: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: failures.append(what))
    yield
    assert failures == []


async def test_ack_comes_after_the_sync() -> None:
    bench, log = Bench(), FakeLog()
    log.gate.clear()
    bench.append(log, "a")
    await asyncio.sleep(0.01)
    assert bench.acks == []
    log.gate.set()
    await bench.stop()
    assert bench.acks == ["a"]


async def test_appends_of_one_loop_turn_share_a_sync() -> None:
    bench, log = Bench(), FakeLog()
    for name in "abc":
        bench.append(log, name)
    await bench.stop()
    assert (bench.acks, log.syncs) == (["a", "b", "c"], [3])


async def test_what_arrives_during_a_sync_joins_the_next() -> None:
    bench, log = Bench(), FakeLog()
    log.gate.clear()
    bench.append(log, "a")
    while not log.running:
        await asyncio.sleep(0.001)
    for name in "bcd":
        bench.append(log, name)
        await asyncio.sleep(0)
    log.gate.set()
    await bench.stop()
    assert (bench.acks, log.syncs) == (["a", "b", "c", "d"], [1, 4])


async def test_at_most_the_given_number_of_syncs_run_at_once() -> None:
    bench = Bench(threads=2)
    logs = [FakeLog() for _ in range(5)]
    for index, log in enumerate(logs):
        log.gate.clear()
        bench.append(log, str(index))
    while sum(log.running for log in logs) < 2:
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.02)
    assert sum(log.running for log in logs) == 2
    assert [log.running for log in logs[:2]] == [1, 1], "first come, first served"
    for log in logs:
        log.gate.set()
    await bench.stop()
    assert sorted(bench.acks) == ["0", "1", "2", "3", "4"]


async def test_what_arrives_while_a_log_waits_for_a_thread_joins_its_sync() -> None:
    bench, busy, waiting = Bench(threads=1), FakeLog(), FakeLog()
    busy.gate.clear()
    bench.append(busy, "a")
    await running(busy)
    for name in "bc":
        bench.append(waiting, name)
        await asyncio.sleep(0.01)
    busy.gate.set()
    await bench.stop()
    assert waiting.syncs == [2]


async def test_resent_batch_keeps_its_place_in_the_order() -> None:
    bench, log = Bench(), FakeLog()
    bench.append(log, "first", records=5)
    bench.wait(log, "resent", 2)
    await bench.stop()
    assert bench.acks == ["first", "resent"]


async def test_what_is_durable_already_is_acked_at_once() -> None:
    bench, log = Bench(), FakeLog()
    bench.append(log, "a")
    await bench.commits.drain()
    bench.wait(log, "again", 1)
    assert bench.acks == ["a", "again"]
    await bench.stop()


async def test_failed_sync_fails_every_request_and_is_not_retried(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench, log = Bench(), FakeLog()
    log.error = LogOffline(log.path, "Input/output error")
    bench.append(log, "a")
    bench.append(log, "b")
    await bench.stop()
    assert bench.acks == [("a", log.error), ("b", log.error)]
    assert log.syncs == []
    assert bench.metrics.sync_failures == 1
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert "t-0" in line
    assert "restart the broker" in line


async def test_waiting_for_a_deleted_log_ends() -> None:
    bench, log = Bench(), FakeLog()
    log.gate.clear()
    bench.append(log, "a")
    bench.commits.log_closed(cast(Any, log))
    (ack,) = bench.acks
    assert isinstance(ack[1], LogOffline)
    log.gate.set()
    await bench.stop()


async def test_a_log_deleted_while_it_is_synced_is_no_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench, log = Bench(), FakeLog()
    log.gate.clear()
    bench.append(log, "a")
    await asyncio.sleep(0)
    log.error = LogOffline("/nowhere/t-0", "the log was closed")
    bench.commits.log_closed(cast(Any, log))
    log.gate.set()
    await bench.commits.drain()
    assert (bench.metrics.sync_failures, caplog.text) == (0, "")
    await bench.stop()


async def test_os_policy_syncs_only_after_flush_messages() -> None:
    bench, log = Bench(), FakeLog("os", flush_messages=3)
    for _ in range(2):
        log.log_end_offset += 1
        bench.commits.appended(cast(Any, log), 100)
    await bench.commits.drain()
    assert log.syncs == []
    log.log_end_offset += 1
    bench.commits.appended(cast(Any, log), 100)
    await bench.stop()
    assert log.syncs == [3]


async def test_visible_bytes_wake_parked_fetches_after_the_ack() -> None:
    bench, log = Bench(), FakeLog()
    woken: list[list[Any]] = []
    waiter = FetchWaiter(cast(Any, [log]), 1, lambda _: woken.append(list(bench.acks)))
    bench.waiters.park(waiter, 1000)
    bench.append(log, "a")
    await bench.stop()
    assert woken == [["a"]]


async def test_refused_appends_are_reported_once_and_their_end_too(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench, log = Bench(), FakeLog()
    error = DiskFull("append", log.path, "No space left on device")
    for _ in range(100):
        bench.commits.append_failed(cast(Any, log), error)
    bench.append(log, "a")
    bench.append(log, "b")
    await bench.stop()
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2
    assert "No space left" in lines[0]
    assert "succeed again" in lines[1]


async def test_acknowledged_end_is_known_until_it_is_durable() -> None:
    bench, log = Bench(), FakeLog()
    commits, fake = bench.commits, cast(Any, log)
    log.gate.clear()
    log.log_end_offset = 3
    commits.appended(fake, 100)
    for next_offset in (2, 3, 1):
        commits.acknowledge(fake, next_offset)
    assert commits.acknowledged_end(fake) == 3
    log.gate.set()
    await commits.drain()
    assert commits.acknowledged_end(fake) == 0
    commits.acknowledge(fake, 3)
    assert not commits._acknowledged, "nothing is remembered of what is durable"
    await bench.stop()


async def test_acknowledged_end_is_forgotten_with_its_log() -> None:
    bench, log = Bench(), FakeLog()
    commits, fake = bench.commits, cast(Any, log)
    log.error = LogOffline(log.path, "Input/output error")
    log.log_end_offset = 1
    commits.appended(fake, 100)
    commits.acknowledge(fake, 1)
    await commits.drain()
    assert not commits._acknowledged
    commits.acknowledge(fake, 1)
    commits.log_closed(fake)
    assert not commits._acknowledged
    await bench.stop()


def parked(bench: Bench, log: FakeLog, bytes_missing: int) -> list[bool]:
    """A fetch that waits for `bytes_missing` of `log`; an entry appears when it is woken."""
    woken: list[bool] = []
    bench.waiters.park(FetchWaiter(cast(Any, [log]), bytes_missing, woken.append), 1000)
    return woken


async def running(log: FakeLog) -> None:
    """Return once a sync of `log` runs in its thread."""
    while not log.running:
        await asyncio.sleep(0.001)


@pytest.mark.parametrize(("missing", "is_woken"), [(300, True), (301, False)])
async def test_a_sync_shows_the_bytes_of_all_its_appends(missing: int, is_woken: bool) -> None:
    bench, log = Bench(), FakeLog()
    woken = parked(bench, log, missing)
    for name in "abc":
        bench.append(log, name)
    await bench.stop()
    assert bool(woken) is is_woken
    assert (sum(bench.metrics.size_bytes.counts), bench.metrics.size_bytes.total) == (1, 300)


async def test_bytes_that_arrive_during_a_sync_count_for_the_next() -> None:
    bench, log = Bench(), FakeLog()
    log.gate.clear()
    bench.append(log, "a")
    await running(log)
    bench.append(log, "b")
    bench.append(log, "c")
    woken = parked(bench, log, 300)
    more = parked(bench, log, 301)
    log.gate.set()
    await bench.stop()
    assert (len(woken), len(more)) == (1, 0)
    assert sum(bench.metrics.size_bytes.counts) == 2


async def test_acks_are_counted_and_so_is_the_time_of_a_sync() -> None:
    bench, log = Bench(), FakeLog()
    for name in "abc":
        bench.append(log, name)
    await bench.commits.drain()
    bench.append(log, "d")
    await bench.stop()
    assert bench.metrics.acks_completed == 4
    assert sum(bench.metrics.latency_ns.counts) == 2
    assert 0 < bench.metrics.latency_ns.total < 60_000_000_000


async def test_os_policy_shows_an_append_before_any_sync() -> None:
    bench, log = Bench(), FakeLog("os")
    woken, more = parked(bench, log, 100), parked(bench, log, 101)
    log.log_end_offset += 1
    bench.commits.appended(cast(Any, log), 100)
    assert (len(woken), len(more)) == (1, 0)
    assert log.syncs == []
    await bench.stop()


async def test_os_policy_shows_no_byte_twice_when_it_syncs() -> None:
    bench, log = Bench(), FakeLog("os", flush_messages=1)
    woken = parked(bench, log, 101)
    log.log_end_offset += 1
    bench.commits.appended(cast(Any, log), 100)
    await bench.stop()
    assert (log.syncs, woken) == ([1], [])


async def test_os_policy_syncs_a_closed_segment() -> None:
    bench, log = Bench(), FakeLog("os")
    log.has_unsynced_files = True
    log.log_end_offset += 1
    bench.commits.appended(cast(Any, log), 100)
    await bench.stop()
    assert log.syncs == [1]


async def test_os_policy_syncs_new_files_a_moment_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_commit, "SOON_S", 0.1)
    bench, logs = Bench(), [FakeLog("os") for _ in range(40)]
    for log in logs * 2:
        log.has_unsynced_files = True
        log.log_end_offset += 1
        bench.commits.appended(cast(Any, log), 100)
    bench.commits.log_closed(cast(Any, logs[7]))
    await asyncio.sleep(0.02)
    assert [log.syncs for log in logs] == [[]] * 40
    async with asyncio.timeout(10):
        while [log.syncs for log in logs].count([2]) < 39:
            await asyncio.sleep(0.01)
    assert logs[7].syncs == []
    await bench.stop()


async def test_flush_messages_counts_what_is_not_durable_yet() -> None:
    bench, log = Bench(), FakeLog("os", flush_messages=3)
    log.log_end_offset, log.durable_offset = 7, 5
    bench.commits.appended(cast(Any, log), 100)
    await bench.stop()
    assert log.syncs == []


async def test_what_became_durable_by_other_means_is_acked_without_a_sync() -> None:
    bench, log, other = Bench(), FakeLog(), FakeLog()
    woken = parked(bench, log, 100)
    bench.append(log, "a")
    bench.append(other, "b")
    log.durable_offset = log.high_watermark = 1
    await asyncio.wait_for(bench.stop(), 10)
    assert (bench.acks, log.syncs, other.syncs, woken) == (["a", "b"], [], [1], [False])


async def test_a_sync_that_cannot_begin_fails_and_the_others_run() -> None:
    bench, log, other = Bench(), FakeLog(), FakeLog()
    error = LogOffline(log.path, "Input/output error")

    def refuse() -> FakeTicket | None:
        raise error

    log.begin_flush = refuse  # type: ignore[method-assign]
    woken = parked(bench, log, 1_000_000)
    bench.append(log, "a")
    bench.append(other, "b")
    await bench.stop()
    assert bench.acks == [("a", error), "b"]
    assert (bench.metrics.sync_failures, woken) == (1, [False])


async def test_each_failed_sync_is_counted_and_wakes_parked_fetches() -> None:
    bench, logs = Bench(), [FakeLog(), FakeLog()]
    woken = [parked(bench, log, 1_000_000) for log in logs]
    for log in logs:
        log.error = LogOffline(log.path, "Input/output error")
        bench.append(log, "a")
    await bench.stop()
    assert (bench.metrics.sync_failures, woken) == (2, [[False], [False]])


async def test_what_arrived_during_a_failed_sync_is_not_synced() -> None:
    bench, log = Bench(), FakeLog()
    log.gate.clear()
    bench.append(log, "a")
    await running(log)
    bench.append(log, "b")
    log.error = LogOffline(log.path, "Input/output error")
    log.gate.set()
    await bench.stop()
    assert bench.acks == [("a", log.error), ("b", log.error)]
    assert sum(bench.metrics.size_bytes.counts) == 1


async def test_a_deleted_log_that_waits_in_the_queue_is_not_synced() -> None:
    bench, log, other = Bench(), FakeLog(), FakeLog()
    bench.append(log, "a")
    bench.append(other, "b")
    bench.commits.log_closed(cast(Any, log))
    await bench.stop()
    ((name, error), last) = bench.acks
    assert (name, str(error), last) == (
        "a",
        str(LogOffline(log.path, "the topic was deleted")),
        "b",
    )
    assert (log.syncs, other.syncs) == ([], [1])


async def test_a_deleted_log_is_forgotten_as_one_that_refused_appends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench, log = Bench(), FakeLog()
    error = DiskFull("append", log.path, "No space left on device")
    bench.commits.append_failed(cast(Any, log), error)
    bench.commits.log_closed(cast(Any, log))
    bench.append(log, "a")
    await bench.stop()
    assert [record.levelname for record in caplog.records] == ["ERROR"]


async def test_appends_of_one_log_do_not_end_the_refusals_of_another(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench, log, other = Bench(), FakeLog(), FakeLog()
    error = DiskFull("append", log.path, "No space left on device")
    bench.commits.append_failed(cast(Any, log), error)
    bench.append(other, "a")
    await bench.commits.drain()
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    bench.append(log, "b")
    bench.append(log, "c")
    await bench.stop()
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]


async def test_lines_for_the_operator_name_the_partition_the_cause_and_the_cure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench, log = Bench(), FakeLog()
    log.partition = 7
    full = DiskFull("append", log.path, "No space left on device")
    bench.commits.append_failed(cast(Any, log), full)
    log.error = LogOffline(log.path, "Input/output error")
    bench.append(log, "a")
    await bench.stop()
    refused, resumed, failed = [record.getMessage() for record in caplog.records]
    assert refused.startswith(f"t-7: appends are refused ({full}). Clients get an error that they")
    assert refused.endswith("as soon as the disk accepts them, for instance when it has space.")
    assert resumed == "t-7: appends succeed again"
    assert failed.startswith(f"t-7: syncing to disk failed ({log.error}). Nothing acknowledged")
    assert f"check the disk of {log.path}, then restart the broker" in failed


async def test_a_log_that_is_offline_promises_no_appends(caplog: pytest.LogCaptureFixture) -> None:
    bench, log = Bench(), FakeLog()
    log.partition = 7
    bench.commits.append_failed(cast(Any, log), LogOffline(log.path, "another broker took over"))
    await bench.stop()
    (refused,) = [record.getMessage() for record in caplog.records]
    assert "another broker took over). Clients get an error that they retry; this log" in refused
    assert "succeed again" not in refused


async def test_threads_are_started_for_syncs_at_once_and_end_with_stop() -> None:
    bench, logs = Bench(threads=3), [FakeLog() for _ in range(3)]
    for _ in range(2):
        bench.append(logs[0], "one at a time")
        await bench.commits.drain()
    assert [thread.name for thread in bench.pool._threads] == ["sync-0"]
    for log in logs:
        log.gate.clear()
        bench.append(log, "at once")
    await asyncio.gather(*(running(log) for log in logs))
    threads = list(bench.pool._threads)
    assert [thread.name for thread in threads] == ["sync-0", "sync-1", "sync-2"]
    assert all(thread.daemon for thread in threads), "a sync that hangs does not keep the process"
    for log in logs:
        log.gate.set()
    await bench.stop()
    assert not any(thread.is_alive() for thread in threads)
    assert bench.pool._threads == []


async def test_a_log_has_one_sync_at_a_time() -> None:
    bench, log = Bench(), FakeLog()
    log.gate.clear()
    bench.append(log, "a")
    await running(log)
    for name in "bc":
        bench.append(log, name)
        await asyncio.sleep(0.01)
    assert log.running == 1
    log.gate.set()
    await bench.stop()
    assert log.syncs == [1, 3]


async def test_an_ack_may_wait_again_for_the_same_log() -> None:
    bench, log = Bench(), FakeLog()
    log.log_end_offset = 1
    bench.commits.appended(cast(Any, log), 100)

    def ack(error: StorageError | None) -> None:
        bench.acks.append("a")
        bench.append(log, "b")

    bench.commits.when_durable(cast(Any, log), 1, ack)
    await bench.stop()
    assert (bench.acks, log.syncs) == (["a", "b"], [1, 2])
    assert not bench.commits._waiting


async def test_what_arrives_while_a_log_that_is_queued_twice_is_synced_is_synced_too() -> None:
    """An ack that appends to its log queues it, and so does the end of the sync."""
    bench, log, other, slow = Bench(threads=2), FakeLog(), FakeLog(), FakeLog()

    def ack_and_append(_: StorageError | None) -> None:
        log.gate.clear()
        bench.append(log, "b")

    slow.gate.clear()
    log.gate.clear()
    bench.append(slow, "slow")
    log.log_end_offset = 1
    bench.commits.appended(cast(Any, log), 100)
    bench.commits.when_durable(cast(Any, log), 1, ack_and_append)
    while not (slow.running and log.running):
        await asyncio.sleep(0.001)
    bench.append(other, "other")
    await asyncio.sleep(0)
    log.gate.set()
    while log.log_end_offset < 2 or not log.running:
        await asyncio.sleep(0.001)
    bench.append(log, "c")
    slow.gate.set()
    while "slow" not in bench.acks:
        await asyncio.sleep(0.001)
    log.gate.set()
    await bench.stop()
    assert sorted(bench.acks) == ["b", "c", "other", "slow"]
    assert log.syncs == [1, 2, 3]


@pytest.mark.parametrize("threads", [1, 2])
async def test_an_ack_that_raises_costs_the_other_logs_nothing(threads: int) -> None:
    bench, log, other = Bench(threads), FakeLog(), FakeLog()
    failures: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: failures.append(what))

    def fail(_: StorageError | None) -> None:
        bench.commits.mark_dirty(cast(Any, log), 100)
        raise RuntimeError

    log.log_end_offset = 1
    bench.commits.appended(cast(Any, log), 100)
    bench.commits.when_durable(cast(Any, log), 1, fail)
    log.log_end_offset = 2
    bench.append(other, "other")
    async with asyncio.timeout(10):
        await bench.commits.drain()
    assert bench.acks == ["other"]
    assert len(failures) == 1
    await bench.stop()


async def test_a_sync_that_has_begun_runs_though_the_next_one_cannot_begin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench, log, broken, other = Bench(threads=1), FakeLog(), FakeLog(), FakeLog()
    failures: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: failures.append(what))

    def fail() -> None:
        raise RuntimeError

    monkeypatch.setattr(broken, "begin_flush", fail)
    bench.append(log, "log")
    bench.append(broken, "broken")
    bench.append(other, "other")
    async with asyncio.timeout(10):
        await bench.commits.drain()
    assert bench.acks == ["log", "other"]
    assert len(failures) == 1
    await bench.stop()


async def test_a_sync_that_covers_a_part_acks_that_part() -> None:
    bench, log = Bench(), FakeLog()
    log.gate.clear()
    bench.append(log, "a")
    await running(log)
    log.log_end_offset = 2
    bench.wait(log, "later", 2)
    log.gate.set()
    await bench.commits.drain()
    assert bench.acks == ["a"]
    bench.append(log, "b")
    await bench.stop()
    assert bench.acks == ["a", "later", "b"]


async def test_what_is_acknowledged_above_the_durable_end_stays_known() -> None:
    bench, log = Bench(), FakeLog()
    commits, fake = bench.commits, cast(Any, log)
    other = FakeLog()
    log.log_end_offset = 3
    commits.appended(fake, 100)
    commits.acknowledge(fake, 5)
    assert commits.acknowledged_end(cast(Any, other)) == 0
    await commits.drain()
    assert commits.acknowledged_end(fake) == 5
    log.log_end_offset = 5
    commits.appended(fake, 100)
    await commits.drain()
    assert not commits._acknowledged, "forgotten once it is durable, to the last offset"
    await bench.stop()


async def test_the_first_record_that_is_acknowledged_is_known() -> None:
    bench, log = Bench(), FakeLog()
    bench.commits.acknowledge(cast(Any, log), 1)
    assert bench.commits.acknowledged_end(cast(Any, log)) == 1
    await bench.stop()


@pytest.mark.parametrize(("high_watermark", "end"), [(2, 3), (3, 0), (4, 0)])
async def test_what_is_shown_by_now_is_no_acknowledged_end(high_watermark: int, end: int) -> None:
    bench, log = Bench(), FakeLog()
    bench.commits.acknowledge(cast(Any, log), 3)
    log.high_watermark = high_watermark
    assert bench.commits.acknowledged_end(cast(Any, log)) == end
    await bench.stop()


async def test_logs_that_become_dirty_in_one_loop_turn_are_handed_out_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench, logs = Bench(), [FakeLog() for _ in range(3)]
    scheduled: list[Any] = []
    with monkeypatch.context() as patched:
        patched.setattr(asyncio.get_running_loop(), "call_soon", scheduled.append)
        for log in logs:
            bench.append(log, "a")
    (pump,) = scheduled
    pump()
    await bench.stop()
    assert [log.syncs for log in logs] == [[1], [1], [1]]


@pytest.mark.parametrize(
    ("threads", "count", "first"), [(1, 2, 2), (1, 11, 2), (1, 40, 8), (1, 400, 8), (8, 40, 2)]
)
async def test_a_thread_gets_more_logs_at_a_time_while_many_wait(
    monkeypatch: pytest.MonkeyPatch, threads: int, count: int, first: int
) -> None:
    bench, logs, handed_out = Bench(threads), [FakeLog() for _ in range(count)], list[int]()
    submit = bench.pool.submit

    def counting(function: Any, done: Any) -> None:
        handed_out.append(len(function.args[0]))
        submit(function, done)

    monkeypatch.setattr(bench.pool, "submit", counting)
    for number, log in enumerate(logs):
        bench.append(log, str(number))
    await bench.stop()
    assert handed_out[:threads] == [first] * threads
    assert sum(handed_out) == count
    if threads == 1:
        assert bench.acks == [str(number) for number in range(count)], "first come, first served"
        assert handed_out == sorted(handed_out, reverse=True), "less as the queue gets shorter"


async def test_syncs_run_by_themselves_after_a_drain() -> None:
    bench, log, other = Bench(), FakeLog(), FakeLog()
    bench.append(log, "a")
    await bench.commits.drain()
    bench.append(log, "b")
    bench.append(other, "c")
    log.durable_offset = log.high_watermark = 2
    async with asyncio.timeout(10):
        while len(bench.acks) < 3:
            await asyncio.sleep(0.001)
    assert bench.acks == ["a", "b", "c"]
    await bench.stop()


async def test_a_wait_for_what_was_not_appended_is_a_bug() -> None:
    bench, log = Bench(), FakeLog()
    with pytest.raises(AssertionError, match="a wait for 1"):
        bench.wait(log, "never", 1)
    await bench.stop()
