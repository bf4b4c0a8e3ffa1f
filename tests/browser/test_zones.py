"""The zone of a page: marks of the axes, an unknown zone, a range the wrong way round."""

import json
import subprocess
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from client.admin import Admin
from client.producer import Producer
from client.types import TopicPartition
from tests.browser.conftest import filled_broker
from tidelog.testing import RunningBroker

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
NIGHT = 1_792_879_200_000  # 2026-10-24T22:00Z, midnight in Berlin before clocks go back
SPRING = 1_774_738_800_000  # 2026-03-28T23:00Z, midnight in Berlin before clocks go forward

MARKS = """([from, to, count]) => import("/static/time.js").then((time) =>
  time.ticks(from, to, count).map((at) => time.formatTick(at, to - from)))"""


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with filled_broker(NIGHT, fill) as running:
        yield running


async def fill(broker: RunningBroker) -> None:
    async with Admin(broker.bootstrap) as admin:
        await admin.create_topic("night")
        await admin.alter_group_offsets("watch", {TopicPartition("night", 0): 0})
    async with Producer(broker.bootstrap) as producer:
        await producer.send("night", b"x", timestamp_ms=NIGHT - MINUTE)
        await producer.flush()


@pytest.mark.parametrize(
    ("zone", "span", "wanted"),
    [
        ("UTC", (NIGHT, 2 * DAY, 4), ["10-25 00:00", "10-25 12:00", "10-26 00:00", "10-26 12:00"]),
        (
            "Europe/Berlin",
            (NIGHT, DAY, 9),
            ["10-25 00:00", "10-25 03:00", "10-25 06:00", "10-25 09:00", "10-25 12:00",
             "10-25 15:00", "10-25 18:00", "10-25 21:00"],
        ),
        (
            "Europe/Berlin",
            (SPRING, 5 * HOUR, 5),
            ["00:00", "01:00", "03:00", "04:00", "05:00", "06:00"],
        ),
        ("America/Los_Angeles", (NIGHT, 20 * DAY, 3), ["10-29", "11-05", "11-12"]),
        ("Asia/Kolkata", (NIGHT, 3 * HOUR, 3), ["04:00", "05:00", "06:00"]),
        ("Asia/Kathmandu", (NIGHT, HOUR, 2), ["04:00", "04:30"]),
        ("Pacific/Apia", (NIGHT, 800 * DAY, 3), ["2026-12-18", "2027-12-18", "2028-12-17"]),
    ],
)  # fmt: skip
def test_marks_of_an_axis_are_round_on_the_clocks_of_the_zone(
    page: Page, zone: str, span: tuple[int, int, int], wanted: list[str]
) -> None:
    """A mark with a day alone is its midnight; clocks that change leave the others round."""
    start, width, count = span
    page.goto(f"/topics?zone={zone}")
    assert page.evaluate(MARKS, [start, start + width, count]) == wanted


def test_marks_end_at_times_that_no_calendar_has(page: Page) -> None:
    page.goto("/topics?zone=Asia/Tokyo")
    assert len(page.evaluate(MARKS, [0, 2**62, 5])) <= 6


def test_an_unknown_zone_is_named(page: Page) -> None:
    page.goto("/topics/night")
    page.evaluate("window.prompt = () => 'Mars/Base'")
    page.get_by_label("Time zone").select_option("?")
    expect(page.get_by_text("This browser knows no zone Mars/Base")).to_be_visible()
    expect(page.get_by_label("Time zone")).to_have_value("utc")
    expect(page.get_by_role("cell", name="2026-10-24 21:59:00.000Z")).to_be_visible()


def test_a_range_the_wrong_way_round_is_refused(page: Page) -> None:
    page.goto("/topics/night")
    box = page.get_by_label("Time or range")
    box.fill("2026-10-25..2026-10-24")
    box.press("Enter")
    expect(page.get_by_role("alert").filter(has_text="is not after from=")).to_be_visible()
    expect(page.locator(".skeleton")).to_have_count(0)


def copied(page: Page, name: str = "Copy as command") -> str:
    page.get_by_role("button", name=name).last.click()
    expect(page.get_by_text("Copied:").last).to_be_visible()
    return str(page.evaluate("navigator.clipboard.readText()"))


def test_commands_have_the_times_of_the_zone(page: Page, broker: RunningBroker) -> None:
    """A time without a zone would be one of the other machine; one from now on stays so."""
    typed, meant = "2026-10-24T23:30", "2026-10-24T23:30:00.000+02:00"
    page.goto("/topics/night?tab=partitions&zone=Europe/Berlin")
    for text, wanted in ((typed, meant), ("-1h", "-1h")):
        page.get_by_label("Older than", exact=True).fill(text)
        page.get_by_role("button", name="Preview").click()
        expect(page.get_by_text("Nothing is changed yet.")).to_be_visible()
        assert f"--before {wanted} " in copied(page)
    page.goto("/groups/watch?zone=Europe/Berlin")
    page.get_by_label("Move to").fill(typed)
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_text("Nothing is changed yet.")).to_be_visible()
    assert f"--to-time {meant} " in copied(page)
    page.goto("/topics/night?tab=produce&zone=Europe/Berlin")
    page.get_by_role("textbox", name="Time").fill(typed)
    assert f"--timestamp {meant} " in copied(page)


def test_a_record_goes_through_any_shell_as_it_is(page: Page) -> None:
    """The echo of some shells makes line ends of the escapes of JSON."""
    value = "two\nlines, \\n and it's \\\\ 100 %s"
    page.goto("/topics/night?tab=produce")
    page.get_by_role("textbox", name="Value").fill(value)
    line = copied(page).rpartition(" | ")[0]
    done = subprocess.run(
        ["sh", "-c", line], capture_output=True, text=True, check=True, timeout=20
    )
    assert json.loads(done.stdout) == {"key": None, "value": value}
