"""Odd cases: times that cannot be, narrow screens, a broker that goes away."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from client.admin import Admin
from client.producer import Producer
from client.types import TopicPartition
from tests.browser.conftest import Errors, filled_broker, running_console
from tidelog.testing import RunningBroker, Seed

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

MINUTE = 60_000
HOUR = 60 * MINUTE
START = 1_767_225_600_000  # 2026-01-01T00:00Z
NOW = START + 10 * HOUR


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    """One whose topics are odd in one way each."""
    with filled_broker(NOW, fill) as running:
        yield running


async def fill(broker: RunningBroker) -> None:
    async with Admin(broker.bootstrap) as admin:
        free = {"message.timestamp.after.max.ms": str(2**63 - 1)}
        for name in ("flights", "moments"):
            await admin.create_topic(name, partitions=1, configs=free)
        await admin.create_topic("stamped", configs={"message.timestamp.type": "LogAppendTime"})
        await admin.create_topic("wide", partitions=40)
        async with Producer(broker.bootstrap, check_timestamps=False) as producer:
            for n in range(120):
                await producer.send("flights", b"%d" % n, timestamp_ms=START + n * MINUTE)
            for time_ms in (START // 1000, START, START * 1000, START * 1_000_000):
                await producer.send("moments", b"x", timestamp_ms=time_ms)
            await producer.send("stamped", b"x")
            for number in range(40):
                await producer.send("wide", b"x", partition=number, timestamp_ms=START)
            await producer.flush()
        await admin.set_user("dashboards-of-the-night-watch", "tide-pool")
        await admin.alter_share_group_offsets("workers", {TopicPartition("flights", 0): 20})
        await admin.alter_group_offsets("late", {TopicPartition("wide", 3): 0})
        await admin.delete_records({TopicPartition("wide", 3): 1})
        await admin.alter_group_offsets("billing", {TopicPartition("flights", 0): 20})


@pytest.mark.parametrize("tab", ["", "?tab=segments", "?tab=skew", "?tab=partitions"])
def test_seconds_and_nanoseconds_leave_every_page_alive(page: Page, tab: str) -> None:
    page.goto(f"/topics/moments{tab}")
    expect(page.locator(".skeleton")).to_have_count(0)
    expect(page.locator(".note.bad")).to_have_count(0)
    if tab == "?tab=segments":
        expect(page.get_by_text(re.compile("reaches back to 1970-01-21.*left of"))).to_be_visible()
        expect(page.get_by_text(re.compile("right of the map"))).to_be_visible()
        page.get_by_text("The numbers as a table").first.click()
        numbers = page.get_by_role("region", name="The numbers")
        expect(numbers).to_contain_text("1970-01-21")
    if tab == "?tab=skew":
        expect(page.get_by_text(re.compile("look like nanoseconds")).first).to_be_visible()


def test_bars_of_stamped_records_are_arrivals(page: Page) -> None:
    page.goto("/topics/stamped")
    expect(page.get_by_text("so the bars are arrivals")).to_be_visible()
    page.goto("/topics/flights")
    expect(page.get_by_text("120 records by their own time")).to_be_visible()
    expect(page.get_by_text("so the bars are arrivals")).to_have_count(0)


def test_a_chosen_partition_of_a_wide_topic_comes_into_sight(page: Page) -> None:
    page.goto("/topics/wide?tab=segments")
    page.get_by_role("button", name="3", exact=True).click()
    expect(page.get_by_role("img", name=re.compile("Map of 1 segment"))).to_be_in_viewport()
    expect(page.get_by_label("Partition", exact=True)).to_have_value("3")


def test_a_record_comes_into_sight_on_a_narrow_screen(page: Page) -> None:
    page.set_viewport_size({"width": 400, "height": 800})
    page.goto("/topics/flights")
    page.locator("tr.row").nth(2).click()
    expect(page.get_by_label("Record", exact=True)).to_be_in_viewport()
    expect(page.get_by_label("The value", exact=True)).to_have_text("2")


@pytest.mark.parametrize("path", ["/security", "/topics/flights?tab=settings"])
def test_what_can_be_changed_is_in_sight_on_a_narrow_screen(page: Page, path: str) -> None:
    page.set_viewport_size({"width": 420, "height": 900})
    page.goto(path)
    expect(page.locator("td.act button").first).to_be_visible()
    ends = "(all) => all.map((one) => one.getBoundingClientRect().right)"
    assert 300 < max(page.locator("td.act button").evaluate_all(ends)) <= 420


def test_a_record_that_cannot_be_read_again_is_not_produced_as_its_error(page: Page) -> None:
    refusal = '{"error": "the brokers do not answer"}'
    page.route("**/raw?**", lambda route: route.fulfill(status=503, body=refusal))
    page.goto("/topics/flights?tab=produce&from=0:1")
    expect(page.get_by_role("alert")).to_contain_text("the brokers do not answer")
    expect(page.get_by_role("textbox", name="Value")).to_have_count(0)


def test_a_share_group_has_a_page_and_is_moved_by_a_command(page: Page) -> None:
    page.goto("/groups")
    page.get_by_role("link", name="workers").click()
    expect(page.get_by_role("columnheader", name="First record not done")).to_be_visible()
    expect(page.get_by_text("Move the group to a time")).to_have_count(0)
    page.get_by_role("button", name="Copy a command").click()
    assert page.evaluate("navigator.clipboard.readText()").startswith(
        "tidelog share reset workers --to-time -1h -b "
    )


def test_records_deleted_unread_are_counted(page: Page) -> None:
    page.goto("/groups/late")
    expect(page.get_by_text("1 offset deleted unread")).to_be_visible()


def test_groups_that_may_lose_records_are_counted(page: Page) -> None:
    """Where records would go, by a deletion or by other settings."""
    readers = '{"readers": [], "groups_unknown": 3}'
    page.route("**/readers?**", lambda route: route.fulfill(body=readers))
    page.goto("/topics/flights?tab=segments")
    page.get_by_label("retention.ms", exact=True).fill("1h")
    expect(page.get_by_text("The positions of 3 more groups are not known")).to_be_visible()
    plan = (
        '{"time_ms": 1, "losers": [], "groups_unknown": null, "positions": '
        '[{"topic": "flights", "partition": 0, "now": 0, "then": 5, "end": 9, "is_end": false}]}'
    )
    page.route("**/deletion-preview?**", lambda route: route.fulfill(body=plan))
    page.goto("/topics/flights?tab=partitions")
    page.get_by_label("Older than", exact=True).fill("-1h")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_text("The groups could not be asked")).to_be_visible()


def test_an_unreachable_address_is_named(chromium: Browser, errors: Errors) -> None:
    with running_console("127.0.0.1:1") as url:
        page = chromium.new_page()
        for path in ("/", "/topics", "/topics/flights", "/groups", "/security"):
            page.goto(f"{url}{path}")
            alert = page.get_by_role("alert").first
            expect(alert).to_contain_text("cannot connect to 127.0.0.1:1")
            expect(page.get_by_role("button", name="Try again").first).to_be_visible()
        page.goto(f"{url}/topics/flights?tab=tail")
        expect(page.get_by_role("alert").first).to_contain_text("cannot connect to 127.0.0.1:1")
        page.close()


def test_a_tail_with_a_wrong_filter_says_so_and_rests(page: Page) -> None:
    page.goto("/topics/flights?tab=tail&f=(((")
    expect(page.get_by_role("alert")).to_be_visible()
    expect(page.get_by_text("Connecting again")).to_have_count(0)
    box = page.get_by_label("Filter", exact=True)
    box.fill("")
    box.press("Enter")
    expect(page.get_by_text("Following 1 partition")).to_be_visible()


def test_figures_stay_with_their_age_while_the_broker_is_away(
    chromium: Browser, page: Page, broker: RunningBroker, console: str
) -> None:
    """A group's page, the overview, and a tail, which misses no record that came meanwhile."""
    other, tail = page.context.new_page(), page.context.new_page()
    page.goto("/groups/billing")
    expect(page.get_by_text("records behind", exact=True)).to_be_visible()
    page.get_by_role("link", name="flights").focus()
    other.goto("/")
    expect(other.get_by_text("records a second")).to_be_visible()
    tail.goto("/topics/flights?tab=tail")
    expect(tail.get_by_text("Following 1 partition")).to_be_visible()
    broker.kill()
    try:
        for one in (page, other):
            expect(one.get_by_text(re.compile("ago, and not current: "))).to_be_visible(
                timeout=60_000
            )
        expect(page.get_by_text("records behind", exact=True)).to_be_visible()
        expect(other.get_by_text("records a second")).to_be_visible()
        expect(tail.get_by_text("Connecting again…")).to_be_visible(timeout=60_000)
    finally:
        broker.restart()
        broker.clock.freeze(NOW)
    broker.write("flights", Seed("meanwhile", timestamp_ms=NOW))
    for one in (page, other):
        expect(one.get_by_text("not current")).to_have_count(0, timeout=60_000)
    expect(tail.get_by_role("cell", name="meanwhile")).to_be_visible(timeout=60_000)
    # The page was drawn again several times, and the keyboard is where it was.
    assert page.evaluate("document.activeElement.textContent") == "flights"


def test_an_empty_list_says_that_rules_may_hide_something(page: Page) -> None:
    page.goto("/topics?q=")
    ask = """async (secured) => {
        document.documentElement.dataset.secured = secured;
        return (await import("/static/state.js")).noneToSee("topics");
    }"""
    assert page.evaluate(ask, "0") == "There are no topics yet"
    hidden = "There are no topics yet, or none that the console's user may see (DESCRIBE)"
    assert page.evaluate(ask, "1") == hidden
