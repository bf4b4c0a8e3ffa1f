"""Addresses that no page has made: each leads to a page, or to a sentence that names the fault."""

import json

import pytest
from playwright.sync_api import Page, expect

from tidelog.testing import RunningBroker, Seed

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

MINUTE = 60_000
START = 1_767_225_600_000  # 2026-01-01T00:00Z

REFUSED = {
    "/topics/flights?from=never": "never",
    "/topics/flights?from=99999999999999999999": "9999999999",
    "/topics/flights?p=zz": "p=zz",
    "/topics/flights?p=0-999999999": "p=0-999999999",
    "/topics/flights?open=x:y": "partition",
    "/topics/flights?open=0:99999999": "99999999",
    "/topics/flights?open=7:0": "7",
    "/topics/flights?order=sideways": "order=sideways",
    "/topics/flights?zone=Mars/Base": "Mars/Base",
    "/topics/flights?f=(((": "the filter ends",
    "/topics/flights?tab=produce&from=0:99999999": "99999999",
    "/topics/flights?tab=produce&from=x:y": "partition",
    "/topics/flights?tab=segments&partition=99": "99",
    "/topics?order=colour": "order=colour",
    "/groups/%20": "GROUP_ID_NOT_FOUND",
    "/topics/%": "URI",
}
SHOWN = {
    "/topics/flights?sel=x..y": "120 records by their own time",
    "/topics/flights?sel=5..": "120 records by their own time",
    "/topics/flights?unit=parsecs": "120 records by their own time",
    "/topics/flights?tab=nothing": "120 records by their own time",
    "/topics?start=-5": "flights",
    "/topics?start=abc": "flights",
    "/topics?start=99999": "flights",
    "/clock?what=ever": "time of the broker",
    "/nowhere/at/all": "There is no such page",
}


@pytest.fixture(scope="module", autouse=True)
def _seeded(broker: RunningBroker) -> None:
    broker.clock.freeze(START + 120 * MINUTE)
    flights = [
        Seed(json.dumps({"n": n}), partition=n % 3, timestamp_ms=START + n * MINUTE)
        for n in range(120)
    ]
    broker.create_topic("flights", flights, partitions=3)


@pytest.mark.parametrize("path", REFUSED)
def test_a_broken_link_says_what_is_wrong(page: Page, path: str) -> None:
    page.goto(path)
    expect(page.get_by_role("alert").filter(has_text=REFUSED[path]).first).to_be_visible()
    expect(page.locator(".skeleton")).to_have_count(0)
    expect(page.get_by_text("Searching…")).to_have_count(0)


@pytest.mark.parametrize("path", SHOWN)
def test_what_a_page_does_not_know_changes_nothing(page: Page, path: str) -> None:
    page.goto(path)
    expect(page.get_by_text(SHOWN[path]).first).to_be_visible()
    expect(page.locator(".skeleton")).to_have_count(0)


def test_commands_have_the_filter_and_the_partitions(page: Page, broker: RunningBroker) -> None:
    page.goto("/topics/flights?p=0-1,2&f=value.n < 40")
    expect(page.get_by_text("40 records. That is all.")).to_be_visible()
    chosen = "--partition 0 --partition 1 --partition 2 --where 'value.n < 40'"
    page.get_by_role("button", name="Copy as command").first.click()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.endswith(f"{chosen} --exit-at-end -b {broker.bootstrap}")
    page.get_by_role("button", name="Copy to a topic…").click()
    page.get_by_role("dialog").get_by_role("button", name="Copy as command").click()
    assert chosen in page.evaluate("navigator.clipboard.readText()")
    page.goto("/topics/flights?tab=tail&p=1&f=value.n < 40")
    page.get_by_role("button", name="Copy as command").click()
    assert page.evaluate("navigator.clipboard.readText()") == (
        "tidelog consume flights --from latest --partition 1 --where 'value.n < 40' "
        f"-b {broker.bootstrap}"
    )
