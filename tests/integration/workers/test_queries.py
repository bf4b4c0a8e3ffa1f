"""The metrics port of each worker answers for the partitions of all, and says who is missing."""

import asyncio
import json
import os
import signal
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from broker.operator.worker_queries import PART_PATIENCE_S
from protocol.error_codes import ErrorCode
from tests.integration.workers.support import connect, kill, leaders_of, pid_of, wait_for_restart
from tests.support.broker import BrokerProcess, batch, broker_process
from tests.support.cli import tidelog
from tests.support.requests import create_topic, produce

PARTITIONS = 5
DAY_MS = 24 * 60 * 60 * 1000


def time_of(partition: int, number: int) -> int:
    """Partition 4 spans a year, so its bars are wider than those of the others."""
    return 1_700_000_000_000 + number * (100 * DAY_MS if partition == 4 else 1000) + partition


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[BrokerProcess]:
    """Three workers; partition P has P + 1 segments of one record each."""
    with broker_process(tmp_path / "data", workers="3", metrics_listener="127.0.0.1:0") as broker:
        client = await connect(broker.ports[0])
        await create_topic(client, "t", PARTITIONS, segment_bytes="100", retention_ms="-1")
        leaders = await leaders_of(client, "t")
        assert set(leaders.values()) == {1, 2, 3}
        for partition, leader in leaders.items():
            own = await connect(broker.ports[leader - 1])
            for number in range(partition + 1):
                records = batch("x", timestamp=time_of(partition, number))
                answer = await produce(own, "t", records, partition=partition)
                assert answer.error_code == ErrorCode.NONE
            await own.close()
        await client.close()
        yield broker


async def ask(broker: BrokerProcess, worker: int, question: str) -> Any:
    """The answer of a worker's port."""

    def get() -> Any:
        url = f"http://127.0.0.1:{broker.metrics_ports[worker - 1]}/{question}"
        with urllib.request.urlopen(url, timeout=40) as answer:
            return json.load(answer)

    return await asyncio.to_thread(get)


async def refusal(broker: BrokerProcess, worker: int, question: str) -> tuple[int, str]:
    """Status and reason of a worker's refusal."""
    with pytest.raises(urllib.error.HTTPError) as refused:
        await ask(broker, worker, question)
    return refused.value.code, json.load(refused.value)["error"]


def places(document: Any) -> list[tuple[int, int]]:
    return [
        (one["partition"], segment["base_offset"])
        for one in document["partitions"]
        for segment in one["segments"]
    ]


EVERYTHING = [(partition, base) for partition in range(PARTITIONS) for base in range(partition + 1)]


@pytest.mark.parametrize("worker", [1, 2, 3])
async def test_each_worker_answers_for_all_partitions(served: BrokerProcess, worker: int) -> None:
    for path in ("segments", "retention"):
        document = await ask(served, worker, f"{path}?topic=t")
        assert places(document) == EVERYTHING
        assert document["unanswered"] == []
    skew = await ask(served, worker, "skew?topic=t")
    assert [(one["partition"], one["records"]) for one in skew["partitions"]] == [
        (partition, partition + 1) for partition in range(PARTITIONS)
    ]
    one = await ask(served, worker, "segments?topic=t&partition=3")
    assert (one["partition"], len(one["segments"])) == (3, 4)
    one = await ask(served, worker, "retention?topic=t&partition=4")
    assert places(one) == [(4, base) for base in range(5)]


@pytest.mark.parametrize("worker", [1, 3])
async def test_pages_of_segments_go_over_all_workers(served: BrokerProcess, worker: int) -> None:
    found: list[tuple[int, int]] = []
    after: str | None = ""
    while after is not None:
        page = await ask(served, worker, f"segments?topic=t&limit=4{after and f'&after={after}'}")
        assert len(places(page)) <= 4
        found += places(page)
        after = page["next"]
    assert found == EVERYTHING


@pytest.mark.parametrize("worker", [1, 2])
async def test_counts_by_time_add_up_with_one_width(served: BrokerProcess, worker: int) -> None:
    found = await ask(served, worker, "histogram?topic=t&buckets=50&split=true")
    records = sum(range(1, PARTITIONS + 1))
    assert (found["records"], found["is_complete"]) == (records, True)
    assert sum(count for _, count in found["buckets"]) == records
    width = found["width_ms"]
    wanted: dict[int, int] = {}
    for partition, number in EVERYTHING:
        start = time_of(partition, number) // width * width
        wanted[start] = wanted.get(start, 0) + 1
    assert found["buckets"] == [[start, count] for start, count in sorted(wanted.items())]
    assert [one["records"] for one in found["partitions"]] == [1, 2, 3, 4, 5]


async def test_refusals_are_those_of_one_process(served: BrokerProcess) -> None:
    for worker in (1, 2):
        status, reason = await refusal(served, worker, "segments?topic=none")
        assert (status, "none" in reason) == (404, True)
        assert (await refusal(served, worker, "segments?topic=t&partition=5"))[0] == 404
        assert (await refusal(served, worker, "segments?topic=t&limit=0"))[0] == 400
        assert (await refusal(served, worker, "skew?topic=t&bytes=x"))[0] == 400
        status, reason = await refusal(served, worker, "retention?topic=t&retention.ms=x")
        assert (status, "retention.ms" in reason) == (400, True)


async def test_a_worker_that_is_not_there_is_named(served: BrokerProcess) -> None:
    """Worker 2 hangs, then worker 1 is dead: the others answer and say what is missing."""
    client = await connect(served.ports[0])
    leaders = await leaders_of(client, "t")
    await client.close()
    of_second = [partition for partition, leader in leaders.items() if leader == 2]
    pid = pid_of(served.directory, 2)
    os.kill(pid, signal.SIGSTOP)
    try:
        found = await ask(served, 1, "segments?topic=t")
        (missing,) = found["unanswered"]
        assert (missing["worker"], missing["partitions"]) == (2, of_second)
        assert missing["why"] == f"worker 2 did not answer within {PART_PATIENCE_S:g} s"
        assert places(found) == [place for place in EVERYTHING if place[0] not in of_second]
        done = await asyncio.to_thread(
            tidelog, "retention", "t", "-b", f"127.0.0.1:{served.ports[0]}"
        )
        assert done.returncode == 0, done.stderr
        assert "worker 2 did not answer" in done.stderr
    finally:
        os.kill(pid, signal.SIGCONT)
    former = kill(served.directory, 1)
    found = await ask(served, 2, "segments?topic=t")
    if found["unanswered"]:  # worker 1 was not back in time
        assert {one["worker"] for one in found["unanswered"]} == {1, 3}
        assert places(found) == [place for place in EVERYTHING if place[0] in of_second]
    await asyncio.to_thread(wait_for_restart, served.directory, 1, former)
    client = await connect(served.ports[0])
    await leaders_of(client, "t")
    await client.close()
    found = await ask(served, 2, "segments?topic=t")
    assert places(found) == EVERYTHING
