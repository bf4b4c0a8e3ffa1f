"""Names that are long, and names that a browser would take for another address."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from client.admin import Admin
from client.producer import Producer
from client.types import TopicPartition
from protocol.acl import Acl, Operation, PatternType, Permission, ResourceType
from tests.browser.conftest import filled_broker
from tidelog.testing import RunningBroker

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

TOPIC = "t" * 249
LONG = "n" * 240
OF_OBJECTS = ["constructor", "toString", "__proto__"]
STRANGE = [".", "..", "../..", "a/b", "a/", "%2e%2e", "50%", "=..", "x?y#z", " ", "two\nlines"]
NOW = 1_767_225_600_000  # 2026-01-01T00:00Z
AHEAD_MS = 600_000


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with filled_broker(NOW, fill) as running:
        yield running


async def fill(broker: RunningBroker) -> None:
    async with Admin(broker.bootstrap) as admin:
        await admin.create_topic(TOPIC, configs={"message.timestamp.after.max.ms": str(2**63 - 1)})
        async with Producer(broker.bootstrap, client_id=LONG, check_timestamps=False) as producer:
            await producer.send(TOPIC, b"old", timestamp_ms=NOW - AHEAD_MS)
            await producer.send(TOPIC, b"x" * 900, key=b"k" * 900, timestamp_ms=NOW + AHEAD_MS)
            await producer.flush()
        await admin.alter_group_offsets(LONG, {TopicPartition(TOPIC, 0): 0})
        for group in STRANGE:
            await admin.alter_group_offsets(group, {TopicPartition(TOPIC, 0): 1})
        for name in OF_OBJECTS:
            await admin.create_topic(name)
        await admin.set_user(LONG, "tide-pool")
        await admin.alter_quotas({"user": LONG, "client-id": LONG}, {"producer_byte_rate": 1e6})
        rule = Acl(
            ResourceType.TOPIC, TOPIC, PatternType.LITERAL, f"User:{LONG}", "*",
            Operation.READ, Permission.ALLOW,
        )  # fmt: skip
        await admin.add_rules([rule])


PAGES = {
    "/": LONG,
    "/topics": TOPIC,
    "/groups": LONG,
    f"/groups/{LONG}": TOPIC,
    "/security": LONG,
    f"/topics/{TOPIC}": TOPIC,
    f"/topics/{TOPIC}?tab=segments": TOPIC,
    f"/topics/{TOPIC}?tab=skew": LONG[:150],
    f"/topics/{TOPIC}?tab=partitions": TOPIC,
    f"/topics/{TOPIC}?tab=settings": TOPIC,
    f"/topics/{TOPIC}?tab=produce": TOPIC,
}
WIDER = """() => [document.documentElement, ...document.querySelectorAll(".scroll, .card")]
  .filter((one) => one.scrollWidth > one.clientWidth + 1)
  .map((one) => `${one.getAttribute("aria-label")}: ${one.scrollWidth} in ${one.clientWidth}`)"""


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.replace(TOPIC, "T"))
def test_a_long_name_pushes_nothing_out_of_sight(page: Page, path: str) -> None:
    page.goto(path)
    expect(page.get_by_text(PAGES[path]).first).to_be_visible()
    expect(page.locator(".skeleton")).to_have_count(0)
    page.wait_for_load_state("networkidle")
    assert page.evaluate(WIDER) == []


@pytest.mark.parametrize("topic", OF_OBJECTS)
def test_a_topic_may_have_a_name_that_every_object_of_a_script_has(page: Page, topic: str) -> None:
    page.goto("/topics")
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name=topic, exact=True))
    expect(row.get_by_role("cell").last).to_have_text("-")
    expect(row.get_by_role("cell").nth(8)).to_have_text("-")
    page.goto(f"/topics/{topic}")
    expect(page.get_by_text("This topic has no records yet.")).to_be_visible()


def test_a_list_without_its_last_columns_has_its_rows(page: Page) -> None:
    page.route("**/api/topic-days**", lambda route: route.fulfill(status=503))
    page.route("**/api/groups**", lambda route: route.fulfill(status=503))
    page.goto("/topics")
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name="constructor"))
    expect(row.get_by_role("cell").last).to_have_text("-")
    expect(row.get_by_role("cell").nth(8)).to_have_text("-")


def test_a_long_name_fits_where_a_group_is_moved(page: Page) -> None:
    page.goto(f"/groups/{LONG}")
    page.get_by_label("Move to").fill("latest")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_text("2 records would be skipped")).to_be_visible()
    assert page.evaluate(WIDER) == []


@pytest.mark.parametrize("group", STRANGE)
def test_every_group_has_its_page(page: Page, group: str) -> None:
    """From the list, and again after a reload; what is moved there is moved."""
    shown = group if group.strip() else f'"{group}"'
    page.goto("/groups")
    row = page.get_by_role("row").filter(has=page.locator(f"a[href='{href_of(page, shown)}']"))
    row.get_by_role("link").click()
    expect(page.get_by_text("records behind", exact=True)).to_be_visible()
    assert page.locator("h1").text_content() == shown
    page.reload()
    expect(page.get_by_text("records behind", exact=True)).to_be_visible()
    assert page.locator("h1").text_content() == shown
    page.get_by_label("Move to").fill("latest")
    page.get_by_role("button", name="Preview").click()
    page.get_by_role("button", name="Move the group").click()
    expect(page.get_by_text(re.compile("^Moved 1 position of "))).to_be_visible()


def href_of(page: Page, text: str) -> str:
    """The address of the link with exactly this text, blanks included."""
    expect(page.get_by_role("link", name=LONG)).to_be_visible()
    links = "(all) => all.map((one) => [one.textContent, one.getAttribute('href')])"
    found = dict(page.locator("td a").evaluate_all(links))
    return str(found[text])
