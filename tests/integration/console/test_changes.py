"""Changes by the console: previews, moves of groups, settings, records, the clock."""

import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest

from client.admin import Admin
from client.consumer import Consumer
from client.core.groups import GroupAdmin
from client.errors import BrokerRefused
from client.types import TopicPartition
from protocol.error_codes import ErrorCode
from protocol.time_windows import window_name
from tests.integration.console.conftest import Browser, Open
from tidelog.testing import InProcessBroker, Seed, in_process_broker

START = 1_767_225_600_000


async def committed(broker: InProcessBroker, group: str) -> dict[int, int]:
    async with Admin(broker.bootstrap) as admin:
        return {tp.partition: at.offset for tp, at in (await admin.group_offsets(group)).items()}


async def seed_group(broker: InProcessBroker) -> None:
    """100 records of one second each in two partitions; the group is after the first ten."""
    await broker.clock.freeze(START + 200_000)
    seeds = [Seed(f"v{i}", timestamp_ms=START + 1000 * i, partition=i % 2) for i in range(100)]
    await broker.create_topic("t", seeds, partitions=2)
    async with Admin(broker.bootstrap) as admin:
        positions = {TopicPartition("t", 0): 5, TopicPartition("t", 1): 5}
        await admin.alter_group_offsets("g", positions)


async def test_groups_have_lag_in_records_and_time(
    broker: InProcessBroker, browser: Browser
) -> None:
    await seed_group(broker)
    (row,) = (await browser.ask("/groups"))["groups"]
    assert (row["group"], row["records"], row["lag_ms"]) == ("g", 90, 190_000)
    found = await browser.ask("/groups/g")
    assert [one["lag"] for one in found["positions"]] == [45, 45]
    assert [one["first_ms"] - START for one in found["positions"]] == [10_000, 11_000]
    assert found["samples"] == [[START + 200_000, 90, 190_000]]
    assert found["members"] == []
    await browser.ask("/groups/none", 404)
    readers = (await browser.ask("/topics/t/readers"))["readers"]
    assert {one["position"] for one in readers} == {5}


async def test_records_without_a_time_give_no_lag_in_time(
    broker: InProcessBroker, browser: Browser
) -> None:
    """Not 56 years; and where only some of the records have one, theirs counts."""
    await seed_group(broker)
    await broker.create_topic("timeless", [Seed(str(n), timestamp_ms=-1) for n in range(7)])
    async with Admin(broker.bootstrap) as admin:
        await admin.alter_group_offsets("none", {TopicPartition("timeless", 0): 2})
        await admin.alter_group_offsets("g", {TopicPartition("timeless", 0): 2})
    listed = await browser.ask("/groups")
    lags = {row["group"]: (row["records"], row["lag_ms"]) for row in listed["groups"]}
    assert lags == {"g": (95, 190_000), "none": (5, None)}
    assert listed["topics"]["timeless"]["lag_ms"] is None
    assert listed["topics"]["timeless"]["records"] == 5
    assert listed["topics"]["t"] == {"group": "g", "records": 90, "lag_ms": 190_000}
    found = await browser.ask("/groups/none")
    assert [one["lag_ms"] for one in found["positions"]] == [None]
    assert (found["records"], found["lag_ms"]) == (5, None)
    assert "no time" in found["trend"]["sentence"]
    found = await browser.ask("/groups/g")
    assert (found["records"], found["lag_ms"]) == (95, 190_000)


async def test_the_latest_group_of_a_topic_is_by_time_then_by_records(
    broker: InProcessBroker, browser: Browser
) -> None:
    """A record ahead of the clock is no lag in time, and its group is not at the end."""
    await broker.clock.freeze(START)
    await broker.create_topic("t", [Seed(str(n), timestamp_ms=START + 1000) for n in range(9)])
    async with Admin(broker.bootstrap) as admin:
        for group, offset in (("a", 9), ("b", 2), ("c", 8)):
            await admin.alter_group_offsets(group, {TopicPartition("t", 0): offset})
    latest = (await browser.ask("/groups"))["topics"]["t"]
    assert latest == {"group": "b", "records": 7, "lag_ms": 0}


async def test_a_group_that_reads_a_window_has_its_lag_there_and_is_moved(
    open_console: Open, tmp_path: Path
) -> None:
    """Windows are in no list of topics; one of a topic that is gone is left out as topics are."""
    settings = {"time.windows.enable": "true"}
    async with in_process_broker(tmp_path / "windows", settings=settings) as broker:
        await seed_group(broker)
        window = window_name("t", START + 20_000, START + 60_000)
        gone = window_name("gone", START + 20_000, START + 60_000)
        positions = {TopicPartition(window, number): 15 for number in (0, 1)}
        async with Admin(broker.bootstrap) as admin:
            await admin.create_topic("gone")
            await admin.alter_group_offsets("hour", {**positions, TopicPartition(gone, 0): 0})
            await admin.delete_topic("gone")
            await admin.alter_group_offsets("hour", positions)
        async with open_console(bootstrap=broker.bootstrap) as browser:
            found = await browser.ask("/groups/hour")
            seen = [(one["topic"], one["position"], one["end"]) for one in found["positions"]]
            assert seen == [(window, 15, 50)] * 2
            assert (found["records"], found["lag_ms"]) == (70, 170_000)
            plan = await browser.change("/groups/hour/reset-preview", to="2026-01-01T00:00:40Z")
            assert [one["then"] for one in plan["positions"]] == [20, 20]
            await browser.change("/groups/hour/reset", positions=plan["positions"])
            assert await committed(broker, "hour") == {0: 20, 1: 20}


async def test_what_was_deleted_unread_is_lost_and_not_behind(
    broker: InProcessBroker, browser: Browser
) -> None:
    """The lag in time is that of the first record that is left."""
    await seed_group(broker)
    async with Admin(broker.bootstrap) as admin:
        await admin.delete_records({TopicPartition("t", 0): 20, TopicPartition("t", 1): 50})
    found = await browser.ask("/groups/g")
    of_interest = ("position", "lost", "lag", "lag_ms")
    assert [tuple(one[name] for name in of_interest) for one in found["positions"]] == [
        (5, 15, 30, 160_000),
        (5, 45, 0, 0),
    ]
    assert (found["records"], found["lag_ms"]) == (30, 160_000)
    (row,) = (await browser.ask("/groups"))["groups"]
    assert (row["records"], row["lag_ms"]) == (30, 160_000)


async def test_a_share_group_has_its_page(broker: InProcessBroker, browser: Browser) -> None:
    await seed_group(broker)
    start = {TopicPartition("t", 0): 40, TopicPartition("t", 1): 50}
    async with Admin(broker.bootstrap) as admin:
        await admin.alter_share_group_offsets("workers", start)
    listed = {row["group"]: row for row in (await browser.ask("/groups"))["groups"]}
    assert (listed["workers"]["type"], listed["workers"]["records"]) == ("share", 10)
    assert listed["workers"]["lag_ms"] == 120_000
    found = await browser.ask("/groups/workers")
    assert found["is_share"]
    assert [(one["position"], one["lag"]) for one in found["positions"]] == [(40, 10), (50, 0)]
    assert not (await browser.ask("/groups/g"))["is_share"]


async def test_groups_that_were_not_asked_are_counted(
    broker: InProcessBroker, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deletion must not seem harmless because its losers were not looked for."""
    await seed_group(broker)
    async with Admin(broker.bootstrap) as admin:
        for name in ("x", "y"):
            await admin.alter_group_offsets(name, {TopicPartition("t", 0): 1})
    before = "2026-01-01T00:01:00Z"
    plan = await browser.change("/topics/t/deletion-preview", before=before)
    assert ({one["group"] for one in plan["losers"]}, plan["groups_unknown"]) == (
        {"g", "x", "y"},
        0,
    )
    monkeypatch.setattr("console.data.groups.GROUPS_MAX", 2)
    assert (await browser.ask("/topics/t/readers"))["groups_unknown"] == 1
    asked = GroupAdmin.group_offsets

    async def refused(self: Any, group_id: str) -> Any:
        if group_id == "g":
            raise BrokerRefused("group g", ErrorCode.GROUP_AUTHORIZATION_FAILED)
        return await asked(self, group_id)

    monkeypatch.setattr(GroupAdmin, "group_offsets", refused)
    plan = await browser.change("/topics/t/deletion-preview", before=before)
    assert (len(plan["losers"]), plan["groups_unknown"]) == (1, 2)


async def test_lag_trend_turns_when_consumer_stops(
    broker: InProcessBroker, browser: Browser
) -> None:
    await seed_group(broker)
    for _ in range(4):
        found = await browser.ask("/groups/g")
        await broker.clock.advance("10s")
    assert found["trend"]["slope"] == pytest.approx(1.0)
    assert "grows" in found["trend"]["sentence"]


async def test_a_clock_that_is_set_back_leaves_no_samples_of_the_future(
    broker: InProcessBroker, browser: Browser
) -> None:
    await seed_group(broker)
    await browser.ask("/groups/g")
    await broker.clock.advance("1h")
    await browser.ask("/groups/g")
    await broker.clock.set(START + 210_000)
    found = await browser.ask("/groups/g")
    assert [at_ms - START for at_ms, _, _ in found["samples"]] == [200_000, 210_000]


async def test_reset_preview_is_what_is_committed(
    broker: InProcessBroker, browser: Browser
) -> None:
    await seed_group(broker)
    plan = await browser.change("/groups/g/reset-preview", to="2026-01-01T00:01:00Z")
    assert [one["then"] for one in plan["positions"]] == [30, 30]
    assert [one["moved"] for one in plan["positions"]] == [-25, -25]
    first = plan["positions"][0]
    assert first["at"] == {"offset": 30, "time_ms": START + 60_000, "key": None}
    assert first["before"]["time_ms"] == START + 58_000
    assert await committed(broker, "g") == {0: 5, 1: 5}
    await browser.change("/groups/g/reset", positions=plan["positions"])
    assert await committed(broker, "g") == {0: 30, 1: 30}


async def starts(broker: InProcessBroker) -> list[int]:
    async with Admin(broker.bootstrap) as admin:
        return list((await admin.earliest_offsets("t")).values())


async def test_records_before_a_time_are_previewed_then_deleted(
    broker: InProcessBroker, browser: Browser
) -> None:
    await seed_group(broker)
    plan = await browser.change("/topics/t/deletion-preview", before="2026-01-01T00:01:00Z")
    assert [(one["now"], one["then"], one["end"]) for one in plan["positions"]] == [
        (0, 30, 50),
        (0, 30, 50),
    ]
    first = plan["positions"][0]
    assert first["at"]["time_ms"] == START + 60_000
    assert first["before"]["time_ms"] == START + 58_000
    assert [(one["group"], one["partition"], one["lost"]) for one in plan["losers"]] == [
        ("g", 0, 25),
        ("g", 1, 25),
    ]
    assert await starts(broker) == [0, 0]
    done = await browser.change("/topics/t/deletion", positions=plan["positions"])
    assert done == {"partitions": 2, "deleted": 60}
    assert await starts(broker) == [30, 30]
    again = await browser.change("/topics/t/deletion", 400, positions=plan["positions"])
    assert "look again" in again["error"]


async def test_late_records_outlive_a_deletion_before_a_time(
    broker: InProcessBroker, browser: Browser
) -> None:
    """No record that is newer goes, however disordered they are."""
    await broker.clock.freeze(START + 200_000)
    seconds = (0, 10, 90, 20, 95)
    seeds = [Seed(str(n), timestamp_ms=START + 1000 * n) for n in seconds]
    await broker.create_topic("t", seeds, partitions=1)
    plan = await browser.change("/topics/t/deletion-preview", before="2026-01-01T00:00:30Z")
    assert [one["then"] for one in plan["positions"]] == [2]
    await browser.change("/topics/t/deletion", positions=plan["positions"])
    assert [one.value for one in await broker.read("t")] == [b"90", b"20", b"95"]
    all_of_it = await browser.change("/topics/t/deletion-preview", before="now")
    assert [(one["then"], one["is_end"]) for one in all_of_it["positions"]] == [(5, True)]


@pytest.mark.parametrize(
    ("positions", "sentence"),
    [
        ([], "1 to"),
        ([{"topic": "t", "partition": 0, "now": 0}], "a position has"),
        ([{"topic": "u", "partition": 0, "now": 0, "then": 1}], "no partition of t"),
    ],
)
async def test_odd_deletions_are_refused(
    broker: InProcessBroker, browser: Browser, positions: list[Any], sentence: str
) -> None:
    await seed_group(broker)
    refused = await browser.change("/topics/t/deletion", 400, positions=positions)
    assert sentence in refused["error"]
    assert await starts(broker) == [0, 0]


@pytest.mark.parametrize(
    ("to", "offsets"), [("earliest", [0, 0]), ("latest", [50, 50]), ("now", [50, 50])]
)
async def test_reset_to_the_ends(
    broker: InProcessBroker, browser: Browser, to: str, offsets: list[int]
) -> None:
    await seed_group(broker)
    plan = await browser.change("/groups/g/reset-preview", to=to)
    assert [one["then"] for one in plan["positions"]] == offsets
    assert [one["is_end"] for one in plan["positions"]] == [to != "earliest"] * 2


async def test_a_move_after_the_preview_is_noticed(
    broker: InProcessBroker, browser: Browser
) -> None:
    await seed_group(broker)
    plan = await browser.change("/groups/g/reset-preview", to="earliest")
    async with Admin(broker.bootstrap) as admin:
        await admin.alter_group_offsets("g", {TopicPartition("t", 1): 9})
    found = await browser.change("/groups/g/reset", 400, positions=plan["positions"])
    assert "look again" in found["error"]
    assert await committed(broker, "g") == {0: 5, 1: 9}


async def test_reset_is_refused_when_group_wakes(broker: InProcessBroker, browser: Browser) -> None:
    await seed_group(broker)
    plan = await browser.change("/groups/g/reset-preview", to="earliest")
    async with Consumer("t", bootstrap=broker.bootstrap, group_id="g", auto_commit=False) as one:
        await one.getmany(timeout_ms=5000)
        found = await browser.change("/groups/g/reset", 409, positions=plan["positions"])
    assert "members" in found["error"]
    assert await committed(broker, "g") == {0: 5, 1: 5}


async def test_settings_are_previewed_then_changed(
    broker: InProcessBroker, browser: Browser
) -> None:
    await broker.create_topic("t")
    changes = {"retention.ms": "3600000", "cleanup.policy": "compact"}
    plan = await browser.change("/topics/t/settings-preview", changes=changes)
    assert plan["changes"][0] == {"name": "retention.ms", "now": "604800000", "then": "3600000"}
    settings = (await browser.ask("/topics/t/settings"))["settings"]
    assert not [one for one in settings if one["is_set_here"]]
    await browser.change("/topics/t/settings", changes=changes)
    settings = (await browser.ask("/topics/t/settings"))["settings"]
    assert {one["name"] for one in settings if one["is_set_here"]} == set(changes)
    refused = await browser.change("/topics/t/settings-preview", 400, changes={"retention.ms": "x"})
    assert "retention.ms" in refused["error"]
    await browser.change("/topics/t/settings", changes={"retention.ms": None})
    await browser.change("/topics/t/settings", 400, changes={"retention.ms": 5})


async def test_a_record_is_produced_as_given(broker: InProcessBroker, browser: Browser) -> None:
    await broker.clock.freeze(START)
    await broker.create_topic("t", partitions=3)
    stored = await browser.change(
        "/topics/t/records", key="k", value="00ff", value_encoding="hex", partition=2,
        time="2025-12-31T23:00Z", headers=[["a", "b"], ["n", None]],
    )  # fmt: skip
    (record,) = await broker.read("t")
    assert (record.partition, record.offset) == (stored["partition"], stored["offset"]) == (2, 0)
    assert (record.key, record.value) == (b"k", b"\x00\xff")
    assert record.timestamp_ms == START - 3_600_000
    assert list(record.headers) == [("a", b"b"), ("n", None)]
    assert (await browser.change("/topics/t/records", value="now"))["time_ms"] == START


async def test_headers_of_any_bytes_go_out_and_come_back(
    broker: InProcessBroker, browser: Browser
) -> None:
    await broker.create_topic("odd")
    headers = (("json", b'{"a": 1}'), ("bytes", b"\x00\xff"), ("none", None), ("", b" x\r\n"))
    await broker.write("odd", Seed(None, headers=headers))
    found = await browser.ask("/topics/odd/record", partition=0, offset=0)
    exact = [[one["name"], one["exact"]] for one in found["headers"]]
    await browser.change("/topics/odd/records", value=None, headers=exact)
    first, second = await broker.read("odd")
    assert (first.value, tuple(first.headers)) == (None, headers)
    assert (second.value, tuple(second.headers)) == (None, headers)


@pytest.mark.parametrize("value", [{"base64": "%"}, {"base64": 1}, {"hex": "00"}, {}])
async def test_a_wrong_header_is_refused_with_the_forms_that_there_are(
    broker: InProcessBroker, browser: Browser, value: Any
) -> None:
    await broker.create_topic("odd")
    found = await browser.change("/topics/odd/records", 400, value="x", headers=[["a", value]])
    assert "base64" in found["error"]
    assert await broker.read("odd") == []


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({"value": 5}, "value"),
        ({"value": "xyz", "value_encoding": "hex"}, "hex"),
        ({"value": "a", "partition": -1}, "partition"),
        ({"value": "a", "time": "1700000000"}, "seconds"),
        ({"value": "a", "headers": [1]}, "headers"),
        ({}, "value"),
    ],
)
async def test_a_wrong_record_is_refused_with_its_field(
    broker: InProcessBroker, browser: Browser, body: dict[str, object], word: str
) -> None:
    await broker.create_topic("t")
    found = await browser.change("/topics/t/records", 400, **body)
    assert word in found["error"]
    assert await broker.read("t") == []


async def test_nothing_is_produced_to_a_topic_that_does_not_exist(
    broker: InProcessBroker, browser: Browser
) -> None:
    await browser.change("/topics/none/records", 404, value="a")
    assert [row["name"] for row in (await browser.ask("/topics"))["topics"]] == []


async def test_clock_page_advances_eight_days(broker: InProcessBroker, browser: Browser) -> None:
    before = (await browser.ask("/clock"))["wall_ms"]
    found = await browser.change("/clock", advance_ms=8 * 86_400_000)
    assert found["wall_ms"] - before >= 8 * 86_400_000
    assert found["fired"] > 0
    await browser.change("/clock", 400, advance_ms="8d")
    await browser.change("/clock", 400)


async def test_each_change_is_in_the_audit_log(
    broker: InProcessBroker, browser: Browser, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tidelog.audit")
    await broker.create_topic("t")
    await browser.change("/topics/t/settings", changes={"retention.ms": "1000"})
    await browser.change("/topics/t/settings", 400, changes={"retention.ms": "x"})
    done, refused = [line for line in caplog.messages if "change=topic-settings" in line]
    assert "retention.ms=1000" in done
    assert "result='done'" in done
    assert "refused" in refused


async def test_export_goes_back_by_produce(
    broker: InProcessBroker, browser: Browser, open_console: Open
) -> None:
    seeds = [
        Seed(b"\xff\x00", key="k", timestamp_ms=START, headers=(("h", b"x"),)),
        Seed("=1+1", timestamp_ms=START + 1),
        Seed(None, key="gone", timestamp_ms=START + 2),
    ]
    await broker.clock.freeze(START + 10)
    await broker.create_topic("t", seeds)
    response = await browser.get("/api/topics/t/export", params={"from": str(START)})
    assert "attachment" in response.headers["content-disposition"]
    lines = [json.loads(line) for line in response.text.splitlines()]
    assert [line["value"] for line in lines] == [{"base64": "/wA="}, "=1+1", None]
    assert lines[0]["headers"] == [["h", "x"]]
    assert {line["timestamp_type"] for line in lines} == {"CREATE_TIME"}
    async with open_console(may_export=False) as closed:
        await closed.ask("/topics/t/export", 404)
    await browser.ask("/topics/t/export", 400, format="xml")


async def test_csv_export_has_no_formulas(broker: InProcessBroker, browser: Browser) -> None:
    dangerous = ["=1", "+1", "-1", "@x", "\tx", "fine"]
    await broker.create_topic("t", dangerous)
    guarded = await browser.get("/api/topics/t/export", params={"format": "csv"})
    values = [line.rpartition(",")[2].strip('"') for line in guarded.text.splitlines()[1:]]
    assert values == ["'=1", "'+1", "'-1", "'@x", "'\tx", "fine"]
    plain = await browser.get("/api/topics/t/export", params={"format": "csv", "formulas": "1"})
    assert ",=1" in plain.text


async def test_an_export_has_every_record_of_the_window(
    broker: InProcessBroker, browser: Browser
) -> None:
    """More than a page of them, in more partitions than a page has."""
    seeds = [Seed(str(i), partition=i % 70) for i in range(2500)]
    await broker.create_topic("t", seeds, partitions=70)
    response = await browser.get("/api/topics/t/export")
    values = sorted(int(json.loads(line)["value"]) for line in response.text.splitlines())
    assert values == list(range(2500))


async def test_a_window_is_counted_then_copied_to_a_topic(
    broker: InProcessBroker, browser: Browser
) -> None:
    records = [
        Seed(str(n), key=f"k{n % 3}", timestamp_ms=START + n * 1000, headers=(("h", b"1"),))
        for n in range(50)
    ]
    for_ever = {"retention.ms": "-1"}
    await broker.create_topic("dlq", records, partitions=2, settings=for_ever)
    await broker.create_topic("again", partitions=3, settings=for_ever)
    path = f"/topics/dlq/copy?from={START + 10_000}&to={START + 40_000}&f=partition >= 0"
    body = {"target": "again", "keep_time": True, "limit": 7}
    counted = await browser.change(path, **body, dry_run=True)
    assert counted["copied"] == 7
    assert await broker.read("again") == []
    copied = 0
    cursor: str | None = ""
    # A page that has used up its time may be empty, and says where the next one starts.
    while cursor is not None:
        page = await browser.change(path, **body, cursor=cursor)
        copied += page["copied"]
        assert page["error"] is None
        places = page["cursor"]
        cursor = places and ",".join(f"{p}:{o}" for p, o in places.items())
    assert copied == 30
    found = await broker.read("again")
    assert sorted(int(one.value or b"") for one in found) == list(range(10, 40))
    assert {one.timestamp_ms - 1000 * int(one.value or b"") for one in found} == {START}
    assert all(one.headers == (("h", b"1"),) for one in found)
    assert len({(one.key, one.partition) for one in found}) == 3


async def test_a_copy_with_new_times_has_the_present(
    broker: InProcessBroker, browser: Browser
) -> None:
    await broker.create_topic(
        "dlq", [Seed("a", timestamp_ms=START)], settings={"retention.ms": "-1"}
    )
    await broker.create_topic("again")
    done = await browser.change("/topics/dlq/copy", target="again")
    assert done["copied"] == 1
    (found,) = await broker.read("again")
    assert found.timestamp_ms > START + 1000


@pytest.mark.parametrize(
    ("body", "status", "word"),
    [
        ({"target": "dlq"}, 400, "the source itself"),
        ({"target": "missing"}, 404, "missing"),
        ({"target": 5}, 400, "name of a topic"),
        ({"target": "again", "limit": 1001}, 400, "limit=1001 is out of range"),
        ({"target": "again", "keep_time": "yes"}, 400, "keep_time is true or false"),
        ({"target": "again", "cursor": "x"}, 400, "cursor=x"),
        ({}, 400, "lacks target"),
    ],
)
async def test_a_wrong_copy_is_refused(
    broker: InProcessBroker, browser: Browser, body: dict[str, Any], status: int, word: str
) -> None:
    await broker.create_topic("dlq", ["a"])
    await broker.create_topic("again")
    refused = await browser.change("/topics/dlq/copy", status, **body)
    assert re.search(word, refused["error"])
    assert await broker.read("again") == []


async def test_records_that_the_target_refuses_are_counted(
    broker: InProcessBroker, browser: Browser
) -> None:
    await broker.create_topic("dlq", ["a" * 2000, "b"])
    await broker.create_topic("small", settings={"max.message.bytes": "500"})
    done = await browser.change("/topics/dlq/copy", target="small")
    assert done["copied"] + done["failed"] == 2
    assert done["failed"]
    assert done["error"]
    assert done["cursor"] is None
