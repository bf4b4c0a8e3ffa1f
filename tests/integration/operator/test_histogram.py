"""Records counted by time, over HTTP: exact whatever their order, within bounds, by rights."""

import asyncio
import json
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from client.admin import Admin
from client.times import parse_time
from client.types import TopicPartition
from storage.disk.file_names import TIME_COUNTS_SUFFIX
from storage.log.histogram import span_of
from storage.segment.facts import UNKNOWN_MINIMUM
from tests.support.broker import RunningBroker, batch, running_broker
from tests.support.cli import tidelog
from tests.support.requests import create_topic, produce

START_MS = 1_700_000_100_000
MINUTE_MS = 60_000


def times_of(partition: int) -> list[list[int]]:
    """Batches of six hours: in order by and large, a tenth of them late, one far ahead."""
    random = Random(partition)
    batches = []
    for number in range(60):
        start_ms = START_MS + number * 6 * MINUTE_MS
        late_ms = random.randrange(3 * 60 * MINUTE_MS) if random.random() < 0.1 else 0
        batches.append([start_ms - late_ms + random.randrange(20_000) for _ in range(3)])
    batches[10].append(START_MS + 400 * 24 * 60 * MINUTE_MS)
    batches[20].append(-1)
    return batches


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[RunningBroker]:
    async with running_broker(tmp_path / "data", metrics_listener="127.0.0.1:0") as running:
        client = await running.client()
        await create_topic(client, "t", partitions=3, segment_bytes="1000")
        for partition in (0, 1):
            for times in times_of(partition):
                records = batch_of(times)
                answer = await produce(client, "t", records, partition=partition)
                assert answer.error_code == 0
        yield running


def batch_of(times: list[int]) -> bytes:
    from tests.support.logs import batch as stored

    return bytes(stored(*times))


async def ask(running: RunningBroker, query: str) -> Any:
    def get() -> Any:
        url = f"http://127.0.0.1:{running.ready.metrics_port}/histogram?{query}"
        with urllib.request.urlopen(url, timeout=20) as answer:
            return json.load(answer)

    return await asyncio.to_thread(get)


def expected(times: list[int], found: dict[str, Any]) -> list[list[int]]:
    width_ms = found["width_ms"]
    bars = Counter(
        time - time % width_ms for time in times if found["from_ms"] <= time < found["to_ms"]
    )
    return [list(one) for one in sorted(bars.items())]


async def test_bars_are_exact_and_add_up_to_all_records(served: RunningBroker) -> None:
    every = [time for partition in (0, 1) for times in times_of(partition) for time in times]
    window = f"from={START_MS}&to={START_MS + 6 * 60 * MINUTE_MS}"
    found = await ask(served, f"topic=t&{window}&buckets=96")
    assert found["width_ms"] == found["wanted_width_ms"] == 5 * MINUTE_MS
    assert found["buckets"] == expected(every, found)
    assert found["before"] == sum(0 <= time < found["from_ms"] for time in every)
    assert found["after"] == sum(time >= found["to_ms"] for time in every) == 2
    assert found["without_time"] == 2
    assert found["records"] == len(every)
    assert (found["is_complete"], found["missing"], found["next"]) == (True, [], None)
    fine = await ask(served, f"topic=t&{window}&buckets=1000")
    assert fine["width_ms"] == MINUTE_MS
    assert fine["buckets"] == expected(every, fine)


async def test_without_a_window_it_is_all_there_is(served: RunningBroker) -> None:
    found = await ask(served, "topic=t&partition=1")
    every = [time for times in times_of(1) for time in times]
    assert found["from_ms"] <= min(time for time in every if time >= 0)
    assert found["to_ms"] > max(every)
    assert (found["before"], found["after"], found["records"]) == (0, 0, len(every))
    assert len(found["buckets"]) <= 240


async def test_an_empty_topic_has_no_bars(served: RunningBroker) -> None:
    found = await ask(served, "topic=t&partition=2")
    assert (found["records"], found["buckets"], found["is_complete"]) == (0, [], True)


async def test_partitions_come_in_pages_that_add_up(served: RunningBroker) -> None:
    whole = await ask(served, "topic=t&split=true")
    assert [one["partition"] for one in whole["partitions"]] == [0, 1, 2]
    assert sum(one["records"] for one in whole["partitions"]) == whole["records"]
    assert [one["to_offset"] for one in whole["partitions"]] == [182, 182, 0]
    records, following = 0, ""
    for number in range(3):
        page = await ask(served, f"topic=t&limit=1&split=true{following}")
        assert [one["partition"] for one in page["partitions"]] == [number]
        records += page["records"]
        following = f"&after={page['next']}"
    assert page["next"] is None
    assert records == whole["records"]


async def test_what_is_not_counted_is_named_and_counted_bit_by_bit(
    served: RunningBroker, tmp_path: Path
) -> None:
    """As a directory of an earlier release: no segment has counts."""
    await served.broker.stop()
    for file in (tmp_path / "data").rglob(f"*{TIME_COUNTS_SUFFIX}"):
        file.unlink()
    async with running_broker(tmp_path / "data", metrics_listener="127.0.0.1:0") as again:
        nothing = await ask(again, "topic=t&bytes=0")
        assert (nothing["records"], nothing["is_complete"]) == (0, False)
        assert nothing["missing_segments"] == len(nothing["missing"]) > 10
        assert nothing["missing_bytes"] == sum(one["bytes"] for one in nothing["missing"])
        assert {one["why"] for one in nothing["missing"]} == {"not counted yet"}
        seen, read = [], 0
        while True:
            found = await ask(again, "topic=t&bytes=3000")
            seen.append(found["records"])
            read += found["bytes_read"]
            if found["is_complete"]:
                break
        assert len(seen) > 2
        assert seen == sorted(seen)
        assert (seen[-1], read) == (364, nothing["missing_bytes"])
        assert (await ask(again, "topic=t&bytes=0"))["records"] == 364


async def test_records_below_the_logs_start_do_not_count(served: RunningBroker) -> None:
    async with Admin(served.bootstrap) as admin:
        await admin.delete_records({TopicPartition("t", 0): 100})
    found = await ask(served, "topic=t&partition=0&split=true")
    assert found["partitions"][0]["from_offset"] == 100
    assert found["records"] == 82


async def test_the_command_draws_bars(served: RunningBroker) -> None:
    day = ("--from", str(START_MS), "--until", str(START_MS + 6 * 60 * MINUTE_MS))
    shown = await asyncio.to_thread(tidelog, "histogram", "t", *day, "-b", served.bootstrap)
    assert (shown.returncode, shown.stderr) == (0, "")
    lines = shown.stdout.splitlines()
    assert lines[0] == "t: 364 records in bars of 15m"
    assert lines[1].split() == ["FROM", "RECORDS"]
    assert max(line.count("#") for line in lines) == 40
    assert "2 records after the bars." in lines
    assert "2 records without a time." in lines
    counted = json.loads(
        (
            await asyncio.to_thread(tidelog, "histogram", "t", "--json", "-b", served.bootstrap)
        ).stdout
    )
    plain = await ask(served, "topic=t&buckets=24")
    assert counted.items() >= plain.items()
    times = {name: parse_time(counted[name], now_ms=None) for name in ("from", "to")}
    assert times == {"from": plain["from_ms"], "to": plain["to_ms"]}


async def test_a_bound_that_is_not_given_gives_way(served: RunningBroker) -> None:
    """The records are all on one side of the bound that is given."""
    early = await ask(served, f"topic=t&to={START_MS - 10**9}")
    assert (early["buckets"], early["before"], early["after"]) == ([], 0, 362)
    late = await ask(served, f"topic=t&from={START_MS + 10**12}")
    assert (late["buckets"], late["before"], late["after"]) == ([], 362, 0)


async def test_all_there_is_has_records_of_unknown_age_too(served: RunningBroker) -> None:
    """The smallest time of a segment is not known, as after a crash; its counts are."""
    log = served.broker.topics.led_log("t", 0)
    before = await ask(served, "topic=t&partition=0")
    for segment in log.segments:
        segment.min_timestamp = UNKNOWN_MINIMUM
    span = span_of([log])
    assert span is not None
    assert span[0] > min(min(times) for times in times_of(0) if -1 not in times)
    found = await ask(served, "topic=t&partition=0")
    assert (found["before"], found["after"], found["records"]) == (0, 0, 182)
    assert found["buckets"] == before["buckets"]


async def test_the_command_counts_a_topic_of_many_pages(
    served: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The headline and the bars are those of all partitions, in the same bars."""
    monkeypatch.setattr("client.aio.explain._PAGE", 1)
    async with Admin(served.bootstrap) as admin:
        found = await admin.count_by_time("t", buckets=24)
        assert found["records"] == 2 * 182
        assert len(found["buckets"]) <= 24
        assert found == await ask(served, "topic=t&buckets=24")


@pytest.mark.parametrize(
    ("query", "status", "words"),
    [
        ("topic=u", 404, "u"),
        ("topic=t&partition=9", 404, "9"),
        ("partition=0", 400, "topic=NAME is needed"),
        ("topic=t&buckets=0", 400, "buckets=0 is not a whole number from 1 to 1000"),
        ("topic=t&buckets=1001", 400, "from 1 to 1000"),
        ("topic=t&from=-1", 400, "from=-1"),
        ("topic=t&from=7&to=7", 400, "from=7 is not before to=7"),
        ("topic=t&from=1e9", 400, "from=1e9"),
        ("topic=t&limit=1001", 400, "limit=1001"),
        ("topic=t&bytes=99999999999", 400, "bytes=99999999999"),
        ("topic=t&split=yes", 400, "neither true nor false"),
        ("topic=t&bucket=7", 400, "bucket is no parameter"),
        ("topic=t&to=" + "9" * 5000, 400, "to=999"),
    ],
)
async def test_odd_questions_are_refused(
    served: RunningBroker, query: str, status: int, words: str
) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        await ask(served, query)
    assert refused.value.code == status
    assert words in json.load(refused.value)["error"]
    refused.value.close()


async def test_appends_go_on_while_records_are_counted(served: RunningBroker) -> None:
    client = await served.client()
    asked = [asyncio.create_task(ask(served, "topic=t&partition=0")) for _ in range(4)]
    for number in range(40):
        await produce(client, "t", batch(str(number), timestamp=START_MS + number * 2_000))
    found = await asyncio.gather(*asked)
    assert all(182 <= one["records"] <= 222 for one in found)
    assert (await ask(served, "topic=t&partition=0"))["records"] == 222
