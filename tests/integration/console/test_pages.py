"""The console's answers about topics, times and records, against a broker."""

import asyncio
import json
import math
import random
import time
import zoneinfo
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from client.admin import Admin
from client.producer import Producer
from client.types import TopicPartition
from console.data import records
from console.data.hub import Hub
from protocol.time_windows import window_name
from tests.integration.console.conftest import Browser, Open
from tidelog.testing import InProcessBroker, Seed, in_process_broker

HOUR = 3_600_000
START = 1_767_225_600_000  # 2026-01-01T00:00Z


async def seed_hours(broker: InProcessBroker, topic: str, partitions: int = 3) -> list[Seed]:
    """Two days with a record every six minutes, some of them late."""
    rnd = random.Random(1)
    seeds = []
    for index in range(480):
        late = rnd.randrange(2 * HOUR) if index % 10 == 0 else 0
        seeds.append(
            Seed(
                json.dumps({"n": index, "kind": "even" if index % 2 == 0 else "odd"}),
                key=f"k{index % 7}",
                timestamp_ms=START + index * HOUR // 10 - late,
                partition=index % partitions,
            )
        )
    await broker.clock.freeze(START + 48 * HOUR)
    await broker.create_topic(topic, seeds, partitions=partitions)
    return seeds


async def test_the_overview_says_what_the_brokers_are(
    broker: InProcessBroker, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.create_topic("t", ["a"], partitions=2)
    found = await browser.ask("/cluster")
    assert (found["kind"], found["topics"], found["has_metrics_port"]) == ("Tidelog", 1, True)
    assert found["bytes"] > 0
    assert found["has_settable_clock"]
    assert found["has_activity"]
    await broker.create_topic("wide", partitions=2000)
    monkeypatch.setattr("console.data.hub.KEPT_S", 0)
    assert not (await browser.ask("/cluster"))["has_activity"]


async def test_activity_is_what_came_since_the_question_before(
    broker: InProcessBroker, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = 100.0
    clock = SimpleNamespace(monotonic=lambda: at, time_ns=time.time_ns)
    monkeypatch.setattr("console.data.hub.time", clock)
    await broker.create_topic("t", ["a"])
    first = await browser.ask("/activity")
    assert first == {"records_per_s": None, "bytes_per_s": None, "held_by_future": 0}
    await broker.write("t", *("b" for _ in range(40)))
    at += 10
    found = await browser.ask("/activity")
    assert found["records_per_s"] == 4
    assert 4 < found["bytes_per_s"] < 400
    at += 100
    assert (await browser.ask("/activity"))["records_per_s"] is None


async def test_the_list_has_names_and_details_for_what_is_visible(
    broker: InProcessBroker, browser: Browser
) -> None:
    await broker.create_topic("flights", ["a", "b"], settings={"retention.ms": "3600000"})
    await broker.create_topic("empty")
    found = await browser.ask("/topics", name="FLI")
    assert [row["name"] for row in found["topics"]] == ["flights"]
    details = await browser.ask("/topic-details", name=["flights", "empty", "none"])
    assert details["topics"]["flights"]["records"] == 2
    assert details["topics"]["flights"]["retention.ms"] == "3600000"
    assert details["topics"]["empty"]["newest_ms"] is None
    assert "error" in details["topics"]["none"]
    await browser.ask("/topics", 400, order="x")
    assert "near" not in await browser.ask("/topics/flights")
    missing = await browser.ask("/topics/flihgts", 404)
    assert missing["near"] == ["flights"]
    window = await browser.ask(f"/topics/{window_name('flights', START)}", 404)
    assert "with time.windows.enable=true, if there is a topic flights" in window["error"]


async def test_bars_add_up_to_all_records(broker: InProcessBroker, browser: Browser) -> None:
    seeds = await seed_hours(broker, "t")
    for span in ({}, {"from": "2026-01-01T05:00Z", "to": "2026-01-01T20:00Z"}, {"p": "1-2"}):
        found = await browser.ask("/topics/t/timeline", buckets="40", **span)
        whole = found["before"] + sum(found["bars"]) + found["after"]
        chosen = [s for s in seeds if "p" not in span or s.partition in (1, 2)]
        assert whole + found.get("without_time", 0) == len(chosen)
        assert len(found["edges"]) == len(found["bars"]) + 1


@pytest.mark.parametrize("partitions", ["", "1", "0-1"])
async def test_a_tidelog_counts_the_bars_exactly(
    broker: InProcessBroker, browser: Browser, partitions: str
) -> None:
    """Late records are in the bars of their own times; each partition has bars of its own."""
    seeds = await seed_hours(broker, "t")
    chosen = {"": (0, 1, 2), "1": (1,), "0-1": (0, 1)}[partitions]
    times = {
        number: [s.timestamp_ms or 0 for s in seeds if s.partition == number] for number in chosen
    }
    asked = {"from": str(START + 5 * HOUR), "to": str(START + 20 * HOUR), "buckets": "40"}
    found = await browser.ask(
        "/topics/t/timeline", **asked, **({"p": partitions} if partitions else {})
    )
    assert (found["source"], found["lookups"], found["missing_bytes"]) == ("counts", 0, 0)
    assert found["partitions_drawn"] == len(chosen)
    edges = found["edges"]

    def counted(of: list[int]) -> list[int]:
        pairs = pairwise(edges)
        return [sum(low <= time < high for time in of) for low, high in pairs]

    everything = [time for of in times.values() for time in of]
    assert found["bars"] == counted(everything)
    assert found["before"] == sum(time < edges[0] for time in everything)
    assert found["after"] == sum(time >= edges[-1] for time in everything)
    split = {one["partition"]: one["bars"] for one in found["split"]}
    wanted = {number: counted(of) for number, of in times.items()}
    assert split == (wanted if len(chosen) > 1 else {})


async def test_a_window_is_counted_by_its_records_own_times(
    tmp_path: Path, open_console: Open
) -> None:
    settings = {"time.windows.enable": "true"}
    async with in_process_broker(tmp_path / "windows", settings=settings) as broker:
        seeds = await seed_hours(broker, "t")
        async with open_console(bootstrap=broker.bootstrap) as browser:
            low, high = START + 9 * HOUR + 29 * HOUR // 60, START + 20 * HOUR + HOUR // 2
            # The oldest and the newest record come last and before last in the log.
            ends = [Seed("last", timestamp_ms=high - 1), Seed("first", timestamp_ms=low)]
            await broker.write("t", *ends)
            seeds += ends
            window = window_name("t", low, high)
            assert (await browser.ask(f"/topics/{window}"))["bytes"] is None
            bytes_of = {
                name: (await browser.ask(f"/topics/{name}/timeline", unit="bytes"))["record_bytes"]
                for name in ("t", window)
            }
            assert bytes_of[window] == bytes_of["t"]
            assert bytes_of["t"]["-1"] > 30
            found = await browser.ask(f"/topics/{window}/timeline")
            wanted = sum(low <= (one.timestamp_ms or 0) < high for one in seeds)
            assert (found["source"], sum(found["bars"])) == ("counts", wanted)
            assert (found["before"], found["after"], found["records"]) == (0, 0, wanted)
            times = [one.timestamp_ms or 0 for one in seeds]
            inside = START + 12 * HOUR
            part = await browser.ask(
                f"/topics/{window}/timeline", **{"from": inside, "to": inside + HOUR, "buckets": 20}
            )
            edges = part["edges"]
            assert (part["source"], edges[0], edges[-1]) == ("counts", inside, inside + HOUR)
            assert part["bars"] == [
                sum(a <= time < b for time in times) for a, b in pairwise(edges)
            ]
            assert part["before"] == sum(low <= time < inside for time in times)
            assert part["after"] == sum(inside + HOUR <= time < high for time in times)


@pytest.mark.parametrize(
    ("start_ms", "source"), [(START + 9 * HOUR, "counts"), (START + 9 * HOUR + 1, "lookups")]
)
async def test_a_window_without_an_end_is_drawn_like_others(
    tmp_path: Path, open_console: Open, start_ms: int, source: str
) -> None:
    """By lookups where its start is within a second, of which there are no counts."""
    settings = {"time.windows.enable": "true"}
    async with in_process_broker(tmp_path / "windows", settings=settings) as broker:
        seeds = await seed_hours(broker, "t")
        ahead = Seed("ahead", timestamp_ms=START + 48 * HOUR + HOUR // 2)
        late = Seed("late", timestamp_ms=START + 9 * HOUR + 2)
        await broker.write("t", ahead, late)
        times = [one.timestamp_ms or 0 for one in (*seeds, ahead, late)]
        async with open_console(bootstrap=broker.bootstrap) as browser:
            found = await browser.ask(f"/topics/{window_name('t', start_ms)}/timeline")
            whole = found["before"] + sum(found["bars"]) + found["after"]
            assert found["source"] == source
            if source == "counts":
                assert (found["before"], found["after"]) == (0, 0)
                assert whole == found["records"] == sum(time >= start_ms for time in times)


async def test_the_whole_topic_is_drawn_with_its_oldest_and_its_newest_record(
    broker: InProcessBroker, browser: Browser
) -> None:
    """Neither is at an end of the log, and the newest is ahead of the clock."""
    seeds = await seed_hours(broker, "t")
    far = [
        Seed("ahead", timestamp_ms=START + 48 * HOUR + HOUR // 2),
        Seed("oldest", timestamp_ms=START - 9 * HOUR),
        Seed("x", timestamp_ms=START + 48 * HOUR),
    ]
    await broker.write("t", *far)
    found = await browser.ask("/topics/t/timeline")
    assert (found["source"], found["before"], found["after"]) == ("counts", 0, 0)
    assert sum(found["bars"]) == found["records"] == len(seeds) + len(far)
    since = await browser.ask("/topics/t/timeline", **{"from": str(START + 40 * HOUR)})
    assert since["edges"][-1] <= START + 48 * HOUR + HOUR // 4, "from a time on: to the present"
    assert since["after"] == 1
    until = await browser.ask("/topics/t/timeline", to=str(START - 10 * HOUR))
    assert (until["source"], sum(until["bars"])) == ("counts", 0)


@pytest.mark.parametrize("question", ["timeline", "records", "tail"])
async def test_a_partition_that_does_not_exist_is_named(
    broker: InProcessBroker, browser: Browser, question: str
) -> None:
    await broker.create_topic("t", ["a"], partitions=2)
    sentence = "t has no partition 77: it has 0 to 1"
    if question == "tail":
        answer = await browser.get("/api/topics/t/tail", params={"p": "0,77"})
        assert sentence in answer.text
    else:
        assert (await browser.ask(f"/topics/t/{question}", 404, p="77"))["error"] == sentence


async def test_a_partition_that_is_new_is_found(broker: InProcessBroker, browser: Browser) -> None:
    """Names are kept for some seconds, and partitions are added meanwhile."""
    await broker.create_topic("t", ["a"])
    await browser.ask("/topics")
    async with Admin(broker.bootstrap) as admin:
        await admin.create_partitions("t", 3)
    assert (await browser.ask("/topics/t/timeline", p="2"))["partitions"] == 1


async def test_a_topic_may_have_the_name_of_a_window(
    broker: InProcessBroker, browser: Browser
) -> None:
    """Where windows are not served; its times need not even be any."""
    for name in (window_name("t", START, START + HOUR), "t.__t__soon__"):
        await broker.create_topic(name, [Seed("x", timestamp_ms=START + 7 * HOUR)])
        assert (await browser.ask(f"/topics/{name}"))["window"] is None
        found = await browser.ask(f"/topics/{name}/timeline")
        assert (found["source"], sum(found["bars"])) == ("counts", 1)


async def test_records_behind_a_future_stamp_are_counted(
    broker: InProcessBroker, open_console: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def now_ms(_: Hub) -> int:
        return START + 48 * HOUR

    monkeypatch.setattr(Hub, "now_ms", now_ms)
    await seed_hours(broker, "t", partitions=1)
    ahead = Seed("ahead", timestamp_ms=START + 49 * HOUR)
    await broker.write("t", ahead, *(Seed(str(i), timestamp_ms=START + HOUR) for i in range(20)))
    async with open_console(broker_http="127.0.0.1:1") as browser:  # lookups alone
        found = await browser.ask("/topics/t/timeline")
        assert found["source"] == "lookups"
        assert (found["ahead"], found["after"]) == (21, 21)
        assert found["before"] + sum(found["bars"]) == 480


async def test_wide_topics_are_estimated_from_some_partitions(
    broker: InProcessBroker, open_console: Open
) -> None:
    await broker.create_topic("wide", partitions=100)
    async with open_console(broker_http="127.0.0.1:1") as browser:
        found = await browser.ask("/topics/wide/timeline")
        assert (found["partitions"], found["partitions_drawn"]) == (100, 80)
        assert found["lookups"] <= 80 * 14


async def all_pages(browser: Browser, topic: str, **params: str) -> list[dict[str, int]]:
    rows, cursor = [], ""
    while True:
        found = await browser.ask(f"/topics/{topic}/records", cursor=cursor, **params)
        rows += found["rows"]
        if found["cursor"] is None:
            return rows
        cursor = ",".join(f"{p}:{o}" for p, o in found["cursor"].items())


@pytest.mark.parametrize("order", ["time", "offset", "newest"])
@pytest.mark.parametrize("metrics", [None, "127.0.0.1:1"])
async def test_pages_hold_each_record_of_a_window_once(
    broker: InProcessBroker, open_console: Open, order: str, metrics: str | None
) -> None:
    """Late records too, except where the newest come first, which says so."""
    seeds = await seed_hours(broker, "t")
    low, high = START + 5 * HOUR, START + 20 * HOUR
    wanted = sorted(s.timestamp_ms or 0 for s in seeds if low <= (s.timestamp_ms or 0) < high)
    span = {"from": str(low), "to": str(high), "order": order, "limit": "17"}
    async with open_console(broker_http=metrics) as browser:
        rows = await all_pages(browser, "t", **span)
        places = [(row["partition"], row["offset"]) for row in rows]
        assert len(set(places)) == len(places)
        times = sorted(row["time_ms"] for row in rows)
        if order == "newest":
            assert set(times) <= set(wanted)
            assert (await browser.ask("/topics/t/records", **span))["late_unsearched"] > 0
        else:
            assert times == wanted


async def test_page_over_partitions_is_merged(broker: InProcessBroker, browser: Browser) -> None:
    await broker.clock.freeze(START + HOUR)
    seeds = [Seed(str(i), timestamp_ms=START + i, partition=i % 3) for i in range(300)]
    await broker.create_topic("t", seeds, partitions=3)
    found = await browser.ask("/topics/t/records", limit=30)
    assert [row["time_ms"] - START for row in found["rows"]] == list(range(30))
    newest = await browser.ask("/topics/t/records", limit=30, order="newest")
    assert [row["time_ms"] - START for row in newest["rows"]] == list(range(299, 269, -1))


async def test_a_filter_selects_over_all_pages(broker: InProcessBroker, browser: Browser) -> None:
    await seed_hours(broker, "t")
    rows = await all_pages(browser, "t", f="value.kind = even and value.n >= 100", limit="50")
    assert len(rows) == 190
    narrowed = await browser.ask("/topics/t/records", f="partition = 1", limit=1000)
    assert {row["partition"] for row in narrowed["rows"]} == {1}
    refused = await browser.ask("/topics/t/records", 400, f="value =")
    assert "ends where" in refused["error"]


async def test_a_user_has_one_search_at_a_time(
    broker: InProcessBroker, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.create_topic("t", ["a", "b"])
    running, most = 0, {"searches": 0, "pages": 0}
    read_page = records.read_page

    async def counted(hub: Any, window: records.Window, cursor: Any = None) -> Any:
        nonlocal running
        running += 1
        kind = "pages" if window.condition is None else "searches"
        most[kind] = max(most[kind], running)
        await asyncio.sleep(0.05)
        running -= 1
        return await read_page(hub, window, cursor)

    monkeypatch.setattr(records, "read_page", counted)
    found = await asyncio.gather(
        *(browser.ask("/topics/t/records", f="value = a") for _ in range(4))
    )
    assert [len(one["rows"]) for one in found] == [1] * 4
    await asyncio.gather(*(browser.ask("/topics/t/records") for _ in range(4)))
    assert most["searches"] == 1
    assert most["pages"] > 1


async def test_search_says_what_it_has_not_read(
    broker: InProcessBroker, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    await seed_hours(broker, "t", partitions=1)
    monkeypatch.setattr("console.data.records._ANSWER_BYTES", 2000)
    monkeypatch.setattr("console.data.records._PARTITION_BYTES", 2000)
    monkeypatch.setattr("console.data.records.PAGE_S", -1.0)
    found = await browser.ask("/topics/t/records", f="key = nothing", limit=1000)
    assert (found["rows"], found["read_bytes"], found["offsets_left"]) == ([], 0, 480)
    assert found["cursor"] == {"0": 0}


async def test_compacted_and_deleted_logs_are_read(
    broker: InProcessBroker, browser: Browser
) -> None:
    await broker.create_topic("t", [str(i) for i in range(50)])
    async with Admin(broker.bootstrap) as admin:
        await admin.delete_records({TopicPartition("t", 0): 20})
    for order in ("time", "newest", "offset"):
        rows = await all_pages(browser, "t", order=order, limit="7")
        assert sorted(row["offset"] for row in rows) == list(range(20, 50))
    assert "error" in await browser.ask("/topics/t/record", 404, offset=3)
    assert (await browser.ask("/topics/t/record", offset=20))["previous"] is None


async def test_neighbours_are_found_across_what_compaction_removed(
    broker: InProcessBroker, browser: Browser
) -> None:
    """Each record of a compacted log leads to the ones before and after it, however far."""
    await broker.clock.freeze(START)
    settings = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "segment.ms": "1000",
    }
    await broker.create_topic("t", settings=settings)
    async with Producer(broker.bootstrap) as producer:
        for n in range(1200):
            kept = n in (0, 3, 4, 40, 400, 1100)
            key = b"kept %d" % n if kept else b"again"
            await producer.send("t", b"v", key=key, timestamp_ms=START + n)
            if n % 50 == 0:
                await producer.flush()
        await producer.flush()
        await producer.send_and_wait("t", b"v", key=b"again", timestamp_ms=START + HOUR)
    await broker.clock.advance("2h")
    rows = await all_pages(browser, "t", limit="1000")
    offsets = sorted(row["offset"] for row in rows)
    assert offsets == [0, 3, 4, 40, 400, 1100, *offsets[6:]]
    assert len(offsets) < 10
    for before, offset, after in zip([None, *offsets], offsets, [*offsets[1:], None], strict=False):
        found = await browser.ask("/topics/t/record", offset=offset)
        near = [one and one["offset"] for one in (found["previous"], found["next"])]
        assert near == [before, after]


async def test_a_key_leads_to_all_records_that_have_it(
    broker: InProcessBroker, browser: Browser
) -> None:
    """Also keys that are numbers, JSON or no text; one too long for a filter leads nowhere."""
    keys = [b"17", b'{"id": "a b"}', b"\xff\x00", b"", b'a"\\', b"k" * 2000, None]
    await broker.create_topic("t", [Seed("v", key=key) for key in keys * 2])
    for offset, key in enumerate(keys):
        text = (await browser.ask("/topics/t/record", offset=offset))["same_key"]
        if key is None or len(key) > 1000:
            assert text is None
            continue
        found = await browser.ask("/topics/t/records", f=text)
        assert [row["offset"] for row in found["rows"]] == [offset, offset + len(keys)]


async def test_zones_do_not_depend_on_the_machine(browser: Browser) -> None:
    """A browser sends its own zone, and some say Asia/Calcutta, which small systems lack."""
    zoneinfo.reset_tzpath(to=())
    zoneinfo.ZoneInfo.clear_cache()
    try:
        found = await browser.ask("/time", text="2026-01-01", tz="Asia/Calcutta")
        assert found["ms"] == START - 11 * HOUR // 2
    finally:
        zoneinfo.reset_tzpath()
        zoneinfo.ZoneInfo.clear_cache()


@pytest.mark.parametrize("page", ["timeline", "records", "export"])
async def test_a_range_the_wrong_way_round_is_refused(
    broker: InProcessBroker, browser: Browser, page: str
) -> None:
    await broker.create_topic("t", [Seed("v", timestamp_ms=START)])
    late, early = "2026-01-02T09:00:00", "2026-01-01T09:00:00"
    for start, end in ((late, early), (late, late)):
        span = {"from": start, "to": end, "tz": "Asia/Tokyo"}
        found = await browser.ask(f"/topics/t/{page}", 400, **span)
        assert f"to={end}.000+09:00 is not after from=2026-01-02" in found["error"]


async def test_one_record_in_full(broker: InProcessBroker, browser: Browser) -> None:
    seed = Seed('{"a": 1}', key=b"\xff\x00", timestamp_ms=START, headers=(("h", b"x"), ("n", None)))
    await broker.clock.freeze(START)
    await broker.create_topic("t", ["before", seed])
    found = await browser.ask("/topics/t/record", partition=0, offset=1, tz="Asia/Tokyo")
    assert found["value"]["format"] == "json"
    assert found["key"]["format"] == "hex"
    assert found["time"] == "2026-01-01T09:00:00.000+09:00"
    assert [one["value"]["format"] for one in found["headers"]] == ["text", "null"]
    assert found["batch"]["first_offset"] <= 1 == found["batch"]["last_offset"]
    assert (found["batch"]["codec"], found["batch"]["format"]) == ("none", 2)
    assert found["previous"]["offset"] == 0
    assert found["next"] is None
    text = await browser.ask("/topics/t/record", offset=1, value_format="text")
    assert text["value"]["text"] == '{"a": 1}'
    await browser.ask("/topics/t/record", 400, offset=1, value_format="pickle")
    raw = await browser.get("/api/topics/t/raw", params={"offset": "1", "part": "key"})
    assert raw.content == b"\xff\x00"
    assert raw.headers["content-disposition"].startswith("attachment")


@pytest.mark.parametrize(
    ("text", "word"),
    [("1700000000", "seconds"), ("soon", "not a time"), ("9" * 300, "characters")],
)
async def test_a_wrong_time_is_explained(browser: Browser, text: str, word: str) -> None:
    found = await browser.ask("/time", 400, text=text)
    assert word in found["error"]
    assert found["request_id"]


@pytest.mark.parametrize(
    "params",
    [{"p": "x"}, {"p": "0-9999999"}, {"p": "5-1"}, {"limit": "0"}, {"limit": "1e9"},
     {"order": "x"}, {"cursor": "a"}, {"tz": "Mars/Phobos"}],
)  # fmt: skip
async def test_a_wrong_parameter_is_named(
    broker: InProcessBroker, browser: Browser, params: dict[str, str]
) -> None:
    await broker.create_topic("t", ["a"])
    found = await browser.ask("/topics/t/records", 400, **params)
    assert next(iter(params)) in found["error"]


@pytest.mark.parametrize("page", ["segments", "skew"])
async def test_a_wrong_partition_is_named_by_what_a_tidelog_answers(
    broker: InProcessBroker, browser: Browser, page: str
) -> None:
    await broker.create_topic("t", ["a"])
    found = await browser.ask(f"/topics/t/{page}", 400, partition="0&x=1")
    assert "partition=0&x=1" in found["error"]


async def test_a_search_that_its_deadline_ends_loses_no_record(
    broker: InProcessBroker, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.data.records.PAGE_S", 0.0)
    monkeypatch.setattr("console.data.records._EXAMINED_S", 0.0)
    monkeypatch.setattr(
        "console.data.records.Budget.is_spent", property(lambda budget: budget.read_records > 0)
    )
    await broker.create_topic("t", [f'{{"a": {n % 2}}}' for n in range(30)])
    page = await browser.ask("/topics/t/records", f="value.a = 0", order="offset")
    assert page["cursor"] == {"0": 1}
    rows = await all_pages(browser, "t", f="value.a = 0", order="offset")
    assert [row["offset"] for row in rows] == list(range(0, 30, 2))


async def test_a_tidelogs_map_forecast_lookup_and_audit_pass_through(
    broker: InProcessBroker, browser: Browser
) -> None:
    await seed_hours(broker, "t")
    plan = await browser.ask("/topics/t/retention", **{"retention.ms": "3600000"})
    assert plan["settings"]["retention.ms"] == 3_600_000
    assert len(plan["partitions"]) == 3
    segments = await browser.ask("/topics/t/segments", partition=1)
    assert segments["segments"][0]["base_offset"] == 0
    lookup = await browser.ask("/topics/t/explain", partition=0, at="2026-01-01T10:00Z")
    assert lookup["found"]["timestamp"] >= START + 10 * HOUR
    audit = await browser.ask("/topics/t/skew")
    assert sum(one["records"] for one in audit["partitions"]) == 480


async def test_partitions_of_a_wide_topic_are_listed_by_what_they_hold(
    broker: InProcessBroker, browser: Browser
) -> None:
    await broker.clock.freeze(START)
    settings = {"segment.bytes": "200", "message.timestamp.after.max.ms": str(99 * HOUR)}
    await broker.create_topic("wide", partitions=12, settings=settings)
    for n in range(3):
        one = Seed("x" * 90, partition=5, timestamp_ms=START - (2 - n) * HOUR)
        await broker.write("wide", one)
    for ahead in (48, 0, 0):
        await broker.write("wide", Seed("x" * 90, partition=7, timestamp_ms=START + ahead * HOUR))
    await broker.clock.advance(30 * HOUR)
    await broker.write("wide", Seed("x", partition=3, timestamp_ms=START))
    found = await browser.ask("/topics/wide/held")
    assert (found["held"], found["next"], found["rows"][0]["partition"]) == (1, None, 7)
    assert found["rows"][0]["future"] == {"offset": 0, "timestamp_ms": START + 48 * HOUR}
    assert found["held_bytes"] == found["rows"][0]["held_bytes"] > 0
    assert found["rows"][1]["partition"] == 5, "the widest of the others"
    assert found["rows"][1]["width_ms"] == 2 * HOUR


async def test_what_needs_a_tidelog_says_so_elsewhere(
    broker: InProcessBroker, open_console: Open
) -> None:
    await broker.create_topic("t", ["a"])
    async with open_console(broker_http="127.0.0.1:1") as browser:
        for question in ("segments", "retention", "skew"):
            found = await browser.ask(f"/topics/t/{question}", 503)
            assert "metrics port" in found["error"]
        assert (await browser.ask("/cluster"))["why_not"]
        assert len((await browser.ask("/topics/t/records"))["rows"]) == 1


async def test_without_a_broker_pages_load_and_questions_say_why(open_console: Open) -> None:
    async with open_console(bootstrap="127.0.0.1:1") as browser:
        page = await browser.get("/topics/t")
        assert page.status_code == 200
        browser.timeout = httpx.Timeout(60)
        for path in ("/topics", "/security"):
            found = await browser.ask(path, 503)
            assert "127.0.0.1:1" in found["error"]


async def test_users_rules_and_quotas_or_why_not(browser: Browser) -> None:
    found = await browser.ask("/security")
    assert found["users"] == {"found": [], "error": None}
    assert "authorizer" in found["rules"]["error"]
    assert found["quotas"]["found"] == []


@pytest.mark.parametrize("source", ["counts", "lookups"])
async def test_the_last_day_has_its_records_by_hour(
    broker: InProcessBroker, open_console: Open, source: str
) -> None:
    now_ms = START + 48 * 3_600_000
    await broker.clock.freeze(now_ms)
    # 30 records an hour; those before the last day are in no bar.
    seeds = [Seed("x", timestamp_ms=now_ms - n * 120_000 - 1) for n in range(1000)][::-1]
    await broker.create_topic("t", seeds, partitions=2)
    async with open_console() as browser:
        if source == "lookups":
            hub = browser._transport.app.state.hub  # type: ignore[attr-defined]
            kind = replace(await hub.kind(), has_metrics_port=False)
            hub._kind = (math.inf, kind)
        found = await browser.ask("/topic-days", name=["t", "missing"])
        assert found["topics"]["missing"] == []
        bars = found["topics"]["t"]
        assert len(bars) in (24, 25)
        assert sum(bars) == 720
        assert sum(29 <= count <= 31 for count in bars) >= 23
        await browser.ask("/topic-days", 400, name=[f"t{n}" for n in range(51)])


async def test_a_day_is_not_drawn_from_counts_that_lack_a_worker(
    broker: InProcessBroker, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ms = START + 48 * HOUR
    await broker.clock.freeze(now_ms)
    await broker.create_topic("t", [Seed("x", timestamp_ms=now_ms - HOUR)])
    ask = Hub.ask_tidelog

    async def without_a_worker(hub: Hub, path: str, asked: Any) -> dict[str, Any]:
        found = await ask(hub, path, asked)
        return {**found, "buckets": [], "unanswered": [{"worker": 1, "partitions": [0]}]}

    monkeypatch.setattr(Hub, "ask_tidelog", without_a_worker)
    found = await browser.ask("/topic-days", name=["t"])
    assert sum(found["topics"]["t"]) == 1


async def test_bars_carry_the_mean_size_and_the_retention(
    broker: InProcessBroker, browser: Browser
) -> None:
    settings = {"retention.ms": "3600000"}
    seeds = [Seed("x" * 1000, partition=n % 2) for n in range(40)]
    await broker.create_topic("t", seeds, partitions=2, settings=settings)
    drawn = await browser.ask("/topics/t/timeline", unit="bytes")
    assert set(drawn["record_bytes"]) == {"0", "1", "-1"}
    assert all(900 < size < 1200 for size in drawn["record_bytes"].values())
    assert drawn["retention_ms"] == 3_600_000
    plain = await browser.ask("/topics/t/timeline")
    assert plain["record_bytes"] == {}


async def test_bars_of_stamped_records_are_named_as_such(
    broker: InProcessBroker, browser: Browser
) -> None:
    await broker.create_topic("sent", ["x"])
    stamps = {"message.timestamp.type": "LogAppendTime"}
    await broker.create_topic("stamped", ["x"], settings=stamps)
    assert (await browser.ask("/topics/sent/timeline"))["is_stamped"] is False
    assert (await browser.ask("/topics/stamped/timeline"))["is_stamped"] is True


async def test_a_sample_finds_disorder_and_times_that_cannot_be(
    broker: InProcessBroker, browser: Browser
) -> None:
    """2,000 records a second apart: every fourth is an hour late, one day is ahead."""
    now_ms = START + 48 * HOUR
    await broker.clock.freeze(now_ms)
    await broker.create_topic(
        "t", partitions=2, settings={"message.timestamp.after.max.ms": str(100 * HOUR)}
    )
    seeds = [
        Seed("x", timestamp_ms=START + n * 1000 - (HOUR if n % 4 == 0 else 0), partition=0)
        for n in range(2000)
    ]
    for at in range(0, 2000, 40):
        await broker.write("t", *seeds[at : at + 40])
    async with Producer(broker.bootstrap, check_timestamps=False) as producer:
        for time_ms in (START // 1000, now_ms + 24 * HOUR):
            await producer.send_and_wait("t", b"wrong", timestamp_ms=time_ms, partition=1)
    found = await browser.ask("/topics/t/skew-sample")
    disordered, wrong = found["partitions"]
    assert found["offsets_read"] == found["offsets_wanted"] <= 200
    assert (disordered["from_offset"], disordered["to_offset"]) == (0, 2000)
    assert 0.2 < disordered["out_of_order"] / disordered["records"] <= 0.25
    assert disordered["largest_step_back_ms"] <= HOUR
    assert disordered["late_p99_ms"] == HOUR
    assert (disordered["ahead"], disordered["mistaken"]) == (None, None)
    offsets = [one[0] for one in disordered["curve"]]
    assert offsets == sorted(set(offsets))
    assert offsets[0] == 0
    assert wrong["mistaken"] == {"offset": 0, "timestamp_ms": START // 1000}
    assert wrong["ahead"] == {"offset": 1, "timestamp_ms": now_ms + 24 * HOUR}
    assert wrong["ahead_ms"] == 24 * HOUR


async def test_a_sample_of_nothing_is_empty(broker: InProcessBroker, browser: Browser) -> None:
    await broker.create_topic("t")
    (one,) = (await browser.ask("/topics/t/skew-sample"))["partitions"]
    assert (one["records"], one["curve"]) == (0, [])
    await browser.ask("/topics/none/skew-sample", 404)
