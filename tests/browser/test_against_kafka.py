"""The console over Apache Kafka: each page works, or says in a sentence what it lacks."""

import asyncio
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from client.admin import Admin
from client.errors import BrokerRefused, BrokerUnreachable
from client.producer import Producer
from client.types import TopicPartition
from protocol.error_codes import ErrorCode
from tests.browser.conftest import running_console
from tests.browser.steps import delete_before, drag_on_the_timeline, set_retention
from tests.support.kafka_peer import LAST_BEFORE_KRAFT, LAST_WITH_OLD_PROTOCOLS, NEWEST, KafkaPeer
from tidelog.testing.topics import run

pytestmark = [
    pytest.mark.browser,
    pytest.mark.jvm,
    pytest.mark.slow,
    pytest.mark.timeout(300),
]

MINUTE = 60_000
COUNT = 600
SETTINGS = {"offsets.topic.num.partitions": "1", "offsets.topic.replication.factor": "1"}


@pytest.fixture(scope="module", params=[NEWEST, LAST_WITH_OLD_PROTOCOLS, LAST_BEFORE_KRAFT])
def kafka(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkaPeer]:
    folder = tmp_path_factory.mktemp("kafka")
    with KafkaPeer(folder / "data", version=request.param, settings=SETTINGS, heap="512m") as peer:
        run(lambda: fill(peer.bootstrap))
        yield peer


async def fill(bootstrap: str) -> None:
    """600 flights of the last ten hours, one a minute; a topic with a record ahead; a group."""
    first = first_ms()
    await create_when_ready(bootstrap)
    # A Kafka that has just started on a busy machine answers late.
    async with (
        Admin(bootstrap, timeout_ms=180_000, request_timeout_ms=60_000) as admin,
        Producer(bootstrap, delivery_timeout_ms=180_000, request_timeout_ms=60_000) as producer,
    ):
        for name in ("empty", "live", "written", "ahead", "copies", "aging"):
            await admin.create_topic(name, partitions=1)
        for n in range(COUNT):
            value = json.dumps({"n": n, "delay": n % 60}).encode()
            await producer.send("flights", value, partition=n % 3, timestamp_ms=first + n * MINUTE)
        for minute in (10, 20, 640, 30):
            await producer.send("ahead", b"x", timestamp_ms=first + minute * MINUTE)
        for minute in (0, 10, 50, 5, 55):
            await producer.send("aging", b"x", timestamp_ms=first + minute * MINUTE)
        await producer.flush()
        positions = {TopicPartition("flights", n): 150 for n in range(3)}
        await admin.alter_group_offsets("billing", positions)


async def create_when_ready(bootstrap: str) -> None:
    """Create the first topic: a Kafka's port is open before it answers and knows of any broker."""
    deadline = time.monotonic() + 180
    while True:
        try:
            async with Admin(bootstrap, timeout_ms=60_000, request_timeout_ms=60_000) as admin:
                return await admin.create_topic("flights", partitions=3)
        except (BrokerUnreachable, BrokerRefused) as error:
            code = getattr(error, "code", ErrorCode.INVALID_REPLICATION_FACTOR)
            if code != ErrorCode.INVALID_REPLICATION_FACTOR or time.monotonic() > deadline:
                raise
        await asyncio.sleep(0.5)


def first_ms() -> int:
    """When the flights begin: so that the last one is a minute old."""
    return (STARTED_MS // MINUTE - COUNT) * MINUTE


STARTED_MS = time.time_ns() // 1_000_000


@pytest.fixture(scope="module")
def console(kafka: KafkaPeer) -> Iterator[str]:
    with running_console(kafka.bootstrap) as url:
        yield url


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/", "Timelines are counted by lookups"),
        ("/topics", "flights"),
        ("/topics/flights", "Counted by lookups"),
        ("/topics/flights?tab=tail", "Following 3 partitions"),
        ("/topics/flights?tab=segments", "needs a Tidelog"),
        ("/topics/flights?tab=skew", "A sample: "),
        ("/topics/flights?tab=partitions", "1 of 1"),
        ("/topics/flights?tab=settings", "retention.ms"),
        ("/topics/flights?tab=produce", "Produce a record"),
        ("/topics/empty", "This topic has no records yet"),
        ("/groups", "billing"),
        ("/groups/billing", "records behind"),
        ("/security", "The brokers have no authorizer"),
        ("/clock", "Not available"),
    ],
)
def test_every_page_works_or_says_what_it_lacks(page: Page, path: str, text: str) -> None:
    page.goto(path)
    expect(page.locator("h1")).to_be_visible()
    expect(page.get_by_text(text).first).to_be_visible()
    expect(page.locator(".skeleton")).to_have_count(0)
    expect(page.locator(".note.bad")).to_have_count(0)


def test_bars_add_up_and_a_drag_lists_the_records(page: Page) -> None:
    page.goto("/topics/flights")
    chart = page.locator("canvas[role=img]").first
    expect(page.get_by_text("100 records.")).to_be_visible()
    label = chart.get_attribute("aria-label") or ""
    assert re.search(r": 600 from .*, 0 before, 0 after", label), label
    low, high = drag_on_the_timeline(page, 0.5, 0.55)
    wanted = sum(low <= first_ms() + n * MINUTE < high for n in range(COUNT))
    assert page.locator("tr.row").count() == wanted > 10


def test_records_behind_a_future_stamp_are_counted(page: Page) -> None:
    page.goto("/topics/ahead")
    expect(
        page.get_by_text("2 records lie in the log after one whose time is ahead")
    ).to_be_visible()


def test_the_list_has_offsets_sizes_and_times(page: Page) -> None:
    page.goto("/topics")
    row = page.get_by_role("row", name=re.compile("^flights"))
    expect(row).to_contain_text("600")
    expect(row).to_contain_text("7 d")
    expect(row).to_contain_text("KiB")
    expect(row).to_contain_text("ago")


def test_a_record_in_full_and_a_filter(page: Page) -> None:
    page.goto("/topics/flights?f=value.n = 77&open=2:25")
    expect(page.get_by_text("1 record. That is all.")).to_be_visible()
    expect(page.get_by_label("The value", exact=True)).to_contain_text('"n": 77')
    expect(page.get_by_text("3 m later")).to_be_visible()


def test_a_setting_is_previewed_then_changed(page: Page) -> None:
    set_retention(page, "empty")


def test_a_record_is_produced_and_shown(page: Page) -> None:
    page.goto("/topics/written?tab=produce")
    page.get_by_label("Value", exact=True).fill("from the page")
    page.get_by_role("button", name="Produce", exact=True).click()
    page.get_by_role("link", name="Show it").click()
    expect(page.get_by_label("The value", exact=True)).to_have_text("from the page")


def test_the_tail_shows_what_is_appended(page: Page, kafka: KafkaPeer) -> None:
    async def write() -> None:
        async with Producer(kafka.bootstrap) as producer:
            await producer.send("live", b"one")

    page.goto("/topics/live?tab=tail")
    expect(page.get_by_text("Following 1 partition")).to_be_visible()
    run(write)
    expect(page.get_by_role("cell", name="one")).to_be_visible()


def test_records_before_a_time_are_deleted(page: Page, kafka: KafkaPeer) -> None:
    """The late record of minute 5 stays, as none that is newer may go."""
    when = str(first_ms() + 30 * MINUTE)
    delete_before(page, "aging", when, "2 offsets of 1 partition would go")

    async def starts() -> list[int]:
        async with Admin(kafka.bootstrap) as admin:
            return list((await admin.earliest_offsets("aging")).values())

    assert run(starts) == [2]


def test_a_sample_shows_times_ahead(page: Page) -> None:
    page.goto("/topics/ahead?tab=skew")
    expect(page.get_by_text(re.compile("A record is .* ahead of the clock"))).to_be_visible()
    expect(page.get_by_role("img", name=re.compile("Times of the sample"))).to_be_visible()
    expect(page.get_by_role("cell", name="1 (25.0 %)")).to_be_visible()


def test_a_group_is_moved_to_a_time(page: Page) -> None:
    page.goto("/groups/billing")
    # 150 flights of three partitions are 450 minutes, so the next one is that of minute 450.
    expect(page.get_by_text("150", exact=True).first).to_be_visible()
    expect(page.get_by_text(re.compile("^2 h ")).first).to_be_visible()
    page.get_by_label("Move to").fill(str(first_ms() + 60 * MINUTE))
    page.get_by_role("button", name="Preview").click()
    plan = "390 records would be read again, 0 records would be skipped."
    expect(page.get_by_text(plan)).to_be_visible()
    page.get_by_role("button", name="Move the group").click()
    expect(page.get_by_text("Moved 3 positions of billing.")).to_be_visible()
    expect(page.get_by_role("cell", name="20", exact=True).first).to_be_visible()


def test_an_export_has_the_window(page: Page) -> None:
    page.goto("/topics/flights")
    with page.expect_download() as started:
        page.get_by_role("link", name="JSON Lines").click()
    path = Path(started.value.path())
    assert len(path.read_text().splitlines()) == COUNT


def test_users_and_quotas_come_and_go(page: Page) -> None:
    page.goto("/security")
    page.get_by_role("button", name="Add a user…").click()
    page.get_by_label("Name", exact=True).fill("ann")
    page.get_by_label("Password", exact=True).fill("tide-pool")
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.get_by_role("cell", name="ann", exact=True)).to_be_visible()
    page.get_by_role("button", name="Set a quota…").click()
    page.get_by_label("Name", exact=True).fill("ann")
    page.get_by_label("Value", exact=True).fill("100000")
    page.get_by_role("button", name="Set", exact=True).click()
    expect(page.get_by_role("cell", name="producer_byte_rate 100000")).to_be_visible()
    page.get_by_role("button", name="Remove the quota of user ann").click()
    page.get_by_role("button", name="Remove", exact=True).click()
    expect(page.get_by_text("There are no quotas.")).to_be_visible()
    page.get_by_role("button", name="Remove ann").click()
    page.get_by_role("button", name="Remove", exact=True).click()
    expect(page.get_by_text("There are no users")).to_be_visible()


def test_records_are_copied_to_a_topic(page: Page) -> None:
    page.goto(f"/topics/flights?sel={first_ms()}..{first_ms() + 30 * MINUTE}")
    expect(page.get_by_text("30 records. That is all.")).to_be_visible()
    page.get_by_role("button", name="Copy to a topic…").click()
    page.get_by_label("To the topic").fill("copies")
    page.get_by_role("button", name="Count", exact=True).click()
    expect(page.get_by_text("30 records would be copied.")).to_be_visible()
    page.get_by_role("button", name="Copy", exact=True).click()
    expect(page.get_by_text("30 records copied.")).to_be_visible()
    page.get_by_role("link", name="Show copies").click()
    expect(page.get_by_text("30 records. That is all.")).to_be_visible()
