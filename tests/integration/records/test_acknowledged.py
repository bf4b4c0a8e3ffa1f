"""What was acknowledged is there for every later request, also before it is on disk."""

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from broker.requests import commit_wait
from protocol.api.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from protocol.api.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.api.fetch import PartitionData
from protocol.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from protocol.error_codes import ErrorCode
from tests.support.broker import RawClient, RunningBroker, batch
from tests.support.requests import (
    FETCH_VERSION,
    create_topic,
    fetch,
    fetch_request,
    list_offset,
    produce,
    produce_request,
    values_of,
)

TRIES = 200


class Disk:
    """The disk's syncs: each waits until it is let through, and may fail."""

    def __init__(self) -> None:
        self.error: OSError | None = None
        self._passes = threading.Semaphore(0)
        self._is_open = threading.Event()

    def sync(self, fd: int) -> None:
        if threading.current_thread() is threading.main_thread():
            return  # DeleteRecords writes the new start down
        while not (self._is_open.is_set() or self._passes.acquire(timeout=0.01)):
            pass
        if self.error is not None:
            raise self.error

    def pass_one(self) -> None:
        self._passes.release()

    def open(self) -> None:
        self._is_open.set()

    def open_soon(self) -> None:
        """After the requests that are on their way have arrived."""
        asyncio.get_running_loop().call_later(0.1, self.open)


@pytest.fixture
def disk() -> Disk:
    """A disk whose syncs wait, from `clients` on."""
    return Disk()


@pytest.fixture
async def clients(
    disk: Disk, broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[RawClient, RawClient]]:
    """One who writes, and one who asks; topic t has the durable record "old"."""
    writer, asker = await broker.client(), await broker.client()
    await create_topic(writer, "t")
    await produce(writer, "t", batch("old", timestamp=1_000))
    monkeypatch.setattr(os, "fdatasync", disk.sync)
    yield writer, asker
    disk.open()  # or the broker would not stop


async def acknowledge(writer: RawClient, value: str, timestamp: int = 2_000) -> None:
    answer = await produce(writer, "t", batch(value, timestamp=timestamp), acks=1)
    assert answer.error_code == ErrorCode.NONE


async def delete_records(
    client: RawClient, offset: int, timeout_ms: int = 0
) -> DeleteRecordsPartitionResult:
    asked = DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name="t", partitions=[asked])], timeout_ms=timeout_ms
    )
    answer: DeleteRecordsPartitionResult = (
        (await client.request(request, 2)).topics[0].partitions[0]
    )
    return answer


@pytest.mark.parametrize("isolation_level", [0, 1])
@pytest.mark.parametrize(
    ("timestamp", "expected"), [(-1, (-1, 2)), (1_500, (2_000, 1)), (-3, (2_000, 1))]
)
async def test_list_offsets_knows_it(
    disk: Disk,
    clients: tuple[RawClient, RawClient],
    timestamp: int,
    expected: tuple[int, int],
    isolation_level: int,
) -> None:
    writer, asker = clients
    await acknowledge(writer, "new")
    disk.open_soon()
    answer = await list_offset(asker, "t", timestamp, isolation_level=isolation_level)
    assert (answer.timestamp, answer.offset) == expected


async def test_list_offsets_of_version_0_knows_it(
    disk: Disk, clients: tuple[RawClient, RawClient]
) -> None:
    writer, asker = clients
    await acknowledge(writer, "new")
    disk.open_soon()
    asked = ListOffsetsPartition(partition_index=0, timestamp=-1, max_num_offsets=5)
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[asked])]
    )
    answer = (await asker.request(request, 0)).topics[0].partitions[0]
    assert answer.old_style_offsets == [2, 0]


@pytest.mark.parametrize(("offset", "start"), [(2, 2), (-1, 2), (1, 1)])
async def test_delete_records_knows_it(
    disk: Disk, clients: tuple[RawClient, RawClient], offset: int, start: int
) -> None:
    writer, asker = clients
    await acknowledge(writer, "new")
    disk.open_soon()
    answer = await delete_records(asker, offset)
    assert (answer.error_code, answer.low_watermark) == (ErrorCode.NONE, start)


@pytest.mark.parametrize(
    ("offset", "min_bytes", "values"),
    [(1, 0, [b"new"]), (0, 1, [b"old", b"new"]), (0, 0, [b"old", b"new"])],
)
async def test_fetch_knows_it(
    disk: Disk,
    clients: tuple[RawClient, RawClient],
    offset: int,
    min_bytes: int,
    values: list[bytes],
) -> None:
    writer, asker = clients
    await acknowledge(writer, "new")
    disk.open_soon()
    data = await fetch(asker, "t", offset, min_bytes=min_bytes, max_wait_ms=0)
    assert (values_of(data), data.high_watermark) == (values, 2)


async def test_fetch_whose_wait_is_over_knows_it(
    disk: Disk, clients: tuple[RawClient, RawClient]
) -> None:
    writer, asker = clients
    await acknowledge(writer, "new")
    disk.open_soon()
    data = await fetch(asker, "t", 1, max_wait_ms=1)
    assert values_of(data) == [b"new"]


async def test_no_acknowledgement_counts_on_the_same_connection(
    disk: Disk, clients: tuple[RawClient, RawClient]
) -> None:
    writer, _ = clients
    writer.send(produce_request("t", batch("new"), acks=0), 9)
    writer.forget_last()
    disk.open_soon()
    assert (await list_offset(writer, "t", -1)).offset == 2


async def test_what_is_not_acknowledged_holds_nothing_up(
    disk: Disk, clients: tuple[RawClient, RawClient]
) -> None:
    writer, asker = clients
    writer.send(produce_request("t", batch("new", timestamp=500)), 9)
    while (await list_offset(asker, "t", -1, version=5)).offset != 1:
        pass
    assert (await list_offset(asker, "t", 1_500)).offset == -1
    assert (await delete_records(asker, 2)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert values_of(await fetch(asker, "t", 0, min_bytes=0)) == [b"old"]
    disk.open()
    assert (await writer.receive()).responses[0].partition_responses[0].base_offset == 1


async def test_largest_timestamp_is_not_none_while_its_record_is_being_synced(
    disk: Disk, clients: tuple[RawClient, RawClient]
) -> None:
    writer, asker = clients
    writer.send(produce_request("t", batch("new", timestamp=2_000)), 9)
    await asyncio.sleep(0.05)
    disk.open_soon()
    answer = await list_offset(asker, "t", -3)
    assert (answer.timestamp, answer.offset) == (2_000, 1)


async def test_questions_with_an_answer_do_not_wait(
    disk: Disk, clients: tuple[RawClient, RawClient]
) -> None:
    writer, asker = clients
    await acknowledge(writer, "new")
    assert (await list_offset(asker, "t", -2)).offset == 0
    assert (await list_offset(asker, "t", 1_000)).offset == 0
    assert (await delete_records(asker, 1)).low_watermark == 1
    assert (await delete_records(asker, 9)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_fetch_that_does_not_reach_the_end_does_not_wait(
    disk: Disk, clients: tuple[RawClient, RawClient]
) -> None:
    writer, asker = clients
    disk.open()
    await produce(writer, "t", batch("older"))
    disk._is_open.clear()
    await acknowledge(writer, "new")
    assert values_of(await fetch(asker, "t", 0, partition_max_bytes=1)) == [b"old"]


@pytest.mark.parametrize(("min_bytes", "max_wait_ms"), [(1, 9_000), (100_000, 500)])
async def test_later_acknowledgements_do_not_hold_up_a_parked_fetch(
    disk: Disk, clients: tuple[RawClient, RawClient], min_bytes: int, max_wait_ms: int
) -> None:
    writer, asker = clients
    request = fetch_request("t", 1, min_bytes=min_bytes, max_wait_ms=max_wait_ms)
    asker.send(request, FETCH_VERSION)
    await acknowledge(writer, "new")
    await acknowledge(writer, "newer")
    disk.pass_one()
    async with asyncio.timeout(2):  # well below the patience of a request that waits for the disk
        data: PartitionData = (await asker.receive()).responses[0].partitions[0]
    assert values_of(data) == [b"new"]


@pytest.mark.parametrize(
    ("version", "code"),
    [(4, ErrorCode.LEADER_NOT_AVAILABLE), (5, ErrorCode.OFFSET_NOT_AVAILABLE)],
)
async def test_wait_is_bounded(
    disk: Disk,
    clients: tuple[RawClient, RawClient],
    monkeypatch: pytest.MonkeyPatch,
    version: int,
    code: ErrorCode,
) -> None:
    monkeypatch.setattr(commit_wait, "PATIENCE_MS", 20)
    writer, asker = clients
    await acknowledge(writer, "new")
    assert (await list_offset(asker, "t", -1, version=version)).error_code == code
    assert (await delete_records(asker, -1)).error_code == ErrorCode.REQUEST_TIMED_OUT
    data = await fetch(asker, "t", 1, min_bytes=0)
    assert (values_of(data), data.high_watermark) == ([], 1)
    disk.open()
    while (await list_offset(asker, "t", -1, version=version)).error_code == code:
        pass
    assert (await list_offset(asker, "t", -1)).offset == 2


async def test_failing_disk_ends_the_wait(disk: Disk, clients: tuple[RawClient, RawClient]) -> None:
    writer, asker = clients
    await acknowledge(writer, "new")
    disk.error = OSError(5, "Input/output error")
    disk.open_soon()
    answer = await list_offset(asker, "t", -1)
    assert (answer.error_code, answer.offset) == (ErrorCode.NONE, 1)
    assert (await list_offset(asker, "t", -3)).offset == -1


async def test_deletion_of_the_topic_ends_the_wait(
    disk: Disk, clients: tuple[RawClient, RawClient]
) -> None:
    writer, asker = clients
    await acknowledge(writer, "new")
    asker.send(fetch_request("t", 1, min_bytes=0), FETCH_VERSION)
    await asyncio.sleep(0.05)
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=9_000)
    (result,) = (await writer.request(request, 6)).responses
    assert result.error_code == ErrorCode.NONE
    data = (await asker.receive()).responses[0].partitions[0]
    assert data.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def _end(client: RawClient, tries: int) -> bool:
    return (await list_offset(client, "t", -1)).offset > tries


async def _time(client: RawClient, tries: int) -> bool:
    found: ListOffsetsPartitionResponse = await list_offset(client, "t", 1_000 + tries)
    return found.offset == tries


async def _deletion(client: RawClient, tries: int) -> bool:
    return (await delete_records(client, tries + 1)).low_watermark == tries + 1


async def _reading(client: RawClient, tries: int) -> bool:
    return values_of(await fetch(client, "t", tries, min_bytes=0)) == [str(tries).encode()]


@pytest.mark.parametrize("question", [_end, _time, _deletion, _reading])
async def test_two_hundred_times(
    broker: RunningBroker,
    question: Callable[[RawClient, int], Awaitable[bool]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "fdatasync", lambda fd: time.sleep(0.001))
    writer, asker = await broker.client(), await broker.client()
    await create_topic(writer, "t")
    misses = 0
    for tries in range(TRIES):
        await acknowledge(writer, str(tries), timestamp=1_000 + tries)
        misses += not await question(asker, tries)
    assert misses == 0
