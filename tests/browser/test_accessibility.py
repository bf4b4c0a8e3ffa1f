"""WCAG 2.1 AA by axe, on every page, in both themes; and what keeps a page calm."""

import json
from collections.abc import Callable

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from client.admin import Admin
from client.types import TopicPartition
from tidelog.testing import RunningBroker, Seed
from tidelog.testing.topics import run

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

MINUTE = 60_000
START = 1_767_225_600_000
RULES = {"runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}}


@pytest.fixture(scope="module", autouse=True)
def _seeded(broker: RunningBroker) -> None:
    broker.clock.freeze(START + 400 * MINUTE)
    flights = [
        Seed(json.dumps({"n": n}), key=f"k{n}", partition=n % 3, timestamp_ms=START + n * MINUTE)
        for n in range(300)
    ]
    broker.create_topic("flights", partitions=3, settings={"segment.bytes": "2000"})
    for start in range(0, 300, 30):
        broker.write("flights", *flights[start : start + 30])
    broker.create_topic("empty")
    broker.create_topic("wide", partitions=12)
    broker.write("wide", Seed("x", partition=9, timestamp_ms=START))

    async def commit() -> None:
        async with Admin(broker.bootstrap) as admin:
            positions = {TopicPartition("flights", n): 50 for n in range(3)}
            await admin.alter_group_offsets("billing", positions)
            await admin.set_user("ann", "tide-pool")
            await admin.alter_quotas({"user": "ann"}, {"producer_byte_rate": 1e6})

    run(commit)


def press(name: str) -> Callable[[Page], None]:
    return lambda page: page.get_by_role("button", name=name).first.click()


PAGES: dict[str, Callable[[Page], None] | None] = {
    "/": None,
    "/topics": None,
    "/topics?name=none": None,
    "/topics/flights": None,
    "/topics/flights?split=1&unit=bytes": None,
    "/topics/flights?open=1:10": None,
    "/topics/flights?open=1:11": press("Copy to a topic…"),
    "/topics/flights?f=value.n < 9": press("Keep…"),
    "/topics/wide?tab=segments": None,
    "/topics/wide?tab=skew": None,
    "/topics/empty": None,
    "/topics/flights?tab=tail": None,
    "/topics/flights?tab=segments": None,
    "/topics/flights?tab=skew": None,
    "/topics/flights?tab=partitions": None,
    "/topics/flights?tab=settings": None,
    "/topics/empty?tab=settings": press("Change retention.ms"),
    "/topics/flights?tab=produce": None,
    "/topics/missing": None,
    "/groups": None,
    "/groups/billing": None,
    "/security": None,
    "/security?1": press("Add a user…"),
    "/clock": None,
    "/nowhere": None,
}


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("path", PAGES)
def test_axe_finds_no_fault(page: Page, path: str, theme: str) -> None:
    page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
    page.goto(path)
    expect(page.locator("#page :is(h1, .note)").first).to_be_visible()
    expect(page.locator(".skeleton")).to_have_count(0)
    if "tail" not in path:
        page.wait_for_load_state("networkidle")
    act = PAGES[path]
    if act is not None:
        act(page)
        expect(page.get_by_role("dialog")).to_be_visible()
    found = Axe().run(page, options=RULES)
    assert found.violations_count == 0, found.generate_report()


CALM = ["/", "/topics", "/topics/flights", "/topics/flights?tab=segments", "/groups/billing"]
SHIFTS = """
window.shift = 0;
new PerformanceObserver((list) => {
  for (const one of list.getEntries()) if (!one.hadRecentInput) window.shift += one.value;
}).observe({type: "layout-shift", buffered: true});
"""
FOCUSABLE = "a[href], button, input, select, textarea, summary, [tabindex='0']"
# The number that each element of the page has, and that of the one with the focus.
NUMBER = """selector => {
  const seen = [...document.querySelectorAll(selector)].filter(one => one.checkVisibility());
  seen.forEach((one, at) => { one.number = at; });
  return seen.length;
}"""
FOCUSED = """() => {
  const one = document.activeElement;
  const style = getComputedStyle(one);
  const isSeen = style.outlineStyle !== "none" || one.matches("tr, .skip");
  return [one.number ?? -1, isSeen, one.outerHTML.slice(0, 80)];
}"""


@pytest.mark.parametrize("path", CALM)
def test_nothing_jumps_while_a_page_loads(page: Page, path: str) -> None:
    page.add_init_script(SHIFTS)
    page.goto(path)
    expect(page.locator(".skeleton")).to_have_count(0)
    page.wait_for_load_state("networkidle")
    assert page.evaluate("window.shift") < 0.05


@pytest.mark.parametrize("path", CALM)
def test_the_main_thread_is_free_again_within_100_ms(page: Page, path: str) -> None:
    """By the CPU of each task, as the wall time of one is that of the machine's load as well."""
    browser = page.context.browser
    assert browser is not None
    page.goto("/clock")
    browser.start_tracing(page=page, categories=["toplevel", "__metadata"])
    page.goto(path)
    expect(page.locator(".skeleton")).to_have_count(0)
    page.wait_for_load_state("networkidle")
    events = json.loads(browser.stop_tracing())["traceEvents"]
    main = {
        (one["pid"], one["tid"])
        for one in events
        if one["name"] == "thread_name" and one["args"]["name"] == "CrRendererMain"
    }
    tasks_us = [one["tdur"] for one in events if (one["pid"], one["tid"]) in main and "tdur" in one]
    assert len(tasks_us) > 10
    assert max(tasks_us) < 100_000


@pytest.mark.parametrize(
    "path", [*CALM, "/topics/flights?tab=produce", "/topics/flights?tab=settings", "/security"]
)
def test_tab_reaches_everything_in_order_and_shows_where_it_is(page: Page, path: str) -> None:
    page.goto(path)
    expect(page.locator(".skeleton")).to_have_count(0)
    page.wait_for_load_state("networkidle")
    page.locator("body").evaluate("node => node.focus()")
    wanted = page.evaluate(NUMBER, FOCUSABLE)
    reached = []
    for _ in range(wanted):
        page.keyboard.press("Tab")
        number, is_seen, text = page.evaluate(FOCUSED)
        assert is_seen, text
        reached.append(number)
    assert reached == list(range(wanted))


@pytest.mark.parametrize("path", ["/", "/topics", "/topics/flights?open=1:10", "/security"])
def test_a_narrow_screen_scrolls_in_one_direction_only(page: Page, path: str) -> None:
    page.set_viewport_size({"width": 400, "height": 800})
    page.goto(path)
    expect(page.locator(".skeleton")).to_have_count(0)
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide <= 400
