"""The live tail in tabs: hidden ones, many of them, and a topic that goes."""

import re
from contextlib import ExitStack

import pytest
from playwright.sync_api import Page, expect

from client.admin import Admin
from tidelog.testing import RunningBroker
from tidelog.testing.topics import run

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

CONNECTIONS = 6
"""So many has a browser to one server."""

HIDE = """isHidden => {
  Object.defineProperty(document, "hidden", { value: isHidden, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


def follow(page: Page, topic: str) -> None:
    page.goto(f"/topics/{topic}?tab=tail")
    expect(page.get_by_text("Following 1 partition")).to_be_visible()


def test_a_hidden_tail_rests_and_misses_nothing(page: Page, broker: RunningBroker) -> None:
    broker.create_topic("rested")
    follow(page, "rested")
    with page.expect_event("requestfailed", lambda request: "/tail" in request.url):
        page.evaluate(HIDE, True)
    broker.write("rested", "meanwhile")
    page.evaluate(HIDE, False)
    expect(page.get_by_role("cell", name="meanwhile")).to_be_visible()
    broker.write("rested", "later")
    expect(page.get_by_role("cell", name="later")).to_be_visible()
    expect(page.get_by_text("2 records since the start")).to_be_visible()


def test_tails_in_hidden_tabs_leave_room_for_other_pages(page: Page, broker: RunningBroker) -> None:
    broker.create_topic("followed")
    with ExitStack() as stack:
        for _ in range(CONNECTIONS):
            tab = page.context.new_page()
            stack.callback(tab.close)
            follow(tab, "followed")
            tab.evaluate(HIDE, True)
        page.goto("/topics")
        expect(page.locator("td.name a").first).to_be_visible()


def test_a_tail_says_that_its_topic_is_gone(page: Page, broker: RunningBroker) -> None:
    broker.create_topic("doomed", ["x"])
    follow(page, "doomed")

    async def delete() -> None:
        async with Admin(broker.bootstrap) as admin:
            await admin.delete_topic("doomed")

    run(delete)
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("doomed", timeout=60_000)
    expect(alert).to_contain_text(re.compile("UNKNOWN_TOPIC_OR_PARTITION|does not exist|no topic"))
    expect(page.get_by_text("Connecting again")).to_have_count(0)
