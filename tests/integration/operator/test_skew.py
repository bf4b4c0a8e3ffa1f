"""Producers whose times are wrong, each named with its fault."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from broker.clocks.settable_clock import SettableClock
from broker.metrics import ClientTimes
from client.admin import Admin
from client.errors import BrokerRefused, InvalidUse
from client.producer import Producer
from tests.support.broker import RunningBroker, batch, running_broker
from tests.support.cli import tidelog
from tests.support.requests import create_topic, produce

HOUR_MS = 3_600_000
NOW_MS = 1_767_225_600_000
GOOD, SECONDS, AHEAD, SHUFFLED = 11, 12, 13, 14


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[RunningBroker]:
    """A topic with a segment for each batch and one hour between batches; four producers."""
    directory = tmp_path / "data"
    async with running_broker(
        directory, clock=SettableClock(), metrics_listener="127.0.0.1:0"
    ) as broker:
        client = await broker.client()
        await create_topic(
            client, "t", segment_bytes="300", message_timestamp_after_max_ms=str(99 * HOUR_MS)
        )
        await create_topic(client, "stamped", message_timestamp_type="LogAppendTime")
        async with Admin(broker.bootstrap) as admin:
            await admin.clock({"rate": 0, "set_ms": NOW_MS})
            for number, (producer_id, timestamp) in enumerate(
                [
                    (GOOD, NOW_MS),
                    (AHEAD, NOW_MS + 3 * HOUR_MS),
                    (GOOD, NOW_MS + 2 * HOUR_MS),
                    (SECONDS, NOW_MS // 1000),
                    (SHUFFLED, NOW_MS + 4 * HOUR_MS),
                    (SHUFFLED, NOW_MS),
                    (-1, -1),
                ]
            ):
                idempotent: dict[str, Any] = {"producer_id": producer_id, "producer_epoch": 0}
                idempotent["base_sequence"] = 2 if number in (2, 5) else 0
                records = batch(
                    "x" * 60, "y" * 60, timestamp=timestamp, **(idempotent if number < 6 else {})
                )
                answer = await produce(client, "t", records)
                assert answer.error_code == 0, number
                await admin.clock({"advance_ms": HOUR_MS})
            await produce(client, "stamped", batch("x"))
        yield broker


async def ask(running: RunningBroker, topic: str = "t", **options: Any) -> dict[str, Any]:
    async with Admin(running.bootstrap) as admin:
        found = await admin.audit_times(topic, **options)
    return found["partitions"][0]  # type: ignore[no-any-return]


async def test_each_producer_has_what_is_certain_of_it(running: RunningBroker) -> None:
    found = await ask(running)
    assert len(running.broker.topics.led_log("t", 0).segments) == 7
    assert (found["from_offset"], found["to_offset"], found["records"]) == (0, 14, 12)
    by_id = {one["producer_id"]: one for one in found["producers"]}
    good, ahead, seconds = by_id[GOOD], by_id[AHEAD], by_id[SECONDS]
    assert (good["ahead_ms"], good["behind_ms"], good["out_of_order"]) == (0, 0, 0)
    assert (by_id[SHUFFLED]["out_of_order"], by_id[SHUFFLED]["records"]) == (2, 4)
    # Appended an hour after the start.
    assert ahead["ahead_ms"] == 2 * HOUR_MS
    assert ahead["ahead"] == {"offset": 2, "timestamp_ms": NOW_MS + 3 * HOUR_MS}
    # The segment before was appended to two hours after the start.
    assert seconds["behind_ms"] == NOW_MS + 2 * HOUR_MS - NOW_MS // 1000
    assert seconds["behind"]["offset"] == 6
    assert by_id[-1]["without_time"] == 2


async def test_disorder_is_counted_against_the_youngest_before(running: RunningBroker) -> None:
    found = await ask(running)
    assert found["out_of_order"] == 6
    assert found["largest_step_back_ms"] == NOW_MS + 3 * HOUR_MS - NOW_MS // 1000
    assert (found["late_p50_ms"], found["late_p99_ms"]) == (0, -1)


async def test_only_the_newest_bytes_are_read(running: RunningBroker) -> None:
    log = running.broker.topics.led_log("t", 0)
    total = sum(segment.size for segment in log.segments)
    found = await ask(running, size_bytes=total // 2)
    assert (found["from_offset"], found["to_offset"], found["producers"][-1]["records"]) == (
        8,
        14,
        4,
    )


async def test_records_of_the_brokers_time_are_never_off(running: RunningBroker) -> None:
    found = await ask(running, "stamped")
    assert (found["stamped"], found["records"], found["producers"]) == (1, 0, [])


async def test_clients_that_are_off_are_named_exactly(running: RunningBroker) -> None:
    """Three bad producers and a good one, by their client ids; a batch each, and one refused."""
    async with Admin(running.bootstrap) as admin:
        await admin.create_topic("named", configs={"message.timestamp.after.max.ms": "9000000"})
        now_ms = (await admin.clock())["wall_ms"]
        for client_id, times in {
            "good": (now_ms, now_ms - HOUR_MS, now_ms + 60_000),
            "seconds": (now_ms // 1000,),
            "ahead": (now_ms + HOUR_MS, now_ms + 2 * HOUR_MS),
            "late": (now_ms - 2 * HOUR_MS,),
        }.items():
            async with Producer(
                running.bootstrap, client_id=client_id, check_timestamps=False
            ) as producer:
                for time_ms in times:
                    await producer.send("named", b"x", timestamp_ms=time_ms)
                    await producer.flush()
        async with Producer(running.bootstrap, client_id="refused") as producer:
            with pytest.raises(BrokerRefused, match="too new"):
                await (await producer.send("named", b"x", timestamp_ms=now_ms + 3 * HOUR_MS))
        found = (await admin.audit_times("named"))["clients"]
        by_id = {one["client_id"]: one for one in found}
        assert set(by_id) == {"refused", "late", "ahead", "seconds"}
        assert (by_id["ahead"]["ahead"], by_id["ahead"]["ahead_ms"]) == (2, 2 * HOUR_MS)
        place = {"partition": 0, "offset": 5, "timestamp_ms": now_ms + 2 * HOUR_MS}
        assert by_id["ahead"]["most_ahead"] == place
        assert by_id["ahead"]["first"] == {**place, "offset": 4, "timestamp_ms": now_ms + HOUR_MS}
        assert (by_id["late"]["behind"], by_id["late"]["behind_ms"]) == (1, 2 * HOUR_MS)
        assert by_id["seconds"]["most_behind"]["timestamp_ms"] == now_ms // 1000
        assert (by_id["refused"]["refused"], by_id["refused"]["first"]) == (1, None)
        url = f"http://127.0.0.1:{running.ready.metrics_port}/metrics"
        metrics = await asyncio.to_thread(lambda: urlopen(url, timeout=30).read().decode())
        line = 'tidelog_batches_off_time_total{client_id="ahead",fault="ahead",topic="named"} 2.0'
        assert line in metrics.splitlines()
        shown = await asyncio.to_thread(tidelog, "skew", "named", "-b", running.bootstrap)
        assert "Clients whose batches were off" in shown.stdout
        assert "2 batches ahead, by 2h at most (partition 0, offset 5" in shown.stdout
        assert "looks like seconds" in shown.stdout
        assert "1 batch refused" in shown.stdout
        await admin.delete_topic("named")
        await admin.create_topic("named")
        assert (await admin.audit_times("named"))["clients"] == []


def test_the_client_that_was_off_least_recently_is_forgotten() -> None:
    times = ClientTimes()
    for number in (*range(1000), 0, 1000):
        times.refused(str(number), "t", number)
    names = [client_id for client_id, _ in times.of_topic("t")]
    assert len(names) == 1000
    assert (names[0], names[-2:]) == ("2", ["0", "1000"])


async def test_a_request_that_cannot_be_meant_is_refused(running: RunningBroker) -> None:
    for size_bytes in (64 * 1024 * 1024 + 1, 99_999_999_999):
        range_and_cure = rf"bytes={size_bytes} .* 0 to 67108864; 'tidelog spark skew'"
        with pytest.raises(InvalidUse, match=range_and_cure):
            await ask(running, size_bytes=size_bytes)
    assert (await ask(running, size_bytes=64 * 1024 * 1024))["records"]


async def test_one_audit_runs_at_a_time(running: RunningBroker) -> None:
    port = running.ready.metrics_port

    async def status(query: str) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET /skew?topic={query} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        line = await reader.readline()
        writer.close()
        await writer.wait_closed()
        return line.split()[1]

    threads = running.broker._threads.control
    going_on = threading.Event()
    held = asyncio.ensure_future(threads.run(going_on.wait))
    audits = [asyncio.create_task(status("t")) for _ in range(2)]
    try:
        (refused,), (first,) = await asyncio.wait(audits, return_when=asyncio.FIRST_COMPLETED)
        assert refused.result() == b"429"
        assert await status("t&partition=x") == b"400", "what is wrong is said at once"
    finally:
        going_on.set()
        await held
    assert await first == b"200"
    assert await status("t") == b"200"


async def test_the_command_names_each_fault(running: RunningBroker) -> None:
    def run(*words: str) -> str:
        done = tidelog("skew", "t", "-b", running.bootstrap, *words)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    shown = await asyncio.to_thread(run)
    assert "12 records read, the newest of 1 partition" in shown
    assert f"id {AHEAD}" in shown
    assert "ahead by 2h (offset 2" in shown
    assert "looks like seconds" in shown
    assert "2 records without a time" in shown
    assert "50% of its records are older" in shown
    assert f"id {GOOD}" not in shown
    document = json.loads(await asyncio.to_thread(run, "--json"))
    assert document["partitions"][0]["out_of_order"] == 6
